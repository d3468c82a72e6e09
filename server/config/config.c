#include "server/config/config.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "proto/security/munge.h"
#include "proto/transports/transport.h"
#include "server/config/check_method.h"
#include "server/config/endpoint.h"
#include "server/config/keys.h"
#include "server/config/url.h"

enum { LEAST_PATH = 60 }; /* bytes of a path's end in an error */

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

/* Checks `transport` against the rest of the configuration. */
static int check_transport(const struct psd_config *cfg, struct ps_error *err)
{
    const struct ps_transport *own = ps_transport_of_url(cfg->listen);
    const struct ps_transport *wanted = ps_transport_find(cfg->transport);
    if (strcmp(cfg->transport, "auto") == 0 || wanted == own)
        return 0;
    if (wanted == NULL || wanted->port_admit == NULL)
        return ps_fail(err, -EINVAL,
                       "transport: found %s, and listen is %.100s; allowed are auto, shm, rdma, and the "
                       "listener's: %s",
                       cfg->transport, cfg->listen, own != NULL ? own->name : "none");
    return 0;
}

static int check_addresses(const struct psd_config *cfg, struct ps_error *err)
{
    struct ps_error why;
    struct psd_url url;
    bool ipc = strncmp(cfg->listen, "ipc://", 6) == 0, has_key = strcmp(cfg->auth.key, "none") != 0;
    char bindable[300];

    if (ipc ? psd_endpoint_listen(cfg, bindable, sizeof bindable, &why) < 0
            : psd_url_parse(cfg->listen, &url, &why) < 0)
        return ps_fail(err, -EINVAL, "listen: %s%s", why.text, ipc ? "" : ", or ipc://PATH");
    if (ipc && cfg->advertise[0] != 0)
        return ps_fail(err, -EINVAL,
                       "advertise: found %.100s; %.100s can only be reached from this machine; allowed is no "
                       "advertise",
                       cfg->advertise, cfg->listen);
    if (!ipc && !psd_url_is_loopback(&url) && !cfg->insecure && !has_key && !cfg->auth.munge)
        return ps_fail(
            err, -EINVAL,
            "listen: %.100s can be reached from other machines, and authentication is not configured; "
            "allowed is a loopback address such as tcp://127.0.0.1:0, auth.key and auth.allow "
            "(psctl keygen makes keys), auth.munge, or insecure: true on a network that you trust",
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
    if (check_transport(cfg, err) < 0)
        return -EINVAL;
    if (strpbrk(cfg->advertise, ":/ ") != NULL && cfg->advertise[0] != '[')
        return ps_fail(err, -EINVAL,
                       "advertise: found %.100s; allowed is a host name or address without scheme and port",
                       cfg->advertise);
    if (cfg->state_dir[0] == 0 || cfg->status.socket[0] == 0)
        return ps_fail(err, -EINVAL, "%s: found an empty path; a path is needed",
                       cfg->state_dir[0] == 0 ? "state_dir" : "status.socket");
    return 0;
}

static int check_auth(const struct psd_config *cfg, struct ps_error *err)
{
    bool key = strcmp(cfg->auth.key, "none") != 0, allow = strcmp(cfg->auth.allow, "none") != 0;
    struct ps_error why;
    if (cfg->auth.munge && !ps_munge_built(&why))
        return ps_fail(err, -EINVAL, "auth.munge: %s", why.text);
    if (cfg->auth.key[0] == 0 || cfg->auth.allow[0] == 0)
        return ps_fail(err, -EINVAL, "auth.%s: found an empty path; allowed is a file, or none",
                       cfg->auth.key[0] == 0 ? "key" : "allow");
    if (key && !allow)
        return ps_fail(
            err, -EINVAL,
            "auth.allow: found none beside auth.key: no peer could join; allowed is a file with a line "
            "'KEY NAME' for each worker, as psctl keygen prints it");
    if (allow && !key)
        return ps_fail(
            err, -EINVAL,
            "auth.key: found none beside auth.allow; allowed is psd's own key pair: psctl keygen FILE");
    return 0;
}

/* Whether it names a server: its URL, or an endpoint file. */
static bool is_server(const char *text)
{
    struct psd_url url;
    struct ps_error why;
    if (text[0] == '@')
        return text[1] != 0;
    if (strncmp(text, "ipc://", 6) == 0)
        return text[6] != 0;
    return psd_url_parse(text, &url, &why) == 0;
}

static int check_servers(const struct psd_config *cfg, struct ps_error *err)
{
    bool has_head = strcmp(cfg->servers.head, "none") != 0;
    uint32_t n = cfg->servers.count, i = cfg->servers.index;
    if (i >= n)
        return ps_fail(err, -EINVAL, "servers.index: found %u; with servers.count %u allowed is 0 to %u", i,
                       n, n - 1);
    if (has_head != (i > 0) || (has_head && !is_server(cfg->servers.head)))
        return ps_fail(
            err, -EINVAL, "servers.head: found %.100s; allowed is %s", cfg->servers.head,
            i > 0
                ? "the URL of server 0 (tcp://HOST:PORT or ipc://PATH), or @FILE with its endpoint, at every "
                  "other server"
                : "none at server 0, which is the head");
    if (n * cfg->lanes > PSD_MAX_LANES)
        return ps_fail(err, -EINVAL, "lanes: found %u for each of %u servers; allowed are %d in total",
                       cfg->lanes, n, PSD_MAX_LANES);
    if (n > 1 && ps_admission_find(cfg->admission)->whole_lanes)
        return ps_fail(err, -EINVAL,
                       "servers.count: found %u; admission %s races over the whole center in one process; "
                       "allowed is 1",
                       n, cfg->admission);
    return 0;
}

static int gather(const struct psd_config_source *source,
                  int (*read_file)(struct psd_config *cfg, const char *path, struct ps_error *err),
                  struct psd_config *cfg, struct ps_error *err)
{
    int rc = 0;
    psd_config_defaults(cfg);
    if (source->path != NULL && (rc = read_file(cfg, source->path, err)) < 0)
        return rc;
    for (size_t i = 0; i < source->n; i++)
        if ((rc = psd_config_set(cfg, source->assignments[i], err)) < 0)
            return rc;
    return 0;
}

int psd_config_gather(const struct psd_config_source *source, struct psd_config *cfg, struct ps_error *err)
{
    return gather(source, psd_config_read, cfg, err);
}

int psd_config_gather_again(const struct psd_config_source *source, struct psd_config *cfg,
                            struct ps_error *err)
{
    return gather(source, psd_config_read_again, cfg, err);
}

/* Whether one is the other, or its group. */
static bool overlaps(const struct psd_config_key *a, const struct psd_config_key *b)
{
    size_t na = strlen(a->name), nb = strlen(b->name), n = na < nb ? na : nb;
    return memcmp(a->name, b->name, n) == 0 && (na == nb || (na < nb ? b->name[n] : a->name[n]) == '.');
}

/* Whether an option gives the key, or one of the group's. */
static bool is_assigned(const struct psd_config_source *source, const struct psd_config_key *key)
{
    for (size_t i = 0; i < source->n; i++) {
        const char *a = source->assignments[i];
        const struct psd_config_key *row = psd_config_key_short(a, strcspn(a, "="));
        if (row != NULL && overlaps(row, key))
            return true;
    }
    return false;
}

int psd_config_fail_at(struct ps_error *err, const char *path, size_t line, const char *sentence)
{
    const size_t all = sizeof err->text - sizeof "...:18446744073709551615: ", used = strlen(sentence),
                 room = used + LEAST_PATH < all ? all - used : LEAST_PATH, len = strlen(path);
    bool is_cut = len > room;
    return ps_fail(err, -EINVAL, "%s%s:%zu: %s", is_cut ? "..." : "", is_cut ? path + len - room : path, line,
                   sentence);
}

void psd_config_name_line(const struct psd_config_source *source, struct ps_error *err)
{
    struct ps_error sentence = *err;
    const struct psd_config_key *key = psd_config_key_find(err->text, strcspn(err->text, ":"));
    size_t line = key != NULL && source->path != NULL && !is_assigned(source, key)
                      ? psd_config_line(source->path, key)
                      : 0;
    if (line > 0)
        psd_config_fail_at(err, source->path, line, sentence.text);
}

int psd_config_settle(struct psd_config *cfg, struct ps_error *err, struct ps_error *warning)
{
    int rc = psd_config_check(cfg, err, warning);
    if (rc == 0)
        psd_config_clique_settle(cfg);
    return rc;
}

int psd_config_check(struct psd_config *cfg, struct ps_error *err, struct ps_error *warning)
{
    int rc;

    if (warning != NULL)
        warning->text[0] = 0;
    if ((rc = psd_config_method_check(cfg, err)) < 0 || (rc = check_auth(cfg, err)) < 0 ||
        (rc = check_addresses(cfg, err)) < 0 || (rc = check_servers(cfg, err)) < 0)
        return rc;
    psd_config_method_warn(cfg, warning);
    return 0;
}
