/* encode.h: records of an event file, TensorBoard's format (tensorflow/core/lib/io/record_writer.h).
 *
 * A record is: uint64 length, uint32 masked CRC-32C of those eight bytes, `length` bytes of an Event
 * (event.proto), uint32 masked CRC-32C of them; integers are little-endian. A reader stops at a record whose
 * check does not fit, or that is cut.
 *
 * Each function returns the bytes of one record, which the caller frees, and their number in *len_bytes; NULL
 * if there is no memory. */
#ifndef PS_TENSORBOARD_ENCODE_H
#define PS_TENSORBOARD_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/tensorboard/histogram.h"

/* A scalar or a histogram. A scalar that is not finite, and a histogram of no values, are left out. */
struct ps_event_value {
    const char *tag; /* UTF-8 */
    double scalar;
    const struct ps_histogram *histogram; /* NULL: the scalar */
};

enum { PS_RECORD_HEAD_BYTES = 12, PS_RECORD_TAIL_BYTES = 4 };

/* The first record of a file. wall_s: unix seconds, here and below. */
uint8_t *ps_event_version(double wall_s, size_t *len_bytes);
/* A run begins, or goes on from a state that it saved, at `step`: what earlier files of it have there and
 * beyond is shown no more. */
uint8_t *ps_event_start(double wall_s, int64_t step, size_t *len_bytes);
/* n values at a step. */
uint8_t *ps_event_values(double wall_s, int64_t step, const struct ps_event_value *values, size_t n,
                         size_t *len_bytes);

/* Of the record that begins at `bytes`: its length in the file. */
size_t ps_record_bytes(const uint8_t *bytes);

/* CRC-32C (RFC 3720, section 12.1), and as a record holds it: rotated and offset, since a CRC of bytes that
 * hold CRCs is a poor check. */
uint32_t ps_crc32c(const void *bytes, size_t len);
uint32_t ps_crc32c_masked(const void *bytes, size_t len);

#endif
