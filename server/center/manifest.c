/* A manifest as it came in a message. */
#include <errno.h>
#include <stdlib.h>

#include "server/center/center.h"

int psd_manifest_of(const struct psd_config *cfg, Ps__Tensor *const *given, size_t n,
                    struct ps_manifest **out, struct ps_error *err)
{
    struct ps_tensor *tensors = calloc(n + 1, sizeof *tensors);
    int rc = 0;
    if (tensors == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const Ps__Tensor *t = given[i];
        if (t->n_shape > PS_MAX_DIMS)
            rc = ps_fail(err, -EINVAL, "tensor %zu: %zu dimensions; allowed are 0 to %d", i, t->n_shape,
                         PS_MAX_DIMS);
        else {
            tensors[i] = (struct ps_tensor){t->name, t->offset, {0},        (uint32_t)t->n_shape,
                                            t->role, t->decay,  t->rate_ppm};
            for (size_t k = 0; k < t->n_shape; k++)
                tensors[i].shape[k] = t->shape[k];
        }
    }
    if (rc == 0)
        rc = ps_manifest_create(tensors, n, cfg->limits.floats, out, err);
    if (rc == 0 && (rc = psd_checkpoint_check_manifest(*out, err)) < 0)
        ps_manifest_destroy(*out);
    free(tensors);
    return rc;
}
