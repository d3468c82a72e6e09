/* Rounds of keys. In a round a member sends one message of the whole vector, or one of each tensor that
 * moves, in the manifest's order. A chunk may hold parts of several tensors. Because of the order, the
 * position that the chunk's round has reached says which of them is next. */
#include "server/lane/rounds.h"

#include <stdio.h>

/* The first float from `at` on that moves; `end`: none before it does. */
static uint64_t next_moving(const struct ps_manifest *m, uint64_t at, uint64_t end)
{
    while (at < end) {
        const struct ps_segment *s = ps_manifest_segment(m, at);
        if (s->role != PS_ROLE_FROZEN)
            return at;
        at = s->range.begin + s->range.count;
    }
    return end;
}

static struct ps_range chunk_of(const struct psd_lane *lane, uint32_t chunk)
{
    return ps_shard_chunk(&lane->center->shard, lane->row, chunk);
}

static bool is_of_key(const struct psd_arrival *a)
{
    return psd_key_of(&a->frame) != PSD_WHOLE_VECTOR;
}

/* Where the next piece of a round of keys begins. */
static uint64_t position(const struct psd_lane *lane, uint32_t chunk)
{
    struct ps_range r = chunk_of(lane, chunk);
    uint64_t at = lane->rounds->at[chunk];
    return at != 0 ? at : next_moving(lane->center->manifest, r.begin, r.begin + r.count);
}

static const char *name_of(const struct psd_lane *lane, uint64_t at)
{
    return ps_manifest_tensor(lane->center->manifest, at)->name;
}

static void refuse(struct psd_lane *lane, struct psd_staged *s, const char *others)
{
    struct psd_arrival *a = &s->arrival;
    if (is_of_key(a))
        psd_lane_refuse(lane, a, PS__CODE__RANGE,
                        "client %u sends tensor '%s' alone; in this round %s: all members send whole "
                        "vectors, or each key once in the manifest's order",
                        a->frame.client, name_of(lane, a->frame.begin), others);
    else
        psd_lane_refuse(lane, a, PS__CODE__RANGE,
                        "client %u sends the whole vector; in this round %s: all members send whole vectors, "
                        "or each key once in the manifest's order",
                        a->frame.client, others);
    psd_rounds_clear(lane, s);
}

/* Whether the message is what the chunk's round needs next. */
static bool is_next(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return is_of_key(a) ? a->frame.begin == position(lane, a->chunk) : lane->rounds->at[a->chunk] == 0;
}

static void describe(const struct psd_lane *lane, uint32_t client, uint32_t key, char *text, size_t size)
{
    if (key == PSD_WHOLE_VECTOR)
        snprintf(text, size, "client %u sends the whole vector", client);
    else
        snprintf(text, size, "client %u sends tensor '%s'", client,
                 lane->center->manifest->tensors[key].name);
}

struct psd_staged *psd_rounds_due(struct psd_lane *lane, uint32_t client, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    struct psd_staged *s = psd_rounds_find(lane, client, chunk);
    struct psd_round_key *first = &r->keys[chunk];
    char others[224];
    if (s == NULL)
        return NULL;
    if (!is_next(lane, &s->arrival)) {
        snprintf(others, sizeof others, "tensor '%s' is next", name_of(lane, position(lane, chunk)));
        refuse(lane, s, others);
        return NULL;
    }
    if (!first->known || first->client == client) {
        *first = (struct psd_round_key){true, client, psd_key_of(&s->arrival.frame), psd_end_of(&s->arrival)};
    } else if (first->key != psd_key_of(&s->arrival.frame)) {
        describe(lane, first->client, first->key, others, sizeof others);
        refuse(lane, s, others);
        return NULL;
    }
    return s;
}

/* Whether nothing moves in the chunk from `end` on. */
static bool closes(const struct psd_lane *lane, uint32_t chunk, uint64_t end)
{
    struct ps_range r = chunk_of(lane, chunk);
    return next_moving(lane->center->manifest, end, r.begin + r.count) == r.begin + r.count;
}

void psd_rounds_pass(struct psd_lane *lane, uint32_t chunk, uint64_t end)
{
    struct psd_rounds *r = lane->rounds;
    struct ps_range of = chunk_of(lane, chunk);
    r->keys[chunk].known = false;
    if (closes(lane, chunk, end)) {
        psd_rounds_finish(lane, chunk);
        return;
    }
    r->turn[chunk] = 0;
    r->at[chunk] = next_moving(lane->center->manifest, end, of.begin + of.count);
}

uint32_t psd_rounds_last_key(const struct ps_manifest *m, struct ps_range of)
{
    uint32_t last = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].role != PS_ROLE_FROZEN &&
            ps_range_intersect(ps_tensor_range(&m->tensors[i]), of).count > 0)
            last = (uint32_t)i;
    return last;
}
