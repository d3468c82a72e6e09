/* The control messages within their bounds. Linked with --wrap=malloc: what unpacking asks for is counted. */
#include "proto/wire/control.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zmq.h>

#include "tests/support/unit.h"

enum { ALLOCATION_BOUND = 4 * PS_CONTROL_MAX_BYTES, PATIENCE_S = 60 };

static size_t asked_bytes;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    asked_bytes += size;
    return __real_malloc(size);
}

static unsigned char *pack(const ProtobufCMessage *m, size_t *len)
{
    unsigned char *bytes;
    *len = protobuf_c_message_get_packed_size(m);
    bytes = malloc(*len + 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(protobuf_c_message_pack(m, bytes), *len);
    return bytes;
}

/* Every row fills one message of a kind with values that no default has. */
struct sample {
    Ps__ToServer to_server;
    Ps__ToClient to_client;
    Ps__Hello hello;
    Ps__Begin begin;
    Ps__Tensor tensor[2], *tensors[2];
    uint64_t shape[3];
    Ps__Heartbeat heartbeat;
    Ps__Report report;
    Ps__Leave leave;
    Ps__Welcome welcome;
    Ps__Method method;
    Ps__Schedule schedule;
    char *lanes[2];
    Ps__Parked parked;
    Ps__Begun begun;
    Ps__Alive alive;
    Ps__Drain drain;
    Ps__Error error;
};

static void fill_begin(struct sample *s)
{
    ps__begin__init(&s->begin);
    s->shape[0] = 500, s->shape[1] = 800, s->shape[2] = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        ps__tensor__init(&s->tensor[i]);
        s->tensor[i].name = i == 0 ? "conv1.weight" : "größe";
        s->tensor[i].offset = UINT64_C(1) << 40;
        s->tensor[i].shape = s->shape;
        s->tensor[i].n_shape = i == 0 ? 3 : 0;
        s->tensor[i].role = 2;
        s->tensors[i] = &s->tensor[i];
    }
    s->begin.client = 7;
    s->begin.incarnation = UINT32_MAX;
    s->begin.tensors = s->tensors;
    s->begin.n_tensors = 2;
}

static void fill_welcome(struct sample *s)
{
    ps__welcome__init(&s->welcome);
    ps__method__init(&s->method);
    ps__schedule__init(&s->schedule);
    s->schedule.kind = 2, s->schedule.gamma = 0.1, s->schedule.step_steps = 9, s->schedule.warmup_steps = 8;
    s->method.name = "async-easgd", s->method.rule = "elastic", s->method.optimizer = "sgd";
    s->method.learning_rate = 0.05, s->method.period = 4, s->method.alpha = 0.2, s->method.momentum = 0.9;
    s->method.schedule = &s->schedule;
    s->lanes[0] = "tcp://127.0.0.1:1", s->lanes[1] = "tcp://[::1]:65535";
    s->welcome.client = 3, s->welcome.incarnation = 4, s->welcome.workers = 5, s->welcome.method = &s->method;
    s->welcome.generation = 6, s->welcome.center_version = UINT64_MAX, s->welcome.transport = "tcp";
    s->welcome.lanes = s->lanes, s->welcome.n_lanes = 2, s->welcome.chunk_floats = 1024;
    s->welcome.window_chunks = 4, s->welcome.silence_ms = 30000, s->welcome.resumed = true;
}

static void fill(struct sample *s)
{
    memset(s, 0, sizeof *s);
    fill_begin(s);
    fill_welcome(s);
    ps__hello__init(&s->hello);
    s->hello.protocol = 1, s->hello.name = "node-1:42", s->hello.observer = true, s->hello.any_rank = true;
    s->hello.rank = 1023, s->hello.incarnation = 9, s->hello.manifest_hash = UINT64_MAX;
    s->hello.center_version = 77, s->hello.client = 3;
    ps__heartbeat__init(&s->heartbeat);
    s->heartbeat.client = 1, s->heartbeat.incarnation = 2, s->heartbeat.clock = UINT64_C(1) << 50;
    ps__report__init(&s->report);
    s->report.client = 1, s->report.incarnation = 2, s->report.loss = -0.0, s->report.accuracy = 0.5;
    s->report.samples_per_second = 1e9, s->report.test_loss = INFINITY, s->report.test_accuracy = 1;
    s->report.center_version = 5;
    ps__leave__init(&s->leave);
    s->leave.client = 1, s->leave.incarnation = 2;
    ps__parked__init(&s->parked);
    s->parked.reason = "wait";
    ps__begun__init(&s->begun);
    s->begun.offer = true, s->begun.center_version = 3;
    ps__alive__init(&s->alive);
    s->alive.workers = 1, s->alive.center_version = 2, s->alive.draining = true;
    ps__drain__init(&s->drain);
    s->drain.reason = "SIGTERM";
    ps__error__init(&s->error);
    s->error.code = PS__CODE__KIND, s->error.sentence = "no", s->error.fatal = true;
}

static Ps__ToServer *to_server(struct sample *s, int what)
{
    void *const messages[] = {NULL, &s->hello, &s->begin, &s->heartbeat, &s->report, &s->leave};
    ps__to_server__init(&s->to_server);
    s->to_server.what_case = (Ps__ToServer__WhatCase)what;
    s->to_server.hello = messages[what];
    return &s->to_server;
}

static Ps__ToClient *to_client(struct sample *s, int what)
{
    void *const messages[] = {NULL, &s->welcome, &s->parked, &s->begun, &s->alive, &s->drain, &s->error};
    ps__to_client__init(&s->to_client);
    s->to_client.what_case = (Ps__ToClient__WhatCase)what;
    s->to_client.welcome = messages[what];
    return &s->to_client;
}

/* What comes out packs into the very bytes that went in: every field of every kind survived. */
START_TEST(messages_to_the_server_come_back)
{
    struct sample s;
    size_t len, len_again;
    fill(&s);
    unsigned char *bytes = pack(&to_server(&s, _i)->base, &len);
    Ps__ToServer *m = ps_control_unpack_to_server(bytes, len);
    ck_assert_ptr_nonnull(m);
    ck_assert_int_eq((int)m->what_case, _i);
    unsigned char *again = pack(&m->base, &len_again);
    ck_assert_uint_eq(len, len_again);
    ck_assert_mem_eq(bytes, again, len);
    ps_control_free_to_server(m);
    free(bytes);
    free(again);
}
END_TEST

START_TEST(messages_to_the_client_come_back)
{
    struct sample s;
    size_t len, len_again;
    fill(&s);
    unsigned char *bytes = pack(&to_client(&s, _i)->base, &len);
    Ps__ToClient *m = ps_control_unpack_to_client(bytes, len);
    ck_assert_ptr_nonnull(m);
    ck_assert_int_eq((int)m->what_case, _i);
    unsigned char *again = pack(&m->base, &len_again);
    ck_assert_uint_eq(len, len_again);
    ck_assert_mem_eq(bytes, again, len);
    ps_control_free_to_client(m);
    free(bytes);
    free(again);
}
END_TEST

/* Each prefix in memory of exactly its length, for the address sanitizer. Only the empty one is a message: of
 * no kind. */
START_TEST(every_truncation_is_refused)
{
    struct sample s;
    size_t len;
    fill(&s);
    for (int what = 1; what <= 6; what++) {
        unsigned char *bytes = what <= 5 ? pack(&to_server(&s, what)->base, &len) : NULL;
        for (size_t cut = 1; bytes != NULL && cut < len; cut++) {
            unsigned char *part = malloc(cut);
            memcpy(part, bytes, cut);
            ck_assert_ptr_null(ps_control_unpack_to_server(part, cut));
            free(part);
        }
        free(bytes);
        bytes = pack(&to_client(&s, what)->base, &len);
        for (size_t cut = 1; cut < len; cut++) {
            unsigned char *part = malloc(cut);
            memcpy(part, bytes, cut);
            ck_assert_ptr_null(ps_control_unpack_to_client(part, cut));
            free(part);
        }
        free(bytes);
    }
    Ps__ToServer *m = ps_control_unpack_to_server("", 0);
    ck_assert_ptr_nonnull(m);
    ck_assert_int_eq(m->what_case, PS__TO_SERVER__WHAT__NOT_SET);
    ps_control_free_to_server(m);
}
END_TEST

/* A Begin of n times the bytes of `unit`. */
static unsigned char *begin_of(size_t n, const unsigned char *unit, size_t unit_bytes, size_t *len)
{
    size_t left = n * unit_bytes;
    unsigned char *bytes = malloc(left + 8), *p = bytes;
    ck_assert_ptr_nonnull(bytes);
    *p++ = 2 << 3 | 2; /* ToServer.begin, and its length as a varint */
    for (; left >= 0x80; left >>= 7)
        *p++ = (unsigned char)(left | 0x80);
    *p++ = (unsigned char)left;
    for (size_t i = 0; i < n; i++, p += unit_bytes)
        memcpy(p, unit, unit_bytes);
    *len = (size_t)(p - bytes);
    return bytes;
}

/* Two bytes on the wire are a Tensor of some seventy in memory. */
START_TEST(many_empty_tensors_are_refused_within_the_bound)
{
    static const unsigned char empty_tensor[] = {3 << 3 | 2, 0};
    size_t len, n = (PS_CONTROL_MAX_BYTES - 8) / sizeof empty_tensor;
    unsigned char *bytes = begin_of(n, empty_tensor, sizeof empty_tensor, &len);
    ck_assert_uint_le(len, PS_CONTROL_MAX_BYTES);
    asked_bytes = 0;
    Ps__ToServer *m = ps_control_unpack_to_server(bytes, len);
    ck_assert_uint_le(asked_bytes, ALLOCATION_BOUND);
    ck_assert_ptr_null(m);
    free(bytes);
}
END_TEST

START_TEST(fewer_empty_tensors_are_a_message)
{
    static const unsigned char empty_tensor[] = {3 << 3 | 2, 0};
    size_t len, n = 300000;
    unsigned char *bytes = begin_of(n, empty_tensor, sizeof empty_tensor, &len);
    Ps__ToServer *m = ps_control_unpack_to_server(bytes, len);
    ck_assert_ptr_nonnull(m);
    ck_assert_uint_eq(m->begin->n_tensors, n);
    ps_control_free_to_server(m);
    free(bytes);
}
END_TEST

START_TEST(oversize_is_refused_unread)
{
    struct sample s;
    size_t len, big = PS_CONTROL_MAX_BYTES + 1;
    fill(&s);
    unsigned char *bytes = pack(&to_server(&s, PS__TO_SERVER__WHAT_LEAVE)->base, &len);
    bytes = realloc(bytes, big);
    ck_assert_ptr_nonnull(bytes);
    for (size_t at = len; at < big; at += 2) { /* an unknown field, again and again: allowed and ignored */
        bytes[at] = 100;
        bytes[at + 1 < big ? at + 1 : at] = 0;
    }
    asked_bytes = 0;
    void *a = ps_control_unpack_to_server(bytes, big), *b = ps_control_unpack_to_client(bytes, big);
    ck_assert_uint_eq(asked_bytes, 0);
    ck_assert(a == NULL && b == NULL);
    free(bytes);
}
END_TEST

/* The header's promise: a manifest of 65536 tensors fits, with names as long as they may be. */
START_TEST(largest_manifest_fits)
{
    enum { N = 65536, NAME = 127 };
    char(*names)[NAME + 1] = calloc(N, sizeof *names);
    Ps__Tensor *tensors = calloc(N, sizeof *tensors), **list = calloc(N, sizeof(Ps__Tensor *));
    uint64_t shape[] = {UINT64_C(1) << 39, 1, 1, 1, 1, 1, 1, 1};
    Ps__Begin begin = PS__BEGIN__INIT;
    Ps__ToServer m = PS__TO_SERVER__INIT;
    size_t len;

    ck_assert(names != NULL && tensors != NULL && list != NULL);
    for (size_t i = 0; i < N; i++) {
        memset(names[i], 'n', NAME);
        ps__tensor__init(&tensors[i]);
        tensors[i].name = names[i];
        tensors[i].offset = (UINT64_C(1) << 40) - 1;
        tensors[i].shape = shape;
        tensors[i].n_shape = ROWS(shape);
        list[i] = &tensors[i];
    }
    begin.tensors = list;
    begin.n_tensors = N;
    m.what_case = PS__TO_SERVER__WHAT_BEGIN;
    m.begin = &begin;
    unsigned char *bytes = pack(&m.base, &len);
    asked_bytes = 0;
    Ps__ToServer *back = ps_control_unpack_to_server(bytes, len);
    ck_assert_uint_le(asked_bytes, ALLOCATION_BOUND);
    ck_assert_ptr_nonnull(back);
    ck_assert_uint_eq(back->begin->n_tensors, N);
    ps_control_free_to_server(back);
    free(bytes);
    free(list);
    free(tensors);
    free(names);
}
END_TEST

START_TEST(random_bytes_are_unpacked_or_refused)
{
    struct dice dice = {8};
    struct sample s;
    size_t len;
    fill(&s);
    for (int i = 0; i < 30000; i++) {
        bool server = i % 2 == 0;
        int what = 1 + (int)dice_below(&dice, server ? 5 : 6);
        unsigned char *bytes =
            server ? pack(&to_server(&s, what)->base, &len) : pack(&to_client(&s, what)->base, &len);
        for (uint64_t k = dice_below(&dice, 4) + 1; k > 0 && len > 0; k--)
            bytes[dice_below(&dice, len)] = (unsigned char)dice_bits(&dice);
        asked_bytes = 0;
        Ps__ToServer *a = ps_control_unpack_to_server(bytes, len);
        Ps__ToClient *b = ps_control_unpack_to_client(bytes, len);
        ck_assert_uint_le(asked_bytes, 2 * ALLOCATION_BOUND);
        if (a != NULL)
            ps_control_free_to_server(a);
        if (b != NULL)
            ps_control_free_to_client(b);
        free(bytes);
    }
}
END_TEST

START_TEST(sending_waits_for_nobody)
{
    void *context = zmq_ctx_new(), *a = zmq_socket(context, ZMQ_PAIR), *b = zmq_socket(context, ZMQ_PAIR);
    struct sample s;
    int mark = 1, rc = 0;
    fill(&s);
    zmq_setsockopt(a, ZMQ_SNDHWM, &mark, sizeof mark);
    zmq_setsockopt(b, ZMQ_RCVHWM, &mark, sizeof mark);
    ck_assert_int_eq(ps_control_send(a, &to_server(&s, 1)->base), -EAGAIN); /* nobody is there */
    ck_assert_int_eq(zmq_bind(a, "inproc://control"), 0);
    ck_assert_int_eq(zmq_connect(b, "inproc://control"), 0);
    for (double end = unit_now_s() + PATIENCE_S;
         (rc = ps_control_send(a, &to_server(&s, 1)->base)) == -EAGAIN && unit_now_s() < end;)
        unit_nap_ms(1);
    ck_assert_int_eq(rc, 0);

    zmq_msg_t msg;
    zmq_msg_init(&msg);
    ck_assert_int_ge(zmq_msg_recv(&msg, b, 0), 0);
    ck_assert(!zmq_msg_more(&msg));
    Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(&msg), zmq_msg_size(&msg));
    ck_assert_ptr_nonnull(m);
    ck_assert_str_eq(m->hello->name, "node-1:42");
    ps_control_free_to_server(m);
    zmq_msg_close(&msg);

    for (int i = 0; i < 100 && rc == 0; i++)
        rc = ps_control_send(a, &to_server(&s, 1)->base);
    ck_assert_int_eq(rc, -EAGAIN); /* nobody reads */

    char *sentence = malloc(PS_CONTROL_MAX_BYTES + 1);
    memset(sentence, 'x', PS_CONTROL_MAX_BYTES);
    sentence[PS_CONTROL_MAX_BYTES] = 0;
    s.error.sentence = sentence;
    ck_assert_int_eq(ps_control_send(a, &to_client(&s, PS__TO_CLIENT__WHAT_ERROR)->base), -EMSGSIZE);
    free(sentence);
    zmq_close(a);
    zmq_close(b);
    zmq_ctx_term(context);
}
END_TEST

static void *open_peer(void *context, void *router, const char *name)
{
    char id[8];
    void *peer = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(peer, ZMQ_ROUTING_ID, name, strlen(name));
    ck_assert_int_eq(zmq_connect(peer, "inproc://peers"), 0);
    ck_assert_int_eq(zmq_send(peer, "here", 4, 0), 4);
    ck_assert_int_eq(zmq_recv(router, id, sizeof id, 0), (int)strlen(name));
    ck_assert_int_eq(zmq_recv(router, id, sizeof id, 0), 4);
    return peer;
}

/* What a peer cannot be sent is nobody's, and the next message is the next peer's. */
START_TEST(a_message_that_is_too_long_leaves_no_part_behind)
{
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    struct sample s;
    char bytes[1024];
    int patience_ms = PATIENCE_S * 1000;
    fill(&s);
    ck_assert_int_eq(zmq_bind(router, "inproc://peers"), 0);
    void *first = open_peer(context, router, "first"), *second = open_peer(context, router, "second");
    char *sentence = malloc(PS_CONTROL_MAX_BYTES + 1);
    memset(sentence, 'x', PS_CONTROL_MAX_BYTES);
    sentence[PS_CONTROL_MAX_BYTES] = 0;
    s.error.sentence = sentence;
    const ProtobufCMessage *error = &to_client(&s, PS__TO_CLIENT__WHAT_ERROR)->base;
    ck_assert_int_eq(ps_control_send_to(router, "first", 5, error), -EMSGSIZE);
    s.error.sentence = (char *)"go";
    ck_assert_int_eq(ps_control_send_to(router, "second", 6, error), 0);
    zmq_setsockopt(second, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms);
    int n = zmq_recv(second, bytes, sizeof bytes, 0);
    Ps__ToClient *m = n > 0 ? ps_control_unpack_to_client(bytes, (size_t)n) : NULL;
    ck_assert_ptr_nonnull(m);
    ck_assert_str_eq(m->error->sentence, "go");
    ck_assert_int_eq(zmq_recv(first, bytes, sizeof bytes, ZMQ_DONTWAIT), -1);
    ps_control_free_to_client(m);
    free(sentence);
    zmq_close(first);
    zmq_close(second);
    zmq_close(router);
    zmq_ctx_term(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-control");
    TCase *tc = tcase_create("control");
    tcase_add_loop_test(tc, messages_to_the_server_come_back, 1, 6);
    tcase_add_loop_test(tc, messages_to_the_client_come_back, 1, 7);
    tcase_add_test(tc, every_truncation_is_refused);
    tcase_add_test(tc, many_empty_tensors_are_refused_within_the_bound);
    tcase_add_test(tc, fewer_empty_tensors_are_a_message);
    tcase_add_test(tc, oversize_is_refused_unread);
    tcase_add_test(tc, largest_manifest_fits);
    tcase_add_test(tc, random_bytes_are_unpacked_or_refused);
    tcase_add_test(tc, sending_waits_for_nobody);
    tcase_add_test(tc, a_message_that_is_too_long_leaves_no_part_behind);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
