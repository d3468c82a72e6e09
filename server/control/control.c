/* The control socket: one ROUTER socket, unpacking, dispatch. handshake.c handles Hello. */
#include "server/control/control.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "proto/clock.h"
#include "proto/transports/zmq/bind.h"
#include "proto/transports/zmq/router.h"
#include "proto/wire/control.h"
#include "proto/log.h"
#include "proto/text.h"
#include "proto/zmq_context.h"
#include "proto/security/socket_monitor.h"
#include "server/checkpoint/checkpoint.h"
#include "server/config/endpoint.h"
#include "server/job/dynamic_period.h"

/* UNREAD: messages of one peer that psd holds and has not read, each of at most PS_CONTROL_MAX_BYTES. A peer
 * that sends faster than the loop reads waits. */
enum { BATCH = 256, BATCH_BYTES = 1 << 20, UNREAD = 4 };

static void on_hello(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                     const Ps__ToServer *m)
{
    (void)s;
    psd_hello(control, peer, m->hello);
}

static void on_begin(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                     const Ps__ToServer *m)
{
    struct ps_manifest *manifest;
    struct ps_error err;
    (void)peer;
    if (psd_manifest_of(control->cfg, m->begin->tensors, m->begin->n_tensors, &manifest, &err) < 0) {
        psd_send_error(control->sender, s, PS__CODE__MANIFEST, true, err.text);
        psd_job_end(control->job, s, PS__CODE__MANIFEST, err.text);
        return;
    }
    psd_job_begin(control->job, s, manifest);
}

/* Logs why a client does not use a faster transport, when that changes. */
static void note_transport(struct psd_session *s, const Ps__Heartbeat *m)
{
    enum { MOST_LINES = 8 }; /* of a session */
    char was[sizeof s->transport_reason];
    memcpy(was, s->transport_reason, sizeof was);
    ps_text_copy(s->transport, sizeof s->transport, m->road);
    ps_text_copy(s->transport_reason, sizeof s->transport_reason, m->road_why);
    if (s->transport_reason[0] != 0 && strcmp(s->transport_reason, was) != 0 && s->told &&
        s->n_roads_told++ < MOST_LINES)
        ps_log(PS_LOG_INFO, "session.road", "%s (%s %u) uses %s: %s", s->name,
               s->observer ? "observer" : "rank", s->client, s->transport, s->transport_reason);
}

/* The others of a clique have gone on without some members (clique.on_loss). */
static void note_members(struct psd_control *control, struct psd_session *s, uint32_t left)
{
    if (s->observer || left == 0 || left >= s->members_left)
        return;
    s->members_left = left;
    if (!ps_log_allows(&control->sender->log_limit, "clique.shrunk", "cliques"))
        return;
    ps_log(PS_LOG_WARN, "clique.shrunk", "%s (rank %u): its clique goes on with %u of %u members", s->name,
           s->client, left, s->members);
    psd_history_tell(control->job, PSD_EVENT_MEMBERS,
                     "%s (rank %u): its clique goes on with %u of %u members", s->name, s->client, left,
                     s->members);
}

/* After a restart an exchange may be open here that the worker has completed before: the checkpoint has a
 * part of it. A change of the method would wait for the rest. */
static void note_ended(struct psd_control *control, const struct psd_session *s, uint64_t seq)
{
    if (seq != 0)
        psd_exchange_remember(&control->lanes->shared.over[s->client],
                              psd_exchange_name(s->incarnation, seq + 1));
}

static void on_heartbeat(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                         const Ps__ToServer *m)
{
    Ps__Alive alive = PS__ALIVE__INIT;
    Ps__ToClient answer = PS__TO_CLIENT__INIT;
    s->clock = m->heartbeat->clock;
    s->speed.incarnation = s->incarnation;
    s->speed.steps_per_second = psd_dynamic_period_speed(m->heartbeat->steps_per_second);
    note_transport(s, m->heartbeat);
    note_members(control, s, m->heartbeat->members);
    note_ended(control, s, m->heartbeat->ended);
    alive.workers = psd_sessions_count(control->sessions, false);
    alive.center_version = psd_version(control->lanes);
    alive.draining = control->job->state == PSD_STATE_DRAINING || control->job->state == PSD_STATE_STOPPING;
    alive.generation = atomic_load_explicit(&control->lanes->shared.generation, memory_order_relaxed);
    alive.waiting_chunks = psd_stats_waiting(control->job, s->client, &alive.waiting_seq);
    alive.period = control->cfg->hyper.dynamic_period && !s->observer ? s->speed.period : 0;
    answer.what_case = PS__TO_CLIENT__WHAT_ALIVE;
    answer.alive = &alive;
    psd_send_to(control->sender, peer->id, peer->id_bytes, &answer);
}

static unsigned stage_of(const struct psd_session *s)
{
    return s->state == PSD_SESSION_ACTIVE     ? PSD_STAGE_ACTIVE
           : s->state == PSD_SESSION_OFFERING ? PSD_STAGE_OFFERING
                                              : PSD_STAGE_JOINING;
}

/* Whether the session may send the message. Otherwise the message is ignored and the session continues. */
static bool may_send(struct psd_control *control, const struct psd_session *s, enum psd_message m)
{
    if (psd_may_send(m, s->observer, stage_of(s)))
        return true;
    control->sender->rejected[PS__CODE__AUTH]++;
    if (ps_log_allows(&control->sender->log_limit, "control.refused", "control socket"))
        ps_log(PS_LOG_WARN, "control.refused", "%s (%s %u) may not send %s; it is ignored", s->name,
               s->observer ? "observer" : "rank", s->client,
               m == PSD_MESSAGE_EVALUATION ? "an evaluation of the center, which active observers may"
                                           : "that");
    return false;
}

static void on_report(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                      const Ps__ToServer *m)
{
    const Ps__Report *r = m->report;
    (void)peer;
    s->metrics = (struct psd_metrics){r->loss, r->accuracy, r->samples_per_second};
    if (!s->observer)
        psd_plateau_reported(control->job, r->loss);
    if (r->steps > 0 && r->steps <= PS_MAX_STEPS)
        s->steps = r->steps;
    if (!isfinite(r->test_accuracy) || !isfinite(r->test_loss) ||
        !may_send(control, s, PSD_MESSAGE_EVALUATION))
        return;
    if (r->offer != 0 && r->offer == s->offer.number && s->offer.incarnation == s->incarnation) {
        if (s->offer.answered) /* the answer was lost; otherwise it is still to be sent */
            psd_send_reported(control->sender, s, r->offer, s->offer.wanted);
        return;
    }
    s->offer.number = r->offer;
    s->offer.incarnation = s->incarnation;
    s->offer.answered = false;
    control->job->evaluation = (struct psd_evaluation){.loss = r->test_loss,
                                                       .accuracy = r->test_accuracy,
                                                       .version = r->center_version,
                                                       .fresh = true,
                                                       .offer = r->offer,
                                                       .client = s->client,
                                                       .incarnation = s->incarnation};
    psd_checkpointer_evaluated(control->job, &control->job->evaluation);
    psd_plateau_evaluated(control->job, &control->job->evaluation);
    psd_stop_check(control->job);
}

static void on_not_finite(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                          const Ps__ToServer *m)
{
    (void)peer;
    psd_job_note_nonfinite(control->job, s, m->not_finite->clock, m->not_finite->index, false);
    psd_stop_check(control->job);
}

static void on_leave(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                     const Ps__ToServer *m)
{
    (void)peer;
    s->clock = m->leave->clock > s->clock ? m->leave->clock : s->clock;
    psd_loss_left(control->job, s, m->leave);
    psd_job_end(control->job, s, PS__CODE__OK, "left");
}

static void on_barrier(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                       const Ps__ToServer *m)
{
    (void)peer;
    psd_take_barrier(control, s, m->barrier);
}

static void on_set_method(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                          const Ps__ToServer *m)
{
    (void)peer;
    psd_take_set_method(control, s, m->set_method);
}

static void on_meet(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                    const Ps__ToServer *m)
{
    (void)s;
    if (m->meet->protocol != PS_PROTOCOL_VERSION) {
        char sentence[96];
        snprintf(sentence, sizeof sentence, "protocol version %u; this psd speaks %d", m->meet->protocol,
                 PS_PROTOCOL_VERSION);
        psd_send_refusal(control->sender, peer, PS__CODE__VERSION, sentence);
    } else if (control->job->state >= PSD_STATE_DRAINING) {
        psd_send_refusal(control->sender, peer, PS__CODE__DRAINING,
                         "psd is draining: no clique can form here any more");
    } else {
        psd_rendezvous_take(&control->rendezvous, peer, m->meet, psd_loop_now_ms(control->loop));
    }
}

static void on_enlist(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                      const Ps__ToServer *m)
{
    (void)s;
    if (control->auth->munge.on && psd_has_cluster(control->cfg) &&
        m->enlist->protocol == PS_PROTOCOL_VERSION)
        psd_munge_enlist(control->auth, peer, m->enlist);
    else
        psd_cluster_register(control->cluster, peer, m->enlist);
}

static void on_news(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                    const Ps__ToServer *m)
{
    (void)s;
    psd_cluster_news(control->cluster, peer, m->news);
}

/* One row for each message. Messages that only the session's owner may send carry client and incarnation. */
static const struct {
    void (*handle)(struct psd_control *control, const struct psd_peer *peer, struct psd_session *s,
                   const Ps__ToServer *m);
    enum psd_message says;
} handlers[] = {
    [PS__TO_SERVER__WHAT_HELLO] = {on_hello, PSD_MESSAGE_HELLO},
    [PS__TO_SERVER__WHAT_BEGIN] = {on_begin, PSD_MESSAGE_BEGIN},
    [PS__TO_SERVER__WHAT_HEARTBEAT] = {on_heartbeat, PSD_MESSAGE_HEARTBEAT},
    [PS__TO_SERVER__WHAT_REPORT] = {on_report, PSD_MESSAGE_REPORT},
    [PS__TO_SERVER__WHAT_LEAVE] = {on_leave, PSD_MESSAGE_LEAVE},
    [PS__TO_SERVER__WHAT_NOT_FINITE] = {on_not_finite, PSD_MESSAGE_NOT_FINITE},
    [PS__TO_SERVER__WHAT_BARRIER] = {on_barrier, PSD_MESSAGE_BARRIER},
    [PS__TO_SERVER__WHAT_SET_METHOD] = {on_set_method, PSD_MESSAGE_SET_METHOD},
    [PS__TO_SERVER__WHAT_MEET] = {on_meet, PSD_MESSAGE_MEET},
    [PS__TO_SERVER__WHAT_ENLIST] = {on_enlist, PSD_MESSAGE_ENLIST},
    [PS__TO_SERVER__WHAT_NEWS] = {on_news, PSD_MESSAGE_NEWS},
};

/* The named messages all start with the same two fields; protobuf-c gives each message its own struct. */
static void name_of(const Ps__ToServer *m, uint32_t *client, uint32_t *incarnation)
{
    switch (m->what_case) {
    case PS__TO_SERVER__WHAT_BEGIN:
        *client = m->begin->client, *incarnation = m->begin->incarnation;
        break;
    case PS__TO_SERVER__WHAT_HEARTBEAT:
        *client = m->heartbeat->client, *incarnation = m->heartbeat->incarnation;
        break;
    case PS__TO_SERVER__WHAT_REPORT:
        *client = m->report->client, *incarnation = m->report->incarnation;
        break;
    case PS__TO_SERVER__WHAT_NOT_FINITE:
        *client = m->not_finite->client, *incarnation = m->not_finite->incarnation;
        break;
    case PS__TO_SERVER__WHAT_BARRIER:
        *client = m->barrier->client, *incarnation = m->barrier->incarnation;
        break;
    case PS__TO_SERVER__WHAT_SET_METHOD:
        *client = m->set_method->client, *incarnation = m->set_method->incarnation;
        break;
    default:
        *client = m->leave->client, *incarnation = m->leave->incarnation;
    }
}

static void refuse_unnamed(struct psd_control *control, const struct psd_peer *peer, uint32_t client,
                           uint32_t incarnation)
{
    char sentence[160];
    uint32_t now = client < control->sessions->n_slots ? control->sessions->slots[client].incarnation : 0,
             code;
    bool live = now != 0 && control->sessions->slots[client].state != PSD_SESSION_VACANT;
    if (live && now == incarnation && !psd_auth_owns(peer, &control->sessions->slots[client])) {
        code = PS__CODE__AUTH;
        snprintf(sentence, sizeof sentence, "the session of client %u belongs to another identity than %s",
                 client, peer->identity);
    } else if (live && now == incarnation) {
        /* Its connection broke, and ZeroMQ made another one with another identity. */
        code = PS__CODE__NO_SESSION;
        snprintf(sentence, sizeof sentence, "client %u has its session on another connection: send Hello",
                 client);
    } else if (live) {
        code = PS__CODE__STALE;
        snprintf(sentence, sizeof sentence, "incarnation %u is stale: client %u is at incarnation %u",
                 incarnation, client, now);
    } else if (now == incarnation && now != 0) {
        code = PS__CODE__EVICTED;
        snprintf(sentence, sizeof sentence, "the session of client %u, incarnation %u, has ended", client,
                 incarnation);
    } else {
        code = PS__CODE__NO_SESSION;
        snprintf(sentence, sizeof sentence, "client %u, incarnation %u, has no session", client, incarnation);
    }
    psd_send_refusal(control->sender, peer, code, sentence);
}

static void dispatch(struct psd_control *control, const struct psd_peer *peer, const Ps__ToServer *m)
{
    struct psd_session *s = NULL;
    uint32_t client, incarnation;

    if ((size_t)m->what_case >= sizeof handlers / sizeof *handlers || handlers[m->what_case].handle == NULL) {
        psd_send_refusal(control->sender, peer, PS__CODE__MALFORMED, "a control message of unknown kind");
        return;
    }
    if (!psd_is_head(control->cfg)) {
        psd_follower_redirect(control->cluster, peer);
        return;
    }
    const enum psd_message says = handlers[m->what_case].says;
    if (psd_rights[says].proof != PSD_PROOF_SERVER &&
        (!psd_cluster_is_complete(control->cluster) || control->cluster->again.due))
        return; /* the client asks again */
    if (!psd_auth_may_send(control->auth, peer, says))
        return;
    if (psd_rights[says].proof == PSD_PROOF_OWNER) {
        name_of(m, &client, &incarnation);
        s = psd_sessions_find(control->sessions, client, incarnation);
        if (s == NULL || !psd_auth_owns(peer, s) || s->peer_bytes != peer->id_bytes ||
            memcmp(s->peer, peer->id, peer->id_bytes) != 0) {
            refuse_unnamed(control, peer, client, incarnation);
            return;
        }
        s->last_heard_ms = psd_loop_now_ms(control->loop);
        if (!may_send(control, s, says))
            return;
    }
    handlers[m->what_case].handle(control, peer, s, m);
}

/* The peer as libzmq describes it: an IP address, or NAME:UID:GID:PID over a UNIX socket. */
static void describe_peer(const struct psd_control *control, zmq_msg_t *body, char *text, size_t size)
{
    const char *address = zmq_msg_gets(body, "Peer-Address");
    long uid, gid, pid;
    bool is_file = control->file.path[0] != 0;
    if (address != NULL && is_file && sscanf(address, "%*[^:]:%ld:%ld:%ld", &uid, &gid, &pid) == 3)
        snprintf(text, size, "pid %ld of uid %ld", pid, uid);
    else
        snprintf(text, size, "%s", address != NULL ? address : "unknown address");
}

static bool comes_early(const struct psd_control *control, const Ps__ToServer *m)
{
    return m->what_case == PS__TO_SERVER__WHAT_HELLO && psd_is_head(control->cfg) &&
           !psd_cluster_is_complete(control->cluster) && !control->cluster->again.due;
}

static void receive_one(struct psd_control *control, zmq_msg_t *id, zmq_msg_t *body)
{
    char address[64];
    describe_peer(control, body, address, sizeof address);
    struct psd_peer peer = {.id = zmq_msg_data(id), .id_bytes = zmq_msg_size(id), .address = address};
    if (!psd_auth_peer(control->auth, body, &peer))
        return;
    Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(body), zmq_msg_size(body));
    if (m == NULL) {
        psd_send_refusal(control->sender, &peer, PS__CODE__MALFORMED, "bytes that are not a control message");
        return;
    }
    if (comes_early(control, m))
        psd_early_keep(&control->early, id, body, m->hello->token, control->sessions->n_slots,
                       psd_loop_now_ms(control->loop));
    else
        dispatch(control, &peer, m);
    ps_control_free_to_server(m);
}

void psd_control_take_early(struct psd_control *control)
{
    struct psd_early all = psd_early_take(&control->early);
    for (uint32_t i = 0; i < all.n; i++)
        if (psd_early_is_fresh(&all.first[i], psd_loop_now_ms(control->loop)))
            receive_one(control, &all.first[i].id, &all.first[i].body);
    psd_early_finish(&all);
}

/* Receives at most a batch of messages, so that a peer that floods the control socket cannot keep the loop
 * from its other work. A MiB may take 50 ms to unpack. False: there may be more. */
static bool receive(struct psd_control *control)
{
    size_t bytes = 0;
    for (int taken = 0; taken < BATCH && bytes < BATCH_BYTES; taken++) {
        zmq_msg_t id, body, extra;
        int n = 1, more;
        zmq_msg_init(&id);
        zmq_msg_init(&body);
        if (zmq_msg_recv(&id, control->sender->socket, ZMQ_DONTWAIT) < 0)
            return true;
        if ((more = zmq_msg_more(&id)) && zmq_msg_recv(&body, control->sender->socket, ZMQ_DONTWAIT) >= 0) {
            more = zmq_msg_more(&body);
            n = 2;
        }
        while (more) {
            zmq_msg_init(&extra);
            more = zmq_msg_recv(&extra, control->sender->socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&extra);
            zmq_msg_close(&extra);
            n = 3;
        }
        bytes += zmq_msg_size(&body);
        if (n == 2)
            receive_one(control, &id, &body);
        else
            psd_send_refusal(control->sender,
                             &(struct psd_peer){
                                 .id = zmq_msg_data(&id), .id_bytes = zmq_msg_size(&id), .address = "a peer"},
                             PS__CODE__MALFORMED, "a control message has one part");
        zmq_msg_close(&id);
        zmq_msg_close(&body);
    }
    return false;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    receive(poll->data);
}

/* While it is active the loop does not wait. */
static void on_more(uv_idle_t *idle)
{
    (void)idle;
}

/* ZeroMQ's descriptor only signals changes, and sending may consume the signal: look before each wait. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct psd_control *control = prepare->data;
    if (receive(control))
        uv_idle_stop(&control->more);
    else
        uv_idle_start(&control->more, on_more);
}

static void say_met(void *arg, const struct psd_peer *peer, const Ps__Met *met)
{
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    m.what_case = PS__TO_CLIENT__WHAT_MET;
    m.met = (Ps__Met *)(uintptr_t)met;
    psd_send_to(arg, peer->id, peer->id_bytes, &m);
}

static void say_refused(void *arg, const struct psd_peer *peer, uint32_t code, const char *sentence)
{
    psd_send_refusal(arg, peer, code, sentence);
}

static int set_options(void *socket)
{
    int zero = 0, mark = 4096, unread = UNREAD;
    int64_t max_bytes = PS_CONTROL_MAX_BYTES;
    return zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero) |
           zmq_setsockopt(socket, ZMQ_RCVHWM, &unread, sizeof unread) |
           zmq_setsockopt(socket, ZMQ_SNDHWM, &mark, sizeof mark) |
           zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes);
}

static int bind_to(struct psd_control *c, const char *url, struct ps_error *err)
{
    return ps_bind(c->sender->socket, url, c->url, sizeof c->url, &c->file, err);
}

/* After a restart psd listens where it listened before, as its peers know that address. Meanwhile another
 * process may have got the port: a port that the kernel chose (port 0) it may also give to others. */
static int bind_again(struct psd_control *c, const char *before, const char *configured, struct ps_error *err)
{
    enum { PATIENCE_MS = 5000, PAUSE_MS = 50 };
    uint64_t until_ms = ps_now_ms() + PATIENCE_MS;
    int rc;
    while ((rc = bind_to(c, before, err)) == -EADDRINUSE && ps_now_ms() < until_ms)
        ps_sleep_us(PAUSE_MS * 1000);
    if (rc != -EADDRINUSE || (rc = bind_to(c, configured, err)) < 0)
        return rc;
    ps_log(PS_LOG_WARN, "start.moved",
           "another process listens on %s, where psd listened before its restart; psd now listens on %s",
           before, c->url);
    return 0;
}

int psd_control_open(struct psd_control *control, const char *listen, struct ps_error *err)
{
    struct psd_control *c = control;
    char url[300];
    void *socket;
    int fd, rc;
    size_t fd_size = sizeof fd;

    if ((rc = psd_endpoint_listen(control->cfg, url, sizeof url, err)) < 0 ||
        (rc = psd_endpoint_directory(control->cfg, url, err)) < 0)
        return rc;
    if ((c->context = ps_zmq_context_new(1)) == NULL ||
        (socket = control->sender->socket = ps_zmq_router(c->context)) == NULL || set_options(socket) != 0)
        return ps_fail(err, -zmq_errno(), "cannot create the control socket: %s", zmq_strerror(zmq_errno()));
    if ((rc = psd_auth_guard_control(control->auth, c->context, socket, &c->watch, err)) < 0)
        return rc;
    if ((rc = listen[0] != 0 ? bind_again(c, listen, url, err) : bind_to(c, url, err)) < 0)
        return rc;
    if (zmq_getsockopt(socket, ZMQ_FD, &fd, &fd_size) != 0)
        return ps_fail(err, -zmq_errno(), "cannot watch the control socket: %s", zmq_strerror(zmq_errno()));
    control->rendezvous.voice = (struct psd_rendezvous_hooks){say_met, say_refused, control->sender};
    c->poll.data = c->prepare.data = control;
    uv_poll_init(control->loop, &c->poll, fd);
    uv_poll_start(&c->poll, UV_READABLE, on_readable);
    uv_prepare_init(control->loop, &c->prepare);
    uv_prepare_start(&c->prepare, on_prepare);
    uv_idle_init(control->loop, &c->more);
    return 0;
}

void psd_control_close(struct psd_control *control)
{
    int linger_ms = 500; /* for the last messages: Drain, Error */
    psd_rendezvous_finish(&control->rendezvous);
    psd_early_finish(&control->early);
    control->auth->munge.on = false; /* answers of munged that are still to come are ignored */
    if (control->poll.data != NULL) {
        uv_close((uv_handle_t *)&control->poll, NULL);
        uv_close((uv_handle_t *)&control->prepare, NULL);
        uv_close((uv_handle_t *)&control->more, NULL);
    }
    if (control->sender->socket != NULL) {
        ps_watch_close(control->sender->socket, control->watch);
        zmq_setsockopt(control->sender->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
        zmq_close(control->sender->socket);
        ps_unix_socket_remove(&control->file);
    }
    psd_zap_close(&control->auth->control);
    if (control->context != NULL)
        zmq_ctx_term(control->context);
}
