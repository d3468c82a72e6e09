// products.cpp: numbers of each type, and convolutions.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/cuda/products.h"
#include "tests/cuda/standin.h"

namespace standin
{

// To nearest, ties to even, dropping the lower `dropped` bits.
static float rounded(float x, int dropped)
{
    uint32_t bits, rest = (uint32_t(1) << dropped) - 1;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits = (bits + (rest >> 1) + (bits >> dropped & 1)) & ~rest;
    else if ((bits & 0x7fffff) != 0)
        bits = (bits | 0x400000) & ~rest;
    memcpy(&x, &bits, sizeof x);
    return x;
}

std::vector<float> read_numbers(const void *at, size_t n, Type type, bool is_tf32)
{
    std::vector<float> out(n);
    if (type == Type::Float) {
        memcpy(out.data(), at, n * sizeof(float));
        for (size_t i = 0; is_tf32 && i < n; i++)
            out[i] = rounded(out[i], 13);
        return out;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = uint32_t(static_cast<const uint16_t *>(at)[i]) << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
    return out;
}

void write_numbers(void *at, const std::vector<double> &values, Type type, double alpha, double beta)
{
    std::vector<float> old = beta != 0 ? read_numbers(at, values.size(), type) : std::vector<float>();
    for (size_t i = 0; i < values.size(); i++) {
        float v = float(alpha * values[i] + (beta != 0 ? beta * double(old[i]) : 0));
        if (type == Type::Float) {
            static_cast<float *>(at)[i] = v;
            continue;
        }
        uint32_t bits;
        v = rounded(v, 16);
        memcpy(&bits, &v, sizeof bits);
        static_cast<uint16_t *>(at)[i] = uint16_t(bits >> 16);
    }
}

void reorder(std::vector<double> &sums)
{
    for (double &v : sums)
        if (standin::random_below(2) != 0)
            v = double(nextafterf(float(v), v > 0 ? 0.0f : -0.0f));
}

static bool fits_side(const Product &p, int in, int out, int kernel, int d)
{
    return out == (in + p.pad[d] + p.pad_end[d] - (kernel - 1) * p.dilation[d] - 1) / p.stride[d] + 1;
}

bool Product::fits() const
{
    return x.n == y.n && x.c == weights.c * groups && y.c == weights.n && weights.n % groups == 0 &&
           fits_side(*this, x.h, y.h, weights.h, 0) && fits_side(*this, x.w, y.w, weights.w, 1);
}

// product(input row of channels, weights, output number) for each output number of each tap; rows are
// contiguous.
template <class F> static void each_tap(const Product &p, F product)
{
    const Sizes4 &x = p.x, &y = p.y, &w = p.weights;
    for (int n = 0; n < y.n; n++)
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int r = 0; r < w.h; r++)
                    for (int s = 0; s < w.w; s++) {
                        int iy = oy * p.stride[0] - p.pad[0] + r * p.dilation[0];
                        int ix = ox * p.stride[1] - p.pad[1] + s * p.dilation[1];
                        if (iy < 0 || ix < 0 || iy >= x.h || ix >= x.w)
                            continue;
                        size_t at_x =
                            ((size_t(n) * size_t(x.h) + size_t(iy)) * size_t(x.w) + size_t(ix)) * size_t(x.c);
                        size_t at_y =
                            ((size_t(n) * size_t(y.h) + size_t(oy)) * size_t(y.w) + size_t(ox)) * size_t(y.c);
                        for (int k = 0; k < w.n; k++) {
                            size_t group = size_t(k / (w.n / p.groups));
                            size_t at_w = ((size_t(k) * size_t(w.h) + size_t(r)) * size_t(w.w) + size_t(s)) *
                                          size_t(w.c);
                            product(at_x + group * size_t(w.c), at_w, at_y + size_t(k));
                        }
                    }
}

std::vector<double> convolve(const Product &p, const std::vector<float> &x, const std::vector<float> &w)
{
    std::vector<double> sums(p.y.count());
    each_tap(p, [&](size_t i, size_t j, size_t o) {
        double sum = 0;
        for (size_t c = 0; c < size_t(p.weights.c); c++)
            sum += double(x[i + c]) * double(w[j + c]);
        sums[o] += sum;
    });
    return sums;
}

std::vector<double> convolve_back_data(const Product &p, const std::vector<float> &w,
                                       const std::vector<float> &dy)
{
    std::vector<double> sums(p.x.count());
    each_tap(p, [&](size_t i, size_t j, size_t o) {
        for (size_t c = 0; c < size_t(p.weights.c); c++)
            sums[i + c] += double(dy[o]) * double(w[j + c]);
    });
    return sums;
}

std::vector<double> convolve_back_weights(const Product &p, const std::vector<float> &x,
                                          const std::vector<float> &dy)
{
    std::vector<double> sums(p.weights.count());
    each_tap(p, [&](size_t i, size_t j, size_t o) {
        for (size_t c = 0; c < size_t(p.weights.c); c++)
            sums[j + c] += double(dy[o]) * double(x[i + c]);
    });
    return sums;
}

} // namespace standin
