// dnn_graph.cpp: cuDNN's backend API, for graphs of one convolution with a bias and a ReLU behind it. Of a
// device described without one it knows nothing: that is the real library's.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include <cudnn.h>

#include "tests/cuda/dnn.h"
#include "tests/cuda/products.h"
#include "tests/cuda/standin.h"

using standin::fail;
using standin::Product;
using standin::Sizes4;
using standin::Type;

namespace
{

const cudnnStatus_t OK = CUDNN_STATUS_SUCCESS, BAD = CUDNN_STATUS_BAD_PARAM,
                    NOT_SUPPORTED = CUDNN_STATUS_NOT_SUPPORTED;
const size_t WORKSPACE = 5000; // every plan wants so much, and spoils it

// The engines, in the order that the estimate names them.
enum Engine { ANY_ORDER, HUGE_ONE, HALF, TENSOR_CORE, UNBUILDABLE, GOOD, ALSO_GOOD, N_ENGINES };

struct Descriptor {
    cudnnBackendDescriptorType_t type{};
    bool is_final = false;
    std::map<int, std::vector<char>> attributes;
    int engine = -1; // of configurations and engines

    template <class T> std::vector<T> all(int name) const
    {
        auto it = attributes.find(name);
        std::vector<T> out(it == attributes.end() ? 0 : it->second.size() / sizeof(T));
        if (!out.empty())
            memcpy(out.data(), it->second.data(), out.size() * sizeof(T));
        return out;
    }
    // Absent: the process ends; the caller has checked what users can get wrong.
    template <class T> T one(int name) const
    {
        auto v = all<T>(name);
        if (v.size() != 1)
            fail("cuDNN: attribute %d of a descriptor of type %d has %zu values", name, int(type), v.size());
        return v[0];
    }
    const Descriptor &part(int name) const
    {
        return *static_cast<Descriptor *>(one<void *>(name));
    }
};

size_t bytes_each(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

struct Tensor {
    Sizes4 sizes;
    Type type;
    int64_t id, alignment;
};

bool read_tensor(const Descriptor &d, Tensor &out)
{
    auto dims = d.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
         strides = d.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    if (dims.size() != 4 || strides.size() != 4 ||
        !standin::read_dnn_type(d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE), out.type))
        return false;
    out.sizes = {int(dims[0]), int(dims[1]), int(dims[2]), int(dims[3])};
    out.id = d.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    out.alignment = d.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    return strides[1] == 1 && strides[3] == dims[1] && strides[2] == dims[3] * dims[1] &&
           strides[0] == dims[2] * dims[3] * dims[1];
}

// The attributes of a convolution's operation, by its type.
struct Names {
    int type, convolution, in, weights, out, alpha, beta;
};
const Names kinds[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

// What a graph computes. out: of its last operation.
struct Work {
    int kind;
    Product product;
    Tensor in, weights, sums, bias, out;
    bool has_bias = false, has_relu = false;
};

bool read_product(const Descriptor &op, Work &w)
{
    for (w.kind = 0; w.kind < 3 && kinds[w.kind].type != int(op.type); w.kind++) {
    }
    if (w.kind == 3)
        return false;
    const Names &n = kinds[w.kind];
    const Descriptor &c = op.part(n.convolution);
    auto pad = c.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
         end = c.all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
         stride = c.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
         dilation = c.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
    if (!read_tensor(op.part(n.in), w.in) || !read_tensor(op.part(n.weights), w.weights) ||
        !read_tensor(op.part(n.out), w.sums) || op.one<float>(n.alpha) != 1 || op.one<float>(n.beta) != 0 ||
        c.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
        return false;
    w.product = {w.in.sizes,
                 w.sums.sizes,
                 w.weights.sizes,
                 {int(pad[0]), int(pad[1])},
                 {int(end[0]), int(end[1])},
                 {int(stride[0]), int(stride[1])},
                 {int(dilation[0]), int(dilation[1])},
                 w.weights.sizes.c > 0 ? w.in.sizes.c / w.weights.sizes.c : 1};
    w.out = w.kind == 0 ? w.sums : w.kind == 1 ? w.in : w.weights;
    return w.in.type == w.weights.type && w.product.fits();
}

bool read_pointwise(const Descriptor &op, Work &w)
{
    if (op.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || w.kind != 0)
        return false;
    const Descriptor &what = op.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    auto mode = what.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    Tensor x;
    if (!read_tensor(op.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), x) || x.id != w.out.id)
        return false;
    if (mode == CUDNN_POINTWISE_RELU_FWD)
        w.has_relu =
            what.one<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) == CUDNN_PROPAGATE_NAN;
    // As the real one: there is no plan with a bias of another type than the input's.
    else if (mode == CUDNN_POINTWISE_ADD && !w.has_relu)
        w.has_bias = read_tensor(op.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), w.bias) &&
                     w.bias.sizes.count() == size_t(w.sums.sizes.c) && w.bias.type == w.in.type;
    return (mode == CUDNN_POINTWISE_RELU_FWD ? w.has_relu : w.has_bias) &&
           read_tensor(op.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), w.out);
}

bool read_graph(const Descriptor &g, Work &w)
{
    auto ops = g.all<Descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    bool is_good = !ops.empty() && read_product(*ops[0], w);
    for (size_t i = 1; i < ops.size() && is_good; i++)
        is_good = read_pointwise(*ops[i], w);
    return is_good;
}

// STANDIN_CUDNN=none or classic: no plan for any graph.
bool has_plans()
{
    const char *s = getenv("STANDIN_CUDNN");
    return s == nullptr || (strcmp(s, "none") != 0 && strcmp(s, "classic") != 0);
}

template <class T> cudnnStatus_t give(T value, int64_t *n, void *out)
{
    *n = 1;
    memcpy(out, &value, sizeof value);
    return OK;
}

cudnnStatus_t give_configs(const Descriptor &d, int64_t most, int64_t *n, void *out)
{
    auto mode = d.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
    Work w;
    *n = 0;
    if (!has_plans() || !read_graph(d.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), w))
        return OK;
    for (int e = mode == CUDNN_HEUR_MODE_FALLBACK ? int(GOOD) : 0; e < N_ENGINES && *n < most; e++) {
        Descriptor *config = static_cast<Descriptor **>(out)[(*n)++];
        config->engine = e;
        config->attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
            d.attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        config->is_final = true;
    }
    return OK;
}

cudnnStatus_t give_notes(int engine, int64_t *n, void *out)
{
    static const std::map<int, cudnnBackendNumericalNote_t> notes = {
        {ANY_ORDER, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
        {HALF, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS},
        {TENSOR_CORE, CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
    };
    auto it = notes.find(engine);
    *n = 0;
    return it == notes.end() ? OK : give(it->second, n, out);
}

void compute(const Work &w, bool is_tf32, bool any_order, const std::map<int64_t, void *> &at)
{
    auto read = [&](const Tensor &t) {
        return standin::read_numbers(at.at(t.id), t.sizes.count(), t.type, is_tf32);
    };
    std::vector<double> sums = w.kind == 0   ? convolve(w.product, read(w.in), read(w.weights))
                               : w.kind == 1 ? convolve_back_data(w.product, read(w.weights), read(w.sums))
                                             : convolve_back_weights(w.product, read(w.in), read(w.sums));
    if (any_order)
        standin::reorder(sums);
    if (w.has_bias) {
        auto bias = standin::read_numbers(at.at(w.bias.id), w.bias.sizes.count(), w.bias.type);
        for (size_t i = 0; i < sums.size(); i++)
            sums[i] = double(float(sums[i]) + bias[i % bias.size()]);
    }
    for (size_t i = 0; w.has_relu && i < sums.size(); i++)
        sums[i] = sums[i] < 0 ? 0 : sums[i];
    standin::write_numbers(at.at(w.out.id), sums, w.out.type);
}

} // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    auto *d = new Descriptor;
    d->type = type;
    *out = d;
    return OK;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    delete static_cast<Descriptor *>(d);
    return OK;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    auto *to = static_cast<Descriptor *>(d);
    if (to->is_final || n < 1)
        return BAD;
    const char *from = static_cast<const char *>(values);
    to->attributes[name].assign(from, from + size_t(n) * bytes_each(type));
    return OK;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    auto *to = static_cast<Descriptor *>(d);
    Work w;
    Tensor t;
    if (to->is_final || (to->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && !read_tensor(*to, t)) ||
        (to->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
         to->attributes.count(CUDNN_ATTR_OPERATIONGRAPH_HANDLE) == 0))
        return BAD;
    if (to->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        to->engine = to->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine;
        if (to->engine == UNBUILDABLE || to->attributes.count(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) == 0)
            return NOT_SUPPORTED;
    }
    to->is_final = true;
    return OK;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t *n, void *out)
{
    auto *of = static_cast<Descriptor *>(d);
    if (!of->is_final)
        return BAD;
    switch (int(name)) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return give_configs(*of, most, n, out);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
        Descriptor *engine = *static_cast<Descriptor **>(out);
        engine->engine = of->engine;
        engine->is_final = true;
        *n = 1;
        return OK;
    }
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        *n = 0;
        return OK;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return give_notes(of->engine, n, out);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        return give(int64_t(of->engine), n, out);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        return give(of->engine == HUGE_ONE ? int64_t(1) << 40 : int64_t(WORKSPACE), n, out);
    default:
        return NOT_SUPPORTED;
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    auto *p = static_cast<Descriptor *>(plan), *v = static_cast<Descriptor *>(pack);
    Work w;
    if (!p->is_final || !v->is_final ||
        !read_graph(
            p->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), w))
        return BAD;
    auto pointers = v->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    auto ids = v->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    std::map<int64_t, void *> given, at;
    for (size_t i = 0; i < ids.size(); i++)
        given[ids[i]] = pointers[i];
    std::vector<Tensor> needed = {w.in, w.weights};
    needed.push_back(w.kind == 0 ? w.out : w.sums);
    if (w.has_bias)
        needed.push_back(w.bias);
    for (const Tensor &t : needed) {
        if (given.count(t.id) == 0)
            return BAD;
        if (reinterpret_cast<uintptr_t>(given[t.id]) % uintptr_t(t.alignment) != 0)
            fail("cuDNN: tensor %d of a plan is at %p, which is not a multiple of %d", int(t.id), given[t.id],
                 int(t.alignment));
        at[t.id] = standin::numbers_at(given[t.id], t.sizes.count() * bytes_of(t.type), "a plan's tensor");
    }
    void *workspace = standin::numbers_at(v->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), WORKSPACE,
                                          "a plan's workspace");
    bool is_tf32 = p->engine == TENSOR_CORE && w.in.type == Type::Float;
    bool any_order = p->engine == ANY_ORDER;
    return standin::put(h->stream, "cudnnBackendExecute",
                        [=] {
                            memset(workspace, 0xff, WORKSPACE);
                            compute(w, is_tf32, any_order, at);
                        }) == cudaSuccess
               ? OK
               : CUDNN_STATUS_EXECUTION_FAILED;
}

void cudnnGetLastErrorString(char *message, size_t most)
{
    if (most > 0)
        message[0] = 0;
}

size_t cudnnGetVersion()
{
    return CUDNN_VERSION;
}
}
