/* stub_transport.h: the transport of the targets that drive a lane without sockets: what the lane answers
 * comes to fuzz_far.
 */
#ifndef TEST_FUZZ_STUB_TRANSPORT_H
#define TEST_FUZZ_STUB_TRANSPORT_H

#include "proto/transports/transport.h"
#include "tests/fuzz/lane_record.h"

/* The far end. */
extern struct fuzz_far {
    int replies, drops;
    void (*answered)(struct ps_message *m); /* takes it over: fuzz_message_free */
} fuzz_far;

extern const struct ps_transport fuzz_transport;

/* The message that a record stands for. */
void fuzz_message_of(struct ps_message *m, const struct fuzz_record *r);
void fuzz_message_free(struct ps_message *m);

#endif
