/* cifar100:DIR, the small colour images of Krizhevsky, Nair and Hinton in a hundred classes: the two files of
 * their binary version, or a folder of PNG or JPEG files of 32 x 32 for each class, as images:DIR has them.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/data/cifar_format.h"
#include "nets/data/images/images.h"

static const char *const names[] = {[CNN_TRAIN] = "train.bin", [CNN_TEST] = "test.bin"};

/* Both splits in the format of the binary version, whatever the source. */
struct cifar100 {
    uint8_t *bytes[2];
    uint32_t n[2];
    uint32_t classes;
};

static void cifar100_close(void *self)
{
    struct cifar100 *c = self;
    free(c->bytes[CNN_TRAIN]);
    free(c->bytes[CNN_TEST]);
    free(c);
}

static int read_binary(struct cifar100 *c, const char *dir, struct ps_error *err)
{
    c->classes = cnn_cifar_100.classes;
    for (int split = 0; split < 2; split++) {
        int rc = cnn_cifar_read(&cnn_cifar_100, dir, names[split], &c->bytes[split], &c->n[split], err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Converts a picture with interleaved channels to a record. */
static void write_record(const struct cnn_decoder *d, uint16_t label, uint8_t *record)
{
    record[0] = 0; /* the coarse label is not used */
    record[1] = (uint8_t)label;
    for (size_t i = 0; i < CNN_CIFAR_PIXELS / 3; i++)
        for (size_t c = 0; c < 3; c++)
            record[2 + c * (CNN_CIFAR_PIXELS / 3) + i] = d->rgb[3 * i + c];
}

static int read_image(const struct cnn_images *set, const struct cnn_entry *e, struct cnn_images_scratch *s,
                      uint8_t *record, struct ps_error *err)
{
    struct ps_error why = {""};
    uint32_t width = 0, height = 0;
    size_t len;
    int rc = cnn_images_read(set, e, s, &len, &why);
    const struct cnn_picture_format *format = rc == 0 ? cnn_picture_find(s->file, len, &why) : NULL;
    if (rc == 0 && format == NULL)
        rc = -EBADMSG;
    if (rc == 0)
        rc = cnn_picture_size(format, &s->decoder, s->file, len, &width, &height, &why);
    if (rc == 0 && (width != CNN_CIFAR_SIDE || height != CNN_CIFAR_SIDE))
        rc = ps_fail(&why, -EBADMSG, "an image of %u x %u pixels; allowed: 32 x 32", width, height);
    if (rc == 0)
        rc = format->decode(&s->decoder, s->file, len, 1, NULL, &why);
    if (rc != 0)
        return ps_fail(err, rc, "%.100s/%.120s: %.250s", set->what, cnn_list_name(&set->list, e->path),
                       why.text);
    write_record(&s->decoder, e->label, record);
    return 0;
}

static int read_images(struct cifar100 *c, const struct cnn_images *set, struct ps_error *err)
{
    const size_t record = cnn_cifar_record(&cnn_cifar_100);
    struct cnn_images_scratch *s = cnn_images_scratch_create();
    int rc = s != NULL ? 0 : ps_fail(err, -ENOMEM, "no memory for data set cifar100");
    for (int split = 0; rc == 0 && split < 2; split++) {
        const struct cnn_entries *e = &set->list.of[split];
        c->n[split] = e->n;
        c->bytes[split] = malloc(e->n * record + 1);
        if (c->bytes[split] == NULL)
            rc = ps_fail(err, -ENOMEM, "no memory for %u images of cifar100", e->n);
        for (uint32_t i = 0; rc == 0 && i < e->n; i++)
            rc = read_image(set, &e->rows[i], s, c->bytes[split] + i * record, err);
    }
    cnn_images_scratch_destroy(s);
    return rc;
}

static int read_folder(struct cifar100 *c, const char *dir, const struct cnn_data_options *opt,
                       struct ps_error *err)
{
    struct cnn_images *set = NULL;
    struct cnn_data_options plain = {.max_damaged = opt->max_damaged};
    int rc = cnn_images_open(dir, &plain, &set, err);
    if (rc != 0)
        return rc;
    c->classes = set->list.n_classes;
    if (c->classes > cnn_cifar_100.classes)
        rc = ps_fail(err, -EBADMSG, "%.200s: %u classes; allowed: at most %u", dir, c->classes,
                     cnn_cifar_100.classes);
    else
        rc = read_images(c, set, err);
    cnn_images_close(set);
    return rc;
}

static int cifar100_open(const char *arg, const struct cnn_data_options *opt, struct cnn_data_info *info,
                         void **self, struct ps_error *err)
{
    char path[PATH_MAX];
    if (arg == NULL || *arg == '\0')
        return ps_fail(err, -EINVAL, "data set cifar100: no folder given; allowed: cifar100:DIR");
    struct cifar100 *c = calloc(1, sizeof *c);
    if (c == NULL)
        return ps_fail(err, -ENOMEM, "no memory for data set cifar100");
    bool is_binary = snprintf(path, sizeof path, "%s/%s", arg, names[CNN_TRAIN]) < (int)sizeof path &&
                     access(path, F_OK) == 0;
    int rc = is_binary ? read_binary(c, arg, err) : read_folder(c, arg, opt, err);
    if (rc != 0) {
        cifar100_close(c);
        return rc;
    }
    *info = (struct cnn_data_info){.name = "cifar100",
                                   .channels = CNN_CIFAR_CHANNELS,
                                   .height = CNN_CIFAR_SIDE,
                                   .width = CNN_CIFAR_SIDE,
                                   .classes = c->classes,
                                   .n_train = c->n[CNN_TRAIN],
                                   .n_test = c->n[CNN_TEST]};
    *self = c;
    return 0;
}

static int cifar100_image(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                          struct ps_error *err)
{
    const struct cifar100 *c = self;
    const uint8_t *record = c->bytes[id->split] + id->index * cnn_cifar_record(&cnn_cifar_100);
    (void)err;
    *label = record[1];
    memcpy(pixels, record + 2, CNN_CIFAR_PIXELS);
    return 0;
}

const struct cnn_data_type cnn_data_cifar100 = {
    .name = "cifar100",
    .usage = "cifar100:DIR",
    .mean = {0.5071f, 0.4866f, 0.4409f}, /* red, green, blue of the 50,000 training images */
    .deviation = {0.2673f, 0.2564f, 0.2762f},
    .views = cnn_cifar_views,
    .n_views = CNN_CIFAR_VIEWS,
    .is_held = true,
    .open = cifar100_open,
    .close = cifar100_close,
    .image = cifar100_image,
};
