/* status.h: the answers of the status socket. Loop's thread. */
#ifndef PSD_STATUS_STATUS_H
#define PSD_STATUS_STATUS_H

#include "server/control/control.h"
#include "server/status/http.h"

struct psd_status {
    /* The parts that it shows. */
    struct psd_config *cfg;
    uv_loop_t *loop;
    struct psd_lanes *lanes;
    struct psd_sessions *sessions;
    struct psd_sender *sender;
    struct psd_auth *auth;
    struct psd_job *job;
    struct psd_cluster *cluster;
    struct psd_control *control;

    struct psd_http *http; /* its handlers get the psd_status */
};

extern const struct psd_http_route psd_routes[];
/* Answers the clients that wait for psd's end: psd stops now, and psd_job.end has the error, if any. */
void psd_tell_end(struct psd_status *status);
char *psd_metrics_text(struct psd_status *status);

#endif
