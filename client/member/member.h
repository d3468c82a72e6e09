/* member.h: the clique that a handle is a member of, and how its members keep together.
 *
 * The member of clique rank 0 leads. Where the method lets the members share x (gradients mode), it alone has
 * a session: it makes the step with the mean of the members' gradients as any worker would, and the others
 * follow its orders: the same optimizer's step, and x from it wherever more than that has moved x. So all
 * hold the same bits, whatever the method. Where the workers are one clique (rule hold, vectors mode) every
 * member makes the step itself; the leader's session only keeps copies of the center (publish_center.c).
 *
 * What is sent once is ordered by the clique itself: all members make the same calls in the same order. */
#ifndef PSC_MEMBER_MEMBER_H
#define PSC_MEMBER_MEMBER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/psclique.h"
#include "client/transfer/async.h"
#include "proto/error.h"

struct psc;

/* What every member adds to the sum of a step, beside its vector; exact as floats. */
enum psc_word {
    PSC_WORD_SAMPLES,
    PSC_WORD_DRAIN,  /* the leader's server drains */
    PSC_WORD_SAVE,   /* it has asked to save */
    PSC_WORD_FAILED, /* the leader has lost it */
    PSC_N_WORDS,
};

/* A long wait of the leader's for its server is not silence: meanwhile the others are told to wait. */
struct psc_keeper {
    pthread_t thread;
    bool runs, stop, busy;
    double busy_since_s;
    pthread_mutex_t lock; /* of all above; held while anything is sent */
    pthread_cond_t changed;
};

struct psc_group {
    struct psc_clique *q; /* the caller's; NULL: there is no other member */
    int rank, size;       /* 0 and 1 without a clique */
    bool follows;         /* has no session of its own */
    float *sum;           /* [n_floats]: where gradients are summed, of a method that a leader steps */
    struct psc_keeper keeper;
    float words[PSC_N_WORDS]; /* of the sum under way, then their sums */
    uint64_t ticket;          /* of that sum */
    bool pending;             /* it is under way */
    size_t n_samples;         /* of the last sum: all members' */
    float unit;               /* 2^-k, of samples: see gradient_sum.c; 0: not known yet */
    float sum_unit;           /* that of the sum under way */
    bool drains;              /* told by it */
    uint64_t save_version;    /* counts the wishes to save that were told by sums */
    uint64_t told_version;    /* the last wish of the server's that the leader has passed on */
    float *copy;              /* [n_floats]: of the center, on its way to the server */
    uint64_t unpublished;     /* steps since it was taken */
    uint64_t publish_ticket;  /* 0: none */
    struct psc_outcome published;
    bool lost; /* the leader's server: told by the next sum */
};

/* Takes the caller's clique: rank and size, and that all members have this library and want the same.
 * PSC_ECLIQUE names both sides. method: a worker's without a server; NULL with one. */
int psc_group_open(struct psc *c, struct psc_clique *q, const char *method);
void psc_group_close(struct psc *c);

/* The leader's transport for everyone, when its session stands or failed (rc, whose sentence is c->error):
 * each member's result. */
int psc_group_share_welcome(struct psc *c, int rc);
/* Whether all members brought the same model; rc: what became of this member's own, PSC_OK or the error that
 * it goes on with. */
int psc_group_agree_on_model(struct psc *c, int rc);
/* The leader's x for everyone. */
int psc_group_share_x(struct psc *c, float *x);

/* Memory for what the method needs of the group; starts the mover where copies travel. */
int psc_group_prepare(struct psc *c);

/* The leader's call may wait for the server from here, to there. */
void psc_group_busy(struct psc *c);
void psc_group_idle(struct psc *c);

/* Whether the others need not know the sum: the leader's optimizer is none, and x comes from it. */
bool psc_group_sums_to_leader(const struct psc *c);

/* gradient_sum.c. Starts a sum over the members, and that of their words. */
int psc_sum_start(struct psc *c, float *sum, size_t n_samples);
/* Waits for it. PSC_EVALUE when it is not finite; the leader's error, or PSC_EGONE elsewhere, when the leader
 * has lost the server. */
int psc_sum_finish(struct psc *c, float *sum);
/* The same of gradients: sum becomes their mean, weighted by samples; of buffers, that of x's values. */
int psc_gather_start(struct psc *c, float *sum, const float *x, const float *g, size_t n_samples);
int psc_gather_finish(struct psc *c, float *sum);
/* Buffers of x from the mean. */
void psc_gather_buffers(struct psc *c, float *x, const float *sum);

/* publish_center.c, for methods whose workers are one clique. After a step: sends a copy of `center` to the
 * server when it is due; of the leader alone. A server that is lost is told by the next sum. */
void psc_publish(struct psc *c, const float *center);
/* The last copy, waited for: how it ended. */
int psc_publish_last(struct psc *c, const float *center);

#endif
