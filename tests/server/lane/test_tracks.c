/* Several exchanges of one client under way at once, each of another fragment: every chunk lands once,
 * whatever is sent again, and whatever psd forgets when it is killed. The test is the loop and the client. */
#include <stdio.h>
#include <string.h>

#include "proto/model/fragment.h"
#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { LANES = 2, CHUNKS = 10, N = CHUNKS * RIG_CHUNK, FRAGMENTS = 5, PIECES = CHUNKS / FRAGMENTS, INC = 7 };

static float start[N], ones[N];
static const char *const fcfs[] = {"fragments=5", "period=5", NULL};
static const char *const sync_rounds[] = {"admission=sync", "fragments=5", "period=5", NULL};

static void open_job(struct rig *r, const char *const *settings, uint32_t n_clients)
{
    for (int i = 0; i < N; i++) {
        start[i] = (float)(i % 100);
        ones[i] = 1;
    }
    rig_open(r, "add", LANES, settings);
    rig_fill(r, N, start);
    for (uint32_t i = 0; i < n_clients; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, false);
}

/* Chunk k of the vector. A fragment has two of them; the third lies in both lanes. */
static uint32_t lane_of(uint32_t k)
{
    return k / (CHUNKS / LANES);
}

static struct ps_frame frame_of(const struct rig *r, uint32_t client, uint64_t seq, uint32_t k,
                                uint64_t behind)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, client, INC, seq, lane_of(k), k % (CHUNKS / LANES));
    f.flags = (uint16_t)(PS_FLAG_FRAGMENT | behind * PS_FLAG_BEHIND);
    f.code = (uint16_t)(k / PIECES);
    return f;
}

static void ask(struct rig *r, uint64_t seq, uint32_t k, uint64_t behind, struct reply *reply)
{
    struct ps_frame f = frame_of(r, 0, seq, k, behind);
    rig_ask_vector(r, lane_of(k), &f, ones, reply);
}

static void expect(struct rig *r, uint64_t seq, uint32_t k, uint64_t behind, uint16_t flags)
{
    struct reply reply;
    ask(r, seq, k, behind, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "seq %d, chunk %u: %s", (int)seq, k, reply.sentence);
    ck_assert_msg(reply.f.flags == flags, "seq %d, chunk %u: flags %04x, not %04x", (int)seq, k,
                  reply.f.flags, flags);
}

static void expect_error(struct rig *r, uint64_t seq, uint32_t k, uint64_t behind, uint32_t code)
{
    struct reply reply;
    ask(r, seq, k, behind, &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ERROR);
    ck_assert_msg(reply.f.code == code, "code %u: %s", reply.f.code, reply.sentence);
}

/* Chunk k has moved by moved[k]. */
static void assert_moved(struct rig *r, const double *moved)
{
    const float *x = rig_center(r);
    for (uint32_t i = 0; i < N; i++)
        if ((double)x[i] != (double)start[i] + moved[i / RIG_CHUNK])
            ck_abort_msg("float %u of chunk %u has moved by %g, not %g", i, i / RIG_CHUNK,
                         (double)x[i] - (double)start[i], moved[i / RIG_CHUNK]);
}

START_TEST(fragments_lie_as_the_test_thinks)
{
    struct rig r;
    struct ps_range ranges[FRAGMENTS];
    open_job(&r, fcfs, 1);
    ps_fragments(&r.center->shard, r.center->manifest, FRAGMENTS, ranges);
    for (uint32_t i = 0; i < FRAGMENTS; i++) {
        ck_assert_uint_eq(ranges[i].begin, (uint64_t)i * PIECES * RIG_CHUNK);
        ck_assert_uint_eq(ranges[i].count, PIECES * RIG_CHUNK);
    }
    ck_assert_uint_eq(r.lanes[0]->n_tracks, FRAGMENTS);
    rig_close(&r);
}
END_TEST

START_TEST(each_exchange_lands_once)
{
    struct rig r;
    open_job(&r, fcfs, 1);
    expect(&r, 1, 0, 0, 0);
    expect(&r, 2, 2, 1, 0); /* the next one begins before the first is complete */
    expect(&r, 3, 4, 2, 0);
    expect(&r, 1, 0, 0, PS_FLAG_REPLAYED);
    expect(&r, 2, 2, 1, PS_FLAG_REPLAYED);
    expect(&r, 3, 4, 2, PS_FLAG_REPLAYED);
    ck_assert_uint_eq(r.shared.version, 0);
    expect(&r, 3, 5, 2, 0); /* in the other lane: whole before those that it is behind */
    ck_assert_uint_eq(r.shared.version, 1);
    expect(&r, 2, 3, 1, 0);
    expect(&r, 1, 1, 0, 0);
    ck_assert_uint_eq(r.shared.version, 3);
    expect(&r, 1, 1, 0, PS_FLAG_REPLAYED);
    expect(&r, 4, 0, 2, 0); /* the first fragment's next, while 2 and 3 wait for their answers */
    expect(&r, 2, 3, 0, PS_FLAG_REPLAYED);
    expect_error(&r, 1, 1, 0, PS__CODE__SEQ);
    assert_moved(&r, (const double[CHUNKS]){2, 1, 1, 1, 1, 1});
    rig_close(&r);
}
END_TEST

/* Each answer counts its own exchange, and none behind it: a saved worker is told by it what psd has. */
START_TEST(an_answer_tells_the_version_of_its_own_exchange)
{
    struct rig r;
    struct reply reply;
    open_job(&r, fcfs, 1);
    ask(&r, 1, 4, 0, &reply);
    ask(&r, 2, 6, 1, &reply);
    ask(&r, 2, 7, 1, &reply);
    ck_assert_uint_eq(reply.f.center_version, 1);
    ask(&r, 1, 5, 0, &reply);
    ck_assert_uint_eq(reply.f.center_version, 2);
    rig_close(&r);
}
END_TEST

/* A client that gave up begins with an exchange that is behind none. */
START_TEST(what_was_given_up_is_refused)
{
    struct rig r;
    open_job(&r, fcfs, 1);
    expect(&r, 1, 0, 0, 0);
    expect(&r, 2, 2, 1, 0);
    expect(&r, 3, 6, 0, 0); /* lane 0 does not hear of it */
    expect(&r, 4, 1, 1, 0); /* but of this one, whose oldest companion is 3 */
    expect_error(&r, 2, 3, 0, PS__CODE__SEQ);
    expect_error(&r, 1, 1, 0, PS__CODE__SEQ);
    assert_moved(&r, (const double[CHUNKS]){1, 1, 1, 0, 0, 0, 1});
    rig_close(&r);
}
END_TEST

START_TEST(flags_that_lie_are_refused)
{
    struct rig r;
    struct reply reply;
    open_job(&r, fcfs, 1);
    expect_error(&r, 3, 0, 3, PS__CODE__MALFORMED);              /* before the first */
    expect_error(&r, 30, 0, FRAGMENTS + 1, PS__CODE__MALFORMED); /* more than there are tracks */
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 0, INC, 9, 0, 0);
    f.flags = PS_FLAG_BEHIND;
    rig_ask_vector(&r, 0, &f, ones, &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__MALFORMED);
    f = frame_of(&r, 0, 9, 0, 0);
    f.code = FRAGMENTS;
    rig_ask_vector(&r, 0, &f, ones, &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__RANGE);
    assert_moved(&r, (const double[CHUNKS]){0});
    rig_close(&r);
}
END_TEST

/* One exchange of each value; where lanes share the center, by the lane of client 0. */
static void make_cycle(struct rig *r, uint64_t t)
{
    bool whole = r->center->whole_lanes, in_fragments = r->center->hyper.fragments > 1;
    struct reply reply;
    for (uint32_t k = 0; k < CHUNKS; k++) {
        uint32_t lane = whole ? 0 : lane_of(k), at = whole ? k : k % (CHUNKS / LANES);
        uint64_t seq = FRAGMENTS * t + 1 + (in_fragments ? k / PIECES : 0);
        struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, 0, INC, seq, lane, at);
        f.flags = in_fragments ? PS_FLAG_FRAGMENT : 0;
        f.code = (uint16_t)(in_fragments ? k / PIECES : 0);
        rig_ask_vector(r, lane, &f, ones, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "chunk %u: %s", k, reply.sentence);
    }
}

/* Whatever makes a cycle of exchanges, each value has moved once in it: so the average counts, also when the
 * job is resumed with other fragments. */
static const char *const averaged[][2][5] = {
    {{"averaging=mean", "fragments=5", "period=5"}, {"averaging=mean", "fragments=5", "period=5"}},
    {{"averaging=mean", "fragments=5", "period=5"}, {"averaging=mean", "period=5"}},
    {{"averaging=mean", "fragments=5", "period=5", "admission=hogwild"},
     {"averaging=mean", "fragments=5", "period=5", "admission=hogwild"}},
    {{"averaging=mean", "fragments=5", "period=5"},
     {"averaging=mean", "fragments=5", "period=5", "admission=hogwild"}},
    {{"averaging=mean", "fragments=5", "period=5", "admission=hogwild"}, {"averaging=mean", "period=5"}},
    {{"averaging=mean", "fragments=5", "period=5", "admission=hogwild"},
     {"averaging=mean", "fragments=5", "period=5"}},
};

START_TEST(an_average_counts_the_moves_of_its_own_values)
{
    enum { CYCLES = 3, MORE = 2 };
    struct psd_snapshot s;
    struct rig r, again;
    open_job(&r, averaged[_i][0], 1);
    for (uint64_t t = 0; t < CYCLES; t++)
        make_cycle(&r, t);
    rig_snapshot(&r, &s);
    rig_close(&r);
    rig_open(&again, "add", LANES, averaged[_i][1]);
    rig_resume(&again, &s);
    rig_admit(&again, 0, INC, PSD_PHASE_ACTIVE, true);
    for (uint64_t t = CYCLES; t < CYCLES + MORE; t++)
        make_cycle(&again, t);
    rig_center(&again);
    for (uint32_t i = 0; i < N; i++) { /* of start + t at cycle t */
        float want = start[i] + (CYCLES + MORE - 1) / 2.0f, off = rig_average(&again)[i] - want;
        if (off > 1e-3f || off < -1e-3f)
            ck_abort_msg("float %u of chunk %u: the mean is off by %g", i, i / RIG_CHUNK, (double)off);
    }
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* An exchange of the whole vector is alone: the fragments' are over. */
START_TEST(a_whole_exchange_ends_those_before)
{
    struct rig r;
    open_job(&r, fcfs, 1);
    expect(&r, 1, 0, 0, 0);
    expect(&r, 2, 2, 1, 0);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, 3, ones, 0);
    expect_error(&r, 2, 3, 1, PS__CODE__SEQ);
    expect(&r, 4, 2, 0, 0);
    rig_exchange(&r, PS_FRAME_PUSH, 0, INC, 5, ones, 0);
    assert_moved(&r, (const double[CHUNKS]){3, 2, 4, 2, 2, 2, 2, 2, 2, 2});
    rig_close(&r);
}
END_TEST

/* psd is resumed with fragments, and its checkpoint has those chunks of an exchange of the whole vector that
 * are the first fragment. The worker adds the rest under the same number. */
START_TEST(a_part_that_is_a_fragment_is_not_the_whole)
{
    struct psd_snapshot s;
    struct rig r, again;
    struct reply reply;
    open_job(&r, (const char *const[]){"period=1", NULL}, 1);
    for (uint32_t k = 0; k < PIECES; k++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 0, INC, 1, 0, k);
        rig_ask_vector(&r, 0, &f, ones, &reply);
    }
    rig_snapshot(&r, &s);
    rig_close(&r);
    rig_open(&again, "add", LANES, fcfs);
    rig_resume(&again, &s);
    rig_admit(&again, 0, INC, PSD_PHASE_ACTIVE, true);
    ck_assert(!psd_exchange_is(again.shared.whole[0], INC, 1));
    for (uint32_t k = 0; k < CHUNKS; k++) {
        struct ps_frame f = rig_frame(&again, PS_FRAME_ADD, 0, INC, 1, lane_of(k), k % (CHUNKS / LANES));
        rig_ask_vector(&again, lane_of(k), &f, ones, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "chunk %u: %s", k, reply.sentence);
        ck_assert_int_eq((reply.f.flags & PS_FLAG_REPLAYED) != 0, k < PIECES);
    }
    ck_assert(psd_exchange_is(again.shared.whole[0], INC, 1));
    assert_moved(&again, (const double[CHUNKS]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* Frozen chunks are not sent: without them an exchange is whole, also in a checkpoint. */
START_TEST(a_checkpoint_lacks_no_frozen_chunk)
{
    static const struct ps_tensor model[] = {
        {"moves", 0, {8 * RIG_CHUNK}, 1, PS_ROLE_PARAM},
        {"is frozen", 8 * RIG_CHUNK, {2 * RIG_CHUNK}, 1, PS_ROLE_FROZEN}};
    static const char *const undivided[] = {"period=1", NULL};
    struct psd_snapshot s;
    struct rig r, again;
    struct reply reply;
    rig_open(&r, "add", LANES, undivided);
    rig_fill_model(&r, model, ROWS(model), start);
    rig_admit(&r, 0, INC, PSD_PHASE_ACTIVE, false);
    for (uint32_t k = 0; k < 8; k++) {
        struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 0, INC, 1, lane_of(k), k % (CHUNKS / LANES));
        rig_ask_vector(&r, lane_of(k), &f, ones, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "chunk %u: %s", k, reply.sentence);
    }
    ck_assert(psd_exchange_is(r.shared.whole[0], INC, 1));
    rig_snapshot(&r, &s);
    rig_close(&r);
    rig_open(&again, "add", LANES, undivided);
    rig_resume(&again, &s);
    rig_admit(&again, 0, INC, PSD_PHASE_ACTIVE, true);
    ck_assert(psd_exchange_is(again.shared.whole[0], INC, 1));
    rig_close(&again);
    rig_snapshot_free(&s);
}
END_TEST

/* What has begun on each track is finished, and nothing else. */
START_TEST(a_change_of_the_method_finishes_each_that_has_begun)
{
    struct rig r;
    open_job(&r, fcfs, 1);
    expect(&r, 1, 4, 0, 0);
    expect(&r, 3, 0, 2, 0);
    rig_shut(&r);
    expect_error(&r, 2, 6, 1, PS__CODE__GENERATION);
    expect(&r, 1, 5, 0, 0);
    ck_assert_int_eq(rig_hear(&r, 1).kind, PSD_LANE_WHOLE);
    expect_error(&r, 2, 7, 1, PS__CODE__GENERATION);
    ck_assert(psd_exchange_is_later(r.shared.begun[0], r.shared.whole[0]));
    expect(&r, 3, 1, 2, 0);
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_WHOLE);
    size_t second = psd_track_at(&r.shared, 0, 2), none = psd_track_at(&r.shared, 0, 3);
    ck_assert(psd_exchange_is(r.shared.whole[0], INC, 3));
    ck_assert(psd_exchange_is(r.shared.whole[second], INC, 1));
    ck_assert_uint_eq(r.shared.whole[none], 0);
    rig_swap(&r, "add", (const char *const[]){"fragments=1", NULL});
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, 4, ones, 0);
    assert_moved(&r, (const double[CHUNKS]){2, 2, 1, 1, 2, 2, 1, 1, 1, 1});
    rig_close(&r);
}
END_TEST

/* The change is dropped: one that was refused begins behind a later one, and forgets nothing of it. */
START_TEST(one_that_begins_late_forgets_nothing)
{
    struct rig r;
    open_job(&r, fcfs, 1);
    expect(&r, 2, 2, 1, 0);
    rig_shut(&r);
    expect_error(&r, 1, 0, 0, PS__CODE__GENERATION);
    rig_open_again(&r);
    expect(&r, 1, 0, 0, 0);
    expect(&r, 2, 2, 1, PS_FLAG_REPLAYED);
    expect(&r, 2, 3, 1, 0);
    assert_moved(&r, (const double[CHUNKS]){1, 0, 1, 1});
    rig_close(&r);
}
END_TEST

static void send_one(struct rig *r, uint32_t client, uint64_t seq, uint32_t k, uint64_t behind)
{
    struct ps_frame f = frame_of(r, client, seq, k, behind);
    rig_send_vector(r, lane_of(k), &f, ones);
}

static void recv_round(struct rig *r, uint32_t lane, int n)
{
    struct reply reply;
    for (int i = 0; i < n; i++) {
        rig_recv(r, lane, &reply);
        ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
    }
}

/* Chunks of several fragments wait for the other member at once. */
START_TEST(rounds_of_several_fragments_wait_at_once)
{
    static const uint32_t both[] = {0, 1};
    struct rig r;
    open_job(&r, sync_rounds, 2);
    rig_members(&r, 0, 2, both);
    send_one(&r, 0, 1, 1, 0);
    send_one(&r, 0, 2, 2, 1);
    rig_assert_silent(&r, 0, 1, INC);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[0].waiting_chunks), 2);
    send_one(&r, 1, 2, 2, 1);
    recv_round(&r, 0, 2);
    send_one(&r, 1, 1, 1, 0);
    recv_round(&r, 0, 2);
    assert_moved(&r, (const double[CHUNKS]){0, 2, 2});
    rig_close(&r);
}
END_TEST

/* What a member gave up takes part in no round. */
START_TEST(a_round_has_nothing_that_was_given_up)
{
    static const uint32_t both[] = {0, 1};
    struct rig r;
    open_job(&r, sync_rounds, 2);
    rig_members(&r, 0, 2, both);
    send_one(&r, 0, 1, 1, 0);
    send_one(&r, 0, 2, 2, 1);
    send_one(&r, 0, 5, 4, 1); /* its oldest companion is 4 */
    rig_assert_silent(&r, 0, 1, INC);
    ck_assert_uint_eq(atomic_load(&r.lanes[0]->clients[0].waiting_chunks), 1);
    send_one(&r, 1, 1, 2, 0);
    rig_assert_silent(&r, 0, 0, INC);
    send_one(&r, 1, 2, 4, 1);
    recv_round(&r, 0, 2);
    assert_moved(&r, (const double[CHUNKS]){[4] = 2});
    rig_close(&r);
}
END_TEST

/* An exchange of the client, as it and as the server know it. */
struct known {
    uint64_t seq;
    bool sent[PIECES], answered[PIECES], landed[PIECES];
};

struct model {
    struct known at[FRAGMENTS]; /* in the order in which they began */
    uint32_t n, next;           /* the next fragment; that of at[i] is n - i before it */
    uint64_t seq, resumes, retries;
    double moved[CHUNKS];
};

static uint32_t fragment_of(const struct model *m, uint32_t i)
{
    return (m->next + FRAGMENTS - (m->n - i)) % FRAGMENTS;
}

/* Sends piece p of exchange i: for the first time, or again. */
static void roll_piece(struct rig *r, struct model *m, uint32_t i, uint32_t p)
{
    struct known *k = &m->at[i];
    uint32_t chunk = fragment_of(m, i) * PIECES + p;
    m->retries += k->landed[p];
    expect(r, k->seq, chunk, k->seq - m->at[0].seq, k->landed[p] ? PS_FLAG_REPLAYED : 0);
    m->moved[chunk] += !k->landed[p];
    k->sent[p] = k->answered[p] = k->landed[p] = true;
}

static bool is_answered(const struct known *k)
{
    for (uint32_t p = 0; p < PIECES; p++)
        if (!k->answered[p])
            return false;
    return true;
}

/* The server has what it had at the checkpoint. */
static void forget_since(struct model *m, const struct model *saved)
{
    memcpy(m->moved, saved->moved, sizeof m->moved);
    for (uint32_t i = 0; i < m->n; i++) {
        memset(m->at[i].landed, 0, sizeof m->at[i].landed);
        for (uint32_t k = 0; k < saved->n; k++)
            if (saved->at[k].seq == m->at[i].seq)
                memcpy(m->at[i].landed, saved->at[k].landed, sizeof m->at[i].landed);
    }
}

static void roll(struct rig *r, struct model *m, struct dice *d)
{
    if (m->n < FRAGMENTS && (m->n == 0 || dice_below(d, 4) == 0)) {
        m->at[m->n++] = (struct known){.seq = ++m->seq};
        m->next = (m->next + 1) % FRAGMENTS;
    }
    roll_piece(r, m, (uint32_t)dice_below(d, m->n), (uint32_t)dice_below(d, PIECES));
    while (m->n > 0 && is_answered(&m->at[0]))
        memmove(m->at, m->at + 1, --m->n * sizeof *m->at);
    if (m->n > 0 && dice_below(d, 100) == 0) { /* gives up */
        m->n = 0;
        m->seq += dice_below(d, 3);
    }
}

/* Checkpoints and resumes at any moment, with any exchanges under way. */
START_TEST(random_exchanges_land_as_the_model_says)
{
    enum { ROLLS = 3000 };
    static struct psd_snapshot snapshots[64];
    struct model m = {.n = 0}, saved;
    struct dice dice = {21};
    struct rig r;
    bool has = false;
    open_job(&r, fcfs, 1);
    for (int i = 0; i < ROLLS; i++) {
        roll(&r, &m, &dice);
        if (!has && dice_below(&dice, 30) == 0) {
            rig_snapshot(&r, &snapshots[m.resumes]);
            saved = m;
            has = true;
        }
        if (!has || m.resumes + 1 == ROWS(snapshots) || dice_below(&dice, 30) != 0)
            continue;
        rig_close(&r);
        rig_open(&r, "add", LANES, fcfs);
        rig_resume(&r, &snapshots[m.resumes++]);
        rig_admit(&r, 0, INC, PSD_PHASE_ACTIVE, true);
        forget_since(&m, &saved);
        has = false;
    }
    assert_moved(&r, m.moved);
    ck_assert_uint_gt(m.retries, ROLLS / 20);
    ck_assert_uint_gt(m.resumes, 20);
    rig_close(&r);
    for (uint64_t i = 0; i < m.resumes + has; i++)
        rig_snapshot_free(&snapshots[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-tracks");
    TCase *tc = tcase_create("tracks");
    tcase_add_test(tc, fragments_lie_as_the_test_thinks);
    tcase_add_test(tc, each_exchange_lands_once);
    tcase_add_loop_test(tc, an_average_counts_the_moves_of_its_own_values, 0, ROWS(averaged));
    tcase_add_test(tc, an_answer_tells_the_version_of_its_own_exchange);
    tcase_add_test(tc, what_was_given_up_is_refused);
    tcase_add_test(tc, flags_that_lie_are_refused);
    tcase_add_test(tc, a_whole_exchange_ends_those_before);
    tcase_add_test(tc, a_part_that_is_a_fragment_is_not_the_whole);
    tcase_add_test(tc, a_checkpoint_lacks_no_frozen_chunk);
    tcase_add_test(tc, a_change_of_the_method_finishes_each_that_has_begun);
    tcase_add_test(tc, one_that_begins_late_forgets_nothing);
    tcase_add_test(tc, rounds_of_several_fragments_wait_at_once);
    tcase_add_test(tc, a_round_has_nothing_that_was_given_up);
    tcase_add_test(tc, random_exchanges_land_as_the_model_says);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
