#include "tests/theory/noise.h"

#include <math.h>

#include "nets/philox.h"

/* Two words make a pair of normals (Box, Muller 1958); half a step up keeps the logarithm's argument from 0.
 */
static void box_muller(uint32_t a, uint32_t b, float *pair)
{
    double radius = sqrt(-2.0 * log(((double)a + 0.5) * 0x1p-32));
    double angle = 2.0 * M_PI * ((double)b * 0x1p-32);
    pair[0] = (float)(radius * cos(angle));
    pair[1] = (float)(radius * sin(angle));
}

void noise_fill(uint32_t seed, uint32_t rank, uint64_t t, float *xi, size_t n)
{
    struct cnn_philox_key key = {{seed, rank}};
    for (size_t i = 0; i < n; i += 4) {
        struct cnn_philox_block counter = {{(uint32_t)(i / 4), (uint32_t)t, (uint32_t)(t >> 32), 1}};
        struct cnn_philox_block word = cnn_philox(counter, key);
        float four[4];
        box_muller(word.v[0], word.v[1], four);
        box_muller(word.v[2], word.v[3], four + 2);
        for (size_t k = 0; k < 4 && i + k < n; k++)
            xi[i + k] = four[k];
    }
}

void noise_uniform(uint32_t seed, uint32_t rank, float *v, size_t n)
{
    struct cnn_random r = cnn_random_start((struct cnn_philox_key){{seed, rank}}, 0, 0, 2);
    for (size_t i = 0; i < n; i++)
        v[i] = cnn_random_float(&r, -1.0f, 1.0f);
}
