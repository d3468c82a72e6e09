/* Passes that several threads share: every value once, and the bits of one thread. */
#include <stdio.h>

#include "client/internal.h"
#include "client/team/team.h"
#include "tests/support/unit.h"

enum { N = PSC_TEAM_FLOATS + 1003, THREADS = 3, STEPS = 3 };

static uint8_t seen[N];
static _Atomic uint32_t n_pieces;

static void see(void *arg, uint64_t begin, uint64_t count)
{
    (void)arg;
    n_pieces++;
    for (uint64_t i = begin; i < begin + count; i++)
        seen[i]++;
}

static struct psc_team *team_of(uint32_t threads)
{
    struct psc_team *t;
    ck_assert_int_eq(psc_team_create(threads, &t), 0);
    return t;
}

START_TEST(every_value_is_passed_once)
{
    struct psc_team *t = team_of(THREADS);
    for (int round = 1; round <= 20; round++) {
        n_pieces = 0;
        psc_team_run(t, N, see, NULL);
        ck_assert_uint_eq(n_pieces, THREADS);
        for (size_t i = 0; i < N; i++)
            assert_quick(seen[i] == round);
    }
    psc_team_destroy(t);
}
END_TEST

START_TEST(short_vectors_are_passed_alone)
{
    struct psc_team *t = team_of(THREADS);
    psc_team_run(t, PSC_TEAM_FLOATS - 1, see, NULL);
    psc_team_run(NULL, N, see, NULL);
    ck_assert_uint_eq(n_pieces, 2);
    psc_team_destroy(t);
}
END_TEST

static void see_within(void *arg, uint64_t begin, uint64_t count)
{
    if (begin == 0)
        psc_team_run(arg, N, see, NULL);
    (void)count;
}

/* As the async thread does while the caller's thread has the team. */
START_TEST(a_team_that_is_taken_is_done_without)
{
    struct psc_team *t = team_of(THREADS);
    psc_team_run(t, N, see_within, t);
    ck_assert_uint_eq(n_pieces, 1);
    for (size_t i = 0; i < N; i++)
        assert_quick(seen[i] == 1);
    psc_team_destroy(t);
}
END_TEST

static const struct psc_tensor model[] = {
    {.name = "w", .offset = 0, .shape = {N - 103}, .n_dims = 1, .role = PSC_PARAM},
    {.name = "mean", .offset = N - 103, .shape = {50}, .n_dims = 1, .role = PSC_BUFFER},
    {.name = "fixed", .offset = N - 53, .shape = {50}, .n_dims = 1, .role = PSC_FROZEN},
    {.name = "b", .offset = N - 3, .shape = {3}, .n_dims = 1, .role = PSC_PARAM, .decay = PSC_NO_DECAY},
};

static struct psc *open_with(uint32_t threads, const char *method, float *x)
{
    struct psc_local local;
    struct psc_options opt;
    struct psc *c;
    struct dice dice = {1};
    psc_local_init(&local, sizeof local, method);
    local.weight_decay = 0.01;
    psc_options_init(&opt, sizeof opt);
    opt.local = &local;
    opt.threads = threads;
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK, "%s", psc_error(c));
    for (size_t i = 0; i < N; i++)
        x[i] = dice_float(&dice);
    ck_assert_msg(psc_begin(c, model, ROWS(model), x) == PSC_OK, "%s", psc_error(c));
    ck_assert_int_eq(c->team != NULL, threads > 1);
    return c;
}

static void train(uint32_t threads, const char *method, float *x)
{
    static float g[N];
    struct psc *c = open_with(threads, method, x);
    for (int t = 0; t < STEPS; t++) {
        for (size_t i = 0; i < N; i++)
            g[i] = 0.5f * x[i] + (float)t;
        ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    }
    ck_assert_int_eq(psc_point(c, x), PSC_OK);
    psc_close(c);
}

static const char *const methods[] = {"sgd", "msgd", "asgd", "mvasgd"};

START_TEST(steps_have_the_bits_of_one_thread)
{
    static float alone[N], together[N];
    train(1, methods[_i], alone);
    train(THREADS, methods[_i], together);
    ck_assert(memcmp(alone, together, sizeof alone) == 0);
}
END_TEST

START_TEST(the_first_value_that_is_not_finite_is_named)
{
    static float x[N];
    struct psc *c = open_with(THREADS, "sgd", x);
    struct psc_transfer t = {.kind = PS_FRAME_EXCHANGE, .send = x, .name = "x"};
    struct ps_error err = {""};
    ck_assert_int_eq(psc_transfer_check(c, &t, &err), PSC_OK);
    x[N - 1] = x[N / 2 + 5] = 1.0f / 0.0f;
    x[N - 20] = 1.0f / 0.0f; /* frozen: not sent */
    ck_assert_int_eq(psc_transfer_check(c, &t, &err), PSC_EVALUE);
    char want[64];
    snprintf(want, sizeof want, "x[%d], in tensor 'w'", N / 2 + 5);
    ck_assert_msg(strstr(err.text, want) != NULL, "%s", err.text);
    psc_close(c);
}
END_TEST

START_TEST(too_many_threads_are_refused)
{
    struct psc_local local;
    struct psc_options opt;
    struct psc *c;
    psc_local_init(&local, sizeof local, "sgd");
    psc_options_init(&opt, sizeof opt);
    opt.local = &local;
    opt.threads = PSC_MAX_THREADS + 1;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_EINVAL);
    ck_assert_msg(strstr(psc_error(c), "threads 1025; allowed are 0 to 1024") != NULL, "%s", psc_error(c));
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("client-team");
    TCase *t = tcase_create("team");
    tcase_add_test(t, every_value_is_passed_once);
    tcase_add_test(t, short_vectors_are_passed_alone);
    tcase_add_test(t, a_team_that_is_taken_is_done_without);
    tcase_add_loop_test(t, steps_have_the_bits_of_one_thread, 0, (int)ROWS(methods));
    tcase_add_test(t, the_first_value_that_is_not_finite_is_named);
    tcase_add_test(t, too_many_threads_are_refused);
    suite_add_tcase(s, t);
    return unit_run(s);
}
