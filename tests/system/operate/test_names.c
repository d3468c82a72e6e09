/* Who is who over restarts of psd: names are given once in the life of a job, places are kept for those who
 * were in it, and what was lost is said truly. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/checkpoint/job_file.h"
#include "tests/support/clock.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/servers.h"
#include "tests/support/suite.h"
#include "tests/system/step_workers.h"

enum { FLOATS = 20011, HEARTBEAT_MS = 250 };

static const char *const settings[] = {"method=async-sgd",
                                       "parameters.learning_rate=1",
                                       "parameters.schedule.warmup_steps=0",
                                       "limits.silence_s=300",
                                       "checkpoint.every_s=0",
                                       "chunk_floats=4096",
                                       NULL};

static void start(struct daemon *d)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void join(const struct daemon *d, struct crew_worker *w, int rank)
{
    struct crew_task task = {.server = d->endpoint,
                             .rank = rank,
                             .floats = FLOATS,
                             .heartbeat_ms = HEARTBEAT_MS,
                             .retry_ms = 500,
                             .pause_s = 0.005};
    crew_start(w, &task);
    ck_assert_msg(crew_joined(w, TEST_HANG_S), "%s: %s", psc_result_name(w->page->rc), w->page->error);
}

static void goes_on(const struct crew_worker *w, uint64_t exchanges)
{
    ck_assert_msg(crew_reaches(w, w->page->exchanges + exchanges, TEST_HANG_S),
                  "rank %d ended or stands still: %s (%s)", w->page->rank, psc_result_name(w->page->rc),
                  w->page->error);
}

static void ends_well(struct crew_worker *w)
{
    ck_assert(crew_stop(w, TEST_HANG_S));
    ck_assert_msg(w->page->rc == PSC_OK, "%s: %s", psc_result_name(w->page->rc), w->page->error);
}

static void kill_and_resume(struct daemon *d)
{
    daemon_stop(d, SIGKILL, TEST_HANG_S);
    ck_assert_int_eq(daemon_start(d, "--resume"), 0);
}

/* It stands still after so many more, or some more still, and has its answer to each. Its exchanges so far.
 */
static uint64_t makes_and_holds(struct crew_worker *w, uint64_t exchanges)
{
    uint64_t at = w->page->exchanges + exchanges;
    crew_hold_at(w, at);
    ck_assert_msg(crew_reaches(w, at, TEST_HANG_S) && crew_is_held(w, TEST_HANG_S), "%s: %s",
                  psc_result_name(w->page->rc), w->page->error);
    return w->page->exchanges;
}

/* The version that was saved. */
static uint64_t save(const struct daemon *d)
{
    ck_assert(daemon_checkpoint(d, TEST_HANG_S));
    return (uint64_t)daemon_number(d, "/status", "checkpoint.last_version");
}

/* Until the state directory says that the center had reached the version. */
static void wait_for_record(const struct daemon *d, uint64_t version)
{
    struct psd_job_file f;
    struct psd_job_record r = {.job = 0};
    bool found = false;
    for (double end = test_now_s() + test_slow_s(TEST_HANG_S); r.version < version; test_nap_s(0.01)) {
        ck_assert_msg(test_now_s() < end, "the record is at version %lu", (unsigned long)r.version);
        ck_assert_int_eq(psd_job_file_open(d->state_dir, &f, &r, &found, NULL), 0);
        psd_job_file_close(&f);
    }
}

static double lost(const struct daemon *d)
{
    return daemon_number(d, "/status", "center.lost_updates");
}

static void assert_lost_are(const struct daemon *d, const char *kind, double least)
{
    char text[32];
    ck_assert(daemon_text(d, "/status", "center.lost_updates_are", text, sizeof text));
    ck_assert_str_eq(text, kind);
    ck_assert_double_eq(daemon_number(d, "/status", "center.lost_updates_least"), least);
}

/* Both runs begin from the same checkpoint, which knows neither. */
START_TEST(names_are_given_once_in_the_life_of_a_job)
{
    struct daemon d;
    struct crew_worker first, second, third;
    start(&d);
    join(&d, &first, -1);
    goes_on(&first, 3);
    ck_assert(daemon_checkpoint(&d, TEST_HANG_S));
    kill_and_resume(&d);
    goes_on(&first, 3);
    join(&d, &second, -1);
    goes_on(&second, 3);
    double name = daemon_worker(&d, second.page->rank, "incarnation");
    kill_and_resume(&d);
    goes_on(&first, 3);
    goes_on(&second, 3);
    join(&d, &third, -1);
    goes_on(&third, 3);
    ck_assert_double_eq(daemon_worker(&d, second.page->rank, "incarnation"), name);
    ck_assert_double_gt(daemon_worker(&d, third.page->rank, "incarnation"), name);
    ends_well(&first);
    ends_well(&second);
    ends_well(&third);
    daemon_remove(&d);
}
END_TEST

/* The newcomer asks while the one whose place it is stands still. */
START_TEST(who_joined_since_the_checkpoint_keeps_its_place)
{
    struct daemon d;
    struct crew_worker first, second, newcomer;
    start(&d);
    join(&d, &first, -1);
    goes_on(&first, 3);
    ck_assert(daemon_checkpoint(&d, TEST_HANG_S));
    join(&d, &second, -1);
    goes_on(&second, 3);
    for (int restart = 0; restart < 2; restart++) { /* also one that was not there to be seen again */
        crew_signal(&second, SIGSTOP);
        kill_and_resume(&d);
    }
    join(&d, &newcomer, -1);
    goes_on(&newcomer, 3);
    crew_signal(&second, SIGCONT);
    goes_on(&second, 3);
    goes_on(&first, 3);
    ck_assert_int_ne(newcomer.page->rank, second.page->rank);
    ends_well(&first);
    ends_well(&second);
    ends_well(&newcomer);
    daemon_remove(&d);
}
END_TEST

/* A worker acts on Begun: psd may be killed at any time from there on. */
START_TEST(who_has_begun_is_in_the_record)
{
    enum { MANY = 8 };
    struct daemon d;
    struct crew_worker crew[MANY];
    struct psd_job_file f;
    struct psd_job_record r;
    bool found;
    start(&d);
    join(&d, &crew[0], -1); /* its vector is the center: there is nothing to lose before that is there */
    goes_on(&crew[0], 1);
    for (uint32_t i = 1; i < MANY; i++) {
        bool is_there = false;
        join(&d, &crew[i], -1);
        ck_assert_int_eq(psd_job_file_open(d.state_dir, &f, &r, &found, NULL), 0);
        psd_job_file_close(&f);
        for (uint32_t k = 0; k < r.n_active; k++)
            is_there = is_there || r.members[k].client == (uint32_t)crew[i].page->rank;
        ck_assert_msg(is_there, "rank %d is not in the record", crew[i].page->rank);
    }
    for (int i = 0; i < MANY; i++)
        ends_well(&crew[i]);
    daemon_remove(&d);
}
END_TEST

START_TEST(what_nobody_is_left_to_tell_is_unknown)
{
    struct daemon d;
    struct crew_worker w;
    start(&d);
    join(&d, &w, -1);
    makes_and_holds(&w, 10);
    uint64_t saved = save(&d), reached = makes_and_holds(&w, 5);
    wait_for_record(&d, reached);
    daemon_stop(&d, SIGKILL, TEST_HANG_S);
    crew_kill(&w);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    assert_lost_are(&d, "unknown", (double)(reached - saved));
    ck_assert(isnan(lost(&d)));

    join(&d, &w, -1); /* who has not seen it does not make it known */
    assert_lost_are(&d, "unknown", (double)(reached - saved));
    makes_and_holds(&w, 5);
    ends_well(&w);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    assert_lost_are(&d, "exact", 0);
    ck_assert_double_eq(lost(&d), 0);
    daemon_remove(&d);
}
END_TEST

/* All of it, also to the psd after one that nobody came to. */
START_TEST(what_was_lost_before_the_first_checkpoint_is_told)
{
    struct daemon d;
    struct crew_worker w;
    start(&d);
    join(&d, &w, -1);
    uint64_t reached = makes_and_holds(&w, 7);
    wait_for_record(&d, reached);
    crew_kill(&w);
    for (int i = 0; i < 2; i++) {
        kill_and_resume(&d);
        assert_lost_are(&d, "unknown", (double)reached);
    }
    join(&d, &w, -1);
    makes_and_holds(&w, 3);
    assert_lost_are(&d, "unknown", (double)reached);
    ends_well(&w);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    assert_lost_are(&d, "exact", 0);
    daemon_remove(&d);
}
END_TEST

static const char *const begun_methods[] = {"method=async-sgd", "method=sync-sgd", "method=ssp-sgd"};

/* All servers of a job that has just begun are killed: its first checkpoint waits neither for the interval
 * nor for a round. Its workers live on. */
START_TEST(a_job_killed_before_its_first_interval_goes_on)
{
    const char *const rare[] = {begun_methods[_i / 2],
                                "parameters.learning_rate=1",
                                "parameters.schedule.warmup_steps=0",
                                "limits.silence_s=300",
                                "checkpoint.every_s=3600",
                                "chunk_floats=4096",
                                "lanes=1",
                                _i / 2 > 0 ? "workers=2" : NULL,
                                NULL};
    struct servers t;
    struct crew_worker w[2];
    ck_assert_int_eq(servers_prepare(&t, 1 + _i % 2, NULL, rare), 0);
    ck_assert_int_eq(servers_start(&t), 0);
    join(&t.d[0], &w[0], 0);
    for (int i = 0; i < t.n; i++)
        ck_assert(daemon_will_log(&t.d[i], "checkpoint.written", TEST_HANG_S));
    join(&t.d[0], &w[1], 1);
    goes_on(&w[0], 3);
    goes_on(&w[1], 3);
    servers_kill(&t);
    for (int i = 0; i < t.n; i++)
        ck_assert_int_eq(daemon_start(&t.d[i], "--resume"), 0);
    ck_assert(daemon_will_log(&t.d[0], "job.resumed", TEST_HANG_S));
    if (_i / 2 > 0) /* no round is complete with one worker; under async-sgd it may have made steps before */
        ck_assert_double_eq(daemon_number(&t.d[0], "/status", "center.resumed_version"), 0);
    for (int i = 0; i < 2; i++)
        goes_on(&w[i], 3);
    for (int i = 0; i < 2; i++) /* rounds need both until they are told */
        w[i].page->stop = true;
    for (int i = 0; i < 2; i++)
        ends_well(&w[i]);
    ck_assert(servers_end(&t, TEST_HANG_S));
    servers_remove(&t);
}
END_TEST

/* The last one that joined has seen the newest version. */
START_TEST(what_was_lost_is_known_when_all_are_back)
{
    struct daemon d;
    struct crew_worker first, second;
    start(&d);
    join(&d, &first, -1);
    makes_and_holds(&first, 10);
    save(&d);
    join(&d, &second, -1);
    double more = (double)makes_and_holds(&second, 7);
    crew_signal(&second, SIGSTOP);
    kill_and_resume(&d);
    ck_assert(daemon_will_log(&d, "session.revived", TEST_HANG_S));
    ck_assert(isnan(lost(&d)));
    crew_signal(&second, SIGCONT);
    ck_assert(daemon_workers_become(&d, 2));
    assert_lost_are(&d, "at most", more);
    ck_assert_double_eq(lost(&d), more);
    ends_well(&first);
    ends_well(&second);
    daemon_remove(&d);
}
END_TEST

/* Exchanges of the one worker that are missing at value i, which is a multiple of 5: each adds one more to
 * the next value than to this. */
static double missing_at(const float *x, uint64_t exchanges, uint64_t i)
{
    double here = crew_sum(0, exchanges, i) + (double)x[i],
           next = crew_sum(0, exchanges, i + 1) + (double)x[i + 1];
    return next - here;
}

static const struct {
    const char *method, *workers, *kind;
    unsigned times; /* what was lost is counted */
    const char *then;
    bool both; /* servers go back */
} servers_lose[] = {
    {"method=ssp-sgd", "workers=1", "at most", 2, "session.revived", true},
    {"method=sync-sgd", "workers=1", "at most", 1, "session.revived", true}, /* to the same round */
    {"method=async-sgd", "lanes=1", "unknown", 1, "server.joined", false},
};

START_TEST(what_one_of_two_servers_lost_is_told)
{
    const char *const with_servers[] = {servers_lose[_i].method,
                                        servers_lose[_i].workers,
                                        "parameters.learning_rate=1",
                                        "parameters.schedule.warmup_steps=0",
                                        "limits.silence_s=300",
                                        "checkpoint.every_s=0",
                                        "chunk_floats=4096",
                                        "lanes=1",
                                        NULL};
    struct servers t;
    struct crew_worker w;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, with_servers), 0);
    ck_assert_int_eq(servers_start(&t), 0);
    join(&t.d[0], &w, 0);
    bool rounds = servers_lose[_i].both && servers_lose[_i].times == 1; /* there a checkpoint is of one */
    if (rounds)
        goes_on(&w, 4);
    else
        makes_and_holds(&w, 4); /* else it may have more than its version says */
    free(daemon_ask(&t.d[0], "POST", "/checkpoint"));
    double saved[2];
    for (int i = 0; i < 2; i++) {
        ck_assert(daemon_will_log(&t.d[i], "checkpoint.written", TEST_HANG_S));
        saved[i] = daemon_number(&t.d[i], "/status", "checkpoint.last_version");
    }
    double reached = (double)makes_and_holds(&w, 7);
    for (int i = 0; i < 2; i++)
        wait_for_record(&t.d[i], (uint64_t)reached);
    daemon_stop(&t.d[1], SIGKILL, TEST_HANG_S);
    ck_assert_int_eq(daemon_start(&t.d[1], "--resume"), 0);
    ck_assert(daemon_will_log(&t.d[0], servers_lose[_i].then, TEST_HANG_S));
    double of_both[2] = {servers_lose[_i].times == 2 || servers_lose[_i].both ? reached - saved[0] : 0,
                         reached - saved[1]};
    assert_lost_are(&t.d[0], servers_lose[_i].kind,
                    servers_lose[_i].times == 2 ? of_both[0] + of_both[1] : of_both[1]);
    makes_and_holds(&w, 3);
    float *x = stepper_center(&t.d[0], FLOATS);
    ck_assert_double_eq(missing_at(x, w.page->exchanges, 0), of_both[0]);
    ck_assert_double_eq(missing_at(x, w.page->exchanges, FLOATS - FLOATS % 5 - 5), of_both[1]);
    free(x);
    ends_well(&w);
    ck_assert(servers_end(&t, TEST_HANG_S));
    servers_remove(&t);
}
END_TEST

/* The record of a psd that was killed, as if it had been written when the center had that version: it is up
 * to a second old. */
static void make_older(const struct daemon *d, uint64_t version)
{
    struct psd_job_file f;
    struct psd_job_record r;
    bool found = false;
    ck_assert_int_eq(psd_job_file_open(d->state_dir, &f, &r, &found, NULL), 0);
    ck_assert(found);
    r.version = version;
    for (int copy = 0; copy < 2; copy++)
        ck_assert_int_eq(psd_job_file_write(&f, &r), 0);
    psd_job_file_close(&f);
}

static void wait_until_nobody_is_in(const struct daemon *d)
{
    struct psd_job_file f;
    struct psd_job_record r = {.n_active = 1};
    bool found = false;
    for (double end = test_now_s() + test_slow_s(TEST_HANG_S); r.n_active > 0; test_nap_s(0.01)) {
        ck_assert_msg(test_now_s() < end, "%u are in the record", r.n_active);
        ck_assert_int_eq(psd_job_file_open(d->state_dir, &f, &r, &found, NULL), 0);
        psd_job_file_close(&f);
    }
}

/* The head's record says that nobody is left; the other server's is older than what the one who left did. */
START_TEST(what_who_left_had_done_at_another_server_is_told)
{
    enum { MORE = 7 };
    const char *const with_servers[] = {"method=async-sgd",
                                        "parameters.learning_rate=1",
                                        "parameters.schedule.warmup_steps=0",
                                        "checkpoint.every_s=0",
                                        "chunk_floats=4096",
                                        "lanes=1",
                                        NULL};
    struct servers t;
    struct crew_worker w;
    uint64_t saved[2];
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, with_servers), 0);
    ck_assert_int_eq(servers_start(&t), 0);
    join(&t.d[0], &w, 0);
    makes_and_holds(&w, 4);
    free(daemon_ask(&t.d[0], "POST", "/checkpoint"));
    for (int i = 0; i < 2; i++) {
        ck_assert(daemon_will_log(&t.d[i], "checkpoint.written", TEST_HANG_S));
        saved[i] = (uint64_t)daemon_number(&t.d[i], "/status", "checkpoint.last_version");
    }
    uint64_t before = w.page->exchanges;
    makes_and_holds(&w, MORE);
    ends_well(&w);
    uint64_t more = w.page->exchanges - before;
    wait_until_nobody_is_in(&t.d[0]);
    servers_kill(&t);
    make_older(&t.d[1], saved[1]);
    ck_assert_int_eq(daemon_start(&t.d[0], "--resume"), 0);
    assert_lost_are(&t.d[0], "unknown", (double)more);
    ck_assert_int_eq(daemon_start(&t.d[1], "--resume"), 0);
    ck_assert(daemon_will_log(&t.d[0], "job.resumed", TEST_HANG_S));
    assert_lost_are(&t.d[0], "at most", (double)(2 * more));
    servers_remove(&t);
}
END_TEST

/* The job that the checkpoint is of may still run. */
START_TEST(a_copied_checkpoint_begins_a_job_of_its_own)
{
    struct daemon d, copy;
    struct crew_worker w;
    char job[40], again[40], other[40], newest[400], command[1000];
    start(&d);
    ck_assert(daemon_text(&d, "/status", "job", job, sizeof job));
    join(&d, &w, -1);
    goes_on(&w, 3);
    save(&d);
    ck_assert(daemon_text(&d, "/status", "checkpoint.last_path", newest, sizeof newest));
    ck_assert_int_eq(daemon_prepare(&copy, NULL, settings), 0);
    snprintf(command, sizeof command, "mkdir -p %s/checkpoints && cp %s %s/checkpoints", copy.state_dir,
             newest, copy.state_dir);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(daemon_start(&copy, "--resume"), 0);
    ck_assert(daemon_text(&copy, "/status", "job", other, sizeof other));
    ck_assert_str_ne(other, job);
    kill_and_resume(&d);
    ck_assert(daemon_text(&d, "/status", "job", again, sizeof again));
    ck_assert_str_eq(again, job);
    kill_and_resume(&copy);
    ck_assert(daemon_text(&copy, "/status", "job", again, sizeof again));
    ck_assert_str_eq(again, other);
    goes_on(&w, 3);
    ends_well(&w);
    daemon_remove(&copy);
    daemon_remove(&d);
}
END_TEST

/* Another psd at the address that psd had, with a worker of its own that has the number of ours. */
START_TEST(another_job_at_the_address_of_ours_ends_nobody)
{
    struct daemon ours, other;
    struct crew_worker w, stranger;
    char listen_url[200], with_address[220];
    const char *there[] = {settings[0], settings[1], settings[2],  settings[3],
                           settings[4], settings[5], with_address, NULL};
    start(&ours);
    ck_assert(daemon_text(&ours, "/status", "listen", listen_url, sizeof listen_url));
    snprintf(with_address, sizeof with_address, "listen=%s", listen_url);
    struct crew_task task = {.server = listen_url,
                             .rank = 0,
                             .floats = FLOATS,
                             .heartbeat_ms = HEARTBEAT_MS,
                             .retry_ms = 500,
                             .timeout_ms = 1000 * TEST_HANG_S,
                             .pause_s = 0.005};
    crew_start(&w, &task);
    ck_assert(crew_joined(&w, TEST_HANG_S));
    goes_on(&w, 3);
    ck_assert(daemon_checkpoint(&ours, TEST_HANG_S));
    crew_signal(&w, SIGSTOP);
    daemon_stop(&ours, SIGKILL, TEST_HANG_S);

    ck_assert_int_eq(daemon_prepare(&other, NULL, there), 0);
    ck_assert_int_eq(daemon_start(&other, NULL), 0);
    task.salt = 2;
    crew_start(&stranger, &task);
    ck_assert_msg(crew_joined(&stranger, TEST_HANG_S), "%s", stranger.page->error);
    goes_on(&stranger, 3);
    crew_signal(&w, SIGCONT);
    ck_assert(daemon_will_log(&other, "(JOB)", TEST_HANG_S)); /* it has said Hello there */
    goes_on(&stranger, 3);
    ends_well(&stranger);
    daemon_stop(&other, SIGKILL, TEST_HANG_S);
    ck_assert(!w.page->ended);

    ours.settings = there;
    ck_assert_int_eq(daemon_start(&ours, "--resume"), 0);
    goes_on(&w, 3);
    ends_well(&w);
    daemon_remove(&other);
    daemon_remove(&ours);
}
END_TEST

static void add(Suite *suite, const TTest *test, int n)
{
    TCase *tcase = tcase_create(test->name);
    tcase_set_timeout(tcase, test_slow_s(4 * TEST_HANG_S));
    tcase_add_loop_test(tcase, test, 0, n);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("names");
    add(suite, names_are_given_once_in_the_life_of_a_job, 1);
    add(suite, who_joined_since_the_checkpoint_keeps_its_place, 1);
    add(suite, who_has_begun_is_in_the_record, 1);
    add(suite, what_nobody_is_left_to_tell_is_unknown, 1);
    add(suite, what_was_lost_before_the_first_checkpoint_is_told, 1);
    add(suite, a_job_killed_before_its_first_interval_goes_on,
        2 * sizeof begun_methods / sizeof *begun_methods);
    add(suite, what_was_lost_is_known_when_all_are_back, 1);
    add(suite, what_one_of_two_servers_lost_is_told, sizeof servers_lose / sizeof *servers_lose);
    add(suite, what_who_left_had_done_at_another_server_is_told, 1);
    add(suite, a_copied_checkpoint_begins_a_job_of_its_own, 1);
    add(suite, another_job_at_the_address_of_ours_ends_nobody, 1);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
