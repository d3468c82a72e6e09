/* graph.h: one convolution as a graph of cuDNN's backend API: the plans that there are for it, and running
 * one. Also without a device, from a description of one. Private to nets/cuda. */
#ifndef CNN_CUDA_GRAPH_H
#define CNN_CUDA_GRAPH_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>

#include "nets/cuda/kernels.h"
#include "nets/net.h"

static inline enum cnn_cuda_type cnn_cuda_type_of(enum cnn_precision precision)
{
    return precision == CNN_BF16 ? CNN_CUDA_BF16 : CNN_CUDA_FLOAT;
}

static inline size_t cnn_cuda_value_bytes(enum cnn_precision precision)
{
    return precision == CNN_BF16 ? sizeof(struct cnn_cuda_bf16) : sizeof(float);
}

enum cnn_cuda_product { CNN_CUDA_FORWARD, CNN_CUDA_BACK_DATA, CNN_CUDA_BACK_WEIGHTS, CNN_CUDA_N_PRODUCTS };
/* What follows a forward product in the same plan, before its sums are rounded. In bf16, the bias is bf16:
 * for a float32 one, cuDNN 9.19 has no plan. */
enum cnn_cuda_epilogue { CNN_CUDA_NOTHING, CNN_CUDA_BIAS, CNN_CUDA_BIAS_RELU };

/* The padding may differ at the two ends. */
struct cnn_cuda_problem {
    enum cnn_cuda_product product;
    enum cnn_precision precision;
    enum cnn_cuda_epilogue epilogue;
    struct cnn_cuda_window window;
    bool any_order; /* plans need not be deterministic */
};

/* Where the plans are to run: on the handle's device, or if it is NULL on the described one. */
struct cnn_cuda_place {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
};

/* Why a problem has no plan, in cuDNN's words. */
struct cnn_cuda_why {
    char text[256];
};

#define CNN_CUDA_MOST_PLANS 8
struct cnn_cuda_plan {
    cudnnBackendDescriptor_t plan;
    cudnnBackendDescriptor_t pack; /* its operands, after bind */
    size_t workspace;
    char name[96]; /* "graph:ENGINE:KNOB=VALUE,…": the same for the same cuDNN, device and problem */
};
/* The plans of a problem, fastest first as cuDNN estimates. Each is deterministic, unless the problem does
 * not ask for it, and rounds to no less than the precision; none needs more than `most_workspace`. */
struct cnn_cuda_plans {
    struct cnn_cuda_plan plans[CNN_CUDA_MOST_PLANS];
    size_t n;
    size_t n_known; /* configurations that cuDNN named, of which the others are not wanted or not built */
    cudnnBackendDescriptor_t *parts; /* all descriptors, to be destroyed */
    size_t n_parts, most_parts;
};

/* Finds at most `most` plans. n = 0 with the reason in why (may be NULL) if there is none. */
void cnn_cuda_plans_find(const struct cnn_cuda_problem *problem, const struct cnn_cuda_place *place,
                         size_t most, size_t most_workspace, struct cnn_cuda_plans *out,
                         struct cnn_cuda_why *why);
void cnn_cuda_plans_finish(struct cnn_cuda_plans *p);

/* The operands: in, weights and out of the product, of which it writes one; bias: NULL without an epilogue.
 */
struct cnn_cuda_operands {
    const void *in, *weights, *bias;
    void *out, *workspace;
};
/* Binds them to a plan, for all its runs. */
cudnnStatus_t cnn_cuda_plan_bind(struct cnn_cuda_plans *p, struct cnn_cuda_plan *plan,
                                 const struct cnn_cuda_problem *problem,
                                 const struct cnn_cuda_operands *operands);
/* Enqueues it in the handle's stream. */
static inline cudnnStatus_t cnn_cuda_plan_run(cudnnHandle_t handle, const struct cnn_cuda_plan *plan)
{
    return cudnnBackendExecute(handle, plan->plan, plan->pack);
}

/* Describes a device by the JSON that cuDNN gives for it (n bytes). NULL with the reason in why. Destroyed by
 * cudnnBackendDestroyDescriptor. */
cudnnBackendDescriptor_t cnn_cuda_device_described(const char *json, size_t n, struct cnn_cuda_why *why);
/* Writes the JSON of a device of this machine. Its length, or -1 with the reason in why. */
int64_t cnn_cuda_device_describe(int device, char *json, size_t most, struct cnn_cuda_why *why);

#endif
