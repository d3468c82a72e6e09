/* What a lane takes, what it refuses, and that a refused frame leaves the center as it was. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { N = 5000, LANES = 2, CLIENT = 1, INC = 7, OBSERVER = 3 };

static float start[N], ones[N], message[N];

static void fill(void)
{
    for (int i = 0; i < N; i++) {
        start[i] = (float)(i % 1000);
        ones[i] = 1;
        message[i] = (float)(i % 7) - 3;
    }
}

/* One worker and one observer in a job that has begun. */
static void open_job(struct rig *r, const char *rule, const char *const *settings)
{
    fill();
    rig_open(r, rule, LANES, settings);
    rig_fill(r, N, start);
    rig_admit(r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
    rig_admit(r, OBSERVER, INC + 1, PSD_PHASE_OBSERVING, false);
}

static struct ps_frame exchange_frame(const struct rig *r, uint64_t seq)
{
    return rig_frame(r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, 0, 0);
}

static void check_untouched(struct rig *r)
{
    ck_assert_mem_eq(rig_center(r), start, sizeof start);
    for (uint32_t i = 0; i < r->n_lanes; i++)
        ck_assert(!rig_heard(r, i));
}

static void check_refused(const struct reply *reply, uint32_t code, const char *says)
{
    ck_assert_uint_eq(reply->f.kind, PS_FRAME_ERROR);
    ck_assert_msg(reply->f.code == code, "code %u (%s); expected %u", reply->f.code, reply->sentence, code);
    assert_says(reply->sentence, says);
}

START_TEST(data_before_there_is_a_job)
{
    struct rig r;
    struct reply reply;
    struct ps_frame f = {
        .kind = PS_FRAME_PULL, .client = CLIENT, .incarnation = INC, .seq = 5, .begin = 0, .count = 16};
    fill();
    rig_open(&r, "sgd", 1, NULL);
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    check_refused(&reply, PS__CODE__NO_SESSION, "client 1 has no session");
    ck_assert_uint_eq(reply.f.seq, 5);
    rig_admit(&r, CLIENT, INC, PSD_PHASE_NONE, false);
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    check_refused(&reply, PS__CODE__NOT_BEGUN, "client 1 sent data before psd answered its Begin");
    rig_admit(&r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    check_refused(&reply, PS__CODE__NOT_BEGUN, "before psd answered its Begin"); /* no center */
    rig_close(&r);
}
END_TEST

/* A good exchange of chunk 0 of lane 0 with one field changed. */
static const struct {
    size_t offset; /* in struct ps_frame */
    size_t size;
    uint64_t value;
    uint32_t code;
    const char *says;
} bad_frames[] = {
#define FIELD(field) offsetof(struct ps_frame, field), sizeof((struct ps_frame *)0)->field
    {FIELD(client), 0, PS__CODE__NO_SESSION, "client 0 has no session"},
    {FIELD(client), RIG_SLOTS, PS__CODE__NO_SESSION, "client 4 has no session"},
    {FIELD(client), UINT32_MAX, PS__CODE__NO_SESSION, "has no session"},
    {FIELD(incarnation), INC - 1, PS__CODE__STALE, "incarnation 6 is stale: client 1 is at incarnation 7"},
    {FIELD(incarnation), INC + 1, PS__CODE__STALE, "incarnation 8 is stale"},
    {FIELD(incarnation), 0, PS__CODE__STALE, "incarnation 0 is stale"},
    {FIELD(generation), 1, PS__CODE__GENERATION, "generation 1"},
    {FIELD(begin), 1, PS__CODE__RANGE, "floats 1 +"},
    {FIELD(begin), 16, PS__CODE__RANGE, "are not a chunk of lane 0"},
    {FIELD(begin), UINT64_MAX, PS__CODE__RANGE, "are not a chunk of lane 0"},
    {FIELD(begin), UINT64_MAX - 1000, PS__CODE__RANGE, "are not a chunk of lane 0"},
    {FIELD(begin), 2496, PS__CODE__RANGE, "which holds floats 0 +2496 in 3 chunks"}, /* lane 1's */
    {FIELD(count), 1, PS__CODE__RANGE, "are not a chunk"},
    {FIELD(count), UINT32_MAX, PS__CODE__RANGE, "are not a chunk"},
    {FIELD(count), 0, PS__CODE__MALFORMED, "0 floats"},
    {FIELD(flags), PS_FLAG_REPLAYED, PS__CODE__MALFORMED, "flags 0001"},
    {FIELD(flags), 0x8002, PS__CODE__MALFORMED, "flags 8002"},
    {FIELD(codec), 1, PS__CODE__CODEC,
     "codec 1 (fp16); allowed in a frame of kind 1 is 0 (raw, codec.message)"},
    {FIELD(codec), 255, PS__CODE__CODEC, "codec 255 (not known)"},
    {FIELD(kind), 0, PS__CODE__MALFORMED, "frame kind 0"},
    {FIELD(kind), 9, PS__CODE__MALFORMED, "frame kind 9"},
    {FIELD(kind), PS_FRAME_ANSWER, PS__CODE__MALFORMED, "is an answer"},
    {FIELD(kind), PS_FRAME_ERROR, PS__CODE__MALFORMED, "is an answer"},
    {FIELD(kind), PS_FRAME_OFFER, PS__CODE__NOT_BEGUN, "after the job has begun"},
    {FIELD(kind), PS_FRAME_PULL, PS__CODE__MALFORMED, "a body of"}, /* a pull has none */
};

START_TEST(bad_field_is_refused)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", NULL);
    struct ps_frame f = exchange_frame(&r, 9);
    memcpy((char *)&f + bad_frames[_i].offset, &bad_frames[_i].value,
           bad_frames[_i].size); /* little-endian */
    rig_ask(&r, 0, &f, ones, exchange_frame(&r, 9).count * sizeof *ones, &reply);
    check_refused(&reply, bad_frames[_i].code, bad_frames[_i].says);
    ck_assert_uint_eq(r.lanes[0]->stats.rejected[bad_frames[_i].code], 1);
    check_untouched(&r);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, ones, 0); /* its sequence was not touched either */
    rig_close(&r);
}
END_TEST

START_TEST(bad_body_lengths_are_refused)
{
    struct rig r;
    struct reply reply;
    static unsigned char body[RIG_MAX_BODY];
    open_job(&r, "sgd", NULL);
    struct ps_frame f = exchange_frame(&r, 1);
    size_t good = f.count * sizeof(float);
    const size_t lengths[] = {0, 1, 4, good - 4, good - 1, good + 1, good + 4, RIG_MAX_BODY};
    for (size_t i = 0; i < ROWS(lengths); i++) {
        char says[64];
        snprintf(says, sizeof says, "a body of %zu bytes; %u floats in codec raw take %zu", lengths[i],
                 f.count, good);
        rig_ask(&r, 0, &f, body, lengths[i], &reply);
        check_refused(&reply, PS__CODE__MALFORMED, says);
    }
    f.kind = PS_FRAME_SET;
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    check_refused(&reply, PS__CODE__MALFORMED, "a body of 0 bytes");
    check_untouched(&r);
    rig_close(&r);
}
END_TEST

START_TEST(bad_headers_are_refused)
{
    struct rig r;
    struct reply reply;
    unsigned char head[3 * PS_FRAME_BYTES] = {0}, good[PS_FRAME_BYTES];
    open_job(&r, "sgd", NULL);
    struct ps_frame f = exchange_frame(&r, 1);
    size_t len = f.count * sizeof *ones;
    ps_frame_pack(&f, good);
    for (size_t n = 0; n < sizeof head; n += n < 60 || n > 66 ? 7 : 1) {
        memcpy(head, good, sizeof good);
        if (n == PS_FRAME_BYTES)
            continue;
        rig_raw_send(&r, head, n, ones, len);
        rig_raw_recv(&r, &reply);
        check_refused(&reply, PS__CODE__MALFORMED, "a data header has 64 bytes");
    }
    memcpy(head, good, sizeof good);
    head[0] = 'X';
    rig_raw_send(&r, head, PS_FRAME_BYTES, ones, len);
    rig_raw_recv(&r, &reply);
    check_refused(&reply, PS__CODE__MALFORMED, "magic");
    memcpy(head, good, sizeof good);
    head[4] = 2;
    rig_raw_send(&r, head, PS_FRAME_BYTES, ones, len);
    rig_raw_recv(&r, &reply);
    check_refused(&reply, PS__CODE__VERSION, "version 2; this end speaks 1");
    ck_assert_int_ge(zmq_send(rig_raw(&r), good, sizeof good, 0), 0); /* one part; then three */
    rig_raw_recv(&r, &reply);
    check_refused(&reply, PS__CODE__MALFORMED, "two parts");
    ck_assert_int_ge(zmq_send(rig_raw(&r), good, sizeof good, ZMQ_SNDMORE), 0);
    rig_raw_send(&r, ones, len, ones, len);
    rig_raw_recv(&r, &reply);
    check_refused(&reply, PS__CODE__MALFORMED, "two parts");
    check_untouched(&r);
    rig_close(&r);
}
END_TEST

START_TEST(observer_pulls_and_does_nothing_else)
{
    static const uint8_t refused[] = {PS_FRAME_EXCHANGE, PS_FRAME_PUSH, PS_FRAME_SET};
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", NULL);
    for (size_t i = 0; i < ROWS(refused); i++) {
        struct ps_frame f = rig_frame(&r, refused[i], OBSERVER, INC + 1, 1, 0, 0);
        rig_ask_vector(&r, 0, &f, ones, &reply);
        check_refused(&reply, PS__CODE__KIND, "because it is an observer");
    }
    struct ps_frame offer = rig_frame(&r, PS_FRAME_OFFER, OBSERVER, INC + 1, 1, 0, 0);
    rig_ask_vector(&r, 0, &offer, ones, &reply);
    check_refused(&reply, PS__CODE__NOT_BEGUN, "because it is an observer");
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < 3; k++) {
            struct ps_frame f = rig_frame(&r, PS_FRAME_PULL, OBSERVER, INC + 1, 1, lane, k);
            rig_ask(&r, lane, &f, NULL, 0, &reply);
            ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
            ck_assert_uint_eq(reply.body_bytes, f.count * sizeof(float));
            ck_assert_mem_eq(reply.x, start + f.begin, reply.body_bytes);
        }
    check_untouched(&r);
    rig_close(&r);
}
END_TEST

START_TEST(ended_session_is_told_why)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", NULL);
    struct ps_frame f = exchange_frame(&r, 1);
    rig_tell(&r, 0,
             &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = CLIENT, .a = PS__CODE__EVICTED});
    rig_ask_vector(&r, 0, &f, ones, &reply);
    check_refused(&reply, PS__CODE__EVICTED, "the session of client 1 has ended");
    check_untouched(&r);
    rig_admit(&r, CLIENT, INC + 1, PSD_PHASE_ACTIVE, false); /* its rank goes to another */
    rig_ask_vector(&r, 0, &f, ones, &reply);
    check_refused(&reply, PS__CODE__STALE, "is stale");
    check_untouched(&r);
    rig_close(&r);
}
END_TEST

START_TEST(sgd_moves_the_center_and_answers_it_after)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", (const char *[]){"learning_rate=0.5", NULL});
    for (uint64_t seq = 1; seq <= 3; seq++)
        for (uint32_t lane = 0; lane < LANES; lane++)
            for (uint32_t k = 0; k < 3; k++) {
                struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, lane, k);
                rig_ask_vector(&r, lane, &f, message, &reply);
                ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
                ck_assert_float_eq(reply.f.rate, 0.5f);
                for (uint32_t i = 0; i < f.count; i++)
                    ck_assert_float_eq(reply.x[i],
                                       start[f.begin + i] - 0.5f * (float)seq * message[f.begin + i]);
            }
    const float *x = rig_center(&r);
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(x[i], start[i] - 1.5f * message[i]);
    rig_close(&r);
}
END_TEST

START_TEST(elastic_moves_the_center_and_answers_it_before)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "elastic", (const char *[]){"alpha=0.25", NULL});
    struct ps_frame f = exchange_frame(&r, 1);
    rig_ask_vector(&r, 0, &f, message, &reply);
    ck_assert_float_eq(reply.f.rate, 0.25f);
    ck_assert_mem_eq(reply.x, start, f.count * sizeof *start);
    atomic_store(&r.shared.alpha, 0.5f); /* another worker came or went */
    f = rig_frame(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, 0, 1);
    rig_ask_vector(&r, 0, &f, message, &reply);
    ck_assert_float_eq(reply.f.rate, 0.5f);
    const float *x = rig_center(&r);
    for (uint32_t i = 0; i < f.begin; i++) /* quarters of small integers are exact */
        ck_assert_float_eq(x[i], start[i] + 0.25f * (message[i] - start[i]));
    for (uint64_t i = f.begin; i < f.begin + f.count; i++)
        ck_assert_float_eq(x[i], start[i] + 0.5f * (message[i] - start[i]));
    rig_close(&r);
}
END_TEST

/* The schedule follows the worker's t that travels with the frame. */
START_TEST(learning_rate_follows_the_workers_clock)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd",
             (const char *[]){"learning_rate=1", "schedule={kind: step, gamma: 0.5, step_steps: 10}", NULL});
    for (uint64_t t = 0; t < 40; t += 10) {
        struct ps_frame f = exchange_frame(&r, t + 1);
        f.clock = t;
        rig_ask_vector(&r, 0, &f, ones, &reply);
        ck_assert_float_eq(reply.f.rate, ldexpf(1, -(int)(t / 10)));
    }
    ck_assert_float_eq(rig_center(&r)[0], start[0] - 1.875f);
    ck_assert_uint_eq(r.lanes[0]->clients[CLIENT].clock, 30);
    rig_close(&r);
}
END_TEST

START_TEST(set_overwrites_the_center)
{
    struct rig r;
    open_job(&r, "sgd", NULL);
    rig_exchange(&r, PS_FRAME_SET, CLIENT, INC, 1, message, 0);
    ck_assert_mem_eq(rig_center(&r), message, sizeof message);
    ck_assert_uint_eq(r.lanes[0]->stats.set, 3);
    rig_close(&r);
}
END_TEST

/* Bodies at every alignment: small malformed messages before a good one shift it in the receive buffer. */
START_TEST(body_may_lie_anywhere)
{
    struct rig r;
    struct reply reply;
    unsigned char head[PS_FRAME_BYTES];
    int shifts = 16;
    open_job(&r, "sgd", NULL);
    rig_tell(&r, 0,
             &(struct psd_lane_message){
                 .kind = PSD_COMMAND_ADMIT, .client = 0, .incarnation = 9, .a = PSD_PHASE_ACTIVE});
    for (int k = 0; k < shifts; k++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 0, 9, (uint64_t)k + 1, 0, 0);
        ps_frame_pack(&f, head);
        rig_raw_send(&r, "x", 1, "0123456789abcdef", (size_t)k);
        rig_raw_send(&r, head, sizeof head, message, f.count * sizeof *message);
        rig_raw_recv(&r, &reply);
        ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
        rig_raw_recv(&r, &reply);
        ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
        for (uint32_t i = 0; i < f.count; i++)
            ck_assert_float_eq(reply.x[i], start[i] - (float)(k + 1) * message[i]);
    }
    rig_close(&r);
}
END_TEST

static const struct {
    const char *rule;
    uint8_t kind;
    float center, message;
} poisons[] = {
    {"sgd", PS_FRAME_EXCHANGE, 1, NAN},
    {"sgd", PS_FRAME_EXCHANGE, 1, INFINITY},
    {"sgd", PS_FRAME_EXCHANGE, 1, -INFINITY},
    {"sgd", PS_FRAME_EXCHANGE, 3e38f, -3e38f},
    {"elastic", PS_FRAME_EXCHANGE, 1, NAN},
    {"elastic", PS_FRAME_EXCHANGE, 1, INFINITY},
    {"elastic", PS_FRAME_EXCHANGE, -3e38f, 3e38f},
    {"sgd", PS_FRAME_SET, 1, NAN},
    {"elastic", PS_FRAME_SET, 1, -INFINITY},
};

/* Never stored; the session ends, with a sentence, and the loop is told, once. */
START_TEST(what_is_not_finite_ends_the_session)
{
    struct rig r;
    struct reply reply;
    char says[64];
    fill();
    rig_open(&r, poisons[_i].rule, 1, (const char *[]){"alpha=1", NULL});
    start[10] = start[500] = poisons[_i].center;
    memcpy(message, start, sizeof message);
    message[10] = message[500] = poisons[_i].message;
    rig_fill(&r, N, start);
    rig_admit(&r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
    struct ps_frame f = rig_frame(&r, poisons[_i].kind, CLIENT, INC, 1, 0, 0);
    rig_ask_vector(&r, 0, &f, message, &reply);
    snprintf(says, sizeof says, "2 values of floats 0 to %u are not finite", f.count - 1);
    check_refused(&reply, PS__CODE__VALUE, says);
    assert_says(reply.sentence, "your session ends");
    ck_assert_uint_eq(reply.f.seq, 1);
    ck_assert_uint_eq(reply.f.begin, f.begin);

    struct psd_lane_message msg = rig_hear(&r, 0);
    ck_assert_int_eq(msg.kind, PSD_LANE_FAULT);
    ck_assert_uint_eq(msg.client, CLIENT);
    ck_assert_uint_eq(msg.incarnation, INC);
    ck_assert_uint_eq(msg.a, PS__CODE__VALUE);

    f = rig_frame(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 2, 0, 1);
    rig_ask_vector(&r, 0, &f, ones, &reply);
    check_refused(&reply, PS__CODE__VALUE, "has ended");
    ck_assert(!rig_heard(&r, 0));
    const float *x = rig_center(&r);
    ck_assert_float_eq(x[10], start[10]);
    ck_assert_float_eq(x[500], start[500]);
    for (int i = 0; i < N; i++)
        ck_assert(isfinite(x[i]));
    ck_assert_mem_eq(x + f.begin, start + f.begin, (N - f.begin) * sizeof *x);
    rig_close(&r);
}
END_TEST

START_TEST(offer_fills_the_center_and_begins_the_job)
{
    struct rig r;
    struct reply reply;
    fill();
    rig_open(&r, "sgd", LANES, NULL);
    rig_fill(&r, N, NULL);
    rig_admit(&r, CLIENT, INC, PSD_PHASE_OFFERING, false);
    struct ps_frame early = exchange_frame(&r, 1);
    rig_ask_vector(&r, 0, &early, ones, &reply);
    check_refused(&reply, PS__CODE__KIND, "before its offer is complete");
    struct ps_frame first = rig_frame(&r, PS_FRAME_OFFER, CLIENT, INC, 1, 0, 0);
    rig_ask_vector(&r, 0, &first, start, &reply); /* its answer got lost: it comes again */
    rig_ask_vector(&r, 0, &first, start, &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = lane == 0; k < 3; k++) {
            struct ps_frame f = rig_frame(&r, PS_FRAME_OFFER, CLIENT, INC, 1, lane, k);
            rig_ask_vector(&r, lane, &f, start, &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        }
    for (uint32_t lane = 0; lane < LANES; lane++)
        ck_assert_int_eq(rig_hear(&r, lane).kind, PSD_LANE_FILLED);
    ck_assert_mem_eq(rig_center(&r), start, sizeof start);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 2, ones, 0);
    ck_assert_float_eq(rig_center(&r)[N - 1], start[N - 1] - 1);
    rig_close(&r);
}
END_TEST

/* The last chunk of a slice makes the lane begin; when its answer gets lost, the chunk comes again. */
START_TEST(retried_offer_is_answered_and_changes_nothing)
{
    struct rig r;
    struct reply reply;
    fill();
    rig_open(&r, "sgd", 1, NULL);
    rig_fill(&r, N, NULL);
    rig_admit(&r, CLIENT, INC, PSD_PHASE_OFFERING, false);
    rig_exchange(&r, PS_FRAME_OFFER, CLIENT, INC, 1, start, 0);
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_FILLED);
    struct ps_frame f = rig_frame(&r, PS_FRAME_OFFER, CLIENT, INC, 1, 0, 4);
    rig_ask_vector(&r, 0, &f, message, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    ck_assert_uint_eq(reply.f.flags, PS_FLAG_REPLAYED);
    ck_assert_uint_eq(reply.body_bytes, 0);
    rig_admit(&r, 0, INC + 1, PSD_PHASE_ACTIVE, false); /* another's offer is none */
    f = rig_frame(&r, PS_FRAME_OFFER, 0, INC + 1, 1, 0, 4);
    rig_ask_vector(&r, 0, &f, message, &reply);
    check_refused(&reply, PS__CODE__NOT_BEGUN, "after the job has begun");
    ck_assert_mem_eq(rig_center(&r), start, sizeof start);
    rig_close(&r);
}
END_TEST

START_TEST(bad_offer_ends_the_session)
{
    struct rig r;
    struct reply reply;
    fill();
    rig_open(&r, "sgd", 1, NULL);
    rig_fill(&r, N, NULL);
    rig_admit(&r, CLIENT, INC, PSD_PHASE_OFFERING, false);
    start[0] = NAN;
    struct ps_frame f = rig_frame(&r, PS_FRAME_OFFER, CLIENT, INC, 1, 0, 0);
    rig_ask_vector(&r, 0, &f, start, &reply);
    check_refused(&reply, PS__CODE__VALUE, "1 values of floats 0 to");
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_FAULT);
    rig_tell(&r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE}); /* the loop withdraws the job */
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_RELEASED);
    rig_ask_vector(&r, 0, &f, ones, &reply);
    check_refused(&reply, PS__CODE__VALUE, "has ended");
    rig_close(&r);
}
END_TEST

/* The loop may hear of the worker's end before it has heard that the slices are whole: each lane says which.
 */
START_TEST(an_offerer_that_ends_is_answered_by_each_lane_once)
{
    const struct psd_lane_message end = {
        .kind = PSD_COMMAND_END, .client = CLIENT, .a = PS__CODE__NO_SESSION};
    struct rig r;
    fill();
    rig_open(&r, "sgd", LANES, NULL);
    rig_fill(&r, N, NULL);
    rig_admit(&r, CLIENT, INC, PSD_PHASE_OFFERING, false);
    for (uint32_t k = 0; k < 3; k++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_OFFER, CLIENT, INC, 1, 0, k);
        struct reply reply;
        rig_ask_vector(&r, 0, &f, start, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        rig_tell(&r, lane, &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = 0}); /* another's */
        rig_tell(&r, lane, &end);
        rig_tell(&r, lane, &end);
        ck_assert_int_eq(rig_hear(&r, lane).kind, lane == 0 ? PSD_LANE_FILLED : PSD_LANE_UNFILLED);
        rig_tell(&r, lane, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE});
        ck_assert_int_eq(rig_hear(&r, lane).kind, PSD_LANE_RELEASED);
    }
    rig_close(&r);
}
END_TEST

/* A vector with less than a line for each lane: one lane has it all, the others still answer their notes. */
START_TEST(tiny_vector_leaves_lanes_empty)
{
    struct rig r;
    struct reply reply;
    fill();
    rig_open(&r, "sgd", 4, NULL);
    rig_fill(&r, 1, start + 5);
    rig_admit(&r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, ones, 0);
    ck_assert_uint_eq(r.shared.version, 1);
    for (uint32_t lane = 0; lane < 4; lane++) {
        struct ps_frame f = {
            .kind = PS_FRAME_PULL, .client = CLIENT, .incarnation = INC, .seq = 2, .begin = 16, .count = 1};
        rig_ask(&r, lane, &f, NULL, 0, &reply);
        ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    }
    ck_assert_float_eq(rig_center(&r)[0], 4);
    rig_close(&r);
}
END_TEST

/* A client that sends and never reads is told apart; others go on. */
START_TEST(slow_reader_loses_its_session)
{
    struct rig r;
    unsigned char head[PS_FRAME_BYTES];
    open_job(&r, "sgd", NULL);
    struct ps_frame f = rig_frame(&r, PS_FRAME_PULL, OBSERVER, INC + 1, 1, 0, 0);
    ps_frame_pack(&f, head);
    double deadline = unit_now_s() + 60;
    while (!rig_heard(&r, 0) && unit_now_s() < deadline) {
        zmq_pollitem_t item = {.socket = rig_raw(&r), .events = ZMQ_POLLOUT};
        if (zmq_poll(&item, 1, 5) > 0)
            rig_raw_send(&r, head, sizeof head, "", 0);
    }
    struct psd_lane_message msg = rig_hear(&r, 0);
    ck_assert_int_eq(msg.kind, PSD_LANE_FAULT);
    ck_assert_uint_eq(msg.client, OBSERVER);
    ck_assert_uint_eq(msg.a, PS__CODE__EVICTED);
    rig_exchange(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, ones, 0);
    rig_close(&r);
}
END_TEST

/* As many clients as a configuration may allow come and go, and each is said a few things of, before a lane
 * takes a note, and before the loop does. */
START_TEST(notes_have_room_for_as_many_clients_as_may_come)
{
    static const uint32_t slots[] = {4, 1024 + PSD_OBSERVERS, 5000};
    for (size_t i = 0; i < ROWS(slots); i++) {
        struct psd_shared shared;
        struct psd_lane *lane;
        struct ps_error err = {""};
        ck_assert_int_eq(psd_shared_init(&shared, slots[i], 1), 0);
        ck_assert_msg(psd_lane_create(&(struct psd_lane_options){0, &shared}, &lane, &err) == 0, "%s",
                      err.text);
        ck_assert_uint_ge(psd_queue_room(lane->in), 7 * slots[i]);
        ck_assert_uint_ge(psd_queue_room(lane->out), 7 * slots[i]);
        psd_lane_destroy(lane);
        psd_shared_finish(&shared);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-lane");
    TCase *tc = tcase_create("lane");
    tcase_add_test(tc, data_before_there_is_a_job);
    tcase_add_loop_test(tc, bad_field_is_refused, 0, ROWS(bad_frames));
    tcase_add_test(tc, bad_body_lengths_are_refused);
    tcase_add_test(tc, observer_pulls_and_does_nothing_else);
    tcase_add_test(tc, ended_session_is_told_why);
    tcase_add_test(tc, sgd_moves_the_center_and_answers_it_after);
    tcase_add_test(tc, elastic_moves_the_center_and_answers_it_before);
    tcase_add_test(tc, learning_rate_follows_the_workers_clock);
    tcase_add_test(tc, set_overwrites_the_center);
    tcase_add_loop_test(tc, what_is_not_finite_ends_the_session, 0, ROWS(poisons));
    tcase_add_test(tc, offer_fills_the_center_and_begins_the_job);
    tcase_add_test(tc, retried_offer_is_answered_and_changes_nothing);
    tcase_add_test(tc, bad_offer_ends_the_session);
    tcase_add_test(tc, an_offerer_that_ends_is_answered_by_each_lane_once);
    tcase_add_test(tc, tiny_vector_leaves_lanes_empty);
    tcase_add_test(tc, notes_have_room_for_as_many_clients_as_may_come);
    if (rig_has_raw()) {
        tcase_add_test(tc, bad_headers_are_refused);
        tcase_add_test(tc, body_may_lie_anywhere);
        tcase_add_test(tc, slow_reader_loses_its_session);
    }
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
