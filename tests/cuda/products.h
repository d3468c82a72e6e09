// products.h: matrix products and convolutions in plain loops that sum in double, for blas.cpp and the dnn
// files.
#pragma once
#include <cstddef>
#include <vector>

namespace standin
{

// What a sum in another order may do: each value but 0 is off by its last bit, or not, at random.
void reorder(std::vector<double> &sums);

enum class Type { Float, Bf16 };

inline size_t bytes_of(Type t)
{
    return t == Type::Bf16 ? 2 : 4;
}

// Numbers in memory as float; is_tf32: rounded as the tensor cores read them.
std::vector<float> read_numbers(const void *at, size_t n, Type type, bool is_tf32 = false);
// Rounds and stores alpha x values + beta x what is there, which is not read if beta is 0.
void write_numbers(void *at, const std::vector<double> &values, Type type, double alpha = 1, double beta = 0);

// NHWC; weights [k][h][w][c], c of one group.
struct Sizes4 {
    int n, c, h, w;
    size_t count() const
    {
        return size_t(n) * size_t(c) * size_t(h) * size_t(w);
    }
};
struct Product {
    Sizes4 x, y, weights; // weights.n: its outputs
    int pad[2], pad_end[2], stride[2], dilation[2], groups;
    bool fits() const;
};
std::vector<double> convolve(const Product &p, const std::vector<float> &x, const std::vector<float> &w);
std::vector<double> convolve_back_data(const Product &p, const std::vector<float> &w,
                                       const std::vector<float> &dy);
std::vector<double> convolve_back_weights(const Product &p, const std::vector<float> &x,
                                          const std::vector<float> &dy);

} // namespace standin
