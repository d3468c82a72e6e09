/* dataset.h: what a data set is to the rest of the room. One file and one row in data.c's table each. */
#ifndef CNN_DATA_DATASET_H
#define CNN_DATA_DATASET_H

#include <stdbool.h>

#include "nets/data/data.h"

/* Names one image. A set whose images are stored looks at split and index alone; a generator may make another
 * image for every value of every member, and makes the same one for the same values, always. */
struct cnn_image_id {
    enum cnn_split split;
    uint64_t seed;  /* of the stream; 0 for the test split */
    uint32_t rank;  /* below CNN_MAX_RANKS; 0 for the test split */
    uint64_t epoch; /* 0 for the test split */
    uint32_t index; /* below n_train or n_test */
};

enum { CNN_MAX_CHANNELS = 4 };

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
    /* arg: what follows "NAME:" in the spec; NULL when there was no colon. Fills *info and *self. */
    int (*open)(const char *arg, struct cnn_data_info *info, void **self, struct ps_error *err);
    void (*close)(void *self);
    /* Writes channels x height x width bytes, 0 to 255, and a label below info.classes. Safe from any thread,
     * several at a time. 0, or negative errno with a sentence. */
    int (*image)(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                 struct ps_error *err);
};

struct cnn_data {
    const struct cnn_data_type *type;
    struct cnn_data_info info; /* n_train and n_test fit 32 bits */
    void *self;
};

extern const struct cnn_data_type cnn_data_mnist;
extern const struct cnn_data_type cnn_data_digits;
extern const struct cnn_data_type cnn_data_cifar10;
extern const struct cnn_data_type cnn_data_synthetic;

/* The view of that size; height and width 0: the first, or the stored size. -EINVAL says which there are. */
int cnn_data_view(const struct cnn_data *data, uint32_t height, uint32_t width, struct cnn_view *out,
                  struct ps_error *err);

#endif
