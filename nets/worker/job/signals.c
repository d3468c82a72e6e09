#include "nets/worker/job/signals.h"

#include <errno.h>
#include <unistd.h>

#include "proto/clock.h"

static void *take_signals(void *arg)
{
    struct cnn_stop *stop = arg;
    int signal;
    while (sigwait(&stop->signals, &signal) == 0) {
        pthread_mutex_lock(&stop->lock);
        bool second = stop->asked;
        stop->asked = true;
        stop->asked_s = ps_now_s();
        ps_cond_wake(&stop->wake);
        pthread_mutex_unlock(&stop->lock);
        if (second)
            _exit(128 + signal);
    }
    return NULL;
}

int cnn_stop_init(struct cnn_stop *stop)
{
    int rc;

    stop->asked = false;
    sigemptyset(&stop->signals);
    sigaddset(&stop->signals, SIGINT);
    sigaddset(&stop->signals, SIGTERM);
    sigaddset(&stop->signals, SIGUSR2);
    pthread_mutex_init(&stop->lock, NULL);
    ps_cond_init(&stop->wake);
    pthread_sigmask(SIG_BLOCK, &stop->signals, NULL);
    rc = pthread_create(&stop->thread, NULL, take_signals, stop);
    if (rc == 0)
        return 0;
    pthread_cond_destroy(&stop->wake);
    pthread_mutex_destroy(&stop->lock);
    return -rc;
}

void cnn_stop_finish(struct cnn_stop *stop)
{
    pthread_cancel(stop->thread); /* takes effect in sigwait, where the thread does not hold the lock */
    pthread_join(stop->thread, NULL);
    pthread_cond_destroy(&stop->wake);
    pthread_mutex_destroy(&stop->lock);
}

bool cnn_stop_asked(struct cnn_stop *stop)
{
    return cnn_stop_wait(stop, 0);
}

bool cnn_stop_asked_before(struct cnn_stop *stop, double seconds)
{
    pthread_mutex_lock(&stop->lock);
    bool before = stop->asked && ps_now_s() - stop->asked_s >= seconds;
    pthread_mutex_unlock(&stop->lock);
    return before;
}

bool cnn_stop_wait(struct cnn_stop *stop, double seconds)
{
    uint64_t until_ns = ps_ns_after(seconds);
    pthread_mutex_lock(&stop->lock);
    int rc = 0;
    while (seconds > 0 && !stop->asked && rc != -ETIMEDOUT)
        rc = ps_cond_wait_until(&stop->wake, &stop->lock, until_ns);
    bool asked = stop->asked;
    pthread_mutex_unlock(&stop->lock);
    return asked;
}
