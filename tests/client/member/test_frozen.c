/* Sums over a clique leave out what is frozen, and give the bits of sums of everything. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/internal.h"
#include "tests/client/member/group_fixture.h"

enum { FEW_STEPS = 7 };
static char place[80];

/* The rig's model with other tensors frozen, a bit for each. To compare with: nothing is frozen, but these
 * tensors neither decay nor have a gradient. */
static unsigned frozen;
static struct psc_tensor freezing[RIG_TENSORS], moving[RIG_TENSORS];

static void freeze(unsigned set)
{
    frozen = set;
    for (size_t k = 0; k < RIG_TENSORS; k++) {
        bool is_frozen = (set >> k & 1) != 0;
        freezing[k] = moving[k] = rig_model[k];
        if (is_frozen || rig_model[k].role == PSC_FROZEN) {
            freezing[k].role = is_frozen ? PSC_FROZEN : PSC_PARAM;
            moving[k].role = PSC_PARAM;
            moving[k].decay = PSC_NO_DECAY;
        }
    }
}

enum { LEADING = 0x0f, TRAILING = 0x38, MIDDLE = 0x08, EACH_OTHER = 0x2a, ALL_BUT_ONE = 0x3b };
static const unsigned sets[] = {LEADING, TRAILING, MIDDLE, EACH_OTHER, ALL_BUT_ONE};

static void prepare_gradient(struct member *m)
{
    bool freezes = m->run->model[m->rank] == freezing;
    for (size_t k = 0; k < RIG_TENSORS; k++) {
        uint64_t end = k + 1 < RIG_TENSORS ? rig_model[k + 1].offset : N;
        for (uint64_t i = rig_model[k].offset; i < end && (frozen >> k & 1) != 0; i++)
            m->g[i] = freezes ? NAN : 0; /* of a frozen tensor nobody reads it */
    }
}

/* Each member as it likes: at once, or in parts, as backpropagation ends them. */
static int make_step(struct member *m, size_t n_samples)
{
    prepare_gradient(m);
    if (m->rank == 1)
        return psc_step(m->c, m->x, m->g, n_samples);
    int rc = psc_step_begin(m->c, m->x, m->g, n_samples);
    for (int k = RIG_TENSORS - 1; k >= 0 && rc == PSC_OK; k--) {
        uint64_t end = k + 1 < RIG_TENSORS ? rig_model[k + 1].offset : N;
        rc = psc_ready(m->c, rig_model[k].offset, end - rig_model[k].offset);
    }
    return rc == PSC_OK ? psc_step_end(m->c) : rc;
}

/* The whole vector by an explicit call; x is the answer. */
static int make_exchange(struct member *m, size_t n_samples)
{
    static float answers[MOST][N];
    prepare_gradient(m);
    for (int i = 0; i < N; i++)
        if (isnan(m->g[i])) /* psc_exchange looks at all that it is given */
            m->g[i] = 0;
    memcpy(answers[m->rank], m->x, sizeof m->x); /* frozen values are not written */
    int rc = psc_exchange(m->c, m->g, answers[m->rank], n_samples);
    memcpy(m->x, answers[m->rank], sizeof m->x);
    return rc;
}

/* psc_step may leave x at a point of the optimizer. */
static int draw(struct member *m)
{
    return psc_point(m->c, m->x);
}

static struct run *run_with(const struct psc_tensor *model, const char *method, int members)
{
    struct run *r = run_of(method, members);
    for (int k = 0; k < members; k++)
        r->model[k] = model;
    r->segment_bytes = 4096; /* a ring's stripe is of 1024 floats for each member */
    r->steps = FEW_STEPS;
    r->salt = 6;
    r->samples[0] = 32;
    r->step = make_step;
    r->after = draw;
    return r;
}

static int open_threads(int members, struct psc_clique **out)
{
    struct psc_threads_options opt;
    psc_threads_options_init(&opt, sizeof opt);
    opt.members = (uint32_t)members;
    return psc_threads_open(&opt, out);
}

static const struct {
    const char *method, *codec, *algorithm; /* NULL: threads, without a ring */
    int members;
    uint32_t pipeline;
    uint64_t bucket_floats;
} summed[] = {{"d-sync", "raw", "ring", 4, 1, 1},     {"d-sync", "raw", "ring", 3, 1, N},
              {"d-sync", "int8", "ring", 3, 1, 1},    {"d-sync", "fp16", "tree", 4, 1, 1},
              {"d-sync", "raw", "tree", 3, 1, 3000},  {"d-sync", "raw", NULL, 3, 1, 1000},
              {"d-sync", "raw", "ring", 2, 1, 0},     {"d-sync", "raw", "ring", 1, 1, 1},
              {"pipe-sgd", "raw", "ring", 3, 2, 1},   {"pipe-sgd", "int8", "ring", 2, 3, N},
              {"pipe-sgd", "fp16", "tree", 2, 2, 64}, {"pipe-sgd", "raw", NULL, 4, 4, 500}};

static struct run *serverless(const struct psc_tensor *model, int row)
{
    struct run *r = run_with(model, summed[row].method, summed[row].members);
    r->local.codec = summed[row].codec;
    r->local.weight_decay = 0.01;
    r->local.pipeline = summed[row].pipeline;
    r->local.bucket_floats = summed[row].bucket_floats;
    if (summed[row].algorithm != NULL)
        r->ring = place;
    else
        r->open = open_threads;
    r->algorithm = summed[row].algorithm;
    return r;
}

START_TEST(no_bit_depends_on_what_is_left_out)
{
    for (size_t k = 0; k < ROWS(sets); k++) {
        freeze(sets[k]);
        struct run *all = serverless(moving, _i), *some = serverless(freezing, _i);
        run_go(all);
        run_go(some);
        run_assert_same_x(some);
        ck_assert_mem_eq(all->member[0].x, some->member[0].x, sizeof some->member[0].x);
    }
}
END_TEST

static const struct {
    const char *settings[3];
    const char *algorithm;
    int (*step)(struct member *m, size_t n_samples);
} led[] = {{{"method=mpi-sgd", "clique.bucket_floats=1", "lanes=3"}, "ring", make_step},
           {{"method=mpi-sgd", "clique.codec=int8", "lanes=3"}, "ring", make_exchange},
           {{"method=eamsgd", "parameters.period=3", "clique.bucket_floats=3000"}, "ring", make_step},
           {{"method=async-easgd", "parameters.overlap=true", "clique.bucket_floats=1"}, "ring", make_step},
           {{"method=sync-easgd", "clique.mode=vectors", "clique.codec=fp16"}, "ring", make_step},
           {{"method=sync-easgd", "clique.mode=vectors", "parameters.overlap=true"}, "ring", make_step},
           {{"method=sync-easgd", "clique.mode=vectors", "clique.algorithm=tree"}, "ring", make_step},
           {{"method=d-sync", "clique.algorithm=tree", "clique.bucket_floats=1"}, "ring", make_step},
           {{"method=mpi-sgd", "clique.bucket_floats=2000", "lanes=3"}, NULL, make_step}};

/* A clique of three at psd; the center is in *center afterwards. */
static struct run *train(const struct psc_tensor *model, int row, float *center)
{
    struct daemon d;
    struct psc_options opt;
    struct psc *c;
    rig_start(&d,
              (const char *const[]){RIG_CUT, "checkpoint.every_s=0", "parameters.weight_decay=0.01",
                                    led[row].settings[0], led[row].settings[1], led[row].settings[2], NULL});
    struct run *r = run_with(model, "", 3);
    r->server = d.endpoint;
    r->ring = led[row].algorithm != NULL ? place : NULL;
    r->step = led[row].step;
    run_go(r);
    psc_options_init(&opt, sizeof opt);
    opt.server = d.endpoint;
    opt.kind = PSC_OBSERVER;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    assert_ok(c, psc_begin(c, model, RIG_TENSORS, center));
    psc_close(c);
    daemon_remove(&d);
    return r;
}

/* In a row without a ring it is a circle. Its sums are in rank order. */
START_TEST(nor_at_psd)
{
    static float whole[N], trimmed[N];
    freeze(sets[(size_t)_i % ROWS(sets)]);
    struct run *all = train(moving, _i, whole), *some = train(freezing, _i, trimmed);
    for (int i = 0; i < 3; i++)
        ck_assert_mem_eq(all->member[i].x, some->member[i].x, sizeof whole);
    ck_assert_mem_eq(whole, trimmed, sizeof whole);
}
END_TEST

static size_t calls_of(const struct circle_log *log, enum psc_collective_kind kind, size_t n)
{
    size_t found = 0;
    ck_assert_uint_le(log->n, CIRCLE_CALLS);
    for (size_t i = 0; i < log->n; i++)
        found += log->calls[i].kind == kind && log->calls[i].n == n;
    return found;
}

/* Of values that the vector has: words and numbers of samples come in fewer. */
static size_t floats_of(const struct circle_log *log, enum psc_collective_kind kind, size_t *calls)
{
    size_t floats = *calls = 0;
    for (size_t i = 0; i < log->n; i++)
        if (log->calls[i].kind == kind && log->calls[i].n > PSC_N_WORDS) {
            floats += log->calls[i].n;
            ++*calls;
        }
    return floats;
}

static const struct {
    unsigned set;
    size_t calls, floats; /* of a sum, in buckets of 2000 floats from the first that moves */
    size_t hull;          /* from the first float that moves to the last */
} sizes[] = {{0, 5, 10000, 10000},      {LEADING, 1, 2000, 2000}, {EACH_OTHER, 3, 5800, 9900},
             {TRAILING, 2, 3900, 3900}, {MIDDLE, 3, 5900, 10000}, {ALL_BUT_ONE, 1, 700, 700}};

enum { LED_SIZES = 3 };

/* A circle has no stripes. */
START_TEST(frozen_stripes_and_buckets_are_not_sent)
{
    size_t calls;
    freeze(sizes[_i].set);
    struct run *r = run_with(freezing, "d-sync", 2);
    r->local.bucket_floats = 2000;
    run_go(r);
    ck_assert_uint_eq(floats_of(circle_log(), PSC_ALLREDUCE, &calls), FEW_STEPS * sizes[_i].floats);
    ck_assert_uint_eq(calls, FEW_STEPS * sizes[_i].calls);
}
END_TEST

/* x is sent back to the members, too; whole as the job begins. */
START_TEST(a_leader_neither_takes_nor_gives_frozen_values)
{
    static float center[N];
    size_t calls;
    freeze(sizes[_i].set);
    train(freezing, (int)ROWS(led) - 1, center);
    const struct circle_log *log = circle_log();
    ck_assert_uint_eq(floats_of(log, PSC_REDUCE, &calls), FEW_STEPS * sizes[_i].floats);
    ck_assert_uint_eq(calls, FEW_STEPS * sizes[_i].calls);
    size_t whole = calls_of(log, PSC_BROADCAST, N * sizeof(float));
    size_t hulls = calls_of(log, PSC_BROADCAST, sizes[_i].hull * sizeof(float));
    ck_assert_uint_eq(whole, sizes[_i].hull == N ? FEW_STEPS + 1 : 1);
    ck_assert_uint_eq(hulls, sizes[_i].hull == N ? FEW_STEPS + 1 : FEW_STEPS);
}
END_TEST

/* Calls without a server, by a single worker and in a clique. */
static const struct {
    unsigned set;
    int members;
    size_t sums; /* of the whole vector: one of each range between frozen ones */
} called[] = {{LEADING, 3, 1}, {EACH_OTHER, 3, 3}, {TRAILING, 2, 1},
              {0, 3, 1},       {MIDDLE, 1, 0},     {LEADING, 1, 0}};

static const float untouched = -7;

static bool is_frozen_at(int i)
{
    return (frozen >> (rig_tensor_at((size_t)i) - rig_model) & 1) != 0;
}

/* The members' numbers, beside values of frozen tensors that nobody reads. */
static void prepare_call(struct member *m, float *answer)
{
    for (int i = 0; i < N; i++) {
        m->g[i] = is_frozen_at(i) ? NAN : (float)(m->rank + 1);
        answer[i] = untouched;
    }
}

/* -1000 - i: value i of the answer is wrong. */
static int add_up(struct member *m)
{
    int members = m->run->members, rc;
    float answer[N], sum = (float)(members * (members + 1) / 2);
    prepare_call(m, answer);
    if ((rc = psc_pushpull(m->c, NULL, m->g, answer, 1)) != PSC_OK)
        return rc;
    for (int i = 0; i < N; i++)
        if (answer[i] != (is_frozen_at(i) ? untouched : sum))
            return -1000 - i;
    return PSC_OK;
}

START_TEST(without_a_server_frozen_values_are_not_summed)
{
    size_t calls, moves = 0;
    freeze(called[_i].set);
    struct run *r = run_with(freezing, "d-sync", called[_i].members);
    r->steps = 0;
    r->after = add_up;
    run_go(r);
    for (int i = 0; i < N; i++)
        moves += !is_frozen_at(i);
    ck_assert_uint_eq(floats_of(circle_log(), PSC_ALLREDUCE, &calls), called[_i].sums > 0 ? moves : 0);
    ck_assert_uint_eq(calls, called[_i].sums);
}
END_TEST

static bool is_refused(const struct member *m, int rc, int wanted, const char *says)
{
    return rc == wanted && strstr(psc_error(m->c), says) != NULL;
}

/* -1000 - k: a call of key k is not refused as it is with a server. */
static int call_frozen_keys(struct member *m)
{
    float answer[N];
    prepare_call(m, answer);
    for (int k = 0; k < RIG_TENSORS; k++) {
        const char *name = freezing[k].name, *says = "is frozen: no rule moves it";
        const float *message = m->g + freezing[k].offset;
        float *to = answer;
        if ((frozen >> k & 1) != 0 &&
            (!is_refused(m, psc_pushpull(m->c, name, message, to, 1), PSC_EINVAL, says) ||
             !is_refused(m, psc_pushpull_start(m->c, name, message, to, 1, NULL), PSC_EINVAL, says) ||
             !is_refused(m, psc_pushpull_keys(m->c, &name, 1, &message, &to, 1), PSC_EINVAL, says)))
            return -1000 - k;
    }
    for (int i = 0; i < N; i++)
        if (answer[i] != untouched)
            return -2000 - i;
    return add_up(m);
}

START_TEST(without_a_server_frozen_keys_are_refused)
{
    freeze(called[_i].set);
    struct run *r = run_with(freezing, "d-sync", called[_i].members);
    r->steps = 0;
    r->after = call_frozen_keys;
    run_go(r);
}
END_TEST

/* Behind frozen values it is counted from the message's begin. */
static int send_nan(struct member *m)
{
    float answer[N];
    prepare_call(m, answer);
    m->g[8005] = NAN;
    if (!is_refused(m, psc_pushpull(m->c, NULL, m->g, answer, 1), PSC_EVALUE,
                    "message[8005], in tensor 'fc.weight'") ||
        !is_refused(m, psc_pushpull(m->c, "fc.weight", m->g + 8000, answer, 1), PSC_EVALUE,
                    "message[5], in tensor 'fc.weight'"))
        return -1000;
    return add_up(m);
}

START_TEST(without_a_server_the_place_of_a_nan_is_the_messages)
{
    freeze(EACH_OTHER);
    struct run *r = run_with(freezing, "d-sync", _i + 1);
    r->steps = 0;
    r->after = send_nan;
    run_go(r);
}
END_TEST

/* With two members a stripe is of 2048 floats. Of the rig's model 3900 to 8000 are frozen. */
static int look_at_parts(struct member *m)
{
    static const struct {
        struct ps_range r, part;
    } rows[] = {{{0, N}, {0, N}},
                {{0, 4096}, {0, 4096}},
                {{0, 6144}, {0, 4096}},
                {{4096, 2048}, {4096, 0}},
                {{4096, 4096}, {6144, 2048}},
                {{4096, N - 4096}, {6144, N - 6144}},
                {{2048, 2048}, {2048, 2048}},
                {{3900, 4100}, {3900, 0}},
                {{3900, N - 3900}, {3900 + 4096, N - 3900 - 4096}}};
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct ps_range part = psc_sum_part(m->c, rows[i].r);
        if (part.count != rows[i].part.count || (part.count > 0 && part.begin != rows[i].part.begin))
            return -1000 - (int)i;
    }
    return PSC_OK;
}

START_TEST(what_is_left_consists_of_whole_stripes)
{
    struct run *r = run_with(rig_model, "d-sync", 2);
    r->ring = place;
    r->steps = 1;
    r->step = NULL;
    r->after = look_at_parts;
    run_go(r);
}
END_TEST

START_TEST(members_that_froze_others_are_told_so)
{
    freeze(LEADING);
    struct run *r = run_with(freezing, "d-sync", 3);
    r->model[1] = rig_model;
    run_start(r);
    run_end(r);
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(r->member[k].rc, PSC_ECLIQUE);
        ck_assert_ptr_nonnull(strstr(r->member[k].error, "differ in model"));
        ck_assert_ptr_nonnull(strstr(r->member[k].error, "10000 floats, of these 8000 frozen"));
        ck_assert_ptr_nonnull(strstr(r->member[k].error, "10000 floats, of these 4100 frozen"));
    }
}
END_TEST

static void sayplace(void)
{
    snprintf(place, sizeof place, "file:/tmp/psd-test-frozen-%d", (int)getpid());
}

int main(void)
{
    Suite *suite = suite_create("client-frozen");
    TCase *tc = tcase_create("frozen");
    tcase_add_checked_fixture(tc, sayplace, NULL);
    tcase_add_loop_test(tc, no_bit_depends_on_what_is_left_out, 0, ROWS(summed));
    tcase_add_loop_test(tc, nor_at_psd, 0, ROWS(led));
    tcase_add_loop_test(tc, frozen_stripes_and_buckets_are_not_sent, 0, ROWS(sizes));
    tcase_add_loop_test(tc, a_leader_neither_takes_nor_gives_frozen_values, 0, LED_SIZES);
    tcase_add_loop_test(tc, without_a_server_frozen_values_are_not_summed, 0, ROWS(called));
    tcase_add_loop_test(tc, without_a_server_frozen_keys_are_refused, 0, ROWS(called));
    tcase_add_loop_test(tc, without_a_server_the_place_of_a_nan_is_the_messages, 0, 2);
    tcase_add_test(tc, what_is_left_consists_of_whole_stripes);
    tcase_add_test(tc, members_that_froze_others_are_told_so);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
