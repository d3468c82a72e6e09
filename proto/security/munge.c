#include "proto/security/munge.h"

#include <errno.h>
#include <munge.h>
#include <stdlib.h>

bool ps_munge_built(struct ps_error *err)
{
    (void)err;
    return true;
}

/* NULL: the defaults. */
static munge_ctx_t make_context(void)
{
    const char *socket = getenv("PSD_MUNGE_SOCKET");
    munge_ctx_t ctx = socket != NULL ? munge_ctx_create() : NULL;
    if (ctx != NULL)
        munge_ctx_set(ctx, MUNGE_OPT_SOCKET, socket);
    return ctx;
}

static bool is_away(munge_err_t rc)
{
    return rc == EMUNGE_SOCKET || rc == EMUNGE_TIMEOUT || rc == EMUNGE_NO_MEMORY;
}

int ps_munge_encode(const void *payload, size_t len, char **credential, struct ps_error *err)
{
    char *made = NULL;
    if (len > PS_MUNGE_SERVER_MAX_BYTES)
        return ps_fail(err, -E2BIG, "munge: %zu bytes; allowed are %d", len, PS_MUNGE_SERVER_MAX_BYTES);
    munge_ctx_t ctx = make_context();
    munge_err_t rc = munge_encode(&made, ctx, payload, (int)len);
    munge_ctx_destroy(ctx);
    if (rc != EMUNGE_SUCCESS) {
        free(made);
        return ps_fail(err, is_away(rc) ? -EAGAIN : -EACCES, "munge: %s", munge_strerror(rc));
    }
    *credential = made;
    return 0;
}

int ps_munge_decode(const char *credential, void **payload, size_t *len, uid_t *uid, struct ps_error *err)
{
    void *found = NULL;
    int n = 0;
    uid_t who = (uid_t)-1;
    gid_t group;
    munge_ctx_t ctx = make_context();
    munge_err_t rc = munge_decode(credential, ctx, &found, &n, &who, &group);
    munge_ctx_destroy(ctx);
    if (rc != EMUNGE_SUCCESS || n < 0) {
        free(found);
        return ps_fail(err, is_away(rc) ? -EAGAIN : -EACCES, "munge: %s", munge_strerror(rc));
    }
    *payload = found;
    *len = (size_t)n;
    *uid = who;
    return 0;
}
