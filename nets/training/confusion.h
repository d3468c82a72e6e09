/* confusion.h: the confusion matrix, and the results of each class. */
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
};

/* -EINVAL beyond the most classes, -ENOMEM. Finish it whatever came back. */
int cnn_confusion_init(struct cnn_confusion *c, uint32_t classes, struct ps_error *err);
void cnn_confusion_finish(struct cnn_confusion *c);
void cnn_confusion_clear(struct cnn_confusion *c);
/* Both below `classes`. */
void cnn_confusion_add(struct cnn_confusion *c, const uint16_t *labels, const uint16_t *predicted,
                       uint32_t n);

/* The results of one class. Quotients by 0 are NaN. */
struct cnn_class_result {
    uint64_t images, correct, predicted; /* of its label; of those taken for it; taken for it in all */
    double recall, precision, f1;        /* correct / images; correct / predicted; their harmonic mean */
};
struct cnn_class_result cnn_confusion_class(const struct cnn_confusion *c, uint32_t k);
/* The fraction of correct images; NaN: there are no images. */
double cnn_confusion_accuracy(const struct cnn_confusion *c);

/* As text: a line a class, then the matrix. As JSON: members of an object, without its braces. */
void cnn_confusion_print(const struct cnn_confusion *c, FILE *out);
void cnn_confusion_print_json(const struct cnn_confusion *c, FILE *out);

#endif
