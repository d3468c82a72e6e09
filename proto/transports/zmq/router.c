#include "proto/transports/zmq/router.h"

#include <stdlib.h>
#include <zmq.h>

#include "proto/random.h"

/* A ROUTER's counter begins at a number that libzmq draws with rand(), whose seed it leaves as it is. */
void *ps_zmq_router(void *context)
{
    int one = 1;
    srand((unsigned)ps_random_u64());
    void *socket = zmq_socket(context, ZMQ_ROUTER);
    if (socket != NULL)
        zmq_setsockopt(socket, ZMQ_ROUTER_MANDATORY, &one, sizeof one);
    return socket;
}
