#include "server/config/check_method.h"

#include <errno.h>
#include <string.h>

#include "proto/transports/transport.h"

int psd_config_check_transport(const struct psd_config *cfg, struct ps_error *err)
{
    const struct ps_transport *own = ps_transport_of_url(cfg->listen);
    const struct ps_transport *wanted = ps_transport_find(cfg->transport);
    if (strcmp(cfg->transport, "auto") == 0 || wanted == own)
        return 0;
    if (wanted == NULL || wanted->port_admit == NULL)
        return ps_fail(err, -EINVAL, "transport: %s, but listen is %.100s: the listener's transport is %s",
                       cfg->transport, cfg->listen, own != NULL ? own->name : "none");
    return 0;
}
