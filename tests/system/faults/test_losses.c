/* kill -9 of members of cliques of psworkers at random moments, with on_loss: shrink: those that are left
 * make all their steps, and end with the same bits. If the leader of a client of psd is killed, they end with
 * a sentence instead. PSD_TEST_KILLS: how many kills (scripts/soak); one of each row unless set. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/save_format.h"
#include "tests/support/pause.h"
#include "tests/support/suite.h"
#include "tests/support/system/daemon.h"
#include "tests/support/unit.h"
#include "tests/system/psworker.h"
#include "tests/system/ring_members.h"

/* A step takes at least STEP_MS, so that a kill in the first MOST_NAP_MS is one in the midst of STEPS. */
enum { MOST_NAP_MS = 500 };
#define MEMBERS      3
#define STEPS        250
#define STEP_MS      4
#define TEXT_OF(x)   #x
#define NUMBER(name) TEXT_OF(name)

struct row {
    const char *what;
    const char *settings[4]; /* of psd; none: there is none */
    const char *options[4];  /* of psworker */
    bool shares_x;           /* among the members; else the center */
};

static const struct row rows[] = {
    {"d-sync without psd", {NULL}, {"--method", "d-sync"}, .shares_x = true},
    {"mpi-asgd", {"method=mpi-asgd", "parameters.learning_rate=0.01"}, {NULL}, .shares_x = true},
    {"pipe-sgd without psd", {NULL}, {"--method", "pipe-sgd", "--pipeline", "3"}, .shares_x = true},
    {"mpi-esgd", {"method=mpi-esgd", "parameters.period=4"}, {NULL}, .shares_x = true},
    {"sync-easgd of vectors", {"method=sync-easgd", "clique.mode=vectors", "parameters.period=2"}, {NULL}},
    {"pipe-sgd", {"method=pipe-sgd", "parameters.learning_rate=0.01"}, {NULL}, .shares_x = true},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static struct daemon d;
static struct ring ring;

static bool has_server(const struct row *r)
{
    return r->settings[0] != NULL;
}

static void start_server(const struct row *r)
{
    static const char *settings[12];
    int n = 0;
    settings[n++] = "clique.on_loss=shrink";
    settings[n++] = "checkpoint.every_s=0";
    for (size_t i = 0; i < 4 && r->settings[i] != NULL; i++)
        settings[n++] = r->settings[i];
    settings[n] = NULL;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    if (has_server(r))
        ck_assert_int_eq(daemon_start(&d, NULL), 0);
}

static void start_members(const struct row *r, const char *timeout_s)
{
    const char *const common[] = {"--steps",       NUMBER(STEPS),      "--step-ms",
                                  NUMBER(STEP_MS), "--clique-timeout", timeout_s};
    const char *const without[] = {"--on-loss", "shrink", "--every", "3600"}, *options[RING_MOST_OPTIONS];
    size_t n = 0;
    for (size_t i = 0; i < ROWS(common); i++)
        options[n++] = common[i];
    for (size_t i = 0; i < ROWS(r->options) && r->options[i] != NULL; i++)
        options[n++] = r->options[i];
    for (size_t i = 0; i < ROWS(without) && !has_server(r); i++)
        options[n++] = without[i];
    if (has_server(r)) {
        options[n++] = "--server";
        options[n++] = d.endpoint;
    }
    options[n] = NULL;
    ring_start(&ring, d.dir, MEMBERS, options);
}

/* The vector that all share, of the member's state file. */
static const unsigned char *shared_vector(const struct row *r, int i, size_t *bytes)
{
    static struct ring_state states[MEMBERS];
    struct ring_state *s = &states[i];
    uint64_t before = 0;
    ring_read_state(&ring, i, s);
    ck_assert_uint_eq(s->clock, STEPS);
    if (!r->shares_x) {
        ck_assert(s->flags & PSC_STATE_START);
        before = 1 + ((s->flags & PSC_STATE_X) != 0) + ((s->flags & PSC_STATE_V) != 0);
    }
    *bytes = s->n_floats * sizeof(float);
    ck_assert_uint_le((before + 1) * *bytes, s->bytes);
    const bool message = s->version == PSC_STATE_VERSION; /* else the format before any had one */
    ck_assert(message || s->version < 6);
    return s->file + (message ? PSC_STATE_HEAD_BYTES : PSC_STATE_SHORT_BYTES) + before * *bytes;
}

static void expect_same_bits(const struct row *r, int lost)
{
    const unsigned char *first = NULL;
    size_t bytes;
    for (int i = 0; i < MEMBERS; i++) {
        if (i == lost)
            continue;
        const unsigned char *v = shared_vector(r, i, &bytes);
        ck_assert_msg(first == NULL || memcmp(first, v, bytes) == 0,
                      "%s: without member %d the others differ", r->what, lost);
        first = v;
    }
}

/* psd has been told, and goes on. */
static void expect_told(void)
{
    char *history;
    ck_assert(daemon_will_log(&d, "its clique goes on with 2 of 3 members", UNIT_HANG_S));
    ck_assert_ptr_nonnull(history = daemon_ask(&d, "GET", "/history"));
    ck_assert_ptr_nonnull(strstr(history, "its clique goes on with 2 of 3 members"));
    free(history);
}

/* Without its leader a clique ends, unless it has made all its steps. */
static void expect_end(const struct row *r, int i)
{
    size_t bytes;
    int found = psworker_wait(ring.member[i].pid, 2 * UNIT_HANG_S);
    if (found == 0)
        shared_vector(r, i, &bytes);
    else
        ck_assert_msg(found == 8 && ring_says(&ring, i, "rank 0 of the clique is lost"),
                      "member %d ended with %d; see %s", i, found, ring.member[i].log);
}

/* false: the victim had made its steps already, as on a machine that stood still. */
static bool kill_one(const struct row *r, struct dice *dice)
{
    int lost = (int)dice_below(dice, MEMBERS), status;
    start_server(r);
    start_members(r, "600");
    unit_nap_ms((int)dice_below(dice, MOST_NAP_MS));
    kill(ring.member[lost].pid, SIGKILL);
    ck_assert_int_eq(waitpid(ring.member[lost].pid, &status, 0), ring.member[lost].pid);
    bool killed = WIFSIGNALED(status), ends = killed && has_server(r) && lost == 0;
    printf("%s: member %d was killed\n", r->what, lost);
    for (int i = 0; i < MEMBERS; i++)
        if (i != lost && ends)
            expect_end(r, i);
        else if (i != lost)
            ring_expect_exit(&ring, i, 0);
    if (!ends)
        expect_same_bits(r, killed ? lost : -1);
    if (killed && !ends && has_server(r) && ring_says(&ring, 0, "the clique has lost 1 of its members"))
        expect_told();
    daemon_remove(&d);
    return killed;
}

START_TEST(those_left_end_with_the_same_bits)
{
    const char *wanted = getenv("PSD_TEST_KILLS"), *seed = getenv("PSD_TEST_SEED");
    int kills = wanted != NULL ? atoi(wanted) : N_ROWS;
    struct dice dice = {seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)getpid()};
    printf("seed %llu, %d kills\n", (unsigned long long)dice.state, kills);
    for (int k = 0; k < kills;)
        k += kill_one(&rows[k % N_ROWS], &dice);
}
END_TEST

/* It is silent, is left out, and comes back when the others have gone on. */
START_TEST(a_member_that_was_stopped_is_told)
{
    const struct row *r = &rows[0];
    start_server(r);
    start_members(r, "10"); /* the others answer within that on the slowest machine, too */
    pause_child(ring.member[1].pid);
    ring_expect_exit(&ring, 0, 0);
    ring_expect_exit(&ring, 2, 0);
    expect_same_bits(r, 1);
    kill(ring.member[1].pid, SIGCONT);
    ring_expect_exit(&ring, 1, 8);
    ck_assert(ring_says(&ring, 1, "has gone on without this member"));
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {those_left_end_with_the_same_bits, a_member_that_was_stopped_is_told};
    return suite_run("losses", tests, ROWS(tests),
                     getenv("PSD_TEST_KILLS") != NULL ? 36000 : 4 * UNIT_HANG_S);
}
