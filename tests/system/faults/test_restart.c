/* psd dies and comes back, elsewhere, with or without its checkpoint; and what keeps it from starting. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/proxy.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/suite.h"

enum { FLOATS = 200003, WORKERS = 2, HEARTBEAT_MS = 250, LONG_BEAT_MS = 10000, WAIT_S = 60 };

static const char *const settings[] = {"method=async-sgd",
                                       "parameters.learning_rate=1",
                                       "parameters.schedule.warmup_steps=0",
                                       "limits.silence_s=120",
                                       "checkpoint.every_s=0",
                                       "chunk_floats=16384",
                                       NULL};

static void start(struct daemon *d)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void start_crew(const struct daemon *d, struct crew_worker *crew, int n, uint32_t heartbeat_ms)
{
    for (int i = 0; i < n; i++) {
        struct crew_task task = {.server = d->endpoint,
                                 .rank = i,
                                 .floats = FLOATS,
                                 .heartbeat_ms = heartbeat_ms,
                                 .retry_ms = 500,
                                 .pause_s = 0.01,
                                 .salt = (uint32_t)i};
        crew_start(&crew[i], &task); /* one after the other, in every job alike */
        ck_assert_msg(crew_joined(&crew[i], WAIT_S), "worker %d: %s", i, crew[i].page->error);
    }
}

static void go_on(const struct crew_worker *crew, int n, uint64_t exchanges)
{
    uint64_t want[8];
    for (int i = 0; i < n; i++)
        want[i] = crew[i].page->exchanges + exchanges;
    for (int i = 0; i < n; i++)
        ck_assert_msg(crew_reaches(&crew[i], want[i], WAIT_S), "rank %d ended or stands still: %s (%s)",
                      crew[i].page->rank, psc_result_name(crew[i].page->rc), crew[i].page->error);
}

static uint64_t completed(const struct crew_worker *crew, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += crew[i].page->exchanges;
    return sum;
}

static int listen_on(uint16_t port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_ANY); /* whichever psd's is */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 1) != 0) {
        ck_assert(port != 0 && errno == EADDRINUSE);
        return fd; /* somebody else was quicker: it is taken all the same */
    }
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    return fd;
}

static uint16_t port_of(const struct daemon *d)
{
    char url[200];
    ck_assert(daemon_text(d, "/status", "listen", url, sizeof url));
    return proxy_port(url);
}

/* kill -9, and a psd on another port: the old one is taken. */
static void restart_elsewhere(struct daemon *d, const char *extra)
{
    uint16_t old = port_of(d);
    daemon_stop(d, SIGKILL, WAIT_S);
    int fd = listen_on(old);
    ck_assert_int_eq(daemon_start(d, extra), 0);
    ck_assert_uint_ne(port_of(d), old);
    close(fd);
}

/* The checkpoint holds the versions up to now; `lost` are completed after it. */
struct loss {
    uint64_t after; /* exchanges completed at the kill */
    double version; /* of the checkpoint */
};

static struct loss lose(struct daemon *d, const struct crew_worker *crew, uint64_t keep, uint64_t lost)
{
    struct loss l;
    go_on(crew, WORKERS, keep);
    ck_assert(daemon_checkpoint(d, WAIT_S));
    l.version = daemon_number(d, "/status", "checkpoint.last_version");
    go_on(crew, WORKERS, lost);
    restart_elsewhere(d, "--resume");
    l.after = completed(crew, WORKERS);
    return l;
}

/* psd tells what workers have seen, which may have what others had on the way, and the exchanges that its end
 * has interrupted: beyond those that were completed, both are at most one for each worker. */
static void assert_lost(const struct daemon *d, uint64_t least, uint64_t most)
{
    double lost = daemon_number(d, "/status", "center.lost_updates");
    ck_assert_msg(lost >= (double)least && lost <= (double)most, "%.0f lost updates; expected %lu to %lu",
                  lost, (unsigned long)least, (unsigned long)most);
}

START_TEST(a_killed_psd_resumes_elsewhere)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    char path[400], newest[400];
    start(&d);
    start_crew(&d, crew, WORKERS, HEARTBEAT_MS);
    struct loss first = lose(&d, crew, 20, 60);
    go_on(crew, WORKERS, 5);
    ck_assert(daemon_text(&d, "/status", "center.resumed_from", path, sizeof path));
    ck_assert_msg(strstr(path, "/checkpoints/center-") != NULL, "%s", path);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.resumed_version"), first.version);
    ck_assert(daemon_text(&d, "/status", "checkpoint.last_path", newest, sizeof newest));
    ck_assert_str_eq(newest, path);
    ck_assert_double_eq(daemon_number(&d, "/status", "checkpoint.last_version"), first.version);
    ck_assert_double_gt(daemon_number(&d, "/status", "checkpoint.last_unix_s"), 1.7e9);
    ck_assert_uint_eq(daemon_logged(&d, "session.revived"), WORKERS);
    /* The two counts were read while workers ran: each may have moved by some exchanges meanwhile. */
    assert_lost(&d, 2 * 60 - 10, first.after - (uint64_t)first.version + 2 * WORKERS);

    /* Once more: what the first life lost is not counted again. */
    uint64_t gone = (uint64_t)daemon_number(&d, "/status", "center.lost_updates");
    struct loss second = lose(&d, crew, 5, 5);
    go_on(crew, WORKERS, 5);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.resumed_version"), second.version);
    assert_lost(&d, 1, second.after - gone - (uint64_t)second.version + 2 * WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        ck_assert(crew_stop(&crew[i], WAIT_S));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "%s", crew[i].page->error);
        ck_assert_uint_ge(crew[i].page->info.reconnects, 2);
    }
    daemon_remove(&d);
}
END_TEST

/* What a client with this session hears when it says Hello on a connection of its own. */
static uint64_t hear_of_revival(const struct daemon *d, const struct hand *was)
{
    Ps__Hello hello = PS__HELLO__INIT;
    struct hand h;
    hand_open(&h, d->endpoint);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)"hand";
    hello.client = was->client;
    hello.incarnation = was->incarnation;
    hello.manifest_hash = was->manifest_hash;
    hand_tell(&h, PS__TO_SERVER__WHAT_HELLO, &hello);
    Ps__ToClient *m = hand_hear(&h, TEST_HANG_S);
    ck_assert(m != NULL && m->what_case == PS__TO_CLIENT__WHAT_WELCOME && m->welcome->resumed);
    uint64_t revival = m->welcome->revival;
    ps_control_free_to_client(m);
    hand_close(&h);
    return revival;
}

/* The first answer may be lost with its connection; a worker that does not learn that its chunks are lost
 * would keep a round waiting for ever. */
START_TEST(a_client_that_says_hello_twice_hears_twice_of_the_restart)
{
    struct daemon d;
    struct hand h;
    static float x[FLOATS];
    start(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_EXCHANGE, x, x), 0);
    ck_assert_uint_eq(hear_of_revival(&d, &h), 0);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    restart_elsewhere(&d, "--resume");
    uint64_t first = hear_of_revival(&d, &h);
    ck_assert_uint_ne(first, 0);
    ck_assert_uint_eq(hear_of_revival(&d, &h), first);
    restart_elsewhere(&d, "--resume");
    ck_assert_uint_ne(hear_of_revival(&d, &h), first);
    hand_close(&h);
    daemon_remove(&d);
}
END_TEST

static void say_hello(struct hand *h, const struct hand *was, uint64_t barrier)
{
    Ps__Hello hello = PS__HELLO__INIT;
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)"hand";
    hello.client = was->client;
    hello.incarnation = was->incarnation;
    hello.manifest_hash = was->manifest_hash;
    hello.barrier = barrier;
    ck_assert_int_eq(hand_hello(h, &hello), 0); /* what comes next is the Welcome */
    ck_assert(h->resumed);
}

/* Continues the session at the restarted psd, with the barriers that it has behind it. */
static void come_back(const struct daemon *d, struct hand *h, uint64_t barrier)
{
    struct hand was = *h;
    hand_close(h);
    hand_open(h, d->endpoint);
    h->incarnation = 0;
    say_hello(h, &was, barrier);
    ck_assert_uint_eq(h->incarnation, was.incarnation);
    h->manifest_hash = was.manifest_hash;
}

static void ask_for_barrier(struct hand *h, uint64_t number)
{
    Ps__Barrier barrier = PS__BARRIER__INIT;
    barrier.client = h->client;
    barrier.incarnation = h->incarnation;
    barrier.number = number;
    hand_tell(h, PS__TO_SERVER__WHAT_BARRIER, &barrier);
}

/* Returns the barrier that is passed. */
static uint64_t assert_done(struct hand *h, uint64_t number)
{
    Ps__ToClient *m = hand_hear(h, TEST_HANG_S);
    while (m != NULL && m->what_case == PS__TO_CLIENT__WHAT_SAVE) { /* of the checkpoint */
        ps_control_free_to_client(m);
        m = hand_hear(h, TEST_HANG_S);
    }
    ck_assert_msg(m != NULL, "rank %u waits at its barrier %lu", h->client, (unsigned long)number);
    ck_assert_int_eq(m->what_case, PS__TO_CLIENT__WHAT_DONE);
    ck_assert_uint_eq(m->done->number, number);
    uint64_t barrier = m->done->barrier;
    ps_control_free_to_client(m);
    return barrier;
}

static void start_two(struct daemon *d, struct hand *a, struct hand *b)
{
    start(d);
    ck_assert_int_eq(hand_join(a, d->endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_join(b, d->endpoint, FLOATS), 0);
    ck_assert(daemon_checkpoint(d, WAIT_S));
}

/* psd dies when it has answered one of two. That one does not ask again: it computes. */
START_TEST(who_missed_the_answer_of_a_barrier_gets_it_after_a_restart)
{
    struct daemon d;
    struct hand a, b;
    start_two(&d, &a, &b);
    ask_for_barrier(&a, 1);
    ask_for_barrier(&b, 1);
    uint64_t first = assert_done(&a, 1), second;
    restart_elsewhere(&d, "--resume");
    come_back(&d, &b, 1);
    come_back(&d, &a, first);
    ask_for_barrier(&b, 1);
    ck_assert_uint_eq(assert_done(&b, 1), first);
    restart_elsewhere(&d, "--resume"); /* the same, but the other one is at the next barrier already */
    come_back(&d, &b, 1);
    ask_for_barrier(&b, 1);
    come_back(&d, &a, first);
    ask_for_barrier(&a, 2);
    ck_assert_uint_eq(assert_done(&b, 1), first);
    ask_for_barrier(&b, 2);
    second = assert_done(&b, 2);
    ck_assert_uint_gt(second, first);
    ck_assert_uint_eq(assert_done(&a, 2), second);
    hand_close(&a);
    hand_close(&b);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_barrier_waits_for_those_who_may_come_back)
{
    struct daemon d;
    struct hand a, b;
    start_two(&d, &a, &b);
    restart_elsewhere(&d, "--resume");
    come_back(&d, &b, 1);
    ask_for_barrier(&b, 1);
    say_hello(&b, &b, 1);
    come_back(&d, &a, 1);
    ask_for_barrier(&a, 1);
    ck_assert_uint_eq(assert_done(&a, 1), assert_done(&b, 1));
    hand_close(&a);
    hand_close(&b);
    daemon_remove(&d);
}
END_TEST

/* A worker joins while another is awaited that knows of barriers that psd does not; then psd dies when it has
 * answered one of the two. */
START_TEST(who_joined_while_others_were_awaited_gets_the_answer_too)
{
    struct daemon d;
    struct hand a, b, c, late;
    start_two(&d, &a, &b);
    ask_for_barrier(&a, 1);
    ask_for_barrier(&b, 1);
    uint64_t first = assert_done(&a, 1), second, of_late;
    restart_elsewhere(&d, "--resume");
    come_back(&d, &b, first);
    ck_assert_int_eq(hand_join(&c, d.endpoint, FLOATS), 0); /* rank 0 is awaited */
    come_back(&d, &a, first);
    ask_for_barrier(&a, 2);
    ask_for_barrier(&b, 2);
    ask_for_barrier(&c, 1);
    second = assert_done(&a, 2);
    ck_assert_int_eq(hand_join(&late, d.endpoint, FLOATS), 0);
    of_late = late.barrier;
    restart_elsewhere(&d, "--resume");
    come_back(&d, &c, c.barrier);
    come_back(&d, &late, of_late);
    come_back(&d, &b, first);
    come_back(&d, &a, second);
    ask_for_barrier(&late, 1);
    ask_for_barrier(&c, 1);
    ask_for_barrier(&b, 2);
    ck_assert_uint_eq(assert_done(&c, 1), second);
    ck_assert_uint_eq(assert_done(&b, 2), second);
    say_hello(&late, &late, of_late); /* waits for the next: nothing comes before this Welcome */
    ask_for_barrier(&a, 3);
    ask_for_barrier(&b, 3);
    ask_for_barrier(&c, 2);
    ck_assert_uint_gt(assert_done(&late, 1), second);
    hand_close(&a);
    hand_close(&b);
    hand_close(&c);
    hand_close(&late);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_psd_that_forgot_says_so)
{
    struct daemon d;
    struct crew_worker crew[WORKERS], heir;
    start(&d);
    start_crew(&d, crew, WORKERS, HEARTBEAT_MS);
    go_on(crew, WORKERS, 10);
    restart_elsewhere(&d, NULL);
    for (int i = 0; i < WORKERS; i++) {
        ck_assert_msg(crew_ended(&crew[i], WAIT_S), "rank %d neither goes on nor ends", i);
        ck_assert_int_eq(crew[i].page->rc, PSC_EEVICTED);
        ck_assert_msg(strstr(crew[i].page->error, "started without --resume") != NULL, "%s",
                      crew[i].page->error);
        crew_stop(&crew[i], WAIT_S);
    }
    struct crew_task task = {.server = d.endpoint, .rank = 0, .floats = FLOATS, .count = 3};
    crew_start(&heir, &task);
    ck_assert(crew_stop(&heir, WAIT_S));
    ck_assert_int_eq(heir.page->rc, PSC_OK);
    daemon_remove(&d);
}
END_TEST

/* New workers of the new job have the old ones' ranks before these notice: nobody is mistaken for another. */
START_TEST(old_workers_do_not_take_over_new_ones)
{
    struct daemon d;
    struct crew_worker old[WORKERS], new[WORKERS];
    start(&d);
    start_crew(&d, old, WORKERS, HEARTBEAT_MS);
    go_on(old, WORKERS, 5);
    for (int i = 0; i < WORKERS; i++)
        crew_signal(&old[i], SIGSTOP);
    restart_elsewhere(&d, NULL);
    start_crew(&d, new, WORKERS, LONG_BEAT_MS); /* no slow answer makes them connect anew */
    go_on(new, WORKERS, 5);
    for (int i = 0; i < WORKERS; i++)
        crew_signal(&old[i], SIGCONT);
    for (int i = 0; i < WORKERS; i++) {
        ck_assert_msg(crew_ended(&old[i], WAIT_S), "the old rank %d goes on in a job that it never joined",
                      i);
        ck_assert_msg(old[i].page->rc == PSC_EEVICTED, "%s: %s", psc_result_name(old[i].page->rc),
                      old[i].page->error);
        crew_stop(&old[i], WAIT_S);
    }
    go_on(new, WORKERS, 5);
    ck_assert_uint_eq(daemon_logged(&d, "session.reconnected"), 0);
    for (int i = 0; i < WORKERS; i++) {
        ck_assert(crew_stop(&new[i], WAIT_S));
        ck_assert_msg(new[i].page->rc == PSC_OK, "%s", new[i].page->error);
    }
    daemon_remove(&d);
}
END_TEST

START_TEST(a_state_directory_has_one_psd)
{
    struct daemon d, second;
    start(&d);
    second = d;
    snprintf(second.log, sizeof second.log, "%s/log2", d.dir);
    snprintf(second.endpoint, sizeof second.endpoint, "@%s/endpoint2", d.dir);
    ck_assert_int_eq(daemon_run(&second, NULL, WAIT_S), 3);
    ck_assert_uint_eq(daemon_logged(&second, "in use by the psd with pid"), 1);
    ck_assert_double_eq(daemon_number(&d, "/status", "pid"), d.pid);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_port_that_is_taken_ends_psd)
{
    struct daemon d;
    char listen_url[64];
    struct sockaddr_in a;
    socklen_t size = sizeof a;
    int fd = listen_on(0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    snprintf(listen_url, sizeof listen_url, "listen=tcp://127.0.0.1:%u", ntohs(a.sin_port));
    const char *const taken[] = {listen_url, NULL};
    ck_assert_int_eq(daemon_prepare(&d, NULL, taken), 0);
    ck_assert_int_eq(daemon_run(&d, NULL, WAIT_S), 4);
    ck_assert_uint_eq(daemon_logged(&d, listen_url + strlen("listen=")), 1);
    ck_assert_int_ne(access(d.endpoint + 1, F_OK), 0);
    close(fd);
    daemon_remove(&d);
}
END_TEST

START_TEST(other_machines_are_not_invited)
{
    static const char *const open_to_all[] = {"listen=tcp://0.0.0.0:0", NULL};
    struct daemon d;
    ck_assert_int_eq(daemon_prepare(&d, NULL, open_to_all), 0);
    ck_assert_int_eq(daemon_run(&d, NULL, WAIT_S), 2);
    ck_assert_uint_eq(daemon_logged(&d, "insecure"), 1);
    daemon_remove(&d);
}
END_TEST

/* Flips a byte in the middle of the checkpoint. */
static void spoil(const char *path)
{
    struct stat st;
    char byte;
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(pread(fd, &byte, 1, st.st_size / 2), 1);
    byte = (char)(byte ^ 0x10);
    ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size / 2), 1);
    close(fd);
}

START_TEST(a_damaged_checkpoint_is_named_and_the_one_before_is_used)
{
    struct daemon d;
    struct crew_worker w;
    char older[400], newest[400], from[400];
    start(&d);
    start_crew(&d, &w, 1, HEARTBEAT_MS);
    go_on(&w, 1, 5);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    ck_assert(daemon_text(&d, "/status", "checkpoint.last_path", older, sizeof older));
    go_on(&w, 1, 5);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    ck_assert(daemon_text(&d, "/status", "checkpoint.last_path", newest, sizeof newest));
    ck_assert_str_ne(older, newest);
    crew_kill(&w);
    daemon_stop(&d, SIGKILL, WAIT_S);

    spoil(newest);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    ck_assert_uint_eq(daemon_logged(&d, "checkpoint.damaged"), 1);
    ck_assert_uint_ge(daemon_logged(&d, strrchr(newest, '/')), 2); /* written, and damaged */
    ck_assert(daemon_text(&d, "/status", "center.resumed_from", from, sizeof from));
    ck_assert_str_eq(from, older);
    daemon_stop(&d, SIGKILL, WAIT_S);

    spoil(older);
    ck_assert_int_eq(daemon_run(&d, "--resume", WAIT_S), 5);
    ck_assert_uint_eq(daemon_logged(&d, "none of 2 checkpoints is readable"), 1);
    daemon_remove(&d);
}
END_TEST

/* What it holds is neither deleted nor mixed with what comes. */
START_TEST(a_used_state_directory_is_resumed_or_set_aside)
{
    struct daemon d;
    struct crew_worker w;
    char aside[400], path[500], newest[400];
    start(&d);
    start_crew(&d, &w, 1, HEARTBEAT_MS);
    go_on(&w, 1, 5);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    ck_assert(daemon_text(&d, "/status", "checkpoint.last_path", newest, sizeof newest));
    ck_assert(crew_stop(&w, WAIT_S));
    daemon_stop(&d, SIGKILL, WAIT_S);

    ck_assert_int_eq(daemon_run(&d, NULL, WAIT_S), 3);
    ck_assert_uint_eq(daemon_logged(&d, "use --resume to resume from it, or --fresh to begin a new job"), 1);
    ck_assert_int_eq(access(newest, F_OK), 0);
    ck_assert_int_eq(daemon_start(&d, "--fresh"), 0);
    ck_assert(daemon_text(&d, "/status", "checkpoint.set_aside", aside, sizeof aside));
    double count = daemon_number(&d, "/status", "checkpoint.set_aside_checkpoints");
    double version = daemon_number(&d, "/status", "checkpoint.set_aside_newest");
    ck_assert_double_eq(count, 1);
    snprintf(path, sizeof path, "the %g previous checkpoints, the newest of version %g", count, version);
    ck_assert_uint_eq(daemon_logged(&d, path), 1);
    ck_assert_double_eq(version, strtod(strrchr(newest, '-') + 1, NULL));
    ck_assert_int_ne(access(newest, F_OK), 0);
    snprintf(path, sizeof path, "%s%s", aside, strrchr(newest, '/'));
    ck_assert_int_eq(access(path, F_OK), 0);
    start_crew(&d, &w, 1, HEARTBEAT_MS);
    for (int i = 0; i < 5; i++) {
        go_on(&w, 1, 1);
        ck_assert(daemon_checkpoint(&d, WAIT_S));
    }
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert(crew_stop(&w, WAIT_S));
    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0); /* the new job */
    ck_assert_double_ge(daemon_number(&d, "/status", "center.resumed_version"), 5);
    daemon_remove(&d);
}
END_TEST

/* The one that is slow to come back finds its place: a newcomer that takes any rank gets another. */
START_TEST(ranks_in_the_checkpoint_are_kept_for_their_workers)
{
    struct daemon d;
    struct crew_worker crew[WORKERS], newcomer;
    start(&d);
    start_crew(&d, crew, WORKERS, HEARTBEAT_MS);
    go_on(crew, WORKERS, 3);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    for (int i = 0; i < WORKERS; i++)
        crew_signal(&crew[i], SIGSTOP);
    restart_elsewhere(&d, "--resume");
    struct crew_task task = {.server = d.endpoint, .rank = -1, .floats = FLOATS, .salt = 9};
    crew_start(&newcomer, &task);
    ck_assert_msg(crew_joined(&newcomer, WAIT_S), "%s", newcomer.page->error);
    ck_assert_int_eq(newcomer.page->rank, WORKERS);
    for (int i = 0; i < WORKERS; i++)
        crew_signal(&crew[i], SIGCONT);
    go_on(crew, WORKERS, 3);
    ck_assert(crew_stop(&newcomer, WAIT_S));
    for (int i = 0; i < WORKERS; i++)
        ck_assert(crew_stop(&crew[i], WAIT_S));
    daemon_remove(&d);
}
END_TEST

/* A rank is kept for a worker that may come back, and not for one that was back and has left. */
START_TEST(the_rank_of_who_was_back_and_left_is_free)
{
    struct daemon d;
    struct hand a, b, heir;
    start_two(&d, &a, &b);
    restart_elsewhere(&d, "--resume");
    come_back(&d, &a, 1);
    uint32_t rank = a.client;
    ck_assert(hand_left(&a));
    ck_assert_int_eq(hand_join(&heir, d.endpoint, FLOATS), 0);
    ck_assert_uint_eq(heir.client, rank);
    hand_close(&a);
    hand_close(&b);
    hand_close(&heir);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_killed_psd_resumes_elsewhere,
        a_psd_that_forgot_says_so,
        a_client_that_says_hello_twice_hears_twice_of_the_restart,
        who_missed_the_answer_of_a_barrier_gets_it_after_a_restart,
        a_barrier_waits_for_those_who_may_come_back,
        who_joined_while_others_were_awaited_gets_the_answer_too,
        old_workers_do_not_take_over_new_ones,
        ranks_in_the_checkpoint_are_kept_for_their_workers,
        the_rank_of_who_was_back_and_left_is_free,
        a_state_directory_has_one_psd,
        a_port_that_is_taken_ends_psd,
        other_machines_are_not_invited,
        a_used_state_directory_is_resumed_or_set_aside,
        a_damaged_checkpoint_is_named_and_the_one_before_is_used,
    };
    return suite_run("restart", tests, sizeof tests / sizeof *tests, 500);
}
