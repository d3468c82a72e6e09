/* Writes a cache: threads decode images and append them as they finish. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/data/images/cache.h"
#include "proto/file.h"

struct writer {
    const struct cnn_images *set;
    const struct cnn_data_options *opt;
    int fd;
    uint32_t side;
    pthread_mutex_t lock;
    /* Under lock. */
    uint64_t next, n; /* the next image to begin, and the number of images */
    uint64_t end;     /* end of the pixels written */
    uint32_t n_left_out;
    uint8_t *index; /* rows of finished images */
    int rc;         /* the error that stops the writers */
    struct ps_error *err;
};

static int write_at(int fd, uint64_t at, const uint8_t *bytes, size_t len, struct ps_error *err)
{
    size_t written;
    int rc = ps_file_write(fd, at, bytes, len, &written);
    return rc == 0 ? 0
                   : ps_fail(err, rc, "byte %llu: cannot be written: %s", (unsigned long long)(at + written),
                             strerror(-rc));
}

static void give_up(struct writer *w, int rc, const struct ps_error *why)
{
    pthread_mutex_lock(&w->lock);
    if (w->rc == 0) {
        w->rc = rc;
        ps_fail(w->err, rc, "%s", why->text);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Appends one image's pixels and fills its index row. */
static int store(struct writer *w, uint64_t i, const struct cnn_picture *p, struct ps_error *why)
{
    size_t bytes = 3 * (size_t)p->width * p->height;
    pthread_mutex_lock(&w->lock);
    uint64_t at = w->end;
    w->end += bytes;
    pthread_mutex_unlock(&w->lock);
    cnn_cache_pack_row(at, p->width, p->height, cnn_cache_sum(p->rgb, bytes), w->index + i * CNN_CACHE_ROW);
    return write_at(w->fd, at, p->rgb, bytes, why);
}

static int do_image(struct writer *w, struct cnn_images_scratch *s, uint64_t i, struct ps_error *why)
{
    uint32_t n_train = w->set->list.of[CNN_TRAIN].n;
    const struct cnn_entry *e =
        i < n_train ? &w->set->list.of[CNN_TRAIN].rows[i] : &w->set->list.of[CNN_TEST].rows[i - n_train];
    struct cnn_picture picture;
    int rc = cnn_images_scaled(w->set, e, s, w->side, &picture, why);
    if (rc == 0)
        return store(w, i, &picture, why);
    if (rc == -ENOMEM)
        return rc;
    pthread_mutex_lock(&w->lock); /* the row of an unreadable image stays 0 */
    w->n_left_out++;
    pthread_mutex_unlock(&w->lock);
    return 0;
}

static void *decode_thread(void *arg)
{
    struct writer *w = arg;
    struct cnn_images_scratch *s = cnn_images_scratch_create();
    struct ps_error why = {"no memory for a decoder"};
    if (s == NULL)
        give_up(w, -ENOMEM, &why);
    for (;;) {
        pthread_mutex_lock(&w->lock);
        uint64_t i = w->rc == 0 && w->next < w->n ? w->next++ : w->n;
        pthread_mutex_unlock(&w->lock);
        if (i == w->n)
            break;
        int rc = cnn_cache_goes_on(w->opt, &why);
        if (rc == 0)
            rc = do_image(w, s, i, &why);
        if (rc != 0)
            give_up(w, rc, &why);
    }
    cnn_images_scratch_destroy(s);
    return NULL;
}

/* Starts the threads with signals blocked. One thread is enough if others cannot be started. */
static int run_threads(struct writer *w, uint32_t threads)
{
    pthread_t ids[CNN_MAX_DATA_THREADS];
    sigset_t all, before;
    uint32_t n = 0;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (n < threads && n < CNN_MAX_DATA_THREADS && rc == 0)
        if ((rc = pthread_create(&ids[n], NULL, decode_thread, w)) == 0)
            n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(ids[i], NULL);
    if (n == 0)
        return ps_fail(w->err, -rc, "no thread can be started: %s", strerror(rc));
    return w->rc;
}

int cnn_cache_write(struct cnn_images *set, int fd, const struct cnn_cache_wish *wish,
                    const struct cnn_data_options *opt, uint32_t *n_left_out, struct ps_error *err)
{
    uint8_t header[CNN_CACHE_HEADER];
    uint64_t n = wish->n_train + wish->n_test, index_bytes = n * CNN_CACHE_ROW;
    struct writer w = {.set = set,
                       .opt = opt,
                       .fd = fd,
                       .side = wish->side,
                       .n = n,
                       .end = CNN_CACHE_HEADER + index_bytes,
                       .index = calloc(n, CNN_CACHE_ROW),
                       .err = err};
    if (w.index == NULL)
        return ps_fail(err, -ENOMEM, "no memory for an index of %llu images", (unsigned long long)n);
    pthread_mutex_init(&w.lock, NULL);
    int rc = run_threads(&w, opt->threads > 0 ? opt->threads : 1);
    if (rc == 0 && ftruncate(fd, (off_t)w.end) != 0) /* extends the file if no pixels were written */
        rc = ps_fail(err, -errno, "cannot be written: %s", strerror(errno));
    cnn_cache_pack_header(wish, w.end, cnn_cache_sum(w.index, index_bytes), header);
    if (rc == 0)
        rc = write_at(fd, CNN_CACHE_HEADER, w.index, index_bytes, err);
    if (rc == 0)
        rc = write_at(fd, 0, header, sizeof header, err);
    *n_left_out = w.n_left_out;
    pthread_mutex_destroy(&w.lock);
    free(w.index);
    return rc;
}
