#include "client/cliques/rendezvous/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct psc_rendezvous *const rows[] = {&psc_rendezvous_file, &psc_rendezvous_psd};

const struct psc_rendezvous *psc_rendezvous_find(const char *text, const char **place, struct ps_error *err)
{
    char schemes[128] = "";
    size_t at = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t len = strlen(rows[i]->scheme);
        if (strncmp(text, rows[i]->scheme, len) == 0 && text[len] == ':' && text[len + 1] != 0) {
            *place = text + len + 1;
            return rows[i];
        }
        at += (size_t)snprintf(schemes + at, sizeof schemes - at, "%s%s:...", i > 0 ? ", " : "",
                               rows[i]->scheme);
    }
    ps_fail(err, -EINVAL, "rendezvous is '%.100s'; allowed are %s", text, schemes);
    return NULL;
}
