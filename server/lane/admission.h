/* admission.h: when an arriving exchange may be applied. The rows are in server/admissions. */
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
    /* The loop decides the set of members; messages are staged on arrival (server/lane/rounds.h). */
    bool members;
    bool rounds; /* each member takes part once a round */
    bool merges; /* a round is one update of the center and increments the version once */
    /* Takes ownership of the arrival: applies it (psd_lane_apply), stages it or refuses it. Lane's thread. */
    void (*arrive)(struct psd_lane *lane, struct psd_arrival *a);
    /* With members: takes one step that the chunk's staged messages allow. Returns whether another may
     * follow. */
    bool (*advance)(struct psd_lane *lane, uint32_t chunk);
    /* For members without rounds: the clock of the slowest member, from which a new member starts. */
    uint64_t (*slowest)(const struct psd_lane *lane);
    /* For partial rounds, which do not need every member; else NULL. How many messages of the p live workers
     * let the loop (server/job/partial_rounds.c) close a round. Loop's thread. */
    uint32_t (*needs)(const struct ps_hyper *h, uint32_t p);
    bool takes_more; /* a partial round waits grace_ms and includes what has arrived by then */
};

#endif
