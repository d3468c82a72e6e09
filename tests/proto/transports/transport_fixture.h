/* transport_fixture.h: both ends of a transport for the transport suite: a server in a thread of its own,
 * clients in the test's. Rows to which clients are attached have all of RIG_CLIENTS admitted from the start.
 */
#ifndef TEST_PROTO_TRANSPORTS_TRANSPORT_FIXTURE_H
#define TEST_PROTO_TRANSPORTS_TRANSPORT_FIXTURE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/transports/transport.h"
#include "proto/unix_socket.h"
#include "proto/wire/frame.h"
#include "tests/support/unit.h"

enum {
    CHUNK_BYTES = 65536,
    WINDOW = 4,
    PATIENCE_MS = 60000,       /* ends a hang, and nothing else */
    OPEN_PATIENCE_MS = 240000, /* the same, for all clients at once on an emulated machine */
    MOST_PAUSE_S = 16,
    RIG_ROWS = 5,     /* that loop tests are made for; the table may have fewer */
    RIG_CLIENTS = 64, /* numbers 0 to 63 */
};

extern const struct ps_transport_limits rig_limits;
extern struct ps_registered rig_registered; /* of its ports, all together */

/* Row i of the table; NULL: there is none, or this machine has nothing for it to run on, which is said. */
const struct ps_transport *rig_row(int i);
/* An address that nobody listens at, for port_open. rdma: of PSD_RDMA_IP in the environment. */
void rig_any_url(const struct ps_transport *t, char *url, size_t size);
/* Whether clients are attached to this transport. */
bool rig_attaches(const struct ps_transport *t);
struct ps_pass rig_pass(uint32_t client, uint32_t incarnation);

struct rig_server;
/* Answers, keeps or drops a message; rc: port_recv's. */
typedef void (*rig_serve_fn)(struct rig_server *s, struct ps_message *m, int rc);

/* Waits for messages without a time limit, so that a lost wake-up hangs its test. */
struct rig_server {
    const struct ps_transport *t;
    struct ps_hub *hub;
    struct ps_port *port;
    char url[300];
    rig_serve_fn serve; /* rig_answer */
    void *arg;          /* serve's own */
    pthread_t thread;
    int wake;                 /* an eventfd */
    atomic_bool stop, asleep; /* asleep: reads nothing */
    atomic_int served, malformed, again, unreachable;
    pthread_mutex_t lock; /* of what follows: work for the server's thread */
    pthread_cond_t done;
    void (*task)(struct rig_server *s, void *arg);
    void *task_arg;
};

/* Replies with every byte of the body plus one; to what is malformed with "bad". */
void rig_answer(struct rig_server *s, struct ps_message *m, int rc);
/* url NULL: any. */
void rig_server_open(struct rig_server *s, const struct ps_transport *t, const char *url, rig_serve_fn serve,
                     void *arg);
void rig_server_close(struct rig_server *s);
void rig_server_sleeps(struct rig_server *s, bool asleep);
/* Runs the task in the server's thread and waits for its end. */
void rig_server_do(struct rig_server *s, void (*task)(struct rig_server *s, void *arg), void *arg);
/* The parts: for tests that serve by hand, in this thread. */
void rig_port_open(struct rig_server *s, const struct ps_transport *t, const char *url);
void rig_port_close(struct rig_server *s);
/* Serves until `*stop`, if that is not NULL. */
void rig_port_serve(struct rig_server *s);

struct rig_client {
    const struct ps_transport *t;
    struct ps_hub *hub;
    struct ps_link *link;
};

/* number: of the client, where it is attached. */
void rig_client_open(struct rig_client *c, const struct ps_transport *t, const char *url, uint32_t number);
/* With other limits or another pass (NULL: none); link_open's result. After a failure only c->hub is there.
 */
int rig_client_try(struct rig_client *c, const struct ps_transport *t, const char *url,
                   const struct ps_transport_limits *limits, const struct ps_pass *pass,
                   struct ps_error *err);
/* link_open, and anew when it failed only because either end stood still for longer than PS_ATTACH_MS: that
 * is no answer of the port's. */
int rig_link_open(struct ps_hub *hub, const struct ps_transport *t, const char *url,
                  const struct ps_transport_limits *limits, struct ps_link **out, struct ps_error *err);
void rig_client_close(struct rig_client *c);

void rig_head(unsigned char *head, uint64_t number);
uint64_t rig_number(const struct ps_message *m);
void rig_send(struct rig_client *c, uint64_t number, const void *body, size_t len);
/* 0, -ETIMEDOUT, -ECONNRESET. */
int rig_recv(struct rig_client *c, struct ps_message *m, int patience_ms);
/* One message there and back; false: the wrong bytes, or none. */
bool rig_trip_is_right(struct rig_client *c, uint64_t number, size_t len);
#define rig_trip(c, number, len)                                                                             \
    do {                                                                                                     \
        if (!rig_trip_is_right(c, number, len))                                                              \
            ck_abort_msg("message %u of %zu bytes", (unsigned)(number), (size_t)(len));                      \
    } while (0)

#endif
