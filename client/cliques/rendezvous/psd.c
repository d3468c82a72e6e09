/* Rendezvous through psd's control socket: each member sends Meet until psd answers Met, with the addresses
 * of all, or an error. Members get no session, and psd forgets the rendezvous afterwards. */
#include <errno.h>
#include <string.h>
#include <xxhash.h>
#include <zmq.h>

#include "client/cliques/rendezvous/leader.h"
#include "client/cliques/socket.h"
#include "client/psclient.h"
#include "proto/clock.h"
#include "proto/random.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"
#include "proto/zmq_context.h"

static const double say_s = 1.0; /* between two Meets: psd forgets members that are silent for five seconds */
static const double margin_s = 0.5; /* psd's deadline is earlier by at most this: psd knows who is missing */
enum { LOOK_MS = 100, LEAVE_LINGER_MS = 200 };

struct call {
    struct psc_meeting *m;
    const struct psc_proof *proof;
    void *context;
    struct psc_control_socket line;
    uint64_t token, nonce;
    double said_s;           /* 0: not yet */
    struct ps_error trouble; /* why psd could not be reached, or "" */
};

/* Opens a socket to psd's current address: after a restart "@FILE" may have another. Temporary failures are
 * recorded in `trouble`. */
static int connect_there(struct call *c, struct ps_error *err)
{
    struct psc_server_address place;

    c->trouble.text[0] = 0;
    if (psc_place_find(c->m->place, &place, &c->trouble) < 0)
        return 0;
    if (c->line.socket != NULL && psc_place_is(&place, &c->line.place))
        return 0;
    switch (psc_control_socket_open(&c->line, c->context, &place, c->proof, &c->trouble)) {
    case PSC_OK:
    case PSC_EGONE:
        return 0;
    case PSC_EAUTH:
        return ps_fail(err, -EACCES, "%s", c->trouble.text);
    default:
        return ps_fail(err, -EINVAL, "rendezvous psd:%.100s: %.400s", c->m->place, c->trouble.text);
    }
}

static void say_meet(struct call *c, bool leave)
{
    const struct psc_meeting *m = c->m;
    Ps__Meet meet = PS__MEET__INIT;
    Ps__ToServer to = PS__TO_SERVER__INIT;
    double left_s = m->deadline_s - ps_now_s();

    left_s -= left_s / 4 < margin_s ? left_s / 4 : margin_s;
    meet.protocol = PS_PROTOCOL_VERSION;
    meet.clique = (char *)(uintptr_t)m->name;
    meet.members = m->members;
    meet.any_rank = m->rank < 0;
    meet.rank = m->rank < 0 ? 0 : (uint32_t)m->rank;
    meet.address = (char *)(uintptr_t)m->address;
    meet.nonce = c->nonce;
    meet.token = c->token;
    meet.wait_ms = left_s > 0.001 ? (uint32_t)(left_s * 1e3) : 1;
    meet.leave = leave;
    meet.links = m->links;
    meet.segment_bytes = m->segment_bytes;
    to.what_case = PS__TO_SERVER__WHAT_MEET;
    to.meet = &meet;
    ps_control_send(c->line.socket, &to.base); /* a Meet that is lost is sent again */
    c->said_s = ps_now_s();
}

/* Validates psd's answer, and checks that it is for this member. */
static bool is_whole(const struct call *c, const Ps__Met *met)
{
    const struct psc_meeting *m = c->m;
    if (met->n_members != m->members || met->rank >= m->members ||
        (m->rank >= 0 && met->rank != (uint32_t)m->rank))
        return false;
    for (size_t i = 0; i < met->n_members; i++)
        if (met->members[i]->address[0] == 0 || strlen(met->members[i]->address) >= PSC_ADDRESS_BYTES)
            return false;
    const Ps__Member *own = met->members[met->rank];
    return own->nonce == c->nonce && strcmp(own->address, m->address) == 0;
}

/* The job's number is a hash of random numbers from every member: only members know it. */
static int take_met(struct call *c, const Ps__Met *met, struct ps_error *err)
{
    struct psc_meeting *m = c->m;
    uint64_t job = 0;

    if (!is_whole(c, met))
        return ps_fail(err, -EPROTO, "psd at %s answered a rendezvous of %u members with other members",
                       c->line.place.url, m->members);
    for (size_t i = 0; i < met->n_members; i++)
        job = XXH64(&met->members[i]->nonce, sizeof met->members[i]->nonce, job);
    m->job = job != 0 ? job : 1;
    m->own_rank = (int32_t)met->rank;
    strcpy(m->next, met->members[(met->rank + 1) % m->members]->address); /* is_whole has checked it */
    return 0;
}

/* 0: met; -EAGAIN: nothing yet. */
static int hear(struct call *c, struct ps_error *err)
{
    int rc = -EAGAIN;
    zmq_msg_t msg;

    zmq_msg_init(&msg);
    if (zmq_msg_recv(&msg, c->line.socket, ZMQ_DONTWAIT) < 0)
        return -EAGAIN;
    Ps__ToClient *m = ps_control_unpack_to_client(zmq_msg_data(&msg), zmq_msg_size(&msg));
    zmq_msg_close(&msg);
    if (m == NULL)
        return ps_fail(err, -EPROTO, "the server at %s is not a psd", c->line.place.url);
    if (m->what_case == PS__TO_CLIENT__WHAT_MET)
        rc = take_met(c, m->met, err);
    else if (m->what_case == PS__TO_CLIENT__WHAT_ERROR)
        rc = ps_fail(err, m->error->code == PS__CODE__AUTH ? -EACCES : -EPROTO, "psd at %s: %.400s",
                     c->line.place.url, m->error->sentence);
    ps_control_free_to_client(m);
    return rc;
}

/* Waits briefly for an answer, or for stop_fd. */
static int look(struct call *c, struct ps_error *err)
{
    zmq_pollitem_t items[] = {{.fd = c->m->stop_fd, .events = ZMQ_POLLIN},
                              {.socket = c->line.socket, .events = ZMQ_POLLIN}};
    zmq_poll(items, c->line.socket != NULL ? 2 : 1, psc_ms_until(c->m->deadline_s, LOOK_MS));
    if (items[0].revents != 0)
        return ps_fail(err, -ECANCELED, "the rendezvous was cancelled");
    if (psc_control_socket_poll(&c->line, c->proof, &c->trouble) == PSC_EAUTH)
        return ps_fail(err, -EACCES, "%s", c->trouble.text);
    return c->line.socket != NULL ? hear(c, err) : -EAGAIN;
}

static int ask(struct call *c, struct ps_error *err)
{
    for (;;) {
        int rc;
        double now = ps_now_s();
        if (now >= c->m->deadline_s)
            return ps_fail(err, -ETIMEDOUT, "psd at %.200s did not answer within %u ms%s%s", c->m->place,
                           c->m->timeout_ms, c->trouble.text[0] != 0 ? ": " : "", c->trouble.text);
        if (c->said_s == 0 || now >= c->said_s + say_s) {
            if ((rc = connect_there(c, err)) < 0)
                return rc;
            if (c->line.socket != NULL)
                say_meet(c, false);
        }
        if ((rc = look(c, err)) != -EAGAIN)
            return rc;
    }
}

static int meet(struct psc_meeting *m, struct ps_error *err)
{
    static const struct psc_proof none = {.server_key = ""};
    struct call c = {.m = m,
                     .proof = m->proof != NULL ? m->proof : &none,
                     .token = ps_random_u64(),
                     .nonce = ps_random_u64(),
                     .context = ps_zmq_context_new(1)};
    int rc;

    if (c.context == NULL)
        return ps_fail(err, -EMFILE, "no descriptors for a socket to psd");
    rc = ask(&c, err);
    if (c.line.socket != NULL && (rc == -ECANCELED || rc == -ETIMEDOUT))
        say_meet(&c, true);
    psc_control_socket_close(&c.line, rc == -ECANCELED || rc == -ETIMEDOUT ? LEAVE_LINGER_MS : 0);
    zmq_ctx_term(c.context);
    return rc;
}

const struct psc_rendezvous psc_rendezvous_psd = {.scheme = "psd", .meet = meet};
