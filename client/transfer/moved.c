/* Landing once. When psd comes back from a checkpoint that lacks a part of an exchange, members of a round
 * send the exchange again whole, and every chunk is answered once more. Rules whose answer replaces x take
 * the second answer as they took the first. Rules that move x towards the center would move it twice, and
 * what they send again would be the moved x: what an answer moves is kept until the exchange has ended. */
#include "client/internal.h"
#include "client/transfer/internal.h"

static void copy_all(struct psc *c, const struct psc_transfer *t, struct ps_range r, bool back)
{
    for (int i = 0; i < PSC_MOST_MOVED; i++) {
        const struct psc_moved *m = &t->moved[i];
        if (m->kept == NULL)
            continue;
        float *to = (back ? m->vector : m->kept) + r.begin;
        psc_copy(&c->transfer_state.work, to, (back ? m->kept : m->vector) + r.begin, r.count);
    }
}

void psc_moved_keep(struct psc *c, const struct psc_transfer *t, struct ps_range r)
{
    copy_all(c, t, r, false);
}

/* In place a lane may have moved a piece whose answer is lost. Such pieces are sent once, and are kept
 * before. */
static bool was_moved(const struct psc *c, const struct psc_flight *f, uint32_t lane, uint32_t k)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    bool answered = (ts->progress[lane].answered[k / 64] >> (k % 64) & 1) != 0;
    return answered || (ts->in_place && c->memory.device == NULL && k < f->lanes[lane].next);
}

void psc_moved_restore(struct psc *c, const struct psc_flight *f)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        for (uint32_t k = f->lanes[i].first; k < f->lanes[i].end; k++) {
            struct ps_range piece = ps_shard_piece(&ts->shard, i, f->cover, k),
                            r = ps_range_intersect(piece, f->scope);
            if (r.count > 0 && !ps_manifest_is_frozen(c->manifest, piece) && was_moved(c, f, i, k))
                copy_all(c, &f->t, (struct ps_range){r.begin - f->scope.begin, r.count}, true);
        }
}
