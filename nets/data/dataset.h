/* dataset.h: the interface of a data set. One file each, and one row in data.c's table. */
#ifndef CNN_DATA_DATASET_H
#define CNN_DATA_DATASET_H

#include <stdbool.h>

#include "nets/data/data.h"
#include "nets/philox.h"

/* Names one image. A set whose images are stored looks at split and index alone; a generator may make another
 * image for every value of every member, and makes the same one for the same values, always. */
struct cnn_image_id {
    enum cnn_split split;
    uint64_t seed;  /* of the stream; 0 for the test split */
    uint32_t rank;  /* below CNN_MAX_RANKS; 0 for the test split */
    uint64_t epoch; /* 0 for the test split */
    uint32_t index; /* below n_train or n_test */
};

/* Block n, below 2^14, of the random words of an image: where it is cut, whether it is mirrored. The top bit
 * beside the rank keeps them apart from those of the order. */
static inline struct cnn_philox_block cnn_image_draw(const struct cnn_image_id *id, uint32_t n)
{
    return cnn_philox((struct cnn_philox_block){{id->index, id->rank | n << 16 | 1u << 31,
                                                 (uint32_t)id->epoch, (uint32_t)(id->epoch >> 32)}},
                      cnn_philox_key_of(id->seed));
}

enum { CNN_MAX_CHANNELS = 4 };
/* Returned by `make` for an image that cannot be read, after reporting it. */
enum { CNN_IMAGE_LEFT_OUT = 1 };

/* A size that nets may ask for, and how training images of it are cut out of the stored ones. Test images are
 * the middle, as it is. */
struct cnn_view {
    uint32_t height, width; /* at most the stored size with its pad */
    uint32_t pad;           /* black pixels on each side before a place is drawn */
    bool flips;             /* half of the images are mirrored, left to right */
};

struct cnn_data_type {
    const char *name;
    const char *usage; /* "mnist:DIR": how the spec is written, for errors and --help */
    float mean[CNN_MAX_CHANNELS], deviation[CNN_MAX_CHANNELS]; /* of the training pixels, 0 to 1 */
    const struct cnn_view *views;                              /* NULL: the stored size alone, uncut */
    uint32_t n_views;
    bool has_views; /* knows options.view */
    bool is_held;   /* all images lie in memory, as they are stored */
    /* arg: what follows "NAME:" in the spec; NULL when there was no colon. Fills *info and *self. */
    int (*open)(const char *arg, const struct cnn_data_options *opt, struct cnn_data_info *info, void **self,
                struct ps_error *err);
    void (*close)(void *self);
    /* Writes channels x height x width bytes, 0 to 255, and a label below info.classes. Safe from any thread,
     * several at a time. 0, or negative errno with a sentence. */
    int (*image)(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                 struct ps_error *err);

    /* Sets whose images have sizes of their own, info's height and width 0, have these in place of `image`
     * and `views`. */
    /* Whether views of that size can be made: 0, or -EINVAL with a sentence. */
    int (*check)(const void *self, uint32_t height, uint32_t width, struct ps_error *err);
    /* What one thread needs to make images. NULL: no memory. */
    void *(*scratch)(const void *self);
    void (*drop_scratch)(void *scratch);
    /* Writes view->height x view->width x channels bytes, channels together, and a label. A view is a
     * function of the id alone. 0; CNN_IMAGE_LEFT_OUT; negative errno with a sentence. Safe from any thread,
     * each with its scratch. */
    int (*make)(const void *self, void *scratch, const struct cnn_image_id *id, const struct cnn_view *view,
                uint8_t *pixels, uint16_t *label, struct ps_error *err);
    /* Announces each image some time before it is made, in the order of the set. NULL: not needed. */
    void (*expect)(const void *self, enum cnn_split split, uint32_t index);
};

struct cnn_data {
    const struct cnn_data_type *type;
    struct cnn_data_info info; /* n_train and n_test fit 32 bits */
    void *self;
};

extern const struct cnn_data_type cnn_data_mnist;
extern const struct cnn_data_type cnn_data_digits;
extern const struct cnn_data_type cnn_data_cifar10;
extern const struct cnn_data_type cnn_data_cifar100;
extern const struct cnn_data_type cnn_data_synthetic;
extern const struct cnn_data_type cnn_data_images;

/* The view of that size; height and width 0: the first, or the stored size. -EINVAL says which there are. */
int cnn_data_view(const struct cnn_data *data, uint32_t height, uint32_t width, struct cnn_view *out,
                  struct ps_error *err);

#endif
