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

#define BOTH(kernel, meets) ROW(kernel, meets), ROW(kernel##_bf16, meets)

static const Kernel kernels[] = {
    BOTH(k_turn, false),
    BOTH(k_turn_in, false),
    BOTH(k_turn_out, false),
    BOTH(k_convert, false),
    BOTH(k_bytes, false),
    BOTH(k_cut_bytes, false),
    BOTH(k_copy_channels, false),
    BOTH(k_add, false),
    BOTH(k_bias, false),
    BOTH(k_activate, false),
    BOTH(k_activate_back, false),
    BOTH(k_dropout, false),
    BOTH(k_dropout_planes, false),
    BOTH(k_maxpool, false),
    BOTH(k_maxpool_back, false),
    BOTH(k_avgpool, false),
    BOTH(k_avgpool_back, false),
    BOTH(k_lrn, false),
    BOTH(k_lrn_back, false),
    BOTH(k_norm, false),
    BOTH(k_norm_back, false),
    BOTH(k_conv, false),
    BOTH(k_conv_back_data, false),
    BOTH(k_conv_back_weights, false),
    BOTH(k_sums, true),
    BOTH(k_moments, true),
    BOTH(k_products, true),
    BOTH(k_loss, true),
    ROW(k_loss_wide_bf16, true),
    ROW(k_sums_end, false),
    ROW(k_norm_measured, false),
    ROW(k_norm_running, false),
    ROW(k_norm_back_end, false),
    ROW(kv_axpy, false),
    ROW(kv_scale, false),
    ROW(kv_copy, false),
    ROW(kv_subtract, false),
    ROW(kv_decay, false),
    ROW(kv_elastic, false),
    ROW(kv_rebase, false),
    ROW(kv_heavy_ball, false),
    ROW(kv_nesterov, false),
    ROW(kv_admm_message, false),
    ROW(kv_admm_land, false),
    ROW(kv_admm_restart, false),
    ROW(kv_search, false),
};

const Kernel *kernel_named(const char *name)
{
    for (const Kernel &k : kernels)
        if (strcmp(k.name, name) == 0)
            return &k;
    return nullptr;
}

} // namespace standin
