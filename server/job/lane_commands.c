/* What the loop tells lanes: through a ring to those of this psd, by Orders to those of other servers. */
#include "server/psd.h"

#include <string.h>

struct psd_note psd_note_admit(const struct psd_session *s, enum psd_phase phase, bool keep_replay)
{
    struct psd_note note = {.kind = PSD_NOTE_ADMIT,
                            .client = s->client,
                            .incarnation = s->incarnation,
                            .a = phase,
                            .b = keep_replay,
                            .identity = s->identity_id,
                            .attaches = s->may_attach,
                            .p = (char *)(uintptr_t)s->identity};
    memcpy(note.pass, s->pass, sizeof note.pass);
    return note;
}

void psd_tell_lane(struct psd *d, const struct psd_lane *lane, const struct psd_note *note)
{
    if (lane->in != NULL)
        psd_ring_push(lane->in, note);
    else
        d->hooks.command_remote(d, lane, note);
}

void psd_tell_lanes(struct psd *d, const struct psd_note *note)
{
    for (uint32_t i = 0; i < d->n_own; i++)
        psd_ring_push(d->lanes[i]->in, note);
    if (psd_has_team(d))
        d->hooks.command_remote(d, NULL, note);
}
