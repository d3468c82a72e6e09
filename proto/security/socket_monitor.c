#include "proto/security/socket_monitor.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

static const struct {
    uint16_t event;
    enum ps_watch_kind kind;
} rows[] = {
    {ZMQ_EVENT_ACCEPTED, PS_WATCH_OPEN},
    {ZMQ_EVENT_CONNECTED, PS_WATCH_OPEN},
    {ZMQ_EVENT_HANDSHAKE_SUCCEEDED, PS_WATCH_SHAKEN},
    {ZMQ_EVENT_HANDSHAKE_FAILED_AUTH, PS_WATCH_REFUSED},
    {ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL, PS_WATCH_BROKEN},
    {ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL, PS_WATCH_BROKEN},
    {ZMQ_EVENT_DISCONNECTED, PS_WATCH_CLOSED},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

int ps_watch_open(void *context, void *socket, void **watch)
{
    char place[64];
    int zero = 0, events = 0, rc;
    void *pair = zmq_socket(context, ZMQ_PAIR);
    if (pair == NULL)
        return -zmq_errno();
    for (int i = 0; i < N_ROWS; i++)
        events |= rows[i].event;
    snprintf(place, sizeof place, "inproc://watch-%p", socket);
    /* No limit, because libzmq's I/O thread would block. A peer has to open a connection for each event. */
    if (zmq_setsockopt(pair, ZMQ_RCVHWM, &zero, sizeof zero) != 0 ||
        zmq_setsockopt(pair, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_socket_monitor(socket, place, events) != 0) {
        rc = -zmq_errno();
        zmq_close(pair);
        return rc;
    }
    if (zmq_connect(pair, place) != 0) {
        rc = -zmq_errno();
        zmq_socket_monitor(socket, NULL, 0);
        zmq_close(pair);
        return rc;
    }
    *watch = pair;
    return 0;
}

static void drop_rest(void *watch, bool more)
{
    zmq_msg_t msg;
    while (more) {
        zmq_msg_init(&msg);
        more = zmq_msg_recv(&msg, watch, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&msg);
        zmq_msg_close(&msg);
    }
}

/* The first part has the event (16 bits) and value (32), the second the address of this end. */
static bool take_one(void *watch, uint16_t *event, uint32_t *value)
{
    zmq_msg_t msg;
    bool got;
    zmq_msg_init(&msg);
    got = zmq_msg_recv(&msg, watch, ZMQ_DONTWAIT) >= 0;
    *event = 0;
    *value = 0;
    if (got && zmq_msg_size(&msg) >= sizeof *event + sizeof *value) {
        const char *at = zmq_msg_data(&msg);
        memcpy(event, at, sizeof *event);
        memcpy(value, at + sizeof *event, sizeof *value);
    }
    drop_rest(watch, got && zmq_msg_more(&msg));
    zmq_msg_close(&msg);
    return got;
}

int ps_watch_take(void *watch, struct ps_watch_event *event)
{
    uint16_t what;
    uint32_t value;
    while (take_one(watch, &what, &value))
        for (int i = 0; i < N_ROWS; i++) {
            if (rows[i].event != what)
                continue;
            bool mismatch = what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
                            value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH;
            *event = (struct ps_watch_event){mismatch ? PS_WATCH_MISMATCH : rows[i].kind, value};
            return 0;
        }
    return -EAGAIN;
}

void ps_watch_close(void *socket, void *watch)
{
    if (watch == NULL)
        return;
    zmq_socket_monitor(socket, NULL, 0); /* first: nothing may block on a closed socket */
    zmq_close(watch);
}
