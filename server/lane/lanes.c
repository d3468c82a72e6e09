#include "server/lane/lanes.h"

void psd_tell_lane(struct psd_lanes *lanes, const struct psd_lane *lane, const struct psd_lane_message *msg)
{
    if (lane->in != NULL)
        psd_queue_push(lane->in, msg);
    else
        lanes->command_remote(lanes->psd, lane, msg);
}

void psd_tell_lanes(struct psd_lanes *lanes, const struct psd_lane_message *msg)
{
    for (uint32_t i = 0; i < lanes->n_own; i++)
        psd_queue_push(lanes->list[i]->in, msg);
    psd_tell_other_lanes(lanes, msg);
}

void psd_tell_other_lanes(struct psd_lanes *lanes, const struct psd_lane_message *msg)
{
    if (lanes->command_remote != NULL)
        lanes->command_remote(lanes->psd, NULL, msg);
}
