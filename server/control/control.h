/* control.h: the control socket: its incoming messages. Loop's thread. */
#ifndef PSD_CONTROL_CONTROL_H
#define PSD_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/log.h"
#include "proto/unix_socket.h"
#include "ps.pb-c.h"
#include "server/cluster/cluster.h"
#include "server/control/early.h"
#include "server/control/rendezvous.h"
#include "server/job/job.h"
#include "server/session/session.h"

/* The server side of the control socket. */
struct psd_control {
    /* The parts that it uses. */
    struct psd_config *cfg;
    uv_loop_t *loop;
    struct psd_lanes *lanes;
    struct psd_sessions *sessions;
    struct psd_sender *sender;
    struct psd_auth *auth;
    struct psd_job *job;
    struct psd_cluster *cluster;

    void *context;              /* the socket is psd_sender.socket */
    void *watch;                /* of the socket; NULL: none */
    char url[300];              /* as bound */
    struct ps_unix_socket file; /* of ipc */
    uv_poll_t poll;
    uv_prepare_t prepare;
    uv_idle_t more; /* active while messages were left for the loop's next iteration */
    struct psd_early early;
    struct psd_rendezvous rendezvous;
    struct ps_log_limit reconnected; /* a link may come and go all the time */
};

/* listen: where psd listened before a restart in place; "": as configured. If another process has taken that
 * address, waits up to 5 s for it, and then listens as configured. -errno with a sentence. */
int psd_control_open(struct psd_control *control, const char *listen, struct ps_error *err);
/* All servers have joined: handles the Hellos that arrived before. */
void psd_control_take_early(struct psd_control *control);
void psd_control_close(struct psd_control *control);

/* requests.c: handle a worker's request. */
void psd_take_barrier(struct psd_control *control, struct psd_session *s, const Ps__Barrier *m);
void psd_take_set_method(struct psd_control *control, struct psd_session *s, const Ps__SetMethod *m);

/* handshake.c: handles a Hello, of a new session or one that continues. */
void psd_hello(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m);
/* The same for a peer whose identity is known, if identities are required. */
void psd_hello_proved(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m);
/* Sends a Welcome to every client with a session. */
void psd_hello_again(struct psd_control *control);

#endif
