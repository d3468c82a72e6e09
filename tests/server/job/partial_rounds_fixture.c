#include "tests/server/job/partial_rounds_fixture.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/support/driven_clock.h"
#include "tests/support/unit.h"

/* PATIENCE_S ends a hang. MOMENT_US: for the lanes' threads. */
enum { PATIENCE_S = 100, MOMENT_US = 200 };

static float vectors[RIG_SLOTS][CUT_N];
/* The same, encoded: all values of a message are alike, so that a shorter one is its beginning. */
static unsigned char payloads[RIG_SLOTS][RIG_MAX_BODY];

/* The client's messages are made of this value. */
static float value_of(uint32_t client)
{
    return (float)(1 + 3 * client);
}

static uint32_t chunks_of(const struct cut_rig *c, uint32_t lane)
{
    return ps_shard_n_chunks(&c->rig.center->shard, lane);
}

/* What a lane has said to the loop. */
static void hear(struct cut_rig *c)
{
    struct psd_lane_message msg;
    for (uint32_t i = 0; i < CUT_LANES; i++)
        while (psd_queue_take(c->rig.lanes[i]->out, &msg)) {
            if (msg.kind == PSD_LANE_BEGUN || msg.kind == PSD_LANE_LANDED)
                psd_partial_rounds_begun(&c->d.job, c->rig.lanes[i], &msg);
            else if (msg.kind == PSD_LANE_OVER)
                psd_partial_rounds_over(&c->d.job, c->rig.lanes[i], msg.a);
            else
                ck_abort_msg("lane %u says %d", i, msg.kind);
        }
}

/* Of an exchange, or of the pull before the first. */
static void start(struct cut_rig *c, uint32_t client)
{
    struct cut_client *k = &c->clients[client];
    k->left = k->n_dropped = k->n_applied = 0;
    k->lowest = UINT64_MAX;
    k->highest = 0;
    for (uint32_t i = 0; i < CUT_LANES; i++) {
        k->next[i] = k->in_flight[i] = 0;
        k->left += chunks_of(c, i);
    }
}

void cut_join(struct cut_rig *c, uint32_t client)
{
    static uint32_t incarnation = 7;
    c->clients[client] = (struct cut_client){.in_job = true, .incarnation = ++incarnation};
    struct psd_session *s = &c->d.sessions.slots[client];
    s->state = PSD_SESSION_ACTIVE;
    s->incarnation = incarnation;
    rig_admit(&c->rig, client, incarnation, PSD_PHASE_ACTIVE, false);
    start(c, client);
    psd_partial_rounds_consider(&c->d.job);
}

void cut_leave(struct cut_rig *c, uint32_t client)
{
    c->clients[client].in_job = false;
    c->d.sessions.slots[client].state = PSD_SESSION_VACANT;
    for (uint32_t i = 0; i < CUT_LANES; i++)
        rig_tell(
            &c->rig, i,
            &(struct psd_lane_message){.kind = PSD_COMMAND_END, .client = client, .a = PS__CODE__EVICTED});
    psd_partial_rounds_forget(&c->d.job, client);
}

void cut_open(struct cut_rig *c, const char *const *settings, uint32_t n)
{
    static const uint32_t ranks[RIG_SLOTS] = {0, 1, 2, 3};
    memset(c, 0, sizeof *c);
    for (uint32_t i = 0; i < RIG_SLOTS; i++)
        for (uint32_t k = 0; k < CUT_N; k++)
            vectors[i][k] = value_of(i);
    rig_open(&c->rig, "add", CUT_LANES, settings);
    rig_fill(&c->rig, CUT_N, NULL);
    for (uint32_t i = 0; i < RIG_SLOTS; i++)
        c->rig.center->message_codec.encode(&c->rig.center->message_codec, payloads[i], vectors[i],
                                            RIG_CHUNK);
    struct job_fixture *d = &c->d;
    job_fixture_wire(d);
    ck_assert_int_eq(uv_loop_init(&d->loop), 0);
    ck_assert_int_eq(psd_sessions_init(&d->sessions, RIG_SLOTS), 0);
    d->lanes.shared.whole = c->rig.shared.whole; /* the lanes' */
    d->cfg = c->rig.cfg;
    d->lanes.list = c->rig.lanes;
    d->lanes.n = d->lanes.n_own = CUT_LANES;
    d->cfg.servers.count = 1;
    d->job.center = c->rig.center;
    ck_assert_int_eq(psd_membership_init(&d->job), 0);
    for (uint32_t i = 0; i < n; i++) {
        cut_join(c, i);
        d->job.membership.members.ranks[i] = i;
    }
    d->job.membership.members.n = n;
    d->job.membership.started = true;
    rig_members(&c->rig, 0, n, ranks);
    for (uint32_t i = 0; i < n; i++)
        cut_await(c, i);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    uv_close(handle, NULL);
}

void cut_close(struct cut_rig *c)
{
    rig_close(&c->rig);
    uv_walk(&c->d.loop, close_handle, NULL);
    uv_run(&c->d.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&c->d.loop), 0);
    psd_membership_finish(&c->d.job);
    psd_sessions_finish(&c->d.sessions);
}

void cut_begin(struct cut_rig *c, uint32_t client)
{
    c->clients[client].seq++;
    start(c, client);
}

bool cut_is_done(const struct cut_rig *c, uint32_t client)
{
    return c->clients[client].left == 0;
}

/* False: the transport is full. */
static bool send_next(struct cut_rig *c, uint32_t client, uint32_t lane)
{
    struct cut_client *k = &c->clients[client];
    unsigned char head[PS_FRAME_BYTES];
    bool pulls = k->seq == 0;
    struct ps_frame f = rig_frame(&c->rig, pulls ? PS_FRAME_PULL : PS_FRAME_EXCHANGE, client, k->incarnation,
                                  k->seq, lane, k->next[lane]);
    const struct ps_codec *codec = &c->rig.center->message_codec;
    const void *body = codec->in_place ? (const void *)(vectors[client] + f.begin) : payloads[client];
    f.codec = pulls ? 0 : codec->id;
    ps_frame_pack(&f, head);
    if (c->rig.transport->link_send(c->rig.links[lane], head, pulls ? NULL : body,
                                    pulls ? 0 : codec->payload_bytes(codec, f.count)) != 0)
        return false;
    k->next[lane]++;
    k->in_flight[lane]++;
    return true;
}

static void send_what_may(struct cut_rig *c, uint32_t client)
{
    struct cut_client *k = &c->clients[client];
    if (!k->in_job || k->left == 0 || k->frozen || k->limps)
        return;
    for (uint32_t i = 0; i < CUT_LANES; i++)
        while (k->next[i] < chunks_of(c, i) && k->in_flight[i] < c->rig.center->window_chunks &&
               (k->most == 0 || k->next[i] < k->most) && send_next(c, client, i))
            ;
}

static void end_exchange(struct cut_client *k)
{
    k->taken += k->n_dropped == 0;
    k->dropped += k->n_applied == 0;
    k->split += k->n_dropped > 0 && k->n_applied > 0;
}

static void take_reply(struct cut_rig *c, uint32_t lane, const struct reply *r)
{
    struct cut_client *k = &c->clients[r->f.client];
    struct ps_range piece = {r->f.begin, r->f.count};
    int64_t chunk = ps_shard_find(&c->rig.center->shard, lane, ps_shard_whole(&c->rig.center->shard), piece);
    if (r->f.kind == PS_FRAME_ERROR && (!k->in_job || r->f.incarnation != k->incarnation))
        return; /* it came after its sender's end */
    ck_assert_msg(r->f.kind == PS_FRAME_ANSWER, "%s", r->sentence);
    ck_assert_int_ge(chunk, 0);
    ck_assert((r->f.flags & ~PS_FLAG_DROPPED) == 0);
    bool pulled = r->f.seq == 0;
    const struct ps_codec *codec = pulled ? ps_codec_find(0) : &c->rig.center->answer_codec;
    ck_assert_uint_eq(r->f.codec, codec->id);
    ck_assert_uint_eq(r->body_bytes, codec->payload_bytes(codec, r->f.count));
    if (r->f.flags == 0 && !pulled)
        c->sum[lane][chunk] += (double)value_of(r->f.client);
    if (r->f.incarnation != k->incarnation || r->f.seq != k->seq)
        return; /* it was given up, or its sender has gone */
    k->flags = r->f.flags;
    k->n_applied += r->f.flags == 0 && !pulled;
    k->n_dropped += r->f.flags != 0;
    k->lowest = r->f.center_version < k->lowest ? r->f.center_version : k->lowest;
    k->highest = r->f.center_version > k->highest ? r->f.center_version : k->highest;
    k->in_flight[lane]--;
    if (--k->left == 0 && !pulled)
        end_exchange(k);
}

static void receive(struct cut_rig *c)
{
    static struct reply reply;
    const struct ps_transport *t = c->rig.transport;
    struct ps_message m;
    for (uint32_t i = 0; i < CUT_LANES; i++)
        while (t->link_recv(c->rig.links[i], &m) == 0) {
            struct ps_error err = {""};
            ck_assert_msg(ps_frame_parse(&reply.f, m.head, m.head_bytes, &err) == 0, "%s", err.text);
            snprintf(reply.sentence, sizeof reply.sentence, "%.*s",
                     reply.f.kind == PS_FRAME_ERROR ? (int)m.body_bytes : 0, (const char *)m.body);
            reply.body_bytes = m.body_bytes;
            t->message_drop(&m);
            take_reply(c, i, &reply);
        }
}

static void turn(struct cut_rig *c)
{
    for (uint32_t i = 0; i < RIG_SLOTS; i++) {
        send_what_may(c, i);
        if (!c->clients[i].frozen)
            c->d.sessions.slots[i].last_heard_ms++;
    }
    receive(c);
    hear(c);
}

void cut_turn(struct cut_rig *c)
{
    turn(c);
    if (c->d.job.partial_rounds.lanes_under_way == 0)
        test_clock_advance_ms(1);
}

static void turn_and_rest(struct cut_rig *c)
{
    cut_turn(c);
    nanosleep(&(struct timespec){.tv_nsec = MOMENT_US * 1000}, NULL);
}

void cut_turns(struct cut_rig *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        turn_and_rest(c);
}

void cut_pass_ms(struct cut_rig *c, uint32_t ms)
{
    for (uint32_t step; ms > 0; ms -= step) {
        turn(c);
        test_clock_advance_ms(step = ms < 100 ? ms : 100);
    }
}

/* The while of those that wait for what the lanes do. */
#define TURN_WHILE(c, condition, ...)                                                                        \
    for (double deadline = unit_now_s() + PATIENCE_S; (condition); turn_and_rest(c))                         \
    ck_assert_msg(unit_now_s() < deadline, __VA_ARGS__)

void cut_await(struct cut_rig *c, uint32_t client)
{
    TURN_WHILE(c, !cut_is_done(c, client), "the exchange of client %u does not end", client);
}

void cut_await_applied(struct cut_rig *c, uint32_t client, uint32_t n)
{
    TURN_WHILE(c, c->clients[client].n_applied < n, "of client %u's exchange, %u chunks are not applied",
               client, n);
    ck_assert_uint_eq(c->clients[client].n_applied, n);
}

static bool waits_everywhere(const struct cut_rig *c, uint32_t client)
{
    for (uint32_t i = 0; i < CUT_LANES; i++)
        if (atomic_load(&c->rig.lanes[i]->clients[client].waiting_chunks) == 0)
            return false;
    return true;
}

void cut_await_waiting(struct cut_rig *c, uint32_t client)
{
    TURN_WHILE(c, !waits_everywhere(c, client), "client %u's exchange does not wait", client);
}

void cut_await_candidates(struct cut_rig *c, uint32_t n)
{
    TURN_WHILE(c, c->d.job.partial_rounds.n < n, "%u exchanges are not candidates", n);
    ck_assert_uint_eq(c->d.job.partial_rounds.n, n);
}

static uint32_t leave_who_are_done(struct cut_rig *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < RIG_SLOTS; i++) {
        if (c->clients[i].in_job && cut_is_done(c, i))
            cut_leave(c, i);
        n += c->clients[i].in_job;
    }
    return n;
}

void cut_await_all_and_leave(struct cut_rig *c)
{
    TURN_WHILE(c, leave_who_are_done(c) > 0, "some exchange does not end");
}

void cut_assert_sums(struct cut_rig *c)
{
    cut_turns(c, 20);
    const float *x = rig_center(&c->rig);
    for (uint32_t lane = 0; lane < CUT_LANES; lane++)
        for (uint32_t k = 0; k < chunks_of(c, lane); k++) {
            struct ps_range r = ps_shard_chunk(&c->rig.center->shard, lane, k);
            for (uint64_t i = r.begin; i < r.begin + r.count; i++)
                if ((double)x[i] != c->sum[lane][k])
                    ck_abort_msg("lane %u chunk %u: value %lu is %.1f, what was applied sums to %.1f", lane,
                                 k, (unsigned long)i, (double)x[i], c->sum[lane][k]);
        }
}
