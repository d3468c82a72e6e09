/* clock.h: time in tests. */
#ifndef TEST_CLOCK_H
#define TEST_CLOCK_H

/* Monotonic. */
double test_now_s(void);
void test_nap_s(double seconds);
/* `seconds` times the factor in the environment's PSD_TEST_SLOW: for limits on how long something may take on
 * a slow machine or under a sanitizer. Not for times that psd was configured with. */
double test_slow_s(double seconds);

#endif
