#include "nets/worker/place.h"

#include <inttypes.h>
#include <string.h>

#include "nets/worker/worker.h"
#include "proto/log.h"

enum { N_FIELDS = 7 };

/* As the file has it: 64-bit numbers, little-endian. */
static void pack(const struct cnn_place *p, unsigned char *bytes)
{
    const uint64_t fields[N_FIELDS] = {p->steps, p->draws,          p->seed,          p->batch,
                                       p->rank,  p->position.epoch, p->position.index};
    for (int i = 0; i < 8 * N_FIELDS; i++)
        bytes[i] = (unsigned char)(fields[i / 8] >> (i % 8 * 8));
}

static struct cnn_place unpack(const unsigned char *bytes)
{
    uint64_t f[N_FIELDS] = {0};
    for (int i = 0; i < 8 * N_FIELDS; i++)
        f[i / 8] |= (uint64_t)bytes[i] << (i % 8 * 8);
    return (struct cnn_place){f[0], f[1], f[2], f[3], f[4], {f[5], f[6]}};
}

int cnn_place_save(struct psc *psc, const char *path, const float *x, const struct cnn_place *place)
{
    unsigned char bytes[8 * N_FIELDS];
    pack(place, bytes);
    return psc_save(psc, path, x, bytes, sizeof bytes);
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

int cnn_place_load(struct psc *psc, const char *path, float *x, struct cnn_place *place)
{
    unsigned char bytes[8 * N_FIELDS] = {0};
    size_t n_bytes = 0;
    int rc = psc_load(psc, path, x, bytes, sizeof bytes, &n_bytes);
    if (rc < 0)
        return load_failed(psc, rc);
    struct cnn_place found = unpack(bytes);
    if (n_bytes != sizeof bytes) {
        ps_log(PS_LOG_ERROR, "state.failed",
               "--state: %s holds another program's state: %zu bytes of its own", path, n_bytes);
        return CNN_EXIT_USAGE;
    }
    if (found.seed != place->seed || found.batch != place->batch) {
        ps_log(PS_LOG_ERROR, "state.failed",
               "--state: %s is of --seed %" PRIu64 " --batch %" PRIu64 "; given are %" PRIu64 " and %" PRIu64,
               path, found.seed, found.batch, place->seed, place->batch);
        return CNN_EXIT_USAGE;
    }
    if (found.rank != place->rank)
        ps_log(PS_LOG_WARN, "state.rank",
               "--state: %s is of rank %" PRIu64 ", this worker has %" PRIu64
               ": it goes on with the data in its own rank's order (--rank asks for one)",
               path, found.rank, place->rank);
    found.rank = place->rank;
    *place = found;
    return CNN_EXIT_OK;
}
