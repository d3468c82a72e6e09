/* Workers of unequal speed under dynamic_period: a real psd and real psworkers, one of which takes four times
 * as long for a gradient. */
#include <signal.h>
#include <sys/wait.h>

#include "tests/support/clock.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/psworker.h"

#define ENDLESS "--net", "linear", "--batch", "16", "--steps", "1000000"

static struct daemon psd;

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static double period_of(int rank)
{
    return daemon_number(&psd, "/workers", rank == 0 ? "workers.0.period" : "workers.1.period");
}

/* Until both are so: a busy machine may take its time. */
static bool settles(double fast, double slow_from, double slow_to)
{
    double deadline = test_now_s() + test_slow_s(90);
    while (test_now_s() < deadline) {
        double slow = period_of(1);
        if (period_of(0) == fast && slow >= slow_from && slow <= slow_to)
            return true;
        test_nap_s(0.1);
    }
    return false;
}

START_TEST(a_slower_worker_has_a_shorter_period)
{
    static const char *const methods[] = {"method=async-local-sgd", "method=diloco"};
    const char *settings[] = {methods[_i], "dynamic_period=true", "period=40", NULL};
    pid_t pids[2];
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    pids[0] = psworker_start(&psd, "fast", (const char *[]){ENDLESS, "--rank", "0", "--step-ms", "10", NULL});
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.steps_per_s", 1, 60));
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.period", 40, 20));
    pids[1] = psworker_start(&psd, "slow", (const char *[]){ENDLESS, "--rank", "1", "--step-ms", "40", NULL});
    ck_assert_msg(settles(40, 8, 13), "periods are %g and %g", period_of(0), period_of(1));
    /* It is what the worker does: ten steps or so an exchange, of those it makes from now on. */
    double clock = daemon_number(&psd, "/workers", "workers.1.clock"),
           exchanges = daemon_number(&psd, "/workers", "workers.1.exchanges");
    ck_assert(daemon_reaches(&psd, "/workers", "workers.1.exchanges", exchanges + 8, 60));
    clock = daemon_number(&psd, "/workers", "workers.1.clock") - clock;
    exchanges = daemon_number(&psd, "/workers", "workers.1.exchanges") - exchanges;
    ck_assert_msg(clock / exchanges < 25, "%g steps for %g exchanges", clock, exchanges);
    /* Alone it is the fastest. */
    kill(pids[0], SIGTERM);
    ck_assert_int_eq(psworker_wait(pids[0], 60), 0);
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.period", 40, 60));
    ck_assert_int_eq((int)daemon_number(&psd, "/workers", "workers.0.rank"), 1);
    kill(pids[1], SIGTERM);
    ck_assert_int_eq(psworker_wait(pids[1], 60), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("system-tempo");
    TCase *tc = tcase_create("tempo");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_set_timeout(tc, 400);
    tcase_add_loop_test(tc, a_slower_worker_has_a_shorter_period, 0, 2);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
