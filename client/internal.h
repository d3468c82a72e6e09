/* internal.h: struct psc, the handle: the states that the folders own, and declarations for the files of the
 * public API beside this header.
 *
 * Up to three threads use a handle. The caller's thread owns everything
 * that is not named here. The service thread (session/session.h) owns the control socket, and shares struct
 * psc_shared with the others, under its lock. The async thread (transfer/async.h) runs transfers that were
 * started; it is created with the first of them. Whoever runs transfers owns struct psc_transfer_state. */
#ifndef PSC_INTERNAL_H
#define PSC_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/member/member.h"
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
    struct psc_memory *memories[PS_MAX_BUFFERS]; /* owners that free them instead of psc_close; NULL: none */
    struct psc_team *team;                       /* NULL: the caller's thread makes passes alone */
    const struct ps_vec *vec;
    struct ps_manifest *manifest;

    /* The method that steps use. The server's may be newer: method_change.c. */
    uint32_t generation;
    char method_name[32], rule_name[32], clique_codec[16], clique_algorithm[8];
    const struct ps_rule_info *rule_info; /* NULL without a server */
    const struct psc_rule *rule;
    const struct psc_optimizer *optimizer;
    const struct ps_admission_info *admission; /* NULL without a server */
    const struct ps_averaging *averaging;      /* at the worker; NULL with a server, which averages itself */
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

/* step.c. psc_step of a worker that is not a member of a clique. */
int psc_step_alone(struct psc *c, float *x, const float *g, size_t n_samples);
/* Whether parts of the gradient leave before the step ends: into the sum of a clique, or to the server. */
bool psc_leaves_early(const struct psc *c);
/* Waits for the exchange that the step before started. */
int psc_finish_overlapped(struct psc *c);
/* Allocates what steps of the method need. PSC_ENOMEM, PSC_ESYSTEM; PSC_EUNSUPPORTED. */
int psc_step_prepare(struct psc *c);
/* The overlapped exchange was aborted: its message becomes unsent again. */
void psc_take_back(struct psc *c);

/* push_pull.c. psc_pull of the whole vector, by a process that has a session. */
int psc_pull_alone(struct psc *c, float *x);

/* leader_step.c. psc_step, where the leader steps for the clique, after the members' gradients were put into
 * c->group.sum. */
int psc_group_step(struct psc *c, float *x);
/* psc_pull of the whole vector, where the leader pulls for the clique. */
int psc_group_pull(struct psc *c, float *x);
/* Whether the explicit push and pull calls are allowed: PSC_EUNSUPPORTED in a clique. */
int psc_group_check_explicit(struct psc *c, const char *call);

#endif
