/* step.c: processes that train, with real computing or with sleeps in its place, through libpsclient. Each
 * measures its steps three times: both computing and communication, first, since a clique chooses its buckets
 * by these steps; communication alone; and computing alone. What both take beyond computing is exposed; what
 * communication takes beyond that is hidden. A single worker measures both twice: with gradients that leave
 * in parts, and by one call. */
#include "tests/bench/step/step.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclient.h"
#include "client/psclique.h"
#include "nets/net.h"
#include "proto/clock.h"
#include "tests/bench/samples.h"
#include "tests/bench/step/args.h"

const char bench_step_help[] =
    "training steps: what of communication is hidden behind computing, and what is not";

/* BOTH has more: the choice of buckets takes a few steps. */
enum { WARM_UPS = 3, WARM_UPS_OF_BOTH = 6 };
enum phase { BOTH, COMMUNICATE, COMPUTE, WHOLE, N_PHASES };

/* A part of the gradient, and when it is ready: seconds after the step began. */
struct part {
    uint64_t first, count;
    double at_s;
};

struct member {
    const struct step_options *opt;
    struct psc_clique *q;
    struct psc *c;
    struct cnn_net *net; /* NULL: sleeps */
    struct part *parts;
    size_t n_parts, n_floats;
    double end_s; /* of computing */
    float *x, *g, *images;
    uint16_t *labels;
    double seconds[STEP_MAX_STEPS];
    int rc;
};

/* What a member tells the parent. */
struct page {
    double median_s[N_PHASES];
    uint64_t n_floats, bucket_floats;
    double update_s; /* of a step */
    int rc;
    char error[600];
};

/* The layers from last to first: forward takes its flops, then each layer's backward its own. */
static bool plan_parts(struct member *m)
{
    struct cnn_layer_row *rows;
    size_t n;
    struct ps_error err;
    double total = 0, at = 0, step_s = m->opt->step_ms * 1e-3;
    if (cnn_model_describe(&m->opt->model, &rows, &n, &err) != 0)
        return false;
    m->parts = calloc(n, sizeof *m->parts);
    for (size_t i = 0; i < n; i++) {
        total += rows[i].forward_flops + rows[i].backward_flops;
        at += rows[i].forward_flops;
    }
    uint64_t end = cnn_model_n_floats(&m->opt->model);
    for (size_t i = n; i-- > 0 && m->parts != NULL;) {
        uint64_t count = rows[i].n_params + rows[i].n_buffers;
        at += rows[i].backward_flops;
        if (count == 0)
            continue;
        end -= count;
        m->parts[m->n_parts++] = (struct part){end, count, step_s * at / total};
    }
    m->end_s = step_s;
    free(rows);
    return m->parts != NULL;
}

static int join_clique(struct member *m, int rank, const char *place)
{
    struct psc_ring_options ring;
    psc_ring_options_init(&ring, sizeof ring);
    ring.members = (uint32_t)m->opt->members;
    ring.rank = rank;
    ring.rendezvous = place;
    ring.links = (uint32_t)m->opt->links;
    ring.segment_bytes = (uint32_t)m->opt->segment;
    if (m->opt->listen != NULL)
        ring.listen = m->opt->listen;
    return psc_ring_open(&ring, &m->q);
}

static int open_session(struct member *m)
{
    struct psc_options opt;
    struct psc_local local;
    psc_options_init(&opt, sizeof opt);
    opt.server = m->opt->server;
    opt.clique = m->q;
    opt.threads = (uint32_t)m->opt->threads;
    if (m->opt->server == NULL) {
        psc_local_init(&local, sizeof local, m->opt->method);
        local.learning_rate = 1e-6; /* x stays where gradients are finite */
        local.codec = m->opt->codec;
        local.bucket_floats = m->opt->bucket_floats;
        opt.local = &local;
    }
    return psc_open(&opt, &m->c);
}

static int begin_job(struct member *m)
{
    struct cnn_param *params;
    struct ps_error err;
    size_t n;
    if (cnn_model_params(&m->opt->model, &params, &n, &err) != 0)
        return PSC_ENOMEM;
    struct psc_tensor *tensors = calloc(n, sizeof *tensors);
    for (size_t i = 0; i < n && tensors != NULL; i++) {
        tensors[i] = (struct psc_tensor){.name = params[i].name,
                                         .offset = params[i].offset,
                                         .n_dims = params[i].n_dims,
                                         .role = (uint32_t)params[i].role,
                                         .decay = (uint32_t)params[i].decay};
        memcpy(tensors[i].shape, params[i].shape, sizeof params[i].shape);
    }
    int rc = tensors != NULL ? psc_begin(m->c, tensors, n, m->x) : PSC_ENOMEM;
    free(tensors);
    free(params);
    return rc;
}

static bool make_net(struct member *m)
{
    const struct cnn_net_options opt = {
        .model = &m->opt->model, .batch = (uint32_t)m->opt->batch, .threads = (uint32_t)m->opt->threads};
    struct ps_error err;
    size_t pixels = (size_t)m->opt->model.channels * m->opt->model.height * m->opt->model.width;
    if (cnn_net_create(&opt, &m->net, &err) != 0) {
        fprintf(stderr, "psbench step: %s\n", err.text);
        return false;
    }
    m->images = calloc(m->opt->batch * pixels, sizeof *m->images);
    m->labels = calloc(m->opt->batch, sizeof *m->labels);
    for (size_t i = 0; m->images != NULL && i < m->opt->batch * pixels; i++)
        m->images[i] = (float)(i % 251) / 251 - 0.5f;
    return m->images != NULL && m->labels != NULL;
}

static bool make_member(struct member *m)
{
    m->n_floats = cnn_model_n_floats(&m->opt->model);
    m->x = malloc(m->n_floats * sizeof *m->x);
    m->g = calloc(m->n_floats, sizeof *m->g);
    if (m->x == NULL || m->g == NULL || !plan_parts(m) || (m->opt->step_ms <= 0 && !make_net(m)))
        return false;
    cnn_model_fill(&m->opt->model, 1, m->x);
    return true;
}

static void report(void *arg, uint64_t first, uint64_t count)
{
    struct member *m = arg;
    if (m->rc == PSC_OK)
        m->rc = psc_ready(m->c, first, count);
}

static void sleep_until(double at_s)
{
    double left_s = at_s - ps_now_s();
    if (left_s > 0)
        ps_sleep_us((uint64_t)(left_s * 1e6));
}

/* Computes, or sleeps as an accelerator would take: its time goes on while parts are reported. */
static void compute(struct member *m, bool reports)
{
    double begin = ps_now_s();
    struct cnn_score score;
    const struct cnn_ready ready = {report, m};
    const struct cnn_batch batch = {.images = m->images, .labels = m->labels, .n = (uint32_t)m->opt->batch};
    if (m->net != NULL &&
        cnn_net_gradient_of(m->net, m->x, &batch, m->g, reports ? &ready : NULL, &score) != 0)
        m->rc = PSC_EINVAL;
    for (size_t i = 0; i < m->n_parts && reports && m->net == NULL; i++) {
        sleep_until(begin + m->parts[i].at_s);
        report(m, m->parts[i].first, m->parts[i].count);
    }
    if (m->net == NULL)
        sleep_until(begin + m->end_s);
}

/* One sum, or one a layer, from the last to the first; then SGD. */
static int sum_and_step(struct member *m)
{
    static const float eta = 1e-6f;
    bool packed = strcmp(m->opt->messages, "packed") == 0;
    int rc = packed ? psc_allreduce(m->q, m->g, m->n_floats, m->opt->codec) : PSC_OK;
    for (size_t i = 0; i < m->n_parts && !packed && rc == PSC_OK; i++)
        rc = psc_allreduce(m->q, m->g + m->parts[i].first, m->parts[i].count, m->opt->codec);
    for (size_t i = 0; i < m->n_floats && rc == PSC_OK; i++)
        m->x[i] -= eta / (float)m->opt->members * m->g[i];
    return rc;
}

static int step(struct member *m, enum phase phase)
{
    size_t n = m->opt->batch;
    bool own = m->opt->messages != NULL, parts = phase == BOTH && !m->opt->whole && !own;
    if (own && phase == COMMUNICATE)
        return sum_and_step(m);
    if (phase == COMMUNICATE)
        return psc_step(m->c, m->x, m->g, n);
    if (parts)
        m->rc = psc_step_begin(m->c, m->x, m->g, n);
    compute(m, parts);
    if (m->rc != PSC_OK || phase == COMPUTE)
        return m->rc;
    if (own)
        return sum_and_step(m);
    return parts ? psc_step_end(m->c) : psc_step(m->c, m->x, m->g, n);
}

/* The median step of a phase; all members begin it together. */
static int measure(struct member *m, enum phase phase, double *median_s)
{
    int rc = m->q != NULL ? psc_barrier(m->q) : PSC_OK;
    int n = (int)m->opt->steps;
    for (int k = phase == BOTH ? -WARM_UPS_OF_BOTH : -WARM_UPS; k < n && rc == PSC_OK; k++) {
        double begin = ps_now_s();
        rc = step(m, phase);
        if (k >= 0)
            m->seconds[k] = ps_now_s() - begin;
    }
    if (rc == PSC_OK && phase != COMPUTE)
        rc = psc_wait(m->c, PSC_ALL);
    *median_s = bench_median(m->seconds, (size_t)n);
    return rc;
}

/* WHOLE is what --whole makes of BOTH. */
static int phases_of(const struct step_options *o)
{
    if (o->both_only)
        return BOTH + 1;
    return o->members == 1 && !o->whole ? N_PHASES : WHOLE;
}

static void be_member(const struct step_options *opt, int rank, const char *place, struct page *page)
{
    static struct member m;
    struct psc_info info = {.size = sizeof info};
    uint64_t steps;
    m.opt = opt;
    int rc = make_member(&m) ? PSC_OK : PSC_ENOMEM;
    if (rc == PSC_OK && opt->members > 1)
        rc = join_clique(&m, rank, place);
    if (rc == PSC_OK)
        rc = open_session(&m);
    if (rc == PSC_OK)
        rc = begin_job(&m);
    for (int phase = 0; phase < phases_of(opt) && rc == PSC_OK; phase++)
        rc = measure(&m, (enum phase)phase, &page->median_s[phase]);
    page->rc = rc;
    page->n_floats = m.n_floats;
    snprintf(page->error, sizeof page->error, "%s",
             m.c != NULL   ? psc_error(m.c)
             : m.q != NULL ? psc_clique_error(m.q)
                           : "");
    if (m.c != NULL && psc_info(m.c, &info) == PSC_OK && (steps = psc_clock(m.c)) > 0) {
        page->update_s = info.update_seconds / (double)steps;
        page->bucket_floats = info.bucket_floats;
    }
    psc_close(m.c);
    psc_clique_close(m.q);
}

/* What each phase takes, in milliseconds. */
struct times {
    double compute, comm, both, whole, hidden, exposed, exposed_whole;
};

static struct times times_of(const struct page *p)
{
    struct times t = {.compute = p->median_s[COMPUTE] * 1e3,
                      .comm = p->median_s[COMMUNICATE] * 1e3,
                      .both = p->median_s[BOTH] * 1e3,
                      .whole = p->median_s[WHOLE] * 1e3};
    t.exposed = t.both > t.compute ? t.both - t.compute : 0;
    t.hidden = t.comm > t.exposed ? t.comm - t.exposed : 0;
    t.exposed_whole = t.whole > t.compute ? t.whole - t.compute : 0;
    return t;
}

static const char *method_of(const struct step_options *o)
{
    return o->method != NULL ? o->method : "psd's method";
}

static void print_json(const struct step_options *o, const struct page *p, const struct times *t)
{
    printf("{\"bench\":\"step\",\"net\":\"%s\",\"floats\":%llu,\"method\":\"%s\",\"members\":%llu,\"codec\":"
           "\"%s\","
           "\"links\":%llu,",
           o->net, (unsigned long long)p->n_floats, method_of(o), (unsigned long long)o->members, o->codec,
           (unsigned long long)o->links);
    if (o->messages != NULL)
        printf("\"messages\":\"%s\",\"batch\":%llu,", o->messages, (unsigned long long)o->batch);
    else
        printf("\"bucket_floats\":%llu,\"whole\":%s,\"update_ms\":%.3f,",
               (unsigned long long)p->bucket_floats, o->whole ? "true" : "false", p->update_s * 1e3);
    printf("\"step_ms\":%g,\"steps\":%llu,\"iteration_ms\":%.3f", o->step_ms, (unsigned long long)o->steps,
           t->both);
    if (!o->both_only)
        printf(",\"compute_ms\":%.3f,\"communicate_ms\":%.3f,\"hidden_ms\":%.3f,\"exposed_ms\":%.3f",
               t->compute, t->comm, t->hidden, t->exposed);
    if (phases_of(o) == N_PHASES)
        printf(",\"iteration_whole_ms\":%.3f,\"exposed_whole_ms\":%.3f", t->whole, t->exposed_whole);
    puts("}");
}

static void print_text(const struct step_options *o, const struct page *p, const struct times *t)
{
    printf("%s, %.1f MB, %s, %llu member%s, %s, %s: a step takes %.2f ms (medians of %llu)\n", o->net,
           (double)p->n_floats * 4e-6, method_of(o), (unsigned long long)o->members,
           o->members > 1 ? "s" : "", o->codec, o->whole ? "whole" : "in parts", t->both,
           (unsigned long long)o->steps);
    if (!o->both_only)
        printf(
            "  computing alone %.2f ms, communication alone %.2f ms: %.2f ms of it hidden, %.2f ms exposed\n",
            t->compute, t->comm, t->hidden, t->exposed);
    if (phases_of(o) == N_PHASES)
        printf("  by one call a step takes %.2f ms: %.2f ms exposed\n", t->whole, t->exposed_whole);
}

static void print(const struct step_options *o, const struct page *p)
{
    struct times t = times_of(p);
    (o->json ? print_json : print_text)(o, p, &t);
}

static int finish(const struct step_options *o, const struct page *pages, int first, int n)
{
    for (int i = first; i < first + n; i++)
        if (pages[i].rc < 0) {
            fprintf(stderr, "psbench step: member %d: %s: %s\n", i, psc_result_name(pages[i].rc),
                    pages[i].error);
            return 1;
        }
    if (first == 0)
        print(o, &pages[0]);
    return 0;
}

/* All members, each a process. */
static int run_here(const struct step_options *o, struct page *pages)
{
    char dir[] = "/tmp/psbench-XXXXXX", place[64];
    pid_t pids[STEP_MAX_MEMBERS];
    int n = (int)o->members;
    if (mkdtemp(dir) == NULL) {
        fprintf(stderr, "psbench step: /tmp: %s\n", strerror(errno));
        return 1;
    }
    snprintf(place, sizeof place, "file:%s/ring", dir);
    for (int i = 0; i < n; i++)
        if ((pids[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            be_member(o, i, place, &pages[i]);
            _exit(0);
        }
    for (int i = 0; i < n; i++) {
        int status = 0;
        if (pids[i] < 0 || waitpid(pids[i], &status, 0) < 0 || status != 0)
            pages[i].rc = PSC_ESYSTEM;
    }
    rmdir(dir);
    return finish(o, pages, 0, n);
}

int bench_step(int argc, char **argv)
{
    struct step_options o = {.net = "lenet",
                             .codec = "raw",
                             .members = 2,
                             .member = -1,
                             .links = 1,
                             .steps = 20,
                             .batch = 32,
                             .threads = 1};
    int rc = step_parse(argc, argv, &o);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    struct page *pages = mmap(NULL, STEP_MAX_MEMBERS * sizeof *pages, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return 1;
    if (o.member < 0)
        return run_here(&o, pages);
    be_member(&o, (int)o.member, o.rendezvous, &pages[o.member]);
    return finish(&o, pages, (int)o.member, 1);
}
