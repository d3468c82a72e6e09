/* freeze.h: tensors that training leaves unchanged. Their role in the manifest is frozen: neither psd's rules
 * nor workers' steps move them. A layer that is frozen as a whole also saves the work of its gradient. */
#ifndef CNN_TRAINING_FREEZE_H
#define CNN_TRAINING_FREEZE_H

#include "nets/net.h"

struct cnn_freeze {
    struct cnn_layer_spec *layers; /* the model's layers with these changes; NULL: nothing is frozen */
    struct cnn_range {
        uint64_t offset, n;
    } * held; /* running statistics that are frozen */
    size_t n_held;
    float *room;     /* what they are */
    size_t n_frozen; /* tensors */
};

/* Gives the tensors that the patterns mean the role CNN_FROZEN, and the model layers that say so. params: the
 * model's own. -EINVAL with a sentence, also when nothing is left to train; -ENOMEM. Finish *out whatever
 * came back; it must outlive the nets of the model. */
int cnn_freeze_init(struct cnn_freeze *out, const char *patterns, struct cnn_model *model,
                    struct cnn_param *params, size_t n, struct ps_error *err);
void cnn_freeze_finish(struct cnn_freeze *f);

/* cnn_net_update_buffers, which leaves frozen statistics alone. */
void cnn_freeze_update_buffers(const struct cnn_freeze *f, struct cnn_net *net, float *x);

#endif
