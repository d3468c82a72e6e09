#include "tests/bench/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool bench_number(const char *command, const char *option, const char *text, double least, double most,
                  double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end != text && *end == 0 && v >= least && v <= most) {
        *out = v;
        return true;
    }
    fprintf(stderr, "psbench %s: %s is '%s'; allowed are %g to %g\n", command, option, text, least, most);
    return false;
}

bool bench_count(const char *command, const char *option, const char *text, double most, uint32_t *out)
{
    double v;
    if (!bench_number(command, option, text, 1, most, &v))
        return false;
    *out = (uint32_t)v;
    if ((double)*out == v)
        return true;
    fprintf(stderr, "psbench %s: %s is '%s'; a whole number is needed\n", command, option, text);
    return false;
}

bool bench_digits(const char *command, const char *option, const char *text, uint64_t least, uint64_t most,
                  uint64_t *out)
{
    char *end;
    unsigned long long v = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == 0 && v >= least && v <= most) {
        *out = v;
        return true;
    }
    fprintf(stderr, "psbench %s: %s is '%s'; allowed are %" PRIu64 " to %" PRIu64 "\n", command, option, text,
            least, most);
    return false;
}
