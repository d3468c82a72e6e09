/* thread.h: threads of the library and of the daemon. */
#ifndef PS_THREAD_H
#define PS_THREAD_H

#include <pthread.h>
#include <signal.h>

/* pthread_create for a thread that blocks all signals, which the program's own threads handle. */
static inline int ps_thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

#endif
