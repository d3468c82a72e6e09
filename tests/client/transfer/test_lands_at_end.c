/* Answers that wait in the target for the others: `landed` gets as much at once as has one rate, each value
 * once, and none of what has landed already. */
#include <math.h>
#include <stdlib.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "tests/support/unit.h"

enum { N = 10240, CHUNK = 1024, LANES = 2, MOST_CALLS = N / CHUNK };

/* What `landed` was called with. */
static struct {
    struct ps_range r;
    float rate;
} calls[MOST_CALLS];
static int n_calls;
static float target[N];

static void landed(struct psc *c, struct ps_range r, const float *answer, float rate, float *to)
{
    (void)c;
    ck_assert_int_lt(n_calls, MOST_CALLS);
    ck_assert_ptr_eq(answer, target + r.begin);
    ck_assert_ptr_eq(to, target);
    calls[n_calls].r = r;
    calls[n_calls++].rate = rate;
}

/* A handle in which all chunks of a transfer of the whole vector are answered, with these rates; NaN: the
 * chunk has landed. */
static struct psc *answered(const float rates[LANES][N / CHUNK / LANES])
{
    struct psc *c = calloc(1, sizeof *c);
    ck_assert_ptr_nonnull(c);
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_flight *f = &ts->flights[0];
    c->memory.kind = &psc_memory_host;
    ts->work = psc_work_of(&c->memory, PSC_UP);
    ts->shard = (struct ps_shard){.n_floats = N, .n_lanes = LANES, .chunk_floats = CHUNK};
    f->t = (struct psc_transfer){.landed = landed, .target = target, .lands_at_end = true};
    f->scope = f->cover = ps_shard_whole(&ts->shard);
    for (uint32_t i = 0; i < LANES; i++) {
        ck_assert_uint_eq(ps_shard_n_chunks(&ts->shard, i), N / CHUNK / LANES);
        f->lanes[i].end = N / CHUNK / LANES;
        ts->progress[i].rates = (float *)(uintptr_t)rates[i];
    }
    n_calls = 0;
    return c;
}

static void expect_calls(struct psc *c, int n, const struct ps_range *r, const float *rates)
{
    psc_pieces_land(c, &c->transfer_state.flights[0]);
    ck_assert_int_eq(n_calls, n);
    for (int i = 0; i < n; i++) {
        ck_assert_uint_eq(calls[i].r.begin, r[i].begin);
        ck_assert_uint_eq(calls[i].r.count, r[i].count);
        ck_assert(calls[i].rate == rates[i]);
    }
    free(c);
}

START_TEST(one_rate_lands_at_once)
{
    const float rates[LANES][5] = {{0.5f, 0.5f, 0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f, 0.5f, 0.5f}};
    expect_calls(answered(rates), 1, &(struct ps_range){0, N}, &(float){0.5f});
}
END_TEST

/* psd's rate has changed in the middle, and two chunks came in a codec, which land by themselves. */
START_TEST(each_rate_lands_by_itself)
{
    const float rates[LANES][5] = {{0.5f, 0.5f, 0.25f, NAN, 0.25f}, {0.25f, 0.25f, 0.5f, 0.5f, NAN}};
    const struct ps_range ranges[] = {{0, 2048}, {2048, 1024}, {4096, 3072}, {7168, 2048}};
    const float of[] = {0.5f, 0.25f, 0.25f, 0.5f};
    expect_calls(answered(rates), 4, ranges, of);
}
END_TEST

START_TEST(what_has_landed_does_not_land_again)
{
    const float rates[LANES][5] = {{NAN, NAN, NAN, NAN, NAN}, {NAN, NAN, NAN, NAN, NAN}};
    expect_calls(answered(rates), 0, NULL, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-lands-at-end");
    TCase *tc = tcase_create("lands-at-end");
    tcase_add_test(tc, one_rate_lands_at_once);
    tcase_add_test(tc, each_rate_lands_by_itself);
    tcase_add_test(tc, what_has_landed_does_not_land_again);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
