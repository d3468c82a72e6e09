/* The timing model against cases worked out by hand, the fit against times that the model made, and command
 * lines that say nonsense. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codecs/codec.h"
#include "tests/bench/plan/plan.h"
#include "tests/support/unit.h"

/* Binary fractions and small numbers: what is expected below is exact but for a few roundings. */
#define CLOSE 1e-9

static const struct plan_link link1 = {
    .alpha_s = 1e-4, .beta_s = 8e-9, .sync_s = 2e-4, .server_beta_s = 8e-9, .lanes = 2};
static const struct plan_codec raw = {"raw", 4, 0, 0, 1e-9};
static const struct plan_codec half = {"fp16", 2, 2e-9, 1e-9, 3e-9};
static const struct plan_job job1 = {
    .n_floats = 1e6, .chunk_floats = 1e5, .update_s = 0.001, .compute_s = 0.020, .batch = 64, .period = 10};

static struct plan_prediction predict(const char *name, const struct plan_link *link,
                                      const struct plan_codec *codec, const struct plan_job *job,
                                      uint32_t workers, uint32_t clique)
{
    struct plan_prediction p;
    for (size_t i = 0; i < plan_n_methods; i++)
        if (strcmp(plan_methods[i].name, name) == 0) {
            plan_predict(&plan_methods[i], link, codec, job, workers, clique, &p);
            return p;
        }
    ck_abort_msg("no method %s", name);
}

/* 4 workers: 2 * 3 alpha = 0.6 ms; 2 * 3/4 * 4 MB * 8 ns = 48 ms; 3/4 M * 1 ns = 0.75 ms; S = 0.2 ms. */
START_TEST(an_allreduce_is_latency_bytes_sums_and_step)
{
    struct plan_prediction p = predict("d-sync", &link1, &raw, &job1, 4, 1);
    ck_assert_double_eq_tol(p.terms[PLAN_LATENCY], 0.0006, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_WIRE], 0.048, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_ARITHMETIC], 0.00075, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_SYNC], 0.0002, CLOSE);
    ck_assert_double_eq_tol(p.comm_s, 0.04955, CLOSE);
    ck_assert_double_eq_tol(p.iteration_s, 0.001 + 0.020 + 0.04955, CLOSE);
    ck_assert_double_eq_tol(p.images_s, 4 * 64 / 0.07055, 1e-6);
    ck_assert_double_eq_tol(p.efficiency, 0.021 / 0.07055, CLOSE);
    ck_assert_uint_eq(p.clique, 4);
    ck_assert_int_eq(p.largest, PLAN_WIRE);
}
END_TEST

/* Of compute and communication the longer one; which it is depends on p and on the codec. */
START_TEST(the_pipeline_takes_the_longer_of_the_two)
{
    struct plan_job slow = job1;
    struct plan_prediction p = predict("pipe-sgd", &link1, &raw, &job1, 4, 1);
    ck_assert_double_eq_tol(p.iteration_s, 0.04955, CLOSE);
    ck_assert_int_eq(p.largest, PLAN_WIRE);
    slow.compute_s = 0.5;
    p = predict("pipe-sgd", &link1, &raw, &slow, 4, 1);
    ck_assert_double_eq_tol(p.iteration_s, 0.501, CLOSE);
    ck_assert_double_eq_tol(p.efficiency, 1, CLOSE);
    ck_assert_int_eq(p.largest, PLAN_COMPUTE);
    /* 24 ms of bytes; 0.75 M sums of 3 ns and 1 M of 2 + 1 ns: 5.25 ms */
    p = predict("pipe-sgd", &link1, &half, &job1, 4, 1);
    ck_assert_double_eq_tol(p.terms[PLAN_WIRE], 0.024, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_ARITHMETIC], 0.00525, CLOSE);
    ck_assert_double_eq_tol(p.iteration_s, 0.0006 + 0.024 + 0.00525 + 0.0002, CLOSE);
}
END_TEST

/* The server's link carries the messages of all 4 and, meanwhile, the answers but for a chunk:
 * 4 * (4 MB + 0.4 MB) * 8 ns; sums 4 * 1 M * 1 ns / 2 lanes. */
START_TEST(the_servers_link_carries_all)
{
    struct plan_link l = link1;
    struct plan_prediction p = predict("sync-sgd", &l, &raw, &job1, 4, 1);
    ck_assert_double_eq_tol(p.terms[PLAN_WIRE], 0.1408, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_LATENCY], 0.0002, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_ARITHMETIC], 0.002, CLOSE);
    ck_assert_double_eq_tol(p.iteration_s, 0.021 + 0.1408 + 0.0002 + 0.002 + 0.0002, CLOSE);
    l.server_beta_s = 1e-9; /* now a worker's own link is the slower: 4.4 MB * 8 ns */
    ck_assert_double_eq_tol(predict("sync-sgd", &l, &raw, &job1, 4, 1).terms[PLAN_WIRE], 0.0352, CLOSE);
    l = link1;
    l.half_duplex = true; /* 2 * 4 * 4 MB * 8 ns, and twice the ring's */
    ck_assert_double_eq_tol(predict("sync-sgd", &l, &raw, &job1, 4, 1).terms[PLAN_WIRE], 0.256, CLOSE);
    ck_assert_double_eq_tol(predict("d-sync", &l, &raw, &job1, 4, 1).terms[PLAN_WIRE], 0.096, CLOSE);
}
END_TEST

/* One worker's exchange: 35.2 ms of bytes, 0.2 ms, 0.5 ms of sums, after 21 ms. 4 of them would need 128 ms
 * of the server's link in an iteration: that is what it takes. With period 10, 12.8 ms do. */
START_TEST(workers_at_their_own_pace_share_the_servers_time)
{
    struct plan_prediction p = predict("async-sgd", &link1, &raw, &job1, 1, 1);
    ck_assert_double_eq_tol(p.iteration_s, 0.021 + 0.0352 + 0.0002 + 0.0005, CLOSE);
    p = predict("async-sgd", &link1, &raw, &job1, 4, 1);
    ck_assert_double_eq_tol(p.iteration_s, 0.128, CLOSE);
    ck_assert_double_eq_tol(p.comm_s, 0.128 - 0.021, CLOSE);
    ck_assert_int_eq(p.largest, PLAN_WIRE);
    p = predict("async-easgd", &link1, &raw, &job1, 4, 1);
    ck_assert_double_eq_tol(p.iteration_s, 0.021 + 0.00359, CLOSE);
    ck_assert_int_eq(p.largest, PLAN_COMPUTE);
    ck_assert_double_eq_tol(p.images_s, 4 * 64 / 0.02459, 1e-6);
}
END_TEST

/* 4 workers in cliques of 2: an allreduce of 2 (0.2 + 32 + 0.5 + 0.2 ms), 2 clients at psd (0.2 + 70.4 + 1 +
 * 0.2 ms), a broadcast to 1 (0.1 + 32 ms). */
START_TEST(cliques_halve_what_the_server_sees)
{
    struct plan_prediction p = predict("mpi-sgd", &link1, &raw, &job1, 4, 2);
    ck_assert_uint_eq(p.clique, 2);
    ck_assert_double_eq_tol(p.terms[PLAN_WIRE], 0.032 + 0.0704 + 0.032, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_LATENCY], 0.0005, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_ARITHMETIC], 0.0015, CLOSE);
    ck_assert_double_eq_tol(p.terms[PLAN_SYNC], 0.0004, CLOSE);
}
END_TEST

START_TEST(one_worker_alone_needs_no_ring)
{
    struct plan_prediction p = predict("d-sync", &link1, &half, &job1, 1, 1);
    ck_assert_double_eq(p.comm_s, 0);
    ck_assert_double_eq(p.efficiency, 1);
    p = predict("pipe-sgd", &link1, &half, &job1, 1, 1);
    ck_assert_double_eq(p.efficiency, 1);
}
END_TEST

static const struct plan_prediction *choice(const struct plan_job *job, struct plan_prediction *rows)
{
    size_t n = 0;
    for (size_t m = 0; m < plan_n_methods; m++)
        for (int c = 0; c < 2; c++)
            plan_predict(&plan_methods[m], &link1, c == 0 ? &raw : &half, job, 4, 2, &rows[n++]);
    ck_assert_ptr_null(plan_choose(rows, n, 3));
    return plan_choose(rows, n, 4);
}

/* Fast computing: the pipeline with fewer bytes. Slow computing: nothing is to be gained, so the exact method
 * with the exact codec. EASGD moves fewer gradients and is not compared. */
START_TEST(the_choice_gives_up_exactness_only_for_speed)
{
    struct plan_prediction rows[32];
    struct plan_job slow = job1;
    const struct plan_prediction *c = choice(&job1, rows);
    ck_assert_str_eq(c->method->name, "pipe-sgd");
    ck_assert_str_eq(c->codec->name, "fp16");
    slow.compute_s = 10;
    c = choice(&slow, rows);
    ck_assert_str_eq(c->method->name, "sync-sgd");
    ck_assert_str_eq(c->codec->name, "raw");
    slow.compute_s = 0.1; /* d-sync 1.5 times the time of pipe-sgd */
    c = choice(&slow, rows);
    ck_assert_str_eq(c->method->name, "pipe-sgd");
    ck_assert_str_eq(c->codec->name, "raw");
}
END_TEST

/* Times that the model itself makes, of 2 and of 4 members where `both`. */
static size_t make_samples(const struct plan_link *l, bool both, struct plan_sample *s)
{
    static const double floats[] = {1, 100, 5000, 2e5, 4e6};
    size_t n = 0;
    for (uint32_t p = 2; p <= (both ? 4u : 2u); p += 2)
        for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
            struct plan_job j = job1;
            j.n_floats = floats[i];
            struct plan_prediction made = predict("d-sync", l, &raw, &j, p, 1);
            s[n++] = (struct plan_sample){p, floats[i] * 4, made.comm_s};
        }
    return n;
}

START_TEST(the_fit_finds_what_made_the_times)
{
    struct plan_sample s[16];
    struct plan_link got = {0};
    double error;
    for (int duplex = 0; duplex < 2; duplex++) {
        struct plan_link l = link1;
        l.half_duplex = duplex;
        ck_assert_int_eq(plan_fit(s, make_samples(&l, true, s), raw.add_s, duplex, &got, &error), 0);
        ck_assert_double_eq_tol(got.alpha_s / l.alpha_s, 1, 1e-6);
        ck_assert_double_eq_tol(got.beta_s / l.beta_s, 1, 1e-6);
        ck_assert_double_eq_tol(got.sync_s / l.sync_s, 1, 1e-6);
        ck_assert_double_lt(error, 1e-6);
    }
    /* Two members: alpha and S are one, 2 alpha + S. */
    ck_assert_int_eq(plan_fit(s, make_samples(&link1, false, s), raw.add_s, false, &got, &error), 0);
    ck_assert_double_eq_tol(got.alpha_s / (link1.alpha_s + link1.sync_s / 2), 1, 1e-6);
    ck_assert_double_eq_tol(got.beta_s / link1.beta_s, 1, 1e-6);
    ck_assert_double_eq(got.sync_s, 0);
}
END_TEST

/* A tenth of noise either way moves what is found by a fifth at most; a constant below 0 is taken as 0. */
START_TEST(the_fit_bears_noise_and_gives_nothing_below_zero)
{
    struct plan_sample s[16];
    struct plan_link got = {0};
    double error;
    size_t n = make_samples(&link1, true, s);
    for (size_t i = 0; i < n; i++)
        s[i].seconds *= i % 2 ? 1.1 : 0.9;
    ck_assert_int_eq(plan_fit(s, n, raw.add_s, false, &got, &error), 0);
    ck_assert_double_eq_tol(got.beta_s / link1.beta_s, 1, 0.2);
    ck_assert_double_eq_tol(error, 0.1, 0.1);
    for (size_t i = 0; i < n; i++) /* only bytes cost, and a little less than none at all does the rest */
        s[i].seconds =
            s[i].n_bytes * 1e-8 * 2 * (s[i].members - 1.0) / s[i].members * (s[i].n_bytes < 1e4 ? 0.8 : 1);
    ck_assert_int_eq(plan_fit(s, n, 0, false, &got, &error), 0);
    ck_assert_double_ge(got.alpha_s, 0);
    ck_assert_double_ge(got.sync_s, 0);
    ck_assert_double_gt(got.beta_s, 0);
}
END_TEST

START_TEST(the_fit_refuses_what_says_nothing)
{
    struct plan_link got = {.alpha_s = 7};
    double error = 7;
    struct plan_sample same[] = {{2, 4, 1}, {2, 4, 1.1}, {2, 4, 0.9}};
    struct plan_sample none[] = {{2, 4, 0}, {2, 400, 1}}, alone[] = {{1, 4, 1}, {1, 8, 2}},
                       odd[] = {{2, 4, NAN}, {2, 400, 1}};
    ck_assert_int_lt(plan_fit(same, 3, 0, false, &got, &error), 0);
    ck_assert_int_lt(plan_fit(none, 2, 0, false, &got, &error), 0);
    ck_assert_int_lt(plan_fit(alone, 2, 0, false, &got, &error), 0);
    ck_assert_int_lt(plan_fit(odd, 2, 0, false, &got, &error), 0);
    ck_assert_int_lt(plan_fit(same, 0, 0, false, &got, &error), 0);
    ck_assert_double_eq(got.alpha_s, 7);
    ck_assert_double_eq(error, 7);
}
END_TEST

static const struct {
    const char *args[6];
    const char *says;
} bad[] = {
    {{"--net", "lenin"}, "--net is 'lenin'; allowed are"},
    {{"--floats", "100"}, "--floats needs --compute-ms"},
    {{"--floats", "100", "--net", "lenet"}, "give one"},
    {{"--floats", "0"}, "--floats is '0'"},
    {{"--workers", "2,,4"}, "--workers has an empty"},
    {{"--workers", "2,0"}, "--workers is '0'"},
    {{"--workers", "1.5"}, "a whole number is needed"},
    {{"--workers", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"}, "more than 16"},
    {{"--codec", "raw,zip"}, "--codec names 'zip'; allowed are raw"},
    {{"--link", "1gb"}, "--link is '1gb'; allowed is a rate such as 1gbit"},
    {{"--link", "-1gbit"}, "--link is '-1gbit'"},
    {{"--gb-s", "0"}, "--gb-s is '0'"},
    {{"--alpha-us", "nan"}, "--alpha-us is 'nan'"},
    {{"--compute-ms", "-1"}, "--compute-ms is '-1'"},
    {{"--batch", "many"}, "--batch is 'many'"},
    {{"--half-duplex", "yes"}, "'yes' is not an option"},
    {{"--wrong"}, "usage: psbench plan"},
};

START_TEST(a_bad_command_line_is_named)
{
    char *argv[8] = {(char[]){"plan"}}, said[4096];
    struct plan_options o;
    int argc = 1;
    FILE *f = freopen("/dev/null", "w", stdout), *err = tmpfile();

    ck_assert(f != NULL && err != NULL);
    for (; argc < 7 && bad[_i].args[argc - 1] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)bad[_i].args[argc - 1];
    fflush(stderr);
    FILE *saved = stderr;
    stderr = err;
    int rc = plan_parse(argc, argv, &o);
    stderr = saved;
    rewind(err);
    said[fread(said, 1, sizeof said - 1, err)] = 0;
    ck_assert_int_eq(rc, -1);
    ck_assert_msg(strstr(said, bad[_i].says) != NULL, "said '%s'; expected '%s'", said, bad[_i].says);
}
END_TEST

START_TEST(a_good_command_line_is_taken)
{
    char *argv[] = {(char[]){"plan"},          (char[]){"--floats"},  (char[]){"1e6"},
                    (char[]){"--link"},        (char[]){"100Mbit"},   (char[]){"--compute-ms"},
                    (char[]){"2.5"},           (char[]){"--workers"}, (char[]){"2,16"},
                    (char[]){"--codec"},       (char[]){"raw"},       (char[]){"--half-duplex"},
                    (char[]){"--server-gb-s"}, (char[]){"2"},         NULL};
    struct plan_options o;
    ck_assert_int_eq(plan_parse(14, argv, &o), 0);
    ck_assert_double_eq(o.floats, 1e6);
    ck_assert_double_eq_tol(o.beta_s, 8e-8, 1e-18);
    ck_assert_double_eq_tol(o.server_beta_s, 5e-10, 1e-18);
    ck_assert_double_eq(o.compute_s, 0.0025);
    ck_assert_uint_eq(o.workers[1], 16);
    ck_assert_uint_eq(o.n_workers, 2);
    ck_assert_uint_eq(o.n_codecs, 1);
    ck_assert_str_eq(o.codecs[0]->name, "raw");
    ck_assert(o.half_duplex && isnan(o.alpha_s) && o.net == NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("psbench plan");
    TCase *model = tcase_create("model"), *args = tcase_create("command line");
    tcase_add_test(model, an_allreduce_is_latency_bytes_sums_and_step);
    tcase_add_test(model, the_pipeline_takes_the_longer_of_the_two);
    tcase_add_test(model, the_servers_link_carries_all);
    tcase_add_test(model, workers_at_their_own_pace_share_the_servers_time);
    tcase_add_test(model, cliques_halve_what_the_server_sees);
    tcase_add_test(model, one_worker_alone_needs_no_ring);
    tcase_add_test(model, the_choice_gives_up_exactness_only_for_speed);
    tcase_add_test(model, the_fit_finds_what_made_the_times);
    tcase_add_test(model, the_fit_bears_noise_and_gives_nothing_below_zero);
    tcase_add_test(model, the_fit_refuses_what_says_nothing);
    tcase_add_loop_test(args, a_bad_command_line_is_named, 0, sizeof bad / sizeof *bad);
    tcase_add_test(args, a_good_command_line_is_taken);
    suite_add_tcase(suite, model);
    suite_add_tcase(suite, args);
    return unit_run(suite);
}
