/* Transfers of one tensor, roles, and what a lane measures: real lanes, frame by frame. */
#include <math.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { CLIENT = 1, INC = 7, N = 5000 };

/* Over two lanes of chunks of at most 1024: `wide` crosses lanes, `stat` lies within a chunk, `ice` holds
 * whole chunks and parts of others. */
static const struct ps_tensor tensors[] = {
    {"head", 0, {100}, 1, PS_ROLE_PARAM},
    {"stat", 100, {50}, 1, PS_ROLE_BUFFER},
    {"wide", 150, {2650}, 1, PS_ROLE_PARAM},
    {"ice", 2800, {2200}, 1, PS_ROLE_FROZEN},
};
enum { HEAD, STAT, WIDE, ICE };

static float start[N], message[N];

static void open_job(struct rig *r, const char *rule, const char *const *settings)
{
    struct dice dice = {5};
    for (int i = 0; i < N; i++) {
        start[i] = (float)(int)dice_below(&dice, 64);
        message[i] = (float)(int)dice_below(&dice, 64);
    }
    rig_open(r, rule, 2, settings);
    rig_fill_model(r, tensors, ROWS(tensors), start);
    rig_admit(r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
}

static struct ps_frame piece_frame(const struct rig *r, uint8_t kind, uint64_t seq, uint32_t tensor,
                                   uint32_t lane, uint32_t k)
{
    struct ps_frame f = rig_frame(r, kind, CLIENT, INC, seq, lane, k);
    struct ps_range piece = ps_shard_piece(&r->center->shard, lane, ps_tensor_range(&tensors[tensor]), k);
    f.flags = PS_FLAG_TENSOR;
    f.code = (uint16_t)tensor;
    f.begin = piece.begin;
    f.count = (uint32_t)piece.count;
    return f;
}

/* The lane that serves the client's chunks of a slice: under hogwild one serves them all. */
static uint32_t lane_of(const struct rig *r, uint32_t slice)
{
    return r->center->whole_lanes ? CLIENT % r->n_lanes : slice;
}

static void move_tensor(struct rig *r, uint8_t kind, uint64_t seq, uint32_t tensor, uint16_t flags)
{
    struct reply reply;
    for (uint32_t lane = 0; lane < r->center->shard.n_lanes; lane++) {
        uint32_t first,
            n = ps_shard_pieces(&r->center->shard, lane, ps_tensor_range(&tensors[tensor]), &first);
        for (uint32_t k = first; k < first + n; k++) {
            struct ps_frame f = piece_frame(r, kind, seq, tensor, lane, k);
            rig_ask_vector(r, lane_of(r, lane), &f, message, &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
            ck_assert_uint_eq(reply.f.flags, flags);
            ck_assert_uint_eq(reply.body_bytes, kind == PS_FRAME_EXCHANGE ? f.count * sizeof(float) : 0);
        }
    }
}

/* Every moving piece of the whole vector. */
static void move_whole(struct rig *r, uint8_t kind, uint64_t seq)
{
    struct reply reply;
    for (uint32_t lane = 0; lane < r->center->shard.n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r->center->shard, lane); k++) {
            struct ps_frame f = rig_frame(r, kind, CLIENT, INC, seq, lane, k);
            if (ps_manifest_is_frozen(r->center->manifest, (struct ps_range){f.begin, f.count}))
                continue;
            rig_ask_vector(r, lane_of(r, lane), &f, message, &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        }
}

static bool lies_in(int i, uint32_t tensor)
{
    struct ps_range r = ps_tensor_range(&tensors[tensor]);
    return (uint64_t)i >= r.begin && (uint64_t)i < r.begin + r.count;
}

/* Whole numbers and a rate of 1: exact. */
START_TEST(one_tensor_moves_alone_and_once)
{
    static const uint8_t kinds[] = {PS_FRAME_EXCHANGE, PS_FRAME_PUSH};
    struct rig r;
    for (size_t i = 0; i < ROWS(kinds); i++) {
        open_job(&r, "sgd", NULL);
        move_tensor(&r, kinds[i], 1, WIDE, 0);
        ck_assert_uint_eq(atomic_load(&r.shared.version), 1);
        move_tensor(&r, kinds[i], 1, WIDE, PS_FLAG_REPLAYED);
        ck_assert_uint_eq(atomic_load(&r.shared.version), 1);
        move_tensor(&r, kinds[i], 2, HEAD, 0);
        ck_assert_uint_eq(atomic_load(&r.shared.version), 2);
        ck_assert_uint_eq(atomic_load(&r.shared.exchanges[CLIENT]), 2);
        const float *center = rig_center(&r);
        for (int k = 0; k < N; k++)
            assert_quick(center[k] == start[k] - (lies_in(k, WIDE) || lies_in(k, HEAD) ? message[k] : 0));
        rig_close(&r);
    }
}
END_TEST

START_TEST(one_tensor_is_set_and_pulled)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "elastic", (const char *[]){"alpha=0.5", NULL});
    move_tensor(&r, PS_FRAME_SET, 1, STAT, 0);
    move_tensor(&r, PS_FRAME_SET, 2, ICE, 0);
    struct ps_frame f = piece_frame(&r, PS_FRAME_PULL, 3, STAT, 0, 0);
    rig_ask(&r, 0, &f, NULL, 0, &reply);
    ck_assert_uint_eq(reply.body_bytes, 50 * sizeof(float));
    ck_assert_mem_eq(reply.x, message + 100, 50 * sizeof(float));
    const float *center = rig_center(&r);
    for (int i = 0; i < N; i++)
        assert_quick(center[i] == (lies_in(i, STAT) || lies_in(i, ICE) ? message[i] : start[i]));
    rig_close(&r);
}
END_TEST

static void assert_refused(struct rig *r, uint32_t lane, const struct ps_frame *f, const char *says)
{
    struct reply reply;
    rig_ask(r, lane, f, message, f->count * sizeof(float), &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_uint_eq(reply.f.code, PS__CODE__RANGE);
    assert_says(reply.sentence, says);
}

START_TEST(what_is_no_piece_of_the_tensor_is_refused)
{
    struct rig r;
    open_job(&r, "sgd", NULL);
    struct ps_frame whole = rig_frame(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, 0, 0), f = whole;
    f.flags = PS_FLAG_TENSOR;
    f.code = WIDE;
    assert_refused(&r, 0, &f, "within the tensor named");
    f.code = ROWS(tensors);
    assert_refused(&r, 0, &f, "the model has 4 tensors");
    f = piece_frame(&r, PS_FRAME_EXCHANGE, 1, WIDE, 0, 0);
    f.flags = 0;
    assert_refused(&r, 0, &f, "are not a chunk of lane 0");
    f = piece_frame(&r, PS_FRAME_EXCHANGE, 1, HEAD, 0, 0);
    f.count++;
    assert_refused(&r, 0, &f, "within the tensor named");
    f = piece_frame(&r, PS_FRAME_PUSH, 1, ICE, 1, 0);
    assert_refused(&r, 1, &f, "frozen");
    uint32_t last = ps_shard_n_chunks(&r.center->shard, 1) - 1;
    f = rig_frame(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, 1, last);
    assert_refused(&r, 1, &f, "frozen");
    ck_assert_mem_eq(rig_center(&r), start, sizeof start);
    rig_close(&r);
}
END_TEST

/* alpha 0.5 on whole numbers below 64 is exact. */
START_TEST(elastic_rule_averages_buffers_and_leaves_what_is_frozen)
{
    struct rig r;
    open_job(&r, "elastic", (const char *[]){"alpha=0.5", NULL});
    move_whole(&r, PS_FRAME_EXCHANGE, 1);
    ck_assert_uint_eq(atomic_load(&r.shared.version), 1);
    const float *center = rig_center(&r);
    for (int i = 0; i < N; i++)
        assert_quick(center[i] == (lies_in(i, ICE) ? start[i] : start[i] + (message[i] - start[i]) / 2));
    rig_close(&r);
}
END_TEST

/* Under a rule that takes gradients a buffer's message is its value, and the center its running mean at 1/p.
 */
START_TEST(gradient_rule_keeps_a_mean_of_buffers)
{
    struct rig r;
    open_job(&r, "sgd", NULL);
    atomic_store(&r.shared.mean_rate, 0.25f);
    move_whole(&r, PS_FRAME_EXCHANGE, 1);
    const float *center = rig_center(&r);
    for (int i = 0; i < N; i++)
        assert_quick(center[i] == (lies_in(i, ICE)    ? start[i]
                                   : lies_in(i, STAT) ? start[i] + (message[i] - start[i]) / 4
                                                      : start[i] - message[i]));
    rig_close(&r);
}
END_TEST

/* The answer holds the center in what is frozen, whatever was sent. */
START_TEST(answer_of_a_mixed_chunk_follows_the_roles)
{
    struct rig r;
    struct reply reply;
    open_job(&r, "sgd", NULL);
    uint32_t mixed = 0;
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, 1, mixed);
    ck_assert(f.begin < 2800 && f.begin + f.count > 2800);
    rig_ask_vector(&r, 1, &f, message, &reply);
    for (uint32_t i = 0; i < f.count; i++) {
        uint64_t at = f.begin + i;
        assert_quick(reply.x[i] == (at >= 2800 ? start[at] : start[at] - message[at]));
    }
    rig_close(&r);
}
END_TEST

/* Rules and averages that count moves. */
static const struct {
    const char *rule, *settings[6];
} counting[] = {
    {"adam", {"averaging=mean", "learning_rate=0.125"}},
    {"adam", {"averaging=mean", "learning_rate=0.125", "admission=hogwild"}},
    {"delayed-nesterov",
     {"averaging=mean", "delay=3", "outer_learning_rate=0.5", "outer_momentum=0.5", "optimizer=sgd"}},
};

/* Sent by itself, in whatever order, a tensor moves as if all of the vector had been sent. */
START_TEST(a_tensor_counts_its_own_moves)
{
    static const uint32_t orders[][3] = {{HEAD, STAT, WIDE}, {WIDE, STAT, HEAD}};
    enum { STEPS = 5 };
    static float center[N], average[N];
    struct rig r;
    open_job(&r, counting[_i].rule, counting[_i].settings);
    for (uint64_t t = 0; t < STEPS; t++)
        move_whole(&r, PS_FRAME_EXCHANGE, t + 1);
    memcpy(center, rig_center(&r), sizeof center);
    memcpy(average, rig_average(&r), sizeof average);
    rig_close(&r);
    for (size_t k = 0; k < ROWS(orders); k++) {
        open_job(&r, counting[_i].rule, counting[_i].settings);
        for (uint64_t t = 0; t < STEPS; t++)
            for (uint32_t i = 0; i < 3; i++)
                move_tensor(&r, PS_FRAME_EXCHANGE, 3 * t + i + 1, orders[k][i], 0);
        ck_assert_mem_eq(rig_center(&r), center, sizeof center);
        ck_assert_mem_eq(rig_average(&r), average, sizeof average);
        rig_close(&r);
    }
}
END_TEST

static void assert_norms(const struct rig *r, double squares, double center)
{
    double found = 0, found_center = 0;
    for (uint32_t i = 0; i < r->n_lanes; i++) {
        found += atomic_load(&r->lanes[i]->clients[CLIENT].last_squares);
        found_center += atomic_load(&r->lanes[i]->stats.center_squares);
    }
    ck_assert_double_le(fabs(found - squares), 1e-4 * squares); /* see ps_vec.squares */
    ck_assert_double_le(fabs(found_center - center), 1e-4 * center);
}

START_TEST(whole_exchanges_are_measured)
{
    static const char *const rules[] = {"elastic", "sgd"};
    for (size_t k = 0; k < ROWS(rules); k++) {
        double distance = 0, gradient = 0, center = 0;
        struct rig r;
        open_job(&r, rules[k], k == 0 ? (const char *[]){"alpha=0.5", NULL} : NULL);
        for (int i = 0; i < N; i++) {
            double x = (double)start[i], m = (double)message[i];
            bool param = lies_in(i, HEAD) || lies_in(i, WIDE);
            distance += param ? (m - x) * (m - x) : 0;
            gradient += param ? m * m : 0;
            center += param ? x * x : 0;
        }
        move_whole(&r, PS_FRAME_EXCHANGE, 1);
        rig_center(&r); /* both lanes are through */
        assert_norms(&r, k == 0 ? distance : gradient, center);
        ck_assert_float_eq(atomic_load(&r.lanes[0]->clients[CLIENT].last_rate), k == 0 ? 0.5f : 1.0f);
        move_tensor(&r, PS_FRAME_EXCHANGE, 2, HEAD, 0); /* a part changes nothing of what is shown */
        rig_center(&r);
        assert_norms(&r, k == 0 ? distance : gradient, center);
        rig_close(&r);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-scope");
    TCase *tc = tcase_create("scope");
    tcase_add_test(tc, one_tensor_moves_alone_and_once);
    tcase_add_test(tc, one_tensor_is_set_and_pulled);
    tcase_add_test(tc, what_is_no_piece_of_the_tensor_is_refused);
    tcase_add_test(tc, elastic_rule_averages_buffers_and_leaves_what_is_frozen);
    tcase_add_test(tc, gradient_rule_keeps_a_mean_of_buffers);
    tcase_add_test(tc, answer_of_a_mixed_chunk_follows_the_roles);
    tcase_add_loop_test(tc, a_tensor_counts_its_own_moves, 0, ROWS(counting));
    tcase_add_test(tc, whole_exchanges_are_measured);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
