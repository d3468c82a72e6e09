/* Methods whose workers are one clique without a server, against their equations. */
#include <math.h>
#include <unistd.h>

#include "client/psclique_nccl.h"
#include "tests/client/member/group_fixture.h"

/* d-sync and pipe-sgd in double, from the same gradients of the run's own points: x, when `depth` gradients
 * wait for their step at once after the first warm-up. Members' points are equal, so rank 0's serve. */
struct twin {
    double x[N], waiting[STEPS][N];
    int first, end; /* those that wait */
};

static void twin_apply(struct twin *t, double eta, int most)
{
    for (; t->end - t->first > most; t->first++)
        for (int i = 0; i < N; i++)
            if (rig_tensor_at((size_t)i)->role == PSC_PARAM)
                t->x[i] -= eta * t->waiting[t->first][i];
}

static void twin_steps(struct twin *t, const struct run *r, int depth)
{
    struct dice dice = {110};
    static double mean[N];
    for (int i = 0; i < N; i++)
        t->x[i] = dice_float(&dice);
    for (int k = 0; k < r->steps; k++) {
        double total = 0;
        memset(mean, 0, sizeof mean);
        for (int m = 0; m < r->members; m++) {
            double n = r->samples[m] > 0 ? (double)r->samples[m] : 64;
            uint64_t who = r->salt != 0 ? (uint64_t)m + r->salt : 0;
            struct dice roll = {1000 * (uint64_t)k + 77 * who};
            for (int i = 0; i < N; i++)
                mean[i] += n * (0.5 * t->x[i] + (double)dice_float(&roll));
            total += n;
        }
        for (int i = 0; i < N; i++)
            t->waiting[t->end][i] = mean[i] / total;
        t->end++;
        twin_apply(t, r->local.learning_rate, (uint64_t)k < r->local.pipeline_warmup ? 0 : depth - 1);
    }
    twin_apply(t, r->local.learning_rate, 0);
}

static const struct {
    const char *method;
    int members;
    uint32_t pipeline;
    uint64_t warmup;
} serverless[] = {{"d-sync", 1, 1, 0},   {"d-sync", 2, 1, 0},   {"d-sync", 3, 1, 0},
                  {"d-sync", 4, 1, 0},   {"pipe-sgd", 1, 2, 0}, {"pipe-sgd", 2, 2, 0},
                  {"pipe-sgd", 3, 2, 5}, {"pipe-sgd", 4, 2, 1}, {"pipe-sgd", 2, 1, 0},
                  {"pipe-sgd", 3, 3, 0}, {"pipe-sgd", 2, 5, 4}, {"pipe-sgd", 2, 16, 0}};

/* Values stay below 4; a step rounds less than ten times, and its errors shrink. */
START_TEST(serverless_methods_follow_their_equations)
{
    static struct twin twin;
    struct run *r = run_of(serverless[_i].method, serverless[_i].members);
    memset(&twin, 0, sizeof twin);
    r->salt = 5;
    r->samples[0] = 32;
    r->samples[1] = 64;
    r->samples[2] = 100;
    r->local.pipeline = serverless[_i].pipeline;
    r->local.pipeline_warmup = serverless[_i].warmup;
    run_go(r);
    run_assert_same_x(r);
    twin_steps(&twin, r, (int)serverless[_i].pipeline);
    for (int i = 0; i < N; i++)
        if (fabs((double)r->member[0].x[i] - twin.x[i]) > 10 * 4.0 * STEPS * 0x1p-24)
            ck_abort_msg("x[%d] is %.9g; expected %.9g", i, (double)r->member[0].x[i], twin.x[i]);
}
END_TEST

/* Bit for bit. */
START_TEST(d_sync_of_one_is_sgd)
{
    struct run *alone = run_of("sgd", 1), *clique = run_of("d-sync", 1);
    alone->local.weight_decay = clique->local.weight_decay = 0.01;
    run_go(alone);
    run_go(clique);
    ck_assert_mem_eq(alone->member[0].x, clique->member[0].x, sizeof alone->member[0].x);
}
END_TEST

static float quadratic_after(const char *method, float eta, int steps)
{
    struct psc_options opt;
    struct psc_local local;
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {1}};
    struct psc *c;
    float x = 1, g;
    psc_local_init(&local, sizeof local, method);
    local.learning_rate = (double)eta;
    psc_options_init(&opt, sizeof opt);
    opt.local = &local;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    assert_ok(c, psc_begin(c, &tensor, 1, &x));
    float largest = 0;
    for (int t = 0; t < steps; t++) {
        g = x;
        ck_assert_int_eq(psc_step(c, &x, &g, 1), PSC_OK);
        if (t >= steps - 20)
            largest = fmaxf(largest, fabsf(x));
    }
    psc_close(c);
    return largest;
}

/* x' = x - eta x_before: roots of z^2 - z + eta lie on the circle of radius sqrt(eta), so that after t steps
 * |x| is about eta^(t/2): 0.98^500 = 4e-5, 1.02^500 = 2e4. */
START_TEST(pipe_sgd_is_stable_exactly_below_one)
{
    ck_assert_float_lt(quadratic_after("pipe-sgd", 0.98f, 1000), 1e-3f);
    ck_assert_float_gt(quadratic_after("pipe-sgd", 1.02f, 1000), 1e3f);
    ck_assert_float_lt(quadratic_after("d-sync", 1.98f, 1000), 1e-3f);
    ck_assert_float_gt(quadratic_after("d-sync", 2.02f, 1000), 1e3f);
}
END_TEST

static int spoil(struct member *m, int t)
{
    if (t != 3)
        return PSC_OK;
    run_gradient(m, m->g);
    if (m->rank == 1)
        m->g[17] = NAN;
    static float before[MOST][N];
    memcpy(before[m->rank], m->x, sizeof m->x);
    int rc = psc_step(m->c, m->x, m->g, 64);
    if (rc != PSC_EVALUE || memcmp(before[m->rank], m->x, sizeof m->x) != 0)
        return rc == PSC_OK ? PSC_EINVAL : rc;
    return psc_pull(m->c, NULL, m->x);
}

START_TEST(a_members_nan_is_refused_by_all_and_moves_nothing)
{
    struct run *r = run_of("d-sync", 3);
    r->salt = 1;
    r->before = spoil;
    run_go(r);
    run_assert_same_x(r);
}
END_TEST

static char paths[MOST][100];

static int save(struct member *m, int t)
{
    return t == 7 ? psc_save(m->c, paths[m->rank], m->x, NULL, 0) : PSC_OK;
}

static int load(struct member *m, int t)
{
    int rc = t == 0 ? psc_load(m->c, paths[m->rank], m->x, NULL, 0, NULL) : PSC_OK;
    if (t > 0 || rc != PSC_OK)
        return rc;
    rc = psc_load(m->c, paths[m->rank], m->x, NULL, 0, NULL); /* its means would count twice */
    return rc == PSC_EINVAL ? PSC_OK : PSC_EREFUSED;
}

static int save_apart(struct member *m, int t)
{
    return t == 7 - m->rank ? psc_save(m->c, paths[m->rank], m->x, NULL, 0) : PSC_OK;
}

static int load_apart(struct member *m, int t)
{
    return t == 0 ? psc_load(m->c, paths[m->rank], m->x, NULL, 0, NULL) : PSC_OK;
}

/* As they are where a clique was killed while it saved: its members would go on from different points. */
START_TEST(members_with_states_of_different_steps_do_not_go_on)
{
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof paths[i], "/tmp/psd-test-apart-%d-%d", (int)getpid(), i);
    struct run *r = run_of("d-sync", 2);
    r->before = save_apart;
    run_go(r);
    r = run_of("d-sync", 2);
    r->before = load_apart;
    run_start(r);
    run_end(r);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(r->member[i].rc == PSC_EINVAL, "member %d: %s", i, psc_result_name(r->member[i].rc));
        assert_says(r->member[i].error, "differ in t: rank");
        unlink(paths[i]);
    }
}
END_TEST

/* Member 0 calls within its step what it may not; the others make a step meanwhile. */
static int step_with_calls_within(struct member *m, size_t n)
{
    if (m->rank != 0)
        return psc_step(m->c, m->x, m->g, n);
    static float sum[N];
    int rc = psc_step_begin(m->c, m->x, m->g, n);
    if (rc == PSC_OK &&
        (psc_workers_barrier(m->c) != PSC_EINVAL || psc_pushpull(m->c, NULL, m->g, sum, n) != PSC_EINVAL ||
         psc_set_method(m->c, "period=2") != PSC_EINVAL))
        return PSC_EREFUSED;
    rc = rc == PSC_OK ? psc_ready(m->c, 0, N) : rc;
    return rc == PSC_OK ? psc_step_end(m->c) : rc;
}

START_TEST(a_bad_call_within_a_step_is_the_callers_alone)
{
    struct run *r = run_of("d-sync", 2);
    r->step = step_with_calls_within;
    run_go(r);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(r->member[i].rc == PSC_OK, "member %d: %s (%s)", i, psc_result_name(r->member[i].rc),
                      r->member[i].error);
}
END_TEST

/* Each member calls psc_stop before its steps from this one on; -1: never. The last row's is behind the end.
 */
static const struct {
    uint32_t pipeline;
    int asks_at[MOST];
    uint64_t ends_at; /* the last step, the first is 1 */
} stops[] = {
    {1, {5, 5, 5, 5}, 6}, {1, {-1, 5, -1, 7}, 6},  {2, {6, 6, 5, 7}, 7},         {4, {-1, -1, 2, -1}, 6},
    {4, {6, 5, 4, 3}, 7}, {6, {0, -1, -1, -1}, 6}, {4, {20, 20, 20, 20}, STEPS},
};

static struct {
    int row;
    uint64_t ended_at[MOST];
} stopping;

static int step_or_stop(struct member *m, size_t n)
{
    int from = stops[stopping.row].asks_at[m->rank];
    bool asks = from >= 0 && psc_clock(m->c) >= (uint64_t)from;
    int rc = asks ? psc_stop(m->c) : PSC_OK;
    if (rc != PSC_OK)
        return PSC_EREFUSED; /* it cannot leave alone */
    rc = psc_step(m->c, m->x, m->g, n);
    stopping.ended_at[m->rank] = psc_clock(m->c);
    if (rc == PSC_DRAINED && psc_wait(m->c, PSC_ALL) < 0)
        return PSC_ECLIQUE;
    return rc;
}

START_TEST(all_stop_after_the_same_step)
{
    struct run *r = run_of("pipe-sgd", MOST);
    r->local.pipeline = stops[_i].pipeline;
    r->salt = 9;
    r->step = step_or_stop;
    stopping.row = _i;
    run_start(r);
    run_end(r);
    int rc = stops[_i].ends_at < STEPS ? PSC_DRAINED : PSC_OK;
    for (int k = 0; k < MOST; k++) {
        ck_assert_msg(r->member[k].rc == rc, "member %d: %s (%s)", k, psc_result_name(r->member[k].rc),
                      r->member[k].error);
        ck_assert_uint_eq(stopping.ended_at[k], stops[_i].ends_at);
    }
    run_assert_same_x(r);
}
END_TEST

static int stop_alone(struct member *m, int t)
{
    (void)t;
    return psc_stop(m->c);
}

START_TEST(a_worker_that_is_alone_stops_at_once)
{
    struct run *r = run_of("pipe-sgd", 1);
    r->before = stop_alone;
    run_start(r);
    run_end(r);
    ck_assert_int_eq(r->member[0].rc, PSC_DRAINED);
}
END_TEST

static const uint32_t pipelines[] = {1, 2, 3, 6};

START_TEST(a_pipeline_resumes_bit_for_bit)
{
    static float whole[N];
    struct run *r = run_of("pipe-sgd", 2);
    r->local.pipeline = pipelines[_i];
    for (int i = 0; i < MOST; i++)
        snprintf(paths[i], sizeof paths[i], "/tmp/psd-test-group-%d-%d", (int)getpid(), i);
    r->salt = 9;
    r->before = save;
    run_go(r);
    memcpy(whole, r->member[0].x, sizeof whole);
    struct run *again = run_of("pipe-sgd", 2);
    again->local.pipeline = pipelines[_i];
    again->salt = 9;
    again->before = load;
    again->steps = STEPS - 7;
    run_go(again);
    for (int i = 0; i < 2; i++)
        unlink(paths[i]);
    run_assert_same_x(again);
    ck_assert_mem_eq(whole, again->member[0].x, sizeof whole);
}
END_TEST

START_TEST(members_that_want_different_things_are_told)
{
    struct run *r = run_of("d-sync", 3);
    struct psc_tensor other[RIG_TENSORS];
    memcpy(other, rig_model, sizeof other);
    other[2].role = PSC_BUFFER;
    r->model[2] = other;
    run_start(r);
    run_end(r);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(r->member[i].rc, PSC_ECLIQUE);
        ck_assert_ptr_nonnull(strstr(r->member[i].error, "differ in model"));
        ck_assert_ptr_nonnull(strstr(r->member[i].error, "rank 2"));
    }
}
END_TEST

static const struct {
    const char *method, *codec;
} over_a_ring[] = {{"d-sync", "raw"}, {"d-sync", "int8"}, {"pipe-sgd", "fp16"}, {"pipe-sgd", "trunc16"}};

/* The real ring, in every hop of which a codec rounds. */
START_TEST(members_of_a_ring_end_with_the_same_bits)
{
    char place[80];
    snprintf(place, sizeof place, "file:/tmp/psd-test-ring-%d", (int)getpid());
    struct run *r = run_of(over_a_ring[_i].method, 4);
    r->ring = place;
    r->salt = 6;
    r->local.codec = over_a_ring[_i].codec;
    run_go(r);
    run_assert_same_x(r);
}
END_TEST

static const struct {
    const char *method, *codec;
} sampled[] = {{"d-sync", "fp16"}, {"d-sync", "raw"}, {"pipe-sgd", "fp16"}, {"d-sync", "int8"}};

/* Half precision ends at 65504: what travels is near the mean, however many samples are behind it. Counts
 * that are powers of two change no bit of it. */
START_TEST(a_mean_does_not_depend_on_how_many_samples_all_have)
{
    static float of_one[N];
    char place[80];
    snprintf(place, sizeof place, "file:/tmp/psd-test-samples-%d", (int)getpid());
    for (size_t samples = 1; samples <= 1 << 22; samples <<= 22) {
        struct run *r = run_of(sampled[_i].method, 2);
        r->ring = place;
        r->salt = 6;
        r->local.codec = sampled[_i].codec;
        r->samples[0] = r->samples[1] = samples;
        run_go(r);
        run_assert_same_x(r);
        if (samples == 1)
            memcpy(of_one, r->member[0].x, sizeof of_one);
        else
            ck_assert_mem_eq(of_one, r->member[0].x, sizeof of_one);
    }
}
END_TEST

static int step_of_nothing(struct member *m, int t)
{
    static float before[MOST][N];
    if (t != 2)
        return PSC_OK;
    memcpy(before[m->rank], m->x, sizeof m->x);
    int rc = psc_step(m->c, m->x, m->g, 0);
    bool told = strstr(psc_error(m->c), "psc_step: n_samples is 0") != NULL;
    return rc == PSC_EINVAL && told && memcmp(before[m->rank], m->x, sizeof m->x) == 0 ? PSC_OK
                                                                                       : PSC_EDAMAGED;
}

START_TEST(a_member_without_samples_is_refused_by_name)
{
    struct run *r = run_of("d-sync", 2);
    r->before = step_of_nothing;
    run_go(r);
    run_assert_same_x(r);
}
END_TEST

/* This program has no run path to the module. */
START_TEST(a_clique_over_nccl_without_its_module_is_refused)
{
    struct psc_ring_options opt;
    struct psc_clique *q;
    psc_ring_options_init(&opt, sizeof opt);
    ck_assert_int_eq(psc_nccl_open(&opt, &q), PSC_EUNSUPPORTED);
    assert_says(psc_clique_error(q),
                "a clique over nccl needs libpsclique-nccl.so, which is built if CUDA and NCCL "
                "are installed: libpsclique-nccl.so: cannot open shared object file");
    ck_assert_int_eq(psc_barrier(q), PSC_ECLIQUE);
    psc_clique_close(q);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-group");
    TCase *tc = tcase_create("group");
    tcase_add_loop_test(tc, serverless_methods_follow_their_equations, 0, ROWS(serverless));
    tcase_add_test(tc, d_sync_of_one_is_sgd);
    tcase_add_test(tc, pipe_sgd_is_stable_exactly_below_one);
    tcase_add_test(tc, a_members_nan_is_refused_by_all_and_moves_nothing);
    tcase_add_loop_test(tc, a_pipeline_resumes_bit_for_bit, 0, ROWS(pipelines));
    tcase_add_test(tc, members_with_states_of_different_steps_do_not_go_on);
    tcase_add_test(tc, a_bad_call_within_a_step_is_the_callers_alone);
    tcase_add_loop_test(tc, all_stop_after_the_same_step, 0, ROWS(stops));
    tcase_add_test(tc, a_worker_that_is_alone_stops_at_once);
    tcase_add_test(tc, members_that_want_different_things_are_told);
    tcase_add_loop_test(tc, members_of_a_ring_end_with_the_same_bits, 0, ROWS(over_a_ring));
    tcase_add_loop_test(tc, a_mean_does_not_depend_on_how_many_samples_all_have, 0, ROWS(sampled));
    tcase_add_test(tc, a_member_without_samples_is_refused_by_name);
    tcase_add_test(tc, a_clique_over_nccl_without_its_module_is_refused);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
