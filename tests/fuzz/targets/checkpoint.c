/* A checkpoint file. Two checksums guard it, behind which nothing would ever come, so that every input is
 * read twice: as it is, and with both made right. What reads well encodes into a header that decodes into the
 * same. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "server/checkpoint/header.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_FLOATS = 1 << 16 };

/* Where the header lies in the file; false when there is none. */
static bool find_header(uint8_t *bytes, size_t len, char **text, size_t *n)
{
    uint64_t header;
    if (len < sizeof header)
        return false;
    memcpy(&header, bytes, sizeof header);
    if (header > len - sizeof header)
        return false;
    *text = (char *)bytes + sizeof header;
    *n = (size_t)header;
    return true;
}

static void make_sums_right(uint8_t *bytes, size_t len)
{
    static const char key[] = "\"psd.checksum\":\"";
    char digits[17], *text, *at;
    size_t n;
    if (!find_header(bytes, len, &text, &n))
        return;
    const uint8_t *data = (const uint8_t *)text + n;
    at = memmem(text, n, key, sizeof key - 1);
    if (at != NULL && (size_t)(at - text) + sizeof key - 1 + 16 <= n) {
        snprintf(digits, sizeof digits, "%016" PRIx64,
                 (uint64_t)XXH3_64bits(data, (size_t)(bytes + len - data)));
        memcpy(at + sizeof key - 1, digits, 16);
    }
    psd_checkpoint_seal(text, n);
}

static void check_values(const struct psd_snapshot *s)
{
    promise(s->manifest->n_floats <= MAX_FLOATS && s->map.lanes >= 1 && s->map.lanes <= PSD_MAX_LANES);
    uint64_t begin = s->range.begin, end = begin + s->range.count;
    promise(end <= s->manifest->n_floats && s->range.count > 0);
    for (uint64_t i = begin; i < end; i++)
        promise(isfinite(s->center[i]));
    for (uint32_t k = 0; k < s->n_state; k++)
        for (uint64_t i = begin; i < end; i++)
            promise(isfinite(s->state[k][i]));
    for (size_t i = 0; i < s->n_replay; i++)
        promise(s->replay[i].lane < s->map.lanes);
}

/* Encoding what was decoded from an encoded header gives the header. */
static void check_again(const struct psd_snapshot *s)
{
    struct ps_error err = {""};
    struct psd_snapshot back;
    char *once, *twice;
    size_t n, n2;
    uint64_t sum;
    uint64_t data_bytes = (1 + s->n_state + s->has_average) * s->range.count * sizeof(float);

    promise(psd_checkpoint_check_manifest(s->manifest, &err) == 0);
    promise(psd_checkpoint_encode(s, 0x1234, &once, &n, &err) == 0);
    promise(psd_checkpoint_decode("again", once, n, data_bytes, MAX_FLOATS, &back, &sum, &err) == 0);
    promise(sum == 0x1234 && back.manifest->hash == s->manifest->hash && back.version == s->version);
    promise(back.n_replay == s->n_replay && back.map.lanes == s->map.lanes && back.part == s->part &&
            back.n_state == s->n_state);
    promise(psd_checkpoint_encode(&back, 0x1234, &twice, &n2, &err) == 0);
    promise(n == n2 && memcmp(once, twice, n) == 0);
    free(once);
    free(twice);
    psd_snapshot_finish(&back);
}

static void read_file(const uint8_t *bytes, size_t len)
{
    static int fd = -1;
    static char path[64];
    struct ps_error err = {""};
    struct psd_snapshot s;

    if (fd < 0) {
        fd = memfd_create("checkpoint", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    promise(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, len, 0) == (ssize_t)len);
    if (psd_checkpoint_read(path, MAX_FLOATS, &s, &err) < 0) {
        promise(strncmp(err.text, path, strlen(path)) == 0);
        return;
    }
    check_values(&s);
    check_again(&s);
    psd_snapshot_finish(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len + 1);
    read_file(bytes, len);
    memcpy(copy, bytes, len);
    make_sums_right(copy, len);
    read_file(copy, len);
    free(copy);
    return 0;
}
