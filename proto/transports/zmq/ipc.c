/* ZeroMQ over UNIX sockets, for workers on psd's machine: each lane's file is next to the control
 * socket's. */
#include <stdio.h>

#include "proto/transports/transport.h"
#include "proto/transports/zmq/zmq.h"

static void lane_url(const char *control_url, uint32_t lane, char *url, size_t size)
{
    snprintf(url, size, "%s.%u", control_url, lane);
}

const struct ps_transport ps_transport_ipc = {.name = "ipc", .lane_url = lane_url, PS_ZMQ_MEMBERS};
