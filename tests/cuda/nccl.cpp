// nccl.cpp: NCCL, as far as client/cliques/nccl calls it: processes of this machine, which meet in shared
// memory that the unique id names. Sums have the order of a binomial tree over the ranks, whatever the root,
// as psd's `clique.algorithm: tree` has it to member 0: for 4 ranks (0 + 1) + (2 + 3), for 3 (0 + 1) + 2.
//
// As on a GPU, a call is work in a stream: it runs when all before it in the stream has run, here and at all
// other ranks. A rank that does not come is waited for, until the communicator is aborted. What NCCL leaves
// undefined ends the process with a sentence: ranks that make different calls, a communicator that was
// destroyed or aborted, memory of the host, a second call before poll has seen the communicator rest.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include <vector>

#include <nccl.h>

#include "tests/cuda/standin.h"

using standin::fail;

namespace
{

enum Kind : uint32_t { ALL_REDUCE = 1, REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER };
const char *const names[] = {
    "", "ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclReduceScatter", "ncclAllGather"};

struct Call {
    Kind kind;
    int32_t type, op, root;
    uint64_t count;
};

constexpr int MOST_RANKS = 64;
constexpr size_t ROOM = size_t(64) << 20; // bytes of a rank's values; pages that nobody writes cost nothing

// In shared memory. `posted` and `taken` count calls: values that lie there; values that this rank has read.
struct Rank {
    std::atomic<uint64_t> posted, taken;
    Call call;
};
struct Meeting {
    std::atomic<uint32_t> here;
    Rank ranks[MOST_RANKS];
};

} // namespace

struct ncclComm {
    Meeting *meeting;
    int rank, ranks, device;
    char name[64];                // of the shared memory
    uint64_t calls = 0, done = 0; // put into streams; run
    bool is_aborted = false, is_dead = false;
    ncclResult_t error = ncclSuccess;
};

namespace
{

size_t bytes_of(int32_t type)
{
    switch (type) {
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclFloat64:
        return 8;
    default:
        fail("NCCL: type %d is not in the stand-in", type);
    }
}

char *room_of(const ncclComm *c, int rank)
{
    return reinterpret_cast<char *>(c->meeting + 1) + size_t(rank) * ROOM;
}

size_t mapped_bytes(int ranks)
{
    return sizeof(Meeting) + size_t(ranks) * ROOM;
}

void name_of(const ncclUniqueId &id, char name[64])
{
    static const char hex[] = "0123456789abcdef";
    char *at = stpcpy(name, "/standin-nccl-");
    for (int i = 0; i < 16; i++) {
        *at++ = hex[(id.internal[i] >> 4) & 15];
        *at++ = hex[id.internal[i] & 15];
    }
    *at = 0;
}

void check_alive(const ncclComm *c, const char *call)
{
    if (c == nullptr || c->is_dead)
        fail("%s: the communicator %s", call, c == nullptr ? "is NULL" : "was destroyed or aborted");
}

bool all_of(const ncclComm *c, std::atomic<uint64_t> Rank::*count, uint64_t least)
{
    for (int r = 0; r < c->ranks; r++)
        if ((c->meeting->ranks[r].*count).load() < least)
            return false;
    return true;
}

void compare(const ncclComm *c, const Call &mine)
{
    for (int r = 0; r < c->ranks; r++) {
        const Call &o = c->meeting->ranks[r].call;
        if (o.kind != mine.kind || o.type != mine.type || o.op != mine.op || o.root != mine.root ||
            o.count != mine.count)
            fail("NCCL: rank %d calls %s of %llu, rank %d %s of %llu: types %d and %d, roots %d and %d",
                 c->rank, names[mine.kind], (unsigned long long)mine.count, r, names[o.kind],
                 (unsigned long long)o.count, mine.type, o.type, mine.root, o.root);
    }
}

// Values that a rank gives, and receives.
size_t sent(const Call &k, int ranks)
{
    return k.kind == REDUCE_SCATTER ? k.count * size_t(ranks) : k.count;
}

size_t received(const Call &k, int ranks)
{
    return k.kind == ALL_GATHER ? k.count * size_t(ranks) : k.count;
}

template <class T> T sum(const ncclComm *c, int first, int n, size_t at)
{
    if (n == 1)
        return reinterpret_cast<const T *>(room_of(c, first))[at];
    int half = 1;
    while (2 * half < n)
        half *= 2;
    T low = sum<T>(c, first, half, at), high = sum<T>(c, first + half, n - half, at);
    return T(low + high);
}

template <class T> void sum_all(const ncclComm *c, void *to, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        static_cast<T *>(to)[i] = sum<T>(c, 0, c->ranks, from + i);
}

void reduce(const ncclComm *c, const Call &k, void *to, size_t from)
{
    switch (k.type) {
    case ncclFloat32:
        return sum_all<float>(c, to, from, k.count);
    case ncclFloat64:
        return sum_all<double>(c, to, from, k.count);
    case ncclInt32:
        return sum_all<uint32_t>(c, to, from, k.count);
    case ncclInt64:
        return sum_all<uint64_t>(c, to, from, k.count);
    default:
        fail("NCCL: sums of type %d are not in the stand-in", k.type);
    }
}

void receive(const ncclComm *c, const Call &k, char *to)
{
    size_t bytes = k.count * bytes_of(k.type);
    switch (k.kind) {
    case ALL_REDUCE:
        return reduce(c, k, to, 0);
    case REDUCE:
        if (c->rank == k.root)
            reduce(c, k, to, 0);
        return;
    case BROADCAST:
        memcpy(to, room_of(c, k.root), bytes);
        return;
    case REDUCE_SCATTER:
        return reduce(c, k, to, size_t(c->rank) * k.count);
    case ALL_GATHER:
        for (int r = 0; r < c->ranks; r++)
            memcpy(to + size_t(r) * bytes, room_of(c, r), bytes);
    }
}

// STANDIN_KILL_AT_CALL=N: the process dies in its N-th call, which the others have begun. 0: it does not.
uint64_t killed_at()
{
    const char *n = getenv("STANDIN_KILL_AT_CALL");
    return n != nullptr ? strtoull(n, nullptr, 10) : 0;
}

// The number-th call of this rank: first it brings its values, as soon as all have taken those of the call
// before; then it waits for the others'. STANDIN_FAULT=nccl-hang: for ever.
bool may_run(ncclComm *c, uint64_t number, const Call &k, const char *from)
{
    Rank &mine = c->meeting->ranks[c->rank];
    if (c->is_aborted)
        return true;
    if (standin::has_fault("nccl-hang") || !all_of(c, &Rank::taken, number - 1))
        return false;
    if (mine.posted.load() < number) {
        if (number == killed_at())
            raise(SIGKILL);
        if (k.kind != BROADCAST || c->rank == k.root)
            memcpy(room_of(c, c->rank), from, sent(k, c->ranks) * bytes_of(k.type));
        mine.call = k;
        mine.posted.store(number);
    }
    return all_of(c, &Rank::posted, number);
}

// What an aborted call leaves is undefined: here 0xff, NaN in every type of number.
void run(ncclComm *c, uint64_t number, const Call &k, char *to)
{
    c->done = number;
    if (c->is_aborted) {
        memset(to, 0xff, received(k, c->ranks) * bytes_of(k.type));
        return;
    }
    compare(c, k);
    receive(c, k, to);
    c->meeting->ranks[c->rank].taken.store(number);
}

char *device_memory(const ncclComm *c, const void *p, size_t bytes, const char *call)
{
    if (!standin::is_device(p))
        fail("%s: %p is memory of the host", call, p);
    if (standin::device_of(p) >= 0 && standin::device_of(p) != c->device)
        fail("%s: %p is memory of device %d, and the communicator's is device %d", call, p,
             standin::device_of(p), c->device);
    return static_cast<char *>(standin::numbers_at(p, bytes, call));
}

Call make(Kind kind, ncclDataType_t type, ncclRedOp_t op, int root, size_t count)
{
    return {kind, int32_t(type), int32_t(op), root, count};
}

ncclResult_t call(const void *from, void *to, const Call &k, ncclComm_t c, cudaStream_t stream)
{
    standin::Guard guard;
    check_alive(c, names[k.kind]);
    size_t bytes = bytes_of(k.type), most = std::max(sent(k, c->ranks), received(k, c->ranks));
    if (c->meeting->here.load() < uint32_t(c->ranks))
        fail("%s: the communicator is not connected yet", names[k.kind]);
    if (c->done != c->calls)
        fail("%s: the call before it has not ended", names[k.kind]);
    if (k.op != ncclSum || k.root < 0 || k.root >= c->ranks || most * bytes > ROOM)
        return ncclInvalidArgument;
    if (k.count == 0)
        return ncclSuccess;
    const char *f = device_memory(c, from, sent(k, c->ranks) * bytes, names[k.kind]);
    char *t = device_memory(c, to, received(k, c->ranks) * bytes, names[k.kind]);
    uint64_t number = ++c->calls;
    standin::put_when(
        stream, names[k.kind], [=] { return may_run(c, number, k, f); }, [=] { run(c, number, k, t); });
    return ncclSuccess;
}

void end(ncclComm_t c)
{
    c->is_dead = true;
    if (c->done == c->calls) /* else work in a stream still asks */
        munmap(c->meeting, mapped_bytes(c->ranks));
}

} // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    memset(out, 0, sizeof *out);
    if (standin::has_fault("nccl-id") || getrandom(out->internal, 16, 0) != 16)
        return ncclSystemError;
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    standin::Guard guard;
    char name[64];
    if (config->blocking != 0)
        fail("ncclCommInitRankConfig: blocking is %d: a communicator that blocks has no deadline",
             config->blocking);
    if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks || standin::has_fault("nccl-init"))
        return ncclInvalidArgument;
    name_of(id, name);
    int file = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, off_t(mapped_bytes(ranks))) != 0)
        return ncclSystemError;
    void *p = mmap(nullptr, mapped_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (p == MAP_FAILED)
        return ncclSystemError;
    static auto *all = new std::vector<ncclComm *>; // they stay: a call on a dead one is to be noticed
    auto *c = new ncclComm;
    all->push_back(c);
    c->meeting = static_cast<Meeting *>(p);
    c->rank = rank;
    c->ranks = ranks;
    c->device = standin::device();
    strcpy(c->name, name);
    if (c->meeting->here.fetch_add(1) + 1 == uint32_t(ranks))
        shm_unlink(name); /* all have it */
    *out = c;
    return ncclInProgress;
}

// STANDIN_FAULT=nccl-remote: what NCCL says when the network has lost another rank.
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out)
{
    standin::Guard guard;
    check_alive(c, "ncclCommGetAsyncError");
    *out = standin::has_fault("nccl-remote") && c->calls > 0 ? ncclRemoteError
           : c->meeting->here.load() < uint32_t(c->ranks)    ? ncclInProgress
                                                             : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    standin::Guard guard;
    check_alive(c, "ncclCommFinalize");
    if (c->done != c->calls)
        fail("ncclCommFinalize: a call has not ended");
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    standin::Guard guard;
    check_alive(c, "ncclCommDestroy");
    if (c->done != c->calls)
        fail("ncclCommDestroy: a call has not ended");
    end(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    standin::Guard guard;
    check_alive(c, "ncclCommAbort");
    c->is_aborted = true;
    if (c->meeting->here.load() < uint32_t(c->ranks))
        shm_unlink(c->name); // who would have come last would do it
    end(c);
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream)
{
    return call(from, to, make(ALL_REDUCE, type, op, 0, n), c, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t stream)
{
    return call(from, to, make(REDUCE, type, op, root, n), c, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream)
{
    return call(from, to, make(BROADCAST, type, ncclSum, root, n), c, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream)
{
    return call(from, to, make(REDUCE_SCATTER, type, op, 0, n), c, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream)
{
    return call(from, to, make(ALL_GATHER, type, ncclSum, 0, n), c, stream);
}

const char *ncclGetErrorString(ncclResult_t r)
{
    return r == ncclSystemError       ? "unhandled system error"
           : r == ncclInvalidArgument ? "invalid argument"
           : r == ncclRemoteError     ? "remote process exited or there was a network error"
                                      : "an error of the stand-in";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}
}
