/* Backup workers (Chen, Monga, Bengio, Jozefowicz 2016, "Revisiting distributed synchronous SGD", section 3):
 * the first p - b messages of p members make the round, where b is `backup`; the others are dropped. A round
 * has at least one message, so a job of b workers or fewer behaves like one of b + 1. */
#include "server/lane/partial_rounds.h"

static uint32_t needs(const struct ps_hyper *h, uint32_t p)
{
    return p > h->backup + 1 ? p - h->backup : 1;
}

const struct psd_admission psd_admission_backup = {.name = "backup",
                                                   .members = true,
                                                   .rounds = true,
                                                   .merges = true,
                                                   .arrive = psd_lane_partial_arrive,
                                                   .advance = psd_lane_partial_advance,
                                                   .needs = needs};
