/* The optimizers' table: complete, and each step against its equation in double precision. */
#include <math.h>

#include "client/optimizers/optimizers.h"
#include "client/psclient.h"
#include "client/session/errors.h"
#include "proto/model/method.h"
#include "ps.pb-c.h"
#include "tests/support/unit.h"

enum { N = 300 };

static const struct psc_memory_of host = {.kind = &psc_memory_host};
static struct psc_work work;

/* Moves the point by g, and leaves in *at where the next gradient is wanted. */
static void step_none(double *at, double *x, double *v, double g, double eta, double delta)
{
    (void)at;
    (void)x;
    (void)v;
    (void)g;
    (void)eta;
    (void)delta;
}

static void step_sgd(double *at, double *x, double *v, double g, double eta, double delta)
{
    (void)x;
    (void)v;
    (void)delta;
    *at -= eta * g;
}

/* You et al. 2017, eq. 5: the caller's array is x. */
static void step_heavy_ball(double *at, double *x, double *v, double g, double eta, double delta)
{
    (void)x;
    *v = delta * *v - eta * g;
    *at += *v;
}

/* Zhang et al. 2015, eq. 7-8. */
static void step_nesterov(double *at, double *x, double *v, double g, double eta, double delta)
{
    *v = delta * *v - eta * g;
    *x += *v;
    *at = *x + delta * *v;
}

static const struct {
    const char *name;
    void (*step)(double *at, double *x, double *v, double g, double eta, double delta);
} references[] = {
    {"none", step_none}, {"sgd", step_sgd}, {"heavy-ball", step_heavy_ball}, {"nesterov", step_nesterov}};

START_TEST(every_method_has_its_optimizer)
{
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++) {
        const struct psc_optimizer *o = psc_optimizer_find(m->optimizer);
        size_t tested = 0;
        ck_assert_msg(o != NULL, "method '%s' wants optimizer '%s'", m->name, m->optimizer);
        ck_assert_str_eq(o->name, m->optimizer);
        for (size_t i = 0; i < ROWS(references); i++)
            tested += strcmp(references[i].name, m->optimizer) == 0;
        ck_assert_msg(tested == 1, "optimizer '%s' has no reference here", m->optimizer);
    }
    ck_assert_ptr_null(psc_optimizer_find("adam-w"));
    ck_assert_ptr_null(psc_optimizer_find(""));
}
END_TEST

START_TEST(both_ends_know_the_same_optimizers)
{
    for (const struct ps_optimizer_info *info = ps_optimizers; info->name != NULL; info++) {
        const struct psc_optimizer *o = psc_optimizer_find(info->name);
        ck_assert_msg(o != NULL, "no optimizer '%s'", info->name);
        ck_assert_str_eq(o->name, info->name);
    }
}
END_TEST

/* All values are below 4 in size, and no result is more than six operations from its inputs: six halves of an
 * ulp of 4. */
START_TEST(steps_follow_their_equations)
{
    enum { STEPS = 5 };
    const struct psc_optimizer *o = psc_optimizer_find(references[_i].name);
    struct dice dice = {20};
    float at[N], x[N], v[N] = {0}, g[N], eta = 0.125f, delta = 0.5f;
    for (int i = 0; i < N; i++)
        at[i] = x[i] = dice_float(&dice);
    for (int step = 0; step < STEPS; step++) {
        float at_0[N], x_0[N], v_0[N];
        memcpy(at_0, at, sizeof at);
        memcpy(x_0, x, sizeof x);
        memcpy(v_0, v, sizeof v);
        for (int i = 0; i < N; i++)
            g[i] = dice_float(&dice);
        o->step(&work, &(struct psc_optimizer_vectors){.at = at, .x = x, .v = v, .g = g, .n = N}, eta, delta);
        for (int i = 0; i < N; i++) {
            double want_at = (double)at_0[i], want_x = (double)x_0[i], want_v = (double)v_0[i];
            references[_i].step(&want_at, &want_x, &want_v, (double)g[i], (double)eta, (double)delta);
            ck_assert_double_le(fabs((double)at[i] - want_at), 6 * 0x1p-23);
            ck_assert_double_le(fabs((double)x[i] - want_x), 6 * 0x1p-23);
            ck_assert_double_le(fabs((double)v[i] - want_v), 6 * 0x1p-23);
        }
    }
}
END_TEST

/* An oracle, bit for bit: without momentum both are gradient descent, also where the next gradient is wanted.
 */
START_TEST(without_momentum_they_are_sgd)
{
    static const char *const names[] = {"heavy-ball", "nesterov"};
    const struct psc_optimizer *o = psc_optimizer_find(names[_i]), *sgd = psc_optimizer_find("sgd");
    struct dice dice = {21};
    float at[N], x[N], v[N] = {0}, g[N], plain[N];
    for (int i = 0; i < N; i++)
        at[i] = x[i] = plain[i] = dice_float(&dice);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < N; i++)
            g[i] = dice_float(&dice);
        o->step(&work, &(struct psc_optimizer_vectors){.at = at, .x = x, .v = v, .g = g, .n = N}, 0.1f, 0);
        sgd->step(&work, &(struct psc_optimizer_vectors){.at = plain, .g = g, .n = N}, 0.1f, 0);
        ck_assert_mem_eq(at, plain, sizeof at);
    }
}
END_TEST

/* Where the next gradient is wanted when something else has moved x: the same bits as after a step. */
START_TEST(looking_ahead_is_what_the_step_does)
{
    struct dice dice = {22};
    for (const struct ps_optimizer_info *info = ps_optimizers; info->name != NULL; info++) {
        const struct psc_optimizer *o = psc_optimizer_find(info->name);
        float at[N], x[N], v[N] = {0}, g[N], again[N];
        ck_assert((o->lookahead != NULL) == o->keeps_x);
        ck_assert((o->step == NULL) == info->callers);
        if (o->lookahead == NULL)
            continue;
        for (int i = 0; i < N; i++) {
            at[i] = x[i] = dice_float(&dice);
            g[i] = dice_float(&dice);
        }
        o->step(&work, &(struct psc_optimizer_vectors){.at = at, .x = x, .v = v, .g = g, .n = N}, 0.1f, 0.7f);
        o->lookahead(&work, &(struct psc_optimizer_vectors){.at = again, .x = x, .v = v, .n = N}, 0.7f);
        ck_assert_mem_eq(at, again, sizeof at);
    }
}
END_TEST

START_TEST(every_code_has_a_result)
{
    for (unsigned code = 0; code < 40; code++)
        ck_assert_str_ne(psc_result_name(psc_result_of_code(code)), "unknown result");
    ck_assert_int_eq(psc_result_of_code(PS__CODE__DRAINING), PSC_DRAINED);
    ck_assert_int_eq(psc_result_of_code(PS__CODE__RANK_TAKEN), PSC_ERANK);
    ck_assert_int_eq(psc_result_of_code(PS__CODE__MANIFEST), PSC_EMANIFEST);
    ck_assert_int_eq(psc_result_of_code(PS__CODE__VERSION), PSC_EUNSUPPORTED);
    for (unsigned code = PS__CODE__VERSION; code <= PS__CODE__CLIQUE; code++)
        ck_assert_int_ne(psc_result_of_code(code), PSC_OK);
}
END_TEST

int main(void)
{
    work = psc_work_of(&host, PSC_COMPUTE);
    Suite *suite = suite_create("client-optimizers");
    TCase *tc = tcase_create("optimizers");
    tcase_add_test(tc, every_method_has_its_optimizer);
    tcase_add_test(tc, both_ends_know_the_same_optimizers);
    tcase_add_loop_test(tc, steps_follow_their_equations, 0, ROWS(references));
    tcase_add_loop_test(tc, without_momentum_they_are_sgd, 0, 2);
    tcase_add_test(tc, looking_ahead_is_what_the_step_does);
    tcase_add_test(tc, every_code_has_a_result);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
