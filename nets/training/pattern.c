#include "nets/training/pattern.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* Marks the tensors that match one pattern. Returns how many match. */
static size_t mark(const char *pattern, const struct cnn_param *params, size_t n, bool *meant)
{
    bool means = pattern[0] != '!';
    size_t met = 0;
    for (size_t i = 0; i < n; i++)
        if (fnmatch(pattern + !means, params[i].name, 0) == 0) {
            meant[i] = means;
            met++;
        }
    return met;
}

int cnn_pattern_mark(const char *patterns, const struct cnn_param *params, size_t n, bool *meant,
                     struct ps_error *err)
{
    for (const char *at = patterns;; at++) {
        char pattern[CNN_MAX_NAME + 2];
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= sizeof pattern || (len == 1 && at[0] == '!'))
            return ps_fail(
                err, -EINVAL,
                "\"%.100s\": pattern \"%.*s\"; allowed: names of tensors, with *, ? and [...], such as %s",
                patterns, len < 60 ? (int)len : 60, at, n > 0 ? params[0].name : "conv1.*");
        snprintf(pattern, sizeof pattern, "%.*s", (int)len, at);
        if (mark(pattern, params, n, meant) == 0)
            return ps_fail(
                err, -EINVAL,
                "\"%.100s\": pattern \"%.60s\" matches no tensor of the net; the first are %s and %s",
                patterns, pattern, n > 0 ? params[0].name : "none", n > 1 ? params[1].name : "no other");
        at += len;
        if (*at == '\0')
            return 0;
    }
}
