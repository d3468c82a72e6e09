/* The average that follows the center, as workers and observers of a real psd pull it. */
#include <math.h>
#include <signal.h>

#include "tests/client/psd_fixture.h"

enum { N = RIG_N, STEPS = 6 };

static const char *const averaging[] = {"method=async-sgd",
                                        "averaging=mean",
                                        "learning_rate=1",
                                        "schedule={kind: constant, warmup_steps: 0}",
                                        RIG_CUT,
                                        NULL};
static const char *const plain[] = {"method=async-sgd", "learning_rate=1",
                                    "schedule={kind: constant, warmup_steps: 0}", RIG_CUT, NULL};

static struct daemon psd;
static float x[N], z[N], message[N];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

/* The center starts at i % 7 and each message takes 2 from what is a parameter; buffers are the worker's, and
 * become 2 with the first. */
static double center_of(int i, int moves)
{
    uint32_t role = rig_tensor_at((size_t)i)->role;
    if (role == PSC_FROZEN || moves == 0)
        return i % 7;
    return role == PSC_BUFFER ? 2 : i % 7 - 2.0 * moves;
}

/* The mean of the centers before each move; rates of a third and the like round: STEPS times, below 16. */
static void check(const float *found, int begin, int end, int moves)
{
    for (int i = begin; i < end; i++) {
        double sum = 0;
        for (int k = 0; k < moves; k++)
            sum += center_of(i, k);
        double want = moves > 0 ? sum / moves : center_of(i, 0);
        if (!(fabs((double)found[i - begin] - want) <= STEPS * 4 * 0x1p-21))
            ck_abort_msg("'%s'[%d] is %.9g, expected %.9g", rig_tensor_at((size_t)i)->name, i,
                         (double)found[i - begin], want);
    }
}

static struct psc *begin(const char *const *settings)
{
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 7);
        message[i] = 2;
    }
    rig_start(&psd, settings);
    return rig_join(&psd, rig_model, RIG_TENSORS, x);
}

static struct psc *observe(void)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.kind = PSC_OBSERVER;
    assert_ok(c, psc_open(&opt, &c));
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, x));
    return c;
}

START_TEST(average_is_pulled_by_workers_and_observers)
{
    struct psc_info info = {.size = sizeof info};
    uint64_t ticket;
    struct psc *c = begin(averaging), *o = observe();
    psc_info(o, &info);
    ck_assert_str_eq(info.averaging, "mean");
    for (int moves = 0; moves <= STEPS; moves++) {
        assert_ok(c, psc_pull_average(c, NULL, z));
        check(z, 0, N, moves);
        memset(z, 0, sizeof z);
        assert_ok(o, psc_pull_average_start(o, "fc.weight", z, &ticket));
        assert_ok(o, psc_wait(o, ticket));
        check(z, 8000, 9900, moves);
        assert_ok(o, psc_pull(o, NULL, z)); /* the center is another thing */
        for (int i = 0; i < N; i++)
            assert_quick((double)z[i] == center_of(i, moves));
        assert_ok(c, psc_push(c, NULL, message, 1));
    }
    psc_close(o);
    psc_close(c);
}
END_TEST

START_TEST(job_without_an_average_says_so)
{
    struct psc_info info = {.size = sizeof info};
    uint64_t ticket;
    struct psc *c = begin(plain);
    psc_info(c, &info);
    ck_assert_str_eq(info.averaging, "none");
    assert_fails(c, psc_pull_average(c, NULL, z), PSC_EINVAL, "psc_pull_average: the job keeps no average");
    assert_fails(c, psc_pull_average_start(c, "fc.weight", z, &ticket), PSC_EINVAL,
                 "psc_pull_average_start: the job keeps no average");
    assert_ok(c, psc_pull(c, NULL, z)); /* and the handle goes on */
    psc_close(c);
}
END_TEST

/* psd is killed after a checkpoint; the average goes on from there. */
START_TEST(average_survives_psd)
{
    rig_lose_messages();
    struct psc *c = begin(averaging);
    for (int k = 0; k < 3; k++)
        assert_ok(c, psc_push(c, NULL, message, 1));
    ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    for (int k = 0; k < 2; k++)
        assert_ok(c, psc_push(c, NULL, message, 1));
    assert_ok(c, psc_pull_average(c, NULL, z));
    check(z, 0, N, 5);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-average");
    TCase *tc = tcase_create("average");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_test(tc, average_is_pulled_by_workers_and_observers);
    tcase_add_test(tc, job_without_an_average_says_so);
    tcase_add_test(tc, average_survives_psd);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
