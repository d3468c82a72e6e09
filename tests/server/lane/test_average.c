/* The average that follows the center: what it is after each exchange, who may ask for it, and that it goes
 * on after a checkpoint. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { LANES = 2, N = 5000, CLIENT = 1, INC = 7, OBSERVER = 2, STEPS = 30 };

/* Chunks of 1024 floats: tensors that cross chunks and lanes, a chunk that is frozen whole and one in part.
 */
static const struct ps_tensor model[] = {
    {(char[]){"w"}, 0, {1500}, 1, PS_ROLE_PARAM, 0},
    {(char[]){"b"}, 1500, {400}, 1, PS_ROLE_BUFFER, 0},
    {(char[]){"f"}, 1900, {1600}, 1, PS_ROLE_FROZEN, 0},
    {(char[]){"u"}, 3500, {1500}, 1, PS_ROLE_PARAM, 0},
};
enum { FROZEN = 1900, FROZEN_END = 3500 };

static float start[N], message[N];

static void fill(struct dice *dice)
{
    for (int i = 0; i < N; i++)
        start[i] = dice_float(dice);
}

static void open_job(struct rig *r, const char *rule, const char *const *settings)
{
    struct dice dice = {30};
    fill(&dice);
    rig_open(r, rule, LANES, settings);
    rig_fill_model(r, model, ROWS(model), start);
    rig_admit(r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
    rig_admit(r, OBSERVER, INC + 1, PSD_PHASE_OBSERVING, false);
}

/* Every chunk that is not frozen whole. */
static void exchange(struct rig *r, uint64_t seq)
{
    const struct ps_shard *shard = &r->center->shard;
    struct reply reply;
    for (uint32_t lane = 0; lane < shard->n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(shard, lane); k++) {
            struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, lane, k);
            if (ps_manifest_is_frozen(r->center->manifest, (struct ps_range){f.begin, f.count}))
                continue;
            uint32_t served_by = r->center->whole_lanes ? CLIENT % LANES : lane;
            rig_ask_vector(r, served_by, &f, message, &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        }
}

static void throw_message(struct dice *dice)
{
    for (int i = 0; i < N; i++)
        message[i] = dice_float(dice) / 8;
}

/* z in double precision beside the center's own floats. A step rounds the rate, the difference, the product
 * and the sum, each half an ulp of something below 16. */
static void check_average(struct rig *r, double *z, double rate, const float *before, int steps)
{
    rig_center(r);
    for (int i = 0; i < N; i++) {
        z[i] += rate * ((double)before[i] - z[i]);
        if (i >= FROZEN && i < FROZEN_END)
            assert_quick(rig_average(r)[i] == start[i]);
        else
            assert_quick(fabs((double)rig_average(r)[i] - z[i]) <= steps * 4 * 0x1p-21);
    }
}

static const struct {
    const char *rule, *averaging, *admission;
} jobs[] = {
    {"sgd", "averaging=mean", "admission=fcfs"},       {"elastic", "averaging=mean", "admission=fcfs"},
    {"elastic", "averaging=moving", "admission=fcfs"}, {"add", "averaging=moving", "admission=fcfs"},
    {"momentum", "averaging=mean", "admission=fcfs"},  {"sgd", "averaging=mean", "admission=hogwild"},
};

/* What is averaged is the center as it was before each update, its buffers too; what is frozen stays. */
START_TEST(average_follows_the_center_before_each_update)
{
    const char *settings[] = {jobs[_i].averaging, jobs[_i].admission, "parameters.averaging_rate=0.125",
                              strcmp(jobs[_i].rule, "elastic") == 0 ? "parameters.alpha=0.25" : NULL, NULL};
    static double z[N];
    static float before[N];
    struct dice dice = {31};
    struct rig r;
    open_job(&r, jobs[_i].rule, settings);
    memset(z, 0, sizeof z);
    memcpy(before, rig_center(&r), sizeof before);
    ck_assert_mem_eq(rig_average(&r), start, sizeof start);
    for (int i = 0; i < N; i++)
        z[i] = (double)start[i];
    for (int t = 0; t < STEPS; t++) {
        throw_message(&dice);
        exchange(&r, (uint64_t)t + 1);
        check_average(&r, z, strcmp(jobs[_i].averaging, "averaging=mean") == 0 ? 1.0 / (t + 1) : 0.125,
                      before, t + 1);
        memcpy(before, rig_center(&r), sizeof before);
    }
    ck_assert_double_gt(fabs((double)before[0] - z[0]), 0.01); /* it is not the center itself */
    rig_close(&r);
}
END_TEST

static const char *const mean[] = {"averaging=mean", NULL};

/* Whole vector and one tensor, workers and observers. */
START_TEST(average_is_pulled)
{
    struct dice dice = {32};
    struct reply reply;
    struct rig r;
    open_job(&r, "sgd", mean);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        throw_message(&dice);
        exchange(&r, seq);
    }
    rig_center(&r);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < 3; k++) {
            struct ps_frame f = rig_frame(&r, PS_FRAME_PULL, OBSERVER, INC + 1, 1, lane, k);
            f.flags = PS_FLAG_AVERAGE;
            rig_ask(&r, lane, &f, NULL, 0, &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
            ck_assert_mem_eq(reply.x, rig_average(&r) + f.begin, f.count * sizeof(float));
        }
    struct ps_frame f = rig_frame(&r, PS_FRAME_PULL, CLIENT, INC, 4, 0, 0);
    f.flags = PS_FLAG_AVERAGE | PS_FLAG_TENSOR; /* tensor 0: the chunk is all of it that lies here first */
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    ck_assert_mem_eq(reply.x, rig_average(&r) + f.begin, f.count * sizeof(float));
    f.flags = 0;
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    ck_assert_mem_eq(reply.x, rig_center(&r) + f.begin, f.count * sizeof(float));
    rig_close(&r);
}
END_TEST

static const struct {
    uint8_t kind;
    const char *const *settings;
    uint32_t code;
    const char *says;
} refused[] = {
    {PS_FRAME_PULL, NULL, PS__CODE__RANGE, "averaging is none, so the job has none"},
    {PS_FRAME_EXCHANGE, mean, PS__CODE__MALFORMED,
     "flags 0004; a request may have 0002 (one tensor), a pull"},
    {PS_FRAME_PUSH, mean, PS__CODE__MALFORMED, "flags 0004"},
    {PS_FRAME_SET, mean, PS__CODE__MALFORMED, "flags 0004"},
};

START_TEST(what_has_no_average_is_refused)
{
    struct reply reply;
    struct rig r;
    open_job(&r, "sgd", refused[_i].settings);
    struct ps_frame f = rig_frame(&r, refused[_i].kind, CLIENT, INC, 1, 0, 0);
    f.flags = PS_FLAG_AVERAGE;
    rig_ask(&r, 0, &f, start, refused[_i].kind == PS_FRAME_PULL ? 0 : f.count * sizeof(float), &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_uint_eq(reply.f.code, refused[_i].code);
    ck_assert_msg(strstr(reply.sentence, refused[_i].says) != NULL, "%s", reply.sentence);
    ck_assert_mem_eq(rig_center(&r), start, sizeof start);
    rig_close(&r);
}
END_TEST

/* The first worker's x is where both begin; what is set by hand moves the average only where nothing else
 * does. */
START_TEST(average_starts_at_the_offer)
{
    struct dice dice = {33};
    struct rig r;
    fill(&dice);
    rig_open(&r, "sgd", LANES, mean);
    rig_fill_model(&r, model, ROWS(model), NULL);
    rig_admit(&r, CLIENT, INC, PSD_PHASE_OFFERING, false);
    rig_exchange(&r, PS_FRAME_OFFER, CLIENT, INC, 1, start, 0);
    for (uint32_t lane = 0; lane < LANES; lane++)
        ck_assert_int_eq(rig_hear(&r, lane).kind, PSD_LANE_FILLED);
    ck_assert_mem_eq(rig_center(&r), start, sizeof start);
    ck_assert_mem_eq(rig_average(&r), start, sizeof start);
    throw_message(&dice);
    rig_exchange(&r, PS_FRAME_SET, CLIENT, INC, 2, message, 0);
    ck_assert_mem_eq(rig_center(&r), message, sizeof message);
    for (int i = 0; i < N; i++)
        assert_quick(rig_average(&r)[i] == (i >= FROZEN && i < FROZEN_END ? message[i] : start[i]));
    rig_close(&r);
}
END_TEST

/* One vector, since the rig's snapshot copies one tensor. */
static void open_plain(struct rig *r, const char *rule, const char *const *settings)
{
    struct dice dice = {34};
    fill(&dice);
    rig_open(r, rule, LANES, settings);
    rig_fill(r, N, start);
    rig_admit(r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
}

static void move(struct rig *r, uint64_t first, uint64_t last)
{
    for (uint64_t seq = first; seq <= last; seq++) {
        struct dice dice = {seq};
        throw_message(&dice);
        rig_exchange(r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, message, 0);
    }
    rig_center(r);
}

/* Five exchanges in one life, or in two: the same average, bit for bit, since the clocks go on too. */
START_TEST(average_goes_on_after_a_checkpoint)
{
    static float want[N];
    struct psd_snapshot s;
    struct rig r, again;
    open_plain(&r, "sgd", mean);
    move(&r, 1, 5);
    memcpy(want, rig_average(&r), sizeof want);
    rig_close(&r);

    open_plain(&r, "sgd", mean);
    move(&r, 1, 3);
    rig_snapshot(&r, &s);
    ck_assert(s.has_average);
    rig_close(&r);
    rig_open(&again, "sgd", LANES, mean);
    rig_resume(&again, &s);
    rig_admit(&again, CLIENT, INC, PSD_PHASE_ACTIVE, true);
    move(&again, 4, 5);
    ck_assert_mem_eq(rig_average(&again), want, sizeof want);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* A job that did not average: the average starts at its center. One that did and does no more drops it. */
START_TEST(averaging_may_change_at_a_resume)
{
    static const char *const none[] = {"averaging=none", NULL};
    const char *const *before = _i ? mean : none, *const *after = _i ? none : mean;
    static float center[N];
    struct psd_snapshot s;
    struct rig r, again;
    open_plain(&r, "sgd", before);
    move(&r, 1, 3);
    rig_snapshot(&r, &s);
    ck_assert_int_eq(s.has_average, _i);
    memcpy(center, s.center, sizeof center);
    rig_close(&r);
    rig_open(&again, "sgd", LANES, after);
    rig_resume(&again, &s);
    ck_assert_mem_eq(rig_center(&again), center, sizeof center);
    if (_i)
        ck_assert_ptr_null(rig_average(&again));
    else
        ck_assert_mem_eq(rig_average(&again), center, sizeof center);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* Whatever the center was before: the mean of the centers from then on. What the rule remembers counts the
 * same moves, and begins with it. */
START_TEST(an_average_that_starts_at_a_resume_counts_from_there)
{
    static const char *const none[] = {"averaging=none", NULL};
    static double z[N];
    struct psd_snapshot s;
    struct rig r, again;
    open_plain(&r, "momentum", none);
    move(&r, 1, 3);
    rig_snapshot(&r, &s);
    s.state = calloc(PSD_MAX_STATE, sizeof *s.state);
    s.state[0] = malloc(sizeof start);
    memcpy(s.state[0], start, sizeof start);
    rig_close(&r);
    rig_open(&again, "momentum", LANES, mean);
    rig_resume(&again, &s);
    for (int i = 0; i < N; i++)
        assert_quick(again.center->state[0][i] == 0);
    rig_admit(&again, CLIENT, INC, PSD_PHASE_ACTIVE, true);
    memset(z, 0, sizeof z);
    for (int t = 0; t < 3; t++) {
        const float *x = rig_center(&again);
        for (int i = 0; i < N; i++)
            z[i] += ((double)x[i] - z[i]) / (t + 1);
        move(&again, (uint64_t)t + 4, (uint64_t)t + 4);
        for (int i = 0; i < N; i++)
            assert_quick(fabs((double)rig_average(&again)[i] - z[i]) <= 3 * 4 * 0x1p-21);
    }
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* What has the name of another averaging, or counts the moves of another rule, is no average of this job: it
 * would be taken for the mean of as many centers as the rule has moves, or vanish with the next. */
static const struct {
    const char *rule, *averaging, *then, *is;
    bool keeps;
} followed[] = {
    {"sgd", "moving", "sgd", "mean", false},  {"sgd", "mean", "sgd", "moving", false},
    {"add", "mean", "sgd", "mean", false},    {"add", "moving", "sgd", "moving", false},
    {"sgd", "moving", "sgd", "moving", true}, {"sgd", "mean", "sgd", "mean", true},
};

START_TEST(an_average_of_another_kind_starts_at_the_center)
{
    char averaging[2][40];
    const char *const before[] = {averaging[0], NULL}, *const after[] = {averaging[1], NULL};
    static float center[N], average[N];
    struct psd_snapshot s;
    struct rig r, again;
    snprintf(averaging[0], sizeof averaging[0], "averaging=%s", followed[_i].averaging);
    snprintf(averaging[1], sizeof averaging[1], "averaging=%s", followed[_i].is);
    open_plain(&r, followed[_i].rule, before);
    move(&r, 1, 3);
    rig_snapshot(&r, &s);
    memcpy(center, s.center, sizeof center);
    memcpy(average, s.average, sizeof average);
    rig_close(&r);
    rig_open(&again, followed[_i].then, LANES, after);
    rig_resume(&again, &s);
    ck_assert_mem_eq(rig_center(&again), center, sizeof center);
    ck_assert_mem_eq(rig_average(&again), followed[_i].keeps ? average : center, sizeof center);
    rig_admit(&again, CLIENT, INC, PSD_PHASE_ACTIVE, true);
    ck_assert_uint_eq(again.center->moves, followed[_i].keeps ? 3 : 0);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* limits.memory_gib counts it: center and snapshot of each vector. */
START_TEST(average_is_counted)
{
    const struct psd_rule *sgd = psd_rule_find("sgd"), *adam = psd_rule_find("adam");
    const struct ps_averaging *none = ps_averaging_find("none"), *moving = ps_averaging_find("moving");
    ck_assert_uint_eq(psd_center_bytes(1000, sgd, none, 4), 2 * 4000);
    ck_assert_uint_eq(psd_center_bytes(1000, sgd, moving, 4), 2 * 2 * 4000);
    ck_assert_uint_eq(psd_center_bytes(1000, adam, moving, 4), 2 * 4 * 4000);
}
END_TEST

/* Who follows the number in a refusal is not refused again. */
START_TEST(the_memory_that_a_refusal_names_is_enough)
{
    const struct psd_rule *sgd = psd_rule_find("sgd");
    struct psd_config cfg;
    struct ps_error err;
    psd_config_defaults(&cfg);
    snprintf(cfg.averaging, sizeof cfg.averaging, "none");
    for (uint64_t n_floats = 1; n_floats < UINT64_C(1) << 40; n_floats += n_floats / 9 + 1) {
        char setting[60], *number;
        cfg.limits.memory_gib = 1e-9;
        ck_assert_int_eq(psd_center_check_memory(&cfg, n_floats, sgd, &err), -E2BIG);
        ck_assert_ptr_nonnull(number = strstr(err.text, "needs "));
        snprintf(setting, sizeof setting, "limits.memory_gib=%.*s", (int)strcspn(number + 6, " "),
                 number + 6);
        ck_assert_msg(psd_config_set(&cfg, setting, &err) == 0, "%s", err.text);
        ck_assert_msg(psd_center_check_memory(&cfg, n_floats, sgd, &err) == 0, "%s: %s", setting, err.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-average");
    TCase *tc = tcase_create("average");
    tcase_add_loop_test(tc, average_follows_the_center_before_each_update, 0, (int)ROWS(jobs));
    tcase_add_test(tc, average_is_pulled);
    tcase_add_loop_test(tc, what_has_no_average_is_refused, 0, (int)ROWS(refused));
    tcase_add_test(tc, average_starts_at_the_offer);
    tcase_add_test(tc, average_goes_on_after_a_checkpoint);
    tcase_add_loop_test(tc, averaging_may_change_at_a_resume, 0, 2);
    tcase_add_test(tc, an_average_that_starts_at_a_resume_counts_from_there);
    tcase_add_loop_test(tc, an_average_of_another_kind_starts_at_the_center, 0, (int)ROWS(followed));
    tcase_add_test(tc, average_is_counted);
    tcase_add_test(tc, the_memory_that_a_refusal_names_is_enough);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
