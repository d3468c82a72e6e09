/* psbench plan --partitions: the model with numbers computed by hand. */
#include "tests/bench/plan/cores.h"
#include "tests/support/unit.h"

#define CLOSE 1e-12

/* A core moves 10 GB/s, the machine 40. */
static const struct cores_costs costs = {
    .fixed_s = 0.010, .image_s = 0.001, .serial = 0.2, .core_bytes_s = 10e9, .bytes_s = 40e9};

static struct cores_step predict(uint32_t cores, uint32_t batch, uint32_t partitions)
{
    struct cores_step s;
    cores_predict(&costs, 1e6, cores, batch, partitions, &s);
    return s;
}

/* (10 + 64) (0.2 + 0.8/8) ms; 20 MB at 40 GB/s, which is less than eight cores have; no sum. */
START_TEST(one_partition_has_the_threads_of_all_cores)
{
    struct cores_step s = predict(8, 64, 1);
    ck_assert_uint_eq(s.threads, 8);
    ck_assert_double_eq_tol(s.compute_s, 0.0222, CLOSE);
    ck_assert_double_eq_tol(s.update_s, 0.0005, CLOSE);
    ck_assert_double_eq_tol(s.sum_s, 0, CLOSE);
    ck_assert_double_eq_tol(s.step_s, 0.0227, CLOSE);
}
END_TEST

/* (10 + 16) (0.2 + 0.8/2) ms; four vectors: 32 MB are read and written by all together, 80 MB updated. */
START_TEST(parts_sum_and_update_a_vector_each)
{
    struct cores_step s = predict(8, 64, 4);
    ck_assert_uint_eq(s.threads, 2);
    ck_assert_double_eq_tol(s.compute_s, 0.0156, CLOSE);
    ck_assert_double_eq_tol(s.sum_s, 0.0008, CLOSE);
    ck_assert_double_eq_tol(s.update_s, 0.0020, CLOSE);
}
END_TEST

/* Two parts on two cores: 8 MB of each at 10 GB/s; the machine would take 16 MB at 40. */
START_TEST(a_core_moves_no_more_than_it_can)
{
    struct cores_step s = predict(2, 64, 2);
    ck_assert_double_eq_tol(s.sum_s, 0.0008, CLOSE);
    ck_assert_double_eq_tol(s.update_s, 0.0020, CLOSE);
    ck_assert_double_eq_tol(s.compute_s, 0.042, CLOSE); /* a thread is not divided */
}
END_TEST

START_TEST(cores_left_over_do_nothing)
{
    ck_assert_uint_eq(predict(9, 64, 4).threads, 2);
    ck_assert_double_eq_tol(predict(9, 64, 4).step_s, predict(8, 64, 4).step_s, CLOSE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("psbench plan --partitions");
    TCase *model = tcase_create("model");
    tcase_add_test(model, one_partition_has_the_threads_of_all_cores);
    tcase_add_test(model, parts_sum_and_update_a_vector_each);
    tcase_add_test(model, a_core_moves_no_more_than_it_can);
    tcase_add_test(model, cores_left_over_do_nothing);
    suite_add_tcase(suite, model);
    return unit_run(suite);
}
