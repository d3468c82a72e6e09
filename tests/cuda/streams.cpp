// streams.cpp: streams, events and graphs: what runs when. Work is a node of a graph without cycles; it runs
// when something forces it, after all it depends on.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/standin.h"

using standin::fail;

namespace
{

struct Work {
    const char *what;
    std::function<void()> run;
    std::vector<std::shared_ptr<Work>> after;
    bool done = false;
    uint64_t at = 0; // when it had run, on the device's clock
};
using WorkP = std::shared_ptr<Work>;

struct Node {
    const char *what;
    std::function<void()> run;
    std::vector<size_t> after;
};

enum Order { LAZY, EAGER, RANDOM };
Order order = LAZY;
long hasty = -1; // the number of the stream whose work runs at once, while all other work is late
std::mt19937 generator(1);
std::vector<WorkP> pending;
bool is_started;
uint64_t clock_now; // the device's: pieces of work that have run

} // namespace

struct CUgraph_st {
    std::vector<Node> nodes;
    bool is_spoiled = false; // an illegal call was made while it was captured
};
struct CUgraphExec_st {
    std::vector<Node> nodes;
};
struct CUstream_st {
    unsigned number = unsigned(-1); // in the order in which streams were made
    std::string lost_wait;          // the fault that makes it wait for no event
    WorkP last;
    std::vector<WorkP> waits;
    CUgraph_st *graph = nullptr; // that it captures
    bool is_origin = false;
    std::vector<size_t> at; // the nodes that the next one comes after
};
struct CUevent_st {
    WorkP work;
    unsigned queries = 0; // since it was recorded
    CUgraph_st *graph = nullptr;
    std::vector<size_t> at;
};

namespace
{

std::vector<CUgraph_st *> capturing;
thread_local cudaError_t last_error = cudaSuccess;

// The default stream under its own name. It is one more stream here: what CUDA orders it with, streams that
// are not created with cudaStreamNonBlocking, does not occur.
cudaStream_t real(cudaStream_t s)
{
    static CUstream_st legacy;
    return s == cudaStreamLegacy ? &legacy : s;
}

void start()
{
    if (is_started)
        return;
    is_started = true;
    const char *o = getenv("STANDIN_ORDER");
    if (o == nullptr || strcmp(o, "lazy") == 0)
        return;
    if (strcmp(o, "eager") == 0)
        order = EAGER;
    else if (strncmp(o, "random:", 7) == 0) {
        order = RANDOM;
        generator.seed(unsigned(atoi(o + 7)));
    } else if (strncmp(o, "hasty:", 6) == 0)
        hasty = atoi(o + 6);
    else
        fail("STANDIN_ORDER is '%s'; allowed are lazy, eager, random:SEED and hasty:STREAM", o);
}

// Runs a piece of work and, before it, all that it comes after. Without recursion: chains are long.
void force(const WorkP &wanted)
{
    std::vector<WorkP> stack{wanted};
    while (!stack.empty()) {
        WorkP w = stack.back();
        size_t n = stack.size();
        for (auto &before : w->after)
            if (!w->done && !before->done)
                stack.push_back(before);
        if (stack.size() > n) {
            if (order == RANDOM)
                std::shuffle(stack.begin() + ptrdiff_t(n), stack.end(), generator);
            continue;
        }
        stack.pop_back();
        if (w->done)
            continue;
        w->run();
        w->done = true;
        w->at = clock_now++;
        w->run = nullptr;
        w->after.clear();
    }
}

void forget_done()
{
    pending.erase(std::remove_if(pending.begin(), pending.end(), [](const WorkP &w) { return w->done; }),
                  pending.end());
}

// What a GPU may do while the host goes on.
void go_on()
{
    if (pending.size() > 1024)
        forget_done();
    while (order == RANDOM && !pending.empty() && standin::random_below(4) != 0) {
        force(pending[standin::random_below(unsigned(pending.size()))]);
        forget_done();
    }
}

WorkP add(cudaStream_t s, const char *what, std::function<void()> run)
{
    auto w = std::make_shared<Work>();
    w->what = what;
    w->run = std::move(run);
    if (s->last != nullptr)
        w->after.push_back(s->last);
    w->after.insert(w->after.end(), s->waits.begin(), s->waits.end());
    s->waits.clear();
    s->last = w;
    pending.push_back(w);
    return w;
}

cudaError_t illegal_in_capture()
{
    for (auto *g : capturing)
        g->is_spoiled = true;
    return standin::error(cudaErrorStreamCaptureUnsupported);
}

// In some order that the edges allow: the last that can run, the first, or any.
void run_nodes(const std::vector<Node> &nodes)
{
    std::vector<size_t> left(nodes.size());
    std::vector<std::vector<size_t>> behind(nodes.size());
    std::vector<size_t> ready;
    for (size_t i = 0; i < nodes.size(); i++) {
        left[i] = nodes[i].after.size();
        for (size_t b : nodes[i].after)
            behind[b].push_back(i);
        if (left[i] == 0)
            ready.push_back(i);
    }
    while (!ready.empty()) {
        size_t k = order == LAZY    ? ready.size() - 1
                   : order == EAGER ? 0
                                    : standin::random_below(unsigned(ready.size()));
        size_t i = ready[k];
        ready.erase(ready.begin() + ptrdiff_t(k));
        nodes[i].run();
        for (size_t b : behind[i])
            if (--left[b] == 0)
                ready.push_back(b);
    }
}

} // namespace

namespace standin
{

static std::recursive_mutex &mutex()
{
    static std::recursive_mutex one;
    return one;
}

Guard::Guard()
{
    mutex().lock();
}

Guard::~Guard()
{
    mutex().unlock();
}

unsigned random_below(unsigned n)
{
    return unsigned(generator() % n);
}

bool is_capturing()
{
    if (capturing.empty())
        return false;
    for (auto *g : capturing)
        g->is_spoiled = true; // the caller is about to refuse
    return true;
}

bool has_fault(const char *name)
{
    const char *planted = getenv("STANDIN_FAULT");
    return planted != nullptr && strcmp(planted, name) == 0;
}

cudaError_t error(cudaError_t e)
{
    last_error = e;
    return e;
}

cudaError_t put(cudaStream_t s, const char *what, std::function<void()> run)
{
    Guard guard;
    start();
    s = real(s);
    if (s == nullptr)
        fail("%s: in the default stream", what);
    if (s->graph != nullptr) {
        s->graph->nodes.push_back({what, std::move(run), s->at});
        s->at = {s->graph->nodes.size() - 1};
        return cudaSuccess;
    }
    WorkP w = add(s, what, std::move(run));
    if (order == EAGER || hasty == long(s->number))
        force(w);
    go_on();
    return cudaSuccess;
}

} // namespace standin

extern "C" {

// STANDIN_DEVICES=0: a machine without a GPU.
cudaError_t cudaGetDeviceCount(int *n)
{
    standin::Guard guard;
    const char *devices = getenv("STANDIN_DEVICES");
    *n = devices != nullptr ? atoi(devices) : 1;
    return *n > 0 ? cudaSuccess : standin::error(cudaErrorNoDevice);
}

static thread_local int current_device;

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || device < 0 || device >= n)
        return standin::error(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

// STANDIN_MAJOR: another compute capability than 9.
cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr attribute, int device)
{
    standin::Guard guard;
    const char *major = getenv("STANDIN_MAJOR");
    if (attribute != cudaDevAttrComputeCapabilityMajor || device != 0)
        return standin::error(cudaErrorInvalidValue);
    *out = major != nullptr ? atoi(major) : 9;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
    memset(out, 0, sizeof *out);
    strcpy(out->name, "stand-in");
    return device == 0 ? cudaSuccess : standin::error(cudaErrorInvalidDevice);
}

cudaError_t cudaPeekAtLastError()
{
    return last_error;
}

cudaError_t cudaGetLastError()
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    default:
        return "an error of the stand-in";
    }
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    standin::Guard guard;
    static unsigned n_made;
    *s = new CUstream_st;
    (*s)->number = n_made++;
    (*s)->lost_wait = "stream-wait-of-" + std::to_string((*s)->number);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    standin::Guard guard;
    if (s->graph != nullptr)
        fail("cudaStreamDestroy: it captures");
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    standin::Guard guard;
    s = real(s);
    if (s->graph != nullptr)
        return illegal_in_capture();
    if (standin::has_fault("stream-synchronize"))
        return cudaSuccess;
    auto waits = s->waits;
    if (s->last != nullptr)
        force(s->last);
    for (auto &w : waits)
        force(w);
    forget_done();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    standin::Guard guard;
    *e = new CUevent_st;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}

// A piece of work takes a millisecond.
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t first, cudaEvent_t second)
{
    if (first->work == nullptr || second->work == nullptr)
        return standin::error(cudaErrorInvalidResourceHandle);
    if (!first->work->done || !second->work->done)
        return standin::error(cudaErrorNotReady);
    *ms = float(second->work->at - first->work->at);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    standin::Guard guard;
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    standin::Guard guard;
    s = real(s);
    e->graph = s->graph;
    e->at = s->at;
    e->queries = 0;
    if (s->graph == nullptr)
        e->work = add(s, "cudaEventRecord", [] {});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    standin::Guard guard;
    if (e->graph != nullptr)
        return illegal_in_capture();
    if (e->work != nullptr && !standin::has_fault("event-synchronize"))
        force(e->work);
    return cudaSuccess;
}

// Who asks again and again sees the work done at last: lazily the fourth time, by chance sooner or later.
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    standin::Guard guard;
    if (e->graph != nullptr)
        return illegal_in_capture();
    if (standin::has_fault("device"))
        return standin::error(cudaErrorIllegalAddress);
    if (standin::has_fault("hang"))
        return cudaErrorNotReady;
    if (e->work == nullptr || e->work->done || standin::has_fault("event-query"))
        return cudaSuccess;
    go_on();
    e->queries++;
    if (!e->work->done && (order == LAZY ? e->queries > 3 : order == EAGER || standin::random_below(4) == 0))
        force(e->work);
    return e->work->done ? cudaSuccess : cudaErrorNotReady; // which is not the thread's last error
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    standin::Guard guard;
    s = real(s);
    if (e->graph != nullptr) {
        if (s->graph == nullptr) {
            s->graph = e->graph;
            s->at.clear();
        }
        s->at.insert(s->at.end(), e->at.begin(), e->at.end());
        return cudaSuccess;
    }
    if (s->graph != nullptr) {
        s->graph->is_spoiled = true;
        return standin::error(cudaErrorStreamCaptureIsolation);
    }
    if (e->work != nullptr && !standin::has_fault("stream-wait") && !standin::has_fault(s->lost_wait.c_str()))
        s->waits.push_back(e->work);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    standin::Guard guard;
    start();
    s->graph = new CUgraph_st;
    s->is_origin = true;
    s->at.clear();
    capturing.push_back(s->graph);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    standin::Guard guard;
    CUgraph_st *g = s->graph;
    if (g == nullptr || !s->is_origin)
        return standin::error(cudaErrorIllegalState);
    s->graph = nullptr;
    s->is_origin = false;
    capturing.erase(std::find(capturing.begin(), capturing.end(), g));
    std::vector<bool> is_joined(g->nodes.size());
    for (auto &n : g->nodes)
        for (size_t b : n.after)
            is_joined[b] = true;
    for (size_t b : s->at)
        is_joined[b] = true;
    if (standin::has_fault("capture"))
        g->is_spoiled = true;
    bool all = std::find(is_joined.begin(), is_joined.end(), false) == is_joined.end();
    if (all && !g->is_spoiled) {
        *out = g;
        return cudaSuccess;
    }
    cudaError_t e = g->is_spoiled ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
    *out = nullptr;
    delete g;
    return standin::error(e);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long)
{
    standin::Guard guard;
    *out = new CUgraphExec_st{g->nodes};
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    standin::Guard guard;
    delete g;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    standin::Guard guard;
    delete e;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    standin::Guard guard;
    if (s->graph != nullptr)
        return illegal_in_capture();
    if (standin::has_fault("graph-launch"))
        return cudaSuccess;
    auto nodes = std::make_shared<std::vector<Node>>(e->nodes);
    return standin::put(s, "a graph", [nodes] { run_nodes(*nodes); });
}
}
