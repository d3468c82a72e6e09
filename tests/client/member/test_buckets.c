/* A step in parts: gradients that are summed as they become ready, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/client/member/group_fixture.h"

static char place[80];

static int begin(struct member *m, size_t n_samples)
{
    return psc_step_begin(m->c, m->x, m->g, n_samples);
}

/* As backpropagation ends them. */
static int by_tensors(struct member *m, size_t n_samples)
{
    int rc = begin(m, n_samples);
    for (int k = RIG_TENSORS - 1; k >= 0 && rc == PSC_OK; k--) {
        uint64_t end = k + 1 < RIG_TENSORS ? rig_model[k + 1].offset : N;
        rc = psc_ready(m->c, rig_model[k].offset, end - rig_model[k].offset);
    }
    return rc == PSC_OK ? psc_step_end(m->c) : rc;
}

/* In parts of a tenth of the vector, in another order at each step and member. */
static int in_any_order(struct member *m, size_t n_samples)
{
    enum { PARTS = 10 };
    struct dice dice = {psc_clock(m->c) * 8 + (uint64_t)m->rank + 1};
    int order[PARTS], rc = begin(m, n_samples);
    for (int i = 0; i < PARTS; i++) {
        int k = (int)dice_below(&dice, (uint64_t)(i + 1));
        order[i] = order[k];
        order[k] = i;
    }
    for (int i = 0; i < PARTS && rc == PSC_OK; i++)
        rc = psc_ready(m->c, (uint64_t)order[i] * (N / PARTS), N / PARTS);
    return rc == PSC_OK ? psc_step_end(m->c) : rc;
}

/* Each member as it likes. */
static int each_its_own(struct member *m, size_t n_samples)
{
    if (m->rank == 0)
        return psc_step(m->c, m->x, m->g, n_samples);
    return m->rank == 1 ? by_tensors(m, n_samples) : in_any_order(m, n_samples);
}

static struct run *ring_of(const char *method, const char *codec, int members)
{
    struct run *r = run_of(method, members);
    r->ring = place;
    r->segment_bytes = 4096; /* a stripe is of 1024 floats for each member */
    r->salt = 6;
    r->samples[0] = 32;
    r->local.codec = codec;
    r->local.weight_decay = 0.01;
    return r;
}

static const struct {
    const char *method, *codec;
    int members;
} summed[] = {{"d-sync", "raw", 2},
              {"d-sync", "raw", 4},
              {"d-sync", "int8", 3},
              {"pipe-sgd", "raw", 3},
              {"pipe-sgd", "fp16", 2}};

static uint64_t bucket_of(const struct member *m)
{
    struct psc_info info = {.size = sizeof info};
    return psc_info(m->c, &info) == PSC_OK ? info.bucket_floats : 0;
}

/* Noted after each step. */
static uint64_t noted[MOST][STEPS];

static int note_bucket(struct member *m, size_t n_samples)
{
    int rc = m->rank == 1 ? psc_step(m->c, m->x, m->g, n_samples) : by_tensors(m, n_samples);
    noted[m->rank][psc_clock(m->c) - 1] = bucket_of(m);
    return rc;
}

/* With bucket_floats 0 rank 0 measures, and all members take its choice before the same sum. */
START_TEST(the_choice_is_the_same_at_all_members_and_no_bit_depends_on_it)
{
    enum { STRIPE = 1024 };
    static float whole[N];
    struct run *r = ring_of(summed[_i].method, summed[_i].codec, summed[_i].members);
    r->local.bucket_floats = N;
    run_go(r);
    memcpy(whole, r->member[0].x, sizeof whole);
    r = ring_of(summed[_i].method, summed[_i].codec, summed[_i].members);
    r->step = note_bucket;
    run_go(r);
    run_assert_same_x(r);
    ck_assert_mem_eq(whole, r->member[0].x, sizeof whole);
    for (int k = 1; k < r->members; k++)
        ck_assert_mem_eq(noted[0], noted[k], sizeof noted[0]);
    uint64_t chosen = noted[0][STEPS - 1], stripe = (uint64_t)STRIPE * (uint64_t)r->members;
    ck_assert_uint_eq(noted[0][0] % stripe, 0);
    ck_assert_uint_ge(noted[0][0], 1 << 18); /* until then */
    ck_assert_uint_eq(chosen % stripe, 0);
    ck_assert(chosen > 0 && chosen < N + stripe);
}
END_TEST

START_TEST(members_that_disagree_on_buckets_are_told_so)
{
    struct run *r = ring_of("d-sync", "raw", 2);
    r->bucket_floats_of_1 = 4096;
    run_start(r);
    run_end(r);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(r->member[k].rc, PSC_ECLIQUE);
        ck_assert_ptr_nonnull(strstr(r->member[k].error, "buckets auto"));
        ck_assert_ptr_nonnull(strstr(r->member[k].error, "buckets 4096"));
    }
}
END_TEST

START_TEST(bits_depend_neither_on_buckets_nor_on_the_order_of_reports)
{
    static float whole[N];
    static int (*const steps[])(struct member *, size_t) = {NULL, by_tensors, in_any_order, each_its_own};
    struct run *r = ring_of(summed[_i].method, summed[_i].codec, summed[_i].members);
    r->links = 1;
    r->local.bucket_floats = N;
    run_go(r);
    run_assert_same_x(r);
    memcpy(whole, r->member[0].x, sizeof whole);
    for (size_t i = 0; i < ROWS(steps); i++)
        for (uint32_t links = 1; links <= 3; links += 2) {
            r = ring_of(summed[_i].method, summed[_i].codec, summed[_i].members);
            r->links = links;
            r->step = steps[i];
            r->local.bucket_floats = 1; /* one for each stripe */
            run_go(r);
            run_assert_same_x(r);
            ck_assert_mem_eq(whole, r->member[0].x, sizeof whole);
        }
}
END_TEST

static const struct {
    const char *method, *bucket_floats;
} led[] = {{"method=mpi-sgd", "clique.bucket_floats=1"},
           {"method=sync-sgd", "clique.bucket_floats=1"},
           {"method=eamsgd", "clique.bucket_floats=1"},
           {"method=async-easgd", "clique.bucket_floats=3000"}};

/* Of a clique that a leader steps for: the member's x after a job with psd. */
static void train(const char *method, const char *bucket_floats, int (*step)(struct member *, size_t),
                  float *x)
{
    struct daemon d;
    rig_start(&d, (const char *const[]){RIG_CUT, "checkpoint.every_s=0", method, bucket_floats,
                                        "parameters.weight_decay=0.01", NULL});
    struct run *r = ring_of("", "raw", 3);
    r->server = d.endpoint;
    r->step = step;
    run_go(r);
    run_assert_same_x(r);
    memcpy(x, r->member[0].x, N * sizeof *x);
    daemon_remove(&d);
}

START_TEST(nor_where_a_leader_steps)
{
    static float whole[N], parts[N];
    train(led[_i].method, "clique.bucket_floats=auto", NULL, whole);
    train(led[_i].method, led[_i].bucket_floats, each_its_own, parts);
    ck_assert_mem_eq(whole, parts, sizeof whole);
}
END_TEST

/* Its buffers are what the member's rank and step say, until psc_step has moved them. */
static void fill_buffers(const struct member *m, float *x, float t)
{
    for (int i = 0; i < N; i++)
        if (rig_tensor_at((size_t)i)->role == PSC_BUFFER)
            x[i] = 16 * t + (float)m->rank;
}

static int with_buffers(struct member *m, size_t n_samples)
{
    static float want[MOST][N];
    bool pipelined = strcmp(m->run->local.method, "pipe-sgd") == 0;
    float t = (float)psc_clock(m->c), mean = 0.5f - (float)m->rank;
    fill_buffers(m, m->x, t);
    int rc = by_tensors(m, n_samples);
    memcpy(want[m->rank], m->x, sizeof m->x);
    fill_buffers(m, want[m->rank], pipelined ? t - 1 : t);
    for (int i = 0; i < N && !(pipelined && t == 0); i++)
        if (rig_tensor_at((size_t)i)->role == PSC_BUFFER && m->x[i] != want[m->rank][i] + mean)
            return PSC_EDAMAGED;
    return rc;
}

START_TEST(buffers_are_the_mean_of_what_the_members_gave)
{
    const char *const methods[] = {"d-sync", "pipe-sgd"};
    struct run *r = ring_of(methods[_i], "raw", 2);
    r->samples[0] = 64;
    r->step = with_buffers;
    run_go(r);
}
END_TEST

/* At step 3 member 1 has a NaN: in a pipeline all hear of it at step 4, whose own sum is on its way then. */
static int spoil(struct member *m, size_t n_samples)
{
    static float before[MOST][N];
    static bool told[MOST];
    uint64_t t = psc_clock(m->c);
    if (t == 3 && m->rank == 1 && !told[1])
        m->g[17] = NAN;
    memcpy(before[m->rank], m->x, sizeof m->x);
    int rc = by_tensors(m, n_samples);
    if (rc != PSC_EVALUE)
        return rc;
    if (t != 4 || told[m->rank] || memcmp(before[m->rank], m->x, sizeof m->x) != 0)
        return PSC_EDAMAGED;
    told[m->rank] = true;
    return psc_pull(m->c, NULL, m->x);
}

START_TEST(a_pipeline_goes_on_after_a_sum_that_is_not_finite)
{
    struct run *r = ring_of("pipe-sgd", "raw", 2);
    r->step = spoil;
    run_go(r);
    run_assert_same_x(r);
    for (int i = 0; i < N; i++)
        ck_assert(isfinite(r->member[0].x[i]));
}
END_TEST

static bool is_refused(struct member *m, int rc, const char *sentence)
{
    return rc == PSC_EINVAL && strcmp(psc_error(m->c), sentence) == 0;
}

/* The step that everybody else makes, with all mistakes on the way. */
static int with_mistakes(struct member *m, size_t n_samples)
{
    struct psc *c = m->c;
    if (m->rank != 0 || psc_clock(c) != 2)
        return by_tensors(m, n_samples);
    bool fine =
        is_refused(m, psc_ready(c, 0, 1), "psc_ready: call psc_step_begin first") &&
        is_refused(m, psc_step_end(c), "psc_step_end: call psc_step_begin first") &&
        is_refused(
            m, psc_step_begin(c, m->x, m->g, 0),
            "psc_step_begin: n_samples is 0; allowed in a clique are 1 and more: its mean is weighted by "
            "them") &&
        begin(m, n_samples) == PSC_OK &&
        is_refused(m, psc_ready(c, 0, N + 1), "psc_ready: 10001 floats from 0 on; the vector has 10000") &&
        is_refused(m, psc_ready(c, UINT64_MAX, 2),
                   "psc_ready: 2 floats from 18446744073709551615 on; the vector has 10000") &&
        psc_ready(c, N, 0) == PSC_OK && psc_ready(c, 5000, 1000) == PSC_OK &&
        is_refused(m, psc_ready(c, 4000, 1500),
                   "psc_ready: 1500 floats from 4000 on; of these 500 from 5000 on were reported before") &&
        is_refused(m, psc_step(c, m->x, m->g, n_samples),
                   "psc_step: a step has begun; allowed are psc_ready and psc_step_end") &&
        is_refused(m, psc_step_begin(c, m->x, m->g, n_samples),
                   "psc_step_begin: a step has begun; allowed are psc_ready and psc_step_end") &&
        is_refused(m, psc_wait(c, PSC_ALL),
                   "psc_wait: a step has begun; allowed are psc_ready and psc_step_end") &&
        is_refused(m, psc_pull(c, NULL, m->x),
                   "psc_pull: a step has begun; allowed are psc_ready and psc_step_end") &&
        is_refused(m, psc_save(c, "/tmp/psd-test-none", m->x, NULL, 0),
                   "psc_save: a step has begun; allowed are psc_ready and psc_step_end") &&
        psc_ready(c, 0, 4000) == PSC_OK && psc_ready(c, 6000, 4000) == PSC_OK &&
        is_refused(m, psc_step_end(c),
                   "psc_step_end: 1000 floats from 4000 on, of tensor 'embedding', were not reported by "
                   "psc_ready") &&
        psc_ready(c, 4000, 1000) == PSC_OK;
    return fine ? psc_step_end(c) : PSC_EDAMAGED;
}

START_TEST(mistakes_are_named_and_change_nothing)
{
    static float without[N];
    struct run *r = ring_of("d-sync", "raw", 2);
    run_go(r);
    memcpy(without, r->member[0].x, sizeof without);
    r = ring_of("d-sync", "raw", 2);
    r->step = with_mistakes;
    run_go(r);
    run_assert_same_x(r);
    ck_assert_mem_eq(without, r->member[0].x, sizeof without);
}
END_TEST

/* A handle by itself: a report in more parts than tensors, and a step that was begun and not ended. */
START_TEST(reports_in_too_many_parts_are_refused)
{
    struct psc_options opt;
    struct psc_local local;
    struct psc *c;
    static float x[N], g[N];
    psc_local_init(&local, sizeof local, "sgd");
    psc_options_init(&opt, sizeof opt);
    opt.local = &local;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, x));
    assert_ok(c, psc_step_begin(c, x, g, 1));
    for (uint64_t i = 0; i <= RIG_TENSORS; i++)
        assert_ok(c, psc_ready(c, 2 * i, 1));
    ck_assert_int_eq(psc_ready(c, 2 * RIG_TENSORS + 2, 1), PSC_EINVAL);
    ck_assert_str_eq(psc_error(c), "psc_ready: more than 7 separate parts; report whole tensors");
    for (uint64_t i = 0; i <= RIG_TENSORS; i++)
        assert_ok(c, psc_ready(c, 2 * i + 1, 1));
    assert_ok(c, psc_ready(c, 2 * RIG_TENSORS + 2, N - 2 * RIG_TENSORS - 2));
    assert_ok(c, psc_step_end(c));
    ck_assert_uint_eq(psc_clock(c), 1);
    assert_ok(c, psc_step_begin(c, x, g, 1));
    psc_close(c);
}
END_TEST

static void sayplace(void)
{
    snprintf(place, sizeof place, "file:/tmp/psd-test-buckets-%d", (int)getpid());
}

int main(void)
{
    Suite *suite = suite_create("client-buckets");
    TCase *tc = tcase_create("buckets");
    tcase_add_checked_fixture(tc, sayplace, NULL);
    tcase_add_loop_test(tc, bits_depend_neither_on_buckets_nor_on_the_order_of_reports, 0, ROWS(summed));
    tcase_add_loop_test(tc, the_choice_is_the_same_at_all_members_and_no_bit_depends_on_it, 0, ROWS(summed));
    tcase_add_test(tc, members_that_disagree_on_buckets_are_told_so);
    tcase_add_loop_test(tc, nor_where_a_leader_steps, 0, ROWS(led));
    tcase_add_loop_test(tc, buffers_are_the_mean_of_what_the_members_gave, 0, 2);
    tcase_add_test(tc, a_pipeline_goes_on_after_a_sum_that_is_not_finite);
    tcase_add_test(tc, mistakes_are_named_and_change_nothing);
    tcase_add_test(tc, reports_in_too_many_parts_are_refused);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
