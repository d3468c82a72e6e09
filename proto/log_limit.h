/* log_limit.h: a peer cannot flood the log. /metrics counts what is not written. */
#ifndef PS_LOG_LIMIT_H
#define PS_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* Of one thread; starts zeroed. */
struct psd_log_limit {
    uint64_t second, lines;
};

/* Whether one more line may be written in this second: ten may. Says how many of the last busy second were
 * not, under `event`, with `where` before it. */
bool psd_log_allows(struct psd_log_limit *limit, const char *event, const char *where);

#endif
