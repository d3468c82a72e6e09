/* Once and only once: sequences, replays, clocks, snapshots and restores of lanes; then fuzz against a model.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { N = 5000, LANES = 2, CHUNKS = 3, CLIENT = 1, INC = 7 };

static float start[N], ones[N];

/* Integer steps of integer vectors: every sum is exact, so that equality tells who moved it how often. */
static void open_job(struct rig *r, uint32_t n_lanes)
{
    for (int i = 0; i < N; i++) {
        start[i] = (float)(i % 1000);
        ones[i] = 1;
    }
    rig_open(r, "sgd", n_lanes, NULL);
    rig_fill(r, N, start);
    rig_admit(r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
}

/* Chunk k of a lane has moved by this many steps of -1. */
static void check_moved(const struct rig *r, const float *x, uint32_t lane, uint32_t k, int steps)
{
    struct ps_range c = ps_shard_chunk(&r->center->shard, lane, k);
    for (uint64_t i = c.begin; i < c.begin + c.count; i++)
        ck_assert_msg(x[i] == start[i] - (float)steps, "float %lu moved by %g; expected -%d",
                      (unsigned long)i, (double)(x[i] - start[i]), steps);
}

static void ask(struct rig *r, uint64_t seq, uint32_t lane, uint32_t k, struct reply *reply)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, lane, k);
    rig_ask_vector(r, lane, &f, ones, reply);
}

START_TEST(chunk_that_landed_lands_once)
{
    struct rig r;
    struct reply reply;
    open_job(&r, 1);
    ask(&r, 1, 0, 0, &reply);
    ck_assert_uint_eq(reply.f.flags, 0);
    rig_admit(&r, 0, INC + 1, PSD_PHASE_ACTIVE, false); /* another moves the center in between */
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 0, INC + 1, 1, 0, 0);
    rig_ask_vector(&r, 0, &f, ones, &reply);
    for (int i = 0; i < 3; i++) {
        ask(&r, 1, 0, 0, &reply);
        ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
        ck_assert_uint_eq(reply.f.flags, PS_FLAG_REPLAYED);
        ck_assert_float_eq(reply.f.rate, 1);
        for (uint32_t j = 0; j < reply.f.count; j++) /* the current center */
            ck_assert_float_eq(reply.x[j], start[j] - 2);
    }
    ck_assert_uint_eq(r.lanes[0]->stats.replays, 3);
    ask(&r, 1, 0, 1, &reply); /* the same exchange's other chunks land */
    ck_assert_uint_eq(reply.f.flags, 0);
    const float *x = rig_center(&r);
    check_moved(&r, x, 0, 0, 2);
    check_moved(&r, x, 0, 1, 1);
    check_moved(&r, x, 0, 2, 0);
    rig_close(&r);
}
END_TEST

START_TEST(older_exchange_is_refused)
{
    struct rig r;
    struct reply reply;
    open_job(&r, 1);
    ask(&r, 5, 0, 0, &reply);
    ask(&r, 4, 0, 1, &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_uint_eq(reply.f.code, PS__CODE__SEQ);
    assert_says(reply.sentence, "exchange 4 is older than the last one, 5");
    ask(&r, 5, 0, 1, &reply); /* and the session goes on */
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
    const float *x = rig_center(&r);
    check_moved(&r, x, 0, 0, 1);
    check_moved(&r, x, 0, 1, 1);
    rig_close(&r);
}
END_TEST

/* A push is answered without floats, and its replay too. */
START_TEST(retried_push_is_answered_as_a_push)
{
    struct rig r;
    struct reply reply;
    open_job(&r, 1);
    rig_exchange(&r, PS_FRAME_SET, CLIENT, INC, 1, ones, 0);
    rig_admit(&r, 0, INC + 1, PSD_PHASE_ACTIVE, false);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC + 1, 1, ones, 0);
    struct ps_frame f = rig_frame(&r, PS_FRAME_SET, CLIENT, INC, 1, 0, 2);
    rig_ask_vector(&r, 0, &f, start, &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
    ck_assert_uint_eq(reply.f.flags, PS_FLAG_REPLAYED);
    ck_assert_uint_eq(reply.body_bytes, 0);
    const float *x = rig_center(&r);
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(x[i], 0);
    rig_close(&r);
}
END_TEST

START_TEST(version_counts_exchanges_that_landed_everywhere)
{
    struct rig r;
    struct reply reply;
    open_job(&r, LANES);
    for (uint64_t seq = 1; seq <= 4; seq++) {
        rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, ones, 0);
        ck_assert_uint_eq(r.shared.version, seq);
    }
    for (uint32_t k = 0; k < CHUNKS; k++)
        ask(&r, 5, 0, k, &reply);
    ck_assert_uint_eq(r.shared.version, 4); /* lane 1 has none of it */
    for (uint32_t k = 0; k < CHUNKS; k++)
        ask(&r, 5, 1, k, &reply);
    ck_assert_uint_eq(r.shared.version, 5);
    ask(&r, 5, 1, 0, &reply); /* a replay counts nothing */
    ck_assert_uint_eq(r.shared.version, 5);
    ck_assert_uint_eq(r.shared.exchanges[CLIENT], 5);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        ck_assert_uint_eq(r.lanes[lane]->stats.chunks, 5 * CHUNKS);
        ck_assert_uint_eq(r.lanes[lane]->stats.clock, 5);
    }
    rig_close(&r);
}
END_TEST

/* A worker may number many transfers that land elsewhere, or not at all, before its next exchange here. */
START_TEST(exchanges_count_however_far_apart_their_numbers_are)
{
    static const uint64_t gaps[] = {1, UINT64_C(1) << 23, (UINT64_C(1) << 24) - 1, UINT64_C(1) << 24,
                                    UINT64_C(3) << 29};
    uint64_t seq = 1;
    struct rig r;
    open_job(&r, LANES);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, ones, 0);
    for (uint32_t i = 0; i < ROWS(gaps); i++) {
        seq += gaps[i];
        rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, ones, 0);
        ck_assert_uint_eq(r.shared.version, i + 2);
        ck_assert_uint_eq(r.shared.exchanges[CLIENT], i + 2);
        ck_assert(psd_exchange_is(r.shared.whole[CLIENT], INC, seq));
    }
    rig_close(&r);
}
END_TEST

/* A client that gives up in the middle and begins another exchange: the first counts nowhere. */
START_TEST(exchange_given_up_is_not_counted)
{
    struct rig r;
    struct reply reply;
    open_job(&r, LANES);
    for (uint32_t k = 0; k < CHUNKS; k++)
        ask(&r, 1, 0, k, &reply);
    for (uint64_t seq = 2; seq <= 4; seq++) {
        for (uint32_t k = 0; k < CHUNKS; k++)
            ask(&r, seq, 0, k, &reply);
        ck_assert_uint_eq(r.shared.version, seq - 2);
        for (uint32_t k = 0; k < CHUNKS; k++)
            ask(&r, seq, 1, k, &reply);
        ck_assert_uint_eq(r.shared.version, seq - 1);
    }
    rig_close(&r);
}
END_TEST

START_TEST(staleness_is_what_passed_since_the_last_answer)
{
    struct rig r;
    open_job(&r, LANES);
    rig_admit(&r, 0, INC + 1, PSD_PHASE_ACTIVE, false);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, ones, 0);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC + 1, 1, ones, 0);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC + 1, 2, ones, 0);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC + 1, 3, ones, 0);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 2, ones, 0);
    /* Lane 0 answered exchange 1 before lane 1 had it: version 0 then, 4 now, of which 3 are of the other. */
    ck_assert_uint_eq(r.lanes[0]->clients[CLIENT].staleness, 3);
    ck_assert_uint_eq(r.lanes[1]->clients[CLIENT].staleness, 3);
    ck_assert_uint_eq(r.lanes[0]->stats.staleness[2], 1);
    ck_assert_uint_eq(r.lanes[1]->stats.staleness[2], 1); /* 2 <= 3 < 4 */
    rig_close(&r);
}
END_TEST

START_TEST(snapshot_holds_the_replay_table)
{
    struct rig r;
    struct reply reply;
    struct psd_snapshot s;
    open_job(&r, LANES);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 3, ones, 0);
    ask(&r, 4, 1, 0, &reply);
    ask(&r, 4, 1, 2, &reply);
    rig_snapshot(&r, &s);
    ck_assert_uint_eq(s.n_replay, 2);
    for (size_t i = 0; i < s.n_replay; i++) {
        const struct psd_replay_entry *e = &s.replay[i];
        ck_assert_uint_eq(e->client, CLIENT);
        ck_assert_uint_eq(e->incarnation, INC);
        ck_assert_uint_eq(e->n_words, 1);
        ck_assert_uint_eq(e->seq, e->lane == 0 ? 3 : 4);
        ck_assert_uint_eq(e->landed[0], e->lane == 0 ? 7 : 5);
    }
    ck_assert_uint_eq(s.lane_clocks[0], 1);
    ck_assert_uint_eq(s.lane_clocks[1], 1);
    rig_snapshot_free(&s);
    rig_close(&r);
}
END_TEST

/* psd dies between two chunks of an exchange; the client sends all of it again to the one that was restarted.
 */
START_TEST(retried_chunks_after_a_restore_change_nothing)
{
    struct rig r, again;
    struct reply reply;
    struct psd_snapshot s;
    open_job(&r, LANES);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, ones, 0);
    for (uint32_t k = 0; k < CHUNKS; k++)
        ask(&r, 2, 0, k, &reply); /* lane 0 has all of exchange 2, */
    ask(&r, 2, 1, 1, &reply);     /* lane 1 one chunk of it */
    rig_snapshot(&r, &s);
    ask(&r, 2, 1, 0, &reply); /* after the checkpoint: lost with psd */
    rig_close(&r);

    rig_open(&again, "sgd", LANES, NULL);
    rig_resume(&again, &s);
    ck_assert_uint_eq(again.shared.version, 1);
    ask(&again, 2, 0, 0, &reply); /* psd does not know it yet: the client waits and tries again */
    ck_assert_uint_eq(reply.f.code, PS__CODE__NOT_BEGUN);
    rig_admit(&again, CLIENT, INC, PSD_PHASE_ACTIVE, true);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < CHUNKS; k++) {
            ask(&again, 2, lane, k, &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
            ck_assert_uint_eq(reply.f.flags, lane == 0 || k == 1 ? PS_FLAG_REPLAYED : 0);
        }
    ck_assert_uint_eq(again.shared.version, 2);
    for (uint32_t k = 0; k < CHUNKS; k++)
        ask(&again, 3, 0, k, &reply);
    ck_assert_uint_eq(again.shared.version, 2); /* counting goes on in step */
    const float *x = rig_center(&again);
    for (uint32_t k = 0; k < CHUNKS; k++) {
        check_moved(&again, x, 0, k, 3);
        check_moved(&again, x, 1, k, 2);
    }
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* A new incarnation of the client after a restore starts with a clean slate. */
START_TEST(new_incarnation_after_a_restore_is_no_replay)
{
    struct rig r, again;
    struct psd_snapshot s;
    open_job(&r, LANES);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, ones, 0);
    rig_snapshot(&r, &s);
    rig_close(&r);
    rig_open(&again, "sgd", LANES, NULL);
    rig_resume(&again, &s);
    rig_admit(&again, CLIENT, INC + 1, PSD_PHASE_ACTIVE, true);
    rig_exchange(&again, PS_FRAME_EXCHANGE, CLIENT, INC + 1, 1, ones, 0);
    ck_assert_uint_eq(again.shared.version, 2);
    ck_assert_float_eq(rig_center(&again)[0], start[0] - 2);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* What the lane must have after the frames so far: rule sgd with a rate of 1, one lane, one client. */
struct model {
    float x[N];
    uint32_t incarnation;
    uint64_t seq;
    uint32_t landed; /* bits */
    uint64_t taken, faults;
};

/* Moves the model by what the frame should do. Returns whether it ends the session. */
static bool model_take(struct model *m, const struct rig *r, const unsigned char *head, const float *body,
                       size_t body_bytes)
{
    struct ps_frame f;
    bool bad = false;
    if (ps_frame_parse(&f, head, PS_FRAME_BYTES, NULL) < 0 || f.client != CLIENT ||
        f.incarnation != m->incarnation || f.generation != 0 || f.codec != 0 ||
        (f.kind != PS_FRAME_EXCHANGE && f.kind != PS_FRAME_PUSH && f.kind != PS_FRAME_SET) ||
        (f.flags & ~PS_FLAG_TENSOR) != 0 ||
        ((f.flags & PS_FLAG_TENSOR) != 0 && f.code != 0) || /* the model has one tensor */
        body_bytes != f.count * sizeof *body || f.seq < m->seq)
        return false;
    int64_t k = ps_shard_find(&r->center->shard, 0, ps_shard_whole(&r->center->shard),
                              (struct ps_range){f.begin, f.count});
    if (k < 0 || (f.seq == m->seq && (m->landed >> k & 1)))
        return false;
    if (f.seq > m->seq)
        m->landed = 0;
    m->seq = f.seq;
    for (uint32_t i = 0; i < f.count; i++) {
        float after = f.kind == PS_FRAME_SET ? body[i] : m->x[f.begin + i] - body[i];
        bad = bad || !isfinite(after);
        m->x[f.begin + i] = isfinite(after) ? after : m->x[f.begin + i];
    }
    m->landed |= bad ? 0 : UINT32_C(1) << k;
    m->taken++;
    return bad;
}

/* A good frame; three in four get some bytes of the header or the body's length changed. */
static size_t roll(struct dice *d, const struct rig *r, const struct model *m, unsigned char *head,
                   float *body)
{
    uint64_t seq = m->seq + (dice_below(d, 3) == 0 || m->seq == 0);
    struct ps_frame f = rig_frame(r, dice_below(d, 50) == 0 ? PS_FRAME_SET : PS_FRAME_EXCHANGE, CLIENT,
                                  m->incarnation, seq, 0, (uint32_t)dice_below(d, 5));
    size_t len = f.count * sizeof *body;
    for (uint32_t i = 0; i < f.count; i += 16)
        body[i] = (float)(int)dice_below(d, 5) - 2;
    if (dice_below(d, 200) == 0)
        body[dice_below(d, f.count)] = dice_below(d, 2) ? NAN : INFINITY;
    ps_frame_pack(&f, head);
    switch (dice_below(d, 4)) {
    case 0:
        break;
    case 1:
        for (uint64_t k = 1 + dice_below(d, 4); k > 0; k--)
            head[dice_below(d, PS_FRAME_BYTES)] = (unsigned char)dice_bits(d);
        break;
    case 2:
        head[dice_below(d, PS_FRAME_BYTES)] ^= (unsigned char)(1u << dice_below(d, 8));
        break;
    default:
        len = dice_below(d, 2) ? dice_below(d, RIG_MAX_BODY) : len ^ dice_below(d, 8);
        len = len > RIG_MAX_BODY ? RIG_MAX_BODY : len;
    }
    return len;
}

/* Random frames move the center exactly as the valid ones among them say. */
START_TEST(fuzzed_frames_do_what_the_model_says)
{
    enum { FRAMES = 20000 };
    static struct model m;
    static float body[RIG_MAX_BODY / sizeof(float) + 1];
    unsigned char head[PS_FRAME_BYTES];
    struct dice dice = {12};
    struct rig r;
    struct reply reply;

    open_job(&r, 1);
    memcpy(m.x, start, sizeof start);
    m.incarnation = INC;
    for (int i = 0; i < FRAMES; i++) {
        memset(body, 0, sizeof body);
        size_t len = roll(&dice, &r, &m, head, body);
        bool ends = model_take(&m, &r, head, body, len);
        rig_raw_send(&r, head, sizeof head, body, len);
        rig_raw_recv(&r, &reply);
        if (ends) {
            ck_assert_uint_eq(reply.f.code, PS__CODE__VALUE);
            ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_FAULT);
        }
        if (ends || m.seq > UINT64_MAX / 2) { /* a flipped bit may use up the sequence */
            m.seq = m.landed = 0;
            m.faults += ends;
            rig_admit(&r, CLIENT, ++m.incarnation, PSD_PHASE_ACTIVE, false);
        }
        if (i % 500 == 0)
            ck_assert_mem_eq(m.x, rig_center(&r), sizeof m.x);
    }
    ck_assert_mem_eq(m.x, rig_center(&r), sizeof m.x);
    ck_assert_uint_gt(m.taken, FRAMES / 8);
    ck_assert_uint_gt(m.faults, 5);
    rig_close(&r);
}
END_TEST

/* Messages of any number of parts of any bytes. Nothing is valid, nothing moves, and the lane goes on. */
START_TEST(random_messages_move_nothing)
{
    enum { MESSAGES = 3000 };
    struct dice dice = {13};
    struct rig r;
    static unsigned char bytes[RIG_MAX_BODY];
    open_job(&r, 1);
    for (int i = 0; i < MESSAGES; i++) {
        uint64_t parts = 1 + dice_below(&dice, 5);
        for (uint64_t k = 0; k < parts; k++) {
            size_t len = dice_below(&dice, 2) ? PS_FRAME_BYTES : dice_below(&dice, 300);
            for (size_t at = 0; at < len; at += 8)
                memcpy(bytes + at, &(uint64_t){dice_bits(&dice)}, 8);
            if (dice_below(&dice, 2))
                memcpy(bytes, "PSD1\1\0\1\0", 8);
            ck_assert_int_ge(zmq_send(rig_raw(&r), bytes, len, k + 1 < parts ? ZMQ_SNDMORE : 0), 0);
        }
        if (i % 4 == 3) /* read now and then, as a peer must */
            for (int k = 0; k < 4; k++) {
                struct reply reply;
                rig_raw_recv(&r, &reply);
                ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
            }
    }
    ck_assert_mem_eq(rig_center(&r), start, sizeof start);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, ones, 0);
    rig_close(&r);
}
END_TEST

/* What sets values, or adds to them, is not staged: a round that counted it would wait for it. */
START_TEST(what_is_set_again_is_no_message_of_a_round)
{
    static const char *const settings[] = {"admission=quorum", NULL};
    static const uint8_t kinds[] = {PS_FRAME_SET, PS_FRAME_ADD};
    for (size_t i = 0; i < ROWS(kinds); i++) {
        struct rig r;
        struct reply reply;
        rig_open(&r, "sgd", 1, settings);
        rig_fill(&r, N, start);
        rig_admit(&r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
        struct ps_frame f = rig_frame(&r, kinds[i], CLIENT, INC, 1, 0, 0);
        for (int k = 0; k < 2; k++) {
            rig_ask_vector(&r, 0, &f, ones, &reply);
            ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
            ck_assert_uint_eq(reply.f.flags, k == 0 ? 0 : PS_FLAG_REPLAYED);
        }
        ck_assert_msg(!rig_heard(&r, 0), "kind %u: the loop was told that it has begun", kinds[i]);
        rig_close(&r);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-replay");
    TCase *tc = tcase_create("replay");
    tcase_add_test(tc, chunk_that_landed_lands_once);
    tcase_add_test(tc, older_exchange_is_refused);
    tcase_add_test(tc, retried_push_is_answered_as_a_push);
    tcase_add_test(tc, what_is_set_again_is_no_message_of_a_round);
    tcase_add_test(tc, version_counts_exchanges_that_landed_everywhere);
    tcase_add_test(tc, exchanges_count_however_far_apart_their_numbers_are);
    tcase_add_test(tc, exchange_given_up_is_not_counted);
    tcase_add_test(tc, staleness_is_what_passed_since_the_last_answer);
    tcase_add_test(tc, snapshot_holds_the_replay_table);
    tcase_add_test(tc, retried_chunks_after_a_restore_change_nothing);
    tcase_add_test(tc, new_incarnation_after_a_restore_is_no_replay);
    if (rig_has_raw()) {
        tcase_add_test(tc, fuzzed_frames_do_what_the_model_says);
        tcase_add_test(tc, random_messages_move_nothing);
    }
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
