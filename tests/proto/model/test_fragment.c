/* Fragments: the whole vector, each float once, at chunk boundaries, the same from both functions; near the
 * boundaries of tensors where those are near. */
#include "proto/model/fragment.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/unit.h"

/* Sizes of tensors by the thousandth of the vector; the last takes the rest. */
static const uint32_t models[][6] = {
    {0}, {500}, {10, 20, 30, 40, 50}, {300, 1, 1, 300}, {900, 10, 10}, {1, 950},
};

static const struct ps_shard shards[] = {
    {1, 1, 1024},          {15, 2, 1024},
    {100, 64, 1024},       {16 * 64 + 1, 64, 1024},
    {1025, 1, 1024},       {5000, 3, 1040},
    {100003, 7, 4096},     {431080, 2, 131072},
    {431080, 3, 4096},     {431080, 8, 1024},
    {1048577, 1, 1048576}, {61100840, 5, 131072},
    {61100840, 8, 1024},   {UINT64_C(1) << 32, 64, 1048576},
};

static struct ps_manifest *manifest_of(uint64_t n_floats, const uint32_t *sizes)
{
    struct ps_tensor tensors[7] = {{NULL}};
    char names[7][8];
    struct ps_manifest *m = NULL;
    struct ps_error err = {""};
    uint64_t at = 0;
    size_t n = 0;
    for (int i = 0; i < 7 && at < n_floats; i++) {
        uint64_t size = i < 6 ? n_floats / 1000 * sizes[i] : 0;
        size = size == 0 || at + size > n_floats ? n_floats - at : size;
        snprintf(names[n], sizeof names[n], "t%d", i);
        tensors[n] = (struct ps_tensor){names[n], at, {size}, 1, PS_ROLE_PARAM, PS_DECAY};
        at += size;
        n++;
    }
    ck_assert_msg(ps_manifest_create(tensors, n, UINT64_MAX, &m, &err) == 0, "%s", err.text);
    return m;
}

static bool begins_a_chunk(const struct ps_shard *s, uint64_t at)
{
    for (uint32_t lane = 0; lane < s->n_lanes; lane++) {
        uint32_t k;
        if (ps_shard_pieces(s, lane, (struct ps_range){at, 1}, &k) > 0)
            return ps_shard_chunk(s, lane, k).begin == at;
    }
    return false;
}

static void check_cut(const struct ps_shard *s, const struct ps_manifest *m, uint32_t n)
{
    struct ps_range *all = calloc(n, sizeof *all);
    uint64_t at = 0;
    ps_fragments(s, m, n, all);
    for (uint32_t i = 0; i < n; i++) {
        if (n < 50 || i % 97 == 0 || i + 1 == n) {
            struct ps_range r = ps_fragment(s, m, n, i);
            assert_quick(r.begin == all[i].begin && r.count == all[i].count);
        }
        assert_quick(all[i].begin == at && all[i].count > 0);
        assert_quick(begins_a_chunk(s, at));
        at += all[i].count;
    }
    assert_quick(at == s->n_floats);
    free(all);
}

START_TEST(fragments_cover_the_vector)
{
    const struct ps_shard *s = &shards[_i];
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 16, 100, 1023, 1024};
    for (size_t k = 0; k < ROWS(models); k++) {
        struct ps_manifest *m = manifest_of(s->n_floats, models[k]);
        uint64_t most = ps_fragments_most(s);
        ck_assert_uint_ge(most, 1);
        for (size_t i = 0; i < ROWS(counts); i++)
            if (counts[i] <= most)
                check_cut(s, m, counts[i]);
        if (most <= PS_MAX_FRAGMENTS)
            check_cut(s, m, (uint32_t)most); /* a chunk each */
        ps_manifest_destroy(m);
    }
}
END_TEST

START_TEST(one_fragment_is_all)
{
    const struct ps_shard s = {100003, 7, 4096};
    struct ps_manifest *m = manifest_of(s.n_floats, models[2]);
    struct ps_range r = ps_fragment(&s, m, 1, 0);
    ck_assert_uint_eq(r.begin, 0);
    ck_assert_uint_eq(r.count, s.n_floats);
    ps_manifest_destroy(m);
}
END_TEST

/* One lane, chunks of 1024: 100 of them. */
START_TEST(cuts_are_near_tensors_that_are_near)
{
    const struct ps_shard s = {102400, 1, 1024};
    const struct ps_tensor near[] = {{"a", 0, {30000}, 1, PS_ROLE_PARAM, PS_DECAY},
                                     {"b", 30000, {30}, 1, PS_ROLE_PARAM, PS_DECAY},
                                     {"c", 30030, {22000}, 1, PS_ROLE_PARAM, PS_DECAY},
                                     {"d", 52030, {50370}, 1, PS_ROLE_PARAM, PS_DECAY}};
    static const uint64_t begins[] = {
        0, 29 * 1024, /* of 25,600 to 30,000: within 6,400; the chunk at 29,696 is nearest */
        51 * 1024,    /* 51,200 to 52,030 */
        75 * 1024,    /* 76,800: nothing within 6,400 */
    };
    struct ps_manifest *m = NULL;
    struct ps_error err;
    ck_assert_int_eq(ps_manifest_create(near, ROWS(near), UINT64_MAX, &m, &err), 0);
    for (uint32_t i = 0; i < ROWS(begins); i++)
        ck_assert_uint_eq(ps_fragment(&s, m, ROWS(begins), i).begin, begins[i]);
    ps_manifest_destroy(m);
}
END_TEST

/* One tensor that is nearly all of it: no fragment is more than half again as large as an even one. */
START_TEST(a_large_tensor_is_cut_evenly)
{
    const struct ps_shard s = {1024000, 4, 1024};
    for (size_t k = 0; k < ROWS(models); k++) {
        struct ps_manifest *m = manifest_of(s.n_floats, models[k]);
        for (uint32_t n = 2; n <= 20; n++)
            for (uint32_t i = 0; i < n; i++) {
                uint64_t count = ps_fragment(&s, m, n, i).count, even = s.n_floats / n;
                assert_quick(count <= even + even / 2 + 2048 && count + even / 2 + 2048 >= even);
            }
        ps_manifest_destroy(m);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fragment");
    TCase *tc = tcase_create("fragment");
    tcase_add_loop_test(tc, fragments_cover_the_vector, 0, (int)ROWS(shards));
    tcase_add_test(tc, one_fragment_is_all);
    tcase_add_test(tc, cuts_are_near_tensors_that_are_near);
    tcase_add_test(tc, a_large_tensor_is_cut_evenly);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
