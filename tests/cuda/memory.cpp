// memory.cpp: memory of the device, and pinned memory of the host.
#include <algorithm>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/standin.h"

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   (void)0
#define UNPOISON(p, n) (void)0
#endif

namespace standin
{

constexpr size_t SPACE = size_t(256) << 30, PAGE = 4096, ALIGN = 256;
constexpr unsigned char AFTER_END = 0xa5;

struct Block {
    size_t bytes;        // as asked for
    char *page;          // of its numbers
    size_t mapped_bytes; // whole pages; 0: registered memory, which is the program's
    int device;          // that was the thread's
};

// Pointers lie in [base, base + SPACE); their numbers `distance` away.
static char *base;
static ptrdiff_t distance;
static size_t used, live_bytes, most_bytes = size_t(64) << 30;
static std::map<char *, Block> blocks, pinned;

void fail(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fputs("stand-in: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

static char *reserve()
{
    void *p = mmap(nullptr, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        fail("no address space");
    return static_cast<char *>(p);
}

static void start()
{
    if (base != nullptr)
        return;
    base = reserve();
    distance = reserve() - base;
    if (const char *most = getenv("STANDIN_MEMORY_MIB"))
        most_bytes = size_t(atoi(most)) << 20;
}

bool is_device(const void *p)
{
    return base != nullptr && p >= base && p < base + SPACE;
}

// The block that p lies in; end(): none.
static std::map<char *, Block>::iterator block_of(std::map<char *, Block> &all, const void *p)
{
    auto it = all.upper_bound(static_cast<char *>(const_cast<void *>(p)));
    if (it == all.begin())
        return all.end();
    --it;
    return p < it->first + it->second.bytes ? it : all.end();
}

int device_of(const void *p)
{
    Guard guard;
    auto it = is_device(p) ? block_of(blocks, p) : blocks.end();
    return it != blocks.end() ? it->second.device : -1;
}

void *numbers_at(const void *p, size_t bytes, const char *who)
{
    Guard guard;
    if (p == nullptr)
        return nullptr;
    bool on_device = is_device(p);
    auto &all = on_device ? blocks : pinned;
    auto it = block_of(all, p);
    if (it == all.end())
        fail(on_device ? "%s: %p is no live memory of the device" : "%s: %p is pageable memory of the host",
             who, p);
    char *at = static_cast<char *>(const_cast<void *>(p));
    if (bytes > it->second.bytes - size_t(at - it->first))
        fail("%s: %zu bytes at %p, of which %zu are left in its block", who, bytes, p,
             it->second.bytes - size_t(at - it->first));
    return on_device ? at + distance : at;
}

// Puts 0xff, which is NaN in every type of number, into the block's whole pages. Large blocks, of which most
// is never touched, map one file of it again and again: a page costs nothing until it is written.
static bool spoil(char *page, size_t mapped)
{
    static const size_t FILE_BYTES = size_t(4) << 20;
    static int file = -1;
    if (mapped < FILE_BYTES) {
        memset(page, 0xff, mapped);
        return true;
    }
    if (file < 0) {
        if ((file = memfd_create("standin", MFD_CLOEXEC)) < 0 || ftruncate(file, off_t(FILE_BYTES)) != 0)
            return false;
        void *all = mmap(nullptr, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (all == MAP_FAILED)
            return false;
        memset(all, 0xff, FILE_BYTES);
        munmap(all, FILE_BYTES);
    }
    for (size_t at = 0; at < mapped; at += FILE_BYTES)
        if (mmap(page + at, std::min(FILE_BYTES, mapped - at), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
            return false;
    return true;
}

static void check_end(char *p, const Block &b)
{
    char *end = p + distance + b.bytes, *page_end = b.page + b.mapped_bytes;
    UNPOISON(end, size_t(page_end - end));
    for (; end < page_end; end++)
        if (static_cast<unsigned char>(*end) != AFTER_END)
            fail("a block of %zu bytes was written past its end", b.bytes);
}

} // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    standin::Guard guard;
    start();
    if (is_capturing())
        return error(cudaErrorStreamCaptureUnsupported);
    size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN, mapped = (rounded + PAGE - 1) / PAGE * PAGE;
    if (bytes == 0 || used + mapped + PAGE > SPACE || live_bytes + rounded > most_bytes)
        return error(bytes == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
    char *page = base + used + distance, *p = base + used + (mapped - rounded);
    if (mprotect(page, mapped, PROT_READ | PROT_WRITE) != 0)
        return error(cudaErrorMemoryAllocation);
    if (!spoil(page, mapped))
        return error(cudaErrorMemoryAllocation);
    memset(p + distance + bytes, AFTER_END, rounded - bytes);
    POISON(page, size_t(p + distance - page));
    POISON(p + distance + bytes, rounded - bytes);
    blocks[p] = {bytes, page, mapped, 0};
    cudaGetDevice(&blocks[p].device);
    used += mapped + PAGE;
    live_bytes += rounded;
    *out = p;
    return cudaSuccess;
}

// A GPU would wait for work first. Who relies on that is wrong as soon as memory comes from a pool: here such
// work finds the pages gone.
cudaError_t cudaFree(void *p)
{
    standin::Guard guard;
    if (p == nullptr)
        return cudaSuccess;
    auto it = blocks.find(static_cast<char *>(p));
    if (it == blocks.end())
        fail("cudaFree: %p is no live memory of the device", p);
    check_end(it->first, it->second);
    UNPOISON(it->second.page, it->second.mapped_bytes);
    if (mmap(it->second.page, it->second.mapped_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        fail("cudaFree: no address space");
    live_bytes -= (it->second.bytes + ALIGN - 1) / ALIGN * ALIGN;
    blocks.erase(it);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    standin::Guard guard;
    start();
    *left = most_bytes - live_bytes;
    *all = most_bytes;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    standin::Guard guard;
    start();
    if (is_capturing())
        return error(cudaErrorStreamCaptureUnsupported);
    size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    void *page = mmap(nullptr, mapped + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == 0 || page == MAP_FAILED)
        return error(bytes == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
    mprotect(static_cast<char *>(page) + mapped, PAGE, PROT_NONE);
    memset(page, 0xff, bytes);
    pinned[static_cast<char *>(page)] = {bytes, static_cast<char *>(page), mapped + PAGE, 0};
    *out = page;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    standin::Guard guard;
    auto it = pinned.find(static_cast<char *>(p));
    if (it == pinned.end() || it->second.mapped_bytes == 0)
        fail("cudaFreeHost: %p is no memory of cudaHostAlloc", p);
    munmap(it->second.page, it->second.mapped_bytes);
    pinned.erase(it);
    return cudaSuccess;
}

// STANDIN_FAULT=host-register: a system that lets no memory be locked.
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    standin::Guard guard;
    char *at = static_cast<char *>(p);
    start();
    if (is_capturing())
        return error(cudaErrorStreamCaptureUnsupported);
    if (has_fault("host-register"))
        return error(cudaErrorMemoryAllocation);
    if (bytes == 0 || is_device(p) || block_of(pinned, p) != pinned.end() ||
        block_of(pinned, at + bytes - 1) != pinned.end())
        return error(cudaErrorInvalidValue);
    pinned[at] = {bytes, at, 0, 0};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    standin::Guard guard;
    auto it = pinned.find(static_cast<char *>(p));
    if (it == pinned.end() || it->second.mapped_bytes != 0)
        fail("cudaHostUnregister: %p was not registered", p);
    pinned.erase(it);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *p)
{
    standin::Guard guard;
    *out = {};
    int on = device_of(p);
    out->type = on >= 0                               ? cudaMemoryTypeDevice
                : block_of(pinned, p) != pinned.end() ? cudaMemoryTypeHost
                                                      : cudaMemoryTypeUnregistered;
    out->device = on >= 0 ? on : 0;
    return cudaSuccess;
}

// STANDIN_KILL_AT_COPY=N: the process dies in the N-th copy to or from registered memory.
static void count_copy(const void *host)
{
    static unsigned long left =
        getenv("STANDIN_KILL_AT_COPY") != nullptr ? strtoul(getenv("STANDIN_KILL_AT_COPY"), nullptr, 10) : 0;
    auto it = block_of(pinned, host);
    if (left > 0 && it != pinned.end() && it->second.mapped_bytes == 0 && --left == 0)
        raise(SIGKILL);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    standin::Guard guard;
    if (bytes == 0)
        return cudaSuccess;
    if (kind != cudaMemcpyDefault &&
        (is_device(from) != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) ||
         is_device(to) != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)))
        fail("cudaMemcpyAsync: the kind of copy is not what the pointers are");
    void *t = numbers_at(to, bytes, "cudaMemcpyAsync"), *f = numbers_at(from, bytes, "cudaMemcpyAsync");
    count_copy(is_device(to) ? from : to);
    if (is_device(to) != is_device(from))
        (is_device(to) ? counts().up_bytes : counts().down_bytes) += bytes;
    return put(stream, "cudaMemcpyAsync", [=] { memcpy(t, f, bytes); });
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    standin::Guard guard;
    if (bytes == 0)
        return cudaSuccess;
    void *t = numbers_at(p, bytes, "cudaMemsetAsync");
    return put(stream, "cudaMemsetAsync", [=] { memset(t, value, bytes); });
}
}
