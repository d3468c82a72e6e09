#include "tests/theory/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 120 };

static void print_row(struct table *table, bool ok, const char *name, const char *relation, double expected,
                      double got, const char *allowed)
{
    table->rows++;
    table->failed += !ok;
    if (table->json)
        printf("{\"check\":\"%s\",\"relation\":\"%s\",\"expected\":%.9g,\"got\":%.9g,\"allowed\":\"%s\","
               "\"ok\":%s}\n",
               name, relation, expected, got, allowed, ok ? "true" : "false");
    else
        printf("%-64s %s %10.6g  got %12.6g  %-26s %s\n", name, relation, expected, got, allowed,
               ok ? "ok" : "FAILED");
    fflush(stdout);
}

#define NAME_OF(format)                                                                                      \
    char name[NAME];                                                                                         \
    va_list args;                                                                                            \
    va_start(args, format);                                                                                  \
    vsnprintf(name, sizeof name, format, args);                                                              \
    va_end(args)

void table_near(struct table *table, double expected, double got, struct tolerance allowed,
                const char *format, ...)
{
    NAME_OF(format);
    char text[80];
    double off = fabs(got - expected) / allowed.unit;
    snprintf(text, sizeof text, "off %.2g of %g %s", off, allowed.times, allowed.name);
    print_row(table, off <= allowed.times, name, "=", expected, got, text);
}

void table_below(struct table *table, double limit, double got, const char *format, ...)
{
    NAME_OF(format);
    print_row(table, got < limit, name, "<", limit, got, "");
}

void table_above(struct table *table, double limit, double got, const char *format, ...)
{
    NAME_OF(format);
    print_row(table, got > limit, name, ">", limit, got, "");
}

void table_same(struct table *table, const float *expected, const float *got, size_t n, const char *format,
                ...)
{
    NAME_OF(format);
    size_t differ = 0;
    for (size_t i = 0; i < n; i++)
        differ += memcmp(&expected[i], &got[i], sizeof *got) != 0;
    char text[80];
    snprintf(text, sizeof text, "of %zu bit patterns differ", n);
    print_row(table, differ == 0, name, "=", 0, (double)differ, text);
}
