/* admission.h: when an arriving exchange may be applied. The rows stand in server/admissions. */
#ifndef PSD_LANE_ADMISSION_H
#define PSD_LANE_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

struct psd_lane;
struct psd_arrival;
struct ps_hyper;

struct psd_admission {
    const char *name; /* as in ps_methods */
    /* Each lane serves some of the clients over the whole center, instead of all of them over its slice. */
    bool whole_lanes;
    /* Who takes part is decided by the loop; what arrives is staged (server/lane/rounds.h). */
    bool members;
    bool rounds; /* each member takes part once a round */
    bool merges; /* a round is one update of the center, and one version */
    /* Takes the arrival over: applies it (psd_lane_apply), parks it or refuses it. Lane's thread. */
    void (*arrive)(struct psd_lane *lane, struct psd_arrival *a);
    /* Of members: does the next thing that what is staged for the chunk allows. Whether there may be more. */
    bool (*advance)(struct psd_lane *lane, uint32_t chunk);
    /* Members without rounds: the clock of the slowest here, which who joins starts with. */
    uint64_t (*slowest)(const struct psd_lane *lane);
    /* Of cuts, rounds that are not of every member; else NULL. How many messages, of as many live workers,
     * let the loop (server/job/partial_rounds.c) close a round. Loop's thread. */
    uint32_t (*needs)(const struct ps_hyper *h, uint32_t p);
    bool takes_more; /* a cut waits grace_ms, and takes what has come by then */
};

#endif
