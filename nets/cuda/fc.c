/* fc.c: fully connected layers: products of the flat vectors (blas.c). cuBLAS matrices are column-major: a
 * row-major [a][b] is its [b][a] matrix. An input with several positions is transposed to [channel][place]
 * first. The forward product has the bias, and a ReLU that overwrites its output, in the same call where that
 * is faster. */
#include "nets/cuda/blas.h"

static bool is_turned(const struct cnn_layer *l)
{
    return l->in.c > 1 && (size_t)l->in.h * l->in.w > 1;
}

static void needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    size_t bytes = cnn_shape_count(l->in) * setup->batch * cnn_cuda_value_bytes(setup->precision);

    out->out_bytes = cnn_cuda_is_wide(setup->plan, l) ? sizeof(float) : 0;
    if (!is_turned(l)) {
        out->back_reads_in = l->trains ? CNN_READS_VALUE : CNN_READS_NOTHING;
        return;
    }
    out->kept_bytes = bytes;
    out->back_work_bytes = l->wants_din ? bytes : 0;
}

struct fc {
    void *weights, *bias; /* in bf16; NULL: x is used */
    struct cnn_cuda_multiplication products[CNN_CUDA_N_PRODUCTS];
    enum cnn_cuda_epilogue epilogue; /* of the forward product, within its call or after it */
};

static enum cnn_cuda_type out_type(const struct cnn_cuda *d, const struct cnn_cuda_layer *l)
{
    return l->is_wide ? CNN_CUDA_FLOAT : d->type;
}

/* What each product multiplies. */
static struct cnn_cuda_factors factors_of(const struct cnn_cuda *d, const struct cnn_cuda_layer *l,
                                          enum cnn_cuda_product product)
{
    const struct cnn_layer *p = l->plan;
    const struct fc *f = l->state;
    const uint64_t n_out = p->out.c, n_in = p->fan_in;
    const void *weights = f->weights != NULL ? f->weights : d->x + p->weight_at,
               *bias = f->bias != NULL ? f->bias : d->x + p->bias_at, *in = is_turned(p) ? l->kept : l->in[0];

    if (product == CNN_CUDA_FORWARD)
        return (struct cnn_cuda_factors){.m = n_out,
                                         .n = d->batch,
                                         .k = n_in,
                                         .turns_a = true,
                                         .a = weights,
                                         .b = in,
                                         .out = l->out,
                                         .out_type = out_type(d, l),
                                         .bias = bias,
                                         .epilogue = f->epilogue};
    if (product == CNN_CUDA_BACK_DATA)
        return (struct cnn_cuda_factors){.m = n_in,
                                         .n = d->batch,
                                         .k = n_out,
                                         .a = weights,
                                         .b = l->dout,
                                         .out = is_turned(p) ? l->back_work : l->din[0],
                                         .out_type = d->type};
    return (struct cnn_cuda_factors){.m = n_in,
                                     .n = n_out,
                                     .k = d->batch,
                                     .turns_b = true,
                                     .a = in,
                                     .b = l->dout,
                                     .out = d->g + p->weight_at,
                                     .out_type = CNN_CUDA_FLOAT};
}

/* Whether the layer computes the product. */
static bool has(const struct cnn_cuda_layer *l, enum cnn_cuda_product product)
{
    return product == CNN_CUDA_FORWARD ||
           (product == CNN_CUDA_BACK_DATA ? l->din[0] != NULL : l->plan->trains);
}

static int create(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct fc *f = l->state;
    const struct cnn_layer *p = l->plan;
    struct cnn_cuda_layer *relu = p->n_biases > 0 ? cnn_cuda_relu_of(d, l) : NULL;
    int rc = 0;

    if (p->n_biases > 0)
        f->epilogue = relu != NULL ? CNN_CUDA_BIAS_RELU : CNN_CUDA_BIAS;
    if (relu != NULL)
        relu->is_merged = true;
    const struct cnn_cuda_turn weights = {.at = p->weight_at, .n = p->n_weights, .a = 1, .b = 1},
                               bias = {.at = p->bias_at, .n = p->n_biases, .a = 1, .b = 1};
    if (d->type == CNN_CUDA_BF16)
        f->weights = cnn_cuda_copy_of(d, l, &weights);
    if (p->n_biases > 0 && out_type(d, l) == CNN_CUDA_BF16)
        f->bias = cnn_cuda_copy_of(d, l, &bias);
    for (int product = 0; product < CNN_CUDA_N_PRODUCTS && rc == 0; product++)
        if (has(l, (enum cnn_cuda_product)product)) {
            const struct cnn_cuda_factors of = factors_of(d, l, (enum cnn_cuda_product)product);
            rc = cnn_cuda_multiplication_init(d, l, &of, &f->products[product], err);
        }
    return rc;
}

static void destroy(struct cnn_cuda_layer *l)
{
    struct fc *f = l->state;

    for (int product = 0; product < CNN_CUDA_N_PRODUCTS; product++)
        cnn_cuda_multiplication_finish(&f->products[product]);
}

static int choose(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    static const char *const names[] = {"forward", "back-data", "back-weights"};
    struct fc *f = l->state;
    int rc = 0;

    for (int product = 0; product < CNN_CUDA_N_PRODUCTS && rc == 0; product++)
        if (has(l, (enum cnn_cuda_product)product))
            rc = cnn_cuda_multiplication_choose(d, l, names[product], &f->products[product], err);
    return rc;
}

static int bind(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct fc *f = l->state;
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;

    for (int product = 0; product < CNN_CUDA_N_PRODUCTS && st == CUBLAS_STATUS_SUCCESS; product++)
        if (has(l, (enum cnn_cuda_product)product)) {
            const struct cnn_cuda_factors of = factors_of(d, l, (enum cnn_cuda_product)product);
            st = cnn_cuda_multiplication_bind(&f->products[product], &of);
        }
    return cnn_cuda_check_blas(st, ": binding a product", l, err);
}

/* What the product leaves of the epilogue. */
static cudaError_t finish_forward(struct cnn_cuda *d, const struct cnn_cuda_layer *l)
{
    const struct fc *f = l->state;
    const enum cnn_cuda_epilogue computed = cnn_cuda_multiplied(&f->products[CNN_CUDA_FORWARD]);
    const enum cnn_cuda_type type = out_type(d, l);
    const size_t n = cnn_cuda_count(d, l->plan->out);
    cudaError_t e = cudaSuccess;

    if (f->epilogue >= CNN_CUDA_BIAS && computed < CNN_CUDA_BIAS)
        e = cu_bias(d->compute, type, n, l->plan->out.c, d->x + l->plan->bias_at, l->out);
    if (e == cudaSuccess && f->epilogue >= CNN_CUDA_BIAS_RELU && computed < CNN_CUDA_BIAS_RELU)
        e = cu_activate(d->compute, type, n, CNN_CUDA_RELU, 0, l->out, l->out);
    return e;
}

static int forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const struct fc *f = l->state;
    cudaError_t e = cudaSuccess;

    if (is_turned(p))
        e = cu_turn(d->compute, d->type, cnn_cuda_count(d, p->in), p->in.h * p->in.w, p->in.c, l->in[0],
                    l->kept);
    int rc = cnn_cuda_check(e, ": forward", l, err);
    if (rc == 0)
        rc = cnn_cuda_multiply(d, l, &f->products[CNN_CUDA_FORWARD], ": forward", err);
    return rc == 0 ? cnn_cuda_check(finish_forward(d, l), ": forward", l, err) : rc;
}

static int back_weights(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const struct fc *f = l->state;
    int rc = cnn_cuda_multiply(d, l, &f->products[CNN_CUDA_BACK_WEIGHTS], ": backward", err);

    if (rc < 0 || p->n_biases == 0)
        return rc;
    return cnn_cuda_check(
        cu_bias_back(d->compute, d->type, d->batch, p->out.c, l->dout, d->sums, d->g + p->bias_at),
        ": backward", l, err);
}

static int backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const struct fc *f = l->state;
    int rc = p->trains ? back_weights(d, l, err) : 0;

    if (rc < 0 || l->din[0] == NULL)
        return rc;
    rc = cnn_cuda_multiply(d, l, &f->products[CNN_CUDA_BACK_DATA], ": backward", err);
    if (rc < 0 || !is_turned(p))
        return rc;
    return cnn_cuda_check(cu_turn(d->compute, d->type, cnn_cuda_count(d, p->in), p->in.c, p->in.h * p->in.w,
                                  l->back_work, l->din[0]),
                          ": backward", l, err);
}

const struct cnn_cuda_kind cnn_cuda_fc = {sizeof(struct fc), needs,    create, destroy,
                                          forward,           backward, choose, bind};
