/* conv_limit.h: the speed of the library's convolutions when every tensor is in the layout it prefers: an
 * upper bound for nets with that library. */
#ifndef TEST_BENCH_NET_CONV_LIMIT_H
#define TEST_BENCH_NET_CONV_LIMIT_H

#include "nets/plan.h"

struct conv_limit;

/* All convolutions of a model, forward and backward as in a training step. -ENOTSUP: there is nothing to
 * measure. */
int conv_limit_create(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, struct conv_limit **out);
void conv_limit_destroy(struct conv_limit *c);
void conv_limit_run(struct conv_limit *c);
double conv_limit_flops(const struct conv_limit *c); /* of one run */

#endif
