/* center.h: psbench center. The cost of a large center for psd: until it is ready, and at a checkpoint. */
#ifndef TEST_BENCH_CENTER_CENTER_H
#define TEST_BENCH_CENTER_CENTER_H

/* Options: see bench_center_help. Prints to stdout; errors go to stderr. Exit code: 0, 1 failed, 2 usage. */
int bench_center(int argc, char **argv);

extern const char bench_center_help[];

#endif
