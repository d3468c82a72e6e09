/* Rounds of the messages that come first, in real lanes under the real loop's decisions: whose make a round,
 * what becomes of the others, and of a member that stops in the middle. The loop's time is driven. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/server/job/partial_rounds_fixture.h"
#include "tests/support/driven_clock.h"
#include "tests/support/unit.h"

static const char *const backup_1[] = {"admission=backup", "backup=1", NULL};
/* Whole numbers are themselves in it. */
static const char *const backup_1_coded[] = {"admission=backup", "backup=1",
                                             "codec={message: fp16, answer: int8}", NULL};
static const char *const quorum_2_coded[] = {"admission=quorum", "quorum=2", "grace_ms=0",
                                             "codec={message: bf16, answer: raw}", NULL};
static const char *const backup_0[] = {"admission=backup", "backup=0", NULL};
static const char *const quorum_2[] = {"admission=quorum", "quorum=2", "grace_ms=0", NULL};
static const char *const quorum_3[] = {"admission=quorum", "quorum=3", "grace_ms=0", NULL};
static const char *const patient[] = {"admission=quorum", "quorum=2", "grace_ms=3600000", NULL};

enum { HANG_S = 100 };

static struct cut_rig c;

static void begin_all(const uint32_t *clients, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        cut_begin(&c, clients[i]);
}

static void play(const uint32_t *clients, uint32_t n)
{
    begin_all(clients, n);
    for (uint32_t i = 0; i < n; i++)
        cut_await(&c, clients[i]);
}

static void assert_taken(uint32_t client, uint32_t taken, uint32_t dropped)
{
    const struct cut_client *k = &c.clients[client];
    ck_assert_msg(k->taken == taken && k->dropped == dropped && k->split == 0,
                  "client %u: %u taken, %u dropped, %u split; expected %u, %u, 0", client, k->taken,
                  k->dropped, k->split, taken, dropped);
}

START_TEST(the_first_make_the_round_and_the_last_is_dropped)
{
    cut_open(&c, _i == 0 ? backup_1 : backup_1_coded, 3);
    play((const uint32_t[]){2, 0}, 2); /* two of three: the round goes on without client 1 */
    play((const uint32_t[]){1}, 1);    /* which is late, and answered with the center after it */
    assert_taken(0, 1, 0);
    assert_taken(2, 1, 0);
    assert_taken(1, 0, 1);
    ck_assert_uint_eq(c.clients[1].lowest, 1);
    ck_assert_uint_eq(c.d.job.partial_rounds.dropped, 1);
    ck_assert_uint_eq(psd_partial_rounds_dropped(&c.d.job, 1), 1);
    ck_assert_uint_eq(atomic_load(&c.rig.shared.version), 1);
    ck_assert_uint_eq(atomic_load(&c.rig.shared.exchanges[0]), 1);
    ck_assert_uint_eq(atomic_load(&c.rig.shared.exchanges[1]), 0);
    play((const uint32_t[]){1, 0}, 2); /* and it is fresh for the next */
    assert_taken(1, 1, 1);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

/* Whoever was answered with the center after the last round is in the next, however late it was before. */
START_TEST(who_was_stopped_is_taken_back_when_it_is_fresh)
{
    cut_open(&c, _i == 0 ? quorum_2 : quorum_2_coded, 3);
    c.clients[2].most = 1;
    cut_begin(&c, 2); /* a third of it: a candidate all the same */
    cut_turns(&c, 20);
    cut_leave(&c, 2);
    cut_join(&c, 2);
    cut_await(&c, 2);
    for (int i = 0; i < 5; i++)
        play((const uint32_t[]){0, 1}, 2);
    play((const uint32_t[]){2}, 1); /* made of the center it joined with */
    assert_taken(2, 0, 1);
    ck_assert_uint_eq(c.clients[2].lowest, 5);
    ck_assert_uint_eq(c.clients[2].highest, 5);
    c.clients[2].most = 1;
    cut_begin(&c, 2);
    cut_begin(&c, 0);
    cut_turns(&c, 50);
    ck_assert(!cut_is_done(&c, 0)); /* the rest of client 2's is waited for */
    c.clients[2].most = 0;
    cut_await(&c, 0);
    cut_await(&c, 2);
    assert_taken(0, 6, 0);
    assert_taken(2, 1, 1);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

START_TEST(a_quorum_of_all_drops_nothing)
{
    static const char *const *const rows[] = {quorum_3, backup_0};
    for (size_t i = 0; i < ROWS(rows); i++) {
        cut_open(&c, rows[i], 3);
        for (int n = 0; n < 10; n++) {
            begin_all((const uint32_t[]){0, 1, 2}, 3);
            c.clients[n % 3].limps = true;
            cut_turns(&c, 5);
            for (uint32_t k = 0; k < 3; k++)
                ck_assert(!cut_is_done(&c, k));
            c.clients[n % 3].limps = false;
            for (uint32_t k = 0; k < 3; k++)
                cut_await(&c, k);
        }
        for (uint32_t k = 0; k < 3; k++)
            assert_taken(k, 10, 0);
        ck_assert_uint_eq(atomic_load(&c.rig.shared.version), 10);
        cut_assert_sums(&c);
        cut_close(&c);
    }
}
END_TEST

START_TEST(the_grace_is_waited_for_unless_all_are_there)
{
    cut_open(&c, patient, 3);
    begin_all((const uint32_t[]){0, 1}, 2);
    cut_turns(&c, 30);
    ck_assert(!cut_is_done(&c, 0) && !cut_is_done(&c, 1));
    play((const uint32_t[]){2}, 1);
    cut_await(&c, 0);
    cut_await(&c, 1);
    for (uint32_t i = 0; i < 3; i++)
        assert_taken(i, 1, 0);
    begin_all((const uint32_t[]){0, 1}, 2); /* who leaves is waited for no longer */
    cut_turns(&c, 20);
    cut_leave(&c, 2);
    cut_await(&c, 0);
    cut_await(&c, 1);
    cut_begin(&c, 0); /* and of one worker a round is made of one message */
    cut_turns(&c, 20);
    ck_assert(!cut_is_done(&c, 0));
    cut_leave(&c, 1);
    cut_await(&c, 0);
    assert_taken(0, 3, 0);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

START_TEST(the_grace_ends)
{
    static const char *const settings[] = {"admission=quorum", "quorum=2", "grace_ms=30000", NULL};
    cut_open(&c, settings, 3);
    begin_all((const uint32_t[]){0, 1}, 2);
    cut_await_candidates(&c, 2);
    test_clock_advance_ms(30000 - 2); /* a turn has gone since */
    ck_assert_uint_eq(c.d.job.partial_rounds.n_closed, 0);
    test_clock_advance_ms(1);
    ck_assert_uint_eq(c.d.job.partial_rounds.n_closed, 1);
    cut_await(&c, 0);
    cut_await(&c, 1);
    play((const uint32_t[]){2}, 1);
    assert_taken(0, 1, 0);
    assert_taken(2, 0, 1);
    cut_close(&c);
}
END_TEST

/* A member of the round that dies in the middle of its message: it is in the chunks that were complete. */
START_TEST(a_member_that_dies_is_waited_for_no_longer)
{
    cut_open(&c, quorum_2, 3);
    c.clients[1].most = 1;
    begin_all((const uint32_t[]){0, 1}, 2);
    cut_await_applied(&c, 0, 2);
    cut_turns(&c, 20);
    ck_assert_uint_eq(c.clients[0].n_applied, 2);
    ck_assert(!cut_is_done(&c, 0));
    cut_leave(&c, 1);
    cut_await(&c, 0);
    assert_taken(0, 1, 0);
    cut_assert_sums(&c);
    ck_assert_uint_eq(atomic_load(&c.rig.shared.version), 1);
    play((const uint32_t[]){2}, 1); /* made of the center before that round */
    play((const uint32_t[]){0, 2}, 2);
    assert_taken(2, 1, 1);
    cut_close(&c);
}
END_TEST

/* All of them: the round goes by with nothing in the chunks that had not come. */
START_TEST(a_round_whose_members_all_die_goes_by)
{
    cut_open(&c, quorum_2, 3);
    c.clients[0].most = c.clients[1].most = 1;
    begin_all((const uint32_t[]){0, 1}, 2);
    cut_await_applied(&c, 0, 2);
    cut_await_applied(&c, 1, 2);
    cut_begin(&c, 2); /* late */
    cut_turns(&c, 20);
    ck_assert(!cut_is_done(&c, 2));
    cut_leave(&c, 0);
    cut_leave(&c, 1);
    cut_await(&c, 2);
    assert_taken(2, 0, 1);
    play((const uint32_t[]){2}, 1);
    assert_taken(2, 1, 1);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

/* One that stops, in the middle of its message, is left out of the rest and comes back. */
START_TEST(a_member_that_stops_is_left_behind)
{
    cut_open(&c, quorum_2, 3);
    c.clients[1].most = 1;
    begin_all((const uint32_t[]){0, 1}, 2);
    cut_await_applied(&c, 0, 2);
    cut_await_applied(&c, 1, 2);
    c.clients[1].frozen = true;
    cut_pass_ms(&c, 2000); /* 20 looks find it silent; the next one is one too many */
    ck_assert(!cut_is_done(&c, 0));
    ck_assert_uint_eq(c.d.job.partial_rounds.dropped, 0);
    cut_pass_ms(&c, 200); /* the first of them may have seen what it did before */
    ck_assert_uint_eq(c.d.job.partial_rounds.dropped, 1);
    cut_await(&c, 0);
    play((const uint32_t[]){2}, 1); /* made of the center before that round */
    for (int i = 0; i < 3; i++)
        play((const uint32_t[]){0, 2}, 2);
    c.clients[1].frozen = false;
    c.clients[1].most = 0;
    cut_await(&c, 1);
    ck_assert_uint_eq(c.clients[1].split, 1); /* in the chunks that were complete */
    ck_assert_uint_eq(c.clients[1].n_applied, 2);
    play((const uint32_t[]){1}, 1); /* some of its answers were of the time before it stopped */
    ck_assert_uint_eq(c.clients[1].dropped, 1);
    for (int i = 0; i < 3; i++)
        play((const uint32_t[]){0, 1}, 2);
    ck_assert_uint_eq(c.clients[1].taken, 3);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

/* Who is heard is slow, not stopped: a long message over a thin link. */
START_TEST(a_member_that_is_slow_is_waited_for)
{
    cut_open(&c, quorum_2, 3);
    c.clients[1].most = 1;
    begin_all((const uint32_t[]){0, 1}, 2);
    cut_await_applied(&c, 0, 2);
    cut_pass_ms(&c, c.d.cfg.limits.silence_s * 1000 - 1000);
    ck_assert(!cut_is_done(&c, 0));
    ck_assert_uint_eq(c.d.job.partial_rounds.dropped, 0);
    c.clients[1].most = 0;
    cut_await(&c, 0);
    cut_await(&c, 1);
    assert_taken(1, 1, 0);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

/* One that gives up its exchange and begins another in a lane or two. */
START_TEST(what_was_given_up_is_waited_for_by_nobody)
{
    cut_open(&c, quorum_2, 3);
    struct ps_frame f = rig_frame(&c.rig, PS_FRAME_EXCHANGE, 1, c.clients[1].incarnation, 1, 0, 0);
    static const float nothing[CUT_N];
    rig_send_vector(&c.rig, 0, &f, nothing); /* in lane 0 alone */
    cut_turns(&c, 20);
    c.clients[1].seq = 1;
    cut_begin(&c, 1);
    cut_await_candidates(&c, 1);
    /* Another one, in both: the round that counts on the one before does not wait for it. */
    cut_begin(&c, 1);
    play((const uint32_t[]){0}, 1);
    play((const uint32_t[]){0}, 1);
    cut_await(&c, 1);
    ck_assert_uint_eq(c.clients[1].flags, 0);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

/* Lanes that have been told to release the center would take the set for one of the next method. */
START_TEST(no_round_is_closed_when_the_method_changes)
{
    cut_open(&c, quorum_2, 3);
    c.d.job.method_change.phase = PSD_METHOD_CHANGE_EMPTYING;
    cut_begin(&c, 0);
    cut_begin(&c, 1);
    cut_await_candidates(&c, 2);
    cut_turns(&c, 20);
    ck_assert_uint_eq(c.d.job.partial_rounds.n_closed, 0);
    c.d.job.method_change.phase = PSD_METHOD_CHANGE_NONE;
    psd_partial_rounds_consider(&c.d.job);
    cut_await(&c, 0);
    cut_await(&c, 1);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

/* A client that begins exchange after exchange without an answer is no more to the queues than any other. */
START_TEST(a_flood_of_beginnings_fills_no_ring)
{
    cut_open(&c, quorum_3, 3);
    static const float nothing[CUT_N];
    for (uint64_t seq = 1; seq <= 3000; seq++) {
        struct ps_frame f =
            rig_frame(&c.rig, PS_FRAME_EXCHANGE, 1, c.clients[1].incarnation, seq, seq % CUT_LANES, 0);
        unsigned char head[PS_FRAME_BYTES];
        ps_frame_pack(&f, head);
        while (c.rig.transport->link_send(c.rig.links[seq % CUT_LANES], head, nothing + f.begin,
                                          f.count * sizeof *nothing) != 0)
            cut_turns(&c, 1);
        if (seq % 3 == 0)
            cut_turn(&c);
    }
    cut_turns(&c, 20);
    c.clients[1].seq = 3000;
    play((const uint32_t[]){0, 1, 2}, 3);
    assert_taken(0, 1, 0);
    cut_assert_sums(&c);
    cut_close(&c);
}
END_TEST

/* Anyone sends, stops, goes on, dies and comes back at any moment, chunks of two lanes interleaving as they
 * like. What was applied is in the center, once; an exchange is applied everywhere or nowhere, but where its
 * sender was left behind in the middle; nobody waits for ever. */
static void soak(const char *const *settings, uint64_t seed)
{
    struct dice dice = {seed};
    cut_open(&c, settings, RIG_SLOTS);
    double deadline = unit_now_s() + HANG_S;
    for (int turn = 0; turn < 6000 || atomic_load(&c.rig.shared.version) <= 50; turn++) {
        ck_assert_msg(unit_now_s() < deadline, "few rounds come of so many turns");
        uint32_t i = (uint32_t)dice_below(&dice, RIG_SLOTS), what = (uint32_t)dice_below(&dice, 400);
        struct cut_client *k = &c.clients[i];
        if (!k->in_job && what < 40)
            cut_join(&c, i);
        else if (k->in_job && what == 0)
            cut_leave(&c, i);
        else if (what < 40)
            k->limps = what < 8;
        if (k->in_job && k->left == 0 && what % 3 > 0)
            cut_begin(&c, i);
        cut_turns(&c, turn % 16 == 0);
        cut_turn(&c);
    }
    for (uint32_t i = 0; i < RIG_SLOTS; i++)
        c.clients[i].limps = false;
    for (uint32_t n = 0; n < 5; n++)
        for (uint32_t i = 0; i < RIG_SLOTS; i++) {
            if (!c.clients[i].in_job)
                cut_join(&c, i);
            if (cut_is_done(&c, i))
                cut_begin(&c, i);
            cut_turns(&c, 2);
        }
    for (uint32_t i = 0; i < RIG_SLOTS; i++)
        ck_assert_uint_eq(c.clients[i].split, 0);
    cut_await_all_and_leave(&c); /* some wait for others, who have nothing to send */
    cut_assert_sums(&c);
    cut_close(&c);
}

START_TEST(soaked_in_chance_nothing_is_lost_and_nobody_hangs)
{
    static const char *const quorum_1[] = {"admission=quorum", "quorum=1", "grace_ms=1", NULL};
    static const char *const *const rows[] = {backup_1, quorum_2, quorum_3, quorum_1, backup_0};
    soak(rows[(size_t)_i % ROWS(rows)], (uint64_t)_i + 1);
}
END_TEST

static uint64_t awaited_ms(uint32_t client)
{
    psd_steps_check(&c.d.job);
    return psd_steps_awaited_ms(&c.d.job, &c.d.sessions.slots[client]);
}

/* Others' chunks wait for client 2, whose heart beats: how long is counted from its last step, in an exchange
 * or between two, and nobody else is waited for. */
START_TEST(who_takes_steps_is_not_stalled)
{
    cut_open(&c, quorum_3, 3);
    test_clock_advance_ms(3600000);
    ck_assert_uint_eq(awaited_ms(2), 0); /* nobody waits */
    c.clients[2].limps = true;
    begin_all((const uint32_t[]){0, 1}, 2);
    cut_await_waiting(&c, 0);
    cut_await_waiting(&c, 1);
    ck_assert_uint_eq(awaited_ms(2), 0); /* from now on */
    test_clock_advance_ms(5000);
    ck_assert_uint_eq(awaited_ms(2), 5000);
    ck_assert_uint_eq(awaited_ms(0), 0);
    ck_assert_uint_eq(awaited_ms(1), 0);
    c.d.sessions.slots[2].clock++; /* a step of its own, by its heartbeat */
    ck_assert_uint_eq(awaited_ms(2), 0);
    test_clock_advance_ms(3000);
    ck_assert_uint_eq(awaited_ms(2), 3000);
    c.clients[2].limps = false;
    play((const uint32_t[]){2}, 1);
    cut_await(&c, 0);
    cut_await(&c, 1);
    ck_assert_uint_eq(awaited_ms(2), 0);
    cut_close(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-quorum");
    TCase *tc = tcase_create("quorum");
    tcase_set_timeout(tc, 170);
    tcase_add_loop_test(tc, the_first_make_the_round_and_the_last_is_dropped, 0, 2);
    tcase_add_loop_test(tc, who_was_stopped_is_taken_back_when_it_is_fresh, 0, 2);
    tcase_add_test(tc, a_quorum_of_all_drops_nothing);
    tcase_add_test(tc, the_grace_is_waited_for_unless_all_are_there);
    tcase_add_test(tc, the_grace_ends);
    tcase_add_test(tc, a_member_that_dies_is_waited_for_no_longer);
    tcase_add_test(tc, a_round_whose_members_all_die_goes_by);
    tcase_add_test(tc, a_member_that_stops_is_left_behind);
    tcase_add_test(tc, a_member_that_is_slow_is_waited_for);
    tcase_add_test(tc, who_takes_steps_is_not_stalled);
    tcase_add_test(tc, what_was_given_up_is_waited_for_by_nobody);
    tcase_add_test(tc, no_round_is_closed_when_the_method_changes);
    tcase_add_test(tc, a_flood_of_beginnings_fills_no_ring);
    tcase_add_loop_test(tc, soaked_in_chance_nothing_is_lost_and_nobody_hangs, 0, 10);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
