/* Who may send what in a round, in which order it is applied, and by how much each counts. Messages are whole
 * numbers and rates powers of two, so that centers are exact. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/system/daemon.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"

enum { FLOATS = 12000, WORKERS = 3, ROUNDS = 5, WAIT_S = 60 }; /* two lanes of two chunks */

#define COMMON                                                                                               \
    "schedule={kind: constant, warmup_steps: 0}", "checkpoint.every_s=0", "chunk_floats=4096", "lanes=2"

static void start(struct daemon *d, const char *const *settings)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

/* Two tensors of half the floats each, offered as zeros. Returns what psc_open or psc_begin does. */
static int join(const struct daemon *d, int rank, struct psc **c)
{
    const struct psc_tensor tensors[] = {{"a", 0, {FLOATS / 2}, 1, PSC_PARAM, PSC_NO_DECAY},
                                         {"b", FLOATS / 2, {FLOATS / 2}, 1, PSC_PARAM, PSC_NO_DECAY}};
    float *x = calloc(FLOATS, sizeof *x);
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.rank = rank;
    opt.heartbeat_ms = 8000; /* psd may stand still for long before an exchange is sent again, which is */
    opt.retry_ms = 60000;    /* answered with another center */
    int rc = psc_open(&opt, c);
    if (rc == PSC_OK)
        rc = psc_begin(*c, tensors, 2, x);
    free(x);
    return rc;
}

/* A worker whose messages are one number everywhere. */
struct talker {
    const struct daemon *d;
    int rank;
    double delay_s; /* before each message */
    float says;
    size_t samples;
    float heard[ROUNDS];
    pthread_t thread;
};

static void *talk(void *talker_arg)
{
    struct talker *t = talker_arg;
    struct psc *c = NULL;
    float *message = calloc(FLOATS, sizeof *message), *answer = calloc(FLOATS, sizeof *answer);
    ck_assert_msg(join(t->d, t->rank, &c) == PSC_OK, "%s", psc_error(c));
    for (int i = 0; i < FLOATS; i++)
        message[i] = t->says;
    for (int k = 0; k < ROUNDS; k++) {
        test_nap_s(t->delay_s);
        ck_assert_msg(psc_exchange(c, message, answer, t->samples) == PSC_OK, "%s", psc_error(c));
        for (int i = 0; i < FLOATS; i++)
            assert_quick(memcmp(&answer[i], &answer[0], sizeof *answer) == 0);
        t->heard[k] = answer[0];
    }
    psc_close(c);
    free(message);
    free(answer);
    return NULL;
}

/* The later its rank, the sooner each comes, as a rule: what is computed does not depend on it. */
static void talk_all(struct talker *t, const struct daemon *d)
{
    for (int i = 0; i < WORKERS; i++) {
        t[i].d = d;
        t[i].rank = i;
        t[i].delay_s = 0.02 * (WORKERS - i);
        ck_assert_int_eq(pthread_create(&t[i].thread, NULL, talk, &t[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(t[i].thread, NULL);
}

START_TEST(round_robin_applies_by_rank)
{
    struct daemon d;
    struct talker t[WORKERS] = {
        {.says = 8, .samples = 1}, {.says = -4, .samples = 1}, {.says = 6, .samples = 1}};
    float center = 0;
    start(&d, (const char *[]){COMMON, "method=original-easgd", "serial=false", "alpha=0.5", "period=1",
                               "workers=3", NULL});
    talk_all(t, &d);
    for (int k = 0; k < ROUNDS; k++)
        for (int i = 0; i < WORKERS; i++) {
            ck_assert_msg(t[i].heard[k] == center, "round %d, rank %d: %.9g, not %.9g", k, i,
                          (double)t[i].heard[k], (double)center);
            center += 0.5f * (t[i].says - center);
        }
    daemon_remove(&d);
}
END_TEST

/* (1 * 1 + 2 * 2 + 4 * 5) / 8 */
START_TEST(a_round_of_gradients_is_their_mean_over_samples)
{
    struct daemon d;
    struct talker t[WORKERS] = {
        {.says = 1, .samples = 1}, {.says = 2, .samples = 2}, {.says = 4, .samples = 5}};
    start(&d, (const char *[]){COMMON, "method=sync-sgd", "learning_rate=1", "workers=3", NULL});
    talk_all(t, &d);
    for (int k = 0; k < ROUNDS; k++)
        for (int i = 0; i < WORKERS; i++)
            ck_assert_float_eq(t[i].heard[k], -3.125f * (float)(k + 1));
    daemon_remove(&d);
}
END_TEST

/* Both exchanges of one round at once; answers are the center before. */
static void exchange_two(struct psc **c, const float *says, float *heard)
{
    float *message[2], *answer[2];
    for (int i = 0; i < 2; i++) {
        message[i] = calloc(FLOATS, sizeof *message[i]);
        answer[i] = calloc(FLOATS, sizeof *answer[i]);
        for (int k = 0; k < FLOATS; k++)
            message[i][k] = says[i];
        ck_assert_int_eq(psc_exchange_start(c[i], message[i], answer[i], 1, NULL), PSC_OK);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(psc_wait(c[i], PSC_ALL) == PSC_OK, "%s", psc_error(c[i]));
        heard[i] = answer[i][FLOATS - 1];
        free(message[i]);
        free(answer[i]);
    }
}

/* beta = 1/2: alpha is 1/2 alone and 1/4 of two. Lanes begin no round between the log's line and the loop's
 * word of who takes part. */
START_TEST(alpha_follows_the_members)
{
    struct daemon d;
    struct psc *c[2];
    float says[2] = {8, 12}, heard[2], *x = calloc(FLOATS, sizeof *x),
          *answer = calloc(FLOATS, sizeof *answer);
    start(&d, (const char *[]){COMMON, "method=sync-easgd", "beta=0.5", "period=1", "workers=1", NULL});
    ck_assert_int_eq(join(&d, 0, &c[0]), PSC_OK);
    for (int i = 0; i < FLOATS; i++)
        x[i] = 8;
    ck_assert_msg(psc_exchange(c[0], x, answer, 1) == PSC_OK, "%s", psc_error(c[0]));
    ck_assert_int_eq(join(&d, 1, &c[1]), PSC_OK);
    ck_assert(daemon_will_log(&d, "2 workers take part", WAIT_S));
    exchange_two(c, says, heard);
    ck_assert_float_eq(heard[0], 4); /* 0 + (8 - 0) / 2 */
    ck_assert_float_eq(heard[1], 4);
    exchange_two(c, says, heard);
    ck_assert_float_eq(heard[0], 7); /* 4 + (8 - 4) / 4 + (12 - 4) / 4 */
    psc_close(c[1]);                 /* rounds that are not complete lack it */
    ck_assert_msg(psc_exchange(c[0], x, answer, 1) == PSC_OK, "%s", psc_error(c[0]));
    ck_assert_float_eq(answer[0], 8.5f); /* 7 + (8 - 7) / 4 + (12 - 7) / 4 */
    ck_assert_int_eq(psc_pull(c[0], NULL, answer), PSC_OK);
    ck_assert_float_eq(answer[0], 8.25f); /* 8.5 + (8 - 8.5) / 2 */
    psc_close(c[0]);
    daemon_remove(&d);
    free(x);
    free(answer);
}
END_TEST

enum { STEPS = 40 };

static void start_in_turns(struct daemon *d, struct stepper *team, const char *serial, const char *overlap,
                           uint64_t first_held_at)
{
    start(d, (const char *[]){COMMON, "method=original-easgd", "learning_rate=0.05", "alpha=0.5", "period=1",
                              "workers=3", serial, overlap, NULL});
    for (int i = 0; i < WORKERS; i++) {
        struct stepper_task task = {.server = d->endpoint,
                                    .rank = i,
                                    .floats = FLOATS,
                                    .steps = STEPS,
                                    .samples = 1,
                                    .nap_us = 4000,
                                    .held_at = i == 0 ? first_held_at : 0};
        stepper_start(&team[i], &task);
    }
}

static void end_in_turns(struct daemon *d, struct stepper *team)
{
    for (int i = 0; i < WORKERS; i++) {
        ck_assert(stepper_finish(&team[i], WAIT_S));
        ck_assert_msg(team[i].page->rc == PSC_OK, "rank %d: %s", i, team[i].page->error);
    }
    daemon_remove(d);
}

/* Steps of which another worker's gradient was computed meanwhile; the first are everyone's own. */
static unsigned steps_beside_others(const struct stepper *team)
{
    unsigned n = 0;
    for (int t = WORKERS; t < WORKERS * STEPS; t++) {
        const struct stepper_page *p = team[t % WORKERS].page, *before = team[(t - 1) % WORKERS].page;
        n += p->computes_from[t / WORKERS] < before->until[(t - 1) / WORKERS];
    }
    return n;
}

/* Else all compute at a time: the others begin the step that rank 0 is held in. */
START_TEST(serial_lets_one_worker_compute_at_a_time)
{
    enum { HELD_AT = STEPS / 2 };
    struct daemon d;
    struct stepper team[WORKERS];
    for (int overlap = 0; overlap < 2; overlap++) {
        start_in_turns(&d, team, "serial=true", overlap ? "overlap=true" : "overlap=false", 0);
        end_in_turns(&d, team);
        ck_assert_uint_eq(steps_beside_others(team), 0);
    }

    start_in_turns(&d, team, "serial=false", "overlap=false", HELD_AT);
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(stepper_begins(&team[i], HELD_AT + 1, WAIT_S), "rank %d waits with its gradient", i);
    ck_assert_uint_eq(team[0].page->steps, HELD_AT);
    stepper_hold_at(&team[0], UINT64_MAX);
    end_in_turns(&d, team);
}
END_TEST

static void assert_refused(const struct psc *c, int rc, const char *part)
{
    ck_assert_msg(rc < 0, "%s", psc_result_name(rc));
    ck_assert_msg(rc == PSC_EREFUSED || rc == PSC_EUNSUPPORTED || rc == PSC_EINVAL, "%s: %s",
                  psc_result_name(rc), psc_error(c));
    assert_says(psc_error(c), part);
}

/* A round moves the whole vector, or its keys in order: another part has no place there, and the job goes on.
 */
static void refuses_parts(const char *const *settings, const char *says)
{
    struct daemon d;
    struct psc *c = NULL;
    float *g = calloc(FLOATS, sizeof *g), *answer = calloc(FLOATS, sizeof *answer);
    start(&d, settings);
    ck_assert_msg(join(&d, 0, &c) == PSC_OK, "%s", psc_error(c));
    for (int i = 0; i < FLOATS; i++)
        g[i] = 1;
    assert_refused(c, psc_push(c, "b", g, 1), says);
    assert_refused(c, psc_pushpull(c, "b", g, answer, 1), says);
    ck_assert_int_eq(psc_pull(c, "b", answer), PSC_OK);
    ck_assert_float_eq(answer[0], 0);
    ck_assert_msg(psc_exchange(c, g, answer, 1) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_pull(c, NULL, answer) == PSC_OK, "%s", psc_error(c));
    for (int i = 0; i < FLOATS; i++)
        assert_quick(answer[i] == -1);
    psc_close(c);
    daemon_remove(&d);
    free(g);
    free(answer);
}

START_TEST(a_round_takes_no_other_part_of_the_vector)
{
    refuses_parts((const char *[]){COMMON, "method=sync-sgd", "learning_rate=1", "workers=1", NULL},
                  "next is key 'a'");
    refuses_parts((const char *[]){COMMON, "method=async-sgd", "admission=round-robin", "learning_rate=1",
                                   "workers=1", NULL},
                  "next is key 'a'");
    refuses_parts(
        (const char *[]){COMMON, "method=backup-sgd", "backup=0", "learning_rate=1", "workers=1", NULL},
        "the whole vector");
}
END_TEST

static bool is_in_state(const struct daemon *d, const char *rank, const char *want, double seconds)
{
    char path[32], found[32] = "";
    double end = test_now_s() + test_slow_s(seconds);
    snprintf(path, sizeof path, "workers.%s.state", rank);
    while (!daemon_text(d, "/workers", path, found, sizeof found) || strcmp(found, want) != 0) {
        if (test_now_s() > end)
            return false;
        test_nap_s(0.02);
    }
    return true;
}

/* What psctl workers says of a round that is not complete. */
START_TEST(who_waits_is_told_from_who_is_waited_for)
{
    struct daemon d;
    struct psc *c[2];
    uint64_t ticket;
    float *message = calloc(FLOATS, sizeof *message), *answer = calloc(FLOATS, sizeof *answer);
    start(&d, (const char *[]){COMMON, "method=sync-sgd", "learning_rate=1", "workers=2", NULL});
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(join(&d, i, &c[i]), PSC_OK);
    ck_assert_msg(psc_exchange_start(c[0], message, answer, 1, &ticket) == PSC_OK, "%s", psc_error(c[0]));
    ck_assert(is_in_state(&d, "0", "waits", WAIT_S));
    ck_assert(is_in_state(&d, "1", "active", WAIT_S));
    ck_assert_msg(psc_exchange(c[1], message, answer, 1) == PSC_OK, "%s", psc_error(c[1]));
    ck_assert_int_eq(psc_wait(c[0], ticket), PSC_OK);
    ck_assert(is_in_state(&d, "0", "active", WAIT_S));
    for (int i = 0; i < 2; i++)
        psc_close(c[i]);
    daemon_remove(&d);
    free(message);
    free(answer);
}
END_TEST

/* Each worker of ADMM has its part in the center: p stays. Another rate changes nothing of that. */
START_TEST(admm_takes_no_fifth_worker)
{
    enum { P = 4 };
    struct daemon d;
    struct psc *c[P + 1] = {NULL}, *again = NULL;
    start(&d, (const char *[]){COMMON, "method=admm", "learning_rate=0.05", "rho=2.5", "workers=4", NULL});
    for (int i = 0; i < P; i++)
        ck_assert_msg(join(&d, -1, &c[i]) == PSC_OK, "%s", psc_error(c[i]));
    int rc = join(&d, -1, &c[P]);
    ck_assert_msg(rc < 0, "a fifth has joined");
    assert_says(psc_error(c[P]), "admm");
    assert_says(psc_error(c[P]), "4");
    free(daemon_ask(&d, "POST", "/evict?rank=3"));
    ck_assert(daemon_will_log(&d, "session.part", WAIT_S));
    free(daemon_ask(&d, "POST", "/set?lines=learning_rate%3D0.1"));
    ck_assert(daemon_will_log(&d, "job.swapped", WAIT_S));
    ck_assert_msg(join(&d, P - 1, &again) < 0, "another has its rank");
    assert_says(psc_error(again), "rank 3 was lost");
    psc_close(again);
    for (int i = 0; i <= P; i++)
        psc_close(c[i]);
    daemon_remove(&d);
}
END_TEST

/* Who is lost while the job waits for its workers has no part in the center, which nobody has moved. */
START_TEST(admm_replaces_who_was_lost_before_it_began)
{
    struct daemon d;
    struct psc *c[2] = {NULL}, *again = NULL;
    start(&d, (const char *[]){COMMON, "method=admm", "learning_rate=0.05", "rho=2.5", "workers=3", NULL});
    for (int i = 0; i < 2; i++)
        ck_assert_msg(join(&d, i, &c[i]) == PSC_OK, "%s", psc_error(c[i]));
    free(daemon_ask(&d, "POST", "/evict?rank=1"));
    ck_assert(daemon_will_log(&d, "session.ended", WAIT_S));
    ck_assert_msg(join(&d, 1, &again) == PSC_OK, "%s", psc_error(again));
    psc_close(again);
    for (int i = 0; i < 2; i++)
        psc_close(c[i]);
    daemon_remove(&d);
}
END_TEST

/* A job changes to admm when one of two workers is there: the one that joins later begins at the same center.
 */
START_TEST(admm_begins_with_all_of_its_workers)
{
    struct daemon d;
    struct psc *c[2];
    uint64_t ticket;
    float *message = calloc(FLOATS, sizeof *message), *answer = calloc(FLOATS, sizeof *answer),
          *first = calloc(FLOATS, sizeof *first);
    start(&d, (const char *[]){COMMON, "method=async-sgd", "learning_rate=1", NULL});
    ck_assert_msg(join(&d, 0, &c[0]) == PSC_OK, "%s", psc_error(c[0]));
    ck_assert_msg(psc_step(c[0], message, answer, 1) == PSC_OK, "%s", psc_error(c[0]));
    ck_assert_msg(psc_set_method(c[0], "method=admm\nworkers=2\nrho=1") == PSC_OK, "%s", psc_error(c[0]));
    for (int k = 0; k < FLOATS; k++)
        message[k] = 2;
    ck_assert_msg(psc_exchange_start(c[0], message, first, 1, &ticket) == PSC_OK, "%s", psc_error(c[0]));
    ck_assert(is_in_state(&d, "0", "waits", WAIT_S));
    ck_assert_msg(join(&d, 1, &c[1]) == PSC_OK, "%s", psc_error(c[1]));
    ck_assert_msg(psc_exchange(c[1], message, answer, 1) == PSC_OK, "%s", psc_error(c[1]));
    ck_assert_float_eq(answer[0], 1); /* eta rho is 1, so that kappa is 0: 2 / 2 of the other's message */
    ck_assert_int_eq(psc_wait(c[0], ticket), PSC_OK);
    ck_assert_float_eq(first[0], 0); /* the center before */
    for (int i = 0; i < 2; i++)
        psc_close(c[i]);
    daemon_remove(&d);
    free(message);
    free(answer);
    free(first);
}
END_TEST

/* A worker of downpour that has not sent its last steps, and goes on under admm. */
struct seeker {
    struct psc *c;
    float x[FLOATS], g[FLOATS], goal;
    int steps;
    pthread_t thread;
};

static void *seek(void *seeker_arg)
{
    struct seeker *s = seeker_arg;
    for (int t = 0; t < s->steps; t++) {
        for (int i = 0; i < FLOATS; i++)
            s->g[i] = s->x[i] - s->goal;
        ck_assert_msg(psc_step(s->c, s->x, s->g, 1) == PSC_OK, "%s", psc_error(s->c));
    }
    return NULL;
}

/* The workers' gradients sum to 0 at the center alone that they have in common: otherwise it was not the mean
 * of their shares. */
START_TEST(unsent_steps_do_not_part_admms_workers)
{
    enum { P = 2, LONG_ENOUGH = 300 };
    static struct seeker s[P] = {{.goal = 1}, {.goal = 3}};
    static float center[FLOATS];
    struct daemon d;
    start(&d, (const char *[]){COMMON, "method=downpour", "learning_rate=0.25", "period=4", NULL});
    for (int i = 0; i < P; i++) {
        ck_assert_msg(join(&d, i, &s[i].c) == PSC_OK, "%s", psc_error(s[i].c));
        s[i].steps = 2;
        seek(&s[i]);
    }
    ck_assert_msg(psc_set_method(s[0].c, "method=admm\nworkers=2\nrho=2\nperiod=preset") == PSC_OK, "%s",
                  psc_error(s[0].c));
    for (int i = 0; i < P; i++) {
        s[i].steps = LONG_ENOUGH;
        ck_assert_int_eq(pthread_create(&s[i].thread, NULL, seek, &s[i]), 0);
    }
    for (int i = 0; i < P; i++)
        pthread_join(s[i].thread, NULL);
    ck_assert_int_eq(psc_pull(s[0].c, NULL, center), PSC_OK);
    for (int i = 0; i < FLOATS; i++)
        ck_assert_msg(fabsf(center[i] - 2) < 1e-4f, "[%d] ends at %.9g", i, (double)center[i]);
    for (int i = 0; i < P; i++)
        psc_close(s[i].c);
    daemon_remove(&d);
}
END_TEST

/* psd keeps what each of so many ranks saw: no more, but one that went may be followed by another. */
START_TEST(dc_asgd_has_as_many_ranks_as_workers)
{
    struct daemon d;
    struct psc *c[3] = {NULL}, *again = NULL;
    start(&d, (const char *[]){COMMON, "method=dc-asgd", "learning_rate=0.05", "workers=2", NULL});
    for (int i = 0; i < 2; i++)
        ck_assert_msg(join(&d, i, &c[i]) == PSC_OK, "%s", psc_error(c[i]));
    ck_assert_msg(join(&d, 2, &c[2]) < 0, "a third has joined");
    assert_says(psc_error(c[2]), "rank 2: rule dc-asgd has a fixed number of 2 workers");
    psc_close(c[1]);
    ck_assert(daemon_will_log(&d, "session.ended", WAIT_S));
    ck_assert_msg(join(&d, 1, &again) == PSC_OK, "%s", psc_error(again));
    psc_close(again);
    psc_close(c[2]);
    psc_close(c[0]);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        serial_lets_one_worker_compute_at_a_time,
        who_waits_is_told_from_who_is_waited_for,
        round_robin_applies_by_rank,
        a_round_of_gradients_is_their_mean_over_samples,
        alpha_follows_the_members,
        a_round_takes_no_other_part_of_the_vector,
        admm_takes_no_fifth_worker,
        admm_replaces_who_was_lost_before_it_began,
        admm_begins_with_all_of_its_workers,
        unsent_steps_do_not_part_admms_workers,
        dc_asgd_has_as_many_ranks_as_workers,
    };
    return suite_run("turns", tests, sizeof tests / sizeof *tests, 500);
}
