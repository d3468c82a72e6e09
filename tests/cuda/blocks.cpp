// blocks.cpp: runs a kernel's threads. Those that meet are fibers of one thread; the others are calls.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <unordered_map>
#include <vector>

#include "tests/cuda/standin.h"
#include "tests/cuda/words.h"

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define LEAVE(fake, stack, bytes) __sanitizer_start_switch_fiber(fake, stack, bytes)
#define ARRIVE(fake)              __sanitizer_finish_switch_fiber(fake, nullptr, nullptr)
#else
#define LEAVE(fake, stack, bytes) (void)0
#define ARRIVE(fake)              (void)0
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// Saves the registers that a call keeps and the stack's top in *save, and goes on where `to` was saved.
extern "C" void standin_switch(void **save, void *to);
asm(R"(
.text
.globl standin_switch
.hidden standin_switch
.type standin_switch,@function
standin_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size standin_switch,.-standin_switch
)");

extern char __start_standin_shared[], __stop_standin_shared[];

namespace standin
{

constexpr size_t STACK = 128 * 1024, WARP = 32;

struct Fiber {
    std::vector<char> stack;
    void *top;
    void *fake; // AddressSanitizer's
    bool is_done, waits;
};

static std::vector<Fiber> fibers;
static size_t current, n_waiting, n_left;
static void *scheduler;
[[maybe_unused]] static void *scheduler_fake;
static const std::function<void()> *body;
static std::mt19937 shuffler(7);

[[maybe_unused]] static char *stack_bottom; // the scheduler's, as the sanitizer wants it
[[maybe_unused]] static size_t stack_bytes;

static void to_scheduler(bool for_good)
{
    Fiber &f = fibers[current];
    LEAVE(for_good ? nullptr : &f.fake, stack_bottom, stack_bytes);
    standin_switch(&f.top, scheduler);
    ARRIVE(f.fake);
}

static void entry()
{
#if defined __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(
        nullptr, const_cast<const void **>(reinterpret_cast<void **>(&stack_bottom)), &stack_bytes);
#endif
    (*body)();
    fibers[current].is_done = true;
    n_left--;
    to_scheduler(true);
    __builtin_trap();
}

static void resume(size_t t)
{
    current = t;
    threadIdx = {unsigned(t), 0, 0};
    LEAVE(&scheduler_fake, fibers[t].stack.data(), STACK);
    standin_switch(&scheduler, fibers[t].top);
    ARRIVE(scheduler_fake);
}

static void prepare(Fiber &f)
{
    f.stack.resize(STACK);
    f.is_done = f.waits = false;
    f.fake = nullptr;
    auto **top = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(f.stack.data() + STACK) / 16 * 16);
    *--top = nullptr; // where entry would return to
    *--top = reinterpret_cast<void *>(entry);
    for (int registers = 0; registers < 6; registers++)
        *--top = nullptr;
    f.top = top;
}

// Everybody who has not ended waits: on with them.
static bool open_barrier()
{
    if (n_waiting < n_left)
        return false;
    if (n_left < fibers.size())
        fail("a thread of a block ended while others wait at a barrier");
    n_waiting = 0;
    for (Fiber &f : fibers)
        f.waits = false;
    return true;
}

static void run_block(size_t n)
{
    memset(__start_standin_shared, 0xff, size_t(__stop_standin_shared - __start_standin_shared));
    fibers.resize(n);
    for (Fiber &f : fibers)
        prepare(f);
    n_left = n;
    n_waiting = 0;
    std::vector<size_t> warps((n + WARP - 1) / WARP), lanes;
    std::iota(warps.begin(), warps.end(), size_t(0));
    while (n_left > 0) {
        std::shuffle(warps.begin(), warps.end(), shuffler);
        for (size_t w : warps) {
            lanes.resize(std::min(WARP, n - w * WARP));
            std::iota(lanes.begin(), lanes.end(), w * WARP);
            std::shuffle(lanes.begin(), lanes.end(), shuffler);
            for (size_t t : lanes)
                if (!fibers[t].is_done && !fibers[t].waits)
                    resume(t);
        }
        if (n_left > 0)
            open_barrier();
    }
}

void run_kernel(const Kernel *k, dim3 grid, dim3 block, const std::function<void()> &thread)
{
    gridDim = grid;
    blockDim = block;
    body = &thread;
    std::vector<unsigned> blocks(size_t(grid.x) * grid.y);
    std::iota(blocks.begin(), blocks.end(), 0u);
    std::shuffle(blocks.begin(), blocks.end(), shuffler);
    for (unsigned b : blocks) {
        blockIdx = {b % grid.x, b / grid.x, 0};
        if (k->meets) {
            run_block(block.x);
            continue;
        }
        for (unsigned t = 0; t < block.x; t++) {
            threadIdx = {t, 0, 0};
            thread();
        }
    }
}

} // namespace standin

void standin_barrier()
{
    standin::fibers[standin::current].waits = true;
    standin::n_waiting++;
    standin::to_scheduler(false);
}

// ---- what nvcc's own code calls

using namespace standin;

namespace
{

struct Launch {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<Launch> launches;

std::unordered_map<const void *, const Kernel *> &registered()
{
    static std::unordered_map<const void *, const Kernel *> all;
    return all;
}

cudaError_t launch(const void *host, dim3 grid, dim3 block, void **arguments, cudaStream_t stream)
{
    Guard guard;
    const Kernel *k = registered()[host];
    if (k == nullptr)
        return error(cudaErrorInvalidDeviceFunction);
    if (grid.x < 1 || grid.y < 1 || grid.y > 65535 || grid.z != 1 || block.x < 1 || block.x > 1024 ||
        block.y != 1 || block.z != 1)
        return error(cudaErrorInvalidConfiguration);
    auto thread = k->bind(arguments);
    counts().launches++;
    return put(stream, k->name, [=] { run_kernel(k, grid, block, thread); });
}

} // namespace

extern "C" {

void **__cudaRegisterFatBinary(void *)
{
    static void *handle;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **)
{
}

void __cudaUnregisterFatBinary(void **)
{
}

void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, uint3 *, uint3 *,
                            dim3 *, dim3 *, int *)
{
    const Kernel *k = kernel_named(name);
    if (k == nullptr)
        fail("kernel %s has no row in tests/cuda/kernels.cpp", name);
    registered()[host] = k;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    launches.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    Launch l = launches.back();
    launches.pop_back();
    *grid = l.grid;
    *block = l.block;
    *shared = l.shared;
    *static_cast<cudaStream_t *>(stream) = l.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(host));
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t,
                               cudaStream_t stream)
{
    return launch(kernel, grid, block, arguments, stream);
}

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t,
                             cudaStream_t stream)
{
    return launch(host, grid, block, arguments, stream);
}
}
