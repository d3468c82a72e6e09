/* confusion.h: the confusion matrix and per-class results. */
#ifndef CNN_TRAINING_CONFUSION_H
#define CNN_TRAINING_CONFUSION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/error.h"

#define CNN_CONFUSION_MAX_CLASSES 4096 /* 128 MiB of counts */

struct cnn_confusion {
    uint32_t classes;
    uint64_t *counts; /* [label][predicted] */
    uint64_t *none;   /* [label]: images without a prediction */
};

/* -EINVAL for too many classes, -ENOMEM. Must be finished even after an error. */
int cnn_confusion_init(struct cnn_confusion *c, uint32_t classes, struct ps_error *err);
void cnn_confusion_finish(struct cnn_confusion *c);
void cnn_confusion_clear(struct cnn_confusion *c);
/* Adds n images. Labels are below `classes`; so are predictions, or there is none. */
void cnn_confusion_add(struct cnn_confusion *c, const uint16_t *labels, const uint16_t *predicted,
                       uint32_t n);

/* The results of one class. Quotients by 0 are NaN. */
struct cnn_class_result {
    uint64_t images, correct, predicted; /* with its label; of these predicted as it; predicted as it in
                                            all */
    double recall, precision, f1;        /* correct / images; correct / predicted; their harmonic mean */
};
struct cnn_class_result cnn_confusion_class(const struct cnn_confusion *c, uint32_t k);
/* The fraction of correct images; NaN without images. */
double cnn_confusion_accuracy(const struct cnn_confusion *c);

/* As text: one line per class, then the matrix. As JSON: the members of an object, without its braces. */
void cnn_confusion_print(const struct cnn_confusion *c, FILE *out);
void cnn_confusion_print_json(const struct cnn_confusion *c, FILE *out);

#endif
