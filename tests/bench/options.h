/* options.h: numbers on psbench's command lines. Each function prints why it refuses one: `command` is the
 * first word of the command line, `option` begins with "--". */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

bool bench_number(const char *command, const char *option, const char *text, double least, double most,
                  double *out);

/* A whole number, also one such as 1e6. */
bool bench_count(const char *command, const char *option, const char *text, double most, uint32_t *out);

/* A whole number in decimal digits. */
bool bench_digits(const char *command, const char *option, const char *text, uint64_t least, uint64_t most,
                  uint64_t *out);

#endif
