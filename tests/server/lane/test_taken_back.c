/* A worker that stops waiting takes its vector back: what a lane has held back of it moves nothing, and the
 * message that comes in its place is applied in its turn. The lane is driven by hand; the transport is the
 * test's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"
#include "server/lane/rounds.h"
#include "tests/support/unit.h"

enum { N = 1024, CLIENTS = 2, INCARNATION = 7 };

static struct psd_shared shared;
static struct psd_lane *lane;
static struct psd_center *center;
static int replies, drops;
static bool taken_back[CLIENTS];
static float vectors[CLIENTS][N];

static int open_port(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err)
{
    (void)hub, (void)url, (void)limits, (void)err;
    *out = NULL;
    return 0;
}

static void close_port(struct ps_port *port)
{
    (void)port;
}

static const char *url_of(const struct ps_port *port)
{
    (void)port;
    return "test";
}

/* Whose vector the body is; -1: nobody's. */
static int owner_of(const struct ps_message *m)
{
    for (int i = 0; i < CLIENTS; i++)
        if (m->body == (unsigned char *)vectors[i])
            return i;
    return -1;
}

static bool begin(struct ps_message *m)
{
    return !taken_back[owner_of(m)];
}

static int body(struct ps_message *m, size_t len_bytes)
{
    m->body_bytes = len_bytes;
    return 0;
}

static void end(struct ps_message *m)
{
    free(m->head);
    if (owner_of(m) < 0)
        free(m->body);
}

static int reply(struct ps_port *port, struct ps_message *m)
{
    struct ps_frame f;
    (void)port;
    assert_quick(ps_frame_parse(&f, m->head, PS_FRAME_BYTES, NULL) == 0);
    assert_quick(f.kind == PS_FRAME_ANSWER);
    replies++;
    end(m);
    return 0;
}

static void drop(struct ps_message *m)
{
    drops++;
    end(m);
}

static void move(struct ps_message *to, struct ps_message *m)
{
    *to = *m;
}

static const struct ps_transport road = {.name = "test",
                                         .port_open = open_port,
                                         .port_close = close_port,
                                         .port_url = url_of,
                                         .message_begin = begin,
                                         .message_body = body,
                                         .port_reply = reply,
                                         .message_drop = drop,
                                         .message_move = move};

static void send_command(enum psd_lane_message_kind kind, uint32_t client, uint64_t a, void *p)
{
    struct psd_lane_message said;
    psd_queue_push(lane->in, &(struct psd_lane_message){
                                 .kind = kind, .client = client, .incarnation = INCARNATION, .a = a, .p = p});
    psd_lane_take_commands(lane);
    while (psd_queue_take(lane->out, &said))
        continue;
}

static void open_lane(const char *admission)
{
    static const struct ps_transport_limits limits = {.max_body_bytes = 8192, .window_chunks = 4};
    static uint32_t ranks[] = {0, 1};
    struct ps_tensor model = {(char[]){"x"}, 0, {N}, 1, PS_ROLE_PARAM};
    struct psd_members members = {.from = 0, .n = CLIENTS, .ranks = ranks};
    const struct psd_lane_options opt = {.shared = &shared};
    struct ps_manifest *manifest;
    struct psd_config cfg;
    struct ps_error err = {""};
    psd_config_defaults(&cfg);
    snprintf(cfg.rule, sizeof cfg.rule, "elastic");
    snprintf(cfg.admission, sizeof cfg.admission, "%s", admission);
    snprintf(cfg.averaging, sizeof cfg.averaging, "none");
    cfg.hyper.alpha = 0.5;
    cfg.lanes = 1;
    cfg.chunk_floats = N;
    ck_assert_int_eq(ps_manifest_create(&model, 1, N, &manifest, &err), 0);
    ck_assert_msg(psd_center_create(&cfg, psd_admission_find(admission), manifest, &center, &err) == 0, "%s",
                  err.text);
    ck_assert_int_eq(psd_shared_init(&shared, CLIENTS, 1), 0);
    shared.alpha = 0.5f;
    ck_assert_int_eq(psd_lane_create(&opt, &lane, &err), 0);
    ck_assert_int_eq(psd_lane_add_port(lane, &road, NULL, "", &limits, &err), 0);
    send_command(PSD_COMMAND_SLICE, 0, 0, center);
    for (uint32_t i = 0; i < CLIENTS; i++)
        send_command(PSD_COMMAND_ADMIT, i, PSD_PHASE_ACTIVE, NULL);
    if (lane->rounds != NULL) {
        send_command(PSD_COMMAND_MEMBERS, 0, 0, &members);
        send_command(PSD_COMMAND_GO, 0, 0, NULL);
    }
}

/* The client's first exchange, all of it `value`. */
static void send(uint32_t client, bool in_place, float value)
{
    const struct ps_frame f = {.kind = PS_FRAME_EXCHANGE,
                               .client = client,
                               .incarnation = INCARNATION,
                               .seq = 1,
                               .count = N,
                               .samples = 1,
                               .flags = in_place ? PS_FLAG_IN_PLACE : 0};
    struct psd_arrival a = {.port = &lane->ports[0]};
    float *x = in_place ? vectors[client] : malloc(N * sizeof *x);
    for (int i = 0; i < N; i++)
        x[i] = value;
    a.message = (struct ps_message){.head = malloc(PS_FRAME_BYTES),
                                    .head_bytes = PS_FRAME_BYTES,
                                    .body = (unsigned char *)x,
                                    .body_bytes = N * sizeof *x,
                                    .ownership = in_place ? PS_BODY_IN_PLACE : PS_BODY_PRIVATE};
    ps_frame_pack(&f, a.message.head);
    psd_lane_serve(lane, &a, 0);
}

static void assert_all(const float *x, float value)
{
    for (int i = 0; i < N; i++)
        ck_assert_msg(x[i] == value, "value %d is %g; expected %g", i, (double)x[i], (double)value);
}

/* Alpha 0.5 and a center of 0: 8 makes it 4, then 16 makes it 10; the other way round 8, then 8. */
static const struct {
    const char *admission;
    float center; /* in the end */
} rows[] = {{"fcfs", 8}, {"round-robin", 10}, {"ssp", 8}};

START_TEST(what_is_taken_back_moves_nothing_and_keeps_its_turn)
{
    ps_log_setup("test", PS_LOG_ERROR);
    open_lane(rows[_i].admission);
    bool held_back = strcmp(rows[_i].admission, "round-robin") == 0; /* until all have come */
    taken_back[0] = !held_back;
    send(0, true, 8);
    ck_assert_int_eq(replies, 0);
    taken_back[0] = true;
    send(1, true, 16);
    ck_assert_int_eq(drops, 1);
    assert_all(vectors[0], 8);
    send(0, false, 8);
    ck_assert_int_eq(replies, 2);
    ck_assert_int_eq(drops, 1);
    assert_all(vectors[0], 8); /* its answer has what is left to do */
    assert_all(center->x, rows[_i].center);
    psd_lane_destroy(lane);
    psd_shared_finish(&shared);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-taken-back");
    TCase *tc = tcase_create("taken back");
    tcase_add_loop_test(tc, what_is_taken_back_moves_nothing_and_keeps_its_turn, 0, ROWS(rows));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
