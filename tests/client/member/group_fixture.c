#include "tests/client/member/group_fixture.h"

/* Depends on the point, so that a difference would grow. */
void run_gradient(const struct member *m, float *g)
{
    uint64_t t = psc_clock(m->c);
    uint64_t who = m->run->salt != 0 ? (uint64_t)m->rank + m->run->salt : 0;
    struct dice dice = {1000 * t + 77 * who};
    for (int i = 0; i < N; i++)
        g[i] = 0.5f * m->x[i] + dice_float(&dice);
}

int run_move_buffers(struct member *m, int t)
{
    (void)t;
    for (size_t i = 0; i < N; i++)
        if (rig_tensor_at(i)->role == PSC_BUFFER)
            m->x[i] += 0.01f * (float)(m->rank + 1);
    return PSC_OK;
}

static int open_member(struct member *m)
{
    struct psc_options opt;
    struct psc_local local = m->run->local;
    if (m->rank == 1 && m->run->bucket_floats_of_1 > 0)
        local.bucket_floats = m->run->bucket_floats_of_1;
    psc_options_init(&opt, sizeof opt);
    opt.server = m->run->server;
    opt.local = m->run->server == NULL ? &local : NULL;
    opt.clique = m->clique;
    opt.samples_per_epoch = m->run->samples_per_epoch;
    opt.retry_ms = RIG_RETRY_MS;
    opt.heartbeat_ms = RIG_HEARTBEAT_MS;
    opt.own_step = m->run->own_step;
    opt.own_step_arg = m;
    int rc = psc_open(&opt, &m->c);
    if (rc == PSC_OK)
        rc = psc_begin(m->c, m->run->model[m->rank] != NULL ? m->run->model[m->rank] : rig_model, RIG_TENSORS,
                       m->x);
    return rc;
}

static int meet(struct member *m)
{
    struct psc_ring_options opt;
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = (uint32_t)m->run->members;
    opt.rank = m->rank;
    opt.rendezvous = m->run->ring;
    opt.listen = "unix:";
    opt.links = m->run->links > 0 ? m->run->links : 2;
    if (m->run->segment_bytes > 0)
        opt.segment_bytes = m->run->segment_bytes;
    if (m->run->algorithm != NULL)
        opt.algorithm = m->run->algorithm;
    if (m->run->on_loss != NULL)
        opt.on_loss = m->run->on_loss;
    return psc_ring_open(&opt, &m->clique);
}

static void close_handles(struct member *m)
{
    psc_close(m->c);
    psc_clique_close(m->clique);
    m->c = NULL;
    m->clique = NULL;
}

static bool leaves(const struct member *m, int t)
{
    return m->run->leaves_at[m->rank] > 0 && m->run->leaves_at[m->rank] == t;
}

static void *live(void *arg)
{
    struct member *m = arg;
    struct dice dice = {110};
    for (int i = 0; i < N; i++)
        m->x[i] = dice_float(&dice);
    m->rc = m->run->ring != NULL ? meet(m) : PSC_OK;
    if (m->rc == PSC_OK)
        m->rc = open_member(m);
    for (int t = 0; m->rc == PSC_OK && t < m->run->steps; t++) {
        if (leaves(m, t)) {
            close_handles(m);
            return NULL;
        }
        if (m->run->before != NULL && (m->rc = m->run->before(m, t)) != PSC_OK)
            break;
        run_gradient(m, m->g);
        size_t n = m->run->samples[m->rank] > 0 ? m->run->samples[m->rank] : 64;
        m->rc = m->run->step != NULL ? m->run->step(m, n) : psc_step(m->c, m->x, m->g, n);
    }
    if (m->rc == PSC_OK)
        m->rc = psc_wait(m->c, PSC_ALL);
    if (m->rc == PSC_OK && m->run->after != NULL)
        m->rc = m->run->after(m);
    snprintf(m->error, sizeof m->error, "%s", psc_error(m->c));
    close_handles(m);
    return NULL;
}

void run_start(struct run *r)
{
    struct psc_clique *cliques[MOST] = {NULL};
    if ((r->members > 1 || r->of_one) && r->ring == NULL)
        ck_assert_int_eq((r->open != NULL ? r->open : circle_open)(r->members, cliques), PSC_OK);
    for (int i = 0; i < r->members; i++) {
        r->member[i].run = r;
        r->member[i].rank = i;
        r->member[i].clique = cliques[i];
        ck_assert_int_eq(pthread_create(&r->member[i].thread, NULL, live, &r->member[i]), 0);
    }
}

void run_end(struct run *r)
{
    for (int i = 0; i < r->members; i++)
        pthread_join(r->member[i].thread, NULL);
}

void run_go(struct run *r)
{
    run_start(r);
    run_end(r);
    for (int i = 0; i < r->members; i++)
        ck_assert_msg(r->member[i].rc == PSC_OK, "member %d: %s (%s)", i, psc_result_name(r->member[i].rc),
                      r->member[i].error);
}

struct run *run_of(const char *method, int members)
{
    static struct run runs[3];
    static int next;
    struct run *r = &runs[next++ % 3];
    memset(r, 0, sizeof *r);
    psc_local_init(&r->local, sizeof r->local, method);
    r->local.learning_rate = 0.1;
    r->members = members;
    r->steps = STEPS;
    return r;
}

void run_assert_same_x(const struct run *r)
{
    for (int i = 1; i < r->members; i++)
        ck_assert_mem_eq(r->member[0].x, r->member[i].x, sizeof r->member[0].x);
}
