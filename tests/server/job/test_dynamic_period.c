/* Periods by speed: what the fastest, the slow, the silent and the liars are given. */
#include <math.h>
#include <string.h>

#include "server/job/dynamic_period.h"
#include "tests/support/unit.h"

enum { MOST = 8 };

static const struct {
    uint32_t period;
    double told[MOST]; /* 0: nobody, or no word yet */
    uint32_t planned[MOST];
} rows[] = {
    {50, {10, 10}, {50, 50}},
    {50, {10, 2.5}, {50, 13}}, /* 12.5, rounded away from 0 */
    {40, {10, 2.5}, {40, 10}},
    {40, {2.5, 5, 10, 20}, {5, 10, 20, 40}},
    {50, {10, 0}, {50, 50}}, /* it has not told its speed yet */
    {50, {0, 0}, {50, 50}},
    {50, {7}, {50}},
    {1, {10, 1}, {1, 1}},
    {8, {100, 2}, {8, 1}}, /* 0.16 */
    {50, {NAN, 10}, {50, 50}},
    {50, {-10, 10}, {50, 50}},
    {50, {INFINITY, 10}, {50, 50}},
    {50, {1e300, 10}, {50, 50}},           /* no machine's */
    {50, {1e9, 10, 10}, {50, 1, 1}},       /* counts as 640: 50 / 64 */
    {1000, {1e9, 10, 10}, {1000, 16, 16}}, /* and no less than that */
    {1000, {1e9, 10, 5}, {1000, 16, 8}},
    {50, {1e-300, 10}, {1, 50}}, /* the slow one is the median: 50 / 64 */
    {1000000, {5e-324, 1e9, 1e9}, {1, 1000000, 1000000}},
};

START_TEST(periods_follow_the_speeds)
{
    double speeds[MOST];
    size_t n = 0;
    for (int i = 0; i < MOST; i++)
        if (psd_dynamic_period_speed(rows[_i].told[i]) > 0)
            speeds[n++] = psd_dynamic_period_speed(rows[_i].told[i]);
    double fastest = n > 0 ? psd_dynamic_period_fastest(speeds, n) : 0;
    for (int i = 0; i < MOST && rows[_i].planned[i] > 0; i++) {
        uint32_t period = psd_dynamic_period_period(rows[_i].period, 1,
                                                    psd_dynamic_period_speed(rows[_i].told[i]), fastest);
        ck_assert_msg(period == rows[_i].planned[i], "worker %d at %g steps/s: %u, not %u", i,
                      rows[_i].told[i], period, rows[_i].planned[i]);
    }
}
END_TEST

/* Whatever peers say: 1 to the method's period. */
START_TEST(no_word_leads_out_of_range)
{
    struct dice dice = {1};
    for (int round = 0; round < 20000; round++) {
        double told[MOST], speeds[MOST];
        size_t n = 0;
        uint32_t period = 1 + (uint32_t)dice_below(&dice, 1000000);
        uint32_t fewest = 1 + (uint32_t)dice_below(&dice, period);
        for (int i = 0; i < MOST; i++) {
            uint64_t bits = dice_bits(&dice);
            memcpy(&told[i], &bits, sizeof bits);
            if (psd_dynamic_period_speed(told[i]) > 0)
                speeds[n++] = psd_dynamic_period_speed(told[i]);
        }
        double fastest = n > 0 ? psd_dynamic_period_fastest(speeds, n) : 0;
        for (int i = 0; i < MOST; i++) {
            uint32_t planned =
                psd_dynamic_period_period(period, fewest, psd_dynamic_period_speed(told[i]), fastest);
            if (planned < fewest || planned > period)
                ck_abort_msg("%g steps/s: a period of %u of %u", told[i], planned, period);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-tempo");
    TCase *tc = tcase_create("tempo");
    tcase_add_loop_test(tc, periods_follow_the_speeds, 0, (int)ROWS(rows));
    tcase_add_test(tc, no_word_leads_out_of_range);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
