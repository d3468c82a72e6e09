/* bus.c: what the bus between the host and a device carries, by the copies that libpsclient makes. */
#include "tests/bench/exchange/ceiling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/memory/memory.h"
#include "proto/clock.h"
#include "tests/bench/samples.h"

#define TIMEOUT_MS 60000
#define MAX_COPIES 1000

/* Two vectors of the device and two of the host, of which one goes down while the other goes up. */
struct bus {
    struct psc_memory_of memory;
    void *device[2], *host[2];
    size_t bytes;
};

static void close_bus(struct bus *b)
{
    const struct psc_memory_kind *kind = b->memory.kind;

    for (int i = 0; i < 2 && b->memory.device != NULL; i++) {
        if (b->device[i] != NULL)
            kind->free(b->memory.device, b->device[i]);
        if (b->host[i] != NULL)
            kind->unpin(b->memory.device, b->host[i]);
    }
    if (b->memory.device != NULL)
        kind->close(b->memory.device);
    free(b->host[0]);
    free(b->host[1]);
}

static int open_bus(struct bus *b, const char *memory)
{
    const struct psc_device_options opt = {.timeout_ms = TIMEOUT_MS};
    int rc = psc_memory_find(memory, &b->memory.kind, NULL);

    if (rc == 0)
        rc = b->memory.kind->open(&opt, &b->memory.device, NULL);
    for (int i = 0; i < 2 && rc == 0; i++) {
        void *host = aligned_alloc(4096, (b->bytes + 4095) / 4096 * 4096);
        if (host == NULL)
            return -1;
        memset(host, 0, b->bytes);
        rc = b->memory.kind->pin(b->memory.device, host, b->bytes, NULL);
        if (rc < 0)
            free(host);
        else
            b->host[i] = host;
        if (rc == 0)
            rc = b->memory.kind->alloc(b->memory.device, b->bytes, &b->device[i], NULL);
    }
    return rc;
}

/* The median of a copy down, a copy up, or both at the same time, in seconds. */
static double copies(const struct bus *b, bool down, bool up, double seconds)
{
    const struct psc_memory_kind *kind = b->memory.kind;
    struct psc_queue *downwards = kind->queue(b->memory.device, PSC_DOWN),
                     *upwards = kind->queue(b->memory.device, PSC_UP);
    double took[MAX_COPIES], end = ps_now_s() + seconds;
    size_t n = 0;

    for (bool is_first = true; n < MAX_COPIES && (n == 0 || ps_now_s() < end); is_first = false) {
        double begin = ps_now_s();
        if (down)
            kind->down(downwards, b->host[0], b->device[0], b->bytes);
        if (up)
            kind->up(upwards, b->device[1], b->host[1], b->bytes);
        if (kind->finish(downwards, NULL) < 0 || kind->finish(upwards, NULL) < 0)
            return NAN;
        if (!is_first)
            took[n++] = ps_now_s() - begin;
    }
    return bench_median(took, n);
}

struct limit_bus limit_bus(const char *memory, size_t n_floats, double seconds)
{
    struct bus b = {.bytes = n_floats * sizeof(float)};
    struct limit_bus out = {NAN, NAN, NAN};

    if (open_bus(&b, memory) == 0)
        out = (struct limit_bus){.down_s = copies(&b, true, false, seconds),
                                 .up_s = copies(&b, false, true, seconds),
                                 .both_s = copies(&b, true, true, seconds)};
    close_bus(&b);
    return out;
}
