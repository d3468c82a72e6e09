/* numbers.h: numbers and lists on the command lines of psbench plan. Each prints why it refuses. */
#ifndef BENCH_PLAN_NUMBERS_H
#define BENCH_PLAN_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool plan_number(const char *option, const char *text, double least, double most, double *out);

/* A whole number from 1 on. */
bool plan_count(const char *option, const char *text, double most, uint32_t *out);

/* "a,b,c": at most `longest` whole numbers from 1 to `most`. */
bool plan_counts(const char *option, const char *text, double most, size_t longest, uint32_t *list,
                 size_t *n);

/* The next part of "a,b,c" at *at, in `part`. False at the end. *wrong: a part is empty or too long. */
bool plan_next_part(const char **at, char part[32], bool *wrong);

/* Returns false. */
bool plan_refuse_list(const char *option, const char *text, size_t longest);

#endif
