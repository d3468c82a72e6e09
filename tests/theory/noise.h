/* noise.h: normal deviates that are a function of (seed, rank, step, coordinate) alone. */
#ifndef THEORY_NOISE_H
#define THEORY_NOISE_H

#include <stddef.h>
#include <stdint.h>

/* xi[0] to xi[n - 1]: independent, of mean 0 and variance 1. Any rank, step and seed have their own. */
void noise_fill(uint32_t seed, uint32_t rank, uint64_t t, float *xi, size_t n);
/* Uniform in [-1, 1), likewise. */
void noise_uniform(uint32_t seed, uint32_t rank, float *v, size_t n);

#endif
