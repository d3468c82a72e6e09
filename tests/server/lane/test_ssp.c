/* Stale clocks in real lanes: who is applied at once, who waits and for whom. The test is the loop and the
 * clients; messages are whole numbers, so that sums are exact. */
#include <math.h>
#include <stdio.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { INC = 7, P = 3, LANES = 2, CHUNKS = 3, N = (CHUNKS * LANES - 1) * RIG_CHUNK + 5, OTHER = 3 };

static float x[RIG_SLOTS][N];

/* Rule add: what client i sends is 10^i everywhere. */
static void open_job(struct rig *r, const char *rule, const char *slack)
{
    const char *const settings[] = {"admission=ssp", slack, NULL};
    for (int k = 0; k < RIG_SLOTS; k++)
        for (int i = 0; i < N; i++)
            x[k][i] = (float)((int[]){1, 10, 100, 1000})[k];
    rig_open(r, rule, LANES, settings);
    rig_fill(r, N, NULL);
    for (uint32_t i = 0; i < RIG_SLOTS; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, false);
    rig_members(r, 0, P, (const uint32_t[]){0, 1, 2});
}

static void send_chunk(struct rig *r, uint32_t client, uint64_t seq, uint32_t lane, uint32_t k)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, client, INC, seq, lane, k);
    rig_send_vector(r, lane, &f, x[client]);
}

static void end(struct rig *r, uint32_t client)
{
    for (uint32_t i = 0; i < r->n_lanes; i++)
        rig_tell(
            r, i,
            &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = client, .a = PS__CODE__EVICTED});
}

/* The next answer is this client's, with this value of the center. */
static void assert_answer(struct rig *r, uint32_t lane, uint32_t client, float value)
{
    struct reply reply;
    rig_recv(r, lane, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    ck_assert_uint_eq(reply.f.client, client);
    ck_assert_uint_eq(reply.f.flags, 0);
    for (uint32_t i = 0; i < reply.f.count; i++)
        assert_quick(reply.x[i] == value);
}

static uint32_t waiting(struct rig *r, uint32_t lane, uint32_t client)
{
    return atomic_load(&r->lanes[lane]->clients[client].waiting_chunks);
}

/* A whole exchange, which nothing holds back. */
static void exchange(struct rig *r, uint32_t client, uint64_t seq)
{
    rig_exchange(r, PS_FRAME_EXCHANGE, client, INC, seq, x[client], 0);
}

/* All but the first chunk of lane 0. */
static void finish(struct rig *r, uint32_t client, uint64_t seq)
{
    struct reply reply;
    for (uint32_t lane = 0; lane < r->n_lanes; lane++)
        for (uint32_t k = lane == 0; k < ps_shard_n_chunks(&r->center->shard, lane); k++) {
            send_chunk(r, client, seq, lane, k);
            rig_recv(r, lane, &reply);
            ck_assert_uint_eq(reply.f.client, client);
        }
}

START_TEST(nobody_is_more_than_slack_ahead)
{
    enum { SLACK = 2 };
    struct rig r;
    open_job(&r, "add", "slack=2");
    for (uint64_t seq = 1; seq <= SLACK; seq++)
        exchange(&r, 0, seq);
    ck_assert_uint_eq(atomic_load(&r.shared.version), SLACK); /* each one update */
    send_chunk(&r, 0, SLACK + 1, 0, 0);
    rig_assert_silent(&r, 0, OTHER, INC);
    ck_assert_uint_eq(waiting(&r, 0, 0), 1);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[0].waiting_seq), SLACK + 1);
    ck_assert_float_eq(rig_center(&r)[0], SLACK);
    send_chunk(&r, 1, 1, 0, 0); /* one of the two slowest */
    assert_answer(&r, 0, 1, SLACK + 10);
    rig_assert_silent(&r, 0, OTHER, INC);
    send_chunk(&r, 2, 1, 0, 0);
    assert_answer(&r, 0, 0, SLACK + 111); /* has theirs in it */
    assert_answer(&r, 0, 2, SLACK + 111);
    ck_assert_uint_eq(waiting(&r, 0, 0), 0);
    rig_close(&r);
}
END_TEST

/* Chunks, lanes: each for itself. */
START_TEST(a_chunk_waits_for_the_same_chunk)
{
    struct rig r;
    open_job(&r, "add", "slack=0");
    send_chunk(&r, 0, 1, 0, 0);
    send_chunk(&r, 1, 1, 0, 1);
    send_chunk(&r, 2, 1, 0, 0);
    send_chunk(&r, 1, 1, 1, 0);
    rig_assert_silent(&r, 0, OTHER, INC);
    rig_assert_silent(&r, 1, OTHER, INC);
    send_chunk(&r, 1, 1, 0, 0);
    for (uint32_t i = 0; i < P; i++)
        assert_answer(&r, 0, i, 111);
    rig_assert_silent(&r, 0, OTHER, INC);
    ck_assert_uint_eq(waiting(&r, 0, 1), 1);
    rig_close(&r);
}
END_TEST

/* Bulk synchronous: an answer has all of the exchange in it, and the next waits for all. */
START_TEST(without_slack_all_go_in_lockstep)
{
    static const uint32_t orders[][P] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
    struct rig r;
    open_job(&r, "add", "slack=0");
    for (uint64_t seq = 1; seq <= ROWS(orders); seq++)
        for (uint32_t lane = 0; lane < LANES; lane++)
            for (uint32_t k = 0; k < ps_shard_n_chunks(&r.center->shard, lane); k++) {
                for (uint32_t i = 0; i < P; i++) {
                    rig_assert_silent(&r, lane, OTHER, INC);
                    send_chunk(&r, orders[seq - 1][i], seq, lane, k);
                }
                for (uint32_t i = 0; i < P; i++)
                    assert_answer(&r, lane, i, 111 * (float)seq);
            }
    ck_assert_uint_eq(atomic_load(&r.shared.version), P * ROWS(orders));
    rig_close(&r);
}
END_TEST

/* Elastic: everyone against the center as those before it left it, which is what it is told. */
START_TEST(rules_that_answer_with_the_center_before_do_so)
{
    struct rig r;
    const char *const settings[] = {"admission=ssp", "slack=0", "alpha=0.5", NULL};
    rig_open(&r, "elastic", 1, settings);
    rig_fill(&r, RIG_CHUNK, NULL);
    for (uint32_t i = 0; i < P; i++) {
        rig_admit(&r, i, INC, PSD_PHASE_ACTIVE, false);
        for (int k = 0; k < RIG_CHUNK; k++)
            x[i][k] = (float)((int[]){8, 16, 32})[i];
    }
    rig_members(&r, 0, P, (const uint32_t[]){0, 1, 2});
    for (uint32_t i = P; i-- > 0;)
        send_chunk(&r, i, 1, 0, 0);
    assert_answer(&r, 0, 0, 0);
    assert_answer(&r, 0, 1, 4);  /* 0 + (8 - 0) / 2 */
    assert_answer(&r, 0, 2, 10); /* 4 + (16 - 4) / 2 */
    ck_assert_float_eq(rig_center(&r)[0], 21);
    rig_close(&r);
}
END_TEST

/* admm: who has not sent its first message may still be reading the center where it is to begin. */
START_TEST(workers_with_shares_begin_together)
{
    struct rig r;
    struct reply reply;
    const char *const settings[] = {"admission=ssp", "slack=1", "rho=1", "workers=3", NULL};
    rig_open(&r, "admm", 1, settings);
    rig_fill(&r, RIG_CHUNK, NULL);
    rig_admit(&r, OTHER, INC, PSD_PHASE_ACTIVE, false);
    for (uint32_t i = 0; i < P; i++) {
        rig_admit(&r, i, INC, PSD_PHASE_ACTIVE, false);
        for (int k = 0; k < RIG_CHUNK; k++)
            x[i][k] = (float)((int[]){3, 6, 9})[i];
    }
    rig_members(&r, 0, P, (const uint32_t[]){0, 1, 2});
    for (uint32_t i = 0; i < P; i++) {
        rig_assert_silent(&r, 0, OTHER, INC);
        ck_assert_float_eq(rig_center(&r)[0], 0);
        send_chunk(&r, i, 1, 0, 0);
    }
    assert_answer(&r, 0, 0, 0);
    assert_answer(&r, 0, 1, 1); /* eta rho is 1, so that kappa is 0: x + m / 3 */
    assert_answer(&r, 0, 2, 3);
    send_chunk(&r, 0, 2, 0, 0); /* from now on with slack */
    rig_recv(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.client, 0);
    rig_close(&r);
}
END_TEST

START_TEST(who_has_gone_is_not_waited_for)
{
    struct rig r;
    open_job(&r, "add", "slack=1");
    exchange(&r, 0, 1);
    exchange(&r, 1, 1);
    send_chunk(&r, 0, 2, 0, 0);
    send_chunk(&r, 1, 2, 0, 0);
    send_chunk(&r, 1, 2, 0, 1);
    rig_assert_silent(&r, 0, OTHER, INC);
    end(&r, 2);
    assert_answer(&r, 0, 0, 22);
    assert_answer(&r, 0, 1, 22);
    assert_answer(&r, 0, 1, 21);
    finish(&r, 0, 2);
    send_chunk(&r, 0, 3, 1, 0); /* a third before the other's second has come there */
    rig_assert_silent(&r, 1, OTHER, INC);
    end(&r, 1); /* alone it waits for nobody */
    assert_answer(&r, 1, 0, 13);
    rig_close(&r);
}
END_TEST

/* It starts level with the slowest, everywhere: with the clock of the chunk where that is furthest. */
START_TEST(who_joins_late_blocks_nobody_at_once)
{
    struct rig r;
    open_job(&r, "add", "slack=1");
    for (uint64_t seq = 1; seq <= 4; seq++)
        for (uint32_t i = 0; i < P; i++)
            exchange(&r, i, seq);
    for (uint32_t i = 0; i < P; i++) { /* in one chunk all have gone on */
        send_chunk(&r, i, 5, 1, 0);
        struct reply reply;
        rig_recv(&r, 1, &reply);
        ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
    }
    send_chunk(&r, OTHER, 1, 0, 0); /* early: it is no member yet */
    ck_assert_uint_eq(rig_hold(&r), 5);
    send_chunk(&r, 0, 5, 0, 0);
    struct ps_frame f = rig_frame(&r, PS_FRAME_PULL, OTHER, INC, 9, 0, 0);
    struct reply reply;
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    ck_assert_uint_eq(reply.f.seq, 9); /* while they hold nothing is applied */
    rig_members(&r, 5, P + 1, (const uint32_t[]){0, 1, 2, OTHER});
    /* Its first is number 6, the others' is 5: it is theirs that goes first, and there it is no longer ahead
     * by more than one only when the last of them has come. */
    assert_answer(&r, 0, 0, 4 * 111 + 1);
    send_chunk(&r, 1, 5, 0, 0);
    assert_answer(&r, 0, 1, 4 * 111 + 11);
    send_chunk(&r, 2, 5, 0, 0);
    assert_answer(&r, 0, 2, 5 * 111 + 1000);
    assert_answer(&r, 0, OTHER, 5 * 111 + 1000);
    rig_close(&r);
}
END_TEST

START_TEST(who_joined_late_is_the_slowest_from_then_on)
{
    struct rig r;
    open_job(&r, "add", "slack=1");
    for (uint64_t seq = 1; seq <= 4; seq++)
        for (uint32_t i = 0; i < P; i++)
            exchange(&r, i, seq);
    uint64_t from = rig_hold(&r);
    ck_assert_uint_eq(from, 4);
    rig_members(&r, from, P + 1, (const uint32_t[]){0, 1, 2, OTHER});
    exchange(&r, 0, 5);
    send_chunk(&r, 0, 6, 0, 0);
    exchange(&r, 1, 5);
    exchange(&r, 2, 5);
    ck_assert_uint_eq(waiting(&r, 0, 0), 1);
    send_chunk(&r, OTHER, 1, 0, 0);
    assert_answer(&r, 0, 0, 5 * 111 + 1001);
    assert_answer(&r, 0, OTHER, 5 * 111 + 1001);
    rig_close(&r);
}
END_TEST

START_TEST(a_chunk_sent_again_counts_once)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "add", "slack=1");
    exchange(&r, 0, 1);
    for (int again = 0; again < 3; again++)
        send_chunk(&r, 0, 2, 0, 0);
    rig_assert_silent(&r, 0, OTHER, INC);
    ck_assert_uint_eq(waiting(&r, 0, 0), 1);
    send_chunk(&r, 1, 1, 0, 0);
    assert_answer(&r, 0, 1, 11);
    send_chunk(&r, 2, 1, 0, 0);
    assert_answer(&r, 0, 0, 112);
    assert_answer(&r, 0, 2, 112);
    send_chunk(&r, 0, 2, 0, 0); /* and when it has landed: as a replay, at once */
    rig_recv(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.flags, PS_FLAG_REPLAYED);
    ck_assert_float_eq(reply.x[0], 112);
    rig_close(&r);
}
END_TEST

/* What takes its place has its number: giving up gains nothing. */
START_TEST(a_given_up_exchange_is_no_clock)
{
    struct rig r;
    open_job(&r, "add", "slack=1");
    exchange(&r, 1, 1);
    exchange(&r, 2, 1);
    send_chunk(&r, 0, 1, 0, 0);
    assert_answer(&r, 0, 0, 111);
    for (uint64_t seq = 2; seq < 9; seq++) { /* each the first of client 0 */
        send_chunk(&r, 0, seq, 0, 0);
        assert_answer(&r, 0, 0, 110 + (float)seq);
    }
    exchange(&r, 0, 9);
    exchange(&r, 0, 10);
    send_chunk(&r, 0, 11, 0, 0);
    rig_assert_silent(&r, 0, OTHER, INC);
    send_chunk(&r, 0, 12, 0, 0); /* takes its place */
    rig_assert_silent(&r, 0, OTHER, INC);
    ck_assert_uint_eq(waiting(&r, 0, 0), 1);
    rig_close(&r);
}
END_TEST

/* Values that a member sets move no clock. */
START_TEST(setting_values_is_no_clock)
{
    struct rig r;
    open_job(&r, "add", "slack=1");
    exchange(&r, 0, 1);
    for (uint64_t seq = 1; seq < 5; seq++) {
        rig_exchange(&r, PS_FRAME_SET, 1, INC, seq, x[1], 0);
        rig_exchange(&r, PS_FRAME_SET, 0, INC, 1 + seq, x[0], 0);
    }
    send_chunk(&r, 0, 9, 0, 0);
    rig_assert_silent(&r, 0, OTHER, INC); /* client 1 has sent no exchange, as little as client 2 */
    send_chunk(&r, 1, 5, 0, 0);
    assert_answer(&r, 0, 1, 11);
    send_chunk(&r, 2, 1, 0, 0);
    assert_answer(&r, 0, 0, 112);
    assert_answer(&r, 0, 2, 112);
    rig_close(&r);
}
END_TEST

START_TEST(a_client_may_stage_its_window_and_no_more)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "add", "slack=0");
    ck_assert_uint_eq(r.center->window_chunks, 2);
    for (uint32_t k = 0; k < 3; k++)
        send_chunk(&r, 0, 1, 0, k);
    rig_recv(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_uint_eq(reply.f.code, PS__CODE__LIMIT);
    assert_says(reply.sentence, "window_chunks");
    rig_close(&r);
}
END_TEST

START_TEST(what_cannot_be_staged_is_refused)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "add", "slack=5");
    x[1][17] = NAN;
    send_chunk(&r, 1, 1, 0, 0);
    rig_recv(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__VALUE);
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_FAULT);
    ck_assert_float_eq(rig_center(&r)[3], 0); /* whole */
    rig_close(&r);
}
END_TEST

/* No round to wait for: the center as it is, while somebody waits. */
START_TEST(a_snapshot_waits_for_nobody_and_a_resumed_job_starts_level)
{
    struct rig r, again;
    struct psd_snapshot s;
    struct reply reply;
    open_job(&r, "add", "slack=1");
    exchange(&r, 0, 1);
    exchange(&r, 1, 1);
    send_chunk(&r, 0, 2, 0, 0);
    send_chunk(&r, 2, 1, 1, 0); /* cut in two */
    assert_answer(&r, 1, 2, 111);
    rig_assert_silent(&r, 0, OTHER, INC);
    rig_snapshot(&r, &s);
    ck_assert_float_eq(s.center[0], 11);
    rig_close(&r);

    const char *const settings[] = {"admission=ssp", "slack=1", NULL};
    rig_open(&again, "add", LANES, settings);
    rig_resume(&again, &s);
    for (uint32_t i = 0; i < P; i++)
        rig_admit(&again, i, INC, PSD_PHASE_ACTIVE, true);
    rig_admit(&again, OTHER, INC, PSD_PHASE_ACTIVE, false);
    rig_members(&again, 0, P, (const uint32_t[]){0, 1, 2});
    exchange(&again, 0, 2); /* the first of each in this run */
    send_chunk(&again, 0, 3, 0, 0);
    rig_assert_silent(&again, 0, OTHER, INC);
    exchange(&again, 1, 2);
    send_chunk(&again, 2, 1, 1, 0); /* it had landed */
    rig_recv(&again, 1, &reply);
    ck_assert_uint_eq(reply.f.flags, PS_FLAG_REPLAYED);
    send_chunk(&again, 2, 1, 0, 0);
    assert_answer(&again, 0, 0, 123);
    assert_answer(&again, 0, 2, 123);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* A job of clients 0 and 1 that is resumed, of whose first exchange lane 0 had copied client 0's, lane 1
 * client 1's. */
static void resume_halves(struct rig *r, struct psd_snapshot *s)
{
    const char *const settings[] = {"admission=ssp", "slack=0", NULL};
    struct rig before;
    struct reply reply;
    open_job(&before, "add", "slack=1");
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&before.center->shard, lane); k++) {
            send_chunk(&before, lane, 1, lane, k);
            rig_recv(&before, lane, &reply);
        }
    rig_snapshot(&before, s);
    rig_close(&before);
    rig_open(r, "add", LANES, settings);
    rig_resume(r, s);
    for (uint32_t i = 0; i < 2; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, true);
    rig_admit(r, OTHER, INC, PSD_PHASE_ACTIVE, false);
    rig_members(r, 0, 2, (const uint32_t[]){0, 1});
}

/* Neither waits for the other's, which is there already; then they go in lockstep again. */
START_TEST(lanes_may_have_been_copied_on_both_sides_of_an_exchange)
{
    struct rig r;
    struct psd_snapshot s;
    resume_halves(&r, &s);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r.center->shard, lane); k++) {
            send_chunk(&r, 1 - lane, 1, lane, k);
            assert_answer(&r, lane, 1 - lane, 11);
        }
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r.center->shard, lane); k++) {
            send_chunk(&r, lane, 2, lane, k); /* its first in this lane */
            assert_answer(&r, lane, lane, lane == 0 ? 12 : 21);
            send_chunk(&r, 1 - lane, 2, lane, k);
            assert_answer(&r, lane, 1 - lane, 22);
        }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        send_chunk(&r, 0, 3, lane, 0);
        rig_assert_silent(&r, lane, OTHER, INC);
        send_chunk(&r, 1, 3, lane, 0);
        assert_answer(&r, lane, 0, 33);
        assert_answer(&r, lane, 1, 33);
    }
    rig_close(&r);
    rig_snapshot_free(&s);
}
END_TEST

/* Client 0 has had answers to all but the last chunk of lane 1 from the psd before, client 1 to all. */
START_TEST(the_rest_of_an_exchange_waits_for_nobody)
{
    struct rig r;
    struct psd_snapshot s;
    resume_halves(&r, &s);
    uint32_t last = ps_shard_n_chunks(&r.center->shard, 1) - 1;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        send_chunk(&r, 1, 2, lane, 0);
        assert_answer(&r, lane, 1, lane == 0 ? 11 : 20);
    }
    send_chunk(&r, 0, 1, 1, last);
    assert_answer(&r, 1, 0, 11);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        send_chunk(&r, 0, 2, lane, 0);
        assert_answer(&r, lane, 0, lane == 0 ? 12 : 21);
    }
    rig_close(&r);
    rig_snapshot_free(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-ssp");
    TCase *tc = tcase_create("ssp");
    tcase_add_test(tc, nobody_is_more_than_slack_ahead);
    tcase_add_test(tc, a_chunk_waits_for_the_same_chunk);
    tcase_add_test(tc, without_slack_all_go_in_lockstep);
    tcase_add_test(tc, rules_that_answer_with_the_center_before_do_so);
    tcase_add_test(tc, workers_with_shares_begin_together);
    tcase_add_test(tc, who_has_gone_is_not_waited_for);
    tcase_add_test(tc, who_joins_late_blocks_nobody_at_once);
    tcase_add_test(tc, who_joined_late_is_the_slowest_from_then_on);
    tcase_add_test(tc, a_chunk_sent_again_counts_once);
    tcase_add_test(tc, a_given_up_exchange_is_no_clock);
    tcase_add_test(tc, setting_values_is_no_clock);
    tcase_add_test(tc, a_client_may_stage_its_window_and_no_more);
    tcase_add_test(tc, what_cannot_be_staged_is_refused);
    tcase_add_test(tc, a_snapshot_waits_for_nobody_and_a_resumed_job_starts_level);
    tcase_add_test(tc, lanes_may_have_been_copied_on_both_sides_of_an_exchange);
    tcase_add_test(tc, the_rest_of_an_exchange_waits_for_nobody);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
