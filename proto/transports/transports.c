#include "proto/transports/transport.h"

#include <string.h>

static const struct ps_transport *const transports[] = {&ps_transport_tcp, &ps_transport_ipc,
                                                        &ps_transport_shm, &ps_transport_rdma};
#define N_TRANSPORTS (sizeof transports / sizeof *transports)

const struct ps_transport *const *ps_transport_rows(size_t *n)
{
    *n = N_TRANSPORTS;
    return transports;
}

const struct ps_transport *ps_transport_find(const char *name)
{
    for (size_t i = 0; i < N_TRANSPORTS; i++)
        if (strcmp(transports[i]->name, name) == 0)
            return transports[i];
    return NULL;
}

const struct ps_transport *ps_transport_of_url(const char *url)
{
    for (size_t i = 0; i < N_TRANSPORTS; i++) {
        size_t len = strlen(transports[i]->name);
        if (strncmp(url, transports[i]->name, len) == 0 && strncmp(url + len, "://", 3) == 0)
            return transports[i];
    }
    return NULL;
}
