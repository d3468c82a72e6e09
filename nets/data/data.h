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
    /* Of the stored images; height and width are 0 if sizes differ. */
    uint32_t channels, height, width, classes;
    uint64_t n_train; /* images an epoch; digits and synthetic make new ones every epoch */
    uint64_t n_test;
    bool is_sequential; /* better read in sequence: see cnn_sampling */
    uint64_t
        held_bytes; /* of the images that the set keeps in memory; 0: it makes or reads them when asked */
};

struct cnn_data_options {
    /* Of images: how training images are looked at, "KIND[:KEY=VALUE,…]"; NULL: "crop". See psworker(1). */
    const char *view;
    uint32_t max_damaged; /* images that may be left out because they cannot be read */
    /* Of images: a file that holds them decoded for views of height x width, made by `threads` if it is not
     * there; NULL: none. */
    const char *cache;
    uint32_t height, width, threads;
};

enum { CNN_MAX_DAMAGED = 100 }; /* unless the caller says otherwise */

/* Opens "mnist:DIR" (the four IDX files, plain or .gz), "cifar10:DIR" (the six files of the binary version)
 * , "cifar100:DIR" (its two files, or a folder for each class) or "digits" ("digits:SEED" for another data
 * set) or "synthetic:CxHxW:CLASSES" (made images of any size) or "images:DIR" (JPEG and PNG files in a folder
 * for each class) or "images:FILE.tar" (or a folder of tar files). opt: NULL for the defaults. Errors name
 * the file, the place in it, what was found and what is allowed. */
int cnn_data_open_with(const char *spec, const struct cnn_data_options *opt, struct cnn_data **out,
                       struct ps_error *err);
int cnn_data_open(const char *spec, struct cnn_data **out, struct ps_error *err);
void cnn_data_close(struct cnn_data *data);
void cnn_data_get_info(const struct cnn_data *data, struct cnn_data_info *info);

/* Whether the set has images for the model: its channels and size, and no more classes. -EINVAL with a
 * sentence that says which sizes the set gives, and what the model takes. */
int cnn_data_fits(const struct cnn_data *data, const struct cnn_model *model, struct ps_error *err);

/* A position in a stream: together with its options, all that must be saved. */
struct cnn_position {
    uint64_t epoch; /* 0 for the test split */
    uint64_t index; /* images of the epoch delivered so far, 0 to n_train or n_test */
};

/* The order of training images, a function of (seed, rank, epoch) alone. */
enum cnn_sampling_kind {
    CNN_SAMPLING_DEFAULT, /* the buffer for sets that are better read in order, else shuffled */
    CNN_SAMPLING_SHUFFLE, /* all orders of the images are equally likely */
    CNN_SAMPLING_BUFFER, /* in the set's order, from anywhere on, through a buffer from which each is drawn */
    /* Loaders as Zhang, Choromanska and LeCun (2015, 5.1) have them: each of `loaders` has an equal part of
     * the set and gives out its chunks of `chunk` images in an order of its own, the same for all workers,
     * each chunk to one of them. A worker asks each loader for a chunk, mixes these, and asks again. There
     * the first worker that asks has the next chunk; here the workers take turns, so that a run can be
     * repeated. */
    CNN_SAMPLING_LOADERS,
};
struct cnn_sampling {
    enum cnn_sampling_kind kind;
    uint32_t buffer; /* images that it holds */
    uint32_t loaders, chunk, workers;
};

enum { CNN_SAMPLING_IMAGES = 4096 }; /* buffer size, unless the caller says otherwise */

/* Reads "shuffle", "buffer[:IMAGES]" or "loaders:LOADERS:CHUNK:WORKERS"; NULL: the default. -EINVAL with a
 * sentence. */
int cnn_sampling_read(const char *text, struct cnn_sampling *out, struct ps_error *err);

struct cnn_stream_options {
    enum cnn_split split;
    uint64_t seed;                /* training: of the order, the crops and the flips */
    uint32_t rank;                /* training: 0 to CNN_MAX_RANKS - 1 */
    struct cnn_sampling sampling; /* training; zeroed: the default */
    uint32_t batch;               /* images a batch, at least 1 */
    uint32_t height, width;       /* of the images wanted; 0 and 0: as they are stored */
    uint32_t prefetch; /* batches that threads prepare in advance; 0: the caller makes each when it asks */
    uint32_t threads;  /* threads that make them, cooperating on one batch where they can; 0: 1 */
    /* Training: the stream gives part `part` of each batch of parts x batch images that the same options
     * without parts would give. parts 0: there is only one. */
    uint32_t part, parts;
};

#define CNN_MAX_RANKS        (1u << 16)
#define CNN_MAX_PREFETCH     256
#define CNN_MAX_DATA_THREADS 64

/* A stream of batches of one split. A batch is a function of the options but for `prefetch` and `threads`,
 * and of the position, bit for bit. Training streams are shuffled by a counter-based generator keyed by
 * (seed, rank, epoch): every rank sees the whole set in an order of its own. Test streams run through the set
 * once, in order.
 *
 * Images of cifar10 and cifar100 are cut for training: 28 x 28 anywhere in the image, or 32 x 32 anywhere in
 * the image with 4 black pixels around it; half of them are mirrored. Test images are the middle. Photographs
 * are looked at as options.view says. Crop, flip and colours are a function of (seed, rank, epoch, index of
 * the image).
 *
 * An image that cannot be read is named in the log, once, and left out: a training image's place is taken by
 * the image after it in the set, a test batch becomes shorter. More than max_damaged of them are an error.
 *
 * The data must outlive the stream. -EINVAL with a sentence, -ENOMEM, -EAGAIN when the system refuses a
 * thread. destroy waits for the image that each thread is at. */
int cnn_stream_create(const struct cnn_data *data, const struct cnn_stream_options *opt,
                      struct cnn_stream **out, struct ps_error *err);
void cnn_stream_destroy(struct cnn_stream *s);

/* Lends the next batch: its images as bytes, what each byte is to the net, (v/255 - mean)/deviation by
 * channel, and the labels. All are the stream's, until the next call on it. Returns how many there are:
 * options.batch, or fewer in a test split, 0 when it has ended. A training stream never ends: an epoch's
 * incomplete last batch is filled from the next epoch. Negative errno when an image could not be had
 * (cnn_stream_error says why), after all batches before it, and from then on. Allocates nothing. One call at
 * a time for a stream; any thread. */
int cnn_stream_borrow(struct cnn_stream *s, struct cnn_batch *out);
/* The same as floats of the caller's: images [batch][C][H][W], normalised, and labels [batch]. After an error
 * the arrays' contents are undefined. */
int cnn_stream_next(struct cnn_stream *s, float *images, uint16_t *labels);
const char *cnn_stream_error(const struct cnn_stream *s);

/* The position after the last batch that next has returned, whatever threads have prepared. At the end of an
 * epoch a training stream is at n_train, not at 0 of the next epoch. */
void cnn_stream_position(const struct cnn_stream *s, struct cnn_position *out);
/* Continues with the batch that followed `position`, and clears an error. -EINVAL with a sentence for a
 * position that the stream does not have; it then stays where it is. */
int cnn_stream_seek(struct cnn_stream *s, const struct cnn_position *position, struct ps_error *err);

#endif
