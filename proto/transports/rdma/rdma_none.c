/* The row of RDMA in a program that was built without librdmacm: every call fails with a sentence that says
 * so. */
#include <errno.h>
#include <stdlib.h>

#include "proto/transports/rdma/wire.h"
#include "proto/transports/transport.h"

#define HOW "this program was built without RDMA: install libibverbs-dev and librdmacm-dev and build it again"

struct ps_hub {
    char nothing;
};

static int hub_create(uint32_t io_threads, struct ps_hub **out)
{
    (void)io_threads;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? 0 : -ENOMEM;
}

static void hub_destroy(struct ps_hub *hub)
{
    free(hub);
}

static void hub_secure(struct ps_hub *hub, const struct ps_curve_pair *pair, const char *server_key)
{
    (void)hub;
    (void)pair;
    (void)server_key;
}

static void *hub_context(struct ps_hub *hub)
{
    (void)hub;
    return NULL;
}

static void hub_pass(struct ps_hub *hub, const struct ps_pass *pass)
{
    (void)hub;
    (void)pass;
}

static int hub_register(struct ps_hub *hub, const struct ps_buffer *buffer, struct ps_error *err)
{
    (void)hub;
    (void)buffer;
    return ps_fail(err, -ENOTSUP, HOW);
}

static int port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err)
{
    (void)hub;
    (void)limits;
    (void)out;
    return ps_fail(err, -ENODEV, "cannot listen on %.200s: " HOW, url);
}

static void port_close(struct ps_port *port)
{
    (void)port;
}

/* Present because clients attach to this transport. */
static int port_admit(struct ps_port *port, const struct ps_pass *pass)
{
    (void)port;
    (void)pass;
    return -ENOSPC;
}

static void port_expel(struct ps_port *port, uint32_t client)
{
    (void)port;
    (void)client;
}

static int link_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_link **out, struct ps_error *err)
{
    (void)hub;
    (void)limits;
    (void)out;
    return ps_fail(err, -ENODEV, "cannot reach %.200s: " HOW, url);
}

static void link_close(struct ps_link *link)
{
    (void)link;
}

/* There is never a port or a link, so the other members are never called. */
const struct ps_transport ps_transport_rdma = {
    .name = "rdma",
    .hub_create = hub_create,
    .hub_destroy = hub_destroy,
    .hub_secure = hub_secure,
    .hub_context = hub_context,
    .hub_pass = hub_pass,
    .hub_register = hub_register,
    .lane_url = ps_rdma_lane_url,
    .port_open = port_open,
    .port_close = port_close,
    .port_admit = port_admit,
    .port_expel = port_expel,
    .link_open = link_open,
    .link_close = link_close,
};
