/* Two buffers: `waiting`, which the adding thread fills under the mutex, and `writing`, which belongs to the
 * file's thread alone. They change places when the thread has written its own. */
#include "proto/tensorboard/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/file.h"
#include "proto/log.h"
#include "proto/thread.h"

enum { QUEUE_BYTES = 1 << 18, MOST_FILES = 1000 };
#define CLOSE_S 10.0

struct ps_event_file {
    char path[PATH_MAX];
    int fd;
    bool began; /* its first event was added */
    pthread_t thread;

    /* The thread's. */
    uint8_t *writing;
    size_t n_writing;
    off_t end;    /* of the last whole record */
    bool failing; /* what was last written is not whole, and the log has said so */

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint8_t *waiting;
    size_t n_waiting;
    uint64_t lost;
    bool full;      /* an event found no room, and the log has said so */
    bool closing;   /* nothing more comes */
    bool ended;     /* the thread has written all */
    bool abandoned; /* nobody waits for the thread: it frees f */
};

static void destroy(struct ps_event_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    free(f->writing);
    free(f->waiting);
    free(f);
}

/* -errno: the file ends where it did. */
static int write_record(struct ps_event_file *f, const uint8_t *bytes, size_t len)
{
    size_t at;
    int rc = ps_file_write(f->fd, (uint64_t)f->end, bytes, len, &at);
    if (rc == 0)
        f->end += (off_t)len;
    else if (at > 0 && ftruncate(f->fd, f->end) < 0)
        return -errno; /* the next record overwrites what is there of this one */
    return rc;
}

/* Returns how many records could not be written. */
static uint64_t write_all(struct ps_event_file *f)
{
    uint64_t lost = 0;
    for (size_t at = 0; at < f->n_writing;) {
        size_t len = ps_record_bytes(f->writing + at);
        int rc = write_record(f, f->writing + at, len);
        if (rc < 0 && !f->failing)
            ps_log(PS_LOG_WARN, "tensorboard.write",
                   "%s: %s: events are lost until it can be written; nothing else is", f->path,
                   strerror(-rc));
        f->failing |= rc < 0;
        lost += rc < 0;
        at += len;
    }
    f->failing = lost > 0;
    f->n_writing = 0;
    return lost;
}

static void take_waiting(struct ps_event_file *f)
{
    uint8_t *taken = f->waiting;
    f->waiting = f->writing;
    f->writing = taken;
    f->n_writing = f->n_waiting;
    f->n_waiting = 0;
    f->full = false;
}

static void *run(void *arg)
{
    struct ps_event_file *f = arg;
    pthread_mutex_lock(&f->mutex);
    while (f->n_waiting > 0 || !f->closing) {
        if (f->n_waiting == 0) {
            pthread_cond_wait(&f->changed, &f->mutex);
            continue;
        }
        take_waiting(f);
        pthread_mutex_unlock(&f->mutex);
        uint64_t lost = write_all(f);
        pthread_mutex_lock(&f->mutex);
        f->lost += lost;
    }
    f->ended = true;
    ps_cond_wake(&f->changed);
    bool alone = f->abandoned;
    pthread_mutex_unlock(&f->mutex);
    if (alone)
        destroy(f);
    return NULL;
}

static int make_folders(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, 0777) < 0 && errno != EEXIST)
            return -errno;
        *slash = '/';
    }
    return mkdir(part, 0777) < 0 && errno != EEXIST ? -errno : 0;
}

/* TensorBoard takes a file by "tfevents" in its name, and the files of a folder in the order of their names.
 */
static int make_file(struct ps_event_file *f, const char *folder)
{
    char host[65] = "host";
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < MOST_FILES; i++) {
        if (snprintf(f->path, sizeof f->path, "%s/events.out.tfevents.%010" PRIu64 ".%s.%ld.%d", folder,
                     ps_wall_us() / 1000000, host, (long)getpid(), i) >= (int)sizeof f->path)
            return -ENAMETOOLONG;
        f->fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0)
            return 0;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

/* Takes `record`. NULL: no memory for it. */
static void queue(struct ps_event_file *f, uint8_t *record, size_t len)
{
    pthread_mutex_lock(&f->mutex);
    bool fits = record != NULL && len <= QUEUE_BYTES - f->n_waiting, tell = !fits && !f->full;
    if (fits) {
        memcpy(f->waiting + f->n_waiting, record, len);
        f->n_waiting += len;
        ps_cond_wake(&f->changed);
    } else {
        f->full = true;
        f->lost++;
    }
    pthread_mutex_unlock(&f->mutex);
    free(record);
    if (tell)
        ps_log(PS_LOG_WARN, "tensorboard.write",
               "%s: %s, and no more events can wait: they are lost; nothing else is", f->path,
               record != NULL ? "the disk stands still" : "no memory");
}

static int start(struct ps_event_file *f)
{
    size_t len = 0;
    f->writing = malloc(QUEUE_BYTES);
    f->waiting = malloc(QUEUE_BYTES);
    uint8_t *version = ps_event_version((double)ps_wall_us() / 1e6, &len);
    if (f->writing == NULL || f->waiting == NULL || version == NULL) {
        free(version);
        return -ENOMEM;
    }
    queue(f, version, len);
    return -ps_thread_create(&f->thread, run, f);
}

int ps_event_file_open(const char *dir, const char *run_name, struct ps_event_file **out,
                       struct ps_error *err)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s/%s", dir, run_name) >= (int)sizeof folder)
        return ps_fail(err, -ENAMETOOLONG, "tensorboard: %.200s…: the path is too long", dir);
    struct ps_event_file *f = calloc(1, sizeof *f);
    if (f == NULL)
        return ps_fail(err, -ENOMEM, "tensorboard: no memory for %.200s", folder);
    f->fd = -1;
    pthread_mutex_init(&f->mutex, NULL);
    ps_cond_init(&f->changed);
    int rc = make_folders(folder);
    if (rc == 0)
        rc = make_file(f, folder);
    if (rc == 0 && (rc = start(f)) < 0)
        unlink(f->path);
    if (rc < 0) {
        destroy(f);
        return ps_fail(err, rc, "tensorboard: no events can be written in %.300s: %s", folder, strerror(-rc));
    }
    *out = f;
    return 0;
}

void ps_event_file_add(struct ps_event_file *f, double wall_s, int64_t step,
                       const struct ps_event_value *values, size_t n)
{
    size_t len = 0;
    if (f == NULL)
        return;
    if (!f->began) {
        uint8_t *begin = ps_event_start(wall_s, step, &len);
        queue(f, begin, len);
        f->began = true;
    }
    uint8_t *record = ps_event_values(wall_s, step, values, n, &len);
    queue(f, record, len);
}

/* Whether the thread has ended in time. If not, f is the thread's. */
static bool wait_for_end(struct ps_event_file *f)
{
    uint64_t until_ns = ps_ns_after(CLOSE_S);
    int rc = 0;
    while (!f->ended && rc != -ETIMEDOUT)
        rc = ps_cond_wait_until(&f->changed, &f->mutex, until_ns);
    f->abandoned = !f->ended;
    return f->ended;
}

uint64_t ps_event_file_close(struct ps_event_file *f)
{
    if (f == NULL)
        return 0;
    char path[PATH_MAX];
    pthread_t thread = f->thread;
    memcpy(path, f->path, sizeof path);
    pthread_mutex_lock(&f->mutex);
    f->closing = true;
    ps_cond_wake(&f->changed);
    bool ended = wait_for_end(f);
    uint64_t lost = f->lost;
    pthread_mutex_unlock(&f->mutex);
    if (ended) {
        pthread_join(thread, NULL);
        destroy(f);
    } else {
        pthread_detach(thread);
    }
    if (lost > 0 || !ended)
        ps_log(PS_LOG_WARN, "tensorboard.lacks", "%s lacks %" PRIu64 " events%s", path, lost,
               ended ? "" : ", and those that wait for a disk that stands still");
    return lost;
}
