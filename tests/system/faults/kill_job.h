/* kill_job.h: a job of one psd or two, and of ledger workers, that may be killed at any moment; and what must
 * hold of it at every other.
 *
 * Each of these ends the test with a line when something does not hold. They wait until it does, at most
 * KILL_DEADLINE_S each. The process must have no threads: workers are forked. */
#ifndef TEST_SYSTEM_KILL_JOB_H
#define TEST_SYSTEM_KILL_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/system/libc_faults.h"
#include "tests/support/system/servers.h"
#include "tests/support/unit.h"
#include "tests/system/ledger_workers.h"

/* Nobody waits longer for what is due: an exchange of a worker that lives, a psd that starts, its words about
 * what was lost. Silence passes by psd's clock, and only when the test lets it. */
#define KILL_DEADLINE_S (2 * TEST_HANG_S)

enum { KILL_ADMISSIONS = 6, KILL_COMBINATIONS = 4 * KILL_ADMISSIONS };

struct kill_admission {
    const char *name, *setting, *more;
    bool merges;        /* its version counts rounds */
    bool keys;          /* takes messages of keys */
    bool gradients;     /* each moves the center as it is, not by the mean of a round */
    uint32_t fragments; /* the most here */
    bool drops;         /* an exchange may be answered and have come too late */
    bool waits;         /* for those who have died, until they are given up */
    bool together;      /* all servers go back when one does */
};
extern const struct kill_admission kill_admissions[KILL_ADMISSIONS];

/* A scenario's line, which outlives its process. */
struct kill_row {
    uint64_t seed;
    bool begun, passed;
    unsigned kills;
    uint64_t answered, lost, told; /* told: by psd where it knew */
    double longest_s, took_s;
    char how[400];  /* the workers' exchanges, as settings */
    char what[200]; /* the kinds of kills, in order */
    char why[700];
    char dir[SERVERS_MOST][64];
};

/* Of a seed: its row of each of the three. */
static inline const struct kill_admission *kill_admission_of(uint64_t seed)
{
    return &kill_admissions[seed % KILL_ADMISSIONS];
}

static inline int kill_servers_of(uint64_t seed)
{
    return 1 + (int)(seed / KILL_ADMISSIONS % 2);
}

static inline const char *kill_transport_of(uint64_t seed)
{
    return seed / KILL_ADMISSIONS / 2 % 2 ? "shm" : "tcp";
}

void kill_row_print(const struct kill_row *r);

struct kill_job {
    struct kill_row *row;
    struct dice dice; /* what the scenario draws from */
    const struct kill_admission *a;
    int n_servers, n_first; /* workers that begin */
    const char *transport;
    struct ledger_course course;
    float tolerance;       /* between the center and x: what error feedback may still be about to send */
    char settings[24][64]; /* psd's */
    uint32_t n_settings;
    struct servers t;
    struct shim_page *page;
    struct ledger_worker w[LEDGER_WORKERS];
    bool dead[LEDGER_WORKERS]; /* killed, and psd may not have given them up */
    uint32_t n;
    uint16_t gone[LEDGER_WORKERS][LEDGER_EXCHANGES]; /* places where what was seen there was missing */
    uint64_t newly;                /* of exchanges that the head of this run must have told as lost */
    bool may_be_unknown;           /* what was lost: not all who were in the job come back and tell */
    uint32_t from[LEDGER_WORKERS]; /* the first exchange that surely is of the psd that runs */
    bool untold;                   /* a psd was killed that may have said a part of it */
    unsigned backs;                /* lines of the head's log: all servers went back */
    bool anew;                     /* there was no checkpoint yet */
    bool drained;
    char changes[2][120]; /* of the method: back, and to the other one; as in a URL */
    bool is_changed;      /* the method that was last set is the other one */
    uint64_t uncounted;   /* most updates that were sent at a change of the method, which no version counts */
    float center[LEDGER_FLOATS];
};

/* What happens, into the file `events` of the head's directory. */
void kill_job_say(struct kill_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void kill_job_fails(struct kill_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

/* A worker is there until it is killed, or its end was noticed. How many are there. */
bool kill_job_has(const struct kill_job *j, uint32_t i);
uint32_t kill_job_living(const struct kill_job *j);
void kill_job_start_worker(struct kill_job *j);
void kill_job_kill_worker(struct kill_job *j, uint32_t i);
/* A bit for each server. */
void kill_job_kill_servers(struct kill_job *j, unsigned which);
void kill_job_resume_servers(struct kill_job *j, unsigned which);

/* As many live as the job began with: so many are waited for after a restart, too. */
void kill_job_fill_up(struct kill_job *j);
/* Until psd has given up those who died. */
void kill_job_bury(struct kill_job *j);
/* Until everybody who lives has made so many more exchanges, and what was under way is answered. */
void kill_job_go_on(struct kill_job *j, uint32_t exchanges);
/* A checkpoint of every server. */
void kill_job_save(struct kill_job *j);

/* These pull the center. No psd was killed: nothing is gone. */
void kill_job_check_nothing_lost(struct kill_job *j);
/* psd was: all that live have gone on, and what psd says was lost is not less than what is. */
void kill_job_check_told(struct kill_job *j);
/* Under backup and quorum: what was answered and is not in the center came too late, and is counted. */
void kill_job_check_dropped(struct kill_job *j);
/* When all have ended: each one's x is the center. */
void kill_job_check_ends(struct kill_job *j);

#endif
