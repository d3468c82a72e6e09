#include "server/auth/zap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "proto/security/curve.h"

enum { BATCH = 256, VERSION = 0, REQUEST_ID, DOMAIN, ADDRESS, IDENTITY, MECHANISM, KEY, PARTS };

struct request {
    zmq_msg_t part[PARTS];
    int n; /* number of parts received */
};

/* Receives a request, or -EAGAIN. Only libzmq itself can send one: the endpoint is in this process. */
static int recv_request(void *socket, struct request *r)
{
    int more = 1;
    for (int i = 0; i < PARTS; i++)
        zmq_msg_init(&r->part[i]);
    for (r->n = 0; more && r->n < PARTS; r->n++) {
        if (zmq_msg_recv(&r->part[r->n], socket, ZMQ_DONTWAIT) < 0)
            return -EAGAIN;
        more = zmq_msg_more(&r->part[r->n]);
    }
    while (more) {
        zmq_msg_t extra;
        zmq_msg_init(&extra);
        more = zmq_msg_recv(&extra, socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&extra);
        zmq_msg_close(&extra);
        r->n++;
    }
    return 0;
}

static bool part_is(zmq_msg_t *part, const char *text)
{
    return zmq_msg_size(part) == strlen(text) && memcmp(zmq_msg_data(part), text, strlen(text)) == 0;
}

/* Writes one property of ZMTP's metadata: one byte for the name's length, the name, four bytes for the
 * value's length, the value. */
static size_t put_property(unsigned char *to, const char *name, const char *value)
{
    size_t n = strlen(name), len = strlen(value);
    to[0] = (unsigned char)n;
    memcpy(to + 1, name, n);
    to[1 + n] = to[2 + n] = to[3 + n] = 0;
    to[4 + n] = (unsigned char)len;
    memcpy(to + 5 + n, value, len);
    return 5 + n + len;
}

static void reply(void *socket, zmq_msg_t *request_id, bool allowed, const char *name, uint64_t id)
{
    unsigned char metadata[64];
    char number[24];
    const char *status = allowed ? "200" : "400", *why = allowed ? "OK" : "not allowed";
    size_t len = 0;
    if (allowed) {
        snprintf(number, sizeof number, "%" PRIu64, id);
        len = put_property(metadata, PS_CURVE_ID_PROPERTY, number);
    }
    zmq_send(socket, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(socket, zmq_msg_data(request_id), zmq_msg_size(request_id), ZMQ_SNDMORE);
    zmq_send(socket, status, 3, ZMQ_SNDMORE);
    zmq_send(socket, why, strlen(why), ZMQ_SNDMORE);
    zmq_send(socket, name, strlen(name), ZMQ_SNDMORE);
    zmq_send(socket, metadata, len, 0);
}

static void answer(struct psd_zap *z, struct request *r)
{
    char address[64] = "unknown address";
    const char *name = "";
    uint64_t id = 0;
    bool whole = r->n == PARTS && part_is(&r->part[VERSION], "1.0");
    bool curve =
        whole && part_is(&r->part[MECHANISM], "CURVE") && zmq_msg_size(&r->part[KEY]) == PS_CURVE_KEY_BYTES;
    size_t n = r->n > ADDRESS ? zmq_msg_size(&r->part[ADDRESS]) : 0;
    if (n > 0)
        snprintf(address, sizeof address, "%.*s", (int)n, (const char *)zmq_msg_data(&r->part[ADDRESS]));
    bool allowed = z->decide(z->arg, address, curve ? zmq_msg_data(&r->part[KEY]) : NULL, &name, &id);
    reply(z->socket, &r->part[REQUEST_ID], allowed, allowed ? name : "", id);
}

/* Answers at most one batch; the rest follows in the loop's next iteration. */
static void look(struct psd_zap *z)
{
    struct request r;
    for (int i = 0; i < BATCH; i++) {
        int rc = recv_request(z->socket, &r);
        if (rc == 0)
            answer(z, &r);
        for (int k = 0; k < PARTS; k++)
            zmq_msg_close(&r.part[k]);
        if (rc < 0)
            return;
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    look(poll->data);
}

/* ZeroMQ's descriptor only signals changes: look before each wait. */
static void on_prepare(uv_prepare_t *prepare)
{
    look(prepare->data);
}

int psd_zap_open(struct psd_zap *z, uv_loop_t *loop, void *context, psd_zap_decide *decide, void *arg,
                 struct ps_error *err)
{
    int fd, zero = 0, rc;
    size_t size = sizeof fd;
    *z = (struct psd_zap){.decide = decide, .arg = arg};
    if ((z->socket = zmq_socket(context, ZMQ_REP)) == NULL ||
        zmq_setsockopt(z->socket, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_setsockopt(z->socket, ZMQ_RCVHWM, &zero, sizeof zero) != 0 ||
        zmq_setsockopt(z->socket, ZMQ_SNDHWM, &zero, sizeof zero) != 0 ||
        zmq_bind(z->socket, "inproc://zeromq.zap.01") != 0 ||
        zmq_getsockopt(z->socket, ZMQ_FD, &fd, &size) != 0) {
        rc = ps_fail(err, -zmq_errno(), "cannot create the socket that authenticates peers: %s",
                     zmq_strerror(zmq_errno()));
        if (z->socket != NULL)
            zmq_close(z->socket);
        z->socket = NULL;
        return rc;
    }
    z->poll.data = z->prepare.data = z;
    uv_poll_init(loop, &z->poll, fd);
    uv_poll_start(&z->poll, UV_READABLE, on_readable);
    uv_prepare_init(loop, &z->prepare);
    uv_prepare_start(&z->prepare, on_prepare);
    return 0;
}

void psd_zap_close(struct psd_zap *z)
{
    if (z->socket == NULL)
        return;
    uv_close((uv_handle_t *)&z->poll, NULL);
    uv_close((uv_handle_t *)&z->prepare, NULL);
    zmq_close(z->socket);
    z->socket = NULL;
}
