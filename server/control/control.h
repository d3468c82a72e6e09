/* control.h: the control socket: what comes in. Loop's thread. */
#ifndef PSD_CONTROL_CONTROL_H
#define PSD_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/unix_socket.h"
#include "ps.pb-c.h"
#include "server/cluster/cluster.h"
#include "server/control/early.h"
#include "server/control/rendezvous.h"
#include "server/job/job.h"
#include "server/session/session.h"

/* The control socket's server end. */
struct psd_control {
    /* What it works with. */
    struct psd_config *cfg;
    uv_loop_t *loop;
    struct psd_lanes *lanes;
    struct psd_sessions *sessions;
    struct psd_sender *sender;
    struct psd_auth *auth;
    struct psd_job *job;
    struct psd_cluster *cluster;

    void *context;              /* the socket is psd_sender.socket */
    void *watch;                /* its ps_watch; NULL: none */
    char url[300];              /* as bound */
    struct ps_unix_socket file; /* of ipc */
    uv_poll_t poll;
    uv_prepare_t prepare;
    uv_idle_t more; /* active: messages were left for the loop's next turn */
    struct psd_early early;
    struct psd_rendezvous rendezvous;
};

/* listen: "" : as configured. */
int psd_control_open(struct psd_control *control, const char *listen, struct ps_error *err);
/* All servers are here: hears the Hellos that came before. */
void psd_control_take_early(struct psd_control *control);
void psd_control_close(struct psd_control *control);

/* handshake.c: Hello, new and taken up again. */
void psd_hello(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m);
/* Of a peer whose identity is known, where that is asked for. */
void psd_hello_proved(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m);
/* Welcome, to everybody who has a session. */
void psd_hello_again(struct psd_control *control);

#endif
