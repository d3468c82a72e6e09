/* A lane with members, under rounds or not: the input's first byte chooses rule and admission, then come
 * struct fuzz_record, each a request, and after it what the loop may do. Whatever comes, the center stays
 * finite, a message is answered, dropped or staged and never two of these, no client stages more than its
 * window, and a chunk's rounds never go back; without rounds, who is left alone waits for nothing. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"
#include "server/lane/rounds.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/stub_transport.h"

enum { N_FLOATS = 3000, N_FROZEN_FROM = 1700, N_SLOTS = 4, N_CHUNKS = 3 };

static struct psd_shared shared;
static struct psd_center *center;
static struct psd_lane *lane;
static int served;

static const struct {
    const char *rule, *admission;
    bool serial;
    uint32_t slack, fragments;
} jobs[] = {
    {"elastic", "sync", false},        {"sgd", "sync", false},        {"add", "sync", false},
    {"elastic", "round-robin", false}, {"sgd", "round-robin", true},  {"elastic", "round-robin", true},
    {"momentum", "sync", false},       {"add", "round-robin", false}, {"sgd", "ssp", false, 0},
    {"elastic", "ssp", false, 1},      {"sgd", "quorum", false},      {"elastic", "backup", false},
    {"add", "sync", false, 0, 2},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

static void check_answer(struct ps_message *m)
{
    struct ps_frame f;
    promise(ps_frame_parse(&f, m->head, m->head_bytes, NULL) == 0);
    promise(f.kind == PS_FRAME_ANSWER || f.kind == PS_FRAME_ERROR);
    promise(f.kind == PS_FRAME_ANSWER ||
            (f.code > 0 && m->body_bytes > 0 && m->body_bytes <= PS_MAX_SENTENCE));
    fuzz_message_free(m);
}

/* The loop's part under cuts: rounds of two, whose third candidate is late. */
static struct {
    struct psd_members cut;
    uint32_t ranks[N_SLOTS], n;
    uint64_t seqs[N_SLOTS], round;
    bool under_way;
    unsigned open; /* bits of clients of whom something is not settled */
} loop;

static void push(enum psd_lane_message_kind kind, uint32_t client, uint64_t a, uint64_t b, void *p)
{
    psd_queue_push(lane->in,
                   &(struct psd_lane_message){.kind = kind, .client = client, .a = a, .b = b, .p = p});
}

static void close_round(void)
{
    static uint32_t ranks[N_SLOTS];
    static uint64_t seqs[N_SLOTS];
    uint32_t first = loop.ranks[0] < loop.ranks[1] ? 0 : 1;
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = loop.ranks[i == 0 ? first : 1 - first];
        seqs[i] = loop.seqs[i == 0 ? first : 1 - first];
        loop.open &= ~(1u << ranks[i]);
    }
    loop.cut = (struct psd_members){loop.round++, 2, ranks, seqs};
    loop.n = 0;
    loop.under_way = true;
    push(PSD_COMMAND_CLOSE_ROUND, 0, 0, 0, &loop.cut);
}

static void take_begun(const struct psd_lane_message *note)
{
    promise((loop.open & 1u << note->client) == 0); /* one of each client at a time */
    loop.open |= 1u << note->client;
    if (note->kind == PSD_LANE_LANDED || loop.n == 2 || note->b < loop.round) {
        loop.open &= ~(1u << note->client);
        push(PSD_COMMAND_LATE, note->client, note->a, loop.round, NULL);
        return;
    }
    loop.ranks[loop.n] = note->client;
    loop.seqs[loop.n++] = note->a;
}

/* Its session has ended, and the lane knows. */
static void forget(uint32_t client)
{
    loop.open &= ~(1u << client);
    for (uint32_t i = 0; i < loop.n; i++)
        if (loop.ranks[i] == client) {
            loop.ranks[i] = loop.ranks[1];
            loop.seqs[i] = loop.seqs[1];
            loop.n--;
            return;
        }
}

static uint64_t hear(void)
{
    struct psd_lane_message out;
    uint64_t held = 0;
    while (psd_queue_take(lane->out, &out)) {
        if (out.kind == PSD_LANE_HELD)
            held = out.a;
        else if (out.kind == PSD_LANE_BEGUN || out.kind == PSD_LANE_LANDED)
            take_begun(&out);
        else if (out.kind == PSD_LANE_OVER) {
            promise(loop.under_way && out.a == loop.cut.from);
            loop.under_way = false;
        }
        if (loop.n == 2 && !loop.under_way)
            close_round();
        psd_lane_take_commands(lane);
    }
    return held;
}

static uint64_t send_command(enum psd_lane_message_kind kind, uint32_t client, uint64_t a, void *p)
{
    psd_queue_push(lane->in,
                   &(struct psd_lane_message){
                       .kind = kind, .client = client, .incarnation = FUZZ_INCARNATION, .a = a, .p = p});
    psd_lane_take_commands(lane);
    return hear();
}

/* Made once for each job: its vectors are huge pages. */
static struct psd_center *center_of(unsigned job)
{
    static struct psd_center *made[N_JOBS];
    struct psd_center **c = &made[job];
    const struct ps_tensor tensors[] = {
        {(char[]){"a"}, 0, {FUZZ_FIRST_TENSOR}, 1, PS_ROLE_PARAM},
        {(char[]){"b"}, FUZZ_FIRST_TENSOR, {300}, 1, PS_ROLE_BUFFER},
        {(char[]){"c"}, 1200, {N_FROZEN_FROM - 1200}, 1, PS_ROLE_PARAM},
        {(char[]){"d"}, N_FROZEN_FROM, {N_FLOATS - N_FROZEN_FROM}, 1, PS_ROLE_FROZEN}};
    struct ps_manifest *manifest;
    struct psd_config cfg;
    if (*c == NULL) {
        psd_config_defaults(&cfg);
        snprintf(cfg.rule, sizeof cfg.rule, "%s", jobs[job].rule);
        snprintf(cfg.admission, sizeof cfg.admission, "%s", jobs[job].admission);
        snprintf(cfg.averaging, sizeof cfg.averaging, "none");
        cfg.hyper.alpha = 0.5;
        cfg.hyper.serial = jobs[job].serial;
        cfg.hyper.slack = jobs[job].slack;
        cfg.hyper.fragments = jobs[job].fragments > 0 ? jobs[job].fragments : 1;
        cfg.lanes = 1;
        cfg.chunk_floats = 1024;
        promise(ps_manifest_create(tensors, sizeof tensors / sizeof *tensors, N_FLOATS, &manifest, NULL) ==
                0);
        promise(psd_center_create(&cfg, psd_admission_find(cfg.admission), manifest, c, NULL) == 0);
    }
    memset((*c)->x, 0, N_FLOATS * sizeof(float));
    for (uint32_t i = 0; i < (*c)->rule->n_state; i++)
        memset((*c)->state[i], 0, N_FLOATS * sizeof(float));
    return *c;
}

static void publish(uint64_t from, unsigned bits)
{
    static uint32_t ranks[N_SLOTS];
    struct psd_members members = {.from = from, .ranks = ranks};
    for (uint32_t i = 0; i < N_SLOTS; i++)
        if (bits & 1u << i)
            ranks[members.n++] = i;
    send_command(PSD_COMMAND_MEMBERS, 0, 0, &members);
    send_command(PSD_COMMAND_GO, 0, 0, NULL);
}

static const struct ps_transport_limits limits = {.max_body_bytes = 8192, .window_chunks = 4};

static void open_lane(unsigned job)
{
    struct ps_error err = {""};
    center = center_of(job);
    promise(psd_shared_init(&shared, N_SLOTS, 1) == 0);
    shared.alpha = 0.5f;
    shared.mean_rate = 0.5f;
    const struct psd_lane_options opt = {.shared = &shared};
    promise(psd_lane_create(&opt, &lane, &err) == 0);
    promise(psd_lane_add_port(lane, &fuzz_transport, NULL, "", &limits, &err) == 0);
    send_command(PSD_COMMAND_SLICE, 0, 0, center);
    promise(lane->rounds != NULL && lane->n_chunks == N_CHUNKS);
    for (uint32_t i = 0; i < N_SLOTS; i++)
        send_command(PSD_COMMAND_ADMIT, i, PSD_PHASE_ACTIVE, NULL);
    publish(0, 3);
}

static int count_staged(void)
{
    int n = 0;
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        uint32_t waiting = atomic_load(&lane->clients[i].waiting_chunks);
        promise(waiting <= center->window_chunks);
        n += (int)waiting;
    }
    return n;
}

/* What the loop may do between two messages. */
static void act(const struct fuzz_record *r)
{
    uint32_t client = r->length % N_SLOTS;
    if (r->shape & FUZZ_ADMIT_AFTER) {
        send_command(PSD_COMMAND_ADMIT, client, PSD_PHASE_ACTIVE, NULL);
        forget(client);
    }
    if (r->shape & FUZZ_END_AFTER) {
        send_command(PSD_COMMAND_END, client, PS__CODE__NO_SESSION, NULL);
        forget(client);
    }
    if (r->shape & FUZZ_MEMBERS_AFTER)
        publish(send_command(PSD_COMMAND_HOLD, 0, 0, NULL), r->length >> 2 & 15);
    if (served % 4 == 0) /* in between, moves copy */
        psd_lane_copy_more(lane);
    if (r->shape & FUZZ_SNAPSHOT_AFTER && !lane->rounds->saving && lane->snap.to == NULL) {
        uint64_t first = send_command(PSD_COMMAND_HOLD, 0, 0, NULL);
        send_command(PSD_COMMAND_SNAPSHOT, 0, first + 1, &center->snapshot);
        send_command(PSD_COMMAND_GO, 0, 0, NULL);
    }
}

static void serve(const struct fuzz_record *r)
{
    uint64_t done[N_CHUNKS];
    struct psd_arrival a = {.port = &lane->ports[0]};
    memcpy(done, lane->rounds->done, sizeof done);
    fuzz_message_of(&a.message, r);
    served++;
    psd_lane_serve(lane, &a, r->shape & FUZZ_PARTS_BAD ? -EBADMSG : 0);
    hear();
    act(r);
    promise(fuzz_far.replies + fuzz_far.drops + count_staged() == served);
    for (int k = 0; k < N_CHUNKS; k++)
        promise(lane->rounds->done[k] >= done[k]);
    for (int i = 0; i < N_FLOATS; i++)
        promise(isfinite(center->x[i]));
}

/* Without rounds who is alone waits for nobody. */
static void leave_alone(uint32_t client)
{
    publish(send_command(PSD_COMMAND_HOLD, 0, 0, NULL), (1u << N_SLOTS) - 1);
    for (uint32_t i = 0; i < N_SLOTS; i++)
        if (i != client)
            send_command(PSD_COMMAND_END, i, PS__CODE__NO_SESSION, NULL);
    promise(count_staged() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct fuzz_record record;
    if (len < 1)
        return 0;
    ps_log_setup("fuzz", PS_LOG_ERROR);
    fuzz_far = (struct fuzz_far){.answered = check_answer};
    served = 0;
    memset(&loop, 0, sizeof loop);
    open_lane(bytes[0] % N_JOBS);
    for (size_t at = 1; at + sizeof record <= len; at += sizeof record) {
        memcpy(&record, bytes + at, sizeof record);
        serve(&record);
    }
    if (!center->admission->rounds)
        leave_alone(bytes[len - 1] % N_SLOTS);
    psd_lane_destroy(lane);
    promise(fuzz_far.replies + fuzz_far.drops == served);
    psd_shared_finish(&shared);
    return 0;
}
