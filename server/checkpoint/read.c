#include "server/checkpoint/header.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "proto/file.h"

#define PIECE_FLOATS (1u << 20) /* read, hashed and checked while in the cache */

void psd_snapshot_finish(struct psd_snapshot *s)
{
    ps_manifest_destroy(s->manifest);
    free(s->center);
    for (uint32_t k = 0; s->state != NULL && k < s->n_state; k++)
        free(s->state[k]);
    free(s->state);
    free(s->average);
    free(s->lane_clocks);
    free(s->lane_moves);
    free(s->fragment_moves);
    for (size_t i = 0; i < s->n_replay; i++)
        free(s->replay[i].landed);
    free(s->replay);
    memset(s, 0, sizeof *s);
}

size_t psd_checkpoint_find_nonfinite(const float *x, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t end = n - i > 4096 ? i + 4096 : n, bad = 0;
        for (size_t j = i; j < end; j++) { /* without a branch, so that it is vectorised */
            uint32_t bits;
            memcpy(&bits, &x[j], sizeof bits);
            bad += (bits & 0x7f800000) == 0x7f800000;
        }
        if (bad > 0)
            break;
        i = end;
    }
    for (; i < n; i++)
        if (!__builtin_isfinite(x[i]))
            return i;
    return n;
}

int psd_checkpoint_open(const char *path, uint64_t max_floats, struct psd_snapshot *out, int *fd_out,
                        uint64_t *data_at, uint64_t *checksum, struct ps_error *err)
{
    struct stat st;
    uint64_t len, size;
    char *text = NULL;
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return ps_fail(err, -errno, "%s: cannot open the checkpoint: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = ps_fail(err, -EBADMSG, "%s: not a regular file", path);
        goto close_file;
    }
    size = (uint64_t)st.st_size;
    if (size < sizeof len || ps_file_read(fd, 0, &len, sizeof len, NULL) < 0) {
        rc = ps_fail(err, -EBADMSG, "%s: %" PRIu64 " bytes; a checkpoint starts with 8 bytes of length", path,
                     size);
        goto close_file;
    }
    len = le64toh(len);
    if (len < 2 || len > PSD_CHECKPOINT_MAX_HEADER || len > size - sizeof len) {
        rc = ps_fail(err, -EBADMSG,
                     "%s: byte 0 gives a header of %" PRIu64
                     " bytes; allowed are 2 to %d and what the file of %" PRIu64 " bytes holds",
                     path, len, PSD_CHECKPOINT_MAX_HEADER, size);
        goto close_file;
    }
    if ((text = malloc((size_t)len)) == NULL)
        rc = ps_fail(err, -ENOMEM, "%s: no memory for a header of %" PRIu64 " bytes", path, len);
    else if (ps_file_read(fd, sizeof len, text, (size_t)len, NULL) < 0)
        rc = ps_fail(err, -EBADMSG, "%s: cannot read the header's %" PRIu64 " bytes", path, len);
    else
        rc = psd_checkpoint_decode(path, text, (size_t)len, size - sizeof len - len, max_floats, out,
                                   checksum, err);
    free(text);
    if (rc < 0)
        goto close_file;
    *fd_out = fd;
    *data_at = sizeof len + len;
    return 0;

close_file:
    close(fd);
    return rc;
}

/* Reads a vector from the file, hashes it into `state`, and checks that every value is finite. If the file
 * has one part, the other parts' values reserve addresses but no memory. name: for the sentence. */
static int read_vector(const char *path, int fd, uint64_t at, const struct psd_snapshot *s, const char *name,
                       XXH3_state_t *state, float **out, struct ps_error *err)
{
    uint64_t n = s->range.count, all = s->manifest->n_floats;
    float *vector = aligned_alloc(64, (all * sizeof *vector + 63) / 64 * 64), *x = vector;
    if (vector == NULL)
        return ps_fail(err, -ENOMEM, "%s: no memory for %" PRIu64 " values", path, all);
    x += s->range.begin;
    for (uint64_t i = 0; i < n; i += PIECE_FLOATS) {
        size_t m = n - i < PIECE_FLOATS ? (size_t)(n - i) : PIECE_FLOATS;
        if (ps_file_read(fd, at + i * sizeof *x, x + i, m * sizeof *x, NULL) < 0) {
            free(vector);
            return ps_fail(err, -EBADMSG, "%s: cannot read the data from byte %" PRIu64 " on", path,
                           at + i * sizeof *x);
        }
        size_t bad = psd_checkpoint_find_nonfinite(x + i, m);
        if (bad < m) {
            free(vector);
            return ps_fail(err, -EBADMSG,
                           "%s: byte %" PRIu64 ": value %" PRIu64
                           " of the %s is not finite; allowed are finite values",
                           path, at + (i + bad) * sizeof *x, i + bad, name);
        }
        XXH3_64bits_update(state, x + i, m * sizeof *x);
    }
    *out = vector;
    return 0;
}

static int read_data(const char *path, int fd, uint64_t at, uint64_t checksum, struct psd_snapshot *s,
                     struct ps_error *err)
{
    const uint64_t n = s->range.count;
    XXH3_state_t *state = XXH3_createState();
    int rc = 0;

    s->state = calloc(s->n_state + 1, sizeof *s->state);
    if (state == NULL || s->state == NULL) {
        XXH3_freeState(state);
        return ps_fail(err, -ENOMEM, "%s: no memory to read it", path);
    }
    XXH3_64bits_reset(state);
    for (uint32_t k = 0; k < psd_checkpoint_n_vectors(s) && rc == 0; k++) {
        float **to = k == 0 ? &s->center : k <= s->n_state ? &s->state[k - 1] : &s->average;
        rc = read_vector(path, fd, at + k * n * sizeof(float), s, psd_checkpoint_vector_name(s, k), state, to,
                         err);
    }
    uint64_t found = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    if (rc == 0 && found != checksum)
        rc = ps_fail(err, -EBADMSG,
                     "%s: the data from byte %" PRIu64 " on is damaged: psd.checksum is %016" PRIx64
                     ", the bytes give %016" PRIx64,
                     path, at, checksum, found);
    return rc;
}

int psd_checkpoint_read(const char *path, uint64_t max_floats, struct psd_snapshot *out, struct ps_error *err)
{
    struct psd_snapshot s = {0};
    uint64_t at = 0, checksum = 0;
    int fd = -1, rc = psd_checkpoint_open(path, max_floats, &s, &fd, &at, &checksum, err);

    if (rc < 0)
        return rc;
    assert(s.manifest != NULL);
    rc = read_data(path, fd, at, checksum, &s, err);
    close(fd);
    if (rc < 0)
        psd_snapshot_finish(&s);
    else
        *out = s;
    return rc;
}
