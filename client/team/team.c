#include "client/team/team.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/thread.h"

/* Pieces begin at cache lines, if the vector does. */
#define LINE_FLOATS 16

struct member {
    struct psc_team *team;
    uint32_t index; /* from 1; the caller is 0 */
    pthread_t thread;
    sem_t wanted;
};

struct psc_team {
    atomic_flag is_taken;
    /* The current pass: written before `wanted` is posted, and read after. */
    psc_pass *pass;
    void *arg;
    uint64_t n;
    bool ends;
    sem_t done;
    uint32_t threads; /* with the caller's */
    uint32_t n_started;
    struct member members[];
};

static void make_piece(const struct psc_team *t, uint32_t index)
{
    uint64_t lines = (t->n + LINE_FLOATS - 1) / LINE_FLOATS;
    uint64_t begin = lines * index / t->threads * LINE_FLOATS;
    uint64_t end = index + 1 == t->threads ? t->n : lines * (index + 1) / t->threads * LINE_FLOATS;

    t->pass(t->arg, begin, end - begin);
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s) < 0 && errno == EINTR)
        ;
}

static void *serve(void *arg)
{
    struct member *m = arg;

    for (;;) {
        wait_for(&m->wanted);
        if (m->team->ends)
            return NULL;
        make_piece(m->team, m->index);
        sem_post(&m->team->done);
    }
}

int psc_team_create(uint32_t threads, struct psc_team **out)
{
    struct psc_team *t = calloc(1, sizeof *t + (threads - 1) * sizeof t->members[0]);
    int rc = 0;

    if (t == NULL)
        return -ENOMEM;
    atomic_flag_clear(&t->is_taken);
    t->threads = threads;
    sem_init(&t->done, 0, 0);
    while (t->n_started + 1 < threads && rc == 0) {
        struct member *m = &t->members[t->n_started];
        m->team = t;
        m->index = t->n_started + 1;
        sem_init(&m->wanted, 0, 0);
        rc = -ps_thread_create(&m->thread, serve, m);
        if (rc == 0)
            t->n_started++;
        else
            sem_destroy(&m->wanted);
    }
    if (rc < 0)
        psc_team_destroy(t);
    else
        *out = t;
    return rc;
}

void psc_team_destroy(struct psc_team *t)
{
    if (t == NULL)
        return;
    t->ends = true;
    for (uint32_t i = 0; i < t->n_started; i++)
        sem_post(&t->members[i].wanted);
    for (uint32_t i = 0; i < t->n_started; i++) {
        pthread_join(t->members[i].thread, NULL);
        sem_destroy(&t->members[i].wanted);
    }
    sem_destroy(&t->done);
    free(t);
}

void psc_team_run(struct psc_team *t, uint64_t n, psc_pass *pass, void *arg)
{
    if (t == NULL || n < PSC_TEAM_FLOATS || atomic_flag_test_and_set(&t->is_taken)) {
        pass(arg, 0, n);
        return;
    }
    t->pass = pass;
    t->arg = arg;
    t->n = n;
    for (uint32_t i = 0; i < t->n_started; i++)
        sem_post(&t->members[i].wanted);
    make_piece(t, 0);
    for (uint32_t i = 0; i < t->n_started; i++)
        wait_for(&t->done);
    atomic_flag_clear(&t->is_taken);
}
