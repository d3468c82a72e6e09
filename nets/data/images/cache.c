#include "nets/data/images/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "proto/bytes.h"
#include "proto/clock.h"
#include "proto/file.h"
#include "proto/log.h"

static const char magic[8] = {'p', 's', 'd', 'i', 'm', 'g', '0', '1'};

/* Offsets of the header's numbers; the last is the checksum of all before it. */
enum { SIDE_AT = 8, TRAIN_AT = 16, TEST_AT = 24, KEY_AT = 32, LEN_AT = 40, INDEX_SUM_AT = 48, SUM_AT = 56 };

enum { UNSEEN, GOOD, DAMAGED };

enum { LOCK_EVERY_US = 50000 };

uint64_t cnn_cache_sum(const uint8_t *bytes, size_t len)
{
    return XXH3_64bits(bytes, len);
}

void cnn_cache_pack_header(const struct cnn_cache_wish *wish, uint64_t len, uint64_t index_sum,
                           uint8_t header[CNN_CACHE_HEADER])
{
    memset(header, 0, CNN_CACHE_HEADER);
    memcpy(header, magic, sizeof magic);
    ps_put64(header + SIDE_AT, wish->side);
    ps_put64(header + TRAIN_AT, wish->n_train);
    ps_put64(header + TEST_AT, wish->n_test);
    ps_put64(header + KEY_AT, wish->key);
    ps_put64(header + LEN_AT, len);
    ps_put64(header + INDEX_SUM_AT, index_sum);
    ps_put64(header + SUM_AT, cnn_cache_sum(header, SUM_AT));
}

void cnn_cache_pack_row(uint64_t at, uint32_t width, uint32_t height, uint64_t sum,
                        uint8_t row[CNN_CACHE_ROW])
{
    ps_put64(row, at);
    ps_put32(row + 8, width);
    ps_put32(row + 12, height);
    ps_put64(row + 16, sum);
}

struct row {
    uint64_t at, sum;
    uint32_t width, height; /* 0: the image could not be read */
};

static struct row row_of(const struct cnn_cache *c, uint64_t i)
{
    const uint8_t *row = c->bytes + CNN_CACHE_HEADER + i * CNN_CACHE_ROW;
    return (struct row){ps_get64(row), ps_get64(row + 16), ps_get32(row + 8), ps_get32(row + 12)};
}

static bool is_row_good(const struct cnn_cache *c, uint64_t i)
{
    struct row r = row_of(c, i);
    uint64_t pixels = (uint64_t)r.width * r.height;
    return (r.width == 0 && r.height == 0) ||
           (pixels > 0 && pixels <= CNN_PICTURE_PIXELS && r.at <= c->len && 3 * pixels <= c->len - r.at);
}

int cnn_cache_check(const uint8_t *bytes, uint64_t len, const struct cnn_cache_wish *wish,
                    struct cnn_cache *out, struct ps_error *err)
{
    struct cnn_cache c = {.bytes = bytes, .len = len, .side = wish->side, .n_train = wish->n_train};
    c.n = wish->n_train + wish->n_test;
    if (len < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0)
        return ps_fail(err, -EINVAL, "not an image cache; allowed: an image cache, or a new path");
    if (len < CNN_CACHE_HEADER || cnn_cache_sum(bytes, SUM_AT) != ps_get64(bytes + SUM_AT))
        return ps_fail(err, -EBADMSG, "byte 0: the header is damaged");
    if (ps_get64(bytes + LEN_AT) != len)
        return ps_fail(err, -EBADMSG, "byte %llu: the file ends here; %llu bytes were written",
                       (unsigned long long)len, (unsigned long long)ps_get64(bytes + LEN_AT));
    if (ps_get64(bytes + TRAIN_AT) != wish->n_train || ps_get64(bytes + TEST_AT) != wish->n_test ||
        ps_get64(bytes + KEY_AT) != wish->key || ps_get64(bytes + SIDE_AT) != wish->side)
        return ps_fail(err, -ESTALE, "it was made from other images, or for another side");
    if (c.n > (len - CNN_CACHE_HEADER) / CNN_CACHE_ROW ||
        cnn_cache_sum(bytes + CNN_CACHE_HEADER, c.n * CNN_CACHE_ROW) != ps_get64(bytes + INDEX_SUM_AT))
        return ps_fail(err, -EBADMSG, "byte %d: the index is damaged", CNN_CACHE_HEADER);
    for (uint64_t i = 0; i < c.n; i++)
        if (!is_row_good(&c, i))
            return ps_fail(err, -EBADMSG, "byte %llu: an index row that points outside the file",
                           (unsigned long long)(CNN_CACHE_HEADER + i * CNN_CACHE_ROW));
    *out = c;
    return 0;
}

/* The checksum of an image is usually computed once; two threads may both compute it. */
static uint8_t look(struct cnn_cache *c, uint64_t i, const struct row *r)
{
    uint8_t state = __atomic_load_n(&c->seen[i], __ATOMIC_RELAXED);
    if (state != UNSEEN)
        return state;
    state = cnn_cache_sum(c->bytes + r->at, 3 * (size_t)r->width * r->height) == r->sum ? GOOD : DAMAGED;
    uint8_t before = __atomic_exchange_n(&c->seen[i], state, __ATOMIC_RELAXED);
    if (state == DAMAGED && before == UNSEEN)
        ps_log(PS_LOG_WARN, "data.cache_damaged",
               "the cache: byte %llu: image %llu is damaged; its own file is read instead",
               (unsigned long long)r->at, (unsigned long long)i);
    return state;
}

bool cnn_cache_picture(struct cnn_cache *c, enum cnn_split split, uint32_t index, struct cnn_picture *out)
{
    uint64_t i = split == CNN_TRAIN ? index : c->n_train + index;
    struct row r = row_of(c, i);
    if (r.width == 0 || look(c, i, &r) != GOOD)
        return false;
    *out = (struct cnn_picture){c->bytes + r.at, r.width, r.height};
    return true;
}

static uint64_t key_of(const struct cnn_images *set, struct ps_error *err, int *rc)
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t key = 0;
    *rc = state != NULL ? 0 : ps_fail(err, -ENOMEM, "no memory for the key of the images");
    if (state == NULL)
        return 0;
    XXH3_64bits_reset(state);
    for (int split = 0; split < 2; split++)
        for (uint32_t i = 0; i < set->list.of[split].n; i++) {
            const struct cnn_entry *e = &set->list.of[split].rows[i];
            const char *name = cnn_list_name(&set->list, e->path);
            const uint64_t facts[] = {e->at, e->bytes, e->shard, e->label, strlen(name)};
            XXH3_64bits_update(state, facts, sizeof facts);
            XXH3_64bits_update(state, name, strlen(name));
        }
    for (uint32_t i = 0; i < set->n_shards; i++) {
        struct stat st = {0};
        fstat(set->shards[i], &st);
        const int64_t facts[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        XXH3_64bits_update(state, facts, sizeof facts);
    }
    key = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return key;
}

void cnn_cache_close(struct cnn_cache *c)
{
    if (c == NULL)
        return;
    munmap((void *)c->bytes, c->len);
    free(c->seen);
    free(c);
}

/* Maps and checks an existing file. -ENOENT if there is none. */
static int map(const char *path, const struct cnn_cache_wish *wish, struct cnn_cache **out,
               struct ps_error *err)
{
    struct cnn_cache c;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return ps_fail(err, -errno, "cannot be opened: %s", strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        close(fd);
        return ps_fail(err, -EINVAL, "not an image cache; allowed: an image cache, or a new path");
    }
    uint8_t *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return ps_fail(err, -ENOMEM, "cannot be mapped: %s", strerror(errno));
    int rc = cnn_cache_check(bytes, (uint64_t)st.st_size, wish, &c, err);
    struct cnn_cache *found = rc == 0 ? malloc(sizeof *found) : NULL;
    if (found != NULL)
        c.seen = calloc(c.n, 1);
    if (rc == 0 && (found == NULL || c.seen == NULL))
        rc = ps_fail(err, -ENOMEM, "no memory for its images");
    if (rc != 0) {
        free(found);
        munmap(bytes, (size_t)st.st_size);
        return rc;
    }
    *found = c;
    *out = found;
    return 0;
}

/* Whether to create the file: it does not exist, or is a cache that can be rebuilt. */
static bool is_to_be_made(int rc)
{
    return rc == -ENOENT || rc == -ESTALE || rc == -EBADMSG;
}

int cnn_cache_goes_on(const struct cnn_data_options *opt, struct ps_error *err)
{
    if (opt->go_on == NULL || opt->go_on(opt->go_on_arg))
        return 0;
    return ps_fail(err, -EINTR, "ended before it was complete");
}

static int write_and_rename(struct cnn_images *set, const char *path, const struct cnn_cache_wish *wish,
                            const struct cnn_data_options *opt, struct ps_error *err)
{
    char new[PATH_MAX + 4];
    uint32_t n_left_out = 0;
    double begin = ps_now_s();
    snprintf(new, sizeof new, "%s.new", path); /* fits: the length of FILE.lock was checked */
    int fd = open(new, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return ps_fail(err, -errno, "%.200s: cannot be created: %s", new, strerror(errno));
    ps_log(PS_LOG_INFO, "data.cache", "%s: decoding %" PRIu64 " images into it, with %u thread%s", path,
           wish->n_train + wish->n_test, opt->threads, opt->threads == 1 ? "" : "s");
    int rc = cnn_cache_write(set, fd, wish, opt, &n_left_out, err);
    if (rc == 0 && fsync(fd) != 0)
        rc = ps_fail(err, -errno, "cannot be written: %s", strerror(errno));
    close(fd);
    if (rc == 0 && rename(new, path) != 0)
        rc = ps_fail(err, -errno, "cannot be renamed: %s", strerror(errno));
    if (rc != 0)
        unlink(new);
    else
        ps_log(PS_LOG_INFO, "data.cache", "%s: made in %.1f s; %u images could not be read", path,
               ps_now_s() - begin, n_left_out);
    return rc;
}

/* Checks again under the lock: another process may have created the file. */
static int make(struct cnn_images *set, const char *path, const struct cnn_cache_wish *wish,
                const struct cnn_data_options *opt, struct cnn_cache **out, struct ps_error *err)
{
    int rc = map(path, wish, out, err);
    if (!is_to_be_made(rc))
        return rc;
    if (rc != -ENOENT)
        ps_log(PS_LOG_WARN, "data.cache", "%s: %s: it is rebuilt", path, err->text);
    rc = write_and_rename(set, path, wish, opt, err);
    return rc == 0 ? map(path, wish, out, err) : rc;
}

/* Waits for another process that has the lock. It asks for the lock again and again: the signals that may end
 * the wait go to another thread, and do not interrupt flock. */
static int lock(int fd, const char *path, const char *lock_path, const struct cnn_data_options *opt,
                struct ps_error *err)
{
    int rc = 0;
    bool is_told = false;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return ps_fail(err, -errno,
                           "%.200s: cannot be locked: %s; allowed: a file system with locks, such as a local "
                           "disk",
                           lock_path, strerror(errno));
        if (!is_told)
            ps_log(PS_LOG_INFO, "data.cache", "%s: another process is creating it: waiting", path);
        is_told = true;
        if ((rc = cnn_cache_goes_on(opt, err)) != 0)
            return rc;
        ps_sleep_us(LOCK_EVERY_US);
    }
    return 0;
}

static int make_locked(struct cnn_images *set, const char *path, const struct cnn_cache_wish *wish,
                       const struct cnn_data_options *opt, struct cnn_cache **out, struct ps_error *err)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.lock", path) >= (int)sizeof beside)
        return ps_fail(err, -ENAMETOOLONG, "its path is longer than %d bytes", PATH_MAX - 6);
    int fd = open(beside, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return ps_fail(err, -errno, "%.200s: cannot be opened: %s", beside, strerror(errno));
    int rc = lock(fd, path, beside, opt, err);
    if (rc == 0)
        rc = make(set, path, wish, opt, out, err);
    close(fd);
    return rc;
}

int cnn_cache_open(struct cnn_images *set, const struct cnn_data_options *opt, uint32_t side,
                   struct cnn_cache **out, struct ps_error *err)
{
    struct ps_error why = {""};
    char file[PATH_MAX];
    int rc;
    struct cnn_cache_wish wish = {.side = side,
                                  .n_train = set->list.of[CNN_TRAIN].n,
                                  .n_test = set->list.of[CNN_TEST].n,
                                  .key = key_of(set, &why, &rc)};
    if (rc == 0 && (rc = ps_file_resolve(opt->cache, file, sizeof file)) < 0)
        ps_fail(&why, rc, "%s", strerror(-rc));
    if (rc == 0)
        rc = map(file, &wish, out, &why);
    if (is_to_be_made(rc))
        rc = make_locked(set, file, &wish, opt, out, &why);
    return rc != 0 ? ps_fail(err, rc, "cache %.160s: %.300s", opt->cache, why.text) : 0;
}
