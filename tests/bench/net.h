/* net.h: psbench net. Speed of a training step, beside what the machine can do in the same run. */
#ifndef BENCH_NET_H
#define BENCH_NET_H

/* Options: see bench_net_help. Prints to stdout; errors go to stderr. Exit code: 0, 1 failed, 2 usage. */
int bench_net(int argc, char **argv);

extern const char bench_net_help[];

#endif
