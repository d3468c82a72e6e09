#include "proto/log_limit.h"

#include <inttypes.h>

#include "proto/clock.h"
#include "proto/log.h"

enum { LINES_A_SECOND = 10 };

bool psd_log_allows(struct psd_log_limit *limit, const char *event, const char *where)
{
    uint64_t second = ps_now_ns() / PS_NS_PER_S;
    if (second != limit->second) {
        if (limit->lines > LINES_A_SECOND)
            ps_log(PS_LOG_WARN, event, "%s: %" PRIu64 " more refusals were not logged", where,
                   limit->lines - LINES_A_SECOND);
        limit->second = second;
        limit->lines = 0;
    }
    return ++limit->lines <= LINES_A_SECOND;
}
