/* nccl_faults.c: what the stand-in of NCCL promises: who breaks a rule of NCCL, or relies on what it leaves
 * undefined, does not get away with it. Two ranks in one process; the orders are in tests/cuda/meson.build.
 */
#include <check.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/support/unit.h"

enum { N = 100, RANKS = 2 };

static ncclComm_t comms[RANKS];
static cudaStream_t streams[RANKS];
static float *device[RANKS], *pinned;

static void setup(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t now;
    ncclUniqueId id;
    config.blocking = 0;
    ck_assert_int_eq(ncclGetUniqueId(&id), ncclSuccess);
    ck_assert_int_eq(cudaHostAlloc((void **)&pinned, N * sizeof *pinned, 0), cudaSuccess);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(ncclCommInitRankConfig(&comms[r], RANKS, id, r, &config), ncclInProgress);
        ck_assert_int_eq(ncclCommGetAsyncError(comms[r], &now), ncclSuccess);
        ck_assert_int_eq(now, r == RANKS - 1 ? ncclSuccess : ncclInProgress);
        ck_assert_int_eq(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking), cudaSuccess);
        ck_assert_int_eq(cudaMalloc((void **)&device[r], N * sizeof *pinned), cudaSuccess);
    }
}

static void fill(int rank, float value)
{
    for (int i = 0; i < N; i++)
        pinned[i] = value;
    ck_assert_int_eq(
        cudaMemcpyAsync(device[rank], pinned, N * sizeof *pinned, cudaMemcpyHostToDevice, streams[rank]),
        cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(streams[rank]), cudaSuccess);
}

static ncclResult_t sum(int rank, size_t n)
{
    return ncclAllReduce(device[rank], device[rank], n, ncclFloat32, ncclSum, comms[rank], streams[rank]);
}

/* Polls the ranks in turn, as two processes would, until both have ended. */
static void finish(void)
{
    cudaEvent_t ends[RANKS];
    int left = RANKS;
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(cudaEventCreateWithFlags(&ends[r], cudaEventDisableTiming), cudaSuccess);
        ck_assert_int_eq(cudaEventRecord(ends[r], streams[r]), cudaSuccess);
    }
    for (double end_s = unit_now_s() + UNIT_HANG_S; left > 0;) {
        ck_assert(unit_now_s() < end_s);
        left = RANKS;
        for (int r = 0; r < RANKS; r++)
            left -= cudaEventQuery(ends[r]) == cudaSuccess;
    }
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(cudaEventDestroy(ends[r]), cudaSuccess);
}

static void read_back(int rank)
{
    ck_assert_int_eq(
        cudaMemcpyAsync(pinned, device[rank], N * sizeof *pinned, cudaMemcpyDeviceToHost, streams[rank]),
        cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(streams[rank]), cudaSuccess);
}

START_TEST(keeping_to_the_rules_works)
{
    fill(0, 1);
    fill(1, 2);
    for (int k = 0; k < 3; k++) {
        for (int r = 0; r < RANKS; r++)
            ck_assert_int_eq(sum(r, N), ncclSuccess);
        finish();
    }
    for (int r = 0; r < RANKS; r++) {
        read_back(r);
        ck_assert(pinned[0] == 12 && pinned[N - 1] == 12);
        ck_assert_int_eq(ncclCommFinalize(comms[r]), ncclSuccess);
        ck_assert_int_eq(ncclCommDestroy(comms[r]), ncclSuccess);
    }
}
END_TEST

/* It waits, as long as it is asked. After an abort it has ended, and its values are undefined. */
START_TEST(a_rank_that_does_not_come_is_waited_for)
{
    cudaEvent_t end;
    fill(0, 1);
    ck_assert_int_eq(sum(0, N), ncclSuccess);
    ck_assert_int_eq(cudaEventCreateWithFlags(&end, cudaEventDisableTiming), cudaSuccess);
    ck_assert_int_eq(cudaEventRecord(end, streams[0]), cudaSuccess);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(cudaEventQuery(end), cudaErrorNotReady);
    ck_assert_int_eq(ncclCommAbort(comms[0]), ncclSuccess);
    read_back(0);
    ck_assert(pinned[0] != pinned[0]);
    ck_assert_int_eq(cudaEventDestroy(end), cudaSuccess);
}
END_TEST

/* SIGABRT */
START_TEST(ranks_sum_different_numbers_of_values)
{
    sum(0, N);
    sum(1, N - 1);
    finish();
}
END_TEST

START_TEST(ranks_make_different_calls)
{
    sum(0, N);
    ncclBroadcast(device[1], device[1], N, ncclFloat32, 0, comms[1], streams[1]);
    finish();
}
END_TEST

START_TEST(ranks_name_different_roots)
{
    for (int r = 0; r < RANKS; r++)
        ncclReduce(device[r], device[r], N, ncclFloat32, ncclSum, r, comms[r], streams[r]);
    finish();
}
END_TEST

START_TEST(memory_of_the_host_is_summed)
{
    ncclAllReduce(pinned, pinned, N, ncclFloat32, ncclSum, comms[0], streams[0]);
}
END_TEST

START_TEST(a_call_is_longer_than_its_block)
{
    sum(0, N + 1);
}
END_TEST

START_TEST(a_destroyed_communicator_is_used)
{
    ncclCommDestroy(comms[0]);
    sum(0, N);
}
END_TEST

START_TEST(an_aborted_communicator_is_used)
{
    ncclResult_t now;
    ncclCommAbort(comms[0]);
    ncclCommGetAsyncError(comms[0], &now);
}
END_TEST

START_TEST(a_communicator_is_destroyed_during_a_call)
{
    sum(0, N);
    ncclCommDestroy(comms[0]);
}
END_TEST

START_TEST(a_call_begins_before_the_last_has_ended)
{
    sum(0, N);
    sum(0, N);
}
END_TEST

START_TEST(a_communicator_is_used_before_all_are_there)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    ncclGetUniqueId(&id);
    ncclCommInitRankConfig(&comms[0], RANKS, id, 0, &config);
    ncclAllReduce(device[0], device[0], N, ncclFloat32, ncclSum, comms[0], streams[0]);
}
END_TEST

START_TEST(a_communicator_may_block)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclCommInitRankConfig(&comms[0], RANKS, id, 0, &config);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda-nccl-faults");
    TCase *t = tcase_create("rules of NCCL");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, keeping_to_the_rules_works);
    tcase_add_test(t, a_rank_that_does_not_come_is_waited_for);
    tcase_add_test_raise_signal(t, ranks_sum_different_numbers_of_values, SIGABRT);
    tcase_add_test_raise_signal(t, ranks_make_different_calls, SIGABRT);
    tcase_add_test_raise_signal(t, ranks_name_different_roots, SIGABRT);
    tcase_add_test_raise_signal(t, memory_of_the_host_is_summed, SIGABRT);
    tcase_add_test_raise_signal(t, a_call_is_longer_than_its_block, SIGABRT);
    tcase_add_test_raise_signal(t, a_destroyed_communicator_is_used, SIGABRT);
    tcase_add_test_raise_signal(t, an_aborted_communicator_is_used, SIGABRT);
    tcase_add_test_raise_signal(t, a_communicator_is_destroyed_during_a_call, SIGABRT);
    tcase_add_test_raise_signal(t, a_call_begins_before_the_last_has_ended, SIGABRT);
    tcase_add_test_raise_signal(t, a_communicator_is_used_before_all_are_there, SIGABRT);
    tcase_add_test_raise_signal(t, a_communicator_may_block, SIGABRT);
    suite_add_tcase(s, t);
    return unit_run(s);
}
