/* clique_crowd.h: members of cliques as threads of a test that drives time (tests/support/driven_clock.h). */
#ifndef TEST_CLIENT_CLIQUES_CLIQUE_CROWD_H
#define TEST_CLIENT_CLIQUES_CLIQUE_CROWD_H

#include <stdbool.h>

#include "tests/client/cliques/clique_fixture.h"
#include "tests/support/driven_clock.h"

/* Who waits by the clock: the threads, but those that stepped aside to wait for the test; strangers; and the
 * beats of the members' rings, which are counted as they start and stop. */
struct crowd {
    pthread_t threads[RIG_MAX_MEMBERS];
    bool ended[RIG_MAX_MEMBERS];
    int n;
    _Atomic int aside, strangers, beats;
};

extern struct crowd crowd;

/* A test_clock_threads_fn. */
int crowd_acting(void *arg);
void crowd_join(pthread_t thread);
/* Thread i of the rig. */
void crowd_start(struct rig *r, int i);
/* Time goes on until all have ended, but those that are aside. */
void crowd_drive(void);
void crowd_run(const struct rig_kind *kind, int members, void (*body)(struct rig_member *m), void *arg);

/* The calling member's beat stops: as far as the others see, its process does. */
void crowd_stand_still(void);

struct psc_ring;
/* The calling member's. */
struct psc_ring *crowd_own_ring(void);

/* A member ends up here with its failure: the clique stays broken, and says why. */
void crowd_expect_failure(struct rig_member *m, int rc, const char *const *says, size_t n);

#endif
