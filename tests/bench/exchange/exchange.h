/* exchange.h: psbench exchange. Workers against a real psd, beside what sockets and memory can do in the same
 * run. */
#ifndef TEST_BENCH_EXCHANGE_EXCHANGE_H
#define TEST_BENCH_EXCHANGE_EXCHANGE_H

/* Options: see bench_exchange_help. Prints to stdout; errors go to stderr. Exit code: 0, 1 failed, 2 usage.
 */
int bench_exchange(int argc, char **argv);

extern const char bench_exchange_help[];

#endif
