#include "server/config/keys.h"

#include <math.h>
#include <string.h>

#include "proto/codecs/codec.h"
#include "proto/model/fragment.h"
#include "proto/text.h"

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const schedule_kinds[] = {[PS_SCHEDULE_CONSTANT] = "constant",
                                             [PS_SCHEDULE_STEP] = "step",
                                             [PS_SCHEDULE_INV_SQRT] = "inv-sqrt",
                                             [PS_SCHEDULE_COSINE] = "cosine",
                                             [PS_SCHEDULE_MULTI_STEP] = "multi-step",
                                             [PS_SCHEDULE_PLATEAU] = "plateau",
                                             NULL};
static const char *const watches[] = {[PSD_WATCH_TEST] = "test_loss", [PSD_WATCH_TRAIN] = "train_loss", NULL};
static const char *const weight_kinds[] = {
    [PS_WEIGHT_CONST] = "const", [PS_WEIGHT_INVERSE] = "inverse", [PS_WEIGHT_POWER] = "power", NULL};
static const char *const merge_kinds[] = {[PS_MERGE_MEAN] = "mean",
                                          [PS_MERGE_CLIP_NORM] = "clip_norm",
                                          [PS_MERGE_TRIMMED_MEAN] = "trimmed_mean",
                                          NULL};
static const char *const clique_modes[] = {
    [PS_CLIQUE_GRADIENTS] = "gradients", [PS_CLIQUE_VECTORS] = "vectors", NULL};
_Static_assert(sizeof(enum ps_clique_mode) == sizeof(unsigned) &&
                   sizeof(enum ps_schedule_kind) == sizeof(unsigned) &&
                   sizeof(enum psd_watch) == sizeof(unsigned) &&
                   sizeof(enum ps_weight_kind) == sizeof(unsigned) &&
                   sizeof(enum ps_merge_kind) == sizeof(unsigned),
               "PSD_CONFIG_CHOICE stores an unsigned");

/* The names of the rows of ps_codec_value_rows. */
static const char *const codecs[] = {"raw", "fp16", "bf16", "trunc16", "int8", NULL};
static const char *const algorithms[] = {"ring", "tree", "auto", NULL};
static const char *const losses[] = {"end", "shrink", NULL};
static const char *const transports[] = {"auto", "tcp", "ipc", "shm", "rdma", NULL};

static const char all_codecs[] =
    "raw, fp16, bf16, trunc16, int8, int4, topk:F with 0 < F <= 1 in at most six decimals";

static bool is_codec(const char *text)
{
    struct ps_codec c;
    return ps_codec_of(text, &c) == NULL;
}

#define AT(member)   .offset = offsetof(struct psd_config, member)
#define TEXT(member) AT(member), .size = sizeof((struct psd_config *)0)->member
#define RELOAD       .applies = PSD_CONFIG_RELOAD
#define RESTART      .applies = PSD_CONFIG_RESTART

/* A group's row precedes the rows of its keys. */
const struct psd_config_key psd_config_keys[] = {
    {"method", PSD_CONFIG_STRING, RELOAD, TEXT(method), .value = "async-easgd",
     .help = "a published algorithm: a preset of rule, admission, optimizer and averaging"},
    {"rule", PSD_CONFIG_STRING, RELOAD, TEXT(rule), .value = "preset",
     .help = "how a message moves the center"},
    {"admission", PSD_CONFIG_STRING, RELOAD, TEXT(admission), .value = "preset",
     .help = "when an arriving exchange may be applied"},
    {"optimizer", PSD_CONFIG_STRING, RELOAD, TEXT(optimizer), .value = "preset",
     .help = "the worker's own step with its gradient"},
    {"averaging", PSD_CONFIG_STRING, RELOAD, TEXT(averaging), .value = "preset",
     .help = "a second vector that follows the center"},

    {"workers", PSD_CONFIG_U32, RELOAD, AT(hyper.workers), .min = 1, .max = 1024, .word = "any",
     .word_value = 0, .value = "preset", .fallback = "any", .uses = PS_USES_WORKERS, .off = true,
     .help = "workers required before the first round, and p for rules that need it"},

    {"parameters", PSD_CONFIG_GROUP, RELOAD, .help = "the method's hyper-parameters"},
    {"parameters.learning_rate", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.learning_rate), .min = 0, .max = 1000,
     .above_min = true, .value = "preset", .fallback = "0.05", .help = "eta, the initial step size"},
    {"parameters.alpha", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.alpha), .min = 0, .max = 2, .word = "none",
     .word_value = NAN, .value = "preset", .fallback = "none", .uses = PS_USES_RATE, .off = true,
     .help = "elastic moving rate"},
    {"parameters.rho", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.rho), .min = 0, .max = 1e6, .word = "none",
     .word_value = NAN, .value = "preset", .fallback = "none", .uses = PS_USES_RATE | PS_USES_RHO,
     .off = true, .help = "elastic penalty: alpha = learning_rate * rho; under admm rho itself"},
    {"parameters.beta", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.beta), .min = 0, .max = 2, .word = "none",
     .word_value = NAN, .value = "preset", .fallback = "none", .uses = PS_USES_RATE, .off = true,
     .help = "elastic rate of all workers combined: alpha = beta / (workers * period), in rounds beta / "
             "workers"},
    {"parameters.period", PSD_CONFIG_U32, RELOAD, AT(hyper.period), .min = 1, .max = 1000000,
     .value = "preset", .fallback = "1", .uses = PS_USES_PERIOD, .off = true,
     .help = "tau, a worker's steps between two exchanges"},
    {"parameters.dynamic_period", PSD_CONFIG_BOOL, RELOAD, AT(hyper.dynamic_period), .value = "preset",
     .fallback = "false", .uses = PS_USES_DYNAMIC, .off = true,
     .help =
         "the period applies to the fastest worker; a slower worker's is shorter in proportion to its speed"},
    {"parameters.fragments", PSD_CONFIG_U32, RELOAD, AT(hyper.fragments), .min = 1, .max = PS_MAX_FRAGMENTS,
     .value = "preset", .fallback = "1", .uses = PS_USES_FRAGMENTS, .off = true,
     .help = "parts of the vector, exchanged in turn over one period"},
    {"parameters.mix", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.mix), .min = 0, .max = 1, .below_max = true,
     .value = "preset", .fallback = "0", .uses = PS_USES_FRAGMENTS, .off = true,
     .help = "share of its own x that a worker keeps when it receives a center"},
    {"parameters.momentum", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.momentum), .min = 0, .max = 1,
     .value = "preset", .fallback = "0", .below_max = true, .uses = PS_USES_MOMENTUM, .off = true,
     .help = "delta or mu of the optimizer or rule"},
    {"parameters.beta2", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.beta2), .min = 0, .max = 1, .value = "preset",
     .fallback = "0.999", .below_max = true, .uses = PS_USES_BETA2,
     .help = "adam: decay of the second moment"},
    {"parameters.epsilon", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.epsilon), .min = 1e-30, .max = 1,
     .value = "preset", .fallback = "1e-8", .uses = PS_USES_EPSILON,
     .help = "adagrad, adam: added to the root in the denominator"},
    {"parameters.averaging_rate", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.averaging_rate), .min = 0, .max = 1,
     .above_min = true, .value = "preset", .fallback = "0.001", .uses = PS_USES_AVERAGING_RATE,
     .help = "averaging moving: z <- z + rate (center - z)"},
    {"parameters.outer_learning_rate", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.outer_learning_rate), .min = 0,
     .max = 1000, .above_min = true, .value = "preset", .fallback = "0.7", .uses = PS_USES_OUTER,
     .help = "the center's step size for the workers' accumulated steps; the schedule does not affect it"},
    {"parameters.outer_momentum", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.outer_momentum), .min = 0, .max = 1,
     .value = "preset", .fallback = "0.9", .below_max = true, .uses = PS_USES_OUTER,
     .help = "the center's Nesterov momentum"},
    {"parameters.delay", PSD_CONFIG_U32, RELOAD, AT(hyper.delay), .min = 1, .max = 1000000, .value = "preset",
     .fallback = "4", .uses = PS_USES_DELAY,
     .help = "delayed-nesterov: N, moves of the center between two applications of its momentum"},
    {"parameters.compensation", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.compensation), .min = 0, .max = 1000,
     .value = "preset", .fallback = "0.04", .uses = PS_USES_COMPENSATION,
     .help = "dc-asgd: lambda, how much of g^2 (center - seen) is added to g"},
    {"parameters.weight", PSD_CONFIG_CHOICE, RELOAD, AT(hyper.weight), .choices = weight_kinds,
     .value = "preset", .fallback = "const", .uses = PS_USES_WEIGHT, .off = true,
     .help = "how the staleness of a gradient, sigma, sets its rate: eta; eta / max(sigma, 1); eta / "
             "max(sigma, 1)^weight_power"},
    {"parameters.weight_power", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.weight_power), .min = 0, .max = 10,
     .value = "preset", .fallback = "0.5", .chooser = "parameters.weight", .chosen = 1u << PS_WEIGHT_POWER,
     .help = "weight power: the exponent"},
    {"parameters.serial", PSD_CONFIG_BOOL, RELOAD, AT(hyper.serial), .value = "preset", .fallback = "false",
     .uses = PS_USES_SERIAL, .off = true, .help = "round-robin: one worker computes at a time"},
    {"parameters.slack", PSD_CONFIG_U32, RELOAD, AT(hyper.slack), .min = 0, .max = 1000000, .value = "preset",
     .fallback = "3", .uses = PS_USES_SLACK,
     .help = "ssp: exchanges that a worker may be ahead of the slowest"},
    {"parameters.backup", PSD_CONFIG_U32, RELOAD, AT(hyper.backup), .min = 0, .max = 1023, .value = "preset",
     .fallback = "1", .uses = PS_USES_BACKUP,
     .help = "backup: number of workers that a round does not wait for"},
    {"parameters.quorum", PSD_CONFIG_U32, RELOAD, AT(hyper.quorum), .min = 1, .max = 1024, .value = "preset",
     .fallback = "1", .uses = PS_USES_QUORUM, .help = "quorum: messages that a round needs"},
    {"parameters.grace_ms", PSD_CONFIG_U32, RELOAD, AT(hyper.grace_ms), .min = 0, .max = 3600000,
     .value = "preset", .fallback = "100", .uses = PS_USES_QUORUM,
     .help = "quorum: milliseconds that a round waits for further messages once it has enough"},
    {"parameters.merge", PSD_CONFIG_CHOICE, RELOAD, AT(hyper.merge), .choices = merge_kinds,
     .value = "preset", .fallback = "mean", .uses = PS_USES_MERGE, .off = true,
     .help =
         "how a round's messages are aggregated: their mean; the mean of messages clipped to norm clip; the "
         "mean of each value without the trim highest and lowest"},
    {"parameters.clip", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.clip), .min = 0, .max = 1e6, .above_min = true,
     .value = "preset", .fallback = "1", .chooser = "parameters.merge", .chosen = 1u << PS_MERGE_CLIP_NORM,
     .help = "merge clip_norm: largest norm of a message"},
    {"parameters.trim", PSD_CONFIG_U32, RELOAD, AT(hyper.trim), .min = 0, .max = 511, .value = "preset",
     .fallback = "1", .chooser = "parameters.merge", .chosen = 1u << PS_MERGE_TRIMMED_MEAN,
     .help = "merge trimmed_mean: how many of the highest and of the lowest of each value are left out"},
    {"parameters.weight_decay", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.weight_decay), .min = 0, .max = 1,
     .value = "0", .help = "lambda: L2 penalty lambda/2 |x|^2 of tensors that decay"},
    {"parameters.overlap", PSD_CONFIG_U32, RELOAD, AT(hyper.overlap), .min = 1, .max = 1000000,
     .switches = true, .word = "auto", .word_value = PS_OVERLAP_AUTO, .value = "false",
     .help =
         "steps that an exchange may take while the worker computes: true is 1; auto: it lands when it is "
         "there"},
    {"parameters.pipeline", PSD_CONFIG_U32, RELOAD, AT(hyper.pipeline), .min = 1, .max = PS_MAX_PIPELINE,
     .value = "preset", .fallback = "1", .uses = PS_USES_PIPELINE, .off = true,
     .help =
         "K: a step uses the mean gradient of K - 1 steps before, whose reduction overlaps with computation"},
    {"parameters.pipeline_warmup", PSD_CONFIG_U64, RELOAD, AT(hyper.pipeline_warmup), .min = 0, .max = 1e12,
     .value = "preset", .fallback = "0", .uses = PS_USES_PIPELINE,
     .help = "first steps, which use their own gradient"},
    {"parameters.pipeline_warmup_epochs", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.pipeline_warmup_epochs),
     .min = 0, .max = 1e6, .value = "preset", .fallback = "0", .uses = PS_USES_PIPELINE,
     .help = "the same in epochs of the training data; whichever ends later"},
    {"parameters.schedule", PSD_CONFIG_GROUP, RELOAD, .help = "how the learning rate changes with steps"},
    {"parameters.schedule.kind", PSD_CONFIG_CHOICE, RELOAD, AT(hyper.schedule.kind),
     .choices = schedule_kinds, .value = "preset", .fallback = "constant", .help = "the schedule's formula"},
    {"parameters.schedule.gamma", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.schedule.gamma), .min = 0, .max = 1000,
     .value = "preset", .fallback = "0.1", .chooser = "parameters.schedule.kind",
     .chosen = 1u << PS_SCHEDULE_STEP | 1u << PS_SCHEDULE_INV_SQRT, .help = "its factor"},
    {"parameters.schedule.step_steps", PSD_CONFIG_U64, RELOAD, AT(hyper.schedule.step_steps), .min = 1,
     .max = 1e12, .value = "preset", .fallback = "10000", .chooser = "parameters.schedule.kind",
     .chosen = 1u << PS_SCHEDULE_STEP, .help = "step: a worker's steps between two drops"},
    {"parameters.schedule.total_steps", PSD_CONFIG_U64, RELOAD, AT(hyper.schedule.total_steps), .min = 1,
     .max = 1e12, .value = "preset", .fallback = "10000", .chooser = "parameters.schedule.kind",
     .chosen = 1u << PS_SCHEDULE_COSINE, .help = "cosine: a worker's steps until its end"},
    {"parameters.schedule.floor", PSD_CONFIG_DOUBLE, RELOAD, AT(hyper.schedule.floor), .min = 0, .max = 1,
     .value = "preset", .fallback = "0", .chooser = "parameters.schedule.kind",
     .chosen = 1u << PS_SCHEDULE_COSINE, .help = "cosine: fraction of the rate that remains at its end"},
    {"parameters.schedule.milestones", PSD_CONFIG_STRING, RELOAD, TEXT(schedule.milestones),
     .allowed = "steps separated by commas, in quotes, such as \"30000, 60000\", none", .value = "preset",
     .fallback = "none", .chooser = "parameters.schedule.kind", .off = true,
     .chosen = 1u << PS_SCHEDULE_MULTI_STEP,
     .help = "multi-step: a worker's steps at which the rate drops, ascending, separated by commas"},
    {"parameters.schedule.factors", PSD_CONFIG_STRING, RELOAD, TEXT(schedule.factors),
     .allowed = "factors separated by commas, in quotes, such as \"0.2, 0.5\", none", .value = "preset",
     .fallback = "none", .chooser = "parameters.schedule.kind",
     .chosen = 1u << PS_SCHEDULE_MULTI_STEP | 1u << PS_SCHEDULE_PLATEAU, .off = true,
     .help = "factor of the rate at each drop, separated by commas; multi-step repeats the last one, plateau "
             "drops no further"},
    {"parameters.schedule.watch", PSD_CONFIG_CHOICE, RELOAD, AT(schedule.watch), .choices = watches,
     .value = "preset", .fallback = "test_loss", .chooser = "parameters.schedule.kind",
     .chosen = 1u << PS_SCHEDULE_PLATEAU,
     .help = "plateau: the loss to watch, the evaluators' or the mean of the workers'"},
    {"parameters.schedule.patience", PSD_CONFIG_U32, RELOAD, AT(schedule.patience), .min = 1, .max = 1000000,
     .value = "preset", .fallback = "5", .chooser = "parameters.schedule.kind",
     .chosen = 1u << PS_SCHEDULE_PLATEAU,
     .help = "plateau: successive observations without improvement after which the rate drops"},
    {"parameters.schedule.threshold", PSD_CONFIG_DOUBLE, RELOAD, AT(schedule.threshold), .min = 0, .max = 1,
     .value = "preset", .fallback = "0.001", .chooser = "parameters.schedule.kind",
     .chosen = 1u << PS_SCHEDULE_PLATEAU,
     .help = "plateau: relative decrease of the best loss that counts as an improvement"},
    {"parameters.schedule.every_s", PSD_CONFIG_U32, RELOAD, AT(schedule.every_s), .min = 1, .max = 86400,
     .value = "preset", .fallback = "60", .chooser = "parameters.schedule.watch",
     .chosen = 1u << PSD_WATCH_TRAIN,
     .help = "plateau of train_loss: seconds over which an observation is averaged"},
    {"parameters.schedule.warmup_steps", PSD_CONFIG_U64, RELOAD, AT(hyper.schedule.warmup_steps), .min = 0,
     .max = 1e12, .value = "preset", .fallback = "0",
     .help = "first steps over which the rate grows linearly"},

    {"clique", PSD_CONFIG_GROUP, RESTART, .help = "groups of workers that act as one client"},
    {"clique.mode", PSD_CONFIG_CHOICE, RESTART, AT(clique.mode), .choices = clique_modes,
     .value = "gradients",
     .help = "what the members of a clique share: x, with steps by the mean of their gradients; or the "
             "center, with a vector for each member: sync-easgd only"},
    {"clique.codec", PSD_CONFIG_WORD, RESTART, TEXT(clique.codec), .choices = codecs, .value = "raw",
     .help = "how the floats of a clique's sums are encoded"},
    {"clique.algorithm", PSD_CONFIG_WORD, RESTART, TEXT(clique.algorithm), .choices = algorithms,
     .value = "ring",
     .help = "algorithm of a clique's sums: a ring; a binomial tree, for short vectors; auto: by size"},
    {"clique.on_loss", PSD_CONFIG_WORD, RESTART, TEXT(clique.on_loss), .choices = losses, .value = "end",
     .help =
         "after the loss of a member the clique ends, or the others go on without it: cliques over a ring"},
    {"clique.publish", PSD_CONFIG_U32, RESTART, AT(clique.publish), .min = 1, .max = 1000000, .value = "64",
     .help = "job of one clique: steps between two copies of the center to psd"},
    {"clique.bucket_floats", PSD_CONFIG_U64, RESTART, AT(clique.bucket_floats), .min = 1, .max = 1e12,
     .word = "auto", .word_value = 0, .value = "auto",
     .help = "floats of the parts in which a clique sums gradients, each as soon as it is complete"},

    {"codec", PSD_CONFIG_GROUP, RELOAD, .help = "how the values of exchanges are encoded"},
    {"codec.message", PSD_CONFIG_STRING, RELOAD, TEXT(codec.message), .takes = is_codec,
     .allowed = all_codecs, .value = "raw",
     .help = "codec of the workers' messages; int4 and topk:F (the fraction F of largest values) where these "
             "are gradients or moves"},
    {"codec.answer", PSD_CONFIG_STRING, RELOAD, TEXT(codec.answer), .takes = is_codec, .allowed = all_codecs,
     .value = "raw",
     .help = "codec of the answers; with int4 and topk:F they hold what has changed since the worker's last "
             "answer, for rules whose workers adopt it"},
    {"codec.error_feedback", PSD_CONFIG_BOOL, RELOAD, AT(codec.error_feedback), .value = "false",
     .help = "a worker adds the encoding error of its last message to its next"},

    {"listen", PSD_CONFIG_STRING, RESTART, TEXT(listen), .value = "tcp://127.0.0.1:0",
     .help = "where workers connect: tcp://HOST:PORT, or ipc://PATH on this machine"},
    {"advertise", PSD_CONFIG_STRING, RESTART, TEXT(advertise), .value = "",
     .help = "host that workers connect to, if it is not the bound one"},
    {"transport", PSD_CONFIG_WORD, RESTART, TEXT(transport), .choices = transports, .value = "auto",
     .help = "transports of workers' data beside the listener's: auto, every one that both ends have; tcp "
             "or ipc, none; shm or rdma, that one, which psd then requires to start"},
    {"insecure", PSD_CONFIG_BOOL, RESTART, AT(insecure), .value = "false",
     .help = "listen beyond loopback without authentication"},
    {"auth", PSD_CONFIG_GROUP, RESTART, .help = "who may join, and what is encrypted"},
    {"auth.key", PSD_CONFIG_STRING, RESTART, TEXT(auth.key), .value = "none",
     .help = "psd's key pair, a file of psctl keygen: peers authenticate by CURVE, and both "
             "connections are "
             "encrypted"},
    {"auth.allow", PSD_CONFIG_STRING, RESTART, TEXT(auth.allow), .value = "none",
     .help = "file with one line for each peer that may join: its public key, name and rights; read again on "
             "reload"},
    {"auth.munge", PSD_CONFIG_BOOL, RESTART, AT(auth.munge), .value = "false",
     .help = "joining peers prove their user by MUNGE"},
    {"auth.munge_users", PSD_CONFIG_STRING, RESTART, TEXT(auth.munge_users), .value = "none",
     .help = "users that may join beside psd's own: names or numbers, separated by commas"},
    {"servers", PSD_CONFIG_GROUP, RESTART, .help = "psd processes that each hold a part of the center"},
    {"servers.count", PSD_CONFIG_U32, RESTART, AT(servers.count), .min = 1, .max = PS_MAX_PARTS, .value = "1",
     .help = "number of servers"},
    {"servers.index", PSD_CONFIG_U32, RESTART, AT(servers.index), .min = 0, .max = PS_MAX_PARTS - 1,
     .value = "0", .help = "index of this server; 0 is the head, whose loop decides for all"},
    {"servers.head", PSD_CONFIG_STRING, RESTART, TEXT(servers.head), .value = "none",
     .help = "address of the head, for the other servers: its URL, or @FILE with its endpoint"},
    {"servers.wait_s", PSD_CONFIG_U32, RESTART, AT(servers.wait_s), .min = 1, .max = 86400, .value = "60",
     .help = "seconds that the servers wait for each other at the start"},
    {"lanes", PSD_CONFIG_U32, RESTART, AT(lanes), .min = 1, .max = PSD_MAX_LANES, .word = "auto",
     .word_value = 0, .value = "auto", .help = "threads that each own a slice of the center"},
    {"chunk_floats", PSD_CONFIG_U32, RESTART, AT(chunk_floats), .min = 1024, .max = PSD_MAX_CHUNK_FLOATS,
     .value = "131072", .help = "values in one message"},
    {"window_chunks", PSD_CONFIG_U32, RESTART, AT(window_chunks), .min = 1, .max = 64, .value = "2",
     .help = "chunks in flight per client and lane"},
    {"state_dir", PSD_CONFIG_STRING, RESTART, TEXT(state_dir), .value = "psd-state",
     .help = "directory of checkpoints and sockets"},
    {"endpoint_file", PSD_CONFIG_STRING, RESTART, TEXT(endpoint_file), .value = "",
     .help = "file that psd writes its address to, for workers"},
    {"tensorboard", PSD_CONFIG_STRING, RESTART, TEXT(tensorboard), .value = "",
     .help = "folder that psd writes the job's event file for TensorBoard to"},
    {"log_level", PSD_CONFIG_WORD, RELOAD, TEXT(log_level), .choices = log_levels, .value = "info",
     .help = "the lowest level that is logged"},

    {"status", PSD_CONFIG_GROUP, RESTART, .help = "the status socket"},
    {"status.socket", PSD_CONFIG_STRING, RESTART, TEXT(status.socket), .value = "psd.sock",
     .help = "UNIX socket that speaks HTTP"},
    {"status.http", PSD_CONFIG_STRING, RESTART, TEXT(status.http), .value = "none",
     .help = "read-only HTTP on loopback"},

    {"checkpoint", PSD_CONFIG_GROUP, RELOAD, .help = "the center on disk"},
    {"checkpoint.every_s", PSD_CONFIG_U32, RELOAD, AT(checkpoint.every_s), .min = 0, .max = 31536000,
     .value = "60", .help = "seconds between two checkpoints"},
    {"checkpoint.keep", PSD_CONFIG_U32, RELOAD, AT(checkpoint.keep), .min = 1, .max = 1000, .value = "3",
     .help = "number of newest checkpoints to keep"},
    {"checkpoint.keep_best", PSD_CONFIG_BOOL, RELOAD, AT(checkpoint.keep_best), .value = "true",
     .help = "also keep the one with the best evaluation"},

    {"stop", PSD_CONFIG_GROUP, RELOAD, .help = "stop conditions: the first one met drains the job"},
    {"stop.accuracy", PSD_CONFIG_DOUBLE, RELOAD, AT(stop.accuracy), .min = 0, .max = 1, .word = "none",
     .word_value = NAN, .value = "none", .help = "an evaluator reports this test accuracy or more"},
    {"stop.updates", PSD_CONFIG_U64, RELOAD, AT(stop.updates), .min = 1, .max = 1e15, .word = "none",
     .word_value = 0, .value = "none", .help = "the center reaches this version"},
    {"stop.seconds", PSD_CONFIG_U64, RELOAD, AT(stop.seconds), .min = 1, .max = 3153600000.0, .word = "none",
     .word_value = 0, .value = "none", .help = "seconds since the center was ready in this run of psd"},
    {"stop.nonfinite", PSD_CONFIG_BOOL, RELOAD, AT(stop.nonfinite), .value = "false",
     .help = "a worker had a value that is not finite"},

    {"limits", PSD_CONFIG_GROUP, RESTART, .help = "bounds that no peer can exceed"},
    {"limits.clients", PSD_CONFIG_U32, RESTART, AT(limits.clients), .min = 1, .max = 1024, .value = "1024",
     .help = "concurrent sessions"},
    {"limits.floats", PSD_CONFIG_U64, RESTART, AT(limits.floats), .min = 1, .max = 1099511627776.0,
     .value = "4294967296", .help = "values of a model"},
    {"limits.memory_gib", PSD_CONFIG_DOUBLE, RESTART, AT(limits.memory_gib), .min = 0, .max = 1048576,
     .above_min = true, .value = "16", .help = "memory that a job may use, in GiB"},
    {"limits.silence_s", PSD_CONFIG_U32, RELOAD, AT(limits.silence_s), .min = 1, .max = 86400, .value = "30",
     .help = "seconds of silence after which a client is evicted"},
    {"limits.step_s", PSD_CONFIG_U32, RELOAD, AT(limits.step_s), .min = 0, .max = 86400, .word = "off",
     .word_value = 0, .value = "off",
     .help = "seconds that others may wait for a worker's next step before it is evicted, although it is not "
             "silent"},
    {"limits.drain_s", PSD_CONFIG_U32, RELOAD, AT(limits.drain_s), .min = 1, .max = 86400, .value = "30",
     .help = "seconds that a drain waits for workers"},
    {.name = NULL},
};
_Static_assert(sizeof psd_config_keys / sizeof *psd_config_keys <= PSD_CONFIG_MAX_KEYS,
               "psd_config.given has a place for each row");

const struct psd_config_key *psd_config_key_find(const char *name, size_t len)
{
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++)
        if (strlen(k->name) == len && memcmp(k->name, name, len) == 0)
            return k;
    return NULL;
}

const char *psd_config_key_leaf(const struct psd_config_key *key)
{
    const char *dot = strrchr(key->name, '.');
    return dot != NULL ? dot + 1 : key->name;
}

static bool ends_in(const struct psd_config_key *key, const char *name, size_t len)
{
    const char *leaf = psd_config_key_leaf(key);
    return strlen(leaf) == len && memcmp(leaf, name, len) == 0;
}

const struct psd_config_key *psd_config_key_short(const char *name, size_t len)
{
    const struct psd_config_key *whole = psd_config_key_find(name, len), *found = NULL;
    size_t n = 0;
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++)
        if (ends_in(k, name, len)) {
            found = k;
            n++;
        }
    return whole != NULL ? whole : n == 1 ? found : NULL;
}

void psd_config_key_list_short(const char *name, size_t len, char *text, size_t size)
{
    text[0] = 0;
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++)
        if (ends_in(k, name, len))
            ps_text_join(text, size, ", ", k->name);
}

/* Whether the key is directly in the group of this name; "" is the top level. */
static bool in_group(const struct psd_config_key *key, const char *group)
{
    size_t len = strlen(group);
    if (len == 0)
        return strchr(key->name, '.') == NULL;
    return strncmp(key->name, group, len) == 0 && key->name[len] == '.' &&
           strchr(key->name + len + 1, '.') == NULL;
}

void psd_config_key_list(const char *group, char *text, size_t size)
{
    text[0] = 0;
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++)
        if (in_group(k, group))
            ps_text_join(text, size, ", ", psd_config_key_leaf(k));
}

#define LONGEST_WORD 40

/* Levenshtein distance with one row of the table. Words longer than any key are too far from everything. */
size_t psd_config_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b), row[LONGEST_WORD + 1];
    if (na > LONGEST_WORD || nb > LONGEST_WORD)
        return LONGEST_WORD;
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (row[j] + 1 < best)
                best = row[j] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

/* Names that other programs use for a key. */
static const char *meant_by(const char *leaf)
{
    static const char *const words[][2] = {{"lr", "learning_rate"}, {"eta", "learning_rate"},
                                           {"tau", "period"},       {"port", "listen"},
                                           {"staleness", "slack"},  {"wd", "weight_decay"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i][0], leaf) == 0)
            return words[i][1];
    return leaf;
}

const struct psd_config_key *psd_config_key_nearest(const char *group, const char *leaf)
{
    const struct psd_config_key *nearest = NULL;
    size_t best = 3; /* two typing errors are a slip, three are another word */

    leaf = meant_by(leaf);
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        if (strcmp(psd_config_key_leaf(k), leaf) == 0)
            return k;
        size_t d = in_group(k, group) ? psd_config_distance(psd_config_key_leaf(k), leaf) : best;
        if (d < best) {
            best = d;
            nearest = k;
        }
    }
    /* Elsewhere, one typing error in three letters: there are many words to be near to. */
    best = strlen(leaf) / 3 < 2 ? strlen(leaf) / 3 + 1 : 3;
    for (const struct psd_config_key *k = psd_config_keys; nearest == NULL && k->name != NULL; k++)
        if (psd_config_distance(psd_config_key_leaf(k), leaf) < best)
            nearest = k;
    return nearest;
}
