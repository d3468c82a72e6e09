/* A whole psd and its workers in one process, data over the in-process transport: the loop, lanes, rings and
 * the library's threads under the thread sanitizer's eyes. Whole numbers make the sum exact. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/psclient.h"
#include "proto/log.h"
#include "server/psd.h"
#include "tests/support/unit.h"

enum { WORKERS = 3, EXCHANGES = 100, N = 20000 };

static char dir[] = "/tmp/psd-test-XXXXXX", endpoint[100];
static const struct psc_tensor model = {"x", 0, {N}, 1, PSC_PARAM};

static void *run_psd(void *code)
{
    struct psd_config cfg;
    struct psd_start start = {.resume = false};
    struct ps_error err = {""};
    static const char *const settings[] = {"method=async-sgd", "learning_rate=1",   "warmup_steps=0",
                                           "lanes=3",          "chunk_floats=1024", "checkpoint.every_s=1"};
    psd_config_defaults(&cfg);
    for (size_t i = 0; i < ROWS(settings); i++)
        if (psd_config_set(&cfg, settings[i], &err) < 0)
            fprintf(stderr, "%s\n", err.text);
    snprintf(cfg.state_dir, sizeof cfg.state_dir, "%s/state", dir);
    snprintf(cfg.endpoint_file, sizeof cfg.endpoint_file, "%s", endpoint + 1);
    *(int *)code = psd_config_check(&cfg, &err, NULL) < 0 ? -1 : psd_run(&cfg, &start);
    return NULL;
}

struct worker {
    pthread_t thread;
    int rc;
    char error[600];
    float *last; /* [N]: the center as it was pulled when all had ended */
};

static pthread_barrier_t all_sent;

static int work(struct psc *c, struct worker *w)
{
    struct psc_metrics metrics = {.size = sizeof metrics, .loss = 1, .accuracy = 0.5};
    float *x = calloc(N, sizeof *x), *g = calloc(N, sizeof *g);
    int rc = psc_begin(c, &model, 1, x);
    for (int i = 0; i < N; i++)
        g[i] = (float)(1 + i % 5);
    for (int k = 0; k < EXCHANGES && rc == PSC_OK; k++) {
        rc = psc_step(c, x, g, 1);
        if (k % 10 == 0 && rc == PSC_OK)
            rc = psc_report(c, &metrics);
    }
    pthread_barrier_wait(&all_sent);
    if (rc == PSC_OK)
        rc = psc_pull(c, NULL, w->last);
    free(x);
    free(g);
    return rc;
}

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = endpoint;
    opt.heartbeat_ms = 20; /* the service thread has something to do */
    w->rc = psc_open(&opt, &c);
    if (w->rc == PSC_OK)
        w->rc = work(c, w);
    else
        pthread_barrier_wait(&all_sent);
    snprintf(w->error, sizeof w->error, "%s", psc_error(c));
    psc_close(c);
    return NULL;
}

static void remove_dir(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(workers_and_psd_in_one_process)
{
    struct worker crew[WORKERS];
    pthread_t psd;
    int code = -1;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(endpoint, sizeof endpoint, "@%s/endpoint", dir);
    ps_log_setup("psd", PS_LOG_ERROR);
    pthread_barrier_init(&all_sent, NULL, WORKERS);
    ck_assert_int_eq(pthread_create(&psd, NULL, run_psd, &code), 0);
    double deadline = unit_now_s() + UNIT_HANG_S;
    while (access(endpoint + 1, R_OK) != 0 && unit_now_s() < deadline)
        unit_nap_ms(5);
    for (int i = 0; i < WORKERS; i++) {
        crew[i] = (struct worker){.last = calloc(N, sizeof(float))};
        ck_assert_int_eq(pthread_create(&crew[i].thread, NULL, run_worker, &crew[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(crew[i].thread, NULL);
        ck_assert_msg(crew[i].rc == PSC_OK, "%s: %s", psc_result_name(crew[i].rc), crew[i].error);
        for (int k = 0; k < N; k++)
            ck_assert_float_eq(crew[i].last[k], -(float)(WORKERS * EXCHANGES * (1 + k % 5)));
        free(crew[i].last);
    }
    kill(getpid(), SIGTERM);
    pthread_join(psd, NULL);
    ck_assert_int_eq(code, 0);
    pthread_barrier_destroy(&all_sent);
    remove_dir();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-inproc");
    TCase *tc = tcase_create("inproc");
    tcase_add_test(tc, workers_and_psd_in_one_process);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
