/* A lane's copy of its slice for a checkpoint, turn by turn: the lane has no thread, the test makes its
 * turns. */
#include <stdio.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { INC = 7, CLIENT = 1, CHUNKS = 400, N = CHUNKS * RIG_CHUNK };

static float start[N], ones[N], before[N];

static void open_job(struct rig *r, const char *rule, const char *const *settings)
{
    for (int i = 0; i < N; i++) {
        start[i] = (float)(i % 1000);
        ones[i] = 1;
    }
    rig_open_by_hand(r, rule, 1, settings);
    rig_fill(r, N, start);
    rig_admit(r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
}

/* What follows is of later than the snapshot. */
static void begin_snapshot(struct rig *r)
{
    memcpy(before, r->center->x, sizeof before);
    rig_tell(r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_SNAPSHOT, .p = &r->center->snapshot});
}

static void move(struct rig *r, uint8_t kind, uint64_t seq, uint32_t chunk)
{
    struct reply reply;
    struct ps_frame f = rig_frame(r, kind, CLIENT, INC, seq, 0, chunk);
    rig_ask_vector(r, 0, &f, ones, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
}

/* Turns until the lane says that it has copied; how many it took. */
static int finish_snapshot(struct rig *r)
{
    int turns = 0;
    for (; !rig_heard(r, 0); turns++)
        psd_lane_turn(r->lanes[0]);
    ck_assert_int_eq(rig_hear(r, 0).kind, PSD_LANE_SNAPPED);
    return turns;
}

START_TEST(a_snapshot_stops_a_lane_for_a_part_of_its_slice_at_once)
{
    struct rig r;
    open_job(&r, "sgd", NULL);
    while (psd_lane_turn(r.lanes[0])) /* it touches the memory of its slice first */
        ;
    begin_snapshot(&r);
    ck_assert(!rig_heard(&r, 0));
    ck_assert_int_eq(memcmp(r.center->snapshot.center, before, sizeof before) == 0, 0);
    ck_assert_int_gt(finish_snapshot(&r), 1);
    ck_assert_mem_eq(r.center->snapshot.center, before, sizeof before);
    ck_assert(!psd_lane_turn(r.lanes[0]));
    rig_close(&r);
}
END_TEST

static const uint8_t kinds[] = {PS_FRAME_EXCHANGE, PS_FRAME_PUSH, PS_FRAME_SET, PS_FRAME_ADD};

START_TEST(what_moves_meanwhile_is_copied_before_it_does)
{
    struct rig r;
    open_job(&r, "sgd", NULL);
    begin_snapshot(&r);
    for (uint64_t seq = 1; seq <= 2; seq++) {
        move(&r, kinds[_i], seq, CHUNKS - 1); /* copied last, and twice moved */
        ck_assert(!rig_heard(&r, 0));
    }
    move(&r, kinds[_i], 3, 0); /* copied by now */
    finish_snapshot(&r);
    ck_assert_mem_eq(r.center->snapshot.center, before, sizeof before);
    ck_assert(memcmp(r.center->x, before, sizeof before) != 0);
    begin_snapshot(&r); /* the next one has it */
    finish_snapshot(&r);
    ck_assert_mem_eq(r.center->snapshot.center, r.center->x, sizeof before);
    rig_close(&r);
}
END_TEST

START_TEST(state_and_average_are_of_the_same_moment)
{
    static const char *const mean[] = {"averaging=mean", NULL};
    static float state[N], z[N];
    struct rig r;
    open_job(&r, "momentum", mean);
    for (uint32_t k = 0; k < CHUNKS; k++)
        move(&r, PS_FRAME_EXCHANGE, 1, k);
    memcpy(state, r.center->state[0], sizeof state);
    memcpy(z, r.center->z, sizeof z);
    begin_snapshot(&r);
    move(&r, PS_FRAME_EXCHANGE, 2, CHUNKS - 1);
    finish_snapshot(&r);
    ck_assert_mem_eq(r.center->snapshot.center, before, sizeof before);
    ck_assert_mem_eq(r.center->snapshot.state[0], state, sizeof state);
    ck_assert_mem_eq(r.center->snapshot.average, z, sizeof z);
    rig_close(&r);
}
END_TEST

/* What had landed when it began: the replay table is of that moment too. */
START_TEST(the_replay_table_is_of_the_same_moment)
{
    struct rig r;
    open_job(&r, "sgd", NULL);
    move(&r, PS_FRAME_EXCHANGE, 1, 0);
    begin_snapshot(&r);
    move(&r, PS_FRAME_EXCHANGE, 1, CHUNKS - 1);
    finish_snapshot(&r);
    const struct psd_lane *lane = r.lanes[0];
    ck_assert_uint_eq(lane->n_snap_replay, 1);
    ck_assert_uint_eq(lane->snap_replay[0].landed[0], 1);
    ck_assert_uint_eq(lane->snap_replay[0].landed[(CHUNKS - 1) / 64], 0);
    rig_close(&r);
}
END_TEST

static const char *const sync_plain[] = {"admission=sync", NULL};

START_TEST(a_round_that_begins_meanwhile_is_not_in_it)
{
    struct rig r;
    open_job(&r, "sgd", sync_plain);
    rig_members(&r, 0, 1, (const uint32_t[]){CLIENT});
    rig_tell(&r, 0,
             &(struct psd_lane_message){.kind = PSD_COMMAND_SNAPSHOT, .a = 1, .p = &r.center->snapshot});
    for (uint32_t k = 0; k < CHUNKS; k++)
        move(&r, PS_FRAME_EXCHANGE, 1, k);
    memcpy(before, r.center->x, sizeof before);
    ck_assert(!rig_heard(&r, 0));
    move(&r, PS_FRAME_EXCHANGE, 2, CHUNKS - 1);
    finish_snapshot(&r);
    ck_assert_mem_eq(r.center->snapshot.center, before, sizeof before);
    rig_close(&r);
}
END_TEST

/* The lane lets go of its slice while it copies: the snapshot is whole all the same. */
START_TEST(a_slice_is_let_go_of_when_its_snapshot_is_whole)
{
    struct rig r;
    open_job(&r, "sgd", NULL);
    begin_snapshot(&r);
    rig_tell(&r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE});
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_SNAPPED);
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_RELEASED);
    ck_assert_mem_eq(r.center->snapshot.center, before, sizeof before);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-snapshot");
    TCase *tc = tcase_create("snapshot");
    tcase_add_test(tc, a_snapshot_stops_a_lane_for_a_part_of_its_slice_at_once);
    tcase_add_loop_test(tc, what_moves_meanwhile_is_copied_before_it_does, 0, ROWS(kinds));
    tcase_add_test(tc, state_and_average_are_of_the_same_moment);
    tcase_add_test(tc, the_replay_table_is_of_the_same_moment);
    tcase_add_test(tc, a_round_that_begins_meanwhile_is_not_in_it);
    tcase_add_test(tc, a_slice_is_let_go_of_when_its_snapshot_is_whole);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
