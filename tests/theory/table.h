/* table.h: what the program prints, a line for each check. */
#ifndef THEORY_TABLE_H
#define THEORY_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct table {
    bool json; /* an object a line instead of columns */
    unsigned rows, failed;
};

/* `unit`: what `allowed` is made of, such as "4 s.e."; the rest names the check. */
void table_near(struct table *table, double expected, double got, double allowed, const char *unit,
                const char *format, ...) __attribute__((format(printf, 6, 7)));
void table_below(struct table *table, double limit, double got, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void table_above(struct table *table, double limit, double got, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Bit for bit, over n floats. */
void table_same(struct table *table, const float *expected, const float *got, size_t n, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

#endif
