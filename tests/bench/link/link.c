/* link.c: an observer of a running psd times transfers that change nothing there. It pulls the smallest
 * tensor for the delay, and the whole vector for the rate towards it. Up it sends the vector that it pulled
 * as an evaluated one (PS_FRAME_KEEP), which psd, as it did not ask for it, acknowledges and drops. */
#include "tests/bench/link/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"
#include "proto/clock.h"
#include "tests/bench/link/args.h"
#include "tests/bench/samples.h"

const char bench_link_help[] = "rate and delay of the road to a running psd, for psbench plan --slow";

enum { SMALLEST_MOST = 16384, SMALL_TURNS = 4, MAX_TIMES = SMALL_TURNS * LINK_MAX_TURNS, SPARE_MS = 5000 };

struct run {
    const struct link_options *o;
    struct psc_tensor *tensors;
    struct cnn_param *params; /* own the names, of a net */
    size_t n_tensors, n_floats;
    const struct psc_tensor *small;
    struct psc *worker, *c; /* worker: with --offer */
    float *x;
    double deadline_s; /* of the wait in progress */
};

struct result {
    double delay_s, down_s, up_s; /* medians of one transfer */
    double down_bit_s, up_bit_s;
    char transport[16];
};

static uint64_t size_of(const struct psc_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

static bool take_net(struct run *r)
{
    struct ps_error err;
    if (cnn_model_params(&r->o->model, &r->params, &r->n_tensors, &err) != 0 ||
        (r->tensors = calloc(r->n_tensors, sizeof *r->tensors)) == NULL)
        return false;
    for (size_t i = 0; i < r->n_tensors; i++) {
        const struct cnn_param *p = &r->params[i];
        r->tensors[i] = (struct psc_tensor){.name = p->name,
                                            .offset = p->offset,
                                            .n_dims = p->n_dims,
                                            .role = (uint32_t)p->role,
                                            .decay = (uint32_t)p->decay};
        memcpy(r->tensors[i].shape, p->shape, sizeof p->shape);
    }
    return true;
}

static bool take_floats(struct run *r)
{
    if ((r->tensors = calloc(2, sizeof *r->tensors)) == NULL)
        return false;
    r->n_tensors = 2;
    r->tensors[0] = (struct psc_tensor){.name = "delay", .n_dims = 1, .shape = {LINK_SMALL}};
    r->tensors[1] = (struct psc_tensor){
        .name = "rate", .offset = LINK_SMALL, .n_dims = 1, .shape = {r->o->floats - LINK_SMALL}};
    return true;
}

static bool take_model(struct run *r)
{
    bool fine = r->o->net != NULL ? take_net(r) : take_floats(r);
    for (size_t i = 0; i < r->n_tensors && fine; i++) {
        uint64_t n = size_of(&r->tensors[i]);
        r->n_floats += n;
        if (r->small == NULL || n < size_of(r->small))
            r->small = &r->tensors[i];
    }
    fine = fine && (r->x = calloc(r->n_floats, sizeof *r->x)) != NULL;
    if (!fine)
        fputs("psbench link: no memory for the model\n", stderr);
    else if (size_of(r->small) <= SMALLEST_MOST)
        return true;
    else
        fprintf(stderr,
                "psbench link: the smallest tensor, '%s', has %llu floats; with more than %d no delay can be "
                "told\n",
                r->small->name, (unsigned long long)size_of(r->small), SMALLEST_MOST);
    return false;
}

static int may_wait(void *arg)
{
    const struct run *r = arg;
    return ps_now_s() < r->deadline_s;
}

static bool report(const struct run *r, struct psc *c, const char *what, int rc)
{
    if (rc == PSC_OK)
        return true;
    if (rc == PSC_EINTERRUPTED)
        fprintf(stderr, "psbench link: %s: not done after %llu s (--timeout-s)\n", what,
                (unsigned long long)r->o->timeout_s);
    else
        fprintf(stderr, "psbench link: %s: %s\n", what, rc == PSC_DRAINED ? "psd is draining" : psc_error(c));
    return false;
}

static bool join(struct run *r, int32_t kind, struct psc **c)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = r->o->server;
    opt.kind = kind;
    opt.name = "psbench link";
    opt.key_file = r->o->key;
    opt.server_key = r->o->server_key;
    opt.transport = r->o->transport;
    opt.timeout_ms = (uint32_t)(r->o->timeout_s * 1000 + SPARE_MS); /* may_wait ends it first */
    opt.go_on = may_wait;
    opt.go_on_arg = r;
    r->deadline_s = ps_now_s() + (double)r->o->timeout_s;
    if (!report(r, *c, "cannot join", psc_open(&opt, c)))
        return false;
    return report(r, *c,
                  kind == PSC_WORKER
                      ? "cannot offer the vector"
                      : "cannot observe the job, which begins with its first worker or with --offer",
                  psc_begin(*c, r->tensors, r->n_tensors, r->x));
}

static int pull_small(struct run *r)
{
    return psc_pull(r->c, r->small->name, r->x + r->small->offset);
}

static int pull_all(struct run *r)
{
    return psc_pull(r->c, NULL, r->x);
}

static int send_all(struct run *r)
{
    struct psc_transfer t = {.kind = PS_FRAME_KEEP, .send = r->x, .name = "the vector"};
    int rc = psc_move(r->c, &t);
    return rc == PSC_METHOD_CHANGED ? PSC_OK : rc;
}

/* The first is not counted. */
static bool time_it(struct run *r, const char *what, int (*transfer)(struct run *), size_t turns,
                    double *median)
{
    double times[MAX_TIMES];
    for (size_t i = 0; i <= turns; i++) {
        double begin = ps_now_s();
        r->deadline_s = begin + (double)r->o->timeout_s;
        if (!report(r, r->c, what, transfer(r)))
            return false;
        times[i > 0 ? i - 1 : 0] = ps_now_s() - begin;
    }
    *median = bench_median(times, turns);
    return true;
}

static bool to_rate(const struct run *r, const char *way, double seconds, double delay_s, double *bit_s)
{
    double bytes = (double)r->n_floats * sizeof(float);
    *bit_s = 8 * bytes / (seconds - delay_s);
    if (seconds > 1.1 * delay_s)
        return true;
    fprintf(stderr,
            "psbench link: %.3f MB %s take %.3f ms, a small message %.3f ms: too few bytes to tell a rate; "
            "measure with --floats of more\n",
            bytes * 1e-6, way, seconds * 1e3, delay_s * 1e3);
    return false;
}

static bool measure(struct run *r, struct result *out)
{
    const size_t turns = r->o->turns;
    struct psc_info info = {.size = sizeof info};
    if ((r->o->offer && !join(r, PSC_WORKER, &r->worker)) || !join(r, PSC_OBSERVER, &r->c) ||
        !time_it(r, "the small pull", pull_small, SMALL_TURNS * turns, &out->delay_s) ||
        !time_it(r, "the pull of the vector", pull_all, turns, &out->down_s) ||
        !time_it(r, "the vector to psd", send_all, turns, &out->up_s) ||
        !to_rate(r, "down", out->down_s, out->delay_s, &out->down_bit_s) ||
        !to_rate(r, "up", out->up_s, out->delay_s, &out->up_bit_s))
        return false;
    if (psc_info(r->c, &info) == PSC_OK)
        memcpy(out->transport, info.transport, sizeof out->transport);
    return true;
}

static void print(const struct run *r, const struct result *s)
{
    double mb = (double)r->n_floats * sizeof(float) * 1e-6;
    if (r->o->json)
        printf("{\"bench\":\"link\",\"floats\":%zu,\"turns\":%llu,\"transport\":\"%s\",\"delay_ms\":%.4f,"
               "\"up_mbit_s\":%.3f,\"down_mbit_s\":%.3f,\"up_ms\":%.3f,\"down_ms\":%.3f}\n",
               r->n_floats, (unsigned long long)r->o->turns, s->transport, s->delay_s * 1e3,
               s->up_bit_s * 1e-6, s->down_bit_s * 1e-6, s->up_s * 1e3, s->down_s * 1e3);
    else
        printf(
            "%s: %.1f Mb/s up, %.1f Mb/s down, %.3f ms there and back\n"
            "  medians of %llu transfers of %.3f MB each way, %.1f ms up and %.1f ms down, and of %llu small "
            "pulls\n",
            s->transport, s->up_bit_s * 1e-6, s->down_bit_s * 1e-6, s->delay_s * 1e3,
            (unsigned long long)r->o->turns, mb, s->up_s * 1e3, s->down_s * 1e3,
            (unsigned long long)(SMALL_TURNS * r->o->turns));
}

int bench_link(int argc, char **argv)
{
    struct link_options o;
    int rc = link_parse(argc, argv, &o);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    struct run r = {.o = &o};
    struct result s = {0};
    bool fine = take_model(&r) && measure(&r, &s);
    if (fine)
        print(&r, &s);
    psc_close(r.c);
    psc_close(r.worker);
    free(r.tensors);
    free(r.params);
    free(r.x);
    return fine ? 0 : 1;
}
