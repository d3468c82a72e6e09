/* What a client last saw of the center, which rule dc-asgd compensates from: what it was answered or pulled,
 * from when it joined. With g = 1, eta = 1 and lambda = 1 a client that saw y moves x to y - 1, whatever x
 * is; other numbers are counted by hand. */
#include <errno.h>
#include <stdio.h>

#include "server/admissions/admissions.h"
#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { A = 0, B = 1, OBSERVER = 3, INC = 7, LANES = 2, N = 2 * LANES * RIG_CHUNK };

static const char *const two[] = {"workers=2", "compensation=1", NULL};
static const char *const two_racing[] = {"workers=2", "compensation=1", "admission=hogwild", NULL};
static const char *const *const jobs[] = {two, two_racing};
static float ones[N], start[N];

static void open_job(struct rig *r, const char *const *settings)
{
    for (int i = 0; i < N; i++) {
        ones[i] = 1;
        start[i] = 8;
    }
    rig_open(r, "dc-asgd", LANES, settings);
    rig_fill(r, N, start);
    rig_admit(r, A, INC, PSD_PHASE_ACTIVE, false);
    rig_admit(r, B, INC, PSD_PHASE_ACTIVE, false);
    rig_admit(r, OBSERVER, INC, PSD_PHASE_OBSERVING, false);
    rig_center(r); /* every lane has admitted them */
}

/* Each client's data comes to one lane under hogwild. */
static uint32_t lane_of(const struct rig *r, uint32_t client)
{
    return r->center->whole_lanes ? client % LANES : 0;
}

static float ask(struct rig *r, uint8_t kind, uint32_t client, uint32_t incarnation, uint64_t seq)
{
    struct reply reply = {.body_bytes = 0};
    uint32_t lane = lane_of(r, client);
    struct ps_frame f = rig_frame(r, kind, client, incarnation, seq, r->center->whole_lanes ? 0 : lane, 1);
    rig_ask(r, lane, &f, ones, kind == PS_FRAME_PULL ? 0 : f.count * sizeof *ones, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    return reply.x[RIG_CHUNK - 1];
}

static float at_center(struct rig *r)
{
    return rig_center(r)[2 * RIG_CHUNK - 1];
}

START_TEST(each_compensates_from_what_it_saw)
{
    struct rig r;
    open_job(&r, jobs[_i]);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, B, INC, 1), 7);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, B, INC, 2), 6);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC, 1), 7); /* it saw 8 */
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC, 2), 6); /* it was answered 7 */
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC, 3), 5);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, B, INC, 3), 5); /* it was answered 6 */
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC, 4), 4);
    ck_assert_float_eq(ask(&r, PS_FRAME_PULL, OBSERVER, INC, 1), 4);
    ck_assert_float_eq(ask(&r, PS_FRAME_PULL, B, INC, 4), 4);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC, 5), 3);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, B, INC, 5), 3); /* it pulled 4 */
    rig_close(&r);
}
END_TEST

/* The head of several servers ends its session, of which another server may hear too late. */
START_TEST(who_is_beyond_workers_moves_nothing)
{
    enum { C = 2 };
    static const uint8_t kinds[] = {PS_FRAME_EXCHANGE, PS_FRAME_PUSH, PS_FRAME_ADD};
    struct rig r;
    struct reply reply;
    open_job(&r, two);
    rig_admit(&r, C, INC, PSD_PHASE_ACTIVE, false);
    for (uint64_t i = 0; i < ROWS(kinds); i++) {
        struct ps_frame f = rig_frame(&r, kinds[i], C, INC, i + 1, 0, 1);
        rig_ask_vector(&r, 0, &f, ones, &reply);
        ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
        ck_assert_uint_eq(reply.f.code, PS__CODE__RANK_RANGE);
    }
    ck_assert_float_eq(at_center(&r), 8);
    rig_close(&r);
}
END_TEST

/* A push is answered with nothing; a chunk that is sent again with the center as it is. */
START_TEST(only_what_it_was_sent_was_seen)
{
    struct rig r;
    open_job(&r, jobs[_i]);
    ask(&r, PS_FRAME_PUSH, A, INC, 1);
    ck_assert_float_eq(at_center(&r), 7);
    ask(&r, PS_FRAME_PUSH, A, INC, 2);
    ck_assert_float_eq(at_center(&r), 7);                         /* it saw 8 */
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC, 3), 7); /* the same */
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, B, INC, 1), 7);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, B, INC, 2), 6);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC, 3), 6); /* again */
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC, 4), 5);
    rig_close(&r);
}
END_TEST

START_TEST(who_joins_anew_saw_the_center)
{
    struct rig r;
    open_job(&r, jobs[_i]);
    for (uint64_t seq = 1; seq <= 3; seq++)
        ask(&r, PS_FRAME_EXCHANGE, B, INC, seq);
    rig_admit(&r, A, INC + 1, PSD_PHASE_ACTIVE, false);
    ck_assert_float_eq(at_center(&r), 5);
    ck_assert_float_eq(ask(&r, PS_FRAME_EXCHANGE, A, INC + 1, 1), 4);
    rig_close(&r);
}
END_TEST

/* No checkpoint has it: after a resume all saw the center. */
START_TEST(who_is_resumed_saw_the_center)
{
    struct psd_snapshot s;
    struct rig r, again;
    open_job(&r, two);
    for (uint64_t seq = 1; seq <= 3; seq++)
        ask(&r, PS_FRAME_EXCHANGE, B, INC, seq);
    rig_snapshot(&r, &s);
    rig_close(&r);
    rig_open(&again, "dc-asgd", LANES, two);
    rig_resume(&again, &s);
    rig_admit(&again, A, INC, PSD_PHASE_ACTIVE, true);
    ck_assert_float_eq(ask(&again, PS_FRAME_EXCHANGE, A, INC, 1), 4);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* Center and snapshot, and one more vector for each worker. */
START_TEST(memory_counts_what_each_worker_saw)
{
    const struct ps_tensor t = {"model", 0, {1 << 20}, 1, PS_ROLE_PARAM};
    const struct psd_rule *dc = psd_rule_find("dc-asgd"), *sgd = psd_rule_find("sgd");
    const struct ps_averaging *none = ps_averaging_find("none");
    struct psd_center *center = NULL;
    struct psd_config cfg;
    struct ps_error err;
    ck_assert_uint_eq(psd_center_bytes(1000, dc, none, 4), (2 + 4) * 4000);
    ck_assert_uint_eq(psd_center_bytes(1000, sgd, none, 4), 2 * 4000);
    psd_config_defaults(&cfg);
    snprintf(cfg.method, sizeof cfg.method, "dc-asgd");
    cfg.lanes = 2;
    for (int workers = 2; workers <= 3; workers++) {
        struct ps_manifest *manifest;
        char setting[20];
        snprintf(setting, sizeof setting, "workers=%d", workers);
        ck_assert_int_eq(psd_config_set(&cfg, setting, &err), 0);
        ck_assert_msg(psd_config_check(&cfg, &err, NULL) == 0, "%s", err.text);
        cfg.limits.memory_gib = 16.0 / 1024; /* four vectors of 4 MiB */
        ck_assert_int_eq(ps_manifest_create(&t, 1, 1 << 20, &manifest, &err), 0);
        int rc = psd_center_create(&cfg, psd_admission_find(cfg.admission), manifest, &center, &err);
        ck_assert_int_eq(rc, workers == 2 ? 0 : -E2BIG);
    }
    assert_says(err.text, "limits.memory_gib is 0.015625");
    psd_center_destroy(center);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-seen");
    TCase *tc = tcase_create("seen");
    tcase_add_loop_test(tc, each_compensates_from_what_it_saw, 0, ROWS(jobs));
    tcase_add_loop_test(tc, only_what_it_was_sent_was_seen, 0, ROWS(jobs));
    tcase_add_loop_test(tc, who_joins_anew_saw_the_center, 0, ROWS(jobs));
    tcase_add_test(tc, who_is_beyond_workers_moves_nothing);
    tcase_add_test(tc, who_is_resumed_saw_the_center);
    tcase_add_test(tc, memory_counts_what_each_worker_saw);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
