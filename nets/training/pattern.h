/* pattern.h: which of a model's tensors a user means. "conv1.*,fc?.bias": shell patterns (fnmatch) of names,
 * with commas; a pattern that begins with ! takes back what those before it meant: "*,!fc2.*". */
#ifndef CNN_TRAINING_PATTERN_H
#define CNN_TRAINING_PATTERN_H

#include <stdbool.h>

#include "nets/net.h"

/* meant[i], [n], all false before: whether params[i] is. -EINVAL with a sentence that names an empty pattern,
 * or one that meets no tensor. */
int cnn_pattern_mark(const char *patterns, const struct cnn_param *params, size_t n, bool *meant,
                     struct ps_error *err);

#endif
