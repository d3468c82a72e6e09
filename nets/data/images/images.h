/* images.h: a set of photographs: its files, its views, and which images were damaged. Private to
 * data/images. */
#ifndef CNN_IMAGES_IMAGES_H
#define CNN_IMAGES_IMAGES_H

#include <pthread.h>

#include "nets/data/images/decode.h"
#include "nets/data/images/list.h"
#include "nets/data/images/resample.h"
#include "nets/data/images/view.h"

struct cnn_images {
    char *what;  /* the folder or file, as it was given */
    int root;    /* a folder's descriptor, which paths start from; -1 of shards */
    int *shards; /* [n_shards]: the descriptors of tar files */
    uint32_t n_shards;
    struct cnn_list list;
    struct cnn_looks looks;
    uint32_t max_damaged;
    struct cnn_cache *cache; /* NULL: none */
    pthread_mutex_t lock;
    uint32_t n_damaged;  /* under lock: images that the log has named */
    uint8_t *damaged[2]; /* under lock: whether each is among them, by enum cnn_split */
};

/* Of one thread. */
struct cnn_images_scratch {
    struct cnn_decoder decoder;
    struct cnn_resampler resampler;
    uint8_t *file; /* the bytes of the last file */
    size_t room;
    uint8_t *scaled; /* the last whole image that was scaled */
    size_t n_scaled;
};

/* Adds the tar file that set->what is, or those of the folder and of train/, val/, test/ and validation/ in
 * it, in the order of their names. Nothing is an error of a folder that has none. */
int cnn_images_add_shards(struct cnn_images *set, struct ps_error *err);

/* The set that a folder or tar file is. Close it only after success. Errors name it. */
int cnn_images_open(const char *what, const struct cnn_data_options *opt, struct cnn_images **out,
                    struct ps_error *err);
void cnn_images_close(struct cnn_images *set);

struct cnn_images_scratch *cnn_images_scratch_create(void); /* NULL: no memory */
void cnn_images_scratch_destroy(struct cnn_images_scratch *s);

/* Reads an image's file into scratch->file. 0, -ENOMEM, or what is wrong with the file. */
int cnn_images_read(const struct cnn_images *set, const struct cnn_entry *e,
                    struct cnn_images_scratch *scratch, size_t *len, struct ps_error *err);
/* Decodes the image with its shorter side scaled to `side`, or as it is where it is smaller. *out is the
 * scratch's. As cnn_images_read. */
int cnn_images_scaled(const struct cnn_images *set, const struct cnn_entry *e, struct cnn_images_scratch *s,
                      uint32_t side, struct cnn_picture *out, struct ps_error *err);
/* Tells the system that a member of a shard will be read. */
void cnn_images_expect(const struct cnn_images *set, const struct cnn_entry *e);

/* Where the view of an image of that size lies in it. */
struct cnn_window cnn_images_window(const struct cnn_images *set, const struct cnn_image_id *id,
                                    const struct cnn_view *view, uint32_t width, uint32_t height,
                                    struct cnn_draws *draws);

#endif
