#include "server/lanes/transports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/log.h"
#include "server/config/config.h"
#include "server/config/endpoint.h"
#include "server/lanes/lanes.h"

static bool is_attached(const struct ps_transport *t)
{
    return t->port_admit != NULL;
}

static int add(struct psd_transports *r, const struct ps_transport *t, uint32_t io_threads,
               struct ps_error *err)
{
    if (r->n == PSD_MAX_TRANSPORTS || t->hub_create(io_threads, &r->row[r->n].hub) < 0)
        return ps_fail(err, -ENOMEM, "no descriptors for the data connection %s", t->name);
    r->row[r->n++].transport = t;
    return 0;
}

int psd_transports_open(struct psd_transports *r, const struct psd_config *cfg, bool curve,
                        uint32_t io_threads, struct ps_error *err)
{
    size_t n;
    const struct ps_transport *const *rows = ps_transport_rows(&n);
    bool all = strcmp(cfg->transport, "auto") == 0;
    int rc = add(r, ps_transport_of_url(cfg->listen), io_threads, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (is_attached(rows[i]) &&
            ((all && !(rows[i]->exposed && curve)) || strcmp(cfg->transport, rows[i]->name) == 0))
            rc = add(r, rows[i], io_threads, err);
    return rc;
}

static void forget(struct psd_transports *r, uint32_t k)
{
    r->row[k].transport->hub_destroy(r->row[k].hub);
    r->n--;
    for (; k < r->n; k++)
        r->row[k] = r->row[k + 1];
}

/* shm's sockets are in the state directory, which no other user may enter. */
static void lane_url(const struct psd_config *cfg, const char *control_url, const struct ps_transport *t,
                     uint32_t index, char *url, size_t size)
{
    char control[400];
    char *real = strcmp(t->name, "shm") == 0 ? realpath(cfg->state_dir, NULL) : NULL;
    if (real != NULL)
        snprintf(control, sizeof control, "shm://%.300s/lane", real);
    else
        snprintf(control, sizeof control, "%s", control_url);
    free(real);
    t->lane_url(control, index, url, size);
}

int psd_transports_open_lane(struct psd_transports *r, const struct psd_config *cfg, const char *control_url,
                             struct psd_lane *lane, uint32_t index, struct ps_transport_limits limits,
                             struct ps_error *err)
{
    char url[400], bound[320];
    for (uint32_t k = 0; k < r->n; k++) {
        lane_url(cfg, control_url, r->row[k].transport, index, url, sizeof url);
        limits.window_chunks = ps_transport_window(r->row[k].transport, cfg->window_chunks);
        int rc = psd_lane_add_port(lane, r->row[k].transport, r->row[k].hub, url, &limits, err);
        if (rc < 0 && (k == 0 || index > 0 || strcmp(cfg->transport, "auto") != 0))
            return rc;
        if (rc < 0) {
            ps_log(rc == -ENODEV ? PS_LOG_DEBUG : PS_LOG_INFO, "start.road",
                   "transport %s is not available: %s", r->row[k].transport->name, err->text);
            forget(r, k--);
            continue;
        }
        snprintf(bound, sizeof bound, "%s", lane->ports[k].url);
        psd_endpoint_advertised(bound, cfg->advertise, lane->ports[k].url, sizeof lane->ports[k].url);
    }
    return 0;
}

void psd_transports_close(struct psd_transports *r)
{
    while (r->n > 0)
        forget(r, r->n - 1);
}

bool psd_transports_new_pass(unsigned char pass[PS_PASS_TOKEN_BYTES])
{
    /* Without randomness the token is unknown, so no client can attach and all use the listener's
     * transport. */
    return getrandom(pass, PS_PASS_TOKEN_BYTES, GRND_NONBLOCK) == PS_PASS_TOKEN_BYTES;
}

/* Another server may lack a transport that the head has. */
static bool leads_to_all(const struct psd_lanes *lanes, uint32_t k, const uint32_t *used, uint32_t n_lanes)
{
    for (uint32_t i = 0; i < n_lanes; i++)
        if (lanes->list[used[i]]->ports[k].url[0] == 0)
            return false;
    return true;
}

static void tell_one(const struct psd_lanes *lanes, uint32_t window_chunks, uint32_t k, const uint32_t *used,
                     uint32_t n_lanes, struct psd_transports_told *told, uint32_t n)
{
    const struct ps_transport *t = lanes->transports.row[k].transport;
    Ps__Road *road = told->list[n] = &told->road[n];
    ps__road__init(road);
    road->transport = (char *)(uintptr_t)t->name;
    for (uint32_t i = 0; i < n_lanes; i++)
        told->lanes[n][i] = lanes->list[used[i]]->ports[k].url;
    road->lanes = told->lanes[n];
    road->n_lanes = n_lanes;
    road->window_chunks = ps_transport_window(t, window_chunks);
}

uint32_t psd_transports_find(const struct psd_transports *r, const char *transport)
{
    uint32_t k = 0;
    while (k < r->n && strcmp(r->row[k].transport->name, transport) != 0)
        k++;
    return k;
}

uint32_t psd_transports_list(const struct psd_lanes *lanes, uint32_t window_chunks,
                             struct psd_transports_told *told, Ps__Road **list[static 1])
{
    uint32_t own[PSD_MAX_LANES], n = 0;
    for (uint32_t i = 0; i < lanes->n_own; i++)
        own[i] = i;
    for (uint32_t k = 1; k < lanes->transports.n; k++)
        tell_one(lanes, window_chunks, k, own, lanes->n_own, told, n++);
    *list = told->list;
    return n;
}

void psd_transports_publish(const struct psd_lanes *lanes, uint32_t window_chunks, const unsigned char *pass,
                            const uint32_t *used, uint32_t n_lanes, struct psd_transports_told *told,
                            Ps__Welcome *w)
{
    uint32_t n = 0;
    for (uint32_t k = 1; k < lanes->transports.n && pass != NULL; k++)
        if (leads_to_all(lanes, k, used, n_lanes))
            tell_one(lanes, window_chunks, k, used, n_lanes, told, n++);
    w->roads = told->list;
    w->n_roads = n;
    w->pass.data = (uint8_t *)(uintptr_t)pass;
    w->pass.len = n > 0 ? PS_PASS_TOKEN_BYTES : 0;
}
