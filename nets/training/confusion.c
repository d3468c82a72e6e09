#include "nets/training/confusion.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int cnn_confusion_init(struct cnn_confusion *c, uint32_t classes, struct ps_error *err)
{
    *c = (struct cnn_confusion){.classes = classes};
    if (classes > CNN_CONFUSION_MAX_CLASSES)
        return ps_fail(err, -EINVAL, "a confusion matrix of %u classes; allowed are up to %d", classes,
                       CNN_CONFUSION_MAX_CLASSES);
    c->counts = calloc((size_t)classes * classes, sizeof *c->counts);
    c->none = calloc(classes, sizeof *c->none);
    return c->counts != NULL && c->none != NULL
               ? 0
               : ps_fail(err, -ENOMEM, "no memory for a confusion matrix of %u classes", classes);
}

void cnn_confusion_finish(struct cnn_confusion *c)
{
    free(c->counts);
    free(c->none);
}

void cnn_confusion_clear(struct cnn_confusion *c)
{
    memset(c->counts, 0, (size_t)c->classes * c->classes * sizeof *c->counts);
    memset(c->none, 0, c->classes * sizeof *c->none);
}

void cnn_confusion_add(struct cnn_confusion *c, const uint16_t *labels, const uint16_t *predicted, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *row = c->counts + (size_t)labels[i] * c->classes;
        ++*(predicted[i] < c->classes ? &row[predicted[i]] : &c->none[labels[i]]);
    }
}

static double ratio(uint64_t a, uint64_t b)
{
    return b > 0 ? (double)a / (double)b : NAN;
}

struct cnn_class_result cnn_confusion_class(const struct cnn_confusion *c, uint32_t k)
{
    size_t n = c->classes;
    struct cnn_class_result r = {.images = c->none[k], .correct = c->counts[k * n + k]};
    for (size_t i = 0; i < n; i++) {
        r.images += c->counts[k * n + i];
        r.predicted += c->counts[i * n + k];
    }
    r.recall = ratio(r.correct, r.images);
    r.precision = ratio(r.correct, r.predicted);
    r.f1 = ratio(2 * r.correct, r.images + r.predicted);
    return r;
}

double cnn_confusion_accuracy(const struct cnn_confusion *c)
{
    uint64_t correct = 0, all = 0;
    for (uint32_t k = 0; k < c->classes; k++)
        all += c->none[k];
    for (size_t i = 0; i < (size_t)c->classes * c->classes; i++) {
        all += c->counts[i];
        correct += i % (c->classes + 1) == 0 ? c->counts[i] : 0;
    }
    return ratio(correct, all);
}

static void print_ratio(FILE *out, double v)
{
    if (isnan(v))
        fprintf(out, " %9s", "-");
    else
        fprintf(out, " %9.4f", v);
}

void cnn_confusion_print(const struct cnn_confusion *c, FILE *out)
{
    fprintf(out, "%5s %9s %9s %9s %9s %9s %9s\n", "class", "images", "correct", "predicted", "recall",
            "precision", "f1");
    for (uint32_t k = 0; k < c->classes; k++) {
        struct cnn_class_result r = cnn_confusion_class(c, k);
        fprintf(out, "%5u %9" PRIu64 " %9" PRIu64 " %9" PRIu64, k, r.images, r.correct, r.predicted);
        print_ratio(out, r.recall);
        print_ratio(out, r.precision);
        print_ratio(out, r.f1);
        fputc('\n', out);
    }
    fputs("\nlabel \\ predicted\n     ", out);
    for (uint32_t k = 0; k < c->classes; k++)
        fprintf(out, " %6u", k);
    for (size_t i = 0; i < (size_t)c->classes * c->classes; i++) {
        if (i % c->classes == 0)
            fprintf(out, "\n%5zu", i / c->classes);
        fprintf(out, " %6" PRIu64, c->counts[i]);
    }
    fputc('\n', out);
}

static void print_number(FILE *out, const char *key, double v)
{
    if (isnan(v))
        fprintf(out, ",\"%s\":null", key);
    else
        fprintf(out, ",\"%s\":%.9g", key, v);
}

void cnn_confusion_print_json(const struct cnn_confusion *c, FILE *out)
{
    fputs("\"classes\":[", out);
    for (uint32_t k = 0; k < c->classes; k++) {
        struct cnn_class_result r = cnn_confusion_class(c, k);
        fprintf(out, "%s{\"class\":%u,\"images\":%" PRIu64 ",\"correct\":%" PRIu64 ",\"predicted\":%" PRIu64,
                k > 0 ? "," : "", k, r.images, r.correct, r.predicted);
        print_number(out, "recall", r.recall);
        print_number(out, "precision", r.precision);
        print_number(out, "f1", r.f1);
        fputc('}', out);
    }
    fputs("],\"confusion\":[", out);
    for (size_t i = 0; i < (size_t)c->classes * c->classes; i++)
        fprintf(out, "%s%" PRIu64, i == 0 ? "[" : i % c->classes == 0 ? "],[" : ",", c->counts[i]);
    fputs("]]", out);
}
