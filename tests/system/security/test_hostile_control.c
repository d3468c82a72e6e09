/* Control messages that are none or do not fit, bytes that are not ZeroMQ's, and floods. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/support/suite.h"
#include "tests/system/security/hostile_fixture.h"

static Ps__Hello hello_of(const char *name)
{
    Ps__Hello hello = PS__HELLO__INIT;
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)(uintptr_t)name;
    return hello;
}

/* On a connection of its own. */
static void assert_hello_refused(const struct siege *s, Ps__Hello hello, int code, const char *says)
{
    struct hand h;
    hand_open(&h, s->d.endpoint);
    int found = hand_hello(&h, &hello);
    ck_assert_msg(found == code && strstr(h.sentence, says) != NULL, "code %d, '%s'; expected %d and '%s'",
                  found, h.sentence, code, says);
    hand_close(&h);
}

START_TEST(hellos_that_do_not_fit)
{
    struct siege s;
    struct hand h;
    siege_start(&s);
    siege_join(&s, &h);
    Ps__Hello hello = hello_of("odd");
    hello.protocol = 2;
    assert_hello_refused(&s, hello, PS__CODE__VERSION, "protocol version 2; this psd speaks 1");
    hello = hello_of("thief");
    hello.any_rank = false;
    assert_hello_refused(&s, hello, PS__CODE__RANK_TAKEN, "rank 0 is taken");
    hello.rank = 5000;
    assert_hello_refused(&s, hello, PS__CODE__RANK_RANGE, "allowed are 0 to");
    hello = hello_of("ghost");
    hello.client = 7;
    hello.incarnation = 1;
    assert_hello_refused(&s, hello, PS__CODE__NO_SESSION, "no session");
    hello.client = UINT32_MAX;
    assert_hello_refused(&s, hello, PS__CODE__NO_SESSION, "no session");
    hello.client = 0; /* the honest worker's slot */
    hello.incarnation = h.incarnation + 1000;
    assert_hello_refused(&s, hello, PS__CODE__STALE, "is stale");
    ck_assert_uint_ge(daemon_logged(&s.d, "control.refused"), 6);
    hand_close(&h);
    siege_end(&s);
}
END_TEST

START_TEST(a_hello_said_twice_joins_once)
{
    struct siege s;
    struct hand first, second, third;
    Ps__Hello hello = hello_of("impatient");
    siege_start(&s);
    hello.any_rank = false;
    hello.rank = 3;
    hello.token = 0x1234567890abcdef;
    hand_open(&first, s.d.endpoint);
    ck_assert_int_eq(hand_hello(&first, &hello), 0);
    hand_open(&second, s.d.endpoint);
    ck_assert_int_eq(hand_hello(&second, &hello), 0);
    ck_assert_uint_eq(second.client, 3);
    ck_assert_uint_eq(second.incarnation, first.incarnation);
    hello.token++;
    hand_open(&third, s.d.endpoint);
    ck_assert_int_eq(hand_hello(&third, &hello), PS__CODE__RANK_TAKEN);
    ck_assert_double_eq(daemon_workers(&s.d), 2);
    hello.token--;
    hello.members = 1025; /* alpha is divided by them: psd counts at most 1024 of a worker */
    assert_hello_refused(&s, hello, PS__CODE__MALFORMED, "a clique of 1025 members");
    hello.client = first.client;
    hello.incarnation = first.incarnation;
    assert_hello_refused(&s, hello, PS__CODE__MALFORMED, "a clique of 1025 members");
    hand_close(&first);
    hand_close(&second);
    hand_close(&third);
    siege_end(&s);
}
END_TEST

/* Ten lines a second and one of what was left out. */
START_TEST(a_session_that_comes_again_and_again_does_not_fill_the_log)
{
    struct siege s;
    struct hand h;
    Ps__Hello hello = hello_of("flapping");
    siege_start(&s);
    hand_open(&h, s.d.endpoint);
    ck_assert_int_eq(hand_hello(&h, &hello), 0);
    hello.client = h.client;
    hello.incarnation = h.incarnation;
    double begin_s = test_now_s();
    for (int i = 0; i < 300; i++)
        ck_assert_int_eq(hand_hello(&h, &hello), 0);
    unsigned n = daemon_logged(&s.d, "session.reconnected"),
             most = 11 * (2 + (unsigned)(test_now_s() - begin_s));
    ck_assert_msg(n >= 1 && n <= most, "%u lines; at most %u", n, most);
    hand_close(&h);
    siege_end(&s);
}
END_TEST

/* What heartbeats say of a transport or of a clique changes a few times, or with each of them. */
START_TEST(heartbeats_do_not_fill_the_log)
{
    enum { BEATS = 300 };
    struct siege s;
    struct hand h;
    Ps__Hello hello = hello_of("changing");
    Ps__Heartbeat beat = PS__HEARTBEAT__INIT;
    char why[24];
    hello.members = BEATS + 1;
    siege_start(&s);
    hand_open(&h, s.d.endpoint);
    ck_assert_int_eq(hand_hello(&h, &hello), 0);
    beat.client = h.client;
    beat.incarnation = h.incarnation;
    beat.road = "tcp";
    beat.road_why = why;
    double begin_s = test_now_s();
    for (uint32_t i = BEATS; i > 0; i--) {
        snprintf(why, sizeof why, "reason %u", i);
        beat.members = i;
        hand_tell(&h, PS__TO_SERVER__WHAT_HEARTBEAT, &beat);
    }
    hello.client = h.client;
    hello.incarnation = h.incarnation;
    ck_assert_int_eq(hand_hello(&h, &hello), 0); /* psd has read them */
    ck_assert(daemon_will_log(&s.d, "clique.shrunk", TEST_HANG_S));
    unsigned roads = daemon_logged(&s.d, "session.road"), losses = daemon_logged(&s.d, "clique.shrunk"),
             most = 11 * (2 + (unsigned)(test_now_s() - begin_s));
    ck_assert_msg(roads >= 1 && roads <= 8, "%u lines of transports", roads);
    ck_assert_msg(losses >= 1 && losses <= most, "%u lines of losses; at most %u", losses, most);
    hand_close(&h);
    siege_end(&s);
}
END_TEST

/* One tensor at a time that psd must refuse, each from a new session, which it costs. */
START_TEST(manifests_that_do_not_fit)
{
    static char long_name[200];
    static uint64_t other[] = {SIEGE_FLOATS - 1}, nothing[] = {0}, huge[] = {UINT64_MAX, UINT64_MAX},
                    right[] = {SIEGE_FLOATS}, deep[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, SIEGE_FLOATS};
    static const struct {
        const char *name;
        uint64_t offset;
        uint64_t *shape;
        size_t n_shape;
        uint32_t role;
    } bad[] = {
        {"x", 0, other, 1, 0},   {"y", 0, right, 1, 0},       {"x", 16, right, 1, 0},
        {"x", 0, nothing, 1, 0}, {"x", 0, huge, 2, 0},        {"x", 0, deep, 10, 0},
        {"x", 0, right, 0, 0},   {"x", 0, right, 1, 9},       {long_name, 0, right, 1, 0},
        {"", 0, right, 1, 0},    {"\x1b[2J", 0, right, 1, 0},
    };
    struct siege s;
    siege_start(&s);
    memset(long_name, 'n', sizeof long_name - 1);
    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        struct hand h;
        Ps__Hello hello = hello_of("odd one");
        Ps__Begin begin = PS__BEGIN__INIT;
        Ps__Tensor tensor = PS__TENSOR__INIT, *list = &tensor;
        hand_open(&h, s.d.endpoint);
        ck_assert_int_eq(hand_hello(&h, &hello), 0);
        begin.client = h.client;
        begin.incarnation = h.incarnation;
        begin.tensors = &list;
        if (i < sizeof bad / sizeof *bad) { /* the last has no tensor at all */
            begin.n_tensors = 1;
            tensor.name = (char *)(uintptr_t)bad[i].name;
            tensor.offset = bad[i].offset;
            tensor.shape = bad[i].shape;
            tensor.n_shape = bad[i].n_shape;
            tensor.role = bad[i].role;
        }
        hand_tell(&h, PS__TO_SERVER__WHAT_BEGIN, &begin);
        ck_assert_msg(hand_hear_error(&h, TEST_HANG_S) == PS__CODE__MANIFEST, "manifest %zu was not refused",
                      i);
        ck_assert_uint_gt(strlen(h.sentence), 10);
        hand_close(&h);
    }
    ck_assert_double_eq(daemon_workers(&s.d), 1);
    siege_end(&s);
}
END_TEST

/* The first model of a job: names that a checkpoint could not hold. */
START_TEST(models_that_cannot_be_saved)
{
    static const char *const names[] = {"__metadata__", "psd.state.0", "\xff\xfe"};
    static uint64_t floats = 100;
    struct daemon d;
    ck_assert_int_eq(daemon_prepare(&d, NULL, NULL), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct hand h;
        Ps__Hello hello = hello_of("odd one");
        Ps__Begin begin = PS__BEGIN__INIT;
        Ps__Tensor tensor = PS__TENSOR__INIT, *list = &tensor;
        hand_open(&h, d.endpoint);
        ck_assert_int_eq(hand_hello(&h, &hello), 0);
        begin.client = h.client;
        begin.incarnation = h.incarnation;
        begin.tensors = &list;
        begin.n_tensors = 1;
        tensor.name = (char *)(uintptr_t)names[i];
        tensor.shape = &floats;
        tensor.n_shape = 1;
        hand_tell(&h, PS__TO_SERVER__WHAT_BEGIN, &begin);
        ck_assert_msg(hand_hear_error(&h, TEST_HANG_S) == PS__CODE__MANIFEST, "'%s' was not refused",
                      names[i]);
        hand_close(&h);
    }
    daemon_remove(&d);
}
END_TEST

START_TEST(messages_of_nobody)
{
    struct siege s;
    struct hand h, stranger;
    Ps__Heartbeat beat = PS__HEARTBEAT__INIT;
    Ps__Leave leave = PS__LEAVE__INIT;
    Ps__Begin begin = PS__BEGIN__INIT;
    siege_start(&s);
    siege_join(&s, &h);
    hand_open(&stranger, s.d.endpoint);
    beat.client = h.client;
    beat.incarnation = h.incarnation - 1;
    hand_tell(&stranger, PS__TO_SERVER__WHAT_HEARTBEAT, &beat);
    ck_assert_int_eq(hand_hear_error(&stranger, TEST_HANG_S), PS__CODE__STALE);
    beat.client = 999;
    hand_tell(&stranger, PS__TO_SERVER__WHAT_HEARTBEAT, &beat);
    ck_assert_int_eq(hand_hear_error(&stranger, TEST_HANG_S), PS__CODE__NO_SESSION);
    leave.client = h.client; /* the right name, from another connection */
    leave.incarnation = h.incarnation;
    hand_tell(&stranger, PS__TO_SERVER__WHAT_LEAVE, &leave);
    ck_assert_int_eq(hand_hear_error(&stranger, TEST_HANG_S), PS__CODE__NO_SESSION);
    begin.client = UINT32_MAX;
    hand_tell(&stranger, PS__TO_SERVER__WHAT_BEGIN, &begin);
    ck_assert_int_eq(hand_hear_error(&stranger, TEST_HANG_S), PS__CODE__NO_SESSION);
    hand_tell(&stranger, PS__TO_SERVER__WHAT__NOT_SET, NULL);
    ck_assert_int_eq(hand_hear_error(&stranger, TEST_HANG_S), PS__CODE__MALFORMED);
    ck_assert_double_eq(daemon_workers(&s.d), 2);
    hand_leave(&h);
    ck_assert(daemon_workers_become(&s.d, 1));
    hand_close(&stranger);
    hand_close(&h);
    siege_end(&s);
}
END_TEST

static const char *control_url(const struct siege *s, char *url, size_t size)
{
    ck_assert(daemon_text(&s->d, "/status", "listen", url, size));
    return url;
}

static int hear_bare(void *socket)
{
    char bytes[1024];
    int n = zmq_recv(socket, bytes, sizeof bytes, 0), code = -1;
    Ps__ToClient *m = n >= 0 ? ps_control_unpack_to_client(bytes, (size_t)n) : NULL;
    if (m != NULL && m->what_case == PS__TO_CLIENT__WHAT_ERROR && strlen(m->error->sentence) > 10)
        code = (int)m->error->code;
    if (m != NULL)
        ps_control_free_to_client(m);
    return code;
}

START_TEST(bytes_that_are_no_control_message)
{
    struct siege s;
    char url[200];
    uint64_t seed = 7;
    unsigned char bytes[400];
    siege_start(&s);
    void *context = zmq_ctx_new(), *socket = siege_socket(context, control_url(&s, url, sizeof url));
    ck_assert_int_ge(zmq_send(socket, "\x0a\xff", 2, 0), 0); /* a Hello that is cut short */
    ck_assert_int_eq(hear_bare(socket), PS__CODE__MALFORMED);
    ck_assert_int_ge(zmq_send(socket, "", 0, 0), 0);
    ck_assert_int_eq(hear_bare(socket), PS__CODE__MALFORMED);
    ck_assert_int_ge(zmq_send(socket, "a", 1, ZMQ_SNDMORE), 0);
    ck_assert_int_ge(zmq_send(socket, "b", 1, ZMQ_SNDMORE), 0);
    ck_assert_int_ge(zmq_send(socket, "c", 1, 0), 0);
    ck_assert_int_eq(hear_bare(socket), PS__CODE__MALFORMED);
    for (int n = 0; n < 2000; n++) {
        size_t len = siege_random(&seed) % sizeof bytes;
        for (size_t i = 0; i < len; i++)
            bytes[i] = (unsigned char)siege_random(&seed);
        bytes[0] = (unsigned char)(0x0a + 8 * (n % 6)); /* tags of ToServer's messages */
        ck_assert_int_ge(zmq_send(socket, bytes, len, 0), 0);
    }
    siege_holds(&s);
    zmq_close(socket);

    size_t bytes_max = (size_t)PS_CONTROL_MAX_BYTES + 1;
    char *large = calloc(1, bytes_max);
    socket = siege_socket(context, url);
    ck_assert_int_ge(zmq_send(socket, large, bytes_max, 0), 0);
    siege_holds(&s);
    zmq_close(socket);
    zmq_ctx_term(context);
    free(large);
    siege_end(&s);
}
END_TEST

/* Every line of psd's log is a JSON object with a sentence, whatever a peer calls itself. */
START_TEST(names_do_not_spoil_the_log)
{
    static const char *const names[] = {
        "\xff\xfe broken", "line\nbreak", "esc\x1b[2J", "\"quoted\\", "", "\xc3"};
    struct siege s;
    char *line = NULL;
    size_t room = 0;
    siege_start(&s);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct hand h;
        Ps__Hello hello = hello_of(names[i]);
        bool offer;
        hand_open(&h, s.d.endpoint);
        ck_assert_int_eq(hand_hello(&h, &hello), 0);
        ck_assert_int_eq(hand_begin(&h, SIEGE_FLOATS, &offer), 0);
        char *workers = daemon_ask(&s.d, "GET", "/workers");
        json_t *page = json_loads(workers, 0, NULL);
        ck_assert_ptr_nonnull(page);
        json_t *w = json_array_get(json_object_get(page, "workers"), 1);
        ck_assert_msg(json_is_string(json_object_get(w, "name")), "no name in %s", workers);
        json_decref(page);
        free(workers);
        hand_leave(&h);
        ck_assert(daemon_workers_become(&s.d, 1));
        hand_close(&h);
    }
    unsigned joined = 0;
    FILE *f = fopen(s.d.log, "re");
    while (getline(&line, &room, f) >= 0) {
        json_t *o = json_loads(line, 0, NULL);
        ck_assert_msg(json_is_object(o) && json_is_string(json_object_get(o, "msg")), "a log line is '%s'",
                      line);
        joined += strcmp(json_string_value(json_object_get(o, "event")), "session.joined") == 0;
        json_decref(o);
    }
    ck_assert_uint_eq(joined, sizeof names / sizeof *names);
    fclose(f);
    free(line);
    siege_end(&s);
}
END_TEST

static int connect_to(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void put(int fd, const void *bytes, size_t n)
{
    if (send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* psd has had enough of it: fine */
}

/* Before and within ZeroMQ's handshake: noise, silence, and a frame of 2^63 bytes. */
START_TEST(bytes_that_are_not_zeromq)
{
    static const unsigned char greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    static const unsigned char ready[] = "\x04\x26\x05READY\x0bSocket-Type\0\0\0\x06"
                                         "DEALER\x08Identity\0\0\0\0";
    static const unsigned char long_frame[] = {0x02, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3};
    enum { ROUNDS = 12, KINDS = 6 };
    struct siege s;
    uint16_t ports[1 + SIEGE_LANES];
    int fds[ROUNDS * KINDS * (1 + SIEGE_LANES)], n = 0;
    uint64_t seed = 99;
    unsigned char noise[4096];
    siege_start(&s);
    siege_ports(&s, ports);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)siege_random(&seed);
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int p = 0; p < 1 + SIEGE_LANES; p++) {
                int fd = fds[n++] = connect_to(ports[p]); /* kind 0 says nothing, ever */
                if (kind == 1)
                    put(fd, noise + round, sizeof noise - (size_t)round);
                if (kind == 2)
                    put(fd, greeting, (size_t)(1 + round * 5)); /* half a greeting, then nothing */
                if (kind == 3)
                    put(fd, "GET / HTTP/1.1\r\n\r\n", 18);
                if (kind >= 4)
                    put(fd, greeting, sizeof greeting);
                if (kind == 4)
                    put(fd, noise, sizeof noise);
                if (kind == 5) {
                    put(fd, ready, sizeof ready - 1);
                    put(fd, long_frame, sizeof long_frame);
                }
            }
    siege_holds(&s);
    for (int i = 0; i < n; i++)
        close(fds[i]);
#ifndef __SANITIZE_ADDRESS__
    ck_assert_uint_lt(daemon_resident_bytes(s.d.pid), s.rss_bytes + (32u << 20));
#endif
    siege_end(&s);
}
END_TEST

/* A process that sends as fast as it can and reads nothing. */
static pid_t flood(const char *url, const void *bytes, size_t n, bool two_parts)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    void *socket = siege_socket(zmq_ctx_new(), url);
    for (;;) {
        zmq_send(socket, bytes, n, two_parts ? ZMQ_SNDMORE : 0);
        if (two_parts)
            zmq_send(socket, bytes, n, 0);
    }
}

/* Both have come through, more of each than the log takes in a second: so much it has said. */
static bool floods_are_felt(const struct siege *s)
{
    return daemon_number(&s->d, "/status", "center.updates_rejected") > 1000 &&
           daemon_logged(&s->d, "control.refused\",\"msg\":\"control socket: ") > 0 &&
           daemon_logged(&s->d, "data.refused\",\"msg\":\"lane 0: ") > 0;
}

START_TEST(floods_drown_neither_the_log_nor_psd)
{
    enum { LINES_A_SECOND = 10 };
    struct siege s;
    struct hand h;
    char url[200], lane[320];
    siege_start(&s);
    siege_join(&s, &h);
    snprintf(lane, sizeof lane, "%s", h.urls[0]);
    ck_assert(hand_left(&h));
    hand_close(&h);
    control_url(&s, url, sizeof url);
    double begin = test_now_s();
    pid_t floods[] = {flood(url, "rubbish", 7, false), flood(lane, "rubbish", 7, true)};
    while (!floods_are_felt(&s)) {
        ck_assert_msg(test_now_s() < begin + test_slow_s(TEST_HANG_S), "it is no flood");
        siege_holds(&s); /* /status, too, answers */
    }
    siege_holds(&s);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(waitpid(floods[i], NULL, WNOHANG), 0); /* it went on all the time */
        kill(floods[i], SIGKILL);
        waitpid(floods[i], NULL, 0);
    }
    /* The clock is read last: whatever psd had not read by then is in neither number. */
    unsigned lines = daemon_logged(&s.d, "refused");
    double took = test_now_s() - begin;
    ck_assert_msg(lines >= 2 && lines <= 2 * (LINES_A_SECOND + 1) * (took + 2), "%u lines in %.1f s", lines,
                  took);
    siege_end(&s);
}
END_TEST

/* Each of n meets in a clique of its own; how many psd has no room for. It forgets who is silent for 5 s: on
 * a machine where this takes longer, fewer than there are too many. */
static unsigned flood_with_names(struct hand *hands, size_t n)
{
    unsigned full = 0;
    char name[16];
    for (size_t i = 0; i < n; i++) {
        Ps__Meet meet = PS__MEET__INIT;
        snprintf(name, sizeof name, "flood-%zu", i);
        meet.protocol = PS_PROTOCOL_VERSION, meet.members = 1024, meet.wait_ms = 3600000, meet.token = 1 + i;
        meet.clique = name, meet.address = (char *)"tcp://a:1";
        hand_tell(&hands[i], PS__TO_SERVER__WHAT_MEET, &meet);
        meet.protocol = 99; /* always refused: the answer that tells that the one before has been read */
        hand_tell(&hands[i], PS__TO_SERVER__WHAT_MEET, &meet);
    }
    for (size_t i = 0; i < n; i++) {
        int code = hand_hear_error(&hands[i], TEST_HANG_S);
        full += code == PS__CODE__FULL;
        if (code == PS__CODE__FULL)
            code = hand_hear_error(&hands[i], TEST_HANG_S);
        ck_assert_msg(code == PS__CODE__VERSION, "code %d: %s", code, hands[i].sentence);
    }
    return full;
}

/* Meets of nobody who could be one, and more than psd keeps: the worker and honest rings know nothing of it.
 */
START_TEST(meets_that_do_not_fit)
{
    enum { CONNECTIONS = 80, KEPT = 64 };
    static const struct {
        uint32_t protocol, members, rank, wait_ms;
        uint64_t token;
        const char *clique, *address, *says;
    } bad[] = {
        {2, 2, 0, 9000, 1, "x", "tcp://a:1", "protocol version 2"},
        {1, 0, 0, 9000, 1, "x", "tcp://a:1", "0 members"},
        {1, UINT32_MAX, 0, 9000, 1, "x", "tcp://a:1", "allowed are 1 to 1024"},
        {1, 2, 2, 9000, 1, "x", "tcp://a:1", "rank 2 of 2"},
        {1, 2, 0, 9000, 1, "\x1b[2J", "tcp://a:1", "a clique's name"},
        {1, 2, 0, 9000, 1, "x", "a\nb", "an address is"},
        {1, 2, 0, 9000, 0, "x", "tcp://a:1", "a token, not 0"},
        {1, 2, 0, 0, 1, "x", "tcp://a:1", "not 0"},
    };
    static struct hand hands[CONNECTIONS];
    struct siege s;
    unsigned full;
    siege_start(&s);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        size_t k = i % (sizeof bad / sizeof *bad);
        Ps__Meet meet = PS__MEET__INIT;
        hand_open(&hands[i], s.d.endpoint);
        meet.protocol = bad[k].protocol, meet.members = bad[k].members, meet.rank = bad[k].rank;
        meet.wait_ms = bad[k].wait_ms, meet.token = bad[k].token;
        meet.clique = (char *)(uintptr_t)bad[k].clique, meet.address = (char *)(uintptr_t)bad[k].address;
        if (i < sizeof bad / sizeof *bad) {
            hand_tell(&hands[i], PS__TO_SERVER__WHAT_MEET, &meet);
            ck_assert_int_gt(hand_hear_error(&hands[i], TEST_HANG_S), 0);
            ck_assert_msg(strstr(hands[i].sentence, bad[k].says) != NULL, "'%s'", hands[i].sentence);
        }
    }
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while ((full = flood_with_names(hands, CONNECTIONS)) < CONNECTIONS - KEPT)
        ck_assert_msg(test_now_s() < deadline, "%u of %u are refused", full, CONNECTIONS);
    ck_assert_uint_eq(full, CONNECTIONS - KEPT);
    for (size_t i = 0; i < CONNECTIONS; i++)
        hand_close(&hands[i]);
    ck_assert_double_eq(daemon_workers(&s.d), 1); /* the honest one */
    siege_end(&s);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        hellos_that_do_not_fit,
        a_hello_said_twice_joins_once,
        a_session_that_comes_again_and_again_does_not_fill_the_log,
        heartbeats_do_not_fill_the_log,
        manifests_that_do_not_fit,
        models_that_cannot_be_saved,
        messages_of_nobody,
        bytes_that_are_no_control_message,
        names_do_not_spoil_the_log,
        bytes_that_are_not_zeromq,
        floods_drown_neither_the_log_nor_psd,
        meets_that_do_not_fit,
    };
    return suite_run("hostile control", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
