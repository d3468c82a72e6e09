/* The directory of checkpoints: writes them, keeps the newest, finds the newest that is readable. */
#include "server/checkpoint/checkpoint.h"

#include <assert.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "proto/file.h"
#include "proto/log.h"
#include "server/checkpoint/header.h"

static const char prefix[] = "center-";
static const char suffix[] = ".safetensors";
static const char best[] = "best.safetensors";
static const char temporary[] = ".center.tmp-";
static const char damaged[] = ".damaged";

int psd_checkpoint_check_manifest(const struct ps_manifest *m, struct ps_error *err)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const char *name = m->tensors[i].name;
        if (strcmp(name, "__metadata__") == 0 || strcmp(name, PSD_CHECKPOINT_AVERAGE) == 0 ||
            strncmp(name, PSD_CHECKPOINT_STATE, strlen(PSD_CHECKPOINT_STATE)) == 0)
            return ps_fail(
                err, -EINVAL,
                "tensor %zu '%s': checkpoints reserve the names __metadata__, " PSD_CHECKPOINT_AVERAGE
                " and " PSD_CHECKPOINT_STATE "*",
                i, name);
        json_t *text = json_string(name);
        if (text == NULL)
            return ps_fail(err, -EINVAL, "tensor %zu: its name is not UTF-8", i);
        json_decref(text);
    }
    return 0;
}

/* Hashes the vectors in the order of the file. */
static int hash_data(const struct psd_snapshot *s, uint64_t *checksum, struct ps_error *err)
{
    const size_t n = (size_t)s->range.count;
    XXH3_state_t *state = XXH3_createState();
    int rc = 0;

    if (state == NULL)
        return ps_fail(err, -ENOMEM, "no memory to write a checkpoint");
    XXH3_64bits_reset(state);
    for (uint32_t k = 0; k < psd_checkpoint_n_vectors(s) && rc == 0; k++) {
        const float *x = psd_checkpoint_vector(s, k) + s->range.begin;
        size_t bad = psd_checkpoint_find_nonfinite(x, n);
        if (bad < n) /* it would be refused when read, and replace a good file */
            rc = ps_fail(err, -EINVAL, "not written: value %zu of the %s is not finite", bad,
                         psd_checkpoint_vector_name(s, k));
        XXH3_64bits_update(state, x, n * sizeof *x);
    }
    *checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return rc;
}

static int write_file(int fd, const struct psd_snapshot *s, const char *header, size_t len)
{
    const size_t bytes = (size_t)s->range.count * sizeof(float);
    const uint64_t length = htole64(len);
    int rc;

    if ((rc = ps_file_append(fd, &length, sizeof length, NULL)) < 0 ||
        (rc = ps_file_append(fd, header, len, NULL)) < 0)
        return rc;
    for (uint32_t k = 0; k < psd_checkpoint_n_vectors(s); k++)
        if ((rc = ps_file_append(fd, psd_checkpoint_vector(s, k) + s->range.begin, bytes, NULL)) < 0)
            return rc;
    return fsync(fd) < 0 ? -errno : 0;
}

/* Removes temporary files of writers that died. There is one writer per directory, so none of them is in
 * use. */
static void remove_temporaries(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        if (strncmp(e->d_name, temporary, sizeof temporary - 1) == 0)
            unlinkat(dir_fd, e->d_name, 0);
    closedir(dir);
}

/* Temporary file, fsync, rename, fsync of the directory: `name` is always either the old file or the new
 * one. */
static int write_named(int dir_fd, const char *name, const struct psd_snapshot *s, const char *header,
                       size_t len)
{
    char temp[64];
    int rc;

    snprintf(temp, sizeof temp, "%s%ld", temporary, (long)getpid());
    int fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    rc = write_file(fd, s, header, len);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && renameat(dir_fd, temp, dir_fd, name) < 0)
        rc = -errno;
    if (rc < 0)
        unlinkat(dir_fd, temp, 0);
    else if (fsync(dir_fd) < 0 && errno != EINVAL) /* some file systems have no such thing */
        rc = -errno;
    return rc;
}

/* One file of the directory. */
struct found {
    char name[64];
    uint64_t version;       /* from its header; from its name if that is damaged */
    uint64_t saved_at;      /* from its header; the file's time if that is damaged */
    uint64_t manifest_hash; /* 0 if it is damaged */
    uint64_t job;           /* 0 if it is damaged or not in the file */
    bool readable;          /* its header is valid and matches the file's size */
    bool bare;              /* readable, but with no state to resume from */
};

/* center-<12 to 20 digits>.safetensors */
static bool parse_name(const char *name, uint64_t *version)
{
    const char *digits = name + sizeof prefix - 1;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    size_t n = strspn(digits, "0123456789");
    if (n < 12 || n > 20 || strcmp(digits + n, suffix) != 0)
        return false;
    *version = strtoull(digits, NULL, 10);
    return true;
}

/* Newest first. Time comes before version: the directory may contain a longer run that this one did not
 * resume. */
static int newer_first(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->saved_at != y->saved_at)
        return x->saved_at < y->saved_at ? 1 : -1;
    return (x->version < y->version) - (x->version > y->version);
}

static int join(char *path, size_t size, const char *dir, const char *name, struct ps_error *err)
{
    int n = snprintf(path, size, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= size)
        return ps_fail(err, -ENAMETOOLONG, "%s/%s: the path has %d bytes; allowed are %zu", dir, name, n,
                       size - 1);
    return 0;
}

static void look_at(const char *dir, struct found *f)
{
    struct psd_snapshot s;
    struct stat st;
    char path[4096];
    uint64_t at, checksum;
    int fd;

    if (join(path, sizeof path, dir, f->name, NULL) < 0)
        return;
    f->readable = psd_checkpoint_open(path, UINT64_MAX, &s, &fd, &at, &checksum, NULL) == 0;
    if (f->readable) {
        f->saved_at = s.saved_at_s;
        f->version = s.version; /* the best one's name has no version */
        f->manifest_hash = s.manifest->hash;
        f->job = s.job;
        f->bare = s.bare;
        psd_snapshot_finish(&s);
        close(fd);
    } else if (stat(path, &st) == 0) {
        f->saved_at = (uint64_t)st.st_mtime;
    }
}

/* with_best: includes the best one, which rotation ignores. */
static int list_files(const char *dir_path, bool with_best, struct found **out, size_t *n_out,
                      struct ps_error *err)
{
    struct found *files = NULL, one = {.readable = false};
    size_t n = 0, room = 0;
    DIR *dir = opendir(dir_path);

    if (dir == NULL)
        return ps_fail(err, -errno, "%s: cannot read the checkpoint directory: %s", dir_path,
                       strerror(errno));
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        one.version = 0;
        if (!parse_name(e->d_name, &one.version) && !(with_best && strcmp(e->d_name, best) == 0))
            continue;
        if (n == room) {
            struct found *more = realloc(files, (room = 2 * room + 16) * sizeof *files);
            if (more == NULL) {
                free(files);
                closedir(dir);
                return ps_fail(err, -ENOMEM, "%s: no memory to list it", dir_path);
            }
            files = more;
        }
        strcpy(one.name, e->d_name); /* parse_name bounds its length */
        files[n++] = one;
    }
    closedir(dir);
    for (size_t i = 0; i < n; i++)
        look_at(dir_path, &files[i]);
    if (n > 0)
        qsort(files, n, sizeof *files, newer_first);
    *out = files;
    *n_out = n;
    return 0;
}

uint64_t psd_checkpoint_stamp(const char *dir, uint64_t version, uint64_t now_s)
{
    struct found *files;
    size_t n;

    if (list_files(dir, true, &files, &n, NULL) < 0)
        return now_s;
    for (size_t i = 0; i < n; i++) { /* the first readable one is the newest */
        if (!files[i].readable)
            continue;
        uint64_t least = files[i].saved_at + (files[i].version > version && files[i].saved_at < UINT64_MAX);
        now_s = now_s > least ? now_s : least;
        break;
    }
    free(files);
    return now_s;
}

/* Whether the file belongs to the snapshot's job: files of other jobs are never deleted. */
static bool is_of_its_job(const struct found *f, const struct psd_snapshot *s)
{
    return f->readable && f->manifest_hash == s->manifest->hash &&
           (f->job == s->job || f->job == 0 || s->job == 0);
}

/* The checkpoint is written; a failure to delete an old one is only logged. */
static void delete_old(const char *dir, int dir_fd, const char *written, const struct psd_snapshot *s,
                       uint32_t keep, const uint64_t *spare)
{
    struct ps_error err;
    struct found *files;
    size_t n, kept = 1;

    if (list_files(dir, false, &files, &n, &err) < 0) {
        ps_log(PS_LOG_WARN, "checkpoint.not_deleted", "%s", err.text);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_of_its_job(&files[i], s) || strcmp(files[i].name, written) == 0 || kept++ < keep ||
            (spare != NULL && files[i].version == *spare))
            continue;
        if (unlinkat(dir_fd, files[i].name, 0) < 0 && errno != ENOENT)
            ps_log(PS_LOG_WARN, "checkpoint.not_deleted", "%s/%s: %s", dir, files[i].name, strerror(errno));
    }
    free(files);
}

int psd_checkpoint_make_directory(const char *path)
{
    char parent[4096];
    if (mkdir(path, 0700) < 0)
        return errno == EEXIST ? 0 : -errno;
    if ((size_t)snprintf(parent, sizeof parent, "%s/..", path) >= sizeof parent)
        return 1;
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) { /* else this user may not read it */
        fsync(fd);
        close(fd);
    }
    return 1;
}

/* The directory may have been removed while psd runs: creates it again, if its parent exists. */
static void make_if_gone(const char *dir)
{
    if (psd_checkpoint_make_directory(dir) > 0)
        ps_log(PS_LOG_WARN, "checkpoint.directory", "%s was removed with its content: it was created again",
               dir);
}

/* Checks, encodes and writes s as DIR/name. On success *dir_fd is the directory, which the caller closes. */
static int write_checked(const char *dir, const char *name, const struct psd_snapshot *s, char *path,
                         size_t size, int *dir_fd, struct ps_error *err)
{
    struct ps_error why;
    uint64_t checksum = 0;
    char *header;
    size_t len;
    int rc, fd;

    assert(s->n_state <= PSD_CHECKPOINT_MAX_STATE && s->map.lanes >= 1 && s->map.lanes <= PSD_MAX_LANES);
    if ((rc = join(path, size, dir, name, err)) < 0)
        return rc;
    if ((rc = psd_checkpoint_check_manifest(s->manifest, &why)) < 0 ||
        (rc = hash_data(s, &checksum, &why)) < 0 ||
        (rc = psd_checkpoint_encode(s, checksum, &header, &len, &why)) < 0)
        return ps_fail(err, rc, "%s: %s", path, why.text);

    make_if_gone(dir);
    if ((fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        rc = ps_fail(err, -errno, "%s: cannot open the checkpoint directory: %s", dir, strerror(errno));
        goto free_header;
    }
    remove_temporaries(fd);
    if ((rc = write_named(fd, name, s, header, len)) < 0) {
        ps_fail(err, rc, "%s: cannot write the checkpoint: %s", path, strerror(-rc));
        close(fd);
    } else {
        *dir_fd = fd;
    }
free_header:
    free(header);
    return rc;
}

int psd_checkpoint_write(const char *dir, const struct psd_snapshot *s, uint32_t keep, const uint64_t *spare,
                         char *path, size_t size, struct ps_error *err)
{
    char name[64];
    int dir_fd = -1, rc;

    snprintf(name, sizeof name, "%s%012" PRIu64 "%s", prefix, s->version, suffix);
    if ((rc = write_checked(dir, name, s, path, size, &dir_fd, err)) < 0)
        return rc;
    delete_old(dir, dir_fd, name, s, keep, spare);
    close(dir_fd);
    return 0;
}

/* Gives the previous best a second name, so that one always exists. */
static int keep_other(const char *dir, struct ps_error *err)
{
    char from[4096], to[4096];
    struct stat st;
    int rc = join(from, sizeof from, dir, best, err);
    if (rc < 0 || stat(from, &st) < 0)
        return rc;
    int n = snprintf(to, sizeof to, "%s/best-%lld%s", dir, (long long)st.st_mtime, suffix);
    if (n < 0 || (size_t)n >= sizeof to)
        return ps_fail(err, -ENAMETOOLONG, "%s: its path is too long to set the best one aside", dir);
    if (link(from, to) < 0 && errno != EEXIST)
        return ps_fail(err, -errno, "%s: another job's best checkpoint cannot be set aside as %s: %s", from,
                       to, strerror(errno));
    return 0;
}

int psd_checkpoint_write_best(const char *dir, const struct psd_snapshot *s, bool set_aside, char *path,
                              size_t size, struct ps_error *err)
{
    int dir_fd = -1, rc = set_aside ? keep_other(dir, err) : 0;
    if (rc < 0 || (rc = write_checked(dir, best, s, path, size, &dir_fd, err)) < 0)
        return rc;
    close(dir_fd);
    return 0;
}

int psd_checkpoint_read_best(const char *dir, struct psd_best *out, struct ps_error *err)
{
    struct psd_snapshot s;
    char path[4096];
    uint64_t at, checksum;
    int fd, rc = join(path, sizeof path, dir, best, err);

    if (rc < 0 || (rc = psd_checkpoint_open(path, UINT64_MAX, &s, &fd, &at, &checksum, err)) < 0)
        return rc;
    close(fd);
    if (s.evaluated)
        *out = (struct psd_best){s.test_accuracy, s.evaluated_version, s.version, s.saved_at_s,
                                 s.manifest->hash};
    else
        rc = ps_fail(err, -EBADMSG, "%s: the header has no psd.test_accuracy; the best one has", path);
    psd_snapshot_finish(&s);
    return rc;
}

/* Removes the bare ones from the list; returns how many remain. A bare best checkpoint is only the start of a
 * new job, which reads it under another name. */
static size_t drop_bare(struct found *files, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!files[i].bare || strcmp(files[i].name, best) != 0)
            files[kept++] = files[i];
    return kept;
}

int psd_checkpoint_read_newest(const char *dir, uint64_t max_floats, struct psd_snapshot *out, char *path,
                               size_t size, void (*skipped)(const char *sentence), struct ps_error *err)
{
    struct ps_error why;
    struct found *files = NULL;
    size_t n = 0;
    int rc = list_files(dir, true, &files, &n, err);

    if (rc < 0)
        return rc;
    size_t n_full = drop_bare(files, n);
    rc = n_full == 0 ? ps_fail(err, -ENOENT, "%s: no checkpoint (%s*%s) to resume from", dir, prefix, suffix)
                     : -EBADMSG;
    n = n_full;
    for (size_t i = 0; i < n && rc == -EBADMSG; i++) {
        if ((rc = join(path, size, dir, files[i].name, &why)) == 0)
            rc = psd_checkpoint_read(path, max_floats, out, &why);
        if (rc == -EBADMSG && skipped != NULL)
            skipped(why.text);
        if (rc == -EBADMSG)
            ps_fail(err, rc, "%s: none of %zu checkpoints is readable; the last one tried: %.250s", dir, n,
                    why.text);
        else if (rc < 0)
            ps_fail(err, rc, "%s", why.text);
    }
    free(files);
    return rc;
}

int psd_checkpoint_read_version(const char *dir, uint64_t version, uint64_t max_floats,
                                struct psd_snapshot *out, char *path, size_t size, struct ps_error *err)
{
    struct found *files = NULL;
    size_t n = 0;
    int rc = list_files(dir, true, &files, &n, err);
    if (rc < 0)
        return rc;
    rc = ps_fail(err, -ENOENT, "%s: no readable checkpoint of version %" PRIu64, dir, version);
    for (size_t i = 0; i < n && (rc == -ENOENT || rc == -EBADMSG); i++)
        if (files[i].readable && !(files[i].bare && strcmp(files[i].name, best) == 0) &&
            files[i].version == version && (rc = join(path, size, dir, files[i].name, err)) == 0)
            rc = psd_checkpoint_read(path, max_floats, out, err);
    free(files);
    return rc;
}

int psd_checkpoint_set_aside(const char *dir, uint64_t version, struct ps_error *err)
{
    char from[4096], to[4096 + sizeof damaged], name[64];
    snprintf(name, sizeof name, "%s%012" PRIu64 "%s", prefix, version, suffix);
    int rc = join(from, sizeof from, dir, name, err);
    if (rc < 0)
        return rc;
    snprintf(to, sizeof to, "%s%s", from, damaged);
    if (rename(from, to) < 0)
        return ps_fail(err, -errno, "%s: cannot be renamed to %s: %s", from, to, strerror(errno));
    return 0;
}

uint32_t psd_checkpoint_versions(const char *dir, uint64_t manifest_hash, uint64_t *out, uint32_t max)
{
    struct found *files = NULL;
    size_t n = 0;
    uint32_t k = 0;
    if (list_files(dir, false, &files, &n, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n && k < max; i++)
        if (files[i].readable && (manifest_hash == 0 || files[i].manifest_hash == manifest_hash))
            out[k++] = files[i].version;
    free(files);
    return k;
}

void psd_checkpoint_forget_after(const char *dir, const struct psd_snapshot *s)
{
    struct found *files = NULL;
    size_t n = 0;
    char path[4096];
    if (list_files(dir, false, &files, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (is_of_its_job(&files[i], s) && files[i].version > s->version &&
            join(path, sizeof path, dir, files[i].name, NULL) == 0 && unlink(path) == 0)
            ps_log(PS_LOG_INFO, "checkpoint.undone", "%s: the job has gone back to version %" PRIu64, path,
                   s->version);
    free(files);
}

int psd_checkpoint_count(const char *dir, uint32_t *n, uint64_t *newest, struct ps_error *err)
{
    struct found *files = NULL;
    size_t n_files = 0;
    int rc = list_files(dir, true, &files, &n_files, err);
    if (rc < 0)
        return rc;
    *n = (uint32_t)n_files;
    *newest = 0;
    for (int bare = 0; bare < 2; bare++) /* those that a job resumes from before the best one */
        for (size_t i = 0; i < n_files && *newest == 0; i++)
            *newest = files[i].readable && files[i].bare == (bare != 0) ? files[i].version : 0;
    free(files);
    return 0;
}
