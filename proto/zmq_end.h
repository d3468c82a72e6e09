/* zmq_end.h: the end of a context of libzmq. libzmq looks names up in threads of its own, each time that it
 * connects, and zmq_ctx_term waits for these, however long the name servers take. */
#ifndef PS_ZMQ_END_H
#define PS_ZMQ_END_H

/* Ends a context whose sockets are closed. Waits for at most two seconds: then a thread of its own waits for
 * libzmq. */
void ps_zmq_context_end(void *context);

#endif
