#include "tests/support/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

double test_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void test_nap_s(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

double test_slow_s(double seconds)
{
    const char *text = getenv("PSD_TEST_SLOW");
    double factor = text != NULL ? atof(text) : 1;
    return factor > 1 ? seconds * factor : seconds;
}
