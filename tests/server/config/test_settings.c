/* What is set while the job runs, as a text. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/config/settings.h"
#include "tests/support/unit.h"

static const struct {
    const char *now, *more, *next;
} added[] = {
    {"", "learning_rate=0.01", "parameters.learning_rate=0.01\n"},
    {"", "period=4\nmethod=diloco\n", "parameters.period=4\nmethod=diloco\n"},
    {"parameters.period=4\nmethod=diloco\n", "period=8", "method=diloco\nparameters.period=8\n"},
    {"", "period=4\nparameters.period=8", "parameters.period=8\n"},
    {"parameters.schedule.kind=step\nmethod=eamsgd\n", "schedule={kind: constant}",
     "method=eamsgd\nparameters.schedule.kind=constant\n"},
    /* A group's keys, each by itself: others of the group stay. */
    {"checkpoint.keep=5\n", "checkpoint={every_s: 10}", "checkpoint.keep=5\ncheckpoint.every_s=10\n"},
    {"", "codec={message: int8}\ncodec={answer: fp16}", "codec.message=int8\ncodec.answer=fp16\n"},
    {"parameters.period=4\n",
     "parameters={learning_rate: 0.1, schedule: {kind: step, milestones: \"10, 20\"}}",
     "parameters.period=4\nparameters.learning_rate=0.1\nparameters.schedule.kind=step\n"
     "parameters.schedule.milestones=\"10, 20\"\n"},
    {"checkpoint.keep=5\n", "checkpoint={}", "checkpoint.keep=5\n"},
    {"", "status={socket: 'it''s \"\\', http: none}", "status.socket=\"it's \\\"\\\\\"\nstatus.http=none\n"},
    {"advertise=host\n", "advertise=", "advertise=\n"},
    {"checkpoint={keep: 5, every_s: 9}\n", "checkpoint={every_s: 10}", /* of a psd before this one */
     "checkpoint={keep: 5, every_s: 9}\ncheckpoint.every_s=10\n"},
    {"parameters.momentum=0.9\n", "momentum=preset", "parameters.momentum=preset\n"},
};

START_TEST(the_last_word_on_a_key_is_kept)
{
    char next[PSD_SETTINGS_BYTES];
    struct psd_config cfg;
    struct ps_error err;
    ck_assert_msg(psd_settings_add(added[_i].now, added[_i].more, next, &err) == 0, "%s", err.text);
    ck_assert_str_eq(next, added[_i].next);
    psd_config_defaults(&cfg);
    ck_assert_msg(psd_settings_apply(next, &cfg, &err) == 0, "%s", err.text);
}
END_TEST

static const struct {
    const char *more, *says;
} wrong[] = {
    {"", "set: found nothing"},
    {"lr=1", "did you mean parameters.learning_rate"},
    {"learning_rate", "set: found 'learning_rate'; allowed is KEY=VALUE"},
    {"period=4\n\n", "allowed is KEY=VALUE"},
    {"=4", "allowed is KEY=VALUE"},
    {"period= ", "set: parameters.period: found nothing after '='; allowed is KEY=VALUE"},
    {"period=4\nadvertise=# no", "set: advertise: found nothing after '='; allowed is KEY=VALUE"},
    {"period=0", "set: parameters.period: found 0; allowed is"},
    {"period=4\r\n", "a control character"},
    {"period=\x1b[2J", "a control character"},
};

START_TEST(what_cannot_be_set_is_refused)
{
    char next[PSD_SETTINGS_BYTES];
    struct ps_error err;
    ck_assert_int_eq(psd_settings_add("method=eamsgd\n", wrong[_i].more, next, &err), -EINVAL);
    assert_says(err.text, wrong[_i].says);
}
END_TEST

START_TEST(too_much_is_refused)
{
    static char now[PSD_SETTINGS_BYTES], next[PSD_SETTINGS_BYTES], more[PSD_SETTINGS_BYTES + 100];
    struct ps_error err;
    snprintf(more, sizeof more, "advertise=%0*d", PSD_SETTINGS_BYTES, 0);
    ck_assert_int_eq(psd_settings_add("", more, next, &err), -E2BIG);
    assert_says(err.text, "allowed are 2047");
    for (size_t n = 0; n + 9 < sizeof more; n += 9)
        memcpy(more + n, "period=4\n", 10);
    ck_assert_int_eq(psd_settings_check_method(more, &err), -E2BIG); /* before it is read line by line */
    assert_says(err.text, "allowed are 2047");
    ck_assert_int_eq(psd_settings_check_method("period=4\n", &err), 0);
    snprintf(now, sizeof now, "state_dir=%0*d\n", PSD_SETTINGS_BYTES - 30, 0);
    ck_assert_int_eq(psd_settings_add(now, "period=4", next, &err), -E2BIG);
    assert_says(err.text, "no room for parameters.period");
}
END_TEST

START_TEST(what_was_set_is_taken_back)
{
    static const char now[] = "parameters.schedule.kind=step\nparameters.schedule.gamma=0.5\nmethod=eamsgd\n";
    char next[PSD_SETTINGS_BYTES], list[100];
    struct ps_error err;
    ck_assert_int_eq(psd_settings_remove(now, "gamma\nmethod", next, &err), 0);
    ck_assert_str_eq(next, "parameters.schedule.kind=step\n");
    ck_assert_int_eq(psd_settings_remove(now, "schedule", next, &err), 0);
    ck_assert_str_eq(next, "method=eamsgd\n");
    ck_assert_int_eq(psd_settings_remove(now, "all", next, &err), 0);
    ck_assert_str_eq(next, "");
    ck_assert_int_eq(psd_settings_remove(now, "period", next, &err), -EINVAL);
    assert_says(err.text,
                "unset: period is not set while the job runs; set are: parameters.schedule.kind=step,");
    ck_assert_int_eq(psd_settings_remove("", "period", next, &err), -EINVAL);
    assert_says(err.text, "nothing is");
    psd_settings_list("a=1\nb=2\n", list, sizeof list);
    ck_assert_str_eq(list, "a=1, b=2");
    psd_settings_list("a=1\nb=2", list, sizeof list);
    ck_assert_str_eq(list, "a=1, b=2");
    psd_settings_list("", list, sizeof list);
    ck_assert_str_eq(list, "");
}
END_TEST

START_TEST(it_is_applied_above_what_is_there)
{
    struct psd_config cfg;
    struct ps_error err;
    psd_config_defaults(&cfg);
    ck_assert_int_eq(psd_config_set(&cfg, "period=16", &err), 0);
    ck_assert_int_eq(psd_settings_apply("method=eamsgd\nparameters.period=4\n", &cfg, &err), 0);
    ck_assert_int_eq(psd_config_settle(&cfg, &err, NULL), 0);
    ck_assert_uint_eq(cfg.hyper.period, 4);
    ck_assert_str_eq(cfg.rule, "elastic");
    ck_assert_int_eq(psd_settings_apply("parameters.period=x\n", &cfg, &err), -EINVAL);
    assert_says(err.text, "set: parameters.period: found x");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-settings");
    TCase *c = tcase_create("settings");
    tcase_add_loop_test(c, the_last_word_on_a_key_is_kept, 0, sizeof added / sizeof *added);
    tcase_add_loop_test(c, what_cannot_be_set_is_refused, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(c, too_much_is_refused);
    tcase_add_test(c, what_was_set_is_taken_back);
    tcase_add_test(c, it_is_applied_above_what_is_there);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
