/* What lanes do when the method changes: they finish what has begun, refuse the rest, and go on with the same
 * values under another rule. The test is the loop and the clients. */
#include <math.h>

#include "tests/server/lane/lane_fixture.h"
#include "tests/support/unit.h"

enum { INC = 7, P = 2, LANES = 2, CHUNKS = 2, N = (CHUNKS * LANES - 1) * RIG_CHUNK + 5 };

static float start[N], x[P][N];

static void open_job(struct rig *r, const char *rule, const char *const *settings)
{
    struct dice dice = {5};
    for (int i = 0; i < N; i++) { /* whole numbers: sums are exact */
        start[i] = (float)dice_below(&dice, 100);
        for (int k = 0; k < P; k++)
            x[k][i] = (float)dice_below(&dice, 100);
    }
    rig_open(r, rule, LANES, settings);
    rig_fill(r, N, start);
    for (uint32_t i = 0; i < P; i++)
        rig_admit(r, i, INC, PSD_PHASE_ACTIVE, false);
}

static void send_chunk(struct rig *r, uint32_t client, uint64_t seq, uint32_t lane, uint32_t k)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, client, INC, seq, lane, k);
    rig_send_vector(r, lane, &f, x[client]);
}

static void recv_kind(struct rig *r, uint32_t lane, uint32_t client, uint8_t kind, uint16_t code)
{
    struct reply reply;
    rig_recv(r, lane, &reply);
    ck_assert_uint_eq(reply.f.client, client);
    ck_assert_msg(reply.f.kind == kind, "kind %u: %s", reply.f.kind, reply.sentence);
    if (kind == PS_FRAME_ERROR)
        ck_assert_msg(reply.f.code == code, "%s", reply.sentence);
}

static void ask_chunk(struct rig *r, uint32_t client, uint64_t seq, uint32_t lane, uint32_t k, uint8_t kind)
{
    send_chunk(r, client, seq, lane, k);
    recv_kind(r, lane, client, kind, PS__CODE__GENERATION);
}

static void assert_center(struct rig *r, const double *factors)
{
    const float *center = rig_center(r);
    for (int i = 0; i < N; i++) {
        double want = (double)start[i];
        for (int k = 0; k < P; k++)
            want += factors[k] * (double)x[k][i];
        if ((double)center[i] != want)
            ck_abort_msg("value %d is %.1f, not %.1f", i, (double)center[i], want);
    }
}

START_TEST(what_has_begun_is_finished_and_nothing_else)
{
    struct rig r;
    open_job(&r, "add", NULL);
    ask_chunk(&r, 0, 1, 0, 0, PS_FRAME_ANSWER);
    rig_shut(&r);
    ask_chunk(&r, 1, 1, 0, 0, PS_FRAME_ERROR);
    ask_chunk(&r, 1, 1, 1, 1, PS_FRAME_ERROR);
    ask_chunk(&r, 0, 1, 0, 0, PS_FRAME_ANSWER); /* a replay */
    ask_chunk(&r, 0, 1, 1, 1, PS_FRAME_ANSWER); /* begun, in the other lane */
    ask_chunk(&r, 0, 1, 1, 0, PS_FRAME_ANSWER);
    ck_assert_uint_lt(psd_exchange_seq(r.shared.whole[0], INC, 0), 1);
    ask_chunk(&r, 0, 1, 0, 1, PS_FRAME_ANSWER);
    ck_assert_uint_eq(psd_exchange_seq(r.shared.whole[0], INC, 0), 1);
    ck_assert_int_eq(rig_hear(&r, 0).kind, PSD_LANE_WHOLE);
    ask_chunk(&r, 0, 2, 0, 0, PS_FRAME_ERROR);
    rig_swap(&r, "sgd", NULL);
    struct ps_frame old = rig_frame(&r, PS_FRAME_EXCHANGE, 1, INC, 1, 0, 0);
    struct reply reply;
    old.generation = 0;
    rig_ask_vector(&r, 0, &old, x[1], &reply);
    ck_assert_uint_eq(reply.f.code, PS__CODE__GENERATION);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 1, INC, 2, x[1], 0);
    assert_center(&r, (const double[]){1, -1});
    ck_assert_uint_eq(r.shared.version, 2);
    rig_close(&r);
}
END_TEST

/* Such refusals are expected, and logged for debugging alone: others may still be logged in that second. */
START_TEST(refusals_that_are_not_logged_leave_room_for_others)
{
    struct rig r;
    rig_open_by_hand(&r, "add", LANES, NULL);
    rig_fill(&r, N, NULL);
    rig_admit(&r, 0, INC, PSD_PHASE_ACTIVE, false);
    rig_shut(&r);
    for (int i = 0; i < 20; i++)
        ask_chunk(&r, 0, 1, 0, 0, PS_FRAME_ERROR);
    ck_assert_uint_eq(r.lanes[0]->log_limit.lines, 0);
    rig_close(&r);
}
END_TEST

/* Another server was lost: the method stays. */
START_TEST(lanes_that_open_again_take_what_they_refused)
{
    struct rig r;
    open_job(&r, "add", NULL);
    ask_chunk(&r, 0, 1, 0, 0, PS_FRAME_ANSWER);
    rig_shut(&r);
    ask_chunk(&r, 1, 1, 0, 0, PS_FRAME_ERROR);
    rig_open_again(&r);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 1, INC, 1, x[1], 0);
    ask_chunk(&r, 0, 1, 0, 1, PS_FRAME_ANSWER);
    ask_chunk(&r, 0, 1, 1, 0, PS_FRAME_ANSWER);
    ask_chunk(&r, 0, 1, 1, 1, PS_FRAME_ANSWER);
    assert_center(&r, (const double[]){1, 1});
    rig_close(&r);
}
END_TEST

/* What a lane has written of another exchange says nothing of this one. */
START_TEST(the_servers_of_an_exchange_are_known_by_its_name)
{
    uint64_t name = psd_exchange_name(INC, UINT64_C(0x100000005));
    ck_assert_uint_eq(psd_exchange_parts(name << 32 | 6, name), 6);
    ck_assert_uint_eq(psd_exchange_parts(name << 32 | 6, name + 1), UINT32_MAX);
    ck_assert_uint_eq(psd_exchange_parts(0, name), UINT32_MAX);
}
END_TEST

/* Sessions that have one slot one after the other; in the second row, numbers that a short name has no room
 * for.
 */
static const struct {
    uint32_t before, after;
    uint64_t seq;
} names[] = {
    {0x00ffffff, 0x01000000, 1},
    {0x0001ffff, 0x0005ffff, 1},
    {0x7fffffff, 0xfffffffe, UINT64_C(0x100000001)},
    {7, 8, UINT64_C(0xffffffff)},
};

static void ask_as(struct rig *r, uint32_t incarnation, uint64_t seq, uint32_t lane, uint32_t k, uint8_t kind)
{
    struct ps_frame f = rig_frame(r, PS_FRAME_EXCHANGE, 0, incarnation, seq, lane, k);
    struct reply reply;
    rig_ask_vector(r, lane, &f, x[0], &reply);
    ck_assert_msg(reply.f.kind == kind, "kind %u, code %u", reply.f.kind, reply.f.code);
}

static void exchange_as(struct rig *r, uint32_t incarnation, uint64_t seq)
{
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t k = 0; k < 2; k++)
            ask_as(r, incarnation, seq, lane, k, PS_FRAME_ANSWER);
}

START_TEST(names_tell_every_session_and_exchange_apart)
{
    uint32_t before = names[_i].before, after = names[_i].after;
    uint64_t seq = names[_i].seq;
    struct rig r;
    open_job(&r, "add", NULL);
    rig_admit(&r, 0, before, PSD_PHASE_ACTIVE, false);
    for (uint32_t k = 0; k < 2; k++)
        ask_as(&r, before, seq, 0, k, PS_FRAME_ANSWER); /* of which nothing comes to the other lane */
    rig_admit(&r, 0, after, PSD_PHASE_ACTIVE, false);
    exchange_as(&r, after, seq);
    ck_assert_uint_eq(r.shared.version, 1);
    ck_assert(psd_exchange_is(r.shared.whole[0], after, seq));
    ask_as(&r, after, seq + 1, 0, 0, PS_FRAME_ANSWER);
    ck_assert(psd_lane_has_begun(&r.shared, 0, 0, after, seq + 1));
    ck_assert(psd_exchange_is_later(r.shared.begun[0], r.shared.whole[0]));
    rig_shut(&r);
    ask_as(&r, after, seq + 1, 0, 1, PS_FRAME_ANSWER); /* begun: it is finished */
    ask_as(&r, after, seq + 1, 1, 0, PS_FRAME_ANSWER);
    ask_as(&r, after, seq + 1, 1, 1, PS_FRAME_ANSWER);
    ck_assert(psd_exchange_is(r.shared.whole[0], after, seq + 1));
    ck_assert_uint_eq(r.shared.version, 2);
    rig_close(&r);
}
END_TEST

/* Chunk 0 of lane 0 has been through the round: all of it has to. What waits for a round that has not begun
 * anywhere is refused. */
START_TEST(a_round_that_has_begun_is_finished)
{
    static const char *const sync[] = {"admission=sync", NULL};
    struct rig r;
    open_job(&r, "add", sync);
    rig_members(&r, 0, P, (const uint32_t[]){0, 1});
    send_chunk(&r, 0, 1, 0, 0);
    send_chunk(&r, 1, 1, 0, 0);
    recv_kind(&r, 0, 0, PS_FRAME_ANSWER, 0);
    recv_kind(&r, 0, 1, PS_FRAME_ANSWER, 0);
    send_chunk(&r, 0, 1, 1, 0); /* waits for the other's */
    rig_assert_silent(&r, 1, 1, INC);
    rig_shut(&r);
    rig_assert_silent(&r, 1, 1, INC); /* it has not been refused */
    send_chunk(&r, 1, 1, 1, 0);
    recv_kind(&r, 1, 0, PS_FRAME_ANSWER, 0);
    recv_kind(&r, 1, 1, PS_FRAME_ANSWER, 0);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        send_chunk(&r, 1, 1, lane, 1);
        send_chunk(&r, 0, 1, lane, 1);
        recv_kind(&r, lane, 0, PS_FRAME_ANSWER, 0);
        recv_kind(&r, lane, 1, PS_FRAME_ANSWER, 0);
    }
    ask_chunk(&r, 0, 2, 0, 0, PS_FRAME_ERROR);
    ck_assert_uint_eq(psd_exchange_seq(r.shared.whole[0], INC, 0), 1);
    ck_assert_uint_eq(psd_exchange_seq(r.shared.whole[1], INC, 0), 1);
    for (uint32_t lane = 0; lane < LANES; lane++)
        while (rig_heard(&r, lane))
            ck_assert_int_eq(rig_hear(&r, lane).kind, PSD_LANE_WHOLE);
    rig_swap(&r, "add", NULL);
    assert_center(&r, (const double[]){1, 1});
    rig_close(&r);
}
END_TEST

START_TEST(what_waits_for_a_round_is_refused)
{
    static const char *const admissions[][2] = {{"admission=sync", NULL}, {"admission=round-robin", NULL}};
    struct rig r;
    open_job(&r, "add", admissions[_i]);
    rig_members(&r, 0, P, (const uint32_t[]){0, 1});
    for (uint32_t k = 0; k < CHUNKS; k++)
        send_chunk(&r, 1, 1, 1, k);
    rig_assert_silent(&r, 1, 0, INC);
    rig_shut(&r);
    for (uint32_t k = 0; k < CHUNKS; k++)
        recv_kind(&r, 1, 1, PS_FRAME_ERROR, PS__CODE__GENERATION);
    rig_swap(&r, "add", NULL);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 1, INC, 2, x[1], 0);
    assert_center(&r, (const double[]){0, 1});
    rig_close(&r);
}
END_TEST

/* The answer that would wait until its worker's turn has come again. */
START_TEST(a_serial_answer_is_given)
{
    static const char *const serial[] = {"admission=round-robin", "serial=true", NULL};
    struct rig r;
    open_job(&r, "add", serial);
    rig_members(&r, 0, P, (const uint32_t[]){0, 1});
    for (uint32_t k = 0; k < CHUNKS; k++)
        for (uint32_t c = 0; c < P; c++)
            send_chunk(&r, c, 1, 0, k);
    struct reply reply;
    rig_recv(&r, 0, &reply); /* chunk 0 of both */
    rig_recv(&r, 0, &reply);
    rig_assert_silent(&r, 0, 0, INC);
    for (uint32_t k = 0; k < CHUNKS; k++)
        for (uint32_t c = 0; c < P; c++)
            send_chunk(&r, c, 1, 1, k);
    rig_recv(&r, 1, &reply);
    rig_recv(&r, 1, &reply);
    rig_assert_silent(&r, 1, 0, INC);
    for (uint32_t i = 0; i < LANES; i++)
        rig_tell(&r, i, &(struct psd_lane_message){.kind = PSD_COMMAND_CLOSE});
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t c = 0; c < P; c++) {
            rig_recv(&r, lane, &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        }
    for (uint32_t lane = 0; lane < LANES; lane++)
        ck_assert_int_eq(rig_hear(&r, lane).kind, PSD_LANE_CLOSED);
    rig_swap(&r, "sgd", NULL);
    assert_center(&r, (const double[]){1, 1});
    rig_close(&r);
}
END_TEST

/* What a worker owes is added under every rule and admission, once, and waits for nobody. */
START_TEST(what_is_owed_is_added_whatever_the_method)
{
    static const struct {
        const char *rule;
        const char *settings[4];
    } rows[] = {
        {"elastic", {"alpha=0.5", NULL}},  {"momentum", {"momentum=0.9", NULL}},
        {"sgd", {"admission=sync", NULL}}, {"add", {"admission=round-robin", NULL}},
        {"sgd", {"admission=ssp", NULL}},  {"adam", {"averaging=mean", NULL}},
        {"dc-asgd", {"workers=2", NULL}},  {"elastic", {"admission=hogwild", "alpha=0.5", NULL}},
    };
    struct rig r;
    open_job(&r, rows[_i].rule, rows[_i].settings);
    bool members = r.center->admission->members, merges = r.center->admission->merges;
    if (members)
        rig_members(&r, 0, P, (const uint32_t[]){0, 1});
    if (r.center->shard.n_lanes < LANES) { /* client 1 is lane 1's, which has all chunks */
        struct reply reply;
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r.center->shard, 0); k++) {
            struct ps_frame f = rig_frame(&r, PS_FRAME_ADD, 1, INC, 1, 0, k);
            rig_ask_vector(&r, 1, &f, x[1], &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        }
    } else {
        rig_exchange(&r, PS_FRAME_ADD, 1, INC, 1, x[1], 0);
        rig_exchange(&r, PS_FRAME_ADD, 1, INC, 1, x[1], PS_FLAG_REPLAYED);
    }
    assert_center(&r, (const double[]){0, 1});
    ck_assert_uint_eq(r.shared.version, !merges);
    ck_assert_uint_eq(r.shared.clocks[1], 0); /* no message of the rule's */
    ck_assert_uint_eq(r.center->snapshot.lane_moves[0], 0);
    rig_close(&r);
}
END_TEST

/* v = 0.5 v - g twice; whether the second has the first's v depends on what came between. */
static double momentum_after(const char *const *between, bool *known)
{
    static const char *const half[] = {"momentum=0.5", NULL};
    struct rig r;
    open_job(&r, "momentum", half);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, 1, x[0], 0);
    rig_shut(&r);
    if (between != NULL) {
        rig_swap(&r, between[0], between + 1);
        rig_shut(&r);
    }
    rig_swap(&r, "momentum", half);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, 2, x[0], 0);
    const float *center = rig_center(&r);
    double factor = NAN;
    *known = true;
    for (int i = 0; i < N; i++) {
        double of_this = ((double)start[i] - (double)center[i]) / (double)x[0][i];
        factor = isnan(factor) && x[0][i] > 0 ? of_this : factor;
        *known = *known && (x[0][i] == 0 || of_this == factor);
    }
    rig_close(&r);
    return factor;
}

START_TEST(the_rules_state_goes_on_with_the_rule_alone)
{
    static const char *const plain[] = {"sgd", NULL}, *const averaged[] = {"momentum", "averaging=mean",
                                                                           "momentum=0.5", NULL};
    bool known;
    ck_assert_double_eq(momentum_after(NULL, &known), 1 + 1.5);
    ck_assert(known);
    ck_assert_double_eq(momentum_after(plain, &known), 1 + 1);
    ck_assert(known);
    ck_assert_double_eq(momentum_after(averaged, &known), 1 + 1); /* as documented */
    ck_assert(known);
}
END_TEST

/* Resumes the job from a checkpoint that it writes now. */
static void resume_with(struct rig *r, const char *rule, const char *const *settings)
{
    struct psd_snapshot s;
    rig_snapshot(r, &s);
    s.state = calloc(PSD_MAX_STATE, sizeof *s.state);
    for (uint32_t k = 0; k < s.n_state; k++) {
        s.state[k] = malloc(sizeof start);
        memcpy(s.state[k], r->center->snapshot.state[k], sizeof start);
    }
    rig_close(r);
    rig_open(r, rule, LANES, settings);
    rig_resume(r, &s);
    rig_admit(r, 0, INC, PSD_PHASE_ACTIVE, true);
    rig_snapshot_free(&s);
}

/* What was gathered for one momentum of four moves would be twice too much for one of two. So it is where the
 * job is resumed with two. */
START_TEST(a_sum_of_other_moves_starts_anew)
{
    static const char *const four[] = {"delay=4", "outer_learning_rate=1", "outer_momentum=0.5",
                                       "optimizer=sgd", NULL},
                             *const two[] = {"delay=2", "outer_learning_rate=1", "outer_momentum=0.5",
                                             "optimizer=sgd", NULL};
    struct rig r;
    open_job(&r, "delayed-nesterov", four);
    for (uint64_t seq = 1; seq <= 3; seq++)
        rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, seq, x[0], 0);
    if (_i == 0) {
        rig_shut(&r);
        rig_swap(&r, "delayed-nesterov", two);
    } else {
        resume_with(&r, "delayed-nesterov", two);
    }
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, 4, x[0], 0);
    assert_center(&r, (const double[]){0.75 + 0.5 + 0.5 * 0.5, 0});
    rig_close(&r);
}
END_TEST

/* z is the mean of the centers before each update; it goes on where rule and averaging stay, in step. */
START_TEST(the_average_goes_on_in_step)
{
    static const char *const mean[] = {"averaging=mean", NULL}, *const other[] = {"averaging=mean",
                                                                                  "admission=round-robin",
                                                                                  NULL};
    struct rig r;
    open_job(&r, "add", mean);
    for (uint64_t seq = 1; seq <= 2; seq++)
        rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, seq, x[0], 0);
    rig_shut(&r);
    rig_swap(&r, "add", other);
    rig_members(&r, 0, 1, (const uint32_t[]){0});
    for (uint64_t seq = 3; seq <= 4; seq++)
        rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, seq, x[0], 0);
    rig_center(&r);
    const float *z = rig_average(&r);
    for (int i = 0; i < N; i++) { /* of start + 0, 1, 2, 3 times x */
        double want = (double)start[i] + 1.5 * (double)x[0][i];
        assert_quick(fabs((double)z[i] - want) < 1e-3); /* four roundings at 1/3, of values below 400 */
    }
    rig_close(&r);
}
END_TEST

/* A client of lane 1 alone, then of both, then of lane 1 again. */
START_TEST(lanes_become_whole_and_back)
{
    static const char *const whole[] = {"admission=hogwild", NULL};
    struct rig r;
    struct reply reply;
    open_job(&r, "add", whole);
    for (int round = 0; round < 2; round++) {
        uint64_t seq = 1 + 2 * (uint64_t)round;
        for (uint32_t k = 0; k < ps_shard_n_chunks(&r.center->shard, 0); k++) {
            struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 1, INC, seq, 0, k);
            rig_ask_vector(&r, 1, &f, x[1], &reply);
            ck_assert_msg(reply.f.kind == PS_FRAME_ANSWER, "%s", reply.sentence);
        }
        rig_shut(&r);
        rig_swap(&r, "add", NULL);
        rig_exchange(&r, PS_FRAME_EXCHANGE, 1, INC, seq + 1, x[1], 0);
        rig_shut(&r);
        rig_swap(&r, "add", whole);
    }
    assert_center(&r, (const double[]){0, 4});
    rig_close(&r);
}
END_TEST

/* It has no part of the center under the new method, and its client has not read the Welcome yet. */
START_TEST(a_lane_that_has_nothing_left_says_that_the_method_has_changed)
{
    static const char *const whole[] = {"admission=hogwild", NULL};
    struct rig r;
    struct reply reply;
    rig_open(&r, "add", LANES, whole);
    rig_fill(&r, 8, NULL); /* too few to be divided */
    rig_admit(&r, 1, INC, PSD_PHASE_ACTIVE, false);
    struct ps_frame f = rig_frame(&r, PS_FRAME_EXCHANGE, 1, INC, 1, 0, 0);
    rig_shut(&r);
    rig_swap(&r, "add", NULL);
    rig_ask_vector(&r, 1, &f, x[1], &reply);
    ck_assert_msg(reply.f.code == PS__CODE__GENERATION, "%s", reply.sentence);
    f.generation = r.center->generation; /* no client has a reason to ask it then */
    rig_ask_vector(&r, 1, &f, x[1], &reply);
    ck_assert_msg(reply.f.code == PS__CODE__NOT_BEGUN, "%s", reply.sentence);
    rig_close(&r);
}
END_TEST

/* A checkpoint made after a swap knows that what had begun before is whole: a chunk of it that is sent again
 * lands no more. */
START_TEST(a_checkpoint_after_a_swap_knows_what_has_landed)
{
    struct rig r;
    struct psd_snapshot s;
    open_job(&r, "add", NULL);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, 1, x[0], 0);
    rig_shut(&r);
    rig_swap(&r, "sgd", NULL);
    rig_snapshot(&r, &s);
    ck_assert_uint_eq(s.generation, 0); /* the loop writes that */
    rig_close(&r);
    s.generation = 1;
    rig_open(&r, "sgd", LANES, NULL);
    rig_resume(&r, &s);
    rig_admit(&r, 0, INC, PSD_PHASE_ACTIVE, true);
    rig_exchange(&r, PS_FRAME_EXCHANGE, 0, INC, 1, x[0], PS_FLAG_REPLAYED);
    assert_center(&r, (const double[]){1, 0});
    rig_close(&r);
    rig_snapshot_free(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("swap");
    TCase *tcase = tcase_create("swap");
    tcase_add_test(tcase, what_has_begun_is_finished_and_nothing_else);
    tcase_add_test(tcase, refusals_that_are_not_logged_leave_room_for_others);
    tcase_add_test(tcase, lanes_that_open_again_take_what_they_refused);
    tcase_add_test(tcase, the_servers_of_an_exchange_are_known_by_its_name);
    tcase_add_loop_test(tcase, names_tell_every_session_and_exchange_apart, 0, ROWS(names));
    tcase_add_test(tcase, a_round_that_has_begun_is_finished);
    tcase_add_loop_test(tcase, what_waits_for_a_round_is_refused, 0, 2);
    tcase_add_test(tcase, a_serial_answer_is_given);
    tcase_add_loop_test(tcase, what_is_owed_is_added_whatever_the_method, 0, 8);
    tcase_add_test(tcase, the_rules_state_goes_on_with_the_rule_alone);
    tcase_add_loop_test(tcase, a_sum_of_other_moves_starts_anew, 0, 2);
    tcase_add_test(tcase, the_average_goes_on_in_step);
    tcase_add_test(tcase, lanes_become_whole_and_back);
    tcase_add_test(tcase, a_lane_that_has_nothing_left_says_that_the_method_has_changed);
    tcase_add_test(tcase, a_checkpoint_after_a_swap_knows_what_has_landed);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
