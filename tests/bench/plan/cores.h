/* cores.h: psbench plan --partitions: a step of one worker whose net is divided over the cores of a machine.
 */
#ifndef BENCH_PLAN_CORES_H
#define BENCH_PLAN_CORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CORES_MAX_LIST = 16 };

/* What one core does, and what all share. Forward and backward of b images take fixed_s + b image_s on one
 * thread, and serial + (1 - serial)/t of that on t. */
struct cores_costs {
    double fixed_s, image_s, serial;
    double core_bytes_s; /* that a core moves to and from memory in a second */
    double bytes_s;      /* that all cores of the machine move together */
};

struct cores_step {
    uint32_t partitions, threads; /* threads: of each partition */
    double compute_s, sum_s, update_s, step_s;
};

/* batch: of all partitions, which divide it; 1 <= partitions <= cores. */
void cores_predict(const struct cores_costs *c, double n_floats, uint32_t cores, uint32_t batch,
                   uint32_t partitions, struct cores_step *out);

struct cores_options {
    const char *net, *backend;
    uint32_t batch, cores;
    uint32_t partitions[CORES_MAX_LIST];
    size_t n_partitions;
    double seconds, n_floats;
    struct cores_costs costs; /* NaN: measured */
    bool json;
};

void cores_usage(FILE *out);
bool cores_is_asked(int argc, char **argv);

/* 0; 1: help was printed; -1: the command line is invalid, with a message on stderr. */
int cores_parse(int argc, char **argv, struct cores_options *o);

/* The exit code. */
int bench_cores(int argc, char **argv);

#endif
