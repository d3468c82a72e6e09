#include "nets/training/rates.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t set(const char *pattern, double factor, const struct cnn_param *params, size_t n, double *rates)
{
    size_t met = 0;
    for (size_t i = 0; i < n; i++)
        if (params[i].role == CNN_PARAM && fnmatch(pattern, params[i].name, 0) == 0) {
            rates[i] = factor;
            met++;
        }
    return met;
}

int cnn_rates_read(const char *text, const struct cnn_param *params, size_t n, double *rates,
                   struct ps_error *err)
{
    for (size_t i = 0; i < n; i++)
        rates[i] = 1;
    for (const char *at = text;; at++) {
        char pattern[CNN_MAX_NAME + 1], *end = NULL;
        size_t len = strcspn(at, "=,"), whole = strcspn(at, ",");
        double factor = at[len] == '=' ? strtod(at + len + 1, &end) : 0;
        if (len == 0 || len >= sizeof pattern || at[len] != '=' || end == at + len + 1 || end != at + whole ||
            !(factor >= 1e-6 && factor <= 1000))
            return ps_fail(err, -EINVAL,
                           "\"%.100s\": \"%.*s\"; allowed: PATTERN=FACTOR, from 0.000001 to 1000, such as "
                           "%s=10 (--freeze "
                           "leaves tensors as they are)",
                           text, whole < 60 ? (int)whole : 60, at, n > 0 ? params[0].name : "fc2.*");
        snprintf(pattern, sizeof pattern, "%.*s", (int)len, at);
        if (set(pattern, factor, params, n, rates) == 0)
            return ps_fail(
                err, -EINVAL,
                "\"%.100s\": pattern \"%.60s\" matches no tensor that is trained; the first of the net is %s",
                text, pattern, n > 0 ? params[0].name : "none");
        at += whole;
        if (*at == '\0')
            return 0;
    }
}
