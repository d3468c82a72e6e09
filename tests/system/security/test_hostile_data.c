/* Data frames that are none, that do not fit, that are not finite, or whose answers nobody reads. */
#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "tests/support/suite.h"
#include "tests/system/security/hostile_fixture.h"

/* The error frame that answers on a bare socket; its code, or -1. */
static int refusal(void *socket, char *sentence, size_t size)
{
    unsigned char head[200];
    struct ps_frame f;
    struct ps_error err;
    int n = zmq_recv(socket, head, sizeof head, 0);
    ck_assert_msg(n == PS_FRAME_BYTES && ps_frame_parse(&f, head, (size_t)n, &err) == 0,
                  "no error frame came back but %d bytes", n);
    ck_assert_uint_eq(f.kind, PS_FRAME_ERROR);
    n = zmq_recv(socket, sentence, size - 1, 0);
    ck_assert_int_gt(n, 10);
    sentence[(size_t)n < size ? (size_t)n : size - 1] = 0;
    return f.code;
}

static void send_parts(void *socket, const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    ck_assert_int_ge(zmq_send(socket, a, a_bytes, ZMQ_SNDMORE), 0);
    ck_assert_int_ge(zmq_send(socket, b, b_bytes, 0), 0);
}

START_TEST(frames_that_are_none)
{
    struct siege s;
    struct hand h;
    char sentence[600];
    unsigned char head[PS_FRAME_BYTES + 1] = {0}, body[64] = {0};
    siege_start(&s);
    siege_join(&s, &h);
    void *context = zmq_ctx_new(), *socket = siege_socket(context, h.urls[0]);
    struct ps_frame f = hand_frame(&h, PS_FRAME_EXCHANGE, 0, 0);

    ps_frame_pack(&f, head);
    static const size_t lengths[] = {0, 1, PS_FRAME_BYTES - 1, PS_FRAME_BYTES + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        send_parts(socket, head, lengths[i], body, sizeof body);
        ck_assert_int_eq(refusal(socket, sentence, sizeof sentence), PS__CODE__MALFORMED);
        ck_assert_ptr_nonnull(strstr(sentence, "64 bytes"));
    }
    unsigned char *large = calloc(1, SIEGE_CHUNK * sizeof(float) + (64u << 10));
    static const size_t beyond[] = {1, sizeof(float), 64u << 10}; /* a full chunk and more */
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        send_parts(socket, head, PS_FRAME_BYTES, large, SIEGE_CHUNK * sizeof(float) + beyond[i]);
        ck_assert_int_eq(refusal(socket, sentence, sizeof sentence), PS__CODE__MALFORMED);
        ck_assert_ptr_nonnull(strstr(sentence, "a body of"));
    }
    free(large);
    ck_assert_int_ge(zmq_send(socket, head, PS_FRAME_BYTES, 0), 0); /* one part */
    ck_assert_int_eq(refusal(socket, sentence, sizeof sentence), PS__CODE__MALFORMED);
    ck_assert_int_ge(zmq_send(socket, head, PS_FRAME_BYTES, ZMQ_SNDMORE), 0); /* three */
    send_parts(socket, body, 1, body, 1);
    ck_assert_int_eq(refusal(socket, sentence, sizeof sentence), PS__CODE__MALFORMED);
    ck_assert_ptr_nonnull(strstr(sentence, "two parts"));

    static const struct {
        int at;
        unsigned char value;
        int code;
        const char *says;
    } spoilt[] = {{0, 0, PS__CODE__MALFORMED, "magic"},
                  {4, 99, PS__CODE__VERSION, "version 99"},
                  {6, 0, PS__CODE__MALFORMED, "kind 0"},
                  {6, 9, PS__CODE__MALFORMED, "kind 9"},
                  {6, PS_FRAME_ANSWER, PS__CODE__MALFORMED, "is an answer"},
                  {6, PS_FRAME_ERROR, PS__CODE__MALFORMED, "is an answer"}};
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        ps_frame_pack(&f, head);
        head[spoilt[i].at] = spoilt[i].value;
        send_parts(socket, head, PS_FRAME_BYTES, body, sizeof body);
        ck_assert_int_eq(refusal(socket, sentence, sizeof sentence), spoilt[i].code);
        ck_assert_msg(strstr(sentence, spoilt[i].says) != NULL, "'%s' is not in '%s'", spoilt[i].says,
                      sentence);
    }
    ck_assert_double_ge(daemon_number(&s.d, "/status", "center.updates_rejected"), 12);
    ck_assert_uint_ge(daemon_logged(&s.d, "data.refused"), 1);
    zmq_close(socket);
    zmq_ctx_term(context);
    hand_close(&h);
    siege_end(&s);
}
END_TEST

/* Bytes without meaning, and headers with one field of random bytes. Each gets an answer or none; none lands.
 */
START_TEST(random_frames)
{
    struct siege s;
    struct hand h;
    uint64_t seed = 20240501;
    unsigned char head[PS_FRAME_BYTES];
    unsigned char *body = malloc(SIEGE_CHUNK * sizeof(float) + 16);
    siege_start(&s);
    siege_join(&s, &h);
    void *context = zmq_ctx_new(), *socket = siege_socket(context, h.urls[1]);
    for (size_t i = 0; i < SIEGE_CHUNK * sizeof(float) + 16; i++)
        body[i] = (unsigned char)siege_random(&seed);
    for (int n = 0; n < 3000; n++) {
        uint64_t r = siege_random(&seed);
        struct ps_frame f = hand_frame(&h, PS_FRAME_EXCHANGE, 1, (uint32_t)(r % 3));
        f.seq = 1;
        ps_frame_pack(&f, head);
        /* Every frame that would be valid else has a body of a wrong length. */
        for (uint64_t k = 0; k < r % 9; k++)
            head[siege_random(&seed) % PS_FRAME_BYTES] = (unsigned char)siege_random(&seed);
        size_t len =
            siege_random(&seed) % 5 == 0 ? siege_random(&seed) % (SIEGE_CHUNK * 4 - 8) | 1 : r % 60 | 1;
        send_parts(socket, head, PS_FRAME_BYTES, body, len);
    }
    siege_holds(&s);
    ck_assert_double_ge(daemon_number(&s.d, "/status", "center.updates_rejected"), 100);
    zmq_close(socket);
    zmq_ctx_term(context);
    hand_close(&h);
    free(body);
    siege_end(&s);
}
END_TEST

static int ask(struct hand *h, uint32_t lane, struct ps_frame f, const float *body, size_t bytes)
{
    hand_send(h, lane, &f, body, bytes);
    return hand_answer(h, lane, &f, NULL, TEST_HANG_S);
}

#define ASSERT_REFUSED(code, says)                                                                           \
    do {                                                                                                     \
        int code_found = (code);                                                                             \
        ck_assert_msg(code_found == (says).want && strstr(h.sentence, (says).text) != NULL,                  \
                      "code %d, '%s'; expected %d and '%s'", code_found, h.sentence, (says).want,            \
                      (says).text);                                                                          \
    } while (0)

struct refused {
    int want;
    const char *text;
};

START_TEST(frames_that_do_not_fit)
{
    struct siege s;
    struct hand h;
    float *m = calloc(SIEGE_CHUNK + 16, sizeof *m);
    size_t bytes;
    siege_start(&s);
    siege_join(&s, &h);
    h.seq++;
    struct ps_frame good = hand_frame(&h, PS_FRAME_EXCHANGE, 0, 0), f = good;
    bytes = good.count * sizeof *m;

    f = hand_frame(&h, PS_FRAME_EXCHANGE, 1, 0); /* the other lane's */
    ASSERT_REFUSED(ask(&h, 0, f, m, f.count * sizeof *m),
                   ((struct refused){PS__CODE__RANGE, "not a chunk of lane 0"}));
    static const struct {
        uint64_t begin;
        uint32_t count;
    } ranges[] = {{0, 1},    {16, 1000}, {SIEGE_FLOATS, 16}, {UINT64_MAX, 1}, {UINT64_MAX - 15, UINT32_MAX},
                  {1, 14288}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        f = good;
        f.begin = ranges[i].begin;
        f.count = ranges[i].count;
        ASSERT_REFUSED(ask(&h, 0, f, m, 64), ((struct refused){PS__CODE__RANGE, "not a chunk"}));
    }
    ASSERT_REFUSED(ask(&h, 0, good, m, bytes - 4), ((struct refused){PS__CODE__MALFORMED, "a body of"}));
    ASSERT_REFUSED(ask(&h, 0, good, m, bytes + 1), ((struct refused){PS__CODE__MALFORMED, "a body of"}));
    ASSERT_REFUSED(ask(&h, 0, good, m, 0), ((struct refused){PS__CODE__MALFORMED, "a body of 0 bytes"}));
    f = good;
    f.kind = PS_FRAME_PULL;
    ASSERT_REFUSED(ask(&h, 0, f, m, 4), ((struct refused){PS__CODE__MALFORMED, "a body of 4 bytes"}));
    f = good;
    f.codec = 7;
    ASSERT_REFUSED(ask(&h, 0, f, m, bytes), ((struct refused){PS__CODE__CODEC, "codec 7"}));
    f = good;
    f.generation = 3;
    ASSERT_REFUSED(ask(&h, 0, f, m, bytes), ((struct refused){PS__CODE__GENERATION, "generation 3"}));
    f = good;
    f.kind = PS_FRAME_OFFER;
    ASSERT_REFUSED(ask(&h, 0, f, m, bytes),
                   ((struct refused){PS__CODE__NOT_BEGUN, "after the job has begun"}));
    f = good;
    f.incarnation--;
    ASSERT_REFUSED(ask(&h, 0, f, m, bytes), ((struct refused){PS__CODE__STALE, "is stale"}));
    f = good;
    f.client = 777;
    ASSERT_REFUSED(ask(&h, 0, f, m, bytes),
                   ((struct refused){PS__CODE__NO_SESSION, "client 777 has no session"}));
    f.client = UINT32_MAX;
    ASSERT_REFUSED(ask(&h, 0, f, m, bytes), ((struct refused){PS__CODE__NO_SESSION, "has no session"}));
    siege_holds(&s);
    /* None of that cost it its session. */
    ck_assert_int_eq(ask(&h, 0, good, m, bytes), 0);
    hand_close(&h);
    free(m);
    siege_end(&s);
}
END_TEST

START_TEST(data_out_of_turn)
{
    struct siege s;
    struct hand h;
    Ps__Hello hello = PS__HELLO__INIT;
    bool offer;
    float *m = calloc(SIEGE_CHUNK, sizeof *m);
    siege_start(&s);
    hand_open(&h, s.d.endpoint);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.observer = true;
    hello.name = (char *)"out of turn";
    ck_assert_int_eq(hand_hello(&h, &hello), 0);
    h.shard = (struct ps_shard){SIEGE_FLOATS, h.n_lanes, h.chunk_floats};
    static const uint8_t kinds[] = {PS_FRAME_EXCHANGE, PS_FRAME_PULL, PS_FRAME_SET, PS_FRAME_OFFER};
    for (size_t i = 0; i < sizeof kinds; i++) {
        struct ps_frame f = hand_frame(&h, kinds[i], 0, 0);
        int code = ask(&h, 0, f, m, kinds[i] == PS_FRAME_PULL ? 0 : f.count * sizeof *m);
        ck_assert_msg(code == PS__CODE__NOT_BEGUN || code == PS__CODE__NO_SESSION, "kind %u before Begin: %d",
                      kinds[i], code);
        ck_assert_uint_gt(strlen(h.sentence), 10);
    }
    ck_assert_int_eq(hand_begin(&h, SIEGE_FLOATS, &offer), 0);
    ck_assert(!offer);
    struct ps_frame f = hand_frame(&h, PS_FRAME_EXCHANGE, 0, 0);
    ASSERT_REFUSED(ask(&h, 0, f, m, f.count * sizeof *m), ((struct refused){PS__CODE__KIND, "observer"}));
    f.kind = PS_FRAME_SET;
    ASSERT_REFUSED(ask(&h, 0, f, m, f.count * sizeof *m), ((struct refused){PS__CODE__KIND, "observer"}));
    hand_close(&h);
    free(m);
    siege_end(&s);
}
END_TEST

START_TEST(values_that_are_not_finite)
{
    struct siege s;
    static const float values[] = {NAN, INFINITY, -INFINITY};
    float *m = calloc(SIEGE_CHUNK, sizeof *m);
    siege_start(&s);
    for (int i = 0; i < 6; i++) {
        struct hand h;
        siege_join(&s, &h);
        h.seq++;
        struct ps_frame f = hand_frame(&h, i < 3 ? PS_FRAME_EXCHANGE : PS_FRAME_SET, 1, 2);
        for (uint32_t k = 0; k < f.count; k++) /* the finite ones of an exchange move nothing */
            m[k] = i >= 3 || k == 777 ? values[i % 3] : 0;
        ASSERT_REFUSED(ask(&h, 1, f, m, f.count * sizeof *m),
                       ((struct refused){PS__CODE__VALUE, "not finite"}));
        ck_assert_int_eq(hand_hear_error(&h, TEST_HANG_S),
                         PS__CODE__VALUE); /* its session ends, and it is told */
        f.seq++;
        memset(m, 0, SIEGE_CHUNK * sizeof *m);
        ASSERT_REFUSED(ask(&h, 1, f, m, f.count * sizeof *m), ((struct refused){PS__CODE__VALUE, "ended"}));
        hand_close(&h);
    }
    ck_assert_uint_ge(daemon_logged(&s.d, "1 values of floats"), 1);
    ck_assert_uint_eq(daemon_logged(&s.d, "session.ended"), 6);
    free(m);
    siege_end(&s);
}
END_TEST

/* Answers pile up in psd only as far as its high-water mark; then the session ends. */
START_TEST(a_peer_that_reads_no_answers)
{
    struct siege s;
    struct hand h;
    unsigned char head[PS_FRAME_BYTES];
    int one = 1, small = 4096, zero = 0;
    siege_start(&s);
    siege_join(&s, &h);
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &one, sizeof one);
    zmq_setsockopt(socket, ZMQ_RCVBUF, &small, sizeof small);
    zmq_connect(socket, h.urls[0]);
    struct ps_frame f = hand_frame(&h, PS_FRAME_PULL, 0, 0);
    ps_frame_pack(&f, head);
    for (int i = 0; i < 4000; i++)
        send_parts(socket, head, PS_FRAME_BYTES, head, 0);
    ck_assert_msg(daemon_will_log(&s.d, "does not read its answers", TEST_HANG_S), "nobody noticed");
    ck_assert_int_eq(hand_hear_error(&h, TEST_HANG_S), PS__CODE__EVICTED);
    siege_holds(&s);
#ifndef __SANITIZE_ADDRESS__
    /* The mark's 16 messages, what sockets and libzmq's batches hold, and the heap's slack: not 4000 answers,
     * which would be 230 MB. */
    ck_assert_uint_lt(daemon_resident_bytes(s.d.pid), s.rss_bytes + (48u << 20));
#endif
    zmq_close(socket);
    zmq_ctx_term(context);
    hand_close(&h);
    siege_end(&s);
}
END_TEST

START_TEST(a_body_beyond_a_chunk_ends_the_connection)
{
    struct siege s;
    struct hand h;
    unsigned char head[PS_FRAME_BYTES];
    size_t bytes = 64u << 20;
    char *body = calloc(1, bytes);
    siege_start(&s);
    siege_join(&s, &h);
    void *context = zmq_ctx_new();
    for (int i = 0; i < 10; i++) {
        void *socket = siege_socket(context, h.urls[0]);
        struct ps_frame f = hand_frame(&h, PS_FRAME_EXCHANGE, 0, 0);
        ps_frame_pack(&f, head);
        send_parts(socket, head, PS_FRAME_BYTES, body, bytes);
        siege_holds(&s);
        zmq_close(socket);
    }
#ifndef __SANITIZE_ADDRESS__
    ck_assert_uint_lt(daemon_resident_bytes(s.d.pid), s.rss_bytes + (32u << 20));
#endif
    zmq_ctx_term(context);
    hand_close(&h);
    free(body);
    siege_end(&s);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        frames_that_are_none,
        random_frames,
        frames_that_do_not_fit,
        data_out_of_turn,
        values_that_are_not_finite,
        a_peer_that_reads_no_answers,
        a_body_beyond_a_chunk_ends_the_connection,
    };
    return suite_run("hostile data", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
