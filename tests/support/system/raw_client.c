#include "tests/support/system/raw_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "proto/model/manifest.h"
#include "tests/support/clock.h"
#include "tests/support/system/proxy.h"

/* *key: psd's public key from the endpoint file; "" if it has none. */
static void url_of(const char *server, char *url, size_t size, char *key)
{
    char line[100] = "";
    key[0] = 0;
    snprintf(url, size, "%s", server);
    if (server[0] != '@')
        return;
    FILE *f = fopen(server + 1, "re");
    if (f == NULL || fgets(url, (int)size, f) == NULL)
        abort();
    if (fgets(line, sizeof line, f) != NULL)
        sscanf(line, "curve: %40s", key);
    fclose(f);
    url[strcspn(url, "\n")] = 0;
}

void hand_open(struct hand *h, const char *server)
{
    hand_open_as(h, server, NULL);
}

void hand_open_as(struct hand *h, const char *server, const char *key_file)
{
    hand_open_called(h, server, key_file, NULL);
}

void hand_open_called(struct hand *h, const char *server, const char *key_file, const char *name)
{
    char url[320], key[PS_CURVE_KEY_CHARS + 1];
    struct ps_curve_pair pair;
    int zero = 0;
    url_of(server, url, sizeof url, key);
    *h = (struct hand){.context = zmq_ctx_new(), .transport = ps_transport_of_url(url)};
    h->control = zmq_socket(h->context, ZMQ_DEALER);
    zmq_setsockopt(h->control, ZMQ_LINGER, &zero, sizeof zero);
    if (h->transport->hub_create(1, &h->hub) < 0)
        abort();
    if (key_file != NULL) {
        if (ps_curve_read(key_file, &pair, NULL) < 0 || ps_curve_connect(h->control, &pair, key) != 0)
            abort();
        h->transport->hub_secure(h->hub, &pair, key);
    }
    if (name != NULL && zmq_setsockopt(h->control, ZMQ_ROUTING_ID, name, strlen(name)) != 0)
        abort();
    if (zmq_connect(h->control, url) != 0)
        abort();
}

void hand_close(struct hand *h)
{
    for (uint32_t i = 0; i < PS_MAX_LANES; i++)
        h->transport->link_close(h->links[i]);
    h->transport->hub_destroy(h->hub);
    zmq_close(h->control);
    zmq_ctx_term(h->context);
}

void hand_tell(struct hand *h, int what, void *message)
{
    Ps__ToServer m = PS__TO_SERVER__INIT;
    m.what_case = (Ps__ToServer__WhatCase)what;
    m.hello = message; /* a union of pointers: sets any member */
    ps_control_send(h->control, &m.base);
}

static Ps__ToClient *hear_any(struct hand *h, double seconds)
{
    zmq_pollitem_t item = {.socket = h->control, .events = ZMQ_POLLIN};
    Ps__ToClient *m = NULL;
    zmq_msg_t msg;
    if (zmq_poll(&item, 1, (long)(seconds * 1e3)) <= 0)
        return NULL;
    zmq_msg_init(&msg);
    if (zmq_msg_recv(&msg, h->control, ZMQ_DONTWAIT) >= 0)
        m = ps_control_unpack_to_client(zmq_msg_data(&msg), zmq_msg_size(&msg));
    zmq_msg_close(&msg);
    return m;
}

Ps__ToClient *hand_hear(struct hand *h, double seconds)
{
    double left_s, deadline = test_now_s() + test_slow_s(seconds);
    while ((left_s = deadline - test_now_s()) > 0) {
        Ps__ToClient *m = hear_any(h, left_s);
        if (m != NULL && m->what_case != PS__TO_CLIENT__WHAT_ALIVE &&
            m->what_case != PS__TO_CLIENT__WHAT_PARKED)
            return m;
        if (m != NULL)
            ps_control_free_to_client(m);
    }
    return NULL;
}

static int code_of(struct hand *h, const Ps__ToClient *m)
{
    if (m == NULL || m->what_case != PS__TO_CLIENT__WHAT_ERROR)
        return m == NULL ? -1 : PS__CODE__OK;
    snprintf(h->sentence, sizeof h->sentence, "%s", m->error->sentence);
    return (int)m->error->code;
}

int hand_hear_error(struct hand *h, double seconds)
{
    Ps__ToClient *m = hand_hear(h, seconds);
    int code = code_of(h, m);
    if (m != NULL)
        ps_control_free_to_client(m);
    return code;
}

static void take_welcome(struct hand *h, const Ps__Welcome *w)
{
    h->client = w->client;
    h->incarnation = w->incarnation;
    h->n_lanes = (uint32_t)w->n_lanes;
    h->chunk_floats = w->chunk_floats;
    h->n_parts = w->parts;
    h->resumed = w->resumed;
    h->center_version = w->center_version;
    for (size_t i = 0; i < w->n_lanes && i < PS_MAX_LANES; i++)
        snprintf(h->urls[i], sizeof h->urls[i], "%s", w->lanes[i]);
}

int hand_hello(struct hand *h, const Ps__Hello *hello)
{
    Ps__Hello copy = *hello;
    hand_tell(h, PS__TO_SERVER__WHAT_HELLO, &copy);
    Ps__ToClient *m = hand_hear(h, TEST_HANG_S);
    int code = code_of(h, m);
    if (m != NULL && m->what_case == PS__TO_CLIENT__WHAT_WELCOME)
        take_welcome(h, m->welcome);
    if (m != NULL)
        ps_control_free_to_client(m);
    return code;
}

/* A model of one tensor "x", which also defines the vector's chunks. */
static void take_model(struct hand *h, uint64_t floats)
{
    struct ps_manifest *m;
    struct ps_tensor tensor = {.name = (char *)"x", .n_dims = 1, .shape = {floats}};
    h->shard = (struct ps_shard){floats, h->n_lanes, h->chunk_floats, 0, {0}};
    h->manifest_hash = 0;
    if (ps_manifest_create(&tensor, 1, UINT64_MAX, &m, NULL) < 0)
        return;
    h->manifest_hash = m->hash;
    if (h->n_parts > 1)
        ps_manifest_cut(m, h->n_parts, &h->shard, NULL);
    ps_manifest_destroy(m);
}

int hand_begin(struct hand *h, uint64_t floats, bool *offer)
{
    Ps__Begin begin = PS__BEGIN__INIT;
    Ps__Tensor tensor = PS__TENSOR__INIT, *list = &tensor;
    tensor.name = (char *)"x";
    tensor.shape = &floats;
    tensor.n_shape = 1;
    begin.client = h->client;
    begin.incarnation = h->incarnation;
    begin.tensors = &list;
    begin.n_tensors = 1;
    hand_tell(h, PS__TO_SERVER__WHAT_BEGIN, &begin);
    Ps__ToClient *m = hand_hear(h, TEST_HANG_S);
    int code = code_of(h, m);
    if (m != NULL && m->what_case == PS__TO_CLIENT__WHAT_BEGUN) {
        *offer = m->begun->offer;
        h->barrier = m->begun->barrier;
    }
    if (m != NULL)
        ps_control_free_to_client(m);
    take_model(h, floats);
    return code;
}

int hand_join(struct hand *h, const char *server, uint64_t floats)
{
    Ps__Hello hello = PS__HELLO__INIT;
    bool offer = false;
    int code;
    hand_open(h, server);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)"hand";
    if ((code = hand_hello(h, &hello)) != 0 || (code = hand_begin(h, floats, &offer)) != 0 || !offer)
        return code;
    float *zeros = calloc(floats, sizeof *zeros);
    code = hand_pass(h, PS_FRAME_OFFER, zeros, NULL);
    free(zeros);
    return code;
}

void hand_leave(struct hand *h)
{
    Ps__Leave leave = PS__LEAVE__INIT;
    leave.client = h->client;
    leave.incarnation = h->incarnation;
    hand_tell(h, PS__TO_SERVER__WHAT_LEAVE, &leave);
}

bool hand_left(struct hand *h)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    Ps__Heartbeat beat = PS__HEARTBEAT__INIT;
    beat.client = h->client;
    beat.incarnation = h->incarnation;
    hand_leave(h);
    hand_tell(h, PS__TO_SERVER__WHAT_HEARTBEAT, &beat);
    while (test_now_s() < deadline) {
        int code = hand_hear_error(h, TEST_HANG_S);
        if (code == PS__CODE__EVICTED || code == PS__CODE__STALE) /* the session has ended; the slot may be
                                                                     reused */
            return true;
    }
    return false;
}

void hand_relink(struct hand *h, uint32_t lane)
{
    struct ps_error err;
    struct ps_transport_limits limits = {h->chunk_floats * sizeof(float) + PS_MAX_SENTENCE, 4};
    h->transport->link_close(h->links[lane]);
    h->links[lane] = NULL;
    if (h->transport->link_open(h->hub, h->urls[lane], &limits, &h->links[lane], &err) < 0)
        abort();
}

struct ps_frame hand_frame(const struct hand *h, uint8_t kind, uint32_t lane, uint32_t k)
{
    struct ps_range r = ps_shard_chunk(&h->shard, lane, k);
    return (struct ps_frame){.kind = kind,
                             .client = h->client,
                             .incarnation = h->incarnation,
                             .seq = h->seq,
                             .begin = r.begin,
                             .count = (uint32_t)r.count,
                             .samples = 1};
}

void hand_send(struct hand *h, uint32_t lane, const struct ps_frame *f, const float *body, size_t bytes)
{
    unsigned char head[PS_FRAME_BYTES];
    if (h->links[lane] == NULL)
        hand_relink(h, lane);
    ps_frame_pack(f, head);
    if (h->transport->link_send(h->links[lane], head, bytes > 0 ? body : NULL, bytes) < 0)
        abort();
}

int hand_answer(struct hand *h, uint32_t lane, struct ps_frame *f, float *body, double seconds)
{
    struct ps_message m;
    struct ps_error err;
    double deadline = test_now_s() + test_slow_s(seconds);
    int rc, code = 0;
    while ((rc = h->transport->link_recv(h->links[lane], &m)) != 0) {
        int left_ms = (int)((deadline - test_now_s()) * 1e3);
        if (left_ms <= 0)
            return -1;
        h->transport->links_wait(&h->links[lane], 1, -1, left_ms);
    }
    if (ps_frame_parse(f, m.head, m.head_bytes, &err) < 0)
        abort();
    if (f->kind == PS_FRAME_ERROR) {
        snprintf(h->sentence, sizeof h->sentence, "%.*s", (int)m.body_bytes, (const char *)m.body);
        code = f->code;
    } else if (m.body_bytes > 0 && body != NULL) {
        memcpy(body, m.body, m.body_bytes);
    }
    h->transport->message_drop(&m);
    return code;
}

int hand_pass(struct hand *h, uint8_t kind, const float *message, float *answer)
{
    int code = 0;
    h->seq++;
    for (uint32_t lane = 0; lane < h->n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&h->shard, lane) && code == 0; k++) {
            struct ps_frame f = hand_frame(h, kind, lane, k);
            uint64_t begin = f.begin;
            hand_send(h, lane, &f, message != NULL ? message + begin : NULL,
                      message != NULL ? f.count * sizeof(float) : 0);
            code = hand_answer(h, lane, &f, answer != NULL ? answer + begin : NULL, TEST_HANG_S);
        }
    return code;
}

bool hand_survey(const char *advertised, uint16_t *ports, uint32_t n_ports)
{
    struct hand h;
    Ps__Hello hello = PS__HELLO__INIT;
    char direct[64];
    ports[0] = proxy_port(advertised);
    snprintf(direct, sizeof direct, "tcp://127.0.0.1:%u", ports[0]);
    hand_open(&h, direct);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.observer = true;
    hello.name = (char *)(uintptr_t) "surveyor";
    bool known = hand_hello(&h, &hello) == 0 && h.n_lanes + 1 == n_ports;
    for (uint32_t i = 0; known && i < h.n_lanes; i++)
        ports[1 + i] = proxy_port(h.urls[i]);
    known = hand_left(&h) && known;
    hand_close(&h);
    return known;
}
