/* idx_format.h: files of LeCun's IDX format (http://yann.lecun.com/exdb/mnist), plain or gzip-compressed.
 *
 * A file is two zero bytes, a type (8: unsigned bytes), the number of dimensions, the dimensions as 32-bit
 * big-endian numbers, and the values. The header is not trusted: memory grows with the bytes read, not with
 * the sizes in the header. */
#ifndef CNN_DATA_IDX_FORMAT_H
#define CNN_DATA_IDX_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "nets/net.h"

enum { CNN_IDX_MAX_DIMS = 4, CNN_IDX_MAX_COUNT = 1000000 };

struct cnn_idx {
    uint32_t shape[CNN_IDX_MAX_DIMS];
    size_t n_bytes;
    uint8_t *bytes; /* to be freed by the caller */
};

/* Reads DIR/NAME or, if it does not exist, DIR/NAME.gz. shape [n_dims]: the required dimensions; 0 allows 1
 * to CNN_IDX_MAX_COUNT (the first dimension). -ENOENT, -EIO, -EBADMSG, -ENOMEM with a sentence that names
 * file, byte, found and allowed. */
int cnn_idx_read(const char *dir, const char *name, const uint32_t *shape, uint32_t n_dims,
                 struct cnn_idx *out, struct ps_error *err);

#endif
