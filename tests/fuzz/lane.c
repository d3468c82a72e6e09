/* A lane that serves what peers send: the input's first byte chooses rule, phase and admission, then come
 * struct fuzz_record, each a request. Every request is answered once, refused requests leave the center as it
 * was, and whatever comes the center stays finite. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/log.h"
#include "server/lane.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/lane_record.h"

enum { N_FLOATS = 3000, N_FROZEN_FROM = 1700, N_SLOTS = 4 };

/* The far end of the road: keeps the last answer. */
static struct {
    int replies, drops;
    struct ps_message last;
} far;

static int port_open(struct ps_hub *hub, const char *url, const struct ps_road_limits *limits,
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
    far.replies++;
    far.last = *m;
    return 0;
}

static void message_drop(struct ps_message *m)
{
    far.drops++;
    free(m->head);
    free(m->body);
}

static const struct ps_transport road = {.name = "fuzz",
                                         .port_open = port_open,
                                         .port_close = port_close,
                                         .message_body = message_body,
                                         .port_reply = port_reply,
                                         .message_drop = message_drop};

static struct psd_shared shared;
static struct psd_center *center;
static struct psd_lane *lane;

static void tell(enum psd_note_kind kind, uint32_t client, uint64_t a, void *p)
{
    const struct psd_note note = {
        .kind = kind, .client = client, .incarnation = FUZZ_INCARNATION, .a = a, .p = p};
    struct psd_note out;
    psd_ring_push(lane->in, &note);
    psd_lane_take_notes(lane);
    while (psd_ring_take(lane->out, &out))
        promise(out.kind != PSD_NOTE_SNAPPED || kind == PSD_NOTE_SNAPSHOT);
}

/* Made once for each rule and admission: its vectors are huge pages. */
static struct psd_center *center_of(bool elastic, bool hogwild)
{
    static struct psd_center *made[2][2];
    struct psd_center **c = &made[elastic][hogwild];
    const struct ps_tensor tensors[] = {
        {(char[]){"a"}, 0, {FUZZ_FIRST_TENSOR}, 1, PS_ROLE_PARAM},
        {(char[]){"b"}, FUZZ_FIRST_TENSOR, {300}, 1, PS_ROLE_BUFFER},
        {(char[]){"c"}, 1200, {N_FROZEN_FROM - 1200}, 1, PS_ROLE_PARAM},
        {(char[]){"d"}, N_FROZEN_FROM, {N_FLOATS - N_FROZEN_FROM}, 1, PS_ROLE_FROZEN}};
    struct ps_manifest *manifest;
    struct ps_error err = {""};
    struct psd_config cfg;

    if (*c == NULL) {
        psd_config_defaults(&cfg);
        snprintf(cfg.rule, sizeof cfg.rule, elastic ? "elastic" : "sgd");
        snprintf(cfg.admission, sizeof cfg.admission, hogwild ? "hogwild" : "fcfs");
        snprintf(cfg.averaging, sizeof cfg.averaging, elastic ? "mean" : "none");
        cfg.lanes = 2;
        cfg.chunk_floats = 1024;
        promise(ps_manifest_create(tensors, sizeof tensors / sizeof *tensors, N_FLOATS, &manifest, &err) ==
                0);
        promise(psd_center_create(&cfg, manifest, c, &err) == 0);
    }
    memset((*c)->x, 0, N_FLOATS * sizeof(float));
    if ((*c)->z != NULL)
        memset((*c)->z, 0, N_FLOATS * sizeof(float));
    return *c;
}

static void open_lane(uint8_t choice)
{
    const bool elastic = choice & 1, offering = choice & 2, hogwild = choice & 4;
    struct ps_error err = {""};

    center = center_of(elastic, hogwild);
    promise(psd_shared_init(&shared, N_SLOTS, 1) == 0);
    shared.alpha = elastic ? 0.5f : 0;
    shared.mean_rate = 0.5f;
    const struct psd_lane_options opt = {.transport = &road, .limits = {8192, 4}, .shared = &shared};
    promise(psd_lane_create(&opt, &lane, &err) == 0);
    tell(PSD_NOTE_SLICE, 0, 0, center);
    tell(PSD_NOTE_ADMIT, 0, offering ? PSD_PHASE_OFFERING : PSD_PHASE_ACTIVE, NULL);
    tell(PSD_NOTE_ADMIT, 1, PSD_PHASE_ACTIVE, NULL);
    tell(PSD_NOTE_ADMIT, 2, PSD_PHASE_OBSERVING, NULL);
}

static void close_lane(void)
{
    psd_lane_destroy(lane);
    psd_shared_finish(&shared);
}

/* The message that a record stands for. */
static void make_message(struct ps_message *m, const struct fuzz_record *r)
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

static void check_answer(const struct ps_frame *asked, bool parsed, const float *before)
{
    const size_t len_bytes = N_FLOATS * sizeof *before;
    struct ps_frame f;
    promise(ps_frame_parse(&f, far.last.head, far.last.head_bytes, NULL) == 0);
    if (parsed)
        promise(f.seq == asked->seq && f.client == asked->client && f.begin == asked->begin);
    if (f.kind == PS_FRAME_ERROR) {
        promise(f.code > 0 && far.last.body_bytes > 0 && far.last.body_bytes <= PS_MAX_SENTENCE);
        promise(f.code == PS__CODE__VALUE || memcmp(before, center->x, len_bytes) == 0);
        return;
    }
    promise(f.kind == PS_FRAME_ANSWER && parsed);
    promise(asked->kind == PS_FRAME_EXCHANGE || asked->kind == PS_FRAME_PULL
                ? far.last.body_bytes == f.count * sizeof(float)
                : far.last.body_bytes == 0);
    if (f.flags & PS_FLAG_REPLAYED || asked->kind == PS_FRAME_PULL)
        promise(memcmp(before, center->x, len_bytes) == 0);
    if (asked->kind == PS_FRAME_PULL) {
        const float *from = asked->flags & PS_FLAG_AVERAGE ? center->z : center->x;
        promise(from != NULL && memcmp(far.last.body, from + f.begin, far.last.body_bytes) == 0);
    }
}

static void serve(const struct fuzz_record *r)
{
    static float before[N_FLOATS];
    struct psd_arrival a = {0};
    struct ps_frame asked = {0};
    struct psd_note out;

    make_message(&a.message, r);
    bool parsed = ps_frame_parse(&asked, a.message.head, a.message.head_bytes, NULL) == 0;
    memcpy(before, center->x, sizeof before);
    far.replies = far.drops = 0;
    psd_lane_serve(lane, &a, r->shape & FUZZ_PARTS_BAD ? -EBADMSG : 0);
    promise(far.replies == 1 && far.drops == 0);
    check_answer(&asked, parsed && !(r->shape & FUZZ_PARTS_BAD), before);
    for (int i = 0; i < N_FLOATS; i++)
        promise(isfinite(center->x[i]) && (center->z == NULL || isfinite(center->z[i])));
    if (asked.kind != PS_FRAME_SET && asked.kind != PS_FRAME_OFFER)
        promise(memcmp(before + N_FROZEN_FROM, center->x + N_FROZEN_FROM,
                       (N_FLOATS - N_FROZEN_FROM) * sizeof *before) == 0);
    free(far.last.head);
    free(far.last.body);
    while (psd_ring_take(lane->out, &out))
        promise(out.kind == PSD_NOTE_FAULT || out.kind == PSD_NOTE_FILLED);
    if (r->shape & FUZZ_ADMIT_AFTER)
        tell(PSD_NOTE_ADMIT, r->length % N_SLOTS, PSD_PHASE_ACTIVE, NULL);
    if (r->shape & FUZZ_END_AFTER)
        tell(PSD_NOTE_END, r->length % N_SLOTS, PS__CODE__NO_SESSION, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct fuzz_record record;
    if (len < 1)
        return 0;
    ps_log_setup("fuzz", PS_LOG_ERROR);
    open_lane(bytes[0]);
    for (size_t at = 1; at + sizeof record <= len; at += sizeof record) {
        memcpy(&record, bytes + at, sizeof record);
        serve(&record);
    }
    close_lane();
    return 0;
}
