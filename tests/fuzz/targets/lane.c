/* A lane that serves what peers send: the input's first byte chooses rule, phase and admission, then come
 * struct fuzz_record, each a request. Every request is answered once, refused requests leave the center as it
 * was, and whatever comes the center stays finite. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/codecs/codec.h"
#include "proto/log.h"
#include "server/admissions/admissions.h"
#include "server/lane/lane.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/lane_record.h"
#include "tests/fuzz/stub_transport.h"

enum { N_FLOATS = 3000, N_FROZEN_FROM = 1700, N_SLOTS = 4 };

/* The last answer. */
static struct ps_message last;

static void keep(struct ps_message *m)
{
    last = *m;
}

static struct psd_shared shared;
static struct psd_center *center;
static struct psd_lane *lane;

static void send_command(enum psd_lane_message_kind kind, uint32_t client, uint64_t a, void *p)
{
    const struct psd_lane_message note = {
        .kind = kind, .client = client, .incarnation = FUZZ_INCARNATION, .a = a, .p = p};
    struct psd_lane_message out;
    psd_queue_push(lane->in, &note);
    psd_lane_take_commands(lane);
    while (psd_queue_take(lane->out, &out))
        promise(out.kind != PSD_LANE_SNAPPED || kind == PSD_COMMAND_SNAPSHOT);
}

/* Made once for each choice: its vectors are huge pages. */
static struct psd_center *center_of(bool elastic, bool hogwild, bool fragments)
{
    static struct psd_center *made[2][2][2];
    struct psd_center **c = &made[elastic][hogwild][fragments];
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
        cfg.hyper.fragments = fragments ? 2 : 1;
        cfg.lanes = 2;
        cfg.chunk_floats = 1024;
        promise(ps_manifest_create(tensors, sizeof tensors / sizeof *tensors, N_FLOATS, &manifest, &err) ==
                0);
        promise(psd_center_create(&cfg, psd_admission_find(cfg.admission), manifest, c, &err) == 0);
    }
    memset((*c)->x, 0, N_FLOATS * sizeof(float));
    if ((*c)->z != NULL)
        memset((*c)->z, 0, N_FLOATS * sizeof(float));
    return *c;
}

static const struct ps_transport_limits limits = {.max_body_bytes = 8192, .window_chunks = 4};

static void open_lane(uint8_t choice)
{
    const bool elastic = choice & 1, offering = choice & 2, hogwild = choice & 4, fragments = choice & 8;
    struct ps_error err = {""};

    center = center_of(elastic, hogwild, fragments);
    promise(psd_shared_init(&shared, N_SLOTS, 1) == 0);
    shared.alpha = elastic ? 0.5f : 0;
    shared.mean_rate = 0.5f;
    const struct psd_lane_options opt = {.shared = &shared};
    promise(psd_lane_create(&opt, &lane, &err) == 0);
    promise(psd_lane_add_port(lane, &fuzz_transport, NULL, "", &limits, &err) == 0);
    send_command(PSD_COMMAND_SLICE, 0, 0, center);
    send_command(PSD_COMMAND_ADMIT, 0, offering ? PSD_PHASE_OFFERING : PSD_PHASE_ACTIVE, NULL);
    send_command(PSD_COMMAND_ADMIT, 1, PSD_PHASE_ACTIVE, NULL);
    send_command(PSD_COMMAND_ADMIT, 2, PSD_PHASE_OBSERVING, NULL);
}

static void close_lane(void)
{
    psd_lane_destroy(lane);
    psd_shared_finish(&shared);
}

static bool answered_with_floats(uint8_t kind)
{
    return kind == PS_FRAME_EXCHANGE || kind == PS_FRAME_ADD || kind == PS_FRAME_PULL;
}

static void check_answer(const struct ps_frame *asked, bool parsed, const float *before)
{
    const size_t len_bytes = N_FLOATS * sizeof *before;
    struct ps_frame f;
    promise(ps_frame_parse(&f, last.head, last.head_bytes, NULL) == 0);
    if (parsed)
        promise(f.seq == asked->seq && f.client == asked->client && f.begin == asked->begin);
    if (f.kind == PS_FRAME_ERROR) {
        promise(f.code > 0 && last.body_bytes > 0 && last.body_bytes <= PS_MAX_SENTENCE);
        promise(f.code == PS__CODE__VALUE || memcmp(before, center->x, len_bytes) == 0);
        return;
    }
    promise(f.kind == PS_FRAME_ANSWER && parsed);
    promise(last.body_bytes == (answered_with_floats(asked->kind) ? f.count * sizeof(float) : 0));
    if (f.flags & PS_FLAG_REPLAYED || asked->kind == PS_FRAME_PULL)
        promise(memcmp(before, center->x, len_bytes) == 0);
    if (asked->kind == PS_FRAME_PULL) {
        const float *from = asked->flags & PS_FLAG_AVERAGE ? center->z : center->x;
        promise(from != NULL && memcmp(last.body, from + f.begin, last.body_bytes) == 0);
    }
}

static void serve(const struct fuzz_record *r)
{
    static float before[N_FLOATS];
    struct psd_arrival a = {.port = &lane->ports[0]};
    struct ps_frame asked = {0};
    struct psd_lane_message out;

    fuzz_message_of(&a.message, r);
    bool parsed = ps_frame_parse(&asked, a.message.head, a.message.head_bytes, NULL) == 0;
    memcpy(before, center->x, sizeof before);
    fuzz_far.replies = fuzz_far.drops = 0;
    psd_lane_serve(lane, &a, r->shape & FUZZ_PARTS_BAD ? -EBADMSG : 0);
    promise(fuzz_far.replies == 1 && fuzz_far.drops == 0);
    check_answer(&asked, parsed && !(r->shape & FUZZ_PARTS_BAD), before);
    for (int i = 0; i < N_FLOATS; i++)
        promise(isfinite(center->x[i]) && (center->z == NULL || isfinite(center->z[i])));
    if (asked.kind != PS_FRAME_SET && asked.kind != PS_FRAME_OFFER)
        promise(memcmp(before + N_FROZEN_FROM, center->x + N_FROZEN_FROM,
                       (N_FLOATS - N_FROZEN_FROM) * sizeof *before) == 0);
    free(last.head);
    free(last.body);
    while (psd_queue_take(lane->out, &out))
        promise(out.kind == PSD_LANE_FAULT || out.kind == PSD_LANE_FILLED || out.kind == PSD_LANE_UNFILLED);
    if (r->shape & FUZZ_ADMIT_AFTER)
        send_command(PSD_COMMAND_ADMIT, r->length % N_SLOTS, PSD_PHASE_ACTIVE, NULL);
    if (r->shape & FUZZ_END_AFTER)
        send_command(PSD_COMMAND_END, r->length % N_SLOTS, PS__CODE__NO_SESSION, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct fuzz_record record;
    if (len < 1)
        return 0;
    ps_log_setup("fuzz", PS_LOG_ERROR);
    fuzz_far.answered = keep;
    open_lane(bytes[0]);
    for (size_t at = 1; at + sizeof record <= len; at += sizeof record) {
        memcpy(&record, bytes + at, sizeof record);
        serve(&record);
    }
    close_lane();
    return 0;
}
