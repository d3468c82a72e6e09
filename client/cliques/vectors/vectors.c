/* vectors.c: the vectors of a member, summed and copied by the calling thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/vectors/grouped.h"
#include "client/psclique_vectors.h"
#include "client/session/errors.h"
#include "proto/vec/vec.h"

enum { LEVELS = 7 }; /* 2^6 vectors, and the result */
/* Floats that are summed at a time: the partial sums of all levels stay in the cache. */
enum { BLOCK = 2048 };

struct psc_vectors {
    struct psc_clique *q;
    const struct ps_vec *vec;
    size_t n_vectors, n_floats, part_floats;
    size_t begin; /* of the current sum */
    struct ps_error error;
    float *data[PSC_MAX_VECTORS];
    float blocks[LEVELS][BLOCK];
};

/* out <- x + y, where x may be out. */
static void add(const struct psc_vectors *v, float *out, const float *x, const float *y, size_t n)
{
    if (x == out)
        v->vec->axpy(out, y, 1, n);
    else
        v->vec->add(out, x, y, n);
}

/* Where the sum of n floats from `at` on is, of `count` vectors from `first` on: of one vector there, else in
 * block `level`: the sum of each half, then of both. As threads.c sums members. */
static const float *sum_tree(struct psc_vectors *v, size_t first, size_t count, size_t at, size_t n,
                             size_t level)
{
    size_t low = count / 2;
    if (count == 1)
        return v->data[first] + at;
    const float *x = sum_tree(v, first, low, at, n, level);
    add(v, v->blocks[level], x, sum_tree(v, first + low, count - low, at, n, level + 1), n);
    return v->blocks[level];
}

static int sum(void *arg, size_t at, size_t n, struct ps_error *err)
{
    struct psc_vectors *v = arg;
    size_t end = v->begin + at + n, low = v->n_vectors / 2;
    (void)err;
    if (v->n_vectors == 1)
        return PSC_OK;
    for (size_t k = v->begin + at; k < end; k += BLOCK) {
        size_t count = end - k < BLOCK ? end - k : BLOCK;
        const float *x = sum_tree(v, 0, low, k, count, 0);
        add(v, v->data[0] + k, x, sum_tree(v, low, v->n_vectors - low, k, count, 1), count);
    }
    return PSC_OK;
}

/* Block by block, so that what is copied is read from memory once. */
static int copy(void *arg, size_t at, size_t n, struct ps_error *err)
{
    struct psc_vectors *v = arg;
    size_t end = v->begin + at + n;
    (void)err;
    for (size_t k = v->begin + at; k < end; k += BLOCK)
        for (size_t i = 1; i < v->n_vectors; i++)
            v->vec->copy(v->data[i] + k, v->data[0] + k, end - k < BLOCK ? end - k : BLOCK);
    return PSC_OK;
}

int psc_vectors_allreduce(struct psc_vectors *v, size_t begin, size_t count, const char *codec)
{
    struct psc_grouped g = {.q = v->q, .sum = sum, .copy = copy, .arg = v};
    if (begin > v->n_floats || count > v->n_floats - begin)
        return ps_fail(&v->error, PSC_EINVAL,
                       "psc_vectors_allreduce: floats %zu to %zu; allowed are 0 to %zu", begin, begin + count,
                       v->n_floats);
    g.op = (struct psc_collective){.kind = PSC_ALLREDUCE,
                                   .data = v->data[0] + begin,
                                   .n = count,
                                   .codec = ps_codec_named_for_values(codec != NULL ? codec : "raw")};
    if (g.op.codec == NULL)
        return ps_fail(&v->error, PSC_EINVAL,
                       "psc_vectors_allreduce: codec '%.32s' is not known, or not for sums", codec);
    v->begin = begin;
    g.part = psc_grouped_part(count, v->part_floats, psc_clique_stripe(v->q));
    return psc_grouped_run(&g, &v->error);
}

void psc_vectors_options_init(struct psc_vectors_options *opt, size_t size)
{
    const struct psc_vectors_options defaults = {.size = size, .vector_size = sizeof(struct psc_vector)};
    memset(opt, 0, size);
    memcpy(opt, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

/* The array's stride is the size of the caller's version of the struct. */
static int take_vector(struct psc_vectors *v, const struct psc_vectors_options *o, size_t i)
{
    struct psc_vector one = {.data = NULL};
    const char *given = (const char *)o->vectors + i * o->vector_size;
    char what[40];
    snprintf(what, sizeof what, "vector %zu", i);
    int rc = psc_take_struct(&one, sizeof one, given, o->vector_size, what, &v->error);
    if (rc == PSC_OK)
        rc = psc_memory_check(one.memory, what, &v->error);
    if (rc != PSC_OK)
        return rc;
    if (one.stream != NULL || one.device != 0 || one.flags != 0)
        return ps_fail(&v->error, PSC_EINVAL,
                       "%s: found a stream, a device or flags; allowed in host memory are none", what);
    if (one.data == NULL && o->n_floats > 0)
        return ps_fail(&v->error, PSC_EINVAL, "%s: no array for %zu floats", what, o->n_floats);
    v->data[i] = one.data;
    return PSC_OK;
}

/* A vector that is given twice would be added to itself, and overwritten while it is read. */
static int check_apart(struct psc_vectors *v)
{
    for (size_t i = 0; i < v->n_vectors && v->n_floats > 0; i++)
        for (size_t k = 0; k < i; k++) {
            uintptr_t a = (uintptr_t)v->data[i], b = (uintptr_t)v->data[k];
            if ((a > b ? a - b : b - a) < v->n_floats * sizeof(float))
                return ps_fail(&v->error, PSC_EINVAL,
                               "vectors %zu and %zu overlap; allowed are %zu floats each", k, i, v->n_floats);
        }
    return PSC_OK;
}

static int take_options(struct psc_vectors *v, const struct psc_vectors_options *given)
{
    struct psc_vectors_options o;
    psc_vectors_options_init(&o, sizeof o);
    if (given == NULL || given->size < sizeof given->size || given->size > 4096)
        return ps_fail(&v->error, PSC_EINVAL, "vectors: call psc_vectors_options_init first");
    int rc = psc_take_struct(&o, sizeof o, given, given->size, "vectors", &v->error);
    if (rc != PSC_OK)
        return rc;
    if (o.n_vectors < 1 || o.n_vectors > PSC_MAX_VECTORS || o.vectors == NULL)
        return ps_fail(&v->error, PSC_EINVAL, "vectors: found %zu; allowed are 1 to %d", o.n_vectors,
                       PSC_MAX_VECTORS);
    if (o.vector_size < sizeof(float *) || o.vector_size > 4096)
        return ps_fail(&v->error, PSC_EINVAL,
                       "vectors: vector_size is %zu; allowed is sizeof (struct psc_vector)", o.vector_size);
    if (o.n_floats > PTRDIFF_MAX / sizeof(float))
        return ps_fail(&v->error, PSC_EINVAL, "vectors: %zu floats are more than an array can hold",
                       o.n_floats);
    v->n_vectors = o.n_vectors;
    v->n_floats = o.n_floats;
    v->part_floats = o.part_floats;
    for (size_t i = 0; i < o.n_vectors && rc == PSC_OK; i++)
        rc = take_vector(v, &o, i);
    return rc == PSC_OK ? check_apart(v) : rc;
}

int psc_vectors_open(struct psc_clique *q, const struct psc_vectors_options *opt, struct psc_vectors **out)
{
    struct psc_vectors *v = *out = calloc(1, sizeof *v);
    if (v == NULL)
        return PSC_ENOMEM;
    v->q = q;
    v->vec = ps_vec_best();
    return q != NULL ? take_options(v, opt) : ps_fail(&v->error, PSC_EINVAL, "vectors: no clique");
}

const char *psc_vectors_error(const struct psc_vectors *v)
{
    return v != NULL ? v->error.text : "no memory";
}

void psc_vectors_close(struct psc_vectors *v)
{
    free(v);
}
