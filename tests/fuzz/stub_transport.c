#include "tests/fuzz/stub_transport.h"

#include <stdlib.h>
#include <string.h>

struct fuzz_far fuzz_far;

static const char *port_url(const struct ps_port *port)
{
    (void)port;
    return "fuzz";
}

static int port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err)
{
    (void)hub, (void)url, (void)limits, (void)err;
    *out = NULL;
    return 0;
}

static void port_close(struct ps_port *port)
{
    (void)port;
}

static void message_make(struct ps_message *m, size_t head_bytes, size_t body_bytes)
{
    m->head = malloc(head_bytes + 1);
    m->head_bytes = head_bytes;
    m->body = malloc(body_bytes + 1);
    m->body_bytes = body_bytes;
    m->ownership = PS_BODY_PRIVATE;
}

void fuzz_message_free(struct ps_message *m)
{
    free(m->head);
    free(m->body);
    m->head = m->body = NULL;
}

static int message_body(struct ps_message *m, size_t len_bytes)
{
    free(m->body);
    m->body = malloc(len_bytes + 1);
    m->body_bytes = len_bytes;
    if (m->head_bytes != PS_FRAME_BYTES) {
        free(m->head);
        m->head = calloc(1, PS_FRAME_BYTES);
        m->head_bytes = PS_FRAME_BYTES;
    }
    return 0;
}

static int port_reply(struct ps_port *port, struct ps_message *m)
{
    (void)port;
    fuzz_far.replies++;
    fuzz_far.answered(m);
    return 0;
}

static void message_drop(struct ps_message *m)
{
    fuzz_far.drops++;
    fuzz_message_free(m);
}

static void message_move(struct ps_message *to, struct ps_message *m)
{
    to->head = m->head;
    to->head_bytes = m->head_bytes;
    to->body = m->body;
    to->body_bytes = m->body_bytes;
    to->ownership = m->ownership;
    m->head = m->body = NULL;
}

const struct ps_transport fuzz_transport = {.name = "fuzz",
                                            .port_open = port_open,
                                            .port_close = port_close,
                                            .port_url = port_url,
                                            .message_body = message_body,
                                            .port_reply = port_reply,
                                            .message_drop = message_drop,
                                            .message_move = message_move};

void fuzz_message_of(struct ps_message *m, const struct fuzz_record *r)
{
    struct ps_frame f;
    size_t head_bytes = r->shape & FUZZ_HEAD_SHORT ? r->length % PS_FRAME_BYTES : PS_FRAME_BYTES,
           body_bytes = 0;
    if (r->shape & FUZZ_BODY_GIVEN)
        body_bytes = r->length;
    else if (ps_frame_parse(&f, r->head, sizeof r->head, NULL) == 0 && f.count <= 1024 &&
             f.kind != PS_FRAME_PULL)
        body_bytes = f.count * sizeof(float);
    message_make(m, head_bytes, body_bytes);
    memcpy(m->head, r->head, head_bytes);
    for (size_t i = 0; i + sizeof r->value <= body_bytes; i += sizeof r->value)
        memcpy(m->body + i, i / sizeof r->value % 7 == 0 ? &r->odd : &r->value, sizeof r->value);
    memset(m->body + body_bytes / 4 * 4, 0x7f, body_bytes % 4);
}
