#include "proto/security/munge.h"

#include <errno.h>

bool ps_munge_built(struct ps_error *err)
{
    ps_fail(err, 0, "this build has no MUNGE: install libmunge-dev and build it again (-Dmunge=enabled)");
    return false;
}

int ps_munge_encode(const void *payload, size_t len, char **credential, struct ps_error *err)
{
    (void)payload;
    (void)len;
    (void)credential;
    ps_munge_built(err);
    return -ENOTSUP;
}

int ps_munge_decode(const char *credential, void **payload, size_t *len, uid_t *uid, struct ps_error *err)
{
    (void)credential;
    (void)payload;
    (void)len;
    (void)uid;
    ps_munge_built(err);
    return -ENOTSUP;
}
