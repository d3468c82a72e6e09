#include "nets/training/init.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/training/pattern.h"
#include "nets/training/safetensors.h"

static void add_name(char *list, size_t size, const char *name)
{
    size_t used = strlen(list);
    if (used > 3 && strcmp(list + used - 3, "...") == 0)
        return;
    if (used + strlen(name) + sizeof ", ..." < size)
        snprintf(list + used, size - used, "%s%s", used > 0 ? ", " : "", name);
    else
        snprintf(list + used, size - used, "%s", used > 0 ? ", ..." : "...");
}

static void print_shape(char *text, size_t size, const uint64_t *shape, uint32_t n_dims)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t k = 0; k < n_dims && used < size; k++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, k > 0 ? "," : "", shape[k]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static int fail_shape(const char *path, const struct cnn_param *p, const struct cnn_st_tensor *t,
                      struct ps_error *err)
{
    char here[100], there[200];
    print_shape(here, sizeof here, p->shape, p->n_dims);
    print_shape(there, sizeof there, t->shape, t->n_dims);
    return ps_fail(err, -EINVAL,
                   "%s: tensor '%s': %s in the file, %s in the net; to initialise it: --init-skip '%s'", path,
                   p->name, there, here, p->name);
}

static int load_tensor(const char *path, struct cnn_safetensors *st, const struct cnn_param *p,
                       const struct cnn_st_tensor *t, float *x, struct ps_error *err)
{
    if (t->n_dims != p->n_dims || memcmp(t->shape, p->shape, p->n_dims * sizeof *p->shape) != 0)
        return fail_shape(path, p, t, err);
    return cnn_safetensors_read(st, t, x + p->offset, err);
}

static bool is_of_net(const char *name, const struct cnn_param *params, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(params[i].name, name) == 0)
            return true;
    return false;
}

static void count_unused(const struct cnn_safetensors *st, const struct cnn_param *params, size_t n,
                         struct cnn_init_report *report)
{
    for (size_t i = 0; i < cnn_safetensors_count(st); i++) {
        const char *name = cnn_safetensors_tensor(st, i)->name;
        if (strncmp(name, "psd.", 4) == 0 || is_of_net(name, params, n))
            continue;
        report->n_unused++;
        add_name(report->unused, sizeof report->unused, name);
    }
}

static int load_all(const char *path, struct cnn_safetensors *st, const bool *skipped,
                    const struct cnn_param *params, size_t n, float *x, struct cnn_init_report *report,
                    struct ps_error *err)
{
    int rc = 0;
    bool known = false;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct cnn_st_tensor *t = cnn_safetensors_find(st, params[i].name);
        known = known || t != NULL;
        if (t != NULL && !skipped[i]) {
            rc = load_tensor(path, st, &params[i], t, x, err);
            report->n_taken++;
        } else {
            report->n_fresh++;
            add_name(report->fresh, sizeof report->fresh, params[i].name);
        }
    }
    if (rc == 0 && !known)
        rc = ps_fail(err, -EINVAL,
                     "%s: a file of another net: it has %zu tensors (%.80s), and none of this net's (%.80s)",
                     path, cnn_safetensors_count(st), report->unused, report->fresh);
    return rc;
}

int cnn_init_load(const char *path, const char *skip, const struct cnn_param *params, size_t n, float *x,
                  struct cnn_init_report *report, struct ps_error *err)
{
    struct cnn_safetensors *st = NULL;
    bool *skipped = calloc(n + 1, sizeof *skipped);
    int rc = skipped != NULL ? 0 : ps_fail(err, -ENOMEM, "%s: no memory for %zu tensors' names", path, n);
    *report = (struct cnn_init_report){0};
    if (rc == 0 && skip != NULL)
        rc = cnn_pattern_mark(skip, params, n, skipped, err);
    if (rc == 0)
        rc = cnn_safetensors_open(path, &st, err);
    if (rc == 0) {
        count_unused(st, params, n, report);
        rc = load_all(path, st, skipped, params, n, x, report, err);
    }
    cnn_safetensors_close(st);
    free(skipped);
    return rc;
}
