/* rates.h: learning rates by pattern: "fc2.*=10,*.bias=2". They go into the manifest, so that they hold
 * wherever the step is made, at the worker or at psd. */
#ifndef CNN_TRAINING_RATES_H
#define CNN_TRAINING_RATES_H

#include "nets/net.h"

/* rates [n]: multipliers of the learning rate, 1 where no pattern matches; if several match, the last counts.
 * -EINVAL with a sentence that names what cannot be read, a factor outside 0.000001 to 1000, or a pattern
 * that matches no trained tensor. */
int cnn_rates_read(const char *text, const struct cnn_param *params, size_t n, double *rates,
                   struct ps_error *err);

#endif
