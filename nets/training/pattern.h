/* pattern.h: selects tensors of a model. "conv1.*,fc?.bias": shell patterns (fnmatch) of names, separated by
 * commas; a pattern that begins with ! removes tensors that earlier ones selected: "*,!fc2.*". */
#ifndef CNN_TRAINING_PATTERN_H
#define CNN_TRAINING_PATTERN_H

#include <stdbool.h>

#include "nets/net.h"

/* Sets meant[i], [n], all false before, for selected tensors. -EINVAL with a sentence that names an empty
 * pattern, or one that matches no tensor. */
int cnn_pattern_mark(const char *patterns, const struct cnn_param *params, size_t n, bool *meant,
                     struct ps_error *err);

#endif
