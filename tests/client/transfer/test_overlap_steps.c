/* Exchanges that take many steps, with a real psd: against a reference in double precision. Whole numbers and
 * halves are exact, so that a row without momentum has the reference's bits. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "client/save_format.h"
#include "proto/bytes.h"
#include "proto/wire/frame.h"
#include "tests/client/psd_fixture.h"
#include "tests/support/pause.h"
#include "tests/support/system/raw_client.h"

enum { N = RIG_N, PERIOD = 6, STEPS = 4 * PERIOD + 3 };
#define ALPHA 0.5

static struct daemon psd;
static float x[N], g[N], pulled[N], straight[8 * PERIOD][N];
static char path[160];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

/* What the reference keeps of each value. */
static struct {
    double own, v, from, center, m, s; /* from: x as of the last answer, or as it was sent */
    double sent, answer;
} sim[N];
static uint64_t n_moves;
static int64_t lands_at; /* the step that applies the answer; -1: none is on its way */

struct row {
    const char *rule, *overlap, *mix;
    int steps; /* that an exchange takes */
    bool momentum;
};

static const struct row rows[] = {
    {"rule=elastic", "overlap=true", NULL, 1, false},
    {"rule=elastic", "overlap=1", NULL, 1, false},
    {"rule=elastic", "overlap=3", NULL, 3, false},
    {"rule=elastic", "overlap=6", NULL, 6, false},
    {"rule=elastic", "overlap=3", NULL, 3, true},
    {"rule=elastic", "overlap=6", NULL, 6, true},
    {"rule=add", "overlap=true", "mix=0", 1, false},
    {"rule=add", "overlap=3", "mix=0", 3, false},
    {"rule=add", "overlap=6", "mix=0", 6, false},
    {"rule=add", "overlap=3", "mix=0.5", 3, false},
    {"rule=add", "overlap=6", "mix=0.5", 6, true},
    {"rule=outer-nesterov", "overlap=1", "mix=0", 1, false},
    {"rule=outer-nesterov", "overlap=3", "mix=0", 3, false},
    {"rule=outer-nesterov", "overlap=6", "mix=0.5", 6, false},
    {"rule=outer-nesterov", "overlap=3", "mix=0.5", 3, true},
    {"rule=delayed-nesterov", "overlap=1", "mix=0.5", 1, false},
    {"rule=delayed-nesterov", "overlap=3", "mix=0", 3, false},
    {"rule=delayed-nesterov", "overlap=6", "mix=0", 6, false},
};

static bool is_elastic(const struct row *row)
{
    return strcmp(row->rule, "rule=elastic") == 0;
}

/* address: of psd, NULL: any. more: up to two settings, or NULL. */
static void start_psd(const struct row *row, const char *address, const char *const *more)
{
    static const char *settings[26]; /* also for a restart */
    const char *all[] = {"method=custom",
                         "admission=fcfs",
                         "averaging=none",
                         RIG_CUT,
                         "learning_rate=1",
                         "warmup_steps=0",
                         "period=6",
                         "checkpoint.every_s=0",
                         row->rule,
                         row->overlap,
                         row->momentum ? "optimizer=nesterov" : "optimizer=sgd"};
    size_t n = 0;
    memset(settings, 0, sizeof settings);
    for (size_t i = 0; i < ROWS(all); i++)
        settings[n++] = all[i];
    if (is_elastic(row))
        settings[n++] = "alpha=0.5";
    if (strstr(row->rule, "nesterov") != NULL) {
        settings[n++] = "outer_learning_rate=0.5";
        settings[n++] = "outer_momentum=0.5";
    }
    if (strcmp(row->rule, "rule=delayed-nesterov") == 0)
        settings[n++] = "delay=2";
    if (row->momentum)
        settings[n++] = "momentum=0.5";
    if (row->mix != NULL)
        settings[n++] = row->mix;
    for (int i = 0; more != NULL && i < 2 && more[i] != NULL; i++)
        settings[n++] = more[i];
    if (address != NULL)
        settings[n++] = address;
    rig_start(&psd, settings);
    snprintf(path, sizeof path, "%s/worker.state", psd.dir);
}

static struct psc *join(void)
{
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 50);
    return rig_join(&psd, rig_model, RIG_TENSORS, x);
}

static uint32_t role_of(int i)
{
    return (uint32_t)rig_tensor_at((size_t)i)->role;
}

static void gradient(uint64_t t)
{
    for (int i = 0; i < N; i++)
        g[i] = (float)((int)((t * 7 + (uint64_t)i * 3) % 5) - 2);
}

/* The caller's own statistics change at each step. */
static void change_buffers(uint64_t t)
{
    for (int i = 0; i < N; i++)
        if (role_of(i) == PSC_BUFFER) {
            x[i] += (float)(t % 3);
            sim[i].own += (double)(t % 3);
        }
}

static void sim_init(void)
{
    memset(sim, 0, sizeof sim);
    for (int i = 0; i < N; i++)
        sim[i].own = sim[i].from = sim[i].center = (double)x[i];
    n_moves = 0;
    lands_at = -1;
}

/* The rule's equation at the center, of rules that send what x has become. */
static void sim_move(const struct row *row, int i, double move)
{
    bool delayed = strcmp(row->rule, "rule=delayed-nesterov") == 0;
    if (strcmp(row->rule, "rule=add") == 0) {
        sim[i].center += move;
    } else if (!delayed) {
        sim[i].m = 0.5 * sim[i].m - move;
        sim[i].center -= 0.5 * (-move + 0.5 * sim[i].m);
    } else {
        sim[i].center += 0.5 * move / 2;
        sim[i].s -= move;
        if (n_moves % 2 == 0) {
            sim[i].m = 0.5 * sim[i].m + sim[i].s / 2;
            sim[i].center -= 0.5 * 0.5 * sim[i].m;
            sim[i].s = 0;
        }
    }
}

static void sim_send(const struct row *row, int64_t lands)
{
    n_moves++;
    lands_at = lands;
    for (int i = 0; i < N; i++) {
        if (role_of(i) == PSC_FROZEN)
            continue;
        sim[i].sent = sim[i].own;
        if (is_elastic(row)) {
            sim[i].answer = sim[i].center;
            sim[i].center += ALPHA * (sim[i].own - sim[i].center);
            continue;
        }
        if (role_of(i) == PSC_PARAM)
            sim_move(row, i, sim[i].own - sim[i].from);
        else
            sim[i].center = sim[i].own; /* the mean of one worker */
        sim[i].from = sim[i].own;
        sim[i].answer = sim[i].center;
    }
}

/* x <- answer + (x - x as sent), mixed; and under elastic x <- x - alpha (x as sent - center). */
static void sim_land(const struct row *row)
{
    double mix = row->mix != NULL ? strtod(row->mix + strlen("mix="), NULL) : 0;
    lands_at = -1;
    for (int i = 0; i < N; i++) {
        if (role_of(i) == PSC_PARAM && is_elastic(row))
            sim[i].own += ALPHA * (sim[i].answer - sim[i].sent);
        else if (role_of(i) == PSC_PARAM)
            sim[i].own += (1 - mix) * (sim[i].answer - sim[i].sent);
        else if (role_of(i) == PSC_BUFFER && is_elastic(row))
            sim[i].own -= ALPHA * (sim[i].own - sim[i].answer);
        else if (role_of(i) == PSC_BUFFER)
            sim[i].own = sim[i].answer;
        sim[i].from = sim[i].answer;
    }
}

static void sim_own_step(const struct row *row)
{
    for (int i = 0; i < N; i++)
        if (role_of(i) == PSC_PARAM) {
            sim[i].v = (row->momentum ? 0.5 * sim[i].v : 0) - (double)g[i];
            sim[i].own += sim[i].v;
        }
}

static void sim_step(const struct row *row, int64_t t)
{
    if (is_elastic(row) && t == 0)
        sim_send(row, row->steps - 1);
    if (is_elastic(row) && t == lands_at)
        sim_land(row);
    sim_own_step(row);
    if (!is_elastic(row) && t == lands_at)
        sim_land(row);
    if ((t + 1) % PERIOD == 0)
        sim_send(row, t + row->steps);
}

static void check_x(const struct row *row, int64_t t)
{
    for (int i = 0; i < N; i++) {
        double want = sim[i].own + (row->momentum && role_of(i) == PSC_PARAM ? 0.5 * sim[i].v : 0);
        /* Powers of a half run out of bits: a few roundings of numbers below 200. */
        if (fabs((double)x[i] - want) > (row->momentum ? 2e-4 : 0))
            ck_abort_msg("t = %d, [%d]: %.9g, not %.9g", (int)t, i, (double)x[i], want);
    }
}

START_TEST(an_answer_lands_n_steps_after_its_message)
{
    const struct row *row = &rows[_i];
    start_psd(row, NULL, NULL);
    struct psc *c = join();
    sim_init();
    for (int64_t t = 0; t < STEPS; t++) {
        gradient((uint64_t)t);
        change_buffers((uint64_t)t);
        sim_step(row, t);
        assert_ok(c, psc_step(c, x, g, 1));
        check_x(row, t);
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_pull(c, NULL, pulled));
    for (int i = 0; i < N; i++)
        if (role_of(i) != PSC_FROZEN && fabs((double)pulled[i] - sim[i].center) > (row->momentum ? 2e-4 : 0))
            ck_abort_msg("center[%d]: %.9g, not %.9g", i, (double)pulled[i], sim[i].center);
    psc_close(c);
}
END_TEST

/* A message that is not finite is not sent. The caller may put its x right, and the next step sends the whole
 * change since the last answer: also of the values before and behind the bad one. */
static const int bad_places[] = {5, 2600, 9000, RIG_N - 1};

START_TEST(a_message_that_is_not_finite_is_not_begun)
{
    static const struct row once[] = {{"rule=add", "overlap=3", "mix=0", 3, false},
                                      {"rule=outer-nesterov", "overlap=1", "mix=0", 1, false}};
    const struct row *row = &once[_i % 2];
    int bad = bad_places[_i / 2];
    char says[16];
    snprintf(says, sizeof says, "[%d]", bad);
    start_psd(row, NULL, NULL);
    struct psc *c = join();
    sim_init();
    for (int64_t t = 0; t < STEPS; t++) {
        gradient((uint64_t)t);
        change_buffers((uint64_t)t);
        sim_step(row, t);
        if (t % PERIOD == PERIOD - 1) {
            x[bad] = t < PERIOD ? INFINITY : NAN;
            assert_fails(c, psc_step(c, x, g, 1), PSC_EVALUE, says);
            ck_assert_uint_eq(psc_clock(c), (uint64_t)t);
            x[bad] = (float)sim[bad].own;
            memset(g, 0, sizeof g);
        }
        assert_ok(c, psc_step(c, x, g, 1));
        check_x(row, t);
    }
    psc_close(c);
}
END_TEST

/* psd stands still from the moment that an exchange has begun: the worker makes its steps until it lands. */
START_TEST(a_worker_waits_for_nothing_before_its_step)
{
    static const struct row many[] = {{"rule=add", "overlap=6", NULL, 6, false},
                                      {"rule=elastic", "overlap=6", NULL, 6, false}};
    const struct row *row = &many[_i];
    start_psd(row, NULL, NULL);
    struct psc *c = join();
    for (uint64_t t = 0; t < PERIOD; t++) {
        gradient(t);
        if (t == PERIOD - 1) {
            assert_ok(c, psc_wait(c, PSC_ALL));
            pause_child(psd.pid);
        }
        assert_ok(c, psc_step(c, x, g, 1));
    }
    for (uint64_t t = PERIOD; t < 2 * PERIOD - 1; t++) {
        gradient(t);
        assert_ok(c, psc_step(c, x, g, 1));
    }
    kill(psd.pid, SIGCONT);
    gradient(2 * PERIOD - 1);
    assert_ok(c, psc_step(c, x, g, 1));
    ck_assert_uint_eq(psc_clock(c), 2 * PERIOD);
    psc_close(c);
}
END_TEST

/* One whose answer is there lands at the next step, as with true. */
START_TEST(with_auto_an_answer_lands_when_it_is_there)
{
    static const struct row autos[] = {{"rule=add", "overlap=auto", "mix=0.5", 1, false},
                                       {"rule=elastic", "overlap=auto", NULL, 1, false}};
    const struct row *row = &autos[_i];
    start_psd(row, NULL, NULL);
    struct psc *c = join();
    sim_init();
    for (int64_t t = 0; t < STEPS; t++) {
        gradient((uint64_t)t);
        sim_step(row, t);
        assert_ok(c, psc_step(c, x, g, 1));
        assert_ok(c, psc_wait(c, PSC_ALL));
        check_x(row, t);
    }
    psc_close(c);
}
END_TEST

static void run_until(struct psc *c, uint64_t until, bool compare)
{
    for (uint64_t t; (t = psc_clock(c)) < until;) {
        gradient(t);
        for (int i = 0; i < N; i++) /* a difference would grow */
            g[i] = 0.125f * g[i] + 0.25f * x[i];
        for (int i = 0; i < N; i++)
            x[i] += role_of(i) == PSC_BUFFER ? (float)(t % 3) : 0;
        assert_ok(c, psc_step(c, x, g, 1));
        if (!compare)
            memcpy(straight[t], x, sizeof x);
        for (int i = 0; i < N && compare; i++)
            if (memcmp(&straight[t][i], &x[i], sizeof *x) != 0)
                ck_abort_msg("t = %d, [%d]: %.9g after loading, %.9g without", (int)t, i, (double)x[i],
                             (double)straight[t][i]);
    }
}

#define CODED "codec={message: int8, answer: fp16, error_feedback: true}"

static const struct {
    struct row row;
    const char *more[2];
    uint64_t known; /* steps of the second period whose exchanges psd's checkpoint has */
} saved[] = {
    {{"rule=add", "overlap=true", NULL, 1, false}, {NULL}, PERIOD - 1},
    {{"rule=add", "overlap=4", "mix=0.25", 4, true}, {NULL}, PERIOD - 1},
    {{"rule=outer-nesterov", "overlap=6", NULL, 6, false}, {NULL}, PERIOD - 1},
    {{"rule=outer-nesterov", "overlap=4", NULL, 4, false}, {CODED}, PERIOD - 1},
    {{"rule=delayed-nesterov", "overlap=6", NULL, 6, false}, {CODED}, PERIOD - 1},
    {{"rule=elastic", "overlap=4", NULL, 4, false}, {NULL}, PERIOD - 1},
    {{"rule=elastic", "overlap=6", NULL, 6, true}, {NULL}, PERIOD - 1},
    {{"rule=elastic", "overlap=6", NULL, 6, false}, {CODED}, PERIOD - 1},
    /* Of three fragments all are on their way; psd has none of them, or one. */
    {{"rule=outer-nesterov", "overlap=6", NULL, 6, false}, {"fragments=3"}, 1},
    {{"rule=outer-nesterov", "overlap=5", "mix=0.5", 5, true}, {"fragments=3", CODED}, 3},
    {{"rule=add", "overlap=6", NULL, 6, false}, {"fragments=6", CODED}, 2},
};

/* Saved after any step of a period: what is on its way is part of the state. psd lives, and has it. */
START_TEST(a_state_has_what_is_on_its_way)
{
    start_psd(&saved[_i].row, NULL, saved[_i].more);
    struct psc *c = join();
    run_until(c, STEPS, false);
    psc_close(c);
    for (uint64_t at = PERIOD; at < 2 * PERIOD; at++) {
        daemon_remove(&psd);
        start_psd(&saved[_i].row, NULL, saved[_i].more);
        c = join();
        run_until(c, at, true);
        assert_ok(c, psc_save(c, path, x, NULL, 0));
        psc_close(c);
        c = join();
        assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
        run_until(c, STEPS, true);
        psc_close(c);
    }
}
END_TEST

/* The worker's state is of later than psd's checkpoint, which lacks the exchange on its way: the worker sends
 * it again, and it lands once, in its step. */
static void meets_a_psd_that_came_back(int row, void (*changes)(void))
{
    start_psd(&saved[row].row, RIG_SAME_ADDRESS, saved[row].more);
    struct psc *c = join();
    run_until(c, STEPS, false);
    psc_close(c);
    daemon_remove(&psd);
    start_psd(&saved[row].row, RIG_SAME_ADDRESS, saved[row].more);
    c = join();
    run_until(c, PERIOD + saved[row].known, true);
    assert_ok(c, psc_wait(c, PSC_ALL)); /* the exchanges until then have landed in psd */
    ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    run_until(c, 2 * PERIOD, true);
    assert_ok(c, psc_save(c, path, x, NULL, 0));
    psc_close(c);
    if (changes != NULL)
        changes();
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    c = join();
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    run_until(c, STEPS, true);
    psc_close(c);
}

START_TEST(a_psd_that_came_back_gets_what_it_lacks)
{
    meets_a_psd_that_came_back(_i, NULL);
}
END_TEST

/* As a library wrote it that did not know of psd's runs. */
static void make_state_older(void)
{
    enum { OLD_HEAD = 216, OLD_VERSION = 6 };
    static unsigned char bytes[8 * N * sizeof(float)];
    FILE *f = fopen(path, "r+b");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    ck_assert_uint_lt(n, sizeof bytes);
    ck_assert_uint_eq(bytes[8], OLD_VERSION + 3);
    bytes[8] = OLD_VERSION;
    n -= PSC_STATE_HEAD_BYTES - OLD_HEAD;
    memmove(bytes + OLD_HEAD, bytes + PSC_STATE_HEAD_BYTES, n - OLD_HEAD);
    ps_put64(bytes + n - 8, XXH3_64bits(bytes, n - 8));
    rewind(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(ftruncate(fileno(f), (off_t)n), 0);
    fclose(f);
}

/* The rows with one exchange at a time. */
START_TEST(a_psd_that_came_back_gets_what_an_older_state_has)
{
    meets_a_psd_that_came_back(_i, make_state_older);
}
END_TEST

/* Messages of what was sent are exact, so the center does not depend on the order in which they land. */
static const struct {
    struct row row;
    const char *more[2];
    bool dies; /* psd, or only one of its workers */
} in_company[] = {
    {{"rule=add", "overlap=4", "mix=0", 4, false}, {NULL}, true},
    {{"rule=add", "overlap=6", "mix=0", 6, false}, {"fragments=3"}, true},
    {{"rule=add", "overlap=4", "mix=0", 4, false}, {NULL}, false},
    {{"rule=add", "overlap=6", "mix=0", 6, false}, {"fragments=3"}, false},
};

static void steps_until(struct psc *c, float *own, uint64_t until)
{
    for (uint64_t t; (t = psc_clock(c)) < until;) {
        gradient(t);
        assert_ok(c, psc_step(c, own, g, 1));
    }
}

static void finish_and_pull(struct psc *const *c, float own[2][N], float *center)
{
    for (int i = 0; i < 2; i++) {
        steps_until(c[i], own[i], STEPS);
        assert_ok(c[i], psc_wait(c[i], PSC_ALL));
    }
    assert_ok(c[0], psc_pull(c[0], NULL, center));
    for (int i = 0; i < 2; i++)
        psc_close(c[i]);
}

/* Two workers have an exchange on its way that psd's checkpoint lacks. When one of them is back, the other
 * has made exchanges: psd's version is beyond that of the answer which the worker's state has. */
START_TEST(what_psd_lacks_is_sent_also_by_who_comes_later)
{
    float own[2][N], center[N];
    char paths[2][200];
    struct psc *c[2];
    start_psd(&in_company[_i].row, RIG_SAME_ADDRESS, in_company[_i].more);
    for (int i = 0; i < 2; i++) {
        c[i] = join();
        memcpy(own[i], x, sizeof x);
    }
    finish_and_pull(c, own, center);
    daemon_remove(&psd);
    start_psd(&in_company[_i].row, RIG_SAME_ADDRESS, in_company[_i].more);
    for (int i = 0; i < 2; i++) {
        c[i] = join();
        memcpy(own[i], x, sizeof x);
        snprintf(paths[i], sizeof paths[i], "%s/worker-%d.state", psd.dir, i);
        steps_until(c[i], own[i], PERIOD);
        assert_ok(c[i], psc_wait(c[i], PSC_ALL));
    }
    ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    for (int i = 0; i < 2; i++) {
        steps_until(c[i], own[i], 2 * PERIOD);
        assert_ok(c[i], psc_save(c[i], paths[i], own[i], NULL, 0));
        psc_close(c[i]);
    }
    if (in_company[_i].dies) {
        daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
        ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    }
    for (int i = 1; i >= 0; i--) {
        c[i] = join();
        assert_ok(c[i], psc_load(c[i], paths[i], own[i], NULL, 0, NULL));
        steps_until(c[i], own[i], i == 1 ? STEPS : 2 * PERIOD);
        assert_ok(c[i], psc_wait(c[i], PSC_ALL));
    }
    finish_and_pull(c, own, pulled);
    for (int i = 0; i < N; i++)
        if (role_of(i) != PSC_BUFFER && memcmp(&pulled[i], &center[i], sizeof *x) != 0)
            ck_abort_msg("[%d]: the center is %.9g, and was %.9g without the interruption", i,
                         (double)pulled[i], (double)center[i]);
}
END_TEST

/* psd is killed with an exchange on its way, and comes back from a checkpoint. */
static struct psc *live_through_death(int row)
{
    start_psd(&saved[row].row, RIG_SAME_ADDRESS, saved[row].more);
    struct psc *c = join();
    run_until(c, PERIOD + saved[row].known, true);
    assert_ok(c, psc_wait(c, PSC_ALL));
    ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    pause_child(psd.pid);
    run_until(c, 2 * PERIOD, true); /* nobody hears of what begins here */
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    rig_meet_again(c);
    assert_ok(c, psc_wait(c, PSC_ALL));
    return c;
}

/* The worker that lives on sends it again under its name. Some of the first messages may have waited in a
 * socket until there was a psd again: then that heard them, too, and answered the second ones with the center
 * of then, which an elastic worker sees. */
START_TEST(a_worker_lives_through_the_death_of_psd)
{
    start_psd(&saved[_i].row, RIG_SAME_ADDRESS, saved[_i].more);
    struct psc *c = join();
    run_until(c, STEPS, false);
    psc_close(c);
    daemon_remove(&psd);
    c = live_through_death(_i);
    double deadline = unit_now_s() + UNIT_HANG_S;
    while (is_elastic(&saved[_i].row) && daemon_number(&psd, "/status", "center.replays") > 0) {
        ck_assert_msg(unit_now_s() < deadline, "psd hears each message twice");
        psc_close(c);
        daemon_remove(&psd);
        c = live_through_death(_i);
    }
    run_until(c, STEPS, true);
    psc_close(c);
}
END_TEST

static const struct row long_ones[] = {{"rule=add", "overlap=5", NULL, 5, false},
                                       {"rule=outer-nesterov", "overlap=5", NULL, 5, true},
                                       {"rule=elastic", "overlap=5", NULL, 5, false},
                                       {"rule=elastic", "overlap=5", NULL, 5, true}};

/* What is on its way when the caller takes the center anew lands in no x. */
START_TEST(a_pull_into_x_drops_the_answer_on_its_way)
{
    start_psd(&long_ones[_i], NULL, NULL);
    struct psc *c = join();
    run_until(c, 2 * PERIOD + 1, false);
    assert_ok(c, psc_pull(c, NULL, x));
    memcpy(pulled, x, sizeof x);
    memset(g, 0, sizeof g);
    for (int t = 0; t < PERIOD - 2; t++)
        assert_ok(c, psc_step(c, x, g, 1));
    ck_assert_mem_eq(x, pulled, sizeof x);
    psc_close(c);
}
END_TEST

/* The server ends the job while an exchange is on its way: it lands, and x has its answer. */
START_TEST(a_drain_waits_for_what_is_on_its_way)
{
    const struct row *row = &long_ones[_i];
    double end_s;
    int rc;
    start_psd(row, NULL, NULL);
    struct psc *c = join();
    sim_init();
    for (int64_t t = 0; t <= 2 * PERIOD; t++) {
        gradient((uint64_t)t);
        sim_step(row, t);
        if (t == 2 * PERIOD)
            break;
        assert_ok(c, psc_step(c, x, g, 1));
    }
    kill(psd.pid, SIGTERM);
    for (end_s = unit_now_s() + UNIT_HANG_S; (rc = psc_wait(c, PSC_ALL)) == PSC_OK; unit_nap_ms(2))
        ck_assert_msg(unit_now_s() < end_s, "psd does not drain");
    ck_assert_int_eq(rc, PSC_DRAINED);
    ck_assert_int_eq(psc_step(c, x, g, 1), PSC_DRAINED);
    sim_land(row);
    check_x(row, 2 * PERIOD);
    psc_close(c);
}
END_TEST

/* It would take the answer at the next step. */
START_TEST(an_older_library_is_refused)
{
    static char raw[] = "raw";
    char *codecs[] = {raw};
    Ps__Hello hello = PS__HELLO__INIT;
    struct hand h;
    start_psd(&long_ones[0], NULL, NULL);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)(uintptr_t) "old hand";
    hello.token = 77;
    hello.n_codecs = 1;
    hello.codecs = codecs;
    hand_open(&h, psd.endpoint);
    ck_assert_int_eq(hand_hello(&h, &hello), PS__CODE__VERSION);
    assert_says(h.sentence, "parameters.overlap is 5; the library of 'old hand' is older");
    hello.lands_later = true;
    ck_assert_int_eq(hand_hello(&h, &hello), 0);
    hand_close(&h);
}
END_TEST

/* Nor does a job that has it change to such an overlap. */
START_TEST(a_job_with_an_older_library_keeps_its_overlap)
{
    static const char *const settings[] = {"method=downpour", "period=6", NULL};
    static char raw[] = "raw";
    char *codecs[] = {raw};
    Ps__Hello hello = PS__HELLO__INIT;
    struct hand h;
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    ck_assert(daemon_write_config(&psd, "parameters: {overlap: true}\n"));
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)(uintptr_t) "old hand";
    hello.token = 77;
    hello.n_codecs = 1;
    hello.codecs = codecs;
    hand_open(&h, psd.endpoint);
    ck_assert_int_eq(hand_hello(&h, &hello), 0);
    ck_assert(daemon_write_config(&psd, "parameters: {overlap: 5}\n"));
    char *answer = daemon_ask(&psd, "POST", "/reload");
    ck_assert_ptr_nonnull(answer);
    assert_says(answer, "parameters.overlap: found 5; the library of 'old hand', rank 0, is older");
    free(answer);
    hand_close(&h);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-overlap_steps");
    TCase *tc = tcase_create("overlap_steps");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, an_answer_lands_n_steps_after_its_message, 0, ROWS(rows));
    tcase_add_loop_test(tc, a_message_that_is_not_finite_is_not_begun, 0, 2 * ROWS(bad_places));
    tcase_add_loop_test(tc, a_worker_waits_for_nothing_before_its_step, 0, 2);
    tcase_add_loop_test(tc, with_auto_an_answer_lands_when_it_is_there, 0, 2);
    tcase_add_loop_test(tc, a_pull_into_x_drops_the_answer_on_its_way, 0, ROWS(long_ones));
    tcase_add_loop_test(tc, a_drain_waits_for_what_is_on_its_way, 0, ROWS(long_ones));
    tcase_add_test(tc, an_older_library_is_refused);
    tcase_add_test(tc, a_job_with_an_older_library_keeps_its_overlap);
    tcase_add_loop_test(tc, a_state_has_what_is_on_its_way, 0, ROWS(saved));
    tcase_add_loop_test(tc, a_psd_that_came_back_gets_what_it_lacks, 0, ROWS(saved));
    tcase_add_loop_test(tc, a_psd_that_came_back_gets_what_an_older_state_has, 0, ROWS(saved) - 3);
    tcase_add_loop_test(tc, what_psd_lacks_is_sent_also_by_who_comes_later, 0, ROWS(in_company));
    tcase_add_loop_test(tc, a_worker_lives_through_the_death_of_psd, 0, ROWS(saved));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
