/* cache.h: the decoded images of a set in one file, mapped into memory. Private to data/images.
 *
 * The file has a header, an index row for each image (training images first), and the pixels of each image,
 * [height][width][3] bytes, with its shorter side scaled to `side`; smaller images are not scaled. So a view
 * of that side has the same bits with and without a cache. Header, index and each image have checksums
 * (64-bit XXH3); numbers are little-endian. `key` identifies the images: a hash of their paths, classes,
 * sizes and modification times.
 *
 * It is written under another name and renamed when complete. The writer holds a lock, FILE.lock, that other
 * processes wait for. The contents are checked before use. */
#ifndef CNN_IMAGES_CACHE_H
#define CNN_IMAGES_CACHE_H

#include "nets/data/images/images.h"

enum { CNN_CACHE_HEADER = 64, CNN_CACHE_ROW = 24 };

struct cnn_cache {
    const uint8_t *bytes; /* the whole file */
    uint64_t len;
    uint32_t side;
    uint64_t n_train, n; /* images */
    uint8_t *seen;       /* [n]: 0 not checked, 1 good, 2 damaged; atomic */
};

/* The expected contents of a cache. */
struct cnn_cache_wish {
    uint32_t side;
    uint64_t n_train, n_test, key;
};

/* Checks a whole file in memory. 0 and *out, which refers to the bytes, if it is a cache of these images;
 * -EINVAL: not a cache; -ESTALE: a cache of other images; -EBADMSG: damaged; each with a sentence. */
int cnn_cache_check(const uint8_t *bytes, uint64_t len, const struct cnn_cache_wish *wish,
                    struct cnn_cache *out, struct ps_error *err);

/* Gets an image. False if it could not be read when the cache was made, or is damaged in the cache, which is
 * logged once. Any thread. */
bool cnn_cache_picture(struct cnn_cache *c, enum cnn_split split, uint32_t index, struct cnn_picture *out);

/* Opens the set's cache in opt->cache. It is created with opt->threads threads if it does not exist, is stale
 * or damaged. A file that is not a cache is not changed: -EINVAL. -EINTR: opt->go_on ended it, and nothing is
 * left of what was written. Errors name the file. */
int cnn_cache_open(struct cnn_images *set, const struct cnn_data_options *opt, uint32_t side,
                   struct cnn_cache **out, struct ps_error *err);
void cnn_cache_close(struct cnn_cache *c);

/* Writes the cache of the set to a descriptor, as opt says. *n_left_out: images that could not be read. */
int cnn_cache_write(struct cnn_images *set, int fd, const struct cnn_cache_wish *wish,
                    const struct cnn_data_options *opt, uint32_t *n_left_out, struct ps_error *err);

/* -EINTR with a sentence if opt->go_on asks to end. */
int cnn_cache_goes_on(const struct cnn_data_options *opt, struct ps_error *err);

/* The format of the file's parts, and their checksum. */
uint64_t cnn_cache_sum(const uint8_t *bytes, size_t len);
void cnn_cache_pack_header(const struct cnn_cache_wish *wish, uint64_t len, uint64_t index_sum,
                           uint8_t header[CNN_CACHE_HEADER]);
void cnn_cache_pack_row(uint64_t at, uint32_t width, uint32_t height, uint64_t sum,
                        uint8_t row[CNN_CACHE_ROW]);

#endif
