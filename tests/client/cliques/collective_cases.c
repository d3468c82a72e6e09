#include "tests/client/cliques/collective_cases.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = PSC_ALLGATHER + 1, TYPES = PSC_BYTES + 1, OPERATIONS = PSC_MAX + 1, CANARY = 0x5a };

static const size_t type_bytes[TYPES] = {4, 8, 4, 8, 2, 2, 1};
static _Thread_local char sentence[300];

/* -3 to 5; of bytes 0 to 8. */
static int value_of(int rank, size_t i, uint32_t type)
{
    int v = (int)((i * 7 + (size_t)rank * 5 + i / 11) % 9);
    return type == PSC_BYTES ? v : v - 3;
}

/* A whole number of at most 8 bits as IEEE half: exact. */
static uint16_t half_of(int v)
{
    uint16_t sign = v < 0 ? 0x8000 : 0;
    int a = v < 0 ? -v : v, e = 0;
    if (a == 0)
        return 0;
    while (a >> (e + 1) != 0)
        e++;
    return (uint16_t)(sign | (e + 15) << 10 | ((a << 10 >> e) & 0x3ff));
}

static uint16_t upper_half(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void store(void *to, size_t i, uint32_t type, int v)
{
    switch (type) {
    case PSC_FLOAT32:
        ((float *)to)[i] = (float)v;
        break;
    case PSC_FLOAT64:
        ((double *)to)[i] = v;
        break;
    case PSC_INT32:
        ((int32_t *)to)[i] = v;
        break;
    case PSC_INT64:
        ((int64_t *)to)[i] = v;
        break;
    case PSC_FLOAT16:
        ((uint16_t *)to)[i] = half_of(v);
        break;
    case PSC_BFLOAT16:
        ((uint16_t *)to)[i] = upper_half((float)v);
        break;
    default:
        ((unsigned char *)to)[i] = (unsigned char)v;
    }
}

/* The result of value i. The mean is compared where it is a whole number, and made one by `scale`. */
static int result_of(int members, size_t i, uint32_t type, uint32_t operation, int scale)
{
    int sum = 0, least = 1000, most = -1000;
    for (int r = 0; r < members; r++) {
        int v = value_of(r, i, type) * scale;
        sum += v;
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    const int results[OPERATIONS] = {
        [PSC_SUM] = sum, [PSC_MEAN] = sum / members, [PSC_MIN] = least, [PSC_MAX] = most};
    return results[operation];
}

struct instance {
    struct psc_collective_options o;
    int rank, members, scale;
    size_t in_values, out_values; /* of this member's arrays */
    size_t result_at, result_n;   /* in out */
    size_t from;                  /* the first value of the result, in the vector of all */
};

static bool reduces(uint32_t kind)
{
    return kind == PSC_ALLREDUCE || kind == PSC_REDUCE || kind == PSC_REDUCE_SCATTER;
}

static void size_arrays(struct instance *c, bool in_place)
{
    size_t n = c->o.n, all = n * (size_t)c->members, own = n * (size_t)c->rank;
    uint32_t kind = c->o.kind;
    bool gathers = kind == PSC_ALLGATHER, scatters = kind == PSC_REDUCE_SCATTER;
    c->in_values = in_place ? 0 : scatters ? all : n;
    c->out_values = gathers || (scatters && in_place) ? all : n;
    c->result_at = scatters && in_place ? own : 0;
    c->result_n = kind == PSC_REDUCE && c->rank != c->o.root ? 0 : gathers ? all : n;
    c->from = scatters ? own : 0;
}

/* What this member brings as value i of an array: its own numbers, in an allgather those of its part. */
static int brings(const struct instance *c, size_t i)
{
    return value_of(c->rank, i, c->o.type) * c->scale;
}

static void fill(const struct instance *c, void *in, void *out)
{
    size_t at = c->o.kind == PSC_ALLGATHER ? c->o.n * (size_t)c->rank : 0;
    memset(out, CANARY, c->out_values * type_bytes[c->o.type] + 8);
    if (c->in_values > 0)
        for (size_t i = 0; i < c->in_values; i++)
            store(in, i, c->o.type, brings(c, i));
    else
        for (size_t i = 0; i < (at > 0 || c->o.kind == PSC_ALLGATHER ? c->o.n : c->out_values); i++)
            store(out, at + i, c->o.type, brings(c, i));
}

static int expects(const struct instance *c, size_t i)
{
    size_t n = c->o.n;
    if (c->o.kind == PSC_BROADCAST)
        return value_of(c->o.root, i, c->o.type) * c->scale;
    if (c->o.kind == PSC_ALLGATHER)
        return value_of((int)(i / n), i % n, c->o.type) * c->scale;
    return result_of(c->members, c->from + i, c->o.type, c->o.operation, c->scale);
}

static const char *check(const struct instance *c, const void *in, const void *out, const void *before)
{
    size_t bytes = type_bytes[c->o.type];
    unsigned char want[8];
    const unsigned char *result = (const unsigned char *)out + c->result_at * bytes;
    for (size_t i = 0; i < c->result_n; i++) {
        store(want, 0, c->o.type, expects(c, i));
        if (memcmp(result + i * bytes, want, bytes) == 0)
            continue;
        snprintf(sentence, sizeof sentence,
                 "kind %u, type %u, operation %u, n %zu, root %d, %s: value %zu of rank %d of %d is not %d",
                 c->o.kind, c->o.type, c->o.operation, (size_t)c->o.n, c->o.root,
                 c->in_values > 0 ? "out of place" : "in place", i, c->rank, c->members, expects(c, i));
        return sentence;
    }
    if (c->in_values > 0 && memcmp(in, before, c->in_values * bytes) != 0)
        return "a call out of place has changed `in`";
    for (int i = 0; i < 8; i++)
        if (((const unsigned char *)out)[c->out_values * bytes + (size_t)i] != CANARY)
            return "a call has written behind `out`";
    return NULL;
}

static const char *run(struct psc_clique *q, struct instance *c)
{
    size_t bytes = type_bytes[c->o.type];
    unsigned char *in = malloc(c->in_values * bytes + 8), *before = malloc(c->in_values * bytes + 8);
    unsigned char *out = malloc(c->out_values * bytes + 8);
    uint64_t ticket;
    const char *wrong = NULL;
    fill(c, in, out);
    memcpy(before, in, c->in_values * bytes);
    c->o.in = c->in_values > 0 ? in : NULL;
    c->o.out = c->o.kind == PSC_REDUCE && c->in_values > 0 && c->rank != c->o.root ? NULL : out;
    bool starts = (c->o.type + c->o.operation) % 2 == 1;
    int rc = starts ? psc_collective_start(q, &c->o, &ticket) : psc_collective_run(q, &c->o);
    if (rc == PSC_OK && starts)
        rc = psc_clique_wait(q, ticket);
    if (rc != PSC_OK) {
        snprintf(sentence, sizeof sentence, "%s: %s", psc_result_name(rc), psc_clique_error(q));
        wrong = sentence;
    } else {
        wrong = check(c, in, out, before);
    }
    free(in);
    free(before);
    free(out);
    return wrong;
}

static const char *run_operations(struct psc_clique *q, struct instance *c)
{
    const char *wrong = NULL;
    bool both[] = {true, false};
    for (uint32_t operation = 0; operation < (reduces(c->o.kind) ? OPERATIONS : 1) && wrong == NULL;
         operation++)
        for (size_t k = 0; k < 2 && wrong == NULL; k++) {
            c->o.operation = operation;
            c->scale = operation == PSC_MEAN ? c->members : 1; /* a sum of multiples has a whole mean */
            size_arrays(c, both[k] || c->o.n == 0);
            wrong = run(q, c);
        }
    return wrong;
}

const char *collective_cases_run(struct psc_clique *q, size_t n)
{
    const char *wrong = NULL;
    struct instance c = {.rank = psc_clique_rank(q), .members = psc_clique_size(q)};
    for (uint32_t kind = 0; kind < KINDS && wrong == NULL; kind++)
        for (uint32_t type = 0; type < (reduces(kind) ? PSC_BYTES : TYPES) && wrong == NULL; type++) {
            psc_collective_options_init(&c.o, sizeof c.o);
            c.o.kind = kind;
            c.o.type = type;
            c.o.n = kind == PSC_BARRIER ? 0 : n;
            c.o.compare = (type + kind) % 3 != 0;
            if (kind == PSC_REDUCE || kind == PSC_BROADCAST)
                c.o.root = (int)((n + type) % (size_t)c.members);
            wrong = run_operations(q, &c);
        }
    return wrong;
}

const char *collective_same_bytes(struct psc_clique *q, const void *data, size_t n)
{
    unsigned char *first = malloc(n + 1);
    memcpy(first, data, n);
    int rc = psc_broadcast(q, first, n, 0);
    bool same = memcmp(first, data, n) == 0;
    free(first);
    return rc != PSC_OK ? psc_clique_error(q) : same ? NULL : "members end with different bits";
}
