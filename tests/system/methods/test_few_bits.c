/* Jobs whose workers send a few bits a value, or a few values: they learn, and nothing else than that
 * travels. */
#include <signal.h>
#include <stdio.h>

#include "tests/support/system/daemon.h"
#include "tests/support/suite.h"
#include "tests/system/psworker.h"

enum { WORKERS = 2, PERIOD = 4, WAIT_S = 120, LEARN_S = 240 };

/* Rules that send moves, in rounds and as they come; bytes for each value of the model, in a message and an
 * answer. */
static const struct {
    const char *method, *codec, *workers;
    double up, down;
} jobs[] = {
    {"method=diloco", "codec={message: int4, error_feedback: true}", "workers=any", 0.6, 4},
    {"method=downpour", "codec={message: topk:0.03, error_feedback: true}", "workers=any", 0.1, 4},
    {"method=diloco", "codec={message: topk:0.03, answer: topk:0.1, error_feedback: true}", "workers=2", 0.1,
     0.25},
    {"method=downpour", "codec={message: int4, answer: int4, error_feedback: true}", "workers=2", 0.6, 0.6},
};

/* Beside exchanges there may be an offer, and a pull and a first answer, which are whole. */
static void check_bytes(const struct daemon *d, int rank, double up, double down)
{
    double in = daemon_worker(d, rank, "received_bytes"), out = daemon_worker(d, rank, "sent_bytes");
    double floats = daemon_number(d, "/status", "model.floats"),
           n = daemon_worker(d, rank, "clock") / PERIOD + 2;
    ck_assert_msg(in > 0 && in <= floats * (4 + up * n), "rank %d: %.0f bytes came in %.0f exchanges", rank,
                  in, n);
    ck_assert_msg(out > 0 && out <= floats * (2 * 4 + down * n), "rank %d: %.0f bytes went in %.0f exchanges",
                  rank, out, n);
}

/* Workers train until the evaluator has seen what is wanted, however their exchanges follow one another. */
static void train(size_t job)
{
    struct daemon d;
    pid_t workers[WORKERS], watcher;
    char name[8];
    const char *const settings[] = {jobs[job].method,
                                    jobs[job].codec,
                                    jobs[job].workers,
                                    "period=4",
                                    "learning_rate=0.05",
                                    "lanes=2",
                                    "chunk_floats=4096",
                                    "checkpoint.every_s=0",
                                    "parameters.schedule.warmup_steps=30",
                                    NULL};
    const char *const train[] = {"--net", "linear", "--steps", "1000000", "--batch", "32", NULL};
    const char *const watch[] = {"--net", "linear", "--evaluate", "--every", "1", NULL};
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    for (int i = 0; i < WORKERS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        workers[i] = psworker_start(&d, name, train);
    }
    watcher = psworker_start(&d, "watch", watch);
    ck_assert_msg(daemon_reaches(&d, "/status", "evaluation.test_accuracy", 0.9, LEARN_S),
                  "%s, %s: accuracy %.4f at version %.0f", jobs[job].method, jobs[job].codec,
                  daemon_number(&d, "/status", "evaluation.test_accuracy"),
                  daemon_number(&d, "/status", "center.version"));
    for (int i = 0; i < WORKERS; i++)
        check_bytes(&d, i, jobs[job].up, jobs[job].down);
    for (int i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGTERM);
        ck_assert_int_eq(psworker_wait(workers[i], WAIT_S), 0);
    }
    kill(watcher, SIGTERM);
    psworker_wait(watcher, WAIT_S);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    daemon_remove(&d);
}

START_TEST(moves_in_a_few_bits_teach_the_center)
{
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        train(i);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {moves_in_a_few_bits_teach_the_center};
    return suite_run("few_bits", tests, 1, 550);
}
