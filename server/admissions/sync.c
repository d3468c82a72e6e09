/* Sync: a round has one message of every member, and is one update. */
#include "server/lane/rounds.h"

/* Whether all messages have arrived; they are then in rounds->gathered. Looks at every member's, so that one
 * that does not fit the round is refused at once. */
static bool gather(struct psd_lane *lane, const struct psd_members *members, uint32_t chunk)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < members->n; i++) {
        struct psd_staged *s = psd_rounds_due(lane, members->ranks[i], chunk);
        if (s != NULL)
            lane->rounds->gathered[n++] = &s->arrival;
    }
    return n == members->n;
}

static bool advance(struct psd_lane *lane, uint32_t chunk)
{
    const struct psd_members *members = psd_rounds_members(lane, chunk);
    if (!gather(lane, members, chunk))
        return false;
    psd_merge_round(lane, chunk, members->n);
    return true;
}

const struct psd_admission psd_admission_sync = {.name = "sync",
                                                 .members = true,
                                                 .rounds = true,
                                                 .merges = true,
                                                 .arrive = psd_rounds_arrive,
                                                 .advance = advance};
