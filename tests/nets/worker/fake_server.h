/* fake_server.h: libpsclient's functions without a server: plain SGD, and whatever misfortune a test wants.
 */
#ifndef TEST_FAKE_SERVER_H
#define TEST_FAKE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/psclient.h"

struct fake_plan {
    int open, begin; /* what psc_open, psc_begin return */
    int step, pull;  /* what psc_step, psc_pull return from call number step_from, pull_from on; PSC_DRAINED
                        with  an error: the step was not taken */
    bool diverged;   /* what is pulled is NaN */
    uint64_t step_from, pull_from;
    uint64_t raise_at;      /* psc_step number raise_at sends the process SIGTERM; 0: never */
    uint64_t raise_at_pull; /* likewise psc_pull or psc_point; it returns when the process has taken it */
    bool moves;             /* others train: each psc_pull finds another center */
    uint64_t ask_at;        /* after psc_step number ask_at psd asks to save; 0: never */
    const char *taken;      /* a file that another process replaces after the step after ask_at; NULL: none */
    int load;               /* what psc_load returns */
    const char *error;      /* what psc_error says; NULL: "" */
    float rate;             /* of plain SGD; NaN makes every vector not finite */
    const char *averaging;  /* what psc_info says; NULL: "none" */
    uint32_t workers;       /* what psc_info says; 0: 1 */
    uint64_t join_at;       /* from psc_step number join_at on there are ... */
    uint32_t joined;        /* ... so many; 0: never */
    uint32_t early;         /* what psc_info says */
};

struct fake_seen {
    uint64_t steps, pulls, averages, points, reports, closes, waits, saves, loads;
    uint64_t saves_before; /* the last psc_point */
    int32_t kind, rank;
    size_t n_tensors, n_frozen;
    double rates; /* the sum of all tensors' */
    struct psc_local local;
    double test_accuracy, loss; /* of the last report */
    float x_first;              /* what psc_begin was offered, of its first float */
    size_t n_samples;           /* of the last step */
    double g_norm;              /* the largest of all steps */
    float x_sum;                /* of the vector after the last step */
    uint64_t steps_wanted;      /* as the last report had it */
    char rendezvous[1024];      /* what psc_ring_open was given */
};

extern struct fake_plan fake_plan;
extern struct fake_seen fake_seen;

#endif
