/* unit.h: the main function of our Check programs, and reproducible random numbers. */
#ifndef TEST_UNIT_H
#define TEST_UNIT_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS(table) (sizeof(table) / sizeof *(table))

/* The longest wait for a condition in a test. It only ends a hang; no machine takes this long. */
#define UNIT_HANG_S 60.0

/* Check's default limit is 4 s, which a test can exceed on a busy machine or under a sanitizer. Here it is
 * 300 s, and five times the limit that a suite sets. Set before main, because Check reads it when a test case
 * is created; the environment may override it. */
__attribute__((constructor)) static void unit_set_patience(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "60", 0);
    setenv("CK_TIMEOUT_MULTIPLIER", "5", 0);
}

/* Runs the suite and frees it; main's return value. */
static inline int unit_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

/* SplitMix64 (Steele, Lea, Flood 2014): any seed gives a good sequence. */
struct dice {
    uint64_t state;
};

static inline uint64_t dice_bits(struct dice *d)
{
    uint64_t z = (d->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 to n - 1 */
static inline uint64_t dice_below(struct dice *d, uint64_t n)
{
    return dice_bits(d) % n;
}

/* In [-2, 2), over several binades. */
static inline float dice_float(struct dice *d)
{
    float v = (float)((double)(dice_bits(d) >> 11) * 0x1p-52 - 1.0);
    return v * 2.0f / (float)(1u << dice_below(d, 8));
}

static inline double unit_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void unit_nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Whether this machine has the address ::1; what is skipped without it is said. */
static inline bool unit_has_ipv6(const char *skipped)
{
    char line[128];
    bool found = false;
    FILE *f = fopen("/proc/net/if_inet6", "re");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, "00000000000000000000000000000001 ", 33) == 0;
    if (f != NULL)
        fclose(f);
    if (!found)
        fprintf(stderr, "%s is skipped: this machine has no address ::1\n", skipped);
    return found;
}

/* For inner loops: Check records every assertion that passes. */
#define assert_quick(condition)                                                                              \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            ck_abort_msg("'%s' does not hold", #condition);                                                  \
    } while (0)

/* Fails with the whole sentence if `part` is not in it. */
#define assert_says(sentence, part)                                                                          \
    ck_assert_msg(strstr((sentence), (part)) != NULL, "'%s' does not say '%s'", (sentence), (part))

#endif
