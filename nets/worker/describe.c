/* psworker --describe: a net's layers, work and memory. */
#include "nets/worker/run.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/worker/job/precision.h"
#include "proto/log.h"

#define MIB (1024.0 * 1024.0)

/* Bytes for a batch. */
struct description {
    struct cnn_model model;
    struct cnn_layer_row *rows;
    size_t n_rows;
    uint64_t batch, n_params, n_buffers;
    enum cnn_precision precision;
    double forward_flops, backward_flops; /* of one image */
    double image_bytes;
    double activation_bytes; /* outputs of all layers, without reuse of memory */
    struct cnn_net_memory memory;
    const char *backend; /* NULL: not measured */
    double measured_bytes;
    const struct cnn_partitions *parts; /* of --partitions; NULL */
};

static double output_bytes(const struct description *d, const struct cnn_layer_row *row)
{
    size_t each = d->precision == CNN_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (double)row->channels * row->height * row->width * (double)d->batch * (double)each;
}

static void add_up(struct description *d)
{
    const struct cnn_model *m = &d->model;
    for (size_t i = 0; i < d->n_rows; i++) {
        double bytes = output_bytes(d, &d->rows[i]);
        d->n_params += d->rows[i].n_params;
        d->n_buffers += d->rows[i].n_buffers;
        d->forward_flops += d->rows[i].forward_flops;
        d->backward_flops += d->rows[i].backward_flops;
        d->activation_bytes += bytes;
    }
    d->image_bytes = (double)m->channels * m->height * m->width * (double)d->batch * sizeof(float);
}

static double total_bytes(const struct description *d)
{
    return d->image_bytes + (double)(d->memory.values + d->memory.own + d->memory.vectors);
}

/* Resident bytes of this process; NAN: unknown. */
static double resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL)
        return NAN;
    int n = fscanf(f, "%*u %lu", &pages);
    fclose(f);
    return n == 1 ? (double)pages * (double)sysconf(_SC_PAGESIZE) : NAN;
}

/* Bytes in use where the net computes, but for a constant: of a device, by all processes. NAN: unknown. */
static double bytes_in_use(const char *backend)
{
    uint64_t n_free;
    return cnn_free_bytes(backend, &n_free, NULL) == 0 ? -(double)n_free : resident_bytes();
}

static struct cnn_net_options options_of(const struct description *d, const struct cnn_worker_args *args)
{
    return (struct cnn_net_options){.model = &d->model,
                                    .backend = args->backend,
                                    .batch = (uint32_t)d->batch,
                                    .threads = (uint32_t)args->threads,
                                    .precision = d->precision,
                                    .any_order = args->any_order};
}

/* A gradient of a small net with every kind of product, so that the backend's library and threads are not
 * part of the measurement. */
static void warm_up(const struct cnn_net_options *like)
{
    struct cnn_net_options opt = *like;
    struct cnn_net *net = NULL;
    struct cnn_score score;
    const uint16_t label = 0;

    opt.model = cnn_model_find("lenet");
    opt.batch = 1;
    size_t n_floats = cnn_model_n_floats(opt.model);
    size_t n_pixels = (size_t)opt.model->channels * opt.model->height * opt.model->width;
    float *x = calloc(2 * n_floats + n_pixels, sizeof *x);
    if (x != NULL && cnn_net_create(&opt, &net, NULL) == 0)
        cnn_net_gradient(net, x, x + 2 * n_floats, &label, x + n_floats, &score);
    cnn_net_destroy(net);
    free(x);
}

/* Measures by how much one gradient grows the process, or what is in use of the device: the net, its buffers,
 * the batch and the vectors. */
static int measure(struct description *d, const struct cnn_worker_args *args, struct ps_error *err)
{
    struct cnn_net_options opt = options_of(d, args);
    const struct cnn_model *m = &d->model;
    size_t n_floats = cnn_model_n_floats(m), n_pixels = (size_t)m->channels * m->height * m->width * d->batch;
    struct cnn_net *net = NULL;
    struct cnn_score score;
    warm_up(&opt);
    malloc_trim(0); /* otherwise the net would reuse that memory */
    double before = bytes_in_use(args->backend);
    int rc = cnn_net_create(&opt, &net, err);
    if (rc != 0)
        return rc;
    float *x = malloc(n_floats * sizeof *x), *g = malloc(n_floats * sizeof *g);
    float *images = malloc(n_pixels * sizeof *images);
    uint16_t *labels = calloc(d->batch, sizeof *labels);
    d->backend = cnn_net_backend(net);
    cnn_net_memory_used(net, &d->memory);
    if (x == NULL || g == NULL || images == NULL || labels == NULL) {
        rc = ps_fail(err, -ENOMEM, "no memory for %zu floats and a batch of %" PRIu64, n_floats, d->batch);
        goto free_all;
    }
    memset(images, 0, n_pixels * sizeof *images);
    cnn_model_fill(m, args->seed, x);
    rc = cnn_net_gradient(net, x, images, labels, g, &score);
    if (rc != 0)
        ps_fail(err, rc, "%s", cnn_net_error(net));
    else if (!isnan(before))
        d->measured_bytes = fmax(bytes_in_use(args->backend) - before, 0);

free_all:
    free(labels);
    free(images);
    free(g);
    free(x);
    cnn_net_destroy(net);
    return rc;
}

static void print_shape(FILE *out, int width, uint32_t c, uint32_t h, uint32_t w)
{
    char text[48];
    if (h == 1 && w == 1)
        snprintf(text, sizeof text, "%u", c);
    else
        snprintf(text, sizeof text, "%ux%ux%u", c, h, w);
    fprintf(out, "%-*s", width, text);
}

/* Prints a layer's inputs unless its only input is the previous row. */
static void print_inputs(FILE *out, const struct description *d, size_t i)
{
    const struct cnn_layer_row *row = &d->rows[i];
    if (row->n_inputs == 1 && strcmp(row->inputs[0], i > 0 ? d->rows[i - 1].name : "images") == 0)
        return;
    for (uint32_t k = 0; k < row->n_inputs; k++)
        fprintf(out, "%s%s", k == 0 ? "  of " : ", ", row->inputs[k]);
}

static void print_partitions(FILE *out, const struct cnn_partitions *parts)
{
    const struct ps_topology *t = &parts->topology;
    fprintf(
        out,
        "\n%s.\nOf the cores that this process may use %u have a part, %u none; left out are %u of a slower "
        "kind, %u beyond the quota,\nand %u further hardware threads of these cores.\n",
        parts->placement.why, t->n_cores - parts->placement.n_idle, parts->placement.n_idle, t->n_slower,
        t->n_over_quota, t->n_siblings);
}

static void print_partitions_json(FILE *out, const struct cnn_partitions *parts)
{
    const struct ps_topology *t = &parts->topology;
    const struct ps_placement *p = &parts->placement;
    fprintf(out,
            ",\"partitions\":{\"partitions\":%u,\"threads\":%u,\"bytes\":%" PRIu64
            ",\"near\":\"%s\",\"fits\":%s,\"cores\":%u,\"idle\":%u,\"slower\":%u,\"over_quota\":%u,"
            "\"siblings\":%u,\"why\":\"%s\"}",
            p->n, p->threads, p->bytes, ps_near_name(p->near), p->fits ? "true" : "false", t->n_cores,
            p->n_idle, t->n_slower, t->n_over_quota, t->n_siblings, p->why);
}

static void print_text(FILE *out, const struct description *d)
{
    const struct cnn_model *m = &d->model;
    fprintf(out, "%s: images %ux%ux%u, %u classes (%s)\n\n", m->name, m->channels, m->height, m->width,
            m->classes, m->source);
    fprintf(out, "%-12s %-15s %-12s %12s %14s %14s %12s\n", "layer", "kind", "output", "parameters",
            "forward MFLOP", "backward MFLOP", "output MiB");
    for (size_t i = 0; i < d->n_rows; i++) {
        const struct cnn_layer_row *row = &d->rows[i];
        fprintf(out, "%-12s %-15s ", row->name, row->kind);
        print_shape(out, 12, row->channels, row->height, row->width);
        fprintf(out, " %12" PRIu64 " %14.3f %14.3f %12.2f", row->n_params, row->forward_flops * 1e-6,
                row->backward_flops * 1e-6, output_bytes(d, row) / MIB);
        print_inputs(out, d, i);
        fputc('\n', out);
    }
    fprintf(out, "%-12s %-15s %-12s %12" PRIu64 " %14.3f %14.3f %12.2f\n", "total", "", "", d->n_params,
            d->forward_flops * 1e-6, d->backward_flops * 1e-6, d->activation_bytes / MIB);
    if (d->n_buffers > 0)
        fprintf(out, "and %" PRIu64 " floats of running statistics\n", d->n_buffers);
    fprintf(out,
            "\nFLOP of one image; memory for a batch of %" PRIu64
            " in %s: images %.2f MiB, outputs, gradients and what layers keep %.2f,\n"
            "the backend's own %.2f, parameters and gradient %.2f; total %.2f MiB",
            d->batch, cnn_precision_name(d->precision), d->image_bytes / MIB, (double)d->memory.values / MIB,
            (double)d->memory.own / MIB, (double)d->memory.vectors / MIB, total_bytes(d) / MIB);
    if (d->backend != NULL)
        fprintf(out, "; measured on %s: %.2f MiB", d->backend, d->measured_bytes / MIB);
    fputc('\n', out);
    if (d->parts != NULL)
        print_partitions(out, d->parts);
}

static void print_json(FILE *out, const struct description *d)
{
    const struct cnn_model *m = &d->model;
    fprintf(out,
            "{\"net\":\"%s\",\"image\":[%u,%u,%u],\"classes\":%u,\"batch\":%" PRIu64
            ",\"precision\":\"%s\",\"layers\":[",
            m->name, m->channels, m->height, m->width, m->classes, d->batch,
            cnn_precision_name(d->precision));
    for (size_t i = 0; i < d->n_rows; i++) {
        const struct cnn_layer_row *row = &d->rows[i];
        fprintf(out, "%s{\"name\":\"%s\",\"kind\":\"%s\",\"inputs\":[", i > 0 ? "," : "", row->name,
                row->kind);
        for (uint32_t k = 0; k < row->n_inputs; k++)
            fprintf(out, "%s\"%s\"", k > 0 ? "," : "", row->inputs[k]);
        fprintf(out,
                "],\"output\":[%u,%u,%u],\"parameters\":%" PRIu64 ",\"buffers\":%" PRIu64
                ",\"forward_flops\":%.0f,\"backward_flops\":%.0f,\"output_bytes\":%.0f}",
                row->channels, row->height, row->width, row->n_params, row->n_buffers, row->forward_flops,
                row->backward_flops, output_bytes(d, row));
    }
    fprintf(out,
            "],\"parameters\":%" PRIu64 ",\"buffers\":%" PRIu64
            ",\"forward_flops\":%.0f,\"backward_flops\":%.0f,\"image_bytes\":%.0f,\"activation_bytes\":%.0f,"
            "\"value_bytes\":%" PRIu64 ",\"own_bytes\":%" PRIu64 ",\"vector_bytes\":%" PRIu64
            ",\"total_bytes\":%.0f",
            d->n_params, d->n_buffers, d->forward_flops, d->backward_flops, d->image_bytes,
            d->activation_bytes, d->memory.values, d->memory.own, d->memory.vectors, total_bytes(d));
    if (d->backend != NULL)
        fprintf(out, ",\"backend\":\"%s\",\"measured_bytes\":%.0f", d->backend, d->measured_bytes);
    else
        fputs(",\"backend\":null,\"measured_bytes\":null", out);
    if (d->parts != NULL)
        print_partitions_json(out, d->parts);
    fputs("}\n", out);
}

/* A net that does not fit into the memory of this machine, or of its device, is described but not measured.
 */
static bool has_room(const struct description *d, const char *backend)
{
    uint64_t n_free;
    if (cnn_free_bytes(backend, &n_free, NULL) == 0 && total_bytes(d) > (double)n_free)
        return false;
    return total_bytes(d) < 0.5 * (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static int describe(struct description *d, const struct cnn_worker_args *args, struct ps_error *err)
{
    int rc = cnn_model_describe(&d->model, &d->rows, &d->n_rows, err);
    if (rc != 0)
        return rc;
    add_up(d);
    struct cnn_net_options opt = options_of(d, args);
    rc = cnn_net_plan_memory(&opt, &d->memory, err);
    return rc == 0 && has_room(d, args->backend) ? measure(d, args, err) : rc;
}

/* With the copy of --data that each part would hold. Logs what is wrong. */
static int divide(struct description *d, const struct cnn_worker_args *args, struct cnn_partitions *parts)
{
    struct cnn_data_info info;
    struct cnn_data *data;
    struct ps_error err;
    if (cnn_data_open(args->data, &data, &err) != 0) {
        ps_log(PS_LOG_ERROR, "data.failed", "--data: %s", err.text);
        return CNN_EXIT_DATA;
    }
    cnn_data_get_info(data, &info);
    cnn_data_close(data);
    int rc = cnn_partitions_plan(args, &d->model, &info, parts);
    d->parts = parts;
    return rc;
}

/* Logs what is wrong. An enum cnn_exit. */
static int describe_and_print(struct description *d, const struct cnn_worker_args *args, FILE *out)
{
    struct cnn_partitions parts;
    struct ps_error err;
    int exit = CNN_EXIT_OK, rc = describe(d, args, &err);
    if (rc != 0) {
        ps_log(PS_LOG_ERROR, "describe.failed", "--describe %s: %s", args->describe, err.text);
        return rc == -EINVAL ? CNN_EXIT_USAGE : CNN_EXIT_INTERNAL;
    }
    if (args->partitions != NULL)
        exit = divide(d, args, &parts);
    if (exit == CNN_EXIT_OK)
        (args->json ? print_json : print_text)(out, d);
    if (d->parts != NULL)
        cnn_partitions_finish(&parts);
    d->parts = NULL;
    return exit;
}

int cnn_describe(const struct cnn_worker_args *given, FILE *out)
{
    struct cnn_worker_args own = *given;
    struct cnn_freeze freeze;
    int exit = cnn_precision_settle(&own);
    struct description d = {.batch = own.batch, .precision = own.net_precision};
    if (exit != CNN_EXIT_OK)
        return exit;
    exit = cnn_job_read_model(&own, own.describe, &d.model, &freeze);
    if (exit == CNN_EXIT_OK)
        exit = describe_and_print(&d, &own, out);
    cnn_freeze_finish(&freeze);
    free(d.rows);
    return exit;
}
