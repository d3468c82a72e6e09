/* psbench plan --slow: the model with numbers computed by hand, the choice, the configuration, which psd's
 * parser takes, and invalid command lines. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/config/config.h"
#include "tests/bench/plan/slow.h"
#include "tests/support/unit.h"

#define CLOSE 1e-9

/* A chunk of raw floats is 0.4 MB: 40 ms up, 20 ms down. */
static const struct slow_link link1 = {.up_s = 1e-7, .down_s = 5e-8, .delay_s = 0.001};
static const struct slow_job job1 = {.n_floats = 1e6,
                                     .chunk_floats = 1e5,
                                     .step_s = 0.020,
                                     .workers = 4,
                                     .lanes = 2,
                                     .window = 2,
                                     .method = "diloco",
                                     .in_rounds = true};

static struct slow_candidate predict(const struct slow_link *link, uint32_t period, uint32_t fragments,
                                     uint32_t overlap)
{
    struct slow_candidate c = {
        .period = period, .fragments = fragments, .overlap = overlap, .codec = &ps_codec_raw};
    slow_predict(link, &job1, &c);
    return c;
}

/* T = 1 + 2 (40 + 20) + 8 * 40 = 441 ms, of which 400 on the link; a period of 32 steps has 640 ms. */
START_TEST(an_exchange_is_there_and_back_and_the_slower_way)
{
    struct slow_candidate c = predict(&link1, 32, 1, 0);
    ck_assert_double_eq_tol(c.exchange_s, 0.441, CLOSE);
    ck_assert_double_eq_tol(c.busy_s, 0.400, CLOSE);
    ck_assert_double_eq_tol(c.bytes, 8e6, CLOSE);
    ck_assert_double_eq_tol(c.share, 640.0 / 1081, CLOSE);
}
END_TEST

START_TEST(overlap_hides_as_many_steps)
{
    struct slow_candidate c = predict(&link1, 32, 1, 1);
    ck_assert_double_eq_tol(c.share, 640.0 / 1061, CLOSE);
    ck_assert_uint_eq(slow_hiding_overlap(&job1, &c), 23); /* 441/20 = 22.05 */
    ck_assert_double_eq_tol(predict(&link1, 32, 1, 23).share, 1, CLOSE);
    /* A period of 320 ms hides no more than that of 441. */
    ck_assert_uint_eq(slow_hiding_overlap(
                          &job1, &(struct slow_candidate){.period = 16, .fragments = 1, .exchange_s = 0.441}),
                      16);
    ck_assert_double_eq_tol(predict(&link1, 16, 1, 16).share, 320.0 / 441, CLOSE);
    /* Exchanges follow one another on the wire: 441 ms in each 200 ms. */
    ck_assert_double_eq_tol(predict(&link1, 10, 1, 100).share, 200.0 / 441, CLOSE);
}
END_TEST

/* 2.5 chunks in one lane: T = 1 + 60 + 1.5 * 40 = 121 ms, four times a period. */
START_TEST(fragments_are_shorter_exchanges)
{
    struct slow_candidate c = predict(&link1, 32, 4, 0);
    ck_assert_double_eq_tol(c.exchange_s, 0.121, CLOSE);
    ck_assert_double_eq_tol(c.share, 640.0 / 1124, CLOSE);
    ck_assert_double_eq_tol(predict(&link1, 32, 4, 1).share, 640.0 / 1044, CLOSE);
    ck_assert_uint_eq(slow_hiding_overlap(&job1, &c), 7); /* 121/20 = 6.05; the next leaves after 8 steps */
    c.period = 20; /* 2.5 chunks keep the link busy for 100 ms: several may be under way */
    ck_assert_uint_eq(slow_hiding_overlap(&job1, &c), 7);
    c.period = 16;
    ck_assert_uint_eq(slow_hiding_overlap(&job1, &c), 4);
    c.period = 30;
    ck_assert_uint_eq(slow_hiding_overlap(&job1, &c), 7);
    c.period = 4;
    ck_assert_uint_eq(slow_hiding_overlap(&job1, &c), 1);
}
END_TEST

/* Every 5 steps, 100 ms, a fragment that takes 121 and keeps the link busy for 100. */
START_TEST(several_fragments_are_under_way)
{
    struct slow_job job = job1;
    struct slow_candidate c = {.period = 20, .fragments = 4, .overlap = 6, .codec = &ps_codec_raw};
    /* One at a time: 4 * 121. In rounds the link rests once a period: 4 * 100 + 21. */
    ck_assert_double_eq_tol(predict(&link1, 20, 4, 5).share, 400.0 / 484, CLOSE);
    ck_assert_double_eq_tol(predict(&link1, 20, 4, 6).share, 400.0 / 421, CLOSE);
    /* Else with 6 steps 6/5 at a time, of which each is 1 ms late. */
    job.in_rounds = false;
    slow_predict(&link1, &job, &c);
    ck_assert_double_eq_tol(c.share, 400 / (400 + 4 / 1.2), CLOSE);
    c.overlap = 7;
    slow_predict(&link1, &job, &c);
    ck_assert_double_eq_tol(c.share, 1, CLOSE);
    /* A link that is too slow stays so: 4 * 100 in 8 steps. */
    c.period = c.overlap = 8;
    slow_predict(&link1, &job, &c);
    ck_assert_double_eq_tol(c.share, 160.0 / 400, CLOSE);
}
END_TEST

/* 4 chunks in flight every 490 + 2 * 60 ms: 152.5 ms each. 4 workers share psd's link: 80 ms each way, so
 * (1 + 2 * 160)/4 = 80.25 ms each. */
START_TEST(the_window_and_psds_link_are_limits)
{
    struct slow_link l = link1;
    l.delay_s = 0.490;
    ck_assert_double_eq_tol(predict(&l, 32, 1, 0).exchange_s, 0.610 + 8 * 0.1525, CLOSE);
    l = link1;
    l.server_byte_s = 5e-8;
    ck_assert_double_eq_tol(predict(&l, 32, 1, 0).exchange_s, 0.321 + 8 * 0.08025, CLOSE);
}
END_TEST

/* A chunk is there and back after 245 + 60 ms in each lane, as long as 8 on the link: twice as many may be in
 * flight, which then takes 40 ms each. Without delay 2 would do. */
START_TEST(a_window_that_is_not_given_fills_the_link)
{
    struct slow_link l = link1;
    struct slow_job job = job1;
    struct slow_candidate c = {.period = 20, .fragments = 1, .codec = &ps_codec_raw};
    l.delay_s = 0.490;
    job.window = 0;
    slow_predict(&l, &job, &c);
    ck_assert_uint_eq(c.window, 16);
    ck_assert_double_eq_tol(c.exchange_s, 0.610 + 8 * 0.040, CLOSE);
    l.delay_s = 0;
    slow_predict(&l, &job, &c);
    ck_assert_uint_eq(c.window, 4);
    l.delay_s = 100;
    slow_predict(&l, &job, &c);
    ck_assert_uint_eq(c.window, SLOW_MAX_WINDOW);
    slow_predict(&l, &job1, &c);
    ck_assert_uint_eq(c.window, 2);
}
END_TEST

/* 10 ms there and back: 50 kB a lane are on their way up and 100 kB down. Up two rounds of 10 ms, in which 2
 * * 3
 * * 14480 bytes travel; down three, in which 2 * 7 * 14480 do. */
START_TEST(a_connection_that_was_idle_starts_slowly)
{
    struct slow_link l = link1;
    l.delay_s = 0.010;
    double slow_s = 0.020 - 86880 * 1e-7 + 0.030 - 202720 * 5e-8;
    ck_assert_double_eq_tol(predict(&l, 32, 1, 0).exchange_s, 0.450 + slow_s, CLOSE);
    ck_assert_double_eq_tol(predict(&l, 29, 1, 0).exchange_s, 0.450, CLOSE); /* 580 - 400 ms of rest */
}
END_TEST

/* 2 ns own, 5 ns others, 1 ns in psd: of 1e6 values 2, 5 and 4 ms of each worker and of psd for four. */
static struct slow_job with_cpu(struct slow_machines machines)
{
    struct slow_job job = job1;
    job.machines = machines;
    return job;
}

static struct slow_candidate predict_cpu(const struct slow_job *job, double factor, uint32_t overlap)
{
    struct slow_candidate c = {.period = 32,
                               .fragments = 1,
                               .overlap = overlap,
                               .codec = &ps_codec_raw,
                               .cost = {2e-9 * factor, 5e-9 * factor, 1e-9 * factor}};
    slow_predict(&link1, job, &c);
    return c;
}

/* 32 steps are 640 ms, an exchange 441. */
START_TEST(cpu_time_counts_where_cores_are_given)
{
    struct slow_job job = with_cpu((struct slow_machines){.per_machine = 1});
    ck_assert_double_eq_tol(predict_cpu(&job, 1000, 0).share, 640.0 / 1081, CLOSE);
    /* A core each: 2 ms more; the link is slower than the CPUs. */
    job.machines.cores = 1;
    ck_assert_double_eq_tol(predict_cpu(&job, 1, 0).share, 640.0 / 1083, CLOSE);
    ck_assert_double_eq_tol(predict_cpu(&job, 1, 32).share, 640.0 / 642, CLOSE);
    /* Four workers on two cores: a value takes each of them twice as long. */
    job.machines.per_machine = 4;
    job.machines.cores = 2;
    ck_assert_double_eq_tol(predict_cpu(&job, 1, 32).share, 640.0 / 644, CLOSE);
}
END_TEST

/* A hundred times as much: a chunk takes the worker's other threads 50 ms and psd 4 * 10/2 ms, and the link
 * 40: T = 1 + 120 + 8 * 50 = 521 ms, or 1 + 10 * 50. */
START_TEST(a_chunk_takes_the_cpu_that_it_needs)
{
    struct slow_job job = with_cpu((struct slow_machines){.cores = 1, .per_machine = 1});
    struct slow_candidate c = predict_cpu(&job, 100, 0);
    ck_assert_double_eq_tol(c.exchange_s, 0.521, CLOSE);
    ck_assert_double_eq_tol(c.busy_s, 0.500, CLOSE);
    ck_assert_double_eq_tol(c.share, 640.0 / (640 + 200 + 521), CLOSE);
    /* Four workers on two cores: 100 ms a chunk, and 1 + 10 * 100 are more than 1 + 120 + 8 * 100. */
    job.machines.per_machine = 4;
    job.machines.cores = 2;
    ck_assert_double_eq_tol(predict_cpu(&job, 100, 0).exchange_s, 1.001, CLOSE);
    /* And psd: (4 * 50 + 4 * 10)/2 = 120 ms. */
    job.machines.together = true;
    ck_assert_double_eq_tol(predict_cpu(&job, 100, 0).exchange_s, 1.201, CLOSE);
    /* psd alone is slower than a worker on each machine: 4 * 30 ms on one core. */
    job.machines = (struct slow_machines){.cores = 8, .per_machine = 1, .server_cores = 1};
    c = (struct slow_candidate){
        .period = 32, .fragments = 1, .codec = &ps_codec_raw, .cost = {.server_s = 300e-9}};
    slow_predict(&link1, &job, &c);
    ck_assert_double_eq_tol(c.exchange_s, 1.201, CLOSE);
}
END_TEST

/* In 32 steps: four workers need 4 * (200 + 500) ms and psd 400, on two cores; with steps of half a core
 * 4 * 320 more. */
START_TEST(a_period_takes_the_cpu_that_a_machine_has)
{
    struct slow_job job = with_cpu((struct slow_machines){.cores = 2, .per_machine = 4, .together = true});
    ck_assert_double_eq_tol(predict_cpu(&job, 100, 32).share, 640.0 / 1601, CLOSE); /* 640 + 2 * 200 + 561 */
    job.machines.step_cores = 0.5;
    ck_assert_double_eq_tol(predict_cpu(&job, 100, 32).share, 640.0 / 2240, CLOSE);
    /* Without psd 4 * (700 + 320) ms. */
    job.machines.together = false;
    ck_assert_double_eq_tol(predict_cpu(&job, 100, 32).share, 640.0 / 2040, CLOSE);
}
END_TEST

static struct slow_options options(void)
{
    struct slow_options o = {.link = link1,
                             .job = job1,
                             .periods = {32, 64},
                             .n_periods = 2,
                             .fragments = {1, 4, 64},
                             .n_fragments = 3,
                             .n_codecs = 2};
    o.codecs[0] = ps_codec_raw;
    o.codecs[1] = ps_codec_fp16;
    return o;
}

/* In the order of preference. raw has 59.2 % at period 32 without overlap. */
START_TEST(the_choice_is_the_first_that_is_enough)
{
    struct slow_candidate all[3 * 12];
    struct slow_options o = options();
    size_t n = slow_candidates(&o, all);
    ck_assert_uint_eq(n, 2 * 2 * 2 * 3); /* 64 fragments are more than the 10 chunks */
    const struct slow_candidate *c = slow_choose(all, n, 0.59);
    ck_assert(c->period == 32 && c->codec->id == ps_codec_raw.id && c->overlap == 0);
    c = slow_choose(all, n, 0.60); /* 640/(640 + 421) */
    ck_assert(c->period == 32 && c->codec->id == ps_codec_raw.id && c->overlap == 1 && c->fragments == 1);
    c = slow_choose(all, n, 0.99);
    ck_assert(c->period == 32 && c->codec->id == ps_codec_raw.id && c->overlap == 23);
    c = slow_choose(all, n, 1.01); /* out of reach: the highest share */
    for (size_t i = 0; i < n; i++)
        ck_assert_double_le(all[i].share, c->share);
    ck_assert_ptr_null(slow_choose(all, 0, 0.5));
}
END_TEST

START_TEST(the_yaml_has_a_line_for_what_is_not_the_default)
{
    char text[SLOW_YAML], overlap[16];
    struct ps_codec topk;
    ck_assert_ptr_null(ps_codec_of("topk:0.03", &topk));
    struct slow_candidate c = {.period = 128, .fragments = 4, .overlap = 1, .window = 2, .codec = &topk};
    slow_yaml(&job1, &c, text);
    ck_assert_str_eq(text, "method: diloco\nworkers: 4\n"
                           "parameters: {period: 128, fragments: 4, overlap: true}\n"
                           "codec: {message: topk:0.03, answer: topk:0.03, error_feedback: true}\n");
    c.window = 10;
    slow_yaml(&job1, &c, text);
    assert_says(text, "error_feedback: true}\nwindow_chunks: 10\n");
    ck_assert_str_eq(slow_overlap_text(0, overlap), "false");
    ck_assert_str_eq(slow_overlap_text(1, overlap), "true");
    ck_assert_str_eq(slow_overlap_text(64, overlap), "64");
}
END_TEST

static const char *const methods[] = {"diloco", "async-local-sgd"};

/* Every candidate that may be chosen, under the defaults. */
START_TEST(psd_takes_the_yaml_of_each_choice)
{
    static struct slow_candidate all[3 * SLOW_MAX_LIST * SLOW_MAX_LIST * SLOW_MAX_LIST];
    char *argv[] = {(char[]){"plan"},
                    (char[]){"--slow"},
                    (char[]){"--link"},
                    (char[]){"50mbit"},
                    (char[]){"--step-ms"},
                    (char[]){"30"},
                    (char[]){"--floats"},
                    (char[]){"3e7"},
                    (char[]){"--method"},
                    (char *)(uintptr_t)methods[_i],
                    NULL};
    struct slow_options o;
    size_t tried = 0;
    ck_assert_int_eq(slow_parse(10, argv, &o), 0);
    size_t n = slow_candidates(&o, all);
    for (size_t i = 0; i < n; i++) {
        struct psd_config cfg;
        struct ps_error err = {""}, warning = {""};
        char text[SLOW_YAML];
        tried++;
        slow_yaml(&o.job, &all[i], text);
        psd_config_defaults(&cfg);
        ck_assert_msg(psd_config_read_text(&cfg, "plan", text, strlen(text), &err) == 0 &&
                          psd_config_settle(&cfg, &err, &warning) == 0,
                      "%s: %s", text, err.text);
        ck_assert_uint_eq(cfg.hyper.period, all[i].period);
        ck_assert_uint_eq(cfg.hyper.fragments, all[i].fragments);
        ck_assert_uint_eq(cfg.hyper.overlap, all[i].overlap);
        ck_assert_uint_eq(cfg.window_chunks, all[i].window);
    }
    ck_assert_uint_ge(tried, 3 * 5 * 4 * 2);
}
END_TEST

#define BASE "--link", "50mbit", "--step-ms", "30"
static const struct {
    const char *args[8], *says;
} bad[] = {
    {{"--step-ms", "30"}, "--slow needs --link"},
    {{"--link", "50mbit"}, "--slow needs --step-ms"},
    {{"--link", "50mb"}, "--link is '50mb'"},
    {{"--link", ""}, "neither a rate"},
    {{"--link", "./3mbit"}, "neither a rate"},
    {{"--link", "info.json"}, "neither a rate"},
    {{"--link", "no-such-file"}, "neither a rate such as 50mbit nor a file"},
    {{"--link", "/dev/null"}, "lacks up_mbit_s"},
    {{BASE, "--delay-ms", "-1"}, "--delay-ms is '-1'"},
    {{BASE, "--up", "fast"}, "--up is 'fast'"},
    {{BASE, "--codec", "raw,zip"}, "--codec names 'zip'"},
    {{BASE, "--codec", "topk:2"}, "--codec names 'topk:2'"},
    {{BASE, "--period", "32,,64"}, "--period is '32,,64'"},
    {{BASE, "--period", "0"}, "--period is '0'"},
    {{BASE, "--fragments", "1.5"}, "a whole number is needed"},
    {{BASE, "--fragments", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"}, "1 to 16 parts"},
    {{BASE, "--workers", "0"}, "--workers is '0'"},
    {{BASE, "--target", "101"}, "--target is '101'"},
    {{BASE, "--codec", "foo"}, "names 'foo': no such codec; allowed are raw fp16"},
    {{BASE, "--net", "no-such-net"}, "--net"},
    {{BASE, "--method", "sync-sgd"}, "allowed with --slow are diloco"},
    {{BASE, "--simulated"}, "no such option with --slow"},
    {{BASE, "--period"}, "or no value"},
    {{BASE, "--together"}, "--cores is missing"},
    {{BASE, "--cpu-ns", "1,2,3"}, "--cores is missing"},
    {{BASE, "--cpu-ns", "1,2"}, "three numbers of 0 to 1e6"},
    {{BASE, "--cpu-ns", "1,2,-3"}, "three numbers of 0 to 1e6"},
    {{BASE, "--cores", "0"}, "--cores is '0'"},
    {{BASE, "--cores", "4", "--per-machine", "5"}, "--per-machine is above --workers"},
};

START_TEST(a_bad_command_line_is_named)
{
    char *argv[10] = {(char[]){"plan"}}, said[2048];
    struct slow_options o;
    int argc = 1;
    FILE *err = tmpfile(), *saved = stderr;
    ck_assert_ptr_nonnull(err);
    for (; argc < 9 && bad[_i].args[argc - 1] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)bad[_i].args[argc - 1];
    stderr = err;
    int rc = slow_parse(argc, argv, &o);
    stderr = saved;
    rewind(err);
    said[fread(said, 1, sizeof said - 1, err)] = 0;
    fclose(err);
    ck_assert_int_eq(rc, -1);
    ck_assert_msg(strstr(said, bad[_i].says) != NULL, "said '%s'; expected '%s'", said, bad[_i].says);
}
END_TEST

START_TEST(the_link_is_read_from_psbench_link)
{
    char path[] = "/tmp/psd-test-slow-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    fputs("{\"bench\":\"link\",\"up_mbit_s\":40.0,\"down_mbit_s\":80.0,\"delay_ms\":12.5}\n", f);
    fclose(f);
    char *argv[] = {(char[]){"plan"},
                    (char[]){"--slow"},
                    (char[]){"--delay-ms"},
                    (char[]){"20"},
                    (char[]){"--link"},
                    path,
                    (char[]){"--step-ms"},
                    (char[]){"30"},
                    (char[]){"--codec"},
                    (char[]){"int4,raw"},
                    (char[]){"--period"},
                    (char[]){"64,8"},
                    NULL};
    struct slow_options o;
    int rc = slow_parse(12, argv, &o);
    unlink(path);
    ck_assert_int_eq(rc, 0);
    ck_assert_double_eq_tol(o.link.up_s, 2e-7, 1e-15);
    ck_assert_double_eq_tol(o.link.down_s, 1e-7, 1e-15);
    ck_assert_double_eq_tol(o.link.delay_s, 0.020, CLOSE); /* the option's */
    ck_assert_double_eq_tol(o.job.step_s, 0.030, CLOSE);
    ck_assert(o.n_codecs == 2 && o.codecs[0].for_moves && o.n_periods == 2 && o.periods[0] == 8);
    ck_assert_double_eq(o.job.n_floats, 431080);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("psbench plan --slow");
    TCase *model = tcase_create("model"), *args = tcase_create("command line");
    tcase_add_test(model, an_exchange_is_there_and_back_and_the_slower_way);
    tcase_add_test(model, overlap_hides_as_many_steps);
    tcase_add_test(model, fragments_are_shorter_exchanges);
    tcase_add_test(model, several_fragments_are_under_way);
    tcase_add_test(model, the_window_and_psds_link_are_limits);
    tcase_add_test(model, a_window_that_is_not_given_fills_the_link);
    tcase_add_test(model, a_connection_that_was_idle_starts_slowly);
    tcase_add_test(model, cpu_time_counts_where_cores_are_given);
    tcase_add_test(model, a_chunk_takes_the_cpu_that_it_needs);
    tcase_add_test(model, a_period_takes_the_cpu_that_a_machine_has);
    tcase_add_test(model, the_choice_is_the_first_that_is_enough);
    tcase_add_test(model, the_yaml_has_a_line_for_what_is_not_the_default);
    tcase_add_loop_test(model, psd_takes_the_yaml_of_each_choice, 0, ROWS(methods));
    tcase_add_loop_test(args, a_bad_command_line_is_named, 0, ROWS(bad));
    tcase_add_test(args, the_link_is_read_from_psbench_link);
    suite_add_tcase(suite, model);
    suite_add_tcase(suite, args);
    return unit_run(suite);
}
