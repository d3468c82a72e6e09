/* What the head and another server say to each other arrives once and in order, whatever the wire between
 * them loses; nobody waits for a server that stands still or is gone. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/wire/control.h"
#include "server/admissions/admissions.h"
#include "server/cluster/internal.h"
#include "server/control/control.h"
#include "tests/server/cluster/cluster_fixture.h"
#include "tests/support/driven_clock.h"

static struct pair p;

static struct psd_server *server(void)
{
    return &p.head.cluster.head.servers[1];
}

static void join(void)
{
    PAIR_WHILE(&p, p.n_complete == 0 || !p.other.cluster.follower.placed, "the server gets no place");
}

static void open_pair(void)
{
    pair_open(&p, NULL);
    join();
}

static void close_pair(void)
{
    pair_close(&p);
}

/* Of both: servers have the same. */
static void set_silence(uint32_t seconds)
{
    p.head.cfg.limits.silence_s = p.other.cfg.limits.silence_s = seconds;
}

static void send_event(enum psd_lane_message_kind kind, uint32_t client)
{
    psd_tell_lane(&p.head.lanes, p.head.lanes.list[1],
                  &(struct psd_lane_message){.kind = kind, .client = client});
}

static void assert_told(enum psd_lane_message_kind kind, uint32_t client)
{
    struct psd_lane_message msg;
    PAIR_WHILE(&p, !pair_told(&p.other, &msg), "the lane is not told %d of client %u", kind, client);
    ck_assert_int_eq(msg.kind, kind);
    ck_assert_uint_eq(msg.client, client);
}

START_TEST(a_lost_order_is_said_again)
{
    p.lose_orders = 1;
    send_event(PSD_COMMAND_END, 3);
    send_event(PSD_COMMAND_END, 4);
    assert_told(PSD_COMMAND_END, 3);
    assert_told(PSD_COMMAND_END, 4);
    send_event(PSD_COMMAND_HOLD, 0);
    assert_told(PSD_COMMAND_HOLD, 0);
    ck_assert_uint_eq(server()->n_lost, 0);
}
END_TEST

/* FILLED is counted. */
START_TEST(a_lost_note_of_a_lane_is_said_again)
{
    p.lose_news = 2;
    for (uint32_t i = 1; i <= 5; i++)
        pair_say(&p, &(struct psd_lane_message){.kind = PSD_LANE_FILLED});
    PAIR_WHILE(&p, p.head.job.lanes_filled < 5, "of 5 notes %u have come", p.head.job.lanes_filled);
    pair_pass_ms(&p, 5000);
    ck_assert_uint_eq(p.head.job.lanes_filled, 5);
}
END_TEST

/* Both directions at once, with a wire that is cut now and then. */
START_TEST(everything_arrives_once_and_in_order)
{
    enum { N = 300 };
    uint32_t n_told = 0, n_said = 0, n_heard = 0;
    struct psd_lane_message msg;
    p.dice.state = (uint64_t)_i;
    p.lose_percent = 15;
    PAIR_WHILE(&p, n_heard < N || p.head.job.lanes_filled < N, "%u orders and %u notes of %d arrived",
               n_heard, p.head.job.lanes_filled, N)
    {
        if (n_told < N && dice_below(&p.dice, 2) == 0)
            send_event(PSD_COMMAND_END, n_told++ % PAIR_CLIENTS);
        if (n_said < N && dice_below(&p.dice, 2) == 0)
            n_said++, pair_say(&p, &(struct psd_lane_message){.kind = PSD_LANE_FILLED});
        if (dice_below(&p.dice, 200) == 0)
            pair_cut(&p);
        while (pair_told(&p.other, &msg)) {
            ck_assert_int_eq(msg.kind, PSD_COMMAND_END);
            ck_assert_uint_eq(msg.client, n_heard++ % PAIR_CLIENTS);
        }
    }
    p.lose_percent = 0;
    pair_pass_ms(&p, 5000);
    ck_assert_uint_eq(p.head.job.lanes_filled, N);
    ck_assert(!pair_told(&p.other, &msg));
    ck_assert_uint_eq(server()->n_lost, 0);
}
END_TEST

START_TEST(a_cut_connection_costs_no_place)
{
    send_event(PSD_COMMAND_END, 1);
    assert_told(PSD_COMMAND_END, 1);
    for (uint32_t i = 2; i < 6; i++) {
        pair_cut(&p);
        send_event(PSD_COMMAND_END, i);
        pair_say(&p, &(struct psd_lane_message){.kind = PSD_LANE_FILLED});
        assert_told(PSD_COMMAND_END, i);
        PAIR_WHILE(&p, p.head.job.lanes_filled < i - 1, "the note that came with cut %u is lost", i - 1);
    }
    ck_assert_uint_eq(server()->n_lost, 0);
    ck_assert_uint_eq(p.n_complete, 1);
}
END_TEST

/* When it goes on it finds the head silent, and enlists before it hears that its place is gone. */
START_TEST(a_server_that_stood_still_beyond_silence_finds_its_place_again)
{
    for (uint32_t round = 1; round <= 5; round++) {
        set_silence(5);
        pair_stand(&p, true);
        PAIR_WHILE(&p, server()->here, "the server that stands is not lost");
        set_silence(3600);
        pair_stand(&p, false);
        PAIR_WHILE(&p, !server()->here || !p.other.cluster.follower.placed, "it is not back");
        for (uint32_t i = 0; i < 20; i++) {
            send_event(PSD_COMMAND_HOLD, i % PAIR_CLIENTS);
            pair_pass_ms(&p, 300);
        }
        struct psd_lane_message msg;
        uint32_t n_held = 0;
        PAIR_WHILE(&p, n_held < 20, "of 20 orders %u arrive", n_held)
        {
            while (pair_told(&p.other, &msg))
                if (msg.kind == PSD_COMMAND_HOLD)
                    ck_assert_uint_eq(msg.client, n_held++ % PAIR_CLIENTS);
        }
        ck_assert_uint_eq(server()->n_lost, round);
    }
}
END_TEST

/* Its place is gone, and it has gone on. */
static void lose_place(void)
{
    set_silence(5);
    pair_stand(&p, true);
    PAIR_WHILE(&p, server()->here, "the server that stands is not lost");
    set_silence(3600);
    pair_stand(&p, false);
}

static void find_place(void)
{
    PAIR_WHILE(&p,
               !server()->here || !p.other.cluster.follower.placed ||
                   p.other.cluster.follower.place != server()->place,
               "it is not back");
}

/* Its numbers are those of another count. */
START_TEST(news_of_a_place_that_is_gone_count_for_nothing)
{
    for (uint32_t i = 1; i <= 3; i++) {
        send_event(PSD_COMMAND_END, i);
        assert_told(PSD_COMMAND_END, i);
    }
    PAIR_WHILE(&p, server()->orders.taken < 3, "the head does not hear of it");
    Ps__News late = PS__NEWS__INIT;
    Ps__Note note = PS__NOTE__INIT;
    note.kind = PSD_LANE_FILLED;
    note.lane = 1;
    late.index = 1;
    late.run = server()->run;
    late.place = server()->place;
    late.taken = 3;
    late.number = 1;
    late.note = &note;
    lose_place();
    find_place();
    p.lose_orders = 2;
    for (uint32_t i = 4; i <= 6; i++)
        send_event(PSD_COMMAND_END, i);
    psd_cluster_news(&p.head.cluster,
                     &(struct psd_peer){.id = server()->peer, .id_bytes = server()->peer_bytes}, &late);
    ck_assert_uint_eq(p.head.job.lanes_filled, 0);
    for (uint32_t i = 4; i <= 6; i++)
        assert_told(PSD_COMMAND_END, i);
    pair_say(&p, &(struct psd_lane_message){.kind = PSD_LANE_FILLED});
    PAIR_WHILE(&p, p.head.job.lanes_filled < 1, "the next place's first note is lost");
    ck_assert_uint_eq(server()->n_lost, 1);
}
END_TEST

static void assert_totals(uint64_t chunks, uint64_t stale, uint64_t bytes_in)
{
    const struct psd_lane_stats *s = &p.head.lanes.list[1]->stats;
    PAIR_WHILE(&p, s->chunks != chunks, "%lu chunks counted, not %lu", (unsigned long)s->chunks,
               (unsigned long)chunks);
    ck_assert_uint_eq(s->staleness[2], stale);
    ck_assert_uint_eq(s->bytes_in[0], bytes_in);
}

static void count_at_other(uint64_t chunks, uint64_t stale, uint64_t bytes_in)
{
    struct psd_lane_stats *s = &p.other.lanes.list[0]->stats;
    s->chunks = chunks;
    s->staleness[2] = stale;
    s->bytes_in[0] = bytes_in;
}

/* Its counters begin anew where its process does, and go on where only its place was lost. */
START_TEST(totals_do_not_fall_when_a_server_comes_back)
{
    count_at_other(100, 30, 8000);
    assert_totals(100, 30, 8000);
    lose_place();
    find_place();
    count_at_other(110, 31, 8800);
    assert_totals(110, 31, 8800);
    count_at_other(4, 0, 400);
    assert_totals(114, 31, 9200);
    count_at_other(6, 2, 500);
    assert_totals(116, 33, 9300);
}
END_TEST

/* The word by which it has its next place is lost, and orders of that come. */
START_TEST(orders_of_a_place_that_it_has_not_heard_of_come_once)
{
    struct psd_lane_message msg;
    lose_place();
    p.lose_places = 1;
    PAIR_WHILE(&p, !server()->here, "it is not back");
    for (uint32_t i = 1; i <= 3; i++)
        send_event(PSD_COMMAND_END, i);
    for (uint32_t i = 1; i <= 3; i++)
        assert_told(PSD_COMMAND_END, i);
    find_place();
    pair_pass_ms(&p, 5000);
    ck_assert(!pair_told(&p.other, &msg));
    ck_assert_uint_eq(server()->n_lost, 1);
}
END_TEST

START_TEST(a_head_that_slept_loses_nobody)
{
    set_silence(5);
    psd_cluster_tick(&p.head.cluster);
    pair_stand(&p, true); /* it would be heard on the way */
    test_clock_advance_ms(60000);
    psd_cluster_tick(&p.head.cluster);
    ck_assert(server()->here);
    pair_stand(&p, false);
    pair_pass_ms(&p, 1000);
    ck_assert(server()->here);
}
END_TEST

/* What the head says to client `name`; whether it was held back. */
static bool is_held(const char *name, Ps__ToClient__WhatCase what)
{
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    Ps__Welcome welcome = PS__WELCOME__INIT;
    Ps__Begun begun = PS__BEGUN__INIT;
    Ps__Alive alive = PS__ALIVE__INIT;
    Ps__Error error = PS__ERROR__INIT;
    m.what_case = what;
    if (what == PS__TO_CLIENT__WHAT_WELCOME)
        m.welcome = &welcome;
    else if (what == PS__TO_CLIENT__WHAT_BEGUN)
        m.begun = &begun;
    else if (what == PS__TO_CLIENT__WHAT_ALIVE)
        m.alive = &alive;
    else
        m.error = &error;
    return psd_cluster_holds_back(&p.head.cluster, (const unsigned char *)name, strlen(name), &m);
}

START_TEST(a_server_that_stands_still_silences_nobody)
{
    PAIR_WHILE(&p, is_held("a", PS__TO_CLIENT__WHAT_WELCOME), "a Welcome waits for nothing");
    pair_stand(&p, true);
    send_event(PSD_COMMAND_END, 1);
    pair_pass_ms(&p, 1000);
    for (int i = 0; i < 1000; i++) {
        ck_assert(!is_held("a", PS__TO_CLIENT__WHAT_ALIVE)); /* a heart that beats is answered */
        ck_assert(!is_held("b", PS__TO_CLIENT__WHAT_ERROR));
        ck_assert(is_held("a", PS__TO_CLIENT__WHAT_WELCOME)); /* it may turn to a lane then */
        ck_assert(is_held("a", PS__TO_CLIENT__WHAT_ERROR));   /* behind it */
        ck_assert(!is_held("a", PS__TO_CLIENT__WHAT_ALIVE));
    }
    ck_assert(is_held("c", PS__TO_CLIENT__WHAT_BEGUN));
    pair_stand(&p, false);
    assert_told(PSD_COMMAND_END, 1);
    PAIR_WHILE(&p, p.head.cluster.head.held_messages != NULL, "letters are not sent");
    ck_assert(!is_held("a", PS__TO_CLIENT__WHAT_WELCOME));
}
END_TEST

/* A head that begins anew hears what was said to the one before: the server that said it is no more. */
START_TEST(an_enlist_that_was_said_to_another_head_is_passed_by)
{
    Ps__ToServer *m = ps_control_unpack_to_server(p.enlist, p.enlist_bytes);
    ck_assert(m != NULL && m->what_case == PS__TO_SERVER__WHAT_ENLIST);
    psd_cluster_close(&p.head.cluster);
    p.head.cluster.head = (struct psd_head){.run = 0};
    ck_assert_int_eq(psd_cluster_open(&p.head.cluster), 0);
    struct psd_peer late = {.id = (const unsigned char *)"late", .id_bytes = 4, .address = "the wire"};
    psd_cluster_register(&p.head.cluster, &late, m->enlist);
    ck_assert(!server()->enlisted && !server()->here);
    PAIR_WHILE(&p, !server()->here || !p.other.cluster.follower.placed,
               "the server finds no place at the next head");
    psd_cluster_register(&p.head.cluster, &late, m->enlist);
    ck_assert(server()->here && server()->n_lost == 0);
    ck_assert_uint_eq(p.n_complete, 2);
    ps_control_free_to_server(m);
}
END_TEST

/* The head's munged fails when a server that was lost proves again who it is. */
START_TEST(a_server_of_the_job_outlives_a_munged_that_fails)
{
    struct psd_peer peer = {.id = server()->peer, .id_bytes = server()->peer_bytes, .address = "the wire"};
    psd_send_refusal(&p.head.sender, &peer, PS__CODE__AUTH, "munge: Socket communication error");
    PAIR_WHILE(&p, p.n_refused == 0, "the server does not hear of it");
    PAIR_WHILE(&p, p.other.cluster.follower.placed && p.other.job.exit_code == 0,
               "the server thinks that it has its place");
    ck_assert_int_eq(p.other.job.exit_code, 0);
    find_place();
    ck_assert_uint_eq(server()->n_lost, 0);
}
END_TEST

/* Of a job under rounds, whose center is not looked at. */
static struct psd_center *make_center(void)
{
    static struct ps_manifest model;
    struct psd_center *center = calloc(1, sizeof *center);
    center->manifest = &model;
    center->admission = psd_admission_find("sync");
    p.head.job.center = center;
    p.head.job.center_whole = true;
    p.head.job.state = PSD_STATE_READY;
    p.head.job.membership.started = true;
    return center;
}

static unsigned told_of(enum psd_lane_message_kind kind)
{
    struct psd_lane_message msg;
    unsigned n = 0;
    while (pair_told(&p.head, &msg))
        n += msg.kind == kind;
    return n;
}

static void own_lane_holds(void)
{
    psd_job_take_message(&p.head.job, p.head.lanes.list[0],
                         &(struct psd_lane_message){.kind = PSD_LANE_HELD, .a = 7});
}

static void lose_server(void)
{
    set_silence(5);
    pair_stand(&p, true);
    PAIR_WHILE(&p, server()->here, "the server is not lost");
}

static void drain(void)
{
    p.head.job.state = PSD_STATE_DRAINING;
    psd_membership_drain(&p.head.job);
}

/* Rows: when the server is lost, and when psd drains. */
enum when { BEFORE_THE_HOLD, WITH_THE_HOLD_OUT };
static const struct {
    enum when lost, drained;
} ends[] = {{BEFORE_THE_HOLD, BEFORE_THE_HOLD},
            {BEFORE_THE_HOLD, WITH_THE_HOLD_OUT},
            {WITH_THE_HOLD_OUT, BEFORE_THE_HOLD},
            {WITH_THE_HOLD_OUT, WITH_THE_HOLD_OUT}};

START_TEST(the_last_checkpoint_waits_for_no_server_that_is_lost)
{
    struct psd_center *center = make_center();
    if (ends[_i].lost == BEFORE_THE_HOLD)
        lose_server();
    if (ends[_i].drained == BEFORE_THE_HOLD)
        drain();
    told_of(PSD_COMMAND_HOLD);
    ck_assert_int_eq(psd_checkpointer_start(&p.head.job, &(struct ps_error){""}), 0);
    ck_assert_uint_eq(told_of(PSD_COMMAND_HOLD), 1);
    own_lane_holds();
    ck_assert_uint_eq(told_of(PSD_COMMAND_SNAPSHOT),
                      ends[_i].lost == BEFORE_THE_HOLD && ends[_i].drained == BEFORE_THE_HOLD);
    ck_assert(p.head.job.membership.holding ==
              (ends[_i].lost != BEFORE_THE_HOLD || ends[_i].drained != BEFORE_THE_HOLD));
    if (ends[_i].lost == WITH_THE_HOLD_OUT)
        lose_server();
    if (ends[_i].drained == WITH_THE_HOLD_OUT)
        drain();
    ck_assert(!p.head.job.membership.holding);
    p.head.job.center = NULL;
    free(center);
}
END_TEST

/* It comes back, and all begin anew from what they have in common. */
START_TEST(a_job_that_goes_on_waits_for_the_lost_servers_lanes)
{
    struct psd_center *center = make_center();
    lose_server();
    ck_assert_int_eq(psd_checkpointer_start(&p.head.job, &(struct ps_error){""}), 0);
    own_lane_holds();
    ck_assert(p.head.job.membership.holding);
    ck_assert_uint_eq(told_of(PSD_COMMAND_SNAPSHOT), 0);
    p.head.job.center = NULL;
    free(center);
}
END_TEST

/* Until the second one is written, the first, of version 0, is all that servers have in common. */
START_TEST(a_checkpoint_of_version_0_is_one_that_all_have)
{
    struct psd_center *center = make_center();
    uint64_t version = 7;
    p.head.job.checkpointer.saved =
        (struct psd_saved_versions){.known = true, .n = 1, .manifest_hash = center->manifest->hash};
    ck_assert(!psd_cluster_common(&p.head.cluster, &version));
    snprintf(p.other.job.checkpointer.last_path, sizeof p.other.job.checkpointer.last_path, "center-0");
    PAIR_WHILE(&p, !psd_cluster_common(&p.head.cluster, &version), "the head does not learn of it");
    ck_assert_uint_eq(version, 0);
    p.head.job.center = NULL;
    free(center);
}
END_TEST

/* The head orders a checkpoint after a round, and dies: nobody ends that round any more. */
START_TEST(a_server_without_its_head_waits_for_no_round)
{
    struct psd_center *center = make_center();
    struct psd_lane_message msg;
    bool *forgotten = calloc(p.other.sessions.n_slots, sizeof *forgotten);
    Ps__Snapshot what = PS__SNAPSHOT__INIT;
    what.what = PSD_SAVE_NEWEST;
    p.head.job.center = NULL;
    p.other.job.center = center;
    p.other.job.center_whole = true;
    p.other.job.state = PSD_STATE_READY;
    psd_cluster_save(&p.head.cluster, &what, 9);
    assert_told(PSD_COMMAND_SNAPSHOT, 0);
    ck_assert(p.other.job.checkpointer.busy && p.other.job.checkpointer.round == 9);
    p.other.job.n_stops = 2;
    psd_follower_stop(&p.other.cluster, "SIGTERM");
    while (pair_told(&p.other, &msg)) {
        ck_assert_int_eq(msg.kind, PSD_COMMAND_END);
        forgotten[msg.client] = true;
    }
    for (uint32_t i = 0; i < p.other.sessions.n_slots; i++)
        ck_assert_msg(forgotten[i], "the lane waits for client %u", i);
    ck_assert(p.other.cluster.follower.has_waiting); /* what was asked for before is not the last */
    p.other.job.center = NULL;
    free(forgotten);
    free(center);
}
END_TEST

/* Named tensors may lie at other servers alone: then the head's own version stays. */
START_TEST(what_only_another_server_has_is_saved_when_it_is_due)
{
    struct psd_center *center = make_center();
    struct psd_checkpointer *own = &p.head.job.checkpointer, *others = &p.other.job.checkpointer;
    center->admission = psd_admission_find("fcfs");
    p.head.cfg.checkpoint.every_s = 2;
    snprintf(own->last_path, sizeof own->last_path, "center-0");
    snprintf(others->last_path, sizeof others->last_path, "center-0");
    PAIR_WHILE(&p, !psd_cluster_server_has_saved(server(), 0), "the head does not learn of the first one");
    pair_pass_ms(&p, 3000);
    psd_checkpointer_check_due(&p.head.job);
    ck_assert(!own->busy); /* nothing has changed */
    atomic_store(&p.other.lanes.shared.version, 5);
    PAIR_WHILE(&p, server()->version != 5, "the head does not learn of the updates");
    psd_checkpointer_check_due(&p.head.job);
    ck_assert(own->busy);
    ck_assert_uint_eq(p.head.cluster.head.snapshots, 1);
    own->busy = false;
    others->last_version = 5;
    PAIR_WHILE(&p, !psd_cluster_server_has_saved(server(), 5), "the head does not learn that it has written");
    pair_pass_ms(&p, 3000);
    psd_checkpointer_check_due(&p.head.job);
    ck_assert(!own->busy);
    p.head.job.center = NULL;
    free(center);
}
END_TEST

/* The other server has a center, which is not looked at, and writes checkpoints when the test says so. */
static struct psd_center *give_center_to_other(void)
{
    struct psd_center *center = make_center();
    p.head.job.center = NULL;
    p.other.job.center = center;
    p.other.job.center_whole = true;
    p.other.job.state = PSD_STATE_READY;
    return center;
}

static void order_checkpoint(void)
{
    Ps__Snapshot what = PS__SNAPSHOT__INIT;
    what.what = PSD_SAVE_NEWEST;
    psd_cluster_save(&p.head.cluster, &what, 0);
}

static void other_has_written(void)
{
    p.other.job.checkpointer.busy = false;
    psd_follower_saved(&p.other.cluster);
}

/* A slow disk: the next checkpoint is due before one is written. A change of the method would take the
 * vectors that are being written. */
/* A reload in vain ends between the change that a worker asked for and the worker's next message: rows. */
static const char *const refusals[] = {"", "server 1 cannot"};

START_TEST(a_worker_is_told_of_the_change_that_it_asked_for)
{
    struct psd_job *job = &p.head.job;
    struct psd_session *s = &p.head.sessions.slots[0];
    struct ps_error err = {""}, warning;
    Ps__SetMethod m = PS__SET_METHOD__INIT;
    char lines[] = "learning_rate=0.5";
    m.number = 1;
    m.lines = lines;
    s->state = PSD_SESSION_ACTIVE;
    s->incarnation = 1;
    job->reload.layers.base = p.head.cfg;
    ck_assert_msg(psd_config_settle(&p.head.cfg, &err, &warning) == 0, "%s", err.text);
    psd_take_set_method(&p.head.control, s, &m);
    ck_assert_msg(job->method_change.phase == PSD_METHOD_CHANGE_ASKING, "%s", s->request.refused);
    psd_method_change_tried(job, _i == 0 ? NULL : refusals[_i]);
    ck_assert_int_eq(job->method_change.phase, PSD_METHOD_CHANGE_NONE);
    ck_assert_int_lt(psd_reload(job, &err), 0); /* the fixture has no file that says so many servers */
    psd_take_set_method(&p.head.control, s, &m);
    ck_assert(s->request.done);
    ck_assert_str_eq(s->request.refused, refusals[_i]);
}
END_TEST

START_TEST(a_server_that_still_writes_has_not_saved)
{
    struct psd_center *center = give_center_to_other();
    struct ps_error err = {""};
    order_checkpoint();
    assert_told(PSD_COMMAND_SNAPSHOT, 0);
    order_checkpoint();
    pair_pass_ms(&p, 1000);
    ck_assert(p.other.job.checkpointer.busy);
    ck_assert(!psd_cluster_has_saved(&p.head.cluster));
    other_has_written();
    PAIR_WHILE(&p, !psd_cluster_has_saved(&p.head.cluster), "the head does not hear that it has written");
    ck_assert_int_eq(psd_cluster_check_saved(&p.head.cluster, &err), -EIO);
    ck_assert_msg(strstr(err.text, "the previous one was still being written") != NULL, "%s", err.text);
    order_checkpoint();
    assert_told(PSD_COMMAND_SNAPSHOT, 0);
    other_has_written();
    PAIR_WHILE(&p, !psd_cluster_has_saved(&p.head.cluster), "the head does not hear of the next one");
    ck_assert_int_eq(psd_cluster_check_saved(&p.head.cluster, &err), 0);
    p.other.job.center = NULL;
    free(center);
}
END_TEST

/* It missed an order, and may still write what was ordered before. */
START_TEST(a_server_that_is_back_is_not_waited_for)
{
    struct psd_center *center = give_center_to_other();
    struct ps_error err = {""};
    center->admission = psd_admission_find("fcfs");
    p.head.job.center = center;
    order_checkpoint();
    assert_told(PSD_COMMAND_SNAPSHOT, 0);
    lose_server();
    order_checkpoint();
    set_silence(3600);
    pair_stand(&p, false);
    find_place();
    pair_pass_ms(&p, 1000);
    ck_assert(psd_cluster_has_saved(&p.head.cluster));
    ck_assert_int_eq(psd_method_change_try(&p.other.job, "", 1, &err), -EBUSY);
    ck_assert_msg(strstr(err.text, "is still being written") != NULL, "%s", err.text);
    p.head.job.center = p.other.job.center = NULL;
    free(center);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-cluster");
    TCase *c = tcase_create("wire");
    tcase_add_checked_fixture(c, open_pair, close_pair);
    tcase_add_test(c, a_lost_order_is_said_again);
    tcase_add_test(c, a_lost_note_of_a_lane_is_said_again);
    tcase_add_loop_test(c, everything_arrives_once_and_in_order, 1, 5);
    tcase_add_test(c, a_cut_connection_costs_no_place);
    tcase_add_test(c, a_server_that_stood_still_beyond_silence_finds_its_place_again);
    tcase_add_test(c, news_of_a_place_that_is_gone_count_for_nothing);
    tcase_add_test(c, totals_do_not_fall_when_a_server_comes_back);
    tcase_add_test(c, orders_of_a_place_that_it_has_not_heard_of_come_once);
    tcase_add_test(c, a_head_that_slept_loses_nobody);
    tcase_add_test(c, a_server_that_stands_still_silences_nobody);
    tcase_add_test(c, an_enlist_that_was_said_to_another_head_is_passed_by);
    suite_add_tcase(suite, c);
    c = tcase_create("proof");
    tcase_add_checked_fixture(c, open_pair, close_pair);
    tcase_add_test(c, a_server_of_the_job_outlives_a_munged_that_fails);
    suite_add_tcase(suite, c);
    c = tcase_create("drain");
    tcase_add_checked_fixture(c, open_pair, close_pair);
    tcase_add_loop_test(c, the_last_checkpoint_waits_for_no_server_that_is_lost, 0, ROWS(ends));
    tcase_add_test(c, a_job_that_goes_on_waits_for_the_lost_servers_lanes);
    tcase_add_test(c, a_server_without_its_head_waits_for_no_round);
    tcase_add_test(c, a_checkpoint_of_version_0_is_one_that_all_have);
    tcase_add_test(c, what_only_another_server_has_is_saved_when_it_is_due);
    tcase_add_test(c, a_server_that_still_writes_has_not_saved);
    tcase_add_test(c, a_server_that_is_back_is_not_waited_for);
    suite_add_tcase(suite, c);
    c = tcase_create("change");
    tcase_add_checked_fixture(c, open_pair, close_pair);
    tcase_add_loop_test(c, a_worker_is_told_of_the_change_that_it_asked_for, 0, ROWS(refusals));
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
