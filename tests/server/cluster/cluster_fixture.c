#include "tests/server/cluster/cluster_fixture.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "proto/log.h"
#include "proto/wire/control.h"
#include "tests/support/driven_clock.h"

enum { TICK_MS = 200, MOMENT_NS = 100000 };

static void complete(struct psd *d)
{
    d->job.drain_reason[0]++; /* nobody drains here: a counter */
}

static void welcome_all(struct psd *d)
{
    (void)d;
}

static void *open_socket(void *context, int type, const char *url, bool binds)
{
    int zero = 0, one = 1;
    void *socket = zmq_socket(context, type);
    ck_assert_ptr_nonnull(socket);
    zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    if (type == ZMQ_ROUTER)
        zmq_setsockopt(socket, ZMQ_ROUTER_MANDATORY, &one, sizeof one);
    ck_assert_int_eq(binds ? zmq_bind(socket, url) : zmq_connect(socket, url), 0);
    return socket;
}

static void make(struct psd *d, uint32_t index, const char *url, const char *setting)
{
    struct ps_error err = {""};
    char place[100];
    psd_config_defaults(&d->cfg);
    if (setting != NULL)
        ck_assert_msg(psd_config_set(&d->cfg, setting, &err) == 0, "%s", err.text);
    snprintf(place, sizeof place, "%s", url);
    snprintf(d->cfg.servers.head, sizeof d->cfg.servers.head, "%s", place);
    d->cfg.servers.count = 2;
    d->cfg.servers.index = index;
    d->cfg.servers.wait_s = d->cfg.limits.silence_s = 3600; /* only a test lets so much go by */
    psd_wire(d);
    d->job.hooks.welcome_all = welcome_all;
    d->cluster.completed = complete;
    ck_assert_int_eq(uv_loop_init(&d->loop), 0);
    ck_assert_int_eq(psd_sessions_init(&d->sessions, PAIR_CLIENTS), 0);
    ck_assert_int_eq(psd_shared_init(&d->lanes.shared, d->sessions.n_slots, 1), 0);
    ck_assert_int_eq(psd_membership_init(&d->job), 0);
    d->lanes.transports.n = 1;
    d->lanes.transports.row[0].transport = ps_transport_find("tcp");
    d->lanes.n_own = 1;
    d->lanes.n = index == 0 ? 2 : 1;
    d->lanes.list = calloc(d->lanes.n, sizeof *d->lanes.list);
    const struct psd_lane_options opt = {.index = index, .shared = &d->lanes.shared};
    ck_assert_int_eq(psd_lane_create(&opt, &d->lanes.list[0], &err), 0);
    if (index == 0)
        ck_assert_int_eq(psd_lane_create_remote(1, &d->lanes.shared, &d->lanes.list[1], &err), 0);
    snprintf(d->job.checkpointer.directory, sizeof d->job.checkpointer.directory, "/nowhere/at/all");
}

void pair_open(struct pair *p, const char *setting)
{
    static const char near[] = "inproc://head";
    struct ps_error err = {""};
    size_t size = sizeof p->url;
    ps_log_setup("pair", PS_LOG_ERROR);
    memset(p, 0, sizeof *p);
    ck_assert_ptr_nonnull(p->context = zmq_ctx_new());
    p->far = open_socket(p->context, ZMQ_ROUTER, "tcp://127.0.0.1:*", true);
    ck_assert_int_eq(zmq_getsockopt(p->far, ZMQ_LAST_ENDPOINT, p->url, &size), 0);
    make(&p->head, 0, "none", setting);
    make(&p->other, 1, p->url, setting);
    p->head.sender.socket = open_socket(p->context, ZMQ_ROUTER, near, true);
    p->near = open_socket(p->context, ZMQ_DEALER, near, false);
    ck_assert_int_eq(psd_cluster_open(&p->head.cluster), 0);
    ck_assert_msg(psd_follower_open(&p->other.cluster, &err) == 0, "%s", err.text);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void unmake(struct psd *d)
{
    for (uint32_t i = 0; i < d->lanes.n; i++)
        psd_lane_destroy(d->lanes.list[i]);
    psd_follower_close(&d->cluster);
    psd_cluster_close(&d->cluster);
    uv_walk(&d->loop, close_handle, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&d->loop), 0);
    psd_membership_finish(&d->job);
    psd_sessions_finish(&d->sessions);
    psd_shared_finish(&d->lanes.shared);
    free(d->lanes.list);
}

void pair_close(struct pair *p)
{
    unmake(&p->other);
    unmake(&p->head);
    zmq_close(p->head.sender.socket);
    zmq_close(p->near);
    zmq_close(p->far);
    zmq_ctx_term(p->context);
}

/* What of a message's two parts, or of its one, is the body. */
static bool receive(void *socket, unsigned char *id, size_t *id_bytes, zmq_msg_t *body)
{
    zmq_msg_init(body);
    if (id != NULL) {
        int n = zmq_recv(socket, id, 64, ZMQ_DONTWAIT);
        if (n < 0)
            return false;
        *id_bytes = (size_t)n;
    }
    return zmq_msg_recv(body, socket, ZMQ_DONTWAIT) >= 0;
}

static bool is_lost(struct pair *p, uint32_t *next, bool matters)
{
    if (matters && *next > 0) {
        (*next)--;
        return true;
    }
    return dice_below(&p->dice, 100) < p->lose_percent;
}

static void carry_to_head(struct pair *p)
{
    zmq_msg_t body;
    while (receive(p->far, p->id, &p->id_bytes, &body)) {
        Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(&body), zmq_msg_size(&body));
        ck_assert_ptr_nonnull(m);
        if (m->what_case == PS__TO_SERVER__WHAT_ENLIST && zmq_msg_size(&body) <= sizeof p->enlist)
            memcpy(p->enlist, zmq_msg_data(&body), p->enlist_bytes = zmq_msg_size(&body));
        bool msg = m->what_case == PS__TO_SERVER__WHAT_NEWS && m->news->note != NULL;
        if (!is_lost(p, &p->lose_news, msg))
            zmq_send(p->near, zmq_msg_data(&body), zmq_msg_size(&body), ZMQ_DONTWAIT);
        ps_control_free_to_server(m);
        zmq_msg_close(&body);
    }
}

static void carry_to_other(struct pair *p)
{
    zmq_msg_t body;
    while (receive(p->near, NULL, NULL, &body)) {
        Ps__ToClient *m = ps_control_unpack_to_client(zmq_msg_data(&body), zmq_msg_size(&body));
        ck_assert_ptr_nonnull(m);
        p->n_refused += m->what_case == PS__TO_CLIENT__WHAT_ERROR;
        bool msg = m->what_case == PS__TO_CLIENT__WHAT_ORDERS && m->orders->note != NULL;
        bool place = m->what_case == PS__TO_CLIENT__WHAT_PLACE && m->place->begin == PSD_BEGIN_GO_ON;
        bool lost = is_lost(p, &p->lose_orders, msg) || (place && p->lose_places > 0);
        p->lose_places -= place && p->lose_places > 0;
        if (!lost && p->id_bytes > 0) {
            zmq_send(p->far, p->id, p->id_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE);
            zmq_send(p->far, zmq_msg_data(&body), zmq_msg_size(&body), ZMQ_DONTWAIT);
        }
        ps_control_free_to_client(m);
        zmq_msg_close(&body);
    }
}

static void hear_at_head(struct pair *p)
{
    unsigned char id[64];
    struct psd_peer peer = {.id = id, .address = "the wire"};
    zmq_msg_t body;
    while (receive(p->head.sender.socket, id, &peer.id_bytes, &body)) {
        Ps__ToServer *m = ps_control_unpack_to_server(zmq_msg_data(&body), zmq_msg_size(&body));
        if (m->what_case == PS__TO_SERVER__WHAT_ENLIST)
            psd_cluster_register(&p->head.cluster, &peer, m->enlist);
        else
            psd_cluster_news(&p->head.cluster, &peer, m->news);
        ps_control_free_to_server(m);
        zmq_msg_close(&body);
    }
}

void pair_turn(struct pair *p)
{
    carry_to_head(p);
    hear_at_head(p);
    if (!p->other_stands) {
        carry_to_other(p);
        uv_run(&p->other.loop, UV_RUN_NOWAIT);
        psd_follower_take_events(&p->other.cluster, p->other.lanes.list[0]);
    }
    uint64_t before = psd_loop_now_ms(&p->head.loop) / TICK_MS;
    test_clock_advance_ms(PAIR_TURN_MS);
    if (psd_loop_now_ms(&p->head.loop) / TICK_MS != before)
        psd_cluster_tick(&p->head.cluster);
    p->n_complete = (uint32_t)p->head.job.drain_reason[0];
    p->n_turns++;
    nanosleep(&(struct timespec){.tv_nsec = MOMENT_NS}, NULL);
}

void pair_pass_ms(struct pair *p, uint32_t ms)
{
    for (uint32_t i = 0; i < ms; i += PAIR_TURN_MS)
        pair_turn(p);
}

void pair_stand(struct pair *p, bool stands)
{
    struct psd_timer *timer = &p->other.cluster.follower.timer;
    p->other_stands = stands;
    if (stands)
        psd_timer_stop(timer);
    else
        psd_timer_start(timer, timer->fired, 1, 10 * PAIR_TURN_MS);
    test_clock_advance_ms(1);
}

void pair_cut(struct pair *p)
{
    zmq_close(p->near);
    p->near = open_socket(p->context, ZMQ_DEALER, "inproc://head", false);
}

bool pair_told(struct psd *d, struct psd_lane_message *msg)
{
    psd_queue_calm(d->lanes.list[0]->in);
    return psd_queue_take(d->lanes.list[0]->in, msg);
}

void pair_say(struct pair *p, const struct psd_lane_message *msg)
{
    psd_queue_push(p->other.lanes.list[0]->out, msg);
}

bool pair_may_go_on(const struct pair *p, double end_s, uint64_t end_turns, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ck_assert_msg(unit_now_s() < end_s || p->n_turns < end_turns, "%s", text);
    return true;
}
