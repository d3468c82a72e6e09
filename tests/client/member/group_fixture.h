/* group_fixture.h: cliques of workers whose members are threads: circles (tests/support/thread_clique.h),
 * another kind for threads, or a ring. */
#ifndef TEST_CLIENT_MEMBER_GROUP_FIXTURE_H
#define TEST_CLIENT_MEMBER_GROUP_FIXTURE_H

#include <pthread.h>

#include "tests/client/psd_fixture.h"
#include "tests/support/thread_clique.h"

enum { N = RIG_N, STEPS = 12, MOST = 4 };

struct run;

struct member {
    struct run *run;
    int rank, rc;
    struct psc_clique *clique;
    struct psc *c;
    float x[N], g[N];
    float v[N]; /* of run.own_step */
    int own_steps;
    char error[600];
    pthread_t thread;
};

/* What all members of one clique do. */
struct run {
    const char *server; /* NULL: `local` */
    struct psc_local local;
    const struct psc_tensor *model[MOST];
    uint32_t salt; /* of gradients; 0: all members' are alike */
    int members, steps;
    bool of_one;                                       /* a clique, of one member */
    int (*open)(int members, struct psc_clique **out); /* NULL: circle_open */
    const char *ring;                                  /* the real ring, which meets there */
    const char *algorithm;                             /* of it; NULL: as by default */
    uint32_t links, segment_bytes;                     /* of it; 0: 2 links, segments as by default */
    const char *on_loss;                               /* of it; NULL: as by default */
    int leaves_at[MOST];         /* the member closes its handles before this step; 0: it does not */
    uint64_t bucket_floats_of_1; /* those of member 1, if it differs; 0: as `local` has it */
    size_t samples[MOST];
    uint64_t samples_per_epoch;
    int (*step)(struct member *m, size_t n_samples); /* NULL: psc_step */
    int (*before)(struct member *m, int t);          /* the step; a result that is not PSC_OK ends the run */
    int (*after)(struct member *m);
    void (*own_step)(void *member, float *x, const float *g, double rate); /* psc_options.own_step */
    struct member member[MOST];
};

/* The member's gradient at its x and clock, into g. */
void run_gradient(const struct member *m, float *g);
/* One of three that are used in turn, with its defaults; method: without a server. */
struct run *run_of(const char *method, int members);
/* For run.before: moves the buffers, each member's by another amount, as a caller's statistics do. */
int run_move_buffers(struct member *m, int t);
void run_start(struct run *r);
void run_end(struct run *r);
/* Both, and every member must end well. */
void run_go(struct run *r);
void run_assert_same_x(const struct run *r);

#endif
