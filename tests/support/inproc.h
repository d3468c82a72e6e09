/* inproc.h: a transport within one process, without libzmq: mutexes and eventfds that the thread sanitizer
 * sees, so that what it says of lanes and clients is about them. URLs are inproc://N, whatever port_open was
 * asked for. Bodies are copied. */
#ifndef TEST_INPROC_H
#define TEST_INPROC_H

#include "proto/transports/transport.h"

extern const struct ps_transport ps_transport_inproc;

#endif
