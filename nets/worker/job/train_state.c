#include "nets/worker/job/train_state.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/worker/job/job.h"
#include "proto/bytes.h"
#include "proto/file.h"
#include "proto/log.h"

enum { N_FIELDS = 10 };
/* Older files lack the last fields. */
static const size_t fields_of_files[] = {N_FIELDS, 8, 7};

/* The file's format: 64-bit little-endian numbers. */
static void pack(const struct cnn_train_state *p, unsigned char *bytes)
{
    const uint64_t fields[N_FIELDS] = {p->steps, p->draws,          p->seed,           p->batch,
                                       p->rank,  p->position.epoch, p->position.index, p->passed,
                                       p->parts, p->accumulate};
    for (int i = 0; i < N_FIELDS; i++)
        ps_put64(bytes + 8 * i, fields[i]);
}

static struct cnn_train_state unpack(const unsigned char *bytes)
{
    uint64_t f[N_FIELDS];
    for (int i = 0; i < N_FIELDS; i++)
        f[i] = ps_get64(bytes + 8 * i);
    return (struct cnn_train_state){f[0], f[1], f[2], f[3], f[4], {f[5], f[6]}, f[7], f[8], f[9]};
}

/* Beside the file that `path`, which may be a symbolic link, leads to. */
struct names {
    char file[PATH_MAX], before[PATH_MAX];
};

static int name(struct names *n, const char *path)
{
    int rc = ps_file_resolve(path, n->file, sizeof n->file);
    if (rc == 0 && snprintf(n->before, sizeof n->before, "%s.before", n->file) >= (int)sizeof n->before)
        rc = -ENAMETOOLONG;
    return rc;
}

/* Some file systems give a file another inode when it is looked up anew. */
static bool is_replaced(const char *path, const struct stat *saved)
{
    struct stat st;
    return saved->st_nlink > 0 && stat(path, &st) == 0 && st.st_ino != saved->st_ino &&
           (st.st_mtim.tv_sec != saved->st_mtim.tv_sec || st.st_mtim.tv_nsec != saved->st_mtim.tv_nsec);
}

int cnn_train_state_save(struct psc *psc, const char *path, const float *x,
                         const struct cnn_train_state *place, struct stat *saved)
{
    unsigned char bytes[8 * N_FIELDS];
    struct names n;
    pack(place, bytes);
    if (is_replaced(path, saved))
        ps_log(
            PS_LOG_WARN, "state.shared",
            "--state: another process has saved to %s since this worker did: a resume would take the state "
            "of one for both; allowed: a file for each worker",
            path);
    if (name(&n, path) == 0)
        rename(n.file, n.before); /* there is no file at the first save */
    int rc = psc_save(psc, path, x, bytes, sizeof bytes);
    if (rc < 0 || stat(path, saved) < 0)
        saved->st_nlink = 0;
    return rc;
}

static bool goes_with(struct psc *psc, const char *path, uint64_t version)
{
    uint64_t saved;
    return access(path, F_OK) == 0 && psc_saved_version(psc, path, &saved) == PSC_OK && saved == version;
}

bool cnn_train_state_exists(const char *path)
{
    struct names n;
    return access(path, F_OK) == 0 || (name(&n, path) == 0 && access(n.before, F_OK) == 0);
}

/* all: [size][n], of which this member's n values are in their place. */
static int gather(struct psc_clique *q, int64_t *all, uint64_t n)
{
    struct psc_collective_options opt;
    psc_collective_options_init(&opt, sizeof opt);
    opt.kind = PSC_ALLGATHER;
    opt.type = PSC_INT64;
    opt.n = n;
    opt.out = all;
    return psc_collective_run(q, &opt);
}

/* Of `path`, or -1: there is no such file, or it cannot be read. */
static int64_t version_of(struct psc *psc, const char *path)
{
    uint64_t version;
    return access(path, F_OK) == 0 && psc_saved_version(psc, path, &version) == PSC_OK ? (int64_t)version
                                                                                       : -1;
}

/* versions: [size][2]. */
static bool all_have(const int64_t *versions, int size, int64_t version)
{
    bool all = version >= 0;
    for (int i = 0; all && i < size; i++)
        all = versions[2 * i] == version || versions[2 * i + 1] == version;
    return all;
}

/* The newer file, unless only the previous one matches the center's version. */
static const char *choose(struct psc *psc, const char *path, const char *before)
{
    struct psc_info info = {.size = sizeof info};
    if (psc_info(psc, &info) != PSC_OK || goes_with(psc, path, info.center_version))
        return path;
    return goes_with(psc, before, info.center_version) || access(path, F_OK) != 0 ? before : path;
}

/* Of *path and `other`, the file saved before it: the latter where only that one belongs to a version of
 * which every member of q has a state. A clique that is killed while it saves leaves states of two versions.
 */
static int choose_together(struct psc *psc, struct psc_clique *q, const char *other, const char **path)
{
    int size = psc_clique_size(q), rank = psc_clique_rank(q);
    int64_t *versions = calloc((size_t)size * 2, sizeof *versions);
    if (versions == NULL)
        return PSC_ENOMEM;
    int64_t *own = versions + 2 * (size_t)rank;
    own[0] = *path != NULL ? version_of(psc, *path) : -1;
    own[1] = other != NULL ? version_of(psc, other) : -1;
    int rc = gather(q, versions, 2);
    if (rc == PSC_OK && !all_have(versions, size, own[0]) && all_have(versions, size, own[1]))
        *path = other;
    free(versions);
    return rc;
}

static int load_failed(struct psc *psc, int rc)
{
    ps_log(PS_LOG_ERROR, "state.failed", "--state: %s (%s)", psc_error(psc), psc_result_name(rc));
    switch (rc) {
    case PSC_EDAMAGED:
    case PSC_EVALUE:
        return CNN_EXIT_DATA;
    case PSC_EINVAL:
    case PSC_EMANIFEST:
        return CNN_EXIT_USAGE;
    default:
        return CNN_EXIT_INTERNAL;
    }
}

/* What an older file does not say is taken to be as given. */
static int check_options(struct cnn_train_state found, const char *path, const struct cnn_train_state *wanted)
{
    found.parts = found.parts > 0 ? found.parts : wanted->parts;
    found.accumulate = found.accumulate > 0 ? found.accumulate : wanted->accumulate;
    if (found.seed == wanted->seed && found.batch == wanted->batch && found.parts == wanted->parts &&
        found.accumulate == wanted->accumulate)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "state.failed",
           "--state: %s was saved with --seed %" PRIu64 " --batch %" PRIu64 " --accumulate %" PRIu64
           " and %" PRIu64 " parts (--partitions, --devices); given are %" PRIu64 ", %" PRIu64 ", %" PRIu64
           " and %" PRIu64,
           path, found.seed, found.batch * found.parts, found.accumulate, found.parts, wanted->seed,
           wanted->batch * wanted->parts, wanted->accumulate, wanted->parts);
    return CNN_EXIT_USAGE;
}

static int check(const struct cnn_train_state *found, size_t n_bytes, const char *path,
                 const struct cnn_train_state *wanted)
{
    size_t i = 0, n = sizeof fields_of_files / sizeof *fields_of_files;
    while (i < n && n_bytes != 8 * fields_of_files[i])
        i++;
    if (i == n) {
        ps_log(PS_LOG_ERROR, "state.failed",
               "--state: %s was not saved by psworker: it holds %zu bytes of another program", path, n_bytes);
        return CNN_EXIT_USAGE;
    }
    if (check_options(*found, path, wanted) != CNN_EXIT_OK)
        return CNN_EXIT_USAGE;
    if (found->rank != wanted->rank)
        ps_log(PS_LOG_WARN, "state.rank",
               "--state: %s was saved by rank %" PRIu64 ", this worker has rank %" PRIu64
               ": it reads the data in its own rank's order (request a rank with --rank)",
               path, found->rank, wanted->rank);
    return CNN_EXIT_OK;
}

static int load(struct psc *psc, const char *path, float *x, struct cnn_train_state *place)
{
    unsigned char bytes[8 * N_FIELDS] = {0};
    size_t n_bytes = 0;
    int rc = psc_load(psc, path, x, bytes, sizeof bytes, &n_bytes);
    if (rc < 0)
        return load_failed(psc, rc);
    struct cnn_train_state found = unpack(bytes);
    if ((rc = check(&found, n_bytes, path, place)) != CNN_EXIT_OK)
        return rc;
    found.rank = place->rank;
    *place = found;
    return CNN_EXIT_OK;
}

static int clique_failed(const struct psc_clique *q, int rc)
{
    ps_log(PS_LOG_ERROR, "state.failed", "--state: the members cannot compare their states: %s (%s)",
           psc_clique_error(q), psc_result_name(rc));
    return rc == PSC_ECLIQUE ? CNN_EXIT_CLIQUE : CNN_EXIT_INTERNAL;
}

/* All members make the same steps. From states of different steps they would diverge. */
static int check_steps(struct psc_clique *q, const char *path, uint64_t own)
{
    int size = psc_clique_size(q), rank = psc_clique_rank(q), other = 0;
    int64_t *steps = calloc((size_t)size, sizeof *steps);
    if (steps == NULL)
        return clique_failed(q, PSC_ENOMEM);
    steps[rank] = (int64_t)own;
    int rc = gather(q, steps, 1);
    while (rc == PSC_OK && other < size && steps[other] == (int64_t)own)
        other++;
    if (rc == PSC_OK && other < size)
        ps_log(PS_LOG_ERROR, "state.failed",
               "--state: %s: after %" PRIu64 " steps, and that of member %d after %" PRId64
               ": they were not saved together; allowed: states of the same step, or none",
               path != NULL ? path : "no state", own, other, steps[other]);
    free(steps);
    return rc != PSC_OK ? clique_failed(q, rc) : other < size ? CNN_EXIT_USAGE : CNN_EXIT_OK;
}

int cnn_train_state_load(struct psc *psc, struct psc_clique *q, const char *path, float *x,
                         struct cnn_train_state *place, bool *loaded)
{
    struct names n;
    const char *from = path != NULL && cnn_train_state_exists(path) ? path : NULL, *other = NULL;
    int rc;
    if (from != NULL && name(&n, path) == 0) {
        from = choose(psc, path, n.before);
        other = from == path ? n.before : path;
    }
    if (q != NULL && (rc = choose_together(psc, q, other, &from)) != PSC_OK)
        return clique_failed(q, rc);
    if (from != NULL && (rc = load(psc, from, x, place)) != CNN_EXIT_OK)
        return rc;
    *loaded = from != NULL;
    return q != NULL ? check_steps(q, from, place->steps) : CNN_EXIT_OK;
}
