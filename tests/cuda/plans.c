/* plans.c: whether cuDNN has a plan for every convolution of the zoo, at each precision, on the devices that
 * the files describe. It runs the installed cuDNN and needs no GPU: plans are built, not executed.
 *
 * test-cuda-plans FILE...      FILE: the JSON of a device, as cuDNN gives it
 * test-cuda-plans --describe   prints the JSON of this machine's first device */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/cuda/graph.h"
#include "nets/plan.h"

/* As of nets/cuda/cuda.h. */
#define WORKSPACE ((size_t)256 << 20)
enum { BATCH = 32, MOST_PROBLEMS = 8192 };

static const char *const products[] = {"forward", "back data", "back weights"}, *const epilogues[] = {
                                                                                    "", " + bias",
                                                                                    " + bias + relu"};

struct seen {
    struct cnn_cuda_problem problem;
    const char *model, *layer;
};
static struct seen seen[MOST_PROBLEMS];
static size_t n_seen;

static struct cnn_cuda_window window_of(const struct cnn_layer *l)
{
    struct cnn_cuda_window w;

    memset(&w, 0, sizeof w);
    w.in = (struct cnn_cuda_shape){BATCH, l->in.h, l->in.w, l->in.c};
    w.out = (struct cnn_cuda_shape){BATCH, l->out.h, l->out.w, l->out.c};
    for (int d = 0; d < 2; d++) {
        w.kernel[d] = (int32_t)l->window.kernel[d];
        w.stride[d] = (int32_t)l->window.stride[d];
        w.dilation[d] = (int32_t)l->window.dilation[d];
        w.pad[d] = (int32_t)l->window.pad[d];
        w.pad_end[d] = (int32_t)l->window.pad_end[d];
    }
    w.groups = l->groups;
    return w;
}

static void add(const struct cnn_cuda_problem *q, const char *model, const char *layer)
{
    for (size_t i = 0; i < n_seen; i++)
        if (memcmp(&seen[i].problem, q, sizeof *q) == 0)
            return;
    if (n_seen == MOST_PROBLEMS) {
        fprintf(stderr, "plans.c: more than %d problems\n", MOST_PROBLEMS);
        exit(1);
    }
    seen[n_seen++] = (struct seen){*q, model, layer};
}

/* Every product that the layer computes. */
static void add_layer(const struct cnn_model *model, const struct cnn_layer *l)
{
    struct cnn_cuda_problem q;

    memset(&q, 0, sizeof q);
    q.window = window_of(l);
    for (q.precision = CNN_FLOAT32; q.precision < CNN_N_PRECISIONS; q.precision++)
        for (q.product = CNN_CUDA_FORWARD; q.product < CNN_CUDA_N_PRODUCTS; q.product++) {
            if ((q.product == CNN_CUDA_BACK_DATA && !l->wants_din) ||
                (q.product == CNN_CUDA_BACK_WEIGHTS && !l->trains))
                continue;
            enum cnn_cuda_epilogue most =
                q.product == CNN_CUDA_FORWARD && l->n_biases > 0 ? CNN_CUDA_BIAS_RELU : CNN_CUDA_NOTHING;
            for (q.epilogue = CNN_CUDA_NOTHING; q.epilogue <= most; q.epilogue++)
                add(&q, model->name, l->spec->name);
            q.epilogue = CNN_CUDA_NOTHING;
        }
}

/* Paddings that differ at the two ends, which no net of the zoo has: "same" windows of even sizes and of
 * stride 2. */
static const struct cnn_layer_spec unequal_layers[] = {
    {.kind = CNN_CONV, .name = "even", .n_out = 64, .kernel = 4, .stride = 1, .pads = {1, 1, 2, 2}},
    {.kind = CNN_CONV, .name = "halving", .n_out = 64, .kernel = 3, .stride = 2, .pads = {0, 0, 1, 1}},
    {.kind = CNN_CONV, .name = "narrow", .n_out = 10, .kernel = 3, .stride = 1, .pads = {2, 0, 1, 2}},
    {.kind = CNN_FC, .name = "fc", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};
static const struct cnn_model unequal = {"unequal", 3, 56, 56, 10, unequal_layers, 5, "a test"};

static int add_model(const struct cnn_model *model)
{
    struct cnn_plan *plan = NULL;
    struct ps_error err = {""};

    if (cnn_plan_create(model, &plan, &err) != 0) {
        fprintf(stderr, "%s: %s\n", model->name, err.text);
        return 1;
    }
    for (size_t i = 0; i < plan->n_layers; i++)
        if (plan->layers[i].spec->kind == CNN_CONV)
            add_layer(model, &plan->layers[i]);
    cnn_plan_destroy(plan);
    return 0;
}

static cudnnBackendDescriptor_t read_device(const char *file)
{
    char json[8192];
    struct cnn_cuda_why why = {""};
    FILE *f = fopen(file, "r");
    size_t n = f != NULL ? fread(json, 1, sizeof json, f) : 0;

    if (f != NULL)
        fclose(f);
    cudnnBackendDescriptor_t d = n > 0 ? cnn_cuda_device_described(json, n, &why) : NULL;
    if (d == NULL)
        fprintf(stderr, "%s: %s\n", file, n > 0 ? why.text : "cannot be read");
    return d;
}

/* The number of problems without a plan, which are printed. */
static size_t check_device(const char *file)
{
    struct cnn_cuda_place place = {NULL, read_device(file)};
    size_t missing = 0;

    if (place.device == NULL)
        return 1;
    for (size_t i = 0; i < n_seen; i++) {
        const struct cnn_cuda_problem *q = &seen[i].problem;
        struct cnn_cuda_plans plans;
        struct cnn_cuda_why why = {""};
        cnn_cuda_plans_find(q, &place, 1, WORKSPACE, &plans, &why);
        if (plans.n == 0) {
            missing++;
            printf("%s: %s, %s: %s%s in %s: %s\n", file, seen[i].model, seen[i].layer, products[q->product],
                   epilogues[q->epilogue], cnn_precision_name(q->precision), why.text);
        }
        cnn_cuda_plans_finish(&plans);
    }
    cudnnBackendDestroyDescriptor(place.device);
    printf("%s: plans for %zu of %zu products of convolutions, batch %d, cuDNN %zu\n", file, n_seen - missing,
           n_seen, BATCH, cudnnGetVersion());
    return missing;
}

static int describe(void)
{
    char json[8192];
    struct cnn_cuda_why why = {""};
    int64_t n = cnn_cuda_device_describe(0, json, sizeof json, &why);

    if (n < 0) {
        fprintf(stderr, "cuDNN describes no device: %s\n", why.text);
        return 1;
    }
    printf("%.*s\n", (int)n, json);
    return 0;
}

int main(int argc, char **argv)
{
    size_t missing = 0;

    if (argc == 2 && strcmp(argv[1], "--describe") == 0)
        return describe();
    for (const struct cnn_model *const *m = cnn_models; *m != NULL && (*m)->name != NULL; m++)
        if (add_model(*m) != 0)
            return 1;
    if (add_model(&unequal) != 0)
        return 1;
    for (int i = 1; i < argc; i++)
        missing += check_device(argv[i]);
    return argc > 1 && missing == 0 ? 0 : 1;
}
