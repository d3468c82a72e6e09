/* lane_record.h: how an input of the lane's target stands for a request. */
#ifndef FUZZ_LANE_RECORD_H
#define FUZZ_LANE_RECORD_H

#include <stdint.h>

#include "proto/wire/frame.h"

enum { FUZZ_INCARNATION = 7, FUZZ_FIRST_TENSOR = 900 };

enum fuzz_shape {
    FUZZ_BODY_GIVEN = 1,      /* the body has `length` bytes instead of what the header's count needs */
    FUZZ_HEAD_SHORT = 2,      /* the header is cut to length % 64 */
    FUZZ_PARTS_BAD = 4,       /* the message had another number of parts */
    FUZZ_ADMIT_AFTER = 8,     /* then the loop admits client length % 4 anew */
    FUZZ_END_AFTER = 16,      /* or ends its session */
    FUZZ_MEMBERS_AFTER = 32,  /* rounds: then the set is that of the bits 2 to 5 of length */
    FUZZ_SNAPSHOT_AFTER = 64, /* rounds: then the round that comes is to be saved */
};

struct fuzz_record {
    unsigned char head[PS_FRAME_BYTES];
    float value, odd; /* the body: every seventh is the odd one */
    uint16_t length;
    uint16_t shape; /* of enum fuzz_shape */
};

#endif
