/* clock.h: time in tests. */
#ifndef TEST_CLOCK_H
#define TEST_CLOCK_H

/* The longest wait for a condition. It only ends tests that hang, and is longer than any wait on a slow or
 * suspended machine. */
#define TEST_HANG_S 60.0

/* Monotonic time in seconds. */
double test_now_s(void);
void test_nap_s(double seconds);
/* `seconds` times the factor in the environment variable PSD_TEST_SLOW. For limits on waits on a slow machine
 * or under a sanitizer, not for times in psd's configuration. */
double test_slow_s(double seconds);

#endif
