/* admissions.h: when an arriving exchange may be applied. One file and one row each. */
#ifndef PSD_ADMISSIONS_H
#define PSD_ADMISSIONS_H

#include <stdbool.h>

struct psd_lane;
struct psd_arrival;

struct psd_admission {
    const char *name; /* as in ps_methods */
    /* Each lane serves some of the clients over the whole center, instead of all of them over its slice. */
    bool whole_lanes;
    /* Takes the arrival over: applies it (psd_lane_apply), parks it or refuses it. Lane's thread. */
    void (*arrive)(struct psd_lane *lane, struct psd_arrival *a);
};

extern const struct psd_admission psd_admission_fcfs, psd_admission_hogwild;
/* Ends with NULL. */
extern const struct psd_admission *const psd_admissions[];
/* NULL: no such admission. */
const struct psd_admission *psd_admission_find(const char *name);

#endif
