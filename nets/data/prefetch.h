/* prefetch.h: threads that prepare batches in advance, in a queue of fixed length. Private to data/.
 *
 * The images of a batch are drawn from the order under the lock. Their pixels are made outside the lock, a
 * few images at a time by every thread. All threads work on the batch that the reader needs first, and
 * continue with the next when all its images have been begun. Idle threads wait on a condition variable. */
#ifndef CNN_PREFETCH_H
#define CNN_PREFETCH_H

#include "nets/data/sampler.h"
#include "nets/data/transform.h"

struct cnn_prefetch;

/* Starts `threads` (at least 1) threads that prepare up to `depth` (at least 1) batches in advance. maker and
 * order must outlive it; it owns the order until destroy, except between pause and resume. All memory is
 * allocated here: depth batches and the one that is lent. -ENOMEM; -EAGAIN if the system refuses a thread. */
int cnn_prefetch_create(const struct cnn_batch_maker *maker, struct cnn_order *order, uint32_t batch,
                        uint32_t depth, uint32_t threads, struct cnn_prefetch **out, struct ps_error *err);
/* May be called in any state, paused or running. Threads stop after their current image. */
void cnn_prefetch_destroy(struct cnn_prefetch *p);

/* Waits for the next batch. Returns its number of images, 0 at the end, or a negative errno with the sentence
 * of the first image that failed, and the same in all later calls. *out is valid until the next take, pause
 * or destroy. *after: the order's position after the batch. For one reader. */
int cnn_prefetch_take(struct cnn_prefetch *p, struct cnn_room *out, struct cnn_position *after,
                      struct ps_error *err);

/* The batch that the next take returns, valid until the take after that one. Returns its number of images; 0:
 * it is not ready, or failed. For the reader. */
int cnn_prefetch_peek(struct cnn_prefetch *p, struct cnn_room *out);

/* Drops the prepared batches, and returns when no thread uses the order. */
void cnn_prefetch_pause(struct cnn_prefetch *p);
/* Continues from the current position of the order. */
void cnn_prefetch_resume(struct cnn_prefetch *p);

#endif
