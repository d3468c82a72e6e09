/* images.h: a set of photographs: files, views and damaged images. Private to data/images. */
#ifndef CNN_IMAGES_IMAGES_H
#define CNN_IMAGES_IMAGES_H

#include <pthread.h>

#include "nets/data/images/decode.h"
#include "nets/data/images/list.h"
#include "nets/data/images/resample.h"
#include "nets/data/images/view.h"

struct cnn_images {
    char *what;  /* the folder or file as given by the user */
    int root;    /* descriptor of the folder that paths are relative to; -1 for shards */
    int *shards; /* [n_shards]: the descriptors of tar files */
    uint32_t n_shards;
    char *tar;             /* the path of the first tar file with images; NULL: none */
    uint32_t n_lost_links; /* of tar files: see cnn_links_resolve */
    struct cnn_list list;
    struct cnn_looks looks;
    uint32_t max_damaged;
    struct cnn_cache *cache; /* NULL: none */
    pthread_mutex_t lock;
    uint32_t n_damaged;  /* under lock: images logged as damaged */
    uint8_t *damaged[2]; /* under lock: which images they are, by enum cnn_split */
};

/* The scratch of one thread. */
struct cnn_images_scratch {
    struct cnn_decoder decoder;
    struct cnn_resampler resampler;
    uint8_t *file; /* the bytes of the last file */
    size_t room;
    uint8_t *scaled; /* the last scaled whole image */
    size_t n_scaled;
};

/* Adds the tar file set->what, or the tar files in the folder set->what and in its train/, val/, test/ and
 * validation/, in the order of their names. A folder without tar files of images is not an error: then there
 * are no shards. -EBADMSG: a folder with both tar files of images and image files; or an error of a tar file.
 */
int cnn_images_add_shards(struct cnn_images *set, struct ps_error *err);

/* Opens a folder or tar file as a set. To be closed only after success. Errors name the folder or file. */
int cnn_images_open(const char *what, const struct cnn_data_options *opt, struct cnn_images **out,
                    struct ps_error *err);
void cnn_images_close(struct cnn_images *set);

struct cnn_images_scratch *cnn_images_scratch_create(void); /* NULL if out of memory */
void cnn_images_scratch_destroy(struct cnn_images_scratch *s);

/* Reads an image's file into scratch->file. 0, -ENOMEM, or an error of the file, with a sentence. */
int cnn_images_read(const struct cnn_images *set, const struct cnn_entry *e,
                    struct cnn_images_scratch *scratch, size_t *len, struct ps_error *err);
/* Decodes the image with its shorter side scaled to `side`; a smaller image is not scaled. *out is owned by
 * the scratch. Errors as of cnn_images_read. */
int cnn_images_scaled(const struct cnn_images *set, const struct cnn_entry *e, struct cnn_images_scratch *s,
                      uint32_t side, struct cnn_picture *out, struct ps_error *err);
/* Tells the system that a member of a shard will be read. */
void cnn_images_expect(const struct cnn_images *set, const struct cnn_entry *e);

/* The window of the view in an image of that size. */
struct cnn_window cnn_images_window(const struct cnn_images *set, const struct cnn_image_id *id,
                                    const struct cnn_view *view, uint32_t width, uint32_t height,
                                    struct cnn_draws *draws);

#endif
