/* Exchanges in every codec. The plain job beside it is raw and is sent what the other's messages decode to:
 * both must move the center to the same bits, and answer the same but for what encoding takes. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "proto/codecs/piece.h"
#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { LANES = 2, N = 5000, CLIENTS = 2, INC = 7, OBSERVER = 3, SEQS = 3, N_CODECS = 7, N_ANSWERS = 5 };

/* Tensors cross chunks and blocks; what is frozen is large, so that a scale would be seen. */
static const struct ps_tensor model[] = {{"w", 0, {2500}, 1, PS_ROLE_PARAM},
                                         {"embedding", 2500, {900}, 1, PS_ROLE_FROZEN},
                                         {"mean", 3400, {1600}, 1, PS_ROLE_BUFFER}};

static float start[N], messages[CLIENTS][N];
static char message_key[32], answer_key[32];

static bool is_frozen(uint64_t i)
{
    return i >= 2500 && i < 3400;
}

static void roll(void)
{
    struct dice dice = {3};
    for (int i = 0; i < N; i++) {
        start[i] = is_frozen((uint64_t)i) ? 1e4f : dice_float(&dice);
        for (int c = 0; c < CLIENTS; c++)
            messages[c][i] = is_frozen((uint64_t)i) ? 0 : dice_float(&dice);
    }
}

static const struct ps_codec *codec_at(int i)
{
    size_t n;
    const struct ps_codec *const *rows = ps_codec_rows(&n);
    ck_assert_uint_eq(n, N_CODECS);
    return rows[i];
}

static const struct {
    const char *rule, *admission, *more;
} jobs[] = {
    {"elastic", "admission=fcfs", "alpha=0.3"},
    {"sgd", "admission=fcfs", "learning_rate=0.1"},
    {"add", "admission=fcfs", "averaging=mean"},
    {"momentum", "admission=fcfs", "momentum=0.5"},
    {"elastic", "admission=hogwild", "alpha=0.3"},
    {"add", "admission=hogwild", NULL},
    {"elastic", "admission=sync", "beta=0.6"},
    {"sgd", "admission=sync", "merge=clip_norm"},
    {"add", "admission=sync", NULL},
    {"elastic", "admission=round-robin", "alpha=0.3"},
    {"sgd", "admission=ssp", "slack=2"},
};

/* Codecs for moves bring no answers, and nothing of a rule that sends x. */
static const struct ps_codec *answer_of(const struct ps_codec *message)
{
    return message->for_moves ? codec_at(0) : message;
}

static bool goes_with(const struct ps_codec *message, int job)
{
    return !message->for_moves || strcmp(jobs[job].rule, "elastic") != 0;
}

static size_t bytes_of(const struct rig *r, const struct ps_codec *c, const struct ps_frame *f)
{
    return ps_piece_bytes(c, r->center->manifest, (struct ps_range){f->begin, f->count});
}

/* What a worker sends of v, [N]. */
static void encode(const struct rig *r, const struct ps_codec *c, const struct ps_frame *f, const float *v,
                   void *payload)
{
    static float x[RIG_CHUNK];
    memcpy(x, v + f->begin, f->count * sizeof *x);
    ps_piece_encode(c, r->center->manifest, (struct ps_range){f->begin, f->count}, payload, x);
}

static void open_job(struct rig *r, int job, const struct ps_codec *message, const struct ps_codec *answer)
{
    const char *settings[] = {message_key,         answer_key,     "codec.error_feedback=true",
                              jobs[job].admission, jobs[job].more, NULL};
    char text[PS_CODEC_TEXT];
    snprintf(message_key, sizeof message_key, "codec.message=%s", ps_codec_text(message, text));
    snprintf(answer_key, sizeof answer_key, "codec.answer=%s", answer->name);
    rig_open(r, jobs[job].rule, LANES, settings);
    rig_fill_model(r, model, ROWS(model), start);
    for (uint32_t c = 0; c < CLIENTS; c++)
        rig_admit(r, c, INC, PSD_PHASE_ACTIVE, false);
    rig_admit(r, OBSERVER, INC, PSD_PHASE_OBSERVING, false);
    if (r->center->admission->members)
        rig_members(r, 0, CLIENTS, (const uint32_t[]){0, 1});
}

static uint32_t lane_of(const struct rig *r, uint32_t row, uint32_t client)
{
    return r->center->whole_lanes ? client % LANES : row;
}

static struct ps_frame frame(const struct rig *r, uint8_t kind, uint32_t client, uint64_t seq, uint32_t row,
                             uint32_t k, const struct ps_codec *codec)
{
    struct ps_frame f = rig_frame(r, kind, client, INC, seq, row, k);
    f.codec = codec->id;
    return f;
}

/* One chunk of all clients: in lanes of their own one after the other, so that both jobs do the same. */
static void play_chunk(struct rig *r, const struct ps_frame *frames, unsigned char bodies[][RIG_MAX_BODY],
                       struct reply *replies)
{
    bool waits = r->center->admission->members;
    struct reply reply;
    uint32_t row = frames[0].begin >= ps_shard_slice(&r->center->shard, 0).count;
    for (uint32_t c = 0; c < CLIENTS; c++) {
        size_t len = bytes_of(r, ps_codec_find(frames[c].codec), &frames[c]);
        rig_send(r, lane_of(r, row, c), &frames[c], bodies[c], len);
        if (!waits)
            rig_recv(r, lane_of(r, row, c), &replies[c]);
    }
    for (uint32_t c = 0; c < CLIENTS && waits; c++) {
        rig_recv(r, row, &reply);
        ck_assert_uint_lt(reply.f.client, CLIENTS);
        replies[reply.f.client] = reply;
    }
    for (uint32_t c = 0; c < CLIENTS; c++)
        ck_assert_msg(replies[c].f.kind == PS_FRAME_ANSWER, "%s", replies[c].sentence);
}

/* `plain` is what the raw job answered. */
static void check_answer(const struct reply *coded, const struct reply *plain, const struct ps_codec *codec)
{
    static float want[RIG_CHUNK], got[RIG_CHUNK];
    static unsigned char payload[RIG_MAX_BODY];
    uint32_t n = coded->f.count;
    ck_assert_uint_eq(coded->f.codec, codec->id);
    ck_assert_uint_eq(coded->body_bytes, codec->payload_bytes(codec, n));
    ck_assert_uint_eq(plain->f.codec, 0);
    ck_assert_float_eq(coded->f.rate, plain->f.rate);
    ck_assert_uint_eq(coded->f.center_version, plain->f.center_version);
    for (uint32_t i = 0; i < n; i++)
        want[i] = is_frozen(coded->f.begin + i) && !codec->in_place ? 0 : plain->x[i];
    codec->encode(codec, payload, want, n);
    codec->decode(codec, want, payload, n);
    codec->decode(codec, got, coded->x, n);
    for (uint32_t i = 0; i < n; i++)
        if (!is_frozen(coded->f.begin + i))
            assert_quick(memcmp(&got[i], &want[i], sizeof *want) == 0);
}

static unsigned char bodies[CLIENTS][RIG_MAX_BODY], decoded[CLIENTS][RIG_MAX_BODY];

/* The chunk's messages in bodies. */
static void play(struct rig *r, const struct ps_codec *message, uint64_t seq, uint32_t row, uint32_t k,
                 struct reply *replies)
{
    struct ps_frame frames[CLIENTS];
    for (uint32_t c = 0; c < CLIENTS; c++) {
        frames[c] = frame(r, PS_FRAME_EXCHANGE, c, seq, row, k, message);
        encode(r, message, &frames[c], messages[c], bodies[c]);
    }
    play_chunk(r, frames, bodies, replies);
}

/* The raw job is played once for all answers' codecs, which it does not depend on. coded: one of each. */
static void play_all(struct rig *coded, struct rig *plain, const struct ps_codec *message, uint64_t seq,
                     uint32_t row, uint32_t k)
{
    static struct reply replies[CLIENTS], expected[CLIENTS];
    struct ps_frame raws[CLIENTS];
    for (uint32_t c = 0; c < CLIENTS; c++) {
        raws[c] = frame(plain, PS_FRAME_EXCHANGE, c, seq, row, k, codec_at(0));
        encode(plain, message, &raws[c], messages[c], bodies[c]);
        ps_piece_decode(message, plain->center->manifest, (struct ps_range){raws[c].begin, raws[c].count},
                        (float *)(void *)decoded[c], bodies[c]);
    }
    play_chunk(plain, raws, decoded, expected);
    for (int answer = 0; answer < N_ANSWERS; answer++) {
        play(&coded[answer], message, seq, row, k, replies);
        for (uint32_t c = 0; c < CLIENTS; c++)
            check_answer(&replies[c], &expected[c], codec_at(answer));
    }
}

static uint64_t bytes(const struct rig *r, bool in)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < LANES; i++)
        sum += in ? r->lanes[i]->stats.bytes_in[0] : r->lanes[i]->stats.bytes_out[0];
    return sum;
}

static double squares(const struct rig *r, uint32_t client)
{
    double sum = 0;
    for (uint32_t i = 0; i < LANES; i++) {
        double part = r->lanes[i]->clients[client].last_squares;
        sum += isnan(part) ? 0 : part;
    }
    return sum;
}

static void check_end(int job, struct rig *coded, struct rig *plain, const struct ps_codec *message,
                      const struct ps_codec *answer)
{
    const float *x = rig_center(coded), *y = rig_center(plain);
    for (int i = 0; i < N; i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0)
            ck_abort_msg("rule %s, %s: center[%d] is %a, not %a", jobs[job].rule, jobs[job].admission, i,
                         (double)x[i], (double)y[i]);
    for (uint32_t c = 0; c < CLIENTS; c++)
        ck_assert_double_eq(squares(coded, c), squares(plain, c));
    if (!message->in_place && !message->for_moves) /* a third of the model are buffers */
        ck_assert_uint_lt(bytes(coded, true), bytes(plain, true) * 6 / 10);
    if (!answer->in_place)
        ck_assert_uint_lt(bytes(coded, false), bytes(plain, false) * 6 / 10);
}

START_TEST(coded_exchanges_are_raw_ones_of_what_they_decode_to)
{
    const struct ps_codec *message = codec_at(_i);
    static struct rig coded[N_ANSWERS], plain;
    roll();
    for (int job = 0; job < (int)ROWS(jobs); job++) {
        if (!goes_with(message, job))
            continue;
        open_job(&plain, job, codec_at(0), codec_at(0));
        for (int answer = 0; answer < N_ANSWERS; answer++)
            open_job(&coded[answer], job, message, codec_at(answer));
        for (uint64_t seq = 1; seq <= SEQS; seq++)
            for (uint32_t row = 0; row < plain.center->shard.n_lanes; row++)
                for (uint32_t k = 0; k < ps_shard_n_chunks(&plain.center->shard, row); k++)
                    play_all(coded, &plain, message, seq, row, k);
        for (int answer = 0; answer < N_ANSWERS; answer++) {
            check_end(job, &coded[answer], &plain, message, codec_at(answer));
            rig_close(&coded[answer]);
        }
        rig_close(&plain);
    }
}
END_TEST

/* Job 2: rule add under fcfs. */
enum { ADD = 2 };
static unsigned char body[RIG_MAX_BODY];

static struct ps_frame add_frame(struct rig *r, uint64_t seq, const struct ps_codec *codec)
{
    struct ps_frame f = frame(r, PS_FRAME_EXCHANGE, 1, seq, 0, 0, codec);
    encode(r, codec, &f, messages[1], body);
    return f;
}

START_TEST(a_chunk_that_is_sent_again_lands_once)
{
    const struct ps_codec *c = codec_at(_i);
    struct rig r;
    struct reply first, again;
    roll();
    open_job(&r, ADD, c, answer_of(c));
    struct ps_frame f = add_frame(&r, 1, c);
    rig_ask(&r, 0, &f, body, bytes_of(&r, c, &f), &first);
    rig_ask(&r, 0, &f, body, bytes_of(&r, c, &f), &again);
    ck_assert_uint_eq(again.f.kind, PS_FRAME_ANSWER);
    ck_assert_uint_eq(again.f.flags, PS_FLAG_REPLAYED);
    ck_assert_uint_eq(again.f.codec, answer_of(c)->id);
    ck_assert_uint_eq(again.body_bytes, first.body_bytes);
    ck_assert_mem_eq(again.x, first.x, first.body_bytes);
    ck_assert_uint_eq(r.lanes[0]->stats.replays, 1);
    rig_close(&r);
}
END_TEST

static void check_refused(struct rig *r, const struct ps_frame *f, size_t len, uint32_t code,
                          const char *says)
{
    struct reply reply;
    rig_ask(r, 0, f, body, len, &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_uint_eq(reply.f.codec, 0);
    ck_assert_msg(reply.f.code == code, "code %u (%s); expected %u", reply.f.code, reply.sentence, code);
    assert_says(reply.sentence, says);
    ck_assert_mem_eq(rig_center(r), start, sizeof start);
}

START_TEST(lengths_and_codecs_that_are_not_the_jobs_are_refused)
{
    const struct ps_codec *c = codec_at(_i);
    struct rig r;
    char says[96], text[PS_CODEC_TEXT];
    roll();
    open_job(&r, ADD, c, answer_of(c));
    struct ps_frame f = add_frame(&r, 1, c);
    size_t good = bytes_of(&r, c, &f);
    const size_t lengths[] = {0,        1,           good - 1, good + 1, c->payload_bytes(c, f.count - 1),
                              good * 2, RIG_MAX_BODY};
    for (size_t i = 0; i < ROWS(lengths); i++)
        if (lengths[i] <= RIG_MAX_BODY && lengths[i] != good) {
            snprintf(says, sizeof says, "a body of %zu bytes; %u floats in codec %s take %zu", lengths[i],
                     f.count, ps_codec_text(c, text), good);
            check_refused(&r, &f, lengths[i], PS__CODE__MALFORMED, says);
        }
    for (int other = 0; other < N_CODECS; other++) {
        if (other == _i)
            continue;
        f.codec = codec_at(other)->id;
        snprintf(says, sizeof says, "codec %d (%s); allowed in a frame of kind 1 is %d (%s, codec.message)",
                 other, codec_at(other)->name, _i, c->name);
        check_refused(&r, &f, bytes_of(&r, codec_at(other), &f), PS__CODE__CODEC, says);
    }
    f.codec = 77;
    check_refused(&r, &f, good, PS__CODE__CODEC, "codec 77 (not known)");
    for (uint8_t kind = PS_FRAME_PULL; kind <= PS_FRAME_ADD; kind++) {
        if (kind == PS_FRAME_PUSH || kind == PS_FRAME_OFFER || _i == 0)
            continue;
        f.kind = kind;
        f.codec = c->id;
        check_refused(&r, &f, kind == PS_FRAME_PULL ? 0 : good, PS__CODE__CODEC, "is 0 (raw)");
    }
    rig_close(&r);
}
END_TEST

/* Pulls, sets and additions are raw both ways; a push is in the message's codec and answered with nothing. */
START_TEST(all_but_exchanges_and_pushes_are_raw)
{
    const struct ps_codec *c = codec_at(_i), *raw = codec_at(0);
    struct rig r;
    struct reply reply;
    roll();
    open_job(&r, ADD, c, answer_of(c));
    struct ps_frame f = frame(&r, PS_FRAME_PULL, OBSERVER, 1, 0, 0, raw);
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    ck_assert_uint_eq(reply.f.codec, 0);
    ck_assert_mem_eq(reply.x, start, f.count * sizeof *start);
    f = frame(&r, PS_FRAME_SET, 1, 1, 0, 0, raw);
    rig_ask(&r, 0, &f, messages[0], f.count * sizeof(float), &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER && reply.body_bytes == 0, "%s", reply.sentence);
    f = frame(&r, PS_FRAME_ADD, 1, 2, 0, 0, raw);
    rig_ask(&r, 0, &f, messages[1], f.count * sizeof(float), &reply);
    ck_assert_uint_eq(reply.f.codec, 0);
    for (uint32_t i = 0; i < f.count; i++)
        ck_assert_float_eq(reply.x[i], messages[0][i] + messages[1][i]);
    f = add_frame(&r, 3, c);
    f.kind = PS_FRAME_PUSH;
    rig_ask(&r, 0, &f, body, bytes_of(&r, c, &f), &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER && reply.body_bytes == 0, "%s", reply.sentence);
    ck_assert_uint_eq(reply.f.codec, 0);
    rig_close(&r);
}
END_TEST

/* Under rounds nothing of it is stored; else only what was finite. The session ends either way. */
START_TEST(payloads_that_are_not_finite_end_the_session)
{
    const struct ps_codec *c = codec_at(_i % N_ANSWERS); /* others: what_no_encoder_writes_is_refused_whole */
    bool rounds = _i >= N_ANSWERS;
    struct rig r;
    struct reply reply;
    roll();
    open_job(&r, rounds ? 8 : ADD, c, answer_of(c));
    struct ps_frame f = add_frame(&r, 1, c);
    messages[1][5] = NAN;
    encode(&r, c, &f, messages[1], body);
    rig_ask(&r, 0, &f, body, bytes_of(&r, c, &f), &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__VALUE);
    assert_says(reply.sentence, "not finite");
    ck_assert_uint_eq(rig_hear(&r, 0).kind, PSD_LANE_FAULT);
    const float *x = rig_center(&r);
    for (int i = 0; i < N; i++)
        assert_quick(isfinite(x[i]));
    ck_assert_float_eq(x[5], start[5]);
    if (rounds || c->error.block > 1)
        ck_assert_mem_eq(x, start, sizeof start);
    rig_ask(&r, 0, &f, body, bytes_of(&r, c, &f), &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__VALUE);
    rig_close(&r);
}
END_TEST

/* Any bytes of the right length: what they decode to is stored where it is finite, and nothing else is. */
START_TEST(hostile_payloads_leave_the_center_finite)
{
    const struct ps_codec *c = codec_at(_i);
    struct dice dice = {29};
    struct rig r;
    struct reply reply;
    roll();
    open_job(&r, ADD, c, answer_of(c));
    for (uint32_t k = 0; k < 60; k++) {
        rig_admit(&r, 1, INC + k, PSD_PHASE_ACTIVE, false);
        struct ps_frame f = frame(&r, PS_FRAME_EXCHANGE, 1, 1, 0, 0, c);
        f.incarnation = INC + k;
        for (size_t i = 0; i < bytes_of(&r, c, &f); i++)
            body[i] = k % 3 == 0 ? (unsigned char)(0x80 >> (k % 8)) : (unsigned char)dice_bits(&dice);
        rig_ask(&r, 0, &f, body, bytes_of(&r, c, &f), &reply);
        ck_assert(reply.f.kind == PS_FRAME_ANSWER || reply.f.code == PS__CODE__VALUE ||
                  (c->check != NULL && reply.f.code == PS__CODE__MALFORMED));
        if (reply.f.kind == PS_FRAME_ERROR && reply.f.code == PS__CODE__VALUE)
            rig_hear(&r, 0); /* its fault */
    }
    const float *x = rig_center(&r);
    for (int i = 0; i < N; i++)
        assert_quick(isfinite(x[i]));
    rig_close(&r);
}
END_TEST

/* What only a peer that lies sends: the sentence of the codec's check, and the center is as it was. Then the
 * honest message lands. */
static void check_lie(struct rig *r, const struct ps_codec *c, size_t at, const void *lie, size_t len_bytes,
                      const char *says)
{
    struct ps_frame f = add_frame(r, 1, c);
    memcpy(body + at, lie, len_bytes);
    check_refused(r, &f, bytes_of(r, c, &f), PS__CODE__MALFORMED, says);
}

START_TEST(what_no_encoder_writes_is_refused_whole)
{
    static const float scales[] = {NAN, -NAN, INFINITY, -INFINITY, -1.0f, FLT_MAX};
    const struct ps_codec *topk = ps_codec_named("topk"), *int4 = ps_codec_named("int4");
    struct reply reply;
    struct rig r;
    roll();
    for (int k = 0; k < 2; k++) {
        const struct ps_codec *c = k == 0 ? topk : int4;
        open_job(&r, ADD, c, codec_at(0));
        struct ps_frame f = add_frame(&r, 1, c);
        for (size_t i = 0; i < ROWS(scales); i++) {
            uint32_t bits;
            memcpy(&bits, &scales[i], sizeof bits);
            uint16_t upper = (uint16_t)(bits >> 16);
            if (c == topk)
                check_lie(&r, c, 0, &bits, sizeof bits, "the scale is not a number from 0");
            else
                check_lie(&r, c, i * 34, &upper, sizeof upper, "a block's scale is not a number from 0");
        }
        if (c == topk) {
            const size_t counts = 4, places = counts + (f.count + 254) / 255;
            add_frame(&r, 1, c);
            unsigned char first = body[counts], lies[3] = {first, (unsigned char)(first + 1), 255};
            ck_assert_uint_ge(first, 2);
            check_lie(&r, c, counts, (unsigned char[]){255}, 1, "do not add up");
            check_lie(&r, c, counts, &lies[1], 1, "do not add up");
            check_lie(&r, c, places, (unsigned char[]){7, 7}, 2, "do not ascend");
            check_lie(&r, c, places, (unsigned char[]){9, 8}, 2, "do not ascend");
            check_lie(&r, c, places + first - 1, &lies[2], 1, "lie beyond its end");
        }
        f = add_frame(&r, 1, c);
        rig_ask(&r, 0, &f, body, bytes_of(&r, c, &f), &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        ck_assert_uint_eq(reply.f.flags, 0);
        rig_close(&r);
    }
}
END_TEST

/* dc-asgd compensates from what the client really has, which is what the answer decodes to. */
START_TEST(what_a_client_saw_is_what_its_answer_decodes_to)
{
    const struct ps_codec *c = codec_at(_i);
    const struct ps_vec *vec = ps_vec_best();
    static float x[RIG_CHUNK], seen[RIG_CHUNK], g[RIG_CHUNK];
    struct rig r;
    struct reply reply;
    roll();
    snprintf(answer_key, sizeof answer_key, "codec.answer=%s", c->name);
    rig_open(&r, "dc-asgd", LANES,
             (const char *[]){"workers=2", "compensation=1", "learning_rate=0.25", answer_key, NULL});
    rig_fill_model(&r, model, ROWS(model), start);
    rig_admit(&r, 1, INC, PSD_PHASE_ACTIVE, false);
    memcpy(x, start, sizeof x);
    memcpy(seen, start, sizeof seen);
    for (uint64_t seq = 1; seq <= 4; seq++) {
        struct ps_frame f = frame(&r, PS_FRAME_EXCHANGE, 1, seq, 0, 0, codec_at(0));
        rig_ask(&r, 0, &f, messages[0], f.count * sizeof(float), &reply);
        memcpy(g, messages[0], sizeof g);
        vec->exchange_compensate(x, seen, g, 0.25f, 1, f.count);
        c->decode(c, seen, reply.x, f.count);
    }
    ck_assert_mem_eq(rig_center(&r), x, sizeof x);
    rig_close(&r);
}
END_TEST

/* The answer of a merged round is encoded once for clients with the same answers behind them. Client 1 does
 * not say what it has in the fourth round, and gets all of it: from then on the two have different values. */
START_TEST(a_round_answers_each_client_by_what_it_has)
{
    static const bool based[][CLIENTS] = {{false, false}, {true, true}, {true, true},   {true, false},
                                          {true, true},   {true, true}, {false, false}, {true, true}};
    static const char *const names[] = {"int4", "topk:0.1"};
    static float known[CLIENTS][RIG_CHUNK], want[RIG_CHUNK];
    static unsigned char payload[RIG_MAX_BODY];
    static struct reply replies[CLIENTS];
    struct ps_codec c;
    struct rig r;
    roll();
    ck_assert_ptr_null(ps_codec_of(names[_i], &c));
    snprintf(answer_key, sizeof answer_key, "codec.answer=%s", names[_i]);
    rig_open(&r, "add", LANES,
             (const char *[]){"admission=sync", "workers=2", "codec.error_feedback=true", answer_key, NULL});
    rig_fill_model(&r, model, ROWS(model), start);
    for (uint32_t k = 0; k < CLIENTS; k++)
        rig_admit(&r, k, INC, PSD_PHASE_ACTIVE, false);
    rig_members(&r, 0, CLIENTS, (const uint32_t[]){0, 1});
    for (uint64_t seq = 1; seq <= ROWS(based); seq++) {
        struct ps_frame frames[CLIENTS];
        for (uint32_t k = 0; k < CLIENTS; k++) {
            frames[k] = frame(&r, PS_FRAME_EXCHANGE, k, seq, 0, 0, codec_at(0));
            frames[k].flags |= based[seq - 1][k] ? PS_FLAG_BASED : 0;
            for (uint32_t i = 0; i < frames[k].count; i++)
                ((float *)(void *)bodies[k])[i] = messages[k][(i + 7 * seq) % 2500];
        }
        const struct ps_range piece = {frames[0].begin, frames[0].count};
        play_chunk(&r, frames, bodies, replies);
        const float *center = rig_center(&r) + piece.begin;
        for (uint32_t k = 0; k < CLIENTS; k++) {
            memcpy(want, center, piece.count * sizeof *want);
            if (!based[seq - 1][k]) {
                ck_assert_uint_eq(replies[k].f.codec, 0);
                ck_assert_mem_eq(replies[k].x, want, piece.count * sizeof *want);
                memcpy(known[k], want, sizeof want);
                continue;
            }
            ps_piece_leave(&c, r.center->manifest, piece, want, known[k]);
            ps_piece_encode(&c, r.center->manifest, piece, payload, want);
            ck_assert_uint_eq(replies[k].f.codec, c.id);
            ck_assert_uint_eq(replies[k].body_bytes, ps_piece_bytes(&c, r.center->manifest, piece));
            ck_assert_mem_eq(replies[k].x, payload, replies[k].body_bytes);
            ps_piece_decode(&c, r.center->manifest, piece, want, payload);
            ps_piece_take(&c, r.center->manifest, piece, known[k], want);
        }
        ck_assert(seq != 5 || memcmp(known[0], known[1], piece.count * sizeof *want) != 0);
    }
    rig_close(&r);
}
END_TEST

/* Answers that another client's memory has no part in. */
static const struct {
    const char *answer;
    bool based;
} shared_rows[] = {{"fp16", false}, {"bf16", false}, {"int8", false}, {"int4", true}, {"topk:0.1", true}};

/* The loops of a lane, beside which client 0 writes to its body: before the lane copies it, if it has looked
 * at it before, and after it has been copied and checked at once. */
static struct ps_vec watched;
static const struct ps_vec *real;

static void write_to(const float *floats)
{
    if ((const void *)floats == rig_body(0))
        memset(rig_body(0), 0x11, 64);
}

static void copy_late(float *restrict to, const float *restrict from, size_t n)
{
    write_to(from);
    real->copy(to, from, n);
}

static size_t copy_finite_early(float *restrict to, const float *restrict from, size_t n)
{
    size_t n_bad = real->copy_finite(to, from, n);
    write_to(from);
    return n_bad;
}

/* Both clients say what they have of the chunk, client 0 last. */
static void say_known(struct rig *r, bool writes)
{
    struct reply reply;
    real = r->lanes[0]->vec;
    watched = *real;
    watched.copy = copy_late;
    watched.copy_finite = copy_finite_early;
    for (int k = CLIENTS - 1; k >= 0; k--) {
        struct ps_frame f = frame(r, PS_FRAME_KNOWN, (uint32_t)k, 1, 0, 0, codec_at(0));
        r->lanes[0]->vec = writes && k == 0 ? &watched : real;
        rig_ask_vector(r, 0, &f, start, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    }
    r->lanes[0]->vec = real;
}

/* Client 1's answers to two rounds. */
static void play_beside_a_writer(int row, bool writes_known, bool writes_answers, struct reply *answers)
{
    struct reply replies[CLIENTS];
    struct rig r;
    snprintf(answer_key, sizeof answer_key, "codec.answer=%s", shared_rows[row].answer);
    rig_open_shared(
        &r, "add", LANES,
        (const char *[]){"admission=sync", "workers=2", "codec.error_feedback=true", answer_key, NULL});
    rig_fill_model(&r, model, ROWS(model), start);
    for (uint32_t k = 0; k < CLIENTS; k++)
        rig_admit(&r, k, INC, PSD_PHASE_ACTIVE, false);
    rig_members(&r, 0, CLIENTS, (const uint32_t[]){0, 1});
    say_known(&r, writes_known);
    rig_write_between(writes_answers ? 0 : -1);
    for (uint64_t seq = 1; seq <= 2; seq++) {
        struct ps_frame frames[CLIENTS];
        for (uint32_t k = 0; k < CLIENTS; k++) {
            frames[k] = frame(&r, PS_FRAME_EXCHANGE, k, seq, 0, 0, codec_at(0));
            frames[k].flags |= shared_rows[row].based ? PS_FLAG_BASED : 0;
            memcpy(bodies[k], messages[k], frames[k].count * sizeof(float));
        }
        play_chunk(&r, frames, bodies, replies);
        answers[seq - 1] = replies[1];
    }
    rig_close(&r);
}

/* Clients that are alike share the answer to a round, and what psd remembers of them. By shared memory one
 * of them may write to its own message meanwhile: the other's answers are made of what psd has. */
START_TEST(a_shared_answer_is_not_what_another_client_writes)
{
    static struct reply honest[2], beside[2];
    roll();
    play_beside_a_writer(_i, false, false, honest);
    for (int writes = 0; writes < 2; writes++) {
        play_beside_a_writer(_i, writes == 0, writes == 1, beside);
        for (int k = 0; k < 2; k++) {
            ck_assert_uint_eq(beside[k].body_bytes, honest[k].body_bytes);
            ck_assert_msg(memcmp(beside[k].x, honest[k].x, honest[k].body_bytes) == 0,
                          "%s: client 1's answer to round %d has changed with what client 0 wrote to its %s",
                          shared_rows[_i].answer, k + 1, writes == 0 ? "report" : "answer");
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("codecs");
    TCase *tc = tcase_create("lanes");
    tcase_add_loop_test(tc, coded_exchanges_are_raw_ones_of_what_they_decode_to, 0, N_CODECS);
    tcase_add_loop_test(tc, a_chunk_that_is_sent_again_lands_once, 0, N_CODECS);
    tcase_add_loop_test(tc, lengths_and_codecs_that_are_not_the_jobs_are_refused, 0, N_CODECS);
    tcase_add_loop_test(tc, all_but_exchanges_and_pushes_are_raw, 0, N_CODECS);
    tcase_add_loop_test(tc, payloads_that_are_not_finite_end_the_session, 0, 2 * N_ANSWERS);
    tcase_add_loop_test(tc, hostile_payloads_leave_the_center_finite, 0, N_CODECS);
    tcase_add_loop_test(tc, what_a_client_saw_is_what_its_answer_decodes_to, 0, N_ANSWERS);
    tcase_add_loop_test(tc, a_round_answers_each_client_by_what_it_has, 0, 2);
    tcase_add_loop_test(tc, a_shared_answer_is_not_what_another_client_writes, 0, ROWS(shared_rows));
    tcase_add_test(tc, what_no_encoder_writes_is_refused_whole);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
