/* codec.h: psbench codec. The speed of each codec, and its errors in values and sums. */
#ifndef TEST_BENCH_CODEC_CODEC_H
#define TEST_BENCH_CODEC_CODEC_H

/* Options: see bench_codec_help. Prints to stdout; errors go to stderr. Exit code: 0, 1 failed, 2 usage. */
int bench_codec(int argc, char **argv);

extern const char bench_codec_help[];

#endif
