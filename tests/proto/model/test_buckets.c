/* The equations of Li et al. with numbers computed by hand, and the number of buckets they choose. */
#include "proto/model/buckets.h"

#include "tests/support/unit.h"

#define CLOSE 1e-12

/* 4 members: 2 * 3 alpha = 6 ms and S = 2 ms for each bucket; 3/4 of 4 MB, 21 ns a byte: 63 ms. */
static const struct ps_iteration slow_link = {.update_s = 0.001,
                                              .forward_s = 0.010,
                                              .backward_s = 0.020,
                                              .n_bytes = 4e6,
                                              .alpha_s = 1e-3,
                                              .beta_s = 1e-8,
                                              .gamma_s = 1e-9,
                                              .sync_s = 2e-3,
                                              .members = 4};

START_TEST(a_sum_is_latency_once_a_bucket_and_bytes_once)
{
    struct ps_iteration alone = slow_link;
    alone.members = 1;
    ck_assert_double_eq_tol(ps_comm_s(&slow_link, 1), 0.071, CLOSE);
    ck_assert_double_eq_tol(ps_comm_s(&slow_link, 2), 0.079, CLOSE);
    ck_assert_double_eq_tol(ps_comm_s(&slow_link, 10), 0.143, CLOSE);
    ck_assert_double_eq(ps_comm_s(&alone, 10), 0);
}
END_TEST

/* (1 + 10 + 20 + 71)/K; max(31, 71); max(1 + 10 + 20/L, 63 + 8 L). */
START_TEST(equations_3_to_6)
{
    struct ps_iteration busy = slow_link;
    busy.backward_s = 0.200;
    ck_assert_double_eq_tol(ps_unlimited_s(&slow_link, 1), 0.102, CLOSE);
    ck_assert_double_eq_tol(ps_unlimited_s(&slow_link, 2), 0.051, CLOSE);
    ck_assert_double_eq_tol(ps_pipelined_s(&slow_link), 0.071, CLOSE);
    ck_assert_double_eq_tol(ps_pipelined_s(&busy), 0.211, CLOSE);
    ck_assert_double_eq_tol(ps_segments_s(&slow_link, 1), 0.071, CLOSE);
    ck_assert_double_eq_tol(ps_segments_s(&slow_link, 2), 0.079, CLOSE);
    ck_assert_double_eq_tol(ps_segments_s(&busy, 2), 0.111, CLOSE);
    ck_assert_double_eq_tol(ps_segments_s(&busy, 4), 0.095, CLOSE);
}
END_TEST

/* 11 + max(20 + 79/2, 20/2 + 79) = 100 ms; with 4: 11 + max(20 + 95/4, 5 + 95) = 111 ms. */
START_TEST(buckets_that_leave_during_backward)
{
    ck_assert_double_eq_tol(ps_bucketed_s(&slow_link, 1), 0.102, CLOSE);
    ck_assert_double_eq_tol(ps_bucketed_s(&slow_link, 2), 0.100, CLOSE);
    ck_assert_double_eq_tol(ps_bucketed_s(&slow_link, 4), 0.111, CLOSE);
}
END_TEST

START_TEST(one_bucket_where_communication_is_the_bound)
{
    struct ps_iteration it = slow_link;
    ck_assert_uint_eq(ps_best_buckets(&it, true, 64), 1);
    it.backward_s = 0.0599999; /* compute 70.9999 ms, the sum 71 */
    ck_assert_uint_eq(ps_best_buckets(&it, true, 64), 1);
    it.backward_s = 0.200; /* 211, 111, 87, 95 ms */
    ck_assert_uint_eq(ps_best_buckets(&it, true, 64), 3);
    ck_assert_uint_eq(ps_best_buckets(&it, true, 2), 2);
}
END_TEST

/* Of d-sync: 102, 100, 104.7 ms; with 200 ms of backward 222.94 with 16, 222.71 with 17, 229.1 with 18. */
START_TEST(a_sum_that_is_waited_for_is_cut_where_that_is_shorter)
{
    struct ps_iteration it = slow_link;
    ck_assert_uint_eq(ps_best_buckets(&it, false, 64), 2);
    it.backward_s = 0.200;
    ck_assert_uint_eq(ps_best_buckets(&it, false, 64), 17);
    it.alpha_s = it.sync_s = 0; /* nothing is lost by cutting: as few as are within 0.1 % of the best */
    ck_assert_uint_gt(ps_best_buckets(&it, false, 64), 17);
    it.members = 1;
    ck_assert_uint_eq(ps_best_buckets(&it, false, 64), 1);
}
END_TEST

/* n layers of equal size and time, the last one first. */
static struct ps_profile even(struct ps_ready_point *points, size_t n, uint64_t n_floats, double forward_s,
                              double backward_s)
{
    for (size_t k = 0; k < n; k++)
        points[k] = (struct ps_ready_point){n_floats - n_floats / n * (k + 1),
                                            forward_s + backward_s * (double)(k + 1) / (double)n};
    return (struct ps_profile){points, n, n_floats};
}

START_TEST(a_profile_of_equal_layers_gives_what_the_equation_gives)
{
    struct ps_ready_point points[8];
    struct ps_iteration it = slow_link;
    for (uint32_t l = 1; l <= 8; l *= 2) {
        struct ps_profile p = even(points, 8, 1 << 20, it.forward_s, it.backward_s);
        ck_assert_double_eq_tol(ps_profiled_s(&it, &p, (1 << 20) / l), ps_bucketed_s(&it, l), CLOSE);
    }
}
END_TEST

/* 900 floats are ready after 12 ms, the other 100 after 40 ms: 8 ms a bucket, 63 us a float. In one bucket
 * 1 + 40 + 8 + 63 = 112 ms. In two, [500, 1000) 12 + 8 + 31.5 = 51.5, and the rest 8 + 31.5 later: 92 ms. */
static const struct ps_ready_point late[] = {{100, 0.012}, {0, 0.040}};
static const struct ps_profile large_last = {late, 2, 1000};

START_TEST(a_profile_knows_which_layers_are_large)
{
    ck_assert_double_eq_tol(ps_profiled_s(&slow_link, &large_last, 1000), 0.112, CLOSE);
    ck_assert_double_eq_tol(ps_profiled_s(&slow_link, &large_last, 500), 0.092, CLOSE);
    /* [800, 1000) 32.6, [600, 800) 53.2, [400, 600) 73.8, [200, 400) 94.4, [0, 200) 115 */
    ck_assert_double_eq_tol(ps_profiled_s(&slow_link, &large_last, 200), 0.116, CLOSE);
    /* the last bucket may be short: [900, 1000) 26.3, [0, 900) 40 + 8 + 56.7 */
    ck_assert_double_eq_tol(ps_profiled_s(&slow_link, &large_last, 900), 0.1057, CLOSE);
    ck_assert_uint_eq(ps_best_profiled(&slow_link, &large_last, false, 1, 64), 2);
    ck_assert_uint_eq(ps_best_profiled(&slow_link, &large_last, false, 1000, 64), 1);
    ck_assert_uint_eq(ps_best_profiled(&slow_link, &large_last, true, 1, 64), 1); /* 71 ms against 41 */
}
END_TEST

START_TEST(a_gradient_that_is_ready_at_once_is_one_bucket)
{
    static const struct ps_ready_point at_once = {0, 0.040};
    struct ps_profile p = {&at_once, 1, 1000};
    ck_assert_uint_eq(ps_best_profiled(&slow_link, &p, false, 1, 64), 1);
    ck_assert_uint_eq(ps_best_profiled(&slow_link, &p, true, 1, 64), 1);
}
END_TEST

START_TEST(buckets_are_whole_units)
{
    ck_assert_uint_eq(ps_bucket_floats(1000, 3, 1), 334);
    ck_assert_uint_eq(ps_bucket_floats(1000, 3, 128), 384);
    ck_assert_uint_eq(ps_bucket_floats(1000, 1, 128), 1024);
    ck_assert_uint_eq(ps_bucket_floats(1024, 1, 128), 1024);
    ck_assert_uint_eq(ps_bucket_floats(1, 64, 1), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("buckets");
    TCase *tc = tcase_create("equations");
    tcase_add_test(tc, a_sum_is_latency_once_a_bucket_and_bytes_once);
    tcase_add_test(tc, equations_3_to_6);
    tcase_add_test(tc, buckets_that_leave_during_backward);
    tcase_add_test(tc, one_bucket_where_communication_is_the_bound);
    tcase_add_test(tc, a_sum_that_is_waited_for_is_cut_where_that_is_shorter);
    tcase_add_test(tc, a_profile_of_equal_layers_gives_what_the_equation_gives);
    tcase_add_test(tc, a_profile_knows_which_layers_are_large);
    tcase_add_test(tc, a_gradient_that_is_ready_at_once_is_one_bucket);
    tcase_add_test(tc, buckets_are_whole_units);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
