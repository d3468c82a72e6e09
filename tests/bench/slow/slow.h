/* slow.h: psbench waits: a worker of a running psd that sleeps instead of computing, and the share of its
 * time in which it does not wait for exchanges. Its gradients are those of psbench plan --slow, too: what a
 * codec takes depends on the values. */
#ifndef TEST_BENCH_SLOW_SLOW_H
#define TEST_BENCH_SLOW_SLOW_H

#include <stdint.h>

/* Gradient i of every step: different in magnitude from its neighbours. */
static inline float bench_slow_gradient(uint64_t i)
{
    return 1e-4f * (float)(i * 37 % 1021) - 0.05f;
}

extern const char bench_waits_help[];
/* Exit code: 0, 1 failed, 2 usage. */
int bench_waits(int argc, char **argv);

#endif
