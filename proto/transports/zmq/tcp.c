/* ZeroMQ over TCP: each lane has its own port. */
#include <stdio.h>
#include <string.h>

#include "proto/transports/transport.h"
#include "proto/transports/zmq/zmq.h"

static void lane_url(const char *control_url, uint32_t lane, char *url, size_t size)
{
    const char *port = strrchr(control_url, ':');
    (void)lane;
    snprintf(url, size, "%.*s:*", (int)(port - control_url), control_url);
}

const struct ps_transport ps_transport_tcp = {.name = "tcp", .lane_url = lane_url, PS_ZMQ_MEMBERS};
