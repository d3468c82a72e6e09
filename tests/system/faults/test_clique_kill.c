/* kill -9 of a member of a clique that trains with psd, at 50 random moments: every other member's step ends
 * with PSC_ECLIQUE, long before its timeout_ms is up, psd loses one client, and a worker beside goes on. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"

enum { MEMBERS = 3, ROUNDS = 50, TIMEOUT_MS = 3600000, FLOATS = 20000 };

static const char *const settings[] = {
    "method=mpi-asgd",      "parameters.learning_rate=1", "parameters.schedule.warmup_steps=0",
    "limits.silence_s=60", /* of psd's clock, which the test drives */
    "checkpoint.every_s=0", "chunk_floats=4096",          NULL};

/* What the members' processes tell. */
struct page {
    struct {
        _Atomic uint64_t steps;
        int rc;
        char error[600];
    } member[MEMBERS];
};

static int train(struct page *page, const struct daemon *d, int member, struct psc_clique *q, struct psc **c)
{
    static float x[FLOATS], g[FLOATS];
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {FLOATS}};
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.heartbeat_ms = 300;
    opt.clique = q;
    int rc = psc_open(&opt, c);
    if (rc == PSC_OK)
        rc = psc_begin(*c, &tensor, 1, x);
    while (rc == PSC_OK) {
        rc = psc_step(*c, x, g, 1);
        page->member[member].steps++;
    }
    return rc;
}

static void be_member(struct page *page, const struct daemon *d, const char *place, int member)
{
    struct psc_ring_options opt;
    struct psc_clique *q;
    struct psc *c = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = MEMBERS;
    opt.rank = member;
    opt.rendezvous = place;
    opt.listen = "unix:";
    opt.timeout_ms = TIMEOUT_MS;
    int rc = psc_ring_open(&opt, &q);
    const char *why = psc_clique_error(q);
    if (rc == PSC_OK) {
        rc = train(page, d, member, q, &c);
        why = psc_error(c);
    }
    page->member[member].rc = rc;
    snprintf(page->member[member].error, sizeof page->member[member].error, "%s", why);
    psc_close(c);
    psc_clique_close(q);
    _exit(0);
}

static void kill_once(struct page *page, const struct daemon *d, const char *place, struct dice *dice)
{
    pid_t pids[MEMBERS];
    int killed = (int)dice_below(dice, MEMBERS), status;
    memset(page, 0, sizeof *page);
    for (int i = 0; i < MEMBERS; i++)
        if ((pids[i] = fork()) == 0)
            be_member(page, d, place, i);
    double begun = test_now_s();
    for (int i = 0; i < MEMBERS; i++)
        while (page->member[i].steps < 3) {
            ck_assert_msg(test_now_s() - begun < test_slow_s(TEST_HANG_S), "member %d does not train: %s", i,
                          page->member[i].error);
            test_nap_s(0.001);
        }
    test_nap_s((double)dice_below(dice, 20000) * 1e-6);
    kill(pids[killed], SIGKILL);
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    for (int i = 0; i < MEMBERS; i++)
        while (waitpid(pids[i], &status, WNOHANG) != pids[i]) {
            ck_assert_msg(test_now_s() < deadline, "member %d waits for member %d, which was killed", i,
                          killed);
            test_nap_s(0.001);
        }
    for (int i = 0; i < MEMBERS; i++) {
        if (i == killed)
            continue;
        ck_assert_msg(page->member[i].rc == PSC_ECLIQUE,
                      "member %d of a clique whose member %d was killed: %s: %s", i, killed,
                      psc_result_name(page->member[i].rc), page->member[i].error);
    }
}

START_TEST(a_killed_member_ends_its_clique_and_nobody_else)
{
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char place[160];
    struct daemon d;
    struct crew_worker beside;
    struct dice dice = {2027};
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    struct shim_page *shim = shim_set(PSD_SHIM, d.dir);
    ck_assert_ptr_nonnull(shim);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    shim_unset();
    snprintf(place, sizeof place, "file:%s/ring", d.dir);
    struct crew_task task = {
        .server = d.endpoint, .rank = -1, .floats = FLOATS, .heartbeat_ms = 100, .pause_s = 0.001};
    crew_start(&beside, &task);
    ck_assert_msg(crew_reaches(&beside, 3, TEST_HANG_S), "%s", beside.page->error);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t before = beside.page->exchanges;
        kill_once(page, &d, place, &dice);
        ck_assert_msg(crew_reaches(&beside, before + 5, TEST_HANG_S), "the worker beside: %s",
                      beside.page->error);
    }
    /* Those that led lost their session without a word. */
    double deadline = test_now_s() + test_slow_s(2 * TEST_HANG_S);
    while (daemon_workers(&d) != 1) {
        ck_assert_msg(test_now_s() < deadline, "psd still has a client of a broken clique");
        ck_assert(shim_pass(shim, &d, 1, &beside.page->rank, 1));
    }
    ck_assert(crew_stop(&beside, TEST_HANG_S));
    ck_assert_msg(beside.page->rc == PSC_OK, "%s", beside.page->error);
    ck_assert_double_eq(daemon_workers(&d), 0);
    daemon_remove(&d);
    munmap(page, sizeof *page);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_killed_member_ends_its_clique_and_nobody_else};
    return suite_run("clique-kill", tests, ROWS(tests), 10 * TEST_HANG_S);
}
