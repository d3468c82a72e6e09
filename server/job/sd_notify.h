/* sd_notify.h: notifies the service manager that started psd, if any: one datagram for each state, as
 * sd_notify(3) specifies. The loop's thread. */
#ifndef PSD_JOB_SD_NOTIFY_H
#define PSD_JOB_SD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

struct psd_lane;

struct psd_notify {
    bool ready;        /* READY was sent */
    bool reloading;    /* RELOADING was sent, READY not yet again */
    uint64_t every_ms; /* between two WATCHDOG=1; 0: no watchdog */
    uint64_t said_ms;
    bool is_set;     /* this run has told the manager the interval */
    bool asked;      /* the lanes have been woken since the last WATCHDOG=1, */
    uint64_t *beats; /* [n_lanes]: with these counts of beats */
};

/* Reads WATCHDOG_USEC, WATCHDOG_PID. -ENOMEM. */
int psd_notify_init(struct psd_notify *n, uint32_t n_lanes, uint64_t now_ms);
void psd_notify_finish(struct psd_notify *n);

void psd_notify_ready(struct psd_notify *n);
void psd_notify_reloading(struct psd_notify *n); /* does nothing before READY */
void psd_notify_stopping(void);
/* This psd is about to restart within the process: until its lanes run again, it sends no WATCHDOG=1, however
 * long the writing of one checkpoint and the reading of another take. The watchdog's interval is ten times as
 * long meanwhile; the first WATCHDOG=1 afterwards makes it what it was. */
void psd_notify_restarting(void);

/* Call on every tick. After half of the watchdog's interval it wakes the lanes, and sends WATCHDOG=1 when
 * each of them has completed an iteration. A lane that is stuck or stopped prevents that, and so does a loop
 * that does not run. */
void psd_notify_watch(struct psd_notify *n, struct psd_lane *const *lanes, uint32_t n_lanes, uint64_t now_ms);

#endif
