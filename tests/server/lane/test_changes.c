/* Answers that say what has changed since the client's last: codec.answer int4 and topk. What psd keeps of a
 * client and what the client makes of its answers are the same bits, or the answer is the floats. */
#include <math.h>
#include <stdio.h>

#include "proto/codecs/piece.h"
#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { LANES = 2, N = 3000, INC = 7, A = 0, B = 1, LATE = 2 };

static const struct ps_tensor model[] = {{"w", 0, {1500}, 1, PS_ROLE_PARAM},
                                         {"mean", 1500, {200}, 1, PS_ROLE_BUFFER},
                                         {"embedding", 1700, {100}, 1, PS_ROLE_FROZEN},
                                         {"b", 1800, {1200}, 1, PS_ROLE_PARAM}};
static const char *const codecs[] = {"int4", "topk:0.1"};
static const struct {
    const char *rule, *admission;
} jobs[] = {{"add", "admission=fcfs"}, {"add", "admission=hogwild"}, {"sgd", "admission=ssp"}};

static float start[N], message[N], known[2][N];
static struct ps_codec codec;

static void open_job(struct rig *r, int job, const char *name)
{
    static char key[40];
    const bool counts = strcmp(name, "int8") != 0 || strstr(jobs[job].admission, "fcfs") == NULL;
    const char *settings[] = {counts ? "workers=2" : "workers=any", jobs[job].admission, key, NULL};
    struct dice dice = {3};
    snprintf(key, sizeof key, "codec.answer=%s", name);
    ck_assert_ptr_null(ps_codec_of(name, &codec));
    for (int i = 0; i < N; i++) {
        start[i] = dice_float(&dice);
        message[i] = dice_float(&dice) / 8;
    }
    rig_open(r, jobs[job].rule, LANES, settings);
    rig_fill_model(r, model, ROWS(model), start);
    for (uint32_t c = A; c <= LATE; c++)
        rig_admit(r, c, INC, PSD_PHASE_ACTIVE, false);
    if (r->center->admission->members)
        rig_members(r, 0, 2, (const uint32_t[]){A, B});
}

/* An exchange of chunk k in a row of the shard. */
static struct ps_frame ask_chunk(struct rig *r, uint32_t client, uint64_t seq, uint32_t row, uint32_t k,
                                 bool based, struct reply *reply)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, client, INC, seq, row, k);
    f.samples = 1;
    f.flags = based ? PS_FLAG_BASED : 0;
    uint32_t lane = r->center->whole_lanes ? client % LANES : row;
    rig_ask(r, lane, &f, message + f.begin, f.count * sizeof(float), reply);
    ck_assert_msg(reply->f.kind == PS_FRAME_ANSWER, "%s", reply->sentence);
    return f;
}

/* The whole vector, as a client that takes all its answers; whether they were changes. */
static void exchange(struct rig *r, uint32_t client, uint64_t seq, bool based, bool changes)
{
    struct reply reply;
    for (uint32_t row = 0; row < r->center->shard.n_lanes; row++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r->center->shard, row); k++) {
            static float decoded[RIG_CHUNK];
            struct ps_frame f = ask_chunk(r, client, seq, row, k, based, &reply);
            struct ps_range piece = {f.begin, f.count};
            const struct ps_codec *c = changes ? &codec : ps_codec_find(0);
            ck_assert_uint_eq(reply.f.codec, c->id);
            ck_assert_uint_eq(reply.body_bytes, ps_piece_bytes(c, r->center->manifest, piece));
            if (!changes) {
                memcpy(known[client] + f.begin, reply.x, f.count * sizeof(float));
                continue;
            }
            ck_assert_ptr_null(ps_piece_check(c, r->center->manifest, piece, reply.x));
            ps_piece_decode(c, r->center->manifest, piece, decoded, reply.x);
            ps_piece_take(c, r->center->manifest, piece, known[client] + f.begin, decoded);
        }
}

/* What psd keeps of the client is what the client has. */
static void check_known(const struct rig *r, uint32_t client)
{
    for (int i = 0; i < N; i++)
        if (i < 1700 || i >= 1800) /* frozen ones are in no answer */
            ck_assert_msg(memcmp(&known[client][i], &r->center->seen[client][i], sizeof(float)) == 0,
                          "client %u has %a at %d, and psd takes it for %a", client, (double)known[client][i],
                          i, (double)r->center->seen[client][i]);
}

static double distance(const float *v, const float *center)
{
    double most = 0;
    for (int i = 0; i < N; i++)
        if (i < 1700 || i >= 1800)
            most = fmax(most, fabs((double)v[i] - (double)center[i]));
    return most;
}

/* Whole at first, changes from then on; buffers are exact in each. When nothing moves any more the rest
 * comes. */
START_TEST(answers_bring_what_has_changed)
{
    const int job = _i / 2;
    struct rig r;
    uint64_t seq[2] = {0, 0};
    open_job(&r, job, codecs[_i % 2]);
    for (uint32_t c = A; c <= B; c++)
        exchange(&r, c, ++seq[c], false, false);
    for (int round = 0; round < 4; round++)
        for (uint32_t c = A; c <= B; c++) {
            exchange(&r, c, ++seq[c], true, true);
            check_known(&r, c);
        }
    double before = distance(known[A], rig_center(&r));
    ck_assert_double_gt(before, 0);
    for (int i = 1500; i < 1700; i++) /* B was answered last */
        ck_assert_float_eq(known[B][i], rig_center(&r)[i]);
    for (int i = 0; i < N; i++)
        if (i < 1500 || i >= 1700)
            message[i] = 0;
    for (int round = 0; round < 40; round++)
        for (uint32_t c = A; c <= B; c++) {
            exchange(&r, c, ++seq[c], true, true);
            check_known(&r, c);
        }
    /* topk's values are off by 1/253 and int4's by 1/13.9, of what is left each time; float32 by its last
     * bit. */
    for (uint32_t c = A; c <= B; c++)
        for (int i = 0; i < N; i++)
            if (i < 1500 || i >= 1800)
                ck_assert_msg(fabs((double)known[c][i] - (double)rig_center(&r)[i]) <= before * 1e-4,
                              "[%d]: %a, %a", i, (double)known[c][i], (double)rig_center(&r)[i]);
    rig_close(&r);
}
END_TEST

/* Of a chunk that is sent again nobody knows which answer the client takes: the next one is whole, too. */
START_TEST(after_a_replay_an_answer_is_whole)
{
    struct rig r;
    struct reply first, again, next;
    open_job(&r, 0, codecs[_i]);
    exchange(&r, A, 1, false, false);
    struct ps_frame f = ask_chunk(&r, A, 2, 0, 0, true, &first);
    ck_assert_uint_eq(first.f.codec, codec.id);
    ask_chunk(&r, A, 2, 0, 0, true, &again);
    ck_assert_uint_eq(again.f.flags, PS_FLAG_REPLAYED);
    ck_assert_uint_eq(again.f.codec, 0);
    ck_assert_mem_eq(again.x, rig_center(&r) + f.begin, f.count * sizeof(float));
    ask_chunk(&r, A, 3, 0, 0, true, &next);
    ck_assert_uint_eq(next.f.codec, 0);
    ck_assert_mem_eq(next.x, rig_center(&r) + f.begin, f.count * sizeof(float));
    ask_chunk(&r, A, 4, 0, 0, true, &next);
    ck_assert_uint_eq(next.f.codec, codec.id);
    ask_chunk(&r, A, 5, 0, 0, false, &next); /* it gave up the one before */
    ck_assert_uint_eq(next.f.codec, 0);
    ck_assert_uint_eq(r.lanes[0]->stats.replays, 1);
    rig_close(&r);
}
END_TEST

/* A worker beyond those that psd keeps a vector of; one that says it knows what psd does not; a part of a
 * chunk. */
START_TEST(who_is_not_known_is_answered_with_the_floats)
{
    struct rig r;
    struct reply reply;
    open_job(&r, 0, codecs[_i]);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        ask_chunk(&r, LATE, seq, 0, 0, true, &reply);
        ck_assert_uint_eq(reply.f.codec, 0);
    }
    ask_chunk(&r, A, 1, 0, 0, true, &reply);
    ck_assert_uint_eq(reply.f.codec, 0);
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, A, INC, 2, 0, 1);
    struct ps_range b = {1800, 1200}, chunk = {f.begin, f.count}, part = ps_range_intersect(b, chunk);
    if (part.count == 0 || part.count == chunk.count) { /* else the lane's second chunk holds a part of w */
        b = (struct ps_range){0, 1500};
        part = ps_range_intersect(b, chunk);
    }
    ck_assert(part.count > 0 && part.count < chunk.count);
    f.flags = PS_FLAG_TENSOR | PS_FLAG_BASED;
    f.code = b.begin == 0 ? 0 : 3;
    f.begin = part.begin;
    f.count = (uint32_t)part.count;
    rig_ask(&r, 0, &f, message + f.begin, f.count * sizeof(float), &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    ck_assert_uint_eq(reply.f.codec, 0);
    rig_close(&r);
}
END_TEST

/* Chunk k of a row, as the client has it. */
static void say_known(struct rig *r, uint32_t client, uint64_t seq, uint32_t row, uint32_t k,
                      const float *values, struct reply *reply)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_KNOWN, client, INC, seq, row, k);
    rig_ask(r, row, &f, values + f.begin, f.count * sizeof(float), reply);
}

/* psd keeps nothing of it in a checkpoint: the client has it in its state. */
START_TEST(a_client_that_says_what_it_has_goes_on_with_changes)
{
    static float there[N], straight[N];
    struct psd_snapshot s;
    struct rig r, again;
    struct reply reply;
    char key[40];
    open_job(&r, 0, codecs[_i]);
    snprintf(key, sizeof key, "codec.answer=%s", codecs[_i]);
    for (uint64_t seq = 1; seq <= 3; seq++)
        for (uint32_t c = A; c <= B; c++)
            exchange(&r, c, seq, seq > 1, seq > 1);
    rig_snapshot(&r, &s);
    memcpy(there, known[A], sizeof there);
    exchange(&r, A, 4, true, true);
    memcpy(straight, known[A], sizeof straight);
    rig_close(&r);

    rig_open(&again, "add", LANES, (const char *[]){"workers=2", "admission=fcfs", key, NULL});
    rig_resume(&again, &s);
    rig_admit(&again, A, INC, PSD_PHASE_ACTIVE, false);
    memcpy(known[A], there, sizeof there);
    for (uint32_t row = 0; row < again.center->shard.n_lanes; row++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&again.center->shard, row); k++) {
            say_known(&again, A, 1, row, k, known[A], &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER && reply.body_bytes == 0, "%s", reply.sentence);
        }
    check_known(&again, A);
    exchange(&again, A, 2, true, true);
    check_known(&again, A);
    ck_assert_mem_eq(known[A], straight, sizeof straight);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* Values that are not finite, a part of a chunk, a client of which psd keeps nothing. */
START_TEST(what_a_client_says_it_has_is_checked)
{
    struct rig r;
    struct reply reply;
    open_job(&r, 0, codecs[_i]);
    say_known(&r, LATE, 1, 0, 0, message, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    ask_chunk(&r, LATE, 2, 0, 0, true, &reply);
    ck_assert_uint_eq(reply.f.codec, 0);
    struct ps_frame f = rig_frame(&r, PS_FRAME_KNOWN, A, INC, 1, 0, 0);
    f.count--;
    rig_ask(&r, 0, &f, message + f.begin, f.count * sizeof(float), &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__RANGE);
    f.count++;
    rig_ask(&r, 0, &f, message + f.begin, f.count * sizeof(float) - 4, &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__MALFORMED);
    ask_chunk(&r, A, 2, 0, 0, true, &reply);
    ck_assert_uint_eq(reply.f.codec, 0); /* nothing was taken */
    float kept = message[f.begin + 7];
    message[f.begin + 7] = NAN;
    say_known(&r, B, 1, 0, 0, message, &reply);
    message[f.begin + 7] = kept;
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_uint_eq(reply.f.code, PS__CODE__VALUE);
    for (int i = 0; i < N; i++)
        ck_assert(isfinite(r.center->seen[B][i]));
    rig_close(&r);
}
END_TEST

/* A checkpoint or a method keeps nothing of it: the first answers after them are whole. */
START_TEST(a_resume_and_a_swap_begin_with_the_floats)
{
    struct psd_snapshot s;
    struct rig r, again;
    struct reply reply;
    char key[40];
    open_job(&r, 0, codecs[_i]);
    snprintf(key, sizeof key, "codec.answer=%s", codecs[_i]);
    exchange(&r, A, 1, false, false);
    exchange(&r, A, 2, true, true);
    rig_snapshot(&r, &s);
    rig_shut(&r);
    rig_swap(&r, "sgd", (const char *[]){"workers=2", "admission=fcfs", key, NULL});
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, A, INC, 3, 0, 0);
    f.flags = PS_FLAG_BASED;
    rig_ask(&r, 0, &f, message + f.begin, f.count * sizeof(float), &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    ck_assert_uint_eq(reply.f.codec, 0);
    rig_close(&r);

    rig_open(&again, "add", LANES, (const char *[]){"workers=2", "admission=fcfs", key, NULL});
    rig_resume(&again, &s);
    rig_admit(&again, A, INC, PSD_PHASE_ACTIVE, true);
    f = rig_frame(&again, PS_FRAME_EXCHANGE, A, INC, 3, 0, 0);
    f.flags = PS_FLAG_BASED;
    rig_ask(&again, 0, &f, message + f.begin, f.count * sizeof(float), &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    ck_assert_uint_eq(reply.f.codec, 0);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* Where answers are values nobody says that it knows them. */
START_TEST(the_flag_is_refused_where_answers_are_values)
{
    struct rig r;
    struct reply reply;
    open_job(&r, 0, "int8");
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, A, INC, 1, 0, 0);
    f.flags = PS_FLAG_BASED;
    rig_ask(&r, 0, &f, message + f.begin, f.count * sizeof(float), &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_uint_eq(reply.f.code, PS__CODE__MALFORMED);
    ck_assert_mem_eq(rig_center(&r), start, sizeof start);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-changes");
    TCase *tc = tcase_create("lanes");
    tcase_add_loop_test(tc, answers_bring_what_has_changed, 0, 2 * (int)ROWS(jobs));
    tcase_add_loop_test(tc, after_a_replay_an_answer_is_whole, 0, (int)ROWS(codecs));
    tcase_add_loop_test(tc, who_is_not_known_is_answered_with_the_floats, 0, (int)ROWS(codecs));
    tcase_add_loop_test(tc, a_client_that_says_what_it_has_goes_on_with_changes, 0, (int)ROWS(codecs));
    tcase_add_loop_test(tc, what_a_client_says_it_has_is_checked, 0, (int)ROWS(codecs));
    tcase_add_loop_test(tc, a_resume_and_a_swap_begin_with_the_floats, 0, (int)ROWS(codecs));
    tcase_add_test(tc, the_flag_is_refused_where_answers_are_values);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
