#include "nets/data/orders.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nets/philox.h"

/* Distinguishes the draws of chunks, which all ranks share, from those of a rank. */
#define SHARED (1u << 30)

/* An epoch's order depends only on (seed, rank, epoch), so that a stream can start at any position. */
static struct cnn_random random_of(const struct cnn_order *o)
{
    return cnn_random_start(cnn_philox_key_of(o->seed), o->rank, (uint32_t)o->at.epoch,
                            (uint32_t)(o->at.epoch >> 32));
}

/* The Fisher-Yates shuffle. */
static void mix(uint32_t *numbers, uint32_t n, struct cnn_random *r)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = cnn_random_below(r, i);
        uint32_t swap = numbers[i - 1];
        numbers[i - 1] = numbers[j];
        numbers[j] = swap;
    }
}

static size_t shuffle_scratch(const struct cnn_order *o)
{
    (void)o;
    return 0;
}

static void shuffle_fill(struct cnn_order *o)
{
    struct cnn_random r = random_of(o);
    for (uint32_t i = 0; i < o->n; i++)
        o->permutation[i] = i;
    mix(o->permutation, o->n, &r);
}

static uint32_t held_by(const struct cnn_order *o)
{
    return o->sampling.buffer < o->n ? o->sampling.buffer : o->n;
}

static size_t buffer_scratch(const struct cnn_order *o)
{
    return held_by(o);
}

/* An image drawn from the buffer is replaced by the next image of the set. */
static void buffer_fill(struct cnn_order *o)
{
    struct cnn_random r = random_of(o);
    uint32_t *held = o->scratch, n_held = held_by(o), next = n_held;
    o->start = cnn_random_below(&r, o->n);
    for (uint32_t i = 0; i < n_held; i++)
        held[i] = (uint32_t)(((uint64_t)o->start + i) % o->n);
    for (uint32_t i = 0; i < o->n; i++) {
        uint32_t j = cnn_random_below(&r, n_held);
        o->permutation[i] = held[j];
        held[j] = next < o->n ? (uint32_t)(((uint64_t)o->start + next++) % o->n) : held[--n_held];
    }
}

static uint32_t n_loaders(const struct cnn_order *o)
{
    return o->sampling.loaders < o->n ? o->sampling.loaders : o->n;
}

/* Loader l has images [part_of(l), part_of(l + 1)). */
static uint32_t part_of(const struct cnn_order *o, uint32_t l)
{
    return (uint32_t)((uint64_t)o->n * l / n_loaders(o));
}

static uint32_t n_chunks(const struct cnn_order *o, uint32_t l)
{
    return (part_of(o, l + 1) - part_of(o, l) + o->sampling.chunk - 1) / o->sampling.chunk;
}

static size_t loaders_scratch(const struct cnn_order *o)
{
    size_t n = 0;
    for (uint32_t l = 0; l < n_loaders(o); l++)
        n += n_chunks(o, l);
    return n;
}

/* The order of every loader's chunks in one pass of all workers over the set. */
static void order_chunks(struct cnn_order *o, uint64_t pass)
{
    uint32_t *chunks = o->scratch;
    for (uint32_t l = 0; l < n_loaders(o); chunks += n_chunks(o, l), l++) {
        struct cnn_random r =
            cnn_random_start(cnn_philox_key_of(o->seed), l | SHARED, (uint32_t)pass, (uint32_t)(pass >> 32));
        for (uint32_t i = 0; i < n_chunks(o, l); i++)
            chunks[i] = i;
        mix(chunks, n_chunks(o, l), &r);
    }
}

/* Writes the images of the t-th chunk of every loader, shuffled, to permutation[at] and on. Returns the end,
 * at most n. */
static uint32_t ask(struct cnn_order *o, uint32_t t, uint32_t at, struct cnn_random *r)
{
    const uint32_t *chunks = o->scratch;
    uint32_t begin = at, size = o->sampling.chunk;
    for (uint32_t l = 0; l < n_loaders(o); chunks += n_chunks(o, l), l++) {
        if (t >= n_chunks(o, l))
            continue;
        uint64_t first = part_of(o, l) + (uint64_t)chunks[t] * size, end = first + size;
        end = end < part_of(o, l + 1) ? end : part_of(o, l + 1);
        for (; first < end && at < o->n; first++)
            o->permutation[at++] = (uint32_t)first;
    }
    mix(o->permutation + begin, at - begin, r);
    return at;
}

/* A worker's epoch is its share of `workers` passes over the set. Its turns differ from pass to pass. */
static void loaders_fill(struct cnn_order *o)
{
    struct cnn_random r = random_of(o);
    uint32_t workers = o->sampling.workers, at = 0;
    for (uint64_t pass = o->at.epoch * workers; at < o->n; pass++) {
        order_chunks(o, pass);
        uint32_t most = 0;
        for (uint32_t l = 0; l < n_loaders(o); l++)
            most = n_chunks(o, l) > most ? n_chunks(o, l) : most;
        for (uint32_t t = (uint32_t)((o->rank + pass) % workers); t < most && at < o->n; t += workers)
            at = ask(o, t, at, &r);
    }
}

const struct cnn_order_kind cnn_order_kinds[] = {
    [CNN_SAMPLING_SHUFFLE] = {"shuffle", shuffle_scratch, shuffle_fill},
    [CNN_SAMPLING_BUFFER] = {"buffer", buffer_scratch, buffer_fill},
    [CNN_SAMPLING_LOADERS] = {"loaders", loaders_scratch, loaders_fill},
};

/* Reads ":N", 1 to `most`, and advances *text past it. */
static bool read_part(const char **text, uint32_t most, uint32_t *out)
{
    char *end;
    if (**text != ':' || (*text)[1] < '1' || (*text)[1] > '9')
        return false;
    errno = 0;
    unsigned long v = strtoul(*text + 1, &end, 10);
    if (errno != 0 || v > most)
        return false;
    *out = (uint32_t)v;
    *text = end;
    return true;
}

int cnn_sampling_read(const char *text, struct cnn_sampling *out, struct ps_error *err)
{
    struct cnn_sampling s = {.buffer = CNN_SAMPLING_IMAGES};
    const char *rest = text != NULL ? text + strcspn(text, ":") : "";
    for (int kind = CNN_SAMPLING_SHUFFLE; text != NULL && kind <= CNN_SAMPLING_LOADERS; kind++)
        if (strlen(cnn_order_kinds[kind].name) == (size_t)(rest - text) &&
            memcmp(cnn_order_kinds[kind].name, text, (size_t)(rest - text)) == 0)
            s.kind = (enum cnn_sampling_kind)kind;
    bool good = text == NULL || s.kind != CNN_SAMPLING_DEFAULT;
    if (s.kind == CNN_SAMPLING_BUFFER && *rest != '\0')
        good = read_part(&rest, 1u << 24, &s.buffer);
    if (s.kind == CNN_SAMPLING_LOADERS)
        good = read_part(&rest, 1024, &s.loaders) && read_part(&rest, 1u << 20, &s.chunk) &&
               read_part(&rest, 1024, &s.workers);
    if (!good || *rest != '\0')
        return ps_fail(
            err, -EINVAL,
            "sampling: \"%.60s\"; allowed: shuffle, buffer[:IMAGES] of 1 to %u images, or "
            "loaders:LOADERS:CHUNK:WORKERS of 1 to 1024 loaders, chunks of 1 to %u images and 1 to "
            "1024 workers",
            text, 1u << 24, 1u << 20);
    *out = s;
    return 0;
}
