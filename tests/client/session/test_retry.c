/* What is tried again, and when. */
#include <errno.h>

#include "client/session/retry.h"
#include "tests/support/unit.h"

START_TEST(waits_double_up_to_the_most_and_begin_anew)
{
    struct psc_retry r;
    psc_retry_init(&r, 7);
    for (int round = 0; round < 2; round++) {
        for (double plain = 10; plain < 80; plain *= 2) {
            double wait = psc_retry_next(&r, 10, 80);
            ck_assert(wait >= plain && wait <= 1.5 * plain);
        }
        for (int i = 0; i < 100; i++) {
            double wait = psc_retry_next(&r, 10, 80);
            ck_assert(wait >= 80 && wait <= 120);
        }
        psc_retry_reset(&r);
    }
}
END_TEST

/* A thousand clients that have lost one server at one moment: no tenth of the time sees a fifth of them. */
START_TEST(clients_do_not_come_back_together)
{
    enum { CLIENTS = 1000, PARTS = 10 };
    int n[PARTS] = {0};
    for (uint64_t i = 0; i < CLIENTS; i++) {
        struct psc_retry r;
        psc_retry_init(&r, i);
        int part = (int)((psc_retry_next(&r, 1, 8) - 1) / 0.5 * PARTS);
        ck_assert(part >= 0 && part < PARTS);
        n[part]++;
    }
    for (int i = 0; i < PARTS; i++)
        ck_assert_msg(n[i] < CLIENTS / 5, "part %d has %d", i, n[i]);
}
END_TEST

START_TEST(what_will_fail_again_is_told_from_what_may_pass)
{
    static const struct {
        int rc;
        enum psc_remedy remedy;
    } rows[] = {{-EHOSTUNREACH, PSC_REMEDY_SERVER},  {-EACCES, PSC_REMEDY_SERVER},
                {-ETIMEDOUT, PSC_REMEDY_TIME},       {-EMFILE, PSC_REMEDY_TIME},
                {-ENOMEM, PSC_REMEDY_TIME},          {-ENODEV, PSC_REMEDY_NONE},
                {-EPROTONOSUPPORT, PSC_REMEDY_NONE}, {-EINVAL, PSC_REMEDY_NONE}};
    for (size_t i = 0; i < ROWS(rows); i++)
        ck_assert_int_eq(psc_remedy_of(rows[i].rc), rows[i].remedy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-retry");
    TCase *tc = tcase_create("retry");
    tcase_add_test(tc, waits_double_up_to_the_most_and_begin_anew);
    tcase_add_test(tc, clients_do_not_come_back_together);
    tcase_add_test(tc, what_will_fail_again_is_told_from_what_may_pass);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
