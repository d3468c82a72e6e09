/* prefetch.h: threads that make batches ahead, into a queue of fixed length. Private to data/.
 *
 * A batch is drawn from the order (which images) under the lock, one after the other, and its images are made
 * (their pixels) outside of it, some at a time by every thread: all work on the batch that the reader needs
 * first, and go on to the next when nothing of it is left to begin. Whoever has nothing to do sleeps on a
 * condition. */
#ifndef CNN_PREFETCH_H
#define CNN_PREFETCH_H

#include "nets/data/sampler.h"
#include "nets/data/transform.h"

struct cnn_prefetch;

/* Starts `threads` (at least 1) that keep up to `depth` (at least 1) batches ahead of the reader. maker and
 * order must outlive it, and the order belongs to it until destroy, but between pause and resume. All memory
 * is taken here: depth batches and the one that is lent. -ENOMEM; -EAGAIN when the system refuses a thread.
 */
int cnn_prefetch_create(const struct cnn_batch_maker *maker, struct cnn_order *order, uint32_t batch,
                        uint32_t depth, uint32_t threads, struct cnn_prefetch **out, struct ps_error *err);
/* From any state, paused or with threads at work: they stop after the image that they are at. */
void cnn_prefetch_destroy(struct cnn_prefetch *p);

/* Waits for the next batch: its number of images, 0 at the end, or negative errno with the sentence of the
 * first of its images that failed, and from then on always. *out is the reader's until the next take, pause
 * or destroy. *after: the order's place after the batch. For one reader. */
int cnn_prefetch_take(struct cnn_prefetch *p, struct cnn_room *out, struct cnn_position *after,
                      struct ps_error *err);

/* Throws away what was made ahead, and returns when no thread touches the order. */
void cnn_prefetch_pause(struct cnn_prefetch *p);
/* Goes on from where the order now stands. */
void cnn_prefetch_resume(struct cnn_prefetch *p);

#endif
