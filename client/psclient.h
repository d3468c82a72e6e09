/* psclient.h: the client library of psd, a parameter server.
 *
 * A worker computes gradients and passes each to the library:
 *
 *     psc_open(&opt, &c);  psc_begin(c, tensors, n, x);
 *     while ((rc = psc_step(c, x, g, n_samples)) == PSC_OK) { ...gradient g at x... }
 *     psc_close(c);
 *
 * The server's configuration chooses the training method; the worker's code is the same for all of them. A
 * vector is a flat array of n float32 values: the tensors of the manifest, packed back to back.
 *
 * Every function returns PSC_OK, PSC_DRAINED or a negative PSC_E..., unless its type says otherwise.
 * psc_error() then explains a failure in one sentence. The comment of a function lists its own errors. In
 * addition, calls that wait for the server may return PSC_DRAINED, PSC_EGONE, PSC_EEVICTED, PSC_EREFUSED and
 * PSC_EINTERRUPTED, calls of a clique's member PSC_ECLIQUE, and calls with memory of a GPU PSC_EDEVICE. A
 * wait ends at the latest when the server has been silent for options.timeout_ms. A live server may make a
 * worker wait longer, for example until a round is complete.
 *
 * The library never prints and never exits.
 *
 * Threads: a handle is used by one thread at a time. A service thread of the library keeps the session alive.
 * Another thread runs the transfers of the _start calls, and exchanges that overlap with computing.
 *
 * Signals and fork: the library's threads start with all signals blocked. The library installs no signal
 * handler. A handle belongs to the process that opened it. In a child of fork, calls with it return
 * PSC_EINVAL and do not affect the parent. psc_rank is -1 there, psc_size is 0, and psc_close returns at once
 * without freeing the copy. Memory of psc_alloc is not mapped in the child: access to it is SIGSEGV. The
 * child may open handles of its own. The library's descriptors are closed on exec. A child that does not call
 * exec keeps its copies of them until it exits.
 *
 * Speed: the library allocates and frees one buffer for each received chunk. With glibc,
 * mallopt(M_MMAP_THRESHOLD, 32 << 20) and mallopt(M_TRIM_THRESHOLD, 64 << 20) in the caller's main avoid the
 * page faults of that (1.3 times faster at 249 MB). */
#ifndef PSCLIENT_H
#define PSCLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PSC_MAX_DIMS 8

struct psc;        /* one session with a server */
struct psc_clique; /* psclique.h */

enum psc_result {
    PSC_OK = 0,
    PSC_DRAINED = 1, /* the server ends the job normally, or a member has called psc_stop: stop. The call took
                        effect, unless psc_error() says otherwise. */
    PSC_EINVAL = -1, /* an argument or option is not allowed, or calls are out of order */
    PSC_ENOMEM = -2,
    PSC_EGONE = -3,        /* the server was silent for timeout_ms, attempts to reconnect included */
    PSC_EEVICTED = -4,     /* the server ended this session; open a new one to continue */
    PSC_EVALUE = -5,       /* the vector has NaN or Inf. Nothing of it was sent; but see psc_alloc */
    PSC_EMANIFEST = -6,    /* the tensors are not valid, or differ from the job's */
    PSC_ERANK = -7,        /* the requested rank is taken or out of range */
    PSC_EREFUSED = -8,     /* the server refused the request. Also see psc_push */
    PSC_EUNSUPPORTED = -9, /* the server or the library lacks a feature, or their versions differ */
    PSC_ESYSTEM = -10,     /* an error of the operating system: no descriptors, no threads, no such file */
    PSC_EDAMAGED = -11,    /* the file is corrupt, or not a psc_save file */
    PSC_ECLIQUE = -12, /* a member of the clique has failed or is silent, or members disagree: psclique.h */
    PSC_EAUTH = -13,   /* the server refuses this key, or this rank with it; or only one end has a key; or the
                          key file cannot be used */
    PSC_EINTERRUPTED = -14, /* options.go_on ended a wait. The handle can only be closed then */
    PSC_EDEVICE = -15, /* the device of options.memory has failed; psc_error has its words. The handle can
                          only be closed then */
};

/* What options.go_on may return. */
#define PSC_GO_ON_UNLESS_HELD (-1)

enum psc_role {
    PSC_PARAM = 0,  /* trained: the method moves it */
    PSC_BUFFER = 1, /* statistics, such as those of batch normalisation. Averaged over the workers. The
                       gradient is ignored */
    PSC_FROZEN = 2, /* not trained. Part of the offer, of pulls and of psc_init, but never exchanged */
};

enum psc_decay {
    PSC_DECAY = 0,    /* the method's weight_decay applies */
    PSC_NO_DECAY = 1, /* it does not apply: for biases and normalisation */
};

enum psc_kind {
    PSC_WORKER = 0,   /* computes gradients; has a rank */
    PSC_OBSERVER = 1, /* only pulls the center and reports evaluations; has no rank */
};

/* One named tensor of the flat vector. Tensors must follow each other without gaps, starting at offset 0. */
struct psc_tensor {
    const char *name; /* unique, 1 to 127 bytes of UTF-8; read during psc_begin only */
    uint64_t offset;  /* floats from the start of the vector */
    uint64_t shape[PSC_MAX_DIMS];
    uint32_t n_dims; /* sizes in shape, 0 to PSC_MAX_DIMS. 0: a scalar, one value. Unused sizes are 0 */
    uint32_t role;   /* enum psc_role */
    uint32_t decay;  /* enum psc_decay; read for PSC_PARAM */
    /* Multiplies the method's learning rate for this tensor, at the worker and at the server: 0.000001 to
     * 1000, rounded to millionths. 0 means 1. Read for PSC_PARAM. It must be the same at all workers of a
     * job. With `optimizer: external` the caller makes the step, and values other than 1 are
     * PSC_EUNSUPPORTED. */
    double rate;
};

#define PSC_MAX_MILESTONES 16

/* Training without a server, by a single worker or by one clique. A number after a field's description is
 * its default. */
struct psc_local {
    size_t size; /* set by psc_local_init */
    /* For a single worker: "sgd"; "msgd", SGD with Nesterov's momentum; "asgd", SGD with z, the mean of x
     * over all steps (Polyak, Juditsky 1992); "mvasgd", SGD with z, the moving average of x (Zhang et al.
     * 2015, section 5). For a single worker or a clique: "d-sync" and "pipe-sgd" (Li et al. 2018). */
    const char *method;
    double learning_rate;  /* eta: above 0, at most 1000. 0.05 */
    double momentum;       /* of msgd: 0 to below 1. 0.9 */
    double averaging_rate; /* of mvasgd: above 0, at most 1. 0.001 */
    double weight_decay;   /* 0 to 1. 0 */
    /* The learning rate at step t: "constant", eta; "step", eta gamma^(t / step_steps), rounded down;
     * "inv-sqrt", eta / sqrt(1 + gamma t); "cosine", eta (floor + (1 - floor)(1 + cos(pi t / total_steps)) /
     * 2), and eta floor from total_steps on; "multi-step", eta multiplied by gamma at each milestone.
     * "constant" */
    const char *schedule;
    double gamma;             /* 0 to 1000. 0.1 */
    uint64_t step_steps;      /* of step: at least 1. 10000 */
    uint64_t warmup_steps;    /* eta grows linearly over these first steps. 0 */
    uint64_t pipeline_warmup; /* of pipe-sgd: this many first steps are made as those of d-sync. 0 */
    const char *codec;        /* of d-sync and pipe-sgd: the codec of the sums. "raw" */
    uint64_t total_steps;     /* of cosine: at least 1. 10000 */
    double floor;             /* of cosine: 0 to 1. 0 */
    uint64_t milestones[PSC_MAX_MILESTONES]; /* of multi-step: values of t, increasing */
    uint32_t n_milestones;                   /* 0 */
    uint64_t bucket_floats; /* of d-sync and pipe-sgd: size of the parts that are summed one by one, in
                               floats; see psc_step_begin. 0: member 0 measures and chooses. 0 */
    uint32_t pipeline;      /* K of pipe-sgd, 1 to 16: step t uses the mean gradient of step t - K + 1. 2 */
};

struct psc_options {
    size_t size;         /* set by psc_options_init: lets old programs run with a newer library */
    const char *server;  /* "tcp://HOST:PORT", "ipc://PATH", or "@FILE", an endpoint file that psd wrote. The
                            file is read again when the library reconnects */
    int32_t kind;        /* enum psc_kind. PSC_WORKER */
    int32_t rank;        /* requested rank, 0 to 1023. -1: the lowest free one. -1 */
    const char *name;    /* shown in /workers. NULL: host name and process id */
    uint32_t timeout_ms; /* how long a call waits without hearing from the server, at least 100. 60000 */
    uint32_t retry_ms;   /* a chunk without an answer is sent again after this time, at least 10, and then at
                            growing intervals. 2000 */
    uint32_t heartbeat_ms; /* time between heartbeats to the server, at least 10; at most a third of
                              timeout_ms is used. 1000 */
    /* Called by the library's threads with one sentence for the caller's log, for example about a reconnect.
     * It must not call the library. NULL: no messages. */
    void (*log)(void *log_arg, const char *sentence);
    void *log_arg;
    /* A method without a server; `server` is then NULL. psc_step follows this method and sends nothing to a
     * server. The explicit push and pull calls are PSC_EUNSUPPORTED, except psc_pushpull, which sums the
     * members' values, psc_pull of the whole vector under d-sync and pipe-sgd, and psc_pull_average under
     * asgd and mvasgd. Read during psc_open only. NULL: there is a server. */
    const struct psc_local *local;
    /* The clique of psclique.h that this worker is a member of. It stays the caller's and must outlive the
     * handle. All members make the same calls. psd sees one client, led by the member of rank 0; psc_rank and
     * psc_size are that client's at every member. psc_step sums the members' gradients, or their moves if psd
     * has clique.mode: vectors. If the workers of a server are one clique (rule hold, clique.mode: vectors),
     * the explicit push and pull calls are PSC_EUNSUPPORTED, except psc_pull of the whole vector. If psd has
     * clique.on_loss: shrink, without a server if the clique was opened with on_loss "shrink", the members
     * that are left after a loss go on within psc_step, psc_step_end, psc_save and psc_wait(c, PSC_ALL): a
     * step is made again without the lost members, or what another member has made of it is taken, so that
     * psc_clock may grow by more than 1. psc_clique_size is smaller then, and psc_clique_rank may be.
     * If the workers are one clique, psc_wait(c, PSC_ALL) then waits until all members have called it.
     * PSC_ECLIQUE: rank 0 with its session is lost, or this member was left out. PSC_EUNSUPPORTED: the clique
     * cannot. NULL, or a clique of one: a single worker. */
    struct psc_clique *clique;
    /* The key pair with which this client authenticates: a file of psctl keygen that only its user can read.
     * Read during psc_open. Control and data are then encrypted. NULL: no authentication. */
    const char *key_file;
    /* The server's public key, 40 characters of Z85. NULL: it is taken from the endpoint file, or from the
     * line "server:" of the key file. */
    const char *server_key;
    /* The transport of data: "tcp", "ipc", "shm" (shared memory with a server on this machine) or "rdma".
     * PSC_EUNSUPPORTED if the server does not offer it, or is alive but does not answer on it. If the server
     * is down, the call waits for it. NULL or "auto": the fastest that both ends have; if it fails, the
     * next one. */
    const char *transport;
    size_t tensor_size; /* sizeof (struct psc_tensor), set by psc_options_init. 0: as in the first version */
    /* Threads that share the passes of psc_step over vectors of 2^18 floats or more, the caller's included: 0
     * to 1024. psc_begin starts them, and they sleep between passes. The result is the same, bit for bit. 0
     * or 1: the caller's thread alone. */
    uint32_t threads;
    /* The worker's own step, for jobs with `optimizer: external`. It moves the PSC_PARAM values of x by the
     * gradient g. x: [n_floats], the array that was passed to psc_step. g: [n_floats], the gradient that was
     * passed to psc_step, or in a clique the mean over the members; without the method's weight decay.
     * learning_rate: the method's at this step; it may be ignored. psc_step calls it in the caller's thread:
     * after an elastic exchange, but before an exchange that sends the sum of the steps. In a clique that
     * shares x it is called at every member, with the same x and g, and must move x alike. It must not call
     * the library. NULL: jobs with such a method are PSC_EUNSUPPORTED. */
    void (*own_step)(void *own_step_arg, float *x, const float *g, double learning_rate);
    void *own_step_arg;
    /* Called about every tenth of a second in the thread of a call that waits for the server. If it returns
     * 0, the wait ends and the call returns PSC_EINTERRUPTED. The message in progress may then have been
     * applied completely, in part or not at all. If it returns PSC_GO_ON_UNLESS_HELD, the wait ends so only
     * where the server holds all that was sent until other workers have sent theirs (rounds); any other
     * value: the wait goes on. It is for programs that handle signals between their own instructions, such
     * as Python. It must not call the library. Waits for members of a clique do not call it; the clique's
     * limits bound them. NULL: waits are not interrupted. */
    int (*go_on)(void *go_on_arg);
    void *go_on_arg;
    /* For display in /workers, psctl top and the live page. net, data: names such as "lenet" and
     * "mnist:data"; they are copied and cut to 63 and 127 bytes. steps: the number of steps that this worker
     * plans, counted from t = 0. NULL, 0: not shown. */
    const char *net;
    const char *data;
    uint64_t steps;
    /* Training samples that make an epoch, of all workers together: for a method whose pipeline_warmup_epochs
     * is above 0, where 0 is PSC_EUNSUPPORTED. In a clique member 0's counts. 0 */
    uint64_t samples_per_epoch;
    /* The memory of x, g and every other vector of a call: "host", or "cuda", the GPU that is the calling
     * thread's during psc_open. There the library keeps its own vectors, too, and computes on them; it
     * touches none of them from the host. A call may leave this GPU as the calling thread's. Results are
     * those of the host, bit for bit. With "cuda": psc_alloc allocates memory of the GPU; own_step gets its
     * pointers; parts of a gradient leave in psc_step_end, unless a clique sums them; messages are encoded
     * and answers decoded there. PSC_EUNSUPPORTED: no such GPU, no module libpsclient-cuda.so, an observer,
     * or a clique of more than one member that is not over NCCL (psclique_nccl.h), which takes no vectors of
     * the host. NULL: host. */
    const char *memory;
    /* With "cuda": a cudaStream_t; the default stream is cudaStreamLegacy. A call reads and writes vectors in
     * its order: what was put into the stream before the call is done before, and what is put there after it
     * comes after. A call may return earlier. NULL: vectors must be complete when a call begins, and are when
     * it returns. */
    void *stream;
};

/* A client's report, for /workers and /metrics. NaN: not known. */
struct psc_metrics {
    size_t size;     /* sizeof (struct psc_metrics), set by the caller */
    double loss;     /* of the training batches since the last report */
    double accuracy; /* of the same batches, 0 to 1 */
    double samples_per_second;
    double test_loss; /* of observers that evaluate the center. In a worker's report NaN, or both are 0 */
    double test_accuracy;
    uint64_t center_version; /* the version of the center that was evaluated */
    const float *vector;     /* of observers: [n_floats], the vector that was evaluated, for best.safetensors.
                                NULL: it is not stored */
    uint64_t steps;          /* the new value of options.steps. 0: unchanged */
};

struct psc_info {
    size_t size; /* sizeof (struct psc_info), set by the caller */
    uint64_t n_floats;
    uint64_t center_version; /* exchanges applied to the center, as of the last answer */
    uint64_t exchanges;      /* completed by this handle */
    uint64_t retries;        /* chunks sent again */
    uint64_t reconnects;
    uint64_t bytes_sent, bytes_received; /* of values; after encoding, if there is a codec */
    double exchange_seconds;             /* time that this handle's calls have spent in exchanges */
    double update_seconds; /* time that psc_step has spent in the optimizer and the rule's client side */
    double learning_rate;  /* at the next step */
    double alpha;          /* from the server's last answer; 0 for rules without it */
    uint32_t period;       /* tau, local steps between exchanges: this worker's */
    uint32_t generation;   /* counts method changes of the job */
    char method[32];
    char optimizer[32];
    char transport[16]; /* transport of data. "none": there is no server, or another member of the clique has
                           the session */
    uint64_t save_version; /* the center's version when the server last asked the workers to save. 0: never */
    char averaging[32];    /* "none": there is no average z */
    /* Workers that train together, at least 1; each member of a clique counts. psd's key `workers` if it is
     * set, else the number present by the server's last message. After a step it is the same at all members
     * of a clique. */
    uint32_t workers;
    uint32_t early; /* 1: parts of a gradient may leave before psc_step_end, see psc_step_begin; 0: none do */
    uint64_t bucket_floats; /* of the next sum of gradients over a clique; 0: there is none */
};

/* Fills every field with its default. size: sizeof *opt; it is stored in opt->size. tensor_size: sizeof
 * (struct psc_tensor); the macro passes that of this header, since the library's struct may be larger. An
 * option that an older library does not know must be 0: else psc_open returns PSC_EINVAL and names the
 * byte. */
void psc_options_init(struct psc_options *opt, size_t size);
void psc_options_init_sized(struct psc_options *opt, size_t size, size_t tensor_size);
#define psc_options_init(opt, size) psc_options_init_sized((opt), (size), sizeof(struct psc_tensor))
/* The same for struct psc_local. `method` is not copied. */
void psc_local_init(struct psc_local *local, size_t size, const char *method);

/* Connects to the server. The strings of opt are copied. *out is freed by psc_close. If the result is not
 * PSC_OK, *out is valid only for psc_error and psc_close, or is NULL if there was no memory. Errors:
 * PSC_EINVAL, PSC_ENOMEM, PSC_ERANK, PSC_EUNSUPPORTED, PSC_ESYSTEM, PSC_EAUTH. */
int psc_open(const struct psc_options *opt, struct psc **out);

/* Joins the job with a model of n_tensors tensors, 1 to 65536. x: [n_floats], the sum of the tensors' sizes.
 * On entry x is the worker's offer of initial values, which should depend on the seed alone. On return x is
 * the start point: the first worker's offer, or the center. An observer's x is only written; the call waits
 * until a worker has made an offer. The tensors are copied, and x stays the caller's. Errors: PSC_EMANIFEST
 * names the first tensor that differs; PSC_EVALUE: x is not finite; PSC_EINVAL, PSC_ENOMEM, PSC_ESYSTEM;
 * PSC_EUNSUPPORTED: this worker cannot follow the job's method. If the library finds the tensors or x
 * invalid, nothing was sent, and the call may be repeated. After any other error, such as tensors that differ
 * from the job's, the handle can only be closed. */
int psc_begin(struct psc *c, const struct psc_tensor *tensors, size_t n_tensors, float *x);

/* Allocates *x, [n_floats] zeros, in memory that a server on this machine can map. Elastic exchanges then
 * update it in place, without a copy; messages of other exchanges that are in it, as a gradient may be, are
 * copied by the server's lanes side by side, if the machine has cores for them. Otherwise it is ordinary
 * memory. psc_close frees it. A handle has at most 3 such vectors; of a GPU any number. Call it before
 * psc_begin, whose x it may be: the server maps the vectors that are there when its lanes are connected, and
 * one that is allocated later is ordinary memory until they are connected again. Values that are exchanged in
 * place are checked while they move: after PSC_EVALUE, finite ones may have been applied. If the server is
 * killed during an exchange, or stopped for longer than timeout_ms (PSC_EGONE), a chunk in progress may have
 * been applied in part. Once the call has returned, the server no longer writes to x. Errors: PSC_EINVAL,
 * PSC_ENOMEM. */
int psc_alloc(struct psc *c, size_t n_floats, float **x);

/* Copies n_floats values of a vector to an array of the host, or back, behind all work that was put into
 * options.stream, and waits for it. For any options.memory. Errors: PSC_EINVAL, PSC_ENOMEM, PSC_EDEVICE. */
int psc_read(struct psc *c, float *host, const float *x, size_t n_floats);
int psc_write(struct psc *c, float *x, const float *host, size_t n_floats);

/* Lets a vector of psc_alloc outlive the handle: psc_memory_free(*out) frees it instead of psc_close. For
 * languages whose arrays may be read after psc_close. Errors: PSC_EINVAL: x is not a vector of psc_alloc, or
 * is kept already; PSC_ENOMEM; PSC_EUNSUPPORTED: memory of a GPU. */
struct psc_memory;
int psc_keep(struct psc *c, const float *x, struct psc_memory **out);
/* If it is called before psc_close, psc_close frees x after all. In a child of fork it does nothing. NULL is
 * allowed. */
void psc_memory_free(struct psc_memory *m);

/* Makes one training step of the job's method: the local optimizer's step, and an exchange with the server
 * when one is due. x, g: [n_floats]. g is the gradient at x, averaged over n_samples samples. On return x is
 * the point at which the next gradient is to be computed. With Nesterov's momentum that point is ahead of the
 * worker's own x, which the library keeps (Zhang et al. 2015, eq. 7-8). Errors: PSC_EVALUE: the vector to
 * send is not finite, nothing was sent, and x is the worker's diverged point; the caller may psc_pull into x
 * and continue. PSC_DRAINED with an error: the server ended within the exchange; the step counts if psc_clock
 * has moved, as under rules that send x - start, where the next exchange sends what this one has not.
 * PSC_EINVAL: a call is out of order, or n_samples is 0 in a clique, or its members begin with
 * states of different t, or some of them with none: no step was made. PSC_EREFUSED: n_samples is
 * 0 where the server weights messages by samples. After a change of the job's method: PSC_EUNSUPPORTED,
 * PSC_ENOMEM, PSC_ESYSTEM. */
int psc_step(struct psc *c, float *x, const float *g, size_t n_samples);

/* psc_step in parts, so that gradients travel while others are computed. psc_step(c, x, g, n_samples) is
 * equivalent, bit for bit and under every method, to psc_step_begin(c, x, g, n_samples),
 * psc_ready(c, 0, n_floats), psc_step_end(c). Some members of a clique may use the parts and others psc_step.
 * Where a clique sums gradients, the sum is divided into buckets (clique.bucket_floats). A bucket starts when
 * g is ready from the bucket's first float to the end of the vector. Where a single worker sends g to psd, a
 * chunk is sent when all of it is ready, and psc_step_end waits for the answers. Report the last layers
 * first, as backpropagation computes them. psc_step_end does all the work under rules that do not send g,
 * under admissions backup and quorum, with overlap or serial, and where the vector is a single chunk.
 *
 * psc_step_begin: may be called before or while the gradient at x is computed. Until psc_step_end the library
 * reads x and g; psc_step_end writes x. Until then, calls that move or read vectors are PSC_EINVAL;
 * psc_ready, psc_report, psc_info and psc_close are allowed. Errors: as psc_step.
 *
 * psc_ready: floats [first, first + count) of g are final, and those of x for a PSC_BUFFER. The ranges may
 * come in any order; each float is reported once. Errors: PSC_EINVAL, and the call has no effect: a float is
 * outside the vector or was reported before, or the reported floats form more than n_tensors + 1 separate
 * ranges. Chunks that were sent before stay sent. Those of the clique, as psc_step's, where a sum cannot
 * begin: the step has ended.
 *
 * psc_step_end: as psc_step. PSC_EINVAL names floats that were not reported. The step stays open then, and
 * the caller may report them. PSC_EVALUE: if chunks were sent before the value that is not finite was
 * reported, the message cannot be completed: psd keeps those chunks, counts no exchange, and ends the
 * session; psc_error says so. The same holds for psc_close in an open step. */
int psc_step_begin(struct psc *c, float *x, const float *g, size_t n_samples);
int psc_ready(struct psc *c, uint64_t first, uint64_t count);
int psc_step_end(struct psc *c);

/* Roles: the caller changes the values of a PSC_BUFFER in x before each step. They are averaged over the
 * workers in every exchange. Values of a PSC_FROZEN do not change. g is read for PSC_PARAM only. With weight
 * decay the gradient is g + weight_decay x for tensors that decay.
 *
 * Overlap: with the method's `overlap` an exchange starts at the end of one step and runs while the caller
 * computes the next gradients. A later psc_step returns its failure. Before psc_close, psc_wait(c, PSC_ALL)
 * waits for the last exchange. With an overlap of N steps the N-th psc_step after the start of the exchange
 * applies the answer, and waits for it if it is not there. `true` is 1.
 * - Elastic rules send x, which is known at that time. With an overlap of 1 the result is the same as without
 *   (You et al. 2017, Sync EASGD3); with more, the steps made meanwhile are kept.
 * - Rules that send g: the next gradient is computed before this step's answer is applied, so gradients are
 *   one step staler. N is at most 1.
 * - Rules that send the sum of the steps since the last answer: the answer is applied N steps later, and the
 *   steps made meanwhile are kept. Of fragments several may be on their way.
 * - Rule admm cannot overlap: PSC_EUNSUPPORTED. */

/* Asks a clique to stop, between two steps, as after a signal to this member. PSC_DRAINED: stop now; a single
 * worker always may. PSC_OK: make steps until psc_step returns PSC_DRAINED, which it does after the same step
 * at all members, so that states saved then belong together: after one step, after K steps of a pipeline of
 * K, or with clique.mode: vectors after at most two periods. May be called before each step. Where the clique
 * goes on after losses (on_loss: shrink) it stops only if all members have called, or the one with the
 * session; else this member is told to stop alone, about two seconds after its first call. Errors:
 * PSC_EINVAL. */
int psc_stop(struct psc *c);

/* Copies the worker's own x into x, [n_floats]. With Nesterov's momentum it differs from the array that
 * psc_step moves; otherwise it is a copy of that array, which must still exist. Errors: PSC_EINVAL. */
int psc_point(struct psc *c, float *x);

/* The explicit push and pull calls. tensor: a name of the manifest; the arrays have that tensor's size. NULL:
 * the whole vector, [n_floats]. Values are sent in chunks. A chunk is consistent: all its values are of one
 * version of the center. Different chunks may be of different versions. Errors: PSC_EVALUE: the values to
 * send are not finite, and nothing was sent; PSC_EINVAL: also if an observer does not pull;
 * PSC_EUNSUPPORTED: in a clique, or without a server. */

/* Codecs: if the job has a codec, messages of psc_push, psc_pushpull, psc_exchange and psc_step are encoded
 * once, when they are first sent, and answers are decoded. Values then have the codec's precision
 * (docs/METHODS.md). Values of psc_pull, psc_pull_average and psc_init are exact. */

/* Keys: a name of the manifest is a key. Under the admissions sync, round-robin and ssp a round has either
 * one message of the whole vector from each worker, or one message of each key that moves, in the manifest's
 * order. psc_push and psc_pushpull of another key than the next are PSC_EINVAL; the error names the next key,
 * and nothing is sent. Under backup, quorum, parameters.serial and parameters.fragments, messages of keys are
 * PSC_EUNSUPPORTED. If some workers send keys in a round and others whole vectors, the call is PSC_EREFUSED.
 * After a change of method in the middle of a round, or a restart of the server from a checkpoint, a call is
 * PSC_EREFUSED once, and the round begins again with its first key.
 *
 * In a clique all members make the same calls in the same order. Otherwise PSC_ECLIQUE names both calls, and
 * nothing is sent. Under rules that take a gradient the leader sends the members' mean, weighted by samples
 * (at least 1); under rule sum it sends their sum; under other rules its own message, since members share x.
 * All members receive the answer. */

/* Exchanges the whole vector under the job's rule, whatever the period: psc_pushpull(c, NULL, ...). */
int psc_exchange(struct psc *c, const float *message, float *answer, size_t n_samples);

/* Sets the center's values to x. The rule's state does not change. Other workers receive the values at their
 * next exchange. */
int psc_init(struct psc *c, const char *tensor, const float *x);

/* Copies the center's values into x. A pull of the whole vector into the array that psc_step moves (before
 * the first step: that of psc_begin) restarts the worker: the next step begins there, without momentum. */
int psc_pull(struct psc *c, const char *tensor, float *x);

/* Copies the values of the average z into z: the average of the center, or of the worker's own x if there is
 * no server. Errors: PSC_EINVAL: the job has no average. */
int psc_pull_average(struct psc *c, const char *tensor, float *z);

/* Moves the center by the job's rule. message: for rule elastic the worker's x, for sgd the gradient averaged
 * over n_samples samples, for add the move itself; for other rules see docs/METHODS.md. Its values for a
 * PSC_BUFFER are those of x. Errors: PSC_EINVAL: the tensor is frozen. PSC_EREFUSED: the job's method has
 * changed, and the new rule takes another kind of message; nothing was sent. This is returned once; later
 * messages are taken as made for the new method. */
int psc_push(struct psc *c, const char *tensor, const float *message, size_t n_samples);

/* The same, and answer receives the rule's answer: for elastic the center before the move, for sgd after it.
 * Its frozen values are not written. The caller applies the answer, for elastic x <- x - alpha (x - answer)
 * (Zhang et al. 2015, eq. 5). message and answer must not overlap: PSC_EINVAL. Without a server the answer is
 * the sum of the members' messages; a frozen tensor is PSC_EINVAL there, too. */
int psc_pushpull(struct psc *c, const char *tensor, const float *message, float *answer, size_t n_samples);

/* The same for a list of n_keys keys, in any order, each once, with a vector for each. Everything is checked
 * before anything is sent: PSC_EINVAL names a key that is unknown or repeated, PSC_EVALUE a value that is not
 * finite. In a round of keys the list has the round's next keys. Keys are sent one after the other, in the
 * manifest's order. A later failure ends the list; the keys before it have been sent. */
int psc_init_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *x);
int psc_pull_keys(struct psc *c, const char *const *keys, size_t n_keys, float *const *x);
int psc_push_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                  size_t n_samples);
int psc_pushpull_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                      float *const *answers, size_t n_samples);

/* Waits until every worker that has begun has called it, and in a clique every member. Under admissions with
 * rounds, and under ssp, it also waits until as many workers are there as psd's key `workers`. All workers
 * use the current method afterwards. A worker that leaves is not waited for, nor one that psd ends the
 * session of; the wait has no other deadline, but options.go_on may end it. After a restart of psd all
 * workers are waited for until silence_s has passed. Without a server: waits for the members of the clique.
 * Errors: PSC_EINVAL in the middle of a round of keys. */
int psc_workers_barrier(struct psc *c);

/* Changes the job's method while it runs, as psctl set does. lines: KEY=VALUE lines, such as
 * "method=async-sgd\nlearning_rate=0.1\n", with keys of the method only. Only the worker of rank 0 may call
 * it; the others follow at their next call, or in psc_workers_barrier. Returns when the method is in force.
 * In a clique all members make the same call. Errors: PSC_EREFUSED: this worker may not, or a line is wrong;
 * nothing has changed. PSC_EUNSUPPORTED without a server. */
int psc_set_method(struct psc *c, const char *lines);

/* Each of these calls has a non-blocking _start variant. Started transfers run in the order in which they
 * were started, and later calls take effect after them. The library uses the arrays until psc_wait. *ticket
 * identifies the transfer; ticket may be NULL. Errors returned at once: PSC_EINVAL,
 * PSC_EUNSUPPORTED, PSC_ENOMEM, PSC_ESYSTEM, and the PSC_EREFUSED of psc_push if the change of method is
 * known already. psc_wait returns all other errors, PSC_EVALUE included. At most PSC_MAX_STARTED transfers
 * are in progress; one more waits for the oldest. */
#define PSC_MAX_STARTED 256
int psc_exchange_start(struct psc *c, const float *message, float *answer, size_t n_samples,
                       uint64_t *ticket);
int psc_init_start(struct psc *c, const char *tensor, const float *x, uint64_t *ticket);
int psc_pull_start(struct psc *c, const char *tensor, float *x, uint64_t *ticket);
int psc_pull_average_start(struct psc *c, const char *tensor, float *z, uint64_t *ticket);
int psc_push_start(struct psc *c, const char *tensor, const float *message, size_t n_samples,
                   uint64_t *ticket);
int psc_pushpull_start(struct psc *c, const char *tensor, const float *message, float *answer,
                       size_t n_samples, uint64_t *ticket);
/* Of a list one ticket, for all of it. In a round of keys, when a started message fails, those behind it fail
 * likewise and are not sent. When psc_wait has returned the failure, the round goes on with its key. In a
 * clique, and without a server, the transfer has ended when the call returns. */
int psc_init_keys_start(struct psc *c, const char *const *keys, size_t n_keys, const float *const *x,
                        uint64_t *ticket);
int psc_pull_keys_start(struct psc *c, const char *const *keys, size_t n_keys, float *const *x,
                        uint64_t *ticket);
int psc_push_keys_start(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                        size_t n_samples, uint64_t *ticket);
int psc_pushpull_keys_start(struct psc *c, const char *const *keys, size_t n_keys,
                            const float *const *messages, float *const *answers, size_t n_samples,
                            uint64_t *ticket);

/* Waits until the transfer has ended and returns its result. The library no longer uses its arrays then.
 * PSC_ALL: waits for all transfers, and returns the first failure that psc_wait(c, PSC_ALL) has not returned
 * before. Where the workers are one clique, PSC_ALL also waits for the sum in progress, which moves the array
 * that psc_step moves, and for the last copy to the server. If a change of the method has refused an exchange
 * of a step, a worker alone makes the change, which sends what that exchange had and moves that array; a
 * clique makes it in its next step. The members of a clique are told of a drain by the same call. The results
 * of the newest PSC_MAX_STARTED transfers are kept. Of older ones only the first failure is kept, and later
 * ones count as failed. A transfer has the same limit on the server's silence as the blocking call. Errors:
 * those of the blocking call; PSC_EINVAL: no such ticket. */
#define PSC_ALL 0
int psc_wait(struct psc *c, uint64_t ticket);

/* *ended: 1 if the transfer has ended (PSC_ALL: all that were started), so that psc_wait returns its result
 * at once; otherwise 0. Errors: PSC_EINVAL. */
int psc_test(struct psc *c, uint64_t ticket, int *ended);

/* A descriptor for poll: readable if a transfer has ended since the last psc_test or psc_wait. Call psc_test
 * when it is readable. It may only be polled; psc_close closes it. Errors: PSC_ENOMEM, PSC_ESYSTEM. */
int psc_ended_fd(struct psc *c, int *fd);

/* Saves the worker's part of the job to the file `path`: x, [n_floats], as psc_step last returned it; the
 * vectors that the library keeps, such as the own x and the momentum; t; and extra_bytes of the caller's
 * data, such as the state of random generators and the position in the data set. psd saves the center. Call
 * it when save_version of psc_info has changed. Under rounds call it right after the psc_step in which it
 * changed, so that center and workers are of the same round. An exchange that overlaps is waited for and
 * becomes part of the state. The file is written to PATH.tmp and renamed, so a complete file exists at any
 * time. Errors: PSC_EVALUE: a vector is not finite; PSC_ECLIQUE: the clique has failed, and with it sums that
 * a step had begun; or it has lost members meanwhile and goes on (clique.on_loss: shrink), and nothing is
 * saved: the next call may save; PSC_EINVAL, PSC_ENOMEM, PSC_ESYSTEM. */
int psc_save(struct psc *c, const char *path, const float *x, const void *extra, size_t extra_bytes);

/* Loads a saved state, after psc_begin and before the first psc_step. x, [n_floats], receives the saved
 * array. extra, of room_bytes, receives the caller's data, and *extra_bytes their number; extra_bytes may be
 * NULL. If the center is the same, resuming is equivalent to never having stopped. Errors, after which
 * nothing has changed: PSC_EMANIFEST: the file is of another model; PSC_EINVAL: it is of another rule or
 * optimizer, or room_bytes is too small, or a step was made, or a state was loaded before; PSC_EDAMAGED: the
 * file is corrupt, or not a psc_save file; PSC_EVALUE: a vector is not finite; PSC_ESYSTEM: for example,
 * there is no such file; PSC_ENOMEM. */
int psc_load(struct psc *c, const char *path, float *x, void *extra, size_t room_bytes, size_t *extra_bytes);

/* Reads the version of the center that a saved state belongs to, from the head of the file. Under rounds,
 * resuming is equivalent to never having stopped only if the center has this version after psc_begin
 * (center_version of psc_info). Where the workers of a server are one clique, whose state has the center, it
 * is t, the same at all members that have saved after the same step. The checksum is not verified. Errors:
 * PSC_EINVAL, PSC_EDAMAGED, PSC_ESYSTEM. */
int psc_saved_version(struct psc *c, const char *path, uint64_t *center_version);

/* Reports metrics, without waiting for an answer. One case waits: an observer reports test_loss,
 * test_accuracy and the vector, and the server keeps the best evaluation (checkpoint.keep_best). The call
 * then waits for at most timeout_ms until the server has answered whether this one is the best. If it is, the
 * call sends the vector, with the errors of an explicit call. In a clique only the report of rank 0 is sent;
 * its samples_per_second is multiplied by the number of members. Without a server nothing is sent. Errors:
 * PSC_EINVAL, and nothing is reported: m->size is not set, a worker reports test_loss or test_accuracy, or an
 * observer does before psc_begin. */
int psc_report(struct psc *c, const struct psc_metrics *m);

int psc_rank(const struct psc *c); /* -1 for observers, and before psc_open has succeeded */
int psc_size(const struct psc *c); /* clients of kind PSC_WORKER in the job, by the server's last message */
/* t, by which schedules go: steps that this worker has made, those of its loaded state included. A worker
 * that joins a job late begins at the t of the furthest worker, unless it loads a state. */
uint64_t psc_clock(const struct psc *c);
/* Fills *info, whose size the caller has set. Errors: PSC_EINVAL. */
int psc_info(const struct psc *c, struct psc_info *info);
const char *psc_error(const struct psc *c); /* about the last failure, "" if there was none. Owned by c */
const char *psc_result_name(int result);    /* "PSC_EGONE" for PSC_EGONE; a static string */

/* Leaves the job and frees the handle. Transfers in progress are abandoned. Afterwards the library does not
 * access the caller's arrays. NULL is allowed. */
void psc_close(struct psc *c);

#ifdef __cplusplus
}
#endif
#endif
