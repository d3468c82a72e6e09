/* Exchanges in codecs with a real psd, beside what the equations say: which values, how many bytes, what
 * error feedback keeps, who is refused. */
#include <math.h>
#include <string.h>

#include "proto/codecs/codec.h"
#include "proto/model/shard.h"
#include "tests/client/psd_fixture.h"
#include "tests/support/system/raw_client.h"

enum { N = RIG_N, STEPS = 12, N_CODECS = 5 };

static const struct ps_shard cut = {N, 3, 1024}; /* RIG_CUT */
static struct daemon psd;
static float start[N], x[N], m[N], answer[N], y[N];
static char codec_key[96];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static const char *codec_at(int i)
{
    size_t n;
    return ps_codec_rows(&n)[i]->name;
}

static struct psc *join(void)
{
    memcpy(x, start, sizeof x);
    return rig_join(&psd, rig_model, RIG_TENSORS, x);
}

static const char *set_codec(const char *message, const char *answer_codec, bool feedback)
{
    snprintf(codec_key, sizeof codec_key, "codec={message: %s, answer: %s, error_feedback: %s}", message,
             answer_codec, feedback ? "true" : "false");
    return codec_key;
}

static bool is_frozen(size_t i)
{
    return rig_tensor_at(i)->role == PSC_FROZEN;
}

/* out <- what the piece of v (+ e) decodes to, frozen values as 0; e <- what that lacks. */
static void travel(const struct ps_codec *codec, const float *v, float *e, struct ps_range r, float *out)
{
    static float made[1024];
    static unsigned char payload[4096];
    for (size_t i = 0; i < r.count; i++) {
        size_t at = r.begin + i;
        made[i] = is_frozen(at) && !codec->in_place ? 0 : v[at] + (e != NULL ? e[at] : 0);
    }
    codec->encode(codec, payload, made, r.count);
    codec->decode(codec, out, payload, r.count);
    for (size_t i = 0; i < r.count && e != NULL; i++)
        e[r.begin + i] = made[i] - out[i];
}

/* A model of one worker's exchange under rule elastic, piece by piece. */
static void exchange_elastic(const struct ps_codec *message, const struct ps_codec *back, float *at,
                             float *center, float *e, float alpha)
{
    static float sent[1024], got[1024];
    for (uint32_t lane = 0; lane < cut.n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&cut, lane); k++) {
            struct ps_range r = ps_shard_chunk(&cut, lane, k);
            travel(message, at, e, r, sent);
            travel(back, center, NULL, r, got);
            for (size_t i = 0; i < r.count; i++) {
                size_t p = r.begin + i;
                if (is_frozen(p))
                    continue;
                center[p] = center[p] + alpha * (sent[i] - center[p]);
                at[p] -= alpha * (at[p] - got[i]);
            }
        }
}

START_TEST(steps_follow_their_equations)
{
    static float center[N], at[N], e[N];
    const char *message = codec_at(_i % N_CODECS), *back = codec_at(_i / 2 % N_CODECS);
    bool feedback = _i >= N_CODECS;
    rig_roll(start, N, 5);
    rig_start(&psd, (const char *[]){"method=async-easgd", "alpha=0.25", "period=2", "learning_rate=0.0625",
                                     "schedule={kind: constant, warmup_steps: 0}", RIG_CUT,
                                     set_codec(message, back, feedback), NULL});
    struct psc *c = join();
    memcpy(at, start, sizeof at);
    memcpy(center, start, sizeof center);
    memset(e, 0, sizeof e);
    for (int t = 0; t < STEPS; t++) {
        rig_roll(m, N, 100 + (uint64_t)t);
        assert_ok(c, psc_step(c, x, m, 1));
        if (t % 2 == 0)
            exchange_elastic(ps_codec_named(message), ps_codec_named(back), at, center, feedback ? e : NULL,
                             0.25f);
        for (int i = 0; i < N; i++)
            if (rig_tensor_at((size_t)i)->role == PSC_PARAM)
                at[i] -= 0.0625f * m[i];
        for (int i = 0; i < N; i++)
            if (memcmp(&at[i], &x[i], sizeof *x) != 0)
                ck_abort_msg("%s, %s: x[%d] is %a after step %d, not %a", message, back, i, (double)x[i], t,
                             (double)at[i]);
    }
    assert_ok(c, psc_pull(c, NULL, y));
    for (int i = 0; i < N; i++)
        if (memcmp(&y[i], &center[i], sizeof *y) != 0)
            ck_abort_msg("center[%d] is %a, not %a", i, (double)y[i], (double)center[i]);
    psc_close(c);
}
END_TEST

/* Payload bytes that the whole vector takes, but for chunks that are frozen whole. */
static uint64_t bytes_of(const struct ps_codec *codec)
{
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < cut.n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&cut, lane); k++) {
            struct ps_range r = ps_shard_chunk(&cut, lane, k);
            bool moves = false;
            for (uint64_t i = r.begin; i < r.begin + r.count; i++)
                moves = moves || !is_frozen(i);
            sum += moves ? codec->payload_bytes(codec, r.count) : 0;
        }
    return sum;
}

/* What one rule add by hand brings, under every admission that serves one worker; one tensor alone; a push.
 */
static const char *const admissions[] = {"admission=fcfs",        "admission=hogwild", "admission=sync",
                                         "admission=round-robin", "admission=quorum",  "admission=ssp"};

START_TEST(by_hand_values_come_as_exactly_as_the_codec_has_them)
{
    const struct ps_codec *codec = ps_codec_named(codec_at(_i % N_CODECS));
    const char *admission = admissions[_i / N_CODECS];
    struct psc_info before = {.size = sizeof before}, after = {.size = sizeof after};
    bool hogwild = strstr(admission, "hogwild") != NULL,
         rounds = !hogwild && strstr(admission, "fcfs") == NULL;
    rig_roll(start, N, 6);
    rig_roll(m, N, 7);
    rig_start(&psd,
              (const char *[]){"method=custom", "rule=add", "optimizer=sgd", "averaging=none", "period=1",
                               admission, RIG_CUT, set_codec(codec->name, codec->name, false), NULL});
    struct psc *c = join();
    psc_info(c, &before);
    assert_ok(c, psc_pushpull(c, NULL, m, answer, 1));
    psc_info(c, &after);
    if (!hogwild) {
        ck_assert_uint_eq(after.bytes_sent - before.bytes_sent, bytes_of(codec));
        ck_assert_uint_eq(after.bytes_received - before.bytes_received, bytes_of(codec));
    }
    assert_ok(c, psc_pull(c, NULL, y));
    for (int i = 0; i < N; i++) {
        if (rig_tensor_at((size_t)i)->role != PSC_PARAM)
            continue;
        double want = (double)start[i] + (double)m[i], most = codec->error.relative * 4 + 1e-6;
        ck_assert_msg(fabs((double)y[i] - want) <= most && fabs((double)answer[i] - (double)y[i]) <= most,
                      "%s: [%d] is %g, answered %g, should be %g", codec->name, i, (double)y[i],
                      (double)answer[i], want);
    }
    if (!rounds) {
        assert_ok(c, psc_push(c, "bn.scale", m + 3200, 1));
        assert_ok(c, psc_pull(c, "bn.scale", answer));
        for (int i = 0; i < 700; i++)
            assert_quick(fabs((double)answer[i] - (double)y[3200 + i] - (double)m[3200 + i]) <=
                         codec->error.relative * 2 + 1e-6);
    }
    psc_close(c);
}
END_TEST

/* The same message again and again under rule add: with error feedback the center is off by one message's
 * error, however many there were; without, by that of all of them. */
static double worst_after(int n_pushes, struct psc *c)
{
    double worst = 0;
    for (int k = 0; k < n_pushes; k++)
        assert_ok(c, psc_push(c, NULL, m, 1));
    assert_ok(c, psc_pull(c, NULL, y));
    for (int i = 0; i < N; i++)
        if (rig_tensor_at((size_t)i)->role == PSC_PARAM)
            worst = fmax(worst, fabs((double)y[i] - (double)n_pushes * (double)m[i]));
    return worst;
}

START_TEST(error_feedback_loses_nothing_for_good)
{
    enum { PUSHES = 64 };
    const struct ps_codec *codec = ps_codec_named(codec_at(1 + _i % (N_CODECS - 1)));
    bool feedback = _i >= N_CODECS - 1;
    struct dice dice = {8};
    memset(start, 0, sizeof start);
    for (int i = 0; i < N; i++) /* within a binade, so that every value loses some */
        m[i] = 1.0f + (float)dice_below(&dice, 1u << 20) * 0x1p-20f;
    rig_start(&psd,
              (const char *[]){"method=custom", "rule=add", "optimizer=sgd", "averaging=none", "period=1",
                               "admission=fcfs", RIG_CUT, set_codec(codec->name, "raw", feedback), NULL});
    struct psc *c = join();
    double worst = worst_after(PUSHES, c), once = 2.1 * codec->error.relative;
    double rounding = PUSHES * 128 * 0x1p-24; /* of the center's adds in float32, up to 128 */
    if (feedback)
        ck_assert_msg(worst <= once + rounding, "%s: off by %g; %g is one message's", codec->name, worst,
                      once);
    else
        ck_assert_msg(worst > 4 * once, "%s: off by only %g: the messages lose nothing", codec->name, worst);
    psc_close(c);
}
END_TEST

/* A value that is not finite, and a frozen one that is, never become a message. */
START_TEST(values_that_are_not_finite_are_not_encoded)
{
    rig_roll(start, N, 9);
    rig_roll(m, N, 10);
    rig_start(&psd,
              (const char *[]){"method=custom", "rule=add", "optimizer=sgd", "averaging=none", "period=1",
                               "admission=fcfs", RIG_CUT, set_codec("int8", "int8", _i == 1), NULL});
    struct psc *c = join();
    m[4000] = NAN; /* embedding: frozen */
    assert_ok(c, psc_push(c, NULL, m, 1));
    m[100] = INFINITY;
    uint64_t sent = rig_sent(c);
    ck_assert_int_eq(psc_push(c, NULL, m, 1), PSC_EVALUE);
    ck_assert_uint_eq(rig_sent(c), sent);
    m[100] = 1;
    assert_ok(c, psc_push(c, NULL, m, 1));
    assert_ok(c, psc_pull(c, NULL, y));
    for (int i = 0; i < N; i++)
        assert_quick(isfinite(y[i]));
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

/* Every step is an exchange of the codec that the job has then; the gradients add up through all of them. */
START_TEST(a_reload_changes_the_codec_of_a_running_job)
{
    static const char *const settings[] = {"method=async-sgd", "learning_rate=0.5", RIG_CUT,
                                           "schedule={kind: constant, warmup_steps: 0}", NULL};
    static const char *const order[] = {"int8", "raw", "fp16", "trunc16", "int8", "bf16", "raw"};
    char config[128];
    rig_roll(start, N, 11);
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    ck_assert(daemon_write_config(&psd, "codec: {answer: fp16}\n"));
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    struct psc *c = join();
    for (int i = 0; i < N; i++)
        m[i] = rig_tensor_at((size_t)i)->role == PSC_BUFFER ? 0.0f : 0.25f;
    for (size_t k = 0; k < ROWS(order); k++) {
        snprintf(config, sizeof config, "codec: {message: %s, answer: %s, error_feedback: %s}\n", order[k],
                 order[k], k % 2 == 0 ? "true" : "false");
        reload(config);
        for (double end = unit_now_s() + UNIT_HANG_S; psc_clock(c) < 3 * k + 3;) {
            struct psc_info info = {.size = sizeof info};
            uint64_t sent = rig_sent(c);
            assert_ok(c, psc_step(c, x, m, 1));
            psc_info(c, &info);
            if (psc_clock(c) == 3 * k + 3) {
                ck_assert_uint_eq(info.generation, k + 1);
                ck_assert_uint_eq(rig_sent(c) - sent, bytes_of(ps_codec_named(order[k])));
            } else if (psc_clock(c) == 3 * k + 2) /* by now it has been told */
                while (info.generation < k + 1) {
                    ck_assert(unit_now_s() < end);
                    unit_nap_ms(10);
                    psc_info(c, &info);
                }
        }
    }
    assert_ok(c, psc_pull(c, NULL, y));
    /* A gradient of 0.25 loses nothing but in an int8 block that has buffers, up to 4 of them: 1/253 of that
     * in each of six messages at most. A step is 0.125. */
    for (int i = 0; i < N; i++)
        if (rig_tensor_at((size_t)i)->role == PSC_PARAM)
            ck_assert_msg(fabs((double)y[i] - ((double)start[i] - 0.125 * 3 * ROWS(order))) <
                              6 * 0.5 * 4 / 253,
                          "[%d]: %g from %g", i, (double)y[i], (double)start[i]);
    psc_close(c);
}
END_TEST

/* A library that has not the job's codec is refused before it trains, both sides named. */
START_TEST(a_library_without_the_codec_is_refused)
{
    static char raw[] = "raw", fp16[] = "fp16", int8[] = "int8", odd[] = "gz\x1bip";
    char *some[] = {raw, fp16, odd}, *all[] = {raw, fp16, int8};
    Ps__Hello hello = PS__HELLO__INIT;
    struct hand h;
    rig_start(&psd, (const char *[]){"method=async-sgd", set_codec("int8", "fp16", false), NULL});
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)(uintptr_t) "old hand";
    hello.token = 77;
    hand_open(&h, psd.endpoint);
    ck_assert_int_eq(hand_hello(&h, &hello), PS__CODE__CODEC); /* as one that knows of none */
    assert_says(h.sentence,
                "codec.message is int8, codec.answer fp16; the library of 'old hand' has only raw");
    hello.n_codecs = ROWS(some);
    hello.codecs = some;
    ck_assert_int_eq(hand_hello(&h, &hello), PS__CODE__CODEC);
    assert_says(h.sentence, "has only raw, fp16, gz?ip");
    hello.observer = true; /* which only pulls */
    hello.token = 78;
    ck_assert_int_eq(hand_hello(&h, &hello), 0);
    hello.observer = false;
    hello.token = 79;
    hello.n_codecs = ROWS(all);
    hello.codecs = all;
    ck_assert_int_eq(hand_hello(&h, &hello), 0);
    hand_close(&h);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-codecs");
    TCase *tc = tcase_create("psd");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, steps_follow_their_equations, 0, 2 * N_CODECS);
    tcase_add_loop_test(tc, by_hand_values_come_as_exactly_as_the_codec_has_them, 0,
                        N_CODECS * (int)ROWS(admissions));
    tcase_add_loop_test(tc, error_feedback_loses_nothing_for_good, 0, 2 * (N_CODECS - 1));
    tcase_add_loop_test(tc, values_that_are_not_finite_are_not_encoded, 0, 2);
    tcase_add_test(tc, a_reload_changes_the_codec_of_a_running_job);
    tcase_add_test(tc, a_library_without_the_codec_is_refused);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
