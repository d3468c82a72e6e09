/* init.h: the first point of a net from a safetensors file. */
#ifndef CNN_TRAINING_INIT_H
#define CNN_TRAINING_INIT_H

#include "nets/net.h"

/* The result. Names are separated by commas, as many as fit; counts are complete. */
struct cnn_init_report {
    size_t n_taken, n_fresh,
        n_unused; /* unused: tensors of the file that the net does not have; both lists: see below */
    char fresh[400], unused[200];
};

/* Fills x [n_floats of params] with the file's tensors, by name and shape; what the file lacks, and what the
 * patterns `skip` mean (NULL: nothing), stays as it is in x. psd's own vectors in its checkpoints ("psd.…")
 * are passed by unsaid. -errno with a sentence that begins with the path: as cnn_safetensors_open, and
 * -EINVAL for a tensor of another shape (with both), of no floats, a file that has none of the net's tensors,
 * and for patterns. x is then undefined. */
int cnn_init_load(const char *path, const char *skip, const struct cnn_param *params, size_t n, float *x,
                  struct cnn_init_report *report, struct ps_error *err);

#endif
