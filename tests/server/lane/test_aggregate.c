/* What a round's messages become, against a plain reference in double: whatever the order they come in. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { INC = 7, P = RIG_SLOTS, LANES = 2, N_BUFFERS = 70, N_PARAMS = 2 * LANES * RIG_CHUNK - N_BUFFERS };
enum { N = N_PARAMS + N_BUFFERS };

static float center[N], m[P][N], answers[P][N];
static uint32_t samples[P];

typedef void rig_opener(struct rig *r, const char *rule, uint32_t n_lanes, const char *const *settings);

/* The whole model: parameters, and buffers behind them in the last chunk. */
static void open_over(struct rig *r, rig_opener *open, const char *rule, const char *const *settings,
                      bool alike)
{
    const struct ps_tensor tensors[] = {
        {(char[]){"a"}, 0, {N_PARAMS}, 1, PS_ROLE_PARAM},
        {(char[]){"b"}, N_PARAMS, {N_BUFFERS}, 1, PS_ROLE_BUFFER},
    };
    struct dice dice = {11};
    for (int i = 0; i < N; i++) {
        center[i] = dice_float(&dice);
        for (int k = 0; k < P; k++)
            m[k][i] = dice_float(&dice);
    }
    for (uint32_t k = 0; k < P; k++)
        samples[k] = alike ? 64 : 1 + 2 * k;
    open(r, rule, LANES, settings);
    rig_fill_model(r, tensors, ROWS(tensors), center);
    for (uint32_t i = 0; i < P; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, false);
}

static void open_job(struct rig *r, const char *const *settings, bool alike)
{
    open_over(r, rig_open, "sgd", settings, alike);
}

/* A round of clients 0 to p - 1, who send in the order of their ranks, the first of them being `first`. */
static void play_round(struct rig *r, uint32_t p, uint32_t first)
{
    struct reply reply;
    rig_members(r, 0, p, (const uint32_t[]){0, 1, 2, 3});
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r->center->shard, lane); k++) {
            for (uint32_t i = 0; i < p; i++) {
                uint32_t client = (first + i) % p;
                struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, client, INC, 1, lane, k);
                f.samples = samples[client];
                rig_send_vector(r, lane, &f, m[client]);
            }
            for (uint32_t i = 0; i < p; i++) {
                rig_recv(r, lane, &reply);
                ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
                memcpy(answers[reply.f.client] + reply.f.begin, reply.x, reply.body_bytes);
            }
        }
}

static double weight(uint32_t i, uint32_t p)
{
    double all = 0;
    for (uint32_t k = 0; k < p; k++)
        all += samples[k];
    return samples[i] / all;
}

static double mean(uint64_t at, uint32_t p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p; i++)
        sum += weight(i, p) * (double)m[i][at];
    return sum;
}

/* Values are below 2: sums of four of them below 8, five roundings of half an ulp of that each. */
static void assert_center(struct rig *r, uint32_t p, double (*merged)(struct rig *r, uint64_t at, uint32_t p))
{
    const double tolerance = 2e-6;
    const float *x = rig_center(r);
    for (uint64_t i = 0; i < N; i++) {
        double want = i < N_PARAMS ? (double)center[i] - merged(r, i, p) : mean(i, p);
        if (fabs((double)x[i] - want) > tolerance)
            ck_abort_msg("value %lu is %.9g, expected %.9g", (unsigned long)i, (double)x[i], want);
        for (uint32_t k = 0; k < p; k++)
            assert_quick(answers[k][i] == x[i]);
    }
}

/* What lies of the parameters in the chunk of value `at`. */
static struct ps_range params_around(struct rig *r, uint64_t at)
{
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r->center->shard, lane); k++) {
            struct ps_range c = ps_shard_chunk(&r->center->shard, lane, k);
            if (at >= c.begin && at < c.begin + c.count)
                return ps_range_intersect(c, (struct ps_range){0, N_PARAMS});
        }
    return (struct ps_range){0, 0};
}

static double clipped(struct rig *r, uint64_t at, uint32_t p)
{
    static struct ps_range known;
    static double keeps[P];
    struct ps_range c = params_around(r, at);
    double sum = 0;
    for (uint32_t i = 0; i < p && (c.begin != known.begin || at == c.begin); i++) {
        double squares = 0, most = r->cfg.hyper.clip * sqrt((double)c.count / N_PARAMS);
        for (uint64_t k = c.begin; k < c.begin + c.count; k++)
            squares += (double)m[i][k] * (double)m[i][k];
        keeps[i] = fmin(1, most / sqrt(squares));
    }
    known = c;
    for (uint32_t i = 0; i < p; i++)
        sum += keeps[i] * weight(i, p) * (double)m[i][at];
    return sum;
}

static int ascending(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static double trimmed(struct rig *r, uint64_t at, uint32_t p)
{
    double v[P], sum = 0;
    uint32_t trim = r->cfg.hyper.trim < (p - 1) / 2 ? r->cfg.hyper.trim : (p - 1) / 2;
    for (uint32_t i = 0; i < p; i++)
        v[i] = (double)m[i][at];
    qsort(v, p, sizeof *v, ascending);
    for (uint32_t i = trim; i < p - trim; i++)
        sum += v[i];
    return sum / (p - 2 * trim);
}

static const char *const clip_20[] = {"admission=sync", "merge=clip_norm", "clip=20", NULL};
static const char *const clip_40[] = {"admission=sync", "merge=clip_norm", "clip=40", NULL};
static const char *const trim_0[] = {"admission=sync", "merge=trimmed_mean", "trim=0", NULL};
static const char *const trim_1[] = {"admission=sync", "merge=trimmed_mean", "trim=1", NULL};
static const char *const trim_9[] = {"admission=sync", "merge=trimmed_mean", "trim=9", NULL};

static const struct {
    const char *const *settings;
    double (*merged)(struct rig *r, uint64_t at, uint32_t p);
    float louder; /* the last client's message, times this */
} rows[] = {{clip_20, clipped, 1}, {clip_40, clipped, 1},   {clip_40, clipped, 1000}, {trim_0, trimmed, 1},
            {trim_1, trimmed, 1},  {trim_1, trimmed, 1e6f}, {trim_9, trimmed, 1}};

START_TEST(merges_are_what_they_say)
{
    static float first[N];
    for (uint32_t p = 1; p <= P; p++)
        for (int alike = 0; alike < 2; alike++)
            for (uint32_t order = 0; order < p; order++) {
                struct rig r;
                /* A sum of values 1000000 times as large rounds as much more coarsely. */
                if (rows[_i].louder > 1000 && p < 3)
                    continue;
                open_job(&r, rows[_i].settings, alike);
                for (int i = 0; i < N_PARAMS; i++)
                    m[p - 1][i] *= rows[_i].louder;
                play_round(&r, p, order);
                assert_center(&r, p, rows[_i].merged);
                if (order == 0)
                    memcpy(first, r.center->snapshot.center, sizeof first);
                ck_assert_mem_eq(first, r.center->snapshot.center, sizeof first);
                rig_close(&r);
            }
}
END_TEST

/* Whatever one of four sends, the center moves by no more than its share of `clip`. */
START_TEST(nobody_moves_the_center_further_than_clip)
{
    struct rig r;
    double squares = 0;
    open_job(&r, clip_20, true);
    memset(m, 0, sizeof m);
    for (int i = 0; i < N_PARAMS; i++)
        m[2][i] = (i % 1024 < 7 ? 1e15f : -1e-3f);
    play_round(&r, P, 0);
    const float *x = rig_center(&r);
    for (int i = 0; i < N_PARAMS; i++)
        squares += ((double)x[i] - (double)center[i]) * ((double)x[i] - (double)center[i]);
    ck_assert_double_le(sqrt(squares), 20.0 / P + 1e-4);
    ck_assert_double_ge(sqrt(squares), 20.0 / P - 1e-1);
    rig_close(&r);
}
END_TEST

static const char *const plain[] = {"admission=sync", NULL};
static const char *const alpha[] = {"admission=sync", "alpha=0.25", NULL};

static const struct {
    const char *rule;
    const char *const *settings;
} shared_rows[] = {{"sgd", plain}, {"sgd", clip_20},          {"sgd", trim_1},
                   {"add", plain}, {"outer-nesterov", plain}, {"elastic", alpha}};

/* One chunk of everybody: client 0's message is written over when the lane has checked it, and the others
 * come then. */
static void play_with_a_writer(struct rig *r, float value)
{
    struct reply reply;
    struct ps_frame f;
    rig_members(r, 0, P - 1, (const uint32_t[]){0, 1, 2});
    for (uint32_t i = 0; i < P - 1; i++) {
        f = rig_frame(r, PS_FRAME_EXCHANGE, i, INC, 1, 0, 0);
        rig_send_vector(r, 0, &f, m[i]);
        if (i > 0)
            continue;
        rig_assert_silent(r, 0, P - 1, INC);
        for (uint32_t k = 0; k < f.count && !isnan(value); k++)
            memcpy(rig_body(0) + k * sizeof value, &value, sizeof value);
    }
    for (uint32_t i = 0; i < P - 1; i++) {
        rig_recv(r, 0, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        memcpy(answers[reply.f.client], reply.x, reply.body_bytes);
    }
    memcpy(answers[P - 1], rig_center(r), RIG_CHUNK * sizeof **answers);
}

/* Whatever a member writes in its message after that was checked, by shared memory, the center and the
 * others' answers are made of what was checked. */
START_TEST(what_was_checked_is_what_is_merged)
{
    static float honest[P][N];
    for (int dishonest = 0; dishonest < 3; dishonest++) {
        const float writes[] = {NAN, INFINITY, 1e15f}; /* NaN: nothing */
        struct rig r;
        open_over(&r, rig_open_shared, shared_rows[_i].rule, shared_rows[_i].settings, false);
        play_with_a_writer(&r, writes[dishonest]);
        rig_close(&r);
        if (dishonest == 0)
            memcpy(honest, answers, sizeof honest);
        for (int i = 1; i < P; i++)
            ck_assert_msg(memcmp(honest[i], answers[i], RIG_CHUNK * sizeof **answers) == 0,
                          "client %d's answer (%d: the center) has changed", i, P - 1);
    }
}
END_TEST

static const struct {
    const char *rule;
    const char *const *settings;
    bool takes; /* a message of 0 samples */
} weightless[] = {{"sgd", plain, false},
                  {"sgd", clip_20, false},
                  {"sgd", trim_1, true},
                  {"add", plain, true},
                  {"elastic", alpha, true}};

/* Where messages count by their samples, one of 0 samples is refused by name, and the others' mean is whole.
 */
START_TEST(a_message_of_0_samples_is_refused_where_samples_count)
{
    struct rig r;
    struct reply reply;
    open_over(&r, rig_open, weightless[_i].rule, weightless[_i].settings, false);
    rig_members(&r, 0, 1, (const uint32_t[]){0});
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 0, INC, 1, 0, 0);
    f.samples = 0;
    rig_ask_vector(&r, 0, &f, m[0], &reply);
    ck_assert_uint_eq(reply.f.kind, weightless[_i].takes ? PS_FRAME_ANSWER : PS_FRAME_ERROR);
    if (weightless[_i].takes) {
        ck_assert_uint_eq(atomic_load(&r.lanes[0]->stats.rejected[PS__CODE__VALUE]), 0);
    } else {
        ck_assert_uint_eq(reply.f.code, PS__CODE__RANGE);
        assert_says(reply.sentence, "a message of 0 samples");
        f.samples = 1; /* it may go on */
        rig_ask_vector(&r, 0, &f, m[0], &reply);
        ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
    }
    rig_close(&r);
}
END_TEST

static const char *const halves[] = {"admission=sync",
                                     "parameters.schedule.kind=step",
                                     "parameters.schedule.gamma=0.5",
                                     "parameters.schedule.step_steps=10",
                                     "parameters.schedule.warmup_steps=0",
                                     NULL};

/* The rate of all is not that of the first step again because one has just joined, whatever its rank. */
START_TEST(the_rate_is_that_of_the_worker_with_the_most_steps)
{
    struct rig r;
    struct reply reply;
    struct ps_frame f;
    open_job(&r, halves, true);
    rig_members(&r, 0, P, (const uint32_t[]){0, 1, 2, 3});
    for (uint32_t i = 0; i < P; i++) {
        f = rig_frame(&r, PS_FRAME_EXCHANGE, i, INC, 1, 0, 0);
        f.samples = samples[i];
        f.clock = i == (uint32_t)_i ? 0 : 20;
        rig_send_vector(&r, 0, &f, m[i]);
    }
    for (uint32_t i = 0; i < P; i++) {
        rig_recv(&r, 0, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        ck_assert_float_eq(reply.f.rate, 0.25f);
        for (uint32_t k = 0; k < f.count; k++)
            assert_quick(fabs((double)reply.x[k] - ((double)center[k] - 0.25 * mean(k, P))) <= 2e-6);
    }
    rig_close(&r);
}
END_TEST

/* admm: what a worker's share changes by is m + kappa center, with the eta of its own t. */
START_TEST(shares_change_at_their_workers_rates)
{
    static const float own[] = {-1.0f / 3, -0.6f}; /* eta rho 1/2 and 1/4 */
    const char *settings[ROWS(halves) + 2] = {"rho=1", "workers=2"};
    struct rig r;
    struct reply reply;
    memcpy(settings + 2, halves, sizeof halves);
    open_over(&r, rig_open, "admm", settings, true);
    rig_members(&r, 0, 2, (const uint32_t[]){0, 1});
    for (uint32_t i = 0; i < 2; i++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, i, INC, 1, 0, 0);
        f.clock = 10 + 10 * i;
        rig_send_vector(&r, 0, &f, m[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        rig_recv(&r, 0, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    }
    struct ps_frame pull = rig_frame(&r, PS_FRAME_PULL, 0, INC, 2, 0, 0);
    rig_ask(&r, 0, &pull, NULL, 0, &reply);
    for (uint32_t k = 0; k < pull.count; k++) {
        double moved = 0;
        for (int i = 0; i < 2; i++)
            moved += ((double)m[i][k] + (double)own[i] * (double)center[k]) / 2;
        assert_quick(fabs((double)reply.x[k] - ((double)center[k] + moved)) <= 2e-6);
    }
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-merges");
    TCase *tc = tcase_create("merges");
    tcase_add_loop_test(tc, merges_are_what_they_say, 0, ROWS(rows));
    tcase_add_test(tc, nobody_moves_the_center_further_than_clip);
    tcase_add_loop_test(tc, a_message_of_0_samples_is_refused_where_samples_count, 0, ROWS(weightless));
    tcase_add_loop_test(tc, the_rate_is_that_of_the_worker_with_the_most_steps, 0, P);
    tcase_add_test(tc, shares_change_at_their_workers_rates);
    tcase_add_loop_test(tc, what_was_checked_is_what_is_merged, 0, ROWS(shared_rows));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
