/* suite.h: what every suite of this folder ends with. */
#ifndef TEST_DATA_SUITE_H
#define TEST_DATA_SUITE_H

#include "tests/support/unit.h"

/* Runs the case (and frees it with its suite); the exit status of the program. */
static inline int run_case(TCase *tc, const char *name)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}

#endif
