/* slow.h: psbench waits: a worker of a running psd that sleeps instead of computing, and the share of its
 * time in which it does not wait for exchanges. */
#ifndef TEST_BENCH_SLOW_SLOW_H
#define TEST_BENCH_SLOW_SLOW_H

extern const char bench_waits_help[];
/* Exit code: 0, 1 failed, 2 usage. */
int bench_waits(int argc, char **argv);

#endif
