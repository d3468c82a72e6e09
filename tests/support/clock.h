/* clock.h: time in tests. */
#ifndef TEST_CLOCK_H
#define TEST_CLOCK_H

/* Ends what hangs: more than anything takes, on a machine that stands still for a while. Tests wait for a
 * condition, and so long at most. */
#define TEST_HANG_S 60.0

/* Monotonic. */
double test_now_s(void);
void test_nap_s(double seconds);
/* `seconds` times the factor in the environment's PSD_TEST_SLOW: for limits on how long something may take on
 * a slow machine or under a sanitizer. Not for times that psd was configured with. */
double test_slow_s(double seconds);

#endif
