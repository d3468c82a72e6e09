/* no_server.h: training without a server: the method from the options. */
#ifndef CNN_WORKER_JOB_NO_SERVER_H
#define CNN_WORKER_JOB_NO_SERVER_H

#include "client/psclient.h"
#include "nets/worker/job/args.h"

/* Fills *out for args->method, which is given. *out points to static text and into *args. -EINVAL with a
 * sentence. */
int cnn_local_options(const struct cnn_worker_args *args, struct psc_local *out, struct ps_error *err);

#endif
