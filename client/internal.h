/* internal.h: the library's inside.
 *
 * Up to three threads know a handle. The caller's thread owns everything not named below. The service thread
 * (client/session/control_thread.c) owns the control socket: it says hello, beats the heart, reconnects. What
 * all share is struct psc_shared, under its lock; the service thread raises wake_fd when something changed
 * that a waiting transfer must see. The mover (client/transfer/async.c) runs transfers that were started;
 * there is none until one is. Whoever runs transfers owns struct psc_transfer_state: the mover while its
 * queue holds any, else the caller. */
#ifndef PSC_INTERNAL_H
#define PSC_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "client/member/member.h"
#include "client/optimizers/optimizers.h"
#include "client/psclient.h"
#include "client/session/retry.h"
#include "client/session/session.h"
#include "client/team/team.h"
#include "proto/codecs/codec.h"
#include "proto/error.h"
#include "proto/model/fragment.h"
#include "proto/model/manifest.h"
#include "proto/model/method.h"
#include "proto/model/shard.h"
#include "proto/transports/transport.h"
#include "proto/vec/vec.h"
#include "proto/wire/frame.h"
#include "ps.pb-c.h"

/* Beside enum psc_result, within the library: the method changed before the transfer had landed anywhere, and
 * what it carried was made for the one before. */
#define PSC_METHOD_CHANGED 100

struct psc_hub {
    const struct ps_transport *transport;
    struct ps_hub *hub;
    unsigned registered; /* bitmap of the handle's buffers */
};

struct psc_links {
    struct psc_hub hubs[PSC_MAX_TRANSPORT_OFFERS];
    uint32_t n_hubs;
    const struct ps_transport *transport; /* of the links; NULL: there were none yet */
    uint32_t window_chunks;               /* in flight on each */
    struct ps_link *link[PS_MAX_LANES];   /* NULL: the lane is empty */
    uint64_t epoch;                       /* they belong to */
    uint32_t hopeless; /* bitmap of the transport's ways: not to be tried again in this epoch */
    bool none;         /* none could be opened, and it may be possible later: see why */
    bool worked;       /* some could, since the handle was opened */
    uint64_t heard;    /* from the server, when nobody was there first; 0: somebody was */
    struct psc_retry retry;
    char why[160]; /* the last of those failed; "": none has */
    bool lost;     /* a link has told that its other end is gone */
    bool leaving;  /* they are to be closed, once nobody works in the worker's vector any more */
    bool anew;     /* then because of a new Welcome */
};

/* A lane's part of the transfer under way. */
struct psc_lane_progress {
    uint64_t *answered;  /* bitmap over the lane's chunks */
    uint32_t first, end; /* the chunks that the transfer's scope meets */
    uint32_t next, n_left, in_flight;
    uint64_t *encoded; /* bitmap over the chunks: in the wire's room */
    size_t place;      /* of its first chunk there */
};

/* What travels where messages are encoded: client/transfer/encode.c. */
struct psc_wire {
    const struct ps_codec *message, *answer; /* of the transport's method */
    unsigned char *room;                     /* for the whole vector, chunk by chunk */
    size_t room_bytes;
};

/* The vectors that the library keeps beside the caller's, [n_floats] each; those that the method has no use
 * for are NULL. Those before PSC_N_SAVED are saved, in this order. */
enum psc_vector {
    PSC_VECTOR_X,          /* the worker's own x, of an optimizer that looks ahead of it */
    PSC_VECTOR_V,          /* its velocity, of an optimizer with momentum */
    PSC_VECTOR_START,      /* what x was when it was last adopted, of rules that take x - start */
    PSC_VECTOR_LAMBDA,     /* the multipliers of admm */
    PSC_VECTOR_Z,          /* what averages x, of a method without a server */
    PSC_VECTOR_PREFETCHED, /* what an overlapped exchange brings, unless PSC_VECTOR_X takes it */
    PSC_VECTOR_ERROR,      /* what encoding took from messages so far, with error feedback; the carriage's */
    PSC_N_SAVED,
    PSC_VECTOR_GRADIENT = PSC_N_SAVED, /* g as it is stepped with or sent, while it is not the caller's */
    PSC_VECTOR_MESSAGE,                /* what travels, of rules that take neither x nor g */
    PSC_N_VECTORS,
};
#define PSC_VECTOR_BIT(k) (1u << (k))

/* The worker's half of a rule: what of a step goes to the server, when, and what becomes of the
 * answer. A row of client/rules. */
typedef void (*psc_landed)(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);

struct psc_rule {
    unsigned keeps;      /* PSC_VECTOR_BIT bits, beside the optimizer's */
    bool sends_gradient; /* the message is g */
    bool overlaps;       /* an exchange may travel while the caller computes */
    bool staler;         /* and then lands a step later than without */
    bool lands_in_x;     /* and what it brings goes to the worker's own x where the library keeps that */
    bool steps_first;    /* the step is the worker's own, and what is sent comes after it */
    bool finishes;       /* what an overlapped exchange brought is taken over after the last step */
    bool collective;     /* every member of a clique makes the step: the workers are one clique */
    /* One step, exchange included, when what the step before started has ended. Adds 1 to the clock when it
     * took effect. */
    int (*step)(struct psc *c, float *x, const float *g, size_t n_samples);
    /* Takes over what an overlapped exchange brought; NULL: there is none. */
    void (*take_over)(struct psc *c, float *x);
    /* What the center has not had of the worker's steps, as an addition to it, when the method changes; NULL:
     * nothing is ever owed. */
    const float *(*unsent)(struct psc *c, float *x);
    /* What an exchange that was made ahead carried is owed again: the server lost it. NULL: it never is. */
    void (*take_back)(struct psc *c);
    /* Of `collective`: waits for the sum that travels, and keeps it for the next step (it is saved then).
     * NULL: nothing travels between steps. */
    int (*gather)(struct psc *c);
    /* Of `collective`: what is left to do after the last step. */
    int (*flush)(struct psc *c, float *x);
    /* Of `collective`: the center, which is at hand. */
    const float *(*center)(struct psc *c, float *x);
    /* How a pull into the array that psc_step moves lands; NULL: as any other. */
    psc_landed land_anew;
};

/* One pass over all chunks that the scope meets. */
struct psc_transfer {
    uint8_t kind;                   /* enum ps_frame_kind */
    const struct ps_tensor *tensor; /* the scope; NULL: the fragment, or the whole vector */
    bool is_fragment;
    uint16_t fragment;
    struct ps_range part; /* the fragment's */
    uint16_t flags;       /* of its frames, beside the scope's */
    const float *send;    /* [floats of the scope], or NULL */
    const char *name;     /* of `send`, when its values are to be checked; NULL: they were */
    uint32_t samples;
    uint64_t clock;
    uint32_t generation; /* of the method that `send` was made for, where it is a rule's message */
    bool patient;        /* nobody waits for it yet */
    bool meets;          /* `landed` is the elastic half on `send` itself: a lane may do it where that lies */
    bool anew;           /* the worker starts over with what it brings: no error is fed back */
    /* Takes the answer to one piece, r counted from the scope's begin; NULL: it has no payload. */
    void (*landed)(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);
    float *target; /* [floats of the scope] */
};

/* How a transfer of a fragment may end, beside the public results: the server has come back from a
 * checkpoint, and all workers begin their cycle of fragments anew. What it lacks an answer for is still owed.
 */
enum { PSC_ABORTED = 1000 };

struct psc_started {
    struct psc_transfer transfer;
    struct psc_outcome *out; /* &own, or where somebody else wants it */
    struct psc_outcome own;
};

/* Transfers in the order of their tickets, 1, 2, …: those up to `finished` have ended, the one after is under
 * way. Ticket k is in slot k % PSC_MAX_STARTED until k + PSC_MAX_STARTED is given out. */
struct psc_async {
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;          /* of all below */
    pthread_cond_t queued, landed; /* CLOCK_MONOTONIC */
    struct psc_started *slots;
    uint64_t issued, finished;
    uint64_t failed_ticket; /* the first that failed since psc_wait(PSC_ALL) told of one; 0: none */
    struct psc_outcome failed;
    bool stop;
};

/* The data connection and what moves on it. */
struct psc_transfer_state {
    struct psc_welcome welcome; /* as of links.epoch */
    struct ps_shard shard;      /* how the vector is cut on it */
    struct ps_range scope;      /* of the transfer under way */
    struct ps_range cover; /* what its frames are cut from: the scope, but see client/transfer/transfer.c */
    struct psc_links links;
    uint64_t revivals; /* as of links.epoch */
    bool cut;          /* one came since the lanes were started: see is_cut */
    bool swapped; /* the transport has become another method's, and the transfer under way has not seen it */
    uint64_t landed_seq;  /* up to here exchanges had landed then */
    bool begun;           /* a chunk of the transfer under way has been answered */
    bool in_place;        /* lanes make it where the worker's vector lies: see psc_pieces_choose */
    bool resent;          /* links were opened anew while pieces of it were on their way */
    const float *lent;    /* the vector that was in place last */
    bool unchecked;       /* the values of the transfer under way, see check_values */
    bool refused;         /* chunks were refused because the method changes: nothing is sent until */
    double refused_end_s; /* then */
    bool begins_anew;     /* one came since the last exchange of a fragment: see starts_over */
    struct psc_lane_progress progress[PS_MAX_LANES];
    struct psc_wire wire;
    float *scratch; /* two chunks: for what is encoded, and answers that are, or lie where floats may not */
    uint64_t seq;
    uint64_t save_version;                /* of the answer that last asked to save; 0: none has */
    uint64_t transfer_version;            /* the newest that an answer to the transfer under way told */
    uint64_t part_versions[PS_MAX_PARTS]; /* the same of each part; 0: none has */
    struct psc_counts counts;
    struct ps_error error; /* of the last transfer */
};

/* The exchange that a step starts for the one after it (parameters.overlap). */
struct psc_prefetch {
    uint64_t ticket; /* while started */
    bool started, landed;
    bool unwanted;        /* the caller has started over meanwhile */
    bool lost;            /* the method changed before it had landed */
    struct ps_range part; /* what it covers, of rules that take x - start */
    struct psc_outcome outcome;
};

/* When a worker that sends what its steps came to exchanges, and how fast it steps. */
enum { PSC_PACING_STEPS = 32 };
struct psc_pacing {
    uint64_t since;    /* steps since the last exchange; with fragments, since the last of them */
    uint32_t fragment; /* the next */
    uint32_t period;   /* of dynamic_period: planned then; 0: the method's */
    double took_s[PSC_PACING_STEPS]; /* the last steps, without what they waited: step k's in k %
                                       PSC_PACING_STEPS */
    uint64_t n_took;
    double ended_s, waited_s; /* when the last step did, 0: there was none; and exchange_s then */
    double steps_per_second;  /* 0: not known */
};

/* What the answer of the step under way needs, of admm. */
struct psc_admm {
    const float *g;
    float eta, pull, scale; /* at this t: eta, eta rho, 1 / (1 + eta rho) */
};

struct psc {
    struct psc_options opt;                      /* strings owned, but for transport */
    char transport[8];                           /* "auto", or the one that data has to take */
    struct ps_buffer buffers[PS_MAX_BUFFERS];    /* client/worker/memory.h; base NULL: none */
    struct psc_memory *memories[PS_MAX_BUFFERS]; /* who frees them instead of psc_close; NULL: nobody */
    struct ps_error error;                       /* of the last call that failed */
    struct psc_session session;

    struct ps_manifest *manifest;
    const struct ps_vec *vec;
    const struct ps_rule_info *rule_info; /* NULL without a server */
    const struct psc_rule *rule;
    const struct psc_optimizer *optimizer;
    struct psc_team *team;                /* NULL: the caller makes passes alone */
    const struct ps_averaging *averaging; /* at the worker; NULL with a server, which averages itself */
    uint32_t generation; /* of the method that steps follow; the server's may be newer: method_change.c */
    char method_name[32], rule_name[32], clique_codec[16];
    uint32_t publish;
    bool feeds_back;       /* errors of its message codec */
    struct ps_shard shard; /* as that method has it */
    bool begun;            /* psc_begin has succeeded */
    bool local;            /* a method without a server */
    bool pulled;           /* more than its own steps has moved x since this was cleared */

    struct psc_group group;

    struct psc_transfer_state transfer_state;
    struct psc_async async;

    struct ps_hyper hyper; /* for the next step */
    float *vectors[PSC_N_VECTORS];
    bool restart;          /* own x and v start anew from the caller's array at the next step */
    uint64_t save_version; /* as of the last look */
    const float *caller_x; /* the array that psc_step moves: psc_begin's before the first */
    bool stepped;          /* psc_step has been called */
    struct psc_prefetch prefetch;
    struct psc_admm admm;
    struct psc_pacing pacing;
    uint64_t clock;
    double exchange_s, update_s;
};

/* A run of values of one role. */
struct psc_part {
    struct ps_range range;
    const struct ps_segment *segment;
};

/* for (struct psc_part p = psc_first_part(m, r); p.range.count > 0; p = psc_next_part(p, r)) */
static inline struct psc_part psc_first_part(const struct ps_manifest *m, struct ps_range r)
{
    const struct ps_segment *s = ps_manifest_segment(m, r.begin);
    return (struct psc_part){ps_range_intersect(s->range, r), s};
}

static inline struct psc_part psc_next_part(struct psc_part p, struct ps_range r)
{
    if (p.range.begin + p.range.count >= r.begin + r.count)
        return (struct psc_part){{0, 0}, p.segment};
    return (struct psc_part){ps_range_intersect(p.segment[1].range, r), p.segment + 1};
}

/* By the rule. */
static inline bool psc_transfer_moves(const struct psc_transfer *t)
{
    return t->kind == PS_FRAME_EXCHANGE || t->kind == PS_FRAME_PUSH;
}

/* Frozen values do not take part. */
static inline bool psc_transfer_spares_frozen(const struct psc_transfer *t)
{
    return psc_transfer_moves(t) || t->kind == PS_FRAME_ADD;
}

/* client/transfer/transfer.c, for the owner of the carriage. Runs the transfer to its end: a psc result; on
 * failure carriage.error has the sentence. */
int psc_transfer_run(struct psc *c, const struct psc_transfer *t);
/* Whether what it sends is finite: PSC_OK, or PSC_EVALUE with a sentence, the server having been told. Any
 * thread. */
int psc_transfer_check(struct psc *c, const struct psc_transfer *t, struct ps_error *err);
/* client/transfer/links.c. No byte of a vector is read or written any more: where a lane does not let go of
 * one that it works in, the vector gets memory of its own. */
void psc_links_close(struct psc *c);
/* And the hubs behind them are gone. */
void psc_links_finish(struct psc *c);
/* Whether exchanges wait for those of other workers. */
bool psc_among_members(const struct psc *c);

/* client/transfer/async.c, for the caller's thread. Runs the transfer after everything that was started, and
 * waits for it. */
int psc_move(struct psc *c, const struct psc_transfer *t);
int psc_async_start(struct psc *c); /* nothing when it runs */
/* Hands the transfer to the mover, waiting for room; its ticket. out: where its end is told, NULL for
 * psc_wait alone. Arrays and *out are the mover's until then. */
uint64_t psc_async_put(struct psc *c, const struct psc_transfer *t, struct psc_outcome *out);
void psc_async_await(struct psc *c, uint64_t ticket);
/* Gives up what was started. */
void psc_async_stop(struct psc *c);

/* client/transfer/chunks.c, for the owner of the carriage: how the vector is cut on the transport, a bitmap
 * for each lane: the exchange itself asks for no memory. A psc result, with a sentence. */
int psc_lanes_prepare(struct psc *c, struct ps_error *err);

/* method_change.c, for the caller's thread. Whether the server has another method than steps follow. */
bool psc_method_has_changed(struct psc *c);
/* Takes what the transport says as the method that steps follow. */
void psc_take_method(struct psc *c, const struct psc_welcome *welcome);
/* Goes over to the server's method: what the worker owes the center goes first, as it is. x: the array that
 * psc_step moves. PSC_EVALUE: what it owed was not finite and is forgotten. */
int psc_change_method(struct psc *c, float *x);

/* step.c. psc_step, as a worker by itself makes it. */
int psc_step_alone(struct psc *c, float *x, const float *g, size_t n_samples);
/* Waits for what the step before started. */
int psc_finish_overlapped(struct psc *c);
/* Memory for what the method needs of a step; PSC_ENOMEM, PSC_ESYSTEM; PSC_EUNSUPPORTED when it
 * cannot be had. */
int psc_step_prepare(struct psc *c);
/* The exchange that was made ahead was cut: what it carried is owed again. */
void psc_take_back(struct psc *c);
/* Whether the server drains; tells the service thread the clock, and takes what it learnt. */
bool psc_refresh(struct psc *c);

/* client/worker/weight_decay.c: g with weight decay, at the point x where it was taken; and as the message of
 * a rule that takes it. g itself where that is the same. */
bool psc_gradient_needs_room(const struct psc *c);
const float *psc_gradient_to_step(struct psc *c, const struct ps_segment *s, const float *g);
void psc_gradient_decay(struct psc *c, const float *x, const float *g);
const float *psc_gradient_to_send(struct psc *c, const float *x, const float *g);

/* client/worker/period.c: whether the step under way ends with an exchange; that it has been made, or only
 * the step. */
bool psc_pacing_is_due(const struct psc *c);
void psc_pacing_exchanged(struct psc *c);
void psc_pacing_stepped(struct psc *c);
/* The next fragment is the first; a whole period of steps from now to the last. */
void psc_pacing_restart(struct psc *c);
/* Fragments of the method, at least 1. */
uint32_t psc_pacing_fragments(const struct psc *c);
/* At the end of a step: measures it. */
void psc_pacing_measure(struct psc *c);

/* no_server.c: a handle without a server: fills in what Welcome would have said. */
int psc_local_open(struct psc *c, const struct psc_local *given, struct psc_clique *clique);
/* push_pull.c: psc_pull of the whole vector, by whoever has a session. */
int psc_pull_alone(struct psc *c, float *x);

/* open.c: whether psc_open has succeeded. */
bool psc_is_open(const struct psc *c);

#endif
