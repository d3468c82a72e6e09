// standin.h: CUDA's runtime, cuBLASLt, cuDNN and NCCL on the CPU, as far as psd calls them, so that the
// modules which nvcc built run where there is no GPU. The parts, as they know each other.
//
// It is meant to be harder to please than a GPU:
// - Memory. A pointer of the device lies in pages that nobody may touch; its numbers lie elsewhere. A block
// ends
//   at such a page too, starts as NaN, and is never given out again once it was freed.
// - Order. Work in a stream runs as late as CUDA allows (STANDIN_ORDER=lazy, the default: only what a wait
//   needs), at once (eager), in any order it allows (random:SEED), or late but in one stream (hasty:STREAM,
//   counted from 0 as they are made). It runs in the thread that waits, so a run with one thread repeats.
// - Threads of a block that meet at a barrier go one warp at a time, as far as it gets, in random order;
// shared
//   memory starts as NaN for each block.
//
// What breaks a rule ends the process with a sentence. What this cannot show is said in docs/GPU.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include <cuda_runtime_api.h>

namespace standin
{

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// streams.cpp. Every call of CUDA holds it: several threads may call. Work runs in the thread that forces it.
struct Guard {
    Guard();
    ~Guard();
};

// memory.cpp. Whether p is an address of the device, live or not.
bool is_device(const void *p);
// The device that live memory of p is on; -1: p is not live memory of a device.
int device_of(const void *p);
// Where the numbers lie of [p, p + bytes), which is device memory or pinned; else `who` did
// something illegal. NULL stays NULL.
void *numbers_at(const void *p, size_t bytes, const char *who);
template <class T> T *numbers(T *p, const char *who, size_t count = 1)
{
    return static_cast<T *>(numbers_at(p, count * sizeof(T), who));
}

// streams.cpp. Puts work into a stream, or into the graph that it captures. `what` outlives the process.
cudaError_t put(cudaStream_t stream, const char *what, std::function<void()> work);
// The same for work that waits for other processes: it runs when may_run says so, which is asked, maybe
// often, when all before it is done. Not in a graph.
cudaError_t put_when(cudaStream_t stream, const char *what, std::function<bool()> may_run,
                     std::function<void()> work);
bool is_capturing();
// The calling thread's device.
int device();
// Of the calling thread, as cudaPeekAtLastError tells it; returns it.
cudaError_t error(cudaError_t e);
unsigned random_below(unsigned n);
// Whether STANDIN_FAULT names it: a call that does nothing, so that tests show that its loss is seen, or that
// fails.
bool has_fault(const char *name);

// kernels.cpp: the kernels of kernels.cuh, compiled for the host.
struct Kernel {
    const char *name;
    bool meets; // its threads wait for each other
    // Takes the arguments as nvcc's code passes them; pointers among them become those of the numbers.
    std::function<void()> (*bind)(void **arguments);
};
const Kernel *kernel_named(const char *name); // NULL: there is none

// What the process has done so far: bytes that were copied between the host and devices, launches, and the
// passes over vectors that client/memory/cuda has made in them. Tests find standin_counts by its name.
struct Counts {
    uint64_t up_bytes, down_bytes, launches, passes;
};
Counts &counts();

// blocks.cpp
void run_kernel(const Kernel *k, dim3 grid, dim3 block, const std::function<void()> &thread);

} // namespace standin
