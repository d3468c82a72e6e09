#include "proto/zmq_context.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/clock.h"
#include "proto/thread.h"

/* How long the end of a context waits for libzmq. The last message was given its time before. */
#define END_S 2.0

/* Two descriptors a thread, of which one is the reaper; that of the end; the first socket; and some to spare.
 */
enum { FD_THREAD = 2, FD_OTHERS = 4, MAX_IO_THREADS = 64 };

static bool has_descriptors(uint32_t n)
{
    int fds[FD_THREAD * (MAX_IO_THREADS + 1) + FD_OTHERS];
    uint32_t got = 0;
    while (got < n && (fds[got] = eventfd(0, EFD_CLOEXEC)) >= 0)
        got++;
    int why = errno;
    for (uint32_t i = 0; i < got; i++)
        close(fds[i]);
    errno = why;
    return got == n;
}

void *ps_zmq_context_new(uint32_t io_threads)
{
    uint32_t n = io_threads < MAX_IO_THREADS ? io_threads : MAX_IO_THREADS;
    void *context = has_descriptors(FD_THREAD * (n + 1) + FD_OTHERS) ? zmq_ctx_new() : NULL;
    if (context != NULL)
        zmq_ctx_set(context, ZMQ_IO_THREADS, (int)io_threads);
    return context;
}

/* A context that a thread ends. */
struct ending {
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_ended, is_given_up; /* the last one to look frees it */
};

static void ending_free(struct ending *e)
{
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void *end_thread(void *arg)
{
    struct ending *e = arg;
    zmq_ctx_term(e->context);
    pthread_mutex_lock(&e->lock);
    e->has_ended = true;
    bool is_given_up = e->is_given_up;
    ps_cond_wake(&e->changed);
    pthread_mutex_unlock(&e->lock);
    if (is_given_up)
        ending_free(e);
    return NULL;
}

void ps_zmq_context_end(void *context)
{
    pthread_t thread;
    uint64_t until_ns = ps_ns_after(END_S);
    int rc = 0;
    struct ending *e = calloc(1, sizeof *e);
    if (e == NULL) {
        zmq_ctx_term(context);
        return;
    }
    e->context = context;
    pthread_mutex_init(&e->lock, NULL);
    ps_cond_init(&e->changed);
    if (ps_thread_create(&thread, end_thread, e) != 0) {
        zmq_ctx_term(context);
        ending_free(e);
        return;
    }
    pthread_mutex_lock(&e->lock);
    while (!e->has_ended && rc != -ETIMEDOUT)
        rc = ps_cond_wait_until(&e->changed, &e->lock, until_ns);
    bool has_ended = e->has_ended;
    e->is_given_up = !has_ended;
    pthread_mutex_unlock(&e->lock);
    if (!has_ended) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    ending_free(e);
}
