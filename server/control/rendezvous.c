#include "server/control/rendezvous.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"

enum { NAMED_MISSING = 16 };

static void refusef(struct psd_rendezvous *t, const struct psd_peer *peer, uint32_t code, const char *fmt,
                    ...) __attribute__((format(printf, 4, 5)));

static void refusef(struct psd_rendezvous *t, const struct psd_peer *peer, uint32_t code, const char *fmt,
                    ...)
{
    char sentence[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    t->voice.refuse(t->voice.arg, peer, code, sentence);
}

static struct psd_peer peer_of(const struct psd_rendezvous_member *p)
{
    return (struct psd_peer){.id = p->peer, .id_bytes = p->peer_bytes, .address = p->host};
}

/* Printable ASCII, which is safe for logs and terminals. */
static bool is_plain(const char *text, size_t max, bool spaces)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] < (spaces ? 0x20 : 0x21) || text[i] > 0x7e)
            return false;
    return n >= 1 && n <= max;
}

/* Whether the message is well-formed; refuses it if not. */
static bool is_whole(struct psd_rendezvous *t, const struct psd_peer *peer, const Ps__Meet *m)
{
    if (!is_plain(m->clique, PSD_MEETING_NAME_MAX, true))
        refusef(t, peer, PS__CODE__MALFORMED, "a clique's name is 1 to %d printable characters",
                PSD_MEETING_NAME_MAX);
    else if (m->members < 1 || m->members > PSD_MEETING_MEMBERS_MAX)
        refusef(t, peer, PS__CODE__MALFORMED, "clique '%s': %u members; allowed are 1 to %d", m->clique,
                m->members, PSD_MEETING_MEMBERS_MAX);
    else if (!m->any_rank && m->rank >= m->members)
        refusef(t, peer, PS__CODE__MALFORMED, "clique '%s': rank %u of %u members", m->clique, m->rank,
                m->members);
    else if (!is_plain(m->address, PSD_MEETING_ADDRESS_MAX, false))
        refusef(t, peer, PS__CODE__MALFORMED, "clique '%s': an address is 1 to %d printable characters",
                m->clique, PSD_MEETING_ADDRESS_MAX);
    else if (m->token == 0 || m->wait_ms < 1 || m->wait_ms > PSD_MEETING_WAIT_MAX_MS)
        refusef(t, peer, PS__CODE__MALFORMED,
                "clique '%s': a member has a token, not 0, and waits 1 to %u ms, not %u", m->clique,
                PSD_MEETING_WAIT_MAX_MS, m->wait_ms);
    else if (peer->id_bytes >= sizeof((struct psd_rendezvous_member *)0)->peer)
        refusef(t, peer, PS__CODE__MALFORMED, "clique '%s': a connection's identity is too long", m->clique);
    else
        return true;
    return false;
}

static struct psd_rendezvous_clique *meeting_named(struct psd_rendezvous *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->list[i].name, name) == 0)
            return &t->list[i];
    return NULL;
}

static struct psd_rendezvous_member *member_of(const struct psd_rendezvous_clique *g, uint64_t token)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (g->places[i].token == token)
            return &g->places[i];
    return NULL;
}

static void drop_meeting(struct psd_rendezvous *t, struct psd_rendezvous_clique *g)
{
    t->n_places -= g->n;
    free(g->places);
    t->n--;
    memmove(g, g + 1, (size_t)(&t->list[t->n] - g) * sizeof *g);
    t->list[t->n] = (struct psd_rendezvous_clique){0};
}

/* The meeting remains, even without members. */
static void drop_member(struct psd_rendezvous *t, struct psd_rendezvous_clique *g, uint32_t i)
{
    g->n--;
    t->n_places--;
    memmove(&g->places[i], &g->places[i + 1], (g->n - i) * sizeof *g->places);
}

/* Gives members the ranks that they asked for; the others get the lowest free ranks, in order of arrival.
 * taken: [members], receives which ranks are in use. */
static void hand_out_ranks(struct psd_rendezvous_clique *g, bool *taken)
{
    uint32_t next = 0;
    memset(taken, 0, g->members * sizeof *taken);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->places[i].wanted >= 0)
            taken[g->places[i].rank = (uint32_t)g->places[i].wanted] = true;
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->places[i].wanted >= 0)
            continue;
        while (taken[next])
            next++;
        taken[g->places[i].rank = next] = true;
    }
}

static void answer(struct psd_rendezvous *t, struct psd_rendezvous_clique *g,
                   const struct psd_rendezvous_member *only)
{
    static const Ps__Member none = PS__MEMBER__INIT;
    Ps__Member *members = calloc(g->n, sizeof *members);
    Ps__Member **list = calloc(g->n, sizeof *list);
    Ps__Met met = PS__MET__INIT;

    for (uint32_t i = 0; members != NULL && list != NULL && i < g->n; i++) {
        uint32_t rank = g->places[i].rank;
        members[rank] = none;
        members[rank].address = g->places[i].address;
        members[rank].nonce = g->places[i].nonce;
        list[rank] = &members[rank];
    }
    met.members = list;
    met.n_members = g->n;
    for (uint32_t i = 0; i < g->n; i++) {
        struct psd_peer peer = peer_of(&g->places[i]);
        met.rank = g->places[i].rank;
        if (only != NULL && only != &g->places[i])
            continue;
        if (members != NULL && list != NULL)
            t->voice.met(t->voice.arg, &peer, &met);
        else
            refusef(t, &peer, PS__CODE__FULL, "clique '%s': psd has no memory for its %u members", g->name,
                    g->n);
    }
    free(members);
    free(list);
}

static void complete(struct psd_rendezvous *t, struct psd_rendezvous_clique *g)
{
    bool taken[PSD_MEETING_MEMBERS_MAX];
    hand_out_ranks(g, taken);
    g->complete = true;
    if (ps_log_allows(&t->log_limit, "meeting.complete", "meetings"))
        ps_log(PS_LOG_INFO, "meeting.complete", "clique '%s': all %u members are connected", g->name,
               g->members);
    answer(t, g, NULL);
}

/* Compares the properties that all members must agree on; writes the first difference between two members to
 * `refused`. */
static void compare(struct psd_rendezvous_clique *g, const Ps__Meet *m)
{
    const struct {
        const char *what;
        uint32_t first, now;
    } alike[] = {
        {"members", g->members, m->members},
        {"links", g->links, m->links},
        {"segment_bytes", g->segment_bytes, m->segment_bytes},
    };
    for (size_t i = 0; i < sizeof alike / sizeof *alike && g->refused[0] == 0; i++)
        if (alike[i].first != alike[i].now)
            snprintf(g->refused, sizeof g->refused, "%.90s says %s: %u, %.90s says %u", g->places[0].address,
                     alike[i].what, alike[i].first, m->address, alike[i].now);
}

/* Whether the new member fits this meeting. If not, it is refused with a sentence that names both sides; if
 * the members wait in vain they get that sentence too. */
static bool fits(struct psd_rendezvous *t, struct psd_rendezvous_clique *g, const struct psd_peer *peer,
                 const Ps__Meet *m)
{
    g->refused[0] = 0;
    if (g->n > 0)
        compare(g, m);
    for (uint32_t i = 0; i < g->n && g->refused[0] == 0; i++) {
        const struct psd_rendezvous_member *p = &g->places[i];
        if (!m->any_rank && p->wanted == (int64_t)m->rank)
            snprintf(g->refused, sizeof g->refused, "rank %u is taken by %.90s; %.90s also asks for it",
                     m->rank, p->address, m->address);
        else if (strcmp(p->address, m->address) == 0)
            snprintf(g->refused, sizeof g->refused,
                     "two members, at %s and at %s, have the same address, %.90s", p->host, peer->address,
                     m->address);
    }
    if (g->refused[0] == 0)
        return true;
    refusef(t, peer, PS__CODE__CLIQUE, "clique '%s': %s", g->name, g->refused);
    return false;
}

static bool has_connection(const struct psd_rendezvous *t, const struct psd_peer *peer)
{
    for (uint32_t i = 0; i < t->n; i++)
        for (uint32_t k = 0; k < t->list[i].n; k++) {
            const struct psd_rendezvous_member *p = &t->list[i].places[k];
            if (p->peer_bytes == peer->id_bytes && memcmp(p->peer, peer->id, peer->id_bytes) == 0)
                return true;
        }
    return false;
}

/* Makes room for one more member of g; false: the member was refused. */
static bool make_room(struct psd_rendezvous *t, struct psd_rendezvous_clique *g, const struct psd_peer *peer)
{
    if (t->n_places >= PSD_MEETING_PLACES_MAX) {
        refusef(t, peer, PS__CODE__FULL,
                "clique '%s': %d members already wait at this psd, which is the limit", g->name,
                PSD_MEETING_PLACES_MAX);
        return false;
    }
    if (g->n < g->room)
        return true;
    uint32_t room = g->room > 0 ? 2 * g->room : 4;
    struct psd_rendezvous_member *more = realloc(g->places, room * sizeof *more);
    if (more == NULL) {
        refusef(t, peer, PS__CODE__FULL, "clique '%s': psd has no memory for another member", g->name);
        return false;
    }
    g->places = more;
    g->room = room;
    return true;
}

static void set_peer(struct psd_rendezvous_member *p, const struct psd_peer *peer, uint64_t now_ms)
{
    p->peer_bytes = peer->id_bytes;
    memcpy(p->peer, peer->id, peer->id_bytes);
    snprintf(p->host, sizeof p->host, "%s", peer->address);
    p->heard_ms = now_ms;
}

/* Drops members that have sent nothing since then. */
static void forget_silent(struct psd_rendezvous *t, struct psd_rendezvous_clique *g, uint64_t since_ms)
{
    for (uint32_t i = g->n; i-- > 0;)
        if (g->places[i].heard_ms < since_ms) {
            ps_log(PS_LOG_DEBUG, "meeting.silent", "clique '%s': %s is silent and was dropped", g->name,
                   g->places[i].address);
            drop_member(t, g, i);
        }
}

/* A member that has missed two of its Meets is dropped for a new one, which may be the same process,
 * restarted. */
static void join(struct psd_rendezvous *t, struct psd_rendezvous_clique *g, const struct psd_peer *peer,
                 const Ps__Meet *m, uint64_t now_ms)
{
    if (now_ms > PSD_MEETING_SILENCE_MS / 2)
        forget_silent(t, g, now_ms - PSD_MEETING_SILENCE_MS / 2);
    if (has_connection(t, peer)) {
        refusef(t, peer, PS__CODE__CLIQUE, "clique '%s': one connection can be one member only", g->name);
        return;
    }
    if (!fits(t, g, peer, m) || !make_room(t, g, peer))
        return;
    struct psd_rendezvous_member *p = &g->places[g->n++];
    t->n_places++;
    g->members = m->members;
    g->links = m->links;
    g->segment_bytes = m->segment_bytes;
    *p = (struct psd_rendezvous_member){.token = m->token,
                                        .nonce = m->nonce,
                                        .wanted = m->any_rank ? -1 : (int64_t)m->rank,
                                        .came_ms = now_ms,
                                        .wait_ms = m->wait_ms};
    strcpy(p->address, m->address); /* is_whole has checked its length */
    set_peer(p, peer, now_ms);
    ps_log(PS_LOG_DEBUG, "meeting.came", "clique '%s': %s at %s is number %u of %u", g->name, p->address,
           p->host, g->n, g->members);
    if (g->n == g->members)
        complete(t, g);
}

static struct psd_rendezvous_clique *start_meeting(struct psd_rendezvous *t, const struct psd_peer *peer,
                                                   const Ps__Meet *m)
{
    if (t->n >= PSD_MEETINGS_MAX) {
        refusef(t, peer, PS__CODE__FULL,
                "clique '%s': %d cliques already form at this psd, which is the limit", m->clique,
                PSD_MEETINGS_MAX);
        return NULL;
    }
    struct psd_rendezvous_clique *g = &t->list[t->n++];
    *g = (struct psd_rendezvous_clique){.members = m->members};
    strcpy(g->name, m->clique);
    return g;
}

void psd_rendezvous_take(struct psd_rendezvous *t, const struct psd_peer *peer, const Ps__Meet *m,
                         uint64_t now_ms)
{
    if (!is_whole(t, peer, m))
        return;
    struct psd_rendezvous_clique *g = meeting_named(t, m->clique);
    struct psd_rendezvous_member *p = g != NULL ? member_of(g, m->token) : NULL;
    if (m->leave) {
        if (p != NULL && !g->complete)
            drop_member(t, g, (uint32_t)(p - g->places));
    } else if (p != NULL) { /* it asks again, perhaps on another connection */
        set_peer(p, peer, now_ms);
        if (g->complete)
            answer(t, g, p);
    } else {
        if (g != NULL && g->complete) { /* a new job of the same name */
            drop_meeting(t, g);
            g = NULL;
        }
        if (g != NULL || (g = start_meeting(t, peer, m)) != NULL)
            join(t, g, peer, m, now_ms);
    }
    if (g != NULL && g->n == 0)
        drop_meeting(t, g);
}

/* Writes the missing ranks as "ranks 1 and 3". Members that asked for any rank count as the lowest free
 * ones. */
static void name_missing(struct psd_rendezvous_clique *g, char *text, size_t size)
{
    bool taken[PSD_MEETING_MEMBERS_MAX];
    uint32_t missing = g->members - g->n, named = 0;
    size_t used = (size_t)snprintf(text, size, missing == 1 ? "rank" : "ranks");

    hand_out_ranks(g, taken);
    for (uint32_t r = 0; r < g->members && used < size; r++) {
        if (taken[r])
            continue;
        if (named++ == NAMED_MISSING) {
            snprintf(text + used, size - used, " and %u more", missing - NAMED_MISSING);
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s %u", named > 1 ? "," : "", r);
    }
}

/* A member's time is up: the clique cannot form without it, so all members are told. */
static void give_up(struct psd_rendezvous *t, struct psd_rendezvous_clique *g,
                    const struct psd_rendezvous_member *first)
{
    char missing[160];
    double waited_s = (double)first->wait_ms / 1e3;

    name_missing(g, missing, sizeof missing);
    for (uint32_t i = 0; i < g->n; i++) {
        struct psd_peer peer = peer_of(&g->places[i]);
        refusef(t, &peer, PS__CODE__CLIQUE,
                "clique '%s': %u of %u members connected within the %.1f s that %s waits; missing: %s%s%s",
                g->name, g->n, g->members, waited_s, first->address, missing, g->refused[0] != 0 ? "; " : "",
                g->refused);
    }
    while (g->n > 0)
        drop_member(t, g, g->n - 1);
}

static void look_after(struct psd_rendezvous *t, struct psd_rendezvous_clique *g, uint64_t now_ms)
{
    if (now_ms > PSD_MEETING_SILENCE_MS)
        forget_silent(t, g, now_ms - PSD_MEETING_SILENCE_MS);
    for (uint32_t i = 0; i < g->n; i++)
        if (now_ms >= g->places[i].came_ms + g->places[i].wait_ms)
            give_up(t, g, &g->places[i]);
}

void psd_rendezvous_tick(struct psd_rendezvous *t, uint64_t now_ms)
{
    for (uint32_t k = t->n; k-- > 0;) {
        struct psd_rendezvous_clique *g = &t->list[k];
        if (g->complete) { /* a complete meeting is dropped as a whole */
            uint64_t heard_ms = 0;
            for (uint32_t i = 0; i < g->n; i++)
                heard_ms = g->places[i].heard_ms > heard_ms ? g->places[i].heard_ms : heard_ms;
            if (now_ms > heard_ms + PSD_MEETING_SILENCE_MS)
                drop_meeting(t, g);
            continue;
        }
        look_after(t, g, now_ms);
        if (g->n == 0)
            drop_meeting(t, g);
    }
}

void psd_rendezvous_finish(struct psd_rendezvous *t)
{
    while (t->n > 0)
        drop_meeting(t, &t->list[t->n - 1]);
}
