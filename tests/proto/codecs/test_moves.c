/* The codecs for moves, int4 and topk: what they choose, what they refuse, what error feedback brings, and
 * how a piece that holds buffers travels in them. */
#include <float.h>
#include <math.h>

#include "proto/codecs/codec.h"
#include "proto/codecs/kernels.h"
#include "proto/codecs/piece.h"
#include "tests/support/unit.h"

enum { MOST = 5000, GUARD = 0xa5 };

static float x[MOST], y[MOST + 1];
static unsigned char payload[4 * MOST + 1], again[4 * MOST + 1];

static struct ps_codec codec_of(const char *name)
{
    struct ps_codec c;
    const char *wrong = ps_codec_of(name, &c);
    ck_assert_msg(wrong == NULL, "%s: %s", name, wrong != NULL ? wrong : "");
    return c;
}

START_TEST(names_are_read)
{
    static const struct {
        const char *name, *row;
        uint32_t ppm;
    } good[] = {{"raw", "raw", 0},
                {"int8", "int8", 0},
                {"int4", "int4", 0},
                {"topk:0.01", "topk", 10000},
                {"topk:1", "topk", 1000000},
                {"topk:1.000000", "topk", 1000000},
                {"topk:0.000001", "topk", 1},
                {"topk:0.5", "topk", 500000}};
    static const char *const bad[] = {
        "",          "topk",      "topk:",    "topk:0",  "topk:0.0",   "topk:1.1",       "topk:2",
        "topk:-0.1", "topk:1e-2", "topk:0,1", "topk:.5", "topk:0.01x", "topk:0.0000001", "topk:nan",
        "int4:0.5",  "raw:1",     "topk:10",  "int",     "int88",      "topk:0.5 "};
    char text[PS_CODEC_TEXT];
    for (size_t i = 0; i < ROWS(good); i++) {
        struct ps_codec c = codec_of(good[i].name);
        ck_assert_str_eq(c.name, good[i].row);
        ck_assert_uint_eq(c.fraction_ppm, good[i].ppm);
        ck_assert(ps_codec_is(good[i].name, good[i].row));
        struct ps_codec back = codec_of(ps_codec_text(&c, text));
        ck_assert(ps_codec_same(&back, &c));
    }
    for (size_t i = 0; i < ROWS(bad); i++) {
        struct ps_codec c = {.name = "as it was"};
        ck_assert_msg(ps_codec_of(bad[i], &c) != NULL, "'%s' was taken", bad[i]);
        ck_assert_str_eq(c.name, "as it was");
    }
    ck_assert_ptr_null(ps_codec_named_for_values("int4"));
    ck_assert_ptr_null(ps_codec_named_for_values("topk"));
    ck_assert_ptr_eq(ps_codec_named_for_values("int8"), ps_codec_named("int8"));
    struct ps_codec one = codec_of("topk:0.1"), other = codec_of("topk:0.2");
    ck_assert(!ps_codec_same(&one, &other));
}
END_TEST

/* Vectors that make selection hard: few binades; ties; all equal; the large in one block; sorted; zeros; what
 * is hardly a number; a few far above the rest, which a sample of the values may miss. */
enum { KINDS = 8 };
static float sample(struct dice *dice, int kind, size_t i, size_t n)
{
    switch (kind) {
    case 0:
        return dice_float(dice);
    case 1:
        return (float)dice_below(dice, 5) - 2;
    case 2:
        return 1.5f;
    case 3:
        return i / PS_TOPK_BLOCK == 1 ? 100 + dice_float(dice) : dice_float(dice);
    case 4:
        return (float)(n - i);
    case 5:
        return i % 97 == 0 ? dice_float(dice) : 0;
    case 6:
        return ldexpf(dice_float(dice), -130);
    default:
        return i % 64 == 33 ? 1e6f + (float)i : dice_float(dice);
    }
}

static int by_size(const void *a, const void *b)
{
    float u = fabsf(x[*(const size_t *)a]), v = fabsf(x[*(const size_t *)b]);
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    return u != v ? (u < v) - (u > v) : (i > j) - (i < j);
}

/* The listed places, read from the payload by its description alone. */
static size_t read_places(const unsigned char *p, size_t n, size_t k, size_t *places)
{
    size_t n_blocks = (n + 254) / 255, found = 0;
    const unsigned char *counts = p + 4, *at = counts + n_blocks;
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t h = 0; h < counts[b] && found < k; h++)
            places[found++] = b * 255 + *at++;
    return found;
}

static void check_choice(const struct ps_codec *c, size_t n, size_t k)
{
    static size_t order[MOST], places[MOST];
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    qsort(order, n, sizeof *order, by_size);
    ck_assert_uint_eq(read_places(payload, n, k, places), k);
    float largest = fabsf(x[order[0]]);
    for (size_t i = 0; i < n; i++)
        y[i] = NAN;
    c->decode(c, y, payload, n);
    for (size_t i = 0; i < k; i++) {
        size_t at = order[i];
        double most = fmax((double)largest / 253, 0x1p-100);
        if (fabs((double)y[at] - (double)x[at]) > most)
            ck_abort_msg("[%zu], the %zu-th largest, is %a, not %a", at, i, (double)y[at], (double)x[at]);
    }
    for (size_t i = 0; i < k; i++) /* the set, by marking */
        x[places[i]] = NAN;
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(isnan(x[order[i]]) == (i < k), "the %zu-th largest of %zu is %slisted; %zu are to be",
                      i, n, i < k ? "not " : "", k);
    for (size_t i = 0; i < n; i++)
        assert_quick(isnan(x[i]) || y[i] == 0);
}

START_TEST(topk_lists_the_largest_and_of_equal_ones_the_first)
{
    static const size_t lengths[] = {10, 254, 255, 256, 510, 511, 1021, 4096, MOST};
    static const char *const names[] = {"topk:0.000001", "topk:0.001", "topk:0.03", "topk:0.3", "topk:1"};
    size_t n_rows;
    const struct ps_codec_kernels *const *rows = ps_codec_kernels_rows(&n_rows);
    struct dice dice = {31};
    for (size_t f = 0; f < ROWS(names); f++)
        for (size_t l = 0; l < ROWS(lengths) * KINDS; l++) {
            const struct ps_codec c = codec_of(names[f]);
            const size_t n = lengths[l / KINDS], k = (n * c.fraction_ppm + 999999) / 1000000;
            const size_t len = c.payload_bytes(&c, n);
            for (size_t i = 0; i < n; i++)
                x[i] = sample(&dice, (int)(l % KINDS), i, n);
            ck_assert_uint_eq(len, 4 + (n + 254) / 255 + 2 * k);
            payload[len] = GUARD;
            c.encode(&c, payload, x, n);
            ck_assert_uint_eq(payload[len], GUARD);
            ck_assert_ptr_null(c.check(&c, payload, n));
            for (size_t r = 0; r < n_rows; r++) {
                if (!ps_codec_kernels_runs_here(rows[r]))
                    continue;
                rows[r]->topk->encode(again, x, n, k);
                ck_assert_mem_eq(again, payload, len);
            }
            check_choice(&c, n, k);
        }
}
END_TEST

/* A list that would be longer than the floats is the floats. */
START_TEST(what_is_too_short_for_a_list_travels_as_floats)
{
    const struct ps_codec c = codec_of("topk:0.01");
    ck_assert_uint_eq(c.payload_bytes(&c, 1), 4);
    x[0] = -1.25f;
    c.encode(&c, payload, x, 1);
    ck_assert_mem_eq(payload, x, 4);
    ck_assert_ptr_null(c.check(&c, payload, 1));
    c.decode(&c, y, payload, 1);
    ck_assert_mem_eq(y, x, 4);
    ck_assert_uint_eq(c.payload_bytes(&c, 2), 4 + 1 + 2);
    const struct ps_codec all = codec_of("topk:1");
    ck_assert_uint_eq(all.payload_bytes(&all, 2), 8);
}
END_TEST

static void put_float(unsigned char *at, float v)
{
    memcpy(at, &v, sizeof v);
}

/* Refused with these words; and decoding it all the same stays within its bounds, as it must where a peer
 * writes after the check. */
static void check_lie(const struct ps_codec *c, size_t n, const char *says)
{
    const char *wrong = c->check(c, payload, n);
    ck_assert_msg(wrong != NULL && strstr(wrong, says) != NULL, "'%s' is not in '%s'", says,
                  wrong != NULL ? wrong : "");
    unsigned char *exact =
        malloc(c->payload_bytes(c, n)); /* the address sanitizer watches its end, and y's */
    float *out = malloc(n * sizeof *out);
    memcpy(exact, payload, c->payload_bytes(c, n));
    c->decode(c, out, exact, n);
    free(exact);
    free(out);
}

START_TEST(lists_that_lie_are_refused)
{
    enum { N = 600, K = 60, COUNTS = 4, PLACES = COUNTS + 3 };
    const struct ps_codec c = codec_of("topk:0.1");
    static const float scales[] = {NAN, -NAN, INFINITY, -INFINITY, -1, FLT_MAX, -0x1p-140f};
    struct dice dice = {37};
    for (int i = 0; i < N; i++)
        x[i] = dice_float(&dice);
    c.encode(&c, again, x, N);
    const unsigned char first = again[COUNTS], second = again[COUNTS + 1];
    ck_assert(first > 2 && second > 2 && again[COUNTS + 2] > 0);
#define LIE(change, says)                                                                                    \
    do {                                                                                                     \
        memcpy(payload, again, sizeof payload);                                                              \
        ck_assert_ptr_null(c.check(&c, payload, N));                                                         \
        change;                                                                                              \
        check_lie(&c, N, says);                                                                              \
    } while (0)
    for (size_t i = 0; i < ROWS(scales); i++)
        LIE(put_float(payload, scales[i]), "scale");
    LIE(payload[COUNTS]++, "counts");
    LIE(payload[COUNTS]--, "counts");
    LIE(memset(payload + COUNTS, 255, 3), "counts");
    LIE(memset(payload + COUNTS, 0, 3), "counts");
    LIE(payload[PLACES + 1] = payload[PLACES], "ascend"); /* repeated */
    LIE((payload[PLACES] = 2, payload[PLACES + 1] = 1), "ascend");
    LIE(payload[PLACES + first - 1] = 255, "beyond its end");     /* of a whole block */
    LIE(payload[PLACES + K - 1] = N - 2 * 255, "beyond its end"); /* of the last */
    LIE((payload[COUNTS] = 0, payload[COUNTS + 1] = (unsigned char)(first + second)),
        "ascend");                          /* moved over */
    memcpy(payload, again, sizeof payload); /* the largest place there is */
    payload[PLACES + first - 1] = 254;
    payload[PLACES + K - 1] = N - 2 * 255 - 1;
    ck_assert_ptr_null(c.check(&c, payload, N));
}
END_TEST

START_TEST(scales_of_int4_that_are_no_numbers_are_refused)
{
    enum { N = 200 };
    static const float scales[] = {NAN, -NAN, INFINITY, -INFINITY, -1, FLT_MAX, -0.0f};
    const struct ps_codec c = codec_of("int4");
    struct dice dice = {41};
    for (int i = 0; i < N; i++)
        x[i] = dice_float(&dice);
    for (size_t block = 0; block < 4; block++)
        for (size_t i = 0; i < ROWS(scales); i++) {
            uint32_t bits;
            c.encode(&c, payload, x, N);
            ck_assert_ptr_null(c.check(&c, payload, N));
            memcpy(&bits, &scales[i], sizeof bits);
            payload[block * PS_INT4_BLOCK_BYTES] = (unsigned char)(bits >> 16);
            payload[block * PS_INT4_BLOCK_BYTES + 1] = (unsigned char)(bits >> 24);
            check_lie(&c, N, "scale");
        }
    for (int i = 0; i < N; i++)
        x[i] = i % 2 == 0 ? FLT_MAX : -FLT_MAX;
    c.encode(&c, payload, x, N); /* the largest scale that an encoder writes */
    ck_assert_ptr_null(c.check(&c, payload, N));
    c.decode(&c, y, payload, N);
    for (int i = 0; i < N; i++)
        ck_assert(isfinite(y[i]) && (y[i] > 0) == (i % 2 == 0));
}
END_TEST

START_TEST(int4_rounds_to_the_nearest_step)
{
    static const float steps[][2] = {{7, 7},    {-7, -7},    {3.4f, 3}, {3.6f, 4},  {-3.6f, -4},
                                     {0.4f, 0}, {-0.6f, -1}, {6.6f, 7}, {-0.5f, 0}, {1.5f, 2}};
    const struct ps_codec c = codec_of("int4");
    c.encode(&c, payload, NULL, 0);
    for (size_t i = 0; i < ROWS(steps); i++)
        x[i] = steps[i][0];
    c.encode(&c, payload, x, ROWS(steps));
    c.decode(&c, y, payload, ROWS(steps));
    for (size_t i = 0; i < ROWS(steps); i++)
        ck_assert_msg(y[i] == steps[i][1], "%g became %g", (double)x[i], (double)y[i]);
    ck_assert_uint_eq(c.payload_bytes(&c, 1), 3);
    ck_assert_uint_eq(c.payload_bytes(&c, 64), 34);
    ck_assert_uint_eq(c.payload_bytes(&c, 65), 37);
}
END_TEST

/* What is sent of m + e, with e what that lacks, adds up to the messages: behind stands one e, which does not
 * grow. */
START_TEST(error_feedback_brings_everything)
{
    enum { N = 1500, STEPS = 400 };
    static const char *const names[] = {"int4", "topk:0.02", "topk:0.2"};
    static double sent[N], wanted[N];
    static float e[N];
    const struct ps_codec c = codec_of(names[_i]);
    struct dice dice = {43};
    double halfway = 0, worst = 0;
    memset(e, 0, sizeof e);
    memset(sent, 0, sizeof sent);
    memset(wanted, 0, sizeof wanted);
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < N; i++) {
            float m = 0.3f + dice_float(&dice) * 0.1f;
            wanted[i] += (double)m;
            x[i] = m + e[i];
        }
        c.encode(&c, payload, x, N);
        c.decode(&c, y, payload, N);
        for (int i = 0; i < N; i++) {
            sent[i] += (double)y[i];
            e[i] = x[i] - y[i];
            worst = fmax(worst, fabs((double)e[i]));
            /* float32's rounding of m + e and of x - y, at each step */
            assert_quick(fabs(wanted[i] - sent[i] - (double)e[i]) <= STEPS * 2 * (0.5 + worst) * 0x1p-23);
        }
        halfway = t == STEPS / 2 ? worst : halfway;
    }
    ck_assert_msg(worst <= 1.25 * halfway, "%s: what is owed grows from %g to %g", names[_i], halfway, worst);
}
END_TEST

/* w 300 moves, stats 200 buffers, frozen 100, b 1000 moves. */
static struct ps_manifest *make_manifest(void)
{
    static const struct ps_tensor tensors[] = {{"w", 0, {300}, 1, PS_ROLE_PARAM},
                                               {"stats", 300, {200}, 1, PS_ROLE_BUFFER},
                                               {"embedding", 500, {100}, 1, PS_ROLE_FROZEN},
                                               {"b", 600, {1000}, 1, PS_ROLE_PARAM}};
    struct ps_manifest *m;
    struct ps_error err;
    ck_assert_int_eq(ps_manifest_create(tensors, ROWS(tensors), 1 << 20, &m, &err), 0);
    return m;
}

/* A piece's own values, as they were; its moves, by the codec alone with 0 in place of the buffers. */
static void check_piece(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r)
{
    static float spent[MOST], want[MOST];
    size_t n_buffers = 0;
    for (size_t i = 0; i < r.count; i++) {
        bool buffer = r.begin + i >= 300 && r.begin + i < 500;
        spent[i] = x[r.begin + i];
        want[i] = buffer ? 0 : spent[i];
        n_buffers += buffer;
    }
    size_t coded = c->payload_bytes(c, r.count) + 4 * n_buffers, floats = 4 * r.count;
    bool is_coded = n_buffers == 0 || coded < floats;
    size_t len = ps_piece_bytes(c, m, r);
    ck_assert_uint_eq(len, is_coded ? coded : floats);
    ck_assert(ps_piece_has_buffers(c, m, r) == (n_buffers > 0));
    payload[len] = GUARD;
    ps_piece_encode(c, m, r, payload, spent);
    ck_assert_uint_eq(payload[len], GUARD);
    ck_assert_ptr_null(ps_piece_check(c, m, r, payload));
    ps_piece_decode(c, m, r, y, payload);
    if (is_coded) {
        c->encode(c, again, want, r.count);
        c->decode(c, want, again, r.count);
    }
    for (size_t i = 0; i < r.count; i++) {
        bool buffer = r.begin + i >= 300 && r.begin + i < 500;
        assert_quick(y[i] == (buffer || !is_coded ? x[r.begin + i] : want[i]));
    }
}

START_TEST(buffers_of_a_piece_travel_as_they_are)
{
    static const struct ps_range pieces[] = {{0, 1600},  {0, 300},    {300, 200}, {299, 2}, {450, 700},
                                             {500, 100}, {600, 1000}, {0, 310},   {301, 5}, {290, 220}};
    const struct ps_codec c = codec_of(_i == 0 ? "int4" : "topk:0.05");
    struct ps_manifest *m = make_manifest();
    struct dice dice = {47};
    for (int i = 0; i < 1600; i++)
        x[i] = dice_float(&dice) * (i >= 300 && i < 500 ? 1000.0f : 1.0f);
    for (size_t i = 0; i < ROWS(pieces); i++)
        check_piece(&c, m, pieces[i]);
    for (uint64_t n = 1; n < 700; n++) /* a part takes no more than the whole */
        assert_quick(ps_piece_bytes(&c, m, (struct ps_range){250, n}) <=
                     ps_piece_bytes(&c, m, (struct ps_range){250, n + 1}));
    ps_piece_encode(&c, m, pieces[0], payload, memcpy(y, x, sizeof x));
    memset(payload, 0xff, 4); /* no scale */
    ck_assert_ptr_nonnull(ps_piece_check(&c, m, pieces[0], payload));
    ps_manifest_destroy(m);
}
END_TEST

/* A codec of values knows nothing of roles. */
START_TEST(other_codecs_encode_all_of_a_piece)
{
    const struct ps_codec *c = ps_codec_named("int8");
    struct ps_manifest *m = make_manifest();
    struct ps_range r = {0, 1600};
    struct dice dice = {53};
    for (int i = 0; i < 1600; i++)
        x[i] = dice_float(&dice);
    ck_assert_uint_eq(ps_piece_bytes(c, m, r), c->payload_bytes(c, 1600));
    ck_assert(!ps_piece_has_buffers(c, m, r));
    c->encode(c, again, x, 1600);
    ps_piece_encode(c, m, r, payload, x);
    ck_assert_mem_eq(payload, again, c->payload_bytes(c, 1600));
    ps_manifest_destroy(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-moves");
    TCase *tc = tcase_create("codecs");
    tcase_add_test(tc, names_are_read);
    tcase_add_test(tc, topk_lists_the_largest_and_of_equal_ones_the_first);
    tcase_add_test(tc, what_is_too_short_for_a_list_travels_as_floats);
    tcase_add_test(tc, lists_that_lie_are_refused);
    tcase_add_test(tc, scales_of_int4_that_are_no_numbers_are_refused);
    tcase_add_test(tc, int4_rounds_to_the_nearest_step);
    tcase_add_loop_test(tc, error_feedback_brings_everything, 0, 3);
    tcase_add_loop_test(tc, buffers_of_a_piece_travel_as_they_are, 0, 2);
    tcase_add_test(tc, other_codecs_encode_all_of_a_piece);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
