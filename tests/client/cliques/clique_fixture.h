/* clique_fixture.h: the members of a clique as threads of a test, and the kinds that the suites run over. */
#ifndef TEST_CLIENT_CLIQUES_CLIQUE_FIXTURE_H
#define TEST_CLIENT_CLIQUES_CLIQUE_FIXTURE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/psclique.h"
#include "tests/support/unit.h"

enum { RIG_MAX_MEMBERS = 8 };

struct rig_kind {
    const char *name;
    const char
        *listen; /* of rings; NULL: threads, which have no options and find each other by being opened */
    uint32_t links, segment_bytes;
    const char *algorithm; /* NULL: ring */
};

/* Kinds of rings: one row each. */
static const struct rig_kind rig_kinds[] = {
    {"ring over tcp", "tcp://127.0.0.1", 1, 65536, NULL},
    {"ring over unix sockets", "unix:", 1, 65536, NULL},
    {"ring with small segments", "unix:", 1, 4096, NULL},
    {"ring with three links", "tcp://127.0.0.1", 3, 4096, NULL},
    {"tree over tcp", "tcp://127.0.0.1", 1, 65536, "tree"},
    {"tree of small segments and three links", "unix:", 3, 4096, "tree"},
    {"ring or tree by size", "unix:", 1, 16384, "auto"},
};
enum { RIG_N_KINDS = (int)ROWS(rig_kinds) + 1 };

/* Every kind: the rings, and threads. */
static inline const struct rig_kind *rig_kind_of(int i)
{
    static const struct rig_kind threads = {"threads", NULL, 0, 0};
    return i < (int)ROWS(rig_kinds) ? &rig_kinds[i] : &threads;
}

struct rig;

struct rig_member {
    struct rig *rig;
    int index; /* of the thread; its rank where the rig gives ranks */
    struct psc_ring_options opt;
    struct psc_clique *q;
    int rc; /* of psc_ring_open */
    void *arg;
    pthread_t thread;
};

struct rig {
    const struct rig_kind *kind;
    int members;
    char dir[64], place[128];
    void (*body)(struct rig_member *m); /* after psc_ring_open, whatever it returned */
    struct rig_member member[RIG_MAX_MEMBERS];
};

static inline void rig_init(struct rig *r, const struct rig_kind *kind, int members,
                            void (*body)(struct rig_member *m), void *arg)
{
    memset(r, 0, sizeof *r);
    r->kind = kind;
    r->members = members;
    r->body = body;
    strcpy(r->dir, "/tmp/psd-clique-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(r->dir));
    snprintf(r->place, sizeof r->place, "file:%s/ring", r->dir);
    for (int i = 0; i < RIG_MAX_MEMBERS; i++) {
        struct rig_member *m = &r->member[i];
        m->rig = r;
        m->index = i;
        m->arg = arg;
        psc_ring_options_init(&m->opt, sizeof m->opt);
        m->opt.members = (uint32_t)members;
        m->opt.rank = i;
        m->opt.rendezvous = r->place;
        m->opt.listen = kind->listen;
        m->opt.links = kind->links;
        m->opt.segment_bytes = kind->segment_bytes;
        m->opt.algorithm = kind->algorithm != NULL ? kind->algorithm : "ring";
        m->opt.timeout_ms = 60000;
    }
    if (kind->listen == NULL) {
        struct psc_clique *cliques[RIG_MAX_MEMBERS];
        struct psc_threads_options opt;
        psc_threads_options_init(&opt, sizeof opt);
        opt.members = (uint32_t)members;
        ck_assert_int_eq(psc_threads_open(&opt, cliques), PSC_OK);
        for (int i = 0; i < members; i++)
            r->member[i].q = cliques[i];
    }
}

static inline void *rig_thread(void *arg)
{
    struct rig_member *m = arg;
    if (m->rig->kind->listen != NULL)
        m->rc = psc_ring_open(&m->opt, &m->q);
    m->rig->body(m);
    psc_clique_close(m->q);
    return NULL;
}

/* Starts thread i, and waits for all that were started. */
static inline void rig_start(struct rig *r, int i)
{
    ck_assert_int_eq(pthread_create(&r->member[i].thread, NULL, rig_thread, &r->member[i]), 0);
}

static inline void rig_join(struct rig *r, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(r->member[i].thread, NULL);
}

/* Everything left at the rendezvous is a fault. */
static inline void rig_finish(struct rig *r)
{
    ck_assert_msg(rmdir(r->dir) == 0, "the rendezvous left files in %s", r->dir);
}

static inline void rig_run(const struct rig_kind *kind, int members, void (*body)(struct rig_member *m),
                           void *arg)
{
    struct rig r;
    rig_init(&r, kind, members, body, arg);
    for (int i = 0; i < members; i++)
        rig_start(&r, i);
    rig_join(&r, members);
    rig_finish(&r);
}

#define rig_ok(m, call)                                                                                      \
    do {                                                                                                     \
        int rig_rc = (call);                                                                                 \
        if (rig_rc != PSC_OK)                                                                                \
            ck_abort_msg("rank %d: %s: %s: %s", (m)->index, #call, psc_result_name(rig_rc),                  \
                         psc_clique_error((m)->q));                                                          \
    } while (0)

#endif
