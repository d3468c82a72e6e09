/* data.h: psbench data: the speed of a data set's batches. */
#ifndef TEST_BENCH_DATA_DATA_H
#define TEST_BENCH_DATA_DATA_H

extern const char bench_data_help[];
int bench_data(int argc, char **argv);

#endif
