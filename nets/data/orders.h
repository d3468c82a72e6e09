/* orders.h: the ways to order an epoch's images: a table of functions. Private to data/. */
#ifndef CNN_DATA_ORDERS_H
#define CNN_DATA_ORDERS_H

#include "nets/data/sampler.h"

struct cnn_order_kind {
    const char *name;
    /* Numbers in the scratch that fill needs for o->n images. */
    size_t (*n_scratch)(const struct cnn_order *o);
    /* Fills o->permutation for the epoch o->at.epoch. */
    void (*fill)(struct cnn_order *o);
};

/* Indexed by enum cnn_sampling_kind; the default has no entry. */
extern const struct cnn_order_kind cnn_order_kinds[];

#endif
