#include "server/checkpoint/job_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char magic[8] = "psd-job3", magic_before[8] = "psd-job2"; /* the older format has no settings */

/* The layout in the file. In the older format the checksum follows the shorter record. */
struct record_copy {
    char magic[sizeof magic];
    uint64_t number;
    struct psd_job_record record;
    uint64_t checksum; /* XXH3-64 of all before it */
};

enum { COPY_BYTES = 12288 };
_Static_assert(sizeof(struct record_copy) <= COPY_BYTES, "a copy has room for every member");
_Static_assert(sizeof(struct psd_job_record) == 8 * (4 + PSD_JOB_FORMER + PS_MAX_PARTS) + 4 * 6 +
                                                    PSD_JOB_MEMBERS * sizeof(struct psd_job_member) +
                                                    PSD_SETTINGS_BYTES,
               "the record has no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

/* Checks the checksum. Converts a copy of the older format. */
static bool checks(struct record_copy *c)
{
    size_t at = offsetof(struct record_copy, checksum);
    uint64_t checksum = c->checksum;
    bool before = memcmp(c->magic, magic_before, sizeof magic) == 0;
    if (before) {
        at = offsetof(struct record_copy, record) + offsetof(struct psd_job_record, settings);
        memcpy(&checksum, (const char *)c + at, sizeof checksum);
    }
    if ((!before && memcmp(c->magic, magic, sizeof magic) != 0) || checksum != XXH3_64bits(c, at))
        return false;
    if (before)
        memset(c->record.settings, 0, sizeof c->record.settings);
    return c->record.settings[PSD_SETTINGS_BYTES - 1] == 0;
}

static bool is_whole(struct record_copy *c)
{
    const struct psd_job_record *r = &c->record;
    return checks(c) && r->n_members <= PSD_JOB_MEMBERS && r->n_active <= r->n_members && r->ended <= 1 &&
           r->blind <= 1;
}

static void read_copies(struct psd_job_file *f, struct psd_job_record *out, bool *found)
{
    struct record_copy c;
    *out = (struct psd_job_record){.job = 0};
    *found = false;
    for (unsigned i = 0; i < 2; i++) {
        if (pread(f->fd, &c, sizeof c, (off_t)i * COPY_BYTES) != sizeof c || !is_whole(&c) ||
            (*found && c.number <= f->number))
            continue;
        *out = c.record;
        *found = true;
        f->number = c.number;
        f->next = 1 - i;
    }
}

static int make(struct psd_job_file *f)
{
    int rc, fd = open(f->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if ((rc = posix_fallocate(fd, 0, 2 * COPY_BYTES)) != 0 && rc != EOPNOTSUPP && rc != EINVAL) {
        close(fd);
        return -rc;
    }
    psd_job_file_close(f);
    f->fd = fd;
    return 0;
}

int psd_job_file_open(const char *dir, struct psd_job_file *f, struct psd_job_record *out, bool *found,
                      struct ps_error *err)
{
    *f = (struct psd_job_file){.fd = -1};
    if ((size_t)snprintf(f->path, sizeof f->path, "%s/" PSD_JOB_FILE, dir) >= sizeof f->path)
        return ps_fail(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    int rc = make(f);
    if (rc < 0)
        return ps_fail(err, rc, "%s: cannot open it: %s", f->path, strerror(-rc));
    read_copies(f, out, found);
    return 0;
}

static int make_if_gone(struct psd_job_file *f)
{
    struct stat st;
    return fstat(f->fd, &st) == 0 && st.st_nlink == 0 ? make(f) : 0;
}

int psd_job_file_write(struct psd_job_file *f, const struct psd_job_record *r)
{
    struct record_copy c;
    int rc = make_if_gone(f);
    if (rc < 0)
        return rc;
    memset(&c, 0, sizeof c);
    memcpy(c.magic, magic, sizeof magic);
    c.number = f->number + 1;
    c.record = *r;
    c.checksum = XXH3_64bits(&c, offsetof(struct record_copy, checksum));
    ssize_t n = pwrite(f->fd, &c, sizeof c, (off_t)f->next * COPY_BYTES);
    if (n != sizeof c)
        return n < 0 ? -errno : -ENOSPC;
    f->number++;
    f->unsynced = true;
    return 0;
}

int psd_job_file_sync(struct psd_job_file *f)
{
    if (!f->unsynced)
        return 0;
    if (fdatasync(f->fd) < 0)
        return -errno;
    f->unsynced = false;
    f->next = 1 - f->next;
    return 0;
}

void psd_job_file_close(struct psd_job_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}
