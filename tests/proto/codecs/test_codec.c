/* One suite for every row of the codecs' table. */
#include "proto/codecs/codec.h"

#include <math.h>
#include <stdlib.h>

#include "proto/codecs/kernels.h"
#include "tests/support/unit.h"

enum { MAX_ID = 256, MOST = 5000 };

static const uint32_t lengths[] = {0, 1, 2, 7, 8, 9, 1023, 1024, 1025, 1026, 2049, MOST};

/* A row is found by what frames carry; ids without a row are passed over. */
static const struct ps_codec *row(int id)
{
    return ps_codec_find((uint8_t)id);
}

START_TEST(row_is_complete_and_itself)
{
    const struct ps_codec *c = row(_i);
    if (c == NULL)
        return;
    ck_assert_uint_eq(c->id, (uint8_t)_i);
    ck_assert(c->name != NULL && c->name[0] != 0);
    ck_assert_ptr_nonnull((void *)(uintptr_t)c->payload_bytes);
    ck_assert_ptr_nonnull((void *)(uintptr_t)c->encode);
    ck_assert_ptr_nonnull((void *)(uintptr_t)c->decode);
    ck_assert_uint_le(c->fraction_ppm, 1000000);
    for (int other = 0; other < MAX_ID; other++)
        if (row(other) != NULL && other != _i)
            ck_assert_str_ne(row(other)->name, c->name);
}
END_TEST

START_TEST(payload_grows_with_the_chunk)
{
    const struct ps_codec *c = row(_i);
    if (c == NULL)
        return;
    ck_assert_uint_ge(c->payload_bytes(c, 1), 1);
    for (uint32_t n = 1; n < 5000; n++)
        assert_quick(c->payload_bytes(c, n) <= c->payload_bytes(c, n + 1));
    for (uint32_t n = 1; n <= (1u << 20); n *= 2)
        ck_assert_uint_le(c->payload_bytes(c, n), n * sizeof(float)); /* what messages have room for */
    for (uint32_t n = 1; n < 5000; n++)
        assert_quick(c->payload_bytes(c, n) <= n * sizeof(float));
    ck_assert_uint_eq(c->payload_bytes(c, 0), 0);
    if (c->in_place)
        ck_assert_uint_eq(c->payload_bytes(c, UINT32_MAX), (size_t)UINT32_MAX * sizeof(float));
}
END_TEST

/* Decoding what was encoded stays in its bounds, and gives what encoding that gives: the loss is paid once.
 */
START_TEST(encoding_again_changes_nothing)
{
    const struct ps_codec *c = row(_i);
    struct dice dice = {7};
    if (c == NULL)
        return;
    for (uint32_t n = 1; n <= 300; n++) {
        size_t len = c->payload_bytes(c, n);
        float *x = malloc(n * sizeof *x), *back = malloc(n * sizeof *back),
              *again = malloc(n * sizeof *again);
        unsigned char *payload = malloc(len);
        for (uint32_t i = 0; i < n; i++)
            x[i] = dice_float(&dice);
        c->encode(c, payload, x, n);
        c->decode(c, back, payload, n);
        c->encode(c, payload, back, n);
        c->decode(c, again, payload, n);
        ck_assert_mem_eq(back, again, n * sizeof *x);
        free(x);
        free(back);
        free(again);
        free(payload);
    }
}
END_TEST

/* A payload of n floats with nothing before or behind it, at an odd address: what is read or written beyond
 * is found by the address sanitizer, and here by the guards. */
struct parcel {
    unsigned char *room, *payload;
    size_t len;
};

static struct parcel parcel_of(const struct ps_codec *c, size_t n)
{
    struct parcel p = {.len = c->payload_bytes(c, n)};
    p.room = malloc(p.len + 2);
    p.payload = p.room + 1;
    p.room[0] = p.room[p.len + 1] = 0xa5;
    return p;
}

static void parcel_end(const struct parcel *p)
{
    assert_quick(p->room[0] == 0xa5 && p->room[p->len + 1] == 0xa5);
    free(p->room);
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static float any_bits(struct dice *dice)
{
    uint32_t bits = (uint32_t)dice_bits(dice);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Kinds of vectors: over some binades; near one value; every bit pattern that is finite; the edges. */
enum { KINDS = 4 };
static float sample(struct dice *dice, int kind)
{
    static const float edges[] = {0.0f,           -0.0f,           65504.0f,     65519.9f,    65520.0f,
                                  -1e30f,         0x1.fffffep127f, -0x1.fep127f, 0x1.ffp127f, 0x1p-14f,
                                  0x1.ffcp-15f,   0x1p-24f,        -0x1p-25f,    0x1.8p-25f,  0x1p-126f,
                                  0x1.fffep-127f, 0x1p-149f,       0x1.004p0f,   0x1.00cp0f,  0x1.01p0f,
                                  0x1.03p0f,      -0x1p-133f,      0x1p-100f,    0x1.8p-134f, 1.0f};
    float v;
    switch (kind) {
    case 0:
        return dice_float(dice);
    case 1:
        return 1.0f + dice_float(dice) * 0x1p-8f;
    case 2:
        do
            v = any_bits(dice);
        while (!isfinite(v));
        return v;
    default:
        return edges[dice_below(dice, ROWS(edges))];
    }
}

static double bound(const struct ps_codec *c, const float *x, size_t n, size_t i)
{
    const struct ps_codec_error *e = &c->error;
    size_t first = i - i % e->block, end = n - first < e->block ? n : first + e->block;
    double largest = 0;
    for (size_t k = first; k < end; k++)
        largest = fmax(largest, fabs((double)x[k]));
    return fmax(e->relative * largest, e->absolute);
}

START_TEST(error_stays_within_its_bound)
{
    const struct ps_codec *c = row(_i);
    struct dice dice = {11};
    if (c == NULL)
        return;
    for (size_t k = 0; k < ROWS(lengths) * KINDS; k++) {
        size_t n = lengths[k / KINDS];
        float *x = malloc(n * sizeof *x + 1), *y = malloc(n * sizeof *y + 1);
        struct parcel p = parcel_of(c, n);
        for (size_t i = 0; i < n; i++)
            x[i] = sample(&dice, (int)(k % KINDS));
        c->encode(c, p.payload, x, n);
        c->decode(c, y, p.payload, n);
        for (size_t i = 0; i < n; i++) {
            assert_quick(isfinite(y[i]));
            if (fabsf(x[i]) > c->error.largest)
                assert_quick(same(y[i], copysignf(c->error.largest, x[i])));
            else if (fabs((double)y[i] - (double)x[i]) > bound(c, x, n, i))
                ck_abort_msg("%s of %a, %zu of %zu, is %a", c->name, (double)x[i], i, n, (double)y[i]);
        }
        parcel_end(&p);
        free(x);
        free(y);
    }
}
END_TEST

/* x and what the codec must make of it, rounding, saturating and truncating. */
START_TEST(values_are_rounded_as_they_should)
{
    static const struct {
        const char *codec;
        float x, y;
    } rows[] = {
        {"fp16", 0x1.002p0f, 1.0f},
        {"fp16", 0x1.006p0f, 0x1.008p0f},
        {"fp16", 65519.9f, 65504.0f},
        {"fp16", 1e9f, 65504.0f},
        {"fp16", -70000.0f, -65504.0f},
        {"fp16", 0x1p-25f, 0.0f},
        {"fp16", 0x1.8p-25f, 0x1p-24f},
        {"fp16", 0x1.8p-24f, 0x1p-23f},
        {"fp16", -0x1p-30f, -0.0f},
        {"fp16", 0x1.ffep-15f, 0x1p-14f},
        {"bf16", 0x1.01p0f, 1.0f},
        {"bf16", 0x1.03p0f, 0x1.04p0f},
        {"bf16", 0x1.010002p0f, 0x1.02p0f},
        {"bf16", 0x1.fffffep127f, 0x1.fep127f},
        {"bf16", -0x1.ffp127f, -0x1.fep127f},
        {"trunc16", 0x1.01fffep0f, 1.0f},
        {"trunc16", -0x1.03fffep0f, -0x1.02p0f},
        {"trunc16", 0x1.fffffep127f, 0x1.fep127f},
        {"int8", 0.1f, 0.1f}, /* a block of one value is itself */
    };
    const struct ps_codec *c = ps_codec_named(rows[_i].codec);
    unsigned char payload[4];
    float y;
    ck_assert_ptr_nonnull(c);
    c->encode(c, payload, &rows[_i].x, 1);
    c->decode(c, &y, payload, 1);
    ck_assert_msg(same(y, rows[_i].y), "%s of %a is %a, not %a", c->name, (double)rows[_i].x, (double)y,
                  (double)rows[_i].y);
}
END_TEST

/* NaNs of every kind and Inf, among values and alone; in int8 they take their block with them, and no other.
 */
START_TEST(nothing_that_is_not_finite_hides)
{
    static const uint32_t bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u,
                                   0x7f800001u, 0xff80ffffu, 0x7fffffffu};
    const struct ps_codec *c = row(_i);
    struct dice dice = {13};
    if (c == NULL)
        return;
    for (size_t k = 0; k < ROWS(bad) * 200; k++) {
        size_t n = lengths[1 + dice_below(&dice, ROWS(lengths) - 1)], at = dice_below(&dice, n);
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        struct parcel p = parcel_of(c, n);
        for (size_t i = 0; i < n; i++)
            x[i] = dice_float(&dice);
        memcpy(x + at, &bad[k / 200], sizeof *x);
        c->encode(c, p.payload, x, n);
        c->decode(c, y, p.payload, n);
        for (size_t i = 0; i < n; i++)
            assert_quick(i == at ? !isfinite(y[i])
                                 : i / c->error.block == at / c->error.block || isfinite(y[i]));
        parcel_end(&p);
        free(x);
        free(y);
    }
}
END_TEST

/* Over payloads of any bytes, too: NaN and Inf scales, -128. */
START_TEST(add_is_decode_then_add)
{
    const struct ps_codec *c = row(_i);
    struct dice dice = {17};
    if (c == NULL || c->add == NULL)
        return;
    for (size_t k = 0; k < ROWS(lengths) * 8; k++) {
        size_t n = lengths[k / 8];
        float *x = malloc(n * sizeof *x + 1), *y = malloc(n * sizeof *y + 1);
        struct parcel p = parcel_of(c, n);
        for (size_t i = 0; i < p.len; i++)
            p.payload[i] = (unsigned char)dice_bits(&dice);
        for (size_t i = 0; i < n; i++)
            x[i] = any_bits(&dice);
        c->decode(c, y, p.payload, n);
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] + y[i];
        c->add(c, x, p.payload, n);
        for (size_t i = 0; i < n; i++)
            assert_quick(same(x[i], y[i]));
        parcel_end(&p);
        free(x);
        free(y);
    }
}
END_TEST

/* Values with an error each, encoded, decoded and added hop by hop, as a ring of 8 does. */
START_TEST(sum_over_hops_stays_within_its_bound)
{
    enum { HOPS = 8, N = 3000 };
    const struct ps_codec *c = row(_i);
    struct dice dice = {19};
    if (c == NULL || c->for_moves)
        return;
    float *x = malloc(HOPS * N * sizeof *x), *sum = calloc(N, sizeof *sum);
    unsigned char *payload = malloc(c->payload_bytes(c, N));
    for (size_t i = 0; i < HOPS * N; i++)
        x[i] = dice_float(&dice);
    for (size_t h = 0; h < HOPS; h++) {
        for (size_t i = 0; i < N; i++)
            sum[i] += x[h * N + i];
        c->encode(c, payload, sum, N);
        c->decode(c, sum, payload, N);
    }
    double growth = pow(1 + c->error.relative, HOPS) - 1;
    for (size_t i = 0; i < N; i++) {
        size_t first = i - i % c->error.block, end = N - first < c->error.block ? N : first + c->error.block;
        double exact = 0, larger = 0;
        for (size_t h = 0; h < HOPS; h++) {
            double largest = 0;
            for (size_t k = first; k < end; k++)
                largest = fmax(largest, fabs((double)x[h * N + k]));
            exact += (double)x[h * N + i];
            larger += largest;
        }
        /* float32's own rounding: at most HOPS adds of half an ulp of the sum of magnitudes */
        assert_quick(fabs((double)sum[i] - exact) <=
                     (growth + HOPS * 0x1p-24) * larger + HOPS * c->error.absolute);
    }
    free(x);
    free(sum);
    free(payload);
}
END_TEST

/* Every row of kernels makes the plain row's payloads and floats. */
static void compare_loops(const struct ps_codec_loops *plain, const struct ps_codec_loops *fast,
                          const struct ps_codec *c)
{
    struct dice dice = {23};
    for (size_t k = 0; k < ROWS(lengths) * (KINDS + 1); k++) {
        size_t n = lengths[k / (KINDS + 1)];
        float *x = malloc(n * sizeof *x + 1),
              *y[2] = {malloc(n * sizeof **y + 1), malloc(n * sizeof **y + 1)};
        struct parcel p = parcel_of(c, n), q = parcel_of(c, n);
        for (size_t i = 0; i < n; i++)
            x[i] = k % (KINDS + 1) == KINDS ? any_bits(&dice) : sample(&dice, (int)(k % (KINDS + 1)));
        plain->encode(p.payload, x, n);
        fast->encode(q.payload, x, n);
        assert_quick(memcmp(p.payload, q.payload, p.len) == 0);
        for (size_t i = 0; k % 2 == 0 && i < p.len; i++)
            p.payload[i] = (unsigned char)dice_bits(&dice);
        plain->decode(y[0], p.payload, n);
        fast->decode(y[1], p.payload, n);
        assert_quick(memcmp(y[0], y[1], n * sizeof *x) == 0);
        memcpy(y[0], x, n * sizeof *x);
        memcpy(y[1], x, n * sizeof *x);
        if (plain->add != NULL) {
            plain->add(y[0], p.payload, n);
            fast->add(y[1], p.payload, n);
        }
        for (size_t i = 0; i < n; i++)
            assert_quick(same(y[0][i], y[1][i]));
        parcel_end(&p);
        parcel_end(&q);
        free(x);
        free(y[0]);
        free(y[1]);
    }
}

START_TEST(kernels_make_the_same_bits)
{
    size_t n;
    const struct ps_codec_kernels *const *rows = ps_codec_kernels_rows(&n);
    ck_assert_str_eq(rows[0]->name, "scalar");
    for (size_t k = 1; k < n; k++) {
        if (!ps_codec_kernels_runs_here(rows[k]))
            continue;
        compare_loops(rows[0]->fp16, rows[k]->fp16, ps_codec_named("fp16"));
        compare_loops(&rows[0]->bf16, &rows[k]->bf16, ps_codec_named("bf16"));
        compare_loops(&rows[0]->trunc16, &rows[k]->trunc16, ps_codec_named("trunc16"));
        compare_loops(&rows[0]->int8, &rows[k]->int8, ps_codec_named("int8"));
        compare_loops(rows[0]->int4, rows[k]->int4, ps_codec_named("int4"));
    }
}
END_TEST

/* Every half there is, and what lies between two of them. */
START_TEST(every_half_comes_back)
{
    size_t n;
    const struct ps_codec_kernels *const *rows = ps_codec_kernels_rows(&n);
    for (size_t k = 0; k < n; k++)
        for (uint32_t h = 0; ps_codec_kernels_runs_here(rows[k]) && h < 0x10000; h++) {
            uint16_t half = (uint16_t)h, again;
            float x;
            rows[k]->fp16->decode(&x, &half, 1);
            rows[k]->fp16->encode(&again, &x, 1);
            assert_quick(again == ((h & 0x7fff) > 0x7c00 ? (h | 0x200) : h));
            if ((h & 0x7c00) != 0x7c00)
                assert_quick(fabsf(x) == ((h & 0x7c00) == 0 ? ldexpf((float)(h & 0x3ff), -24)
                                                            : ldexpf((float)(0x400 + (h & 0x3ff)),
                                                                     (int)(h >> 10 & 31) - 25)));
        }
}
END_TEST

START_TEST(the_table_has_its_rows_and_their_names)
{
    static const char *const names[] = {"raw", "fp16", "bf16", "trunc16", "int8", "int4", "topk"};
    size_t n, n_values;
    const struct ps_codec *const *rows = ps_codec_rows(&n);
    ck_assert_uint_eq(n, ROWS(names));
    for (size_t i = 0; i < n; i++) {
        ck_assert_str_eq(rows[i]->name, names[i]);
        ck_assert_ptr_eq(ps_codec_named(names[i]), rows[i]);
        ck_assert_uint_eq(rows[i]->id, i);
    }
    ck_assert_ptr_null(ps_codec_named("fp32"));
    ck_assert_ptr_eq(ps_codec_value_rows(&n_values), rows);
    ck_assert_uint_eq(n_values, 5);
    for (size_t i = 0; i < n; i++) {
        ck_assert(rows[i]->for_moves == (i >= n_values));
        ck_assert((rows[i]->add == NULL) == rows[i]->for_moves); /* sums are of values */
    }
    ck_assert_uint_eq(ps_codec_int8.payload_bytes(&ps_codec_int8, 131072), 131072 + 128 * 4);
    ck_assert_uint_eq(ps_codec_fp16.payload_bytes(&ps_codec_fp16, 131072), 262144);
    ck_assert_uint_eq(ps_codec_int4.payload_bytes(&ps_codec_int4, 131072), 131072 / 2 + 2048 * 2);
    ck_assert_uint_eq(ps_codec_topk.payload_bytes(&ps_codec_topk, 131072), 4 + 515 + 2 * 1311);
}
END_TEST

START_TEST(raw_is_the_default)
{
    ck_assert_ptr_nonnull(ps_codec_find(0));
    ck_assert_str_eq(ps_codec_find(0)->name, "raw");
    ck_assert(ps_codec_find(0)->in_place);
    ck_assert_ptr_null(ps_codec_find(255));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-codec");
    TCase *tc = tcase_create("rows");
    tcase_add_loop_test(tc, row_is_complete_and_itself, 0, MAX_ID);
    tcase_add_loop_test(tc, payload_grows_with_the_chunk, 0, MAX_ID);
    tcase_add_loop_test(tc, encoding_again_changes_nothing, 0, MAX_ID);
    tcase_add_loop_test(tc, error_stays_within_its_bound, 0, MAX_ID);
    tcase_add_loop_test(tc, nothing_that_is_not_finite_hides, 0, MAX_ID);
    tcase_add_loop_test(tc, add_is_decode_then_add, 0, MAX_ID);
    tcase_add_loop_test(tc, sum_over_hops_stays_within_its_bound, 0, MAX_ID);
    tcase_add_loop_test(tc, values_are_rounded_as_they_should, 0, 19);
    tcase_add_test(tc, kernels_make_the_same_bits);
    tcase_add_test(tc, every_half_comes_back);
    tcase_add_test(tc, the_table_has_its_rows_and_their_names);
    tcase_add_test(tc, raw_is_the_default);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
