/* Quorum: a round needs `quorum` messages, or one of every member if there are fewer members. It then waits
 * grace_ms for more, and consists of those that have arrived. With as many as there are members it equals
 * sync. */
#include "server/lane/partial_rounds.h"

static uint32_t needs(const struct ps_hyper *h, uint32_t p)
{
    return p < h->quorum ? p : h->quorum;
}

const struct psd_admission psd_admission_quorum = {.name = "quorum",
                                                   .members = true,
                                                   .rounds = true,
                                                   .merges = true,
                                                   .arrive = psd_lane_partial_arrive,
                                                   .advance = psd_lane_partial_advance,
                                                   .needs = needs,
                                                   .takes_more = true};
