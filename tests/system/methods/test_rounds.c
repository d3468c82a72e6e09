/* Rounds of admission sync: what they compute depends on no order of arrival, on no restart, and on nobody
 * who fell silent. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"
#include "tests/system/faults/timelapse.h"

enum { FLOATS = 30011, WORKERS = 4, STEPS = 80, SETTINGS = 16 }; /* two lanes of four chunks */
enum { WAIT_S = 120, KILLED_FROM = STEPS / 5 };

#define COMMON                                                                                               \
    "schedule={kind: constant, warmup_steps: 0}", "checkpoint.every_s=0", "chunk_floats=4096", "lanes=2"

static const char *const methods[][SETTINGS] = {
    {COMMON, "method=sync-easgd", "workers=4", "learning_rate=0.03", "beta=0.9", "period=1"},
    {COMMON, "method=sync-easgd", "workers=4", "learning_rate=0.03", "beta=0.9", "period=3"},
    {COMMON, "method=sync-easgd", "workers=4", "learning_rate=0.03", "beta=0.9", "period=1", "overlap=true"},
    {COMMON, "method=sync-sgd", "workers=4", "learning_rate=0.03"},
    {COMMON, "method=downpour", "admission=sync", "workers=4", "learning_rate=0.03", "period=2"},
    {COMMON, "method=async-msgd", "admission=sync", "workers=4", "learning_rate=0.03", "momentum=0.9"},
    {COMMON, "method=eamsgd", "admission=sync", "workers=4", "learning_rate=0.03", "beta=0.9", "momentum=0.9",
     "period=2", "overlap=true"},
    {COMMON, "method=original-easgd", "workers=4", "learning_rate=0.03", "alpha=0.3", "serial=false"},
    {COMMON, "method=original-easgd", "workers=4", "learning_rate=0.03", "alpha=0.3", "serial=true"},
    {COMMON, "method=original-easgd", "workers=4", "learning_rate=0.03", "alpha=0.3", "overlap=true"},
    {COMMON, "method=admm", "workers=4", "learning_rate=0.03", "rho=2.5"},
    {COMMON, "method=diloco", "workers=4", "learning_rate=0.03", "period=2"},
    {COMMON, "method=diloco", "workers=4", "learning_rate=0.03", "period=6", "fragments=4", "mix=0.5"},
    {COMMON, "method=diloco", "workers=4", "learning_rate=0.03", "period=10", "overlap=8"},
    {COMMON, "method=sync-easgd", "workers=4", "learning_rate=0.03", "beta=0.9", "period=8", "overlap=8"},
    {COMMON, "method=eamsgd", "admission=sync", "workers=4", "learning_rate=0.03", "beta=0.9", "momentum=0.9",
     "period=4", "overlap=3"},
    {COMMON, "method=downpour", "admission=sync", "workers=4", "learning_rate=0.03", "period=5",
     "fragments=3"},
    {COMMON, "method=async-local-sgd", "admission=sync", "workers=4", "learning_rate=0.03", "period=2",
     "delay=7"},
    {COMMON, "method=async-local-sgd", "admission=round-robin", "workers=4", "learning_rate=0.03", "period=2",
     "delay=7"},
    {COMMON, "method=diloco", "admission=quorum", "workers=4", "learning_rate=0.03", "period=2", "quorum=4"},
    {COMMON, "method=backup-sgd", "workers=4", "learning_rate=0.03", "backup=0"},
    {COMMON, "method=sync-easgd", "admission=quorum", "workers=4", "learning_rate=0.03", "beta=0.9",
     "period=1", "overlap=true", "quorum=4"},
    {COMMON, "method=sync-sgd", "workers=4", "learning_rate=0.03", "merge=clip_norm", "clip=0.5"},
    {COMMON, "method=sync-sgd", "workers=4", "learning_rate=0.03", "merge=trimmed_mean"},
};

/* The same round for round: with a quorum of everybody, and with no backup. */
static const char *const alike[][2][SETTINGS] = {
    {{COMMON, "method=sync-sgd", "workers=4", "learning_rate=0.03"},
     {COMMON, "method=backup-sgd", "workers=4", "learning_rate=0.03", "backup=0"}},
    {{COMMON, "method=sync-easgd", "workers=4", "period=2"},
     {COMMON, "method=sync-easgd", "admission=backup", "workers=4", "period=2", "backup=0"}},
    {{COMMON, "method=sync-easgd", "workers=4", "period=1", "overlap=true"},
     {COMMON, "method=sync-easgd", "admission=quorum", "workers=4", "period=1", "overlap=true", "quorum=4"}},
    {{COMMON, "method=diloco", "workers=4", "period=2"},
     {COMMON, "method=diloco", "admission=quorum", "workers=4", "period=2", "quorum=4", "grace_ms=0"}},
    {{COMMON, "method=sync-sgd", "workers=4"},
     {COMMON, "method=sync-sgd", "workers=4", "merge=clip_norm", "clip=100000"}},
};

/* Gradients count in the ratio 1 : 3 : 5 : 7. */
static size_t samples_of(int rank)
{
    return (size_t)(2 * rank + 1);
}

static void start(struct daemon *d, const char *const *settings)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void start_all(const struct daemon *d, struct stepper *team, int first, uint32_t nap_us, bool load,
                      uint64_t held_at)
{
    for (int i = 0; i < WORKERS; i++) {
        int rank = (first + i) % WORKERS;
        struct stepper_task task = {.server = d->endpoint,
                                    .rank = rank,
                                    .floats = FLOATS,
                                    .steps = STEPS,
                                    .samples = samples_of(rank),
                                    .nap_us = nap_us,
                                    .load = load,
                                    .steady = true,
                                    .held_at = held_at};
        snprintf(task.save, sizeof task.save, "%s/rank%d.state", d->dir, rank);
        stepper_start(&team[rank], &task);
    }
}

static void finish_all(struct stepper *team)
{
    for (int i = 0; i < WORKERS; i++) {
        ck_assert_msg(stepper_finish(&team[i], WAIT_S), "rank %d stands still at step %lu", i,
                      (unsigned long)team[i].page->steps);
        ck_assert_msg(team[i].page->rc == PSC_OK, "rank %d: %s (%s)", i, psc_result_name(team[i].page->rc),
                      team[i].page->error);
        ck_assert_uint_eq(team[i].page->steps, STEPS);
    }
}

/* Where a run ended. */
struct ending {
    float *center;
    uint64_t digests[WORKERS];
};

static struct ending end_of(struct daemon *d, struct stepper *team)
{
    struct ending e;
    finish_all(team);
    for (int i = 0; i < WORKERS; i++)
        e.digests[i] = team[i].page->digest;
    e.center = stepper_center(d, FLOATS);
    daemon_remove(d);
    return e;
}

static struct ending run_job(const char *const *settings, int first, uint32_t nap_us)
{
    struct daemon d;
    struct stepper team[WORKERS];
    start(&d, settings);
    start_all(&d, team, first, nap_us, false, 0);
    return end_of(&d, team);
}

static void assert_same(struct ending *a, struct ending *b, const char *method, size_t row)
{
    for (int i = 0; i < FLOATS; i++)
        if (memcmp(&a->center[i], &b->center[i], sizeof *a->center) != 0)
            ck_abort_msg("%s (row %zu): center[%d] is %.9g, then %.9g", method, row, i, (double)a->center[i],
                         (double)b->center[i]);
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(a->digests[i] == b->digests[i], "%s (row %zu): rank %d ended at another x", method, row,
                      i);
    free(a->center);
    free(b->center);
}

START_TEST(the_order_of_arrival_changes_no_bit)
{
    for (size_t i = 0; i < ROWS(methods); i++) {
        struct ending a = run_job(methods[i], 0, 2000), b = run_job(methods[i], 2, 500);
        ck_assert_float_ne(a.center[0], a.center[1]); /* something happened */
        assert_same(&a, &b, methods[i][4], i);
    }
}
END_TEST

START_TEST(rounds_of_everybody_are_those_of_sync)
{
    for (size_t i = 0; i < ROWS(alike); i++) {
        struct ending a = run_job(alike[i][0], 0, 500), b = run_job(alike[i][1], 1, 500);
        assert_same(&a, &b, alike[i][1][4], i);
    }
}
END_TEST

static bool in_turns(const char *const *settings)
{
    return strcmp(settings[4], "method=original-easgd") == 0 || strcmp(settings[4], "method=admm") == 0 ||
           strcmp(settings[5], "admission=round-robin") == 0;
}

/* Then a worker hears of a checkpoint while its answer travels, at a step of its own. */
static bool takes_many_steps(const char *const *settings)
{
    for (int i = 0; i < SETTINGS && settings[i] != NULL; i++)
        if (strncmp(settings[i], "overlap=", 8) == 0 && strcmp(settings[i], "overlap=true") != 0)
            return true;
    return false;
}

/* Everybody dies some rounds after the checkpoint's. It is asked for while nobody goes beyond a step, and
 * nobody takes the last one. */
static struct ending run_killed(const char *const *settings)
{
    struct daemon d;
    struct stepper team[WORKERS];
    start(&d, settings);
    start_all(&d, team, 0, 2000, false, KILLED_FROM);
    ck_assert_msg(stepper_begins(&team[0], KILLED_FROM + 1, WAIT_S), "%s", team[0].page->error);
    free(daemon_ask(&d, "POST", "/checkpoint"));
    for (int i = 0; i < WORKERS; i++)
        stepper_hold_at(&team[i], STEPS - 1);
    ck_assert(daemon_will_log(&d, "checkpoint.written", WAIT_S));
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(stepper_saved(&team[i], WAIT_S), "rank %d saved nothing: %s", i, team[i].page->error);
    double version = daemon_number(&d, "/status", "checkpoint.last_version");
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(stepper_reaches(&team[i], team[i].page->saved_at + 3, WAIT_S), "rank %d: %s", i,
                      team[i].page->error);
    for (int i = 0; i < WORKERS; i++) {
        stepper_kill(&team[i]);
        /* In round-robin order each exchange is a version: lanes count it one after the other, and the loop
         * reads it when all have copied. */
        double saved = (double)team[i].page->saved, off = fabs(saved - version);
        ck_assert_msg(in_turns(settings) ? off < 2 * WORKERS : off == 0,
                      "%s: the checkpoint is of version %.0f, rank %d saved for %.0f", settings[4], version,
                      i, saved);
        if (!takes_many_steps(settings))
            ck_assert_uint_eq(team[i].page->saved_at, team[0].page->saved_at);
        ck_assert_uint_lt(team[i].page->steps, STEPS);
    }
    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    start_all(&d, team, 1, 500, true, 0);
    return end_of(&d, team);
}

START_TEST(a_resumed_run_ends_as_if_nothing_had_been)
{
    for (size_t i = 0; i < ROWS(methods); i++) {
        struct ending a = run_job(methods[i], 0, 500), b = run_killed(methods[i]);
        assert_same(&a, &b, methods[i][4], i);
    }
}
END_TEST

/* Whole numbers that are summed (rule add): the center says whose messages landed, and how often. */
static const char *const sums[] = {
    COMMON, "method=downpour", "admission=sync", "period=1", "workers=3", TIMELAPSE_SILENCE, NULL};

static void start_crew(const struct daemon *d, struct crew_worker *crew, int first, int end, uint64_t count)
{
    for (int i = first; i < end; i++) {
        struct crew_task task = {.server = d->endpoint,
                                 .rank = i,
                                 .floats = FLOATS,
                                 .count = count,
                                 .heartbeat_ms = 50,
                                 .salt = (uint32_t)i};
        crew_start(&crew[i], &task);
    }
}

static void assert_go_on(const struct crew_worker *w, uint64_t exchanges)
{
    ck_assert_msg(crew_reaches(w, w->page->exchanges + exchanges, WAIT_S), "rank %d stands still: %s (%s)",
                  w->page->rank, psc_result_name(w->page->rc), w->page->error);
}

static void assert_ended_well(struct crew_worker *w)
{
    ck_assert(crew_stop(w, WAIT_S));
    ck_assert_msg(w->page->rc == PSC_OK, "rank %d: %s (%s)", w->page->rank, psc_result_name(w->page->rc),
                  w->page->error);
}

/* The sum over the n workers of crew, one of whom (`lost`, or -1) died on the way: its last message, which no
 * answer of came, counts where it arrived before. */
static void assert_sum(const struct daemon *d, const struct crew_worker *crew, int n, int lost)
{
    float *center = stepper_center(d, FLOATS);
    for (uint64_t i = 0; i < FLOATS; i++) {
        double want = 0, last = 0;
        for (int w = 0; w < n; w++)
            want += crew_sum((uint32_t)w, crew[w].page->exchanges, i);
        if (lost >= 0)
            last = (double)crew_value((uint32_t)lost, crew[lost].page->exchanges, i);
        if ((double)center[i] != want && (double)center[i] != want + last)
            ck_abort_msg("value %lu is %.1f; the exchanges sum to %.1f (and %.1f)", (unsigned long)i,
                         (double)center[i], want, last);
    }
    free(center);
}

/* While the one that is gone is in the job, the other completes no round beyond its last: one more than it
 * knew of, when its last message was on its way. */
static void assert_wait_for(const struct daemon *d, const struct crew_worker *gone,
                            const struct crew_worker *other)
{
    uint64_t reached = other->page->exchanges;
    if (daemon_logged(d, "session.ended") == 0)
        ck_assert_uint_le(reached, gone->page->exchanges + 1);
}

/* The others wait for rank 1 until it is given up; crew[3] takes its place then. */
static void rounds_go_on_without(int signal_number)
{
    struct daemon d;
    struct crew_worker crew[4];
    static const int others[] = {0, 2};
    ck_assert_int_eq(daemon_prepare(&d, NULL, sums), 0);
    struct shim_page *page = timelapse_prepare(&d);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    shim_unset();
    start_crew(&d, crew, 0, 3, 0);
    for (int i = 0; i < 3; i++)
        assert_go_on(&crew[i], 20);
    crew_signal(&crew[1], signal_number);
    ck_assert(shim_pass(page, &d, 5, others, ROWS(others)));
    assert_wait_for(&d, &crew[1], &crew[0]);
    assert_wait_for(&d, &crew[1], &crew[2]);
    timelapse_until_given_up(&d, page, others, ROWS(others));
    assert_go_on(&crew[0], 20);
    assert_go_on(&crew[2], 20);

    struct crew_task heir = {
        .server = d.endpoint, .rank = 1, .floats = FLOATS, .heartbeat_ms = 50, .salt = 3};
    crew_start(&crew[3], &heir);
    ck_assert_msg(crew_joined(&crew[3], WAIT_S), "%s", crew[3].page->error);
    for (int i = 0; i < 4; i++)
        if (i != 1)
            assert_go_on(&crew[i], 20);
    if (signal_number == SIGSTOP) {
        crew_signal(&crew[1], SIGCONT);
        ck_assert_msg(crew_ended(&crew[1], WAIT_S), "the evicted rank 1 goes on");
        ck_assert_msg(crew[1].page->rc == PSC_EEVICTED, "%s: %s", psc_result_name(crew[1].page->rc),
                      crew[1].page->error);
    }
    for (int i = 0; i < 4; i++)
        if (i != 1)
            assert_ended_well(&crew[i]);
    crew_kill(&crew[1]);
    assert_sum(&d, crew, 4, 1);
    daemon_remove(&d);
}

START_TEST(a_killed_member_is_waited_for_no_longer_than_silence)
{
    rounds_go_on_without(SIGKILL);
}
END_TEST

START_TEST(a_stopped_member_is_evicted_and_told)
{
    rounds_go_on_without(SIGSTOP);
}
END_TEST

/* Nine come and go, three of them at the start. */
START_TEST(members_come_and_go_between_rounds)
{
    struct daemon d;
    struct crew_worker crew[9];
    start(&d, sums);
    start_crew(&d, crew, 0, 3, 300);
    for (int i = 0; i < 3; i++)
        assert_go_on(&crew[i], 20);
    for (int i = 3; i < 9; i++) {
        start_crew(&d, crew, i, i + 1, (uint64_t)(40 * i));
        ck_assert_msg(crew_reaches(&crew[i], 1, WAIT_S), "rank %d: %s", i, crew[i].page->error);
    }
    for (int i = 0; i < 9; i++) {
        ck_assert_msg(crew_ended(&crew[i], WAIT_S), "rank %d stands still after %lu exchanges", i,
                      (unsigned long)crew[i].page->exchanges);
        assert_ended_well(&crew[i]);
        ck_assert_uint_eq(crew[i].page->exchanges, i < 3 ? 300 : (uint64_t)(40 * i));
    }
    assert_sum(&d, crew, 9, -1);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        the_order_of_arrival_changes_no_bit,       rounds_of_everybody_are_those_of_sync,
        a_resumed_run_ends_as_if_nothing_had_been, a_killed_member_is_waited_for_no_longer_than_silence,
        a_stopped_member_is_evicted_and_told,      members_come_and_go_between_rounds,
    };
    return suite_run("rounds", tests, sizeof tests / sizeof *tests, 550);
}
