/* safetensors.h: reads any safetensors file: the length of the header in 8 little-endian bytes, the header
 * (JSON: name -> dtype, shape, begin and end in the data), the data.
 *
 * psd's checkpoints have more fields and a stricter reader (server/checkpoint/header.h). This reader accepts
 * tensors in any order, and floats of several widths. It checks every number of the header against the file
 * before use. */
#ifndef CNN_TRAINING_SAFETENSORS_H
#define CNN_TRAINING_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define CNN_ST_MAX_DIMS   8
#define CNN_ST_MAX_HEADER 100000000 /* bytes; the bound of the safetensors library */

enum cnn_st_type { CNN_ST_F32, CNN_ST_F64, CNN_ST_F16, CNN_ST_BF16, CNN_ST_OTHER };

struct cnn_st_tensor {
    const char *name;  /* owned by the file until it is closed */
    const char *dtype; /* as in the header, likewise */
    enum cnn_st_type type;
    uint64_t shape[CNN_ST_MAX_DIMS];
    uint32_t n_dims;
    uint64_t n;        /* values; the product of the shape */
    uint64_t begin_at; /* bytes from the start of the data */
};

struct cnn_safetensors;

/* Reads and checks the header. -errno with a sentence that begins with the path: the file cannot be opened,
 * is not a regular file, is truncated (-EBADMSG) or inconsistent (-EBADMSG), or memory is short (-ENOMEM). */
int cnn_safetensors_open(const char *path, struct cnn_safetensors **out, struct ps_error *err);
/* The same for the text of a header and data of data_bytes bytes, which is not read. For tests. */
int cnn_safetensors_parse(const char *path, const char *text, size_t len, uint64_t data_bytes,
                          struct cnn_safetensors **out, struct ps_error *err);
/* st may be NULL. */
void cnn_safetensors_close(struct cnn_safetensors *st);

size_t cnn_safetensors_count(const struct cnn_safetensors *st);
const struct cnn_st_tensor *cnn_safetensors_tensor(const struct cnn_safetensors *st, size_t i);
/* NULL if no tensor has this name. */
const struct cnn_st_tensor *cnn_safetensors_find(const struct cnn_safetensors *st, const char *name);

/* Reads the tensor's values as float32 into out [t->n]. -EINVAL: not a floating-point type; -EBADMSG: the
 * file is too short, or a value is not finite as a float32. */
int cnn_safetensors_read(struct cnn_safetensors *st, const struct cnn_st_tensor *t, float *out,
                         struct ps_error *err);

#endif
