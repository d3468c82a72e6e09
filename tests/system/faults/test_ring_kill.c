/* kill -9 of a member of a ring at 50 random moments: every other member's call ends with PSC_ECLIQUE, and
 * says who is gone, because its connection has ended: nobody waits for its silence. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"

enum { MEMBERS = 4, ROUNDS = 50, TIMEOUT_MS = 600000, MAX_FLOATS = 500000 };

/* What the members' processes tell. */
struct page {
    struct {
        _Atomic int begun; /* its ring is open */
        int rc;
        uint64_t calls;
        char error[600];
    } member[MEMBERS];
};

/* The same calls at every member, of all kinds and many sizes. */
static int call(struct psc_clique *q, float *x, struct dice *d)
{
    size_t n = dice_below(d, 4) == 0 ? MAX_FLOATS : dice_below(d, 3000);
    int root = (int)dice_below(d, MEMBERS);
    uint64_t ticket;
    int rc;
    switch (dice_below(d, 6)) {
    case 0:
        return psc_broadcast(q, x, n, root);
    case 1:
        return psc_reduce(q, x, n, root, NULL);
    case 2:
        return psc_barrier(q);
    case 3:
        rc = psc_allreduce_start(q, x, n, NULL, &ticket);
        return rc == PSC_OK ? psc_clique_wait(q, ticket) : rc;
    default:
        return psc_allreduce(q, x, n, NULL);
    }
}

static void be_member(struct page *page, int rank, const char *place, const char *listen, uint32_t links,
                      uint64_t seed)
{
    static float x[MAX_FLOATS];
    struct psc_ring_options opt;
    struct psc_clique *q;
    struct dice d = {seed};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = MEMBERS;
    opt.rank = rank;
    opt.rendezvous = place;
    opt.listen = listen;
    opt.links = links;
    opt.timeout_ms = TIMEOUT_MS;
    int rc = psc_ring_open(&opt, &q);
    page->member[rank].begun = 1;
    while (rc == PSC_OK) {
        rc = call(q, x, &d);
        page->member[rank].calls++;
        for (size_t i = 0; i < MAX_FLOATS; i += 1000) /* sums of sums grow */
            x[i] = 1;
    }
    page->member[rank].rc = rc;
    snprintf(page->member[rank].error, sizeof page->member[rank].error, "%s", psc_clique_error(q));
    psc_clique_close(q);
    _exit(0);
}

static void check_survivor(const struct page *page, int rank, int killed)
{
    char gone[32];
    snprintf(gone, sizeof gone, "rank %d is gone", killed);
    ck_assert_msg(page->member[rank].rc == PSC_ECLIQUE, "rank %d: %s: %s", rank,
                  psc_result_name(page->member[rank].rc), page->member[rank].error);
    assert_says(page->member[rank].error, gone);
}

static void kill_once(struct page *page, const char *place, int round, struct dice *d)
{
    static const char *const roads[] = {"tcp://127.0.0.1", "unix:"};
    uint64_t seed = dice_bits(d);
    pid_t pids[MEMBERS];
    int killed = (int)dice_below(d, MEMBERS), status;

    memset(page, 0, sizeof *page);
    for (int i = 0; i < MEMBERS; i++)
        if ((pids[i] = fork()) == 0)
            be_member(page, i, place, roads[round % 2], round % 3 == 0 ? 2 : 1, seed);
    for (int i = 0; i < MEMBERS; i++)
        while (page->member[i].begun == 0)
            test_nap_s(0.001);
    test_nap_s((double)dice_below(d, 40000) * 1e-6);
    kill(pids[killed], SIGKILL);
    for (int i = 0; i < MEMBERS; i++)
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    for (int i = 0; i < MEMBERS; i++)
        if (i != killed)
            check_survivor(page, i, killed);
}

START_TEST(a_killed_member_is_named_by_all_at_50_moments)
{
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char dir[] = "/tmp/psd-ring-XXXXXX", place[64];
    struct dice d = {2026};
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(place, sizeof place, "file:%s/ring", dir);
    for (int round = 0; round < ROUNDS; round++)
        kill_once(page, place, round, &d);
    ck_assert_int_eq(rmdir(dir), 0);
    munmap(page, sizeof *page);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_killed_member_is_named_by_all_at_50_moments};
    return suite_run("ring-kill", tests, ROWS(tests), 400);
}
