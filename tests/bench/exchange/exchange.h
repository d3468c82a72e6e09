/* exchange.h: psbench exchange. Exchanges of workers with a real psd, compared with the limits of sockets and
 * memory in the same run. */
#ifndef TEST_BENCH_EXCHANGE_EXCHANGE_H
#define TEST_BENCH_EXCHANGE_EXCHANGE_H

/* Options: see bench_exchange_help. Prints to stdout; errors go to stderr. Exit code: 0, 1 failed, 2 usage.
 */
int bench_exchange(int argc, char **argv);

extern const char bench_exchange_help[];

#endif
