/* net.h: psbench net. The speed of a training step, compared with the machine's limits in the same run. */
#ifndef TEST_BENCH_NET_NET_H
#define TEST_BENCH_NET_NET_H

#include <stdint.h>

/* Options: see bench_net_help. Prints to stdout; errors go to stderr. Exit code: 0, 1 failed, 2 usage. */
int bench_net(int argc, char **argv);

extern const char bench_net_help[];

/* Medians of one step of a net, found by cnn_model_find. Errors go to stderr; the exit code is as above. */
struct bench_net_times {
    double forward_s, backward_s, update_s;
};
int bench_net_measure(const char *net, const char *backend, uint32_t batch, uint32_t threads, double seconds,
                      struct bench_net_times *out);

#endif
