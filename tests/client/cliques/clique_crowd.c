#include "tests/client/cliques/clique_crowd.h"

#include "client/cliques/ring/ring.h"

struct crowd crowd;
static _Thread_local struct psc_beat *own_beat; /* of the member that the thread is */

int crowd_acting(void *arg)
{
    int living = 0;
    (void)arg;
    for (int i = 0; i < crowd.n; i++) {
        crowd.ended[i] = crowd.ended[i] || pthread_tryjoin_np(crowd.threads[i], NULL) == 0;
        living += !crowd.ended[i];
    }
    return living > crowd.aside ? living - crowd.aside + crowd.strangers + crowd.beats : 0;
}

void crowd_join(pthread_t thread)
{
    crowd.threads[crowd.n++] = thread;
}

void crowd_start(struct rig *r, int i)
{
    rig_start(r, i);
    crowd_join(r->member[i].thread);
}

void crowd_drive(void)
{
    test_clock_drive(crowd_acting, NULL);
    crowd.n = crowd.aside > 0 ? crowd.n : 0;
    if (crowd.n == 0)
        memset(crowd.ended, 0, sizeof crowd.ended);
}

void crowd_run(const struct rig_kind *kind, int members, void (*body)(struct rig_member *m), void *arg)
{
    struct rig r;
    rig_init(&r, kind, members, body, arg);
    for (int i = 0; i < members; i++)
        crowd_start(&r, i);
    crowd_drive();
    rig_finish(&r);
}

void crowd_expect_failure(struct rig_member *m, int rc, const char *const *says, size_t n)
{
    ck_assert_msg(rc == PSC_ECLIQUE, "rank %d: %s: %s", m->index, psc_result_name(rc),
                  psc_clique_error(m->q));
    for (size_t i = 0; i < n; i++)
        assert_says(psc_clique_error(m->q), says[i]);
    char first[600];
    snprintf(first, sizeof first, "%s", psc_clique_error(m->q));
    ck_assert_int_eq(psc_barrier(m->q), PSC_ECLIQUE);
    ck_assert_str_eq(psc_clique_error(m->q), first);
    ck_assert_int_eq(psc_barrier_start(m->q, NULL), PSC_ECLIQUE);
    ck_assert_int_eq(psc_clique_wait(m->q, 0), PSC_ECLIQUE);
    ck_assert_str_eq(psc_clique_error(m->q), first);
}

/* Its thread waits by the clock from now on; it is none of the test's. */
int __wrap_psc_beat_start(struct psc_beat *b, struct ps_error *err);
int __real_psc_beat_start(struct psc_beat *b, struct ps_error *err);
void __wrap_psc_beat_stop(struct psc_beat *b);
void __real_psc_beat_stop(struct psc_beat *b);

int __wrap_psc_beat_start(struct psc_beat *b, struct ps_error *err)
{
    crowd.beats++;
    int rc = __real_psc_beat_start(b, err);
    if (rc != PSC_OK)
        crowd.beats--;
    own_beat = b;
    return rc;
}

void __wrap_psc_beat_stop(struct psc_beat *b)
{
    bool ran = b->runs;
    __real_psc_beat_stop(b);
    crowd.beats -= ran;
}

void crowd_stand_still(void)
{
    psc_beat_stop(own_beat);
}

struct psc_ring *crowd_own_ring(void)
{
    return (struct psc_ring *)((char *)own_beat - offsetof(struct psc_ring, beat));
}
