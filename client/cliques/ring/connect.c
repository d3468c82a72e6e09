/* Connects a ring: each member connects to the next one, once for each link and once for the beat, and
 * accepts the previous one. A caller must know the job's number, which only the members of the rendezvous
 * know, and agree on all settings. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/cliques/rendezvous/pending_peers.h"
#include "client/cliques/ring/ring.h"
#include "proto/clock.h"

static const double look_s = 0.1; /* between two looks at the next member */

/* Connection i to the next member: the links, then the beat's. */
static int *next_end(struct psc_ring *r, uint32_t i)
{
    return i < r->links ? &r->link[i].next : &r->beat.peer[PSC_BEAT_NEXT].fd;
}

/* The slot for the connection of this hello. */
static int *prev_end(struct psc_ring *r, const struct psc_hello *h)
{
    return h->kind == PSC_HELLO_LINK ? &r->link[h->link].prev : &r->beat.peer[PSC_BEAT_PREV].fd;
}

static struct psc_hello hello_of(const struct psc_ring *r, uint32_t i)
{
    bool beat = i == r->links;
    struct psc_hello h = {.kind = beat ? PSC_HELLO_BEAT : PSC_HELLO_LINK,
                          .rank = (int32_t)r->rank,
                          .nonce = r->job,
                          .members = r->members,
                          .links = r->links,
                          .link = beat ? 0 : i,
                          .segment_bytes = r->segment_bytes,
                          .algorithm = r->wanted,
                          .shrinks = r->shrinks};
    memcpy(h.name, r->name, sizeof h.name);
    return h;
}

static int call_next(struct psc_ring *r, const char *next, double deadline_s, struct ps_error *err)
{
    unsigned char bytes[PSC_HELLO_BYTES];
    struct ps_error why;
    for (uint32_t i = 0; i <= r->links; i++) {
        struct psc_hello h = hello_of(r, i);
        int rc = psc_connect(next, deadline_s, r->stop_fd, next_end(r, i), &why);
        psc_hello_pack(&h, bytes);
        if (rc == 0 && (rc = psc_send_all(*next_end(r, i), bytes, sizeof bytes, deadline_s, r->stop_fd)) < 0)
            ps_fail(&why, rc, "%s: %s", next, strerror(-rc));
        if (rc < 0)
            return ps_fail(err, PSC_ECLIQUE, "clique %s: rank %u, the next one, is gone: %s", r->name,
                           psc_ring_next(r), why.text);
    }
    return PSC_OK;
}

/* Why the hello is refused, in a sentence; "": it is accepted. */
static void classify(struct psc_ring *r, const struct psc_hello *h, struct ps_error *why)
{
    why->text[0] = 0;
    if (h->kind == PSC_HELLO_JOIN || h->nonce != r->job) {
        ps_fail(why, 0, "clique %s is complete here, and the peer is not one of its members", r->name);
    } else if (h->members != r->members || h->links != r->links || h->segment_bytes != r->segment_bytes ||
               h->algorithm != r->wanted || h->shrinks != r->shrinks ||
               strncmp(h->name, r->name, sizeof h->name) != 0 || h->rank != (int32_t)psc_ring_prev(r)) {
        ps_fail(why, 0,
                "members disagree: rank %d has %u members, %u links, segment_bytes %u, algorithm %s, on_loss "
                "%s and name %s, rank %u, which expects rank %u, has %u, %u, %u, %s, %s and %s",
                h->rank, h->members, h->links, h->segment_bytes, psc_algorithm_name(h->algorithm),
                h->shrinks ? "shrink" : "end", h->name, r->rank, psc_ring_prev(r), r->members, r->links,
                r->segment_bytes, psc_algorithm_name(r->wanted), r->shrinks ? "shrink" : "end", r->name);
    } else if (*prev_end(r, h) >= 0) {
        ps_fail(why, 0, "%s %u of rank %d is already connected", h->kind == PSC_HELLO_LINK ? "link" : "beat",
                h->link, h->rank);
    }
}

int psc_ring_wait_hello(const struct psc_ring *r, struct psc_pending_peers *pending, double deadline_s,
                        int *fd, struct psc_hello *h)
{
    for (;;) {
        double look = r->survival != NULL ? ps_now_s() + look_s : deadline_s;
        bool is_last = look >= deadline_s;
        int rc = psc_pending_peers_wait(pending, is_last ? deadline_s : look, fd, h);
        if (rc != -EAGAIN || is_last)
            return rc;
        if (psc_is_closing(r->link[0].next))
            return -ECONNRESET;
    }
}

static int let_prev_in(struct psc_ring *r, struct psc_pending_peers *pending, double deadline_s,
                       struct ps_error *err)
{
    unsigned char bytes[PSC_REPLY_BYTES];
    for (uint32_t come = 0; come <= r->links;) {
        struct psc_hello h;
        struct ps_error why;
        int fd, rc = psc_ring_wait_hello(r, pending, deadline_s, &fd, &h);
        if (rc == -ECONNRESET)
            return ps_fail(err, PSC_ECLIQUE, "clique %s: rank %u, the next one, is gone", r->name,
                           psc_ring_next(r));
        if (rc < 0)
            return ps_fail(err, PSC_ECLIQUE, "clique %s: rank %u, the previous one, did not connect: %s",
                           r->name, psc_ring_prev(r), rc == -EAGAIN ? "timed out" : strerror(-rc));
        if (psc_survival_is_called(r, fd,
                                   &h)) { /* a member could not connect; this one must begin anew, too */
            psc_turn_away(fd, PSC_REPLY_AGAIN, "");
            return ps_fail(err, PSC_ECLIQUE, "clique %s: member %d begins anew", r->name, h.rank);
        }
        classify(r, &h, &why);
        if (why.text[0] != 0) {
            psc_turn_away(fd, h.nonce == r->job ? PSC_REPLY_REFUSED : PSC_REPLY_AGAIN, why.text);
            if (h.kind != PSC_HELLO_JOIN && h.nonce == r->job) /* a member, but with other settings */
                return ps_fail(err, PSC_ECLIQUE, "clique %s: %s", r->name, why.text);
            continue;
        }
        *prev_end(r, &h) = fd;
        come++;
        psc_reply_pack(&(struct psc_reply){.kind = PSC_REPLY_WELCOME, .rank = h.rank}, bytes);
        psc_send_all(fd, bytes, sizeof bytes, deadline_s, r->stop_fd); /* the first call reports it */
    }
    return PSC_OK;
}

static int hear_welcome(struct psc_ring *r, double deadline_s, struct ps_error *err)
{
    unsigned char bytes[PSC_REPLY_BYTES];
    for (uint32_t i = 0; i <= r->links; i++) {
        struct psc_reply reply;
        struct ps_error why;
        int rc = psc_recv_all(*next_end(r, i), bytes, sizeof bytes, deadline_s, r->stop_fd);
        if (rc < 0)
            return ps_fail(err, PSC_ECLIQUE, "clique %s: rank %u, the next one, is gone: %s", r->name,
                           psc_ring_next(r), strerror(-rc));
        rc = psc_reply_parse(&reply, bytes, &why);
        if (rc < 0 || reply.kind != PSC_REPLY_WELCOME)
            return ps_fail(err, PSC_ECLIQUE, "clique %s: rank %u, the next one, refuses: %s", r->name,
                           psc_ring_next(r), rc < 0 ? why.text : reply.text);
    }
    return PSC_OK;
}

/* Keepalive, for a connection that a firewall has forgotten: the beat uses another one and would continue. */
static void watch_paths(const struct psc_ring *r)
{
    for (uint32_t i = 0; i < r->links; i++) {
        psc_keep_alive(r->link[i].next, r->timeout_ms);
        psc_keep_alive(r->link[i].prev, r->timeout_ms);
    }
}

int psc_ring_join(struct psc_ring *r, int listen_fd, const char *next, double deadline_s,
                  struct ps_error *err)
{
    struct psc_pending_peers pending;
    psc_pending_peers_init(&pending, listen_fd, r->stop_fd);
    int rc = call_next(r, next, deadline_s, err);
    if (rc == PSC_OK)
        rc = let_prev_in(r, &pending, deadline_s, err);
    if (rc == PSC_OK)
        rc = hear_welcome(r, deadline_s, err);
    psc_pending_peers_finish(&pending);
    if (rc == PSC_OK)
        watch_paths(r);
    return rc;
}
