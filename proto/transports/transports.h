/* transports.h: the rows of transports.c's table. */
#ifndef PS_TRANSPORTS_H
#define PS_TRANSPORTS_H

#include "proto/transports/transport.h"

extern const struct ps_transport ps_transport_ipc, ps_transport_rdma, ps_transport_shm, ps_transport_tcp;

#endif
