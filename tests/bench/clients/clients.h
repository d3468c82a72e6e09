/* clients.h: psbench clients. The cost of many clients on psd's control socket. */
#ifndef TEST_BENCH_CLIENTS_CLIENTS_H
#define TEST_BENCH_CLIENTS_CLIENTS_H

/* Options: see bench_clients_help. Prints to stdout; errors go to stderr. Exit code: 0, 1 failed, 2 usage. */
int bench_clients(int argc, char **argv);

extern const char bench_clients_help[];

#endif
