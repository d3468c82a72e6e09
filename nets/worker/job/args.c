#include "nets/worker/job/args.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "nets/data/data.h"
#include "nets/worker/job/clique.h"
#include "nets/worker/job/devices.h"
#include "nets/worker/job/no_server.h"

enum kind { TEXT, NUMBER, OPTIONAL, SECONDS, REAL, FLAG };

struct row {
    const char *name;
    enum kind kind;
    size_t offset;            /* of the member of struct cnn_worker_args */
    uint64_t lowest, highest; /* of NUMBER and OPTIONAL, which may be -1: not given */
    const char *value, *help;
};

#define AT(member)  offsetof(struct cnn_worker_args, member)
#define LOWEST_S    0.1
#define HIGHEST_S   86400.0
#define HIGHEST_U64 UINT64_MAX
#define NOT_GIVEN   UINT64_MAX /* of --threads, which may be 0 */

static const struct row rows[] = {
    {"server", TEXT, AT(server), 0, 0, "URL|@FILE",
     "the server: tcp://HOST:PORT, ipc://PATH, or the endpoint file that psd wrote"},
    {"key", TEXT, AT(key), 0, 0, "FILE",
     "the key pair of this worker, a file of psctl keygen; required where psd has auth.key"},
    {"server-key", TEXT, AT(server_key), 0, 0, "KEY",
     "psd's public key, with --key (the one in @FILE or in the key file)"},
    {"transport", TEXT, AT(transport), 0, 0, "NAME",
     "the transport for data: tcp, ipc, shm or rdma (auto: the fastest that psd offers)"},
    {"method", TEXT, AT(method), 0, 0, "NAME",
     "train by sgd, msgd, asgd, mvasgd, d-sync or pipe-sgd, without a server"},
    {"net", TEXT, AT(net), 0, 0, "NET",
     "the net to train (lenet), NAME[:classes=N,size=SIDE] for another number of classes or size of images"},
    {"backend", TEXT, AT(backend), 0, 0, "NAME", "ref, onednn or cuda (onednn where it was built)"},
    {"memory", TEXT, AT(memory), 0, 0, "NAME",
     "where x and g lie: host, cuda or auto (auto: with --backend cuda on the GPU, if nothing needs them on "
     "the host)"},
    {"precision", TEXT, AT(precision), 0, 0, "float32|tf32|bf16|auto",
     "what the net computes in; x, gradients and sums stay float32; auto: measure which is faster (float32)"},
    {"deterministic", TEXT, AT(deterministic), 0, 0, "yes|no",
     "no: cuda may use algorithms that round otherwise each time (yes)"},
    {"data", TEXT, AT(data), 0, 0, "SPEC",
     "digits[:SEED], mnist:DIR, cifar10:DIR, cifar100:DIR, images:DIR|FILE.tar or synthetic:CxHxW:CLASSES "
     "(digits)"},
    {"view", TEXT, AT(view), 0, 0, "VIEW",
     "with --data images: how training images are cropped: crop, resized-crop or "
     "centre[:side=S,jitter=J,flip=no] (crop)"},
    {"cache", TEXT, AT(cache), 0, 0, "FILE",
     "with --data images: cache the decoded images in this file, created if it does not exist"},
    {"sampling", TEXT, AT(sampling), 0, 0, "HOW",
     "the order of training images: shuffle, buffer[:IMAGES] or loaders:LOADERS:CHUNK:WORKERS (shuffle; of "
     "tar files, buffer)"},
    {"max-damaged", NUMBER, AT(max_damaged), 0, UINT32_MAX, "N",
     "with --data images: skip at most N unreadable images (100)"},
    {"batch", NUMBER, AT(batch), 1, 65536, "B", "images a step (64)"},
    {"epochs", NUMBER, AT(epochs), 1, 1000000, "E",
     "end after this many passes over the training set, all workers together (1)"},
    {"steps", NUMBER, AT(steps), 1, 1ull << 48, "S", "or after this many steps"},
    {"seed", NUMBER, AT(seed), 0, HIGHEST_U64, "S",
     "seed of the initial point and of the order of the images (1)"},
    {"threads", NUMBER, AT(threads), 0, 1024, "T",
     "threads for the net and the local step; 0: one for each core (1)"},
    {"partitions", TEXT, AT(partitions), 0, 0, "P|auto",
     "divide cores and batch into P parts, each with its own threads, net and data in near memory"},
    {"devices", TEXT, AT(devices), 0, 0, "D",
     "compute on D nets, each with its own threads and part of the batch: one member of a clique; with "
     "--backend cuda D is a list of GPUs, each a member over NCCL"},
    {"prefetch", NUMBER, AT(prefetch), 0, CNN_MAX_PREFETCH, "N",
     "batches prepared ahead by threads; 0: none (4)"},
    {"data-threads", NUMBER, AT(data_threads), 1, CNN_MAX_DATA_THREADS, "T",
     "threads that prepare batches, all on the same batch (1)"},
    {"step-ms", NUMBER, AT(step_ms), 0, 3600000, "N",
     "make every gradient take at least N ms, to simulate a slower machine (0)"},
    {"rank", OPTIONAL, AT(rank), 0, 1023, "R", "the requested rank (the lowest free one)"},
    {"name", TEXT, AT(name), 0, 0, "NAME", "shown by psctl workers (host and process id)"},
    {"init", TEXT, AT(init), 0, 0, "FILE",
     "start from a safetensors file, matched by name and shape; missing tensors are initialised"},
    {"init-skip", TEXT, AT(init_skip), 0, 0, "PATTERNS",
     "with --init: tensors to initialise even if the file has them, such as fc2.*"},
    {"freeze", TEXT, AT(freeze), 0, 0, "PATTERNS",
     "tensors that are not trained, such as conv*.*; the same for every worker and evaluator of a job"},
    {"rates", TEXT, AT(rates), 0, 0, "RATES",
     "factors of the learning rate for tensors, such as fc2.*=10,*.bias=2; the same for every worker and "
     "evaluator of a job"},
    {"clip-norm", REAL, AT(clip_norm), 0, 0, "C",
     "scale down each gradient with a larger norm, over all trained tensors"},
    {"label-smoothing", REAL, AT(label_smoothing), 0, 0, "E",
     "train towards 1 - E at the label, with E spread over all classes (0)"},
    {"accumulate", NUMBER, AT(accumulate), 1, 65536, "K", "step with the mean gradient of K batches (1)"},
    {"state", TEXT, AT(state), 0, 0, "FILE",
     "resume from this file if it exists; save to it at psd's checkpoints and at the end"},
    {"evaluate", FLAG, AT(evaluate), 0, 0, NULL,
     "do not train: evaluate the center, or its average, on the test set periodically"},
    {"center", FLAG, AT(center), 0, 0, NULL,
     "with --evaluate: the center, even if the job keeps an average of it"},
    {"every", SECONDS, AT(every_s), 0, 0, "S",
     "with --evaluate or --method: seconds between evaluations (3)"},
    {"once", FLAG, AT(once), 0, 0, NULL, "with --evaluate: evaluate once, then end"},
    {"predict", FLAG, AT(predict), 0, 0, NULL,
     "do not train: print label and probabilities of each test image, computed with the center or, without a "
     "server, with --init's tensors, as CSV or (--json) JSON lines"},
    {"confusion", TEXT, AT(confusion), 0, 0, "FILE",
     "with --evaluate, --predict or --method: write per-class results and the confusion matrix of the last "
     "evaluation"},
    {"train-sample", NUMBER, AT(train_sample), 1, UINT32_MAX, "N",
     "with --evaluate or --method: also the loss over N training images"},
    {"history", TEXT, AT(history), 0, 0, "FILE",
     "with --evaluate or --method: append a JSON line for each evaluation"},
    {"tensorboard", TEXT, AT(tensorboard), 0, 0, "DIR",
     "write loss, accuracy, speed and times to DIR/worker-RANK or DIR/evaluator, for TensorBoard"},
    {"learning-rate", REAL, AT(learning_rate), 0, 0, "ETA", "with --method: the step size"},
    {"momentum", REAL, AT(momentum), 0, 0, "M", "with --method msgd: 0 to below 1 (0.9)"},
    {"averaging-rate", REAL, AT(averaging_rate), 0, 0, "R",
     "with --method mvasgd: fraction of the way that z moves to x (0.001)"},
    {"weight-decay", REAL, AT(weight_decay), 0, 0, "L", "with --method: the L2 penalty L/2 |x|^2 (0)"},
    {"schedule", TEXT, AT(schedule), 0, 0, "KIND",
     "with --method: constant, step:FACTOR:STEPS, inv-sqrt:GAMMA, cosine:STEPS[:FLOOR] or "
     "multi-step:FACTOR:STEP[:STEP]... (constant)"},
    {"warmup", OPTIONAL, AT(warmup), 0, 1ull << 40, "S",
     "with --method: steps over which the rate grows linearly (200)"},
    {"codec", TEXT, AT(codec), 0, 0, "NAME",
     "with --method d-sync or pipe-sgd: how sums are encoded: raw, fp16, bf16, trunc16 or int8 (raw)"},
    {"pipeline", OPTIONAL, AT(pipeline), 1, 16, "K",
     "with --method pipe-sgd: a step uses the mean gradient of K - 1 steps before (2)"},
    {"pipeline-warmup", OPTIONAL, AT(pipeline_warmup), 0, 1ull << 40, "S",
     "with --method pipe-sgd: initial steps that are made as by d-sync (100)"},
    {"bucket-floats", NUMBER, AT(bucket_floats), 1, 1ull << 40, "N",
     "with --method d-sync or pipe-sgd: gradients are summed in parts of N floats (chosen by the library)"},
    {"clique", TEXT, AT(clique), 0, 0, "KIND",
     "join a clique of workers: ring, mpi (under mpirun), or nccl (a GPU each)"},
    {"members", NUMBER, AT(members), 1, 1024, "M", "with --clique: the number of its members"},
    {"member", OPTIONAL, AT(member), 0, 1023, "K",
     "with --clique ring or nccl: the requested rank in it (a free one)"},
    {"rendezvous", TEXT, AT(rendezvous), 0, 0, "WHERE",
     "with --clique ring or nccl: where members find each other: file:PATH, a path prefix on a shared file "
     "system, "
     "or psd:URL (the server's)"},
    {"clique-name", TEXT, AT(clique_name), 0, 0, "NAME",
     "with --clique ring or nccl: distinguishes cliques with the same rendezvous (0)"},
    {"clique-listen", TEXT, AT(clique_listen), 0, 0, "URL",
     "with --clique ring or nccl: tcp://HOST, the address the others reach this host at, or unix: "
     "(tcp://127.0.0.1)"},
    {"links", NUMBER, AT(links), 1, 16, "N", "with --clique ring: number of parallel rings (1)"},
    {"algorithm", TEXT, AT(algorithm), 0, 0, "NAME",
     "with --clique ring and --method: algorithm of sums: ring, tree, auto (ring)"},
    {"on-loss", TEXT, AT(on_loss), 0, 0, "NAME",
     "with --clique ring and --method: after the loss of a member the clique ends, or the others go on: end, "
     "shrink (end)"},
    {"clique-timeout", SECONDS, AT(clique_timeout_s), 0, 0, "S",
     "with --clique: how long a member may be silent (60)"},
    {"clique-step", SECONDS, AT(clique_step_s), 0, 0, "S",
     "with --clique ring or nccl: how long a member's step may keep the others waiting (3600)"},
    {"describe", TEXT, AT(describe), 0, 0, "NET",
     "print the net's layers, work and memory with --batch and --backend, and end"},
    {"json", FLAG, AT(json), 0, 0, NULL, "print JSON lines instead of text"},
    {"help", FLAG, AT(help), 0, 0, NULL, "print this and end"},
    {"version", FLAG, AT(version), 0, 0, NULL, "print the version and end"},
};
/* getopt_long returns FIRST + i for row i, which differs from ':' and '?', its values for errors. */
enum { N_ROWS = sizeof rows / sizeof *rows, FIRST = 256 };

void cnn_worker_args_help(FILE *out)
{
    fputs("psworker trains a net with a parameter server (psd), or evaluates the server's center.\n\n"
          "usage: psworker --server URL|@FILE [options]\n"
          "       psworker --predict --init FILE [options]\n"
          "       psworker --method NAME [options]\n\n",
          out);
    for (int i = 0; i < N_ROWS; i++) {
        char left[40];
        snprintf(left, sizeof left, "--%s%s%s", rows[i].name, rows[i].value != NULL ? " " : "",
                 rows[i].value != NULL ? rows[i].value : "");
        fprintf(out, "  %-20s %s\n", left, rows[i].help);
    }
    fputs("\nnets:", out);
    for (int i = 0; cnn_models[i] != NULL && cnn_models[i]->name != NULL; i++)
        fprintf(out, " %s", cnn_models[i]->name);
    fputs("\nexit: 0 finished or drained, 1 out of memory or an internal error, 2 usage, 5 data,\n"
          "      6 server gone or session ended by it, 7 diverged, 8 the clique is broken or disagrees,\n"
          "      9 not authorised: no key, a key or a rank that psd does not allow, or a key file that\n"
          "      cannot be used\n",
          out);
}

static int read_number(const struct row *row, const char *text, uint64_t *out, struct ps_error *err)
{
    char *end;
    errno = 0;
    uint64_t v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || v < row->lowest || v > row->highest)
        return ps_fail(err, -EINVAL, "--%s: \"%.60s\"; allowed: a number from %llu to %llu", row->name, text,
                       (unsigned long long)row->lowest, (unsigned long long)row->highest);
    *out = v;
    return 0;
}

static int read_seconds(const struct row *row, const char *text, double *out, struct ps_error *err)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= LOWEST_S && v <= HIGHEST_S))
        return ps_fail(err, -EINVAL, "--%s: \"%.60s\"; allowed: %g to %g seconds", row->name, text, LOWEST_S,
                       HIGHEST_S);
    *out = v;
    return 0;
}

static int read_real(const struct row *row, const char *text, double *out, struct ps_error *err)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v))
        return ps_fail(err, -EINVAL, "--%s: \"%.60s\"; allowed: a number", row->name, text);
    *out = v;
    return 0;
}

static int read_value(const struct row *row, const char *text, struct cnn_worker_args *args,
                      struct ps_error *err)
{
    void *member = (char *)args + row->offset;
    uint64_t number = 0;
    int rc;
    switch (row->kind) {
    case FLAG:
        *(bool *)member = true;
        return 0;
    case TEXT:
        if (*text == '\0')
            return ps_fail(err, -EINVAL, "--%s: \"\"; allowed: %s", row->name, row->value);
        *(const char **)member = text;
        return 0;
    case NUMBER:
        return read_number(row, text, member, err);
    case OPTIONAL:
        rc = read_number(row, text, &number, err);
        if (rc == 0)
            *(int64_t *)member = (int64_t)number;
        return rc;
    case SECONDS:
        return read_seconds(row, text, member, err);
    case REAL:
        return read_real(row, text, member, err);
    }
    return -EINVAL;
}

/* Refuses options that are only for training with a server, or only for training without one. */
static int check_method(const struct cnn_worker_args *a, struct ps_error *err)
{
    const struct {
        const char *name;
        bool given;
    } with_server[] = {{"server", a->server != NULL},
                       {"evaluate", a->evaluate},
                       {"once", a->once},
                       {"center", a->center},
                       {"rank", a->rank >= 0},
                       {"key", a->key != NULL},
                       {"name", a->name != NULL},
                       {"transport", a->transport != NULL}},
      with_method[] = {{"learning-rate", !isnan(a->learning_rate)},
                       {"momentum", !isnan(a->momentum)},
                       {"averaging-rate", !isnan(a->averaging_rate)},
                       {"weight-decay", !isnan(a->weight_decay)},
                       {"schedule", a->schedule != NULL},
                       {"warmup", a->warmup >= 0},
                       {"codec", a->codec != NULL},
                       {"algorithm", a->algorithm != NULL},
                       {"on-loss", a->on_loss != NULL},
                       {"bucket-floats", a->bucket_floats > 0},
                       {"pipeline", a->pipeline >= 0},
                       {"pipeline-warmup", a->pipeline_warmup >= 0}};
    struct psc_local local;
    for (size_t i = 0; a->method != NULL && i < sizeof with_server / sizeof *with_server; i++)
        if (with_server[i].given)
            return ps_fail(err, -EINVAL, "--%s and --method: both given; allowed: one of them",
                           with_server[i].name);
    for (size_t i = 0; a->method == NULL && i < sizeof with_method / sizeof *with_method; i++)
        if (with_method[i].given)
            return ps_fail(err, -EINVAL, "--%s: given without --method; allowed: with it, else psd's config",
                           with_method[i].name);
    return a->method != NULL ? cnn_local_options(a, &local, err) : 0;
}

/* --predict excludes the options of training and of periodic evaluation. */
static int check_predict(const struct cnn_worker_args *a, struct ps_error *err)
{
    const struct {
        const char *name;
        bool given;
    } others[] = {{"evaluate", a->evaluate},
                  {"method", a->method != NULL},
                  {"once", a->once},
                  {"every", a->every_s != 0},
                  {"history", a->history != NULL},
                  {"tensorboard", a->tensorboard != NULL},
                  {"epochs", a->epochs != 0},
                  {"steps", a->steps != 0},
                  {"state", a->state != NULL},
                  {"step-ms", a->step_ms != 0},
                  {"init-skip", a->init_skip != NULL},
                  {"rank", a->rank >= 0},
                  {"clique", a->clique != NULL}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return ps_fail(err, -EINVAL, "--%s and --predict: both given; allowed: one of them",
                           others[i].name);
    if ((a->server != NULL) == (a->init != NULL))
        return ps_fail(err, -EINVAL, "--predict: given %s --server and --init; allowed: with one of them",
                       a->init != NULL ? "with" : "without");
    if (a->center && a->server == NULL)
        return ps_fail(err, -EINVAL, "--center: given without --server; allowed: with it");
    return 0;
}

/* out: float32 for auto, until it is measured. */
static int read_precision(const struct cnn_worker_args *a, enum cnn_precision *out, struct ps_error *err)
{
    const enum cnn_precision allowed[] = {CNN_FLOAT32, CNN_TF32, CNN_BF16};
    *out = CNN_FLOAT32;
    if (a->precision == NULL || strcmp(a->precision, "auto") == 0)
        return 0;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (strcmp(a->precision, cnn_precision_name(allowed[i])) == 0) {
            *out = allowed[i];
            return 0;
        }
    return ps_fail(err, -EINVAL, "--precision: \"%.60s\"; allowed: float32, tf32, bf16 or auto",
                   a->precision);
}

static int read_deterministic(const struct cnn_worker_args *a, bool *any_order, struct ps_error *err)
{
    *any_order = a->deterministic != NULL && strcmp(a->deterministic, "no") == 0;
    if (a->deterministic == NULL || *any_order || strcmp(a->deterministic, "yes") == 0)
        return 0;
    return ps_fail(err, -EINVAL, "--deterministic: \"%.60s\"; allowed: yes or no", a->deterministic);
}

static int read_partitions(const struct cnn_worker_args *a, uint64_t *out, struct ps_error *err)
{
    static const struct row number = {"partitions", NUMBER, 0, 1, 1024, "P|auto", ""};
    struct ps_error why;
    *out = 0;
    if (a->partitions == NULL || strcmp(a->partitions, "auto") == 0)
        return 0;
    if (read_number(&number, a->partitions, out, &why) == 0)
        return 0;
    return ps_fail(err, -EINVAL, "%s, or auto", why.text);
}

/* Partitions are a clique by themselves, of CPU cores. */
static int check_partitions(const struct cnn_worker_args *a, struct ps_error *err)
{
    const struct {
        const char *name;
        bool given;
    } others[] = {{"evaluate", a->evaluate}, {"predict", a->predict}, {"clique", a->clique != NULL}};
    uint64_t n;
    if (a->partitions == NULL)
        return 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return ps_fail(err, -EINVAL, "--%s and --partitions: both given; allowed: one of them",
                           others[i].name);
    if (a->backend != NULL && strcmp(a->backend, "cuda") == 0)
        return ps_fail(
            err, -EINVAL,
            "--partitions: given with --backend cuda; allowed: with a backend that computes on cores");
    if (a->method != NULL && strcmp(a->method, "d-sync") != 0 && strcmp(a->method, "pipe-sgd") != 0)
        return ps_fail(err, -EINVAL,
                       "--partitions: given with --method %s, which is for a single worker; allowed: with "
                       "--server, or with --method d-sync or pipe-sgd",
                       a->method);
    return read_partitions(a, &n, err);
}

/* Values that are more than a number. */
static int check_names(const struct cnn_worker_args *a, struct ps_error *err)
{
    enum cnn_precision precision;
    struct cnn_model model;
    struct cnn_sampling sampling;
    struct ps_error why = {""};
    bool any_order;
    int rc = read_precision(a, &precision, err);
    if (rc == 0)
        rc = read_deterministic(a, &any_order, err);
    if (rc != 0)
        return rc;
    if (cnn_sampling_read(a->sampling, &sampling, &why) != 0)
        return ps_fail(err, -EINVAL, "--%s", why.text);
    if (cnn_model_read(a->describe != NULL ? a->describe : a->net, &model, &why) != 0)
        return ps_fail(err, -EINVAL, "--%s: %s", a->describe != NULL ? "describe" : "net", why.text);
    return 0;
}

/* Rules between options. */
static int check_together(const struct cnn_worker_args *a, struct ps_error *err)
{
    uint64_t n_devices;
    int rc = check_method(a, err);
    if (rc != 0 || (rc = cnn_clique_check(a, err)) != 0 || (rc = check_partitions(a, err)) != 0 ||
        (rc = cnn_devices_read(a, &n_devices, err)) != 0)
        return rc;
    if (a->server_key != NULL && a->key == NULL)
        return ps_fail(err, -EINVAL, "--server-key: given without --key; allowed: with it");
    if (a->predict && (rc = check_predict(a, err)) != 0)
        return rc;
    if (a->train_sample != 0 && !a->evaluate && a->method == NULL)
        return ps_fail(err, -EINVAL,
                       "--train-sample: given without --evaluate; allowed: with it, or with --method");
    if (a->confusion != NULL && !a->evaluate && !a->predict && a->method == NULL)
        return ps_fail(err, -EINVAL,
                       "--confusion: given for training; allowed: with --evaluate or --predict");
    if (a->describe == NULL && a->server == NULL && a->method == NULL && !a->predict)
        return ps_fail(err, -EINVAL,
                       "--server: not given; allowed: tcp://HOST:PORT, ipc://PATH or @ENDPOINT_FILE");
    if (a->epochs != 0 && a->steps != 0)
        return ps_fail(err, -EINVAL, "--epochs and --steps: both given; allowed: one of them");
    if (!a->evaluate && !a->predict && a->method == NULL &&
        (a->once || a->center || a->history != NULL || a->every_s != 0))
        return ps_fail(err, -EINVAL, "--%s: given for training; allowed: with --evaluate",
                       a->once              ? "once"
                       : a->center          ? "center"
                       : a->history != NULL ? "history"
                                            : "every");
    if (a->evaluate && (a->epochs != 0 || a->steps != 0 || a->rank >= 0))
        return ps_fail(err, -EINVAL, "--%s: given with --evaluate; allowed: for training",
                       a->epochs != 0  ? "epochs"
                       : a->steps != 0 ? "steps"
                                       : "rank");
    if (a->evaluate && (a->state != NULL || a->step_ms != 0))
        return ps_fail(err, -EINVAL, "--%s: given with --evaluate; allowed: for training",
                       a->state != NULL ? "state" : "step-ms");
    if (a->evaluate && a->init != NULL)
        return ps_fail(err, -EINVAL, "--init: given with --evaluate; allowed: for training");
    if ((a->batch > 0 ? a->batch : CNN_DEFAULT_BATCH) * a->accumulate > INT32_MAX)
        return ps_fail(err, -EINVAL, "--accumulate: %llu batches; allowed: a step of at most 2^31 - 1 images",
                       (unsigned long long)a->accumulate);
    if (!isnan(a->clip_norm) && !(a->clip_norm > 0))
        return ps_fail(err, -EINVAL, "--clip-norm: %g; allowed: above 0", a->clip_norm);
    if (!(a->label_smoothing >= 0 && a->label_smoothing < 1))
        return ps_fail(err, -EINVAL, "--label-smoothing: %g; allowed: 0 to below 1", a->label_smoothing);
    if ((a->evaluate || a->predict) && a->label_smoothing > 0)
        return ps_fail(err, -EINVAL, "--label-smoothing: given with --%s; allowed: for training",
                       a->evaluate ? "evaluate" : "predict");
    if ((a->evaluate || a->predict) && (!isnan(a->clip_norm) || a->accumulate > 1))
        return ps_fail(err, -EINVAL, "--%s: given with --%s; allowed: for training",
                       a->accumulate > 1 ? "accumulate" : "clip-norm", a->evaluate ? "evaluate" : "predict");
    if (a->init_skip != NULL && a->init == NULL)
        return ps_fail(err, -EINVAL, "--init-skip: given without --init; allowed: with it");
    if (a->once && a->every_s != 0)
        return ps_fail(err, -EINVAL, "--once and --every: both given; allowed: one of them");
    return check_names(a, err);
}

static void fill_defaults(struct cnn_worker_args *a)
{
    if (a->batch == 0)
        a->batch = CNN_DEFAULT_BATCH;
    if (a->epochs == 0 && a->steps == 0)
        a->epochs = 1;
    if (a->every_s == 0)
        a->every_s = 3;
    read_partitions(a, &a->n_partitions, NULL); /* it was found good, and so were the next two */
    cnn_devices_read(a, &a->n_devices, NULL);
    a->has_gpus = cnn_devices_are_gpus(a);
    read_precision(a, &a->net_precision, NULL);
    read_deterministic(a, &a->any_order, NULL);
    a->partition_threads = a->threads != NOT_GIVEN ? a->threads : 0;
    a->threads = a->threads != NOT_GIVEN ? a->threads : 1;
    if (a->clique == NULL)
        return;
    a->links = a->links == 0 ? 1 : a->links;
    a->clique_name = a->clique_name == NULL ? "0" : a->clique_name;
    a->clique_timeout_s = a->clique_timeout_s == 0 ? 60 : a->clique_timeout_s;
    a->clique_step_s = a->clique_step_s == 0 ? 3600 : a->clique_step_s;
}

/* argument: the one behind which getopt_long stands; it may not have left a word of one-letter options yet.
 */
static int refuse_option(const char *argument, struct ps_error *err)
{
    if (optopt >= FIRST)
        return ps_fail(err, -EINVAL, "--%s: it takes no value; allowed: --%s", rows[optopt - FIRST].name,
                       rows[optopt - FIRST].name);
    if (optopt != 0)
        return ps_fail(err, -EINVAL, "-%c: no such option; allowed: see --help, each with two dashes",
                       optopt);
    return ps_fail(err, -EINVAL, "%.60s: no such option; allowed: see --help", argument);
}

int cnn_worker_args_parse(int argc, char **argv, struct cnn_worker_args *args, struct ps_error *err)
{
    struct cnn_worker_args a = {.net = "lenet",
                                .data = "digits",
                                .seed = 1,
                                .threads = NOT_GIVEN,
                                .prefetch = 4,
                                .data_threads = 1,
                                .max_damaged = CNN_MAX_DAMAGED,
                                .rank = -1,
                                .warmup = -1,
                                .member = -1,
                                .pipeline = -1,
                                .pipeline_warmup = -1,
                                .learning_rate = NAN,
                                .momentum = NAN,
                                .averaging_rate = NAN,
                                .weight_decay = NAN,
                                .accumulate = 1,
                                .clip_norm = NAN};
    struct option options[N_ROWS + 1] = {{0}};
    int rc = 0, found;

    for (int i = 0; i < N_ROWS; i++)
        options[i] = (struct option){rows[i].name, rows[i].kind == FLAG ? no_argument : required_argument,
                                     NULL, FIRST + i};
    optind = 0; /* glibc: reinitialises getopt */
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        int bad = 0;
        if (found == ':')
            bad = ps_fail(rc == 0 ? err : NULL, -EINVAL, "%.60s: no value; allowed: see --help",
                          argv[optind - 1]);
        else if (found == '?')
            bad = refuse_option(argv[optind - 1], rc == 0 ? err : NULL);
        else
            bad = read_value(&rows[found - FIRST], optarg, &a, rc == 0 ? err : NULL);
        if (rc == 0)
            rc = bad;
    }
    if (rc == 0 && optind < argc)
        rc = ps_fail(err, -EINVAL, "\"%.60s\": not an option; allowed: see --help", argv[optind]);
    if (a.help || a.version)
        rc = 0;
    else if (rc == 0)
        rc = check_together(&a, err);
    if (rc != 0)
        return rc;
    fill_defaults(&a);
    *args = a;
    return 0;
}
