/* One suite over every kind of clique: collectives of every type and operation, what is not a number, calls
 * that differ between members and change nothing, deadlines, tests and waits. */
#include <math.h>
#include <stdint.h>

#include "tests/client/cliques/clique_fixture.h"
#include "tests/client/cliques/collective_cases.h"

static void make_all_calls(struct rig_member *m)
{
    static const size_t sizes[] = {0, 5, 3001}; /* many small segments of 8 bytes a value */
    rig_ok(m, m->rc);
    for (size_t i = 0; i < ROWS(sizes); i++) {
        const char *wrong = collective_cases_run(m->q, sizes[i]);
        ck_assert_msg(wrong == NULL, "%s", wrong);
    }
}

START_TEST(every_call_gives_its_result)
{
    static const int members[] = {1, 2, 5};
    for (size_t i = 0; i < ROWS(members); i++)
        rig_run(rig_kind_of(_i), members[i], make_all_calls, NULL);
}
END_TEST

static struct psc_collective_options call(uint32_t kind, uint32_t type, uint32_t operation, size_t n)
{
    struct psc_collective_options o;
    psc_collective_options_init(&o, sizeof o);
    o.kind = kind;
    o.type = type;
    o.operation = operation;
    o.n = n;
    return o;
}

/* Sums whose last bits depend on the order: the same at all members, for every type with rounding. */
static void round_alike(struct rig_member *m)
{
    enum { N = 3001 };
    uint64_t x[N];
    static const uint32_t types[] = {PSC_FLOAT32, PSC_FLOAT64, PSC_FLOAT16, PSC_BFLOAT16};
    static const size_t bytes[] = {4, 8, 2, 2};
    struct dice dice = {(uint64_t)m->index * 31 + 7};
    rig_ok(m, m->rc);
    for (size_t t = 0; t < ROWS(types); t++)
        for (uint32_t operation = PSC_SUM; operation <= PSC_MAX; operation++) {
            struct psc_collective_options o = call(PSC_ALLREDUCE, types[t], operation, N);
            o.out = x;
            for (size_t i = 0; i < N; i++) {
                float v = dice_float(&dice);
                uint32_t bits;
                memcpy(&bits, &v, sizeof bits);
                if (types[t] == PSC_FLOAT64)
                    ((double *)x)[i] = (double)v / 3;
                else if (types[t] == PSC_FLOAT32)
                    ((float *)x)[i] = v;
                else
                    ((uint16_t *)x)[i] = (uint16_t)(bits >> 17 << (i % 2)); /* any half, also not a number */
            }
            rig_ok(m, psc_collective_run(m->q, &o));
            const char *wrong = collective_same_bytes(m->q, x, N * bytes[t]);
            ck_assert_msg(wrong == NULL, "type %u, operation %u: %s", types[t], operation, wrong);
        }
}

START_TEST(members_end_with_the_same_bits)
{
    rig_run(rig_kind_of(_i), 4, round_alike, NULL);
}
END_TEST

/* One member's NaN is in every result; a minimum knows the sign of zero. */
static void meet_nan(struct rig_member *m)
{
    rig_ok(m, m->rc);
    for (uint32_t operation = PSC_SUM; operation <= PSC_MAX; operation++) {
        double x[3] = {m->index == 1 ? NAN : 1, m->index == 1 ? -0.0 : 0.0, m->index};
        float y[3] = {m->index == 1 ? NAN : 1, m->index == 1 ? -0.0f : 0.0f, (float)m->index};
        struct psc_collective_options o = call(PSC_ALLREDUCE, PSC_FLOAT64, operation, 3);
        o.out = x;
        rig_ok(m, psc_collective_run(m->q, &o));
        o.type = PSC_FLOAT32;
        o.out = y;
        rig_ok(m, psc_collective_run(m->q, &o));
        ck_assert(isnan(x[0]) && isnan(y[0]));
        if (operation < PSC_MIN)
            continue;
        ck_assert_int_eq(signbit(x[1]) != 0, operation == PSC_MIN);
        ck_assert_int_eq(signbit(y[1]) != 0, operation == PSC_MIN);
        ck_assert_double_eq(x[2], operation == PSC_MIN ? 0 : m->rig->members - 1);
    }
}

START_TEST(what_is_not_a_number_is_not_hidden)
{
    rig_run(rig_kind_of(_i), 3, meet_nan, NULL);
}
END_TEST

/* A sum of integers wraps; a half beyond the range is the largest one. */
static void overflow(struct rig_member *m)
{
    int32_t x[2] = {INT32_MAX, INT32_MIN};
    int64_t y[2] = {INT64_MAX, m->index};
    uint16_t h[1] = {0x7bff};
    struct psc_collective_options o = call(PSC_ALLREDUCE, PSC_INT32, PSC_SUM, 2);
    rig_ok(m, m->rc);
    o.out = x;
    rig_ok(m, psc_collective_run(m->q, &o));
    ck_assert_int_eq(x[0], -2);
    ck_assert_int_eq(x[1], 0);
    o.type = PSC_INT64;
    o.out = y;
    rig_ok(m, psc_collective_run(m->q, &o));
    ck_assert_int_eq(y[0], -2);
    o.type = PSC_FLOAT16;
    o.n = 1;
    o.out = h;
    rig_ok(m, psc_collective_run(m->q, &o));
    ck_assert_int_eq(h[0], 0x7bff);
}

START_TEST(overflow_is_as_promised)
{
    rig_run(rig_kind_of(_i), 2, overflow, NULL);
}
END_TEST

/* Member 1's call differs in one thing. Nothing is written, and all know who called what. */
static const struct {
    const char *what;
    struct psc_collective_options one, other;
    const char *says[2];
} differences[] = {
    {"type",
     {.type = PSC_FLOAT64, .n = 40},
     {.type = PSC_INT64, .n = 40},
     {"allreduce of 40 float64s", "allreduce of 40 int64s"}},
    {"type of equal size",
     {.type = PSC_FLOAT16, .n = 40},
     {.type = PSC_BFLOAT16, .n = 40},
     {"allreduce of 40 float16s", "allreduce of 40 bfloat16s"}},
    {"count",
     {.type = PSC_INT32, .n = 40},
     {.type = PSC_INT32, .n = 39},
     {"allreduce of 40 int32s", "allreduce of 39 int32s"}},
    {"a long and a short one",
     {.type = PSC_INT32, .n = 9000},
     {.type = PSC_INT32, .n = 1},
     {"allreduce of 9000 int32s", "allreduce of 1 int32s"}},
    {"operation",
     {.n = 40, .operation = PSC_MIN},
     {.n = 40, .operation = PSC_MAX},
     {"allreduce (min) of 40 floats", "allreduce (max) of 40 floats"}},
    {"sum and mean",
     {.n = 40},
     {.n = 40, .operation = PSC_MEAN},
     {"allreduce of 40 floats", "allreduce (mean) of 40 floats"}},
    {"root",
     {.n = 40, .kind = PSC_BROADCAST, .root = 1},
     {.n = 40, .kind = PSC_BROADCAST, .root = 2},
     {"broadcast of 40 floats", "broadcast of 40 floats"}},
    {"kind",
     {.n = 40, .kind = PSC_ALLGATHER},
     {.n = 40, .kind = PSC_REDUCE_SCATTER},
     {"allgather of 40 floats", "reduce-scatter of 40 floats"}},
};

/* The others may be so far that this member's psc_ring_open learns of it. */
static int run_or_open(struct rig_member *m, const struct psc_collective_options *o)
{
    return m->rc == PSC_OK ? psc_collective_run(m->q, o) : m->rc;
}

static void call_differently(struct rig_member *m)
{
    enum { ROOM = 80000 };
    int row = *(const int *)m->arg;
    const struct psc_collective_options *own =
        m->index == 1 ? &differences[row].other : &differences[row].one;
    unsigned char *in = malloc(ROOM), *out = malloc(ROOM);
    struct psc_collective_options o = call(own->kind, own->type, own->operation, own->n);
    o.root = own->root;
    memset(in, m->index + 1, ROOM);
    memset(out, 77, ROOM);
    o.in = in;
    o.out = out;
    ck_assert_msg(run_or_open(m, &o) == PSC_ECLIQUE, "%s", differences[row].what);
    for (int i = 0; i < 2; i++)
        assert_says(psc_clique_error(m->q), differences[row].says[i]);
    assert_says(psc_clique_error(m->q), "members make different calls");
    assert_says(psc_clique_error(m->q), "rank 1 ");
    for (size_t i = 0; i < ROOM; i++)
        assert_quick(in[i] == m->index + 1 && out[i] == 77);
    ck_assert_int_eq(psc_barrier(m->q), PSC_ECLIQUE); /* and it stays broken */
    free(in);
    free(out);
}

START_TEST(calls_that_differ_change_nothing)
{
    for (int row = 0; row < (int)ROWS(differences); row++)
        rig_run(rig_kind_of(_i), 3, call_differently, &row);
}
END_TEST

/* In place, too: what a member would have added stays out. */
static void differ_in_place(struct rig_member *m)
{
    double x[100];
    struct psc_collective_options o =
        call(PSC_ALLREDUCE, PSC_FLOAT64, m->index == 3 ? PSC_MIN : PSC_SUM, 100);
    for (int i = 0; i < 100; i++)
        x[i] = i + m->index;
    o.out = x;
    ck_assert_int_eq(run_or_open(m, &o), PSC_ECLIQUE);
    for (int i = 0; i < 100; i++)
        ck_assert_double_eq(x[i], i + m->index);
}

START_TEST(values_in_place_are_untouched_by_a_difference)
{
    rig_run(rig_kind_of(_i), 4, differ_in_place, NULL);
}
END_TEST

/* Member 0 comes only when the others have seen that their call is in progress. */
static void test_and_wait(struct rig_member *m)
{
    _Atomic int *seen = m->arg;
    int32_t x = m->index, ended = -1;
    uint64_t ticket = 0;
    struct psc_collective_options o = call(PSC_ALLREDUCE, PSC_INT32, PSC_SUM, 1);
    int p = m->rig->members;
    rig_ok(m, m->rc);
    o.out = &x;
    while (m->index == 0 && *seen < p - 1)
        unit_nap_ms(1);
    rig_ok(m, psc_collective_start(m->q, &o, &ticket));
    if (m->index > 0) {
        rig_ok(m, psc_clique_test(m->q, ticket, &ended));
        ck_assert_int_eq(ended, 0);
        rig_ok(m, psc_clique_wait_for(m->q, ticket, 5, &ended));
        ck_assert_int_eq(ended, 0);
        rig_ok(m, psc_clique_test(m->q, 0, &ended));
        ck_assert_int_eq(ended, 0);
        ++*seen;
    }
    for (ended = 0; ended == 0;)
        rig_ok(m, psc_clique_wait_for(m->q, ticket, 1000, &ended));
    ck_assert_int_eq(x, p * (p - 1) / 2);
    rig_ok(m, psc_clique_test(m->q, ticket, &ended));
    ck_assert_int_eq(ended, 1);
    rig_ok(m, psc_clique_wait(m->q, ticket));
    ck_assert_int_eq(psc_clique_test(m->q, ticket + 1, &ended), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "psc_clique_test: ticket");
    ck_assert_int_eq(psc_clique_wait_for(m->q, ticket + 1, 0, &ended), PSC_EINVAL);
}

START_TEST(a_started_call_is_tested_and_waited_for)
{
    for (int p = 2; p <= 3; p++) {
        _Atomic int seen = 0;
        rig_run(rig_kind_of(_i), p, test_and_wait, &seen);
    }
}
END_TEST

/* Member 1 makes its call after all others have failed. */
static void miss_a_deadline(struct rig_member *m)
{
    _Atomic int *failed = m->arg;
    float x[4] = {1, 2, 3, 4};
    struct psc_collective_options o = call(PSC_ALLREDUCE, PSC_FLOAT32, PSC_SUM, 4);
    o.out = x;
    o.timeout_ms = 150;
    while (m->index == 1 && *failed < m->rig->members - 1)
        unit_nap_ms(1);
    ck_assert_int_eq(run_or_open(m, &o), PSC_ECLIQUE);
    for (int i = 0; i < 4; i++)
        ck_assert_float_eq(x[i], (float)(i + 1));
    if (m->index == 1)
        return;
    if (m->rig->kind->listen != NULL)
        assert_says(psc_clique_error(m->q), "did not end within its timeout_ms");
    else
        assert_says(psc_clique_error(m->q), "rank 1 did not join the call within ");
    ++*failed;
}

START_TEST(a_call_has_a_deadline_of_its_own)
{
    _Atomic int failed = 0;
    rig_run(rig_kind_of(_i), 3, miss_a_deadline, &failed);
}
END_TEST

/* Arguments that are refused, and after which the clique works on. */
static const struct {
    struct psc_collective_options o;
    const char *says;
    int overlap; /* out begins so many bytes behind in */
} wrong_ones[] = {
    {{.kind = 6}, "kind is 6; allowed are 0 to 5", 0},
    {{.type = 7}, "type is 7; allowed are 0 to 6", 0},
    {{.operation = 4}, "operation is 4; allowed are 0 to 3", 0},
    {{.memory = 2}, "memory is 2; allowed are 0 to 1", 0},
    {{.timeout_ms = (1u << 30) + 1}, "timeout_ms is 1073741825", 0},
    {{.kind = PSC_BROADCAST, .root = 9}, "root is 9", 0},
    {{.kind = PSC_REDUCE, .root = -1}, "root is -1", 0},
    {{.type = PSC_BYTES}, "type bytes has no operations", 0},
    {{.type = PSC_FLOAT64, .codec = "fp16"},
     "codecs are for sums and means of float32, and this is a sum of float64",
     0},
    {{.operation = PSC_MAX, .codec = "int8"}, "this is a max of float32", 0},
    {{.kind = PSC_ALLGATHER, .codec = "int8"}, "this is a copy of float32", 0},
    {{.codec = "mp3"}, "codec 'mp3' is not known", 0},
    {{.n = 8}, "`in` and `out` overlap", 4},
    {{.n = UINT64_MAX / 4}, "more than an array can hold", 0},
};

static void get_calls_wrong(struct rig_member *m)
{
    unsigned char room[512] = {0};
    struct psc_collective_options o;
    rig_ok(m, m->rc);
    for (size_t i = 0; i < ROWS(wrong_ones); i++) {
        o = wrong_ones[i].o;
        o.size = sizeof o;
        o.in = wrong_ones[i].overlap > 0 ? room : NULL;
        o.out = room + wrong_ones[i].overlap;
        ck_assert_msg(psc_collective_run(m->q, &o) == PSC_EINVAL, "%s", wrong_ones[i].says);
        assert_says(psc_clique_error(m->q), wrong_ones[i].says);
        ck_assert_int_eq(psc_collective_start(m->q, &o, NULL), PSC_EINVAL);
    }
    o = call(PSC_ALLREDUCE, PSC_FLOAT32, PSC_SUM, 4);
    ck_assert_int_eq(psc_collective_run(m->q, &o), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "no array");
    o.out = room;
    o.memory = PSC_MEMORY_CUDA;
    ck_assert_int_eq(psc_collective_run(m->q, &o), PSC_EUNSUPPORTED);
    assert_says(psc_clique_error(m->q), "allowed is one over nccl");
    o.size = 0;
    ck_assert_int_eq(psc_collective_run(m->q, &o), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "psc_collective_options_init first");
    ck_assert_int_eq(psc_collective_run(m->q, NULL), PSC_EINVAL);
    ck_assert_int_eq(psc_clique_test(m->q, 1, NULL), PSC_EINVAL);
    ck_assert_int_eq(psc_clique_wait_for(m->q, 1, 10, NULL), PSC_EINVAL);
    ck_assert_int_eq(psc_clique_shrink(m->q, 0, 1000, NULL), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "`out` is missing");
    rig_ok(m, psc_barrier(m->q));
}

START_TEST(wrong_calls_are_named_and_break_nothing)
{
    for (int p = 1; p <= 2; p++)
        rig_run(rig_kind_of(_i), p, get_calls_wrong, NULL);
}
END_TEST

/* Codecs travel in every sum: within the codec's error of the sum, and a mean is the sum's share. */
static void sum_in_codecs(struct rig_member *m)
{
    enum { N = 4099 };
    static const char *const codecs[] = {"fp16", "bf16", "int8"};
    int p = m->rig->members;
    size_t all = (size_t)(N * p);
    float *in = malloc(all * sizeof *in), *sum = malloc(all * sizeof *sum), out[N], mean[N];
    rig_ok(m, m->rc);
    for (size_t c = 0; c < ROWS(codecs); c++) {
        struct dice dice = {(uint64_t)m->index * 131 + c};
        struct psc_collective_options o = call(PSC_ALLREDUCE, PSC_FLOAT32, PSC_SUM, all);
        for (size_t i = 0; i < all; i++)
            in[i] = dice_float(&dice);
        o.in = in;
        o.out = sum;
        rig_ok(m, psc_collective_run(m->q, &o)); /* raw */
        o.kind = PSC_REDUCE_SCATTER;
        o.n = N;
        o.codec = codecs[c];
        o.out = out;
        rig_ok(m, psc_collective_run(m->q, &o));
        o.operation = PSC_MEAN;
        o.out = mean;
        rig_ok(m, psc_collective_run(m->q, &o));
        for (size_t i = 0; i < N; i++) {
            float want = sum[(size_t)(m->index * N) + i];
            /* p encodings of sums below 2 p, each within 1/250 of the largest in its block */
            assert_quick(fabsf(out[i] - want) <= 2 * (float)(p * p) / 250 + 1e-5f * (float)p);
            assert_quick(mean[i] == out[i] / (float)p);
        }
    }
    free(in);
    free(sum);
}

START_TEST(parts_of_sums_travel_in_codecs)
{
    rig_run(rig_kind_of(_i), 3, sum_in_codecs, NULL);
}
END_TEST

int main(void)
{
    static const TTest *const *tests[] = {&every_call_gives_its_result,
                                          &members_end_with_the_same_bits,
                                          &what_is_not_a_number_is_not_hidden,
                                          &overflow_is_as_promised,
                                          &calls_that_differ_change_nothing,
                                          &values_in_place_are_untouched_by_a_difference,
                                          &a_started_call_is_tested_and_waited_for,
                                          &a_call_has_a_deadline_of_its_own,
                                          &wrong_calls_are_named_and_break_nothing,
                                          &parts_of_sums_travel_in_codecs};
    Suite *suite = suite_create("collectives");
    for (size_t i = 0; i < ROWS(tests); i++) {
        TCase *tcase = tcase_create((*tests[i])->name);
        tcase_add_loop_test(tcase, *tests[i], 0, RIG_N_KINDS);
        suite_add_tcase(suite, tcase);
    }
    return unit_run(suite);
}
