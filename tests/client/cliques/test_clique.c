/* One suite over every kind of clique: sums against double, the same bits at every member, every size, every
 * codec, what was started, and what members get wrong. */
#include <math.h>

#include "proto/codecs/codec.h"
#include "tests/client/cliques/clique_fixture.h"

static const size_t sizes[] = {0, 1, 2, 3, 4, 5, 6, 1023, 1024, 1025, 4096, 4097, 100000};

static float value_of(int rank, uint64_t salt, size_t i)
{
    struct dice d = {(uint64_t)rank * 1000003 + salt * 7919 + i};
    return dice_float(&d);
}

static float *make(int rank, uint64_t salt, size_t n)
{
    float *x = malloc(n * sizeof *x + 4);
    for (size_t i = 0; i < n; i++)
        x[i] = value_of(rank, salt, i);
    return x;
}

/* Half a unit in the last place of what a codec keeps, as a part of the largest value in a block of 1024. */
static double step_of(const char *codec)
{
    static const struct {
        const char *name;
        double step;
    } steps[] = {{"raw", 0}, {"fp16", 0x1p-11}, {"bf16", 0x1p-9}, {"trunc16", 0x1p-7}, {"int8", 1.0 / 254}};
    for (size_t i = 0; i < ROWS(steps); i++)
        if (strcmp(steps[i].name, codec) == 0)
            return steps[i].step;
    ck_abort_msg("codec %s is new: say here how exact it is", codec);
    return 0;
}

/* Every sum passes p encodings at most, each within `step` of the largest partial sum (values are below 2 in
 * size, so that is 2 p), and p - 1 float additions. */
static double bound_of(int members, const char *codec)
{
    double p = members, largest = 2 * p;
    return p * largest * (step_of(codec) * (1 + 2 * p * step_of(codec)) + 0x1p-24);
}

static void check_sum(const float *x, size_t n, int members, uint64_t salt, const char *codec)
{
    double bound = members == 1 ? 0 : bound_of(members, codec);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int r = 0; r < members; r++)
            sum += (double)value_of(r, salt, i);
        if (!(fabs((double)x[i] - sum) <= bound))
            ck_abort_msg("%zu values, %d members, %s: value %zu is %.9g, the sum %.9g", n, members, codec, i,
                         (double)x[i], sum);
    }
}

/* Fails where rank 0 has other bits. */
static void check_same_bits(struct rig_member *m, const float *x, size_t n)
{
    float *first = malloc(n * sizeof *x + 4);
    memcpy(first, x, n * sizeof *x);
    rig_ok(m, psc_broadcast(m->q, first, n * sizeof *x, 0));
    ck_assert_msg(memcmp(first, x, n * sizeof *x) == 0, "rank %d ends with other bits than rank 0", m->index);
    free(first);
}

static void sum_all(struct rig_member *m)
{
    size_t n_codecs;
    const struct ps_codec *const *codecs = ps_codec_value_rows(&n_codecs);
    rig_ok(m, m->rc);
    ck_assert_int_eq(psc_clique_rank(m->q), m->index);
    ck_assert_int_eq(psc_clique_size(m->q), m->rig->members);
    for (size_t c = 0; c < n_codecs; c++)
        for (size_t s = 0; s < ROWS(sizes); s++) {
            float *x = make(m->index, s, sizes[s]);
            rig_ok(m, psc_allreduce(m->q, x, sizes[s], codecs[c]->name));
            check_sum(x, sizes[s], m->rig->members, s, codecs[c]->name);
            check_same_bits(m, x, sizes[s]);
            free(x);
        }
}

START_TEST(every_size_is_summed)
{
    for (int p = 1; p <= 5; p++)
        rig_run(rig_kind_of(_i), p, sum_all, NULL);
}
END_TEST

static void reduce_to_each(struct rig_member *m)
{
    size_t n_codecs;
    const struct ps_codec *const *codecs = ps_codec_value_rows(&n_codecs);
    int p = m->rig->members;
    rig_ok(m, m->rc);
    for (int root = 0; root < p; root++)
        for (size_t s = 0; s < ROWS(sizes); s++) {
            const char *codec = codecs[s % n_codecs]->name;
            float *x = make(m->index, s, sizes[s]);
            rig_ok(m, psc_reduce(m->q, x, sizes[s], root, codec));
            if (m->index == root)
                check_sum(x, sizes[s], p, s, codec);
            free(x);
        }
}

START_TEST(reduce_brings_the_sum_to_its_root)
{
    for (int p = 1; p <= 4; p++)
        rig_run(rig_kind_of(_i), p, reduce_to_each, NULL);
}
END_TEST

static void broadcast_from_each(struct rig_member *m)
{
    static const size_t lengths[] = {0, 1, 7, 4095, 4096, 4097, 300001};
    rig_ok(m, m->rc);
    for (int root = 0; root < m->rig->members; root++)
        for (size_t s = 0; s < ROWS(lengths); s++) {
            unsigned char *bytes = malloc(lengths[s] + 1);
            for (size_t i = 0; i < lengths[s]; i++)
                bytes[i] = (unsigned char)(m->index == root ? i * 7 + s : 0);
            rig_ok(m, psc_broadcast(m->q, bytes, lengths[s], root));
            for (size_t i = 0; i < lengths[s]; i++)
                assert_quick(bytes[i] == (unsigned char)(i * 7 + s));
            free(bytes);
        }
}

START_TEST(broadcast_brings_the_roots_bytes)
{
    for (int p = 1; p <= 5; p++)
        rig_run(rig_kind_of(_i), p, broadcast_from_each, NULL);
}
END_TEST

/* Nobody leaves barrier k before all have come to it. */
struct gate {
    _Atomic int come;
};

static void pass_gates(struct rig_member *m)
{
    struct gate *g = m->arg;
    rig_ok(m, m->rc);
    for (int k = 1; k <= 50; k++) {
        if (k % 10 == m->index)
            unit_nap_ms(1);
        g->come++;
        rig_ok(m, psc_barrier(m->q));
        ck_assert_int_ge(g->come, k * m->rig->members);
        rig_ok(m, psc_barrier(m->q));
    }
}

START_TEST(a_barrier_holds_until_all_have_come)
{
    for (int p = 1; p <= 4; p++) {
        struct gate g = {0};
        rig_run(rig_kind_of(_i), p, pass_gates, &g);
    }
}
END_TEST

/* Everything at once, in the order started: x -> sum, its broadcast, sums of sums. */
static void start_in_order(struct rig_member *m)
{
    enum { N = 5000, CALLS = 3 * PSC_CLIQUE_MAX_STARTED };
    float *x = malloc(N * sizeof *x), *y = calloc(CALLS * 3, sizeof *y), sum = 0;
    uint64_t ticket = 0, first = 0;
    int p = m->rig->members;
    rig_ok(m, m->rc);
    for (int i = 0; i < N; i++)
        x[i] = (float)(m->index + 1);
    for (int r = 0; r < p; r++)
        sum += (float)(r + 1);
    rig_ok(m, psc_allreduce_start(m->q, x, N, NULL, &first));
    for (int k = 0; k < CALLS; k++) {
        y[3 * k] = (float)(k + m->index);
        rig_ok(m, psc_allreduce_start(m->q, y + 3 * k, 3, NULL, &ticket));
        ck_assert_uint_eq(ticket, first + (uint64_t)k + 1);
    }
    rig_ok(m, psc_broadcast_start(m->q, x, N * sizeof *x, p - 1, NULL)); /* of the sum, not of what was */
    rig_ok(m, psc_clique_wait(m->q, first));
    ck_assert_float_eq(x[0], sum);
    rig_ok(m, psc_allreduce(m->q, x, N, NULL)); /* behind all of them */
    rig_ok(m, psc_clique_wait(m->q, 0));
    for (int i = 0; i < N; i++)
        assert_quick(x[i] == sum * (float)p);
    for (int k = 0; k < CALLS; k++)
        assert_quick(y[3 * k] == (float)(k * p + p * (p - 1) / 2) && y[3 * k + 1] == 0);
    ck_assert_int_eq(psc_clique_wait(m->q, ticket + 100), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "never issued");
    free(x);
    free(y);
}

START_TEST(started_calls_take_effect_in_their_order)
{
    for (int p = 1; p <= 4; p++)
        rig_run(rig_kind_of(_i), p, start_in_order, NULL);
}
END_TEST

/* NaN and infinities of any member are in the sum, whatever the codec. */
static void hide_nothing(struct rig_member *m)
{
    enum { N = 4000 };
    size_t n_codecs;
    const struct ps_codec *const *codecs = ps_codec_value_rows(&n_codecs);
    rig_ok(m, m->rc);
    for (size_t c = 0; c < n_codecs; c++) {
        float *x = make(m->index, 1, N);
        if (m->index == 1) {
            x[5] = NAN;
            x[3000] = INFINITY;
        }
        rig_ok(m, psc_allreduce(m->q, x, N, codecs[c]->name));
        ck_assert_msg(!isfinite(x[5]) && !isfinite(x[3000]), "codec %s hides what is not finite",
                      codecs[c]->name);
        check_same_bits(m, x, N);
        free(x);
    }
}

START_TEST(what_is_not_finite_is_not_hidden)
{
    for (int p = 2; p <= 4; p++)
        rig_run(rig_kind_of(_i), p, hide_nothing, NULL);
}
END_TEST

/* The same bits from run to run. */
static void sum_for_digest(struct rig_member *m)
{
    float *x = make(m->index, 3, 50000);
    float *out = m->arg;
    rig_ok(m, m->rc);
    rig_ok(m, psc_allreduce(m->q, x, 50000, "raw"));
    if (m->index == 2)
        memcpy(out, x, 50000 * sizeof *x);
    free(x);
}

/* The sum as a clique of this kind has it under an algorithm. */
static float *digest_of(const struct rig_kind *kind, const char *algorithm)
{
    struct rig_kind k = *kind;
    float *x = malloc(50000 * sizeof *x);
    k.algorithm = algorithm;
    rig_run(&k, 4, sum_for_digest, x);
    return x;
}

/* `auto` chooses by what it measures: each run has the bits of the ring or those of the tree. */
START_TEST(every_run_has_the_same_bits)
{
    const struct rig_kind *kind = rig_kind_of(_i);
    bool chooses = kind->algorithm != NULL && strcmp(kind->algorithm, "auto") == 0;
    float *run = digest_of(kind, kind->algorithm),
          *ring = digest_of(kind, chooses ? "ring" : kind->algorithm);
    float *tree = chooses ? digest_of(kind, "tree") : NULL;
    bool as_ring = memcmp(run, ring, 50000 * sizeof *run) == 0;
    ck_assert(as_ring || (chooses && memcmp(run, tree, 50000 * sizeof *run) == 0));
    free(run);
    free(ring);
    free(tree);
}
END_TEST

static void get_arguments_wrong(struct rig_member *m)
{
    float x[4] = {0};
    uint64_t t = 7;
    rig_ok(m, m->rc);
    ck_assert_int_eq(psc_allreduce(m->q, x, 4, "mp3"), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "codec 'mp3' is not known; allowed are raw");
    ck_assert_int_eq(psc_allreduce(m->q, x, 4, "int4"), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "codec 'int4' needs error feedback, which sums do not have");
    ck_assert_int_eq(psc_reduce(m->q, x, 4, 0, "topk:0.01"), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "codec 'topk:0.01' needs error feedback");
    ck_assert_int_eq(psc_allreduce_start(m->q, NULL, 4, NULL, &t), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "no array");
    ck_assert_int_eq(psc_reduce(m->q, x, 4, m->rig->members, NULL), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "root is");
    ck_assert_int_eq(psc_broadcast(m->q, x, 4, -1), PSC_EINVAL);
    ck_assert_int_eq(psc_clique_wait(m->q, 1), PSC_EINVAL);
    ck_assert_uint_eq(t, 7);
    rig_ok(m, psc_clique_wait(m->q, 0));
    rig_ok(m, psc_allreduce(m->q, x, 4, NULL)); /* none of that broke the clique */
}

START_TEST(wrong_arguments_are_named_and_break_nothing)
{
    for (int p = 1; p <= 2; p++)
        rig_run(rig_kind_of(_i), p, get_arguments_wrong, NULL);
}
END_TEST

int main(void)
{
    static const TTest *const *tests[] = {&every_size_is_summed,
                                          &reduce_brings_the_sum_to_its_root,
                                          &broadcast_brings_the_roots_bytes,
                                          &a_barrier_holds_until_all_have_come,
                                          &started_calls_take_effect_in_their_order,
                                          &what_is_not_finite_is_not_hidden,
                                          &every_run_has_the_same_bits,
                                          &wrong_arguments_are_named_and_break_nothing};
    Suite *suite = suite_create("clique");
    for (size_t i = 0; i < ROWS(tests); i++) {
        TCase *tcase = tcase_create((*tests[i])->name);
        tcase_add_loop_test(tcase, *tests[i], 0, RIG_N_KINDS);
        suite_add_tcase(suite, tcase);
    }
    return unit_run(suite);
}
