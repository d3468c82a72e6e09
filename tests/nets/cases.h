/* cases.h: small models that between them take every path of every layer, and what suites need around them.
 */
#ifndef TEST_CASES_H
#define TEST_CASES_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nets/net.h"

extern const struct cnn_model *const cases[];        /* ends with NULL; lenet and linear are among them */
extern const struct cnn_model *const wide_cases[];   /* slow on ref; ends with NULL */
extern const struct cnn_model *const whole_models[]; /* the larger ones people train; ends with NULL */

/* The backends that suites are about, ref last; NULL past the last: those that may be the default here, or
 * that of TEST_BACKEND and ref. cuda is not asked for otherwise: it may not run, and a CUDA program must not
 * fork. */
const char *tested_backend(size_t index);

/* Whether a score is the loss a gradient reports: no dropout, no batch statistics, one loss. */
bool scores_as_it_trains(const struct cnn_model *model);

/* A model at a random place, with images and labels for a batch. Each array ends where a page begins that
 * nobody may touch: a read or write past it ends the test, also from code that was generated at run time. */
struct bed {
    const struct cnn_model *model;
    uint32_t batch;
    size_t n_floats, n_pixels; /* pixels of one image */
    float *x, *g, *images;
    uint16_t *labels;
    struct cnn_param *params;
    size_t n_params;
};

void bed_create(struct bed *b, const struct cnn_model *model, uint32_t batch);
void bed_destroy(struct bed *b);

/* Asserts success. */
struct cnn_net *net_of(const struct cnn_model *model, const char *backend, uint32_t batch, uint32_t threads);

size_t param_floats(const struct cnn_param *p);

/* What an error of a tensor's gradient is measured by: its own largest value, or a hundredth of the net's: a
 * gradient that is 0 but for rounding, as that of a bias before a batchnorm, has no scale of its own. */
double scale_of(const struct bed *b, const float *g, const struct cnn_param *p);

/* Asserts that g is within `tolerance` times scale_of(expected), tensor by tensor, and 0 at buffers and what
 * is frozen. */
void assert_close(const struct bed *b, const char *backend, const float *g, const float *expected,
                  double tolerance);

/* batches.c: the forms of a batch, for each of n backends. */
TCase *batches_case(int n_backends);

/* layers.c: what single kinds of layers promise, for each of n backends. */
TCase *layers_case(int n_backends);

#endif
