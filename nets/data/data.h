/* data.h: data sets, and streams of shuffled batches from them. */
#ifndef CNN_DATA_H
#define CNN_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "nets/net.h"

struct cnn_data;
struct cnn_stream;

enum cnn_split { CNN_TRAIN, CNN_TEST };

struct cnn_data_info {
    const char *name; /* "mnist", "digits" */
    uint32_t channels, height, width, classes;
    uint64_t n_train; /* images an epoch; digits makes new ones every epoch */
    uint64_t n_test;
};

/* Opens "mnist:DIR" (the four IDX files, plain or .gz) or "digits" ("digits:SEED" for another data set).
 * Errors name the file, the place in it, what was found and what is allowed. */
int cnn_data_open(const char *spec, struct cnn_data **out, struct cnn_error *err);
void cnn_data_close(struct cnn_data *data);
void cnn_data_info(const struct cnn_data *data, struct cnn_data_info *info);

/* A stream of batches of one split. Training streams are shuffled by a counter-based generator keyed by
 * (seed, rank, epoch): every rank sees the whole set in an order of its own. Test streams run through the set
 * once, in order. The data must outlive the stream. */
int cnn_stream_create(const struct cnn_data *data, enum cnn_split split, uint64_t seed, uint32_t rank,
                      uint32_t batch, struct cnn_stream **out, struct cnn_error *err);
void cnn_stream_destroy(struct cnn_stream *s);

/* Fills images [batch][C][H][W] (normalised: mnist and digits (v/255 - 0.1307)/0.3081) and labels [batch],
 * and returns how many: batch, or fewer at the end of a test split, 0 when it has ended. A training stream
 * never ends: an epoch's incomplete last batch is filled from the next epoch. */
uint32_t cnn_stream_next(struct cnn_stream *s, float *images, uint8_t *labels);
uint64_t cnn_stream_epoch(const struct cnn_stream *s);

#endif
