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

static bool has_bit(const uint64_t *bits, uint32_t k)
{
    return (bits[k / 64] >> (k % 64) & 1) != 0;
}

void psc_moved_restore(struct psc *c, const struct psc_flight *f)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        for (uint32_t k = f->lanes[i].first; k < f->lanes[i].end; k++) {
            struct ps_range piece = ps_shard_piece(&ts->shard, i, f->cover, k),
                            r = ps_range_intersect(piece, f->scope);
            if (r.count > 0 && !ps_manifest_is_frozen(c->manifest, piece) &&
                has_bit(ts->progress[i].answered, k))
                copy_all(c, &f->t, (struct ps_range){r.begin - f->scope.begin, r.count}, true);
        }
}

/* Where nothing is kept the piece has landed as far as x goes: no float of it moves twice. The center may
 * lack it, as it lacks what was answered and is not in the checkpoint. */
static void take_cut(struct psc *c, struct psc_flight *f, uint32_t lane, uint32_t k, struct ps_range r)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (f->t.moved[0].kept != NULL) {
        copy_all(c, &f->t, r, true);
    } else if (f->t.send + r.begin == ts->links.cut[lane]) {
        ts->progress[lane].answered[k / 64] |= UINT64_C(1) << (k % 64);
        f->lanes[lane].n_left--;
        ts->begun = ts->lost_piece = true;
    }
}

/* With a device the lanes have moved the mirror, and not x. */
void psc_moved_settle(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_flight *f = &ts->flights[0]; /* in place it is alone */
    for (uint32_t i = 0; ts->in_place && c->memory.device == NULL && i < ts->shard.n_lanes; i++)
        for (uint32_t k = f->lanes[i].first; k < f->lanes[i].end; k++) {
            struct ps_range r = ps_shard_piece(&ts->shard, i, f->cover, k);
            if (has_bit(ts->progress[i].sent, k) && !has_bit(ts->progress[i].answered, k))
                take_cut(c, f, i, k, (struct ps_range){r.begin - f->scope.begin, r.count});
        }
}
