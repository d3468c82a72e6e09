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
    PSC_DRAINED = 1, /* the server ends the job in good order: stop cleanly. The call itself took effect,
                        unless psc_error() says that it did not. */
    PSC_EINVAL = -1, /* an argument or option is not allowed, or a call came out of order */
    PSC_ENOMEM = -2,
    PSC_EGONE = -3,         /* the server did not answer within timeout_ms, reconnecting included */
    PSC_EEVICTED = -4,      /* the server ended this session; open a new one to go on */
    PSC_EVALUE = -5,        /* the vector holds NaN or Inf: nothing of it was sent */
    PSC_EMANIFEST = -6,     /* the tensors differ from the job's */
    PSC_ERANK = -7,         /* the rank wanted is taken or out of range */
    PSC_EREFUSED = -8,      /* the server refused the request; the sentence says why. Once also when the job's
                               method has changed and a message made by hand was of another kind than the new
                               rule takes: nothing of it was sent */
    PSC_EUNSUPPORTED = -9,  /* server and library have no such feature, or differ in version */
    PSC_ESYSTEM = -10,      /* the operating system refused: no descriptors, no threads, no such file */
    PSC_EDAMAGED = -11,     /* a file of psc_save is damaged, or is none */
    PSC_ECLIQUE = -12,      /* a member of the clique is gone or silent, or members disagree: psclique.h */
    PSC_EAUTH = -13,        /* the server does not let this key in, or not as this rank; one end has a key and
                               the other has none; or the key file cannot be used */
    PSC_EINTERRUPTED = -14, /* options.go_on ended a wait. Only psc_close is left */
};

enum psc_role {
    PSC_PARAM = 0,  /* moved by the method */
    PSC_BUFFER = 1, /* statistics, such as batch normalisation's: averaged over the workers, never stepped.
                       Their gradient is not read */
    PSC_FROZEN = 2, /* never moved: it travels when the vector is pulled, offered or set, not in exchanges */
};

enum psc_decay {
    PSC_DECAY = 0,    /* the method's weight_decay applies */
    PSC_NO_DECAY = 1, /* it does not: biases, normalisation */
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
    /* What the method's learning rate is multiplied by for this tensor, wherever its step is made: 0.000001
     * to 1000, in whole millionths; 0: 1. Read for PSC_PARAM. All workers of a job say the same. With
     * `optimizer: external` the step is the caller's own, and other rates than 1 are PSC_EUNSUPPORTED. */
    double rate;
};

#define PSC_MAX_MILESTONES 16

/* A method that needs no server: one worker by itself, or one clique. */
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
    const char *codec;        /* of d-sync and pipe-sgd: how the floats of sums travel. "raw" */
    uint64_t total_steps; /* of cosine, at least 1: eta (floor + (1 - floor)(1 + cos(pi t / total_steps)) /
                             2), from then on eta floor. 10000 */
    double floor;         /* 0 to 1. 0 */
    uint64_t milestones[PSC_MAX_MILESTONES]; /* of multi-step: at each of these t, which rise, eta is
                                                multiplied by */
    uint32_t n_milestones;                   /* gamma. 0 */
};

struct psc_options {
    size_t size;         /* set by psc_options_init: lets old programs run with a newer library */
    const char *server;  /* "tcp://HOST:PORT", "ipc://PATH" or "@FILE": an endpoint file that psd wrote. Read
                            again on reconnecting */
    int32_t kind;        /* enum psc_kind */
    int32_t rank;        /* wanted rank, 0 to 1023; -1: the lowest that is free */
    const char *name;    /* shown in /workers; NULL: host name and process id */
    uint32_t timeout_ms; /* longest silence of the server that a call bears, reconnecting included. 60000 */
    uint32_t retry_ms;   /* unanswered chunks are sent again after this time without an answer. 2000 */
    uint32_t heartbeat_ms; /* 1000 */
    /* Called from the library's threads with one sentence about something the caller may want to log, such as
     * a reconnect. Must not call the library. NULL: nobody listens. */
    void (*log)(void *log_arg, const char *sentence);
    void *log_arg;
    /* Instead of a server, which is then NULL: psc_step does what this method says, nothing travels, and the
     * calls that move values by hand are refused. Read during psc_open only. NULL: there is a server. */
    const struct psc_local *local;
    /* The clique of psclique.h that this worker is a member of, the caller's until after psc_close. All
     * members open, begin and step alike; psd sees one client, which the member of rank 0 leads, and psc_rank
     * and psc_size are that client's everywhere. psc_step sums their gradients. Values are not moved by hand,
     * but for psc_pull of the whole vector, which all members call. NULL, or a clique of one: a worker by
     * itself. */
    struct psc_clique *clique;
    /* The key pair that this client proves itself by, a file of psctl keygen that its user alone can read;
     * read during psc_open. Control and data are then encrypted, and nothing is sent in plain. NULL: the
     * server does not ask who comes. */
    const char *key_file;
    /* The server's public key, 40 characters of Z85. NULL: the endpoint file has it, or the key file's line
     * "server:". */
    const char *server_key;
    /* The transport for data: "tcp", "ipc", "shm" (shared memory with a server on this machine) or "rdma";
     * what the server does not offer, or cannot be reached by though the server answers, is
     * PSC_EUNSUPPORTED; a server that is away is waited for. NULL, "auto": the fastest
     * that both ends have, and the next when it fails. */
    const char *transport;
    size_t tensor_size; /* sizeof (struct psc_tensor), set by psc_options_init. 0: as of the first version */
    /* Threads that share psc_step's passes over vectors of 2^18 floats and more, the caller's among them, 0
     * to 1024; started by psc_begin. They sleep between the passes. The values are the same bits. 0, 1: the
     * caller alone. */
    uint32_t threads;
    /* The worker's own step, where the job has `optimizer: external`: moves the PSC_PARAM values of x, the
     * array that psc_step was given, by the gradient g: psc_step's, or what stands for it in a clique, the
     * members' mean. learning_rate: the method's at this step, which the caller may use or not. psc_step
     * calls it, in its own thread, at the place in the step that the rule gives it: after an elastic
     * exchange, before one that sends what the steps came to. It must not call the library. The method's
     * weight decay is not added to g. NULL: there is none, and jobs of such a method are PSC_EUNSUPPORTED. */
    void (*own_step)(void *own_step_arg, float *x, const float *g, double learning_rate);
    void *own_step_arg;
    /* Called in the thread of a call that waits for the server, every tenth of a second or so: 0 ends the
     * wait, and the call is PSC_EINTERRUPTED. What it had on its way has then landed, or not, or in part. For
     * programs whose signals are handled between two of their own instructions, as Python's are. It must not
     * call the library. Waits for a clique's members do not ask: its timeout_ms bounds them. NULL: nobody is
     * asked. */
    int (*go_on)(void *go_on_arg);
    void *go_on_arg;
    /* What is trained, for people who look at the job: /workers, psctl top and the live page show it. net,
     * data: a name each, such as "lenet" and "mnist:data"; copied; of a longer one the first 63 and 127 bytes
     * are shown. steps: that this worker means to take, t counted from 0. NULL, 0: not told. */
    const char *net;
    const char *data;
    uint64_t steps;
};

/* What a worker reports about its training, for /workers and /metrics. NaN means: not known. */
struct psc_metrics {
    size_t size; /* sizeof (struct psc_metrics) */
    double loss;
    double accuracy; /* of the training batches since the last report, 0 to 1 */
    double samples_per_second;
    double test_loss; /* of observers that evaluate the center; a worker's are NaN, or 0 both */
    double test_accuracy;
    uint64_t center_version; /* the version that test_loss and test_accuracy belong to */
    const float
        *vector; /* observers: [n_floats], what was scored, for best.safetensors; NULL: it is not kept */
};

struct psc_info {
    size_t size; /* sizeof (struct psc_info), set by the caller */
    uint64_t n_floats;
    uint64_t center_version; /* exchanges the center had taken in when it was last seen */
    uint64_t exchanges;      /* of this handle, completed */
    uint64_t retries;        /* chunks sent again */
    uint64_t reconnects;
    uint64_t bytes_sent, bytes_received; /* payload */
    double exchange_seconds;             /* time calls of this handle spent in exchanges */
    double update_seconds;               /* time psc_step spent in the optimizer and the worker's half */
    double learning_rate;                /* at the next step */
    double alpha;                        /* as the server last said; 0 for rules without */
    uint32_t period;                     /* this worker's */
    uint32_t generation;                 /* counts method changes of the job */
    char method[32];
    char optimizer[32];
    char transport[16];    /* that data takes; "none" where no data does, or another member's */
    uint64_t save_version; /* the center's, when the server last asked the workers to save; 0: it has not */
    char averaging[32];    /* "none": there is no z */
};

/* Fills every field with its default, and opt->size with `size`: pass sizeof *opt. The macro adds how large
 * this header's tensors are, for a library that knows larger ones. An option that the library does not know,
 * being older than the program, must be left at 0: PSC_EINVAL names the byte. */
void psc_options_init(struct psc_options *opt, size_t size);
void psc_options_init_sized(struct psc_options *opt, size_t size, size_t tensor_size);
#define psc_options_init(opt, size) psc_options_init_sized((opt), (size), sizeof(struct psc_tensor))
/* The same; `method` is kept by address. */
void psc_local_init(struct psc_local *local, size_t size, const char *method);

/* Connects and says hello. The strings of opt are copied. On success *out is the caller's until psc_close. On
 * failure *out holds a handle only good for psc_error and psc_close, or NULL when there was no memory. */
int psc_open(const struct psc_options *opt, struct psc **out);

/* Joins the job with a model of n_tensors tensors. x in: the caller's initial point, the offer (it should
 * depend on the seed alone); x out: the point to start from, which is the offer when this worker was the
 * first, else the center. An observer's x is only written; it waits until a worker has offered. Copies the
 * tensors; x stays the caller's. Errors: PSC_EMANIFEST names the first tensor that differs; PSC_EVALUE. */
int psc_begin(struct psc *c, const struct psc_tensor *tensors, size_t n_tensors, float *x);

/* *x: [n_floats] zeros, the handle's until psc_close, in memory that a server on this machine can reach: an
 * elastic exchange of it is made where it lies, by the server, without a copy. Otherwise memory like any
 * other. To be called before psc_begin, whose x it may be; a handle has at most 3. Exchanged in place, values
 * are checked as they move: after PSC_EVALUE those that were finite may have landed. Where the server is
 * killed meanwhile, or stands still for longer than timeout_ms (PSC_EGONE), a chunk that it was working on
 * may have moved in part; once the call has returned the server writes nothing there. PSC_EINVAL, PSC_ENOMEM.
 */
int psc_alloc(struct psc *c, size_t n_floats, float **x);

/* Lets a vector of psc_alloc outlive the handle: psc_close leaves it where it is, and psc_memory_free(*out)
 * frees it. For languages whose arrays may be looked at after psc_close. PSC_EINVAL, PSC_ENOMEM. */
struct psc_memory;
int psc_keep(struct psc *c, const float *x, struct psc_memory **out);
/* Before psc_close: x is the handle's again. In a child of fork, which does not have x, nothing. NULL is
 * fine. */
void psc_memory_free(struct psc_memory *m);

/* One training step: g is the gradient at x, averaged over n_samples samples (of a clique's member at least
 * 1: PSC_EINVAL). Does what the method says: the local optimizer's step, and an exchange when it is due. On
 * return x is the point at which the next gradient is wanted (under Nesterov's momentum that is a little
 * ahead of the worker's own point, which the library keeps). PSC_EVALUE when the vector to send is not
 * finite: nothing was sent and x holds the worker's own diverged point; the caller may psc_pull into x and go
 * on. */
int psc_step(struct psc *c, float *x, const float *g, size_t n_samples);

/* With roles: a PSC_BUFFER's values are the caller's to change in x before each step; they are averaged with
 * the other workers' whenever x or g is exchanged. A PSC_FROZEN's stay as they are. g is read for PSC_PARAM
 * alone. With the method's weight decay the gradient is g + weight_decay x for tensors that decay.
 *
 * With the method's `overlap` the exchange that the next step makes starts at the end of this one and travels
 * while the caller computes the next gradient. Under elastic rules the result is the same; under rules that
 * send g, the point to go on from lacks this step's answer: gradients are one step staler. A failure on the
 * way is returned by the next psc_step; before psc_close, psc_wait(c, PSC_ALL) lets the last one land. Under
 * rules that send what x has become since it was last adopted, that answer lands a step later too, and what
 * the step meanwhile did to x is kept. Rule admm cannot overlap: PSC_EUNSUPPORTED. */

/* Copies the worker's own x into x: with most methods that is the array that psc_step moves, which must still
 * be there; with Nesterov's momentum that array is a little ahead of it. */
int psc_point(struct psc *c, float *x);

/* Moving values by hand. `tensor` is a name of the manifest, and the arrays hold that tensor's values; NULL:
 * the whole vector of n floats. Values move chunk by chunk: each chunk of the center is one version of it,
 * chunks may differ by versions in between. PSC_EVALUE: what was to be sent is not finite; nothing was sent.
 */

/* Where the job has a codec, messages of psc_push, psc_pushpull, psc_exchange and psc_step are encoded once,
 * as they are first sent, and answers decoded: values are then as exact as the codec has them
 * (docs/METHODS.md). What is pulled or set by psc_init is exact. */

/* One exchange of the whole vector under the job's rule, whatever the period: psc_pushpull(c, NULL, ...). */
int psc_exchange(struct psc *c, const float *message, float *answer, size_t n_samples);

/* Sets the center's values to x and leaves rule state alone. Other workers see it at their next exchange. */
int psc_init(struct psc *c, const char *tensor, const float *x);

/* Copies the center's values into x. The whole vector into the array that psc_step moves (psc_begin's, before
 * the first step): the next step starts over from there, without momentum. */
int psc_pull(struct psc *c, const char *tensor, float *x);

/* Copies the values of z, the average that follows the center, likewise; without a server, the average of the
 * worker's own x. PSC_EINVAL names the averaging of a job that has none. */
int psc_pull_average(struct psc *c, const char *tensor, float *z);

/* Moves the center by the job's rule: `message` is what the rule takes (x for elastic, the gradient over
 * n_samples samples for sgd, the move itself for add; x's values for a PSC_BUFFER). PSC_EINVAL for a frozen
 * tensor. */
int psc_push(struct psc *c, const char *tensor, const float *message, size_t n_samples);

/* The same; `answer` receives what the rule answers (elastic: the center before; sgd: after), but for frozen
 * values, which stay as they are. The worker's half of the rule is the caller's. message and answer may not
 * overlap. */
int psc_pushpull(struct psc *c, const char *tensor, const float *message, float *answer, size_t n_samples);

/* The same in the background, in the order in which they were started; every other call takes effect after
 * them. The arrays are the library's until psc_wait. *ticket (may be NULL) names the transfer. Errors at
 * once: PSC_EINVAL, PSC_ENOMEM, PSC_ESYSTEM; all others, PSC_EVALUE among them, are told by psc_wait. Up to
 * PSC_MAX_STARTED may be on their way; starting one more waits for the oldest. */
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

/* Waits until the transfer has ended and returns how: its arrays are the caller's again. PSC_ALL: everything
 * started, with the first failure that no psc_wait(c, PSC_ALL) has told yet; where the workers are one
 * clique, also the sum that is under way, which moves the array that psc_step moves, and the last copy for
 * the server. The results of the newest PSC_MAX_STARTED are kept; of older ones only the first failure is,
 * and those after it count as failed. A transfer fails as the call without _start does: no wait is longer
 * than the server's silence may be. */
#define PSC_ALL 0
int psc_wait(struct psc *c, uint64_t ticket);

/* Saves the worker's own part of the job: x, the array as psc_step last returned it, what the library keeps
 * beside it (own point and momentum, t), and extra_bytes of the caller's own, such as generators and the
 * place in the data. The center is psd's to save: worth doing when psc_info's save_version has changed. Under
 * rounds that is right after the psc_step in which it did: center and workers are then of one round. Under
 * overlap the exchange on its way is waited for and becomes part of the state. The file is replaced
 * atomically by way of PATH.tmp. Errors: PSC_EVALUE for values that are not finite, PSC_ESYSTEM; the file
 * that was there stays. */
int psc_save(struct psc *c, const char *path, const float *x, const void *extra, size_t extra_bytes);

/* Takes up a saved state, after psc_begin and before the first psc_step: x receives the saved array, extra up
 * to room_bytes of the caller's own, *extra_bytes (may be NULL) how many. Going on from there is what going
 * on without would have been, as far as the center is the same. Errors, which change nothing: PSC_EMANIFEST
 * for another model's; PSC_EINVAL for another rule's or optimizer's, or when room_bytes is too small;
 * PSC_EDAMAGED says what is wrong with the file; PSC_EVALUE; PSC_ESYSTEM, also when there is no such file. */
int psc_load(struct psc *c, const char *path, float *x, void *extra, size_t room_bytes, size_t *extra_bytes);

/* The version of the center that a saved state goes with, from the file's head: under rounds it is to be the
 * center's (psc_info's center_version after psc_begin), or going on is not what going on without would have
 * been. Errors as psc_load's, but of the head alone. */
int psc_saved_version(struct psc *c, const char *path, uint64_t *center_version);

/* Reports metrics; does not wait for an answer. With test_loss, test_accuracy and the vector it waits,
 * timeout_ms at most, until the server has said whether they are the best yet (checkpoint.keep_best), and if
 * so until it has the vector. PSC_EINVAL, and nothing is reported: a worker evaluates the center, or an
 * observer does before psc_begin. */
int psc_report(struct psc *c, const struct psc_metrics *m);

int psc_rank(const struct psc *c);       /* -1 before psc_open succeeded and for observers */
int psc_size(const struct psc *c);       /* workers in the job, as the server last said */
uint64_t psc_clock(const struct psc *c); /* t: steps this worker has taken */
int psc_info(const struct psc *c, struct psc_info *info);
const char *
psc_error(const struct psc *c); /* the sentence of the last failure; "" when there was none; owned by c */
const char *psc_result_name(int result); /* "PSC_EGONE" for PSC_EGONE; a static string */

/* Says goodbye to the server and frees everything. What was started and has not ended is given up; no array
 * is touched any more. NULL is fine. */
void psc_close(struct psc *c);

#ifdef __cplusplus
}
#endif
#endif
