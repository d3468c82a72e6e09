/* psclient.h: the client library of psd, a parameter server.
 *
 * A worker is:
 *
 *     psc_open(&opt, &c);  psc_begin(c, tensors, n, x);
 *     while ((rc = psc_step(c, x, g, n_samples)) == PSC_OK) { ...gradient g at x... }
 *     psc_close(c);
 *
 * Changing the method on the server never changes this code. All vectors are flat arrays of n float32 values,
 * the tensors of the manifest packed back to back. The library never prints and never exits. A handle is used
 * from one thread at a time; a service thread of the library's own keeps the session alive meanwhile, and
 * another moves what was started (psc_…_start) or what the method overlaps with computing.
 *
 * Signals and fork: the library's threads start with all signals blocked, and it changes no handler. A handle
 * belongs to the process that opened it. In a child of fork every call with it returns PSC_EINVAL and touches
 * nothing of the parent's (psc_rank is -1, psc_size 0); psc_close returns at once and leaves the copy to the
 * end of the child. A child has no memory of psc_alloc: to touch it is SIGSEGV. It may open handles of its
 * own. The descriptors close on exec; a child that does not call exec keeps its copies until it ends.
 *
 * Speed: received chunks are malloc'ed and freed by the hundred. With glibc, mallopt(M_MMAP_THRESHOLD, 32 <<
 * 20) and mallopt(M_TRIM_THRESHOLD, 64 << 20) in the caller's main save their page faults (1.3 times faster
 * at 249 MB).
 *
 * Every function returns PSC_OK, PSC_DRAINED or a negative PSC_E…; psc_error() then has the sentence. */
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
    PSC_DRAINED = 1, /* the server ends the job normally: stop. The call itself took effect, unless
                        psc_error() says otherwise. */
    PSC_EINVAL = -1, /* an argument or option is not allowed, or calls are out of order */
    PSC_ENOMEM = -2,
    PSC_EGONE = -3,        /* the server did not answer within timeout_ms, reconnecting included */
    PSC_EEVICTED = -4,     /* the server ended this session; open a new one to continue */
    PSC_EVALUE = -5,       /* the vector has NaN or Inf: nothing of it was sent */
    PSC_EMANIFEST = -6,    /* the tensors differ from the job's */
    PSC_ERANK = -7,        /* the requested rank is taken or out of range */
    PSC_EREFUSED = -8,     /* the server refused the request: see psc_error. Also see psc_push */
    PSC_EUNSUPPORTED = -9, /* server or library lacks the feature, or their versions differ */
    PSC_ESYSTEM = -10,     /* the operating system refused: no descriptors, no threads, no such file */
    PSC_EDAMAGED = -11,    /* the file is corrupt, or not a psc_save file */
    PSC_ECLIQUE = -12,     /* a member of the clique is gone or silent, or members disagree: psclique.h */
    PSC_EAUTH = -13, /* the server refuses this key, or this rank for it; only one end has a key; or the key
                        file cannot be used */
    PSC_EINTERRUPTED = -14, /* options.go_on ended a wait. Only psc_close is allowed then */
};

enum psc_role {
    PSC_PARAM = 0,  /* moved by the method */
    PSC_BUFFER = 1, /* statistics, such as batch normalisation's: averaged over the workers, never stepped;
                       their gradient is ignored */
    PSC_FROZEN = 2, /* never moved: pulled, offered and set, but not exchanged */
};

enum psc_decay {
    PSC_DECAY = 0,    /* the method's weight_decay applies */
    PSC_NO_DECAY = 1, /* weight_decay does not apply: biases, normalisation */
};

enum psc_kind {
    PSC_WORKER = 0,   /* computes gradients; has a rank */
    PSC_OBSERVER = 1, /* only pulls the center; psc_rank() is -1 */
};

/* One named tensor of the flat vector. Tensors must follow each other without gaps, starting at offset 0. */
struct psc_tensor {
    const char *name; /* unique; 1 to 127 bytes of UTF-8; read during psc_begin only */
    uint64_t offset;  /* floats from the start of the vector */
    uint64_t shape[PSC_MAX_DIMS];
    uint32_t n_dims; /* 0 to PSC_MAX_DIMS; 0: a scalar, of one value, whose shape is all 0 */
    uint32_t role;   /* enum psc_role */
    uint32_t decay;  /* enum psc_decay; read for PSC_PARAM */
    /* Multiplier of the method's learning rate for this tensor, wherever the step is made: 0.000001 to 1000,
     * in whole millionths; 0: 1. Read for PSC_PARAM. It must be the same at all workers of a job. With
     * `optimizer: external` the caller makes the step, and other values than 1 are PSC_EUNSUPPORTED. */
    double rate;
};

#define PSC_MAX_MILESTONES 16

/* A method without a server: one worker by itself, or one clique. */
struct psc_local {
    size_t size;        /* set by psc_local_init */
    const char *method; /* "sgd", "msgd" (Nesterov's momentum), "asgd", "mvasgd" (SGD; z averages x); with or
                           without a clique "d-sync", "pipe-sgd" (Li et al. 2018) */
    double learning_rate;  /* eta, above 0. 0.05 */
    double momentum;       /* of msgd, 0 to below 1. 0.9 */
    double averaging_rate; /* of mvasgd, above 0, at most 1. 0.001 */
    double weight_decay;   /* 0 to 1. 0 */
    const char *schedule; /* "constant", "step" (eta gamma^(t / step_steps)), "inv-sqrt" (eta / sqrt(1 + gamma
                             t)), "cosine", "multi-step". "constant" */
    double gamma;         /* 0.1 */
    uint64_t step_steps;  /* at least 1. 10000 */
    uint64_t warmup_steps;    /* eta grows linearly over these first steps. 0 */
    uint64_t pipeline_warmup; /* of pipe-sgd: first steps, made as d-sync's. 0 */
    const char *codec;        /* d-sync and pipe-sgd: the codec of sums. "raw" */
    uint64_t total_steps; /* of cosine, at least 1: eta (floor + (1 - floor)(1 + cos(pi t / total_steps)) /
                             2), from then on eta floor. 10000 */
    double floor;         /* 0 to 1. 0 */
    uint64_t milestones[PSC_MAX_MILESTONES]; /* multi-step: at each of these t, which increase, eta is
                                                multiplied by gamma */
    uint32_t n_milestones;                   /* gamma. 0 */
    uint64_t bucket_floats; /* d-sync and pipe-sgd: floats of the parts that are summed one by one, see
                               psc_step_begin; 0: the library chooses. 0 */
    uint32_t pipeline; /* K of pipe-sgd, 1 to 16: a step uses the mean gradient of K - 1 steps before. 2 */
};

struct psc_options {
    size_t size;         /* set by psc_options_init: lets old programs run with a newer library */
    const char *server;  /* "tcp://HOST:PORT", "ipc://PATH" or "@FILE": an endpoint file that psd wrote. Read
                            again on reconnecting */
    int32_t kind;        /* enum psc_kind */
    int32_t rank;        /* requested rank, 0 to 1023; -1: the lowest that is free */
    const char *name;    /* shown in /workers; NULL: host name and process id */
    uint32_t timeout_ms; /* longest wait without hearing from the server, reconnecting included. 60000 */
    uint32_t retry_ms;   /* chunks without an answer are sent again after this time. 2000 */
    uint32_t heartbeat_ms; /* 1000 */
    /* Called from the library's threads with one sentence that the caller may want to log, such as a
     * reconnect. Must not call the library. NULL: not wanted. */
    void (*log)(void *log_arg, const char *sentence);
    void *log_arg;
    /* Instead of a server, which is then NULL: psc_step does what this method says, nothing is sent, and of
     * the explicit push and pull calls only psc_pushpull is allowed: it adds up the members' values. Read
     * during psc_open only. NULL: there is a server. */
    const struct psc_local *local;
    /* The clique of psclique.h that this worker is a member of; it must outlive the handle. All members open,
     * begin and step alike. psd sees one client, led by the member of rank 0; psc_rank and psc_size are that
     * client's at every member. psc_step sums the members' gradients. All members make the explicit push and
     * pull calls alike. Where the workers of a server are one clique (rule hold, clique.mode vectors) these
     * are refused, except psc_pull of the whole vector. NULL, or a clique of one: a worker by itself. */
    struct psc_clique *clique;
    /* The key pair by which this client authenticates: a file of psctl keygen that only its user can read;
     * read during psc_open. Control and data are then encrypted, and nothing is sent in plain. NULL: the
     * server requires no authentication. */
    const char *key_file;
    /* The server's public key, 40 characters of Z85. NULL: the endpoint file has it, or the key file's line
     * "server:". */
    const char *server_key;
    /* The transport for data: "tcp", "ipc", "shm" (shared memory with a server on this machine) or "rdma".
     * PSC_EUNSUPPORTED if the server does not offer it, or does not answer on it though the server is alive;
     * a server that is down is waited for. NULL, "auto": the fastest that both ends have; if it fails, the
     * next. */
    const char *transport;
    size_t tensor_size; /* sizeof (struct psc_tensor), set by psc_options_init. 0: as of the first version */
    /* Threads that share psc_step's passes over vectors of 2^18 floats and more, the caller's included, 0 to
     * 1024; psc_begin starts them. They sleep between passes. The result is the same, bit for bit. 0, 1: the
     * caller alone. */
    uint32_t threads;
    /* The worker's own step, for jobs with `optimizer: external`: moves the PSC_PARAM values of x, the array
     * that psc_step was given, by the gradient g: psc_step's, or in a clique the members' mean.
     * learning_rate: the method's at this step, which the caller may ignore. psc_step calls it, in its own
     * thread, where the rule has the worker's own step: after an elastic exchange, but before one that sends
     * the sum of the steps. It must not call the library. The method's weight decay is not added to g. NULL:
     * jobs of such a method are PSC_EUNSUPPORTED. */
    void (*own_step)(void *own_step_arg, float *x, const float *g, double learning_rate);
    void *own_step_arg;
    /* Called in the thread of a call that waits for the server, about every tenth of a second: 0 ends the
     * wait, and the call returns PSC_EINTERRUPTED. What it was sending may then have landed, wholly, in part
     * or not at all. For programs that handle signals between their own instructions, as Python does. It must
     * not call the library. Waits for members of a clique do not call it: the clique's timeout_ms bounds
     * them. NULL: not wanted. */
    int (*go_on)(void *go_on_arg);
    void *go_on_arg;
    /* For display: /workers, psctl top and the live page show it. net, data: a name each, such as "lenet" and
     * "mnist:data"; copied, and cut to 63 and 127 bytes. steps: the number of steps that this worker plans, t
     * counted from 0. NULL, 0: not shown. */
    const char *net;
    const char *data;
    uint64_t steps;
};

/* A worker's report about its training, for /workers and /metrics. NaN: not known. */
struct psc_metrics {
    size_t size; /* sizeof (struct psc_metrics) */
    double loss;
    double accuracy; /* of the training batches since the last report, 0 to 1 */
    double samples_per_second;
    double test_loss; /* of observers that evaluate the center; a worker's are NaN, or 0 both */
    double test_accuracy;
    uint64_t center_version; /* the version that test_loss and test_accuracy belong to */
    const float *vector; /* observers: [n_floats], the vector that was evaluated, for best.safetensors; NULL:
                            it is not stored */
    uint64_t steps;      /* as in options, where that has changed since; 0: it has not */
};

struct psc_info {
    size_t size; /* sizeof (struct psc_info), set by the caller */
    uint64_t n_floats;
    uint64_t center_version; /* exchanges applied to the center when it was last seen */
    uint64_t exchanges;      /* of this handle, completed */
    uint64_t retries;        /* chunks sent again */
    uint64_t reconnects;
    uint64_t bytes_sent, bytes_received; /* payload */
    double exchange_seconds;             /* time that calls of this handle have spent in exchanges */
    double update_seconds; /* time psc_step spent in the optimizer and the client's side of the rule */
    double learning_rate;  /* at the next step */
    double alpha;          /* from the server's last message; 0 for rules without it */
    uint32_t period;       /* this worker's */
    uint32_t generation;   /* counts method changes of the job */
    char method[32];
    char optimizer[32];
    char transport[16]; /* transport of data; "none" without a server, or where another member has the session
                         */
    uint64_t save_version; /* the center's, when the server last asked the workers to save; 0: it has not */
    char averaging[32];    /* "none": there is no z */
    /* That train together, each member of a clique counted: those that the job's beginning waits for (psd's
     * `workers`), else those that are there, as the server last said. After a step the same at all members of
     * a clique. At least 1. */
    uint32_t workers;
};

/* Fills every field with its default, and opt->size with `size`: pass sizeof *opt. The macro adds the size of
 * this header's struct psc_tensor, for libraries whose struct is larger. An option that the library is too
 * old to know must stay 0: else PSC_EINVAL names the byte. */
void psc_options_init(struct psc_options *opt, size_t size);
void psc_options_init_sized(struct psc_options *opt, size_t size, size_t tensor_size);
#define psc_options_init(opt, size) psc_options_init_sized((opt), (size), sizeof(struct psc_tensor))
/* The same; `method` is kept by address. */
void psc_local_init(struct psc_local *local, size_t size, const char *method);

/* Connects to the server. The strings of opt are copied. On success *out is the caller's until psc_close. On
 * failure *out is a handle that is valid only for psc_error and psc_close, or NULL if there was no memory. */
int psc_open(const struct psc_options *opt, struct psc **out);

/* Joins the job with a model of n_tensors tensors. x in: the caller's initial point, the offer (it should
 * depend on the seed alone). x out: the start point: the offer, if this worker was the first, else the
 * center. For an observer x is only written; it waits until a worker has offered. The tensors are copied; x
 * stays the caller's. Errors: PSC_EMANIFEST names the first tensor that differs; PSC_EVALUE. */
int psc_begin(struct psc *c, const struct psc_tensor *tensors, size_t n_tensors, float *x);

/* Allocates *x, [n_floats] zeros, in memory that a server on this machine can map: elastic exchanges update
 * it in place, without a copy. Otherwise it is memory like any other; psc_close frees it. Call it before
 * psc_begin, whose x it may be; a handle has at most 3. In place, values are checked as they move: after
 * PSC_EVALUE the finite ones may have landed. If the server is killed during an exchange, or stopped for
 * longer than timeout_ms (PSC_EGONE), a chunk in progress may have moved in part; after the call has returned
 * the server no longer writes to x. PSC_EINVAL, PSC_ENOMEM. */
int psc_alloc(struct psc *c, size_t n_floats, float **x);

/* Lets a vector of psc_alloc outlive the handle: psc_close does not free it, psc_memory_free(*out) does. For
 * languages whose arrays may be read after psc_close. PSC_EINVAL, PSC_ENOMEM. */
struct psc_memory;
int psc_keep(struct psc *c, const float *x, struct psc_memory **out);
/* If called before psc_close, x is the handle's again. Does nothing in a child of fork, which does not have
 * x. NULL is allowed. */
void psc_memory_free(struct psc_memory *m);

/* One training step: g is the gradient at x, averaged over n_samples samples (at least 1 in a clique:
 * PSC_EINVAL). Makes the local optimizer's step, and an exchange when it is due, as the method says. On
 * return x is the point at which the next gradient is needed (under Nesterov's momentum a little ahead of the
 * worker's own point, which the library keeps). PSC_EVALUE: the vector to send is not finite; nothing was
 * sent, and x is the worker's own diverged point. The caller may psc_pull into x and continue. */
int psc_step(struct psc *c, float *x, const float *g, size_t n_samples);

/* psc_step in parts, so that gradients travel while others are computed: psc_step(c, x, g, n_samples) is
 * psc_step_begin(c, x, g, n_samples), psc_ready(c, 0, n_floats), psc_step_end(c), with the same bits, under
 * every method. Members of a clique may differ in how they call. Where a clique sums gradients, a part of the
 * sum (clique.bucket_floats) starts as soon as all of g from its first float to the end of the vector is
 * ready: report the last layers first, as backpropagation ends them. Under other rules psc_step_end does all.
 *
 * psc_step_begin: before the gradient at x is computed, or while. x and g are the library's to read until
 * psc_step_end; psc_step_end moves x. Until then psc_ready, psc_report and psc_info are allowed, and calls
 * that move or read vectors are PSC_EINVAL.
 *
 * psc_ready: floats [first, first + count) of g, and of x for a PSC_BUFFER, are final. Any order, any parts,
 * each float once. PSC_EINVAL, and nothing of this call is taken: a part of it is outside the vector or was
 * reported before; or what was reported is in more parts that do not touch than there are tensors, and one.
 *
 * psc_step_end: as psc_step. PSC_EINVAL names floats that were not reported; the step stays begun, and they
 * may be reported yet. */
int psc_step_begin(struct psc *c, float *x, const float *g, size_t n_samples);
int psc_ready(struct psc *c, uint64_t first, uint64_t count);
int psc_step_end(struct psc *c);

/* Roles: the caller changes the values of a PSC_BUFFER in x before each step; they are averaged over the
 * workers whenever x or g is exchanged. Values of a PSC_FROZEN stay as they are. g is read for PSC_PARAM
 * only. With weight decay the gradient is g + weight_decay x for tensors that decay.
 *
 * With the method's `overlap` the next step's exchange starts at the end of this one and runs while the
 * caller computes the next gradient. Under elastic rules the result is the same. Under rules that send g, the
 * point of the next gradient does not include this step's answer: gradients are one step staler. The next
 * psc_step returns a failure of that exchange; before psc_close, psc_wait(c, PSC_ALL) waits for the last one.
 * Under rules that send the sum of the steps since the last answer, the answer also lands a step later, and
 * the step made meanwhile is kept. Rule admm cannot overlap: PSC_EUNSUPPORTED. */

/* Copies the worker's own x into x. With most methods that is the array that psc_step moves, which must still
 * exist; with Nesterov's momentum that array is a little ahead of it. */
int psc_point(struct psc *c, float *x);

/* The explicit push and pull calls. `tensor` is a name of the manifest, and the arrays hold that tensor's
 * values; NULL: the whole vector of n floats. Values move chunk by chunk: each chunk is one version of the
 * center, but chunks may be of different versions. PSC_EVALUE: the values to send are not finite; nothing was
 * sent. */

/* Keys. A name of the manifest is a key. Where the server's admission has members (sync, round-robin, ssp), a
 * round has either one message of the whole vector from each worker, or one of each key that moves, in the
 * manifest's order: psc_push and psc_pushpull of any other key are PSC_EINVAL, which names the key that is
 * next, and nothing is sent. Under backup, quorum, parameters.serial and parameters.fragments messages of
 * keys are PSC_EUNSUPPORTED. Members that mix keys and whole vectors in a round are PSC_EREFUSED.
 * PSC_EREFUSED also after a change of method, or a restart of the server from a checkpoint, in the middle of
 * a round: it begins again with its first key.
 *
 * In a clique all members make the same calls in the same order; else PSC_ECLIQUE names both calls, and
 * nothing is sent. Under rules that take a gradient the leader sends the members' mean, weighted by samples
 * (at least 1); under rule sum their sum; else its own message, since members share x. All receive its
 * answer. */

/* If the job has a codec, messages of psc_push, psc_pushpull, psc_exchange and psc_step are encoded once,
 * when they are first sent, and answers are decoded: values then have the codec's precision
 * (docs/METHODS.md). Values of psc_pull and psc_init are exact. */

/* One exchange of the whole vector under the job's rule, whatever the period: psc_pushpull(c, NULL, ...). */
int psc_exchange(struct psc *c, const float *message, float *answer, size_t n_samples);

/* Sets the center's values to x; the rule's state stays as it is. Other workers see the values at their next
 * exchange. */
int psc_init(struct psc *c, const char *tensor, const float *x);

/* Copies the center's values into x. If it is the whole vector into the array that psc_step moves
 * (psc_begin's, before the first step), the next step restarts from there, without momentum. */
int psc_pull(struct psc *c, const char *tensor, float *x);

/* Copies the values of z, the average of the center, likewise; without a server, the average of the worker's
 * own x. PSC_EINVAL if the job has no average. */
int psc_pull_average(struct psc *c, const char *tensor, float *z);

/* Moves the center by the job's rule. `message` is the rule's: x for elastic, the gradient over n_samples
 * samples for sgd, the move itself for add; x's values for a PSC_BUFFER. PSC_EINVAL for a frozen tensor.
 * PSC_EREFUSED once after a change of method, if a message for the old rule means something else under the
 * new one: nothing of it was sent. */
int psc_push(struct psc *c, const char *tensor, const float *message, size_t n_samples);

/* The same; `answer` receives the rule's answer (elastic: the center before; sgd: after), except frozen
 * values, which stay as they are. Applying the answer is up to the caller. message and answer must not
 * overlap. */
int psc_pushpull(struct psc *c, const char *tensor, const float *message, float *answer, size_t n_samples);

/* The same for a list of n_keys keys, in any order, each once, with a vector for each. Everything is checked
 * before anything is sent: PSC_EINVAL names a key that is not in the manifest, or that is there twice, and
 * PSC_EVALUE a value. In a round of keys the list is its next keys. Keys go one after the other, in the
 * manifest's order; what ends one of them for another reason ends the list, and keys before it have been
 * sent. */
int psc_init_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *x);
int psc_pull_keys(struct psc *c, const char *const *keys, size_t n_keys, float *const *x);
int psc_push_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                  size_t n_samples);
int psc_pushpull_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                      float *const *answers, size_t n_samples);

/* Waits until every worker that has begun has called it, and in a clique every member. Under admissions with
 * rounds, and ssp, it also waits until there are as many workers as psd's `workers` says. Then all use the
 * method that is in force. A worker that leaves is not waited for. Without a server: the members of the
 * clique. PSC_EINVAL in the middle of a round of keys. */
int psc_workers_barrier(struct psc *c);

/* Changes the job's method while it runs, as psctl set does: lines of KEY=VALUE, such as
 * "method=async-sgd\nlearning_rate=0.1\n", of the keys of the method alone. Only the worker of rank 0 may;
 * the others learn of the change at their next call, or in psc_workers_barrier. Returns when the method is in
 * force. PSC_EREFUSED says who may, or what is wrong with a line; nothing has changed then. In a clique all
 * members call it alike. Without a server: PSC_EUNSUPPORTED. */
int psc_set_method(struct psc *c, const char *lines);

/* Each such call has a non-blocking _start variant. Started transfers run in the order in which they were
 * started; every other call takes effect after them. The arrays belong to the library until psc_wait. *ticket
 * (may be NULL) names the transfer. Errors at once: PSC_EINVAL, PSC_ENOMEM, PSC_ESYSTEM; all others,
 * PSC_EVALUE included, are returned by psc_wait. Up to PSC_MAX_STARTED may be in progress; starting one more
 * waits for the oldest. */
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
 * likewise and are not sent, and the round goes on with its key. In a clique, and without a server, the
 * transfer has ended when the call returns. */
int psc_init_keys_start(struct psc *c, const char *const *keys, size_t n_keys, const float *const *x,
                        uint64_t *ticket);
int psc_pull_keys_start(struct psc *c, const char *const *keys, size_t n_keys, float *const *x,
                        uint64_t *ticket);
int psc_push_keys_start(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                        size_t n_samples, uint64_t *ticket);
int psc_pushpull_keys_start(struct psc *c, const char *const *keys, size_t n_keys,
                            const float *const *messages, float *const *answers, size_t n_samples,
                            uint64_t *ticket);

/* Waits until the transfer has ended and returns its result; its arrays are the caller's again. PSC_ALL:
 * waits for everything that was started, and returns the first failure that no psc_wait(c, PSC_ALL) has
 * returned yet. Where the workers are one clique, it also waits for the sum in progress, which moves the
 * array that psc_step moves, and for the last copy to the server. The results of the newest PSC_MAX_STARTED
 * transfers are available; of older ones only the first failure is, and those after it count as failed. A
 * transfer fails like the blocking call: no wait is longer than the limit on the server's silence. */
#define PSC_ALL 0
int psc_wait(struct psc *c, uint64_t ticket);

/* Whether that transfer has ended (PSC_ALL: whether all that were started have), so that psc_wait would
 * return its result at once: *ended is 1, else 0. PSC_EINVAL. */
int psc_test(struct psc *c, uint64_t ticket, int *ended);

/* A descriptor for poll: readable when a transfer has ended since psc_test or psc_wait was last called. Call
 * psc_test after it was readable. Only to be polled; psc_close closes it. PSC_ENOMEM, PSC_ESYSTEM. */
int psc_ended_fd(struct psc *c, int *fd);

/* Saves the worker's own part of the job: x, the array as psc_step last returned it; the vectors that the
 * library keeps (own point and momentum) and t; and extra_bytes of the caller's own, such as generators and
 * the position in the data. psd saves the center itself. Call it when psc_info's save_version has changed;
 * under rounds right after the psc_step in which it did, so that center and workers are of the same round. An
 * overlapped exchange is waited for and becomes part of the state. The file is replaced atomically by way of
 * PATH.tmp. Errors: PSC_EVALUE for values that are not finite, PSC_ESYSTEM; the old file then stays. */
int psc_save(struct psc *c, const char *path, const float *x, const void *extra, size_t extra_bytes);

/* Loads a saved state, after psc_begin and before the first psc_step: x receives the saved array, extra up to
 * room_bytes of the caller's own, *extra_bytes (may be NULL) their number. If the center is the same,
 * resuming is equivalent to never having stopped. Errors, which change nothing: PSC_EMANIFEST: another model;
 * PSC_EINVAL: another rule or optimizer, or room_bytes is too small; PSC_EDAMAGED says what is wrong with the
 * file; PSC_EVALUE; PSC_ESYSTEM, also when there is no such file. */
int psc_load(struct psc *c, const char *path, float *x, void *extra, size_t room_bytes, size_t *extra_bytes);

/* The version of the center that a saved state belongs to, from the head of the file. Under rounds it must be
 * the center's (psc_info's center_version after psc_begin): otherwise resuming is not equivalent to never
 * having stopped. Errors as of psc_load, but only those of the head. */
int psc_saved_version(struct psc *c, const char *path, uint64_t *center_version);

/* Reports metrics; does not wait for an answer. With test_loss, test_accuracy and the vector it waits,
 * timeout_ms at most, until the server has said whether they are the best yet (checkpoint.keep_best), and if
 * so until it has the vector. PSC_EINVAL, and nothing is reported: a worker evaluates the center, or an
 * observer does before psc_begin. */
int psc_report(struct psc *c, const struct psc_metrics *m);

int psc_rank(const struct psc *c);       /* -1 before psc_open succeeded and for observers */
int psc_size(const struct psc *c);       /* workers in the job, by the server's last message */
uint64_t psc_clock(const struct psc *c); /* t: steps this worker has taken */
int psc_info(const struct psc *c, struct psc_info *info);
const char *
psc_error(const struct psc *c); /* the sentence of the last failure; "": there was none; owned by c */
const char *psc_result_name(int result); /* "PSC_EGONE" for PSC_EGONE; a static string */

/* Leaves the job and frees everything. Transfers that have not ended are abandoned; no array is accessed any
 * more. NULL is allowed. */
void psc_close(struct psc *c);

#ifdef __cplusplus
}
#endif
#endif
