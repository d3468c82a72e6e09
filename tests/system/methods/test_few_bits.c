/* Jobs whose workers send a few bits a value, or a few values: they learn, and nothing else than that
 * travels. */
#include <signal.h>
#include <stdio.h>

#include "tests/support/daemon.h"
#include "tests/support/suite.h"
#include "tests/system/psworker.h"

enum { WORKERS = 2, WAIT_S = 120, LEARN_S = 240 };

/* Rules that send moves, in rounds and as they come. */
static const struct {
    const char *method, *codec;
    double most; /* bytes for each value of the model, in a message */
} jobs[] = {
    {"method=diloco", "codec={message: int4, error_feedback: true}", 0.6},
    {"method=diloco", "codec={message: topk:0.03, error_feedback: true}", 0.1},
    {"method=downpour", "codec={message: int4, error_feedback: true}", 0.6},
    {"method=downpour", "codec={message: topk:0.03, error_feedback: true}", 0.1},
};

static void check_bytes(const struct daemon *d, int rank, double most)
{
    double in = daemon_worker(d, rank, "received_bytes"), out = daemon_worker(d, rank, "sent_bytes");
    double offer = 4 * daemon_number(d, "/status", "model.floats");
    ck_assert_msg(in > 0 && in - offer <= most / 4 * out, "rank %d sent %.0f bytes for %.0f of answers", rank,
                  in, out);
}

/* Workers train until the evaluator has seen what is wanted, however their exchanges follow one another. */
static void train(const char *method, const char *codec, double most)
{
    struct daemon d;
    pid_t workers[WORKERS], watcher;
    char name[8];
    const char *const settings[] = {method,
                                    codec,
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
                  "%s, %s: accuracy %.4f at version %.0f", method, codec,
                  daemon_number(&d, "/status", "evaluation.test_accuracy"),
                  daemon_number(&d, "/status", "center.version"));
    for (int i = 0; i < WORKERS; i++) /* answers are raw; the offer came from one of them */
        check_bytes(&d, i, most);
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
        train(jobs[i].method, jobs[i].codec, jobs[i].most);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {moves_in_a_few_bits_teach_the_center};
    return suite_run("few_bits", tests, 1, 550);
}
