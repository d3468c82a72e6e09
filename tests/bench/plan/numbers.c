#include "tests/bench/plan/numbers.h"

#include <stdio.h>
#include <string.h>

#include "tests/bench/options.h"

bool plan_number(const char *option, const char *text, double least, double most, double *out)
{
    return bench_number("plan", option, text, least, most, out);
}

bool plan_count(const char *option, const char *text, double most, uint32_t *out)
{
    return bench_count("plan", option, text, most, out);
}

bool plan_next_part(const char **at, char part[32], bool *wrong)
{
    size_t len;
    if (*at == NULL)
        return false;
    len = strcspn(*at, ",");
    *wrong = len == 0 || len >= 32;
    if (*wrong)
        return false;
    memcpy(part, *at, len);
    part[len] = 0;
    *at = (*at)[len] != 0 ? *at + len + 1 : NULL;
    return true;
}

bool plan_refuse_list(const char *option, const char *text, size_t most)
{
    fprintf(stderr, "psbench plan: %s is '%s'; allowed are 1 to %zu parts, separated by commas\n", option,
            text, most);
    return false;
}

bool plan_counts(const char *option, const char *text, double most, size_t longest, uint32_t *list, size_t *n)
{
    char part[32];
    bool wrong = false;
    const char *at = text;
    for (*n = 0; plan_next_part(&at, part, &wrong); ++*n)
        if (*n == longest)
            return plan_refuse_list(option, text, longest);
        else if (!plan_count(option, part, most, &list[*n]))
            return false;
    return wrong ? plan_refuse_list(option, text, longest) : true;
}
