#include "nets/worker/evaluate/results.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/worker/job/output.h"
#include "nets/worker/job/progress.h"
#include "proto/file.h"
#include "proto/log.h"

int cnn_results_open(struct cnn_results *r, struct cnn_job *job)
{
    struct ps_error err;
    *r = (struct cnn_results){.job = job};
    if (job->args->confusion == NULL)
        return CNN_EXIT_OK;
    int rc = cnn_confusion_init(&r->confusion, job->model.classes, &err);
    if (rc == 0 && (r->predicted = calloc(job->args->batch, sizeof *r->predicted)) == NULL)
        rc = ps_fail(&err, -ENOMEM, "no memory for %" PRIu64 " predictions", job->args->batch);
    if (rc == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "confusion.failed", "--confusion: %s", err.text);
    return rc == -EINVAL ? CNN_EXIT_USAGE : CNN_EXIT_INTERNAL;
}

void cnn_results_close(struct cnn_results *r)
{
    cnn_confusion_finish(&r->confusion);
    free(r->predicted);
}

static void print(const struct cnn_results *r, FILE *out, const char *vector, uint64_t version)
{
    const struct cnn_confusion *c = &r->confusion;
    if (r->job->args->json) {
        fprintf(out, "{\"vector\":\"%s\",\"center_version\":%" PRIu64, vector, version);
        cnn_json_number(out, "accuracy", cnn_confusion_accuracy(c));
        fputc(',', out);
        cnn_confusion_print_json(c, out);
        fputs("}\n", out);
    } else {
        fprintf(out, "%s %" PRIu64 "  accuracy %.4f\n\n", vector, version, cnn_confusion_accuracy(c));
        cnn_confusion_print(c, out);
    }
}

static int write_to(const struct cnn_results *r, FILE *out, const char *vector, uint64_t version)
{
    errno = 0;
    print(r, out, vector, version);
    bool whole = ferror(out) == 0;
    if ((out == stdout ? fflush(out) : fclose(out)) == 0 && whole)
        return 0;
    return errno != 0 ? -errno : -EIO;
}

/* Writes PATH.tmp and renames it, so that a reader never sees a partial file. */
static int replace(const struct cnn_results *r, const char *vector, uint64_t version)
{
    char path[PATH_MAX], aside[PATH_MAX];
    int rc = ps_file_resolve(r->job->args->confusion, path, sizeof path);
    if (rc == 0 && snprintf(aside, sizeof aside, "%s.tmp", path) >= (int)sizeof aside)
        rc = -ENAMETOOLONG;
    if (rc < 0)
        return rc;
    FILE *out = fopen(aside, "we");
    if (out == NULL)
        return -errno;
    rc = write_to(r, out, vector, version);
    if (rc == 0 && rename(aside, path) != 0)
        rc = -errno;
    if (rc < 0)
        unlink(aside);
    return rc;
}

static int write_in_place(const struct cnn_results *r, const char *vector, uint64_t version)
{
    const char *path = r->job->args->confusion;
    FILE *out = cnn_output_is_stdout(path) ? stdout : fopen(path, "we");
    return out != NULL ? write_to(r, out, vector, version) : -errno;
}

int cnn_results_write(struct cnn_results *r, const char *vector, uint64_t version)
{
    const char *path = r->job->args->confusion;
    int rc = cnn_output_is_in_place(path) ? write_in_place(r, vector, version) : replace(r, vector, version);
    if (rc < 0)
        ps_log(PS_LOG_ERROR, "confusion.failed", "--confusion %s: cannot be written: %s", path,
               strerror(-rc));
    cnn_confusion_clear(&r->confusion);
    return rc;
}
