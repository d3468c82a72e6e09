#include "tests/bench/net/conv_limit.h"

#include <errno.h>

int conv_limit_create(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, struct conv_limit **out)
{
    (void)plan, (void)batch, (void)threads, (void)out;
    return -ENOTSUP;
}

void conv_limit_destroy(struct conv_limit *c)
{
    (void)c;
}

void conv_limit_run(struct conv_limit *c)
{
    (void)c;
}

double conv_limit_flops(const struct conv_limit *c)
{
    (void)c;
    return 0;
}
