/* freeze.h: tensors that training does not change. Their role in the manifest is frozen: neither psd's rules
 * nor workers' steps change them. The gradient of a layer that is entirely frozen is not computed. */
#ifndef CNN_TRAINING_FREEZE_H
#define CNN_TRAINING_FREEZE_H

#include "nets/net.h"

struct cnn_freeze {
    struct cnn_layer_spec *layers; /* the model's layers with these changes; NULL: nothing is frozen */
    struct cnn_range {
        uint64_t offset, n;
    } * held; /* running statistics that are frozen */
    size_t n_held;
    float *room;     /* copies of their values */
    size_t n_frozen; /* tensors */
};

/* Gives the tensors that match the patterns the role CNN_FROZEN, and marks the layers of the model that are
 * entirely frozen. params: of the model. -EINVAL with a sentence, also if no tensor is left to train;
 * -ENOMEM. *out must be finished even after an error, and outlive the nets of the model. */
int cnn_freeze_init(struct cnn_freeze *out, const char *patterns, struct cnn_model *model,
                    struct cnn_param *params, size_t n, struct ps_error *err);
void cnn_freeze_finish(struct cnn_freeze *f);

/* cnn_net_update_buffers without frozen statistics. */
void cnn_freeze_update_buffers(const struct cnn_freeze *f, struct cnn_net *net, float *x);

#endif
