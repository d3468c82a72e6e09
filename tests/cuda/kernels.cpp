// kernels.cpp: the device code compiled for the host, and its table.
#include <cstring>
#include <tuple>
#include <utility>

#include "tests/cuda/standin.h"
#include "tests/cuda/words.h"

#include "client/memory/cuda/kernels.cuh"
#include "nets/cuda/kernels.cuh"

namespace standin
{

template <class T> static T turned(T value, const char *)
{
    return value;
}

template <class T> static T *turned(T *p, const char *name)
{
    return numbers(p, name);
}

template <class... A, size_t... I>
static std::function<void()> pack(void (*kernel)(A...), const char *name, void **arguments,
                                  std::index_sequence<I...>)
{
    std::tuple<A...> t{turned(*static_cast<A *>(arguments[I]), name)...};
    return [kernel, t] { std::apply(kernel, t); };
}

template <class... A>
static std::function<void()> bind_all(void (*kernel)(A...), const char *name, void **arguments)
{
    return pack(kernel, name, arguments, std::index_sequence_for<A...>{});
}

#define ROW(kernel, meets)                                                                                   \
    {                                                                                                        \
#kernel, meets, [](void **a) { return bind_all(kernel, #kernel, a); }                                \
    }

static const Kernel kernels[] = {
    ROW(k_turn, false),          ROW(k_bytes, false),          ROW(k_pad, false),
    ROW(k_crop, false),          ROW(k_copy_channels, false),  ROW(k_add, false),
    ROW(k_bias, false),          ROW(k_activate, false),       ROW(k_activate_back, false),
    ROW(k_dropout, false),       ROW(k_dropout_planes, false), ROW(k_maxpool, false),
    ROW(k_maxpool_back, false),  ROW(k_avgpool, false),        ROW(k_avgpool_back, false),
    ROW(k_lrn, false),           ROW(k_lrn_back, false),       ROW(k_sums, true),
    ROW(k_moments, true),        ROW(k_products, true),        ROW(k_sums_end, false),
    ROW(k_norm_measured, false), ROW(k_norm_running, false),   ROW(k_norm, false),
    ROW(k_norm_back_end, false), ROW(k_norm_back, false),      ROW(k_loss, true),
    ROW(kv_axpy, false),         ROW(kv_scale, false),         ROW(kv_copy, false),
    ROW(kv_subtract, false),     ROW(kv_decay, false),         ROW(kv_elastic, false),
    ROW(kv_rebase, false),       ROW(kv_heavy_ball, false),    ROW(kv_nesterov, false),
    ROW(kv_admm_message, false), ROW(kv_admm_land, false),     ROW(kv_admm_restart, false),
    ROW(kv_search, false),
    ROW(k_conv, false),          ROW(k_conv_back_data, false), ROW(k_conv_back_weights, false),
};

const Kernel *kernel_named(const char *name)
{
    for (const Kernel &k : kernels)
        if (strcmp(k.name, name) == 0)
            return &k;
    return nullptr;
}

} // namespace standin
