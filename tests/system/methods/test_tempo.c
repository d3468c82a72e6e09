/* Workers of unequal speed under dynamic_period: a real psd and real psworkers, one of which takes four times
 * as long for a gradient. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "tests/support/clock.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/psworker.h"

#define ENDLESS "--net", "linear", "--batch", "16", "--steps", "1000000"

enum { WAIT_S = 120 };

static struct daemon psd;

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static double of_worker(int rank, const char *member)
{
    char path[40];
    snprintf(path, sizeof path, "workers.%d.%s", rank, member);
    return daemon_number(&psd, "/workers", path);
}

/* Until the fast one has the whole period and the slow one the part of it that its speed is of the other's,
 * less than half. Both told of their speeds: how fast this machine is does not matter. */
static bool settles(double whole)
{
    double deadline = test_now_s() + test_slow_s(WAIT_S);
    while (test_now_s() < deadline) {
        double slow = of_worker(1, "period"),
               part = whole * of_worker(1, "steps_per_s") / of_worker(0, "steps_per_s");
        if (of_worker(0, "period") == whole && slow >= 2 && slow < whole / 2 && fabs(slow - part) <= 2)
            return true;
        test_nap_s(0.05);
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
    pids[0] = psworker_start(&psd, "fast", (const char *[]){ENDLESS, "--rank", "0", "--step-ms", "20", NULL});
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.steps_per_s", 1, WAIT_S));
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.period", 40, WAIT_S));
    pids[1] = psworker_start(&psd, "slow", (const char *[]){ENDLESS, "--rank", "1", "--step-ms", "80", NULL});
    ck_assert_msg(settles(40), "periods are %g and %g", of_worker(0, "period"), of_worker(1, "period"));
    /* It is what the worker does, in the exchanges that it makes from now on. */
    double clock = daemon_number(&psd, "/workers", "workers.1.clock"),
           exchanges = daemon_number(&psd, "/workers", "workers.1.exchanges");
    ck_assert(daemon_reaches(&psd, "/workers", "workers.1.exchanges", exchanges + 5, WAIT_S));
    clock = daemon_number(&psd, "/workers", "workers.1.clock") - clock;
    exchanges = daemon_number(&psd, "/workers", "workers.1.exchanges") - exchanges;
    ck_assert_msg(clock / exchanges < 30, "%g steps for %g exchanges", clock, exchanges);
    /* Alone it is the fastest. */
    kill(pids[0], SIGTERM);
    ck_assert_int_eq(psworker_wait(pids[0], WAIT_S), 0);
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.period", 40, WAIT_S));
    ck_assert_int_eq((int)daemon_number(&psd, "/workers", "workers.0.rank"), 1);
    kill(pids[1], SIGTERM);
    ck_assert_int_eq(psworker_wait(pids[1], WAIT_S), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("system-tempo");
    TCase *tc = tcase_create("tempo");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_set_timeout(tc, test_slow_s(500));
    tcase_add_loop_test(tc, a_slower_worker_has_a_shorter_period, 0, 2);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
