/* Cliques that lose members and go on, by their equations. A member that is lost closes its handles before a
 * step. tests/system/faults/test_losses.c kills processes. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/internal.h"
#include "client/psclique.h"
#include "client/save_format.h"
#include "tests/client/member/group_fixture.h"

enum { LOST_AT = 5 };

static char dir[32], place[64];
static struct daemon d;

static void set_up(void)
{
    strcpy(dir, "/tmp/psd-losses-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(place, sizeof place, "file:%s/ring", dir);
}

static void tear_down(void)
{
    ck_assert_int_eq(rmdir(dir), 0);
}

/* A clique over the ring whose member `lost` leaves. */
static struct run *clique_of(const char *method, int members, int lost)
{
    struct run *r = run_of(method, members);
    r->ring = place;
    r->links = 1;
    r->on_loss = "shrink";
    r->leaves_at[lost] = LOST_AT;
    return r;
}

static void expect_ok(const struct run *r)
{
    for (int i = 0; i < r->members; i++)
        ck_assert_msg(r->member[i].rc == PSC_OK, "member %d: %s (%s)", i, psc_result_name(r->member[i].rc),
                      r->member[i].error);
}

/* All that are left have the same x. */
static const float *x_of_those_left(const struct run *r)
{
    const float *first = NULL;
    for (int i = 0; i < r->members; i++) {
        if (r->leaves_at[i] > 0)
            continue;
        if (first != NULL)
            ck_assert_mem_eq(first, r->member[i].x, sizeof r->member[i].x);
        first = r->member[i].x;
    }
    return first;
}

/* In double: x by the mean of the gradients of those that make the step, weighted by samples. */
static void expect_means(const struct run *r, const float *x)
{
    static double twin[N], mean[N];
    struct dice dice = {110};
    for (int i = 0; i < N; i++)
        twin[i] = dice_float(&dice);
    for (int t = 0; t < r->steps; t++) {
        double total = 0;
        memset(mean, 0, sizeof mean);
        for (int m = 0; m < r->members; m++) {
            struct dice roll = {1000 * (uint64_t)t + 77 * ((uint64_t)m + r->salt)};
            double n = r->leaves_at[m] > 0 && t >= r->leaves_at[m] ? 0 : (double)r->samples[m];
            for (int i = 0; i < N; i++)
                mean[i] += n * (0.5 * twin[i] + (double)dice_float(&roll));
            total += n;
        }
        for (int i = 0; i < N; i++)
            if (rig_tensor_at((size_t)i)->role == PSC_PARAM)
                twin[i] -= r->local.learning_rate * mean[i] / total;
    }
    /* Values stay below 4; a step rounds less than ten times, and its errors shrink. */
    for (int i = 0; i < N; i++)
        ck_assert_msg(rig_tensor_at((size_t)i)->role != PSC_PARAM ||
                          fabs((double)x[i] - twin[i]) <= 10 * 4.0 * STEPS * 0x1p-24,
                      "x[%d] is %.9g; expected %.9g", i, (double)x[i], twin[i]);
}

/* Any member may be lost where there is no server, one after the other, down to a single one. */
START_TEST(means_are_those_of_the_members_left)
{
    struct run *r = clique_of("d-sync", _i < 3 ? 3 : 4, _i % 3);
    r->salt = 5;
    for (int m = 0; m < MOST; m++)
        r->samples[m] = 20 + 30 * (size_t)m;
    if (_i >= 3) {
        r->leaves_at[(_i + 1) % 3] = LOST_AT;
        r->leaves_at[(_i + 2) % 3] = LOST_AT + 3;
    }
    run_start(r);
    run_end(r);
    expect_ok(r);
    expect_means(r, x_of_those_left(r));
}
END_TEST

static int count_steps(struct member *m)
{
    return psc_clock(m->c) == STEPS ? PSC_OK : -100 - (int)psc_clock(m->c);
}

/* A member may be several steps behind when the pipeline is dropped: its next step then brings it to where
 * the others are. */
static int step_up_to_the_last(struct member *m, size_t n)
{
    return psc_clock(m->c) < STEPS ? psc_step(m->c, m->x, m->g, n) : PSC_OK;
}

/* What was in a pipeline is dropped, by all or by none. */
START_TEST(a_pipeline_fills_anew)
{
    struct run *r = clique_of("pipe-sgd", 4, _i);
    r->salt = 5;
    r->local.pipeline = 2 + (uint32_t)_i;
    r->local.pipeline_warmup = 1;
    r->step = step_up_to_the_last;
    r->after = count_steps;
    run_start(r);
    run_end(r);
    expect_ok(r);
    x_of_those_left(r);
}
END_TEST

static void train(const char *const *settings, struct run *r, float *center)
{
    struct psc_options opt;
    struct psc *c;
    rig_start(&d, settings);
    r->server = d.endpoint;
    run_start(r);
    run_end(r);
    expect_ok(r);
    psc_options_init(&opt, sizeof opt);
    opt.server = d.endpoint;
    opt.kind = PSC_OBSERVER;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, center));
    psc_close(c);
    daemon_remove(&d);
}

static int draw(struct member *m)
{
    return psc_point(m->c, m->x);
}

#define SETTINGS(...)                                                                                        \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        RIG_CUT, "checkpoint.every_s=0", "clique.on_loss=shrink", __VA_ARGS__, NULL                          \
    }

static const struct {
    const char *method, *more;
} presets[] = {
    {"method=sync-sgd", "parameters.weight_decay=0.01"},
    {"method=async-sgd", "parameters.overlap=true"},
    {"method=async-easgd", "parameters.overlap=true"},
    {"method=eamsgd", "parameters.period=2"},
    {"method=diloco", "parameters.period=5"},
    {"method=mpi-esgd", "parameters.period=4"},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

/* Their gradients are alike: the mean of two is each of them, as 64 g + 64 g is exact, and so is that of the
 * one that is left. Bit for bit, the center and x. */
START_TEST(what_is_left_of_equals_is_one_worker)
{
    static float of_one[N], of_two[N];
    const char *const *settings = SETTINGS(presets[_i].method, presets[_i].more);
    struct run *one = run_of("", 1), *two = clique_of("", 2, 1);
    one->after = two->after = draw;
    train(settings, one, of_one);
    train(settings, two, of_two);
    ck_assert_mem_eq(of_one, of_two, sizeof of_one);
    ck_assert_mem_eq(one->member[0].x, two->member[0].x, sizeof of_one);
}
END_TEST

/* With different gradients: all that are left have the same bits, whether the leader makes the steps or not.
 */
START_TEST(those_left_share_x)
{
    static const char *const methods[] = {"method=mpi-sgd", "method=mpi-esgd", "method=d-sync",
                                          "method=pipe-sgd"};
    static float center[N];
    struct run *r = clique_of("", 4, 1 + _i % 3);
    r->salt = 7;
    r->after = draw;
    train(SETTINGS(methods[_i], "parameters.schedule.warmup_steps=3"), r, center);
    const float *x = x_of_those_left(r);
    if (strcmp(methods[_i], "method=mpi-esgd") != 0) /* whose x and center differ */
        for (int i = 0; i < N; i++)
            ck_assert(rig_tensor_at((size_t)i)->role != PSC_PARAM || x[i] == center[i]);
}
END_TEST

static int pull(struct member *m)
{
    return psc_pull(m->c, NULL, m->x);
}

static float seen[MOST][STEPS][2][N]; /* x and its velocity after each step */

static int step_and_note(struct member *m, size_t n)
{
    uint64_t t = psc_clock(m->c);
    int rc = psc_step(m->c, m->x, m->g, n);
    memcpy(seen[m->rank][t][0], m->x, sizeof m->x);
    memcpy(seen[m->rank][t][1], m->c->worker.vectors[PSC_VECTOR_V], sizeof m->x);
    return rc;
}

enum { LOST_LATE = 8 };

/* The exchange of the step in which the member is lost has landed. */
static int await_exchange(struct member *m, int t)
{
    if (m->rank == 0 && t == LOST_LATE)
        psc_async_await(m->c, m->c->worker.prefetch->ticket);
    return run_move_buffers(m, t);
}

/* The leader's exchange moves its own x while it computes, or has moved it; weight decay is at the x of the
 * gradient. */
START_TEST(those_left_share_x_whose_exchange_had_begun)
{
    static float center[N];
    struct run *r = clique_of("", 3, 2);
    r->leaves_at[2] = LOST_LATE;
    r->salt = 7;
    r->before = _i > 0 ? await_exchange : run_move_buffers;
    r->step = step_and_note;
    train(SETTINGS("method=eamsgd", "parameters.period=4", "parameters.overlap=true",
                   "parameters.weight_decay=0.1"),
          r, center);
    for (int t = 0; t < STEPS; t++)
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < N; i++)
                ck_assert_msg(seen[0][t][k][i] == seen[1][t][k][i], "step %d, %s[%d]: %.9g and %.9g", t,
                              k == 0 ? "x" : "v", i, (double)seen[0][t][k][i], (double)seen[1][t][k][i]);
}
END_TEST

/* Each member has its own x; the center is the same, and psd has a copy. */
START_TEST(those_left_share_the_center)
{
    static float center[N];
    struct run *r = clique_of("", 3, 1 + _i);
    r->salt = 7;
    r->after = pull;
    train(SETTINGS("method=sync-easgd", "clique.mode=vectors", "clique.publish=1",
                   _i > 0 ? "parameters.period=3" : "parameters.period=1",
                   _i > 0 ? "parameters.overlap=true" : "parameters.overlap=false"),
          r, center);
    ck_assert_mem_eq(x_of_those_left(r), center, sizeof center);
}
END_TEST

/* The sum of the next step has landed, and no step has applied it. Member 1 has not received it, as where the
 * one that is lost has not passed it on; unless that has happened just so, and it has the sum from the other.
 */
static int miss_a_sum(struct member *m, int t)
{
    if (t != LOST_AT)
        return PSC_OK;
    uint64_t exchanged = m->c->group.losses.exchanged, formed = m->c->group.losses.formed;
    int rc = m->c->rule->gather(m->c);
    if (m->rank == 1 && m->c->group.losses.formed == formed) {
        m->c->worker.prefetch->landed = false;
        m->c->group.losses.exchanged = exchanged;
    }
    return rc == PSC_OK ? psc_wait(m->c, PSC_ALL) : rc; /* all members meet there */
}

START_TEST(a_sum_that_not_all_have_is_taken_from_one_that_has)
{
    static float center[N];
    struct run *r = clique_of("", 3, 2);
    r->salt = 7;
    r->before = miss_a_sum;
    r->after = pull;
    train(SETTINGS("method=sync-easgd", "clique.mode=vectors", "clique.publish=1", "parameters.period=1",
                   "parameters.overlap=true"),
          r, center);
    ck_assert_mem_eq(x_of_those_left(r), center, sizeof center);
}
END_TEST

/* Whether psd has asked to save this version, and the leader has not told the others. */
static bool has_news(struct psc *c, uint64_t version)
{
    pthread_mutex_lock(&c->session.shared.lock);
    uint64_t asked = c->session.shared.save_version;
    pthread_mutex_unlock(&c->session.shared.lock);
    return asked == version && asked != c->group.told_version;
}

static uint64_t saves_of(const struct member *m)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(m->c, &info);
    return info.save_version;
}

static uint64_t saves_before[MOST];
static atomic_bool may_leave;

/* The member that is lost waits until the leader has begun its sum of the step after. */
static int step_and_await_leader(struct member *m, size_t n)
{
    double end = unit_now_s() + UNIT_HANG_S;
    int rc = psc_step(m->c, m->x, m->g, n);
    while (m->rank == 2 && psc_clock(m->c) == LOST_AT && !atomic_load(&may_leave) && unit_now_s() < end)
        unit_nap_ms(1);
    return rc;
}

/* The sum of the step before has failed, as the leader knows, and psd asks to save: the next sum, which would
 * tell it, cannot begin. */
static int be_asked_after_the_loss(struct member *m, int t)
{
    double end = unit_now_s() + UNIT_HANG_S;
    int ended = 0;
    if (t != LOST_AT + 1)
        return PSC_OK;
    saves_before[m->rank] = saves_of(m);
    if (m->rank > 0)
        return PSC_OK;
    atomic_store(&may_leave, true);
    while (ended == 0 && unit_now_s() < end && psc_clique_test(m->clique, 0, &ended) == PSC_OK)
        unit_nap_ms(1);
    if (ended == 0 || psc_clique_wait(m->clique, 0) != PSC_ECLIQUE || !daemon_checkpoint(&d, UNIT_HANG_S))
        return PSC_EINVAL;
    uint64_t version = (uint64_t)daemon_number(&d, "/status", "checkpoint.last_version");
    while (!has_news(m->c, version) && unit_now_s() < end)
        unit_nap_ms(1);
    return has_news(m->c, version) ? PSC_OK : PSC_EINVAL;
}

static int count_saves(struct member *m)
{
    return saves_of(m) > saves_before[m->rank] ? PSC_OK : PSC_EDAMAGED;
}

START_TEST(those_left_are_asked_to_save)
{
    static float center[N];
    struct run *r = clique_of("", 3, 2);
    atomic_store(&may_leave, false);
    r->step = step_and_await_leader;
    r->before = be_asked_after_the_loss;
    r->after = count_saves;
    train(SETTINGS("method=pipe-sgd", "parameters.pipeline_warmup=0", "clique.publish=1"), r, center);
}
END_TEST

static atomic_int waiting;

/* The sum of the step before has begun without the member that is lost. Another may have it, and save it. */
static int save_after_the_loss(struct member *m, int t)
{
    double end = unit_now_s() + UNIT_HANG_S;
    char path[100];
    if (t != LOST_AT + 1)
        return PSC_OK;
    snprintf(path, sizeof path, "%s/state-%d", dir, m->rank);
    atomic_fetch_add(&waiting, 1);
    while (atomic_load(&waiting) < 2 && unit_now_s() < end)
        unit_nap_ms(1);
    atomic_store(&may_leave, true);
    if (psc_save(m->c, path, m->x, NULL, 0) != PSC_ECLIQUE || unlink(path) == 0)
        return PSC_EINVAL;
    return psc_save(m->c, path, m->x, NULL, 0) == PSC_OK && unlink(path) == 0 ? PSC_OK : PSC_EINVAL;
}

START_TEST(a_member_that_loses_sums_saves_nothing)
{
    static float center[N];
    struct run *r = clique_of("", 3, 2);
    atomic_store(&may_leave, false);
    atomic_store(&waiting, 0);
    r->salt = 7;
    r->step = step_and_await_leader;
    r->before = save_after_the_loss;
    r->after = _i > 0 ? pull : NULL;
    if (_i > 0)
        train(SETTINGS("method=sync-easgd", "clique.mode=vectors", "parameters.period=1",
                       "parameters.overlap=true"),
              r, center);
    else
        train(SETTINGS("method=pipe-sgd", "parameters.pipeline_warmup=0"), r, center);
    x_of_those_left(r);
}
END_TEST

/* The session is the leader's. */
START_TEST(without_its_leader_a_clique_ends)
{
    struct run *r = clique_of("", 3, 0);
    rig_start(&d, SETTINGS(_i > 0 ? "method=d-sync" : "method=mpi-asgd"));
    r->server = d.endpoint;
    run_start(r);
    run_end(r);
    for (int i = 1; i < 3; i++) {
        ck_assert_msg(r->member[i].rc == PSC_ECLIQUE, "member %d: %s", i, r->member[i].error);
        assert_says(r->member[i].error, "rank 0 of the clique is lost, and with it the session");
    }
    daemon_remove(&d);
}
END_TEST

/* Kinds of cliques that cannot, and a ring that was opened otherwise. */
START_TEST(a_clique_that_cannot_is_refused)
{
    struct run *r = run_of("", 2);
    rig_start(&d, SETTINGS("method=mpi-sgd"));
    r->server = d.endpoint;
    r->ring = _i > 0 ? place : NULL;
    run_start(r);
    run_end(r);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(r->member[i].rc == PSC_EUNSUPPORTED, "member %d: %s", i, r->member[i].error);
        assert_says(r->member[i].error, "clique.on_loss: found shrink");
        assert_says(r->member[i].error, _i > 0 ? "over ring" : "over circle");
    }
    daemon_remove(&d);
}
END_TEST

static void step_alone(void *member, float *x, const float *g, double rate)
{
    (void)member;
    for (size_t i = 0; i < N; i++)
        if (rig_tensor_at(i)->role == PSC_PARAM)
            x[i] -= (float)rate * g[i];
}

static const char *const shared_by[] = {"method=async-easgd", "method=downpour", "method=d-sync",
                                        "method=pipe-sgd"};

/* A member that takes the x of another has not made that one's step, and its optimizer's state would differ.
 */
START_TEST(where_programs_step_a_clique_that_shares_x_cannot)
{
    struct run *r = clique_of("", 3, 2);
    rig_start(&d, SETTINGS(shared_by[_i], "optimizer=external"));
    r->server = d.endpoint;
    r->own_step = step_alone;
    run_start(r);
    run_end(r);
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(r->member[i].rc == PSC_EUNSUPPORTED, "member %d: %s: %s", i,
                      psc_result_name(r->member[i].rc), r->member[i].error);
        assert_says(r->member[i].error, "clique.on_loss: found shrink, but the optimizer is external");
    }
    daemon_remove(&d);
}
END_TEST

/* Each makes the steps of its own x, and a single worker has nobody to lose. */
START_TEST(where_programs_step_members_with_an_own_x_go_on)
{
    static float center[N];
    struct run *r = _i == 0 ? clique_of("", 3, 1) : run_of("", 1);
    r->salt = 7;
    r->own_step = step_alone;
    r->after = pull;
    train(SETTINGS("optimizer=external", _i == 0 ? "method=sync-easgd" : "method=async-easgd",
                   _i == 0 ? "clique.mode=vectors" : "parameters.period=1", "clique.publish=1"),
          r, center);
    ck_assert_mem_eq(x_of_those_left(r), center, sizeof center);
}
END_TEST

/* psd's key decides, not the ring's option. */
START_TEST(a_clique_that_is_to_end_ends)
{
    struct run *r = clique_of("", 3, 2);
    rig_start(&d, (const char *const[]){"method=mpi-asgd", "checkpoint.every_s=0", NULL});
    r->server = d.endpoint;
    run_start(r);
    run_end(r);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(r->member[i].rc == PSC_ECLIQUE, "member %d: %s", i, r->member[i].error);
    daemon_remove(&d);
}
END_TEST

/* Whether the file is of the steps that were made. `waits`: with means that the next steps apply. */
static bool is_of_steps_made(const char *path, const struct psc *c, bool waits)
{
    unsigned char head[PSC_STATE_HEAD_BYTES];
    struct psc_state_head h;
    struct stat st;
    FILE *f = fopen(path, "rb");
    size_t n = f != NULL ? fread(head, 1, sizeof head, f) : 0;
    bool read =
        f != NULL && stat(path, &st) == 0 && psc_state_parse(&h, head, n, (uint64_t)st.st_size, NULL) == 0;
    if (f != NULL)
        fclose(f);
    return read && ((h.flags & PSC_STATE_LANDED) != 0) == waits && h.clock == psc_clock(c);
}

/* Waits for it without landing it. */
static bool has_come(struct member *m, const struct psc_sum *s)
{
    bool come = s->rc == PSC_OK && s->left <= s->first;
    come = psc_clique_wait(m->clique, s->words_ticket) == PSC_OK && come;
    for (size_t i = 0; i < s->n_buckets; i++)
        come = psc_clique_wait(m->clique, s->buckets[i].ticket) == PSC_OK && come;
    return come;
}

/* The sums of the steps made that no step has applied. *failed: how many of them have failed: the ring may
 * have had them or not when the member was lost. */
static int sums_of_steps_made(struct member *m, int *failed)
{
    struct psc_group *p = &m->c->group;
    int n = 0;
    *failed = 0;
    for (uint64_t k = p->sums_dropped; k < p->sums_begun; k++) {
        const struct psc_sum *s = &p->sums[k % PSC_MAX_SUMS];
        if (s->clock == psc_clock(m->c))
            continue;
        *failed += k < p->sums_landed ? s->rc != PSC_OK : !has_come(m, s);
        n++;
    }
    return n;
}

static int saves_wrongly(struct member *m, const char *what)
{
    fprintf(stderr, "member %d, step %llu: %s: %s\n", m->rank, (unsigned long long)psc_clock(m->c), what,
            psc_error(m->c));
    return PSC_EINVAL;
}

/* The others find out that a member is lost before they make the next step. */
static int learn_of_the_loss(struct member *m, int t)
{
    while (t == LOST_AT && psc_barrier(m->clique) == PSC_OK)
        ;
    return PSC_OK;
}

/* All sums that have begun come before the member is lost. */
static int step_and_meet(struct member *m, size_t n)
{
    int rc = psc_step(m->c, m->x, m->g, n);
    if (rc == PSC_OK && m->run->before == learn_of_the_loss && psc_clock(m->c) == LOST_AT) {
        rc = m->c->rule->gather(m->c);
        psc_barrier(m->clique);
    }
    return rc;
}

static atomic_int saved;

/* What a sum has when its members fail is not theirs: it is neither saved nor applied. The state is that of
 * the step before, unless it needs such a sum. */
static int fail_then_save(struct member *m, size_t n)
{
    static float before[MOST][N];
    char path[100];
    int failed, waiting_sums, rc = step_and_meet(m, n);
    if (rc != PSC_ECLIQUE)
        return rc;
    waiting_sums = sums_of_steps_made(m, &failed);
    int expected = failed > 0 ? PSC_ECLIQUE : PSC_OK;
    if (m->run->before == learn_of_the_loss && failed > 0)
        return saves_wrongly(m, "a sum that had come has failed");
    snprintf(path, sizeof path, "%s/state-%d", dir, m->rank);
    memcpy(before[m->rank], m->x, sizeof m->x);
    for (int i = 0; i < 2; i++) {
        if (psc_save(m->c, path, m->x, NULL, 0) != expected)
            return saves_wrongly(m, "psc_save ended otherwise");
        if (is_of_steps_made(path, m->c, waiting_sums > 0) != (expected == PSC_OK))
            return saves_wrongly(m, "the file is of other steps");
        if ((unlink(path) == 0) != (expected == PSC_OK))
            return saves_wrongly(m, "there is a file, or none");
    }
    if (psc_wait(m->c, PSC_ALL) != expected)
        return saves_wrongly(m, "psc_wait ended otherwise");
    if ((memcmp(before[m->rank], m->x, sizeof m->x) != 0) != (expected == PSC_OK && waiting_sums > 0))
        return saves_wrongly(m, "x has moved, or not");
    atomic_fetch_add(&saved, 1);
    return rc;
}

START_TEST(a_sum_that_failed_is_lost)
{
    struct run *r = clique_of(_i > 0 ? "pipe-sgd" : "d-sync", 3, 2);
    r->on_loss = NULL;
    r->before = _i > 2 ? learn_of_the_loss : NULL;
    atomic_store(&saved, 0);
    r->step = fail_then_save;
    r->salt = 5;
    if (_i > 0)
        r->local.pipeline = 2 + (uint32_t)(_i - 1) % 2;
    run_start(r);
    run_end(r);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(r->member[i].rc == PSC_ECLIQUE, "member %d: %s: %s", i,
                      psc_result_name(r->member[i].rc), r->member[i].error);
    ck_assert_int_eq(atomic_load(&saved), 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("losses");
    TCase *tcase = tcase_create("losses");
    tcase_set_timeout(tcase, 2 * UNIT_HANG_S);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, means_are_those_of_the_members_left, 0, 6);
    tcase_add_loop_test(tcase, a_pipeline_fills_anew, 0, 4);
    tcase_add_loop_test(tcase, what_is_left_of_equals_is_one_worker, 0, N_PRESETS);
    tcase_add_loop_test(tcase, those_left_share_x, 0, 4);
    tcase_add_loop_test(tcase, those_left_share_x_whose_exchange_had_begun, 0, 2);
    tcase_add_loop_test(tcase, those_left_share_the_center, 0, 2);
    tcase_add_test(tcase, a_sum_that_not_all_have_is_taken_from_one_that_has);
    tcase_add_test(tcase, those_left_are_asked_to_save);
    tcase_add_loop_test(tcase, a_member_that_loses_sums_saves_nothing, 0, 2);
    tcase_add_loop_test(tcase, without_its_leader_a_clique_ends, 0, 2);
    tcase_add_loop_test(tcase, a_clique_that_cannot_is_refused, 0, 2);
    tcase_add_loop_test(tcase, where_programs_step_a_clique_that_shares_x_cannot, 0,
                        sizeof shared_by / sizeof *shared_by);
    tcase_add_loop_test(tcase, where_programs_step_members_with_an_own_x_go_on, 0, 2);
    tcase_add_test(tcase, a_clique_that_is_to_end_ends);
    tcase_add_loop_test(tcase, a_sum_that_failed_is_lost, 0, 5);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
