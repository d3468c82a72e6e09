#include "client/cliques/rendezvous/leader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/cliques/rendezvous/pending_peers.h"
#include "proto/clock.h"
#include "proto/random.h"

static const double look_s = 0.2;  /* between two checks of the connections and of who leads */
static const double grace_s = 1.0; /* after a disagreement: time for the others to join and learn of it */

/* guests[0] is the leader itself, without a connection. */
struct leader {
    struct psc_meeting *m;
    uint64_t nonce;
    uint32_t n;
    struct guest {
        int fd;
        struct psc_hello hello;
    } * guests;              /* [members] */
    struct ps_error verdict; /* "": no error so far */
    struct psc_pending_peers pending;
};

void psc_hello_fill(struct psc_hello *h, uint8_t kind, const struct psc_meeting *m)
{
    *h = (struct psc_hello){.kind = kind,
                            .rank = m->rank,
                            .members = m->members,
                            .links = m->links,
                            .segment_bytes = m->segment_bytes,
                            .algorithm = m->algorithm,
                            .shrinks = m->shrinks};
    snprintf(h->name, sizeof h->name, "%s", m->name);
    snprintf(h->address, sizeof h->address, "%s", m->address);
}

static void describe(const struct psc_hello *h, char *text, size_t size)
{
    if (h->rank < 0)
        snprintf(text, size, "a member without a rank at %.100s", h->address);
    else
        snprintf(text, size, "rank %d at %.100s", h->rank, h->address);
}

/* The first disagreement between two hellos becomes the verdict. */
static void compare(struct leader *l, const struct psc_hello *a, const struct psc_hello *b)
{
    const struct {
        const char *what;
        uint32_t a, b;
    } facts[] = {{"members", a->members, b->members},
                 {"links", a->links, b->links},
                 {"segment_bytes", a->segment_bytes, b->segment_bytes}};
    char who_a[160], who_b[160];

    describe(a, who_a, sizeof who_a);
    describe(b, who_b, sizeof who_b);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (facts[i].a != facts[i].b) {
            ps_fail(&l->verdict, 0, "members disagree: %s has %s %u, %s has %u", who_a, facts[i].what,
                    facts[i].a, who_b, facts[i].b);
            return;
        }
    if (a->algorithm != b->algorithm)
        ps_fail(&l->verdict, 0, "members disagree: %s has algorithm %s, %s has %s", who_a,
                psc_algorithm_name(a->algorithm), who_b, psc_algorithm_name(b->algorithm));
    if (a->shrinks != b->shrinks)
        ps_fail(&l->verdict, 0, "members disagree: %s has on_loss %s, %s has %s", who_a,
                a->shrinks ? "shrink" : "end", who_b, b->shrinks ? "shrink" : "end");
    if (a->rank >= 0 && a->rank == b->rank)
        ps_fail(&l->verdict, 0, "rank %d joined twice, at %.100s and at %.100s", a->rank, a->address,
                b->address);
    if (strcmp(a->name, b->name) != 0)
        ps_fail(&l->verdict, 0, "members disagree: %s has name %s, %s has %s", who_a, a->name, who_b,
                b->name);
}

static void admit(struct leader *l, int fd, const struct psc_hello *h)
{
    unsigned char bytes[PSC_REPLY_BYTES];
    if (h->kind != PSC_HELLO_JOIN || h->nonce != l->nonce) {
        psc_turn_away(fd, PSC_REPLY_AGAIN, "");
        return;
    }
    for (uint32_t i = 0; i < l->n && l->verdict.text[0] == 0; i++)
        compare(l, &l->guests[i].hello, h);
    if (l->n == l->m->members) { /* more members came than expected, or they disagree on the number */
        psc_turn_away(fd, PSC_REPLY_REFUSED,
                      l->verdict.text[0] != 0 ? l->verdict.text : "all members have joined");
        return;
    }
    psc_reply_pack(&(struct psc_reply){.kind = PSC_REPLY_WAIT, .rank = h->rank}, bytes);
    psc_send_all(fd, bytes, sizeof bytes, ps_now_s(), -1);
    l->guests[l->n++] = (struct guest){fd, *h};
}

/* A member that has disconnected while it waited does not count. */
static void drop_gone(struct leader *l)
{
    char byte;
    for (uint32_t i = l->n - 1; i > 0; i--) {
        ssize_t k = recv(l->guests[i].fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        close(l->guests[i].fd);
        l->guests[i] = l->guests[--l->n];
    }
}

static void tell_all(struct leader *l, uint8_t kind, const char *text)
{
    for (uint32_t i = 1; i < l->n; i++)
        psc_turn_away(l->guests[i].fd, kind, text);
    l->n = 1;
}

/* Members that asked for no rank get the lowest free ones, in the order of their arrival. by_rank:
 * [members], the index in guests, or `members` if nobody has that rank. */
static void give_ranks(struct leader *l, uint32_t *by_rank)
{
    uint32_t members = l->m->members, free_rank = 0;
    for (uint32_t r = 0; r < members; r++)
        by_rank[r] = members;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->guests[i].hello.rank >= 0)
            by_rank[l->guests[i].hello.rank] = i;
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->guests[i].hello.rank >= 0)
            continue;
        while (by_rank[free_rank] != members)
            free_rank++;
        by_rank[free_rank] = i;
        l->guests[i].hello.rank = (int32_t)free_rank;
    }
}

static void name_missing(struct leader *l, const uint32_t *by_rank)
{
    uint32_t members = l->m->members, missing = members - l->n;
    char list[200] = "";
    size_t at = 0;
    for (uint32_t r = 0; r < members && at < sizeof list - 16; r++)
        if (by_rank[r] == members)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%u", at > 0 ? ", " : "", r);
    ps_fail(&l->verdict, 0, "%u of %u members did not join within %u ms: missing %s %s%s", missing, members,
            l->m->timeout_ms, missing > 1 ? "ranks" : "rank", list, at >= sizeof list - 16 ? ", ..." : "");
}

/* A member that this does not reach is missing when the ring is connected. */
static void welcome_all(struct leader *l, const uint32_t *by_rank)
{
    struct psc_meeting *m = l->m;
    unsigned char bytes[PSC_REPLY_BYTES];
    uint64_t job = ps_random_u64();
    for (uint32_t r = 0; r < m->members; r++) {
        struct guest *g = &l->guests[by_rank[r]];
        struct psc_reply reply = {.kind = PSC_REPLY_WELCOME, .rank = (int32_t)r, .job = job};
        memcpy(reply.next, l->guests[by_rank[(r + 1) % m->members]].hello.address, sizeof reply.next);
        if (g->fd >= 0) {
            psc_reply_pack(&reply, bytes);
            psc_send_all(g->fd, bytes, sizeof bytes, ps_now_s(), -1);
            close(g->fd);
            continue;
        }
        m->own_rank = reply.rank;
        m->job = job;
        memcpy(m->next, reply.next, sizeof m->next);
    }
    l->n = 1;
}

/* The leader's deadline is a little earlier than that of the others, so that they learn which ranks are
 * missing. */
static double end_of(const struct psc_meeting *m)
{
    double early = m->timeout_ms * 1e-4;
    return m->deadline_s - (early < grace_s ? early : grace_s);
}

/* Gathers members until all have joined (0), the deadline has passed, or this is no longer the leader
 * (-ESTALE). Once members disagree, it continues for a grace time, so that late members learn of it, too. */
static int gather(struct leader *l, bool (*still_leads)(void *arg), void *arg)
{
    double deadline = end_of(l->m);
    while ((l->n < l->m->members || l->verdict.text[0] != 0) && ps_now_s() < deadline) {
        double look = ps_now_s() + look_s;
        struct psc_hello h;
        int fd, rc = psc_pending_peers_wait(&l->pending, look < deadline ? look : deadline, &fd, &h);
        if (rc == 0) {
            bool agreed = l->verdict.text[0] == 0;
            admit(l, fd, &h);
            if (agreed && l->verdict.text[0] != 0 && ps_now_s() + grace_s < deadline)
                deadline = ps_now_s() + grace_s;
            continue;
        }
        if (rc != -EAGAIN)
            return rc;
        drop_gone(l);
        if (!still_leads(arg))
            return -ESTALE;
    }
    drop_gone(l);
    return still_leads(arg) ? 0 : -ESTALE;
}

static int conclude(struct leader *l, struct ps_error *err)
{
    bool agreed = l->verdict.text[0] == 0, whole = l->n == l->m->members;
    uint32_t *by_rank = l->m->members > 0 ? malloc(l->m->members * sizeof *by_rank) : NULL;
    if (by_rank == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %u members", l->m->members);
    if (agreed) {
        give_ranks(l, by_rank);
        if (whole)
            welcome_all(l, by_rank);
        else
            name_missing(l, by_rank);
    }
    free(by_rank);
    if (agreed && whole)
        return 0;
    tell_all(l, PSC_REPLY_REFUSED, l->verdict.text);
    return ps_fail(err, agreed ? -ETIMEDOUT : -EPROTO, "%s", l->verdict.text);
}

int psc_meeting_lead(struct psc_meeting *m, uint64_t nonce, bool (*still_leads)(void *arg), void *arg,
                     struct ps_error *err)
{
    struct leader l = {.m = m, .nonce = nonce, .n = 1, .guests = calloc(m->members, sizeof *l.guests)};
    if (l.guests == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %u members", m->members);
    l.guests[0].fd = -1;
    psc_hello_fill(&l.guests[0].hello, PSC_HELLO_JOIN, m);
    psc_pending_peers_init(&l.pending, m->listen_fd, m->stop_fd);
    int rc = gather(&l, still_leads, arg);
    /* gather returned early and a member has left since: it is missing, and the error names it */
    if (rc == 0)
        rc = conclude(&l, err);
    else
        ps_fail(err, rc, "the rendezvous failed: %s", strerror(-rc));
    tell_all(&l, rc == -ESTALE ? PSC_REPLY_AGAIN : PSC_REPLY_REFUSED, err->text);
    psc_pending_peers_finish(&l.pending);
    free(l.guests);
    return rc;
}
