/* Exchanges in the codecs for moves with a real psd, beside what the equations say: rule add with error
 * feedback, whole and in fragments; which bytes travel; buffers; a reload; which library is refused. */
#include <math.h>
#include <string.h>

#include "proto/codecs/piece.h"
#include "proto/model/fragment.h"
#include "tests/client/psd_fixture.h"
#include "tests/support/system/raw_client.h"

enum { N = RIG_N, STEPS = 24, FRAGMENTS = 2 };

static struct daemon psd;
static float start[N], x[N], g[N], y[N];
static char codec_key[96];
static struct ps_shard cut = {N, 3, 1024}; /* RIG_CUT */
static struct ps_manifest *manifest;

static const char *const codecs[] = {"int4", "topk:0.01", "topk:0.2", "topk:1"};

static void start_manifest(void)
{
    struct ps_tensor tensors[RIG_TENSORS];
    struct ps_error err;
    for (size_t i = 0; i < RIG_TENSORS; i++) {
        const struct psc_tensor *t = &rig_model[i];
        tensors[i] = (struct ps_tensor){.name = (char *)(uintptr_t)t->name,
                                        .offset = t->offset,
                                        .n_dims = t->n_dims,
                                        .role = t->role,
                                        .decay = t->decay};
        memcpy(tensors[i].shape, t->shape, sizeof tensors[i].shape);
    }
    ck_assert_int_eq(ps_manifest_create(tensors, RIG_TENSORS, N, &manifest, &err), 0);
}

static void stop(void)
{
    daemon_remove(&psd);
    ps_manifest_destroy(manifest);
}

static const char *set_codecs(const char *message, const char *answer)
{
    snprintf(codec_key, sizeof codec_key, "codec={message: '%s', answer: '%s', error_feedback: true}",
             message, answer);
    return codec_key;
}

/* One worker's half of rule add, and psd's: what is sent of start to end, by the piece; and what the worker
 * knows of the center, from answers that say what has changed since. */
struct model {
    float at[N], from[N], center[N], e[N], known[N];
    struct ps_codec codec, answer;
    uint64_t sent, received;
    bool knows[N]; /* of the piece that begins there */
};

static enum psc_role role_at(uint64_t i)
{
    return (enum psc_role)rig_tensor_at(i)->role;
}

/* The first answer is the center; later ones what it is beyond what the worker knows, of which the rest comes
 * later. */
static void answer_piece(struct model *o, struct ps_range r)
{
    static float moved[1024];
    static unsigned char payload[4096];
    const bool moves = o->answer.for_moves && o->knows[r.begin];
    for (uint64_t k = 0; k < r.count; k++)
        moved[k] = role_at(r.begin + k) == PSC_PARAM ? o->center[r.begin + k] - o->known[r.begin + k] : 0;
    if (moves) {
        ps_piece_encode(&o->answer, manifest, r, payload, moved);
        ps_piece_decode(&o->answer, manifest, r, moved, payload);
    }
    o->knows[r.begin] = true;
    o->received += ps_piece_bytes(moves ? &o->answer : ps_codec_find(0), manifest, r);
    for (uint64_t i = r.begin; i < r.begin + r.count; i++) {
        if (role_at(i) != PSC_PARAM)
            continue;
        o->known[i] = moves ? o->known[i] + moved[i - r.begin] : o->center[i];
        o->at[i] = o->from[i] = o->known[i];
    }
}

/* One piece: m + e, frozen values 0; e what that lacks; the center moves by what arrives, which the worker
 * adopts. */
static void exchange_piece(struct model *o, struct ps_range r)
{
    static float made[1024], spent[1024], sent[1024];
    static unsigned char payload[4096];
    for (uint64_t k = 0; k < r.count; k++) {
        uint64_t i = r.begin + k;
        float m = role_at(i) == PSC_BUFFER ? o->at[i] : o->at[i] - o->from[i];
        made[k] = role_at(i) == PSC_FROZEN ? 0 : m + o->e[i];
    }
    memcpy(spent, made, sizeof spent);
    ps_piece_encode(&o->codec, manifest, r, payload, spent);
    ps_piece_decode(&o->codec, manifest, r, sent, payload);
    o->sent += ps_piece_bytes(&o->codec, manifest, r);
    for (uint64_t k = 0; k < r.count; k++) {
        uint64_t i = r.begin + k;
        o->e[i] = made[k] - sent[k];
        if (role_at(i) == PSC_PARAM)
            o->center[i] += sent[k];
    }
    answer_piece(o, r);
}

static void exchange(struct model *o, struct ps_range part)
{
    for (uint32_t lane = 0; lane < cut.n_lanes; lane++) {
        uint32_t first, n = ps_shard_pieces(&cut, lane, part, &first);
        for (uint32_t k = first; k < first + n; k++) {
            struct ps_range piece = ps_shard_piece(&cut, lane, part, k);
            if (!ps_manifest_is_frozen(manifest, piece))
                exchange_piece(o, piece);
        }
    }
}

/* The caller's buffers are what they were: x of one worker alone is the center's mean of it. */
static void check_same(const struct model *o, int t)
{
    for (int i = 0; i < N; i++)
        if (role_at((uint64_t)i) == PSC_PARAM && memcmp(&o->at[i], &x[i], sizeof *x) != 0)
            ck_abort_msg("x[%d] is %a after step %d, not %a", i, (double)x[i], t, (double)o->at[i]);
}

START_TEST(steps_follow_their_equations)
{
    static struct model o;
    static const char *const answers[] = {"raw", "int4", "topk:0.02", "topk:0.5"};
    const bool fragments = _i % 2 == 1;
    const char *message = codecs[(size_t)_i / 2 % ROWS(codecs)],
               *answer = answers[(size_t)_i / 2 / ROWS(codecs)];
    struct psc_info before = {.size = sizeof before}, after = before;
    struct ps_range parts[FRAGMENTS];
    start_manifest();
    rig_roll(start, N, 5);
    rig_start(&psd, (const char *[]){"method=downpour", "period=4", "learning_rate=0.0625", RIG_CUT,
                                     "schedule={kind: constant, warmup_steps: 0}",
                                     set_codecs(message, answer), fragments ? "fragments=2" : "fragments=1",
                                     strcmp(answer, "raw") != 0 ? "workers=1" : "workers=any", NULL});
    memset(&o, 0, sizeof o);
    ck_assert_ptr_null(ps_codec_of(message, &o.codec));
    ck_assert_ptr_null(ps_codec_of(answer, &o.answer));
    for (float *const *v = (float *const[]){o.at, o.from, o.center, x, NULL}; *v != NULL; v++)
        memcpy(*v, start, sizeof start);
    ps_fragments(&cut, manifest, FRAGMENTS, parts);
    struct psc *c = rig_join(&psd, rig_model, RIG_TENSORS, x);
    psc_info(c, &before);
    for (int t = 0; t < STEPS; t++) {
        rig_roll(g, N, 100 + (uint64_t)t);
        assert_ok(c, psc_step(c, x, g, 1));
        for (int i = 0; i < N; i++)
            if (role_at((uint64_t)i) == PSC_PARAM)
                o.at[i] -= 0.0625f * g[i];
        if (fragments && t % 2 == 1)
            exchange(&o, parts[t / 2 % 2]);
        else if (!fragments && t % 4 == 3)
            exchange(&o, ps_shard_whole(&cut));
        check_same(&o, t);
    }
    psc_info(c, &after);
    ck_assert_uint_eq(after.bytes_sent - before.bytes_sent, o.sent);
    ck_assert_uint_eq(after.bytes_received - before.bytes_received, o.received);
    assert_ok(c, psc_pull(c, NULL, y));
    for (int i = 0; i < N; i++)
        if (role_at((uint64_t)i) != PSC_PARAM) /* no codec has touched them */
            ck_assert_msg(y[i] == start[i], "[%d] is %a, not %a", i, (double)y[i], (double)start[i]);
    psc_close(c);
}
END_TEST

static void reload(const char *config)
{
    double generation = daemon_number(&psd, "/status", "generation");
    ck_assert(daemon_write_config(&psd, config));
    free(daemon_ask(&psd, "POST", "/reload"));
    ck_assert(daemon_reaches(&psd, "/status", "generation", generation + 1, UNIT_HANG_S));
}

/* To another part of the values, to int4 and to raw: what was fed back meanwhile comes with the next message.
 */
START_TEST(a_reload_changes_the_codec_of_a_running_job)
{
    static const char *const settings[] = {"method=async-sgd", "learning_rate=1", RIG_CUT,
                                           "schedule={kind: constant, warmup_steps: 0}", NULL};
    static const char *const order[] = {"topk:0.2", "topk:0.5", "int4", "topk:0.3", "int8", "raw"};
    char config[128];
    start_manifest();
    memset(start, 0, sizeof start);
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    ck_assert(daemon_write_config(&psd, ""));
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    memset(x, 0, sizeof x);
    struct psc *c = rig_join(&psd, rig_model, RIG_TENSORS, x);
    rig_roll(g, N, 21);
    uint64_t steps = 0;
    for (size_t k = 0; k < ROWS(order); k++) {
        struct psc_info info = {.size = sizeof info};
        snprintf(config, sizeof config, "codec: {message: '%s', error_feedback: true}\n", order[k]);
        reload(config);
        for (uint64_t end = steps + 8; steps < end; steps++) {
            for (double late = unit_now_s() + UNIT_HANG_S; steps == end - 7 && info.generation < k + 1;) {
                ck_assert(unit_now_s() < late);
                psc_info(c, &info);
                unit_nap_ms(5);
            }
            for (uint64_t t = psc_clock(c);
                 psc_clock(c) == t;) /* once more where the method changed under it */
                assert_ok(c, psc_step(c, x, g, 1));
        }
    }
    assert_ok(c, psc_pull(c, NULL, y));
    /* int8, before the last, owes half a step of the largest of its block, and raw what it added to that;
     * topk and int4 owe nothing any more, since int8 has brought it. float32 rounds sums of 48. */
    for (int i = 0; i < N; i++)
        if (role_at((uint64_t)i) == PSC_PARAM)
            ck_assert_msg(fabs((double)y[i] + (double)steps * (double)g[i]) < 0.25, "[%d]: %g, not %g", i,
                          (double)y[i], -(double)steps * (double)g[i]);
    psc_close(c);
}
END_TEST

/* A library of before is told what it lacks; the parameter is not the library's to have. */
START_TEST(a_library_without_the_codec_is_refused)
{
    static char raw[] = "raw", int8[] = "int8", topk[] = "topk";
    char *old[] = {raw, int8}, *now[] = {raw, int8, topk};
    Ps__Hello hello = PS__HELLO__INIT;
    struct hand h;
    start_manifest();
    rig_start(&psd, (const char *[]){"method=downpour", set_codecs("topk:0.02", "raw"), NULL});
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)(uintptr_t) "old hand";
    hello.token = 77;
    hello.n_codecs = ROWS(old);
    hello.codecs = old;
    hand_open(&h, psd.endpoint);
    ck_assert_int_eq(hand_hello(&h, &hello), PS__CODE__CODEC);
    assert_says(h.sentence,
                "codec.message is topk:0.02, codec.answer raw; the library of 'old hand' has only raw, int8");
    hello.n_codecs = ROWS(now);
    hello.codecs = now;
    hello.token = 78;
    ck_assert_int_eq(hand_hello(&h, &hello), 0);
    hand_close(&h);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-moves");
    TCase *tc = tcase_create("psd");
    tcase_add_checked_fixture(tc, NULL, stop);
    tcase_add_loop_test(tc, steps_follow_their_equations, 0, 2 * 4 * (int)ROWS(codecs));
    tcase_add_test(tc, a_reload_changes_the_codec_of_a_running_job);
    tcase_add_test(tc, a_library_without_the_codec_is_refused);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
