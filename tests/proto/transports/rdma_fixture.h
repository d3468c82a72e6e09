/* rdma_fixture.h: a port in a thread that answers by itself, and clients for it. */
#ifndef TEST_PROTO_TRANSPORTS_RDMA_FIXTURE_H
#define TEST_PROTO_TRANSPORTS_RDMA_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/transports/rdma/link.h"
#include "proto/transports/transport.h"
#include "proto/wire/frame.h"
#include "tests/support/unit.h"

enum { RIG_CHUNK = 65536, RIG_WINDOW = 4, RIG_CLIENTS = 80, RIG_PATIENCE_MS = 60000 };

static const struct ps_transport *const rdma = &ps_transport_rdma;

/* Where the device is: PSD_RDMA_IP. */
const char *rig_address(void);

/* Client n's pass; deterministic, so that a port in another guest knows it. */
struct ps_pass rig_pass(uint32_t client);

/* Answers every message with its body's bytes plus one. Parked ones later; and serves no longer. */
enum { RIG_ECHO, RIG_PARK, RIG_STOP };
struct rig_port {
    struct ps_hub *hub;
    struct ps_port *port;
    char url[300];
    pthread_t thread;
    atomic_bool stop, release; /* release: answer what is parked */
    atomic_int served, unreachable;
    struct ps_message parked[64];
    atomic_int n_parked;
};

void rig_port_open(struct rig_port *p, const char *url, const struct ps_transport_limits *limits);
/* Runs it in this thread until stop. */
void rig_port_serve(struct rig_port *p);
void rig_port_start(struct rig_port *p);
void rig_port_close(struct rig_port *p);

struct rig_client {
    struct ps_hub *hub;
    struct ps_link *link;
};

void rig_client_hub(struct rig_client *c, uint32_t client);
/* link_open, and anew when it failed only because either end stood still for longer than it waits. */
int rig_client_link(struct rig_client *c, const char *url, const struct ps_transport_limits *l,
                    struct ps_error *err);
void rig_client_open(struct rig_client *c, uint32_t client, const char *url,
                     const struct ps_transport_limits *l);
void rig_client_close(struct rig_client *c);
/* 0, -ETIMEDOUT or -ECONNRESET. */
int rig_client_recv(struct rig_client *c, struct ps_message *m, int patience_ms);
/* act: what to do with it. */
void rig_head(unsigned char *head, uint64_t number, uint32_t act);
/* 0, or what link_send or rig_client_recv said. Fails the test when the answer is wrong. */
int rig_trip(struct rig_client *c, uint64_t number, size_t len);

static const struct ps_transport_limits rig_limits = {
    .max_body_bytes = RIG_CHUNK, .window_chunks = RIG_WINDOW, .clients = RIG_CLIENTS};

#endif
