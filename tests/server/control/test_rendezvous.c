/* Where members of a ring meet: who is told what, and what peers cannot do. */
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "proto/wire/control.h"
#include "server/control/rendezvous.h"
#include "server/psd.h"
#include "tests/support/unit.h"

enum { PEERS = 2100 };

/* What each peer was told last. */
struct told {
    unsigned mets, refusals;
    uint32_t rank, code;
    size_t n_members;
    char members[400]; /* "address/nonce " of each, by rank */
    char sentence[512];
};

static struct told told[PEERS];
static struct psd_rendezvous table;

static uint32_t index_of(const struct psd_peer *peer)
{
    uint32_t i;
    ck_assert_uint_eq(peer->id_bytes, sizeof i);
    memcpy(&i, peer->id, sizeof i);
    return i;
}

static void met(void *arg, const struct psd_peer *peer, const Ps__Met *m)
{
    struct told *t = &((struct told *)arg)[index_of(peer)];
    size_t used = 0;
    t->mets++;
    t->rank = m->rank;
    t->n_members = m->n_members;
    t->members[0] = 0;
    for (size_t i = 0; i < m->n_members && used < sizeof t->members; i++)
        used += (size_t)snprintf(t->members + used, sizeof t->members - used, "%s/%u ",
                                 m->members[i]->address, (unsigned)m->members[i]->nonce);
}

static void refuse(void *arg, const struct psd_peer *peer, uint32_t code, const char *sentence)
{
    struct told *t = &((struct told *)arg)[index_of(peer)];
    t->refusals++;
    t->code = code;
    snprintf(t->sentence, sizeof t->sentence, "%s", sentence);
}

static void setup(void)
{
    memset(told, 0, sizeof told);
    table = (struct psd_rendezvous){.voice = {met, refuse, told}};
}

static void teardown(void)
{
    psd_rendezvous_finish(&table);
    ck_assert_uint_eq(table.n, 0);
    ck_assert_uint_eq(table.n_places, 0);
}

/* Peer i says Meet: address "a<i>", nonce 10 i, token i + 1. rank -1: any. */
static Ps__Meet meet_of(uint32_t i, const char *clique, uint32_t members, int rank)
{
    static char addresses[PEERS][16];
    Ps__Meet m = PS__MEET__INIT;
    snprintf(addresses[i], sizeof addresses[i], "a%u", i);
    m.clique = (char *)(uintptr_t)clique;
    m.members = members;
    m.any_rank = rank < 0;
    m.rank = rank < 0 ? 0 : (uint32_t)rank;
    m.address = addresses[i];
    m.nonce = 10 * i;
    m.token = i + 1;
    m.wait_ms = 3000;
    return m;
}

static void take_request(uint32_t i, const Ps__Meet *m, uint64_t now_ms)
{
    struct psd_peer peer = {.id = (const unsigned char *)&i, .id_bytes = sizeof i, .address = "host"};
    psd_rendezvous_take(&table, &peer, m, now_ms);
}

static void say(uint32_t i, const char *clique, uint32_t members, int rank, uint64_t now_ms)
{
    Ps__Meet m = meet_of(i, clique, members, rank);
    take_request(i, &m, now_ms);
}

START_TEST(all_are_told_of_all_when_the_last_has_come)
{
    say(0, "x", 3, -1, 0); /* the lowest that nobody asked for is 1 */
    say(1, "x", 3, 0, 1);
    ck_assert_uint_eq(told[0].mets + told[1].mets, 0);
    say(2, "x", 3, 2, 2);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(told[i].mets, 1);
        ck_assert_uint_eq(told[i].refusals, 0);
        ck_assert_str_eq(told[i].members, "a1/10 a0/0 a2/20 ");
    }
    ck_assert_uint_eq(told[0].rank, 1);
    ck_assert_uint_eq(told[1].rank, 0);
    ck_assert_uint_eq(told[2].rank, 2);
}
END_TEST

START_TEST(names_keep_cliques_apart)
{
    say(0, "x", 2, -1, 0);
    say(1, "y", 2, -1, 0);
    say(2, "z", 1, -1, 0);
    ck_assert_uint_eq(told[0].mets + told[1].mets, 0);
    ck_assert_uint_eq(told[2].mets, 1);
    say(3, "y", 2, -1, 0);
    ck_assert_uint_eq(told[0].mets, 0);
    ck_assert_str_eq(told[1].members, "a1/10 a3/30 ");
    ck_assert_str_eq(told[3].members, "a1/10 a3/30 ");
}
END_TEST

/* The answer may get lost: it is given again, and also where the member speaks from now. */
START_TEST(who_asks_again_counts_once_and_is_answered_again)
{
    Ps__Meet m = meet_of(0, "x", 2, -1);
    take_request(0, &m, 0);
    take_request(0, &m, 1000);
    take_request(7, &m, 2000); /* a new connection of the same member */
    ck_assert_uint_eq(told[0].mets, 0);
    say(1, "x", 2, -1, 2500);
    ck_assert_uint_eq(told[0].mets, 0);
    ck_assert_uint_eq(told[7].mets, 1);
    ck_assert_uint_eq(told[1].mets, 1);
    say(1, "x", 2, -1, 3000);
    ck_assert_uint_eq(told[1].mets, 2);
    ck_assert_uint_eq(told[7].mets, 1);
    ck_assert_uint_eq(told[1].rank, 1);
}
END_TEST

START_TEST(a_name_can_meet_again)
{
    say(0, "x", 2, -1, 0);
    say(1, "x", 2, -1, 0);
    say(2, "x", 3, -1, 100); /* the next job, of another size */
    ck_assert_uint_eq(told[2].mets + told[2].refusals, 0);
    say(3, "x", 3, -1, 100);
    say(4, "x", 3, -1, 100);
    ck_assert_str_eq(told[2].members, "a2/20 a3/30 a4/40 ");
}
END_TEST

START_TEST(members_that_disagree_are_named_both)
{
    say(0, "x", 3, 1, 0);
    say(1, "x", 4, -1, 0);
    ck_assert_uint_eq(told[1].code, PS__CODE__CLIQUE);
    ck_assert_str_eq(told[1].sentence, "clique 'x': a0 says members: 3, a1 says 4");
    say(2, "x", 3, 1, 0);
    ck_assert_str_eq(told[2].sentence, "clique 'x': rank 1 is taken by a0; a2 also asks for it");
    Ps__Meet m = meet_of(9, "x", 3, 2);
    m.links = 2;
    take_request(9, &m, 0);
    ck_assert_str_eq(told[9].sentence, "clique 'x': a0 says links: 0, a9 says 2");
    m = meet_of(10, "x", 3, 2);
    m.segment_bytes = 4096;
    take_request(10, &m, 0);
    ck_assert_str_eq(told[10].sentence, "clique 'x': a0 says segment_bytes: 0, a10 says 4096");
    m = meet_of(3, "x", 3, 2);
    m.address = (char *)(uintptr_t) "a0";
    take_request(3, &m, 0);
    ck_assert_ptr_nonnull(strstr(told[3].sentence, "have the same address, a0"));
    m = meet_of(4, "x", 3, 2);
    take_request(0, &m, 0); /* from the connection of member 0 */
    ck_assert_ptr_nonnull(strstr(told[0].sentence, "one connection can be one member only"));
    /* Nobody of these took a place. */
    say(5, "x", 3, 0, 0);
    say(6, "x", 3, 2, 0);
    ck_assert_str_eq(told[0].members, "a5/50 a0/0 a6/60 ");
}
END_TEST

START_TEST(those_who_are_missing_are_named_at_the_deadline)
{
    say(0, "x", 5, 3, 0);
    say(1, "x", 5, -1, 1000); /* counts as rank 0 */
    say(2, "x", 4, -1, 1500); /* does not fit */
    say(0, "x", 5, 3, 2000);
    say(1, "x", 5, -1, 2000);
    psd_rendezvous_tick(&table, 2999);
    ck_assert_uint_eq(told[0].refusals + told[1].refusals, 0);
    psd_rendezvous_tick(&table, 3000);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(told[i].refusals, 1);
        ck_assert_uint_eq(told[i].code, PS__CODE__CLIQUE);
        ck_assert_str_eq(
            told[i].sentence,
            "clique 'x': 2 of 5 members connected within the 3.0 s that a0 waits; missing: ranks 1, 2, "
            "4; a0 says members: 5, a2 says 4");
    }
    ck_assert_uint_eq(table.n, 0);
}
END_TEST

START_TEST(many_that_are_missing_are_counted)
{
    say(0, "x", 1024, -1, 0);
    psd_rendezvous_tick(&table, 3000);
    ck_assert_ptr_nonnull(strstr(told[0].sentence, "missing: ranks 1, 2, 3,"));
    ck_assert_ptr_nonnull(strstr(told[0].sentence, ", 16 and 1007 more"));
}
END_TEST

START_TEST(who_is_silent_or_leaves_is_forgotten)
{
    Ps__Meet m = meet_of(0, "x", 3, 0);
    m.wait_ms = 60000;
    take_request(0, &m, 0);
    m = meet_of(1, "x", 3, 1);
    m.wait_ms = 60000;
    take_request(1, &m, 0);
    take_request(1, &m, PSD_MEETING_SILENCE_MS);
    psd_rendezvous_tick(&table, PSD_MEETING_SILENCE_MS + 1); /* 0 is gone, and its rank free */
    ck_assert_uint_eq(table.n_places, 1);
    m.leave = true;
    take_request(1, &m, PSD_MEETING_SILENCE_MS + 2);
    ck_assert_uint_eq(table.n, 0);
    for (uint32_t i = 2; i < 5; i++)
        say(i, "x", 3, (int)i - 2, PSD_MEETING_SILENCE_MS + 3);
    ck_assert_str_eq(told[4].members, "a2/20 a3/30 a4/40 ");
    ck_assert_uint_eq(told[0].mets + told[1].mets, 0);
    psd_rendezvous_tick(&table, 3 * PSD_MEETING_SILENCE_MS); /* what has met is forgotten too */
    ck_assert_uint_eq(table.n, 0);
    ck_assert_uint_eq(told[4].refusals, 0);
}
END_TEST

/* A member that crashed is started again while the first of it is not forgotten yet. */
START_TEST(a_late_one_gives_way_to_itself)
{
    say(0, "x", 2, 0, 0);
    say(1, "x", 2, 0, PSD_MEETING_SILENCE_MS / 2);
    ck_assert_ptr_nonnull(strstr(told[1].sentence, "rank 0 is taken by a0"));
    say(1, "x", 2, 0, PSD_MEETING_SILENCE_MS / 2 + 1);
    ck_assert_uint_eq(told[1].refusals, 1);
    say(2, "x", 2, 1, PSD_MEETING_SILENCE_MS / 2 + 2);
    ck_assert_str_eq(told[2].members, "a1/10 a2/20 ");
}
END_TEST

/* One field at a time out of its range. */
START_TEST(what_cannot_be_is_refused)
{
    char long_name[66], long_address[202];
    memset(long_name, 'n', sizeof long_name - 1), long_name[sizeof long_name - 1] = 0;
    memset(long_address, 'a', sizeof long_address - 1), long_address[sizeof long_address - 1] = 0;
    for (uint32_t i = 0; i < 12; i++) {
        Ps__Meet m = meet_of(i, "x", 3, 2);
        switch (i) {
        case 0:
            m.clique = (char *)(uintptr_t) "";
            break;
        case 1:
            m.clique = long_name;
            break;
        case 2:
            m.clique = (char *)(uintptr_t) "a\x1b[2J";
            break;
        case 3:
            m.members = 0, m.any_rank = true;
            break;
        case 4:
            m.members = 1025;
            break;
        case 5:
            m.rank = 3;
            break;
        case 6:
            m.address = (char *)(uintptr_t) "";
            break;
        case 7:
            m.address = long_address;
            break;
        case 8:
            m.address = (char *)(uintptr_t) "tcp://a b";
            break;
        case 9:
            m.token = 0;
            break;
        case 10:
            m.wait_ms = 0;
            break;
        default:
            m.wait_ms = UINT32_MAX;
        }
        take_request(i, &m, 0);
        ck_assert_msg(told[i].refusals == 1 && told[i].code == PS__CODE__MALFORMED, "case %u", i);
    }
    ck_assert_uint_eq(table.n, 0);
}
END_TEST

/* More names, and more members, than psd keeps: refused, and the others still meet. */
START_TEST(floods_end_at_the_bounds)
{
    char names[PSD_MEETINGS_MAX + 1][16];
    for (uint32_t i = 0; i <= PSD_MEETINGS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "flood-%u", i);
        say(i, names[i], 1000, -1, 0);
    }
    ck_assert_uint_eq(told[PSD_MEETINGS_MAX].code, PS__CODE__FULL);
    ck_assert_uint_eq(table.n, PSD_MEETINGS_MAX);
    for (uint32_t i = PSD_MEETINGS_MAX; i < PEERS; i++)
        say(i, names[i % PSD_MEETINGS_MAX], 1000, -1, 0);
    ck_assert_uint_eq(table.n_places, PSD_MEETING_PLACES_MAX);
    ck_assert_uint_eq(told[PEERS - 1].code, PS__CODE__FULL);
    psd_rendezvous_tick(&table, PSD_MEETING_SILENCE_MS + 1);
    ck_assert_uint_eq(table.n + table.n_places, 0);
    say(0, "x", 2, -1, 6000);
    say(1, "x", 2, -1, 6000);
    ck_assert_uint_eq(told[0].mets, 1);
}
END_TEST

static struct psd d;

static void open_control(void)
{
    struct ps_error err = {""};
    psd_config_defaults(&d.cfg);
    psd_wire(&d);
    ck_assert_int_eq(uv_loop_init(&d.loop), 0);
    ck_assert_msg(psd_control_open(&d.control, "", &err) == 0, "%s", err.text);
}

static void close_control(void)
{
    psd_control_close(&d.control);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&d.loop), 0);
}

/* Messages of one peer, which may be anybody, that have arrived and wait for the loop. */
START_TEST(a_peer_cannot_fill_the_memory_with_what_is_unread)
{
    int most = 0;
    size_t size = sizeof most;
    open_control();
    ck_assert_int_eq(zmq_getsockopt(d.sender.socket, ZMQ_RCVHWM, &most, &size), 0);
    ck_assert_int_gt(most, 0);
    ck_assert_int_le(most, (64 << 20) / (int)PS_CONTROL_MAX_BYTES);
    close_control();
}
END_TEST

/* A turn of the loop looks twice at the socket. */
START_TEST(a_peer_with_long_messages_leaves_the_loop_time)
{
    enum { MESSAGES = 4, BYTES = 1 << 20, ARRIVED_MS = 200 };
    static char bytes[BYTES];
    int linger_ms = 0;
    open_control();
    void *context = zmq_ctx_new(), *peer = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(peer, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    ck_assert_int_eq(zmq_connect(peer, d.control.url), 0);
    for (int i = 0; i < MESSAGES; i++)
        ck_assert_int_eq(zmq_send(peer, bytes, sizeof bytes, 0), BYTES);
    unit_nap_ms(ARRIVED_MS);
    const uint64_t *refused = &d.sender.rejected[PS__CODE__MALFORMED];
    for (double end = unit_now_s() + UNIT_HANG_S; *refused < MESSAGES && unit_now_s() < end; unit_nap_ms(1)) {
        uint64_t before = *refused;
        uv_run(&d.loop, UV_RUN_NOWAIT);
        ck_assert_uint_le(*refused - before, 2);
    }
    ck_assert_uint_eq(*refused, MESSAGES);
    zmq_close(peer);
    zmq_ctx_term(context);
    close_control();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-meeting");
    TCase *tc = tcase_create("meeting");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, all_are_told_of_all_when_the_last_has_come);
    tcase_add_test(tc, names_keep_cliques_apart);
    tcase_add_test(tc, who_asks_again_counts_once_and_is_answered_again);
    tcase_add_test(tc, a_name_can_meet_again);
    tcase_add_test(tc, members_that_disagree_are_named_both);
    tcase_add_test(tc, those_who_are_missing_are_named_at_the_deadline);
    tcase_add_test(tc, many_that_are_missing_are_counted);
    tcase_add_test(tc, who_is_silent_or_leaves_is_forgotten);
    tcase_add_test(tc, a_late_one_gives_way_to_itself);
    tcase_add_test(tc, what_cannot_be_is_refused);
    tcase_add_test(tc, floods_end_at_the_bounds);
    tcase_add_test(tc, a_peer_cannot_fill_the_memory_with_what_is_unread);
    tcase_add_test(tc, a_peer_with_long_messages_leaves_the_loop_time);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
