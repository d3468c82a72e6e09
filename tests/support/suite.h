/* suite.h: the main function of a Check program of system tests. */
#ifndef TEST_SUITE_H
#define TEST_SUITE_H

#include <check.h>
#include <stdlib.h>

#include "tests/support/clock.h"

/* Runs the tests, each in its own process, with a limit of `seconds` each. */
static inline int suite_run(const char *name, const TTest *const *tests, size_t n, double seconds)
{
    Suite *suite = suite_create(name);
    for (size_t i = 0; i < n; i++) {
        TCase *tcase = tcase_create(tests[i]->name);
        tcase_set_timeout(tcase, test_slow_s(seconds));
        tcase_add_test(tcase, tests[i]);
        suite_add_tcase(suite, tcase);
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
