/* For how long a lane looks at no message: psd_lane_longest_stop_seconds. Time passes in what it does beside
 * its clients alone: a millisecond for each copy of a chunk, three for each piece of memory that it touches.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/driven_clock.h"
#include "tests/support/unit.h"

enum { INC = 7, CLIENT = 1, CHUNKS = 400, N = CHUNKS * RIG_CHUNK };
enum { COPY_MS = 1, TOUCH_MS = 3, TURN_COPIES = 131072 / RIG_CHUNK };

static float ones[N];
static struct ps_vec vec;

static void copy_slowly(float *restrict to, const float *restrict from, size_t n)
{
    test_clock_advance_ms(COPY_MS);
    memcpy(to, from, n * sizeof *to);
}

/* Stands for the system's. */
int madvise(void *at, size_t bytes, int advice)
{
    (void)at;
    (void)bytes;
    (void)advice;
    test_clock_advance_ms(TOUCH_MS);
    return 0;
}

static uint64_t longest_ms(const struct rig *r)
{
    return atomic_load(&r->lanes[0]->stats.longest_stop_ns) / 1000000;
}

static void open_job(struct rig *r)
{
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    rig_open_by_hand(r, "sgd", 1, NULL);
    rig_fill(r, N, ones);
    vec = *r->lanes[0]->vec;
    vec.copy = copy_slowly;
    r->lanes[0]->vec = &vec;
    rig_admit(r, CLIENT, INC, PSD_PHASE_ACTIVE, false);
}

static void begin_snapshot(struct rig *r)
{
    rig_tell(r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_SNAPSHOT, .p = &r->center->snapshot});
}

static void finish_snapshot(struct rig *r)
{
    while (!rig_heard(r, 0))
        psd_lane_turn(r->lanes[0]);
    ck_assert_int_eq(rig_hear(r, 0).kind, PSD_LANE_SNAPPED);
}

static void move(struct rig *r, uint64_t seq, uint32_t chunk)
{
    struct reply reply;
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, CLIENT, INC, seq, 0, chunk);
    rig_ask_vector(r, 0, &f, ones, &reply);
    ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
}

START_TEST(memory_is_touched_in_pieces_between_messages)
{
    struct rig r;
    open_job(&r);
    while (psd_lane_turn(r.lanes[0]))
        ;
    ck_assert_uint_eq(longest_ms(&r), TOUCH_MS); /* x and its snapshot: each is less than a piece */
    rig_close(&r);
}
END_TEST

START_TEST(an_exchange_waits_for_the_copy_of_its_chunk)
{
    struct rig r;
    open_job(&r);
    while (psd_lane_turn(r.lanes[0]))
        ;
    begin_snapshot(&r);
    ck_assert_uint_eq(longest_ms(&r), 0); /* what was before it is forgotten */
    for (uint32_t k = 1; k <= 5; k++)
        move(&r, 1, CHUNKS - k);
    ck_assert_uint_eq(longest_ms(&r), COPY_MS);
    move(&r, 2, CHUNKS - 1); /* copied by now */
    ck_assert_uint_eq(longest_ms(&r), COPY_MS);
    rig_close(&r);
}
END_TEST

START_TEST(what_no_exchange_has_copied_is_copied_in_parts)
{
    struct rig r;
    open_job(&r);
    while (psd_lane_turn(r.lanes[0]))
        ;
    begin_snapshot(&r);
    finish_snapshot(&r);
    ck_assert_uint_eq(longest_ms(&r), TURN_COPIES * COPY_MS);
    begin_snapshot(&r);
    ck_assert_uint_eq(longest_ms(&r), 0);
    finish_snapshot(&r);
    rig_close(&r);
}
END_TEST

/* Nobody is served between the two. */
START_TEST(the_end_of_a_slice_and_what_came_before_are_one_stop)
{
    struct rig r;
    open_job(&r);
    while (psd_lane_turn(r.lanes[0]))
        ;
    begin_snapshot(&r);
    psd_lane_turn(r.lanes[0]);
    rig_tell(&r, 0, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE}); /* copies what is left */
    ck_assert_uint_eq(longest_ms(&r), CHUNKS * COPY_MS);
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_SNAPPED);
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_RELEASED);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-stops");
    TCase *tc = tcase_create("stops");
    tcase_add_test(tc, memory_is_touched_in_pieces_between_messages);
    tcase_add_test(tc, an_exchange_waits_for_the_copy_of_its_chunk);
    tcase_add_test(tc, what_no_exchange_has_copied_is_copied_in_parts);
    tcase_add_test(tc, the_end_of_a_slice_and_what_came_before_are_one_stop);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
