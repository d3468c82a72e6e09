/* zmq_context.h: the begin and the end of a context of libzmq. With its first socket libzmq starts threads,
 * and where a descriptor for them is lacking it ends the process. It looks names up in threads of its own,
 * each time that it connects, and zmq_ctx_term waits for these, however long the name servers take. */
#ifndef PS_ZMQ_CONTEXT_H
#define PS_ZMQ_CONTEXT_H

#include <stdint.h>

/* A context with so many threads for input and output. NULL with errno: EMFILE, ENFILE: there are too few
 * descriptors for its threads. */
void *ps_zmq_context_new(uint32_t io_threads);

/* Ends a context whose sockets are closed. Waits for at most two seconds: then a thread of its own waits for
 * libzmq. */
void ps_zmq_context_end(void *context);

#endif
