#include "tests/server/lane/lane_fixture.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"
#include "tests/support/unit.h"

enum { PATIENCE_MS = 60000 }; /* ends a hang */

/* The transport with bodies that their senders can still write in. */
static struct {
    struct ps_transport row;
    const struct ps_transport *real;
    unsigned char *_Atomic body[RIG_SLOTS]; /* by client */
    atomic_int writer;                      /* -1: none */
} shared_road;

/* The client of a message; RIG_SLOTS: none. */
static uint32_t client_of(const struct ps_message *m)
{
    struct ps_frame f;
    struct ps_error err;
    return ps_frame_parse(&f, m->head, m->head_bytes, &err) == 0 && f.client < RIG_SLOTS ? f.client
                                                                                         : RIG_SLOTS;
}

/* Bodies are aligned, as those in shared memory are: otherwise a lane would decode them elsewhere. */
static int align(struct ps_message *m)
{
    unsigned char body[RIG_MAX_BODY];
    memcpy(body, m->body, m->body_bytes);
    if (shared_road.real->message_body(m, m->body_bytes) < 0)
        return -ENOMEM;
    memcpy(m->body, body, m->body_bytes);
    return 0;
}

static int recv_shared(struct ps_port *port, struct ps_message *m)
{
    int rc = shared_road.real->port_recv(port, m);
    if (rc != 0 || (m->body_bytes > 0 && (rc = align(m)) < 0))
        return rc;
    m->ownership = PS_BODY_SHARED;
    if (client_of(m) < RIG_SLOTS)
        atomic_store(&shared_road.body[client_of(m)], m->body);
    return 0;
}

static int shared_body(struct ps_message *m, size_t len_bytes)
{
    int rc = shared_road.real->message_body(m, len_bytes), writer = atomic_load(&shared_road.writer);
    uint32_t client = client_of(m);
    m->ownership = PS_BODY_SHARED;
    if (client < RIG_SLOTS)
        atomic_store(&shared_road.body[client], m->body);
    if (writer >= 0 && client < RIG_SLOTS && client != (uint32_t)writer)
        memset(rig_body((uint32_t)writer), 0x11, 64);
    return rc;
}

static void move_shared(struct ps_message *to, struct ps_message *m)
{
    shared_road.real->message_move(to, m);
    to->ownership = PS_BODY_SHARED;
}

static const struct ps_transport *make_shared_road(const struct ps_transport *real)
{
    shared_road.real = real;
    shared_road.writer = -1;
    shared_road.row = *real;
    shared_road.row.port_recv = recv_shared;
    shared_road.row.message_body = shared_body;
    shared_road.row.message_move = move_shared;
    return &shared_road.row;
}

unsigned char *rig_body(uint32_t client)
{
    return atomic_load(&shared_road.body[client]);
}

void rig_write_between(int client)
{
    atomic_store(&shared_road.writer, client);
}

static void lane_open(struct rig *r, uint32_t i)
{
    struct ps_error err = {""};
    /* One link has in flight what all clients have, and what those had who left. */
    const struct ps_transport_limits limits = {.max_body_bytes = RIG_MAX_BODY,
                                               .window_chunks = 16 * RIG_SLOTS};
    const struct psd_lane_options opt = {.index = i, .shared = &r->shared};
    ck_assert_msg(psd_lane_create(&opt, &r->lanes[i], &err) == 0, "%s", err.text);
    ck_assert_msg(psd_lane_add_port(r->lanes[i], r->transport, r->hub, "tcp://127.0.0.1:0", &limits, &err) ==
                      0,
                  "%s", err.text);
    ck_assert_msg(r->by_hand || psd_lane_start(r->lanes[i], &err) == 0, "%s", err.text);
    ck_assert_msg(
        r->transport->link_open(r->client_hub, r->lanes[i]->ports[0].url, &limits, &r->links[i], &err) == 0,
        "%s", err.text);
}

bool rig_has_raw(void)
{
    return strcmp(ps_transport_find("tcp")->name, "tcp") == 0;
}

void *rig_raw(struct rig *r)
{
    int zero = 0, patience = PATIENCE_MS;
    if (r->raw != NULL)
        return r->raw;
    r->context = zmq_ctx_new();
    r->raw = zmq_socket(r->context, ZMQ_DEALER);
    zmq_setsockopt(r->raw, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(r->raw, ZMQ_RCVTIMEO, &patience, sizeof patience);
    ck_assert_int_eq(zmq_connect(r->raw, r->lanes[0]->ports[0].url), 0);
    return r->raw;
}

static void configure(struct rig *r, const char *rule, const char *const *settings)
{
    struct ps_error err = {""};
    psd_config_defaults(&r->cfg);
    snprintf(r->cfg.rule, sizeof r->cfg.rule, "%s", rule);
    snprintf(r->cfg.method, sizeof r->cfg.method, "custom");
    r->cfg.hyper.learning_rate = 1;
    for (; settings != NULL && *settings != NULL; settings++)
        ck_assert_msg(psd_config_set(&r->cfg, *settings, &err) == 0, "%s", err.text);
    r->cfg.lanes = r->n_lanes;
    r->cfg.chunk_floats = RIG_CHUNK;
    if (strcmp(r->cfg.admission, "preset") == 0)
        snprintf(r->cfg.admission, sizeof r->cfg.admission, "fcfs");
    if (strcmp(r->cfg.averaging, "preset") == 0)
        snprintf(r->cfg.averaging, sizeof r->cfg.averaging, "none");
    r->shared.alpha =
        ps_rule_find(rule)->uses & PS_USES_RATE ? (float)ps_hyper_alpha(&r->cfg.hyper, 1, false) : 0;
}

/* A rig's queues and vectors are megabytes. The heap keeps them for the next rig: fresh pages would cost more
 * than most tests, since `meson test` has malloc fill what it gives (MALLOC_PERTURB_). */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

static void open_over(struct rig *r, const struct ps_transport *transport, bool by_hand, const char *rule,
                      uint32_t n_lanes, const char *const *settings)
{
    keep_memory();
    ps_log_setup("rig", PS_LOG_ERROR);
    *r = (struct rig){.n_lanes = n_lanes, .transport = transport, .by_hand = by_hand};
    ck_assert_int_eq(psd_shared_init(&r->shared, RIG_SLOTS, n_lanes), 0);
    configure(r, rule, settings);
    ck_assert_int_eq(r->transport->hub_create(1, &r->hub), 0);
    ck_assert_int_eq(r->transport->hub_create(1, &r->client_hub), 0);
    for (uint32_t i = 0; i < n_lanes; i++)
        lane_open(r, i);
}

void rig_open(struct rig *r, const char *rule, uint32_t n_lanes, const char *const *settings)
{
    open_over(r, ps_transport_find("tcp"), false, rule, n_lanes, settings);
}

void rig_open_by_hand(struct rig *r, const char *rule, uint32_t n_lanes, const char *const *settings)
{
    open_over(r, ps_transport_find("tcp"), true, rule, n_lanes, settings);
}

void rig_open_shared(struct rig *r, const char *rule, uint32_t n_lanes, const char *const *settings)
{
    open_over(r, make_shared_road(ps_transport_find("tcp")), false, rule, n_lanes, settings);
}

static void await_taken(struct rig *r, uint32_t lane)
{
    if (r->by_hand)
        psd_lane_take_commands(r->lanes[lane]);
    const struct psd_queue *in = r->lanes[lane]->in;
    double deadline = unit_now_s() + PATIENCE_MS / 1e3;
    for (int i = 0; atomic_load(&in->taken) != atomic_load(&in->pushed); i++) {
        ck_assert_msg(unit_now_s() < deadline, "lane %u takes no notes", lane);
        if (i < 20)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

void rig_tell(struct rig *r, uint32_t lane, const struct psd_lane_message *msg)
{
    psd_queue_push(r->lanes[lane]->in, msg);
    await_taken(r, lane);
}

static void tell_all(struct rig *r, const struct psd_lane_message *msg)
{
    for (uint32_t i = 0; i < r->n_lanes; i++)
        psd_queue_push(r->lanes[i]->in, msg);
    for (uint32_t i = 0; i < r->n_lanes; i++)
        await_taken(r, i);
}

void rig_fill(struct rig *r, uint64_t n_floats, const float *x)
{
    struct ps_tensor t = {"model", 0, {n_floats}, 1, PS_ROLE_PARAM};
    rig_fill_model(r, &t, 1, x);
}

void rig_fill_model(struct rig *r, const struct ps_tensor *tensors, size_t n, const float *x)
{
    struct ps_manifest *manifest;
    struct ps_error err = {""};
    ck_assert_msg(ps_manifest_create(tensors, n, 1 << 20, &manifest, &err) == 0, "%s", err.text);
    uint64_t n_floats = manifest->n_floats;
    ck_assert_msg(
        psd_center_create(&r->cfg, psd_admission_find(r->cfg.admission), manifest, &r->center, &err) == 0,
        "%s", err.text);
    if (x != NULL)
        memcpy(r->center->x, x, n_floats * sizeof *x);
    if (r->center->z != NULL)
        memcpy(r->center->z, r->center->x, n_floats * sizeof *x);
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .p = r->center});
}

void rig_resume(struct rig *r, struct psd_snapshot *s)
{
    struct ps_error err = {""};
    ck_assert_msg(psd_center_resume(&r->cfg, psd_admission_find(r->cfg.admission), s, &r->center, &err) == 0,
                  "%s", err.text);
    atomic_store(&r->shared.version, s->version);
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .p = r->center});
    rig_center(r); /* every lane has restored */
}

static void hear_all(struct rig *r, enum psd_lane_message_kind kind)
{
    for (uint32_t i = 0; i < r->n_lanes; i++)
        ck_assert_int_eq(rig_hear(r, i).kind, kind);
}

void rig_shut(struct rig *r)
{
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_CLOSE});
    hear_all(r, PSD_LANE_CLOSED);
}

void rig_open_again(struct rig *r)
{
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_OPEN});
}

void rig_swap(struct rig *r, const char *rule, const char *const *settings)
{
    struct psd_center *next;
    struct ps_error err = {""};
    uint64_t moves = 0;
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE});
    hear_all(r, PSD_LANE_RELEASED);
    configure(r, rule, settings);
    for (uint32_t i = 0; i < r->n_lanes; i++)
        moves = r->lanes[i]->stats.moves > moves ? r->lanes[i]->stats.moves : moves;
    ck_assert_msg(psd_center_replace(&r->cfg, psd_admission_find(r->cfg.admission), r->center, &next, &err) ==
                      0,
                  "%s", err.text);
    psd_center_take_over(next, r->center, atomic_load(&r->shared.version), moves);
    r->center = next;
    atomic_store(&r->shared.generation, next->generation);
    atomic_store(&r->shared.rounds, 0);
    for (uint32_t i = 0; i < RIG_SLOTS; i++)
        atomic_store(&r->shared.clocks[i], 0);
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .p = r->center});
}

void rig_close(struct rig *r)
{
    if (r->raw != NULL) {
        zmq_close(r->raw);
        zmq_ctx_term(r->context);
    }
    for (uint32_t i = 0; i < r->n_lanes; i++) {
        r->transport->link_close(r->links[i]);
        psd_lane_destroy(r->lanes[i]);
    }
    r->transport->hub_destroy(r->client_hub);
    r->transport->hub_destroy(r->hub);
    psd_center_destroy(r->center);
    psd_shared_finish(&r->shared);
}

void rig_admit(struct rig *r, uint32_t client, uint32_t incarnation, enum psd_phase phase, bool keep)
{
    tell_all(
        r,
        &(struct psd_lane_message){
            .kind = PSD_COMMAND_ADMIT, .client = client, .incarnation = incarnation, .a = phase, .b = keep});
}

bool rig_heard(struct rig *r, uint32_t lane)
{
    struct psd_queue *out = r->lanes[lane]->out;
    return atomic_load(&out->pushed) != atomic_load(&out->taken);
}

struct psd_lane_message rig_hear(struct rig *r, uint32_t lane)
{
    struct psd_lane_message msg = {0};
    double deadline = unit_now_s() + PATIENCE_MS / 1e3;
    while (!psd_queue_take(r->lanes[lane]->out, &msg)) {
        struct pollfd fd = {.fd = r->lanes[lane]->out->wake_fd, .events = POLLIN};
        ck_assert_msg(unit_now_s() < deadline, "lane %u says nothing", lane);
        poll(&fd, 1, 10);
        psd_queue_calm(r->lanes[lane]->out);
    }
    return msg;
}

const float *rig_center(struct rig *r)
{
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_SNAPSHOT, .p = &r->center->snapshot});
    for (uint32_t i = 0; i < r->n_lanes; i++)
        ck_assert_int_eq(rig_hear(r, i).kind, PSD_LANE_SNAPPED);
    return r->center->snapshot.center;
}

const float *rig_average(const struct rig *r)
{
    return r->center->snapshot.average;
}

static void copy_replay(const struct psd_lane *lane, struct psd_snapshot *out)
{
    for (size_t k = 0; k < lane->n_snap_replay; k++) {
        struct psd_replay_entry e = lane->snap_replay[k];
        e.landed = malloc(e.n_words * sizeof *e.landed);
        memcpy(e.landed, lane->snap_replay[k].landed, e.n_words * sizeof *e.landed);
        out->replay[out->n_replay++] = e;
    }
}

void rig_snapshot(struct rig *r, struct psd_snapshot *out)
{
    const struct ps_manifest *m = r->center->manifest;
    uint64_t n = m->n_floats;
    const float *x = rig_center(r);
    *out = r->center->snapshot;
    ck_assert_int_eq(ps_manifest_create(m->tensors, m->n_tensors, n, &out->manifest, NULL), 0);
    out->version = atomic_load(&r->shared.version);
    out->center = malloc(n * sizeof *x);
    memcpy(out->center, x, n * sizeof *x);
    out->state = NULL;
    if (out->has_average) {
        out->average = malloc(n * sizeof *x);
        memcpy(out->average, r->center->snapshot.average, n * sizeof *x);
    }
    out->lane_clocks = malloc(r->n_lanes * sizeof *out->lane_clocks);
    memcpy(out->lane_clocks, r->center->snapshot.lane_clocks, r->n_lanes * sizeof *out->lane_clocks);
    out->lane_moves = malloc(r->n_lanes * sizeof *out->lane_moves);
    memcpy(out->lane_moves, r->center->snapshot.lane_moves, r->n_lanes * sizeof *out->lane_moves);
    if (out->fragment_moves != NULL) {
        size_t bytes = (size_t)r->n_lanes * out->fragments * sizeof *out->fragment_moves;
        out->fragment_moves = malloc(bytes);
        memcpy(out->fragment_moves, r->center->snapshot.fragment_moves, bytes);
    }
    out->replay = calloc((size_t)r->n_lanes * RIG_SLOTS * PS_MAX_TRACKS, sizeof *out->replay);
    out->n_replay = 0;
    for (uint32_t i = 0; i < r->n_lanes; i++)
        copy_replay(r->lanes[i], out);
}

void rig_snapshot_free(struct psd_snapshot *s)
{
    psd_snapshot_finish(s);
}

struct ps_frame rig_frame(const struct rig *r, uint8_t kind, uint32_t client, uint32_t incarnation,
                          uint64_t seq, uint32_t lane, uint32_t k)
{
    struct ps_range chunk = ps_shard_chunk(&r->center->shard, lane, k);
    return (struct ps_frame){.kind = kind,
                             .client = client,
                             .incarnation = incarnation,
                             .seq = seq,
                             .generation = r->center->generation,
                             .begin = chunk.begin,
                             .count = (uint32_t)chunk.count,
                             .samples = 64,
                             .clock = seq};
}

static void take_reply(struct reply *reply, const void *head, size_t head_bytes, const void *body,
                       size_t body_bytes)
{
    struct ps_error err = {""};
    ck_assert_msg(ps_frame_parse(&reply->f, head, head_bytes, &err) == 0, "%s", err.text);
    reply->body_bytes = body_bytes;
    reply->sentence[0] = 0;
    if (reply->f.kind == PS_FRAME_ERROR) {
        ck_assert_uint_le(body_bytes, PS_MAX_SENTENCE);
        memcpy(reply->sentence, body, body_bytes);
        reply->sentence[body_bytes] = 0;
        ck_assert_uint_gt(reply->f.code, 0);
        ck_assert_uint_gt(body_bytes, 10);
    } else {
        ck_assert_uint_le(body_bytes, sizeof reply->x);
        memcpy(reply->x, body, body_bytes);
    }
}

void rig_send(struct rig *r, uint32_t lane, const struct ps_frame *f, const void *body, size_t body_bytes)
{
    unsigned char head[PS_FRAME_BYTES];
    ps_frame_pack(f, head);
    ck_assert_int_eq(r->transport->link_send(r->links[lane], head, body, body_bytes), 0);
}

static void serve_by_hand(struct psd_lane *lane)
{
    struct psd_arrival a = {.port = &lane->ports[0]};
    while (a.port->transport->port_recv(a.port->port, &a.message) == 0)
        psd_lane_serve(lane, &a, 0);
}

void rig_recv(struct rig *r, uint32_t lane, struct reply *reply)
{
    const struct ps_transport *t = r->transport;
    struct ps_message m;
    int rc;
    double deadline = unit_now_s() + PATIENCE_MS / 1e3;
    while ((rc = t->link_recv(r->links[lane], &m)) == -EAGAIN) {
        ck_assert_msg(unit_now_s() < deadline, "lane %u does not answer", lane);
        if (r->by_hand)
            serve_by_hand(r->lanes[lane]);
        t->links_wait(&r->links[lane], 1, -1, 10);
    }
    ck_assert_int_eq(rc, 0);
    take_reply(reply, m.head, m.head_bytes, m.body, m.body_bytes);
    t->message_drop(&m);
}

void rig_ask(struct rig *r, uint32_t lane, const struct ps_frame *f, const void *body, size_t body_bytes,
             struct reply *reply)
{
    rig_send(r, lane, f, body, body_bytes);
    rig_recv(r, lane, reply);
}

void rig_send_vector(struct rig *r, uint32_t lane, const struct ps_frame *f, const float *vector)
{
    rig_send(r, lane, f, vector + f->begin, f->count * sizeof *vector);
}

void rig_assert_silent(struct rig *r, uint32_t lane, uint32_t client, uint32_t incarnation)
{
    struct reply reply;
    struct ps_frame f = rig_frame(r, PS_FRAME_PULL, client, incarnation, 1, lane, 0);
    rig_ask(r, lane, &f, NULL, 0, &reply);
    ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
    ck_assert_uint_eq(reply.f.client, client);
    ck_assert_uint_eq(reply.f.seq, 1);
}

void rig_members(struct rig *r, uint64_t from, uint32_t n, const uint32_t *ranks)
{
    ck_assert_msg(!r->told, "the lanes may still read the members told before: hold them first");
    r->told = true;
    memcpy(r->ranks, ranks, n * sizeof *ranks);
    r->members = (struct psd_members){from, n, r->ranks};
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_MEMBERS, .p = &r->members});
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
}

uint64_t rig_hold(struct rig *r)
{
    uint64_t first = 0;
    tell_all(r, &(struct psd_lane_message){.kind = PSD_COMMAND_HOLD});
    for (uint32_t i = 0; i < r->n_lanes; i++) {
        struct psd_lane_message msg = rig_hear(r, i);
        ck_assert_int_eq(msg.kind, PSD_LANE_HELD);
        first = msg.a > first ? msg.a : first;
    }
    r->told = false;
    return first;
}

void rig_ask_vector(struct rig *r, uint32_t lane, const struct ps_frame *f, const float *vector,
                    struct reply *reply)
{
    rig_ask(r, lane, f, vector + f->begin, f->count * sizeof *vector, reply);
}

void rig_raw_send(struct rig *r, const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
    ck_assert_int_ge(zmq_send(rig_raw(r), head, head_bytes, ZMQ_SNDMORE), 0);
    ck_assert_int_ge(zmq_send(rig_raw(r), body, body_bytes, 0), 0);
}

void rig_raw_recv(struct rig *r, struct reply *reply)
{
    unsigned char head[PS_FRAME_BYTES], body[RIG_MAX_BODY];
    int head_bytes = zmq_recv(r->raw, head, sizeof head, 0), body_bytes, more = 1;
    size_t size = sizeof more;
    ck_assert_int_eq(head_bytes, PS_FRAME_BYTES);
    body_bytes = zmq_recv(r->raw, body, sizeof body, 0);
    ck_assert_int_ge(body_bytes, 0);
    zmq_getsockopt(r->raw, ZMQ_RCVMORE, &more, &size);
    ck_assert_int_eq(more, 0);
    take_reply(reply, head, sizeof head, body, (size_t)body_bytes);
}

void rig_exchange(struct rig *r, uint8_t kind, uint32_t client, uint32_t incarnation, uint64_t seq,
                  const float *vector, uint16_t flags)
{
    struct reply reply;
    for (uint32_t lane = 0; lane < r->n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r->center->shard, lane); k++) {
            struct ps_frame f = rig_frame(r, kind, client, incarnation, seq, lane, k);
            rig_ask_vector(r, lane, &f, vector, &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
            ck_assert_uint_eq(reply.f.flags, flags);
            ck_assert_uint_eq(reply.body_bytes, kind == PS_FRAME_EXCHANGE || kind == PS_FRAME_ADD
                                                    ? f.count * sizeof *vector
                                                    : 0);
        }
}
