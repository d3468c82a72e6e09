/* conv_limit.h: what the library's convolutions reach when every tensor lies as they like it best: what a net
 * of that library could at most do. */
#ifndef TEST_BENCH_NET_CONV_LIMIT_H
#define TEST_BENCH_NET_CONV_LIMIT_H

#include "nets/plan.h"

struct conv_limit;

/* All convolutions of a model, forward and backward as a training step runs them. -ENOTSUP: none to measure.
 */
int conv_limit_create(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, struct conv_limit **out);
void conv_limit_destroy(struct conv_limit *c);
void conv_limit_run(struct conv_limit *c);
double conv_limit_flops(const struct conv_limit *c); /* of one run */

#endif
