/* The collectives as a program calls them: arguments are checked here, and become tasks of the clique. */
#include <string.h>

#include "client/cliques/clique.h"
#include "client/cliques/wire.h"
#include "client/session/errors.h"

/* The name may have a parameter. */
static bool is_for_moves(const char *name)
{
    size_t n;
    const struct ps_codec *const *rows = ps_codec_rows(&n);
    for (size_t i = 0; i < n; i++)
        if (rows[i]->for_moves && ps_codec_is(name, rows[i]->name))
            return true;
    return false;
}

static int codec_of(struct psc_clique *q, const char *call, const char *name, const struct ps_codec **out)
{
    char names[128];
    *out = ps_codec_named_for_values(name != NULL ? name : "raw");
    if (*out != NULL)
        return PSC_OK;
    ps_codec_list_for_values(names, sizeof names);
    return psc_clique_refuse(
        q, PSC_EINVAL, "%s: codec '%.32s' %s; allowed are %s", call, name,
        is_for_moves(name) ? "needs error feedback, which sums do not have" : "is not known", names);
}

/* Checks common to all collectives. */
static int check(struct psc_clique *q, const char *call, const struct psc_collective *op)
{
    size_t parts = psc_call_has_parts(op->kind) && psc_clique_size(q) > 0 ? (size_t)psc_clique_size(q) : 1;
    if (op->n > 0 && op->data == NULL)
        return psc_clique_refuse(q, PSC_EINVAL, "%s: no array for %zu values", call, op->n);
    if (op->n > PTRDIFF_MAX / parts / psc_values_of(op->type)->bytes)
        return psc_clique_refuse(q, PSC_EINVAL, "%s: %zu values are more than an array can hold", call,
                                 op->n);
    if (psc_clique_is_open(q) && (op->root < 0 || op->root >= psc_clique_size(q)))
        return psc_clique_refuse(q, PSC_EINVAL, "%s: root is %d; allowed are 0 to %d", call, op->root,
                                 psc_clique_size(q) - 1);
    return PSC_OK;
}

static int floats_of(struct psc_clique *q, const char *call, struct psc_collective *op, const char *codec)
{
    int rc = check(q, call, op);
    return rc == PSC_OK ? codec_of(q, call, codec, &op->codec) : rc;
}

int psc_allreduce(struct psc_clique *q, float *x, size_t n, const char *codec)
{
    struct psc_task t = {.op = {.kind = PSC_ALLREDUCE, .data = x, .n = n}};
    int rc = floats_of(q, "psc_allreduce", &t.op, codec);
    return rc == PSC_OK ? psc_clique_run(q, &t) : rc;
}

int psc_allreduce_start(struct psc_clique *q, float *x, size_t n, const char *codec, uint64_t *ticket)
{
    struct psc_task t = {.op = {.kind = PSC_ALLREDUCE, .data = x, .n = n}};
    int rc = floats_of(q, "psc_allreduce_start", &t.op, codec);
    return rc == PSC_OK ? psc_clique_start(q, &t, ticket) : rc;
}

int psc_reduce(struct psc_clique *q, float *x, size_t n, int root, const char *codec)
{
    struct psc_task t = {.op = {.kind = PSC_REDUCE, .data = x, .n = n, .root = root}};
    int rc = floats_of(q, "psc_reduce", &t.op, codec);
    return rc == PSC_OK ? psc_clique_run(q, &t) : rc;
}

int psc_reduce_start(struct psc_clique *q, float *x, size_t n, int root, const char *codec, uint64_t *ticket)
{
    struct psc_task t = {.op = {.kind = PSC_REDUCE, .data = x, .n = n, .root = root}};
    int rc = floats_of(q, "psc_reduce_start", &t.op, codec);
    return rc == PSC_OK ? psc_clique_start(q, &t, ticket) : rc;
}

int psc_broadcast(struct psc_clique *q, void *data, size_t n_bytes, int root)
{
    struct psc_task t = {
        .op = {.kind = PSC_BROADCAST, .data = data, .n = n_bytes, .root = root, .type = PSC_BYTES}};
    int rc = check(q, "psc_broadcast", &t.op);
    return rc == PSC_OK ? psc_clique_run(q, &t) : rc;
}

int psc_broadcast_start(struct psc_clique *q, void *data, size_t n_bytes, int root, uint64_t *ticket)
{
    struct psc_task t = {
        .op = {.kind = PSC_BROADCAST, .data = data, .n = n_bytes, .root = root, .type = PSC_BYTES}};
    int rc = check(q, "psc_broadcast_start", &t.op);
    return rc == PSC_OK ? psc_clique_start(q, &t, ticket) : rc;
}

int psc_barrier(struct psc_clique *q)
{
    return psc_clique_run(q, &(struct psc_task){.op = {.kind = PSC_BARRIER}});
}

int psc_barrier_start(struct psc_clique *q, uint64_t *ticket)
{
    return psc_clique_start(q, &(struct psc_task){.op = {.kind = PSC_BARRIER}}, ticket);
}

void psc_collective_options_init(struct psc_collective_options *opt, size_t size)
{
    const struct psc_collective_options defaults = {.size = size, .compare = 1};
    memset(opt, 0, size);
    memcpy(opt, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

/* Whether the two arrays have a byte in common. */
static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/* Sizes of the caller's arrays in bytes. */
struct extent {
    size_t in, out;
};

static struct extent extent_of(const struct psc_clique *q, const struct psc_collective_options *o)
{
    size_t part = o->n * psc_values_of(o->type)->bytes, all = part * (size_t)psc_clique_size(q);
    switch (o->kind) {
    case PSC_REDUCE_SCATTER:
        return o->in != NULL ? (struct extent){all, part} : (struct extent){0, all};
    case PSC_ALLGATHER:
        return (struct extent){o->in != NULL ? part : 0, all};
    case PSC_BARRIER:
        return (struct extent){0, 0};
    default:
        return (struct extent){o->in != NULL ? part : 0, part};
    }
}

/* Whether the call reads this member's `in`; below, whether it writes its `out`. In calls with a root not
 * every member's arrays take part. */
static bool reads_in(const struct psc_clique *q, const struct psc_collective_options *o)
{
    return o->in != NULL && (o->kind != PSC_BROADCAST || o->root == psc_clique_rank(q));
}

static bool writes_out(const struct psc_clique *q, const struct psc_collective_options *o)
{
    return o->kind != PSC_BARRIER &&
           (o->kind != PSC_REDUCE || o->in == NULL || o->root == psc_clique_rank(q));
}

/* Sets the arrays of the task. As in other libraries, a call is also in place if `in` is the place in `out`
 * for the result of this member's values. */
static int take_arrays(struct psc_clique *q, const struct psc_collective_options *o, struct psc_task *t)
{
    struct extent bytes = extent_of(q, o);
    bool reads = reads_in(q, o), writes = writes_out(q, o);
    const char *own = o->out;
    if (o->kind == PSC_ALLGATHER && own != NULL)
        own += bytes.in * (size_t)psc_clique_rank(q);
    if (writes && bytes.out > 0 && o->out == NULL)
        return psc_clique_refuse(q, PSC_EINVAL, "%s: no array `out` for %zu values", psc_call_name(o->kind),
                                 o->n);
    t->op.data = o->out;
    if (!reads || (writes && o->in == own && o->kind != PSC_REDUCE_SCATTER))
        return PSC_OK;
    if (writes && overlap(o->in, bytes.in, o->out, bytes.out))
        return psc_clique_refuse(q, PSC_EINVAL,
                                 "%s: `in` and `out` overlap; allowed are separate arrays, or `in` NULL",
                                 psc_call_name(o->kind));
    if (t->op.on_device)
        return psc_clique_refuse(q, PSC_EUNSUPPORTED,
                                 "%s: memory is cuda, and `in` is not NULL; allowed is in place",
                                 psc_call_name(o->kind));
    t->in = o->in;
    t->needs_copy = !writes || o->kind == PSC_REDUCE_SCATTER;
    t->out = o->kind == PSC_REDUCE_SCATTER ? o->out : NULL;
    return PSC_OK;
}

/* Sets type, operation and codec of the task, and checks that they fit together. */
static int take_values(struct psc_clique *q, const struct psc_collective_options *o, struct psc_task *t)
{
    const char *call = psc_call_name(o->kind);
    bool reduces = psc_call_reduces(o->kind);
    bool sums = reduces && (o->operation == PSC_SUM || o->operation == PSC_MEAN);
    t->op.type = (uint8_t)o->type;
    t->op.operation = reduces ? (uint8_t)o->operation : PSC_SUM;
    if (reduces && psc_values_of(o->type)->divide == NULL)
        return psc_clique_refuse(q, PSC_EINVAL,
                                 "%s: type bytes has no operations; it is for broadcast and "
                                 "allgather",
                                 call);
    if (sums && o->type == PSC_FLOAT32)
        return codec_of(q, call, o->codec, &t->op.codec);
    if (o->codec != NULL && strcmp(o->codec, "raw") != 0)
        return psc_clique_refuse(q, PSC_EINVAL,
                                 "%s: codec '%.32s'; codecs are for sums and means of float32, and this is "
                                 "a %s of %s",
                                 call, o->codec, reduces ? psc_operation_name(o->operation) : "copy",
                                 psc_values_of(o->type)->name);
    return PSC_OK;
}

static int check_numbers(struct psc_clique *q, const struct psc_collective_options *o)
{
    const struct {
        const char *what;
        uint32_t value, most;
    } numbers[] = {{"kind", o->kind, PSC_N_COLLECTIVES - 1},
                   {"type", o->type, PSC_N_TYPES - 1},
                   {"operation", o->operation, PSC_N_OPERATIONS - 1},
                   {"compare", o->compare, 1},
                   {"memory", o->memory, PSC_MEMORY_CUDA},
                   {"timeout_ms", o->timeout_ms, PSC_MAX_TIMEOUT_MS}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value > numbers[i].most)
            return psc_clique_refuse(q, PSC_EINVAL, "collective: %s is %u; allowed are 0 to %u",
                                     numbers[i].what, numbers[i].value, numbers[i].most);
    return PSC_OK;
}

static int task_of(struct psc_clique *q, const struct psc_collective_options *given, struct psc_task *t)
{
    struct psc_collective_options o;
    struct ps_error why = {""};
    int rc;
    psc_collective_options_init(&o, sizeof o);
    if (given == NULL || given->size < offsetof(struct psc_collective_options, compare) || given->size > 4096)
        return psc_clique_refuse(q, PSC_EINVAL, "collective: call psc_collective_options_init first");
    if (psc_take_struct(&o, sizeof o, given, given->size, "collective", &why) != PSC_OK)
        return psc_clique_refuse(q, PSC_EINVAL, "%s", why.text);
    if ((rc = check_numbers(q, &o)) != PSC_OK)
        return rc;
    *t = (struct psc_task){.op = {.kind = (enum psc_collective_kind)o.kind, .n = o.n},
                           .compare = o.compare != 0,
                           .timeout_ms = o.timeout_ms};
    t->op.on_device = o.memory == PSC_MEMORY_CUDA && o.kind != PSC_BARRIER;
    if (o.kind == PSC_BARRIER)
        t->op.n = 0;
    else if ((rc = take_values(q, &o, t)) != PSC_OK)
        return rc;
    if (o.kind == PSC_REDUCE || o.kind == PSC_BROADCAST)
        t->op.root = o.root;
    t->op.data = o.out != NULL ? o.out : (void *)(uintptr_t)o.in;
    if ((rc = check(q, psc_call_name(o.kind), &t->op)) != PSC_OK || !psc_clique_is_open(q))
        return rc;
    rc = take_arrays(q, &o, t);
    return rc == PSC_OK && t->op.on_device ? psc_clique_check_device(q, &t->op) : rc;
}

int psc_collective_run(struct psc_clique *q, const struct psc_collective_options *opt)
{
    struct psc_task t;
    int rc = task_of(q, opt, &t);
    return rc == PSC_OK ? psc_clique_run(q, &t) : rc;
}

int psc_collective_start(struct psc_clique *q, const struct psc_collective_options *opt, uint64_t *ticket)
{
    struct psc_task t;
    int rc = task_of(q, opt, &t);
    return rc == PSC_OK ? psc_clique_start(q, &t, ticket) : rc;
}
