/* data.h: data sets, and streams of shuffled batches from them. */
#ifndef CNN_DATA_H
#define CNN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nets/net.h"

struct cnn_data;
struct cnn_stream;

enum cnn_split { CNN_TRAIN, CNN_TEST };

struct cnn_data_info {
    const char *name; /* "mnist", "digits", "cifar10", "synthetic", "images" */
    /* Of the stored images; height and width are 0 if the images differ in size. */
    uint32_t channels, height, width, classes;
    uint64_t n_train; /* images per epoch; digits and synthetic generate new ones every epoch */
    uint64_t n_test;
    bool is_sequential; /* faster to read in sequence: see cnn_sampling */
    uint64_t
        held_bytes; /* of the images that the set keeps in memory; 0: it generates or reads them on demand */
};

struct cnn_data_options {
    /* images: the view of training images, "KIND[:KEY=VALUE,…]"; NULL: "crop". See psworker(1). */
    const char *view;
    uint32_t max_damaged; /* how many unreadable images may be left out */
    /* images: a file that caches the decoded images for views of height x width; created with `threads`
     * threads if it does not exist. NULL: none. */
    const char *cache;
    uint32_t height, width, threads;
    /* Called by any thread while the cache is created or waited for. False ends that with -EINTR. May be
     * NULL. */
    bool (*go_on)(void *arg);
    void *go_on_arg;
};

enum { CNN_MAX_DAMAGED = 100 }; /* default of max_damaged */

/* Opens "mnist:DIR" (the four IDX files, plain or .gz), "cifar10:DIR" (the six files of the binary version),
 * "cifar100:DIR" (its two files, or a folder for each class), "digits" ("digits:SEED" for another data set),
 * "synthetic:CxHxW:CLASSES" (generated images of any size), "images:DIR" (JPEG and PNG files in a folder for
 * each class) or "images:FILE.tar" (or a folder of tar files). opt: NULL for the defaults. Errors name the
 * file, the position in it, what was found and what is allowed. */
int cnn_data_open_with(const char *spec, const struct cnn_data_options *opt, struct cnn_data **out,
                       struct ps_error *err);
int cnn_data_open(const char *spec, struct cnn_data **out, struct ps_error *err);
void cnn_data_close(struct cnn_data *data);
void cnn_data_get_info(const struct cnn_data *data, struct cnn_data_info *info);

/* Whether the set fits the model: the same channels, a supported size, and no more classes than the model.
 * -EINVAL with a sentence that names the sizes of the set and the input of the model. */
int cnn_data_fits(const struct cnn_data *data, const struct cnn_model *model, struct ps_error *err);

/* A position in a stream. Together with the stream's options it is the whole state to save. */
struct cnn_position {
    uint64_t epoch; /* 0 for the test split */
    uint64_t index; /* images of the epoch returned so far, 0 to n_train or n_test */
};

/* The order of training images. It depends only on (seed, rank, epoch). */
enum cnn_sampling_kind {
    CNN_SAMPLING_DEFAULT, /* buffer for sets that are faster to read in sequence, otherwise shuffle */
    CNN_SAMPLING_SHUFFLE, /* a uniformly random permutation */
    CNN_SAMPLING_BUFFER,  /* in the set's order from a random start, through a buffer that images are drawn
                             from */
    /* Loaders as in Zhang, Choromanska and LeCun (2015, 5.1). Each of `loaders` loaders has an equal part of
     * the set and gives out its chunks of `chunk` images in an order of its own, each chunk to one worker. A
     * worker takes one chunk from each loader, shuffles their images, and repeats. In the paper a chunk goes
     * to the first worker that asks; here the workers take turns, so that a run is reproducible. */
    CNN_SAMPLING_LOADERS,
};
struct cnn_sampling {
    enum cnn_sampling_kind kind;
    uint32_t buffer; /* its size in images */
    uint32_t loaders, chunk, workers;
};

enum { CNN_SAMPLING_IMAGES = 4096 }; /* default size of the buffer */

/* Reads "shuffle", "buffer[:IMAGES]" or "loaders:LOADERS:CHUNK:WORKERS"; NULL: the default. -EINVAL with a
 * sentence. */
int cnn_sampling_read(const char *text, struct cnn_sampling *out, struct ps_error *err);

/* Where batches lie, if not in ordinary memory; zeroed: there. As cnn_net_alloc and cnn_net_free. */
struct cnn_batch_memory {
    void *(*alloc)(void *arg, size_t bytes);
    void (*free)(void *arg, void *p);
    void *arg;
};

struct cnn_stream_options {
    enum cnn_split split;
    uint64_t seed;                /* training: seed of the order, crops and flips */
    uint32_t rank;                /* training: 0 to CNN_MAX_RANKS - 1 */
    struct cnn_sampling sampling; /* training; zeroed: the default */
    uint32_t batch;               /* images per batch, at least 1 */
    uint32_t height, width;       /* requested image size; 0 and 0: the stored size */
    uint32_t prefetch; /* batches prepared in advance by threads; 0: the calling thread prepares each batch */
    uint32_t threads;  /* threads that prepare batches, cooperating on one batch if possible; 0: 1 */
    /* Training: the stream gives part `part` of each batch of parts x batch images that the same options
     * without parts would give. parts 0: there is only one. */
    uint32_t part, parts;
    /* Lends images as they are stored, with the cuts that a net makes on its device. Sets whose images differ
     * in size, or are not cropped, ignore it. */
    bool leaves_cuts;
    struct cnn_batch_memory memory; /* outlives the stream */
};

#define CNN_MAX_RANKS        (1u << 16)
#define CNN_MAX_PREFETCH     256
#define CNN_MAX_DATA_THREADS 64

/* A stream of batches of one split. The bits of a batch depend only on the position and on the options other
 * than `prefetch` and `threads`. Training streams are shuffled by a counter-based generator keyed by (seed,
 * rank, epoch): every rank sees the whole set in its own order. Test streams return the set once, in order.
 *
 * Training images of cifar10 and cifar100 are random crops: 28 x 28 of the image, or 32 x 32 of the image
 * with 4 black pixels around it; half of them are mirrored. Test images are center crops. Photographs are
 * cropped by options.view. Crop, flip and colours depend only on (seed, rank, epoch, index of the image).
 *
 * An image that cannot be read is logged once and left out: a training image is replaced by the next image of
 * the set, a test batch becomes shorter. More than max_damaged of them are an error.
 *
 * The data must outlive the stream. -EINVAL with a sentence, -ENOMEM, -EAGAIN if the system refuses a thread.
 * destroy waits until each thread has finished its current image. */
int cnn_stream_create(const struct cnn_data *data, const struct cnn_stream_options *opt,
                      struct cnn_stream **out, struct ps_error *err);
void cnn_stream_destroy(struct cnn_stream *s);

/* Lends the next batch: its images as bytes, the table of the values (v/255 - mean)/deviation per channel,
 * and the labels. All are owned by the stream and valid until the next call on it. Returns the number of
 * images: options.batch, or fewer in a test split, 0 at its end. A training stream never ends: an epoch's
 * incomplete last batch is filled from the next epoch. A negative errno if an image could not be read (see
 * cnn_stream_error), after all batches before it, and in all later calls. Does not allocate. One call at a
 * time for a stream; any thread. */
int cnn_stream_borrow(struct cnn_stream *s, struct cnn_batch *out);
/* Lends the batch that the next borrow returns, ahead of it: valid until the borrow after that one. Returns
 * its number of images; 0 if no thread has finished it yet, or it is not one of a training stream that
 * prefetches: it does not wait, and does not move the position. */
int cnn_stream_peek(struct cnn_stream *s, struct cnn_batch *out);
/* As cnn_stream_borrow, copied to the caller's arrays: normalised floats images [batch][C][H][W], and labels
 * [batch]. After an error the contents of the arrays are undefined. */
int cnn_stream_next(struct cnn_stream *s, float *images, uint16_t *labels);
/* Which image of a test split image i of the last batch is: in a batch that an image was left out of, its
 * successors move up. */
uint32_t cnn_stream_index(const struct cnn_stream *s, uint32_t i);
const char *cnn_stream_error(const struct cnn_stream *s);

/* The position after the last batch returned to the caller; prepared batches do not count. At the end of an
 * epoch a training stream is at n_train, not at 0 of the next epoch. */
void cnn_stream_position(const struct cnn_stream *s, struct cnn_position *out);
/* Continues with the batch at `position`, and clears an error. -EINVAL with a sentence for an invalid
 * position; the stream is then unchanged. */
int cnn_stream_seek(struct cnn_stream *s, const struct cnn_position *position, struct ps_error *err);

#endif
