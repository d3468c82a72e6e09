/* memory.c: the plan of a net's memory, against a shadow of it. */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/backend.h"
#include "tests/nets/cases.h"
#include "tests/support/unit.h"

/* What each 64 bytes of the arena hold: 0 nothing; then values, gradients, and what layers keep, of the plan.
 */
struct shadow {
    const struct cnn_plan *plan;
    const struct cnn_memory *m;
    const struct cnn_needs *needs;
    uint32_t batch;
    size_t value_bytes, n_cells;
    uint32_t *cells;
    size_t *same_as;          /* [n_values]: the value that lies there as it is */
    size_t *same_gradient_as; /* [n_values]: the value whose gradient it shares */
};

static uint32_t value_tag(const struct shadow *s, size_t v)
{
    return (uint32_t)(1 + s->same_as[v]);
}

static uint32_t gradient_tag(const struct shadow *s, size_t v)
{
    return (uint32_t)(1 + s->plan->n_values + s->same_gradient_as[v]);
}

/* A part of a value's gradient, which the layer that wrote the value adds itself. */
static uint32_t part_tag(const struct shadow *s, size_t v)
{
    return (uint32_t)(1 + 2 * s->plan->n_values + s->plan->n_layers + v);
}

static uint32_t kept_tag(const struct shadow *s, size_t layer)
{
    return (uint32_t)(1 + 2 * s->plan->n_values + layer);
}

static size_t bytes_of(const struct shadow *s, size_t v)
{
    struct cnn_shape shape = v > 0 ? s->plan->layers[v - 1].out : cnn_image_shape(s->plan);
    return cnn_shape_count(shape) * s->batch * s->value_bytes;
}

static void write_cells(struct shadow *s, size_t at, size_t bytes, uint32_t tag)
{
    if (bytes == 0)
        return;
    ck_assert_uint_ne(at, CNN_NOWHERE);
    ck_assert_uint_eq(at % CNN_ALIGN, 0);
    ck_assert_uint_le(at + bytes + CNN_ALIGN, s->m->arena_bytes); /* kernels read a vector past the end */
    for (size_t k = at / CNN_ALIGN; k < (at + bytes + CNN_ALIGN - 1) / CNN_ALIGN; k++)
        s->cells[k] = tag;
}

static void read_cells(const struct shadow *s, size_t at, size_t bytes, uint32_t tag, const char *layer,
                       const char *what)
{
    for (size_t k = at / CNN_ALIGN; bytes > 0 && k < (at + bytes + CNN_ALIGN - 1) / CNN_ALIGN; k++)
        if (s->cells[k] != tag)
            ck_abort_msg("%s, layer '%s': %s is gone: cell %zu holds %u, not %u", s->plan->model->name, layer,
                         what, k, s->cells[k], tag);
}

static void read_value(const struct shadow *s, size_t v, const char *layer, const char *what)
{
    read_cells(s, s->m->value_at[v], bytes_of(s, v), value_tag(s, v), layer, what);
}

/* The sign of a value is there too where those that wrote over it keep it. */
static void read_sign(const struct shadow *s, size_t v, const char *layer)
{
    uint32_t found = s->cells[s->m->value_at[v] / CNN_ALIGN];

    while (found != value_tag(s, v)) {
        ck_assert_msg(found >= 2 && found <= s->plan->n_values,
                      "%s, layer '%s': the sign of value %zu is gone", s->plan->model->name, layer, v);
        const struct cnn_layer *l = &s->plan->layers[found - 2];
        ck_assert_msg(s->needs[found - 2].keeps_sign, "layer '%s' does not keep the sign", l->spec->name);
        found = value_tag(s, l->inputs[0].value);
    }
}

static void go_forward(struct shadow *s, size_t i)
{
    const struct cnn_layer *l = &s->plan->layers[i];
    const char *name = l->spec->name;

    for (uint32_t k = 0; k < l->n_inputs; k++)
        read_value(s, l->inputs[k].value, name, "an input");
    if (cnn_is_loss(l))
        return;
    write_cells(s, s->m->layers[i].work_at, s->needs[i].work_bytes, 0);
    write_cells(s, s->m->layers[i].kept_at, s->needs[i].kept_bytes, kept_tag(s, i));
    if (s->needs[i].passes_value)
        s->same_as[i + 1] = s->same_as[l->inputs[0].value];
    else
        write_cells(s, s->m->value_at[i + 1], bytes_of(s, i + 1), value_tag(s, i + 1));
    for (uint32_t k = 0; k < l->n_inputs && !s->needs[i].can_overwrite; k++)
        read_value(s, l->inputs[k].value, name, "an input that is not to be written over");
}

static void write_gradients(struct shadow *s, size_t i)
{
    const struct cnn_layer *l = &s->plan->layers[i];
    const struct cnn_layer_places *at = &s->m->layers[i];

    for (uint32_t k = 0; k < l->n_inputs; k++) {
        size_t v = l->inputs[k].value;
        ck_assert((at->din_at[k] != CNN_NOWHERE) == l->inputs[k].wants_grad);
        if (!l->inputs[k].wants_grad || (!cnn_is_loss(l) && s->needs[i].passes_gradient))
            continue;
        if (v > 0 && at->sum_at[k] == CNN_NOWHERE && at->din_at[k] == s->m->layers[v - 1].part_at &&
            at->din_at[k] != s->m->gradient_at[v]) {
            write_cells(s, at->din_at[k], bytes_of(s, v), part_tag(s, v));
            continue;
        }
        if (!cnn_is_loss(l) && s->needs[i].shares_gradient && at->din_at[k] == s->m->gradient_at[i + 1]) {
            s->same_gradient_as[v] = s->same_gradient_as[i + 1]; /* nothing is written */
            continue;
        }
        if (at->sum_at[k] != CNN_NOWHERE) {
            read_cells(s, at->sum_at[k], bytes_of(s, v), gradient_tag(s, v), l->spec->name, "a sum");
            if (!cnn_is_loss(l)) {
                write_cells(s, at->din_at[k], bytes_of(s, v), 0);
                read_cells(s, at->sum_at[k], bytes_of(s, v), gradient_tag(s, v), l->spec->name, "a sum");
            }
        }
        s->same_gradient_as[v] = v; /* those that shared it lose it */
        write_cells(s, s->m->gradient_at[v], bytes_of(s, v), gradient_tag(s, v));
    }
}

static void go_back(struct shadow *s, size_t i)
{
    const struct cnn_layer *l = &s->plan->layers[i];
    const struct cnn_needs *n = &s->needs[i];
    size_t taken_over = i;

    /* Where the layers behind pass their gradient, what is read is that of the last of them. */
    while (!cnn_is_loss(l) && taken_over + 2 < s->plan->n_values &&
           s->needs[taken_over + 1].passes_gradient &&
           s->m->gradient_at[taken_over + 1] == s->m->gradient_at[taken_over + 2])
        taken_over++;
    if (!cnn_is_loss(l) && !n->passes_gradient)
        read_cells(s, s->m->gradient_at[taken_over + 1], bytes_of(s, taken_over + 1),
                   gradient_tag(s, taken_over + 1), l->spec->name, "the gradient of its output");
    if (cnn_is_loss(l))
        read_value(s, l->inputs[0].value, l->spec->name, "its logits");
    else {
        for (uint32_t k = 0; k < l->n_inputs && n->back_reads_in == CNN_READS_VALUE; k++)
            read_value(s, l->inputs[k].value, l->spec->name, "an input");
        if (s->m->layers[i].part_at != CNN_NOWHERE)
            read_cells(s, s->m->layers[i].part_at, bytes_of(s, i + 1), part_tag(s, i + 1), l->spec->name,
                       "the part that it adds");
        if (n->back_reads_out == CNN_READS_VALUE)
            read_value(s, i + 1, l->spec->name, "its output");
        if (n->back_reads_out == CNN_READS_SIGN)
            read_sign(s, i + 1, l->spec->name);
        read_cells(s, s->m->layers[i].kept_at, n->kept_bytes, kept_tag(s, i), l->spec->name, "what it kept");
        if (taken_over > i)
            read_cells(s, s->m->layers[taken_over].kept_at, s->needs[taken_over].kept_bytes,
                       kept_tag(s, taken_over), l->spec->name, "what the pool kept");
        write_cells(s, s->m->layers[i].back_work_at, n->back_work_bytes, 0);
    }
    write_gradients(s, i);
}

/* What backend cuda needs beside what all do. */
static void need_as_a_device(const struct cnn_plan *plan, struct cnn_needs *needs)
{
    for (size_t i = 0; i < plan->n_layers; i++) {
        const enum cnn_layer_kind kind = plan->layers[i].spec->kind;
        needs[i].shares_gradient = kind == CNN_ADD;
        needs[i].can_overwrite_back = kind == CNN_RELU || kind == CNN_BATCHNORM || kind == CNN_DROPOUT;
        needs[i].adds_part = kind == CNN_RELU;
    }
}

static void check_plan(const struct cnn_backend *backend, const struct cnn_model *model, uint32_t batch,
                       bool as_a_device)
{
    struct shadow s = {.batch = batch, .value_bytes = backend->value_bytes(CNN_FLOAT32)};
    struct cnn_plan *plan;
    struct cnn_memory *m;
    struct ps_error err = {""};
    size_t own;

    ck_assert_msg(cnn_plan_create(model, &plan, &err) == 0, "%s", err.text);
    struct cnn_needs *needs = calloc(plan->n_layers, sizeof *needs);
    const struct cnn_setup setup = {plan, batch, 1, CNN_FLOAT32};
    ck_assert_int_eq(backend->needs(&setup, needs, &own, &err), 0);
    if (as_a_device)
        need_as_a_device(plan, needs);
    ck_assert_int_eq(cnn_memory_create(plan, needs, batch, s.value_bytes, &m, &err), 0);
    s.plan = plan;
    s.needs = needs;
    s.m = m;
    s.n_cells = m->arena_bytes / CNN_ALIGN + 1;
    s.cells = calloc(s.n_cells, sizeof *s.cells);
    s.same_as = calloc(plan->n_values, sizeof *s.same_as);
    s.same_gradient_as = calloc(plan->n_values, sizeof *s.same_gradient_as);
    for (size_t v = 0; v < plan->n_values; v++)
        s.same_as[v] = s.same_gradient_as[v] = v;
    write_cells(&s, m->value_at[0], bytes_of(&s, 0), value_tag(&s, 0));
    for (size_t i = 0; i < plan->n_layers; i++)
        go_forward(&s, i);
    for (size_t i = plan->n_layers; i-- > 0;)
        if (cnn_is_loss(&plan->layers[i]) || cnn_goes_back(&plan->layers[i]))
            go_back(&s, i);
    ck_assert_uint_ge(m->arena_bytes, m->live_bytes);
    free(s.cells);
    free(s.same_as);
    free(s.same_gradient_as);
    free(needs);
    cnn_memory_destroy(m);
    cnn_plan_destroy(plan);
}

static const struct cnn_backend *const rows[] = {
    &cnn_backend_ref,
#ifdef CNN_HAVE_ONEDNN
    &cnn_backend_onednn,
#endif
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

START_TEST(nothing_is_written_over_that_is_read)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++)
        check_plan(rows[_i], *m, 3, false);
    for (const struct cnn_model *const *m = cnn_models; (*m)->name != NULL; m++)
        check_plan(rows[_i], *m, 2, false);
}
END_TEST

/* The inputs of an add, as branches of a net may meet: one value twice; two that others read, too; one that
 * is read before the other is written, and after it. */
static const struct cnn_layer_spec meeting[] = {
    {.kind = CNN_CONV, .name = "a", .n_out = 3, .kernel = 3, .stride = 1, .pad = 1},
    {.kind = CNN_RELU, .name = "b"},
    {.kind = CNN_CONV, .name = "c", .n_out = 3, .kernel = 3, .stride = 1, .pad = 1},
    {.kind = CNN_ADD, .name = "d", .inputs = {"c", "b"}},
    {.kind = CNN_RELU, .name = "e"},
    {.kind = CNN_ADD, .name = "f", .inputs = {"e", "b"}},
    {.kind = CNN_ADD, .name = "g", .inputs = {"f", "f"}},
    {.kind = CNN_CONV, .name = "h", .n_out = 3, .kernel = 3, .stride = 1, .pad = 1, .inputs = {"e"}},
    {.kind = CNN_ADD, .name = "i", .inputs = {"h", "g"}},
    {.kind = CNN_RELU, .name = "j"},
    {.kind = CNN_CONV, .name = "p", .n_out = 3, .kernel = 3, .stride = 1, .pad = 1, .inputs = {"i"}},
    {.kind = CNN_CONV, .name = "l", .n_out = 3, .kernel = 3, .stride = 1, .pad = 1, .inputs = {"j"}},
    {.kind = CNN_CONV, .name = "m", .n_out = 3, .kernel = 3, .stride = 1, .pad = 1, .inputs = {"j"}},
    {.kind = CNN_ADD, .name = "n", .inputs = {"l", "j"}},
    {.kind = CNN_ADD, .name = "o", .inputs = {"n", "m"}},
    {.kind = CNN_ADD, .name = "q", .inputs = {"o", "p"}},
    {.kind = CNN_FC, .name = "k", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};
static const struct cnn_model meeting_model = {
    "meeting", 3, 8, 8, 10, meeting, sizeof meeting / sizeof meeting[0], "a test"};

START_TEST(nothing_is_written_over_that_is_read_where_gradients_are_shared)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++)
        check_plan(&cnn_backend_ref, *m, 3, true);
    for (const struct cnn_model *const *m = cnn_models; (*m)->name != NULL; m++)
        check_plan(&cnn_backend_ref, *m, 2, true);
    check_plan(&cnn_backend_ref, &meeting_model, 2, true);
}
END_TEST

/* The arena of a real net is within a tenth of what lives at its fullest moment. */
START_TEST(gaps_are_few)
{
    for (const struct cnn_model *const *model = cnn_models; (*model)->name != NULL; model++) {
        struct cnn_plan *plan;
        struct cnn_memory *m;
        size_t own;
        ck_assert_int_eq(cnn_plan_create(*model, &plan, NULL), 0);
        struct cnn_needs *needs = calloc(plan->n_layers, sizeof *needs);
        const struct cnn_setup setup = {plan, 16, 1, CNN_FLOAT32};
        ck_assert_int_eq(rows[_i]->needs(&setup, needs, &own, NULL), 0);
        ck_assert_int_eq(cnn_memory_create(plan, needs, 16, sizeof(float), &m, NULL), 0);
        ck_assert_msg((double)m->arena_bytes <= 1.1 * (double)m->live_bytes, "%s: %zu bytes for %zu",
                      (*model)->name, m->arena_bytes, m->live_bytes);
        free(needs);
        cnn_memory_destroy(m);
        cnn_plan_destroy(plan);
    }
}
END_TEST

/* Refused before anything is allocated, with the size and the batch that would fit; which then does. */
START_TEST(a_net_beyond_the_limit_names_the_batch_that_fits)
{
    const struct cnn_model *model = cnn_model_find("resnet50");
    struct cnn_net_options opt = {
        .model = model, .backend = rows[_i]->name, .batch = 512, .threads = 1, .memory_limit = 3ull << 30};
    struct cnn_net_memory sizes;
    struct ps_error err = {""};
    struct cnn_net *net = NULL;
    unsigned fits = 0;

    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -ENOMEM);
    ck_assert_ptr_null(net);
    const char *tail = strstr(err.text, "there are 3072 MiB: a batch of ");
    ck_assert_msg(tail != NULL && sscanf(tail, "there are 3072 MiB: a batch of %u would fit", &fits) == 1,
                  "%s", err.text);
    opt.batch = fits;
    ck_assert_int_eq(cnn_net_plan_memory(&opt, &sizes, &err), 0);
    ck_assert_uint_le(sizes.values + sizes.own + sizes.vectors, opt.memory_limit);
    opt.batch = fits + 1;
    ck_assert_int_eq(cnn_net_plan_memory(&opt, &sizes, &err), 0);
    ck_assert_uint_gt(sizes.values + sizes.own + sizes.vectors, opt.memory_limit);
    opt.memory_limit = 1 << 20;
    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -ENOMEM);
    ck_assert_ptr_nonnull(strstr(err.text, "no batch would fit"));
}
END_TEST

static uint64_t total_of(const struct cnn_net_memory *m)
{
    return m->values + m->own + m->vectors;
}

static const char *const sized[] = {
    "resnet8",
    "alexnet-cifar",
    "resnet18:classes=10,size=96",
    "resnet50:classes=10,size=64",
    "googlenet:classes=10,size=96",
    "alexnet:classes=10,size=131",
    "vgg19:classes=10,size=64",
};

/* What is said before a net is made, which decides whether it is, and what it then takes. On several threads
 * too: scratch is a thread's. */
START_TEST(a_net_takes_what_was_planned)
{
    struct cnn_model model;
    struct cnn_net_memory planned, made;

    ck_assert_int_eq(cnn_model_read(sized[_i], &model, NULL), 0);
    for (size_t k = 0; k < N_ROWS; k++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            struct cnn_net_options opt = {
                .model = &model, .backend = rows[k]->name, .batch = 8, .threads = threads};
            struct cnn_net *net;
            ck_assert_int_eq(cnn_net_create(&opt, &net, NULL), 0);
            ck_assert_int_eq(cnn_net_plan_memory(&opt, &planned, NULL), 0);
            cnn_net_memory_used(net, &made);
            cnn_net_destroy(net);
            ck_assert_uint_eq(planned.values, made.values);
            ck_assert_msg(fabs((double)total_of(&planned) / (double)total_of(&made) - 1) <= 0.01,
                          "%s on %s, %u threads: planned %" PRIu64 ", made %" PRIu64 " bytes", sized[_i],
                          rows[k]->name, threads, total_of(&planned), total_of(&made));
        }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nets-memory");
    TCase *t = tcase_create("memory");

    tcase_add_loop_test(t, nothing_is_written_over_that_is_read, 0, N_ROWS);
    tcase_add_test(t, nothing_is_written_over_that_is_read_where_gradients_are_shared);
    tcase_add_loop_test(t, gaps_are_few, 0, N_ROWS);
    tcase_add_loop_test(t, a_net_beyond_the_limit_names_the_batch_that_fits, 0, N_ROWS);
    tcase_add_loop_test(t, a_net_takes_what_was_planned, 0, (int)ROWS(sized));
    suite_add_tcase(s, t);
    return unit_run(s);
}
