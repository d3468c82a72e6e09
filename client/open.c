/* Opening, joining and leaving. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/cliques/clique.h"
#include "client/internal.h"
#include "client/worker/worker.h"
#include "proto/clock.h"
#include "proto/random.h"

void psc_options_init_sized(struct psc_options *opt, size_t size, size_t tensor_size)
{
    const struct psc_options defaults = {.size = size,
                                         .kind = PSC_WORKER,
                                         .rank = -1,
                                         .timeout_ms = 60000,
                                         .retry_ms = 2000,
                                         .heartbeat_ms = 1000,
                                         .tensor_size = tensor_size};
    memset(opt, 0, size);
    memcpy(opt, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

void(psc_options_init)(struct psc_options *opt, size_t size)
{
    psc_options_init_sized(opt, size, 0);
}

static char *default_name(void)
{
    char host[HOST_NAME_MAX + 1] = "host", name[HOST_NAME_MAX + 32];
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s:%d", host, (int)getpid());
    return strdup(name);
}

enum { SHOWN_BYTES = 256 };

/* Answers to heartbeats are all that is heard of a server while nothing is asked of it: timeout_ms has room
 * for so many at least. */
enum { BEATS_WITHIN_TIMEOUT = 3 };

/* Cuts a text for the server's pages to fit into a Hello, which is a small message. */
static char *shown_copy(const char *text)
{
    return strndup(text != NULL ? text : "", SHOWN_BYTES);
}

/* Size of struct psc_tensor in its first version, and the largest that is accepted. */
enum { FIRST_TENSOR_BYTES = 96, MAX_TENSOR_BYTES = 4096 };
_Static_assert(sizeof(struct psc_tensor) >= FIRST_TENSOR_BYTES, "public structs only grow");

/* rdma is accepted even if the library was built without it: then no server's offer matches. */
static bool is_transport(const char *name)
{
    static const char *const names[] = {"tcp", "ipc", "shm", "rdma"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Members sum their vectors where these lie. */
static int check_clique(struct psc *c, const struct psc_memory_kind *kind, const struct psc_clique *clique)
{
    bool has_device = kind->open != NULL;
    if (clique == NULL || psc_clique_size(clique) <= 1 || psc_clique_is_on_device(clique) == has_device)
        return PSC_OK;
    return ps_fail(&c->error, PSC_EUNSUPPORTED,
                   has_device
                       ? "options: a clique of %d members over %s sums vectors of the host only; allowed "
                         "with memory '%s': a clique over nccl, no clique, or a clique of one"
                       : "options: a clique of %d members over %s sums vectors of a GPU only, and memory "
                         "is '%s'; allowed with it: memory 'cuda'",
                   psc_clique_size(clique), psc_clique_kind(clique), kind->name);
}

/* Finds the kind of memory, and opens its device. */
static int take_memory(struct psc *c, const char *name, const struct psc_clique *clique)
{
    struct psc_device_options opt = {.stream = c->opt.stream, .timeout_ms = c->opt.timeout_ms};
    const struct psc_memory_kind *kind = NULL;
    int rc = psc_memory_find(name, &kind, &c->error);
    if (rc != PSC_OK)
        return rc;
    if ((rc = check_clique(c, kind, clique)) != PSC_OK)
        return rc;
    if (kind->open == NULL)
        return opt.stream == NULL
                   ? PSC_OK
                   : ps_fail(&c->error, PSC_EINVAL, "options: stream is for memory 'cuda'; memory is '%s'",
                             kind->name);
    if (c->opt.kind != PSC_WORKER)
        return ps_fail(&c->error, PSC_EUNSUPPORTED,
                       "options: memory '%s' is for workers; allowed for an observer: host", kind->name);
    rc = kind->open(&opt, &c->memory.device, &c->error);
    if (rc < 0)
        return rc == -ENOTSUP ? PSC_EUNSUPPORTED : psc_device_result(rc);
    c->memory.kind = kind;
    c->memory.own_stream = opt.stream == NULL;
    c->work = psc_work_of(&c->memory, PSC_COMPUTE);
    c->transfer_state.work = psc_work_of(&c->memory, PSC_UP);
    return PSC_OK;
}

static int check_options(struct psc *c, const struct psc_options *opt)
{
    if (opt->local != NULL && (opt->server != NULL || opt->kind != PSC_WORKER || opt->key_file != NULL))
        return ps_fail(&c->error, PSC_EINVAL,
                       "options: local is allowed only for a worker, without server and key_file");
    if (opt->local == NULL && (opt->server == NULL || opt->server[0] == 0 || strlen(opt->server) > 500))
        return ps_fail(&c->error, PSC_EINVAL,
                       "options: server is missing; allowed are tcp://HOST:PORT, ipc://PATH and @FILE");
    if (opt->kind != PSC_WORKER && opt->kind != PSC_OBSERVER)
        return ps_fail(&c->error, PSC_EINVAL, "options: kind %d; allowed are PSC_WORKER and PSC_OBSERVER",
                       opt->kind);
    if (strcmp(opt->transport, "auto") != 0 && !is_transport(opt->transport))
        return ps_fail(&c->error, PSC_EINVAL,
                       "options: transport '%.40s'; allowed are auto, tcp, ipc, shm and rdma",
                       opt->transport);
    if (opt->rank < -1 || opt->rank > 1023)
        return ps_fail(&c->error, PSC_EINVAL, "options: rank %d; allowed are 0 to 1023, and -1 for any",
                       opt->rank);
    if (opt->timeout_ms < 100 || opt->retry_ms < 10 || opt->heartbeat_ms < 10)
        return ps_fail(
            &c->error, PSC_EINVAL,
            "options: timeout_ms %u, retry_ms %u, heartbeat_ms %u; allowed are at least 100, 10, 10",
            opt->timeout_ms, opt->retry_ms, opt->heartbeat_ms);
    if (opt->threads > PSC_MAX_THREADS)
        return ps_fail(&c->error, PSC_EINVAL, "options: threads %u; allowed are 0 to %d", opt->threads,
                       PSC_MAX_THREADS);
    if (opt->tensor_size < FIRST_TENSOR_BYTES || opt->tensor_size > MAX_TENSOR_BYTES)
        return ps_fail(&c->error, PSC_EINVAL, "options: tensor_size %zu; allowed are %d to %d, and 0",
                       opt->tensor_size, FIRST_TENSOR_BYTES, MAX_TENSOR_BYTES);
    return PSC_OK;
}

/* Copies the members that the caller's version of the struct has. *local and *clique are the caller's. */
static int take_options(struct psc *c, const struct psc_options *given, const struct psc_local **local,
                        struct psc_clique **clique)
{
    struct psc_options *opt = &c->opt;
    psc_options_init_sized(opt, sizeof *opt, 0);
    if (given == NULL || given->size < offsetof(struct psc_options, kind) || given->size > 4096)
        return ps_fail(&c->error, PSC_EINVAL, "options: call psc_options_init first");
    struct psc_options asked = *opt;
    int rc = psc_take_struct(&asked, sizeof asked, given, given->size, "options", &c->error);
    if (rc != PSC_OK)
        return rc;
    asked.size = sizeof asked;
    if (asked.transport == NULL)
        asked.transport = "auto";
    if (asked.tensor_size == 0)
        asked.tensor_size = FIRST_TENSOR_BYTES;
    *opt = asked;
    /* The handle frees its strings: until they are copied it has none. */
    opt->server = opt->name = opt->net = opt->data = NULL;
    opt->key_file = opt->server_key = opt->transport = opt->memory = NULL;
    opt->local = NULL;
    opt->clique = NULL;
    *clique = asked.clique;
    if ((rc = check_options(c, &asked)) != PSC_OK)
        return rc;
    uint32_t often_ms = opt->timeout_ms / BEATS_WITHIN_TIMEOUT;
    opt->heartbeat_ms = opt->heartbeat_ms < often_ms ? opt->heartbeat_ms : often_ms;
    snprintf(c->transport, sizeof c->transport, "%s", asked.transport);
    if ((rc = take_memory(c, asked.memory, *clique)) != PSC_OK)
        return rc;
    rc = psc_proof_read(asked.key_file, asked.server_key, &c->session.proof, &c->error);
    if (rc != PSC_OK)
        return rc;
    opt->server = strdup(asked.server != NULL ? asked.server : "");
    opt->name = asked.name != NULL ? strdup(asked.name) : default_name();
    opt->net = shown_copy(asked.net);
    opt->data = shown_copy(asked.data);
    *local = asked.local;
    bool all = opt->server != NULL && opt->name != NULL && opt->net != NULL && opt->data != NULL;
    return all ? PSC_OK : ps_fail(&c->error, PSC_ENOMEM, "no memory for the options");
}

bool psc_is_open(const struct psc *c)
{
    return c->session.runs || c->local || c->group.follows;
}

static int shared_init(struct psc *c)
{
    pthread_mutex_init(&c->session.shared.lock, NULL);
    ps_cond_init(&c->session.shared.changed);
    c->session.ready = true;
    c->session.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    c->session.command_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return c->session.wake_fd >= 0 && c->session.command_fd >= 0
               ? PSC_OK
               : ps_fail(&c->error, PSC_ESYSTEM, "no descriptors: %s", strerror(errno));
}

static bool is_joined(const struct psc_shared *s)
{
    return s->state == PSC_STATE_JOINED;
}

static bool is_begun(const struct psc_shared *s)
{
    return s->begun;
}

/* Waits until `done` or the end of the session. The service thread ends the session when the server is silent
 * for too long. */
static int wait_until(struct psc *c, bool (*done)(const struct psc_shared *s))
{
    struct psc_shared *s = &c->session.shared;
    int result = PSC_OK;
    pthread_mutex_lock(&s->lock);
    while (!done(s) && s->state != PSC_STATE_ENDED && !c->session.interrupted) {
        ps_cond_wait_until(&s->changed, &s->lock, ps_ns_after(psc_ask_again_s(&c->session)));
        pthread_mutex_unlock(&s->lock);
        psc_ask_to_go_on(&c->session);
        pthread_mutex_lock(&s->lock);
    }
    if (s->state == PSC_STATE_ENDED)
        result = ps_fail(&c->error, s->result, "%s", s->why.text);
    else if (!done(s))
        result = ps_fail(&c->error, PSC_EINTERRUPTED, "the wait for the server was interrupted");
    pthread_mutex_unlock(&s->lock);
    return result;
}

/* In a clique only the leader joins. */
static int join_server(struct psc *c)
{
    psc_group_busy(c);
    c->session.members = (uint32_t)c->group.size;
    int rc = psc_session_start(&c->session, &c->error);
    if (rc == PSC_OK)
        rc = wait_until(c, is_joined);
    psc_group_idle(c);
    return rc;
}

int psc_open(const struct psc_options *opt, struct psc **out)
{
    int rc;
    const struct psc_local *local = NULL;
    struct psc_clique *clique = NULL;
    struct psc *c = calloc(1, sizeof *c);
    if (c != NULL && !psc_prefetch_make(c, 1)) {
        free(c);
        c = NULL;
    }
    *out = c;
    if (c == NULL)
        return PSC_ENOMEM;
    c->session.wake_fd = c->session.command_fd = -1;
    c->session.owner = getpid();
    c->session.opt = &c->opt;
    c->session.token = ps_random_u64();
    psc_retry_init(&c->transfer_state.links.retry, c->session.token);
    c->vec = ps_vec_best();
    c->memory.kind = &psc_memory_host;
    c->work = psc_work_of(&c->memory, PSC_COMPUTE);
    c->transfer_state.work = psc_work_of(&c->memory, PSC_UP);
    c->group.size = 1;
    if ((rc = take_options(c, opt, &local, &clique)) != PSC_OK || (rc = shared_init(c)) != PSC_OK)
        return rc;
    if (local != NULL)
        return psc_local_open(c, local, clique);
    if ((rc = psc_group_open(c, clique, NULL)) != PSC_OK)
        return rc;
    return psc_group_share_welcome(c, c->group.follows ? PSC_OK : join_server(c));
}

/* The array's stride is the size of the caller's version of the struct. */
static int take_tensor(struct psc *c, const struct psc_tensor *given, size_t i, struct ps_tensor *out)
{
    struct psc_tensor t = {.name = NULL};
    char what[40];
    snprintf(what, sizeof what, "tensor %zu", i);
    int rc = psc_take_struct(&t, sizeof t, (const unsigned char *)given + i * c->opt.tensor_size,
                             c->opt.tensor_size, what, &c->error);
    *out = (struct ps_tensor){(char *)(uintptr_t)t.name, t.offset, {0}, t.n_dims, t.role, t.decay, 0};
    if (rc == PSC_OK && t.role == PSC_PARAM && t.rate != 0) {
        if (!(t.rate >= 1e-6 && t.rate <= 1000))
            return ps_fail(&c->error, PSC_EINVAL,
                           "tensor %zu '%.60s': rate %g; allowed are 0.000001 to 1000, and 0", i,
                           t.name != NULL ? t.name : "", t.rate);
        uint32_t ppm = (uint32_t)(t.rate * 1e6 + 0.5);
        out->rate_ppm = ppm == 1000000 ? 0 : ppm;
    }
    memcpy(out->shape, t.shape, sizeof out->shape);
    return rc;
}

static int take_manifest(struct psc *c, const struct psc_tensor *given, size_t n)
{
    struct ps_tensor *tensors;
    int rc = PSC_OK;
    if (given == NULL || n == 0 || n > PS_MAX_TENSORS)
        return ps_fail(&c->error, PSC_EMANIFEST, "%zu tensors; allowed are 1 to %d", n, PS_MAX_TENSORS);
    if ((tensors = calloc(n, sizeof *tensors)) == NULL)
        return ps_fail(&c->error, PSC_ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n && rc == PSC_OK; i++)
        rc = take_tensor(c, given, i, &tensors[i]);
    if (rc != PSC_OK) {
        free(tensors);
        return rc;
    }
    rc = ps_manifest_create(tensors, n, UINT64_C(1) << 40, &c->manifest, &c->error);
    free(tensors);
    return rc == 0 ? PSC_OK : rc == -ENOMEM ? PSC_ENOMEM : PSC_EMANIFEST;
}

static int start_team(struct psc *c)
{
    if (c->opt.threads < 2 || c->memory.device != NULL || c->manifest->n_floats < PSC_TEAM_FLOATS)
        return PSC_OK;
    int rc = psc_team_create(c->opt.threads, &c->team);
    if (rc == -ENOMEM)
        return ps_fail(&c->error, PSC_ENOMEM, "no memory for %u threads", c->opt.threads);
    return rc == 0 ? PSC_OK
                   : ps_fail(&c->error, PSC_ESYSTEM, "cannot start %u threads: %s", c->opt.threads,
                             strerror(-rc));
}

/* Allocates what transfers and steps need, so that they allocate nothing. */
static int set_up_lanes(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    int rc = psc_lanes_prepare(c, &c->error);
    if (rc != PSC_OK)
        return rc;
    if ((ts->scratch = malloc(2 * (size_t)ts->welcome.chunk_floats * sizeof *ts->scratch)) == NULL)
        return ps_fail(&c->error, PSC_ENOMEM, "no memory for the exchange's tables");
    if (c->opt.kind != PSC_WORKER)
        return PSC_OK;
    if ((rc = psc_stage_prepare(c, &c->error)) != PSC_OK)
        return rc;
    if ((rc = start_team(c)) != PSC_OK)
        return rc;
    rc = psc_step_prepare(c);
    return rc == PSC_OK ? psc_group_prepare(c) : rc;
}

/* Tells the caller once about unusual settings of the method. */
static void tell_of_method(struct psc *c)
{
    bool decays = false;
    for (size_t i = 0; i < c->manifest->n_segments; i++)
        decays = decays || (c->manifest->segments[i].role == PS_ROLE_PARAM &&
                            c->manifest->segments[i].decay == PS_DECAY);
    if (c->worker.hyper.weight_decay > 0 && !decays)
        psc_session_say(&c->session,
                        "the method has weight decay, but no tensor of this model decays: it has no effect");
    if (c->worker.hyper.overlap == PS_OVERLAP_AUTO)
        psc_session_say(&c->session,
                        "answers are applied when they arrive (overlap: auto): two runs with the "
                        "same seeds differ");
    else if (c->worker.hyper.overlap == 1 && c->rule->staler)
        psc_session_say(
            &c->session,
            "exchanges overlap with computing: gradients are one step staler than without overlap");
}

/* The worker starts from x, with the clock of the Welcome. */
static void start_vectors(struct psc *c, float *x)
{
    static const enum psc_vector starts[] = {PSC_VECTOR_START, PSC_VECTOR_Z};
    c->begun = true;
    c->worker.prefetch->first = PSC_NO_STEP;
    if (c->opt.kind != PSC_WORKER)
        return;
    c->worker.caller_x = x;
    c->worker.clock = c->taken.clock;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (c->worker.vectors[starts[i]] != NULL)
            psc_copy(&c->work, c->worker.vectors[starts[i]], x, c->shard.n_floats);
    tell_of_method(c);
}

static int check_offer(struct psc *c, const float *x)
{
    if (c->opt.kind != PSC_WORKER)
        return PSC_OK;
    uint64_t bad;
    int rc = psc_vector_search(c, x, c->manifest->n_floats, &bad);
    if (rc != PSC_OK)
        return rc;
    return bad == UINT64_MAX
               ? PSC_OK
               : ps_fail(&c->error, PSC_EVALUE, "psc_begin: x[%llu] is not finite", (unsigned long long)bad);
}

/* Sends Begin and waits for Begun. */
static int say_begin(struct psc *c)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    s->manifest = c->manifest;
    s->send_begin = true;
    pthread_mutex_unlock(&s->lock);
    psc_session_poke(&c->session);
    return wait_until(c, is_begun);
}

/* The first worker's x becomes the center, from which all others start. */
static int trade_start(struct psc *c, float *x, bool offer)
{
    struct psc_transfer give = {.kind = PS_FRAME_OFFER, .send = x};
    struct psc_transfer take = {.kind = PS_FRAME_PULL, .landed = psc_land_all, .target = x};
    return psc_move(c, offer ? &give : &take);
}

/* Takes transports and method from Welcome, or from the options. *offer: the server asks for our x. */
static void take_welcome(struct psc *c, bool *offer)
{
    struct psc_shared *s = &c->session.shared;
    struct psc_transfer_state *ts = &c->transfer_state;
    pthread_mutex_lock(&s->lock);
    ts->welcome = s->welcome;
    s->hyper = s->welcome.hyper;
    ts->counts.rate = s->counts.rate = (float)s->welcome.hyper.alpha;
    *offer = s->offer;
    pthread_mutex_unlock(&s->lock);
    psc_take_method(c, &ts->welcome);
}

/* Joins through a session; x becomes the start point. */
static int join(struct psc *c, float *x)
{
    bool offer;
    psc_group_busy(c);
    int rc = say_begin(c);
    if (rc == PSC_OK) {
        take_welcome(c, &offer);
        rc = set_up_lanes(c);
    }
    if (rc == PSC_OK)
        rc = trade_start(c, x, offer);
    psc_group_idle(c);
    return rc;
}

/* Joins without a session: a method without a server, or a member that follows its leader. */
static int join_alone(struct psc *c)
{
    bool offer;
    take_welcome(c, &offer);
    return set_up_lanes(c);
}

static bool has_session(const struct psc *c)
{
    return !c->local && !c->group.follows;
}

int psc_begin(struct psc *c, const struct psc_tensor *tensors, size_t n_tensors, float *x)
{
    int rc = psc_check_use(&c->session, "psc_begin", &c->error);
    if (rc != PSC_OK)
        return rc;
    if (c->manifest != NULL)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_begin: the handle has begun already, or could not join; allowed is one call: for "
                       "another, close it and open a new one");
    if (!psc_is_open(c) || x == NULL)
        return ps_fail(&c->error, PSC_EINVAL, "psc_begin: needs an open handle and a vector");
    if ((rc = psc_check_memory(c, "psc_begin", x)) != PSC_OK)
        return rc;
    if ((rc = take_manifest(c, tensors, n_tensors)) == PSC_OK)
        rc = check_offer(c, x);
    if ((rc = psc_group_agree_on_model(c, rc)) != PSC_OK) {
        /* Nothing was sent: the caller may correct the model and call again. */
        ps_manifest_destroy(c->manifest);
        c->manifest = NULL;
        return rc;
    }
    if (has_session(c))
        rc = join(c, x);
    if ((rc = psc_group_share_welcome(c, rc)) < 0)
        return rc;
    if (rc == PSC_OK && !has_session(c)) /* else the leader has met a drain, and all members end */
        rc = join_alone(c);
    if (rc == PSC_OK)
        rc = psc_group_use_algorithm(c);
    if (rc == PSC_OK)
        rc = psc_losses_begin(c);
    c->group.losses.adopt_method = psc_group_adopt_method;
    c->group.own_step_begins = psc_group_own_step_begins;
    if (rc == PSC_OK)
        rc = psc_group_share_x(c, x);
    if (rc == PSC_OK)
        start_vectors(c, x);
    return psc_work_end(c, rc);
}

void psc_close(struct psc *c)
{
    if (c == NULL || psc_check_process(&c->session, "psc_close", &c->error) != PSC_OK)
        return;
    struct psc_transfer_state *ts = &c->transfer_state;
    psc_async_stop(c);
    psc_group_close(c);
    psc_session_stop(&c->session);
    psc_links_finish(c);
    psc_team_destroy(c->team);
    psc_lanes_finish(c);
    psc_wire_finish(c);
    ps_manifest_destroy(c->manifest);
    free(ts->scratch);
    psc_stage_finish(c);
    free(c->worker.prefetch);
    psc_buffers_finish(c);
    if (c->memory.device != NULL)
        c->memory.kind->close(c->memory.device);
    psc_ranges_free(&c->worker.open.ready);
    psc_gate_free(&c->worker.open.early.gate);
    if (c->session.ready) {
        pthread_cond_destroy(&c->session.shared.changed);
        pthread_mutex_destroy(&c->session.shared.lock);
    }
    if (c->session.wake_fd >= 0)
        close(c->session.wake_fd);
    if (c->session.command_fd >= 0)
        close(c->session.command_fd);
    explicit_bzero(&c->session.proof, sizeof c->session.proof);
    free((char *)(uintptr_t)c->opt.server);
    free((char *)(uintptr_t)c->opt.name);
    free((char *)(uintptr_t)c->opt.net);
    free((char *)(uintptr_t)c->opt.data);
    free(c);
}
