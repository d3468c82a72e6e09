/* Learning rates by pattern. */
#include <errno.h>
#include <stdio.h>

#include "nets/training/rates.h"
#include "tests/support/unit.h"

static const struct cnn_param params[] = {{.name = "fc1.weight"},
                                          {.name = "fc1.bias"},
                                          {.name = "bn.running_mean", .role = CNN_BUFFER},
                                          {.name = "fc2.weight", .role = CNN_FROZEN},
                                          {.name = "fc2.bias"}};

static const struct {
    const char *text, *says;
    double rates[ROWS(params)];
} lines[] = {
    {"*.bias=2", NULL, {1, 2, 1, 1, 2}},
    {"*=0.1,fc2.*=10", NULL, {0.1, 0.1, 1, 1, 10}},
    {"fc1.weight=1e-6,fc1.bias=1000", NULL, {1e-6, 1000, 1, 1, 1}},
    {"conv1.*=2",
     "pattern \"conv1.*\" matches no tensor that is trained; the first of the net is fc1.weight",
     {0}},
    {"bn.*=2", "matches no tensor that is trained", {0}},
    {"fc2.weight=2", "matches no tensor that is trained", {0}},
    {"fc1.*", "\"fc1.*\"; allowed: PATTERN=FACTOR", {0}},
    {"fc1.*=", "PATTERN=FACTOR", {0}},
    {"fc1.*=2x", "PATTERN=FACTOR", {0}},
    {"=2", "PATTERN=FACTOR", {0}},
    {"", "PATTERN=FACTOR", {0}},
    {"fc1.*=2,", "PATTERN=FACTOR", {0}},
    {"fc1.*=0", "from 0.000001 to 1000, such as fc1.weight=10 (--freeze", {0}},
    {"fc1.*=-1", "PATTERN=FACTOR", {0}},
    {"fc1.*=nan", "PATTERN=FACTOR", {0}},
    {"fc1.*=1001", "PATTERN=FACTOR", {0}},
};

START_TEST(rates_are_read)
{
    double rates[ROWS(params)];
    struct ps_error err = {""};
    int rc = cnn_rates_read(lines[_i].text, params, ROWS(params), rates, &err);
    ck_assert_msg((rc == 0) == (lines[_i].says == NULL), "%s: %s", lines[_i].text, err.text);
    if (rc == 0)
        ck_assert_mem_eq(rates, lines[_i].rates, sizeof rates);
    else
        ck_assert_msg(rc == -EINVAL && strstr(err.text, lines[_i].says) != NULL, "%s", err.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rates");
    TCase *t = tcase_create("rates");
    tcase_add_loop_test(t, rates_are_read, 0, ROWS(lines));
    suite_add_tcase(s, t);
    return unit_run(s);
}
