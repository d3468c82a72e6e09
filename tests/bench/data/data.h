/* data.h: psbench data, how fast a data set gives batches. */
#ifndef TEST_BENCH_DATA_DATA_H
#define TEST_BENCH_DATA_DATA_H

extern const char bench_data_help[];
int bench_data(int argc, char **argv);

#endif
