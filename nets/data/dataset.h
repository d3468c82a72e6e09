/* dataset.h: the interface of a data set. A data set is one file and one row in the table of data.c. */
#ifndef CNN_DATA_DATASET_H
#define CNN_DATA_DATASET_H

#include <stdbool.h>

#include "nets/data/data.h"
#include "nets/philox.h"

/* Identifies one image. A set of stored images uses only split and index. A generator may use all members,
 * and always generates the same image for the same values. */
struct cnn_image_id {
    enum cnn_split split;
    uint64_t seed;  /* of the stream; 0 for the test split */
    uint32_t rank;  /* below CNN_MAX_RANKS; 0 for the test split */
    uint64_t epoch; /* 0 for the test split */
    uint32_t index; /* below n_train or n_test */
};

/* Block n, below 2^14, of the random words of an image, for its crop and flip. The top bit next to the rank
 * makes them independent of the words of the order. */
static inline struct cnn_philox_block cnn_image_draw(const struct cnn_image_id *id, uint32_t n)
{
    return cnn_philox((struct cnn_philox_block){{id->index, id->rank | n << 16 | 1u << 31,
                                                 (uint32_t)id->epoch, (uint32_t)(id->epoch >> 32)}},
                      cnn_philox_key_of(id->seed));
}

enum { CNN_MAX_CHANNELS = 4 };
/* Returned by `make` for an image that cannot be read, after reporting it. */
enum { CNN_IMAGE_LEFT_OUT = 1 };

/* A size that the set supports, and how training images of this size are cropped from the stored ones. Test
 * images are center crops without a flip. */
struct cnn_view {
    uint32_t height, width; /* at most the stored size plus padding */
    uint32_t pad;           /* black pixels added on each side before the crop */
    bool flips;             /* half of the images are mirrored horizontally */
};

struct cnn_data_type {
    const char *name;
    const char *usage; /* "mnist:DIR": the syntax of the spec, for errors and --help */
    float mean[CNN_MAX_CHANNELS], deviation[CNN_MAX_CHANNELS]; /* of the training pixels, scaled to 0 to 1 */
    const struct cnn_view *views;                              /* NULL: only the stored size, not cropped */
    uint32_t n_views;
    bool has_views; /* supports options.view */
    bool is_held;   /* all images lie in memory, as they are stored */
    /* arg: the text after "NAME:" in the spec; NULL without a colon. Fills *info and *self. */
    int (*open)(const char *arg, const struct cnn_data_options *opt, struct cnn_data_info *info, void **self,
                struct ps_error *err);
    void (*close)(void *self);
    /* Writes channels x height x width bytes, 0 to 255, and a label below info.classes. Thread-safe. 0, or a
     * negative errno with a sentence. */
    int (*image)(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                 struct ps_error *err);

    /* The following functions replace `image` and `views` in sets whose images differ in size (info's height
     * and width are 0). */
    /* Whether views of that size are supported: 0, or -EINVAL with a sentence. */
    int (*check)(const void *self, uint32_t height, uint32_t width, struct ps_error *err);
    /* Creates the scratch that one thread needs to make images. NULL if out of memory. */
    void *(*scratch)(const void *self);
    void (*drop_scratch)(void *scratch);
    /* Writes view->height x view->width x channels bytes, channels interleaved, and a label. The result
     * depends only on the id and the view. 0, CNN_IMAGE_LEFT_OUT, or a negative errno with a sentence.
     * Thread-safe if each thread has its own scratch. */
    int (*make)(const void *self, void *scratch, const struct cnn_image_id *id, const struct cnn_view *view,
                uint8_t *pixels, uint16_t *label, struct ps_error *err);
    /* Announces each image some time before `make`, in the order of the set. NULL: not needed. */
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

/* The view of that size; height and width 0: the first view, or the stored size. -EINVAL with a sentence that
 * names the supported sizes. */
int cnn_data_view(const struct cnn_data *data, uint32_t height, uint32_t width, struct cnn_view *out,
                  struct ps_error *err);

#endif
