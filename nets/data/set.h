/* set.h: what a data set is to the rest of the room. One file and one row in data.c's table each. */
#ifndef CNN_SET_H
#define CNN_SET_H

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

#define CNN_MAX_RANKS (1u << 16)

struct cnn_data_type {
    const char *name;
    const char *usage; /* "mnist:DIR": how the spec is written, for errors and --help */
    /* arg: what follows "NAME:" in the spec; NULL when there was no colon. Fills *info and *self. */
    int (*open)(const char *arg, struct cnn_data_info *info, void **self, struct cnn_error *err);
    void (*close)(void *self);
    /* Writes channels x height x width bytes, 0 to 255, and a label below info.classes. Cannot fail; safe
     * from any thread. */
    void (*image)(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint8_t *label);
};

struct cnn_data {
    const struct cnn_data_type *type;
    struct cnn_data_info info; /* n_train and n_test fit 32 bits */
    void *self;
};

extern const struct cnn_data_type cnn_data_mnist;
extern const struct cnn_data_type cnn_data_digits;

#endif
