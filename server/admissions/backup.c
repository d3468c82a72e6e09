/* Backup workers (Chen, Monga, Bengio, Jozefowicz 2016, "Revisiting distributed synchronous SGD", section 3):
 * of p members the first p - b messages make the round, b being `backup`; the others' are dropped. At least
 * one makes it, so that a job of b workers or fewer goes on as one of b + 1. */
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
