#include "server/config.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/config_method.h"
#include "server/config_table.h"
#include "server/endpoint.h"
#include "server/url.h"

void psd_config_defaults(struct psd_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        if (k->type == PSD_CONFIG_GROUP)
            continue;
        int rc = psd_config_value_read(k, k->value, strlen(k->value), k->value[0] == 0, cfg, NULL);
        assert(rc == 0 && "a default of the table is outside its own range");
        (void)rc;
    }
}

static int check_addresses(const struct psd_config *cfg, struct ps_error *err)
{
    struct ps_error why;
    struct psd_url url;
    bool ipc = strncmp(cfg->listen, "ipc://", 6) == 0;
    char bindable[300];

    if (ipc ? psd_endpoint_listen(cfg, bindable, sizeof bindable, &why) < 0
            : psd_url_parse(cfg->listen, &url, &why) < 0)
        return ps_fail(err, -EINVAL, "listen: %s%s", why.text, ipc ? "" : ", or ipc://PATH");
    if (ipc && cfg->advertise[0] != 0)
        return ps_fail(err, -EINVAL,
                       "advertise: found %.100s; %.100s is a file, reached from this machine only: leave "
                       "advertise out",
                       cfg->advertise, cfg->listen);
    if (!ipc && !psd_url_is_loopback(&url) && !cfg->insecure)
        return ps_fail(err, -EINVAL,
                       "listen: %.100s can be reached from other machines and this version has no "
                       "authentication; allowed is a loopback address such as tcp://127.0.0.1:0, or set "
                       "insecure: true on a network that you trust",
                       cfg->listen);
    if (strcmp(cfg->status.http, "none") != 0) {
        if (psd_url_parse(cfg->status.http, &url, &why) < 0)
            return ps_fail(err, -EINVAL, "status.http: %s, or none", why.text);
        if (!psd_url_is_loopback(&url))
            return ps_fail(err, -EINVAL,
                           "status.http: found %.100s; allowed is none or a loopback address such as "
                           "tcp://127.0.0.1:8080",
                           cfg->status.http);
    }
    if (strpbrk(cfg->advertise, ":/ ") != NULL && cfg->advertise[0] != '[')
        return ps_fail(err, -EINVAL,
                       "advertise: found %.100s; allowed is a host name or address without scheme and port",
                       cfg->advertise);
    if (cfg->state_dir[0] == 0 || cfg->status.socket[0] == 0)
        return ps_fail(err, -EINVAL, "%s: found an empty path; a path is needed",
                       cfg->state_dir[0] == 0 ? "state_dir" : "status.socket");
    return 0;
}

int psd_config_check(struct psd_config *cfg, struct ps_error *err, struct ps_error *warning)
{
    int rc;

    if (warning != NULL)
        warning->text[0] = 0;
    if ((rc = psd_config_method_check(cfg, err)) < 0 || (rc = check_addresses(cfg, err)) < 0)
        return rc;
    psd_config_method_warn(cfg, warning);
    return 0;
}
