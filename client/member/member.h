/* member.h: the clique of a handle.
 *
 * The member of clique rank 0 is the leader. Where the method lets members share x (gradients mode), the
 * leader alone has a session: it makes the step with the mean of the members' gradients, as any worker would.
 * The others follow its messages: they make the same optimizer's step, and receive x from the leader whenever
 * something else has moved x. So all members have the same bits, whatever the method. Where the workers are
 * one clique (rule hold, vectors mode) every member makes the step itself; the leader's session only
 * publishes copies of the center (publish_center.c).
 *
 * Messages within the clique need no names: all members make the same calls in the same order. */
#ifndef PSC_MEMBER_MEMBER_H
#define PSC_MEMBER_MEMBER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/psclique.h"
#include "client/transfer/async.h"
#include "proto/error.h"
#include "proto/model/buckets.h"
#include "proto/model/method.h"
#include "proto/model/shard.h"

struct psc;
struct psc_mark;

/* Values that every member adds to the sum of a step, beside its vector; exact as floats. */
enum psc_word {
    PSC_WORD_SAMPLES,
    PSC_WORD_DRAIN,  /* the leader's server drains */
    PSC_WORD_SAVE,   /* it has asked to save */
    PSC_WORD_FAILED, /* the leader has lost it */
    PSC_WORD_STOP,   /* psc_stop: all stop if the sum is at least the number of members */
    PSC_N_WORDS,
};

/* The most buckets of a sum. */
enum { PSC_MAX_BUCKETS = PSC_CLIQUE_MAX_STARTED / 2 };

/* A bucket whose sum has started: the part of it that is summed. */
struct psc_bucket {
    struct ps_range part;
    uint64_t ticket;
};

/* A sum that has begun. */
struct psc_sum {
    float *vector; /* [n_floats] */
    float words[PSC_N_WORDS];
    uint64_t first; /* the first bucket begins here; floats below this are frozen */
    uint64_t left;  /* floats from `first` to this have not been started */
    uint64_t bucket_floats;
    uint64_t words_ticket;
    struct psc_bucket buckets[PSC_MAX_BUCKETS]; /* from the end of the vector to its beginning */
    size_t n_buckets;
    bool averages;  /* the vector becomes the mean, not the sum */
    float unit;     /* in which samples were counted */
    float scale;    /* of gradients: what this member's are multiplied by */
    bool says_save; /* the leader has told a request to save in it */
    int rc;         /* not PSC_OK: it has failed, and the vector is not the sum */
    uint64_t clock; /* the worker's when it began */
};
/* The most sums in progress at once: a pipeline of K has those of K - 1 steps before and the current step's.
 */
enum { PSC_MAX_SUMS = PS_MAX_PIPELINE };

/* bucket_choice.c: clique.bucket_floats: auto. */
enum { PSC_PROFILE_POINTS = 64 };
struct psc_profile {
    struct ps_ready_point points[PSC_PROFILE_POINTS];
    size_t n;
};
struct psc_bucket_choice {
    uint32_t sums;   /* sums of gradients that have begun, up to the one that the choice precedes */
    uint64_t floats; /* what member 0 has chosen; 0: nothing yet */
    double once_s;   /* measured: a sum of one float */
    double float_s;  /* and what each float of a long one takes */
    double begun_s;  /* when the current step began */
    double update_s; /* psc_worker.update_s when the first sum began */
    struct psc_profile now, shortest;
};

/* The thread that keeps other members from timing out while the leader waits for its server: it tells them to
 * wait. */
struct psc_keeper {
    pthread_t thread;
    bool runs, stop, busy;
    double busy_since_s;
    pthread_mutex_t lock; /* guards the members above; held during a send */
    pthread_cond_t changed;
};

/* The mark in the queue of PSC_COMPUTE behind which a collective's values on a device are complete. */
struct psc_filled {
    struct psc *c;
    struct psc_mark *mark;
};
/* One more than the collectives that can be started at once. */
enum { PSC_MAX_FILLED = PSC_CLIQUE_MAX_STARTED + 1 };
/* losses.c: a clique continues after the loss of members. */
struct psc_losses {
    bool shrinks;       /* clique.on_loss is shrink; without a server the clique's own on_loss */
    bool exchange_made; /* rule allreduce_easgd: the current sum was taken from a member that had it */
    uint32_t in_vain;   /* times in a row that the clique was formed anew and no member was missing */
    uint64_t formed;    /* times that it was formed anew */
    int (*adopt_method)(struct psc *c); /* leader_step.c: changes to the method of the welcome */
    uint64_t applied;                   /* sums applied in the current step; 0 where the leader makes it */
    uint64_t exchanged;                 /* sums that rule allreduce_easgd has applied */
    int step_rc;                        /* of the leader's last step */
    double ended_s;                     /* when the last step ended; 0: none has */
    double longest_s;                   /* between the ends of two steps, of late */
};

/* This member's wish to stop: it has called psc_stop. */
struct psc_wish {
    bool is_there;
    double since_s;
    uint64_t first_sum; /* the first that carries the wish */
};

/* The program's own step (psc_options.own_step), which the leader has made and the others are to make. */
struct psc_own_step {
    bool is_due;
    bool lacks_mean; /* only the leader has received the sum */
    double rate;
};

struct psc_group {
    struct psc_clique *q; /* the caller's; NULL: there is no other member */
    int rank, size;       /* 0 and 1 without a clique */
    uint32_t workers;     /* clients of the job, as the leader last told all members */
    bool follows;         /* follows a leader: has no session of its own */
    float *sum; /* [n_floats], as all vectors in the handle's memory: the sum of gradients, of a method that a
                   leader steps */
    struct psc_bucket_choice bucket_choice;
    struct psc_keeper keeper;
    struct psc_sum sums[PSC_MAX_SUMS]; /* sum k is at k % PSC_MAX_SUMS */
    uint64_t sums_begun, sums_landed;  /* those between them are in progress */
    uint64_t sums_dropped;             /* between this and sums_landed: ended, and not used yet */
    float *
        pipeline[PSC_MAX_SUMS]; /* vectors of sums, of a method whose steps wait for them; NULL: not needed */
    size_t n_samples;           /* of all members, in the last sum that ended */
    /* pipeline_warmup_epochs in steps, as member 0 has computed it; known from the first sum on. */
    uint64_t warmup_steps;
    bool knows_warmup;
    float unit; /* 2^-k, the unit in which samples are counted: see gradient_sum.c; 0: not known yet */
    /* Told by the last sum, or by the leader as the result of a call: all members stop after the step that
     * waits for it, or the call. */
    bool drains;
    bool stops; /* the same, because members have called psc_stop */
    struct psc_wish stop;
    uint64_t save_version;   /* counts requests to save that arrived in sums */
    uint64_t told_version;   /* the server's last request that the leader has passed on */
    float *copy;             /* [n_floats]: a copy of the center, while it is sent to the server */
    uint64_t unpublished;    /* steps since the copy was taken */
    uint64_t publish_ticket; /* 0: none */
    struct psc_outcome published;
    bool lost; /* the leader has lost the server: the next sum says so */
    /* Of vectors on a device: the n-th collective has filled[n % PSC_MAX_FILLED]. */
    struct psc_filled filled[PSC_MAX_FILLED];
    uint64_t n_filled;
    struct psc_losses losses;
    struct psc_own_step own_step;
    void (*own_step_begins)(struct psc *c, float *x); /* leader_step.c: x has moved before it */
    uint32_t told_generation;                         /* of the method that the other members have */
};

/* Takes over the caller's clique and checks that all members have the same library and the same method.
 * PSC_ECLIQUE names both sides. method: of a worker without a server; NULL with one. */
int psc_group_open(struct psc *c, struct psc_clique *q, const char *method);
void psc_group_close(struct psc *c);

/* Sends the leader's welcome to the other members after its session was opened, or failed (rc, whose sentence
 * is c->error). Returns each member's result. */
int psc_group_share_welcome(struct psc *c, int rc);
/* Checks that all members have the same model. rc: of this member's own model; an error is returned as it is.
 */
int psc_group_agree_on_model(struct psc *c, int rc);
/* Checks that all members begin at the same t: members with states of different steps would diverge.
 * PSC_EINVAL names two. */
int psc_group_agree_on_clock(struct psc *c);
/* Uses the server's clique.algorithm for the clique's sums. PSC_ECLIQUE; PSC_EUNSUPPORTED: this kind of
 * clique has its own algorithm. */
int psc_group_use_algorithm(struct psc *c);
/* Sends the leader's x to the other members. */
int psc_group_share_x(struct psc *c, float *x);

/* Allocates the vectors of the method; starts the async thread where copies of the center are published. */
int psc_group_prepare(struct psc *c);

/* Between these two calls the leader may wait for its server. */
void psc_group_busy(struct psc *c);
void psc_group_idle(struct psc *c);

/* Whether only the leader needs the sum: its optimizer is none, and it sends x to the others. */
bool psc_group_sums_to_leader(const struct psc *c);

/* collectives.c: on vectors of the handle's memory, behind all work of PSC_COMPUTE so far. A failure is the
 * handle's error, too. Prepares for them: PSC_EDEVICE. */
int psc_collectives_prepare(struct psc *c);
void psc_collectives_finish(struct psc *c);
/* Zeros; NULL: no memory. psc_group_free waits until nothing uses v. */
float *psc_group_alloc(struct psc *c);
void psc_group_free(struct psc *c, float *v);
/* The leader's n floats to all members. */
int psc_group_broadcast(struct psc *c, float *v, size_t n);
/* Starts a sum with the job's codec: PSC_REDUCE, to the leader, or PSC_ALLREDUCE. */
int psc_group_sum_start(struct psc *c, enum psc_collective_kind kind, float *v, size_t n, uint64_t *ticket);
/* The same, and waits for it. */
int psc_group_sum(struct psc *c, enum psc_collective_kind kind, float *v, size_t n);

/* sum.c. The part of r that is summed: whole stripes of r, from its first value that is not frozen to its
 * last. count 0: all of r is frozen. The bits are those of a sum of all of r. */
struct ps_range psc_sum_part(const struct psc *c, struct ps_range r);
/* The part of the whole vector. */
struct ps_range psc_sum_span(const struct psc *c);
/* Begins a sum over the members, of `vector` and of their psc_word values: the words are sent at once.
 * Frozen values of the vector are 0 and stay so; whole stripes of them are left out. bucket_floats: the size
 * of the collectives, at most PSC_MAX_BUCKETS of them in psc_sum_span; the same at all members. */
int psc_sum_begin(struct psc *c, float *vector, size_t n_samples, uint64_t bucket_floats);
/* The newest sum's vector is complete from `begin` on: starts the buckets in that part. */
int psc_sum_go_on(struct psc *c, uint64_t begin);
/* Begins a sum whose vector is complete, as one collective. */
int psc_sum_start(struct psc *c, float *vector, size_t n_samples);
/* Waits for the oldest sum in progress; that of gradients becomes their mean. PSC_EVALUE: it is not finite.
 * When the leader has lost its server: the leader's error there, PSC_EGONE elsewhere. */
int psc_sum_land(struct psc *c);
/* Of the sums that were waited for and not dropped: the failure of the first that has failed. */
int psc_sums_check(struct psc *c);
/* Waits until nothing uses the vectors of sums any more; c->group.q is not NULL. */
void psc_sum_await_newest(struct psc *c);
/* The same as psc_sum_land, and drops it: its vector is the caller's again. */
int psc_sum_finish(struct psc *c);
static inline void psc_sum_drop(struct psc_group *p)
{
    p->sums_dropped++;
}
static inline bool psc_sum_is_pending(const struct psc_group *p)
{
    return p->sums_begun != p->sums_landed;
}
/* Those that were not dropped. */
static inline uint64_t psc_sums(const struct psc_group *p)
{
    return p->sums_begun - p->sums_dropped;
}
static inline struct psc_sum *psc_sum_newest(struct psc_group *p)
{
    return &p->sums[(p->sums_begun - 1) % PSC_MAX_SUMS];
}
static inline struct psc_sum *psc_sum_oldest(struct psc_group *p)
{
    return &p->sums[p->sums_dropped % PSC_MAX_SUMS];
}

/* gradient_sum.c. The same for gradients: `sum` becomes their mean, weighted by samples; for buffers, the
 * mean of x. */
int psc_gather_begin(struct psc *c, float *sum, size_t n_samples);
/* Adds the floats of r, in which g, and x at buffers, are final. With them everything from `tail` on was put:
 * starts the buckets that are complete. May not be called twice for the same floats. */
int psc_gather_put(struct psc *c, const float *x, const float *g, struct ps_range r, uint64_t tail);
/* Before the first sum: learns how many steps of so many samples a warm-up in epochs has, the same at all
 * members. */
int psc_warmup_learn(struct psc *c, size_t n_samples);
/* Allocates vectors for n sums. PSC_ENOMEM. */
int psc_pipeline_prepare(struct psc *c, uint64_t n);
/* A vector that no sum uses. */
float *psc_pipeline_vector(struct psc_group *p);
/* Adds a mean from an earlier run, in memory of the host, as if its sum had just ended. Call
 * psc_pipeline_prepare first. PSC_ENOMEM, PSC_EDEVICE. */
int psc_pipeline_restore(struct psc *c, const float *mean);
/* Floats of a bucket of gradients. */
uint64_t psc_gather_bucket(const struct psc *c);
/* Sets `unit` by the samples of all members together. */
void psc_unit_take(struct psc_group *p, float samples);
/* Copies the buffers of the mean into x. */
void psc_gather_buffers(struct psc *c, float *x, const float *sum);

/* losses.c. Whether the clique goes on after losses, once psc_begin has read the method: clique.on_loss.
 * PSC_EUNSUPPORTED: this clique cannot. */
int psc_losses_begin(struct psc *c);
/* After a call of the clique has failed: forms the clique anew of the remaining members, and gives all the
 * state of one that is furthest, in x and in the library's own vectors. No sum is in progress then. x: the
 * array that psc_step moves. PSC_OK: the call may be made again, unless the clock shows that its step was
 * made. PSC_ECLIQUE: the clique has ended, as c->error says. */
int psc_losses_go_on(struct psc *c, float *x);
/* Whether that may help: the call's result is PSC_ECLIQUE, and the clique shrinks. */
static inline bool psc_losses_may_go_on(const struct psc_group *p, int rc)
{
    return rc == PSC_ECLIQUE && p->losses.shrinks;
}
/* A collective rule's call between steps, made again after losses. */
int psc_losses_retry(struct psc *c, float *x, int (*call)(struct psc *c, float *x));
/* Waits until all members have made their last step: if one left before, the others could not agree on that
 * step. */
int psc_losses_leave(struct psc *c);
/* A step has ended. */
void psc_losses_note_step(struct psc *c);

/* bucket_choice.c. Before a sum of gradients begins, at all members: measures, and in time chooses.
 * PSC_ENOMEM, PSC_ECLIQUE. */
int psc_bucket_choice_go_on(struct psc *c);
/* Notes that everything from `tail` on was put in the current step. */
void psc_bucket_choice_note(struct psc *c, uint64_t tail);

/* publish_center.c, for methods whose workers are one clique. Called after a step: the leader sends a copy of
 * `center` to the server when it is due. The next sum reports a lost server. */
void psc_publish(struct psc *c, const float *center);
/* Sends the last copy and waits for it: a psc result. */
int psc_publish_last(struct psc *c, const float *center);

#endif
