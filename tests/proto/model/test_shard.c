/* The cut of the vector: nothing twice, nothing missing, and the same at both ends. */
#include "proto/model/shard.h"

#include "tests/support/unit.h"

static const struct ps_shard shards[] = {
    {1, 1, 1024},
    {1, 8, 1024},
    {15, 2, 1024},
    {16, 2, 1024},
    {17, 2, 1024},
    {100, 64, 1024},
    {16 * 64 - 1, 64, 1024},
    {16 * 64, 64, 1024},
    {16 * 64 + 1, 64, 1024},
    {1023, 1, 1024},
    {1024, 1, 1024},
    {1025, 1, 1024},
    {2048, 2, 1024},
    {2049, 2, 1024},
    {5000, 3, 1040},
    {100003, 7, 4096},
    {431080, 2, 131072},
    {431080, 8, 131072},
    {1048576, 1, 1048576},
    {1048577, 1, 1048576},
    {61100840, 5, 131072},
    {UINT64_C(1) << 32, 64, 1048576},
    {(UINT64_C(1) << 32) + 1, 8, 131072},
    {(UINT64_C(1) << 32) - 1, 3, 1024},
    {UINT64_C(1) << 40, 64, 1048576},
    {UINT64_C(1) << 40, 1, 1048576},
};

/* Chunk k of the lane starts where `begin` says and is found by its range, and by nothing near it. */
static void check_chunk(const struct ps_shard *s, uint32_t lane, uint32_t k, uint64_t begin)
{
    struct ps_range r = ps_shard_chunk(s, lane, k);
    assert_quick(r.begin == begin);
    assert_quick(r.begin % PS_SHARD_ALIGN == 0);
    assert_quick(r.count >= 1);
    assert_quick(r.count <= s->chunk_floats);
    assert_quick(ps_shard_find(s, lane, ps_shard_whole(s), r) == k);
    const struct ps_range near[] = {{r.begin + 1, r.count},
                                    {r.begin - 1, r.count},
                                    {r.begin, r.count + 1},
                                    {r.begin, r.count - 1},
                                    {r.begin + 16, r.count - 16},
                                    {r.begin, r.count + (UINT64_C(1) << 32)},
                                    {r.begin + (UINT64_C(1) << 48), r.count}};
    for (size_t i = 0; i < ROWS(near); i++)
        assert_quick(ps_shard_find(s, lane, ps_shard_whole(s), near[i]) == -1);
}

/* Every chunk of small cuts; of large ones the first, the last and every so manyth. */
static void check_lane(const struct ps_shard *s, uint32_t lane, struct ps_range slice)
{
    uint32_t n = ps_shard_n_chunks(s, lane), stride = n > 500 ? n / 500 : 1;
    uint64_t full = n > 0 ? ps_shard_chunk(s, lane, 0).count : 0;

    ck_assert_uint_eq(n == 0, slice.count == 0);
    if (n == 0)
        return;
    for (uint32_t k = 0; k < n; k += stride)
        check_chunk(s, lane, k, slice.begin + k * full);
    for (uint32_t k = 0; k + 1 < n; k += stride)
        ck_assert_uint_eq(ps_shard_chunk(s, lane, k).count, full);
    struct ps_range last = ps_shard_chunk(s, lane, n - 1);
    check_chunk(s, lane, n - 1, slice.begin + (n - 1) * full);
    ck_assert_uint_le(last.count, full);
    ck_assert_uint_eq(last.begin + last.count, slice.begin + slice.count);
    for (uint32_t other = 0; other < s->n_lanes; other++)
        if (other != lane)
            ck_assert_int_eq(ps_shard_find(s, other, ps_shard_whole(s), last), -1);
}

START_TEST(slices_and_chunks_partition_the_vector)
{
    const struct ps_shard *s = &shards[_i];
    uint64_t end = 0, longest = 0, shortest = UINT64_MAX;
    uint32_t used = 0;

    ck_assert(ps_shard_valid(s));
    for (uint32_t lane = 0; lane < s->n_lanes; lane++) {
        struct ps_range slice = ps_shard_slice(s, lane);
        check_lane(s, lane, slice);
        if (slice.count == 0)
            continue;
        ck_assert_uint_eq(lane, used); /* none that holds nothing comes between */
        longest = slice.count > longest ? slice.count : longest;
        shortest = slice.count < shortest ? slice.count : shortest;
        ck_assert_uint_eq(slice.begin, end);
        ck_assert_uint_eq(slice.begin % PS_SHARD_ALIGN, 0);
        end += slice.count;
        used++;
    }
    ck_assert_uint_eq(end, s->n_floats);
    ck_assert_uint_eq(ps_shard_lanes_met(s, ps_shard_whole(s)), used);
    ck_assert_uint_le(longest - shortest, 2 * PS_SHARD_ALIGN); /* no lane is the slow one */
    ck_assert(used == 1 || shortest + 2 * PS_SHARD_ALIGN >= s->chunk_floats / PS_SHARD_LEAST);
    ck_assert(used == s->n_lanes || s->n_floats / (used + 1) < s->chunk_floats / PS_SHARD_LEAST);
}
END_TEST

START_TEST(empty_lane_has_no_chunks_and_finds_none)
{
    const struct ps_shard s = {16, 4, 1024};
    uint32_t empty = 0;
    for (uint32_t lane = 0; lane < s.n_lanes; lane++)
        if (ps_shard_slice(&s, lane).count == 0) {
            empty++;
            ck_assert_uint_eq(ps_shard_n_chunks(&s, lane), 0);
            ck_assert_int_eq(ps_shard_find(&s, lane, ps_shard_whole(&s), (struct ps_range){0, 16}), -1);
            ck_assert_int_eq(ps_shard_find(&s, lane, ps_shard_whole(&s), (struct ps_range){16, 1}), -1);
        }
    ck_assert_uint_eq(empty, 3);
}
END_TEST

START_TEST(find_takes_any_range_a_peer_may_name)
{
    struct dice dice = {4};
    const struct ps_shard *s = &shards[_i];
    for (int i = 0; i < 3000; i++) {
        unsigned shift = (unsigned)dice_below(&dice, 64);
        struct ps_range r = {dice_bits(&dice) >> shift, dice_bits(&dice) >> dice_below(&dice, 64)};
        uint32_t lane = (uint32_t)dice_below(&dice, s->n_lanes);
        int64_t k = ps_shard_find(s, lane, ps_shard_whole(s), r);
        if (k < 0)
            continue;
        struct ps_range chunk = ps_shard_chunk(s, lane, (uint32_t)k);
        ck_assert(chunk.begin == r.begin && chunk.count == r.count);
    }
}
END_TEST

static const struct ps_shard impossible[] = {
    {0, 1, 1024},
    {(UINT64_C(1) << 40) + 1, 1, 1048576},
    {100, 0, 1024},
    {100, PS_MAX_LANES + 1, 1024},
    {100, 1, 0},
    {100, 1, PS_MIN_CHUNK - 16},
    {100, 1, PS_MAX_CHUNK + 16},
    {100, 1, 1025},
};

START_TEST(impossible_cuts_are_not_valid)
{
    ck_assert(!ps_shard_valid(&impossible[_i]));
}
END_TEST

/* The pieces of a scope, over all lanes, are the scope. */
static void check_scope(const struct ps_shard *s, struct ps_range scope)
{
    uint64_t end = scope.begin;
    uint32_t met = 0;
    for (uint32_t lane = 0; lane < s->n_lanes; lane++) {
        uint32_t first, n = ps_shard_pieces(s, lane, scope, &first);
        met += n > 0;
        for (uint32_t k = first; k < first + n; k++) {
            struct ps_range piece = ps_shard_piece(s, lane, scope, k), chunk = ps_shard_chunk(s, lane, k);
            assert_quick(piece.begin == end);
            assert_quick(piece.count >= 1);
            assert_quick(piece.begin >= chunk.begin &&
                         piece.begin + piece.count <= chunk.begin + chunk.count);
            assert_quick(ps_shard_find(s, lane, scope, piece) == k);
            assert_quick(ps_shard_find(s, lane, scope, (struct ps_range){piece.begin, piece.count + 1}) ==
                         -1);
            assert_quick(ps_shard_find(s, lane, scope, (struct ps_range){piece.begin + 1, piece.count}) ==
                         -1);
            if (chunk.count != piece.count)
                assert_quick(ps_shard_find(s, lane, scope, chunk) == -1);
            end += piece.count;
        }
    }
    assert_quick(end == scope.begin + scope.count);
    assert_quick(met == ps_shard_lanes_met(s, scope));
}

START_TEST(pieces_partition_every_scope)
{
    static const struct ps_shard small[] = {{1, 1, 1024},     {40, 3, 1024},     {5000, 2, 1024},
                                            {10007, 4, 1024}, {100000, 7, 2048}, {1 << 20, 2, 131072}};
    struct dice dice = {77};
    for (size_t i = 0; i < ROWS(small); i++) {
        check_scope(&small[i], ps_shard_whole(&small[i]));
        for (int round = 0; round < 2000; round++) {
            uint64_t begin = dice_below(&dice, small[i].n_floats);
            check_scope(&small[i],
                        (struct ps_range){begin, 1 + dice_below(&dice, small[i].n_floats - begin)});
        }
    }
}
END_TEST

START_TEST(ranges_meet_where_both_are)
{
    struct ps_range r = ps_range_intersect((struct ps_range){10, 5}, (struct ps_range){12, 10});
    ck_assert_uint_eq(r.begin, 12);
    ck_assert_uint_eq(r.count, 3);
    ck_assert_uint_eq(ps_range_intersect((struct ps_range){10, 5}, (struct ps_range){15, 5}).count, 0);
    ck_assert_uint_eq(ps_range_intersect((struct ps_range){20, 5}, (struct ps_range){1, 5}).count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-shard");
    TCase *tc = tcase_create("shard");
    tcase_add_loop_test(tc, slices_and_chunks_partition_the_vector, 0, ROWS(shards));
    tcase_add_loop_test(tc, find_takes_any_range_a_peer_may_name, 0, ROWS(shards));
    tcase_add_test(tc, empty_lane_has_no_chunks_and_finds_none);
    tcase_add_loop_test(tc, impossible_cuts_are_not_valid, 0, ROWS(impossible));
    tcase_add_test(tc, pieces_partition_every_scope);
    tcase_add_test(tc, ranges_meet_where_both_are);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
