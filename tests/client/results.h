/* results.h: what a call of the library returned, with its sentence where a test fails. */
#ifndef TEST_CLIENT_RESULTS_H
#define TEST_CLIENT_RESULTS_H

#include "client/psclient.h"
#include "tests/support/unit.h"

#define assert_ok(c, call)                                                                                   \
    do {                                                                                                     \
        int rc_ = (call);                                                                                    \
        ck_assert_msg(rc_ == PSC_OK, "%s: %s", psc_result_name(rc_), psc_error(c));                          \
    } while (0)

#define assert_fails(c, call, want, says)                                                                    \
    do {                                                                                                     \
        int rc_ = (call);                                                                                    \
        ck_assert_msg(rc_ == (want), "%s: %s", psc_result_name(rc_), psc_error(c));                          \
        assert_says(psc_error(c), says);                                                                     \
    } while (0)

#endif
