/* internal.h: struct psc, the handle: the states that the folders own, and declarations for the files of the
 * public API beside this header.
 *
 * Up to three threads use a handle. The caller's thread owns everything
 * that is not named here. The service thread (session/session.h) owns the control socket, and shares struct
 * psc_shared with the others, under its lock. The async thread (transfer/async.h) runs transfers that were
 * started; it is created with the first of them. Whoever runs transfers owns struct psc_transfer_state. */
#ifndef PSC_INTERNAL_H
#define PSC_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/member/member.h"
#include "client/memory/memory.h"
#include "client/optimizers/optimizers.h"
#include "client/psclient.h"
#include "client/rules/rules.h"
#include "client/session/session.h"
#include "client/team/team.h"
#include "client/transfer/async.h"
#include "client/transfer/transfer.h"
#include "client/worker/rule.h"
#include "client/worker/worker.h"
#include "proto/error.h"
#include "proto/model/manifest.h"
#include "proto/model/method.h"
#include "proto/model/shard.h"
#include "proto/transports/registered_memory.h"
#include "proto/transports/transport.h"
#include "proto/vec/vec.h"

struct psc {
    struct psc_options opt; /* the handle owns its strings, but for `transport` */
    char transport[8];      /* "auto", or the one that the caller asked for */
    struct ps_error error;  /* of the last call that failed */
    bool local;             /* a method without a server */
    bool begun;             /* psc_begin has succeeded */
    bool pulled;            /* something other than its own steps has moved x since this was cleared */

    struct ps_buffer buffers[PS_MAX_BUFFERS];    /* worker/memory.c; base NULL: free */
    atomic_uint has_buffers;                     /* bitmap: those that are there */
    struct psc_memory *memories[PS_MAX_BUFFERS]; /* owners that free them instead of psc_close; NULL: none */
    struct psc_team *team;                       /* NULL: the caller's thread makes passes alone */
    const struct ps_vec *vec;    /* of the host, for what is in its memory: encoding, sums of a clique */
    struct psc_memory_of memory; /* where the vectors lie: the caller's, and those of worker/worker.h */
    struct psc_work work;        /* PSC_COMPUTE */
    struct ps_manifest *manifest;

    /* The method that steps use. The server's may be newer: method_change.c. */
    uint32_t generation;
    struct psc_welcome taken; /* that the method is from */
    char method_name[32], rule_name[32], clique_codec[16], clique_algorithm[8];
    bool clique_shrinks;                       /* psd's clique.on_loss is shrink */
    const struct ps_rule_info *rule_info;      /* NULL without a server */
    const struct ps_admission_info *admission; /* likewise */
    const struct psc_rule *rule;
    const struct psc_optimizer *optimizer;
    const struct ps_averaging *averaging; /* at the worker; NULL with a server, which averages itself */
    struct ps_shard shard;
    uint32_t publish;
    uint64_t bucket_floats; /* of a clique's sums of gradients; 0: the library chooses */
    bool feeds_back;        /* its message codec has error feedback */

    struct psc_session session;
    struct psc_transfer_state transfer_state;
    struct psc_async async;
    struct psc_worker worker;
    struct psc_group group;
    struct psc_admm admm;
};

/* PSC_EINVAL between psc_step_begin and psc_step_end, where only psc_ready is allowed. */
static inline int psc_check_no_open_step(struct psc *c, const char *call)
{
    return c->worker.open.begun
               ? ps_fail(&c->error, PSC_EINVAL,
                         "%s: a step has begun; allowed are psc_ready and psc_step_end", call)
               : PSC_OK;
}

/* open.c. Whether psc_open has succeeded. */
bool psc_is_open(const struct psc *c);

/* no_server.c. Opens a handle without a server: fills in the fields of Welcome. */
int psc_local_open(struct psc *c, const struct psc_local *given, struct psc_clique *clique);

/* method_change.c, for the caller's thread. Whether the server has another method than steps use. */
bool psc_method_has_changed(struct psc *c);
/* Makes the method of the welcome the one that steps use. */
void psc_take_method(struct psc *c, const struct psc_welcome *welcome);
/* Changes to the server's method, after adding the worker's unsent steps to the center. x: the array that
 * psc_step moves. PSC_EVALUE: the unsent steps were not finite and are dropped. */
int psc_change_method(struct psc *c, float *x);
/* Whether the last change failed: then the next step tries it again. */
bool psc_change_has_failed(const struct psc *c);

/* step.c. psc_step of a worker that is not a member of a clique. */
int psc_step_alone(struct psc *c, float *x, const float *g, size_t n_samples);
/* Whether parts of the gradient leave before the step ends: into the sum of a clique, or to the server. */
bool psc_leaves_early(const struct psc *c);
/* Whether steps sum gradients over a clique. */
bool psc_sums_gradients(const struct psc *c);
/* Waits for the exchange that the step before started. */
int psc_finish_overlapped(struct psc *c);
/* Allocates what steps of the method need. PSC_ENOMEM, PSC_ESYSTEM; PSC_EUNSUPPORTED. */
int psc_step_prepare(struct psc *c);
/* Overlapped exchanges were aborted, or refused as the method changed: their messages become unsent again. */
void psc_take_back(struct psc *c);

/* An explicit call: what it moves. */
struct psc_call {
    const char *call;
    uint8_t kind;       /* enum ps_frame_kind */
    const char *tensor; /* the key; NULL: the whole vector */
    const float *send;  /* NULL: nothing */
    float *answer;      /* NULL: nothing */
    size_t n_samples;
    uint16_t flags; /* of the frames */
    bool sums;      /* without a server: adds up the values of the clique's members */
    bool alone;     /* in a clique the leader makes it for all */
    bool behind;    /* of a list: calls of it come before */
    bool more;      /* of a list: more calls of it follow */
    bool started;   /* the caller waits for it later */
};

/* Whether the rule applies what it sends. */
static inline bool psc_call_is_message(const struct psc_call *h)
{
    return h->kind == PS_FRAME_EXCHANGE || h->kind == PS_FRAME_PUSH;
}

/* The values of a tensor; NULL: the whole vector. */
static inline struct ps_range psc_tensor_scope(const struct psc *c, const struct ps_tensor *t)
{
    return t != NULL ? ps_tensor_range(t) : ps_shard_whole(&c->shard);
}

/* The buffers of the handle. The caller's thread makes one, perhaps while the async thread opens links, which
 * then know it or not. -ENOMEM. */
static inline int psc_buffer_make(struct psc *c, uint32_t at, size_t bytes, struct ps_error *err)
{
    int rc = ps_buffer_alloc(bytes, &c->buffers[at], err);
    if (rc == 0)
        atomic_fetch_or_explicit(&c->has_buffers, 1u << at, memory_order_release);
    return rc;
}

static inline bool psc_has_buffer(const struct psc *c, uint32_t at)
{
    return (atomic_load_explicit(&c->has_buffers, memory_order_acquire) >> at & 1) != 0;
}

/* push_pull.c. Makes the call and waits for it; or starts it. */
int psc_call_now(struct psc *c, const struct psc_call *h);
int psc_call_start(struct psc *c, const struct psc_call *h, uint64_t *ticket);
/* Finds the call's tensor; *out NULL: the whole vector. PSC_EINVAL: the manifest lacks it. */
int psc_call_find_tensor(struct psc *c, const struct psc_call *h, const struct ps_tensor **out);
/* PSC_EINVAL: what the call sends and its answer, of n floats, share memory. */
int psc_call_check_overlap(struct psc *c, const struct psc_call *h, uint64_t n);
/* PSC_EINVAL: a message of a key that is frozen. */
int psc_call_check_moves(struct psc *c, const struct psc_call *h, const struct ps_tensor *t);
/* Checks the call, and makes its transfer. */
int psc_call_make(struct psc *c, const struct psc_call *h, struct psc_transfer *out);
/* The call of one process, which has the session. */
int psc_call_alone(struct psc *c, const struct psc_call *h);
/* Whether every member of a clique makes the call, for the leader to send. */
bool psc_call_is_led(const struct psc *c);

/* leader_call.c. The call of a member of such a clique. */
int psc_group_call(struct psc *c, const struct psc_call *h);
/* Checks that all members of a clique make the same call, which `what` names, and that none has failed (rc:
 * this member's result). *samples, which may be NULL: this member's, then the sum of all. PSC_ECLIQUE names
 * both sides. */
int psc_group_agree_on_call(struct psc *c, const char *what, int rc, float *samples);
/* psc_pushpull without a server: the sum over the members of the clique, but for frozen values. */
int psc_local_pushpull(struct psc *c, const struct psc_call *h);
/* What it would find wrong. */
int psc_local_check(struct psc *c, const struct psc_call *h);

/* psc_pull of the whole vector, by a process that has a session. */
int psc_pull_alone(struct psc *c, float *x);

/* leader_step.c. psc_step, where the leader steps for the clique, after the members' gradients were put into
 * c->group.sum. */
int psc_group_step(struct psc *c, float *x);
/* Changes to the method of the leader's welcome, which has arrived. */
int psc_group_adopt_method(struct psc *c);
/* psc_group.own_step_begins: sends what has moved x, so that all make the program's step from the same x. */
void psc_group_own_step_begins(struct psc *c, float *x);
/* psc_pull of the whole vector, where the leader pulls for the clique. */
int psc_group_pull(struct psc *c, float *x);
/* The leader's message after a call that is no step, with the new method if that has changed since
 * `generation`; returns rc, or why it could not be sent. x: the array that psc_step moves. */
int psc_group_give_result(struct psc *c, int rc, uint32_t generation, float *x);
/* The other members receive it: the leader's rc. */
int psc_group_take_result(struct psc *c, float *x);

#endif
