/* module.c: the calls of NCCL. The communicator never blocks: each call begins something, and advance
 * tells whether it is done. */
#include "client/cliques/nccl/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "proto/clock.h"

_Static_assert(sizeof(struct psc_nccl_id) == NCCL_UNIQUE_ID_BYTES, "NCCL's unique id");

/* How long the device may take to end a call that was aborted. */
enum { DRAIN_S = 10, NAP_US = 50 };

/* What was begun last. */
enum state {
    RESTS,
    CONNECTS, /* or disconnects */
    LAUNCHES, /* a collective is not in the stream yet */
    RUNS,     /* `end` is behind it in the stream */
};

struct psc_nccl_comm {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t end;
    int device, rank;
    enum state state;
};

static void enter(int device)
{
    int now = -1;
    if (cudaGetDevice(&now) != cudaSuccess || now != device)
        cudaSetDevice(device);
}

static int nccl_failed(const struct psc_nccl_comm *n, ncclResult_t r, const char *call, struct ps_error *err)
{
    const char *more = n != NULL && n->comm != NULL ? ncclGetLastError(n->comm) : "";
    return ps_fail(err, -EIO, "%s: NCCL: %s%s%.160s", call, ncclGetErrorString(r),
                   more != NULL && more[0] != 0 ? ": " : "", more != NULL ? more : "");
}

/* The thread's last error is taken, too: another user of CUDA in this process would take it for its own. */
static int cuda_failed(cudaError_t e, const char *what, struct ps_error *err)
{
    cudaGetLastError();
    return ps_fail(err, -EIO, "%s: CUDA: %s", what, cudaGetErrorString(e));
}

/* A communicator that does not block answers ncclInProgress, which is no failure. */
static int begun(struct psc_nccl_comm *n, ncclResult_t r, const char *call, enum state state,
                 struct ps_error *err)
{
    if (r != ncclSuccess && r != ncclInProgress)
        return nccl_failed(n, r, call, err);
    n->state = state;
    return 0;
}

static int make_id(struct psc_nccl_id *out, struct ps_error *err)
{
    ncclUniqueId id;
    ncclResult_t r = ncclGetUniqueId(&id);
    if (r != ncclSuccess)
        return nccl_failed(NULL, r, "ncclGetUniqueId", err);
    memcpy(out->bytes, id.internal, sizeof out->bytes);
    return 0;
}

static void release(struct psc_nccl_comm *n)
{
    if (n->end != NULL)
        cudaEventDestroy(n->end);
    if (n->stream != NULL)
        cudaStreamDestroy(n->stream);
    free(n);
}

static int make_stream(struct psc_nccl_comm *n, struct ps_error *err)
{
    cudaError_t e = cudaGetDevice(&n->device);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&n->end, cudaEventDisableTiming);
    return e == cudaSuccess ? 0 : cuda_failed(e, "a stream for NCCL", err);
}

static int connect_members(struct psc_nccl_comm *n, const struct psc_nccl_id *given, int rank, int members,
                           struct ps_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    n->rank = rank;
    memcpy(id.internal, given->bytes, sizeof given->bytes);
    return begun(n, ncclCommInitRankConfig(&n->comm, members, id, rank, &config), "ncclCommInitRankConfig",
                 CONNECTS, err);
}

static int begin(const struct psc_nccl_id *id, int rank, int members, struct psc_nccl_comm **out, int *device,
                 struct ps_error *err)
{
    int devices = 0;
    cudaError_t e = cudaGetDeviceCount(&devices);
    if (e != cudaSuccess)
        cudaGetLastError();
    if (e != cudaSuccess || devices == 0)
        return ps_fail(err, -ENOTSUP, "no CUDA device: %s",
                       e != cudaSuccess ? cudaGetErrorString(e) : "none is visible");
    struct psc_nccl_comm *n = calloc(1, sizeof *n);
    if (n == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a communicator");
    int rc = make_stream(n, err);
    if (rc == 0)
        rc = connect_members(n, id, rank, members, err);
    if (rc == 0) {
        *out = n;
        *device = n->device;
        return 0;
    }
    if (n->comm != NULL)
        ncclCommAbort(n->comm);
    release(n);
    return rc;
}

static int advance_stream(struct psc_nccl_comm *n, struct ps_error *err)
{
    cudaError_t e = cudaSuccess;
    if (n->state == LAUNCHES) {
        e = cudaEventRecord(n->end, n->stream);
        n->state = RUNS;
    }
    if (e == cudaSuccess)
        e = cudaEventQuery(n->end);
    if (e == cudaErrorNotReady) {
        if (cudaPeekAtLastError() == e)
            cudaGetLastError();
        return -EAGAIN;
    }
    return e == cudaSuccess ? 0 : cuda_failed(e, "a call of NCCL", err);
}

static int advance(struct psc_nccl_comm *n, struct ps_error *err)
{
    ncclResult_t now = ncclSuccess, r;
    enter(n->device);
    r = ncclCommGetAsyncError(n->comm, &now);
    if (r != ncclSuccess || (now != ncclSuccess && now != ncclInProgress))
        return nccl_failed(n, r != ncclSuccess ? r : now, "ncclCommGetAsyncError", err);
    if (now == ncclInProgress)
        return -EAGAIN;
    int rc = n->state == LAUNCHES || n->state == RUNS ? advance_stream(n, err) : 0;
    if (rc == 0)
        n->state = RESTS;
    return rc;
}

static int check(int device, const struct psc_collective *op, struct ps_error *err)
{
    struct cudaPointerAttributes a;
    cudaError_t e;
    enter(device);
    if ((e = cudaPointerGetAttributes(&a, op->data)) != cudaSuccess)
        return cuda_failed(e, "a vector", err);
    if (a.type == cudaMemoryTypeManaged)
        return 0;
    if (a.type != cudaMemoryTypeDevice)
        return ps_fail(err, -EINVAL,
                       "%s: the vector is memory of the host; a clique over nccl sums memory of a GPU",
                       psc_call_name(op->kind));
    if (a.device != device)
        return ps_fail(err, -EINVAL, "%s: the vector is memory of device %d; the clique's is device %d",
                       psc_call_name(op->kind), a.device, device);
    return 0;
}

static ncclDataType_t type_of(uint8_t type)
{
    static const ncclDataType_t types[PSC_N_TYPES] = {
        [PSC_FLOAT32] = ncclFloat32, [PSC_FLOAT64] = ncclFloat64, [PSC_INT32] = ncclInt32,
        [PSC_INT64] = ncclInt64,     [PSC_FLOAT16] = ncclFloat16, [PSC_BFLOAT16] = ncclBfloat16,
        [PSC_BYTES] = ncclUint8};
    return types[type];
}

/* In place, as NCCL has it: of calls with parts this member's part begins at its rank. */
static ncclResult_t launch(const struct psc_nccl_comm *n, const struct psc_collective *op)
{
    ncclDataType_t type = type_of(op->type);
    char *part = (char *)op->data + (size_t)n->rank * op->n * psc_values_of(op->type)->bytes;
    switch (op->kind) {
    case PSC_ALLREDUCE:
        return ncclAllReduce(op->data, op->data, op->n, type, ncclSum, n->comm, n->stream);
    case PSC_REDUCE:
        return ncclReduce(op->data, op->data, op->n, type, ncclSum, op->root, n->comm, n->stream);
    case PSC_BROADCAST:
        return ncclBroadcast(op->data, op->data, op->n, type, op->root, n->comm, n->stream);
    case PSC_REDUCE_SCATTER:
        return ncclReduceScatter(op->data, part, op->n, type, ncclSum, n->comm, n->stream);
    case PSC_ALLGATHER:
        return ncclAllGather(part, op->data, op->n, type, n->comm, n->stream);
    case PSC_BARRIER:
    default:
        return ncclInvalidUsage;
    }
}

static int enqueue(struct psc_nccl_comm *n, const struct psc_collective *op, struct ps_error *err)
{
    enter(n->device);
    return begun(n, launch(n, op), psc_call_name(op->kind), LAUNCHES, err);
}

static int finish(struct psc_nccl_comm *n, struct ps_error *err)
{
    enter(n->device);
    return begun(n, ncclCommFinalize(n->comm), "ncclCommFinalize", CONNECTS, err);
}

/* What was in the stream leaves the device, so that its memory may be freed. */
static void drain(struct psc_nccl_comm *n)
{
    double end_s = ps_now_s() + DRAIN_S;
    if (n->state == LAUNCHES && cudaEventRecord(n->end, n->stream) != cudaSuccess)
        return;
    while (cudaEventQuery(n->end) == cudaErrorNotReady && ps_now_s() < end_s)
        ps_sleep_us(NAP_US);
}

static void abort_comm(struct psc_nccl_comm *n)
{
    enter(n->device);
    ncclCommAbort(n->comm);
    if (n->state == LAUNCHES || n->state == RUNS)
        drain(n);
    release(n);
}

static void destroy(struct psc_nccl_comm *n)
{
    enter(n->device);
    ncclCommDestroy(n->comm);
    release(n);
}

const struct psc_nccl_module psc_nccl_module = {PSD_VERSION,
                                                sizeof(struct psc_nccl_calls),
                                                {.make_id = make_id,
                                                 .begin = begin,
                                                 .advance = advance,
                                                 .check = check,
                                                 .enqueue = enqueue,
                                                 .finish = finish,
                                                 .abort = abort_comm,
                                                 .destroy = destroy}};
