#include "proto/resolve.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"
#include "proto/thread.h"

/* Shared with the resolving thread; the last user frees it. */
struct question {
    char *host, *port;
    struct addrinfo hints;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t answered;
    bool has_answer, is_given_up;
    int rc; /* getaddrinfo's */
    struct addrinfo *found;
};

static void question_free(struct question *q)
{
    if (q->found != NULL)
        freeaddrinfo(q->found);
    pthread_cond_destroy(&q->answered);
    pthread_mutex_destroy(&q->lock);
    free(q->host);
    free(q->port);
    free(q);
}

static struct question *question_make(const char *host, const char *port, const struct addrinfo *hints)
{
    struct question *q = calloc(1, sizeof *q);
    if (q == NULL)
        return NULL;
    pthread_mutex_init(&q->lock, NULL);
    ps_cond_init(&q->answered);
    q->host = strdup(host);
    q->port = strdup(port);
    q->hints = *hints;
    if (q->host != NULL && q->port != NULL)
        return q;
    question_free(q);
    return NULL;
}

static void *ask(void *arg)
{
    struct question *q = arg;
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(q->host, q->port, &q->hints, &found);
    pthread_mutex_lock(&q->lock);
    q->rc = rc;
    q->found = rc == 0 ? found : NULL;
    q->has_answer = true;
    bool is_given_up = q->is_given_up;
    ps_cond_wake(&q->answered);
    pthread_mutex_unlock(&q->lock);
    if (is_given_up)
        question_free(q);
    return NULL;
}

/* The result of getaddrinfo, or -ETIMEDOUT, which is not one of its values: the thread still uses the
 * question. Otherwise it has ended: nothing of it is left when ps_resolve returns. */
static int await(struct question *q, pthread_t thread, uint64_t until_ns, struct addrinfo **out)
{
    int rc = 0;
    pthread_mutex_lock(&q->lock);
    while (!q->has_answer && rc != -ETIMEDOUT)
        rc = ps_cond_wait_until(&q->answered, &q->lock, until_ns);
    bool has_answer = q->has_answer;
    q->is_given_up = !has_answer;
    pthread_mutex_unlock(&q->lock);
    if (!has_answer) {
        pthread_detach(thread);
        return -ETIMEDOUT;
    }
    pthread_join(thread, NULL);
    rc = q->rc;
    *out = q->found;
    q->found = NULL;
    question_free(q);
    return rc;
}

static int ask_in_time(const char *host, const char *port, const struct addrinfo *hints, uint64_t until_ns,
                       struct addrinfo **out)
{
    pthread_t thread;
    struct question *q = question_make(host, port, hints);
    if (q == NULL)
        return EAI_MEMORY;
    if (ps_thread_create(&thread, ask, q) != 0) {
        question_free(q);
        return EAI_MEMORY;
    }
    return await(q, thread, until_ns, out);
}

int ps_resolve(const char *host, const char *port, const struct addrinfo *hints, uint64_t until_ns,
               struct addrinfo **out, struct ps_error *err)
{
    struct addrinfo numeric = *hints;
    struct addrinfo *found = NULL;
    numeric.ai_flags |= AI_NUMERICHOST;
    int rc = getaddrinfo(host, port, &numeric, &found);
    if (rc == EAI_NONAME && host != NULL)
        rc = ask_in_time(host, port, hints, until_ns, &found);
    if (rc == -ETIMEDOUT)
        return ps_fail(err, rc, "'%.200s': no name server answered in time", host);
    if (rc != 0)
        return ps_fail(err, rc == EAI_MEMORY ? -ENOMEM : -EINVAL, "'%.200s': %s", host != NULL ? host : "*",
                       gai_strerror(rc));
    *out = found;
    return 0;
}
