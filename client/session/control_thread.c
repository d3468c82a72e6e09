/* The service thread, which owns the control socket of one session.
 *
 * It finds the server, sends Hello, heartbeats and the messages that the caller asks for, and handles what
 * arrives. When the server has been silent for a while it opens a new socket and continues the same session.
 * Every wait has a deadline. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <zmq.h>

#include "client/session/control_messages.h"
#include "client/session/retry.h"
#include "client/session/session.h"
#include "proto/clock.h"
#include "proto/thread.h"
#include "proto/wire/control.h"
#include "proto/zmq_context.h"

/* An unanswered Hello is sent again on a new socket: after HELLO_WAIT_MS at first, then at growing
 * intervals. */
enum {
    HELLO_WAIT_MS = 1000,
    MAX_HELLO_WAIT_MS = 8000,
    NO_PLACE_WAIT_MS = 100,
    RESOLVE_MS = 5000,
    SILENT_BEATS = 4,
    LEAVE_LINGER_MS = 300,
    SLEPT_MS = 500
};

struct service {
    struct psc_session *session;
    void *context;
    struct psc_control_socket line;
    char elsewhere[320]; /* address of the job's head, when a server redirected us to it; "": none did */
    bool sent_on;        /* connected to that address */
    uint64_t last_heard_ms, last_beat_ms, looked_ms;
    struct psc_server_address found; /* address of the server when it was last looked up */
    uint64_t hello_ms;               /* when Hello is sent again, unless an answer arrives */
    uint64_t said_ms;                /* when Hello was sent */
    uint64_t find_ms;                /* when the server's address is looked up again */
    struct psc_retry retry;
    bool waits;                 /* the caller was told that there is no answer yet */
    struct ps_error unresolved; /* why the host name did not resolve then, until the next Welcome, or "" */
    struct ps_error
        redirected; /* which server redirected us since the last Welcome, and where to; "": none */
};

/* With the lock held: wakes every waiting thread. */
static void announce(struct psc_session *session)
{
    ps_cond_wake(&session->shared.changed);
    eventfd_write(session->wake_fd, 1);
}

static void end_session(struct psc_session *session, int result, const char *sentence)
{
    struct psc_shared *s = &session->shared;
    pthread_mutex_lock(&s->lock);
    if (s->state != PSC_STATE_ENDED) {
        /* A draining server may end before our last messages arrive: that is a normal end. */
        s->result = s->draining && result == PSC_EGONE ? PSC_DRAINED : result;
        bool tell = result == PSC_EGONE && s->trouble.text[0] != 0;
        ps_fail(&s->why, 0, "%s%s%s", sentence, tell ? ": " : "", tell ? s->trouble.text : "");
        s->state = PSC_STATE_ENDED;
        announce(session);
    }
    pthread_mutex_unlock(&s->lock);
}

static int send_message(struct service *v, int what, void *message)
{
    return psc_control_send(v->line.socket, what, message);
}

/* Records why the server cannot be reached, or "", for the sentence that ends the wait. */
static void note_trouble(struct psc_session *session, const struct ps_error *trouble)
{
    pthread_mutex_lock(&session->shared.lock);
    session->shared.trouble = *trouble;
    pthread_mutex_unlock(&session->shared.lock);
}

/* Whether a server has welcomed this session. */
static bool is_known(struct psc_session *session)
{
    pthread_mutex_lock(&session->shared.lock);
    bool known = session->shared.epoch > 0;
    pthread_mutex_unlock(&session->shared.lock);
    return known;
}

/* A munged that does not answer ends no session that was welcomed: Hello is sent again, and asks it again. */
static void send_hello(struct service *v, const ProtobufCBinaryData *nonce)
{
    struct ps_error why;
    int rc = psc_hello_send(v->session, v->line.socket, nonce, &why);
    if (rc == PSC_EGONE && is_known(v->session))
        note_trouble(v->session, &why);
    else if (rc != PSC_OK)
        end_session(v->session, PSC_EAUTH, why.text);
}

static void wait_for_welcome(struct service *v)
{
    uint64_t now = ps_now_ms();
    v->said_ms = now;
    v->find_ms = now + HELLO_WAIT_MS;
    v->hello_ms = now + (uint64_t)(v->line.socket != NULL
                                       ? psc_retry_next(&v->retry, HELLO_WAIT_MS, MAX_HELLO_WAIT_MS)
                                       : psc_retry_next(&v->retry, NO_PLACE_WAIT_MS, NO_PLACE_WAIT_MS));
}

/* A restarted server may have another address; its endpoint file has it. */
static bool has_moved(struct service *v)
{
    struct ps_error ignored;
    struct psc_server_address place;
    uint64_t now = ps_now_ms();
    if (now < v->find_ms)
        return false;
    v->find_ms = now + HELLO_WAIT_MS;
    return psc_place_find(v->session->opt->server, &place, &ignored) == 0 && !psc_place_is(&place, &v->found);
}

/* Opens a new socket and sends Hello. */
static void connect_anew(struct service *v)
{
    struct psc_server_address place;
    struct ps_error trouble = {""};

    psc_control_socket_close(&v->line, 0);
    int rc = psc_place_find(v->session->opt->server, &place, &trouble) < 0 ? PSC_EGONE : PSC_OK;
    v->found = place;
    v->sent_on = v->elsewhere[0] != 0;
    if (v->sent_on &&
        rc == PSC_OK) { /* for this attempt only: the next one starts at the address that the user gave */
        snprintf(place.url, sizeof place.url, "%s", v->elsewhere);
        v->elsewhere[0] = 0;
    }
    if (rc == PSC_OK)
        rc = psc_control_socket_open(&v->line, v->context, &place, &v->session->proof, &trouble);
    note_trouble(v->session, trouble.text[0] != 0         ? &trouble
                             : v->unresolved.text[0] != 0 ? &v->unresolved
                                                          : &v->redirected);
    wait_for_welcome(v);
    if (rc == PSC_OK)
        send_hello(v, NULL);
    else if (rc != PSC_EGONE)
        end_session(v->session, rc, trouble.text);
}

/* Reports a refused handshake. After the first Welcome only the server's own messages count, because another
 * process may briefly have its address. */
static void look_at_handshakes(struct service *v)
{
    struct ps_error why = {""};
    int rc = psc_control_socket_poll(&v->line, &v->session->proof, &why);
    if (rc == PSC_OK)
        return;
    note_trouble(v->session, &why);
    if (rc == PSC_EAUTH && !is_known(v->session))
        end_session(v->session, PSC_EAUTH, why.text);
}

/* After a reconnect by libzmq: the Hello sent before is lost, so it is sent again soon, but not more often
 * than to a silent server. */
static void look_for_return(struct service *v, enum psc_state state)
{
    if (v->line.n_shaken < 2)
        return;
    v->line.n_shaken = 1; /* once for each return */
    if (state != PSC_STATE_CONNECTING)
        return;
    psc_retry_reset(&v->retry);
    if (v->hello_ms > v->said_ms + HELLO_WAIT_MS)
        v->hello_ms = v->said_ms + HELLO_WAIT_MS;
}

static void tell_of_swap(struct psc_session *session, const struct psc_welcome *welcome)
{
    char sentence[120];
    snprintf(sentence, sizeof sentence, "the method is now %s (generation %u)", welcome->method,
             welcome->generation);
    psc_session_say(session, sentence);
}

/* The job that the message names; 0: it names none. Answers to heartbeats come from the server that has our
 * session. */
static uint64_t job_of(const Ps__ToClient *m)
{
    switch (m->what_case) {
    case PS__TO_CLIENT__WHAT_WELCOME:
        return m->welcome->job;
    case PS__TO_CLIENT__WHAT_ERROR:
        return m->error->job;
    case PS__TO_CLIENT__WHAT_ELSEWHERE:
        return m->elsewhere->job;
    case PS__TO_CLIENT__WHAT_CHALLENGE:
        return m->challenge->job;
    default:
        return 0;
    }
}

static bool has_begun(struct service *v)
{
    struct psc_shared *s = &v->session->shared;
    pthread_mutex_lock(&s->lock);
    bool begun = s->begun;
    pthread_mutex_unlock(&s->lock);
    return begun;
}

/* Whether the message comes from a psd of another job, which took the address of our server while that was
 * down. */
static bool is_foreign(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->session->shared;
    uint64_t job = job_of(m);
    pthread_mutex_lock(&s->lock);
    bool foreign = s->begun && s->job != 0 && job != 0 && job != s->job;
    pthread_mutex_unlock(&s->lock);
    return foreign;
}

/* A server without tracks has one exchange of this client under way at a time. */
static void take_landed(struct psc_shared *s, const Ps__Welcome *w)
{
    for (size_t k = 0; k < PS_MAX_TRACKS; k++)
        s->landed_seq[k] = k < w->n_landed_on_tracks ? w->landed_on_tracks[k] : w->landed_seq;
}

static void on_welcome(struct service *v, const Ps__ToClient *m)
{
    struct psc_session *session = v->session;
    struct psc_shared *s = &session->shared;
    struct psc_welcome welcome;
    struct ps_error err;
    int rc = psc_welcome_take(&welcome, m->welcome, &err);
    if (rc < 0) {
        end_session(session, rc, err.text);
        return;
    }
    memcpy(welcome.server_key, v->line.key, sizeof welcome.server_key);
    pthread_mutex_lock(&s->lock);
    bool again = s->epoch > 0, swapped = again && welcome.generation != s->welcome.generation;
    s->welcome = welcome;
    take_landed(s, m->welcome);
    s->workers = m->welcome->workers;
    s->job = m->welcome->job;
    s->keeps_best = m->welcome->keeps_best;
    s->center_version = m->welcome->center_version; /* a restart may have set it back */
    s->state = PSC_STATE_JOINED;
    s->waiting_chunks = 0;
    s->epoch++;
    s->heard++;
    psc_retry_reset(&v->retry);
    v->redirected.text[0] = v->unresolved.text[0] = s->trouble.text[0] = 0;
    s->period = swapped ? 0 : s->period;
    s->reconnects += again && !swapped;
    bool revived = m->welcome->revival != 0 && m->welcome->revival != s->revival;
    s->revivals += revived;
    s->revival = m->welcome->revival;
    if (revived)
        memset(s->versions, 0, sizeof s->versions); /* those of the run before have been sent */
    if (!s->begun) {
        s->send_begin = s->manifest != NULL;
        s->clock = welcome.clock;
    }
    announce(session);
    pthread_mutex_unlock(&s->lock);
    if (swapped)
        tell_of_swap(session, &welcome);
    else if (again)
        psc_session_say(session, "the server is back: the session continues");
}

static void on_parked(struct service *v, const Ps__ToClient *m)
{
    (void)m;
    pthread_mutex_lock(&v->session->shared.lock);
    v->session->shared.parked = true;
    pthread_mutex_unlock(&v->session->shared.lock);
    psc_session_say(v->session, m->parked->reason);
}

static void on_begun(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->session->shared;
    pthread_mutex_lock(&s->lock);
    s->begun = true;
    s->offer = m->begun->offer;
    s->center_version = m->begun->center_version;
    s->barrier = m->begun->barrier;
    announce(v->session);
    pthread_mutex_unlock(&s->lock);
}

static void on_alive(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->session->shared;
    pthread_mutex_lock(&s->lock);
    s->workers = m->alive->workers;
    s->heard++;
    if (m->alive->center_version > s->center_version)
        s->center_version = m->alive->center_version;
    s->draining = s->draining || m->alive->draining;
    s->waiting_seq = m->alive->waiting_seq;
    s->waiting_chunks = m->alive->waiting_chunks;
    bool missed = s->begun && s->state == PSC_STATE_JOINED && m->alive->generation != s->welcome.generation;
    s->period = m->alive->period;
    pthread_mutex_unlock(&s->lock);
    if (missed)
        send_hello(v, NULL);
}

static void on_drain(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->session->shared;
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    announce(v->session);
    pthread_mutex_unlock(&s->lock);
    char sentence[300];
    snprintf(sentence, sizeof sentence, "the server is draining (%.200s): finish and leave",
             m->drain->reason);
    psc_session_say(v->session, sentence);
}

static void on_save(struct service *v, const Ps__ToClient *m)
{
    pthread_mutex_lock(&v->session->shared.lock);
    v->session->shared.save_version = m->save->center_version;
    pthread_mutex_unlock(&v->session->shared.lock);
}

static void on_reported(struct service *v, const Ps__ToClient *m)
{
    pthread_mutex_lock(&v->session->shared.lock);
    v->session->shared.answered_offer = m->reported->offer;
    v->session->shared.offer_wanted = m->reported->wanted;
    announce(v->session);
    pthread_mutex_unlock(&v->session->shared.lock);
}

static void on_done(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->session->shared;
    pthread_mutex_lock(&s->lock);
    s->request.answered = m->done->number;
    s->barrier = m->done->barrier;
    snprintf(s->request.refused, sizeof s->request.refused, "%s", m->done->refused);
    announce(v->session);
    pthread_mutex_unlock(&s->lock);
}

static void on_challenge(struct service *v, const Ps__ToClient *m)
{
    wait_for_welcome(v); /* the server runs and answers as fast as it can */
    send_hello(v, &m->challenge->nonce);
}

static void go_looking(struct service *v, const char *why)
{
    struct psc_shared *s = &v->session->shared;
    pthread_mutex_lock(&s->lock);
    bool drained = s->draining;
    if (!drained)
        s->state = PSC_STATE_CONNECTING;
    announce(v->session);
    pthread_mutex_unlock(&s->lock);
    if (drained) { /* it had announced its end */
        end_session(v->session, PSC_DRAINED, "the server has drained and is gone");
        return;
    }
    psc_session_say(v->session, why);
    connect_anew(v);
}

/* Messages of another server are ignored, and do not count as a sign of life of ours. */
static void on_foreign(struct service *v, const char *who)
{
    struct psc_shared *s = &v->session->shared;
    struct ps_error trouble;
    pthread_mutex_lock(&s->lock);
    bool joined = s->state == PSC_STATE_JOINED;
    pthread_mutex_unlock(&s->lock);
    char sentence[100];
    snprintf(sentence, sizeof sentence, "%s answers there: waiting for our server", who);
    if (joined)
        go_looking(v, sentence);
    ps_fail(&trouble, 0, "%s answers at %.300s", who, v->line.place.url);
    note_trouble(v->session, &trouble);
}

static void on_error(struct service *v, const Ps__ToClient *m)
{
    struct psc_shared *s = &v->session->shared;
    pthread_mutex_lock(&s->lock);
    bool joined = s->state == PSC_STATE_JOINED;
    pthread_mutex_unlock(&s->lock);
    /* A restarted server does not know us yet. A server that did not restart does not know the connection by
     * which ZeroMQ replaced a broken one. */
    if (m->error->code == PS__CODE__NO_SESSION && joined)
        go_looking(v, "the server does not know this connection: sending Hello again");
    else
        end_session(v->session, psc_result_of_code((uint32_t)m->error->code), m->error->sentence);
}

/* This server is not the head and redirects Hello to it. The flag guards against redirect loops. */
static void on_elsewhere(struct service *v, const Ps__ToClient *m)
{
    if (v->sent_on)
        return;
    snprintf(v->elsewhere, sizeof v->elsewhere, "%s", m->elsewhere->url);
    ps_fail(&v->redirected, 0, "%.150s redirects workers to the job's head at %.150s, which does not answer",
            v->line.place.url, v->elsewhere);
    connect_anew(v);
}

static void (*const handlers[])(struct service *v, const Ps__ToClient *m) = {
    [PS__TO_CLIENT__WHAT_WELCOME] = on_welcome,     [PS__TO_CLIENT__WHAT_PARKED] = on_parked,
    [PS__TO_CLIENT__WHAT_BEGUN] = on_begun,         [PS__TO_CLIENT__WHAT_ALIVE] = on_alive,
    [PS__TO_CLIENT__WHAT_DRAIN] = on_drain,         [PS__TO_CLIENT__WHAT_ERROR] = on_error,
    [PS__TO_CLIENT__WHAT_SAVE] = on_save,           [PS__TO_CLIENT__WHAT_ELSEWHERE] = on_elsewhere,
    [PS__TO_CLIENT__WHAT_CHALLENGE] = on_challenge, [PS__TO_CLIENT__WHAT_REPORTED] = on_reported,
    [PS__TO_CLIENT__WHAT_DONE] = on_done,
};

static void receive(struct service *v)
{
    while (v->line.socket != NULL) {
        zmq_msg_t msg;
        zmq_msg_init(&msg);
        if (zmq_msg_recv(&msg, v->line.socket, ZMQ_DONTWAIT) < 0)
            return;
        Ps__ToClient *m = ps_control_unpack_to_client(zmq_msg_data(&msg), zmq_msg_size(&msg));
        zmq_msg_close(&msg);
        if (m != NULL && is_foreign(v, m)) {
            on_foreign(v, "a server of another job");
            ps_control_free_to_client(m);
            continue;
        }
        if (m == NULL && has_begun(v)) { /* another process may get the port while our server is down */
            on_foreign(v, "something that is not a psd's control socket");
            continue;
        }
        /* It is the head that we wait for: others may redirect us for as long as it is down. */
        if (m == NULL || m->what_case != PS__TO_CLIENT__WHAT_ELSEWHERE)
            v->last_heard_ms = ps_now_ms();
        if (m == NULL)
            end_session(v->session, PSC_EUNSUPPORTED, "the server sent bytes that are not a control message");
        else if ((size_t)m->what_case < sizeof handlers / sizeof *handlers && handlers[m->what_case] != NULL)
            handlers[m->what_case](v, m);
        if (m != NULL)
            ps_control_free_to_client(m);
    }
}

static void send_begin(struct service *v, const struct ps_manifest *manifest, uint32_t client,
                       uint32_t incarnation)
{
    struct ps_error err;
    int rc = psc_begin_send(v->line.socket, manifest, client, incarnation, &err);
    if (rc != PSC_OK)
        end_session(v->session, rc, err.text);
}

static void send_report(struct service *v, const struct psc_metrics *r, uint64_t offer, uint32_t client,
                        uint32_t incarnation)
{
    Ps__Report report = PS__REPORT__INIT;
    report.client = client;
    report.incarnation = incarnation;
    report.loss = r->loss;
    report.accuracy = r->accuracy;
    report.samples_per_second = r->samples_per_second;
    report.test_loss = r->test_loss;
    report.test_accuracy = r->test_accuracy;
    report.center_version = r->center_version;
    report.offer = offer;
    report.steps = r->steps;
    send_message(v, PS__TO_SERVER__WHAT_REPORT, &report);
}

static void send_nonfinite(struct service *v, uint64_t clock, uint64_t index, uint32_t client,
                           uint32_t incarnation)
{
    Ps__NotFinite m = PS__NOT_FINITE__INIT;
    m.client = client;
    m.incarnation = incarnation;
    m.clock = clock;
    m.index = index;
    send_message(v, PS__TO_SERVER__WHAT_NOT_FINITE, &m);
}

/* With the lock held, under which the caller's lines stay. */
static void send_request(struct service *v, const struct psc_shared *s)
{
    Ps__Barrier barrier = PS__BARRIER__INIT;
    Ps__SetMethod set = PS__SET_METHOD__INIT;
    barrier.client = set.client = s->welcome.client;
    barrier.incarnation = set.incarnation = s->welcome.incarnation;
    barrier.number = set.number = s->request.number;
    set.lines = (char *)(uintptr_t)s->request.lines;
    if (s->request.is_barrier)
        send_message(v, PS__TO_SERVER__WHAT_BARRIER, &barrier);
    else
        send_message(v, PS__TO_SERVER__WHAT_SET_METHOD, &set);
}

static void beat(struct service *v)
{
    struct psc_shared *s = &v->session->shared;
    Ps__Heartbeat m = PS__HEARTBEAT__INIT;
    char transport[sizeof s->transport], why[sizeof s->transport_why];
    v->last_beat_ms = ps_now_ms();
    pthread_mutex_lock(&s->lock);
    m.client = s->welcome.client;
    m.incarnation = s->welcome.incarnation;
    m.clock = s->clock;
    m.ended = s->ended;
    m.steps_per_second = s->steps_per_second;
    snprintf(transport, sizeof transport, "%s", s->transport);
    snprintf(why, sizeof why, "%s", s->transport_why);
    s->beat_now = false;
    s->beats++;
    pthread_mutex_unlock(&s->lock);
    m.road = transport;
    m.road_why = why;
    m.members = v->session->members_left;
    send_message(v, PS__TO_SERVER__WHAT_HEARTBEAT, &m);
}

/* Sends the messages that other threads have requested since the last call. Returns true when the thread is
 * to end. */
static bool obey(struct service *v)
{
    struct psc_shared *s = &v->session->shared;
    eventfd_t count;
    eventfd_read(v->session->command_fd, &count);

    pthread_mutex_lock(&s->lock);
    bool joined = s->state == PSC_STATE_JOINED && v->line.socket != NULL, stop = s->stop;
    bool begin = joined && s->send_begin, report = joined && s->has_report, leave = joined && s->send_leave;
    bool beats = leave && s->beat_now; /* such as the members that are left of a clique */
    bool nonfinite = joined && s->begun && s->has_nonfinite;
    uint64_t nonfinite_clock = s->nonfinite_clock, nonfinite_index = s->nonfinite_index;
    const struct ps_manifest *manifest = s->manifest;
    struct psc_metrics metrics = s->report;
    uint64_t offer = s->report_offer;
    uint64_t clock = s->clock;
    uint32_t client = s->welcome.client, incarnation = s->welcome.incarnation;
    uint64_t versions[PS_MAX_PARTS];
    size_t n_versions = s->welcome.n_parts > 1 ? s->welcome.n_parts : 0;
    memcpy(versions, s->versions, sizeof versions);
    if (begin)
        s->send_begin = false;
    if (report)
        s->has_report = false;
    if (nonfinite)
        s->has_nonfinite = false;
    if (joined && s->begun && s->request.send) {
        s->request.send = false;
        send_request(v, s);
    }
    pthread_mutex_unlock(&s->lock);

    if (begin)
        send_begin(v, manifest, client, incarnation);
    if (report)
        send_report(v, &metrics, offer, client, incarnation);
    if (nonfinite)
        send_nonfinite(v, nonfinite_clock, nonfinite_index, client, incarnation);
    if (beats)
        beat(v);
    if (leave) {
        Ps__Leave m = PS__LEAVE__INIT;
        m.client = client;
        m.incarnation = incarnation;
        m.versions = versions;
        m.n_versions = n_versions;
        m.clock = clock;
        send_message(v, PS__TO_SERVER__WHAT_LEAVE, &m);
        psc_control_socket_close(&v->line, LEAVE_LINGER_MS);
    }
    return stop;
}

/* Time during which this process was stopped does not count as silence of the server. */
static void forgive_own_sleep(struct service *v)
{
    uint64_t now = ps_now_ms(), slept_ms = now - v->looked_ms;
    v->looked_ms = now;
    if (slept_ms > SLEPT_MS + v->session->opt->heartbeat_ms)
        v->last_heard_ms += slept_ms;
}

/* Whether the host name resolves. Waits for name servers only as long as a call still waits for the server.
 */
static int look_up_host(struct service *v)
{
    uint64_t end_ms = v->last_heard_ms + v->session->opt->timeout_ms, most_ms = ps_now_ms() + RESOLVE_MS;
    int rc = psc_place_resolve(&v->found, (end_ms < most_ms ? end_ms : most_ms) * UINT64_C(1000000),
                               &v->unresolved);
    v->looked_ms = ps_now_ms(); /* the process was not stopped */
    return rc;
}

/* Reports once that the first Hello has no answer. The loss of a server that had answered has been reported
 * already. */
static void tell_of_wait(struct service *v)
{
    struct psc_shared *s = &v->session->shared;
    const struct psc_options *opt = v->session->opt;
    char sentence[1200];
    pthread_mutex_lock(&s->lock);
    struct ps_error trouble = s->trouble;
    bool known = s->epoch > 0;
    pthread_mutex_unlock(&s->lock);
    if (v->waits || known)
        return;
    v->waits = true;
    if (trouble.text[0] == 0 && look_up_host(v) < 0)
        trouble = v->unresolved;
    snprintf(sentence, sizeof sentence, "no answer from %s yet%s%s; waiting for at most %.0f s", opt->server,
             trouble.text[0] != 0 ? ": " : "", trouble.text, (double)opt->timeout_ms / 1e3);
    psc_session_say(v->session, sentence);
}

/* Timeouts and heartbeats. */
static void keep_time(struct service *v, enum psc_state state, bool draining, bool beat_now)
{
    const struct psc_options *opt = v->session->opt;
    uint64_t now = ps_now_ms();
    char sentence[800];

    uint64_t silent_ms = now > v->last_heard_ms ? now - v->last_heard_ms : 0;
    if (state != PSC_STATE_ENDED && silent_ms > opt->timeout_ms) {
        snprintf(sentence, sizeof sentence, "no answer from %s for %.1f s (timeout_ms: %u)", opt->server,
                 (double)silent_ms / 1e3, opt->timeout_ms);
        end_session(v->session, PSC_EGONE, sentence);
    } else if (state != PSC_STATE_ENDED && draining &&
               silent_ms > (uint64_t)SILENT_BEATS * opt->heartbeat_ms) {
        end_session(v->session, PSC_DRAINED, "the server has drained and ended");
    } else if (state == PSC_STATE_JOINED && silent_ms > (uint64_t)SILENT_BEATS * opt->heartbeat_ms) {
        go_looking(v, "the server is silent: reconnecting");
    } else if (state == PSC_STATE_JOINED && (beat_now || now - v->last_beat_ms >= opt->heartbeat_ms)) {
        beat(v);
    } else if (state == PSC_STATE_CONNECTING && (now >= v->hello_ms || has_moved(v))) {
        tell_of_wait(v);
        connect_anew(v);
    }
}

static void *control_thread(void *arg)
{
    struct psc_session *session = arg;
    struct service v = {.session = session, .context = ps_zmq_context_new(1)};
    enum psc_state state = PSC_STATE_CONNECTING;

    v.last_heard_ms = v.looked_ms = ps_now_ms();
    psc_retry_init(&v.retry, session->token);
    if (v.context == NULL)
        end_session(session, PSC_ESYSTEM, "no descriptors for the control socket");
    else
        connect_anew(&v);
    while (!obey(&v)) {
        zmq_pollitem_t items[3] = {{.fd = session->command_fd, .events = ZMQ_POLLIN},
                                   {.socket = v.line.socket, .events = ZMQ_POLLIN},
                                   {.socket = v.line.watch, .events = ZMQ_POLLIN}};
        zmq_poll(items,
                 v.line.socket == NULL  ? 1
                 : v.line.watch == NULL ? 2
                                        : 3,
                 state == PSC_STATE_JOINED ? (long)session->opt->heartbeat_ms / 4 + 1 : 50);
        forgive_own_sleep(&v);
        look_at_handshakes(&v);
        look_for_return(&v, state);
        receive(&v);
        pthread_mutex_lock(&session->shared.lock);
        state = session->shared.state;
        bool draining = session->shared.draining, beat_now = session->shared.beat_now;
        pthread_mutex_unlock(&session->shared.lock);
        keep_time(&v, state, draining, beat_now);
    }
    psc_control_socket_close(&v.line, 0);
    if (v.context != NULL)
        ps_zmq_context_end(v.context);
    return NULL;
}

int psc_session_start(struct psc_session *session, struct ps_error *err)
{
    int rc = ps_thread_create(&session->thread, control_thread, session);
    session->runs = rc == 0;
    return rc == 0 ? PSC_OK : ps_fail(err, PSC_ESYSTEM, "cannot start the service thread: %s", strerror(rc));
}

void psc_session_stop(struct psc_session *session)
{
    if (!session->runs)
        return;
    pthread_mutex_lock(&session->shared.lock);
    session->shared.send_leave = true;
    session->shared.stop = true;
    pthread_mutex_unlock(&session->shared.lock);
    psc_session_poke(session);
    pthread_join(session->thread, NULL);
    session->runs = false;
}

void psc_session_leave(struct psc_session *session, int result, const char *sentence)
{
    psc_session_stop(session);
    end_session(session, result, sentence);
}
