/* What is whose: ranks, roles, sessions on both connections, and how an operator takes them away. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/system/raw_client.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/security/auth_fixture.h"

enum { STEPS = 60 };

/* Without a rank asked for, the lowest that the list allows. */
START_TEST(any_rank_is_one_that_is_allowed)
{
    static const char *const rights[HOUSE_PEERS] = {"ranks=5,3-4", NULL, "role=worker"};
    struct house h;
    struct hand hand;
    Ps__Hello hello = PS__HELLO__INIT;
    house_open(&h, rights);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)"hand";
    for (uint32_t rank = 3; rank <= 5; rank++) {
        hand_open_as(&hand, h.d.endpoint, h.key[0]);
        ck_assert_int_eq(hand_hello(&hand, &hello), 0);
        ck_assert_uint_eq(hand.client, rank);
        hand_close(&hand);
    }
    hand_open_as(&hand, h.d.endpoint, h.key[0]);
    ck_assert_int_eq(hand_hello(&hand, &hello), PS__CODE__RANK_TAKEN);
    assert_says(hand.sentence, "all ranks that w0 may have");
    hand_close(&hand);
    hand_open_as(&hand, h.d.endpoint, h.key[2]);
    ck_assert_int_eq(hand_hello(&hand, &hello), 0);
    ck_assert_uint_eq(hand.client, 0);
    hand_close(&hand);
    house_raze(&h); /* nobody has left */
}
END_TEST

static void refuse_hello(struct house *h, int peer, Ps__Hello hello, const char *says)
{
    struct hand hand;
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)"hand";
    hand_open_as(&hand, h->d.endpoint, h->key[peer]);
    int code = hand_hello(&hand, &hello);
    ck_assert_msg(code == PS__CODE__AUTH, "code %d: %s", code, hand.sentence);
    assert_says(hand.sentence, says);
    house_assert_logged(h, says);
    hand_close(&hand);
}

START_TEST(ranks_and_roles_are_bound)
{
    static const char *const rights[HOUSE_PEERS] = {"ranks=0-2,7", "role=observer", "role=worker"};
    struct house h;
    struct stepper s;
    Ps__Hello hello = PS__HELLO__INIT;
    house_open(&h, rights);
    house_step_as(&h, &s, 0, 3, STEPS);
    house_assert_ends(&s, PSC_EAUTH, "w0 may not have rank 3: the allow-list has ranks=0-2, 7");
    house_assert_logged(&h, "127.0.0.1: w0 may not have rank 3");
    house_step_as(&h, &s, 1, -1, STEPS);
    house_assert_ends(&s, PSC_EAUTH, "w1 may not be a worker");
    hello.observer = true;
    refuse_hello(&h, 2, hello, "w2 may not be an observer: the allow-list has role=worker");
    hello.observer = false;
    hello.client = 6; /* as if it had been there before */
    hello.incarnation = 12;
    refuse_hello(&h, 0, hello, "w0 may not have rank 6");
    house_step_as(&h, &s, 0, 7, 3);
    house_assert_ends(&s, PSC_OK, NULL);

    /* psd's own pair is for psd's. */
    hello = (Ps__Hello)PS__HELLO__INIT;
    hello.any_rank = true;
    strcpy(h.key[0], h.psd_key);
    refuse_hello(&h, 0, hello, "this is psd's own key");
    house_close(&h);
}
END_TEST

static void refuse_message(struct house *h, int peer, int what, void *message, const char *says)
{
    struct hand hand;
    hand_open_as(&hand, h->d.endpoint, h->key[peer]);
    hand_tell(&hand, what, message);
    ck_assert_int_eq(hand_hear_error(&hand, TEST_HANG_S), PS__CODE__AUTH);
    assert_says(hand.sentence, says);
    hand_close(&hand);
}

START_TEST(a_key_gives_its_role_and_no_other)
{
    static const char *const rights[HOUSE_PEERS] = {"role=worker", "role=observer", "role=any"};
    struct house h;
    Ps__Meet meet = PS__MEET__INIT;
    Ps__Enlist enlist = PS__ENLIST__INIT;
    Ps__News news = PS__NEWS__INIT;
    house_open(&h, rights);
    refuse_message(&h, 1, PS__TO_SERVER__WHAT_MEET, &meet, "w1 may not join a clique here");
    refuse_message(&h, 0, PS__TO_SERVER__WHAT_ENLIST, &enlist, "w0 is not a server");
    refuse_message(&h, 2, PS__TO_SERVER__WHAT_NEWS, &news, "w2 is not a server");
    strcpy(h.key[0], h.psd_key);
    refuse_message(&h, 0, PS__TO_SERVER__WHAT_MEET, &meet, "psd may not join a clique here");
    house_close(&h);
}
END_TEST

/* On the data connection, with the owner's every name. */
static void assert_lane_refuses(struct house *h, const struct hand *owner, int peer, uint8_t kind)
{
    static float x[4096], answer[4096];
    struct hand thief = *owner;
    hand_open_as(&thief, h->d.endpoint, h->key[peer]);
    thief.client = owner->client;
    thief.incarnation = owner->incarnation;
    thief.n_lanes = owner->n_lanes;
    thief.chunk_floats = owner->chunk_floats;
    thief.shard = owner->shard;
    thief.seq = owner->seq + 1;
    memcpy(thief.urls, owner->urls, sizeof thief.urls);
    for (uint32_t lane = 0; lane < thief.n_lanes; lane++) {
        struct ps_frame f = hand_frame(&thief, kind, lane, 0);
        hand_send(&thief, lane, &f, x, kind == PS_FRAME_PULL ? 0 : f.count * sizeof *x);
        int code = hand_answer(&thief, lane, &f, answer, TEST_HANG_S);
        ck_assert_msg(code == PS__CODE__AUTH, "kind %d: code %d: %s", kind, code, thief.sentence);
        assert_says(thief.sentence, "belongs to another identity than w1 at 127.0.0.1");
    }
    hand_close(&thief);
}

START_TEST(a_session_is_its_owners)
{
    static float x[HOUSE_FLOATS], answer[HOUSE_FLOATS];
    struct house h;
    struct hand owner, thief;
    Ps__Hello hello = PS__HELLO__INIT;
    Ps__Heartbeat beat = PS__HEARTBEAT__INIT;
    Ps__Leave leave = PS__LEAVE__INIT;
    Ps__Report report = PS__REPORT__INIT;
    Ps__Begin begin = PS__BEGIN__INIT;
    bool offer = false;
    house_open(&h, house_everybody);
    hand_open_as(&owner, h.d.endpoint, h.key[0]);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.token = 77;
    hello.name = (char *)"owner";
    ck_assert_int_eq(hand_hello(&owner, &hello), 0);
    ck_assert_int_eq(hand_begin(&owner, HOUSE_FLOATS, &offer), 0);
    ck_assert(offer);
    ck_assert_int_eq(hand_pass(&owner, PS_FRAME_OFFER, x, NULL), 0);

    hand_open_as(&thief, h.d.endpoint, h.key[1]);
    beat.client = leave.client = report.client = begin.client = owner.client;
    beat.incarnation = leave.incarnation = report.incarnation = begin.incarnation = owner.incarnation;
    struct {
        int what;
        void *message;
    } said[] = {{PS__TO_SERVER__WHAT_HEARTBEAT, &beat},
                {PS__TO_SERVER__WHAT_LEAVE, &leave},
                {PS__TO_SERVER__WHAT_REPORT, &report},
                {PS__TO_SERVER__WHAT_BEGIN, &begin}};
    for (size_t i = 0; i < ROWS(said); i++) {
        hand_tell(&thief, said[i].what, said[i].message);
        ck_assert_int_eq(hand_hear_error(&thief, TEST_HANG_S), PS__CODE__AUTH);
        assert_says(thief.sentence, "belongs to another identity than w1");
    }
    hand_close(&thief);
    house_assert_logged(&h, "control.refused\",\"msg\":\"127.0.0.1: the session of client 0 belongs to "
                            "another identity than w1");
    hello.token = 77; /* its own Hello, heard of somehow */
    refuse_hello(&h, 2, hello, "the session of rank 0 belongs to another identity than w2");
    hello.token = 0;
    hello.client = owner.client;
    hello.incarnation = owner.incarnation;
    refuse_hello(&h, 2, hello, "the session of rank 0 belongs to another identity than w2");

    static const uint8_t kinds[] = {PS_FRAME_EXCHANGE, PS_FRAME_PUSH, PS_FRAME_PULL, PS_FRAME_SET,
                                    PS_FRAME_ADD};
    for (size_t i = 0; i < ROWS(kinds); i++)
        assert_lane_refuses(&h, &owner, 1, kinds[i]);
    house_assert_logged(&h, "data.refused");

    /* Nobody took anything from it. */
    for (int i = 0; i < HOUSE_FLOATS; i++)
        x[i] = 1;
    ck_assert_int_eq(hand_pass(&owner, PS_FRAME_EXCHANGE, x, answer), 0);
    for (int i = 0; i < HOUSE_FLOATS; i++)
        assert_quick(answer[i] == 0);
    ck_assert_int_eq((int)daemon_workers(&h.d), 1);
    hand_leave(&owner);
    hand_close(&owner);
    house_close(&h);
}
END_TEST

START_TEST(a_reload_takes_rights_away)
{
    static const char *const without[HOUSE_PEERS] = {"ranks=0", NULL, "ranks=5"};
    struct house h;
    struct stepper s[HOUSE_PEERS];
    FILE *f;
    house_open(&h, house_everybody);
    for (int i = 0; i < HOUSE_PEERS; i++) {
        house_step_as(&h, &s[i], i, i, HOUSE_ENDLESS);
        house_assert_joined(&s[i]);
    }
    /* A list that is none changes nothing. */
    f = fopen(h.allow, "a");
    fprintf(f, "nonsense w9\n");
    fclose(f);
    kill(h.d.pid, SIGHUP);
    house_assert_logged(&h, "allow:6: found 'nonsense'");
    uint64_t had = s[1].page->steps;
    ck_assert_msg(stepper_reaches(&s[1], had + 20, TEST_HANG_S), "%s", s[1].page->error);

    house_write_list(&h, without);
    kill(h.d.pid, SIGHUP);
    house_assert_ends(&s[1], PSC_EAUTH, NULL); /* told at once, or at its next word */
    house_assert_ends(&s[2], PSC_EAUTH, NULL);
    house_assert_logged(&h, "the allow-list no longer allows w1 to be rank 1");
    house_step_as(&h, &s[1], 1, 1, HOUSE_ENDLESS);
    house_assert_ends(&s[1], PSC_EAUTH, "is not in its allow-list");
    had = s[0].page->steps;
    ck_assert_msg(stepper_reaches(&s[0], had + 20, TEST_HANG_S), "%s", s[0].page->error);

    house_write_list(&h, house_everybody);
    kill(h.d.pid, SIGHUP);
    house_assert_logged(&h, "has changed: 3 keys");
    house_step_as(&h, &s[1], 1, 1, HOUSE_ENDLESS);
    house_assert_joined(&s[1]);
    for (int i = 0; i < 2; i++)
        stepper_kill(&s[i]);
    house_raze(&h);
}
END_TEST

START_TEST(who_was_evicted_is_barred)
{
    struct house h;
    struct stepper s[2];
    house_open(&h, house_everybody);
    for (int i = 0; i < 2; i++) {
        house_step_as(&h, &s[i], i, i, HOUSE_ENDLESS);
        house_assert_joined(&s[i]);
    }
    free(daemon_ask(&h.d, "POST", "/evict?rank=1"));
    house_assert_ends(&s[1], PSC_EEVICTED, "w1 is barred");
    ck_assert(house_text_is(&h, "/status", "barred.0", "w1"));
    house_step_as(&h, &s[1], 1, 1, HOUSE_ENDLESS);
    house_assert_ends(&s[1], PSC_EAUTH, "barred until psctl allow w1");
    kill(h.d.pid, SIGHUP); /* a reload is no pardon */
    house_assert_logged(&h, "reload.unchanged");
    house_step_as(&h, &s[1], 1, 1, HOUSE_ENDLESS);
    house_assert_ends(&s[1], PSC_EAUTH, "barred until psctl allow w1");
    free(daemon_ask(&h.d, "POST", "/allow?name=w1"));
    house_step_as(&h, &s[1], 1, 1, HOUSE_ENDLESS);
    house_assert_joined(&s[1]);
    for (int i = 0; i < 2; i++)
        stepper_kill(&s[i]);
    house_raze(&h);
}
END_TEST

START_TEST(sessions_go_on_after_a_restart)
{
    struct house h;
    struct stepper s[2];
    house_prepare(&h, house_everybody);
    ck_assert_int_eq(daemon_start(&h.d, NULL), 0);
    for (int i = 0; i < 2; i++) {
        house_step_as(&h, &s[i], i, i, HOUSE_ENDLESS);
        ck_assert_msg(stepper_reaches(&s[i], 10, TEST_HANG_S), "%s", s[i].page->error);
    }
    ck_assert(daemon_checkpoint(&h.d, TEST_HANG_S));
    ck_assert_int_eq(daemon_stop(&h.d, SIGKILL, TEST_HANG_S), SIGKILL);
    ck_assert_int_eq(daemon_start(&h.d, "--resume"), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(stepper_reaches(&s[i], s[i].page->steps + 20, TEST_HANG_S), "%s", s[i].page->error);
    ck_assert(house_text_is(&h, "/workers", "workers.1.identity", "w1"));
    for (int i = 0; i < 2; i++)
        stepper_kill(&s[i]);
    house_raze(&h);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        any_rank_is_one_that_is_allowed, ranks_and_roles_are_bound,  a_key_gives_its_role_and_no_other,
        a_session_is_its_owners,         a_reload_takes_rights_away, who_was_evicted_is_barred,
        sessions_go_on_after_a_restart,
    };
    return suite_run("identity", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
