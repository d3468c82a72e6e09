/* report.h: what the program prints, a line for each check. */
#ifndef TEST_THEORY_REPORT_H
#define TEST_THEORY_REPORT_H

#include <stdbool.h>
#include <stddef.h>

struct table {
    bool json; /* an object a line instead of columns */
    unsigned rows, failed;
};

/* `times` units are allowed, such as 4 standard errors. */
struct tolerance {
    double unit, times;
    const char *name; /* of the unit */
};

/* The format names the check. */
void table_near(struct table *table, double expected, double got, struct tolerance allowed,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
void table_below(struct table *table, double limit, double got, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void table_above(struct table *table, double limit, double got, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Bit for bit, over n floats. */
void table_same(struct table *table, const float *expected, const float *got, size_t n, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

#endif
