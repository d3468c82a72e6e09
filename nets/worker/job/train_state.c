#include "nets/worker/job/train_state.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nets/worker/job/job.h"
#include "proto/log.h"

enum { N_FIELDS = 8, N_FIELDS_BEFORE = 7 }; /* older files lack `passed` */

/* The file's format: 64-bit little-endian numbers. */
static void pack(const struct cnn_train_state *p, unsigned char *bytes)
{
    const uint64_t fields[N_FIELDS] = {p->steps, p->draws,          p->seed,           p->batch,
                                       p->rank,  p->position.epoch, p->position.index, p->passed};
    for (int i = 0; i < 8 * N_FIELDS; i++)
        bytes[i] = (unsigned char)(fields[i / 8] >> (i % 8 * 8));
}

static struct cnn_train_state unpack(const unsigned char *bytes)
{
    uint64_t f[N_FIELDS] = {0};
    for (int i = 0; i < 8 * N_FIELDS; i++)
        f[i / 8] |= (uint64_t)bytes[i] << (i % 8 * 8);
    return (struct cnn_train_state){f[0], f[1], f[2], f[3], f[4], {f[5], f[6]}, f[7]};
}

static int name_before(char *before, size_t size, const char *path)
{
    return snprintf(before, size, "%s.before", path) < (int)size ? 0 : -ENAMETOOLONG;
}

int cnn_train_state_save(struct psc *psc, const char *path, const float *x,
                         const struct cnn_train_state *place)
{
    unsigned char bytes[8 * N_FIELDS];
    char before[PATH_MAX];
    pack(place, bytes);
    if (name_before(before, sizeof before, path) == 0)
        rename(path, before); /* there is no file at the first save */
    return psc_save(psc, path, x, bytes, sizeof bytes);
}

static bool goes_with(struct psc *psc, const char *path, uint64_t version)
{
    uint64_t saved;
    return access(path, F_OK) == 0 && psc_saved_version(psc, path, &saved) == PSC_OK && saved == version;
}

bool cnn_train_state_exists(const char *path)
{
    char before[PATH_MAX];
    return access(path, F_OK) == 0 ||
           (name_before(before, sizeof before, path) == 0 && access(before, F_OK) == 0);
}

/* The newer file, unless only the previous one matches the center's version. */
static const char *choose(struct psc *psc, const char *path, const char *before)
{
    struct psc_info info = {.size = sizeof info};
    if (psc_info(psc, &info) != PSC_OK || goes_with(psc, path, info.center_version))
        return path;
    return goes_with(psc, before, info.center_version) || access(path, F_OK) != 0 ? before : path;
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

int cnn_train_state_load(struct psc *psc, const char *path, float *x, struct cnn_train_state *place)
{
    unsigned char bytes[8 * N_FIELDS] = {0};
    char before[PATH_MAX];
    size_t n_bytes = 0;
    if (name_before(before, sizeof before, path) == 0)
        path = choose(psc, path, before);
    int rc = psc_load(psc, path, x, bytes, sizeof bytes, &n_bytes);
    if (rc < 0)
        return load_failed(psc, rc);
    struct cnn_train_state found = unpack(bytes);
    if (n_bytes != sizeof bytes && n_bytes != 8 * N_FIELDS_BEFORE) {
        ps_log(PS_LOG_ERROR, "state.failed",
               "--state: %s was not saved by psworker: it holds %zu bytes of another program", path, n_bytes);
        return CNN_EXIT_USAGE;
    }
    if (found.seed != place->seed || found.batch != place->batch) {
        ps_log(PS_LOG_ERROR, "state.failed",
               "--state: %s was saved with --seed %" PRIu64 " --batch %" PRIu64 "; given are %" PRIu64
               " and %" PRIu64,
               path, found.seed, found.batch, place->seed, place->batch);
        return CNN_EXIT_USAGE;
    }
    if (found.rank != place->rank)
        ps_log(PS_LOG_WARN, "state.rank",
               "--state: %s was saved by rank %" PRIu64 ", this worker has rank %" PRIu64
               ": it reads the data in its own rank's order (request a rank with --rank)",
               path, found.rank, place->rank);
    found.rank = place->rank;
    *place = found;
    return CNN_EXIT_OK;
}
