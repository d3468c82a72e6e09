/* Replaces the center at a method change: the same values under another rule. */
#include "server/center/center.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether the state of the rule and the average are kept. */
static bool keeps_state(const struct psd_center *c, const struct psd_center *old)
{
    return c->rule == old->rule && c->averaging == old->averaging;
}

static int vectors_create(float **vectors, uint32_t n, const struct psd_center *c)
{
    for (uint32_t i = 0; i < n; i++)
        if ((vectors[i] = psd_vector_create(c->manifest->n_floats, c->own)) == NULL)
            return -ENOMEM;
    return 0;
}

/* Allocates what the new center cannot take over from the old one. */
static int make_room(struct psd_center *c, const struct psd_center *old)
{
    struct psd_snapshot *s = &c->snapshot;
    bool keeps = keeps_state(c, old);
    uint32_t n_state = keeps ? 0 : c->rule->n_state, n_seen = psd_center_sees(c);
    uint32_t n_z = !keeps && c->averaging->rate != NULL;

    s->state = calloc(PSD_MAX_STATE, sizeof *s->state);
    s->lane_clocks = calloc(c->cut.n_lanes, sizeof *s->lane_clocks);
    s->lane_moves = calloc(c->cut.n_lanes, sizeof *s->lane_moves);
    c->seen = calloc(n_seen + 1, sizeof *c->seen);
    if (s->state == NULL || s->lane_clocks == NULL || s->lane_moves == NULL || c->seen == NULL ||
        psd_center_count_fragments(c) < 0)
        return -ENOMEM;
    c->n_seen = n_seen;
    s->n_state = n_state;
    return vectors_create(c->state, n_state, c) < 0 || vectors_create(s->state, n_state, c) < 0 ||
                   vectors_create(c->seen, n_seen, c) < 0 || vectors_create(&c->z, n_z, c) < 0 ||
                   vectors_create(&s->average, n_z, c) < 0
               ? -ENOMEM
               : 0;
}

int psd_center_replace(const struct psd_config *cfg, const struct psd_admission *admission,
                       const struct psd_center *old, struct psd_center **out, struct ps_error *err)
{
    struct psd_map map = {old->cut.n_lanes, old->cut.chunk_floats, old->cut.n_parts};
    struct psd_center *c;
    int rc = psd_center_check_memory(cfg, old->own.count, psd_rule_find(cfg->rule), err);
    if (rc < 0 || (rc = psd_center_new(cfg, admission, old->manifest, &map, &c, err)) < 0)
        return rc;
    if ((rc = psd_center_check_fragments(&c->hyper, &c->shard, err)) < 0) {
        psd_center_abandon(c);
        return rc;
    }
    if (make_room(c, old) < 0) {
        psd_center_abandon(c);
        return ps_fail(err, -ENOMEM, "no memory for the vectors of method %s", cfg->method);
    }
    c->generation = old->generation + 1;
    memcpy(c->snapshot.method, cfg->method, sizeof c->snapshot.method);
    memcpy(c->snapshot.rule, cfg->rule, sizeof c->snapshot.rule);
    memcpy(c->snapshot.averaging, cfg->averaging, sizeof c->snapshot.averaging);
    c->snapshot.delay = psd_center_delay(c);
    *out = c;
    return 0;
}

static void move_vector(float **to, float **from)
{
    *to = *from;
    *from = NULL;
}

static void take_memory(struct psd_center *c, struct psd_center *old)
{
    for (uint32_t i = 0; i < c->rule->n_state; i++) {
        move_vector(&c->state[i], &old->state[i]);
        move_vector(&c->snapshot.state[i], &old->snapshot.state[i]);
    }
    move_vector(&c->z, &old->z);
    move_vector(&c->snapshot.average, &old->snapshot.average);
}

void psd_center_take_over(struct psd_center *c, struct psd_center *old, uint64_t version, uint64_t moves)
{
    struct psd_snapshot *s = &c->snapshot;
    bool keeps = keeps_state(c, old);

    move_vector(&c->x, &old->x);
    move_vector(&s->center, &old->snapshot.center);
    if (keeps)
        take_memory(c, old);
    c->starts_average = !keeps && c->z != NULL;
    c->starts_sum = keeps && psd_center_delay(c) != psd_center_delay(old);
    c->starts_seen = c->n_seen > 0 && c->rule->takes_seen;
    s->manifest = c->manifest;
    s->n_state = c->rule->n_state;
    s->has_average = c->z != NULL;
    s->map = (struct psd_map){c->cut.n_lanes, c->cut.chunk_floats, c->cut.n_parts};
    s->part = old->snapshot.part;
    s->range = c->own;
    c->version = version;
    c->moves = keeps ? moves : 0;
    old->manifest = NULL;
    psd_center_destroy(old);
}

void psd_center_abandon(struct psd_center *c)
{
    if (c != NULL)
        c->manifest = NULL; /* the old center owns it */
    psd_center_destroy(c);
}
