/* A worker that exchanges the vector in fragments, with a real psd: against a reference that does the same
 * float by float. Whole numbers and halves are exact. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "proto/model/fragment.h"
#include "tests/client/psd_fixture.h"

enum { N = RIG_N, CHUNKS = 12 };

static struct daemon psd;
static float start[N], g[N], x[N], pulled[N], straight[64][N];
static char path[160];

/* What the reference keeps: v only with momentum. */
static float own[N], v[N], from[N], center[N], answer[N];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static struct psc *join(void)
{
    for (int i = 0; i < N; i++)
        x[i] = start[i] = (float)(i % 50);
    return rig_join(&psd, rig_model, RIG_TENSORS, x);
}

struct row {
    const char *fragments, *period, *mix;
    int overlap; /* steps; 0: none */
    bool momentum;
};

static const struct row rows[] = {
    {"4", "8", "0", 0, false},   {"4", "8", "0.5", 0, false}, {"3", "7", "0", 1, false},
    {"3", "7", "0.5", 1, false}, {"1", "4", "0.5", 0, false}, {"1", "4", "0.5", 1, false},
    {"12", "12", "0", 0, false}, {"5", "6", "0", 0, true},    {"5", "6", "0.25", 1, true},
    {"4", "8", "0", 2, false},   {"4", "8", "0", 5, false},   {"4", "8", "0.5", 8, false},
    {"12", "12", "0", 7, false}, {"5", "6", "0.25", 6, true}, {"3", "7", "0", 7, false},
};

static void start_psd(const struct row *row)
{
    static char texts[4][40];
    static const char *settings[24]; /* also for a restart */
    size_t n = 0;
    snprintf(texts[0], sizeof texts[0], "fragments=%s", row->fragments);
    snprintf(texts[1], sizeof texts[1], "period=%s", row->period);
    snprintf(texts[2], sizeof texts[2], "mix=%s", row->mix);
    if (row->overlap > 1)
        snprintf(texts[3], sizeof texts[3], "overlap=%d", row->overlap);
    else
        snprintf(texts[3], sizeof texts[3], "overlap=%s", row->overlap == 1 ? "true" : "false");
    const char *all[] = {"method=custom",
                         "rule=outer-nesterov",
                         "admission=fcfs",
                         "averaging=none",
                         RIG_CUT,
                         "learning_rate=1",
                         "outer_learning_rate=0.5",
                         "outer_momentum=0",
                         "warmup_steps=0",
                         texts[0],
                         texts[1],
                         texts[2],
                         texts[3],
                         row->momentum ? "optimizer=nesterov" : "optimizer=sgd"};
    for (size_t i = 0; i < ROWS(all); i++)
        settings[n++] = all[i];
    settings[n++] = row->momentum ? "momentum=0.5" : NULL;
    settings[n] = NULL;
    rig_start(&psd, settings);
    snprintf(path, sizeof path, "%s/worker.state", psd.dir);
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
static void change_buffers(float *at, uint64_t t)
{
    for (int i = 0; i < N; i++)
        if (role_of(i) == PSC_BUFFER)
            at[i] += (float)(t % 3);
}

/* The fragment that goes after step t of a period, or -1. */
static int due(const struct row *row, uint64_t t)
{
    int n = atoi(row->fragments), period = atoi(row->period), step = (int)(t % (uint64_t)period) + 1;
    for (int i = 0; i < n; i++)
        if (step == ((i + 1) * period + n - 1) / n)
            return i;
    return -1;
}

static void refer_exchange(const struct row *row, struct ps_range r)
{
    float mix = strtof(row->mix, NULL);
    for (uint64_t i = r.begin; i < r.begin + r.count; i++) {
        uint32_t role = role_of((int)i);
        if (role == PSC_FROZEN)
            continue;
        center[i] = role == PSC_BUFFER ? own[i] : center[i] + 0.5f * (own[i] - from[i]);
        answer[i] = center[i];
        if (row->overlap > 0 && role == PSC_PARAM)
            from[i] = own[i];
        if (row->overlap > 0 || role != PSC_PARAM)
            continue;
        own[i] = mix * own[i] + (1 - mix) * center[i];
        from[i] = center[i];
    }
}

static void refer_arrival(const struct row *row, struct ps_range r)
{
    float mix = strtof(row->mix, NULL);
    for (uint64_t i = r.begin; i < r.begin + r.count; i++) {
        if (role_of((int)i) == PSC_BUFFER)
            own[i] = answer[i];
        if (role_of((int)i) != PSC_PARAM)
            continue;
        own[i] += (1 - mix) * (answer[i] - from[i]);
        from[i] = answer[i];
    }
}

static void refer_step(const struct row *row)
{
    for (int i = 0; i < N; i++)
        if (role_of(i) == PSC_PARAM) {
            v[i] = (row->momentum ? 0.5f * v[i] : 0) - g[i];
            own[i] += v[i];
        }
}

static void check_x(const struct row *row, uint64_t t)
{
    for (int i = 0; i < N; i++) {
        float want = own[i] + (row->momentum && role_of(i) == PSC_PARAM ? 0.5f * v[i] : 0);
        double off = fabs((double)x[i] - (double)want);
        /* Powers of a half run out of bits: a few roundings of numbers below 100. */
        if (off > (row->momentum ? 1e-4 : 0))
            ck_abort_msg("t = %d, [%d]: %.9g, not %.9g", (int)t, i, (double)x[i], (double)want);
    }
}

/* Several are on their way where the overlap is above the steps between two. */
START_TEST(fragments_go_one_after_the_other)
{
    const struct row *row = &rows[_i];
    int period = atoi(row->period), n = atoi(row->fragments), most = 0;
    struct {
        struct ps_range part;
        uint64_t lands_at; /* after this step */
    } under_way[CHUNKS] = {{{0, 0}, 0}};
    start_psd(row);
    struct psc *c = join();
    memset(v, 0, sizeof v);
    memcpy(own, start, sizeof own);
    memcpy(from, start, sizeof from);
    memcpy(center, start, sizeof center);
    for (uint64_t t = 0; t < (uint64_t)(2 * period + 3); t++) {
        gradient(t);
        change_buffers(x, t);
        change_buffers(own, t);
        refer_step(row);
        int now = 0;
        for (int i = 0; i < n; i++) { /* buffers are the answer's, above those of this step */
            if (under_way[i].part.count > 0 && under_way[i].lands_at == t) {
                refer_arrival(row, under_way[i].part);
                under_way[i].part.count = 0;
            }
            now += under_way[i].part.count > 0;
        }
        int f = due(row, t);
        if (f >= 0) {
            struct ps_range r = ps_fragment(&c->shard, c->manifest, (uint32_t)n, (uint32_t)f);
            refer_exchange(row, r);
            now += row->overlap > 0;
            if (row->overlap > 0) {
                under_way[f].part = r;
                under_way[f].lands_at = t + (uint64_t)row->overlap;
            }
        }
        most = now > most ? now : most;
        assert_ok(c, psc_step(c, x, g, 1));
        check_x(row, t);
    }
    ck_assert_int_ge(most, row->overlap * n / period);
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_pull(c, NULL, pulled));
    for (int i = 0; i < N; i++)
        if (role_of(i) != PSC_FROZEN &&
            fabs((double)pulled[i] - (double)center[i]) > (row->momentum ? 1e-4 : 0))
            ck_abort_msg("center[%d]: %.9g, not %.9g", i, (double)pulled[i], (double)center[i]);
    psc_close(c);
}
END_TEST

/* The same bytes in a period, a part of them at a time. */
START_TEST(a_period_takes_the_same_bytes_in_parts)
{
    static const char *const fragments[] = {"1", "2", "5", "12"};
    uint64_t whole = 0;
    for (size_t k = 0; k < ROWS(fragments); k++) {
        struct row row = {fragments[k], "12", "0", 0, false};
        uint64_t n = (uint64_t)atoi(fragments[k]), most = 0;
        start_psd(&row);
        struct psc *c = join();
        uint64_t begin = rig_sent(c), before = begin;
        for (uint64_t t = 0; t < 12; t++) {
            gradient(t);
            assert_ok(c, psc_step(c, x, g, 1));
            most = rig_sent(c) - before > most ? rig_sent(c) - before : most;
            before = rig_sent(c);
        }
        whole = k == 0 ? before - begin : whole;
        ck_assert_uint_gt(whole, 5000 * sizeof(float));
        ck_assert_uint_eq(before - begin, whole);
        /* No fragment is more than half again as large as an even one, but for a chunk. */
        ck_assert_uint_le(most, n == 1 ? whole : (3 * N / n / 2 + 1024) * sizeof(float));
        psc_close(c);
        daemon_remove(&psd);
    }
}
END_TEST

static void run_until(struct psc *c, uint64_t until, bool compare)
{
    for (uint64_t t; (t = psc_clock(c)) < until;) {
        gradient(t);
        for (int i = 0; i < N; i++) /* a difference would grow */
            g[i] += 0.25f * x[i];
        change_buffers(x, t);
        assert_ok(c, psc_step(c, x, g, 1));
        if (!compare)
            memcpy(straight[t], x, sizeof x);
        else if (memcmp(straight[t], x, sizeof x) != 0)
            ck_abort_msg("t = %d: x differs from that of a run without a save", (int)t);
    }
}

/* Saved after any step of a period, also while a fragment travels. */
START_TEST(a_state_has_the_place_in_the_cycle)
{
    static const size_t some[] = {2, 3, 7, 13, 14}; /* periods 7, 7, 6, 6 and 7 */
    const struct row *row = &rows[some[_i / 7]];
    start_psd(row);
    struct psc *c = join();
    run_until(c, 20, false);
    psc_close(c);
    daemon_remove(&psd);

    start_psd(row);
    c = join();
    run_until(c, (uint64_t)(_i % 7) + 3, true);
    assert_ok(c, psc_save(c, path, x, NULL, 0));
    psc_close(c);
    c = rig_join(&psd, rig_model, RIG_TENSORS, x);
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    run_until(c, 20, true);
    psc_close(c);
}
END_TEST

START_TEST(more_fragments_than_chunks_are_refused)
{
    struct psc_options opt;
    struct psc *c;
    start_psd(&(struct row){"13", "20", "0", 0, false});
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    assert_ok(NULL, psc_open(&opt, &c));
    ck_assert_int_lt(psc_begin(c, rig_model, RIG_TENSORS, x), 0);
    assert_says(psc_error(c), "parameters.fragments: found 13");
    assert_says(psc_error(c), "allowed is 1 to 12");
    psc_close(c);
}
END_TEST

/* An exchange by hand is of the whole vector, as without fragments. */
START_TEST(an_exchange_by_hand_is_of_all)
{
    start_psd(&rows[0]);
    struct psc *c = join();
    for (int i = 0; i < N; i++)
        g[i] = 2;
    assert_ok(c, psc_exchange(c, g, pulled, 1));
    for (int i = 0; i < N; i++)
        if (role_of(i) == PSC_PARAM)
            ck_assert_float_eq(pulled[i], start[i] + 1);
    psc_close(c);
}
END_TEST

/* psd comes back from a checkpoint while a fragment travels that is not the first: under sync all begin with
 * the first, and what was on its way is owed again. */
START_TEST(a_psd_that_came_back_is_met_with_the_first_fragment)
{
    static float unsent[N];
    static const char *const settings[2][24] = {
        {RIG_SAME_ADDRESS, "method=diloco", "optimizer=sgd", RIG_CUT, "fragments=4", "period=8",
         "learning_rate=1", "warmup_steps=0", "checkpoint.every_s=0"},
        {RIG_SAME_ADDRESS, "method=diloco", "optimizer=sgd", RIG_CUT, "fragments=4", "period=8",
         "learning_rate=1", "warmup_steps=0", "overlap=true", "checkpoint.every_s=0"}};
    rig_start(&psd, settings[_i]);
    struct psc *c = join();
    free(daemon_ask(&psd, "POST", "/checkpoint"));
    for (uint64_t t = 0; t < 3 * 8 + 5; t++) { /* three cycles, two fragments and a step */
        gradient(t);
        assert_ok(c, psc_step(c, x, g, 1));
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    ck_assert(daemon_will_log(&psd, "checkpoint.written", UNIT_HANG_S));
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    ck_assert_uint_eq(c->worker.pacing.fragment, 2);
    struct ps_range r = ps_fragment(&c->shard, c->manifest, 4, 2);
    gradient(29);
    for (uint64_t i = r.begin; i < r.begin + r.count; i++)
        unsent[i] = x[i] - (role_of((int)i) == PSC_PARAM ? g[i] : 0) - c->worker.vectors[PSC_VECTOR_START][i];
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    rig_meet_again(c);
    assert_ok(c, psc_step(c, x, g, 1));
    if (_i == 1) { /* it travels; the next step learns what became of it */
        memset(g, 0, sizeof g);
        assert_ok(c, psc_step(c, x, g, 1));
    }
    ck_assert_str_eq(psc_error(c), "");
    ck_assert_uint_eq(psc_clock(c), 30 + (uint64_t)_i);
    ck_assert_uint_eq(c->worker.pacing.fragment, 0);
    ck_assert_uint_eq(c->worker.pacing.since, (uint64_t)_i);
    for (uint64_t i = r.begin; i < r.begin + r.count; i++)
        if (role_of((int)i) == PSC_PARAM)
            ck_assert_double_eq_tol(x[i] - c->worker.vectors[PSC_VECTOR_START][i], unsent[i], 1e-4);
    for (uint64_t t = psc_clock(c); t < 60; t++) {
        gradient(t);
        assert_ok(c, psc_step(c, x, g, 1));
    }
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-fragments");
    TCase *tc = tcase_create("fragments");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, fragments_go_one_after_the_other, 0, (int)ROWS(rows));
    tcase_add_test(tc, a_period_takes_the_same_bytes_in_parts);
    tcase_add_loop_test(tc, a_state_has_the_place_in_the_cycle, 0, 35);
    tcase_add_loop_test(tc, a_psd_that_came_back_is_met_with_the_first_fragment, 0, 2);
    tcase_add_test(tc, more_fragments_than_chunks_are_refused);
    tcase_add_test(tc, an_exchange_by_hand_is_of_all);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
