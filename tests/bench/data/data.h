/* data.h: psbench data, how fast a data set gives batches. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

extern const char bench_data_help[];
int bench_data(int argc, char **argv);

#endif
