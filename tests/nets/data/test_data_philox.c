/* The generator is the published one, and what is derived from it is even. */
#include <stdint.h>

#include "nets/philox.h"
#include "tests/nets/data/suite.h"

/* Known answers of Random123's kat_vectors file, philox4x32 with 10 rounds. */
static const struct {
    struct cnn_philox_block counter;
    struct cnn_philox_key key;
    struct cnn_philox_block answer;
} known[] = {
    {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     {{0xffffffff, 0xffffffff}},
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     {{0xa4093822, 0x299f31d0}},
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
};

START_TEST(known_answers)
{
    struct cnn_philox_block b = cnn_philox(known[_i].counter, known[_i].key);
    for (int k = 0; k < 4; k++)
        ck_assert_uint_eq(b.v[k], known[_i].answer.v[k]);
}
END_TEST

START_TEST(a_walk_gives_the_blocks_in_order)
{
    struct cnn_philox_key key = cnn_philox_key_of(0x123456789abcdef0);
    struct cnn_random r = cnn_random_start(key, 7, 8, 9);
    for (uint32_t block = 0; block < 3; block++) {
        struct cnn_philox_block b = cnn_philox((struct cnn_philox_block){{block, 7, 8, 9}}, key);
        for (int k = 0; k < 4; k++)
            ck_assert_uint_eq(cnn_random_word(&r), b.v[k]);
    }
}
END_TEST

START_TEST(below_is_even)
{
    enum { N = 7, DRAWS = 70000 };
    struct cnn_random r = cnn_random_start(cnn_philox_key_of(1), 0, 0, 0);
    uint32_t count[N] = {0};
    for (int i = 0; i < DRAWS; i++) {
        uint32_t v = cnn_random_below(&r, N);
        ck_assert_uint_lt(v, N);
        count[v]++;
    }
    for (int v = 0; v < N; v++) { /* deviation 93: five of them */
        ck_assert_uint_gt(count[v], DRAWS / N - 465);
        ck_assert_uint_lt(count[v], DRAWS / N + 465);
    }
    ck_assert_uint_eq(cnn_random_below(&r, 1), 0);
}
END_TEST

START_TEST(floats_stay_in_their_range)
{
    struct cnn_random r = cnn_random_start(cnn_philox_key_of(2), 0, 0, 0);
    float low = 1, high = -1;
    for (int i = 0; i < 10000; i++) {
        float v = cnn_random_float(&r, -0.5f, 0.25f);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    ck_assert_float_ge(low, -0.5f);
    ck_assert_float_lt(low, -0.49f);
    ck_assert_float_lt(high, 0.25f);
    ck_assert_float_gt(high, 0.24f);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("philox");
    tcase_add_loop_test(tc, known_answers, 0, sizeof known / sizeof *known);
    tcase_add_test(tc, a_walk_gives_the_blocks_in_order);
    tcase_add_test(tc, below_is_even);
    tcase_add_test(tc, floats_stay_in_their_range);
    return run_case(tc, "data_philox");
}
