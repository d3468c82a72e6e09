/* The calls of keys: the loops of Mamidala et al.'s figures 6 to 8 give the center of psc_step bit for bit;
 * in cliques, as lists, started; and what is refused. */
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "client/internal.h"
#include "client/psclique.h"
#include "tests/client/psd_fixture.h"
#include "tests/support/clock.h"
#include "tests/support/thread_clique.h"

enum { N = RIG_N, STEPS = 5, MOST = 4, KEYS = RIG_TENSORS - 1 };

static const float eta = 0.125f;

static _Atomic bool waits, ends;

/* All keys that move, not in order. */
static const char *const moving[KEYS] = {"fc.weight", "bn.mean", "conv.weight", "fc.running", "bn.scale"};

/* A worker or a member of a clique, in its own thread. */
struct hand {
    struct daemon *d; /* NULL: without a server */
    struct psc_clique *clique;
    int index;
    struct psc *c;
    float x[N], g[N], y[N];
    int (*work)(struct hand *h);
    uint32_t heartbeat_ms; /* 0: RIG_HEARTBEAT_MS */
    pthread_t thread;
    int rc;
    char error[600];
};

static struct hand hands[MOST];

static void *live(void *arg)
{
    struct hand *h = arg;
    struct psc_options opt;
    struct psc_local local;
    psc_options_init(&opt, sizeof opt);
    psc_local_init(&local, sizeof local, "d-sync");
    opt.server = h->d != NULL ? h->d->endpoint : NULL;
    opt.local = h->d == NULL ? &local : NULL;
    opt.clique = h->clique;
    opt.rank = h->clique == NULL ? h->index : -1;
    opt.retry_ms = RIG_RETRY_MS;
    opt.heartbeat_ms = h->heartbeat_ms != 0 ? h->heartbeat_ms : RIG_HEARTBEAT_MS;
    for (int i = 0; i < N; i++)
        h->x[i] = (float)(i % 50) * 0.25f;
    h->rc = psc_open(&opt, &h->c);
    if (h->rc == PSC_OK)
        h->rc = psc_begin(h->c, rig_model, RIG_TENSORS, h->x);
    if (h->rc == PSC_OK)
        h->rc = h->work(h);
    snprintf(h->error, sizeof h->error, "%s", psc_error(h->c));
    psc_close(h->c);
    psc_clique_close(h->clique);
    return NULL;
}

/* n threads; in cliques of `members` each. */
static void run(struct daemon *d, int n, int members, int (*work)(struct hand *h))
{
    struct psc_clique *q[MOST] = {NULL};
    for (int i = 0; i < n && members > 1; i += members)
        ck_assert_int_eq(circle_open(members, q + i), PSC_OK);
    for (int i = 0; i < n; i++) {
        hands[i] = (struct hand){.d = d, .clique = q[i], .index = i, .work = work};
        ck_assert_int_eq(pthread_create(&hands[i].thread, NULL, live, &hands[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(hands[i].thread, NULL);
}

static void assert_all_ok(int n)
{
    for (int i = 0; i < n; i++)
        ck_assert_msg(hands[i].rc == PSC_OK, "%d: %s: %s", i, psc_result_name(hands[i].rc), hands[i].error);
}

/* Small multiples of powers of two at first, then whatever the steps make of them. */
static void gradient(struct hand *h, int t)
{
    struct dice dice = {1000 * (uint64_t)t + (uint64_t)h->index};
    for (int i = 0; i < N; i++)
        h->g[i] = 0.25f * h->x[i] + dice_float(&dice);
}

static void center_of(struct daemon *d, float *center)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.kind = PSC_OBSERVER;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, center));
    psc_close(c);
}

static void train(const char *const *settings, int n, int members, int (*work)(struct hand *h), float *center)
{
    struct daemon d;
    rig_start(&d, settings);
    run(&d, n, members, work);
    assert_all_ok(n);
    center_of(&d, center);
    daemon_remove(&d);
}

/* Each with a part of the vector and so of some keys. */
static void start_two(struct daemon *head, struct daemon *other, const char *const *settings)
{
    enum { MOST_SETTINGS = 16 };
    static char address[120];
    static const char *parts[2][MOST_SETTINGS];
    const char *const first[2][3] = {{"servers.count=2", "servers.index=0"},
                                     {"servers.count=2", "servers.index=1", address}};
    for (int p = 0; p < 2; p++) {
        int n = p + 2, k = 0;
        memcpy(parts[p], first[p], sizeof first[p]);
        for (; settings[k] != NULL; k++) {
            ck_assert_int_lt(n + k, MOST_SETTINGS - 1);
            parts[p][n + k] = settings[k];
        }
        parts[p][n + k] = NULL;
    }
    rig_start(head, parts[0]);
    snprintf(address, sizeof address, "servers.head=\"%s\"", head->endpoint);
    rig_start(other, parts[1]);
}

/* The same with two servers. */
static void train_by_two(const char *const *settings, int n, int members, int (*work)(struct hand *h),
                         float *center)
{
    struct daemon head, other;
    start_two(&head, &other, settings);
    run(&head, n, members, work);
    assert_all_ok(n);
    center_of(&head, center);
    daemon_remove(&other);
    daemon_remove(&head);
}

static bool is_param(int i)
{
    return rig_tensor_at((size_t)i)->role == PSC_PARAM;
}

static void assert_same(const float *a, const float *b)
{
    for (int i = 0; i < N; i++)
        if (a[i] != b[i])
            ck_abort_msg("'%s'[%d]: %.9g and %.9g", rig_tensor_at((size_t)i)->name, i, (double)a[i],
                         (double)b[i]);
}

static void assert_same_params(const float *a, const float *b)
{
    for (int i = 0; i < N; i++)
        if (is_param(i) && a[i] != b[i])
            ck_abort_msg("'%s'[%d]: %.9g and %.9g", rig_tensor_at((size_t)i)->name, i, (double)a[i],
                         (double)b[i]);
}

#define JOB(...)                                                                                             \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        RIG_CUT, "learning_rate=0.125", "warmup_steps=0", "checkpoint.every_s=0", __VA_ARGS__, NULL          \
    }

static int step_as_the_method_says(struct hand *h)
{
    int rc = PSC_OK;
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        gradient(h, t);
        for (int i = 0; i < N; i++) /* a worker's own statistics */
            h->x[i] = rig_tensor_at((size_t)i)->role == PSC_BUFFER ? 1 : h->x[i];
        rc = psc_step(h->c, h->x, h->g, 8);
    }
    return rc;
}

static uint64_t end_of(const struct psc_tensor *t)
{
    return t + 1 < rig_model + RIG_TENSORS ? t[1].offset : N;
}

/* A message for the key: the gradient, or of a buffer the values. */
static const float *message_of(struct hand *h, const struct psc_tensor *t)
{
    for (uint64_t i = t->offset; t->role == PSC_BUFFER && i < end_of(t); i++)
        h->g[i] = 1;
    return h->g + t->offset;
}

/* Figure 6: for each key push the gradient and pull the sum; then the worker makes the step. */
static int figure_6(struct hand *h)
{
    int rc = PSC_OK;
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        gradient(h, t);
        for (int k = 0; k < RIG_TENSORS && rc == PSC_OK; k++) {
            const struct psc_tensor *key = &rig_model[k];
            if (key->role == PSC_FROZEN)
                continue;
            if ((rc = psc_push(h->c, key->name, message_of(h, key), 8)) == PSC_OK)
                rc = psc_pull(h->c, key->name, h->y + key->offset);
            for (uint64_t i = key->offset; i < end_of(key) && key->role == PSC_PARAM; i++)
                h->x[i] -= eta * (h->y[i] * 0.5f);
        }
    }
    return rc;
}

START_TEST(figure_6_is_sync_sgd)
{
    static float method[N], center[N];
    train(JOB("method=sync-sgd", "workers=2"), 2, 1, step_as_the_method_says, method);
    train(JOB("method=sync-sgd", "rule=sum", "workers=2"), 2, 1, figure_6, center);
    for (int k = 0; k < 2; k++)
        assert_same_params(hands[k].x, method);
}
END_TEST

/* The paper's mpi-sync: members' gradients are summed before. */
START_TEST(figure_6_in_a_clique_is_mpi_sgd)
{
    static float method[N], center[N];
    train(JOB("method=mpi-sgd", "workers=1"), 2, 2, step_as_the_method_says, method);
    train(JOB("method=mpi-sgd", "rule=sum", "workers=1"), 2, 2, figure_6, center);
    for (int k = 0; k < 2; k++)
        assert_same_params(hands[k].x, method);
}
END_TEST

/* Figure 7: the server makes the step. Its method comes from the worker of rank 0. */
static int figure_7(struct hand *h)
{
    int rc = psc_workers_barrier(h->c);
    if (rc == PSC_OK && psc_rank(h->c) == 0)
        rc = psc_set_method(h->c, "rule=sgd\nlearning_rate=0.125\n");
    if (rc == PSC_OK)
        rc = psc_workers_barrier(h->c);
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        gradient(h, t);
        for (int k = 0; k < RIG_TENSORS && rc == PSC_OK; k++) {
            const struct psc_tensor *key = &rig_model[k];
            if (key->role == PSC_FROZEN)
                continue;
            if ((rc = psc_push(h->c, key->name, message_of(h, key), 8)) == PSC_OK)
                rc = psc_pull(h->c, key->name, h->x + key->offset);
        }
    }
    return rc;
}

START_TEST(figure_7_is_the_method_of_the_server)
{
    static float method[N], center[N];
    train(JOB("method=sync-sgd", "workers=2"), 2, 1, step_as_the_method_says, method);
    train(JOB("method=sync-sgd", "rule=sum", "workers=2"), 2, 1, figure_7, center);
    assert_same(center, method);
}
END_TEST

/* The figures over two servers give the center of one. */
START_TEST(keys_may_lie_on_two_servers)
{
    static float one[N], two[N];
    train(JOB("method=sync-sgd", "rule=sum", "workers=2"), 2, 1, figure_6, one);
    memcpy(one, hands[0].x, sizeof one);
    train_by_two(JOB("method=sync-sgd", "rule=sum", "workers=2"), 2, 1, figure_6, two);
    for (int k = 0; k < 2; k++)
        assert_same_params(hands[k].x, one);
    train(JOB("method=mpi-sgd", "rule=sum", "workers=1"), 2, 2, figure_6, one);
    memcpy(one, hands[0].x, sizeof one);
    train_by_two(JOB("method=mpi-sgd", "rule=sum", "workers=1"), 2, 2, figure_6, two);
    for (int k = 0; k < 2; k++)
        assert_same_params(hands[k].x, one);
    train(JOB("method=sync-sgd", "rule=sum", "workers=2"), 2, 1, figure_7, one);
    train_by_two(JOB("method=sync-sgd", "rule=sum", "workers=2"), 2, 1, figure_7, two);
    assert_same(one, two);
}
END_TEST

static int figure_7_by_lists(struct hand *h)
{
    const float *messages[KEYS];
    float *answers[KEYS];
    int rc = PSC_OK;
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        uint64_t ticket;
        gradient(h, t);
        for (int k = 0; k < KEYS; k++)
            for (int i = 0; i < RIG_TENSORS; i++)
                if (strcmp(rig_model[i].name, moving[k]) == 0) {
                    messages[k] = message_of(h, &rig_model[i]);
                    answers[k] = h->y + rig_model[i].offset;
                }
        if (t % 2 == 0)
            rc = psc_pushpull_keys(h->c, moving, KEYS, messages, answers, 8);
        else if ((rc = psc_pushpull_keys_start(h->c, moving, KEYS, messages, answers, 8, &ticket)) == PSC_OK)
            rc = psc_wait(h->c, ticket);
        for (int i = 0; i < N; i++)
            h->x[i] = rig_tensor_at((size_t)i)->role == PSC_FROZEN ? h->x[i] : h->y[i];
    }
    return rc;
}

/* Hand 1 joins after the first rounds of hand 0. */
static int figure_7_by_lists_twice(struct hand *h)
{
    int rc = figure_7_by_lists(h);
    waits = true;
    return rc == PSC_OK ? figure_7_by_lists(h) : rc;
}

/* Each server counts the rounds of its own keys: who joins is behind at neither, and ahead at neither. */
START_TEST(under_ssp_a_worker_may_join_keys_on_two_servers)
{
    struct daemon head, other;
    start_two(&head, &other, JOB("method=ssp-sgd", "slack=1"));
    waits = false;
    for (int i = 0; i < 2; i++) {
        hands[i] = (struct hand){.d = &head, .index = i, .work = figure_7_by_lists_twice};
        ck_assert_int_eq(pthread_create(&hands[i].thread, NULL, live, &hands[i]), 0);
        while (!waits)
            unit_nap_ms(1);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(hands[i].thread, NULL);
    assert_all_ok(2);
    daemon_remove(&other);
    daemon_remove(&head);
}
END_TEST

static const struct {
    const char *method, *more;
    int workers, members;
} lists[] = {
    {"sync-sgd", "workers=2", 2, 1},  {"async-sgd", "lanes=3", 1, 1},  {"sync-sgd", "workers=1", 2, 2},
    {"async-msgd", "lanes=3", 2, 2},  {"sync-sgd", "workers=2", 4, 2}, {"ssp-sgd", "slack=0", 1, 1},
    {"async-sgd", "rule=adam", 1, 1},
};

START_TEST(lists_are_the_method_of_the_server)
{
    static float method[N], center[N];
    char name[64];
    snprintf(name, sizeof name, "method=%s", lists[_i].method);
    const char *const *job = JOB(name, lists[_i].more);
    train(job, lists[_i].workers, lists[_i].members, step_as_the_method_says, method);
    train(job, lists[_i].workers, lists[_i].members, figure_7_by_lists, center);
    assert_same_params(center, method);
}
END_TEST

/* Figure 8: every second step x and the center move towards each other; then the worker makes its step. The
 * answer is the center before, with which both sides move. */
static int figure_8(struct hand *h)
{
    int rc = PSC_OK;
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        gradient(h, t);
        for (int k = 0; k < RIG_TENSORS && rc == PSC_OK && t % 2 == 0; k++) {
            const struct psc_tensor *key = &rig_model[k];
            if (key->role == PSC_FROZEN)
                continue;
            rc = psc_pushpull(h->c, key->name, h->x + key->offset, h->y + key->offset, 8);
            for (uint64_t i = key->offset; i < end_of(key); i++)
                h->x[i] -= 0.25f * (h->x[i] - h->y[i]);
        }
        for (int i = 0; i < N; i++)
            h->x[i] -= is_param(i) ? eta * h->g[i] : 0;
    }
    return rc;
}

static int step_elastically(struct hand *h)
{
    int rc = PSC_OK;
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        gradient(h, t);
        rc = psc_step(h->c, h->x, h->g, 8);
    }
    return rc;
}

/* With one server and with two. */
START_TEST(figure_8_is_elastic_averaging)
{
    static float method[N], center[N], x[2][N];
    const char *const *job = JOB("method=sync-easgd", "alpha=0.25", "period=2", "workers=2");
    train(job, 2, 1, step_elastically, method);
    for (int k = 0; k < 2; k++)
        memcpy(x[k], hands[k].x, sizeof x[k]);
    (_i > 0 ? train_by_two : train)(job, 2, 1, figure_8, center);
    assert_same(center, method);
    for (int k = 0; k < 2; k++)
        ck_assert_mem_eq(hands[k].x, x[k], sizeof x[k]);
}
END_TEST

static int add_up(struct hand *h)
{
    const float *messages[2] = {h->g + rig_model[0].offset, h->g + rig_model[4].offset};
    float *answers[2] = {h->y + rig_model[0].offset, h->y + rig_model[4].offset};
    uint64_t ticket;
    for (int i = 0; i < N; i++)
        h->g[i] = (float)(h->index + 1);
    int rc =
        psc_pushpull_keys(h->c, (const char *const[]){"conv.weight", "fc.weight"}, 2, messages, answers, 1);
    if (rc == PSC_OK)
        rc = psc_workers_barrier(h->c);
    if (rc == PSC_OK)
        rc = psc_pushpull_start(h->c, "bn.scale", h->g + 3200, h->y + 3200, 1, &ticket);
    return rc == PSC_OK ? psc_wait(h->c, ticket) : rc;
}

START_TEST(without_a_server_pushpull_adds_up)
{
    run(NULL, 3, 3, add_up);
    assert_all_ok(3);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N; i++)
            assert_quick((double)hands[k].y[i] == (is_param(i) ? 6 : 0));
}
END_TEST

static struct psc *open_one(struct daemon *d, const char *const *settings, float *x)
{
    rig_start(d, settings);
    return rig_join(d, rig_model, RIG_TENSORS, x);
}

static void assert_refuses(struct psc *c, int rc, int wanted, const char *a, const char *b)
{
    ck_assert_msg(rc == wanted, "%s: %s", psc_result_name(rc), psc_error(c));
    assert_says(psc_error(c), a);
    assert_says(psc_error(c), b);
}

START_TEST(wrong_keys_are_refused_before_anything_is_sent)
{
    static float x[N], y[N], after[N];
    struct daemon d;
    struct psc *c = open_one(&d, JOB("method=sync-sgd"), x);
    const float *in[3] = {x, x + 2500, x + 3200};
    float *out[2] = {y, y + 2500};
    const char *unknown[2] = {"conv.weight", "conv.weigth"},
               *twice[3] = {"conv.weight", "bn.mean", "conv.weight"};
    uint64_t sent = rig_sent(c);
    for (int i = 0; i < N; i++)
        y[i] = x[i] = 1;
    assert_refuses(c, psc_push_keys(c, unknown, 2, in, 1), PSC_EINVAL, "keys[1]", "conv.weigth");
    assert_refuses(c, psc_push_keys(c, twice, 3, in, 1), PSC_EINVAL, "keys[0] and keys[2]", "'conv.weight'");
    assert_refuses(c, psc_init_keys(c, twice, 3, in), PSC_EINVAL, "keys[0] and keys[2]", "'conv.weight'");
    assert_refuses(c, psc_pull_keys(c, unknown, 0, out), PSC_EINVAL, "0 keys", "1 to 6");
    assert_refuses(c, psc_push(c, "bn.mean", x, 1), PSC_EINVAL, "'bn.mean' is before its turn",
                   "next is key 'conv.weight'");
    assert_refuses(c, psc_push_keys(c, (const char *const[]){"conv.weight", "bn.scale"}, 2, in, 1),
                   PSC_EINVAL, "'bn.scale' is before its turn", "'bn.mean'");
    assert_refuses(c, psc_push(c, "embedding", x, 1), PSC_EINVAL, "frozen", "embedding");
    const char *two[2] = {"conv.weight", "bn.mean"};
    assert_refuses(c, psc_pushpull_keys(c, two, 2, in, (float *[]){x + 2500, y}, 1), PSC_EINVAL, "overlap",
                   "'conv.weight'"); /* the second message would be the first answer */
    x[2600] = NAN;
    assert_refuses(c, psc_push_keys(c, (const char *const[]){"conv.weight", "bn.mean"}, 2, in, 1), PSC_EVALUE,
                   "'bn.mean'", "not finite");
    x[2600] = 1;
    ck_assert_uint_eq(rig_sent(c), sent);
    assert_ok(c, psc_push(c, "conv.weight", x, 1));
    assert_refuses(c, psc_push(c, "conv.weight", x, 1), PSC_EINVAL, "was sent in this round already",
                   "'bn.mean'");
    assert_refuses(c, psc_exchange(c, x, y, 1), PSC_EINVAL, "in the middle of a round of keys", "'bn.mean'");
    assert_refuses(c, psc_step(c, x, y, 1), PSC_EINVAL, "in the middle of a round of keys", "'bn.mean'");
    assert_refuses(c, psc_workers_barrier(c), PSC_EINVAL, "in the middle of a round", "psc_workers_barrier");
    assert_ok(c, psc_push(c, "bn.mean", x, 1));
    assert_ok(c, psc_pull(c, NULL, after));
    ck_assert_float_eq(after[0], -0.125f);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

START_TEST(admissions_without_rounds_of_keys_say_so)
{
    static const char *const more[][3] = {{"method=backup-sgd", "backup=1", "admission backup"},
                                          {"method=diloco", "fragments=2", "fragment each"},
                                          {"method=original-easgd", "serial=true", "serial"}};
    static float x[N], y[N];
    struct daemon d;
    struct psc *c = open_one(&d, JOB("workers=1", more[_i][0], more[_i][1]), x);
    assert_refuses(c, psc_pushpull(c, "conv.weight", x, y, 1), PSC_EUNSUPPORTED, more[_i][2], "psc_pushpull");
    assert_ok(c, psc_pull(c, "conv.weight", y));
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_step_of_rule_sum_is_the_callers)
{
    static float x[N], y[N];
    struct daemon d;
    struct psc *c = open_one(&d, JOB("rule=sum", "admission=sync", "optimizer=none"), x);
    assert_refuses(c, psc_step(c, x, y, 1), PSC_EUNSUPPORTED, "rule sum", "the caller makes the step");
    assert_refuses(c, psc_step_begin(c, x, y, 1), PSC_EUNSUPPORTED, "rule sum", "the caller makes the step");
    assert_refuses(c, psc_step_end(c), PSC_EINVAL, "psc_step_end", "call psc_step_begin first");
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

/* The last key of a round has failed, and its sender has been told, or not yet: the others wait for it. */
START_TEST(nobody_waits_at_a_barrier_whose_round_is_open)
{
    static float x[N];
    uint64_t ticket;
    struct daemon d;
    struct psc *c = open_one(&d, JOB("rule=sum", "admission=sync", "optimizer=none"), x);
    const struct psc_tensor *last = &rig_model[RIG_TENSORS - 1];
    for (int k = 0; k < RIG_TENSORS - 1; k++)
        if (rig_model[k].role != PSC_FROZEN)
            assert_ok(c, psc_push(c, rig_model[k].name, x + rig_model[k].offset, 1));
    x[last->offset] = NAN;
    assert_ok(c, psc_push_start(c, last->name, x + last->offset, 1, &ticket));
    if (_i == 1)
        assert_refuses(c, psc_wait(c, ticket), PSC_EVALUE, last->name, "not finite");
    assert_refuses(c, psc_workers_barrier(c), PSC_EINVAL, "psc_workers_barrier", "middle of a round of keys");
    x[last->offset] = 0;
    if (_i == 0)
        assert_refuses(c, psc_wait(c, ticket), PSC_EVALUE, last->name, "not finite");
    assert_ok(c, psc_push(c, last->name, x + last->offset, 1));
    assert_ok(c, psc_workers_barrier(c));
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

/* A failed message in a round: those behind it are not sent, whether or not it had failed when they were
 * started, and the round goes on with its key. */
START_TEST(a_started_round_goes_on_with_the_key_that_failed)
{
    static float x[N], y[N];
    uint64_t tickets[2];
    int ended = 0;
    struct daemon d;
    struct psc *c = open_one(&d, JOB("rule=sum", "admission=sync", "optimizer=none"), x);
    x[10] = NAN;
    assert_ok(c, psc_push_start(c, "conv.weight", x, 1, &tickets[0]));
    for (double end = unit_now_s() + UNIT_HANG_S; _i == 1 && !ended && unit_now_s() < end; unit_nap_ms(1))
        assert_ok(c, psc_test(c, tickets[0], &ended));
    assert_ok(c, psc_push_start(c, "bn.mean", x + 2500, 1, &tickets[1]));
    assert_refuses(c, psc_wait(c, tickets[0]), PSC_EVALUE, "'conv.weight'", "not finite");
    assert_refuses(c, psc_wait(c, tickets[1]), PSC_EVALUE, "'conv.weight'", "not finite");
    x[10] = 3;
    assert_refuses(c, psc_push_start(c, "bn.scale", x + 3200, 1, NULL), PSC_EINVAL, "before its turn",
                   "'conv.weight'");
    assert_refuses(c, psc_push(c, "bn.scale", x + 3200, 1), PSC_EINVAL, "before its turn", "'conv.weight'");
    assert_ok(c, psc_push(c, "conv.weight", x, 1));
    assert_ok(c, psc_pull(c, "conv.weight", y));
    ck_assert_float_eq(y[10], 3);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_ticket_can_be_tested_and_polled)
{
    static float x[N], y[N];
    uint64_t ticket;
    int ended = 0, fd;
    struct daemon d;
    struct psc *c = open_one(&d, JOB("method=async-sgd"), x);
    assert_refuses(c, psc_test(c, 1, &ended), PSC_EINVAL, "ticket 1", "never issued");
    assert_ok(c, psc_test(c, PSC_ALL, &ended));
    ck_assert_int_eq(ended, 1);
    assert_ok(c, psc_ended_fd(c, &fd));
    assert_ok(c, psc_pull_start(c, NULL, y, &ticket));
    for (ended = 0; ended == 0;) {
        ck_assert_int_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, UNIT_HANG_S * 1000), 1);
        assert_ok(c, psc_test(c, ticket, &ended));
    }
    ck_assert_int_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 0); /* psc_test has looked */
    assert_ok(c, psc_wait(c, ticket));
    ck_assert_mem_eq(x, y, sizeof x);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

static _Atomic int n_begun;

/* The job waits for both workers: rank 1 must not leave before rank 0 has come. */
static int set_as_rank_1(struct hand *h)
{
    n_begun++;
    for (double end = unit_now_s() + UNIT_HANG_S; n_begun < 2 && unit_now_s() < end;)
        unit_nap_ms(1);
    return psc_rank(h->c) == 1 ? psc_set_method(h->c, "learning_rate=0.5") : psc_workers_barrier(h->c);
}

START_TEST(only_rank_0_sets_the_method)
{
    struct daemon d;
    rig_start(&d, JOB("method=sync-sgd", "workers=2"));
    n_begun = 0;
    run(&d, 2, 1, set_as_rank_1);
    ck_assert_int_eq(hands[1].rc, PSC_EREFUSED);
    assert_says(hands[1].error, "rank 1 may not change the method; allowed is rank 0");
    ck_assert_msg(hands[0].rc == PSC_OK, "%s", hands[0].error); /* rank 1 has left */
    daemon_remove(&d);
}
END_TEST

START_TEST(set_method_takes_the_methods_keys_only)
{
    static float x[N], g[N];
    struct psc_info info = {.size = sizeof info};
    struct daemon d;
    struct psc *c = open_one(&d, JOB("method=sync-sgd"), x);
    assert_refuses(c, psc_set_method(c, "limits.silence_s=1"), PSC_EREFUSED, "limits.silence_s",
                   "not a key of the");
    assert_refuses(c, psc_set_method(c, "rule=sgdd"), PSC_EREFUSED, "sgdd", "allowed");
    assert_refuses(c, psc_set_method(c, ""), PSC_EINVAL, "0 bytes", "KEY=VALUE");
    psc_info(c, &info);
    ck_assert_str_eq(info.method, "sync-sgd");
    assert_ok(c, psc_set_method(c, "method=async-msgd"));
    psc_info(c, &info);
    ck_assert_str_eq(info.method, "async-msgd");
    assert_ok(c, psc_step(c, x, g, 1));
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

static void push_round(struct psc *c, const float *x, int from)
{
    for (int k = from; k < RIG_TENSORS; k++)
        if (rig_model[k].role != PSC_FROZEN)
            assert_ok(c, psc_push(c, rig_model[k].name, x + rig_model[k].offset, 1));
}

/* What was pushed of the round is lost with psd. */
START_TEST(a_round_begins_again_after_a_restart)
{
    static float x[N], y[N];
    struct daemon d;
    struct psc *c = open_one(&d, JOB(RIG_SAME_ADDRESS, "rule=sum", "admission=sync", "optimizer=none"), x);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 7);
    free(daemon_ask(&d, "POST", "/checkpoint")); /* after the next round */
    push_round(c, x, 0);
    ck_assert(daemon_will_log(&d, "checkpoint.written", UNIT_HANG_S));
    assert_ok(c, psc_push(c, "conv.weight", x, 1));
    daemon_stop(&d, SIGKILL, UNIT_HANG_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    rig_meet_again(c);
    assert_refuses(c, psc_push(c, "bn.mean", x + 2500, 1), PSC_EREFUSED, "came back from a checkpoint",
                   "begins again with its first key");
    assert_refuses(c, psc_push(c, "bn.mean", x + 2500, 1), PSC_EINVAL, "before its turn", "'conv.weight'");
    push_round(c, x, 0);
    push_round(c, x, 0);
    assert_ok(c, psc_pull(c, NULL, y));
    for (int i = 0; i < N; i++)
        assert_quick(!is_param(i) || y[i] == x[i]);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

static int push_keys_of_round(struct hand *h, int from)
{
    int rc = PSC_OK;
    for (int k = from; k < RIG_TENSORS && rc == PSC_OK; k++)
        if (rig_model[k].role != PSC_FROZEN)
            rc = psc_push(h->c, rig_model[k].name, h->x + rig_model[k].offset, 1);
    return rc;
}

/* The leader alone hears that psd came back. */
static int lose_a_round(struct hand *h)
{
    bool leads = h->index == 0;
    for (int i = 0; i < N; i++)
        h->x[i] = (float)(i % 7);
    if (leads)
        free(daemon_ask(h->d, "POST", "/checkpoint"));
    int rc = push_keys_of_round(h, 0);
    if (leads)
        ck_assert(daemon_will_log(h->d, "checkpoint.written", UNIT_HANG_S));
    if (rc != PSC_OK || (rc = psc_push(h->c, "conv.weight", h->x, 1)) != PSC_OK)
        return rc;
    if (leads) {
        daemon_stop(h->d, SIGKILL, UNIT_HANG_S);
        ck_assert_int_eq(daemon_start(h->d, "--resume"), 0);
        rig_meet_again(h->c);
    }
    rc = psc_push(h->c, "bn.mean", h->x + 2500, 1);
    if (rc != PSC_EREFUSED || strstr(psc_error(h->c), "begins again with its first key") == NULL)
        return rc == PSC_OK ? PSC_EINVAL : rc;
    rc = push_keys_of_round(h, 0);
    return rc == PSC_OK ? psc_pull(h->c, NULL, h->y) : rc;
}

START_TEST(a_round_of_a_clique_begins_again_after_a_restart)
{
    struct daemon d;
    rig_start(&d, JOB(RIG_SAME_ADDRESS, "rule=sum", "admission=sync", "optimizer=none"));
    run(&d, 2, 2, lose_a_round);
    assert_all_ok(2);
    for (int i = 0; i < N; i++)
        assert_quick(!is_param(i) || (hands[0].y[i] == 2 * hands[0].x[i] && hands[1].y[i] == hands[0].y[i]));
    daemon_remove(&d);
}
END_TEST

START_TEST(a_round_begins_again_after_a_change_of_method)
{
    static float x[N];
    struct daemon d;
    struct psc *c = open_one(&d, JOB("rule=sum", "admission=sync", "optimizer=none"), x);
    assert_ok(c, psc_push(c, "conv.weight", x, 1));
    free(daemon_ask(&d, "POST", "/set?lines=rule%3Dsgd"));
    ck_assert(daemon_will_log(&d, "job.swapped", UNIT_HANG_S));
    assert_refuses(c, psc_push(c, "bn.mean", x + 2500, 1), PSC_EREFUSED, "in the middle of a round of keys",
                   "first key");
    push_round(c, x, 0);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

static int call_differently(struct hand *h)
{
    return h->index == 0 ? psc_push(h->c, "conv.weight", h->g, 1) : psc_pull(h->c, "bn.mean", h->y);
}

static int list_differently(struct hand *h)
{
    const float *in[2] = {h->g, h->g};
    return h->index == 0 ? psc_push_keys(h->c, moving, 2, in, 1) : psc_push_keys(h->c, moving + 1, 1, in, 1);
}

START_TEST(members_make_the_same_calls)
{
    struct daemon d;
    rig_start(&d, JOB("method=async-sgd"));
    run(&d, 2, 2, call_differently);
    ck_assert_int_eq(hands[0].rc, PSC_ECLIQUE);
    ck_assert_int_eq(hands[1].rc, PSC_ECLIQUE);
    assert_says(hands[1].error,
                "rank 0 makes psc_push of key 'conv.weight', rank 1 psc_pull of key 'bn.mean'");
    assert_says(hands[0].error, "rank 1 makes another call");
    run(&d, 2, 2, list_differently);
    assert_says(hands[1].error, "psc_push_keys of 2 keys");
    assert_says(hands[1].error, "psc_push_keys of 1 keys");
    ck_assert_int_eq(hands[0].rc, PSC_ECLIQUE);
    daemon_remove(&d);
}
END_TEST

static int mix(struct hand *h)
{
    int rc = psc_workers_barrier(h->c);
    if (rc != PSC_OK)
        return rc;
    return h->index == 0 ? psc_push(h->c, "conv.weight", h->g, 1) : psc_exchange(h->c, h->g, h->y, 1);
}

/* It is left open whose message is first in each chunk. A worker that is refused leaves, and the other goes
 * on alone, unless it was refused in another chunk. */
START_TEST(workers_do_not_mix_keys_and_whole_vectors)
{
    struct daemon d;
    int refused = 0;
    rig_start(&d, JOB("method=sync-sgd", "workers=2"));
    run(&d, 2, 1, mix);
    for (int i = 0; i < 2; i++) {
        if (hands[i].rc == PSC_OK)
            continue;
        refused++;
        ck_assert_msg(hands[i].rc == PSC_EREFUSED, "%s", hands[i].error);
        assert_says(hands[i].error, "client 0 sends tensor 'conv.weight'");
        assert_says(hands[i].error, "client 1 sends the whole vector");
    }
    ck_assert_int_ge(refused, 1);
    daemon_remove(&d);
}
END_TEST

/* The list ends with its first key, because its next could not be started, and that key fails later. */
static int push_after_half_a_list(struct hand *h)
{
    const struct psc_call first = {"psc_push_keys_start", PS_FRAME_PUSH, "conv.weight", h->g, NULL, 1,
                                   .more = true};
    uint64_t ticket = 0;
    h->g[7] = NAN;
    int rc = psc_call_start(h->c, &first, &ticket);
    if (rc != PSC_OK || (rc = psc_wait(h->c, ticket)) != PSC_EVALUE)
        return rc == PSC_OK ? PSC_EINVAL : rc;
    rc = psc_push_start(h->c, "bn.scale", h->y, 1, &ticket);
    return rc == PSC_OK ? psc_wait(h->c, ticket) : rc;
}

START_TEST(a_failed_list_ends_where_it_ended)
{
    static const char *const settings[] = {"method=async-sgd", RIG_CUT, NULL};
    float center[N];
    train(settings, 1, 1, push_after_half_a_list, center);
}
END_TEST

/* Hand 1 sends the first key of a round alone, hand 0 begins with all of them. */
static int make_a_part(struct hand *h)
{
    const float *messages[KEYS];
    float *answers[KEYS];
    for (int i = 0; i < KEYS; i++) {
        messages[i] = h->g;
        answers[i] = h->y;
    }
    if (h->index == 0)
        return psc_pushpull_keys(h->c, moving, KEYS, messages, answers, 1);
    int rc = psc_push(h->c, "conv.weight", h->g, 1);
    waits = true;
    while (!ends)
        unit_nap_ms(1);
    return rc;
}

static bool knows_of_the_drain(struct hand *h)
{
    struct psc_shared *s = &h->c->session.shared;
    pthread_mutex_lock(&s->lock);
    bool draining = s->draining;
    pthread_mutex_unlock(&s->lock);
    return draining;
}

/* The list waits at its second key, and psd is killed while it drains: after a few heartbeats without an
 * answer it has ended. */
START_TEST(a_list_that_a_drain_cuts_off_is_drained)
{
    struct daemon d;
    double deadline = test_now_s() + test_slow_s(UNIT_HANG_S);
    rig_start(&d, JOB("rule=sum", "admission=sync", "optimizer=none", "workers=2", "limits.drain_s=600"));
    for (int i = 0; i < 2; i++) {
        hands[i] = (struct hand){.d = &d, .index = i, .work = make_a_part, .heartbeat_ms = 500};
        ck_assert_int_eq(pthread_create(&hands[i].thread, NULL, live, &hands[i]), 0);
    }
    while (!waits && test_now_s() < deadline)
        unit_nap_ms(1);
    ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    while (!knows_of_the_drain(&hands[0]) && test_now_s() < deadline)
        unit_nap_ms(1);
    daemon_stop(&d, SIGKILL, UNIT_HANG_S);
    ends = true;
    for (int i = 0; i < 2; i++)
        pthread_join(hands[i].thread, NULL);
    ck_assert_msg(hands[0].rc == PSC_DRAINED && hands[0].error[0] != 0, "%s: %s",
                  psc_result_name(hands[0].rc), hands[0].error);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-keys");
    TCase *tc = tcase_create("keys");
    tcase_add_test(tc, figure_6_is_sync_sgd);
    tcase_add_test(tc, figure_6_in_a_clique_is_mpi_sgd);
    tcase_add_test(tc, figure_7_is_the_method_of_the_server);
    tcase_add_loop_test(tc, lists_are_the_method_of_the_server, 0, (int)ROWS(lists));
    tcase_add_test(tc, keys_may_lie_on_two_servers);
    tcase_add_test(tc, under_ssp_a_worker_may_join_keys_on_two_servers);
    tcase_add_loop_test(tc, figure_8_is_elastic_averaging, 0, 2);
    tcase_add_test(tc, without_a_server_pushpull_adds_up);
    tcase_add_test(tc, wrong_keys_are_refused_before_anything_is_sent);
    tcase_add_loop_test(tc, admissions_without_rounds_of_keys_say_so, 0, 3);
    tcase_add_test(tc, a_step_of_rule_sum_is_the_callers);
    tcase_add_loop_test(tc, a_started_round_goes_on_with_the_key_that_failed, 0, 2);
    tcase_add_loop_test(tc, nobody_waits_at_a_barrier_whose_round_is_open, 0, 2);
    tcase_add_test(tc, a_ticket_can_be_tested_and_polled);
    tcase_add_test(tc, a_failed_list_ends_where_it_ended);
    tcase_add_test(tc, only_rank_0_sets_the_method);
    tcase_add_test(tc, set_method_takes_the_methods_keys_only);
    tcase_add_test(tc, a_round_begins_again_after_a_restart);
    tcase_add_test(tc, a_round_of_a_clique_begins_again_after_a_restart);
    tcase_add_test(tc, a_round_begins_again_after_a_change_of_method);
    tcase_add_test(tc, a_list_that_a_drain_cuts_off_is_drained);
    tcase_add_test(tc, members_make_the_same_calls);
    tcase_add_test(tc, workers_do_not_mix_keys_and_whole_vectors);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
