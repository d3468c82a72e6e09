/* faults.c: what the stand-in promises: who breaks a rule of CUDA does not get away with it. Its orders are
 * in tests/cuda/meson.build, which runs this program under each. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"

/* A test that ends with that signal, or that the address sanitizer ends first. */
#if defined __SANITIZE_ADDRESS__
#define ADD_OUTLAW(t, test, signal) tcase_add_exit_test(t, test, 1)
#else
#define ADD_OUTLAW(t, test, signal) tcase_add_test_raise_signal(t, test, signal)
#endif

enum { N = 1000 };

static cudaStream_t stream, other;
static float *device, *pinned;
static const char add_kernel; /* its address stands for the kernel, as a stub's does in a program */

/* What nvcc's code would call. */
void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, void *, void *, void *,
                            void *, int *);

static void setup(void)
{
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaMalloc((void **)&device, N * sizeof *device), cudaSuccess);
    ck_assert_int_eq(cudaHostAlloc((void **)&pinned, N * sizeof *pinned, 0), cudaSuccess);
    __cudaRegisterFunction(NULL, &add_kernel, NULL, "k_add", 0, NULL, NULL, NULL, NULL, NULL);
}

/* out = a + b */
static cudaError_t add(uint64_t n, const float *a, const float *b, float *out)
{
    uint32_t has_relu = 0;
    void *arguments[] = {&n, &has_relu, &a, &b, &out};
    return cudaLaunchKernel(&add_kernel, (dim3){4, 1, 1}, (dim3){256, 1, 1}, arguments, 0, stream);
}

static void send(size_t n)
{
    ck_assert_int_eq(cudaMemcpyAsync(device, pinned, n * sizeof *pinned, cudaMemcpyHostToDevice, stream),
                     cudaSuccess);
}

static void finish(void)
{
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
}

START_TEST(keeping_to_the_rules_works)
{
    cudaEvent_t sent;
    for (int i = 0; i < N; i++)
        pinned[i] = (float)i;
    send(N);
    ck_assert_int_eq(add(N, device, device, device), cudaSuccess);
    ck_assert_int_eq(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), cudaSuccess);
    ck_assert_int_eq(cudaEventRecord(sent, stream), cudaSuccess);
    ck_assert_int_eq(cudaStreamWaitEvent(other, sent, 0), cudaSuccess);
    ck_assert_int_eq(cudaMemcpyAsync(pinned, device, N * sizeof *pinned, cudaMemcpyDeviceToHost, other),
                     cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(other), cudaSuccess);
    for (int i = 0; i < N; i++)
        ck_assert(pinned[i] == 2 * (float)i);
    ck_assert_int_eq(cudaEventDestroy(sent), cudaSuccess);
    ck_assert_int_eq(cudaFree(device), cudaSuccess);
}
END_TEST

/* SIGSEGV */
START_TEST(the_host_reads_memory_of_the_device)
{
    volatile float seen = device[0];
    (void)seen;
}
END_TEST

START_TEST(work_finds_its_memory_freed)
{
    ck_assert_int_eq(add(N, device, device, device), cudaSuccess);
    ck_assert_int_eq(cudaFree(device), cudaSuccess);
    finish();
}
END_TEST

/* SIGABRT */
START_TEST(a_copy_takes_pageable_memory)
{
    static float pageable[N];
    cudaMemcpyAsync(device, pageable, sizeof pageable, cudaMemcpyHostToDevice, stream);
}
END_TEST

START_TEST(a_kernel_gets_memory_of_the_host)
{
    static float pageable[N];
    add(N, device, pageable, device);
}
END_TEST

START_TEST(freed_memory_is_used)
{
    ck_assert_int_eq(cudaFree(device), cudaSuccess);
    send(N);
}
END_TEST

START_TEST(memory_is_freed_twice)
{
    ck_assert_int_eq(cudaFree(device), cudaSuccess);
    cudaFree(device);
}
END_TEST

START_TEST(a_copy_is_longer_than_its_block)
{
    cudaMemcpyAsync(device, pinned, N * sizeof *pinned + 4, cudaMemcpyHostToDevice, stream);
}
END_TEST

START_TEST(a_kernel_writes_past_its_block)
{
    float *two;
    ck_assert_int_eq(cudaMalloc((void **)&two, 2 * N * sizeof *two), cudaSuccess);
    ck_assert_int_eq(add(N + 1, two, two, device), cudaSuccess);
    finish();
    cudaFree(device);
}
END_TEST

START_TEST(a_copy_goes_the_other_way)
{
    cudaMemcpyAsync(device, pinned, N * sizeof *pinned, cudaMemcpyDeviceToHost, stream);
}
END_TEST

START_TEST(work_goes_to_the_default_stream)
{
    cudaMemsetAsync(device, 0, N * sizeof *device, NULL);
}
END_TEST

START_TEST(a_kernel_gets_memory_of_another_device)
{
    float *far;
    setenv("STANDIN_DEVICES", "2", 1);
    ck_assert_int_eq(cudaSetDevice(1), cudaSuccess);
    ck_assert_int_eq(cudaMalloc((void **)&far, N * sizeof *far), cudaSuccess);
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    add(N, far, device, device);
}
END_TEST

START_TEST(work_goes_to_a_stream_of_another_device)
{
    setenv("STANDIN_DEVICES", "2", 1);
    ck_assert_int_eq(cudaSetDevice(1), cudaSuccess);
    send(N);
}
END_TEST

START_TEST(registered_memory_is_copied_to_after_its_end)
{
    static float of_the_program[N];
    ck_assert_int_eq(cudaHostRegister(of_the_program, sizeof of_the_program, 0), cudaSuccess);
    ck_assert_int_eq(cudaHostUnregister(of_the_program), cudaSuccess);
    cudaMemcpyAsync(of_the_program, device, sizeof of_the_program, cudaMemcpyDeviceToHost, stream);
}
END_TEST

/* No signal: an error, or numbers that nobody has written. */
START_TEST(a_launch_has_too_many_threads)
{
    uint64_t n = N;
    uint32_t has_relu = 0;
    void *arguments[] = {&n, &has_relu, &device, &device, &device};
    ck_assert_int_eq(cudaLaunchKernel(&add_kernel, (dim3){1, 1, 1}, (dim3){1025, 1, 1}, arguments, 0, stream),
                     cudaErrorInvalidConfiguration);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
}
END_TEST

START_TEST(fresh_memory_is_nan)
{
    ck_assert_int_eq(cudaMemcpyAsync(pinned, device, N * sizeof *pinned, cudaMemcpyDeviceToHost, stream),
                     cudaSuccess);
    finish();
    for (int i = 0; i < N; i++)
        ck_assert(pinned[i] != pinned[i]);
}
END_TEST

/* Lazily nothing has come down yet. */
START_TEST(the_host_does_not_wait)
{
    pinned[0] = 1;
    send(1);
    pinned[0] = 2; /* before the copy has read it */
    ck_assert_int_eq(cudaMemcpyAsync(pinned + 1, device, sizeof *pinned, cudaMemcpyDeviceToHost, stream),
                     cudaSuccess);
    ck_assert(pinned[1] != pinned[1]);
    finish();
    ck_assert(pinned[1] == 2);
}
END_TEST

/* Memory of the program, as long as it is registered; and what a pointer is. */
START_TEST(registered_memory_is_copied_to)
{
    static float of_the_program[N];
    struct cudaPointerAttributes a;
    pinned[3] = 7;
    send(N);
    ck_assert_int_eq(cudaHostRegister(of_the_program, sizeof of_the_program, 0), cudaSuccess);
    ck_assert_int_eq(cudaHostRegister(of_the_program + 8, 64, 0), cudaErrorInvalidValue);
    ck_assert_int_eq(cudaPointerGetAttributes(&a, of_the_program + 3), cudaSuccess);
    ck_assert_int_eq(a.type, cudaMemoryTypeHost);
    ck_assert_int_eq(cudaPointerGetAttributes(&a, device + 3), cudaSuccess);
    ck_assert_int_eq(a.type, cudaMemoryTypeDevice);
    ck_assert_int_eq(
        cudaMemcpyAsync(of_the_program, device, sizeof of_the_program, cudaMemcpyDeviceToHost, stream),
        cudaSuccess);
    finish();
    ck_assert(of_the_program[3] == 7);
    ck_assert_int_eq(cudaHostUnregister(of_the_program), cudaSuccess);
    ck_assert_int_eq(cudaPointerGetAttributes(&a, of_the_program + 3), cudaSuccess);
    ck_assert_int_eq(a.type, cudaMemoryTypeUnregistered);
}
END_TEST

/* Who polls sees the work done at last, and not at once. */
START_TEST(an_event_is_asked_until_it_has_come)
{
    cudaEvent_t sent;
    cudaError_t e;
    int asked = 0;
    pinned[0] = 1;
    send(1);
    ck_assert_int_eq(cudaMemcpyAsync(pinned + 1, device, sizeof *pinned, cudaMemcpyDeviceToHost, stream),
                     cudaSuccess);
    ck_assert_int_eq(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), cudaSuccess);
    ck_assert_int_eq(cudaEventRecord(sent, stream), cudaSuccess);
    for (; (e = cudaEventQuery(sent)) == cudaErrorNotReady; asked++)
        ck_assert_int_lt(asked, 1000);
    ck_assert_int_eq(e, cudaSuccess);
    ck_assert(pinned[1] == 1);
    if (getenv("STANDIN_ORDER") != NULL && strcmp(getenv("STANDIN_ORDER"), "lazy") == 0)
        ck_assert_int_eq(asked, 3);
    ck_assert_int_eq(cudaEventDestroy(sent), cudaSuccess);
}
END_TEST

static void *copy_many(void *arg)
{
    cudaStream_t own;
    float *at = arg;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    for (int i = 0; i < N; i++)
        cudaMemcpyAsync(at, device, sizeof *at, cudaMemcpyDeviceToHost, own);
    cudaStreamSynchronize(own);
    return cudaStreamDestroy(own) == cudaSuccess ? arg : NULL;
}

START_TEST(two_threads_may_call)
{
    pthread_t threads[2];
    void *done;
    pinned[0] = 3;
    send(1);
    finish();
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_many, pinned + 1 + i), 0);
    for (int i = 0; i < 2; i++)
        ck_assert(pthread_join(threads[i], &done) == 0 && done != NULL);
    ck_assert(pinned[1] == 3 && pinned[2] == 3);
}
END_TEST

START_TEST(memory_is_asked_for_while_a_graph_is_captured)
{
    cudaGraph_t graph;
    float *more;
    ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ck_assert_int_eq(cudaMalloc((void **)&more, 4), cudaErrorStreamCaptureUnsupported);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
}
END_TEST

START_TEST(somebody_waits_while_a_graph_is_captured)
{
    cudaGraph_t graph;
    ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    send(N);
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
}
END_TEST

START_TEST(a_captured_branch_is_not_joined)
{
    cudaGraph_t graph;
    cudaEvent_t fork;
    ck_assert_int_eq(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), cudaSuccess);
    ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ck_assert_int_eq(cudaEventRecord(fork, stream), cudaSuccess);
    ck_assert_int_eq(cudaStreamWaitEvent(other, fork, 0), cudaSuccess);
    ck_assert_int_eq(cudaMemsetAsync(device, 0, 4, other), cudaSuccess);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    ck_assert_int_eq(cudaEventDestroy(fork), cudaSuccess);
}
END_TEST

/* A graph runs each time that it is launched, on what is there then. */
START_TEST(a_graph_runs_again)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int i = 0; i < N; i++)
        pinned[i] = 1;
    send(N);
    ck_assert_int_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ck_assert_int_eq(add(N, device, device, device), cudaSuccess);
    ck_assert_int_eq(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ck_assert_int_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int k = 0; k < 3; k++)
        ck_assert_int_eq(cudaGraphLaunch(exec, stream), cudaSuccess);
    ck_assert_int_eq(cudaMemcpyAsync(pinned, device, N * sizeof *pinned, cudaMemcpyDeviceToHost, stream),
                     cudaSuccess);
    finish();
    ck_assert(pinned[0] == 8 && pinned[N - 1] == 8);
    ck_assert_int_eq(cudaGraphExecDestroy(exec), cudaSuccess);
    ck_assert_int_eq(cudaGraphDestroy(graph), cudaSuccess);
}
END_TEST

int main(void)
{
    const char *order = getenv("STANDIN_ORDER");
    Suite *s = suite_create("cuda-faults");
    TCase *t = tcase_create("rules of CUDA");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, keeping_to_the_rules_works);
    ADD_OUTLAW(t, the_host_reads_memory_of_the_device, SIGSEGV);
    if (order != NULL && strcmp(order, "lazy") == 0) { /* at once or by chance it may have run by then */
        ADD_OUTLAW(t, work_finds_its_memory_freed, SIGSEGV);
        tcase_add_test(t, the_host_does_not_wait);
    }
    tcase_add_test_raise_signal(t, a_copy_takes_pageable_memory, SIGABRT);
    tcase_add_test_raise_signal(t, a_kernel_gets_memory_of_the_host, SIGABRT);
    tcase_add_test_raise_signal(t, freed_memory_is_used, SIGABRT);
    tcase_add_test_raise_signal(t, memory_is_freed_twice, SIGABRT);
    tcase_add_test_raise_signal(t, a_copy_is_longer_than_its_block, SIGABRT);
    ADD_OUTLAW(t, a_kernel_writes_past_its_block, SIGABRT);
    tcase_add_test_raise_signal(t, a_copy_goes_the_other_way, SIGABRT);
    tcase_add_test_raise_signal(t, work_goes_to_the_default_stream, SIGABRT);
    tcase_add_test_raise_signal(t, a_kernel_gets_memory_of_another_device, SIGABRT);
    tcase_add_test_raise_signal(t, work_goes_to_a_stream_of_another_device, SIGABRT);
    tcase_add_test_raise_signal(t, registered_memory_is_copied_to_after_its_end, SIGABRT);
    tcase_add_test(t, registered_memory_is_copied_to);
    tcase_add_test(t, an_event_is_asked_until_it_has_come);
    tcase_add_test(t, two_threads_may_call);
    tcase_add_test(t, a_launch_has_too_many_threads);
    tcase_add_test(t, fresh_memory_is_nan);
    tcase_add_test(t, memory_is_asked_for_while_a_graph_is_captured);
    tcase_add_test(t, somebody_waits_while_a_graph_is_captured);
    tcase_add_test(t, a_captured_branch_is_not_joined);
    tcase_add_test(t, a_graph_runs_again);
    suite_add_tcase(s, t);
    return unit_run(s);
}
