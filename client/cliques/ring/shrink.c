/* What is left of a ring forms it anew. Each member keeps, from psc_ring_open on, its listening socket and
 * the addresses of all members as the clique began; their ranks then are their ids.
 *
 * The member with the lowest id that is not lost leads. The others connect to it, with the step of their
 * caller. When every other member is here or lost, it decides who is left, and sends the roster to all; each
 * connects as it did at the beginning, with the settings of the clique. A member is lost if its process has
 * ended, so that nobody listens at its address, or if it was silent and so broke the clique; what one knows
 * of that goes with its hello.
 *
 * Whoever cannot connect by the roster closes its connections and begins anew. Those with which it was
 * connected notice that, as does one whose next member has ended. One that waits for a previous member that
 * has ended notices nothing: the leader summons all that are not here, over a connection that stays open
 * until they are.
 *
 * A member that waits for a leader also takes hellos: it leads when those before it are lost.
 *
 * To a member that is left out and may not have ended the leader sends that, too. It finds the hello in the
 * queue of its listening socket when it runs again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cliques/rendezvous/pending_peers.h"
#include "client/cliques/ring/ring.h"
#include "proto/clock.h"
#include "proto/random.h"

static const double look_s = 0.1;      /* between two looks at who is lost */
static const double connect_s = 2;     /* to an address that does not answer; it is tried again */
static const double decide_part = 0.7; /* of a member's time, for all to come; the rest is to connect */

struct psc_survival {
    int listen_fd;
    uint64_t secret; /* only the members know it */
    uint32_t founders, id;
    bool left_out;                      /* the others have gone on without this member */
    uint32_t ids[PSC_MAX_MEMBERS];      /* by rank, ascending */
    char (*address)[PSC_ADDRESS_BYTES]; /* [founders] */
};

/* One attempt. */
struct party {
    struct psc_ring *r;
    struct psc_survival *s;
    struct ps_error *err;
    uint64_t step;
    double deadline_s, decide_s;
    struct psc_pending_peers pending;
    int leader_fd; /* -1: not connected */
    uint32_t leader;
    bool lost[PSC_MAX_MEMBERS];   /* by id */
    bool silent[PSC_MAX_MEMBERS]; /* lost, but perhaps it has not ended */
    int guest[PSC_MAX_MEMBERS];   /* by id: the connection of a member that is here; -1 */
    int summon[PSC_MAX_MEMBERS];  /* by id: that to a member that is not; -1 */
    uint64_t steps[PSC_MAX_MEMBERS];
};

int psc_survival_begin(struct psc_ring *r, int listen_fd, const char *own_address, struct ps_error *err)
{
    struct psc_survival *s = calloc(1, sizeof *s);
    if (s != NULL)
        s->address = calloc(r->members, sizeof *s->address);
    if (s == NULL || s->address == NULL) {
        free(s);
        return ps_fail(err, PSC_ENOMEM, "no memory for the addresses of %u members", r->members);
    }
    s->founders = r->members;
    s->id = r->rank;
    s->secret = r->job;
    for (uint32_t i = 0; i < r->members; i++)
        s->ids[i] = i;
    memcpy(s->address[s->id], own_address, strnlen(own_address, PSC_ADDRESS_BYTES - 1));
    const struct psc_collective gather = {
        .kind = PSC_ALLGATHER, .data = s->address, .n = PSC_ADDRESS_BYTES, .type = PSC_BYTES};
    int rc = psc_ring_run(r, &gather, err);
    for (uint32_t i = 0; i < r->members && rc == PSC_OK; i++)
        if (s->address[i][PSC_ADDRESS_BYTES - 1] != 0)
            rc = ps_fail(err, PSC_ECLIQUE, "rank %u sent no valid address", i);
    if (rc != PSC_OK) {
        free(s->address);
        free(s);
        return rc;
    }
    s->listen_fd = listen_fd;
    r->survival = s;
    return PSC_OK;
}

void psc_survival_end(struct psc_survival *s)
{
    if (s == NULL)
        return;
    close(s->listen_fd);
    free(s->address);
    free(s);
}

static bool knows(const struct psc_survival *s, const struct psc_hello *h)
{
    return h->kind >= PSC_HELLO_SHRINK && h->kind <= PSC_HELLO_LEFT_OUT && h->nonce == s->secret &&
           h->members == s->founders;
}

/* A connection that has ended is of an earlier attempt. */
bool psc_survival_is_called(const struct psc_ring *r, int fd, const struct psc_hello *h)
{
    if (r->survival == NULL || !knows(r->survival, h))
        return false;
    r->survival->left_out = r->survival->left_out || h->kind == PSC_HELLO_LEFT_OUT;
    return r->survival->left_out || !psc_has_ended(fd);
}

static bool is_member(const struct psc_ring *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->members; i++)
        if (r->survival->ids[i] == id)
            return true;
    return false;
}

static void lose(struct party *p, uint32_t id, bool silent)
{
    if (id == p->s->id || p->lost[id])
        return;
    p->lost[id] = true;
    p->silent[id] = silent;
}

/* What broke the clique. That a connection of the ring has ended says nothing: members that have the roster
 * close theirs. */
static void learn_loss(struct party *p)
{
    const struct psc_ring *r = p->r;
    if (r->suspect > 0 && r->suspect <= r->members)
        lose(p, p->s->ids[r->suspect - 1], true);
}

static void hang_up(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static struct psc_hello hello_of(const struct party *p, uint8_t kind)
{
    struct psc_hello h = {.kind = kind,
                          .rank = (int32_t)p->s->id,
                          .nonce = p->s->secret,
                          .members = p->s->founders,
                          .links = p->r->links,
                          .segment_bytes = p->r->segment_bytes,
                          .algorithm = p->r->wanted,
                          .shrinks = 1};
    memcpy(h.name, p->r->name, sizeof h.name);
    return h;
}

/* Connects to a member's address and says the hello. -1: not now; where nobody listens, it is lost. The
 * ring's stop_fd is not for these waits: it stays readable after news from the beat. */
static int call(struct party *p, uint32_t id, const struct psc_hello *h, double end_s)
{
    unsigned char bytes[PSC_HELLO_BYTES];
    struct ps_error why;
    double until_s = ps_now_s() + connect_s;
    until_s = until_s < end_s ? until_s : end_s;
    int fd = -1, rc = psc_connect(p->s->address[id], until_s, -1, &fd, &why);
    if (rc == -ECONNREFUSED || rc == -ECONNRESET)
        lose(p, id, false);
    if (rc < 0)
        return -1;
    psc_hello_pack(h, bytes);
    if (psc_send_all(fd, bytes, sizeof bytes, until_s, -1) < 0)
        hang_up(&fd);
    return fd;
}

/* A member has come. The newest of its connections counts. */
static void admit(struct party *p, int fd, const struct psc_hello *h)
{
    uint32_t id = (uint32_t)h->rank;
    if (!knows(p->s, h) || id == p->s->id) {
        psc_turn_away(fd, PSC_REPLY_REFUSED, "only a member of this clique may connect here");
        return;
    }
    if (h->kind == PSC_HELLO_LEFT_OUT) {
        p->s->left_out = true;
        close(fd);
        return;
    }
    if (!is_member(p->r, id)) {
        psc_turn_away(fd, PSC_REPLY_REFUSED, "the clique has gone on without this member");
        return;
    }
    p->lost[id] = p->silent[id] = false;
    if (h->kind == PSC_HELLO_SUMMON) { /* this one is here already, and now knows that the sender is, too */
        close(fd);
        return;
    }
    hang_up(&p->summon[id]);
    hang_up(&p->guest[id]);
    p->guest[id] = fd;
    p->steps[id] = h->step;
    for (uint32_t i = 0; i < h->n_lost; i++)
        if (is_member(p->r, h->lost[i]) && p->guest[h->lost[i]] < 0)
            lose(p, h->lost[i], true);
    double decide_s = ps_now_s() + decide_part * h->wait_ms * 1e-3;
    p->decide_s = decide_s < p->decide_s ? decide_s : p->decide_s;
}

static void drop_gone(struct party *p)
{
    for (uint32_t i = 0; i < p->s->founders; i++) {
        if (p->guest[i] >= 0 && psc_has_ended(p->guest[i]))
            hang_up(&p->guest[i]);
        if (p->summon[i] >= 0 && psc_has_ended(p->summon[i]))
            hang_up(&p->summon[i]);
    }
}

/* Takes hellos for a moment. stop_fd becomes readable when there is something else to do: -ECANCELED. */
static int take_hellos(struct party *p, int stop_fd)
{
    struct psc_hello h;
    double until_s = ps_now_s() + look_s;
    int fd, rc;
    p->pending.stop_fd = stop_fd;
    rc = psc_pending_peers_wait(&p->pending, until_s < p->deadline_s ? until_s : p->deadline_s, &fd, &h);
    if (rc == 0)
        admit(p, fd, &h);
    return rc == -EAGAIN ? 0 : rc;
}

/* Members that are neither here nor known to be lost are summoned: where a process has ended, nobody listens.
 */
static bool all_decided(struct party *p)
{
    const struct psc_hello summon = hello_of(p, PSC_HELLO_SUMMON);
    bool decided = true;
    for (uint32_t i = 0; i < p->r->members; i++) {
        uint32_t id = p->s->ids[i];
        if (id == p->s->id || p->guest[id] >= 0 || p->lost[id])
            continue;
        if (p->summon[id] < 0)
            p->summon[id] = call(p, id, &summon, p->decide_s);
        decided = decided && p->lost[id];
    }
    return decided;
}

static void fill_roster(const struct party *p, struct psc_roster *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < p->r->members; i++) {
        uint32_t id = p->s->ids[i];
        if (id != p->s->id && p->guest[id] < 0)
            continue;
        if (p->steps[id] > out->step || out->members == 0) {
            out->step = p->steps[id];
            out->source = out->members;
        }
        out->ids[out->members++] = id;
    }
    for (uint32_t i = 0; i < out->members; i++)
        out->behind += p->steps[out->ids[i]] < out->step;
}

/* Members that are not here may all live on, if they have not ended: the part that goes on is the greater
 * one, or of two halves that with the lowest id. */
static int check_part(const struct party *p, const struct psc_roster *roster)
{
    uint32_t ended = 0, living, lowest = UINT32_MAX;
    for (uint32_t i = 0; i < p->r->members; i++) {
        uint32_t id = p->s->ids[i];
        bool has_ended = p->lost[id] && !p->silent[id] && p->guest[id] < 0;
        ended += has_ended;
        lowest = !has_ended && id < lowest ? id : lowest;
    }
    living = p->r->members - ended;
    if (2 * roster->members > living || (2 * roster->members == living && roster->ids[0] == lowest))
        return PSC_OK;
    return ps_fail(
        p->err, PSC_ECLIQUE,
        "clique %s: only %u of %u members that have not ended came to psc_clique_shrink: the others "
        "may go on",
        p->r->name, roster->members, living);
}

static const char *address_behind(const struct party *p, const struct psc_roster *roster, uint32_t rank)
{
    return p->s->address[roster->ids[(rank + 1) % roster->members]];
}

static void welcome(struct party *p, const struct psc_roster *roster, uint32_t rank, uint64_t job)
{
    unsigned char bytes[PSC_REPLY_BYTES + PSC_ROSTER_BYTES(PSC_MAX_MEMBERS)];
    struct psc_reply reply = {.kind = PSC_REPLY_WELCOME, .rank = (int32_t)rank, .job = job};
    int *fd = &p->guest[roster->ids[rank]];
    memcpy(reply.next, address_behind(p, roster, rank), sizeof reply.next);
    psc_reply_pack(&reply, bytes);
    psc_roster_pack(roster, p->s->founders, bytes + PSC_REPLY_BYTES);
    /* One that this does not reach is missing when the others connect, and all begin anew. */
    psc_send_all(*fd, bytes, PSC_REPLY_BYTES + PSC_ROSTER_BYTES(p->s->founders), ps_now_s() + connect_s, -1);
    hang_up(fd);
}

static bool is_in(const struct psc_roster *roster, uint32_t id)
{
    for (uint32_t i = 0; i < roster->members; i++)
        if (roster->ids[i] == id)
            return true;
    return false;
}

static void tell_left_out(struct party *p, const struct psc_roster *roster)
{
    const struct psc_hello h = hello_of(p, PSC_HELLO_LEFT_OUT);
    for (uint32_t i = 0; i < p->r->members; i++) {
        uint32_t id = p->s->ids[i];
        bool has_ended = p->lost[id] && !p->silent[id];
        int fd = is_in(roster, id) || has_ended ? -1 : call(p, id, &h, p->deadline_s);
        hang_up(&fd);
    }
}

/* As the leader. PSC_OK: *roster and *reply are this member's. */
static int lead(struct party *p, struct psc_roster *roster, struct psc_reply *reply)
{
    int rc = take_hellos(p, -1);
    drop_gone(p);
    if (rc < 0)
        return ps_fail(p->err, PSC_ESYSTEM, "clique %s: poll: %s", p->r->name, strerror(-rc));
    if (!all_decided(p) && ps_now_s() < p->decide_s)
        return -EAGAIN;
    fill_roster(p, roster);
    if ((rc = check_part(p, roster)) != PSC_OK)
        return rc;
    *reply = (struct psc_reply){.kind = PSC_REPLY_WELCOME, .job = ps_random_u64()};
    for (uint32_t rank = roster->members; rank-- > 0;) { /* each before the one that calls it */
        if (roster->ids[rank] != p->s->id) {
            welcome(p, roster, rank, reply->job);
            continue;
        }
        reply->rank = (int32_t)rank;
        memcpy(reply->next, address_behind(p, roster, rank), sizeof reply->next);
    }
    tell_left_out(p, roster);
    return PSC_OK;
}

static void say_hello(struct party *p, uint32_t leader)
{
    double left_s = p->deadline_s - ps_now_s();
    struct psc_hello h = hello_of(p, PSC_HELLO_SHRINK);
    h.step = p->step;
    h.wait_ms = left_s > 0.001 ? (uint32_t)(left_s * 1e3) : 1;
    for (uint32_t i = 0; i < p->s->founders && h.n_lost < PSC_MAX_LOST_TOLD; i++)
        if (p->lost[i])
            h.lost[h.n_lost++] = i;
    p->leader_fd = call(p, leader, &h, p->deadline_s);
    p->leader = leader;
}

/* The leader has answered, or its connection has ended. */
static int hear_leader(struct party *p, struct psc_roster *roster, struct psc_reply *reply)
{
    unsigned char bytes[PSC_REPLY_BYTES + PSC_ROSTER_BYTES(PSC_MAX_MEMBERS)];
    double until_s = ps_now_s() + connect_s;
    struct ps_error why;
    int rc = psc_recv_all(p->leader_fd, bytes, PSC_REPLY_BYTES, until_s, -1);
    if (rc == 0 && (rc = psc_reply_parse(reply, bytes, &why)) == 0 && reply->kind == PSC_REPLY_REFUSED)
        return ps_fail(p->err, PSC_ECLIQUE, "clique %s: %s", p->r->name, reply->text);
    if (rc == 0 && reply->kind == PSC_REPLY_WELCOME) {
        rc = psc_recv_all(p->leader_fd, bytes, PSC_ROSTER_BYTES(p->s->founders), until_s, -1);
        if (rc == 0)
            rc = psc_roster_parse(roster, p->s->founders, bytes, &why);
        if (rc == 0 && (reply->rank < 0 || (uint32_t)reply->rank >= roster->members ||
                        roster->ids[reply->rank] != p->s->id))
            rc = -EPROTO;
        if (rc == 0)
            return PSC_OK;
    }
    hang_up(&p->leader_fd);
    return -EAGAIN;
}

static int follow(struct party *p, uint32_t leader, struct psc_roster *roster, struct psc_reply *reply)
{
    if (p->leader_fd >= 0 && p->leader != leader)
        hang_up(&p->leader_fd);
    if (p->leader_fd < 0)
        say_hello(p, leader);
    int rc = take_hellos(p, p->leader_fd);
    if (rc == -ECANCELED)
        return hear_leader(p, roster, reply);
    return rc < 0 ? ps_fail(p->err, PSC_ESYSTEM, "clique %s: poll: %s", p->r->name, strerror(-rc)) : -EAGAIN;
}

static uint32_t lowest_left(const struct party *p)
{
    for (uint32_t i = 0; i < p->r->members; i++)
        if (!p->lost[p->s->ids[i]])
            return p->s->ids[i];
    return p->s->id; /* never lost itself */
}

/* Until there is a roster. */
static int gather(struct party *p, struct psc_roster *roster, struct psc_reply *reply)
{
    while (ps_now_s() < p->deadline_s) {
        if (p->r->given_up)
            return ps_fail(p->err, PSC_ECLIQUE, "clique %s is closed here", p->r->name);
        if (p->s->left_out)
            return ps_fail(p->err, PSC_ECLIQUE,
                           "clique %s has gone on without this member, which was silent or did not come to "
                           "psc_clique_shrink in time",
                           p->r->name);
        uint32_t leader = lowest_left(p);
        int rc = leader == p->s->id ? lead(p, roster, reply) : follow(p, leader, roster, reply);
        if (rc != -EAGAIN)
            return rc;
    }
    return ps_fail(p->err, PSC_ECLIQUE,
                   "clique %s: the member that was rank %u of %u, and would lead, did not come to "
                   "psc_clique_shrink in time",
                   p->r->name, lowest_left(p), p->s->founders);
}

static void party_end(struct party *p)
{
    hang_up(&p->leader_fd);
    for (uint32_t i = 0; i < p->s->founders; i++) {
        hang_up(&p->guest[i]);
        hang_up(&p->summon[i]);
    }
    psc_pending_peers_finish(&p->pending);
}

/* The ring of the roster. From now on this member is one of those, whether it can connect or not. */
static int regroup(struct psc_ring *r, const struct psc_roster *roster, const struct psc_reply *reply,
                   double deadline_s, struct ps_error *err)
{
    uint8_t wanted = r->wanted;
    psc_ring_disconnect(r);
    memcpy(r->survival->ids, roster->ids, roster->members * sizeof *roster->ids);
    r->members = roster->members;
    r->rank = (uint32_t)reply->rank;
    r->job = reply->job;
    r->err = err;
    if (r->members == 1)
        return PSC_OK;
    int rc = psc_ring_connect(r, r->survival->listen_fd, reply->next, deadline_s, err);
    return rc == PSC_OK && wanted != PSC_ALGORITHM_RING ? psc_ring_use(r, wanted, err) : rc;
}

static int attempt(struct psc_ring *r, uint64_t step, double deadline_s, struct psc_roster *roster,
                   struct psc_reply *reply, struct ps_error *err)
{
    struct party *p = calloc(1, sizeof *p);
    double now = ps_now_s();
    if (p == NULL)
        return ps_fail(err, PSC_ENOMEM, "no memory to form clique %s anew", r->name);
    p->r = r;
    p->s = r->survival;
    p->err = err;
    p->step = p->steps[p->s->id] = step;
    p->deadline_s = deadline_s;
    p->decide_s = now + decide_part * (deadline_s - now);
    p->leader_fd = -1;
    for (uint32_t i = 0; i < PSC_MAX_MEMBERS; i++)
        p->guest[i] = p->summon[i] = -1;
    psc_pending_peers_init(&p->pending, p->s->listen_fd, -1);
    learn_loss(p);
    int rc = gather(p, roster, reply);
    party_end(p);
    free(p);
    return rc;
}

int psc_ring_shrink(struct psc_ring *r, uint64_t step, uint32_t timeout_ms, struct psc_shrunk *out,
                    struct ps_error *err)
{
    struct psc_roster roster;
    struct psc_reply reply;
    double deadline_s = ps_now_s() + timeout_ms * 1e-3;
    int rc;
    if (r->survival == NULL)
        return ps_fail(err, PSC_EINVAL,
                       "psc_clique_shrink: clique %s was opened with on_loss end; allowed is shrink",
                       r->name);
    do {
        if ((rc = attempt(r, step, deadline_s, &roster, &reply, err)) != PSC_OK)
            return rc;
        rc = regroup(r, &roster, &reply, deadline_s, err);
        r->broken = rc != PSC_OK;
        if (rc != PSC_OK) /* now, so that the neighbours notice it */
            psc_ring_disconnect(r);
    } while (rc == PSC_ECLIQUE && ps_now_s() < deadline_s);
    if (rc == PSC_OK)
        *out = (struct psc_shrunk){.step = roster.step, .source = roster.source, .behind = roster.behind};
    return rc;
}
