/* members.h: cliques of processes, whose vectors lie on the host, over a ring that sums by a tree, or on the
 * device, over NCCL's stand-in: both sum in the order of a binomial tree over the ranks. */
#ifndef TEST_CUDA_MEMBERS_H
#define TEST_CUDA_MEMBERS_H

#include "client/psclique_nccl.h"
#include "tests/client/psd_fixture.h"

enum { N = RIG_N, STEPS = 8, MOST_MEMBERS = 4, MOST_SETTINGS = 8 };

/* What all members do. */
struct row {
    const char *name, *settings[MOST_SETTINGS];
    const char *local; /* a method without a server; no settings then */
    uint32_t pipeline; /* of it; 0: its default */
    bool parts;        /* the gradient is reported in parts, from the end */
};

struct member {
    const struct row *row;
    const char *server; /* NULL: the row has none */
    const char *meets;  /* the rendezvous; NULL: no clique */
    int rank, members;
    bool on_device;
    uint32_t timeout_ms;
    struct psc_clique *q;
    struct psc *c;
    float *x, *g;
};

/* What a member's process leaves to its parent. */
struct trace {
    int rc; /* of the call that ended it; PSC_OK: all steps */
    char error[600];
    float x[N], own[N], center[N];
};

/* Memory that the processes share; until the test's process ends. */
struct trace *members_share(void);
/* Runs `run` once for each member, in a process of its own, and waits for all. Fails if one does not exit
 * with 0; `killed`: that one ends by SIGKILL instead; -1: none. */
void members_run(int members, int killed, void (*run)(int rank, void *arg), void *arg);

/* The same with threads of this process. Member r has device r. */
void members_run_threads(int members, void (*run)(int rank, void *arg), void *arg);

/* For a member's process or thread: fail the test with the sentence if something does not work. */
void member_open_clique(struct member *m);
void member_open(struct member *m);
void member_begin(struct member *m);
/* A step with gradients that depend on rank and t: psc_step's result. */
int member_step(struct member *m, int t);
/* All steps, then x, the member's own x and the center into out. */
void member_train(struct member *m, struct trace *out);
void member_close(struct member *m);

#endif
