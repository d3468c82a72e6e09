/* Rounds in real lanes: what is staged, when it is applied, who takes part. The test is the loop and the
 * clients. */
#include <math.h>
#include <stdio.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { INC = 7, P = 3, LANES = 2, CHUNKS = 3, N = (CHUNKS * LANES - 1) * RIG_CHUNK + 5, OTHER = 3 };

static float center[N], x[P][N];

static void open_job(struct rig *r, const char *rule, const char *const *settings)
{
    struct dice dice = {5};
    for (int i = 0; i < N; i++) {
        center[i] = dice_float(&dice);
        for (int k = 0; k < P; k++)
            x[k][i] = dice_float(&dice);
    }
    rig_open(r, rule, LANES, settings);
    rig_fill(r, N, center);
    for (uint32_t i = 0; i < RIG_SLOTS; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, false);
    rig_members(r, 0, P, (const uint32_t[]){0, 1, 2});
}

static void send_chunk(struct rig *r, uint32_t client, uint64_t seq, uint32_t lane, uint32_t k)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, client, INC, seq, lane, k);
    rig_send_vector(r, lane, &f, x[client]);
}

static void recv_answer(struct rig *r, uint32_t lane, struct reply *reply)
{
    rig_recv(r, lane, reply);
    ck_assert_msg(reply->f.kind == PS_FRAME_ANSWER, "%s", reply->sentence);
}

/* A round of everyone, each lane's chunks one after the other; members send in the order of `order`. */
static void play_round(struct rig *r, uint64_t seq, const uint32_t *order, uint32_t n, float answers[P][N])
{
    struct reply reply;
    for (uint32_t lane = 0; lane < r->n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r->center->shard, lane); k++) {
            for (uint32_t i = 0; i < n; i++)
                send_chunk(r, order[i], seq, lane, k);
            for (uint32_t i = 0; i < n; i++) {
                recv_answer(r, lane, &reply);
                if (answers != NULL)
                    memcpy(answers[reply.f.client] + reply.f.begin, reply.x, reply.body_bytes);
            }
        }
}

static const char *const sync_alpha[] = {"admission=sync", "alpha=0.25", NULL};
static const char *const sync_plain[] = {"admission=sync", NULL};
static const uint32_t orders[][P] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};

/* Values are below 2, their sums below 8: four roundings of half an ulp of that each. */
static const double tolerance = 1e-6;

START_TEST(a_round_moves_the_center_by_everyone_at_once)
{
    static float answers[P][N];
    struct rig r;
    open_job(&r, "elastic", sync_alpha);
    play_round(&r, 1, orders[_i], P, answers);
    const float *after = rig_center(&r);
    for (int i = 0; i < N; i++) {
        double c = (double)center[i], sum = (double)x[0][i] + (double)x[1][i] + (double)x[2][i];
        assert_quick(fabs((double)after[i] - (c + 0.25 * (sum - 3 * c))) < tolerance);
        for (int k = 0; k < P; k++)
            assert_quick(answers[k][i] == center[i]); /* all against the same center */
    }
    ck_assert_uint_eq(atomic_load(&r.shared.version), 1);
    rig_close(&r);
}
END_TEST

START_TEST(gradients_are_averaged_and_answered_with_the_center_after)
{
    static float answers[P][N];
    struct rig r;
    open_job(&r, "sgd", sync_plain);
    play_round(&r, 1, orders[_i], P, answers);
    const float *after = rig_center(&r);
    for (int i = 0; i < N; i++) {
        double mean = ((double)x[0][i] + (double)x[1][i] + (double)x[2][i]) / 3;
        assert_quick(fabs((double)after[i] - ((double)center[i] - mean)) < tolerance);
        for (int k = 0; k < P; k++)
            assert_quick(answers[k][i] == after[i]);
    }
    rig_close(&r);
}
END_TEST

/* A known answer: beta = 0 and eta = 1 take the mean of the workers' points, center + message. */
START_TEST(an_outer_step_without_momentum_takes_the_mean)
{
    static const char *const whole[] = {"admission=sync", "outer_learning_rate=1", "outer_momentum=0", NULL};
    static float answers[P][N];
    struct rig r;
    open_job(&r, "outer-nesterov", whole);
    play_round(&r, 1, orders[_i], P, answers);
    const float *after = rig_center(&r);
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int k = 0; k < P; k++)
            sum += (double)center[i] + (double)x[k][i];
        assert_quick(fabs((double)after[i] - sum / P) < tolerance);
        for (int k = 0; k < P; k++)
            assert_quick(answers[k][i] == after[i]);
    }
    rig_close(&r);
}
END_TEST

/* Each chunk's momentum comes with the N-th of its own moves, whatever others have had: N = 2, eta = 1, beta
 * = 1/2 from 0 with messages of -1: -1/2, then m = 1 and -1 - 1/2. */
START_TEST(delayed_momentum_counts_the_moves_of_each_chunk)
{
    static const char *const two[] = {"outer_learning_rate=1", "outer_momentum=0.5", "delay=2", NULL};
    static float minus[N];
    struct reply reply;
    struct rig r;
    for (int i = 0; i < N; i++)
        minus[i] = -1;
    rig_open(&r, "delayed-nesterov", LANES, two);
    rig_fill(&r, N, NULL);
    for (uint32_t i = 0; i < P; i++)
        rig_admit(&r, i, INC, PSD_PHASE_ACTIVE, false);
    for (uint32_t client = 0; client < 2; client++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, client, INC, 1, 0, 0);
        rig_ask_vector(&r, 0, &f, minus, &reply);
        ck_assert_float_eq(reply.x[0], client == 0 ? -0.5f : -1.5f);
        ck_assert_float_eq(reply.f.rate, 1);
    }
    for (uint32_t client = 0; client < 2; client++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, client, INC, 1, 0, 1);
        rig_ask_vector(&r, 0, &f, minus, &reply);
        ck_assert_float_eq(reply.x[0], client == 0 ? -0.5f : -1.5f);
    }
    rig_close(&r);
}
END_TEST

START_TEST(arrival_order_changes_no_bit)
{
    static const char *const rules[] = {"elastic", "sgd", "add", "outer-nesterov", "delayed-nesterov"};
    static float first[N];
    for (size_t rule = 0; rule < ROWS(rules); rule++)
        for (size_t order = 0; order < ROWS(orders); order++) {
            struct rig r;
            open_job(&r, rules[rule], rule == 0 ? sync_alpha : sync_plain);
            play_round(&r, 1, orders[order], P, NULL);
            play_round(&r, 2, orders[(order + 1) % ROWS(orders)], P, NULL);
            const float *after = rig_center(&r);
            if (order == 0)
                memcpy(first, after, sizeof first);
            ck_assert_msg(memcmp(first, after, sizeof first) == 0, "rule %s, order %zu", rules[rule], order);
            rig_close(&r);
        }
}
END_TEST

START_TEST(the_mean_is_weighted_by_samples)
{
    static const uint32_t samples[P] = {10, 30, 60};
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", sync_plain);
    for (uint32_t i = 0; i < P; i++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, i, INC, 1, 0, 0);
        f.samples = samples[i];
        rig_send(&r, 0, &f, x[i], f.count * sizeof(float));
    }
    for (uint32_t i = 0; i < P; i++)
        recv_answer(&r, 0, &reply);
    for (uint32_t i = 0; i < reply.f.count; i++) {
        double mean = 0.1 * (double)x[0][i] + 0.3 * (double)x[1][i] + 0.6 * (double)x[2][i];
        assert_quick(fabs((double)reply.x[i] - ((double)center[i] - mean)) < tolerance);
    }
    rig_close(&r);
}
END_TEST

START_TEST(nothing_moves_before_the_last_has_come)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", sync_plain);
    send_chunk(&r, 0, 1, 0, 0);
    send_chunk(&r, 2, 1, 0, 0);
    rig_assert_silent(&r, 0, OTHER, INC);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[0].waiting_chunks), 1);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[0].waiting_seq), 1);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[1].waiting_chunks), 0);
    ck_assert_int_eq(memcmp(rig_center(&r), center, sizeof center), 0);
    send_chunk(&r, 1, 1, 0, 0);
    for (int i = 0; i < P; i++)
        recv_answer(&r, 0, &reply);
    rig_assert_silent(&r, 0, OTHER, INC);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[0].waiting_chunks), 0);
    ck_assert_uint_eq(atomic_load(&r.shared.version), 0); /* one chunk is no round */
    rig_close(&r);
}
END_TEST

START_TEST(a_chunk_sent_again_counts_once)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "add", sync_plain);
    for (int again = 0; again < 3; again++)
        send_chunk(&r, 0, 1, 0, 0);
    send_chunk(&r, 1, 1, 0, 0);
    send_chunk(&r, 2, 1, 0, 0);
    for (int i = 0; i < P; i++)
        recv_answer(&r, 0, &reply);
    for (uint32_t i = 0; i < reply.f.count; i++) {
        double want = (double)center[i] + (double)x[0][i] + (double)x[1][i] + (double)x[2][i];
        assert_quick(fabs((double)reply.x[i] - want) < tolerance);
    }
    send_chunk(&r, 0, 1, 0, 0); /* and when it has landed: as a replay */
    recv_answer(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.flags, PS_FLAG_REPLAYED);
    rig_close(&r);
}
END_TEST

START_TEST(of_a_given_up_exchange_nothing_is_left)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "add", sync_plain);
    send_chunk(&r, 0, 1, 0, 0);
    send_chunk(&r, 0, 1, 0, 1);
    send_chunk(&r, 0, 2, 0, 0); /* takes the place of both */
    send_chunk(&r, 1, 1, 0, 0);
    send_chunk(&r, 2, 1, 0, 0);
    for (int i = 0; i < P; i++) {
        recv_answer(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.seq, reply.f.client == 0 ? 2 : 1);
    }
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[0].waiting_chunks), 0);
    rig_close(&r);
}
END_TEST

/* Also where what comes in its place is refused. */
START_TEST(of_a_given_up_exchange_nothing_waits)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "add", sync_plain);
    send_chunk(&r, 0, 1, 0, 1);
    x[0][17] = NAN;
    send_chunk(&r, 0, 2, 0, 0);
    rig_recv(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__VALUE);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[0].waiting_chunks), 0);
    rig_close(&r);
}
END_TEST

START_TEST(a_client_may_stage_its_window_and_no_more)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", sync_plain);
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

/* Its rounds close without some members, so that nobody could say which keys of theirs are in it. */
START_TEST(a_tensor_alone_is_refused_under_backup)
{
    static const char *const backup[] = {"admission=backup", "backup=1", NULL};
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", backup);
    struct ps_frame f = rig_frame(&r, PS_FRAME_PUSH, 0, INC, 1, 0, 0);
    f.flags = PS_FLAG_TENSOR;
    rig_ask(&r, 0, &f, x[0], f.count * sizeof(float), &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__RANGE);
    assert_says(reply.sentence, "admission backup takes exchanges of the whole vector");
    rig_close(&r);
}
END_TEST

START_TEST(a_message_that_is_not_finite_is_refused_whole)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", sync_plain);
    x[1][17] = NAN;
    send_chunk(&r, 1, 1, 0, 0);
    rig_recv(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__VALUE);
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_FAULT);
    for (uint32_t i = 0; i < LANES; i++) /* as the loop does then */
        rig_tell(&r, i,
                 &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = 1, .a = PS__CODE__VALUE});
    play_round(&r, 1, (const uint32_t[]){0, 2}, 2, NULL);
    const float *after = rig_center(&r);
    for (int i = 0; i < N; i++) {
        double mean = ((double)x[0][i] + (double)x[2][i]) / 2;
        assert_quick(fabs((double)after[i] - ((double)center[i] - mean)) < tolerance);
    }
    rig_close(&r);
}
END_TEST

START_TEST(sums_that_overflow_are_not_stored)
{
    struct rig r;
    open_job(&r, "add", sync_plain);
    x[0][3] = x[1][3] = 3e38f;
    play_round(&r, 1, orders[0], P, NULL);
    const float *after = rig_center(&r);
    ck_assert_float_eq(after[3], center[3]);
    assert_quick(after[4] != center[4]);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->stats.rejected[PS__CODE__VALUE]), 1);
    rig_close(&r);
}
END_TEST

START_TEST(a_round_ends_without_who_has_gone)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", sync_plain);
    send_chunk(&r, 0, 1, 0, 0);
    send_chunk(&r, 2, 1, 0, 0); /* is staged, and goes with its client */
    rig_assert_silent(&r, 0, OTHER, INC);
    rig_tell(&r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = 2, .a = PS__CODE__EVICTED});
    rig_assert_silent(&r, 0, OTHER, INC);
    rig_tell(&r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = 1, .a = PS__CODE__EVICTED});
    recv_answer(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.client, 0);
    for (uint32_t i = 0; i < reply.f.count; i++)
        assert_quick(fabs((double)reply.x[i] - ((double)center[i] - (double)x[0][i])) < tolerance);
    rig_close(&r);
}
END_TEST

START_TEST(members_change_between_rounds)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "add", sync_plain);
    ck_assert_uint_eq(rig_hold(&r), 0);
    rig_members(&r, 0, 2, (const uint32_t[]){0, 1});
    play_round(&r, 1, orders[0], 2, NULL);
    /* Round 1 has begun in one chunk of one lane: who joins now takes part from round 2 on. */
    send_chunk(&r, 0, 2, 1, 0);
    send_chunk(&r, 1, 2, 1, 0);
    recv_answer(&r, 1, &reply);
    recv_answer(&r, 1, &reply);
    send_chunk(&r, 2, 1, 0, 0); /* the new one's first message is early */
    ck_assert_uint_eq(rig_hold(&r), 2);
    send_chunk(&r, 0, 2, 0, 0);
    send_chunk(&r, 1, 2, 0, 0);
    rig_assert_silent(&r, 0, OTHER, INC);
    rig_members(&r, 2, P, (const uint32_t[]){0, 1, 2});
    recv_answer(&r, 0, &reply);
    recv_answer(&r, 0, &reply);
    for (uint32_t i = 0; i < reply.f.count; i++)
        assert_quick(fabs((double)reply.x[i] -
                          ((double)center[i] + 2 * ((double)x[0][i] + (double)x[1][i]))) < 2 * tolerance);
    send_chunk(&r, 0, 3, 0, 0); /* round 2 waits for all three, of whom one is there */
    rig_assert_silent(&r, 0, OTHER, INC);
    send_chunk(&r, 1, 3, 0, 0);
    for (int i = 0; i < P; i++)
        recv_answer(&r, 0, &reply);
    rig_close(&r);
}
END_TEST

START_TEST(a_snapshot_is_the_center_after_a_round)
{
    static float answers[P][N];
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", sync_plain);
    play_round(&r, 1, orders[0], P, NULL);
    ck_assert_uint_eq(rig_hold(&r), 1);
    for (uint32_t i = 0; i < LANES; i++) {
        rig_tell(&r, i,
                 &(struct psd_lane_message){.kind = PSD_COMMAND_SNAPSHOT, .a = 2, .p = &r.center->snapshot});
        rig_tell(&r, i, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
    }
    ck_assert(!rig_heard(&r, 0));
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r.center->shard, lane); k++) {
            for (uint32_t i = 0; i < P; i++)
                send_chunk(&r, i, 2, lane, k);
            for (uint32_t i = 0; i < P; i++) {
                recv_answer(&r, lane, &reply);
                ck_assert_uint_eq(reply.f.flags, PS_FLAG_SAVE);
                ck_assert_uint_eq(reply.f.center_version, 2);
                memcpy(answers[i] + reply.f.begin, reply.x, reply.body_bytes);
            }
        }
    for (uint32_t i = 0; i < LANES; i++)
        ck_assert_int_eq(rig_hear(&r, i).kind, PSD_LANE_SNAPPED);
    play_round(&r, 3, orders[1], P, NULL);
    ck_assert_int_eq(memcmp(r.center->snapshot.center, answers[0], sizeof answers[0]), 0);
    ck_assert_uint_eq(r.center->snapshot.lane_clocks[0], 2);
    rig_close(&r);
}
END_TEST

static void end_all_but_the_newcomer(struct rig *r)
{
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t i = 0; i < P; i++)
            rig_tell(
                r, lane,
                &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = i, .a = PS__CODE__EVICTED});
}

/* All members die in the middle of a round after which the lanes are to copy, and somebody has come
 * meanwhile: he goes on after the copy, which has nothing of his, though a message of his was there. */
START_TEST(a_snapshot_outlives_the_members_of_its_round)
{
    static const uint32_t newcomer[] = {OTHER};
    static float want[N];
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", sync_plain);
    rig_hold(&r);
    for (uint32_t i = 0; i < LANES; i++) {
        rig_tell(&r, i,
                 &(struct psd_lane_message){.kind = PSD_COMMAND_SNAPSHOT, .a = 1, .p = &r.center->snapshot});
        rig_tell(&r, i, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
    }
    for (uint32_t i = 0; i < P; i++)
        send_chunk(&r, i, 1, 0, 0);
    memcpy(want, center, sizeof want);
    for (uint32_t i = 0; i < P; i++) {
        recv_answer(&r, 0, &reply);
        memcpy(want + reply.f.begin, reply.x, reply.body_bytes);
    }
    ck_assert_uint_eq(rig_hold(&r), 1);
    rig_members(&r, 1, 1, newcomer);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, OTHER, INC, 1, lane, 0);
        rig_send_vector(&r, lane, &f, x[0]);
    }
    end_all_but_the_newcomer(&r);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        ck_assert_int_eq(rig_hear(&r, lane).kind, PSD_LANE_SNAPPED);
        recv_answer(&r, lane, &reply);
        ck_assert_uint_eq(reply.f.client, OTHER);
        ck_assert_uint_eq(reply.f.center_version, 2);
    }
    ck_assert_int_eq(memcmp(r.center->snapshot.center, want, sizeof want), 0);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 1; k < ps_shard_n_chunks(&r.center->shard, lane); k++) {
            struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, OTHER, INC, 1, lane, k);
            rig_ask_vector(&r, lane, &f, x[0], &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        }
    ck_assert_uint_eq(atomic_load(&r.shared.version), 2); /* the round that was cut short is one */
    rig_close(&r);
}
END_TEST

static const char *const round_robin[] = {"admission=round-robin", "alpha=0.5", NULL};
static const char *const serial[] = {"admission=round-robin", "alpha=0.5", "serial=true", NULL};

START_TEST(round_robin_applies_in_order_of_rank)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "elastic", round_robin);
    send_chunk(&r, 2, 1, 0, 0);
    send_chunk(&r, 1, 1, 0, 0);
    rig_assert_silent(&r, 0, OTHER, INC);
    send_chunk(&r, 0, 1, 0, 0);
    for (uint32_t rank = 0; rank < P; rank++) {
        recv_answer(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.client, rank);
        for (uint32_t i = 0; i < reply.f.count; i++) {
            double c = (double)center[i];
            for (uint32_t before = 0; before < rank; before++)
                c += 0.5 * ((double)x[before][i] - c);
            assert_quick(fabs((double)reply.x[i] - c) < tolerance);
        }
    }
    send_chunk(&r, 1, 2, 0, 0); /* it is rank 0's turn again */
    rig_assert_silent(&r, 0, OTHER, INC);
    rig_tell(&r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = 0, .a = PS__CODE__EVICTED});
    recv_answer(&r, 0, &reply);
    ck_assert_uint_eq(reply.f.client, 1);
    rig_close(&r);
}
END_TEST

static void tell_all_to_hold(struct rig *r)
{
    for (uint32_t lane = 0; lane < LANES; lane++)
        rig_tell(r, lane, &(struct psd_lane_message){.kind = PSD_COMMAND_HOLD});
}

/* Chunks of an exchange in every lane, and their answers. */
static void send_chunks(struct rig *r, uint32_t client, uint64_t seq, uint32_t first, uint32_t end)
{
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = first; k < end; k++)
            send_chunk(r, client, seq, lane, k);
}

static void recv_chunks(struct rig *r, uint32_t first, uint32_t end)
{
    struct reply reply;
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = first; k < end; k++)
            recv_answer(r, lane, &reply);
}

/* Another one joins when a part of the chunks has come to the first round of the one before, and its lowest
 * rank has been served there. */
START_TEST(who_joins_before_another_has_its_turn_in_the_same_round)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "elastic", round_robin);
    play_round(&r, 1, orders[0], P, NULL);
    for (uint32_t rank = 0; rank < P; rank++) {
        send_chunks(&r, rank, 2, 0, 1);
        recv_chunks(&r, 0, 1);
    }
    ck_assert_uint_eq(rig_hold(&r), 2);
    rig_members(&r, 2, RIG_SLOTS, (const uint32_t[]){0, 1, 2, OTHER});
    send_chunks(&r, 0, 2, 1, CHUNKS);
    recv_chunks(&r, 1, CHUNKS);
    send_chunk(&r, 0, 3, 0, 0);
    recv_answer(&r, 0, &reply);
    tell_all_to_hold(&r);
    for (uint32_t rank = 1; rank < P; rank++)
        send_chunks(&r, rank, 2, 1, CHUNKS);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        struct psd_lane_message held = rig_hear(&r, lane);
        ck_assert_int_eq(held.kind, PSD_LANE_HELD);
        ck_assert_uint_eq(held.a, lane == 0 ? 3 : 2);
    }
    r.told = false;
    rig_members(&r, 3, RIG_SLOTS, (const uint32_t[]){0, 1, 2, OTHER});
    for (uint32_t rank = 1; rank < P; rank++)
        recv_chunks(&r, 1, CHUNKS);
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, OTHER, INC, 1, 0, 0);
    rig_send_vector(&r, 0, &f, x[0]);
    for (uint32_t rank = 1; rank < P; rank++)
        send_chunk(&r, rank, 3, 0, 0);
    for (uint32_t rank = 1; rank < RIG_SLOTS; rank++) {
        recv_answer(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.client, rank);
    }
    rig_close(&r);
}
END_TEST

START_TEST(a_round_robin_round_ends_when_the_last_has_gone)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "elastic", round_robin);
    play_round(&r, 1, orders[0], P, NULL);
    for (uint32_t rank = 0; rank < 2; rank++) {
        send_chunk(&r, rank, 2, 0, 0);
        recv_answer(&r, 0, &reply);
    }
    rig_tell(&r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = 2, .a = PS__CODE__EVICTED});
    for (uint32_t rank = 0; rank < 2; rank++) {
        send_chunk(&r, rank, 3, 0, 0);
        recv_answer(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.client, rank);
    }
    rig_close(&r);
}
END_TEST

/* One chunk a lane, so that it is the last as well. */
static void open_serial(struct rig *r)
{
    rig_open(r, "elastic", 1, serial);
    rig_fill(r, RIG_CHUNK, center);
    for (uint32_t i = 0; i < RIG_SLOTS; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, false);
    rig_members(r, 0, P, (const uint32_t[]){0, 1, 2});
}

START_TEST(serial_answers_when_the_turn_has_come_again)
{
    struct rig r;
    struct reply reply;
    open_serial(&r);
    for (uint32_t rank = 0; rank + 1 < P; rank++)
        send_chunk(&r, rank, 1, 0, 0);
    rig_assert_silent(&r, 0, OTHER, INC);
    ck_assert_uint_eq(atomic_load(&r.shared.version), 0); /* the first round begins when all have come */
    send_chunk(&r, 2, 1, 0, 0);
    for (uint64_t turn = P; turn < 4 * P; turn++) { /* whoever is answered is the only one that computes */
        recv_answer(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.client, turn % P);
        rig_assert_silent(&r, 0, OTHER, INC);
        send_chunk(&r, (uint32_t)(turn % P), 1 + turn / P, 0, 0);
    }
    rig_close(&r);
}
END_TEST

/* The rate that moved the center, not that of the day when the answer is sent: the worker moves by the same.
 */
START_TEST(a_held_answer_tells_the_rate_that_moved_the_center)
{
    struct rig r;
    struct reply reply;
    open_serial(&r);
    for (uint32_t rank = 0; rank < P; rank++)
        send_chunk(&r, rank, 1, 0, 0);
    for (uint64_t turn = P; turn < 3 * P; turn++) {
        recv_answer(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.client, turn % P);
        ck_assert_float_eq(reply.f.rate, turn < 2 * P ? 0.5f : 0.25f);
        if (turn == P) /* as when others join under `beta` */
            atomic_store(&r.shared.alpha, 0.25f);
        send_chunk(&r, (uint32_t)(turn % P), 1 + turn / P, 0, 0);
    }
    recv_answer(&r, 0, &reply); /* rank 0's */
    atomic_store(&r.shared.alpha, 0.125f);
    rig_shut(&r); /* those that still wait are answered */
    for (uint32_t i = 1; i < P; i++) {
        recv_answer(&r, 0, &reply);
        ck_assert_float_eq(reply.f.rate, 0.25f);
    }
    rig_close(&r);
}
END_TEST

/* Two of its chunks are staged when the first one overflows the center. */
START_TEST(a_session_that_has_ended_ends_once)
{
    static const char *const in_turn[] = {"admission=round-robin", NULL};
    struct rig r;
    struct reply reply;
    open_job(&r, "add", in_turn);
    for (uint32_t k = 0; k < 2; k++)
        x[0][k * RIG_CHUNK] = x[1][k * RIG_CHUNK] = 3e38f;
    for (uint32_t rank = P; rank-- > 0;)
        for (uint32_t k = 0; k < 2; k++)
            send_chunk(&r, rank, 1, 0, k);
    for (uint32_t k = 0; k < 2; k++) {
        recv_answer(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.client, 0);
        rig_recv(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.client, 1);
        ck_assert_uint_eq(reply.f.code, PS__CODE__VALUE);
        recv_answer(&r, 0, &reply);
        ck_assert_uint_eq(reply.f.client, 2);
    }
    struct psd_lane_message fault = rig_hear(&r, 0);
    ck_assert_int_eq(fault.kind, PSD_LANE_FAULT);
    ck_assert_uint_eq(fault.b, 0);
    ck_assert(!rig_heard(&r, 0));
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-rounds");
    TCase *tc = tcase_create("rounds");
    tcase_add_loop_test(tc, a_round_moves_the_center_by_everyone_at_once, 0, ROWS(orders));
    tcase_add_loop_test(tc, gradients_are_averaged_and_answered_with_the_center_after, 0, ROWS(orders));
    tcase_add_loop_test(tc, an_outer_step_without_momentum_takes_the_mean, 0, ROWS(orders));
    tcase_add_test(tc, delayed_momentum_counts_the_moves_of_each_chunk);
    tcase_add_test(tc, arrival_order_changes_no_bit);
    tcase_add_test(tc, the_mean_is_weighted_by_samples);
    tcase_add_test(tc, nothing_moves_before_the_last_has_come);
    tcase_add_test(tc, a_chunk_sent_again_counts_once);
    tcase_add_test(tc, of_a_given_up_exchange_nothing_is_left);
    tcase_add_test(tc, of_a_given_up_exchange_nothing_waits);
    tcase_add_test(tc, a_client_may_stage_its_window_and_no_more);
    tcase_add_test(tc, a_tensor_alone_is_refused_under_backup);
    tcase_add_test(tc, a_message_that_is_not_finite_is_refused_whole);
    tcase_add_test(tc, sums_that_overflow_are_not_stored);
    tcase_add_test(tc, a_session_that_has_ended_ends_once);
    tcase_add_test(tc, a_round_ends_without_who_has_gone);
    tcase_add_test(tc, members_change_between_rounds);
    tcase_add_test(tc, a_snapshot_is_the_center_after_a_round);
    tcase_add_test(tc, a_snapshot_outlives_the_members_of_its_round);
    tcase_add_test(tc, round_robin_applies_in_order_of_rank);
    tcase_add_test(tc, who_joins_before_another_has_its_turn_in_the_same_round);
    tcase_add_test(tc, a_round_robin_round_ends_when_the_last_has_gone);
    tcase_add_test(tc, serial_answers_when_the_turn_has_come_again);
    tcase_add_test(tc, a_held_answer_tells_the_rate_that_moved_the_center);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
