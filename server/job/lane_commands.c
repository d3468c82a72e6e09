/* What the loop tells lanes: through a queue to those of this psd, by Orders to those of other servers. */
#include "server/psd.h"

#include <string.h>

struct psd_lane_message psd_lane_message_admit(const struct psd_session *s, enum psd_phase phase,
                                               bool keep_replay)
{
    struct psd_lane_message msg = {.kind = PSD_COMMAND_ADMIT,
                                   .client = s->client,
                                   .incarnation = s->incarnation,
                                   .a = phase,
                                   .b = keep_replay,
                                   .identity = s->identity_id,
                                   .attaches = s->may_attach,
                                   .p = (char *)(uintptr_t)s->identity};
    memcpy(msg.pass, s->pass, sizeof msg.pass);
    return msg;
}

void psd_tell_lane(struct psd *d, const struct psd_lane *lane, const struct psd_lane_message *msg)
{
    if (lane->in != NULL)
        psd_queue_push(lane->in, msg);
    else
        d->hooks.command_remote(d, lane, msg);
}

void psd_tell_lanes(struct psd *d, const struct psd_lane_message *msg)
{
    for (uint32_t i = 0; i < d->n_own; i++)
        psd_queue_push(d->lanes[i]->in, msg);
    if (psd_has_cluster(d))
        d->hooks.command_remote(d, NULL, msg);
}
