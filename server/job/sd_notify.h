/* sd_notify.h: what psd tells the service manager that has started it, if one has: a datagram for each state,
 * as sd_notify(3) has it. The loop's thread. */
#ifndef PSD_JOB_SD_NOTIFY_H
#define PSD_JOB_SD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

struct psd_lane;

struct psd_notify {
    bool ready;        /* READY has been said */
    bool reloading;    /* RELOADING is said, READY not yet again */
    uint64_t every_ms; /* between two WATCHDOG=1; 0: nobody asks for them */
    uint64_t said_ms;
    bool asked;      /* the lanes have been woken since the last WATCHDOG=1, ... */
    uint64_t *beats; /* [n_lanes]: ... when these were their beats */
};

/* Reads WATCHDOG_USEC, WATCHDOG_PID. -ENOMEM. */
int psd_notify_init(struct psd_notify *n, uint32_t n_lanes, uint64_t now_ms);
void psd_notify_finish(struct psd_notify *n);

void psd_notify_ready(struct psd_notify *n);
void psd_notify_reloading(struct psd_notify *n); /* nothing before READY */
void psd_notify_stopping(void);

/* On every tick: at half of the time that the manager gives it wakes the lanes, and says WATCHDOG=1 when each
 * has come round its loop. One that does not, stuck or stopped, leaves it unsaid; so does a loop that
 * stands still. */
void psd_notify_watch(struct psd_notify *n, struct psd_lane *const *lanes, uint32_t n_lanes, uint64_t now_ms);

#endif
