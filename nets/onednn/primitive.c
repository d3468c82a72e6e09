/* primitive.c: creates and owns the library's objects. */
#include "nets/onednn/onednn.h"

#include <errno.h>

int cnn_dnnl_check(dnnl_status_t status, const char *doing, const struct cnn_dnnl_layer *l,
                   struct ps_error *err)
{
    const char *layer = l != NULL ? l->plan->spec->name : "net";

    switch (status) {
    case dnnl_success:
        return 0;
    case dnnl_out_of_memory:
        return ps_fail(err, -ENOMEM, "layer '%s': oneDNN has no memory to %s", layer, doing);
    case dnnl_unimplemented:
        return ps_fail(err, -ENOTSUP, "layer '%s': this oneDNN has no code to %s", layer, doing);
    default:
        return ps_fail(err, -EIO, "layer '%s': oneDNN failed with status %d to %s", layer, (int)status,
                       doing);
    }
}

int cnn_dnnl_desc(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, const void *op_desc,
                  const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out, struct ps_error *err)
{
    dnnl_status_t st = dnnl_primitive_desc_create(out, op_desc, d->attr, d->engine, hint);
    if (st == dnnl_success)
        d->descs[d->n_descs++] = *out;
    return cnn_dnnl_check(st, "run a layer of this shape", l, err);
}

int cnn_dnnl_share(struct cnn_dnnl *d, struct cnn_dnnl_shared *with, const struct cnn_dnnl_layer *l,
                   const dnnl_memory_desc_t *desc, dnnl_memory_t *out, struct ps_error *err)
{
    size_t bytes = dnnl_memory_desc_get_size(desc);
    int rc = cnn_dnnl_memory(d, l, desc, NULL, out, err);

    if (rc < 0)
        return rc;
    with->memories[with->n++] = *out;
    if (bytes > with->bytes)
        with->bytes = bytes;
    return 0;
}

int cnn_dnnl_weights(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, dnnl_primitive_desc_t desc,
                     dnnl_query_t what, dnnl_memory_t flat, dnnl_memory_t *out, struct ps_error *err)
{
    const dnnl_memory_desc_t *want = dnnl_primitive_desc_query_md(desc, what, 0), *have;

    dnnl_memory_get_memory_desc(flat, &have);
    if (dnnl_memory_desc_equal(want, have)) {
        *out = flat;
        return 0;
    }
    return cnn_dnnl_share(d, &d->weights, l, want, out, err);
}

int cnn_dnnl_memory(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, const dnnl_memory_desc_t *desc,
                    void *data, dnnl_memory_t *out, struct ps_error *err)
{
    dnnl_status_t st = dnnl_memory_create(out, desc, d->engine, data != NULL ? data : DNNL_MEMORY_NONE);
    if (st == dnnl_success)
        d->memories[d->n_memories++] = *out;
    return cnn_dnnl_check(st, "hold a tensor", l, err);
}

int cnn_dnnl_op_create(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, dnnl_primitive_desc_t desc,
                       const dnnl_exec_arg_t *args, struct cnn_dnnl_op *out, struct ps_error *err)
{
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    int rc = d->only_plans
                 ? 0
                 : cnn_dnnl_check(dnnl_primitive_create(&out->primitive, desc), "make a primitive", l, err);

    if (rc < 0)
        return rc;
    d->primitives[d->n_primitives++] = out->primitive; /* NULL: only planned */
    for (out->n_args = 0; args[out->n_args].arg != 0; out->n_args++)
        out->args[out->n_args] = args[out->n_args];
    if (dnnl_memory_desc_get_size(scratch) == 0)
        return 0;

    dnnl_memory_t memory;
    if ((rc = cnn_dnnl_share(d, &d->scratch, l, scratch, &memory, err)) < 0)
        return rc;
    out->args[out->n_args++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, memory};
    return 0;
}

int cnn_dnnl_reorder(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, dnnl_memory_t from, dnnl_memory_t to,
                     struct cnn_dnnl_op *out, struct ps_error *err)
{
    const dnnl_memory_desc_t *from_desc, *to_desc;
    dnnl_primitive_desc_t desc;
    int rc;

    if (from == to)
        return 0;
    dnnl_memory_get_memory_desc(from, &from_desc);
    dnnl_memory_get_memory_desc(to, &to_desc);
    rc = cnn_dnnl_check(
        dnnl_reorder_primitive_desc_create(&desc, from_desc, d->engine, to_desc, d->engine, d->attr),
        "reorder weights", l, err);
    if (rc < 0)
        return rc;
    d->descs[d->n_descs++] = desc;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {0}};
    return cnn_dnnl_op_create(d, l, desc, args, out, err);
}
