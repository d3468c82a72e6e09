/* The center's memory. Each lane touches its own slice of every vector, so that the loop never does, and no
 * exchange waits for more than a few pages. */
#include "server/lane/internal.h"

#include <string.h>
#include <sys/mman.h>

enum { PIECE_BYTES = 2 << 20, BEAT_FLOATS = 16 << 20 };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Vector i of all vectors of the center, including the snapshot's; NULL: it does not exist. False: there are
 * no more. */
static bool vector_at(const struct psd_center *c, uint32_t i, float **v)
{
    float *const single[] = {c->x, c->z, c->snapshot.center, c->snapshot.average};
    const uint32_t n_single = sizeof single / sizeof *single;
    *v = NULL;
    if (i < n_single)
        *v = single[i];
    else if (i < n_single + PSD_MAX_STATE)
        *v = c->state[i - n_single];
    else if (i < n_single + 2 * PSD_MAX_STATE)
        *v = c->snapshot.state != NULL ? c->snapshot.state[i - n_single - PSD_MAX_STATE] : NULL;
    else if (i < n_single + 2 * PSD_MAX_STATE + c->n_seen)
        *v = c->seen[i - n_single - 2 * PSD_MAX_STATE];
    else
        return false;
    return true;
}

void psd_lane_memory_begin(struct psd_lane *lane)
{
    lane->memory.vector = 0;
    lane->memory.at = 0;
    lane->memory.due = lane->center != NULL;
}

bool psd_lane_memory_go_on(struct psd_lane *lane)
{
    float *v;
    lane->memory.due = lane->memory.due && vector_at(lane->center, lane->memory.vector, &v);
    if (!lane->memory.due)
        return false;
    struct ps_range own = ps_shard_slice(&lane->center->cut, lane->index);
    uint64_t left_bytes = own.count * sizeof(float) - lane->memory.at;
    if (v == NULL || left_bytes == 0) {
        lane->memory.vector++;
        lane->memory.at = 0;
        return true;
    }
    uint64_t n_bytes = left_bytes < PIECE_BYTES ? left_bytes : PIECE_BYTES;
    uintptr_t from = (uintptr_t)(v + own.begin) + lane->memory.at, page = from & ~(uintptr_t)4095;
    /* Existing values are kept. If the system does not support this, the first exchanges touch the pages. */
    if (madvise((void *)page, n_bytes + (from - page), MADV_POPULATE_WRITE) != 0) {
        lane->memory.due = false;
        return false;
    }
    lane->memory.at += n_bytes;
    return true;
}

static void copy_x(struct psd_lane *lane, const struct psd_center *c, float *to, struct ps_range own)
{
    const float *x = c->x;
    for (uint64_t k = 0; k < own.count; k += BEAT_FLOATS) {
        uint64_t n = own.count - k < BEAT_FLOATS ? own.count - k : BEAT_FLOATS;
        lane->vec->copy(to + own.begin + k, x + own.begin + k, n);
        psd_count(&lane->stats.beats, 1);
    }
}

void psd_lane_memory_start(struct psd_lane *lane, const struct psd_center *c)
{
    struct ps_range own = ps_shard_slice(&c->cut, lane->index);
    if (c->starts_average)
        copy_x(lane, c, c->z, own);
    if (c->starts_sum)
        memset(c->state[c->rule->n_state - 1] + own.begin, 0, own.count * sizeof(float));
    for (uint32_t i = 0; c->starts_seen && i < c->n_seen; i++)
        copy_x(lane, c, c->seen[i], own);
    if (lane->whole && (c->starts_average || c->starts_seen))
        pthread_barrier_wait(&lane->shared->snapshot); /* each lane serves the whole center */
}
