/* inproc.h: a transport within one process, without libzmq. It uses mutexes and eventfds that the thread
 * sanitizer understands, so that its reports are about lanes and clients. URLs are inproc://N, whatever
 * port_open requested. Bodies are copied. */
#ifndef TEST_INPROC_H
#define TEST_INPROC_H

#include "proto/transports/transport.h"

extern const struct ps_transport ps_transport_inproc;

#endif
