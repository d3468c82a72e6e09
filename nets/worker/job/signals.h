/* signals.h: SIGINT, SIGTERM and SIGUSR2, which mpirun passes on, as a flag that can be waited for.
 *
 * A separate thread receives the signals (no handler, no global): the first one requests a clean stop, a
 * second one ends the process at once, even while another thread waits for the server. */
#ifndef CNN_WORKER_JOB_SIGNALS_H
#define CNN_WORKER_JOB_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct cnn_stop {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    sigset_t signals;
    bool asked;     /* under lock */
    double asked_s; /* when */
};

/* Call it before any other thread is created: threads inherit the blocked signals. Returns 0 or a negative
 * errno. */
int cnn_stop_init(struct cnn_stop *stop);
void cnn_stop_finish(struct cnn_stop *stop);

bool cnn_stop_asked(struct cnn_stop *stop);
/* Whether a stop was requested at least so many seconds ago. */
bool cnn_stop_asked_before(struct cnn_stop *stop, double seconds);
/* Sleeps until a stop is requested or the time has passed. Returns whether it was requested. */
bool cnn_stop_wait(struct cnn_stop *stop, double seconds);

#endif
