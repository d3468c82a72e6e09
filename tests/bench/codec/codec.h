/* codec.h: psbench codec. How fast each codec is, and what it takes from values and from sums. */
#ifndef TEST_BENCH_CODEC_CODEC_H
#define TEST_BENCH_CODEC_CODEC_H

/* Options: see bench_codec_help. Prints to stdout; errors go to stderr. Exit code: 0, 1 failed, 2 usage. */
int bench_codec(int argc, char **argv);

extern const char bench_codec_help[];

#endif
