/* Sums over the members. The words that members add beside the vector are sent before it, so that they never
 * arrive after it. The vector is sent in buckets, each a collective of its own, from its end to its
 * beginning: gradients become final in that order. All members must make the same collectives in the same
 * order; so a bucket waits for those behind it. Every bucket begins at a stripe of the clique. So the member
 * whose value is added first, and with it the last bit of a sum, does not depend on the buckets.
 *
 * Frozen values are not sent where that is possible: of the vector and of each bucket the stripes at both
 * ends that are all frozen are left out. What is left begins and ends at stripes, too, and a bucket of which
 * nothing is left makes no collective. All members have the same manifest (psc_group_agree_on_model), so they
 * leave out the same.
 *
 * A bucket is checked and averaged as soon as it has arrived, while the next ones travel. */
#include <stdatomic.h>
#include <string.h>

#include "client/cliques/clique.h"
#include "client/internal.h"
#include "client/worker/worker.h"
#include "proto/clock.h"

static int fail(struct psc *c, int rc)
{
    return ps_fail(&c->error, rc, "%s", psc_clique_error(c->group.q));
}

/* One member's wish to stop ends the training where the others could not continue without that member. Else
 * all members must wish it. */
static float weight_of_stop(const struct psc_group *p, bool has_server)
{
    bool can_leave = p->losses.shrinks && (p->rank > 0 || !has_server);
    return can_leave ? 1 : (float)p->size;
}

/* Adds what the leader has heard from the server since the last sum. */
static void fill_words(struct psc *c, struct psc_sum *sum, size_t n_samples)
{
    struct psc_group *p = &c->group;
    float *words = sum->words;
    struct psc_shared *s = &c->session.shared;
    memset(words, 0, sizeof sum->words);
    words[PSC_WORD_SAMPLES] = (float)n_samples;
    words[PSC_WORD_STOP] = p->stop.is_there ? weight_of_stop(p, !c->local) : 0;
    if (p->rank > 0)
        return;
    pthread_mutex_lock(&s->lock);
    words[PSC_WORD_DRAIN] = s->draining;
    words[PSC_WORD_SAVE] = sum->says_save = s->save_version != p->told_version;
    p->told_version = s->save_version;
    pthread_mutex_unlock(&s->lock);
    words[PSC_WORD_FAILED] = p->lost;
}

struct ps_range psc_sum_part(const struct psc *c, struct ps_range r)
{
    uint64_t stripe = c->group.size > 1 ? psc_clique_stripe(c->group.q) : 1, end = r.begin + r.count;
    struct ps_range moves = ps_manifest_trim(c->manifest, r);
    if (moves.count == 0)
        return moves;
    uint64_t first = (moves.begin - r.begin) / stripe,
             last = (moves.begin + moves.count - 1 - r.begin) / stripe;
    uint64_t begin = r.begin + first * stripe, behind = r.begin + (last + 1) * stripe;
    return (struct ps_range){begin, (behind < end ? behind : end) - begin};
}

struct ps_range psc_sum_span(const struct psc *c)
{
    return psc_sum_part(c, ps_shard_whole(&c->shard));
}

int psc_sum_begin(struct psc *c, float *vector, size_t n_samples, uint64_t bucket_floats)
{
    struct psc_group *p = &c->group;
    struct psc_sum *s = &p->sums[p->sums_begun % PSC_MAX_SUMS];
    struct ps_range span = psc_sum_span(c);
    *s = (struct psc_sum){.vector = vector,
                          .first = span.begin,
                          .left = span.begin + span.count,
                          .bucket_floats = bucket_floats,
                          .unit = p->unit,
                          .clock = c->worker.clock};
    fill_words(c, s, n_samples);
    int rc = p->size == 1 ? PSC_OK : psc_allreduce_start(p->q, s->words, PSC_N_WORDS, NULL, &s->words_ticket);
    p->sums_begun += rc == PSC_OK;
    if (rc != PSC_OK && s->says_save) /* the other members have not received it */
        p->told_version = UINT64_MAX;
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

static int start_bucket(struct psc *c, struct psc_sum *s, struct ps_range part)
{
    struct psc_bucket *b = &s->buckets[s->n_buckets++];
    enum psc_collective_kind kind = psc_group_sums_to_leader(c) ? PSC_REDUCE : PSC_ALLREDUCE;
    b->part = part;
    return psc_group_sum_start(c, kind, s->vector + part.begin, part.count, &b->ticket);
}

int psc_sum_go_on(struct psc *c, uint64_t begin)
{
    struct psc_sum *s = psc_sum_newest(&c->group);
    int rc = PSC_OK;
    while (rc == PSC_OK && c->group.size > 1 && s->left > s->first) {
        uint64_t at = s->first + (s->left - s->first - 1) / s->bucket_floats * s->bucket_floats;
        struct ps_range part = psc_sum_part(c, (struct ps_range){at, s->left - at});
        if (part.count > 0 && part.begin < begin)
            break;
        s->left = at;
        if (part.count > 0)
            s->rc = rc = start_bucket(c, s, part);
    }
    return rc;
}

int psc_sum_start(struct psc *c, float *vector, size_t n_samples)
{
    int rc = psc_sum_begin(c, vector, n_samples, c->shard.n_floats);
    return rc == PSC_OK ? psc_sum_go_on(c, 0) : rc;
}

static int take_words(struct psc *c, const float *words)
{
    struct psc_group *p = &c->group;
    p->n_samples = (size_t)words[PSC_WORD_SAMPLES];
    psc_unit_take(p, words[PSC_WORD_SAMPLES]);
    p->stops = words[PSC_WORD_STOP] >= (float)p->size;
    p->drains = words[PSC_WORD_DRAIN] > 0 || p->stops;
    p->save_version += words[PSC_WORD_SAVE] > 0;
    if (!(words[PSC_WORD_FAILED] > 0))
        return PSC_OK;
    if (p->rank > 0)
        return ps_fail(&c->error, PSC_EGONE, "rank 0 of the clique has lost the server");
    return ps_fail(&c->error, p->published.rc, "%s", p->published.error.text);
}

static int wait_for(struct psc *c, uint64_t ticket)
{
    double begin = ps_now_s();
    int rc = psc_clique_wait(c->group.q, ticket);
    c->worker.exchange_s += ps_now_s() - begin;
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

/* What is done to a part of the sum; in blocks that stay in the cache between the two passes. */
struct finish {
    struct psc *c;
    float *at;
    float scale;        /* 1: none */
    _Atomic size_t bad; /* place of the first value that is not finite; SIZE_MAX: there is none */
};

static void keep_first(_Atomic size_t *first, size_t at)
{
    size_t known = atomic_load(first);
    while (at < known && !atomic_compare_exchange_weak(first, &known, at))
        ;
}

static void finish_piece(void *arg, uint64_t begin, uint64_t count)
{
    enum { BLOCK = 1 << 14 };
    struct finish *f = arg;
    for (uint64_t end = begin + count, n; begin < end; begin += n) {
        n = end - begin < BLOCK ? end - begin : BLOCK;
        size_t bad = f->c->vec->first_nonfinite(f->at + begin, n);
        if (bad < n)
            keep_first(&f->bad, begin + bad);
        if (f->scale != 1)
            f->c->vec->scale(f->at + begin, f->scale, n);
    }
}

/* The first value that is not finite, in *bad; SIZE_MAX: there is none. On a device the search of all parts
 * ends with land_buckets. */
static void finish_part(struct psc *c, struct psc_sum *s, struct ps_range r, size_t *bad)
{
    bool scales = s->averages && c->group.size > 1;
    struct finish f = {c, s->vector + r.begin, scales ? 1 / (float)c->group.n_samples / s->unit : 1,
                       SIZE_MAX};
    if (c->memory.device != NULL) {
        c->memory.kind->search(c->work.queue, f.at, r.count, r.begin);
        if (scales)
            psc_scale(&c->work, f.at, f.scale, r.count);
        return;
    }
    psc_team_run(c->team, r.count, finish_piece, &f);
    if (f.bad != SIZE_MAX)
        *bad = r.begin + f.bad;
}

static int end_search(struct psc *c, size_t *bad)
{
    uint64_t at = UINT64_MAX;
    if (c->memory.device == NULL)
        return PSC_OK;
    int rc = psc_device_result(c->memory.kind->search_end(c->work.queue, &at, &c->error));
    *bad = at == UINT64_MAX ? SIZE_MAX : (size_t)at;
    return rc;
}

/* All buckets are waited for, also after a value that is not finite. */
static int land_buckets(struct psc *c, struct psc_sum *s, size_t *bad)
{
    bool takes = c->group.rank == 0 || !psc_group_sums_to_leader(c);
    *bad = SIZE_MAX;
    if (c->memory.device != NULL)
        c->memory.kind->search_begin(c->work.queue);
    if (c->group.size == 1)
        finish_part(c, s, ps_shard_whole(&c->shard), bad);
    for (size_t k = 0; k < s->n_buckets; k++) {
        int rc = wait_for(c, s->buckets[k].ticket);
        if (rc != PSC_OK)
            return rc;
        if (takes)
            finish_part(c, s, s->buckets[k].part, bad);
    }
    return takes ? end_search(c, bad) : PSC_OK;
}

int psc_sum_land(struct psc *c)
{
    struct psc_group *p = &c->group;
    struct psc_sum *s = &p->sums[p->sums_landed++ % PSC_MAX_SUMS];
    size_t bad = SIZE_MAX;
    int rc = p->size > 1 ? wait_for(c, s->words_ticket) : PSC_OK;
    int told = rc == PSC_OK ? take_words(c, s->words) : rc;
    if (rc == PSC_OK)
        rc = land_buckets(c, s, &bad);
    if (rc == PSC_OK && s->rc != PSC_OK) /* a part was not started */
        rc = fail(c, s->rc);
    s->rc = rc;
    if (rc != PSC_OK || told != PSC_OK || bad == SIZE_MAX)
        return rc != PSC_OK ? rc : told;
    return ps_fail(&c->error, PSC_EVALUE, "the members' sum is not finite, in tensor '%s': nothing has moved",
                   ps_manifest_tensor(c->manifest, bad)->name);
}

int psc_sums_check(struct psc *c)
{
    const struct psc_group *p = &c->group;
    for (uint64_t k = p->sums_dropped; k < p->sums_landed; k++)
        if (p->sums[k % PSC_MAX_SUMS].rc != PSC_OK)
            return ps_fail(&c->error, p->sums[k % PSC_MAX_SUMS].rc, "a sum over the members has failed: %s",
                           psc_clique_error(p->q));
    return PSC_OK;
}

/* Collectives end in the order in which they were started. */
void psc_sum_await_newest(struct psc *c)
{
    const struct psc_sum *s = psc_sum_newest(&c->group);
    psc_clique_wait(c->group.q, s->n_buckets > 0 ? s->buckets[s->n_buckets - 1].ticket : s->words_ticket);
}

int psc_sum_finish(struct psc *c)
{
    int rc = psc_sum_land(c);
    psc_sum_drop(&c->group);
    return rc;
}
