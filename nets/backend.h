/* backend.h: what computes a net. A backend is one folder and one row in the table of net.c. Private to
 * nets/. */
#ifndef CNN_BACKEND_H
#define CNN_BACKEND_H

#include "nets/plan.h"

struct cnn_backend {
    const char *name;
    /* The plan outlives the state. Everything that can be prepared or can fail is done here; threads >= 1.
     * -ENOMEM, -ENOTSUP when this machine or library lacks something, with a sentence. */
    int (*create)(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, void **state,
                  struct ps_error *err);
    void (*destroy)(void *state);
    /* Arguments were checked by net.c: 1 <= n <= batch, labels < classes. They allocate nothing. -EIO with a
     * sentence when the library beneath fails. */
    int (*score)(void *state, const float *x, const float *images, const uint8_t *labels, uint32_t n,
                 struct cnn_score *score, struct ps_error *err);
    int (*gradient)(void *state, const struct cnn_draw *draw, const float *x, const float *images,
                    const uint8_t *labels, float *g, struct cnn_score *score, struct ps_error *err);
    /* After a gradient: moves the buffers of x towards its batch's statistics, by cnn_batchnorm_move. */
    void (*update_buffers)(void *state, float *x);
};

extern const struct cnn_backend cnn_backend_ref, cnn_backend_onednn;

#endif
