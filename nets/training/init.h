/* init.h: the initial point of a net from a safetensors file. */
#ifndef CNN_TRAINING_INIT_H
#define CNN_TRAINING_INIT_H

#include "nets/net.h"

/* The result. The lists hold as many names as fit, separated by commas; the counts are complete. */
struct cnn_init_report {
    size_t n_taken, n_fresh, n_unused; /* unused: tensors of the file that the net does not have */
    char fresh[400], unused[200];
};

/* Fills x [n_floats of params] with the file's tensors, matched by name and shape. Tensors that the file
 * lacks, and those that match the patterns `skip` (NULL: none), are unchanged in x. psd's own vectors in its
 * checkpoints ("psd.…") are ignored and not reported. -errno with a sentence that begins with the path: the
 * errors of cnn_safetensors_open, and -EINVAL for a tensor of another shape or of a type that is not
 * floating-point, for a file with none of the net's tensors, and for invalid patterns. x is then
 * undefined. */
int cnn_init_load(const char *path, const char *skip, const struct cnn_param *params, size_t n, float *x,
                  struct cnn_init_report *report, struct ps_error *err);

#endif
