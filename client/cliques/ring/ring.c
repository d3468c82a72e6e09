/* Opening and closing a ring. */
#include "client/cliques/ring/tree.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/cliques/rendezvous/rendezvous.h"
#include "client/session/errors.h"
#include "proto/clock.h"

static const double farewell_s = 0.2; /* for the others to read the error */

enum { MIN_SEGMENT = 4096, MAX_SEGMENT = 4 << 20 };

void psc_ring_options_init(struct psc_ring_options *opt, size_t size)
{
    const struct psc_ring_options defaults = {.size = size,
                                              .members = 1,
                                              .rank = -1,
                                              .name = "0",
                                              .listen = "tcp://127.0.0.1",
                                              .links = 1,
                                              .timeout_ms = 60000,
                                              .step_ms = 3600000,
                                              .algorithm = "ring",
                                              .on_loss = "end"};
    memset(opt, 0, size);
    memcpy(opt, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

static int number(const char *what, uint32_t v, uint32_t min, uint32_t max, struct ps_error *err)
{
    return v >= min && v <= max
               ? PSC_OK
               : ps_fail(err, PSC_EINVAL, "ring: %s is %u; allowed are %u to %u", what, v, min, max);
}

/* The name becomes part of a file name. */
static int check_name(const char *name, struct ps_error *err)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] == 127 || name[i] == '/')
            return ps_fail(err, PSC_EINVAL,
                           "ring: name '%.64s'; allowed are letters, digits and signs except /", name);
    return len >= 1 && len < PSC_NAME_BYTES
               ? PSC_OK
               : ps_fail(err, PSC_EINVAL, "ring: name has %zu bytes; allowed are 1 to %d", len,
                         PSC_NAME_BYTES - 1);
}

static int take_options(const struct psc_ring_options *given, struct psc_ring_options *opt,
                        struct ps_error *err)
{
    int rc;
    psc_ring_options_init(opt, sizeof *opt);
    if (given == NULL || given->size < offsetof(struct psc_ring_options, name) || given->size > 4096)
        return ps_fail(err, PSC_EINVAL, "ring: call psc_ring_options_init first");
    if ((rc = psc_take_struct(opt, sizeof *opt, given, given->size, "ring", err)) != PSC_OK ||
        (rc = number("members", opt->members, 1, PSC_MAX_MEMBERS, err)) != PSC_OK ||
        (rc = number("links", opt->links, 1, PSC_MAX_LINKS, err)) != PSC_OK ||
        (opt->segment_bytes != 0 &&
         (rc = number("segment_bytes", opt->segment_bytes, MIN_SEGMENT, MAX_SEGMENT, err)) != PSC_OK) ||
        (rc = number("timeout_ms", opt->timeout_ms, PSC_MIN_TIMEOUT_MS, PSC_MAX_TIMEOUT_MS, err)) != PSC_OK ||
        (rc = number("step_ms", opt->step_ms, PSC_MIN_TIMEOUT_MS, PSC_MAX_TIMEOUT_MS, err)) != PSC_OK)
        return rc;
    if (opt->rank < -1 || opt->rank >= (int32_t)opt->members)
        return ps_fail(err, PSC_EINVAL, "ring: rank is %d; allowed are 0 to %u, and -1 for any", opt->rank,
                       opt->members - 1);
    if (opt->name == NULL || opt->listen == NULL || (opt->members > 1 && opt->rendezvous == NULL))
        return ps_fail(err, PSC_EINVAL, "ring: %s is missing",
                       opt->name == NULL     ? "name"
                       : opt->listen == NULL ? "listen"
                                             : "rendezvous");
    if (opt->algorithm == NULL || psc_algorithm_find(opt->algorithm) < 0)
        return ps_fail(err, PSC_EINVAL, "ring: algorithm is '%.32s'; allowed are ring, tree and auto",
                       opt->algorithm != NULL ? opt->algorithm : "");
    if (opt->on_loss == NULL || (strcmp(opt->on_loss, "end") != 0 && strcmp(opt->on_loss, "shrink") != 0))
        return ps_fail(err, PSC_EINVAL, "ring: on_loss is '%.32s'; allowed are end and shrink",
                       opt->on_loss != NULL ? opt->on_loss : "");
    return check_name(opt->name, err);
}

static void give_up(void *state)
{
    struct psc_ring *r = state;
    r->given_up = true;
    eventfd_write(r->stop_fd, 1);
}

void psc_ring_disconnect(struct psc_ring *r)
{
    int fds[2 * PSC_MAX_LINKS + PSC_BEAT_PEERS];
    eventfd_t count;
    psc_beat_stop(&r->beat);
    for (uint32_t i = 0; i < r->links; i++) {
        fds[2 * i] = r->link[i].next;
        fds[2 * i + 1] = r->link[i].prev;
        r->link[i].next = r->link[i].prev = -1;
    }
    for (uint32_t i = 0; i < PSC_BEAT_PEERS; i++)
        fds[2 * r->links + i] = r->beat.peer[i].fd;
    psc_close_gently(fds, 2 * r->links + PSC_BEAT_PEERS, r->broken ? farewell_s : 0);
    psc_tree_destroy(r->tree, r->links, 0); /* its neighbours had the same time to read */
    r->tree = NULL;
    psc_beat_finish(&r->beat);
    psc_beat_init(&r->beat);
    if (r->stop_fd >= 0) {
        eventfd_read(r->stop_fd, &count); /* what the beat wrote; give_up is for ever */
        if (r->given_up)
            eventfd_write(r->stop_fd, 1);
    }
    r->broken = false;
    r->suspect = 0;
    r->seq = 0;
    r->algorithm = PSC_ALGORITHM_RING;
}

static void destroy(void *state)
{
    struct psc_ring *r = state;
    psc_ring_disconnect(r);
    psc_beat_finish(&r->beat);
    psc_survival_end(r->survival);
    for (uint32_t i = 0; i < r->links; i++) {
        free(r->link[i].bounce);
        free(r->link[i].staging);
        free(r->link[i].store);
    }
    if (r->stop_fd >= 0)
        close(r->stop_fd);
    free(r);
}

static int run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct psc_ring *r = state;
    int rc = psc_ring_run(r, op, err);
    r->broken = r->broken || rc != PSC_OK;
    return rc;
}

/* In the tree the sum of a float does not depend on its place in the vector, so a stripe is a codec's block.
 * With `auto` the bits depend on the lengths of the calls. */
static size_t stripe(const void *state)
{
    const struct psc_ring *r = state;
    switch (r->algorithm) {
    case PSC_ALGORITHM_RING:
        return psc_ring_stripe(r);
    case PSC_ALGORITHM_TREE:
        return psc_segment_units(r, PSC_FLOAT32, 1);
    default:
        return 1;
    }
}

static int use(void *state, uint8_t algorithm, struct ps_error *err)
{
    struct psc_ring *r = state;
    return algorithm == r->algorithm ? PSC_OK : psc_ring_use(r, algorithm, err);
}

static int shrink(void *state, uint64_t step, uint32_t timeout_ms, struct psc_shrunk *out, int *rank,
                  int *members, struct ps_error *err)
{
    struct psc_ring *r = state;
    int rc = psc_ring_shrink(r, step, timeout_ms, out, err);
    if (rc == PSC_OK) {
        out->lost = (uint32_t)*members - r->members;
        *rank = (int)r->rank;
        *members = (int)r->members;
    }
    return rc;
}

static int look(void *state, const struct psc_collective *op, const char *failed, struct ps_error *err)
{
    struct psc_ring *r = state;
    int rc = psc_ring_look(r, op, failed, err);
    r->broken = r->broken || rc != PSC_OK;
    return rc;
}

static uint32_t patience_ms(const void *state)
{
    const struct psc_ring *r = state;
    return r->survival != NULL ? r->timeout_ms : 0;
}

static const struct psc_clique_ops psc_clique_ring = {.size = sizeof(struct psc_clique_ops),
                                                      .name = "ring",
                                                      .any_thread = true,
                                                      .run = run,
                                                      .stripe = stripe,
                                                      .use = use,
                                                      .shrink = shrink,
                                                      .look = look,
                                                      .patience_ms = patience_ms,
                                                      .give_up = give_up,
                                                      .destroy = destroy};

/* Whether this machine has a core for each member, if all are on it. */
static bool has_cores(uint32_t members)
{
    cpu_set_t own;
    return sched_getaffinity(0, sizeof own, &own) < 0 /* it has more cores than the set */ ||
           (uint32_t)CPU_COUNT(&own) >= members;
}

static struct psc_ring *create(const struct psc_ring_options *opt, struct ps_error *err)
{
    struct psc_ring *r = calloc(1, sizeof *r);
    if (r == NULL) {
        ps_fail(err, PSC_ENOMEM, "no memory for a ring");
        return NULL;
    }
    snprintf(r->name, sizeof r->name, "%s", opt->name);
    snprintf(r->listen, sizeof r->listen, "%s", opt->listen);
    r->members = opt->members;
    r->links = opt->links;
    r->segment_bytes = opt->segment_bytes > 0 ? opt->segment_bytes : psc_segment_default(opt->members);
    r->has_cores = has_cores(opt->members);
    r->timeout_ms = opt->timeout_ms;
    r->step_ms = opt->step_ms > opt->timeout_ms ? opt->step_ms : opt->timeout_ms;
    psc_beat_init(&r->beat);
    bool whole = true;
    for (uint32_t i = 0; i < r->links; i++) {
        struct psc_ring_link *l = &r->link[i];
        l->next = l->prev = -1;
        l->bounce = malloc(r->segment_bytes);
        l->staging = malloc(r->segment_bytes);
        whole = whole && l->bounce != NULL && l->staging != NULL;
    }
    r->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (whole && r->stop_fd >= 0)
        return r;
    ps_fail(err, PSC_ESYSTEM, "no memory or no descriptors for a ring: %s", strerror(errno));
    destroy(r);
    return NULL;
}

/* The ring is connected. */
static int start_beat(struct psc_ring *r, struct ps_error *err)
{
    struct psc_beat *b = &r->beat;
    b->name = r->name;
    b->rank = r->rank;
    b->timeout_ms = r->timeout_ms;
    b->news_fd = r->stop_fd;
    b->peer[PSC_BEAT_NEXT].rank = psc_ring_next(r);
    b->peer[PSC_BEAT_PREV].rank = psc_ring_prev(r);
    return psc_beat_start(b, err);
}

int psc_ring_connect(struct psc_ring *r, int listen_fd, const char *next, double deadline_s,
                     struct ps_error *err)
{
    int rc = psc_ring_join(r, listen_fd, next, deadline_s, err);
    if (rc == PSC_OK)
        rc = start_beat(r, err);
    /* A barrier: no member returns before all are connected. */
    rc = rc == PSC_OK ? run(r, &(struct psc_collective){.kind = PSC_BARRIER}, err) : rc;
    return rc;
}

/* Finds the other members and connects to the neighbours. */
static int meet(struct psc_ring *r, const struct psc_ring_options *opt, struct ps_error *err)
{
    struct psc_meeting m = {.name = r->name,
                            .members = r->members,
                            .links = r->links,
                            .segment_bytes = r->segment_bytes,
                            .algorithm = (uint8_t)psc_algorithm_find(opt->algorithm),
                            .shrinks = strcmp(opt->on_loss, "shrink") == 0,
                            .timeout_ms = r->timeout_ms,
                            .deadline_s = ps_now_s() + r->timeout_ms * 1e-3,
                            .rank = opt->rank,
                            .stop_fd = r->stop_fd};
    struct ps_error why = {""};
    struct psc_proof proof;
    int rc = psc_proof_read(opt->key_file, opt->server_key, &proof, err);
    if (rc != PSC_OK)
        return rc;
    m.proof = &proof;
    const struct psc_rendezvous *row = psc_rendezvous_find(opt->rendezvous, &m.place, err);
    if (row == NULL)
        return PSC_EINVAL;
    rc = psc_listen(opt->listen, &m.listen_fd, m.address, err);
    if (rc < 0)
        return rc == -EINVAL ? PSC_EINVAL : PSC_ESYSTEM;
    if ((rc = row->meet(&m, &why)) == 0) {
        r->rank = (uint32_t)m.own_rank;
        r->job = m.job;
        r->wanted = m.algorithm;
        r->shrinks = m.shrinks;
        rc = psc_ring_connect(r, m.listen_fd, m.next, m.deadline_s, err);
    } else {
        rc = ps_fail(err,
                     rc == -EINVAL   ? PSC_EINVAL
                     : rc == -EACCES ? PSC_EAUTH
                     : rc == -ENOMEM ? PSC_ENOMEM
                                     : PSC_ECLIQUE,
                     "clique %s at %.100s: %s", r->name, opt->rendezvous, why.text);
    }
    if (rc == PSC_OK && m.shrinks)
        rc = psc_survival_begin(r, m.listen_fd, m.address, err);
    if (r->survival == NULL)
        close(m.listen_fd);
    explicit_bzero(&proof, sizeof proof);
    return rc == PSC_OK && r->wanted != PSC_ALGORITHM_RING ? psc_ring_use(r, r->wanted, err) : rc;
}

static int open_ring(const struct psc_ring_options *given, struct psc_clique **out, struct ps_error *err)
{
    struct psc_ring_options opt;
    struct psc_ring *r;
    int rc = take_options(given, &opt, err);
    if (rc != PSC_OK)
        return rc;
    if ((r = create(&opt, err)) == NULL)
        return PSC_ENOMEM;
    if (opt.members > 1 && (rc = meet(r, &opt, err)) != PSC_OK) {
        destroy(r);
        return rc;
    }
    return psc_clique_create(&psc_clique_ring, r, (int)r->rank, (int)r->members, out);
}

int psc_ring_open(const struct psc_ring_options *opt, struct psc_clique **out)
{
    struct ps_error err = {""};
    *out = NULL;
    int rc = open_ring(opt, out, &err);
    if (rc != PSC_OK && *out == NULL)
        *out = psc_clique_failed(&err);
    return rc;
}
