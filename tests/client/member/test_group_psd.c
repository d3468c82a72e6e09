/* Cliques as clients of psd: what one worker is, and what only they are. */
#include <math.h>
#include <signal.h>

#include "client/cliques/clique.h"
#include "client/member/leader_messages.h"
#include "tests/client/member/group_fixture.h"

static int draw(struct member *m);

/* A job with psd, with this many clients of this many members; the center is in *center afterwards. */
static void train(const char *const *settings, struct run **runs, int n, float *center)
{
    struct daemon d;
    struct psc_options opt;
    struct psc *c;
    rig_start(&d, settings);
    for (int i = 0; i < n; i++) {
        runs[i]->server = d.endpoint;
        runs[i]->after = draw;
        run_start(runs[i]);
    }
    for (int i = 0; i < n; i++) {
        run_end(runs[i]);
        for (int k = 0; k < runs[i]->members; k++)
            ck_assert_msg(runs[i]->member[k].rc == PSC_OK, "client %d, member %d: %s (%s)", i, k,
                          psc_result_name(runs[i]->member[k].rc), runs[i]->member[k].error);
    }
    psc_options_init(&opt, sizeof opt);
    opt.server = d.endpoint;
    opt.kind = PSC_OBSERVER;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, center));
    psc_close(c);
    daemon_remove(&d);
}

/* All x's are the members' own. */
static int draw(struct member *m)
{
    return psc_point(m->c, m->x);
}

#define SETTINGS(...)                                                                                        \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        RIG_CUT, "checkpoint.every_s=0", "parameters.schedule.warmup_steps=3", __VA_ARGS__, NULL             \
    }

static const struct {
    const char *method, *more, *still;
} presets[] = {
    {"async-easgd", "parameters.weight_decay=0.01", "lanes=3"},
    {"async-easgd", "parameters.overlap=true", "lanes=3"},
    {"async-measgd", "parameters.period=3", "lanes=3"},
    {"eamsgd", "parameters.period=2", "parameters.weight_decay=0.01"},
    {"eamsgd", "parameters.period=5", "parameters.overlap=true"},
    {"sync-easgd", "parameters.period=1", "lanes=3"},
    {"original-easgd", "lanes=3", "lanes=3"},
    {"sync-sgd", "parameters.weight_decay=0.01", "lanes=3"},
    {"async-sgd", "parameters.overlap=true", "lanes=3"},
    {"async-msgd", "lanes=3", "lanes=3"},
    {"hogwild-sgd", "lanes=3", "lanes=3"},
    {"downpour", "parameters.period=3", "lanes=3"},
    {"diloco", "parameters.period=5", "parameters.fragments=2"},
    {"diloco", "parameters.period=5", "parameters.overlap=4"},
    {"eamsgd", "parameters.period=5", "parameters.overlap=3"},
    {"admm", "workers=1", "lanes=3"},
    {"mpi-sgd", "lanes=3", "lanes=3"},
    {"mpi-asgd", "lanes=3", "lanes=3"},
    {"mpi-esgd", "parameters.period=4", "lanes=3"},
};

/* A clique of one is a worker, and so is one of two whose gradients are alike: their mean is each of them, as
 * 64 g + 64 g is exact. Bit for bit, the center and every member's x. */
START_TEST(a_clique_of_equals_is_one_worker)
{
    static float of_one[N], of_two[N], alone[N];
    char method[64];
    snprintf(method, sizeof method, "method=%s", presets[_i].method);
    const char *const *settings = SETTINGS(method, presets[_i].more, presets[_i].still);
    struct run *worker = run_of("", 1), *one = run_of("", 1), *two = run_of("", 2);
    one->of_one = true;
    train(settings, &worker, 1, alone);
    train(settings, &one, 1, of_one);
    train(settings, &two, 1, of_two);
    ck_assert_mem_eq(alone, of_one, sizeof alone);
    ck_assert_mem_eq(alone, of_two, sizeof alone);
    ck_assert_mem_eq(worker->member[0].x, one->member[0].x, sizeof alone);
    for (int k = 0; k < 2; k++)
        ck_assert_mem_eq(worker->member[0].x, two->member[k].x, sizeof alone);
}
END_TEST

/* Their gradients are taken at one point: what the leader has exchanged is theirs at the same step. The last
 * step is such a one. */
START_TEST(members_have_the_x_of_a_leader_that_overlaps)
{
    static const char *const periods[] = {"parameters.period=1", "parameters.period=11"};
    static float center[N];
    struct run *r = run_of("", 2);
    ck_assert_int_eq(STEPS, 12);
    r->before = run_move_buffers;
    train(SETTINGS("method=eamsgd", periods[_i], "parameters.overlap=true"), &r, 1, center);
    run_assert_same_x(r);
}
END_TEST

static _Atomic uint64_t first_clocks[2];

static int note_first_clock(struct member *m, int t)
{
    if (t == 0)
        first_clocks[m->rank] = psc_clock(m->c);
    return PSC_OK;
}

static const char *const late_cliques[] = {"eamsgd", "d-sync"};

/* All members of a late clique begin at one step, where another clique has left. */
START_TEST(members_are_late_together)
{
    struct daemon d;
    struct run *r = run_of("", 2);
    char method[64];
    snprintf(method, sizeof method, "method=%s", late_cliques[_i]);
    rig_start(&d, SETTINGS(method));
    r->server = d.endpoint;
    run_go(r);
    ck_assert(daemon_workers_become(&d, 0));
    r->before = note_first_clock;
    run_go(r);
    ck_assert_uint_eq(first_clocks[0], STEPS);
    ck_assert_uint_eq(first_clocks[1], STEPS);
    run_assert_same_x(r);
    daemon_remove(&d);
}
END_TEST

/* However they are joined: whoever counts passes over a training set counts these. */
static int are_four(struct member *m)
{
    struct psc_info info = {.size = sizeof info};
    int rc = psc_info(m->c, &info);
    return rc != PSC_OK || info.workers == 4 ? rc : -100 - (int)info.workers;
}

/* Two cliques of two against four workers by themselves; means of means, weighted by samples. A round's sum
 * and the cliques' differ by the rounding of a few additions of values below 4. */
START_TEST(sync_sgd_over_cliques_is_sync_sgd)
{
    static float workers[N], cliques[N];
    struct run *r[4];
    static struct run four[4];
    for (int i = 0; i < 4; i++) {
        struct run *one = run_of("", 1);
        one->salt = 3 + (uint32_t)i;
        one->after = are_four;
        one->samples[0] = 20 + 30 * (size_t)i;
        four[i] = *one;
        r[i] = &four[i];
    }
    train(SETTINGS("method=sync-sgd", "workers=4"), r, 4, workers);
    for (int i = 0; i < 2; i++) {
        r[i] = run_of("", 2);
        r[i]->salt = 3 + 2 * (uint32_t)i;
        r[i]->after = are_four;
        r[i]->samples[0] = 20 + 60 * (size_t)i;
        r[i]->samples[1] = 50 + 60 * (size_t)i;
    }
    train(SETTINGS("method=mpi-sgd", "workers=2"), r, 2, cliques);
    run_assert_same_x(r[0]);
    for (int i = 0; i < N; i++)
        if (rig_tensor_at((size_t)i)->role == PSC_PARAM &&
            fabsf(workers[i] - cliques[i]) > 16 * 4 * STEPS * 0x1p-24f)
            ck_abort_msg("center[%d] is %.9g with cliques, %.9g without", i, (double)cliques[i],
                         (double)workers[i]);
}
END_TEST

/* psd's copy is what the members have, at the end. */
START_TEST(psd_keeps_what_one_clique_moves)
{
    static float center[N];
    struct run *r = run_of("", 3);
    r->salt = 2;
    train(SETTINGS(_i == 0 ? "method=d-sync" : "method=pipe-sgd", "parameters.pipeline_warmup=2",
                   "clique.publish=5"),
          &r, 1, center);
    run_assert_same_x(r);
    ck_assert_mem_eq(center, r->member[0].x, sizeof center);
}
END_TEST

/* 2.5 epochs of 121 samples, 60 a step, are 6 steps. */
START_TEST(a_warm_up_in_epochs_is_one_in_steps)
{
    static const char *const warmups[] = {"parameters.pipeline_warmup=6", "parameters.pipeline_warmup=0"};
    static float by[3][N];
    for (int i = 0; i < 3; i++) {
        struct run *r = run_of("", 3);
        r->salt = 2;
        r->samples_per_epoch = 121;
        for (int k = 0; k < 3; k++)
            r->samples[k] = 10 * (size_t)(k + 1);
        train(SETTINGS("method=pipe-sgd", warmups[i > 0],
                       i == 1 ? "parameters.pipeline_warmup_epochs=2.5"
                              : "parameters.pipeline_warmup_epochs=0"),
              &r, 1, by[i]);
        run_assert_same_x(r);
    }
    ck_assert_mem_eq(by[0], by[1], sizeof by[0]);
    ck_assert_mem_ne(by[0], by[2], sizeof by[0]);
}
END_TEST

/* The library does not know the data. */
START_TEST(without_the_size_of_an_epoch_it_is_refused)
{
    struct daemon d;
    struct psc_options opt;
    struct psc *c;
    static float x[N];
    rig_start(&d, SETTINGS("method=pipe-sgd", "parameters.pipeline_warmup_epochs=2"));
    psc_options_init(&opt, sizeof opt);
    opt.server = d.endpoint;
    assert_ok(c, psc_open(&opt, &c));
    ck_assert_int_eq(psc_begin(c, rig_model, RIG_TENSORS, x), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "pipeline_warmup_epochs is 2: every worker must set");
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

/* The tree's sums, and those of whichever is taken by size: every member has the bits that psd gets. */
START_TEST(psd_says_how_sums_are_made)
{
    static float center[N];
    char place[64];
    snprintf(place, sizeof place, "file:/tmp/psd-test-tree-%d-%d", (int)getpid(), _i);
    struct run *r = run_of("", 4);
    r->ring = place;
    r->salt = 2;
    train(SETTINGS("method=d-sync", "clique.publish=5",
                   _i == 0 ? "clique.algorithm=tree" : "clique.algorithm=auto"),
          &r, 1, center);
    run_assert_same_x(r);
    ck_assert_mem_eq(center, r->member[0].x, sizeof center);
}
END_TEST

/* A kind of clique without a choice says so, at every member, before training. */
START_TEST(a_clique_without_the_algorithm_says_so)
{
    struct daemon d;
    struct run *r = run_of("", 2);
    rig_start(&d, SETTINGS("method=d-sync", "clique.algorithm=tree"));
    r->server = d.endpoint;
    run_start(r);
    run_end(r);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(r->member[k].rc, PSC_EUNSUPPORTED);
        assert_says(r->member[k].error, "clique.algorithm: found tree");
        assert_says(r->member[k].error, "allowed is ring");
    }
    daemon_remove(&d);
}
END_TEST

/* You et al. 2017, eq. 1-2, in double; over the tree and with overlap, their Sync EASGD3, the same. */
static const char *const vectors[][2] = {
    {"clique.algorithm=ring", "parameters.overlap=false"},
    {"clique.algorithm=ring", "parameters.overlap=true"},
    {"clique.algorithm=tree", "parameters.overlap=false"},
    {"clique.algorithm=tree", "parameters.overlap=true"},
};

START_TEST(vectors_follow_their_equations)
{
    enum { P = 3, PERIOD = 2 };
    static float center[N];
    static double x[P][N], middle[N];
    struct run *r = run_of("", P);
    struct dice dice = {110};
    char place[64];
    snprintf(place, sizeof place, "file:/tmp/psd-test-vectors-%d-%d", (int)getpid(), _i);
    r->ring = place;
    r->salt = 2;
    train(SETTINGS("method=sync-easgd", "clique.mode=vectors", "parameters.beta=0.6", "parameters.period=2",
                   "clique.publish=1", "parameters.schedule.warmup_steps=0", vectors[_i][0], vectors[_i][1]),
          &r, 1, center);
    for (int i = 0; i < N; i++)
        x[0][i] = x[1][i] = x[2][i] = middle[i] = dice_float(&dice);
    for (int t = 0; t < STEPS; t++) {
        static double moved[N];
        memset(moved, 0, sizeof moved);
        for (int k = 0; k < P; k++) {
            struct dice roll = {1000 * (uint64_t)t + 77 * ((uint64_t)k + 2)};
            for (int i = 0; i < N; i++) {
                double g = 0.5 * x[k][i] + (double)dice_float(&roll),
                       d = t % PERIOD == 0 ? x[k][i] - middle[i] : 0;
                moved[i] += 0.2 * d;
                x[k][i] -= 0.2 * d;
                if (rig_tensor_at((size_t)i)->role == PSC_PARAM)
                    x[k][i] -= 0.1 * g;
            }
        }
        for (int i = 0; i < N; i++)
            middle[i] += moved[i];
    }
    for (int i = 0; i < N; i++)
        if (fabs((double)center[i] - middle[i]) > 20 * 4.0 * STEPS * 0x1p-24)
            ck_abort_msg("center[%d] is %.9g; expected %.9g", i, (double)center[i], middle[i]);
}
END_TEST

static char vector_paths[MOST][100];

static int save_vectors(struct member *m, int t)
{
    return t == 7 ? psc_save(m->c, vector_paths[m->rank], m->x, NULL, 0) : PSC_OK;
}

static int load_vectors(struct member *m, int t)
{
    return t == 0 ? psc_load(m->c, vector_paths[m->rank], m->x, NULL, 0, NULL) : PSC_OK;
}

/* Bit for bit the same with a sum that travels while the gradient is computed, and from a state that was
 * saved while it did. */
START_TEST(vectors_that_overlap_have_the_same_bits)
{
    enum { P = 3 };
    static float centers[3][N], x[P][N];
    for (int i = 0; i < P; i++)
        snprintf(vector_paths[i], sizeof vector_paths[i], "/tmp/psd-test-vectors-%d-%d", (int)getpid(), i);
    for (int k = 0; k < 3; k++) {
        struct run *r = run_of("", P);
        r->salt = 2;
        r->before = k == 1 ? save_vectors : k == 2 ? load_vectors : NULL;
        r->steps = k == 2 ? STEPS - 7 : STEPS;
        train(SETTINGS("method=sync-easgd", "clique.mode=vectors", "parameters.beta=0.6",
                       _i == 0 ? "parameters.period=1" : "parameters.period=7", "clique.publish=1",
                       k == 0 ? "parameters.overlap=false" : "parameters.overlap=true",
                       _i == 0 ? "optimizer=sgd" : "optimizer=nesterov",
                       _i == 0 ? "lanes=3" : "parameters.momentum=0.5"),
              &r, 1, centers[k]);
        for (int i = 0; i < P; i++) {
            if (k == 0)
                memcpy(x[i], r->member[i].x, sizeof x[i]);
            ck_assert_msg(memcmp(x[i], r->member[i].x, sizeof x[i]) == 0, "run %d, rank %d: other bits", k,
                          i);
        }
        ck_assert_msg(memcmp(centers[0], centers[k], sizeof centers[0]) == 0, "run %d: another center", k);
    }
    for (int i = 0; i < P; i++)
        unlink(vector_paths[i]);
}
END_TEST

static int drain_at_four(struct member *m, int t)
{
    return t == 4 && m->rank == 0 ? (kill(*(pid_t *)m->run->local.codec, SIGTERM), PSC_OK) : PSC_OK;
}

/* All members stop after the same step, under either way of sharing. */
START_TEST(a_drain_stops_all_members_at_one_step)
{
    static const char *const methods[][3] = {
        {"method=mpi-asgd", "clique.mode=gradients", "parameters.overlap=false"},
        {"method=d-sync", "clique.mode=gradients", "parameters.overlap=false"},
        {"method=pipe-sgd", "clique.mode=gradients", "parameters.overlap=false"},
        {"method=sync-easgd", "clique.mode=vectors", "parameters.overlap=true"}};
    struct daemon d;
    rig_start(&d, SETTINGS(methods[_i][0], methods[_i][1], methods[_i][2]));
    struct run *r = run_of("", 3);
    r->server = d.endpoint;
    r->salt = 4;
    r->steps = 1000000;
    r->local.codec = (const char *)&d.pid;
    r->before = drain_at_four;
    run_start(r);
    run_end(r);
    for (int k = 0; k < 3; k++)
        ck_assert_msg(r->member[k].rc == PSC_DRAINED, "member %d: %s (%s)", k,
                      psc_result_name(r->member[k].rc), r->member[k].error);
    if (_i < 2)
        run_assert_same_x(r);
    ck_assert_int_eq(daemon_wait_exit(&d, UNIT_HANG_S), 0);
    daemon_remove(&d);
}
END_TEST

/* Waits for its transfer, or with a salt for all. */
static int exchange_and_wait(struct member *m, size_t n)
{
    uint64_t ticket = PSC_ALL;
    int rc = psc_pushpull_start(m->c, NULL, m->g, m->v, n, m->run->salt == 0 ? &ticket : NULL);
    return rc == PSC_OK ? psc_wait(m->c, ticket) : rc;
}

START_TEST(a_drain_is_told_to_all_members_that_wait)
{
    struct daemon d;
    rig_start(&d, SETTINGS("method=mpi-asgd"));
    struct run *r = run_of("", 3);
    r->server = d.endpoint;
    r->salt = (uint32_t)_i;
    r->steps = 1000000;
    r->local.codec = (const char *)&d.pid;
    r->before = drain_at_four;
    r->step = exchange_and_wait;
    run_start(r);
    run_end(r);
    for (int k = 0; k < 3; k++)
        ck_assert_msg(r->member[k].rc == PSC_DRAINED, "member %d: %s (%s)", k,
                      psc_result_name(r->member[k].rc), r->member[k].error);
    ck_assert_int_eq(daemon_wait_exit(&d, UNIT_HANG_S), 0);
    daemon_remove(&d);
}
END_TEST

/* A member of a clique whose psd drains before the clique has begun. */
struct latecomer {
    struct daemon *d;
    struct psc_clique *clique;
    int opened, rc;
    char error[600];
    pthread_t thread;
};

static void *come_late(void *arg)
{
    static float x[2][N];
    struct latecomer *l = arg;
    struct psc_options opt;
    struct psc *c;
    int rank = psc_clique_rank(l->clique);
    psc_options_init(&opt, sizeof opt);
    opt.server = l->d->endpoint;
    opt.clique = l->clique;
    opt.heartbeat_ms = RIG_HEARTBEAT_MS;
    l->opened = psc_open(&opt, &c);
    if (rank == 0)
        daemon_stop(l->d, SIGTERM, UNIT_HANG_S);
    l->rc = psc_begin(c, rig_model, RIG_TENSORS, x[rank]);
    snprintf(l->error, sizeof l->error, "%s", psc_error(c));
    psc_close(c);
    psc_clique_close(l->clique);
    return NULL;
}

START_TEST(a_drain_before_the_begin_is_the_end_for_all_members)
{
    struct daemon d;
    struct psc_clique *cliques[2];
    struct latecomer l[2];
    rig_start(&d, SETTINGS("method=mpi-sgd", "limits.drain_s=1"));
    ck_assert_int_eq(circle_open(2, cliques), PSC_OK);
    for (int i = 0; i < 2; i++) {
        l[i] = (struct latecomer){.d = &d, .clique = cliques[i]};
        ck_assert_int_eq(pthread_create(&l[i].thread, NULL, come_late, &l[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(l[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(l[i].opened, PSC_OK);
        ck_assert_msg(l[i].rc == PSC_DRAINED, "member %d: %s: %s", i, psc_result_name(l[i].rc), l[i].error);
    }
    daemon_remove(&d);
}
END_TEST

static struct daemon swapped;
static const char *const without_checkpoints[] = {RIG_CUT, "checkpoint.every_s=0", NULL};

/* Every ten steps another method. */
static int swap(struct member *m, int t)
{
    static const char *const methods[] = {
        "method: eamsgd\nparameters: {period: 3}\n",
        "method: sync-sgd\n",
        "method: async-easgd\nparameters: {overlap: true, period: 2}\n",
        "method: downpour\nparameters: {period: 4}\n",
        "method: async-measgd\ncodec: {message: int8, error_feedback: true}\n",
        "method: async-msgd\n"};
    if (m->rank != 0 || t % 10 != 5)
        return PSC_OK;
    ck_assert(daemon_write_config(&swapped, methods[(size_t)t / 10 % ROWS(methods)]));
    free(daemon_ask(&swapped, "POST", "/reload"));
    char *workers = daemon_ask(&swapped, "GET", "/workers");
    bool told = workers != NULL && strstr(workers, "\"members\": 3") != NULL;
    free(workers);
    return told ? PSC_OK : PSC_EINVAL;
}

static int same_generation(struct member *m)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(m->c, &info);
    bool road = (strcmp(info.transport, "none") == 0) == (m->rank != 0); /* the leader's is no other's */
    return road && info.generation >= 6 ? psc_point(m->c, m->x) : PSC_EINVAL;
}

/* The members keep the same bits through all of it. */
START_TEST(members_follow_their_leader_through_changes_of_the_method)
{
    ck_assert_int_eq(daemon_prepare(&swapped, NULL, without_checkpoints), 0);
    ck_assert(daemon_write_config(&swapped, "method: mpi-asgd\n"));
    ck_assert_int_eq(daemon_start(&swapped, NULL), 0);
    struct run *r = run_of("", 3);
    r->server = swapped.endpoint;
    r->salt = 8;
    r->steps = 79;
    r->before = swap;
    r->after = same_generation;
    run_go(r);
    run_assert_same_x(r);
    daemon_remove(&swapped);
}
END_TEST

static const char *const followers[] = {"method: async-msgd\n", "method: eamsgd\nparameters: {period: 3}\n"};
static const char *next_method;
static bool has_diverged[MOST];

static uint32_t generation_of(const struct member *m)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(m->c, &info);
    return info.generation;
}

/* The leader knows of the other method when its next step begins. */
static int reload_and_await(const struct member *m, const char *method)
{
    uint32_t generation = generation_of(m);
    ck_assert(daemon_write_config(&swapped, method));
    free(daemon_ask(&swapped, "POST", "/reload"));
    for (double end = unit_now_s() + UNIT_HANG_S; generation_of(m) == generation; unit_nap_ms(1))
        if (unit_now_s() > end)
            return PSC_EINVAL;
    return PSC_OK;
}

static int change(struct member *m, int t)
{
    return t == 5 && m->rank == 0 ? reload_and_await(m, next_method) : PSC_OK;
}

/* Its unsent steps are not finite then. */
static int diverge_meanwhile(struct member *m, size_t n_samples)
{
    if (psc_clock(m->c) != 5 || has_diverged[m->rank])
        return psc_step(m->c, m->x, m->g, n_samples);
    has_diverged[m->rank] = true;
    m->x[0] = NAN;
    int rc = psc_step(m->c, m->x, m->g, n_samples);
    return rc == PSC_EVALUE ? psc_pull(m->c, NULL, m->x) : PSC_EINVAL;
}

static int both_follow(struct member *m)
{
    return generation_of(m) == 1 ? psc_point(m->c, m->x) : PSC_EINVAL;
}

START_TEST(members_follow_into_a_method_whose_first_step_fails)
{
    next_method = followers[_i];
    ck_assert_int_eq(daemon_prepare(&swapped, NULL, without_checkpoints), 0);
    ck_assert(daemon_write_config(&swapped, "method: downpour\nparameters: {period: 4}\n"));
    ck_assert_int_eq(daemon_start(&swapped, NULL), 0);
    struct run *r = run_of("", 2);
    r->server = swapped.endpoint;
    r->salt = 8;
    r->before = change;
    r->step = diverge_meanwhile;
    r->after = both_follow;
    run_go(r);
    run_assert_same_x(r);
    daemon_remove(&swapped);
}
END_TEST

/* Between two steps the method changes once, or twice, at last to one that the program cannot make. */
static int change_in_vain(struct member *m, int t)
{
    int rc = PSC_OK;
    if (t != 5 || m->rank != 0)
        return rc;
    if (m->run->salt > 1)
        rc = reload_and_await(m, "method: async-msgd\n");
    return rc == PSC_OK ? reload_and_await(m, "method: async-easgd\noptimizer: external\n") : rc;
}

static bool has_failed[MOST];

static int step_again(struct member *m, size_t n_samples)
{
    int rc = psc_step(m->c, m->x, m->g, n_samples);
    if (psc_clock(m->c) != 5 || has_failed[m->rank] || rc == PSC_OK)
        return rc;
    has_failed[m->rank] = true;
    if (rc != PSC_EUNSUPPORTED || strstr(psc_error(m->c), "needs its own step") == NULL)
        return rc;
    return m->rank == 0 ? reload_and_await(m, "method: eamsgd\n") : PSC_OK;
}

START_TEST(members_go_on_after_a_change_that_failed)
{
    ck_assert_int_eq(daemon_prepare(&swapped, NULL, without_checkpoints), 0);
    ck_assert(daemon_write_config(&swapped, "method: downpour\nparameters: {period: 4}\n"));
    ck_assert_int_eq(daemon_start(&swapped, NULL), 0);
    struct run *r = run_of("", 2);
    r->server = swapped.endpoint;
    r->salt = 1 + (uint32_t)_i;
    r->before = change_in_vain;
    r->step = step_again;
    run_go(r);
    for (int i = 0; i < 2; i++)
        ck_assert(has_failed[i]);
    run_assert_same_x(r);
    daemon_remove(&swapped);
}
END_TEST

static int by_hand(struct member *m, int t)
{
    static float y[MOST][N];
    int rc = psc_push(m->c, NULL, m->x, 1);
    if (t != 1)
        return rc;
    if (rc == PSC_OK)
        rc = psc_pull(m->c, "embedding", y[m->rank]);
    if (rc == PSC_OK && memcmp(y[m->rank], m->x + 3900, 4100 * sizeof *m->x) != 0)
        rc = PSC_EINVAL;
    return rc == PSC_OK ? psc_pull(m->c, NULL, m->x) : rc;
}

START_TEST(by_hand_a_clique_moves_values_together)
{
    static float center[N];
    struct run *r = run_of("", 2);
    r->before = by_hand;
    train(SETTINGS("method=mpi-esgd"), &r, 1, center);
    run_assert_same_x(r);
}
END_TEST

static const char *const momenta[][2] = {{"async-measgd", "parameters.period=4"},
                                         {"eamsgd", "parameters.period=4"}};

/* Between two exchanges. */
static int look_at_center(struct member *m, int t)
{
    static float y[MOST][N];
    return t == 6 ? psc_pull(m->c, NULL, y[m->rank]) : PSC_OK;
}

/* Only a pull into the array that psc_step moves restarts the worker, and with it its momentum. */
START_TEST(a_pull_into_another_array_changes_no_member)
{
    static float center[2][N], x[2][N];
    char method[64];
    snprintf(method, sizeof method, "method=%s", momenta[_i][0]);
    for (int k = 0; k < 2; k++) {
        struct run *r = run_of("", 2);
        r->salt = 2;
        r->before = k == 0 ? NULL : look_at_center;
        train(SETTINGS(method, momenta[_i][1]), &r, 1, center[k]);
        run_assert_same_x(r);
        memcpy(x[k], r->member[1].x, sizeof x[k]);
    }
    ck_assert_mem_eq(x[0], x[1], sizeof x[0]);
    ck_assert_mem_eq(center[0], center[1], sizeof center[0]);
}
END_TEST

static const char *const cliques_of_all[] = {
    "method: d-sync\nparameters: {learning_rate: %s}\n",
    "method: pipe-sgd\nparameters: {learning_rate: %s, pipeline_warmup: 0}\n",
    "method: sync-easgd\nclique: {mode: vectors}\nparameters: {learning_rate: %s}\n"};
static const char *clique_of_all;

static void write_rate(const char *rate)
{
    char text[160];
    snprintf(text, sizeof text, clique_of_all, rate);
    ck_assert(daemon_write_config(&swapped, text));
}

/* psd dies, and comes back with another learning rate. Only the leader hears of it. */
static int come_back_otherwise(struct member *m, int t)
{
    struct psc_metrics metrics = {.size = sizeof metrics};
    if (t != 5 || m->rank != 0)
        return PSC_OK;
    if (!daemon_checkpoint(&swapped, UNIT_HANG_S))
        return PSC_EINVAL;
    daemon_stop(&swapped, SIGKILL, UNIT_HANG_S);
    write_rate("0.05");
    if (daemon_start(&swapped, "--resume") != 0)
        return PSC_EINVAL;
    for (double end = unit_now_s() + UNIT_HANG_S; generation_of(m) == 0; unit_nap_ms(5))
        if (unit_now_s() > end || psc_report(m->c, &metrics) != PSC_OK)
            return PSC_EINVAL;
    return PSC_OK;
}

/* Else the members would go on with a learning rate each. */
START_TEST(where_all_are_one_clique_another_method_ends_it)
{
    static const char *const settings[] = {RIG_CUT, RIG_SAME_ADDRESS, "checkpoint.every_s=0",
                                           "clique.publish=1", NULL};
    clique_of_all = cliques_of_all[_i];
    ck_assert_int_eq(daemon_prepare(&swapped, NULL, settings), 0);
    write_rate("0.1");
    ck_assert_int_eq(daemon_start(&swapped, NULL), 0);
    struct run *r = run_of("", 3);
    r->server = swapped.endpoint;
    r->salt = 8;
    r->before = come_back_otherwise;
    run_start(r);
    run_end(r);
    ck_assert_msg(r->member[0].rc == PSC_EUNSUPPORTED, "member 0: %s (%s)", psc_result_name(r->member[0].rc),
                  r->member[0].error);
    assert_says(r->member[0].error, "restart the clique");
    for (int i = 1; i < 3; i++)
        ck_assert_msg(r->member[i].rc == PSC_ECLIQUE, "member %d: %s (%s)", i,
                      psc_result_name(r->member[i].rc), r->member[i].error);
    daemon_remove(&swapped);
}
END_TEST

static uint64_t saved_at[MOST];

static int save_and_read_version(struct member *m)
{
    char path[128];
    snprintf(path, sizeof path, "%s/member-%d", swapped.dir, m->rank);
    int rc = psc_save(m->c, path, m->x, NULL, 0);
    if (rc == PSC_OK)
        rc = psc_saved_version(m->c, path, &saved_at[m->rank]);
    unlink(path);
    return rc;
}

/* By which members find the states that belong together. */
START_TEST(members_that_save_after_one_step_say_the_same_version)
{
    ck_assert_int_eq(daemon_prepare(&swapped, NULL, without_checkpoints), 0);
    clique_of_all = cliques_of_all[_i];
    write_rate("0.1");
    ck_assert_int_eq(daemon_start(&swapped, NULL), 0);
    struct run *r = run_of("", 3);
    r->server = swapped.endpoint;
    r->after = save_and_read_version;
    run_go(r);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(saved_at[i], STEPS);
    daemon_remove(&swapped);
}
END_TEST

static const struct member *leader;
static _Atomic bool changed_again;

static bool await_generation(uint32_t generation)
{
    double end = unit_now_s() + UNIT_HANG_S;
    while (generation_of(leader) < generation && unit_now_s() < end)
        unit_nap_ms(1);
    return generation_of(leader) == generation;
}

static void reload(const char *text)
{
    ck_assert(daemon_write_config(&swapped, text));
    free(daemon_ask(&swapped, "POST", "/reload"));
}

/* Between the leader's message, which announces the first new method, and the method itself. */
static void change_again(const struct psc_collective *op)
{
    const struct psc_leader_message *o = op->data;
    if (op->kind != PSC_BROADCAST || op->n != sizeof *o || !o->welcome_follows || changed_again)
        return;
    reload("method: async-easgd\n");
    changed_again = await_generation(2);
}

static int change_at_five(struct member *m, int t)
{
    if (m->rank != 0 || t != 5)
        return PSC_OK;
    leader = m;
    reload("method: eamsgd\n");
    return await_generation(1) ? PSC_OK : PSC_EINVAL;
}

static int is_second(struct member *m)
{
    return generation_of(m) == 2 ? psc_point(m->c, m->x) : PSC_EINVAL;
}

/* Else the velocity that the leader sends has no place at the others. */
START_TEST(members_take_the_method_that_their_leader_has)
{
    ck_assert_int_eq(daemon_prepare(&swapped, NULL, without_checkpoints), 0);
    ck_assert(daemon_write_config(&swapped, "method: mpi-asgd\n"));
    ck_assert_int_eq(daemon_start(&swapped, NULL), 0);
    struct run *r = run_of("", 3);
    r->server = swapped.endpoint;
    r->salt = 8;
    r->before = change_at_five;
    r->after = is_second;
    circle_before = change_again;
    run_go(r);
    circle_before = NULL;
    ck_assert(changed_again);
    run_assert_same_x(r);
    daemon_remove(&swapped);
}
END_TEST

#define OWN         "optimizer: external\nparameters: {schedule: {kind: constant, warmup_steps: 0}, "
#define ELASTIC     "method: async-easgd\n" OWN "period: 100, learning_rate: "
#define DOWNPOUR(p) "method: downpour\n" OWN "period: " #p ", learning_rate: "

/* The job is in turn of the first method, of the second and of the first. */
static const struct own_change {
    const char *first, *second;
    bool within;   /* psd refuses the exchange that follows the program's step */
    int own_steps; /* that the program makes */
} own_changes[] = {
    {ELASTIC "0.1}\n", ELASTIC "0.05}\n", false, STEPS},
    {DOWNPOUR(100) "0.1}\n", DOWNPOUR(100) "0.05}\n", false, STEPS},
    {DOWNPOUR(100) "0.1}\n", "method: eamsgd\nparameters: {period: 3}\n", false, STEPS - 3},
    {"method: eamsgd\nparameters: {period: 3}\n", ELASTIC "0.1}\n", false, 3},
    {DOWNPOUR(6) "0.1}\n", DOWNPOUR(6) "0.05}\n", true, STEPS},
    {DOWNPOUR(6) "0.1}\n", "method: async-sgd\n", true, STEPS - 2},
};
static const struct own_change *own_change;

static bool change_to(const struct member *m, const char *text)
{
    leader = m;
    return reload_and_await(m, text) == PSC_OK;
}

/* Steps 5 to 7 are of the second method; if it changes within step 5, this is of the first. */
static int change_and_change_back(struct member *m, int t)
{
    bool there = t == 5 && !own_change->within, back = t == 8;
    if (m->rank != 0 || (!there && !back))
        return PSC_OK;
    return change_to(m, there ? own_change->second : own_change->first) ? PSC_OK : PSC_EINVAL;
}

/* The program's own step, whose state is v, with a decay that depends on the x that it sees. */
static void step_with_momentum(void *member, float *x, const float *g, double rate)
{
    struct member *m = member;
    if (own_change != NULL && own_change->within && m->rank == 0 && m->own_steps == 5)
        ck_assert(change_to(m, own_change->second));
    for (size_t i = 0; i < N; i++)
        if (rig_tensor_at(i)->role == PSC_PARAM) {
            m->v[i] = 0.5f * m->v[i] + g[i] + 0.25f * x[i];
            x[i] -= (float)rate * m->v[i];
        }
    m->own_steps++;
}

static void assert_same_own_steps(const struct run *r, int n)
{
    run_assert_same_x(r);
    for (int i = 0; i < r->members; i++) {
        ck_assert_int_eq(r->member[i].own_steps, n);
        ck_assert_mem_eq(r->member[0].v, r->member[i].v, sizeof r->member[0].v);
    }
}

/* The state of a program's optimizer is not the library's to send. */
START_TEST(members_make_the_programs_step_whenever_their_leader_does)
{
    own_change = &own_changes[_i];
    ck_assert_int_eq(daemon_prepare(&swapped, NULL, without_checkpoints), 0);
    ck_assert(daemon_write_config(&swapped, own_change->first));
    ck_assert_int_eq(daemon_start(&swapped, NULL), 0);
    struct run *r = run_of("", 3);
    r->server = swapped.endpoint;
    r->salt = 8;
    r->own_step = step_with_momentum;
    r->before = change_and_change_back;
    r->after = draw;
    run_go(r);
    assert_same_own_steps(r, own_change->own_steps);
    daemon_remove(&swapped);
}
END_TEST

static const char *const own_jobs[][4] = {
    {"method=async-easgd", "parameters.period=2"},
    {"method=async-easgd", "parameters.period=2", "parameters.overlap=true"},
    {"method=async-easgd", "parameters.period=4", "parameters.overlap=3"},
    {"method=sync-easgd", "parameters.period=1"},
    {"method=downpour", "parameters.period=2"},
    {"method=diloco", "parameters.period=4", "parameters.fragments=2"},
    {"method=diloco", "parameters.period=4", "parameters.overlap=2"},
};

/* Where an exchange moves x before the step, and where one does after it. */
START_TEST(members_make_the_programs_step_from_the_same_x)
{
    static float center[N];
    const char *const *job = own_jobs[_i];
    struct run *r = run_of("", 3);
    own_change = NULL;
    r->salt = 8;
    r->own_step = step_with_momentum;
    train(SETTINGS("optimizer=external", job[0], job[1], job[2] != NULL ? job[2] : "lanes=3"), &r, 1, center);
    assert_same_own_steps(r, STEPS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-group-psd");
    TCase *tc = tcase_create("group");
    tcase_add_loop_test(tc, a_clique_of_equals_is_one_worker, 0, ROWS(presets));
    tcase_add_loop_test(tc, members_have_the_x_of_a_leader_that_overlaps, 0, 2);
    tcase_add_loop_test(tc, members_are_late_together, 0, ROWS(late_cliques));
    tcase_add_test(tc, sync_sgd_over_cliques_is_sync_sgd);
    tcase_add_loop_test(tc, psd_keeps_what_one_clique_moves, 0, 2);
    tcase_add_loop_test(tc, members_that_save_after_one_step_say_the_same_version, 0, ROWS(cliques_of_all));
    tcase_add_test(tc, a_warm_up_in_epochs_is_one_in_steps);
    tcase_add_test(tc, without_the_size_of_an_epoch_it_is_refused);
    tcase_add_loop_test(tc, psd_says_how_sums_are_made, 0, 2);
    tcase_add_test(tc, a_clique_without_the_algorithm_says_so);
    tcase_add_loop_test(tc, vectors_follow_their_equations, 0, 4);
    tcase_add_loop_test(tc, vectors_that_overlap_have_the_same_bits, 0, 2);
    tcase_add_loop_test(tc, a_drain_stops_all_members_at_one_step, 0, 4);
    tcase_add_loop_test(tc, a_drain_is_told_to_all_members_that_wait, 0, 2);
    tcase_add_test(tc, a_drain_before_the_begin_is_the_end_for_all_members);
    tcase_add_test(tc, members_follow_their_leader_through_changes_of_the_method);
    tcase_add_loop_test(tc, members_follow_into_a_method_whose_first_step_fails, 0, ROWS(followers));
    tcase_add_loop_test(tc, members_go_on_after_a_change_that_failed, 0, 2);
    tcase_add_test(tc, members_take_the_method_that_their_leader_has);
    tcase_add_loop_test(tc, members_make_the_programs_step_whenever_their_leader_does, 0, ROWS(own_changes));
    tcase_add_loop_test(tc, members_make_the_programs_step_from_the_same_x, 0, ROWS(own_jobs));
    tcase_add_loop_test(tc, where_all_are_one_clique_another_method_ends_it, 0, ROWS(cliques_of_all));
    tcase_add_test(tc, by_hand_a_clique_moves_values_together);
    tcase_add_loop_test(tc, a_pull_into_another_array_changes_no_member, 0, ROWS(momenta));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
