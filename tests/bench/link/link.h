/* link.h: psbench link: rate and delay of this machine's road to a running psd, for psbench plan --slow. */
#ifndef TEST_BENCH_LINK_LINK_H
#define TEST_BENCH_LINK_LINK_H

extern const char bench_link_help[];
/* Exit code: 0, 1 failed, 2 usage. */
int bench_link(int argc, char **argv);

#endif
