/* SIGTERM to members of cliques of psworkers, at slightly different moments: all stop after the same step,
 * from which a resume goes on; without psd with the bits of a run that nobody stopped. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/pause.h"
#include "tests/support/suite.h"
#include "tests/support/system/daemon.h"
#include "tests/support/unit.h"
#include "tests/system/ring_members.h"

/* Steps take STEP_MS, as long as nobody is asked to stop. The first signal comes after some steps, the others
 * within a few each. */
enum { FIRST_NAP_MS = 60, MOST_NAP_MS = 30, MORE_STEPS = 12 };
#define STEP_MS "4"
#define ENDLESS "1000000000"

struct row {
    const char *what;
    const char *settings[6]; /* of psd; none: there is none */
    const char *options[10]; /* of psworker */
    int members;
    bool exact;   /* with the bits of a run that was not stopped */
    bool shrinks; /* a member that is asked alone leaves */
};

#define PIPE   "--method", "pipe-sgd", "--pipeline", "4", "--pipeline-warmup", "3", "--every", "3600"
#define SHRINK "--on-loss", "shrink"

static const struct row rows[] = {
    {"pipe-sgd without psd", {NULL}, {PIPE}, .members = 4, .exact = true},
    {"pipe-sgd that shrinks", {NULL}, {PIPE, SHRINK}, .members = 3, .shrinks = true},
    {"mpi-asgd", {"method=mpi-asgd", "parameters.learning_rate=0.01"}, {NULL}, .members = 3},
    {"sync-easgd of vectors",
     {"method=sync-easgd", "clique.mode=vectors", "parameters.period=3", "parameters.overlap=true"},
     {NULL},
     .members = 3},
};

static struct daemon d;
static struct ring ring;
static struct dice dice;

static void begin(const struct row *r)
{
    static const char *settings[8];
    int n = 0;
    dice.state = (uint64_t)getpid();
    settings[n++] = "checkpoint.every_s=0";
    for (size_t i = 0; i < ROWS(r->settings) && r->settings[i] != NULL; i++)
        settings[n++] = r->settings[i];
    settings[n] = NULL;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    if (r->settings[0] != NULL)
        ck_assert_int_eq(daemon_start(&d, NULL), 0);
}

static void train(const struct row *r, const char *steps, const char *step_ms)
{
    const char *options[RING_MOST_OPTIONS] = {"--steps",          steps, "--step-ms", step_ms,
                                              "--clique-timeout", "600"};
    size_t n = 6;
    for (size_t i = 0; i < ROWS(r->options) && r->options[i] != NULL; i++)
        options[n++] = r->options[i];
    if (r->settings[0] != NULL) {
        options[n++] = "--server";
        options[n++] = d.endpoint;
    }
    options[n] = NULL;
    ring_start(&ring, d.dir, r->members, options);
}

/* To all members but one, which may be -1, from a random one on. */
static void ask_all_but(int one)
{
    int first = (int)dice_below(&dice, (uint64_t)ring.n);
    for (int k = 0; k < ring.n; k++) {
        int i = (first + k) % ring.n;
        unit_nap_ms((long)dice_below(&dice, MOST_NAP_MS));
        if (i != one)
            ck_assert_int_eq(kill(ring.member[i].pid, SIGTERM), 0);
    }
}

static void expect_exits(int but, int status)
{
    for (int i = 0; i < ring.n; i++)
        if (i != but)
            ring_expect_exit(&ring, i, status);
}

/* The step that the states of all members but one are of. */
static uint64_t common_step(int but)
{
    static struct ring_state s;
    uint64_t step = 0;
    for (int i = 0; i < ring.n; i++) {
        if (i == but)
            continue;
        ring_read_state(&ring, i, &s);
        ck_assert_uint_gt(s.clock, 0);
        ck_assert_uint_eq(s.clock, s.steps);
        ck_assert_msg(step == 0 || s.clock == step, "member %d has saved step %llu, another one %llu", i,
                      (unsigned long long)s.clock, (unsigned long long)step);
        step = s.clock;
    }
    return step;
}

/* Trains to the end, from the states or without them; they are in *out afterwards. */
static void train_to(const struct row *r, uint64_t step, struct ring_state *out)
{
    char steps[24];
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)step);
    train(r, steps, "0");
    expect_exits(-1, 0);
    ck_assert_uint_eq(common_step(-1), step);
    for (int i = 0; i < ring.n; i++)
        ring_read_state(&ring, i, &out[i]);
}

static void compare_with_undisturbed(const struct row *r, uint64_t step, const struct ring_state *resumed)
{
    static struct ring_state whole[RING_MOST];
    char before[140];
    for (int i = 0; i < ring.n; i++) {
        snprintf(before, sizeof before, "%s.before", ring.member[i].state);
        unlink(before);
        unlink(ring.member[i].state);
    }
    train_to(r, step, whole);
    for (int i = 0; i < ring.n; i++) {
        ck_assert_uint_eq(whole[i].bytes, resumed[i].bytes);
        ck_assert_msg(memcmp(whole[i].file, resumed[i].file, whole[i].bytes) == 0,
                      "member %d: the state differs from that of an undisturbed run", i);
    }
}

/* false: on a machine that stood still, one was alone for too long. */
static bool stop_and_resume(const struct row *r)
{
    static struct ring_state resumed[RING_MOST];
    begin(r);
    train(r, ENDLESS, STEP_MS);
    unit_nap_ms(FIRST_NAP_MS);
    ask_all_but(-1);
    expect_exits(-1, 0);
    bool together = !r->shrinks || !ring_says(&ring, 0, "the clique has lost");
    if (together) {
        uint64_t step = common_step(-1);
        train_to(r, step + MORE_STEPS, resumed);
        if (r->exact)
            compare_with_undisturbed(r, step + MORE_STEPS, resumed);
    }
    daemon_remove(&d);
    return together;
}

START_TEST(members_that_are_asked_to_stop_save_the_same_step)
{
    while (!stop_and_resume(&rows[_i]))
        ;
}
END_TEST

/* A signal to one of them is enough where the others could not go on. */
START_TEST(one_signal_stops_all_members)
{
    begin(&rows[0]);
    train(&rows[0], ENDLESS, STEP_MS);
    unit_nap_ms(FIRST_NAP_MS);
    kill(ring.member[2].pid, SIGTERM);
    expect_exits(-1, 0);
    common_step(-1);
    ck_assert(ring_says(&ring, 2, "a signal asked to stop"));
    ck_assert(ring_says(&ring, 0, "another member of the clique was asked to stop"));
    daemon_remove(&d);
}
END_TEST

START_TEST(where_the_others_can_go_on_a_member_leaves_alone)
{
    begin(&rows[1]);
    train(&rows[1], ENDLESS, STEP_MS);
    kill(ring.member[1].pid, SIGTERM);
    ring_expect_exit(&ring, 1, 0);
    static struct ring_state s;
    ring_read_state(&ring, 1, &s);
    ck_assert_uint_eq(s.clock, s.steps);
    ring_await(&ring, 0, "the clique has lost 1 of its members");
    ring_await(&ring, 2, "the clique has lost 1 of its members");
    ask_all_but(1);
    ring_expect_exit(&ring, 0, 0);
    ring_expect_exit(&ring, 2, 0);
    daemon_remove(&d);
}
END_TEST

/* One cannot answer, and dies while the others wait for it. */
START_TEST(a_member_that_dies_meanwhile_keeps_nobody_waiting)
{
    const struct row *r = &rows[_i];
    int lost = r->members - 1, status;
    begin(r);
    train(r, ENDLESS, STEP_MS);
    pause_child(ring.member[lost].pid);
    ask_all_but(lost);
    kill(ring.member[lost].pid, SIGKILL);
    ck_assert_int_eq(waitpid(ring.member[lost].pid, &status, 0), ring.member[lost].pid);
    expect_exits(lost, r->shrinks ? 0 : 8);
    if (r->shrinks)
        common_step(lost);
    else
        ck_assert_int_ne(access(ring.member[0].state, F_OK), 0); /* which would not go with the lost one's */
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clique-stop");
    TCase *c = tcase_create("stop");
    tcase_set_timeout(c, test_slow_s(10 * UNIT_HANG_S));
    tcase_add_loop_test(c, members_that_are_asked_to_stop_save_the_same_step, 0, ROWS(rows));
    tcase_add_test(c, one_signal_stops_all_members);
    tcase_add_test(c, where_the_others_can_go_on_a_member_leaves_alone);
    tcase_add_loop_test(c, a_member_that_dies_meanwhile_keeps_nobody_waiting, 0, 2);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
