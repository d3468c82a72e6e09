#include "nets/worker/job/no_server.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/model/method.h"

/* For LeNet on MNIST with batches of 64, which diverges at twice these rates without a warm-up. Momentum 0.9
 * multiplies the effective rate by ten; a pipeline of depth two halves the largest stable rate. */
enum { WARMUP_STEPS = 200, PIPELINE_WARMUP = 100 };
static const struct {
    const char *name;
    double learning_rate;
} methods[] = {{"sgd", 0.05},    {"msgd", 0.01},  {"asgd", 0.05},
               {"mvasgd", 0.05}, {"d-sync", 0.1}, {"pipe-sgd", 0.05}};
enum { N_METHODS = sizeof methods / sizeof *methods };

static const struct {
    const char *name;
    int n_numbers; /* required numbers after the name, each after a colon */
    int n_more;    /* optional numbers */
} schedules[] = {{"constant", 0, 0},
                 {"step", 2, 0},
                 {"inv-sqrt", 1, 0},
                 {"cosine", 1, 1},
                 {"multi-step", 2, PSC_MAX_MILESTONES - 1}};
enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };

/* Reads the numbers after the name, each after a colon. Returns how many, or -1. */
static int read_numbers(const char *text, double *out, int most)
{
    int n = 0;
    for (char *end; *text == ':' && n < most; n++, text = end) {
        out[n] = strtod(text + 1, &end);
        if (end == text + 1 || !isfinite(out[n]))
            return -1;
    }
    return *text == '\0' ? n : -1;
}

static bool is_step(double v)
{
    return v >= 1 && v <= 1e12 && v == floor(v);
}

/* Stores the schedule's numbers; false if one is out of range. */
static bool take_numbers(const char *name, const double *v, int n, struct psc_local *out)
{
    if (strcmp(name, "cosine") == 0) {
        out->total_steps = is_step(v[0]) ? (uint64_t)v[0] : 0;
        out->floor = n > 1 ? v[1] : 0;
        return out->total_steps > 0 && out->floor >= 0 && out->floor <= 1;
    }
    if (n > 0)
        out->gamma = v[0];
    if (strcmp(name, "multi-step") == 0) {
        out->n_milestones = (uint32_t)(n - 1);
        for (int k = 1; k < n; k++) {
            if (!is_step(v[k]) || (k > 1 && v[k] <= v[k - 1]))
                return false;
            out->milestones[k - 1] = (uint64_t)v[k];
        }
        return out->gamma > 0 && out->gamma <= 1;
    }
    if (n > 1 && !is_step(v[1]))
        return false;
    out->step_steps = n > 1 ? (uint64_t)v[1] : 1;
    return out->gamma >= 0 && out->gamma <= 1000;
}

static int read_schedule(const char *text, struct psc_local *out, struct ps_error *err)
{
    double numbers[PSC_MAX_MILESTONES + 1] = {0};
    size_t length = strcspn(text, ":"), row = 0;
    int n = read_numbers(text + length, numbers, PSC_MAX_MILESTONES + 1);
    while (row < N_SCHEDULES &&
           (strncmp(schedules[row].name, text, length) != 0 || schedules[row].name[length] != '\0'))
        row++;
    if (row == N_SCHEDULES || n < schedules[row].n_numbers ||
        n > schedules[row].n_numbers + schedules[row].n_more ||
        !take_numbers(schedules[row].name, numbers, n, out))
        return ps_fail(err, -EINVAL,
                       "--schedule: \"%.60s\"; allowed: constant, step:FACTOR:STEPS (such as step:0.3:900), "
                       "inv-sqrt:GAMMA, "
                       "cosine:STEPS[:FLOOR] and multi-step:FACTOR:STEP[:STEP]... (rising, such as "
                       "multi-step:0.2:900:1200); "
                       "plateau needs a server",
                       text);
    out->schedule = schedules[row].name;
    return 0;
}

static int find_method(const char *name, struct ps_error *err)
{
    for (int i = 0; i < N_METHODS; i++)
        if (strcmp(methods[i].name, name) == 0)
            return i;
    if (ps_method_find(name) != NULL)
        return ps_fail(err, -EINVAL,
                       "--method: \"%.60s\" needs a server: psd --method %.60s, and psworker --server; "
                       "allowed: sgd, msgd, asgd, mvasgd, d-sync, pipe-sgd",
                       name, name);
    return ps_fail(err, -EINVAL, "--method: \"%.60s\"; allowed: sgd, msgd, asgd, mvasgd, d-sync, pipe-sgd",
                   name);
}

static int check_ranges(const struct psc_local *l, struct ps_error *err)
{
    const struct {
        const char *name, *allowed;
        double value;
        bool fine;
    } rows[] = {
        {"learning-rate", "above 0, at most 1000", l->learning_rate,
         l->learning_rate > 0 && l->learning_rate <= 1000},
        {"momentum", "0 to below 1", l->momentum, l->momentum >= 0 && l->momentum < 1},
        {"averaging-rate", "above 0, at most 1", l->averaging_rate,
         l->averaging_rate > 0 && l->averaging_rate <= 1},
        {"weight-decay", "0 to 1", l->weight_decay, l->weight_decay >= 0 && l->weight_decay <= 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].fine)
            return ps_fail(err, -EINVAL, "--%s: %g; allowed: %s", rows[i].name, rows[i].value,
                           rows[i].allowed);
    return 0;
}

/* Refuses options that the method does not use. */
static int check_use(const struct cnn_worker_args *a, struct ps_error *err)
{
    if (!isnan(a->momentum) && strcmp(a->method, "msgd") != 0)
        return ps_fail(err, -EINVAL, "--momentum: given for %s, which does not use it; allowed: with msgd",
                       a->method);
    if (!isnan(a->averaging_rate) && strcmp(a->method, "mvasgd") != 0)
        return ps_fail(err, -EINVAL,
                       "--averaging-rate: given for %s, which does not use it; allowed: with mvasgd",
                       a->method);
    bool pipelined = strcmp(a->method, "pipe-sgd") == 0;
    if (a->pipeline >= 0 && !pipelined)
        return ps_fail(err, -EINVAL,
                       "--pipeline: given for %s, which does not use it; allowed: with pipe-sgd", a->method);
    if (a->pipeline_warmup >= 0 && !pipelined)
        return ps_fail(err, -EINVAL,
                       "--pipeline-warmup: given for %s, which does not use it; allowed: with pipe-sgd",
                       a->method);
    bool sums = pipelined || strcmp(a->method, "d-sync") == 0;
    if (a->bucket_floats > 0 && !sums)
        return ps_fail(err, -EINVAL,
                       "--bucket-floats: given for %s, which does not use it; allowed: with d-sync, pipe-sgd",
                       a->method);
    if (a->codec != NULL && !sums)
        return ps_fail(err, -EINVAL,
                       "--codec: given for %s, which does not use it; allowed: with d-sync, pipe-sgd",
                       a->method);
    return 0;
}

int cnn_local_options(const struct cnn_worker_args *a, struct psc_local *out, struct ps_error *err)
{
    int rc, row = find_method(a->method, err);
    if (row < 0)
        return row;
    psc_local_init(out, sizeof *out, methods[row].name);
    out->learning_rate = isnan(a->learning_rate) ? methods[row].learning_rate : a->learning_rate;
    out->momentum = isnan(a->momentum) ? out->momentum : a->momentum;
    out->averaging_rate = isnan(a->averaging_rate) ? out->averaging_rate : a->averaging_rate;
    out->weight_decay = isnan(a->weight_decay) ? out->weight_decay : a->weight_decay;
    out->warmup_steps = a->warmup >= 0 ? (uint64_t)a->warmup : WARMUP_STEPS;
    out->codec = a->codec != NULL ? a->codec : out->codec;
    out->bucket_floats = a->bucket_floats;
    out->pipeline = a->pipeline >= 0 ? (uint32_t)a->pipeline : out->pipeline;
    out->pipeline_warmup = a->pipeline_warmup >= 0 ? (uint64_t)a->pipeline_warmup : PIPELINE_WARMUP;
    if ((rc = check_use(a, err)) != 0 || (rc = check_ranges(out, err)) != 0)
        return rc;
    return a->schedule != NULL ? read_schedule(a->schedule, out, err) : 0;
}
