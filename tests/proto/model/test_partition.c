/* The cut into parts for several servers: nothing twice, nothing missing, between tensors where that is near.
 */
#include <stdio.h>
#include <stdlib.h>

#include "proto/model/manifest.h"
#include "tests/support/unit.h"

enum { MOST_TENSORS = 40 };

static struct ps_manifest *manifest_of(const uint64_t *sizes, const uint32_t *roles, size_t n)
{
    struct ps_tensor tensors[MOST_TENSORS] = {{0}};
    char names[MOST_TENSORS][8];
    struct ps_manifest *m;
    struct ps_error err;
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "t%zu", i);
        tensors[i] =
            (struct ps_tensor){names[i], at, {sizes[i]}, 1, roles != NULL ? roles[i] : PS_ROLE_PARAM, 0};
        at += sizes[i];
    }
    ck_assert_msg(ps_manifest_create(tensors, n, UINT64_C(1) << 40, &m, &err) == 0, "%s", err.text);
    return m;
}

/* Lanes of each part in it, one after the other, the first of them at least, and all parts together the
 * vector. */
static void assert_whole(const struct ps_shard *s)
{
    uint64_t at = 0;
    uint32_t lanes = s->n_lanes / s->n_parts;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        struct ps_range part = ps_shard_part(s, i);
        ck_assert_uint_eq(part.begin, at);
        for (uint32_t k = 0; k < lanes; k++) {
            struct ps_range slice = ps_shard_slice(s, i * lanes + k);
            assert_quick(slice.begin == at && (slice.count > 0 || k > 0));
            assert_quick(slice.count == 0 || (slice.begin - part.begin) % PS_SHARD_ALIGN == 0);
            for (uint32_t c = 0; c < ps_shard_n_chunks(s, i * lanes + k); c++) {
                struct ps_range chunk = ps_shard_chunk(s, i * lanes + k, c);
                assert_quick(chunk.begin == at && chunk.count > 0 && chunk.count <= s->chunk_floats);
                at += chunk.count;
            }
        }
        ck_assert_uint_eq(at, part.begin + part.count);
    }
    ck_assert_uint_eq(at, s->n_floats);
}

START_TEST(random_models_are_cut_whole)
{
    struct dice dice = {(uint64_t)_i};
    uint64_t sizes[MOST_TENSORS];
    size_t n = 1 + dice_below(&dice, MOST_TENSORS);
    struct ps_error err;
    uint32_t parts = 2 + (uint32_t)dice_below(&dice, 7), lanes = parts * (1 + (uint32_t)dice_below(&dice, 8));
    for (size_t i = 0; i < n; i++)
        sizes[i] = 1 + dice_below(&dice, dice_below(&dice, 3) == 0 ? 300000 : 3000);
    sizes[0] += 32 * 64;
    struct ps_manifest *m = manifest_of(sizes, NULL, n);
    struct ps_shard s = {m->n_floats, lanes, 1024 + 16 * (uint32_t)dice_below(&dice, 100), 0, {0}};
    ck_assert_msg(ps_manifest_cut(m, parts, &s, &err) == 0, "%s", err.text);
    ck_assert(ps_shard_valid(&s));
    assert_whole(&s);
    for (uint32_t i = 0; i < parts; i++) {
        uint64_t count = ps_shard_part(&s, i).count, share = m->n_floats / parts;
        assert_quick(count <= share + share / 4 + 32 && count + share / 4 + 32 >= share);
    }
    ps_manifest_destroy(m);
}
END_TEST

START_TEST(a_near_boundary_is_taken_and_a_far_one_is_not)
{
    static const uint64_t near[] = {1000, 1100, 900, 1000}, far[] = {10000, 100, 100};
    struct ps_manifest *m = manifest_of(near, NULL, 4);
    struct ps_shard s = {m->n_floats, 4, 1024, 0, {0}};
    ck_assert_int_eq(ps_manifest_cut(m, 2, &s, NULL), 0);
    ck_assert_uint_eq(s.part_at[1], 2100); /* the even cut is at 2000 */
    ps_manifest_destroy(m);
    m = manifest_of(far, NULL, 3);
    s = (struct ps_shard){m->n_floats, 4, 1024, 0, {0}};
    ck_assert_int_eq(ps_manifest_cut(m, 2, &s, NULL), 0);
    ck_assert_uint_eq(s.part_at[1], 5088); /* within the first tensor: 5100, on a line of 16 */
    ps_manifest_destroy(m);
}
END_TEST

START_TEST(what_cannot_be_cut_is_refused_by_name)
{
    static const uint64_t sizes[] = {5000, 5000};
    static const uint32_t frozen[] = {PS_ROLE_PARAM, PS_ROLE_FROZEN};
    static const uint64_t tiny[] = {100};
    struct ps_error err;
    struct ps_manifest *m = manifest_of(tiny, NULL, 1);
    struct ps_shard s = {m->n_floats, 4, 1024, 0, {0}};
    ck_assert_int_eq(ps_manifest_cut(m, 1, &s, &err), 0);
    ck_assert_int_lt(ps_manifest_cut(m, 2, &s, &err), 0);
    assert_says(err.text, "100 floats is too small for 2 servers of 2 lanes: at least 128");
    ps_manifest_destroy(m);
    m = manifest_of(sizes, frozen, 2);
    s = (struct ps_shard){m->n_floats, 4, 1024, 0, {0}};
    ck_assert_int_lt(ps_manifest_cut(m, 2, &s, &err), 0);
    assert_says(err.text, "all 5000 floats of server 1 are frozen");
    s = (struct ps_shard){m->n_floats, 5, 1024, 2, {0, 5000}};
    ck_assert(!ps_shard_valid(&s)); /* lanes are not a multiple of parts */
    ps_manifest_destroy(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-cut");
    TCase *c = tcase_create("cut");
    tcase_add_loop_test(c, random_models_are_cut_whole, 1, 200);
    tcase_add_test(c, a_near_boundary_is_taken_and_a_far_one_is_not);
    tcase_add_test(c, what_cannot_be_cut_is_refused_by_name);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
