/* router.h: a ROUTER socket, at which psd listens: that of control messages, or a lane's. */
#ifndef PS_TRANSPORTS_ZMQ_ROUTER_H
#define PS_TRANSPORTS_ZMQ_ROUTER_H

/* For psd only: it seeds rand(). NULL with errno. What goes to a peer that is not there is an error
 * (ZMQ_ROUTER_MANDATORY).
 *
 * libzmq names each connection by a counter, and takes a name that a peer claims (ZMQ_ROUTING_ID) as it is. A
 * peer that knows the counter claims the next name, and libzmq ends the process when it comes to it; or it
 * claims the name of a connection that broke. So the counter begins at a number that nobody can guess. */
void *ps_zmq_router(void *context);

#endif
