/* Partial rounds (admissions backup and quorum): decides which exchanges make a round, from the lanes' events
 * about exchanges that have begun. The lanes' part is server/lane/partial_rounds.c.
 *
 * An exchange becomes a candidate when it has begun in every lane that moves, and is based on a center with
 * all rounds before the open one; one based on an older center is late. A round is closed when there are
 * enough candidates (psd_admission.needs): its set is published, the remaining candidates are late, and the
 * next round is open. That one is not closed before every lane has completed the published one, so that a
 * lane has only one set at a time.
 *
 * A member of the published set that stops in the middle of its exchange is removed from the chunks that are
 * not complete (LATE), if others wait for it and neither a chunk nor a heartbeat of it has arrived for
 * PATIENCE looks, or no chunk for silence_s. The last remaining member is never removed: limits.silence_s
 * ends its session if it is at fault. Looks are counted instead of time, so that a pause of psd itself
 * removes no member.
 *
 * A BEGUN is settled lane by lane: a lane reports a client's next exchange only after CLOSE_ROUND or LATE has
 * settled the previous one. So for each client a queue holds at most one BEGUN, and at most two of
 * CLOSE_ROUND and LATE.
 *
 * Runs on the loop. */
#include "server/job/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

enum { LOOK_MS = 100, PATIENCE = 20 };
_Static_assert(PSD_MAX_LANES <= 64, "psd_partial_client.noted has a bit for each lane");

/* The state of a client's exchange. */
struct psd_partial_client {
    uint64_t seq;   /* the newest that has begun in some lane; 0: none */
    uint64_t seen;  /* the fewest rounds in the values it is based on */
    uint64_t noted; /* lanes where it has begun and is not settled */
    uint32_t n_lanes,
        n_landed; /* number of lanes where it has begun; where it had landed before psd was restarted */
    bool candidate;
    bool in_round;
    uint64_t dropped; /* late exchanges of this session */
    /* At the last look at the current round. */
    uint64_t arrived, heard_ms;
    uint32_t still_looks, silent_looks; /* looks without a chunk; looks without any message */
};

static bool has_partial_rounds(const struct psd_job *job)
{
    return job->center != NULL && job->center->admission->needs != NULL;
}

static uint64_t open_round(const struct psd_job *job)
{
    return job->center->version + job->partial_rounds.n_closed;
}

static void declare_late(struct psd_job *job, uint32_t client, uint64_t seq, uint64_t lanes)
{
    for (uint32_t i = 0; i < job->lanes->n; i++)
        if (lanes & UINT64_C(1) << i)
            psd_tell_lane(job->lanes, job->lanes->list[i],
                          &(struct psd_lane_message){
                              .kind = PSD_COMMAND_LATE, .client = client, .a = seq, .b = open_round(job)});
}

static void count_dropped(struct psd_job *job, uint32_t client)
{
    job->partial_rounds.clients[client].dropped++;
    job->partial_rounds.dropped++;
}

static void drop(struct psd_job *job, uint32_t client)
{
    struct psd_partial_client *c = &job->partial_rounds.clients[client];
    count_dropped(job, client);
    declare_late(job, client, c->seq, c->noted);
    c->noted = 0;
}

static void remove_candidate(struct psd_partial_rounds *k, uint32_t client)
{
    if (!k->clients[client].candidate)
        return;
    k->clients[client].candidate = false;
    for (uint32_t i = 0; i < k->n; i++)
        if (k->candidates[i] == client) {
            k->n--;
            memmove(k->candidates + i, k->candidates + i + 1, (k->n - i) * sizeof *k->candidates);
            return;
        }
}

static int by_rank(const void *a, const void *b)
{
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static void on_timer(struct psd_timer *timer);

/* The first n candidates make the open round. */
static void close_round(struct psd_job *job, uint32_t n)
{
    struct psd_partial_rounds *k = &job->partial_rounds;
    struct psd_members *closed = &k->closed;
    closed->from = open_round(job);
    closed->n = n;
    memcpy(closed->ranks, k->candidates, n * sizeof *closed->ranks);
    qsort(closed->ranks, n, sizeof *closed->ranks, by_rank);
    for (uint32_t i = 0; i < n; i++) {
        struct psd_partial_client *c = &k->clients[closed->ranks[i]];
        closed->seqs[i] = c->seq;
        c->noted = 0;
        c->candidate = false;
        c->in_round = true;
        c->still_looks = c->silent_looks = 0;
    }
    k->n_closed++;
    k->lanes_under_way = job->lanes->n < 64 ? (UINT64_C(1) << job->lanes->n) - 1 : UINT64_MAX;
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_CLOSE_ROUND, .p = closed});
    for (uint32_t i = n; i < k->n; i++) {
        k->clients[k->candidates[i]].candidate = false;
        drop(job, k->candidates[i]);
    }
    k->n = 0;
    k->grace_is_over = false;
    psd_timer_start(&k->timer, on_timer, LOOK_MS, LOOK_MS);
}

/* Closes the open round if the conditions are met. Not when lanes have been told to release the center: they
 * would take the set for one of the next method. */
static void consider(struct psd_job *job)
{
    struct psd_partial_rounds *k = &job->partial_rounds;
    const struct psd_admission *admission = job->center->admission;
    const struct ps_hyper *h = &job->center->hyper;
    uint32_t p = 0;
    if (!job->membership.started || k->lanes_under_way != 0 ||
        job->method_change.phase == PSD_METHOD_CHANGE_EMPTYING)
        return;
    for (uint32_t i = 0; i < job->membership.members.n; i++)
        p += job->sessions->slots[job->membership.members.ranks[i]].state == PSD_SESSION_ACTIVE;
    uint32_t needs = admission->needs(h, p);
    if (k->n == 0 || k->n < needs) {
        psd_timer_stop(&k->timer);
        k->grace_is_over = false;
    } else if (!admission->takes_more) {
        close_round(job, needs);
    } else if (k->n >= p || h->grace_ms == 0 || k->grace_is_over) {
        close_round(job, k->n);
    } else if (!psd_timer_is_active(&k->timer)) {
        psd_timer_start(&k->timer, on_timer, h->grace_ms, 0);
    }
}

/* Chunks of the client that have arrived in any lane. */
static uint64_t arrived(const struct psd_job *job, uint32_t client)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < job->lanes->n; i++)
        n += atomic_load_explicit(&job->lanes->list[i]->clients[client].arrived, memory_order_relaxed);
    return n;
}

/* Clients send the chunks of a lane in order: if none of the client's chunks waits in a lane that is not
 * through, the lane may be waiting for it. */
static bool delays_others(const struct psd_job *job, uint32_t client, uint64_t seq)
{
    for (uint32_t i = 0; i < job->lanes->n; i++) {
        const struct psd_lane_client *c = &job->lanes->list[i]->clients[client];
        if ((job->partial_rounds.lanes_under_way & UINT64_C(1) << i) != 0 &&
            (atomic_load_explicit(&c->waiting_chunks, memory_order_relaxed) == 0 ||
             atomic_load_explicit(&c->waiting_seq, memory_order_relaxed) != seq))
            return true;
    }
    return false;
}

/* Whether the member has stopped. */
static bool has_stopped(struct psd_job *job, uint32_t client, uint64_t seq)
{
    struct psd_partial_client *c = &job->partial_rounds.clients[client];
    uint64_t chunks = arrived(job, client), heard_ms = job->sessions->slots[client].last_heard_ms;
    bool moved = chunks != c->arrived || !delays_others(job, client, seq);
    bool heard = heard_ms != c->heard_ms;
    c->arrived = chunks;
    c->heard_ms = heard_ms;
    c->still_looks = moved ? 0 : c->still_looks + 1;
    c->silent_looks = moved || heard ? 0 : c->silent_looks + 1;
    return c->silent_looks > PATIENCE || c->still_looks > job->cfg->limits.silence_s * (1000 / LOOK_MS);
}

/* Removes members that have stopped from the current round. */
static void remove_stopped(struct psd_job *job)
{
    struct psd_partial_rounds *k = &job->partial_rounds;
    uint32_t left = 0;
    for (uint32_t i = 0; i < k->closed.n; i++)
        left += k->clients[k->closed.ranks[i]].in_round;
    for (uint32_t i = 0; i < k->closed.n; i++) {
        uint32_t client = k->closed.ranks[i];
        struct psd_partial_client *c = &k->clients[client];
        if (!c->in_round || !has_stopped(job, client, k->closed.seqs[i]) || left == 1)
            continue;
        ps_log(PS_LOG_WARN, "round.left",
               "rank %u has stopped during round %" PRIu64 ", which continues without it", client,
               k->closed.from);
        c->in_round = false;
        left--;
        count_dropped(job, client);
        /* Nothing more of it will land, so a method change does not wait for it. */
        psd_method_change_give_up(
            job, client, psd_exchange_name(job->sessions->slots[client].incarnation, k->closed.seqs[i]));
        declare_late(job, client, k->closed.seqs[i], k->lanes_under_way);
    }
}

static void on_timer(struct psd_timer *timer)
{
    struct psd_job *job = timer->data;
    if (!has_partial_rounds(job)) {
        psd_timer_stop(timer);
    } else if (job->partial_rounds.lanes_under_way != 0) {
        remove_stopped(job);
    } else {
        job->partial_rounds.grace_is_over = true;
        consider(job);
    }
}

int psd_partial_rounds_init(struct psd_job *job)
{
    struct psd_partial_rounds *k = &job->partial_rounds;
    uint32_t n = job->sessions->n_slots;
    k->clients = calloc(n, sizeof *k->clients);
    k->candidates = calloc(n, sizeof *k->candidates);
    k->closed.ranks = calloc(n, sizeof *k->closed.ranks);
    k->closed.seqs = calloc(n, sizeof *k->closed.seqs);
    psd_timer_init(job->loop, &k->timer, job);
    return k->clients && k->candidates && k->closed.ranks && k->closed.seqs ? 0 : -ENOMEM;
}

void psd_partial_rounds_finish(struct psd_job *job)
{
    free(job->partial_rounds.clients);
    free(job->partial_rounds.candidates);
    free(job->partial_rounds.closed.ranks);
    free(job->partial_rounds.closed.seqs);
}

void psd_partial_rounds_reset(struct psd_job *job)
{
    struct psd_partial_rounds *k = &job->partial_rounds;
    psd_timer_stop(&k->timer);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++)
        k->clients[i] = (struct psd_partial_client){.dropped = k->clients[i].dropped};
    k->n = k->closed.n = 0;
    k->n_closed = k->lanes_under_way = 0;
    k->grace_is_over = false;
}

/* The exchange has begun in every lane: it is a candidate for the open round, or late, or nothing more of it
 * will arrive. */
static void classify_late(struct psd_job *job, uint32_t client)
{
    struct psd_partial_rounds *k = &job->partial_rounds;
    struct psd_partial_client *c = &k->clients[client];
    if (c->n_landed == c->n_lanes) {
        declare_late(job, client, c->seq, c->noted);
        c->noted = 0;
        return;
    }
    if (c->seen < open_round(job)) {
        drop(job, client);
        return;
    }
    c->candidate = true;
    k->candidates[k->n++] = client;
    consider(job);
}

void psd_partial_rounds_begun(struct psd_job *job, const struct psd_lane *lane,
                              const struct psd_lane_message *msg)
{
    struct psd_session *s = psd_sessions_find(job->sessions, msg->client, msg->incarnation);
    if (!has_partial_rounds(job) || s == NULL)
        return; /* an exchange also counts if its worker's offer is complete here but not in other lanes */
    struct psd_partial_client *c = &job->partial_rounds.clients[msg->client];
    uint64_t bit = UINT64_C(1) << lane->index;
    if (msg->a < c->seq) { /* abandoned: a later one has begun in another lane */
        declare_late(job, msg->client, msg->a, bit);
        return;
    }
    if (msg->a > c->seq) {
        remove_candidate(&job->partial_rounds, msg->client);
        declare_late(job, msg->client, c->seq, c->noted);
        c->seq = msg->a;
        c->seen = UINT64_MAX;
        c->noted = 0;
        c->n_lanes = c->n_landed = 0;
    }
    c->noted |= bit;
    c->seen = msg->b < c->seen ? msg->b : c->seen;
    c->n_landed += msg->kind == PSD_LANE_LANDED;
    if (++c->n_lanes == job->center->lanes_moving)
        classify_late(job, msg->client);
}

void psd_partial_rounds_over(struct psd_job *job, const struct psd_lane *lane, uint64_t round)
{
    struct psd_partial_rounds *k = &job->partial_rounds;
    if (!has_partial_rounds(job) || k->lanes_under_way == 0 || round != k->closed.from)
        return;
    k->lanes_under_way &= ~(UINT64_C(1) << lane->index);
    if (k->lanes_under_way != 0)
        return;
    psd_timer_stop(&k->timer);
    for (uint32_t i = 0; i < k->closed.n; i++)
        k->clients[k->closed.ranks[i]].in_round = false;
    consider(job);
}

void psd_partial_rounds_forget(struct psd_job *job, uint32_t client)
{
    remove_candidate(&job->partial_rounds, client);
    job->partial_rounds.clients[client] = (struct psd_partial_client){0};
    if (has_partial_rounds(job))
        consider(job);
}

void psd_partial_rounds_consider(struct psd_job *job)
{
    if (has_partial_rounds(job))
        consider(job);
}

uint64_t psd_partial_rounds_dropped(const struct psd_job *job, uint32_t client)
{
    return job->partial_rounds.clients[client].dropped;
}
