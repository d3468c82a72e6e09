/* halves.c: gradients of which the next begins before the one before has ended, on every backend: scores and
 * vectors of gradients that end before the next begins, bit for bit. */
#include "tests/nets/halves.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 5 };

struct slot {
    uint8_t *images;
    uint16_t *labels;
    float (*value_of)[256];
    size_t n_bytes;
};

static void slot_create(struct slot *s, struct cnn_net *net, const struct bed *b, bool is_pinned)
{
    const size_t labels = HALVES_BATCH * sizeof *s->labels;

    s->n_bytes = HALVES_BATCH * b->n_pixels;
    s->images = is_pinned ? cnn_net_alloc(net, s->n_bytes) : malloc(s->n_bytes);
    s->labels = is_pinned ? cnn_net_alloc(net, labels) : malloc(labels);
    s->value_of = malloc(b->model->channels * sizeof *s->value_of);
    ck_assert(s->images != NULL && s->labels != NULL && s->value_of != NULL);
}

static void slot_destroy(struct slot *s, struct cnn_net *net, bool is_pinned)
{
    if (is_pinned) {
        cnn_net_free(net, s->images);
        cnn_net_free(net, s->labels);
    } else {
        free(s->images);
        free(s->labels);
    }
    free(s->value_of);
}

static struct cnn_batch batch_in(const struct slot *s)
{
    return (struct cnn_batch){.images = s->images,
                              .pixels = CNN_PIXELS_BYTE,
                              .value_of = (const float(*)[256])s->value_of,
                              .labels = s->labels,
                              .n = HALVES_BATCH};
}

static void fill(struct slot *s, const struct bed *b, uint32_t number, bool has_tables)
{
    const float shift = has_tables ? 0.01f * (float)number : 0;

    for (uint32_t c = 0; c < b->model->channels; c++)
        for (int v = 0; v < 256; v++)
            s->value_of[c][v] = (float)v / (100.0f + (float)c) - 1.0f + shift;
    for (size_t k = 0; k < s->n_bytes; k++)
        s->images[k] = (uint8_t)((number * 48271 + k) * 2654435761u >> 11);
    for (uint32_t i = 0; i < HALVES_BATCH; i++)
        s->labels[i] = (uint16_t)((number + 2 * i) % b->model->classes);
}

static void spoil(struct slot *s, const struct bed *b)
{
    memset(s->images, 0x77, s->n_bytes);
    memset(s->labels, 0, HALVES_BATCH * sizeof *s->labels);
    memset(s->value_of, 0, b->model->channels * sizeof *s->value_of);
}

static void expect(struct cnn_net *net, int rc)
{
    ck_assert_msg(rc == 0, "%s", cnn_net_error(net));
}

/* A training under way. */
struct training {
    struct cnn_net *net;
    const struct bed *b;
    const struct halves_place *place;
    struct halves_way way;
    struct slot slots[2]; /* in turn */
    float *x, *g;
};

/* Another batch is in the slot's memory until its gradient has begun. */
static void prepare(struct training *t, uint32_t k)
{
    struct slot *next = &t->slots[(k + 1) % 2];

    if (k == 0 || !t->way.is_announced)
        fill(&t->slots[k % 2], t->b, k, t->way.has_tables);
    if (!t->way.is_announced || k + 1 == HALVES_STEPS)
        return;
    fill(next, t->b, k + 1, t->way.has_tables);
    const struct cnn_batch batch = batch_in(next);
    expect(t->net, cnn_net_announce(t->net, &batch));
}

static void step(struct training *t, uint32_t k, struct halves_course *out)
{
    const struct cnn_batch batch = batch_in(&t->slots[k % 2]);
    const size_t last = t->b->params[t->b->n_params - 2].offset; /* of the last layer, which is moved */

    prepare(t, k);
    if (!t->way.in_halves) {
        expect(t->net, cnn_net_gradient_of(t->net, t->x, &batch, t->g, NULL, &out->scores[k]));
    } else {
        expect(t->net, cnn_net_gradient_begin(t->net, t->x, &batch, t->g, NULL));
        if (t->way.spoils)
            spoil(&t->slots[k % 2], t->b);
        if (k > 0)
            expect(t->net, cnn_net_gradient_end(t->net, &out->scores[k - 1]));
    }
    cnn_net_update_buffers(t->net, t->x);
    t->place->move(t->net, t->x, t->g, last, t->b->n_floats - last);
}

static float *read_back(const struct training *t, const float *from)
{
    float *p = malloc(t->b->n_floats * sizeof *p);
    ck_assert_ptr_nonnull(p);
    t->place->read(t->net, p, from, t->b->n_floats);
    return p;
}

void halves_train(struct cnn_net *net, const struct bed *b, const struct halves_place *place,
                  struct halves_way way, struct halves_course *out)
{
    struct training t = {.net = net, .b = b, .place = place, .way = way};

    for (int i = 0; i < 2; i++)
        slot_create(&t.slots[i], net, b, way.is_pinned);
    t.x = place->make(b->x, b->n_floats);
    t.g = place->make(b->x, b->n_floats);
    cnn_net_seed(net, SEED, 0);
    for (uint32_t k = 0; k < HALVES_STEPS; k++)
        step(&t, k, out);
    if (way.in_halves)
        expect(net, cnn_net_gradient_end(net, &out->scores[HALVES_STEPS - 1]));
    out->x = read_back(&t, t.x);
    out->g = read_back(&t, t.g);
    place->free(t.x);
    place->free(t.g);
    for (int i = 0; i < 2; i++)
        slot_destroy(&t.slots[i], net, way.is_pinned);
}

void halves_free(struct halves_course *c)
{
    free(c->x);
    free(c->g);
}

void halves_assert_scores(const struct halves_course *a, const struct halves_course *b)
{
    for (int k = 0; k < HALVES_STEPS; k++)
        ck_assert_msg(a->scores[k].loss == b->scores[k].loss &&
                          a->scores[k].n_correct == b->scores[k].n_correct &&
                          a->scores[k].n_correct_5 == b->scores[k].n_correct_5,
                      "step %d has a loss of %.17g, expected %.17g", k, a->scores[k].loss, b->scores[k].loss);
}

void halves_assert_vectors(const struct bed *bed, const struct halves_course *a,
                           const struct halves_course *b)
{
    ck_assert_mem_eq(a->g, b->g, bed->n_floats * sizeof *a->g);
    ck_assert_mem_eq(a->x, b->x, bed->n_floats * sizeof *a->x);
}

static float *make_on_host(const float *from, size_t n)
{
    float *p = malloc(n * sizeof *p);
    ck_assert_ptr_nonnull(p);
    return memcpy(p, from, n * sizeof *p);
}

static void read_on_host(struct cnn_net *net, float *to, const float *from, size_t n)
{
    (void)net;
    memcpy(to, from, n * sizeof *to);
}

static void move_on_host(struct cnn_net *net, float *x, const float *g, size_t from, size_t n)
{
    (void)net;
    memcpy(x + from, g + from, n * sizeof *x);
}

static void free_on_host(float *p)
{
    free(p);
}

const struct halves_place halves_on_host = {make_on_host, read_on_host, move_on_host, free_on_host};

static const struct cnn_model *case_named(const char *name)
{
    const struct cnn_model *const *m = cases;

    while (*m != NULL && strcmp((*m)->name, name) != 0)
        m++;
    ck_assert_ptr_nonnull(*m);
    return *m;
}

START_TEST(two_halves_make_the_bits_of_one_call)
{
    static const char *const names[] = {"dropped_chain", "small_residual", "aux_losses"};
    const char *backend = tested_backend((size_t)_i);

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct bed b;
        struct halves_course expected, found;
        bed_create(&b, case_named(names[k]), HALVES_BATCH);
        struct cnn_net *net = net_of(b.model, backend, HALVES_BATCH, 1);
        halves_train(net, &b, &halves_on_host, (struct halves_way){.has_tables = true}, &expected);
        for (int way = 0; way < 4; way++) {
            halves_train(net, &b, &halves_on_host,
                         (struct halves_way){true, way % 2 == 1, way >= 2, true, true}, &found);
            halves_assert_scores(&found, &expected);
            halves_assert_vectors(&b, &found, &expected);
            halves_free(&found);
        }
        halves_free(&expected);
        cnn_net_destroy(net);
        bed_destroy(&b);
    }
}
END_TEST

static void refuse(const struct cnn_net *net, int rc, const char *sentence)
{
    ck_assert_int_eq(rc, -EINVAL);
    ck_assert_str_eq(cnn_net_error(net), sentence);
}

/* What is refused leaves all that was begun as it was. */
START_TEST(halves_have_an_order)
{
    static const char begun[] = "a gradient is begun; allowed before its end is the next begin";
    struct bed b;
    struct cnn_score score = {-1, 77, 0}, expected;

    bed_create(&b, cnn_model_find("linear"), 4);
    const struct cnn_batch batch = {.images = b.images, .labels = b.labels, .n = 4};
    struct cnn_net *net = net_of(b.model, tested_backend((size_t)_i), 4, 1);
    ck_assert_int_eq(cnn_net_gradient_of(net, b.x, &batch, b.g, NULL, &expected), 0);
    refuse(net, cnn_net_gradient_end(net, &score), "no gradient is begun that could end");
    expect(net, cnn_net_gradient_begin(net, b.x, &batch, b.g, NULL));
    refuse(net, cnn_net_gradient_of(net, b.x, &batch, b.g, NULL, &score), begun);
    refuse(net, cnn_net_score_of(net, b.x, &batch, &score), begun);
    b.labels[2] = 10;
    refuse(net, cnn_net_gradient_begin(net, b.x, &batch, b.g, NULL),
           "label 10 of image 2; model 'linear' has classes 0 to 9");
    b.labels[2] = 0;
    expect(net, cnn_net_announce(net, NULL));
    expect(net, cnn_net_gradient_begin(net, b.x, &batch, b.g, NULL));
    refuse(net, cnn_net_gradient_begin(net, b.x, &batch, b.g, NULL),
           "2 gradients are begun; one must end before the next begins");
    ck_assert(score.loss == -1 && score.n_correct == 77);
    expect(net, cnn_net_gradient_end(net, &score));
    ck_assert(score.loss == expected.loss && score.n_correct == expected.n_correct);
    expect(net, cnn_net_gradient_end(net, &score));
    refuse(net, cnn_net_gradient_end(net, &score), "no gradient is begun that could end");
    expect(net, cnn_net_score_of(net, b.x, &batch, &score));
    expect(net, cnn_net_gradient_begin(net, b.x, &batch, b.g, NULL));
    cnn_net_destroy(net);
    bed_destroy(&b);
}
END_TEST

TCase *halves_case(int n_backends)
{
    TCase *t = tcase_create("halves");

    tcase_add_loop_test(t, two_halves_make_the_bits_of_one_call, 0, n_backends);
    tcase_add_loop_test(t, halves_have_an_order, 0, n_backends);
    return t;
}
