/* Hogwild: lanes that each serve some clients over the whole center. Real lanes; the test is several clients
 * at once. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { INC = 7, LANES = 2, CLIENTS = 4, EACH = 1500, N = CLIENTS * EACH + 3 };

static const char *const hogwild[] = {"admission=hogwild", NULL};
static float zeros[N];

/* A tensor for each client; none starts where a vector register would, and the rest is nobody's. */
static void open_job(struct rig *r)
{
    static struct ps_tensor tensors[CLIENTS + 1];
    static char names[CLIENTS + 1][8];
    uint64_t offset = 0;
    for (uint32_t i = 0; i <= CLIENTS; i++) {
        snprintf(names[i], sizeof names[i], "t%u", i);
        tensors[i] = (struct ps_tensor){names[i], offset, {i < CLIENTS ? EACH : N - CLIENTS * EACH}, 1};
        offset += tensors[i].shape[0];
    }
    rig_open(r, "sgd", LANES, hogwild);
    rig_fill_model(r, tensors, CLIENTS + 1, zeros);
    for (uint32_t i = 0; i < CLIENTS; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, false);
}

static void assert_answered(const struct reply *reply)
{
    ck_assert_msg(reply->f.kind == PS_FRAME_ANSWER, "%s", reply->sentence);
}

START_TEST(each_lane_serves_its_own_clients_over_the_whole_center)
{
    static float ones[N];
    struct rig r;
    struct reply reply;
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    open_job(&r);
    ck_assert_uint_eq(r.center->shard.n_lanes, 1);
    for (uint32_t client = 0; client < CLIENTS; client++)
        for (uint32_t lane = 0; lane < LANES; lane++)
            for (uint32_t k = 0; k < ps_shard_n_chunks(&r.center->shard, 0); k++) {
                struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, client, INC, 1, 0, k);
                rig_ask_vector(&r, lane, &f, ones, &reply);
                if (client % LANES == lane) {
                    assert_answered(&reply);
                } else {
                    ck_assert_uint_eq(reply.f.code, PS__CODE__RANGE);
                    assert_says(reply.sentence, "is served by lane");
                }
            }
    ck_assert_uint_eq(atomic_load(&r.shared.version), CLIENTS);
    const float *center = rig_center(&r); /* one after the other: nothing raced */
    for (int i = 0; i < N; i++)
        assert_quick(center[i] == -CLIENTS);
    rig_close(&r);
}
END_TEST

/* What one client's thread does: pushes its tensor, whole numbers, over a link of its own. */
struct pusher {
    struct rig *r;
    struct ps_link *link;
    uint32_t client;
    uint64_t pushes;
    bool ok;
    pthread_t thread;
};

static bool push_piece(const struct pusher *p, uint64_t seq, uint32_t k)
{
    const struct ps_transport *t = p->r->transport;
    struct ps_range scope = {p->client * (uint64_t)EACH, EACH};
    struct ps_range piece = ps_shard_piece(&p->r->center->shard, 0, scope, k);
    struct ps_frame f = rig_frame(p->r, PS_FRAME_PUSH, p->client, INC, seq, 0, k), back;
    unsigned char head[PS_FRAME_BYTES];
    float body[RIG_CHUNK];
    struct ps_message m;
    int rc;
    f.flags = PS_FLAG_TENSOR;
    f.code = (uint16_t)p->client;
    f.begin = piece.begin;
    f.count = (uint32_t)piece.count;
    for (uint32_t i = 0; i < f.count; i++)
        body[i] = (float)(1 + (seq + i) % 3);
    ps_frame_pack(&f, head);
    if (t->link_send(p->link, head, body, f.count * sizeof *body) < 0)
        return false;
    for (double end = unit_now_s() + 60; (rc = t->link_recv(p->link, &m)) == -EAGAIN && unit_now_s() < end;)
        t->links_wait((struct ps_link *[]){p->link}, 1, -1, 10);
    if (rc < 0)
        return false;
    bool ok = ps_frame_parse(&back, m.head, m.head_bytes, NULL) == 0 && back.kind == PS_FRAME_ANSWER;
    t->message_drop(&m);
    return ok;
}

static void *push_all(void *arg)
{
    struct pusher *p = arg;
    struct ps_range scope = {p->client * (uint64_t)EACH, EACH};
    uint32_t first, n = ps_shard_pieces(&p->r->center->shard, 0, scope, &first);
    p->ok = true;
    for (uint64_t seq = 1; seq <= p->pushes && p->ok; seq++)
        for (uint32_t k = first; k < first + n && p->ok; k++)
            p->ok = push_piece(p, seq, k);
    return NULL;
}

/* Clients that touch disjoint ranges lose nothing, however lanes race; snapshots meanwhile see whole numbers
 * only. */
START_TEST(disjoint_integer_updates_are_all_there)
{
    enum { PUSHES = 400 };
    struct pusher pushers[CLIENTS];
    struct ps_error err = {""};
    struct rig r;
    open_job(&r);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct ps_transport_limits limits = {RIG_MAX_BODY, 8};
        pushers[i] = (struct pusher){.r = &r, .client = i, .pushes = PUSHES};
        const char *url = r.lanes[i % LANES]->ports[0].url;
        ck_assert_msg(r.transport->link_open(r.client_hub, url, &limits, &pushers[i].link, &err) == 0, "%s",
                      err.text);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(pthread_create(&pushers[i].thread, NULL, push_all, &pushers[i]), 0);
    for (int look = 0; look < 20; look++) {
        const float *center = rig_center(&r);
        for (int i = 0; i < N; i++)
            assert_quick(center[i] == (float)(int)center[i]);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        pthread_join(pushers[i].thread, NULL);
        ck_assert(pushers[i].ok);
        r.transport->link_close(pushers[i].link);
    }
    ck_assert_uint_eq(atomic_load(&r.shared.version), CLIENTS * PUSHES);
    const float *center = rig_center(&r);
    for (uint32_t client = 0; client < CLIENTS; client++) {
        struct ps_range scope = {client * (uint64_t)EACH, EACH};
        for (uint64_t i = 0; i < EACH; i++) {
            int64_t k = -1;
            float want = 0;
            for (uint32_t c = 0; k < 0; c++) { /* body[i] counts from its piece's begin */
                struct ps_range chunk = ps_shard_chunk(&r.center->shard, 0, c);
                struct ps_range piece = ps_range_intersect(chunk, scope);
                if (scope.begin + i >= piece.begin && scope.begin + i < piece.begin + piece.count)
                    k = (int64_t)(scope.begin + i - piece.begin);
            }
            for (uint64_t seq = 1; seq <= PUSHES; seq++)
                want -= (float)(1 + (seq + (uint64_t)k) % 3);
            assert_quick(center[scope.begin + i] == want);
        }
    }
    for (int i = CLIENTS * EACH; i < N; i++)
        ck_assert_float_eq(center[i], 0);
    rig_close(&r);
}
END_TEST

/* Whole-vector exchanges that race may lose a move of a value, but a value is never torn, never moves the
 * wrong way, and never further than all moves together. */
START_TEST(racing_updates_stay_within_the_sum)
{
    enum { ROUNDS = 300 };
    static float ones[N];
    struct rig r;
    struct reply reply;
    open_job(&r);
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    for (uint64_t seq = 1; seq <= ROUNDS; seq++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r.center->shard, 0); k++) {
            unsigned char head[2][PS_FRAME_BYTES];
            struct ps_message m;
            for (uint32_t client = 0; client < LANES; client++) { /* one for each lane, at the same moment */
                struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, client, INC, seq, 0, k);
                ps_frame_pack(&f, head[client]);
                ck_assert_int_eq(r.transport->link_send(r.links[client], head[client], ones + f.begin,
                                                        f.count * sizeof(float)),
                                 0);
            }
            for (uint32_t client = 0; client < LANES; client++) {
                while (r.transport->link_recv(r.links[client], &m) == -EAGAIN)
                    r.transport->links_wait(&r.links[client], 1, -1, 10);
                ck_assert_int_eq(ps_frame_parse(&reply.f, m.head, m.head_bytes, NULL), 0);
                ck_assert_uint_eq(reply.f.kind, PS_FRAME_ANSWER);
                r.transport->message_drop(&m);
            }
        }
    const float *center = rig_center(&r);
    ck_assert_uint_eq(atomic_load(&r.shared.version), LANES * ROUNDS);
    for (int i = 0; i < N; i++) {
        assert_quick(center[i] == (float)(int)center[i]);
        assert_quick(center[i] <= -ROUNDS && center[i] >= -LANES * ROUNDS);
    }
    rig_close(&r);
}
END_TEST

START_TEST(replay_survives_a_resume)
{
    static float ones[N];
    struct psd_snapshot saved;
    struct rig r, again;
    struct reply reply;
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    rig_open(&r, "sgd", LANES, hogwild);
    rig_fill(&r, N, zeros);
    rig_admit(&r, 1, INC, PSD_PHASE_ACTIVE, false);
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 1, INC, 1, 0, 2);
    rig_ask_vector(&r, 1, &f, ones, &reply);
    assert_answered(&reply);
    rig_snapshot(&r, &saved);
    rig_close(&r);

    rig_open(&again, "sgd", LANES, hogwild);
    rig_resume(&again, &saved);
    rig_admit(&again, 1, INC, PSD_PHASE_ACTIVE, true);
    rig_ask_vector(&again, 1, &f, ones, &reply);
    assert_answered(&reply);
    ck_assert_uint_eq(reply.f.flags, PS_FLAG_REPLAYED);
    const float *center = rig_center(&again);
    for (int i = 0; i < N; i++) {
        bool moved = (uint64_t)i >= f.begin && (uint64_t)i < f.begin + f.count;
        assert_quick(center[i] == (moved ? -1.0f : 0.0f));
    }
    rig_close(&again);
    rig_snapshot_free(&saved);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-hogwild");
    TCase *tc = tcase_create("hogwild");
    tcase_add_test(tc, each_lane_serves_its_own_clients_over_the_whole_center);
    tcase_add_test(tc, disjoint_integer_updates_are_all_there);
    tcase_add_test(tc, racing_updates_stay_within_the_sum);
    tcase_add_test(tc, replay_survives_a_resume);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
