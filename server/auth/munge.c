#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "server/auth/auth.h"
#include "server/loop/timer.h"

enum { NONCE_MS = 30000, LINES_A_CLIENT = 4, FEWEST_CLIENTS = 64 };

/* A credential being checked. The pool's thread reads the members above `rc` and writes the others. */
struct job {
    uv_work_t work;
    struct psd_auth *auth;
    unsigned char peer[256];
    size_t peer_bytes;
    char address[64];
    uint64_t identity_id;
    char *credential;
    bool of_server;
    bool goes_on; /* the peer is in the job already: it repeats what is not answered */
    /* The payload that the credential must have; it contains the Hello, or the Enlist. */
    unsigned char *expected;
    size_t expected_bytes, message_bytes;
    int rc;
    struct ps_error why;
    uid_t uid;
    char user[PS_CURVE_NAME_MAX + 1];
};

static int add_user(struct psd_munge *g, const char *word, struct ps_error *err)
{
    char *end;
    const struct passwd *user = getpwnam(word);
    unsigned long uid = strtoul(word, &end, 10);
    if (user == NULL && (word[0] < '0' || word[0] > '9' || *end != 0))
        return ps_fail(err, -EINVAL,
                       "auth.munge_users: found '%.60s'; allowed are users of this system by name or number, "
                       "separated by commas, or none",
                       word);
    if (g->n_users == PSD_MUNGE_USERS)
        return ps_fail(err, -EINVAL, "auth.munge_users: more than %d users", PSD_MUNGE_USERS - 1);
    g->users[g->n_users++] = user != NULL ? user->pw_uid : (uid_t)uid;
    return 0;
}

int psd_munge_set_up(struct psd_auth *a, struct ps_error *err)
{
    struct psd_munge *g = &a->munge;
    char list[sizeof a->cfg->auth.munge_users], *rest, *word;
    int rc = 0;
    if (!a->cfg->auth.munge)
        return 0;
    g->users[g->n_users++] = geteuid();
    snprintf(list, sizeof list, "%s", a->cfg->auth.munge_users);
    if (strcmp(list, "none") != 0)
        for (word = strtok_r(list, ", ", &rest); word != NULL && rc == 0; word = strtok_r(NULL, ", ", &rest))
            rc = add_user(g, word, err);
    g->most_at_work = a->cfg->limits.clients > FEWEST_CLIENTS ? a->cfg->limits.clients : FEWEST_CLIENTS;
    g->n_pending = LINES_A_CLIENT * g->most_at_work;
    if (rc == 0 && (g->pending = calloc(g->n_pending, sizeof *g->pending)) == NULL)
        rc = ps_fail(err, -ENOMEM, "no memory for auth.munge");
    g->on = rc == 0;
    return rc;
}

void psd_munge_finish(struct psd_auth *a)
{
    free(a->munge.pending);
}

static struct psd_munge_nonce *find_nonce(struct psd_munge *g, const struct psd_peer *peer)
{
    for (uint32_t i = 0; i < g->n_pending; i++) {
        struct psd_munge_nonce *n = &g->pending[i];
        if (n->peer_bytes == peer->id_bytes && memcmp(n->peer, peer->id, peer->id_bytes) == 0)
            return n;
    }
    return NULL;
}

/* Replaces the oldest: its Hello will be sent again, and challenged again. */
static struct psd_munge_nonce *oldest_nonce(struct psd_munge *g)
{
    struct psd_munge_nonce *oldest = &g->pending[0];
    for (uint32_t i = 1; i < g->n_pending; i++)
        if (g->pending[i].given_ms < oldest->given_ms)
            oldest = &g->pending[i];
    return oldest;
}

static struct psd_munge_nonce *make_nonce(struct psd_auth *a, const struct psd_peer *peer)
{
    struct psd_munge_nonce *n = find_nonce(&a->munge, peer);
    if (n == NULL)
        n = oldest_nonce(&a->munge);
    if (peer->id_bytes > sizeof n->peer ||
        getrandom(n->nonce, sizeof n->nonce, 0) != (ssize_t)sizeof n->nonce)
        return NULL;
    memcpy(n->peer, peer->id, peer->id_bytes);
    n->peer_bytes = peer->id_bytes;
    n->given_ms = psd_loop_now_ms(a->loop);
    return n;
}

static bool is_fresh(const struct psd_auth *a, const struct psd_munge_nonce *n)
{
    return n != NULL && psd_loop_now_ms(a->loop) < n->given_ms + NONCE_MS;
}

/* A peer that repeats its Hello gets the same nonce: a credential over it may be on its way. */
static void challenge(struct psd_auth *a, const struct psd_peer *peer)
{
    Ps__Challenge ask = PS__CHALLENGE__INIT;
    ask.job = a->sessions->job;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    struct psd_munge_nonce *n = find_nonce(&a->munge, peer);
    if (!is_fresh(a, n))
        n = make_nonce(a, peer);
    if (n == NULL)
        return; /* the Hello will be sent again */
    ask.nonce.data = n->nonce;
    ask.nonce.len = sizeof n->nonce;
    m.what_case = PS__TO_CLIENT__WHAT_CHALLENGE;
    m.challenge = &ask;
    psd_send_to(a->sender, peer->id, peer->id_bytes, &m);
}

static void name_user(struct job *j)
{
    char room[2048];
    struct passwd user, *found = NULL;
    if (getpwuid_r(j->uid, &user, room, sizeof room, &found) == 0 && found != NULL &&
        ps_curve_is_name(user.pw_name))
        snprintf(j->user, sizeof j->user, "%s", user.pw_name);
    else
        snprintf(j->user, sizeof j->user, "uid-%u", (unsigned)j->uid);
}

/* Pool thread. */
static void decode(uv_work_t *work)
{
    struct job *j = work->data;
    void *payload = NULL;
    size_t len = 0;
    j->rc = ps_munge_decode(j->credential, &payload, &len, &j->uid, &j->why);
    if (j->rc == 0 && (len != j->expected_bytes || memcmp(payload, j->expected, len) != 0))
        j->rc = ps_fail(&j->why, -EACCES, "munge: the credential is not over this nonce and this %s",
                        j->of_server ? "Enlist" : "Hello");
    if (j->rc == 0)
        name_user(j);
    free(payload);
}

static bool is_user(const struct psd_munge *g, uid_t uid)
{
    for (uint32_t i = 0; i < g->n_users; i++)
        if (g->users[i] == uid)
            return true;
    return false;
}

static void let_in(struct psd_auth *a, const struct job *j, const struct psd_peer *peer)
{
    const unsigned char *message = j->expected + PS_MUNGE_NONCE_BYTES;
    Ps__Hello *hello = j->of_server ? NULL : ps__hello__unpack(NULL, j->message_bytes, message);
    Ps__Enlist *enlist = j->of_server ? ps__enlist__unpack(NULL, j->message_bytes, message) : NULL;
    if (hello != NULL)
        a->hooks.proved(a->psd, peer, hello);
    if (enlist != NULL)
        a->hooks.proved_server(a->psd, peer, enlist);
    ps__hello__free_unpacked(hello, NULL);
    ps__enlist__free_unpacked(enlist, NULL);
}

static void answer_peer(struct psd_auth *a, const struct job *j)
{
    char sentence[200];
    struct psd_peer peer = {.id = j->peer, .id_bytes = j->peer_bytes, .address = j->address};
    peer.grant = psd_auth_grant(a, j->identity_id);
    peer.identity = peer.grant != NULL ? peer.grant->name : j->user;
    if (j->rc == -EAGAIN && j->goes_on) { /* a refusal would end a worker of the job */
        if (ps_log_allows(&a->sender->log_limit, "auth.munge", "control socket"))
            ps_log(PS_LOG_WARN, "auth.munge", "%s: %s; it will be asked again", peer.address, j->why.text);
        return;
    }
    if (j->rc < 0) {
        psd_send_refusal(a->sender, &peer, PS__CODE__AUTH, j->why.text);
        return;
    }
    if (peer.grant == NULL && j->identity_id != 0) { /* a reload while munged was asked */
        psd_send_refusal(a->sender, &peer, PS__CODE__AUTH,
                         "its key is no longer allowed: it is not in psd's allow-list (auth.allow)");
        return;
    }
    if (j->of_server && j->uid != a->munge.users[0]) {
        snprintf(sentence, sizeof sentence,
                 "user %s (uid %u) is not psd's own; all servers run as the same user", j->user,
                 (unsigned)j->uid);
        psd_send_refusal(a->sender, &peer, PS__CODE__AUTH, sentence);
        return;
    }
    if (!is_user(&a->munge, j->uid)) {
        snprintf(sentence, sizeof sentence, "user %s (uid %u) is neither psd's own nor in auth.munge_users",
                 j->user, (unsigned)j->uid);
        psd_send_refusal(a->sender, &peer, PS__CODE__AUTH, sentence);
        return;
    }
    let_in(a, j, &peer);
}

static void decoded(uv_work_t *work, int status)
{
    struct job *j = work->data;
    j->auth->munge.at_work--;
    if (status == 0 && j->auth->munge.on)
        answer_peer(j->auth, j);
    free(j->expected);
    free(j->credential);
    free(j);
}

/* Builds the expected payload. -E2BIG: it is too long, or the credential is too long to be one over it. */
static int expect(struct job *j, const struct psd_munge_nonce *n, const struct psd_peer *peer,
                  const ProtobufCMessage *bare, size_t credential_bytes)
{
    char key[PS_CURVE_KEY_CHARS + 1] = "";
    size_t most = j->of_server ? PS_MUNGE_SERVER_MAX_BYTES : PS_MUNGE_MAX_BYTES;
    j->message_bytes = protobuf_c_message_get_packed_size(bare);
    if (peer->grant != NULL)
        zmq_z85_encode(key, peer->grant->key, PS_CURVE_KEY_BYTES);
    j->expected_bytes = PS_MUNGE_NONCE_BYTES + j->message_bytes + strlen(key);
    if (j->expected_bytes > most || credential_bytes > 2 * most)
        return -E2BIG;
    if ((j->expected = malloc(j->expected_bytes)) == NULL)
        return -ENOMEM;
    memcpy(j->expected, n->nonce, PS_MUNGE_NONCE_BYTES);
    protobuf_c_message_pack(bare, j->expected + PS_MUNGE_NONCE_BYTES);
    memcpy(j->expected + PS_MUNGE_NONCE_BYTES + j->message_bytes, key, strlen(key));
    return 0;
}

/* Queues the check of a credential. Its nonce cannot be used again, whatever the result. */
static void queue_check(struct psd_auth *a, const struct psd_peer *peer, struct psd_munge_nonce *n,
                        const ProtobufCMessage *bare, const ProtobufCBinaryData *credential)
{
    struct job *j = calloc(1, sizeof *j);
    if (j != NULL) {
        j->of_server = bare->descriptor == &ps__enlist__descriptor;
        j->goes_on = j->of_server ? ((const Ps__Enlist *)(const void *)bare)->has_center != 0
                                  : ((const Ps__Hello *)(const void *)bare)->incarnation != 0;
    }
    int rc = j != NULL ? expect(j, n, peer, bare, credential->len) : -ENOMEM;
    n->peer_bytes = 0;
    if (rc == 0 && (j->credential = strndup((const char *)credential->data, credential->len)) == NULL)
        rc = -ENOMEM;
    if (rc == 0) {
        j->work.data = j;
        j->auth = a;
        j->peer_bytes = peer->id_bytes;
        memcpy(j->peer, peer->id, peer->id_bytes);
        snprintf(j->address, sizeof j->address, "%s", peer->address);
        j->identity_id = peer->grant != NULL ? peer->grant->id : 0;
        rc = uv_queue_work(a->loop, &j->work, decode, decoded);
    }
    if (rc == 0) {
        a->munge.at_work++;
        return;
    }
    psd_send_refusal(a->sender, peer, PS__CODE__AUTH,
                     rc == -E2BIG ? "too long for a munge credential, or with a credential that is too long"
                                  : "no memory for a munge credential");
    free(j != NULL ? j->expected : NULL);
    free(j != NULL ? j->credential : NULL);
    free(j);
}

/* bare: the message without its credential. */
static void challenge_or_check(struct psd_auth *a, const struct psd_peer *peer, const ProtobufCMessage *bare,
                               const ProtobufCBinaryData *credential)
{
    struct psd_munge_nonce *n = find_nonce(&a->munge, peer);
    if (credential->len == 0 || !is_fresh(a, n))
        challenge(a, peer);
    else if (a->munge.at_work < a->munge.most_at_work) /* otherwise the message will be sent again */
        queue_check(a, peer, n, bare, credential);
}

void psd_munge_hello(struct psd_auth *a, const struct psd_peer *peer, const Ps__Hello *m)
{
    Ps__Hello bare = *m;
    bare.credential = (ProtobufCBinaryData){0, NULL};
    challenge_or_check(a, peer, &bare.base, &m->credential);
}

void psd_munge_enlist(struct psd_auth *a, const struct psd_peer *peer, const Ps__Enlist *m)
{
    Ps__Enlist bare = *m;
    bare.credential = (ProtobufCBinaryData){0, NULL};
    challenge_or_check(a, peer, &bare.base, &m->credential);
}
