/* graph.c: graphs of one convolution, their engine configurations and plans.
 *
 * Descriptors may refer to each other, so all of a problem live until its plans do not. The first error of a
 * sequence sticks; calls after it do nothing. */
#include "nets/cuda/graph.h"

#include <stdio.h>
#include <stdlib.h>

/* Engine configurations to ask for. */
#define MOST_CONFIGS 32
/* Knobs of an engine. */
#define MOST_KNOBS 32

enum id { ID_IN = 1, ID_WEIGHTS, ID_OUT, ID_BIAS, ID_SUM, ID_BIASED };

struct maker {
    struct cnn_cuda_plans *p;
    cudnnStatus_t status;
};

/* A descriptor, destroyed with the plans. NULL after an error. */
static cudnnBackendDescriptor_t begin(struct maker *m, cudnnBackendDescriptorType_t type)
{
    struct cnn_cuda_plans *p = m->p;
    cudnnBackendDescriptor_t d = NULL;

    if (m->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (p->n_parts == p->most_parts) {
        size_t most = p->most_parts > 0 ? 2 * p->most_parts : 64;
        cudnnBackendDescriptor_t *more = realloc(p->parts, most * sizeof *more);
        if (more == NULL) {
            m->status = CUDNN_STATUS_ALLOC_FAILED;
            return NULL;
        }
        p->parts = more;
        p->most_parts = most;
    }
    m->status = cudnnBackendCreateDescriptor(type, &d);
    if (m->status == CUDNN_STATUS_SUCCESS)
        p->parts[p->n_parts++] = d;
    return d;
}

static void set(struct maker *m, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (m->status == CUDNN_STATUS_SUCCESS)
        m->status = cudnnBackendSetAttribute(d, name, type, n, values);
}

static void set_part(struct maker *m, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t part)
{
    set(m, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static cudnnBackendDescriptor_t end(struct maker *m, cudnnBackendDescriptor_t d)
{
    if (m->status == CUDNN_STATUS_SUCCESS)
        m->status = cudnnBackendFinalize(d);
    return d;
}

/* ---- the graph */

/* NHWC. is_virtual: it lies between two operations. */
static cudnnBackendDescriptor_t tensor(struct maker *m, enum id id, cudnnDataType_t type,
                                       struct cnn_cuda_shape s, int64_t aligned_bytes, bool is_virtual)
{
    const int64_t n = s.n, c = s.c, h = s.h, w = s.w, uid = id;
    const int64_t dims[4] = {n, c, h, w}, strides[4] = {h * w * c, 1, w * c, c};
    cudnnBackendDescriptor_t d = begin(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    set(m, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(m, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(m, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(m, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(m, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned_bytes);
    set(m, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    return end(m, d);
}

static void copy_pair(int64_t to[2], const int32_t from[2])
{
    to[0] = from[0];
    to[1] = from[1];
}

static cudnnBackendDescriptor_t convolution(struct maker *m, const struct cnn_cuda_window *w)
{
    const int64_t dimensions = 2;
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t pad[2], pad_end[2], stride[2], dilation[2];
    cudnnBackendDescriptor_t d = begin(m, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

    copy_pair(pad, w->pad);
    copy_pair(pad_end, w->pad_end);
    copy_pair(stride, w->stride);
    copy_pair(dilation, w->dilation);
    set(m, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
    set(m, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    set(m, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(m, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(m, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad_end);
    set(m, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(m, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    return end(m, d);
}

/* The operation of each product, and its attributes for the convolution, in, weights, out, alpha and beta. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t convolution, in, weights, out, alpha, beta;
} operations[] = {
    [CNN_CUDA_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CNN_CUDA_BACK_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CNN_CUDA_BACK_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* b NULL: of one input. */
static cudnnBackendDescriptor_t pointwise(struct maker *m, cudnnPointwiseMode_t mode,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnnBackendDescriptor_t what = begin(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

    set(m, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(m, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (mode == CUDNN_POINTWISE_RELU_FWD)
        set(m, what, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    end(m, what);
    cudnnBackendDescriptor_t d = begin(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(m, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_part(m, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != NULL)
        set_part(m, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_part(m, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return end(m, d);
}

static cudnnBackendDescriptor_t product(struct maker *m, const struct cnn_cuda_problem *q,
                                        cudnnBackendDescriptor_t in, cudnnBackendDescriptor_t weights,
                                        cudnnBackendDescriptor_t out)
{
    const float one = 1, zero = 0; /* cuDNN takes doubles, too, but its first engine reads their first half */
    cudnnBackendDescriptor_t how = convolution(m, &q->window), d = begin(m, operations[q->product].type);

    set_part(m, d, operations[q->product].convolution, how);
    set_part(m, d, operations[q->product].in, in);
    set_part(m, d, operations[q->product].weights, weights);
    set_part(m, d, operations[q->product].out, out);
    set(m, d, operations[q->product].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(m, d, operations[q->product].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    return end(m, d);
}

static cudnnBackendDescriptor_t graph(struct maker *m, const struct cnn_cuda_problem *q, cudnnHandle_t handle)
{
    const cudnnDataType_t type = q->precision == CNN_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const struct cnn_cuda_window *w = &q->window;
    const struct cnn_cuda_shape weight = {w->out.c, (uint32_t)w->kernel[0], (uint32_t)w->kernel[1],
                                          w->in.c / w->groups};
    const bool has_bias = q->epilogue != CNN_CUDA_NOTHING, has_relu = q->epilogue == CNN_CUDA_BIAS_RELU;
    cudnnBackendDescriptor_t ops[3];
    int64_t n = 0;

    cudnnBackendDescriptor_t in = tensor(m, ID_IN, type, w->in, 16, false),
                             weights = tensor(m, ID_WEIGHTS, type, weight, 16, false),
                             out = tensor(m, ID_OUT, type, w->out, 16, false);
    if (!has_bias) {
        ops[n++] = product(m, q, in, weights, out);
    } else {
        cudnnBackendDescriptor_t sum = tensor(m, ID_SUM, CUDNN_DATA_FLOAT, w->out, 16, true),
                                 bias = tensor(m, ID_BIAS, type, (struct cnn_cuda_shape){1, 1, 1, w->out.c},
                                               cnn_cuda_value_bytes(q->precision), false),
                                 biased = has_relu ? tensor(m, ID_BIASED, CUDNN_DATA_FLOAT, w->out, 16, true)
                                                   : out;
        ops[n++] = product(m, q, in, weights, sum);
        ops[n++] = pointwise(m, CUDNN_POINTWISE_ADD, sum, bias, biased);
        if (has_relu)
            ops[n++] = pointwise(m, CUDNN_POINTWISE_RELU_FWD, biased, NULL, out);
    }
    cudnnBackendDescriptor_t d = begin(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(m, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    if (handle != NULL)
        set(m, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    return end(m, d);
}

/* ---- plans */

/* The engine of back-weights that is Winograd's and does not note it: with windows of 5 x 5 it is off by 1e-3
 * of the largest value, a thousand times as much as others (H200, cuDNN 9.14 and 9.19). */
#define UNNOTED_WINOGRAD 17

/* Whether an engine is deterministic, if it must be, and rounds to no less than the precision: with float32,
 * a tensor-core engine reads factors as tf32, and Winograd's products are coarse with tiles of more than 4
 * x 4.
 */
static bool is_wanted(const struct cnn_cuda_problem *q, cudnnBackendDescriptor_t engine, int64_t index)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    uint32_t has = 0;
    const uint32_t never = (q->any_order ? 0 : 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) |
                           1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                           1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                           1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;

    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        has |= 1u << notes[i];
    const bool is_coarse = (q->product == CNN_CUDA_BACK_WEIGHTS && index == UNNOTED_WINOGRAD) ||
                           ((has & 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD) != 0 &&
                            (has & 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4) == 0);
    if (q->precision == CNN_FLOAT32 && (is_coarse || (has & 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != 0))
        return false;
    return (has & never) == 0;
}

/* Writes ":KNOB=VALUE,…" of a configuration. */
static void name_knobs(struct maker *m, cudnnBackendDescriptor_t config, char *to, size_t bytes)
{
    cudnnBackendDescriptor_t knobs[MOST_KNOBS];
    int64_t n = 0, one = 0;
    size_t used = 0;

    for (size_t i = 0; i < MOST_KNOBS; i++)
        knobs[i] = begin(m, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (m->status != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 MOST_KNOBS, &n, knobs) != CUDNN_STATUS_SUCCESS)
        return;
    for (int64_t i = 0; i < n && i < MOST_KNOBS && used < bytes; i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t value = 0;
        cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
                                 &type);
        cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one,
                                 &value);
        used += (size_t)snprintf(to + used, bytes - used, "%c%d=%lld", i == 0 ? ':' : ',', (int)type,
                                 (long long)value);
    }
}

/* Builds the plan of a configuration. Whether it is one of those wanted. */
static bool build(struct maker *m, const struct cnn_cuda_problem *q, const struct cnn_cuda_place *place,
                  size_t most_workspace, cudnnBackendDescriptor_t config, struct cnn_cuda_plan *out)
{
    cudnnBackendDescriptor_t engine = begin(m, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0, index = 0, workspace = 0;

    if (m->status != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                 &engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &index) !=
            CUDNN_STATUS_SUCCESS ||
        !is_wanted(q, engine, index))
        return false;
    struct maker try = {m->p, CUDNN_STATUS_SUCCESS}; /* a configuration that cannot be built is no error */
    cudnnBackendDescriptor_t plan = begin(&try, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_part(&try, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (place->handle != NULL)
        set(&try, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &place->handle);
    else
        set_part(&try, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, place->device);
    end(&try, plan);
    if (try.status != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                 &workspace) != CUDNN_STATUS_SUCCESS ||
        workspace < 0 || (uint64_t)workspace > most_workspace)
        return false;
    *out = (struct cnn_cuda_plan){.plan = plan, .workspace = (size_t)workspace};
    int used = snprintf(out->name, sizeof out->name, "graph:%lld", (long long)index);
    name_knobs(m, config, out->name + used, sizeof out->name - (size_t)used);
    return true;
}

/* Asks for configurations in one way, and adds the plans of those wanted. */
static void add_plans(struct maker *m, const struct cnn_cuda_problem *q, const struct cnn_cuda_place *place,
                      cudnnBackendDescriptor_t g, cudnnBackendHeurMode_t mode, size_t most,
                      size_t most_workspace)
{
    cudnnBackendDescriptor_t configs[MOST_CONFIGS], d = begin(m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t n = 0;

    set_part(m, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g);
    set(m, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (place->handle == NULL)
        set_part(m, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, place->device);
    end(m, d);
    for (size_t i = 0; i < MOST_CONFIGS; i++)
        configs[i] = begin(m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (m->status == CUDNN_STATUS_SUCCESS)
        m->status = cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                             MOST_CONFIGS, &n, configs);
    if (m->status != CUDNN_STATUS_SUCCESS)
        return;
    m->p->n_known += (size_t)n;
    for (int64_t i = 0; i < n && i < MOST_CONFIGS && m->p->n < most; i++)
        m->p->n += build(m, q, place, most_workspace, configs[i], &m->p->plans[m->p->n]);
}

static void say_why(cudnnStatus_t status, const struct cnn_cuda_plans *p, struct cnn_cuda_why *why)
{
    char last[160] = "";

    if (why == NULL)
        return;
    if (status == CUDNN_STATUS_SUCCESS) {
        snprintf(why->text, sizeof why->text,
                 "none of %zu configurations is deterministic, of the precision, and small "
                 "enough",
                 p->n_known);
        return;
    }
    cudnnGetLastErrorString(last, sizeof last);
    snprintf(why->text, sizeof why->text, "%s: %s", cudnnGetErrorString(status), last);
}

void cnn_cuda_plans_find(const struct cnn_cuda_problem *problem, const struct cnn_cuda_place *place,
                         size_t most, size_t most_workspace, struct cnn_cuda_plans *out,
                         struct cnn_cuda_why *why)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    *out = (struct cnn_cuda_plans){.n = 0};
    most = most < CNN_CUDA_MOST_PLANS ? most : CNN_CUDA_MOST_PLANS;
    struct maker m = {out, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t g = graph(&m, problem, place->handle);
    status = m.status;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0] && out->n == 0 && g != NULL; i++) {
        struct maker each = {out, status};
        add_plans(&each, problem, place, g, modes[i], most, most_workspace);
        if (out->n == 0 && each.status != CUDNN_STATUS_SUCCESS)
            m.status = each.status;
    }
    if (out->n == 0)
        say_why(m.status, out, why);
}

void cnn_cuda_plans_finish(struct cnn_cuda_plans *p)
{
    while (p->n_parts > 0)
        cudnnBackendDestroyDescriptor(p->parts[--p->n_parts]);
    free(p->parts);
    *p = (struct cnn_cuda_plans){.n = 0};
}

cudnnStatus_t cnn_cuda_plan_bind(struct cnn_cuda_plans *p, struct cnn_cuda_plan *plan,
                                 const struct cnn_cuda_problem *problem,
                                 const struct cnn_cuda_operands *operands)
{
    const void *const at[] = {operands->in, operands->weights, operands->out, operands->bias};
    const int64_t ids[] = {ID_IN, ID_WEIGHTS, ID_OUT, ID_BIAS};
    const int64_t n = problem->epilogue != CNN_CUDA_NOTHING ? 4 : 3;
    struct maker m = {p, CUDNN_STATUS_SUCCESS};

    plan->pack = begin(&m, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&m, plan->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
    set(&m, plan->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    set(&m, plan->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &operands->workspace);
    end(&m, plan->pack);
    return m.status;
}

/* Of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION or CUDNN_ATTR_DEVICEPROP_DEVICE_ID. */
static cudnnBackendDescriptor_t device_of(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                          int64_t n, const void *values, struct cnn_cuda_why *why)
{
    cudnnBackendDescriptor_t d = NULL;
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);

    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(d, name, type, n, values);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(d);
    if (status == CUDNN_STATUS_SUCCESS)
        return d;
    say_why(status, NULL, why);
    if (d != NULL)
        cudnnBackendDestroyDescriptor(d);
    return NULL;
}

cudnnBackendDescriptor_t cnn_cuda_device_described(const char *json, size_t n, struct cnn_cuda_why *why)
{
    return device_of(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)n, json, why);
}

int64_t cnn_cuda_device_describe(int device, char *json, size_t most, struct cnn_cuda_why *why)
{
    const int32_t id = device;
    int64_t n = -1;
    cudnnBackendDescriptor_t d = device_of(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id, why);

    if (d == NULL)
        return -1;
    cudnnStatus_t status = cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                    CUDNN_TYPE_CHAR, (int64_t)most, &n, json);
    if (status != CUDNN_STATUS_SUCCESS) {
        say_why(status, NULL, why);
        n = -1;
    }
    cudnnBackendDestroyDescriptor(d);
    return n;
}
