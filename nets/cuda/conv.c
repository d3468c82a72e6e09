/* conv.c: the layer of a convolution. Each of its products is computed by a plan of cuDNN's graph API, by a
 * classic call of it, or where it has neither by a kernel of our own; the fastest is chosen when the net is
 * created (search.c). The forward product has the bias, and a ReLU that overwrites its output, in the same
 * plan where that is faster. */
#include "nets/cuda/conv.h"

#include <stdio.h>

static void needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    (void)setup;
    out->back_reads_in = l->trains ? CNN_READS_VALUE : CNN_READS_NOTHING;
}

/* ---- running */

static struct cnn_cuda_tensors tensors_of(const struct cnn_cuda_layer *l, enum cnn_cuda_product product)
{
    const struct cnn_cuda_conv_state *c = l->state;

    if (product == CNN_CUDA_FORWARD)
        return (struct cnn_cuda_tensors){l->in[0], c->weights, l->out};
    if (product == CNN_CUDA_BACK_DATA)
        return (struct cnn_cuda_tensors){l->din[0], c->weights, l->dout};
    return (struct cnn_cuda_tensors){l->in[0], c->gradient, l->dout};
}

static cudaError_t run_own(struct cnn_cuda *d, const struct cnn_cuda_conv_state *c,
                           enum cnn_cuda_product product, const struct cnn_cuda_tensors *t)
{
    if (product == CNN_CUDA_FORWARD)
        return cu_conv(d->compute, d->type, c->window, t->in, t->weights, t->out);
    if (product == CNN_CUDA_BACK_DATA)
        return cu_conv_back_data(d->compute, d->type, c->window, t->weights, t->out, t->in);
    return cu_conv_back_weights(d->compute, d->type, c->window, t->in, t->out, t->weights);
}

/* What a way leaves of the epilogue. */
static cudaError_t finish_forward(struct cnn_cuda *d, const struct cnn_cuda_layer *l,
                                  enum cnn_cuda_epilogue computed)
{
    const struct cnn_cuda_conv_state *c = l->state;
    const size_t n = cnn_cuda_count(d, l->plan->out);
    cudaError_t e = cudaSuccess;

    if (c->epilogue >= CNN_CUDA_BIAS && computed < CNN_CUDA_BIAS)
        e = cu_bias(d->compute, d->type, n, l->plan->out.c, d->x + l->plan->bias_at, l->out);
    if (e == cudaSuccess && c->epilogue >= CNN_CUDA_BIAS_RELU && computed < CNN_CUDA_BIAS_RELU)
        e = cu_activate(d->compute, d->type, n, CNN_CUDA_RELU, 0, l->out, l->out);
    return e;
}

/* Enqueues a product in one of its ways. */
static int run_way(struct cnn_cuda *d, struct cnn_cuda_layer *l, enum cnn_cuda_product product,
                   const struct cnn_cuda_way *way, struct ps_error *err)
{
    struct cnn_cuda_conv_state *c = l->state;
    const struct cnn_cuda_tensors t = tensors_of(l, product);
    const char *what = product == CNN_CUDA_FORWARD ? ": forward" : ": backward";
    int rc;

    if (way->by == CNN_CUDA_BY_GRAPH)
        rc = cnn_cuda_check_dnn(
            cnn_cuda_plan_run(d->dnn, &c->products[product].plans[way->epilogue].plans[way->plan]), what, l,
            err);
    else if (way->by == CNN_CUDA_BY_CLASSIC)
        rc = cnn_cuda_check_dnn(cnn_cuda_classic_run(d, c, product, way, &t), what, l, err);
    else
        rc = cnn_cuda_check(run_own(d, c, product, &t), what, l, err);
    if (rc == 0 && product == CNN_CUDA_FORWARD)
        rc = cnn_cuda_check(finish_forward(d, l, way->epilogue), what, l, err);
    return rc;
}

static int run(struct cnn_cuda *d, struct cnn_cuda_layer *l, enum cnn_cuda_product product,
               struct ps_error *err)
{
    const struct cnn_cuda_conv_state *c = l->state;
    const struct cnn_cuda_ways *w = &c->products[product];
    return run_way(d, l, product, &w->ways[w->chosen], err);
}

/* ---- creation */

static struct cnn_cuda_problem problem_of(const struct cnn_cuda *d, const struct cnn_cuda_conv_state *c,
                                          enum cnn_cuda_product product, enum cnn_cuda_epilogue epilogue)
{
    return (struct cnn_cuda_problem){product, d->precision, epilogue, c->window, d->any_order};
}

/* Plans of each epilogue that are compared. */
#define MOST_PLANS 3

static void list_plans(struct cnn_cuda *d, struct cnn_cuda_conv_state *c, enum cnn_cuda_product product,
                       enum cnn_cuda_epilogue epilogue)
{
    const struct cnn_cuda_problem q = problem_of(d, c, product, epilogue);
    const struct cnn_cuda_place place = {d->dnn, NULL};
    struct cnn_cuda_ways *w = &c->products[product];

    cnn_cuda_plans_find(&q, &place, MOST_PLANS, CNN_CUDA_WORKSPACE, &w->plans[epilogue], NULL);
    for (size_t i = 0; i < w->plans[epilogue].n && w->n < CNN_CUDA_MOST_WAYS; i++)
        w->ways[w->n++] = (struct cnn_cuda_way){.by = CNN_CUDA_BY_GRAPH,
                                                .epilogue = epilogue,
                                                .plan = i,
                                                .workspace = w->plans[epilogue].plans[i].workspace};
}

/* In the order in which they are taken without measuring: the most in one plan first. */
static void list_ways(struct cnn_cuda *d, struct cnn_cuda_conv_state *c, enum cnn_cuda_product product)
{
    struct cnn_cuda_ways *w = &c->products[product];
    enum cnn_cuda_epilogue most = product == CNN_CUDA_FORWARD ? c->epilogue : CNN_CUDA_NOTHING;

    for (int e = (int)most; e >= 0; e--)
        list_plans(d, c, product, (enum cnn_cuda_epilogue)e);
    if (c->conv != NULL)
        cnn_cuda_classic_list(d, c, product);
    if (w->n == 0)
        w->ways[w->n++] = (struct cnn_cuda_way){.by = CNN_CUDA_BY_OWN};
    for (size_t i = 0; i < w->n; i++)
        if (w->ways[i].workspace > d->workspace_bytes)
            d->workspace_bytes = w->ways[i].workspace;
}

/* Whether the ReLU, before it passes its gradient on, can add it up for the bias: if that is all of it. */
static bool adds_up(const struct cnn_cuda_layer *relu, const struct cnn_cuda_layer *l)
{
    return l->plan->trains && relu->sum[0] == NULL && relu->part == NULL && relu->din[0] != NULL &&
           relu->din[0] == l->dout;
}

/* Whether the paddings are the same at both ends: the classic calls have no others. */
static bool has_one_padding(const struct cnn_cuda_window *w)
{
    return w->pad[0] == w->pad_end[0] && w->pad[1] == w->pad_end[1];
}

static int create(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct cnn_cuda_conv_state *c = l->state;
    const struct cnn_layer *p = l->plan;
    struct cnn_cuda_layer *relu = p->n_biases > 0 ? cnn_cuda_relu_of(d, l) : NULL;

    c->window = cnn_cuda_window_of(p, d->batch);
    if (p->n_biases > 0)
        c->epilogue = relu != NULL ? CNN_CUDA_BIAS_RELU : CNN_CUDA_BIAS;
    if (relu != NULL) {
        relu->is_merged = true;
        l->is_bias_merged_back = adds_up(relu, l);
        relu->biased = l->is_bias_merged_back ? l : NULL;
    }
    int rc = has_one_padding(&c->window)
                 ? cnn_cuda_check_dnn(cnn_cuda_classic_describe(d, c), ": describing it", l, err)
                 : 0;
    if (rc < 0)
        return rc;
    list_ways(d, c, CNN_CUDA_FORWARD);
    if (p->wants_din)
        list_ways(d, c, CNN_CUDA_BACK_DATA);
    if (p->trains)
        list_ways(d, c, CNN_CUDA_BACK_WEIGHTS);
    const struct cnn_cuda_turn weights = {.at = p->weight_at,
                                          .n = p->n_weights,
                                          .a = (uint32_t)p->weight_shape[1],
                                          .b = (uint32_t)(p->weight_shape[2] * p->weight_shape[3])},
                               bias = {.at = p->bias_at, .n = p->n_biases, .a = 1, .b = 1};
    c->weights = cnn_cuda_copy_of(d, l, &weights);
    if (p->trains)
        c->gradient = cnn_cuda_gradient_copy_of(d, l, &weights);
    if (p->n_biases > 0)
        c->bias = cnn_cuda_copy_of(d, l, &bias);
    return 0;
}

static int bind(struct cnn_cuda *d, struct cnn_cuda_layer *l, enum cnn_cuda_product product,
                struct ps_error *err)
{
    struct cnn_cuda_conv_state *c = l->state;
    struct cnn_cuda_ways *w = &c->products[product];
    const struct cnn_cuda_tensors t = tensors_of(l, product);
    const struct cnn_cuda_operands operands = {t.in, t.weights, c->bias, t.out, d->workspace};
    int rc = 0;

    for (size_t i = 0; i < w->n && rc == 0; i++) {
        if (w->ways[i].by != CNN_CUDA_BY_GRAPH)
            continue;
        struct cnn_cuda_plans *plans = &w->plans[w->ways[i].epilogue];
        const struct cnn_cuda_problem q = problem_of(d, c, product, w->ways[i].epilogue);
        rc = cnn_cuda_check_dnn(cnn_cuda_plan_bind(plans, &plans->plans[w->ways[i].plan], &q, &operands),
                                ": binding a plan", l, err);
    }
    return rc;
}

/* What is searched: struct cnn_cuda_candidates. */
struct candidates {
    struct cnn_cuda *d;
    struct cnn_cuda_layer *l;
    enum cnn_cuda_product product;
};

static void name_way(void *arg, size_t way, char *to, size_t bytes)
{
    static const char *const epilogues[] = {"", "+bias", "+bias+relu"};
    const struct candidates *k = arg;
    const struct cnn_cuda_conv_state *c = k->l->state;
    const struct cnn_cuda_ways *w = &c->products[k->product];
    const struct cnn_cuda_way *it = &w->ways[way];

    if (it->by == CNN_CUDA_BY_GRAPH)
        snprintf(to, bytes, "%s%s", w->plans[it->epilogue].plans[it->plan].name, epilogues[it->epilogue]);
    else if (it->by == CNN_CUDA_BY_CLASSIC)
        snprintf(to, bytes, "classic:%d:%d", it->algorithm, (int)it->math);
    else
        snprintf(to, bytes, "own");
}

static int run_candidate(void *arg, size_t way)
{
    const struct candidates *k = arg;
    const struct cnn_cuda_conv_state *c = k->l->state;
    return run_way(k->d, k->l, k->product, &c->products[k->product].ways[way], NULL);
}

static void name_problem(const struct cnn_cuda *d, const struct cnn_cuda_conv_state *c,
                         enum cnn_cuda_product product, char *to, size_t bytes)
{
    static const char *const products[] = {"forward", "back-data", "back-weights"};
    const struct cnn_cuda_window *w = &c->window;

    snprintf(to, bytes,
             "%s precision %d in %ux%ux%ux%u out %ux%ux%u kernel %dx%d stride %dx%d pad %dx%d to %dx%d "
             "dilation %dx%d "
             "groups %u epilogue %d%s",
             products[product], (int)d->precision, w->in.n, w->in.h, w->in.w, w->in.c, w->out.h, w->out.w,
             w->out.c, w->kernel[0], w->kernel[1], w->stride[0], w->stride[1], w->pad[0], w->pad[1],
             w->pad_end[0], w->pad_end[1], w->dilation[0], w->dilation[1], w->groups,
             product == CNN_CUDA_FORWARD ? (int)c->epilogue : 0, d->any_order ? " any order" : "");
}

static int choose(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct cnn_cuda_conv_state *c = l->state;
    int rc = 0;

    for (int product = 0; product < CNN_CUDA_N_PRODUCTS && rc == 0; product++) {
        struct cnn_cuda_ways *w = &c->products[product];
        struct candidates k = {d, l, (enum cnn_cuda_product)product};
        char problem[256];
        if (w->n == 0)
            continue;
        rc = bind(d, l, k.product, err);
        name_problem(d, c, k.product, problem, sizeof problem);
        if (rc == 0)
            w->chosen =
                cnn_cuda_search(d, problem, &(struct cnn_cuda_candidates){&k, w->n, name_way, run_candidate});
    }
    return rc;
}

static void destroy(struct cnn_cuda_layer *l)
{
    struct cnn_cuda_conv_state *c = l->state;

    for (int product = 0; product < CNN_CUDA_N_PRODUCTS; product++)
        for (int e = 0; e <= CNN_CUDA_BIAS_RELU; e++)
            cnn_cuda_plans_finish(&c->products[product].plans[e]);
    cnn_cuda_classic_finish(c);
}

/* ---- the layer */

static int forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    return run(d, l, CNN_CUDA_FORWARD, err);
}

static int back_weights(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    int rc = run(d, l, CNN_CUDA_BACK_WEIGHTS, err);

    if (rc < 0 || p->n_biases == 0 || l->is_bias_merged_back)
        return rc;
    return cnn_cuda_check(cu_bias_back(d->compute, d->type, (uint64_t)d->batch * p->out.h * p->out.w,
                                       p->out.c, l->dout, d->sums, d->g + p->bias_at),
                          ": backward", l, err);
}

static int backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    int rc = l->plan->trains ? back_weights(d, l, err) : 0;

    if (rc < 0 || l->din[0] == NULL)
        return rc;
    return run(d, l, CNN_CUDA_BACK_DATA, err);
}

const struct cnn_cuda_kind cnn_cuda_conv = {
    sizeof(struct cnn_cuda_conv_state), needs, create, destroy, forward, backward, choose};
