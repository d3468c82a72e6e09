// kernels.cpp: the device code compiled for the host, and its table.
#include <cstring>
#include <tuple>
#include <utility>

#include "tests/cuda/standin.h"
#include "tests/cuda/words.h"

#include "client/memory/cuda/kernels.cuh"

#include "client/memory/cuda/codecs.cuh"
#include "nets/cuda/kernels.cuh"

namespace standin
{

template <class T> static T turned(T value, const char *)
{
    return value;
}

template <class T> static T *turned(T *p, const char *name, size_t count = 1)
{
    if (device_of(p) >= 0 && device_of(p) != device())
        fail("%s: %p is memory of device %d, and the kernel runs on device %d", name, (const void *)p,
             device_of(p), device());
    return numbers(p, name, count);
}

// Tables with vectors in them.
static psc_passes turned(psc_passes t, const char *name)
{
    counts().passes += t.n;
    t.first = turned(t.first, name);
    for (psc_pass *p = t.at; p < t.at + t.n; p++) {
        p->to = turned(p->to, name, p->n);
        p->also = turned(p->also, name, p->n);
        for (const float *&in : p->in)
            in = turned(in, name, p->n);
    }
    return t;
}

static cnn_cuda_sums turned(cnn_cuda_sums s, const char *name)
{
    s.part = turned(s.part, name);
    s.ended = turned(s.ended, name);
    return s;
}

static psc_code turned(psc_code c, const char *name)
{
    c.message = turned(c.message, name);
    c.error = turned(c.error, name);
    c.segments = turned(c.segments, name, c.n_segments);
    c.room = turned(c.room, name);
    c.first = turned(c.first, name);
    return c;
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
    BOTH(k_weights_in, false),
    BOTH(k_weights_out, false),
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
    BOTH(k_sums_behind_relu, true),
    BOTH(k_sums_behind_pool, true),
    BOTH(k_moments, true),
    BOTH(k_products, true),
    BOTH(k_loss, true),
    ROW(k_loss_wide_bf16, true),
    ROW(k_rows, false),
    ROW(k_norm_move, false),
    ROW(k_norm_running, false),
    ROW(kv_passes, false),
    ROW(kv_search, false),
    ROW(kv_encode, false),
    ROW(kv_encode_int8, true),
    ROW(kv_encode_int4, true),
    ROW(kv_encode_topk, true),
    ROW(kv_feed_back, false),
    ROW(kv_feed_back_topk, true),
    ROW(kv_take_moves, false),
    ROW(kv_take_topk, true),
    ROW(kv_decode, false),
};

Counts &counts()
{
    static Counts all;
    return all;
}

const Kernel *kernel_named(const char *name)
{
    for (const Kernel &k : kernels)
        if (strcmp(k.name, name) == 0)
            return &k;
    return nullptr;
}

} // namespace standin

// up, down: bytes; launches; passes.
extern "C" void standin_counts(uint64_t out[4])
{
    standin::Guard guard;
    const standin::Counts &c = standin::counts();
    const uint64_t all[] = {c.up_bytes, c.down_bytes, c.launches, c.passes};
    memcpy(out, all, sizeof all);
}
