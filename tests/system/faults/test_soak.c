/* Memory of psd over many exchanges: flat, and as /status says it is. */
#include <stdio.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/suite.h"

#ifdef __SANITIZE_ADDRESS__
enum { EXCHANGES = 300, WARM_UP = 100, IS_MEASURED = 0 }; /* freed memory is kept back: RSS says nothing */
#else
enum { EXCHANGES = 10000, WARM_UP = 1000, IS_MEASURED = 1 };
#endif
enum { FLOATS = 431080, WORKERS = 2 }; /* LeNet: 1.7 MB */

/* The statement counts the values, windows and tables. It leaves out: threads' stacks, a transfer's parts in
 * libzmq and its slack, and what a heap keeps for reuse. While psd stands still, a window of each worker
 * waits in libzmq. */
#define SLACK_BYTES  (12u << 20)
#define GROWTH_BYTES (2u << 20)

static const char *const settings[] = {
    "method=async-easgd",   "parameters.beta=0.9", "parameters.learning_rate=0.1",
    "checkpoint.every_s=0", "limits.clients=16",   NULL};

START_TEST(memory_is_flat_and_as_stated)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    uint64_t baseline = daemon_resident_bytes(d.pid);
    for (int i = 0; i < WORKERS; i++) {
        struct crew_task task = {.server = d.endpoint,
                                 .rank = i,
                                 .floats = FLOATS,
                                 .count = EXCHANGES / WORKERS,
                                 .salt = (uint32_t)i};
        crew_start(&crew[i], &task);
    }
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(crew_reaches(&crew[i], WARM_UP / WORKERS, 120), "%s", crew[i].page->error);
    ck_assert(daemon_checkpoint(&d, 60)); /* touches the snapshot's memory */
    uint64_t warm = daemon_resident_bytes(d.pid), most = warm, now;

    double total = daemon_number(&d, "/status", "memory.total_bytes");
    double vector = FLOATS * sizeof(float);
    ck_assert_double_eq(daemon_number(&d, "/status", "memory.center_bytes"), vector);
    ck_assert_double_eq(daemon_number(&d, "/status", "memory.snapshot_bytes"), vector);
    double lanes = daemon_number(&d, "/status", "lanes"),
           window = daemon_number(&d, "/status", "window_chunks");
    double windows = daemon_number(&d, "/status", "memory.window_bytes");
    ck_assert_double_ge(windows, WORKERS * lanes * window * 65536);
    ck_assert_double_ge(total, 2 * vector + windows);

    for (int i = 0; i < WORKERS; i++)
        while (!crew[i].page->ended) {
            now = daemon_resident_bytes(d.pid);
            most = now > most ? now : most;
            ck_assert_double_eq(daemon_number(&d, "/status", "memory.total_bytes") > total, 0);
            test_nap_s(0.2);
        }
    for (int i = 0; i < WORKERS; i++) {
        crew_stop(&crew[i], 60);
        ck_assert_msg(crew[i].page->rc == PSC_OK, "%s", crew[i].page->error);
        ck_assert_uint_eq(crew[i].page->exchanges, EXCHANGES / WORKERS);
    }
    ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), EXCHANGES);
    printf("psd: %.1f MB at the start, %.1f MB warm, %.1f MB at most; /status says %.1f MB\n",
           (double)baseline * 1e-6, (double)warm * 1e-6, (double)most * 1e-6, total * 1e-6);
    if (IS_MEASURED) {
        ck_assert_msg((double)most <= (double)warm + GROWTH_BYTES + windows, "psd grew from %lu to %lu bytes",
                      (unsigned long)warm, (unsigned long)most);
        ck_assert_msg((double)(most - baseline) <= total + SLACK_BYTES + windows,
                      "psd takes %lu bytes beyond its %lu at start; /status says %.0f",
                      (unsigned long)(most - baseline), (unsigned long)baseline, total);
    }
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {memory_is_flat_and_as_stated};
    return suite_run("soak", tests, 1, 550);
}
