#include "tests/nets/cases.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_LAYERS(a) (sizeof a / sizeof a[0])

#define CONV(N, OUT, KERNEL, STRIDE, PAD)                                                                    \
    {                                                                                                        \
        .kind = CNN_CONV, .name = N, .n_out = OUT, .kernel = KERNEL, .stride = STRIDE, .pad = PAD            \
    }
#define POOL(N, KERNEL, STRIDE, PAD)                                                                         \
    {                                                                                                        \
        .kind = CNN_MAXPOOL, .name = N, .kernel = KERNEL, .stride = STRIDE, .pad = PAD                       \
    }
#define RELU(N)                                                                                              \
    {                                                                                                        \
        .kind = CNN_RELU, .name = N                                                                          \
    }
#define FC(N, OUT)                                                                                           \
    {                                                                                                        \
        .kind = CNN_FC, .name = N, .n_out = OUT, .filler = CNN_FILL_MSRA                                     \
    }
#define LOSS                                                                                                 \
    {                                                                                                        \
        .kind = CNN_SOFTMAX_LOSS, .name = "loss"                                                             \
    }

#define CASE(NAME, C, H, W, ...)                                                                             \
    static const struct cnn_layer_spec NAME##_layers[] = {__VA_ARGS__, FC("last", 5), LOSS};                 \
    static const struct cnn_model NAME = {#NAME, C, H, W, 5, NAME##_layers, N_LAYERS(NAME##_layers), "test"}

/* 17 to 20 channels take the vector paths with a tail, fewer than 16 the scalar ones. */
CASE(conv_padded, 3, 7, 6, CONV("a", 4, 3, 1, 1));
CASE(conv_strided, 2, 9, 8, CONV("a", 17, 3, 2, 1), CONV("b", 6, 2, 1, 0));
CASE(conv_uncovered, 3, 8, 8, CONV("a", 5, 3, 2, 0)); /* the last row and column are seen by no window */
CASE(pool_ceil, 3, 7, 7, CONV("a", 20, 1, 1, 0), POOL("p", 2, 2, 0));
CASE(pool_overlap, 3, 8, 7, CONV("a", 18, 1, 1, 0), POOL("p", 3, 2, 0));
CASE(pool_padded, 3, 7, 8, CONV("a", 16, 1, 1, 0), POOL("p", 3, 2, 1));
CASE(pool_gaps, 3, 9, 8, CONV("a", 19, 2, 1, 0), POOL("p", 2, 3, 0), CONV("b", 4, 2, 1, 0));
CASE(pool_few, 2, 9, 9, CONV("a", 3, 2, 1, 0), POOL("p", 2, 2, 0), CONV("b", 3, 2, 1, 0), POOL("q", 3, 2, 0));
/* A ReLU between convolution and pool keeps onednn from taking both backward in one. */
CASE(alone_overlap, 3, 8, 7, CONV("a", 18, 1, 1, 0), RELU("r"), POOL("p", 3, 2, 0));
CASE(alone_padded, 3, 7, 8, CONV("a", 16, 1, 1, 0), RELU("r"), POOL("p", 3, 2, 1));
CASE(alone_gaps, 3, 9, 8, CONV("a", 19, 2, 1, 0), RELU("r"), POOL("p", 2, 3, 0), CONV("b", 4, 2, 1, 0));
CASE(pool_first, 3, 6, 6, POOL("p", 2, 2, 0), CONV("a", 4, 2, 1, 0));
CASE(relu_between, 1, 9, 9, CONV("a", 17, 3, 1, 0), RELU("r"), POOL("p", 2, 2, 0), RELU("s"), FC("f", 7),
     RELU("t"));
CASE(relu_first, 2, 5, 5, RELU("r"), CONV("a", 6, 3, 1, 0), RELU("s"));
CASE(small_lenet, 1, 14, 14, CONV("a", 6, 3, 1, 0), POOL("p", 2, 2, 0), CONV("b", 21, 3, 1, 0),
     POOL("q", 2, 2, 0), FC("f", 11), RELU("r"));
CASE(wide_rows, 1, 13, 12, CONV("a", 30, 3, 1, 0), POOL("p", 2, 1, 0), CONV("b", 18, 5, 2, 0),
     POOL("q", 3, 2, 1));

extern const struct cnn_model cnn_model_lenet, cnn_model_linear;

const struct cnn_model *const cases[] = {
    &conv_padded,  &conv_strided, &conv_uncovered, &pool_ceil,    &pool_overlap,     &pool_padded,
    &pool_gaps,    &pool_few,     &alone_overlap,  &alone_padded, &alone_gaps,       &pool_first,
    &relu_between, &relu_first,   &small_lenet,    &wide_rows,    &cnn_model_linear, &cnn_model_lenet,
    NULL};

/* xorshift64*: the tests need no more. */
static float random_value(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (float)((*state * UINT64_C(0x2545f4914f6cdd1d)) >> 40) * 0x1p-23f - 1.0f;
}

/* Whole pages for `bytes`, without the page that guards their end. */
static size_t guarded_span(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static void *guarded(size_t bytes)
{
    size_t span = guarded_span(bytes), page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, span + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(p, MAP_FAILED);
    ck_assert_int_eq(mprotect(p + span, page, PROT_NONE), 0);
    return p + span - bytes;
}

static void release(void *p, size_t bytes)
{
    size_t span = guarded_span(bytes);
    munmap((char *)p + bytes - span, span + (size_t)sysconf(_SC_PAGESIZE));
}

void bed_create(struct bed *b, const struct cnn_model *model, uint32_t batch)
{
    struct cnn_error err = {""};
    uint64_t state = 88172645463325252u;

    *b = (struct bed){.model = model, .batch = batch, .n_floats = cnn_model_n_floats(model)};
    b->n_pixels = (size_t)model->channels * model->height * model->width;
    b->x = guarded(b->n_floats * sizeof *b->x);
    b->g = guarded(b->n_floats * sizeof *b->g);
    b->images = guarded(batch * b->n_pixels * sizeof *b->images);
    b->labels = guarded(batch);
    ck_assert_msg(cnn_model_params(model, &b->params, &b->n_params, &err) == 0, "%s", err.text);
    ck_assert_int_eq(cnn_model_fill(model, 7, b->x), 0);
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].fan_in == 0) /* a bias of 0 would hide an error in its use */
            for (size_t k = 0; k < param_floats(&b->params[i]); k++)
                b->x[b->params[i].offset + k] = 0.3f * random_value(&state);
    for (size_t i = 0; i < batch * b->n_pixels; i++)
        b->images[i] = random_value(&state);
    for (uint32_t i = 0; i < batch; i++)
        b->labels[i] = (uint8_t)((i * 7 + 3) % model->classes);
}

void bed_destroy(struct bed *b)
{
    release(b->x, b->n_floats * sizeof *b->x);
    release(b->g, b->n_floats * sizeof *b->g);
    release(b->images, b->batch * b->n_pixels * sizeof *b->images);
    release(b->labels, b->batch);
    free(b->params);
}

struct cnn_net *net_of(const struct cnn_model *model, const char *backend, uint32_t batch, uint32_t threads)
{
    struct cnn_net_options opt = {model, backend, batch, threads};
    struct cnn_error err = {""};
    struct cnn_net *net = NULL;

    ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%s", err.text);
    return net;
}

size_t param_floats(const struct cnn_param *p)
{
    size_t n = 1;
    for (uint32_t d = 0; d < p->n_dims; d++)
        n *= p->shape[d];
    return n;
}

void assert_close(const struct bed *b, const char *backend, const float *g, const float *expected,
                  double tolerance)
{
    for (size_t i = 0; i < b->n_params; i++) {
        const struct cnn_param *p = &b->params[i];
        double scale = 1e-6;
        for (size_t k = 0; k < param_floats(p); k++)
            scale = fmax(scale, fabs((double)expected[p->offset + k]));
        for (size_t k = 0; k < param_floats(p); k++) {
            double a = (double)g[p->offset + k], e = (double)expected[p->offset + k];
            ck_assert_msg(fabs(a - e) <= tolerance * scale,
                          "%s, %s, %s[%zu]: %.9g, expected %.9g; the tensor's largest is %.3g", backend,
                          b->model->name, p->name, k, a, e, scale);
        }
    }
}
