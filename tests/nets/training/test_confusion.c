/* The confusion matrix and what it says of each class, against counts by hand. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "nets/training/confusion.h"
#include "tests/support/unit.h"

static struct cnn_confusion c;

static void setup(void)
{
    struct ps_error err;
    const uint16_t labels[] = {0, 0, 0, 1, 1, 2}, predicted[] = {0, 0, 1, 1, 0, 0};
    ck_assert_int_eq(cnn_confusion_init(&c, 4, &err), 0);
    cnn_confusion_add(&c, labels, predicted, 4);
    cnn_confusion_add(&c, labels + 4, predicted + 4, 2);
}

static void teardown(void)
{
    cnn_confusion_finish(&c);
}

static const struct cnn_class_result wanted[] = {{3, 2, 4, 2.0 / 3, 0.5, 4.0 / 7},
                                                 {2, 1, 2, 0.5, 0.5, 0.5},
                                                 {1, 0, 0, 0, NAN, 0},
                                                 {0, 0, 0, NAN, NAN, NAN}};

static void same(double a, double b)
{
    ck_assert(a == b || (isnan(a) && isnan(b)));
}

START_TEST(classes_have_recall_precision_and_f1)
{
    for (uint32_t k = 0; k < 4; k++) {
        struct cnn_class_result r = cnn_confusion_class(&c, k);
        ck_assert(r.images == wanted[k].images && r.correct == wanted[k].correct &&
                  r.predicted == wanted[k].predicted);
        same(r.recall, wanted[k].recall);
        same(r.precision, wanted[k].precision);
        same(r.f1, wanted[k].f1);
    }
    ck_assert_double_eq(cnn_confusion_accuracy(&c), 0.5);
    cnn_confusion_clear(&c);
    ck_assert(isnan(cnn_confusion_accuracy(&c)));
}
END_TEST

/* A net whose outputs are not numbers: its images count, as correct for no label. */
START_TEST(an_image_without_a_prediction_is_not_correct)
{
    const uint16_t labels[] = {0, 1}, none[] = {UINT16_MAX, UINT16_MAX};
    cnn_confusion_add(&c, labels, none, 2);
    struct cnn_class_result r = cnn_confusion_class(&c, 0);
    ck_assert(r.images == 4 && r.correct == 2 && r.predicted == 4);
    ck_assert_double_eq(cnn_confusion_accuracy(&c), 3.0 / 8);
    cnn_confusion_clear(&c);
    ck_assert_int_eq(cnn_confusion_class(&c, 0).images, 0);
    ck_assert(isnan(cnn_confusion_accuracy(&c)));
}
END_TEST

START_TEST(it_is_printed_as_json)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    cnn_confusion_print_json(&c, f);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "\"confusion\":[[2,1,0,0],[1,1,0,0],[1,0,0,0],[0,0,0,0]]"));
    ck_assert_ptr_nonnull(strstr(
        text,
        "{\"class\":2,\"images\":1,\"correct\":0,\"predicted\":0,\"recall\":0,\"precision\":null,\"f1\":0}"));
    free(text);
}
END_TEST

START_TEST(too_many_classes_are_refused)
{
    struct cnn_confusion large;
    struct ps_error err;
    ck_assert_int_eq(cnn_confusion_init(&large, CNN_CONFUSION_MAX_CLASSES + 1, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "of 4097 classes; allowed are up to 4096") != NULL, "%s", err.text);
    cnn_confusion_finish(&large);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("confusion");
    TCase *t = tcase_create("confusion");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, classes_have_recall_precision_and_f1);
    tcase_add_test(t, an_image_without_a_prediction_is_not_correct);
    tcase_add_test(t, it_is_printed_as_json);
    tcase_add_test(t, too_many_classes_are_refused);
    suite_add_tcase(s, t);
    return unit_run(s);
}
