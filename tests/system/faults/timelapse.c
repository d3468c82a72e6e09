#include "tests/system/faults/timelapse.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shim_page *timelapse_prepare(const struct daemon *d)
{
    struct shim_page *page = shim_set(PSD_SHIM, d->dir);
    ck_assert_ptr_nonnull(page);
    return page;
}

/* By the log's words "silent for 45.1 s (limits.silence_s: 45)". */
static double silent_s(const struct daemon *d)
{
    char line[1200];
    double seconds = -1;
    FILE *f = fopen(d->log, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f) != NULL) {
        const char *says = strstr(line, "session.ended") != NULL ? strstr(line, "silent for ") : NULL;
        if (says != NULL)
            seconds = strtod(says + strlen("silent for "), NULL);
    }
    fclose(f);
    return seconds;
}

void timelapse_until_given_up(const struct daemon *d, struct shim_page *page, const int *ranks, size_t n)
{
    ck_assert_uint_eq(daemon_logged(d, "session.ended"), 0);
    ck_assert(shim_pass_until(page, d, "session.ended", 1, ranks, n));
    ck_assert_uint_eq(daemon_logged(d, "session.ended"), 1);
    ck_assert_double_ge(silent_s(d), TIMELAPSE_SILENCE_S);
}
