#include "server/auth/auth.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "proto/security/socket_monitor.h"

#define OWN_ID 1 /* of psd's own pair; those of the list follow */

static bool is_given(const char *path)
{
    return strcmp(path, "none") != 0;
}

static void refusef(struct psd_auth *a, const struct psd_peer *peer, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void refusef(struct psd_auth *a, const struct psd_peer *peer, const char *fmt, ...)
{
    char sentence[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    psd_send_refusal(a->sender, peer, PS__CODE__AUTH, sentence);
}

int psd_auth_set_up(struct psd_auth *a, struct ps_error *err)
{
    struct ps_error why;
    int rc;
    a->rejected.counter = &a->sender->rejected[PS__CODE__AUTH];
    if ((rc = psd_munge_set_up(a, err)) < 0 || !is_given(a->cfg->auth.key))
        return rc;
    if ((rc = ps_curve_read(a->cfg->auth.key, &a->pair, &why)) < 0)
        return ps_fail(err, rc, "auth.key: %s", why.text);
    a->own = (struct psd_grant){.name = "psd", .role = PSD_ROLE_SERVER, .id = OWN_ID};
    zmq_z85_decode(a->own.key, a->pair.public_key);
    a->last_id = OWN_ID;
    if ((rc = psd_allow_read(a->cfg->auth.allow, &a->pair, &a->list, &why)) < 0)
        return ps_fail(err, rc, "auth.allow: %s", why.text);
    psd_allow_number(&a->list, NULL, &a->last_id);
    a->curve = true;
    return 0;
}

static const struct psd_grant *grant_of_key(const struct psd_auth *a, const unsigned char *key)
{
    return memcmp(key, a->own.key, sizeof a->own.key) == 0 ? &a->own : psd_allow_find_key(&a->list, key);
}

static const struct psd_grant *grant_of_id(const struct psd_auth *a, uint64_t id)
{
    return id == OWN_ID ? &a->own : psd_allow_find_id(&a->list, id);
}

/* Called for handshakes on both connections. */
static bool decide(void *arg, const char *address, const unsigned char *key, const char **name, uint64_t *id)
{
    struct psd_auth *a = arg;
    char text[PS_CURVE_KEY_CHARS + 1] = "", why[300];
    const struct psd_grant *g = key != NULL ? grant_of_key(a, key) : NULL;
    if (g != NULL) {
        *name = g->name;
        *id = g->id;
        return true;
    }
    if (key != NULL)
        zmq_z85_encode(text, key, PS_CURVE_KEY_BYTES);
    snprintf(why, sizeof why, "key %s is not in the allow-list %.200s", key != NULL ? text : "(none)",
             a->cfg->auth.allow);
    psd_rejected_peers_note(&a->rejected, address, why);
    return false;
}

int psd_auth_guard_control(struct psd_auth *a, void *context, void *socket, void **watch,
                           struct ps_error *err)
{
    if (!a->curve)
        return 0;
    int rc = psd_zap_open(&a->control, a->loop, context, decide, a, err);
    if (rc < 0)
        return rc;
    if ((rc = ps_watch_open(context, socket, watch)) < 0)
        return ps_fail(err, rc, "cannot watch the control socket: %s", zmq_strerror(-rc));
    return ps_curve_serve(socket, &a->pair) == 0
               ? 0
               : ps_fail(err, -zmq_errno(), "cannot encrypt the control socket: %s",
                         zmq_strerror(zmq_errno()));
}

int psd_auth_guard_data(struct psd_auth *a, const struct psd_transports *transports, struct ps_error *err)
{
    if (!a->curve)
        return 0;
    const struct ps_transport *t = transports->row[0].transport;
    struct ps_hub *hub = transports->row[0].hub;
    t->hub_secure(hub, &a->pair, NULL);
    return psd_zap_open(&a->data, a->loop, t->hub_context(hub), decide, a, err);
}

int psd_auth_watch(struct psd_auth *a, void *control, const struct psd_lanes *lanes, struct ps_error *err)
{
    void *watches[1 + PSD_MAX_LANES];
    if (!a->curve)
        return 0;
    watches[0] = control;
    for (uint32_t i = 0; i < lanes->n_own; i++)
        watches[1 + i] = lanes->transports.row[0].transport->port_watch(lanes->list[i]->ports[0].port);
    return psd_rejected_peers_open(&a->rejected, a->loop, watches, 1 + lanes->n_own) == 0
               ? 0
               : ps_fail(err, -ENOMEM, "no memory to watch sockets");
}

void psd_auth_finish(struct psd_auth *a)
{
    psd_munge_finish(a);
    psd_allow_finish(&a->list);
    free(a->barred);
    explicit_bzero(&a->pair, sizeof a->pair);
}

const char *psd_auth_name(const struct psd_auth *a)
{
    static const char *const names[2][2] = {{"none", "munge"}, {"curve", "curve+munge"}};
    return names[a->curve][a->munge.on];
}

const char *psd_auth_public_key(const struct psd_auth *a)
{
    return a->pair.public_key;
}

const struct psd_grant *psd_auth_grant(const struct psd_auth *a, uint64_t id)
{
    return a->curve ? grant_of_id(a, id) : NULL;
}

bool psd_auth_peer(struct psd_auth *a, zmq_msg_t *message, struct psd_peer *peer)
{
    /* Without CURVE a peer can set the properties of its messages to anything. */
    if (!a->curve)
        return true;
    const char *number = zmq_msg_gets(message, PS_CURVE_ID_PROPERTY);
    const char *name = zmq_msg_gets(message, "User-Id");
    peer->grant = grant_of_id(a, number != NULL ? strtoull(number, NULL, 10) : 0);
    if (peer->grant != NULL) {
        peer->identity = peer->grant->name;
        return true;
    }
    refusef(a, peer, "%s is no longer allowed: its key is not in psd's allow-list (auth.allow)",
            name != NULL ? name : "nobody");
    return false;
}

bool psd_auth_owns(const struct psd_peer *peer, const struct psd_session *s)
{
    return s->identity_id == (peer->grant != NULL ? peer->grant->id : 0);
}

void psd_auth_bind(struct psd_session *s, const struct psd_peer *peer)
{
    snprintf(s->identity, sizeof s->identity, "%s", peer->identity != NULL ? peer->identity : "");
    s->identity_id = peer->grant != NULL ? peer->grant->id : 0;
}

const uint64_t *psd_auth_ranks(const struct psd_peer *peer)
{
    return peer->grant != NULL && peer->grant->some_ranks ? peer->grant->ranks : NULL;
}

static bool is_barred(const struct psd_auth *a, const char *name, size_t *at)
{
    for (*at = 0; *at < a->n_barred; ++*at)
        if (strcmp(a->barred[*at], name) == 0)
            return true;
    return false;
}

/* Checks the role and the rank against the allow-list. */
static bool list_allows(struct psd_auth *a, const struct psd_peer *peer, const Ps__Hello *m)
{
    const struct psd_grant *g = peer->grant;
    char ranks[120];
    bool named = m->incarnation != 0 || !m->any_rank;
    uint32_t rank = m->incarnation != 0 ? m->client : m->rank;
    if (g == NULL)
        return true;
    if (g->role == PSD_ROLE_SERVER)
        refusef(a, peer, "this is psd's own key; workers and observers need another (psctl keygen)");
    else if (!psd_role_may_send(PSD_MESSAGE_HELLO, g->role, m->observer))
        refusef(a, peer, "%s may not be %s: the allow-list has role=%s", g->name,
                m->observer ? "an observer" : "a worker", m->observer ? "worker" : "observer");
    else if (!m->observer && named && !psd_grant_has_rank(g, rank)) {
        psd_grant_ranks(g, ranks, sizeof ranks);
        refusef(a, peer, "%s may not have rank %u: the allow-list has ranks=%s", g->name, rank, ranks);
    } else {
        return true;
    }
    return false;
}

bool psd_auth_may_send(struct psd_auth *a, const struct psd_peer *peer, enum psd_message m)
{
    bool of_server = psd_rights[m].proof == PSD_PROOF_SERVER;
    if (psd_rights[m].proof == PSD_PROOF_OWNER || m == PSD_MESSAGE_HELLO || !a->curve ||
        (peer->grant != NULL && psd_role_may_send(m, peer->grant->role, false)))
        return true;
    if (of_server)
        refusef(a, peer, "%s is not a server: servers have psd's own key pair (auth.key)", peer->identity);
    else
        refusef(a, peer, "%s may not join a clique here: the allow-list does not have it as a worker",
                peer->identity);
    return false;
}

bool psd_auth_hello(struct psd_auth *a, const struct psd_peer *peer, const Ps__Hello *m)
{
    size_t at;
    const struct psd_session *s = m->incarnation != 0
                                      ? psd_sessions_find(a->sessions, m->client, m->incarnation)
                                      : psd_sessions_find_token(a->sessions, m->token);
    if (!list_allows(a, peer, m))
        return false;
    bool same_name = s != NULL && strcmp(s->identity, peer->identity != NULL ? peer->identity : "") == 0;
    if (s != NULL && (!psd_auth_owns(peer, s) || !same_name)) {
        refusef(a, peer, "the session of %s %u belongs to another identity than %s",
                s->observer ? "observer" : "rank", s->client, peer->identity);
        return false;
    }
    if (s == NULL && peer->identity != NULL && is_barred(a, peer->identity, &at)) {
        refusef(a, peer, "%s was evicted by an operator, and is barred until psctl allow %s", peer->identity,
                peer->identity);
        return false;
    }
    return true;
}

uint64_t psd_auth_id_of(const struct psd_auth *a, const char *name)
{
    const struct psd_grant *g = a->curve ? psd_allow_find_name(&a->list, name) : NULL;
    return !a->curve ? 0 : g != NULL ? g->id : UINT64_MAX;
}

void psd_auth_bar(struct psd_auth *a, const struct psd_session *s)
{
    size_t at;
    if (s->identity[0] == 0 || is_barred(a, s->identity, &at))
        return;
    void *more = realloc(a->barred, (a->n_barred + 1) * sizeof *a->barred);
    if (more == NULL) {
        ps_log(PS_LOG_ERROR, "auth.memory", "no memory to bar %s: it can rejoin", s->identity);
        return;
    }
    a->barred = more;
    snprintf(a->barred[a->n_barred++], sizeof *a->barred, "%s", s->identity);
    ps_log(PS_LOG_WARN, "auth.barred", "%s is barred until psctl allow %s", s->identity, s->identity);
}

bool psd_auth_allow(struct psd_auth *a, const char *name)
{
    size_t at;
    if (!is_barred(a, name, &at))
        return false;
    memmove(a->barred[at], a->barred[--a->n_barred], sizeof *a->barred);
    ps_log(PS_LOG_INFO, "auth.allowed", "%s may join again", name);
    return true;
}

int psd_auth_reread(const struct psd_auth *a, struct psd_allow *list, struct ps_error *err)
{
    struct ps_error why;
    *list = (struct psd_allow){.n = 0};
    if (!a->curve)
        return 0;
    int rc = psd_allow_read(a->cfg->auth.allow, &a->pair, list, &why);
    if (rc == 0 && list->n == 0 && a->list.n > 0) { /* a program has truncated it, and writes it now */
        psd_allow_finish(list);
        rc = ps_fail(&why, -EINVAL,
                     "%s: found no key, which would end every session; allowed is one or more (psctl drain "
                     "ends the job)",
                     a->cfg->auth.allow);
    }
    return rc < 0 ? ps_fail(err, rc, "auth.allow: %s", why.text) : 0;
}

bool psd_auth_may_stay(const struct psd_auth *a, const struct psd_session *s)
{
    const struct psd_grant *g = grant_of_id(a, s->identity_id);
    if (s->identity_id == 0)
        return true;
    return g != NULL && psd_role_may_send(PSD_MESSAGE_HELLO, g->role, s->observer) &&
           (s->observer || psd_grant_has_rank(g, s->client));
}

static bool is_same(const struct psd_allow *a, const struct psd_allow *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const struct psd_grant *x = &a->grants[i], *y = &b->grants[i];
        same = x->id == y->id && x->role == y->role && x->some_ranks == y->some_ranks &&
               memcmp(x->ranks, y->ranks, sizeof x->ranks) == 0;
    }
    return same;
}

bool psd_auth_take(struct psd_auth *a, struct psd_allow *list)
{
    if (!a->curve)
        return false;
    psd_allow_number(list, &a->list, &a->last_id);
    bool same = is_same(&a->list, list);
    psd_allow_finish(&a->list);
    a->list = *list;
    if (same)
        return false;
    ps_log(PS_LOG_INFO, "auth.list", "the allow-list %s has changed: %zu keys", a->cfg->auth.allow,
           a->list.n);
    return true;
}
