/* A gradient's staleness and what it leaves of the rate: versions that have passed in a lane since the client
 * was last answered, when its exchange begins. */
#include <math.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { OTHER = 0, CLIENT = 1, INC = 7, LANES = 2, CHUNKS = 2, N = 2 * LANES * RIG_CHUNK };

static float ones[N];

static void open_job(struct rig *r, const char *rule, const char *const *settings)
{
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    rig_open(r, rule, LANES, settings);
    rig_fill(r, N, NULL);
    rig_admit(r, OTHER, INC, PSD_PHASE_ACTIVE, false);
    rig_admit(r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
}

/* As many whole exchanges of the other: each is a version. */
static void pass(struct rig *r, uint64_t *seq, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        rig_exchange(r, PS_FRAME_EXCHANGE, OTHER, INC, ++*seq, ones, 0);
}

static float rate_of_chunk(struct rig *r, uint64_t seq, uint32_t lane, uint32_t k)
{
    struct reply reply;
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, lane, k);
    rig_ask_vector(r, lane, &f, ones, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    return reply.f.rate;
}

static void look(struct rig *r)
{
    struct reply reply;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        struct ps_frame f = rig_frame(r, PS_FRAME_PULL, CLIENT, INC, 0, lane, 0);
        rig_ask(r, lane, &f, NULL, 0, &reply);
        ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
    }
}

static const struct {
    const char *settings[4];
    uint64_t ages[4];
    float rates[4];
} rows[] = {
    {{NULL}, {0, 1, 4, 8}, {1, 1, 1, 1}},
    {{"weight=inverse", NULL}, {0, 1, 4, 8}, {1, 1, 0.25f, 0.125f}},
    {{"weight=power", "weight_power=0.5", NULL}, {0, 1, 4, 16}, {1, 1, 0.5f, 0.25f}},
    {{"weight=power", "weight_power=2", NULL}, {0, 1, 2, 4}, {1, 1, 0.25f, 0.0625f}},
    {{"weight=inverse", "learning_rate=0.5", NULL}, {0, 1, 2, 4}, {0.5f, 0.5f, 0.25f, 0.125f}},
};

/* Both lanes, and the rate that is told is the one that was applied. Powers of two: exact. */
START_TEST(the_rate_is_weighed_by_staleness)
{
    uint64_t seq = 0;
    struct rig r;
    open_job(&r, "sgd", rows[_i].settings);
    for (uint64_t t = 0; t < 4; t++) {
        look(&r);
        pass(&r, &seq, rows[_i].ages[t]);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            uint64_t at = ps_shard_chunk(&r.center->shard, lane, 0).begin;
            float before = rig_center(&r)[at];
            ck_assert_float_eq(rate_of_chunk(&r, t + 1, lane, 0), rows[_i].rates[t]);
            ck_assert_float_eq(rig_center(&r)[at], before - rows[_i].rates[t]);
            ck_assert_uint_eq(r.lanes[lane]->clients[CLIENT].staleness, rows[_i].ages[t]);
        }
    }
    rig_close(&r);
}
END_TEST

/* What passes between two chunks of one exchange, and a chunk that is sent again, change nothing. */
START_TEST(all_chunks_of_an_exchange_weigh_the_same)
{
    static const char *const inverse[] = {"weight=inverse", NULL};
    struct reply reply;
    uint64_t seq = 0;
    struct rig r;
    open_job(&r, "sgd", inverse);
    pass(&r, &seq, 4);
    ck_assert_float_eq(rate_of_chunk(&r, 1, 0, 0), 0.25f);
    pass(&r, &seq, 4);
    ck_assert_float_eq(rate_of_chunk(&r, 1, 0, 1), 0.25f);
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, CLIENT, INC, 1, 0, 0);
    rig_ask_vector(&r, 0, &f, ones, &reply);
    ck_assert_uint_eq(reply.f.flags, PS_FLAG_REPLAYED);
    ck_assert_float_eq(reply.f.rate, 0.25f);
    pass(&r, &seq, 2);
    ck_assert_float_eq(rate_of_chunk(&r, 2, 0, 0), 0.5f);
    rig_close(&r);
}
END_TEST

/* A momentum gets the weighed step and keeps its own: v = -1/4, then v = -1/8 - 1. */
START_TEST(momentum_takes_what_the_weight_leaves)
{
    static const char *const inverse[] = {"weight=inverse", "momentum=0.5", NULL};
    uint64_t seq = 0;
    struct rig r;
    open_job(&r, "momentum", inverse);
    pass(&r, &seq, 4); /* v = -1, -3/2, -7/4, -15/8 */
    ck_assert_float_eq(rate_of_chunk(&r, 1, 0, 0), 0.25f);
    ck_assert_float_eq(rig_center(&r)[0], -6.125f - (0.9375f + 0.25f));
    rig_close(&r);
}
END_TEST

/* Half an exchange is in a checkpoint: the rest of it is applied by those who resume, and not with nothing.
 */
START_TEST(the_rest_of_a_resumed_exchange_counts)
{
    static const char *const inverse[] = {"weight=inverse", NULL};
    struct psd_snapshot s;
    struct rig r, again;
    uint64_t seq = 0;
    open_job(&r, "sgd", inverse);
    pass(&r, &seq, 4);
    rate_of_chunk(&r, 1, 0, 0);
    rig_snapshot(&r, &s);
    rig_close(&r);
    rig_open(&again, "sgd", LANES, inverse);
    rig_resume(&again, &s);
    rig_admit(&again, CLIENT, INC, PSD_PHASE_ACTIVE, true);
    ck_assert_float_eq(rate_of_chunk(&again, 1, 0, 1), 1);
    ck_assert_float_eq(rig_center(&again)[RIG_CHUNK], -5);
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-staleness");
    TCase *tc = tcase_create("staleness");
    tcase_add_loop_test(tc, the_rate_is_weighed_by_staleness, 0, ROWS(rows));
    tcase_add_test(tc, all_chunks_of_an_exchange_weigh_the_same);
    tcase_add_test(tc, momentum_takes_what_the_weight_leaves);
    tcase_add_test(tc, the_rest_of_a_resumed_exchange_counts);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
