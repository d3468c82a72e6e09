/* Rounds of keys in real lanes: the same center as rounds of whole vectors, and what is refused. */
#include <math.h>
#include <string.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { INC = 7, P = 3, LANES = 2, N = 5000, ROUNDS = 3 };

/* Over two lanes of chunks of at most 1024: `wide` crosses lanes, `bias` and `stat` lie within a chunk with
 * others, `ice` and `frost` hold parts of chunks. */
static const struct ps_tensor tensors[] = {
    {"frost", 0, {10}, 1, PS_ROLE_FROZEN},   {"head", 10, {90}, 1, PS_ROLE_PARAM},
    {"stat", 100, {50}, 1, PS_ROLE_BUFFER},  {"wide", 150, {2650}, 1, PS_ROLE_PARAM},
    {"ice", 2800, {100}, 1, PS_ROLE_FROZEN}, {"tail", 2900, {2000}, 1, PS_ROLE_PARAM},
    {"bias", 4900, {100}, 1, PS_ROLE_PARAM},
};
enum { FROST, HEAD, STAT, WIDE, ICE, TAIL, BIAS };

static float start[N], message[ROUNDS][P][N];
static uint64_t seqs[P];

static void open_job(struct rig *r, const char *rule, const char *const *settings)
{
    struct dice dice = {5};
    for (int i = 0; i < N; i++) {
        start[i] = dice_float(&dice);
        for (int k = 0; k < P * ROUNDS; k++)
            message[k / P][k % P][i] = dice_float(&dice);
    }
    memset(seqs, 0, sizeof seqs);
    rig_open(r, rule, LANES, settings);
    rig_fill_model(r, tensors, ROWS(tensors), start);
    for (uint32_t i = 0; i < P; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, false);
    rig_members(r, 0, P, (const uint32_t[]){0, 1, 2});
}

static struct ps_range range_of(uint32_t key)
{
    return ps_tensor_range(&tensors[key]);
}

static struct ps_frame piece_of(const struct rig *r, uint32_t client, uint32_t key, uint32_t lane, uint32_t k)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, client, INC, seqs[client], lane, k);
    struct ps_range piece = ps_shard_piece(&r->center->shard, lane, range_of(key), k);
    f.flags = PS_FLAG_TENSOR;
    f.code = (uint16_t)key;
    f.begin = piece.begin;
    f.count = (uint32_t)piece.count;
    return f;
}

static void assert_answer(struct rig *r, uint32_t lane)
{
    struct reply reply;
    rig_recv(r, lane, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
}

/* All members' exchanges of the key, in an order that turns with the round. */
static void play_key(struct rig *r, uint32_t key, int round)
{
    for (uint32_t i = 0; i < P; i++)
        seqs[i]++;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t first, n = ps_shard_pieces(&r->center->shard, lane, range_of(key), &first);
        for (uint32_t k = first; k < first + n; k++) {
            for (uint32_t i = 0; i < P; i++) {
                uint32_t client = (i + (uint32_t)round) % P;
                struct ps_frame f = piece_of(r, client, key, lane, k);
                rig_send_vector(r, lane, &f, message[round][client]);
            }
            for (uint32_t i = 0; i < P; i++)
                assert_answer(r, lane);
        }
    }
}

static void play_keys(struct rig *r, int round)
{
    for (uint32_t key = 0; key < ROWS(tensors); key++)
        if (tensors[key].role != PS_ROLE_FROZEN)
            play_key(r, key, round);
}

static void play_whole(struct rig *r, int round)
{
    for (uint32_t i = 0; i < P; i++)
        seqs[i]++;
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r->center->shard, lane); k++) {
            for (uint32_t i = 0; i < P; i++) {
                uint32_t client = (i + (uint32_t)round) % P;
                struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, client, INC, seqs[client], lane, k);
                rig_send_vector(r, lane, &f, message[round][client]);
            }
            for (uint32_t i = 0; i < P; i++)
                assert_answer(r, lane);
        }
}

static const struct {
    const char *rule;
    const char *settings[6];
} jobs[] = {
    {"sgd", {"admission=sync", NULL}},
    {"elastic", {"admission=sync", "alpha=0.25", NULL}},
    {"adam", {"admission=sync", "momentum=0.9", NULL}}, /* counts updates */
    {"sgd", {"admission=sync", "averaging=mean", NULL}},
    {"sgd", {"admission=sync", "merge=trimmed_mean", "trim=1", NULL}},
    {"sum", {"admission=sync", NULL}},
    {"momentum", {"admission=round-robin", "momentum=0.9", NULL}},
    {"adam", {"admission=round-robin", "momentum=0.9", NULL}},
    {"elastic", {"admission=round-robin", "alpha=0.25", NULL}},
    {"sgd", {"admission=ssp", "slack=0", NULL}},
    {"momentum", {"admission=ssp", "momentum=0.9", "slack=0", NULL}},
};

START_TEST(a_round_of_keys_is_a_round_of_whole_vectors)
{
    static float whole[N];
    struct rig r;
    open_job(&r, jobs[_i].rule, jobs[_i].settings);
    for (int t = 0; t < ROUNDS; t++)
        play_whole(&r, t);
    memcpy(whole, rig_center(&r), sizeof whole);
    uint64_t version = atomic_load(&r.shared.version);
    rig_close(&r);
    open_job(&r, jobs[_i].rule, jobs[_i].settings);
    for (int t = 0; t < ROUNDS; t++)
        play_keys(&r, t);
    const float *keys = rig_center(&r);
    for (int i = 0; i < N; i++)
        assert_quick(keys[i] == whole[i]);
    if (strcmp(jobs[_i].settings[0], "admission=sync") == 0)
        ck_assert_uint_eq(atomic_load(&r.shared.version), version);
    rig_close(&r);
}
END_TEST

static const char *const sync_plain[] = {"admission=sync", NULL};

START_TEST(rounds_of_both_kinds_may_follow_each_other)
{
    struct rig r;
    open_job(&r, "sum", sync_plain);
    play_keys(&r, 0);
    play_whole(&r, 1);
    play_keys(&r, 2);
    const float *after = rig_center(&r);
    for (int i = 10; i < 100; i++)
        assert_quick((double)after[i] == (double)(message[2][0][i] + message[2][1][i] + message[2][2][i]));
    ck_assert_uint_eq(atomic_load(&r.shared.version), 3);
    rig_close(&r);
}
END_TEST

static void send_piece(struct rig *r, uint32_t client, uint32_t key)
{
    struct ps_frame f = piece_of(r, client, key, 0, 0);
    f.seq = ++seqs[client];
    rig_send_vector(r, 0, &f, message[0][client]);
}

static void assert_refused(struct rig *r, const char *a, const char *b)
{
    struct reply reply;
    rig_recv(r, 0, &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_uint_eq(reply.f.code, PS__CODE__RANGE);
    assert_says(reply.sentence, a);
    assert_says(reply.sentence, b);
}

START_TEST(a_key_out_of_its_turn_is_refused)
{
    struct rig r;
    open_job(&r, "sgd", sync_plain);
    send_piece(&r, 1, STAT);
    assert_refused(&r, "client 1 sends tensor 'stat'", "tensor 'head' is next");
    for (uint32_t i = 0; i < P; i++)
        send_piece(&r, i, HEAD);
    for (uint32_t i = 0; i < P; i++)
        assert_answer(&r, 0);
    send_piece(&r, 2, HEAD); /* a second time */
    assert_refused(&r, "client 2 sends tensor 'head'", "tensor 'stat' is next");
    rig_close(&r);
}
END_TEST

START_TEST(members_do_not_mix_keys_and_whole_vectors)
{
    struct rig r;
    open_job(&r, "sgd", sync_plain);
    send_piece(&r, 0, HEAD);
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 1, INC, 1, 0, 0);
    rig_send_vector(&r, 0, &f, message[0][1]);
    assert_refused(&r, "client 1 sends the whole vector", "client 0 sends tensor 'head'");
    ck_assert_float_eq(rig_center(&r)[20], start[20]);
    rig_close(&r);
}
END_TEST

START_TEST(a_member_may_be_a_key_ahead_under_round_robin)
{
    static const char *const in_turn[] = {"admission=round-robin", NULL};
    struct rig r;
    open_job(&r, "sgd", in_turn);
    play_keys(&r, 0); /* in the first round all wait for all */
    for (uint32_t i = 0; i < P; i++)
        seqs[i] += 10;
    send_piece(&r, 0, HEAD);
    assert_answer(&r, 0);
    send_piece(&r, 0, STAT);
    rig_assert_silent(&r, 0, 1, INC);
    send_piece(&r, 1, HEAD);
    assert_answer(&r, 0);
    send_piece(&r, 2, HEAD);
    assert_answer(&r, 0);
    assert_answer(&r, 0); /* stat of client 0 */
    rig_close(&r);
}
END_TEST

/* All pieces of the client's exchange of the key; returns how many. */
static uint32_t send_key(struct rig *r, uint32_t client, uint32_t key, uint32_t n_in[LANES])
{
    uint32_t sent = 0;
    seqs[client]++;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t first;
        n_in[lane] = ps_shard_pieces(&r->center->shard, lane, range_of(key), &first);
        for (uint32_t k = first; k < first + n_in[lane]; k++, sent++) {
            struct ps_frame f = piece_of(r, client, key, lane, k);
            rig_send_vector(r, lane, &f, message[0][client]);
        }
    }
    return sent;
}

static void exchange_key(struct rig *r, uint32_t client, uint32_t key)
{
    uint32_t n_in[LANES];
    send_key(r, client, key, n_in);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t i = 0; i < n_in[lane]; i++)
            assert_answer(r, lane);
}

START_TEST(under_ssp_a_member_is_at_most_slack_rounds_ahead_with_a_key)
{
    static const char *const slack[] = {"admission=ssp", "slack=1", NULL};
    static const uint32_t keys[] = {HEAD, STAT, WIDE, TAIL, BIAS};
    uint32_t n_in[LANES];
    struct rig r;
    open_job(&r, "sgd", slack);
    for (size_t i = 0; i < ROWS(keys); i++)
        exchange_key(&r, 0, keys[i]);
    send_key(&r, 0, HEAD, n_in); /* of its second round */
    rig_assert_silent(&r, 0, 1, INC);
    exchange_key(&r, 1, HEAD);
    rig_assert_silent(&r, 0, 1, INC);
    send_key(&r, 2, HEAD, n_in); /* now all have sent this key once */
    assert_answer(&r, 0);
    assert_answer(&r, 0);
    send_key(&r, 0, STAT, n_in); /* but not this one */
    rig_assert_silent(&r, 0, 1, INC);
    rig_close(&r);
}
END_TEST

START_TEST(a_member_that_joins_waits_for_the_next_round)
{
    struct rig r;
    open_job(&r, "sgd", sync_plain);
    rig_hold(&r);
    rig_members(&r, 0, 2, (const uint32_t[]){0, 1});
    for (uint32_t i = 0; i < 2; i++)
        send_piece(&r, i, HEAD);
    for (uint32_t i = 0; i < 2; i++)
        assert_answer(&r, 0);
    ck_assert_uint_eq(rig_hold(&r), 1); /* round 0 has begun */
    rig_close(&r);
}
END_TEST

START_TEST(serial_turns_are_of_whole_vectors)
{
    static const char *const serial[] = {"admission=round-robin", "serial=true", NULL};
    struct rig r;
    open_job(&r, "sgd", serial);
    send_piece(&r, 0, HEAD);
    assert_refused(&r, "tensor 1 alone", "parameters.serial");
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-round-keys");
    TCase *tc = tcase_create("round_keys");
    tcase_add_loop_test(tc, a_round_of_keys_is_a_round_of_whole_vectors, 0, (int)ROWS(jobs));
    tcase_add_test(tc, rounds_of_both_kinds_may_follow_each_other);
    tcase_add_test(tc, a_key_out_of_its_turn_is_refused);
    tcase_add_test(tc, members_do_not_mix_keys_and_whole_vectors);
    tcase_add_test(tc, a_member_may_be_a_key_ahead_under_round_robin);
    tcase_add_test(tc, under_ssp_a_member_is_at_most_slack_rounds_ahead_with_a_key);
    tcase_add_test(tc, a_member_that_joins_waits_for_the_next_round);
    tcase_add_test(tc, serial_turns_are_of_whole_vectors);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
