/* worker.h: the worker's own state: its vectors, when it exchanges, and what every rule does to the vectors
 * in a step. For the caller's thread. */
#ifndef PSC_WORKER_WORKER_H
#define PSC_WORKER_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/transfer/async.h"
#include "client/transfer/transfer.h"
#include "client/worker/ranges.h"
#include "client/worker/rule.h"
#include "proto/model/manifest.h"
#include "proto/model/method.h"

/* The vectors that the library keeps beside the caller's array, [n_floats] each. Those that the method does
 * not use are NULL. psc_save writes those before PSC_N_SAVED, in this order. */
enum psc_vector {
    PSC_VECTOR_X,          /* the worker's own x, of an optimizer with a lookahead */
    PSC_VECTOR_V,          /* its velocity, of an optimizer with momentum */
    PSC_VECTOR_START,      /* x as of the last answer, of rules that send x - start */
    PSC_VECTOR_LAMBDA,     /* the multipliers of admm */
    PSC_VECTOR_Z,          /* the average of x, of a method without a server */
    PSC_VECTOR_PREFETCHED, /* the answer of an overlapped exchange, unless it lands in PSC_VECTOR_X */
    PSC_VECTOR_ERROR,      /* error feedback: what encoding has lost so far; written by transfers */
    PSC_N_SAVED,
    PSC_VECTOR_GRADIENT = PSC_N_SAVED, /* g after weight decay and masking, when it is not the caller's */
    PSC_VECTOR_MESSAGE,     /* the message, of rules that send neither x nor g, and x as it was sent */
    PSC_VECTOR_SENT_ERROR,  /* PSC_VECTOR_ERROR as it was when that message began */
    PSC_VECTOR_ANSWER,      /* the answer to an early gradient, until the step ends */
    PSC_VECTOR_KEPT_X,      /* what answers to the exchange in progress have moved, as it was before */
    PSC_VECTOR_KEPT_LAMBDA, /* the same of PSC_VECTOR_LAMBDA */
    PSC_N_VECTORS,
};
#define PSC_VECTOR_BIT(k) (1u << (k))

/* psc.buffers: the first holds the library's own x, if it keeps one; those of psc_alloc follow. */
enum { PSC_BUFFER_OWN = 0 };

/* An exchange that is under way while the caller computes (parameters.overlap). It lands in the step `first`
 * with an overlap of 1, N - 1 steps later with one of N, under PS_OVERLAP_AUTO in the step that finds its
 * answer there; always before the next one of its part begins.
 *
 * Of fragments several may be under way, one of each at most. They are transferred in the order in which they
 * began; when one fails, those behind it are not sent and fail likewise. */
#define PSC_NO_STEP UINT64_MAX
struct psc_prefetch {
    uint64_t ticket; /* while started */
    bool started, landed;
    bool unwanted;        /* the caller has restarted from another x meanwhile */
    bool lost;            /* the method changed before it had landed */
    bool goes_again;      /* while a state is loaded: the server lacks it */
    bool deferred;        /* x moves on until the answer lands: the overlap is above 1 */
    uint64_t first;       /* clock of the first step that it may land in; PSC_NO_STEP: there was none */
    uint32_t samples;     /* of its message */
    uint32_t fragment;    /* 0 without fragments */
    struct ps_range part; /* its range */
    struct psc_outcome outcome;
};

/* A gradient whose chunks leave as they become ready. */
struct psc_early {
    bool begun;   /* that of the open step */
    bool started; /* a chunk was ready: the transfer is under way */
    int rc;       /* PSC_EVALUE: a part of it is not finite, and nothing more leaves */
    struct ps_error error;
    struct psc_gate gate;
    struct psc_transfer transfer;
    uint64_t ticket;
    struct psc_outcome outcome;
};

/* A step between psc_step_begin and psc_step_end. */
struct psc_open_step {
    bool begun;
    bool gathers;   /* its sum has begun */
    bool lost;      /* the sum has failed with the loss of a member: the step's end makes it again */
    uint64_t clock; /* as the step began */
    struct psc_early early;
    float *x;
    const float *g;
    size_t n_samples;
    struct psc_ranges ready; /* of g */
};

/* When a worker exchanges, and how fast it makes steps. */
enum { PSC_PACING_STEPS = 32 };
struct psc_pacing {
    uint64_t since;    /* steps since the last exchange; with fragments, since the last fragment's */
    uint32_t fragment; /* the next */
    uint32_t period;   /* dynamic_period: the period in use; 0: the method's */
    /* The last steps, without the time that they waited: step k is at k % PSC_PACING_STEPS. */
    double took_s[PSC_PACING_STEPS];
    uint64_t n_took;
    double ended_s, waited_s; /* when the last step ended (0: there was none), and exchange_s at that time */
    double steps_per_second;  /* 0: not known */
};

struct psc_worker {
    struct ps_hyper hyper; /* for the next step */
    float *vectors[PSC_N_VECTORS];
    bool restart;          /* the next step sets its own x and v anew from the caller's array */
    uint64_t save_version; /* as of the last psc_refresh */
    float *caller_x;       /* the array that psc_step moves: psc_begin's before the first step */
    bool stepped;          /* psc_step has been called */
    bool loaded;           /* psc_load has succeeded */
    /* [n_prefetches], that of fragment i is [i]; at least one. */
    struct psc_prefetch *prefetch;
    uint32_t n_prefetches;
    uint64_t last_prefetch;  /* ticket of the last that was started */
    uint64_t last_of_caller; /* of the last transfer before it that the caller had started */
    struct psc_open_step open;
    struct psc_pacing pacing;
    uint64_t clock;
    uint32_t next_key; /* of the round of keys: tensors before it were sent */
    double exchange_s, update_s;
};

/* Allocates a vector of [n_floats] zeros. The worker's own x is in a buffer that servers can map. False: no
 * memory. */
bool psc_vector_make(struct psc *c, enum psc_vector k);
/* Frees all vectors but these (PSC_VECTOR_BIT bits). */
void psc_vectors_drop_but(struct psc *c, unsigned keeps);
/* Which vectors the optimizer keeps: PSC_VECTOR_BIT bits. */
unsigned psc_optimizer_vectors_of(const struct psc *c);
/* Which vectors the method keeps: PSC_VECTOR_BIT bits. */
unsigned psc_vectors_of(const struct psc *c);
/* Whether all of them are allocated. False after a failed change of method. */
bool psc_vectors_are_there(const struct psc *c);
/* Makes the next step restart from the caller's array, whatever state earlier steps have left. */
void psc_start_over(struct psc *c);
/* Checks a call that only a worker may make. PSC_EINVAL: too early, not a worker, or an array is missing. */
int psc_check_worker(struct psc *c, const char *call, const void *a, const void *b);
/* The same, and that the arrays are in the handle's kind of memory. */
int psc_check_vectors(struct psc *c, const char *call, const float *a, const float *b);
/* Checks that a vector of the caller is in the handle's kind of memory: else PSC_EINVAL. */
int psc_check_memory(struct psc *c, const char *call, const void *p);
/* Functions for psc_transfer.landed: copy the answer; copy all but the frozen values. */
void psc_land_all(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);
void psc_land_moved(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);
/* Copy the buffers; copy all but the frozen values. */
void psc_copy_buffers(const struct psc *c, float *to, const float *from);
void psc_copy_moved(const struct psc *c, float *to, const float *from);
/* The worker's own x: the caller's array, unless the optimizer has a lookahead. */
float *psc_own_x(struct psc *c, float *at);
/* Makes the optimizer's step with g. It moves parameters only. */
void psc_own_step(struct psc *c, float *at, const float *g);
/* The program's own step, at this learning rate. */
void psc_external_step(struct psc *c, float *at, const float *g, double rate);
/* Recomputes the caller's array within r, buffers included, from the worker's own x after an answer was
 * applied to that. */
void psc_own_lookahead(struct psc *c, float *at, struct ps_range r);
/* The learning rate of the segment. */
static inline float psc_eta_of(const struct ps_segment *s, float eta)
{
    return s->rate_ppm == 0 ? eta : (float)((double)eta * ps_rate_of(s->rate_ppm));
}
/* The learning rate at this step. */
double psc_rate(const struct psc *c);
/* A transfer that exchanges the whole vector. */
struct psc_transfer psc_exchange_of(const struct psc *c, const float *message, float *target,
                                    size_t n_samples);

/* prefetch.c. Whether the next step's exchange has already begun, of rules for which all workers of a round
 * save after the same step. */
bool psc_has_prefetch(const struct psc *c);
/* Whether x moves on while an exchange is under way. */
bool psc_overlap_defers(const struct psc *c);
/* Makes room for the exchanges that may be under way at a time. False: no memory. */
bool psc_prefetch_make(struct psc *c, uint32_t n);
/* If none is under way: forgets an earlier failure, so that the next exchange is sent. */
void psc_prefetch_forgive(struct psc *c);
/* Starts the exchange, of the transfer's fragment. first: clock of the first step that it may land in.
 * deferred: x moves on meanwhile. */
void psc_prefetch_exchange(struct psc *c, const struct psc_transfer *t, uint64_t first, bool deferred);
/* Whether an exchange that is under way ends in the current step: it lands, or has failed. */
bool psc_prefetch_is_due(struct psc *c, struct psc_prefetch *a);
/* Whether its answer has arrived and lands in the current step. */
bool psc_prefetch_lands(struct psc *c, struct psc_prefetch *a);
/* After psc_load: starts the exchange again whose message is in PSC_VECTOR_MESSAGE. */
void psc_prefetch_again(struct psc *c, struct psc_prefetch *a);
/* Of one that was started and has ended: whether the server has nothing of it, and its message can become
 * unsent again. */
bool psc_prefetch_is_unsent(const struct psc *c, const struct psc_prefetch *a);
/* The server lacks an exchange that was under way: its message becomes unsent again. */
void psc_prefetch_take_back(struct psc *c, const struct psc_prefetch *a);

/* memory.c. Copies n floats between a vector of the handle's memory and one of the host, behind all work that
 * was enqueued, and waits. PSC_ENOMEM, PSC_EDEVICE. */
int psc_vector_read(struct psc *c, float *host, const float *x, size_t n);
int psc_vector_write(struct psc *c, float *x, const float *host, size_t n);
/* Finds the first of n values that is not finite, in a vector of the handle's memory: *bad; UINT64_MAX: there
 * is none. PSC_EDEVICE. */
int psc_vector_search(struct psc *c, const float *x, size_t n, uint64_t *bad);
/* Frees the vectors and buffers without another owner. */
void psc_buffers_finish(struct psc *c);

/* weight_decay.c. Whether the gradient needs PSC_VECTOR_GRADIENT. */
bool psc_gradient_needs_room(const struct psc *c);
/* Whether weight decay applies to the segment. */
bool psc_gradient_decays(const struct psc *c, const struct ps_segment *s);
/* g with weight decay, for a step in segment s; g itself where there is none. */
const float *psc_gradient_to_step(struct psc *c, const struct ps_segment *s, const float *g);
/* Computes g with weight decay at x, the point at which g was taken. */
void psc_gradient_decay(struct psc *c, const float *x, const float *g);
/* The message of a rule that sends g. */
const float *psc_gradient_to_send(struct psc *c, const float *x, const float *g);
/* The same in parts: where the message lies; fills it within r. */
const float *psc_gradient_message(const struct psc *c, const float *g);
void psc_gradient_put(struct psc *c, const float *x, const float *g, struct ps_range r);

/* early.c. Whether the open step's gradient may leave in parts. */
bool psc_early_is_possible(const struct psc *c);
/* Prepares for it. PSC_ENOMEM, PSC_ESYSTEM. */
int psc_early_begin(struct psc *c);
/* r was reported: prepares that part of the message, and lets the chunks leave that are complete. */
void psc_early_put(struct psc *c, struct ps_range r);
/* All was reported: waits until it has landed. On success the answer is in PSC_VECTOR_ANSWER. PSC_EVALUE: the
 * gradient is not finite; if a part of it had left, the session has ended. Or as psc_move. */
int psc_early_finish(struct psc *c);

/* key_round.c. Whether the call may send the tensor's message (NULL: the whole vector's): PSC_EINVAL names
 * the key that is next in the round, PSC_EUNSUPPORTED an admission without keys. A started call that goes on
 * with a round whose failure psc_wait has not told yet is allowed: it fails like those behind the failed one.
 */
int psc_key_round_check(struct psc *c, const char *call, const struct ps_tensor *t, bool started);
/* The place in the round of a message of the tensor. */
enum psc_round_key psc_key_round_of(const struct psc *c, const struct ps_tensor *t);
/* The message was sent, or started. */
void psc_key_round_sent(struct psc *c, const struct ps_tensor *t);
/* Whether some keys of a round were sent, and others not yet. */
bool psc_key_round_is_open(const struct psc *c);

/* period.c. Whether the current step ends with an exchange. */
bool psc_pacing_is_due(const struct psc *c);
/* The step ended with an exchange; or without one. */
void psc_pacing_exchanged(struct psc *c);
void psc_pacing_stepped(struct psc *c);
/* The next fragment is the first, and a whole period of steps remains until the last. */
void psc_pacing_restart(struct psc *c);
/* Fragments of the method, at least 1. */
uint32_t psc_pacing_fragments(const struct psc *c);
/* Measures the step; called at its end. */
void psc_pacing_measure(struct psc *c);

#endif
