#include "server/ctl/keygen.h"

#include <ctype.h>
#include <limits.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "proto/security/curve.h"

/* Characters that are not allowed in a name become dashes. */
static void name_after_user(char *name, size_t size)
{
    char host[HOST_NAME_MAX + 1] = "host";
    const struct passwd *user = getpwuid(geteuid());
    gethostname(host, sizeof host - 1);
    snprintf(name, size, "%.31s@%.31s", user != NULL ? user->pw_name : "user", host);
    for (char *c = name; *c != 0; c++)
        if (!isalnum((unsigned char)*c) && strchr("._@:-", *c) == NULL)
            *c = '-';
}

int ctl_keygen(const char *path, const char *name, FILE *out, struct ps_error *err)
{
    struct ps_curve_pair pair;
    char own[PS_CURVE_NAME_MAX + 1];
    int rc;
    name_after_user(own, sizeof own);
    if ((rc = ps_curve_generate(name != NULL ? name : own, &pair, err)) < 0)
        return rc;
    rc = ps_curve_write(path, &pair, err);
    if (rc == 0)
        fprintf(out, "%s %s\n", pair.public_key, pair.name);
    explicit_bzero(&pair, sizeof pair);
    return rc;
}
