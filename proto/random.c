#include "proto/random.h"

#include <sys/random.h>
#include <unistd.h>

#include "proto/clock.h"

uint64_t ps_random_u64(void)
{
    uint64_t value = 0;
    while (value == 0)
        if (getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value)
            value = ps_now_ns() ^ ps_wall_us() << 20 ^ (uint64_t)getpid() << 48;
    return value;
}
