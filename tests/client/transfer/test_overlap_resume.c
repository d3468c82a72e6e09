/* Jobs with exchanges on their way, of rules, admissions, fragments and codecs that a seed draws, with a real
 * psd: killed after a checkpoint and resumed with the workers' states, every worker's x has the bits of the
 * run that was not stopped, at every step, and so has the center in the end.
 *
 * Under rounds the workers are threads, and each saves in the step in which it hears of the checkpoint, which
 * is another one for each. Without rounds they take turns, so that the order of their exchanges is the same
 * in both runs.
 *
 *     PSD_TEST_CASES=N test_client_overlap_resume    N cases, from PSD_TEST_SEED (scripts/soak) */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/client/psd_fixture.h"

enum { N = RIG_N, MOST_WORKERS = 3, MOST_STEPS = 1000, CASES = 16, FIRST_SEED = 1 };

/* A job, as the seed has drawn it. */
struct job {
    uint64_t seed;
    const char *rule, *admission, *message, *answer;
    bool rounds, feedback, momentum, counted; /* counted: psd is told how many workers there are */
    uint32_t workers, steps_on_way, period, fragments, mix_percent;
    uint64_t end, checkpoint_at, save_at; /* save_at: without rounds */
    char text[400];
};

struct worker {
    struct psc *c;
    int rank;
    bool resumed;
    float x[N], g[N];
    char path[160];
    uint64_t saved, differs_at; /* steps; UINT64_MAX: none yet */
    int rc;
    char error[300];
};

static struct daemon psd;
static struct job job;
static struct worker workers[MOST_WORKERS];
static uint64_t digests[MOST_WORKERS][MOST_STEPS];
static float centers[2][N];
static uint64_t first_seed = FIRST_SEED;

static void stop_psd(void)
{
    for (int i = 0; i < MOST_WORKERS; i++) {
        psc_close(workers[i].c);
        workers[i].c = NULL;
    }
    daemon_remove(&psd);
}

static const char *one_of(struct dice *d, const char *const *names, size_t n)
{
    return names[dice_below(d, n)];
}

/* 1, 8 and 64 steps in turn, or another number; a period of that or longer. */
static void draw_steps(struct dice *d)
{
    static const uint32_t given[] = {1, 8, 64};
    uint32_t n = job.seed % 4 < 3 ? given[job.seed % 4] : 1 + (uint32_t)dice_below(d, 16);
    job.steps_on_way = n;
    job.period = n + (uint32_t)(dice_below(d, 2) * dice_below(d, n / 4 + 3));
}

static void draw_codec(struct dice *d, bool sends_x)
{
    static const char *const messages[] = {"raw", "int8", "int4", "topk:0.05"};
    static const char *const answers[] = {"raw", "fp16", "int8", "int4", "topk:0.1"};
    job.message = one_of(d, messages, sends_x ? 2 : ROWS(messages));
    job.answer = one_of(d, answers, sends_x ? 3 : ROWS(answers));
    job.feedback = strcmp(job.message, "raw") != 0;
    job.counted = job.rounds || strcmp(job.answer, "int4") == 0 || strncmp(job.answer, "topk", 4) == 0;
}

/* An exchange that begins after the checkpoint must not land before the state is saved: psd lacks it. Of
 * several workers that take turns psd has everything, and of one whose state has no messages. A request for a
 * checkpoint is heard within two rounds, and its round is the next one. */
static void draw_times(struct dice *d, bool sends_x)
{
    uint64_t period = job.period;
    bool may_lack = job.workers == 1 && (job.steps_on_way > 1 || !sends_x);
    job.checkpoint_at = period + dice_below(d, 2 * period);
    job.save_at = job.checkpoint_at + (may_lack ? dice_below(d, job.steps_on_way + 1) : 0);
    job.end = job.checkpoint_at + 5 * period + 8 + dice_below(d, period);
}

static void draw(uint64_t seed)
{
    static const char *const rules[] = {"outer-nesterov", "delayed-nesterov", "add", "elastic"};
    static const char *const admissions[] = {"sync", "sync", "sync", "fcfs", "fcfs", "quorum", "round-robin"};
    struct dice d = {seed};
    job = (struct job){.seed = seed};
    job.rule = one_of(&d, rules, ROWS(rules));
    bool sends_x = strcmp(job.rule, "elastic") == 0;
    job.admission = one_of(&d, admissions, ROWS(admissions));
    job.rounds = strcmp(job.admission, "fcfs") != 0;
    job.workers = dice_below(&d, 3) > 0 ? MOST_WORKERS : 1;
    job.momentum = dice_below(&d, 2) > 0;
    draw_steps(&d);
    bool whole = sends_x || strcmp(job.admission, "quorum") == 0 || strcmp(job.admission, "round-robin") == 0;
    job.fragments = whole ? 1 : 1 + (uint32_t)dice_below(&d, job.period < 6 ? job.period : 6);
    job.mix_percent = sends_x ? 0 : (uint32_t)(50 * dice_below(&d, 2));
    draw_codec(&d, sends_x);
    draw_times(&d, sends_x);
    snprintf(job.text, sizeof job.text,
             "seed %lu: %u workers, %s, %s, period %u, overlap %u, fragments %u, mix 0.%02u, %s, %s up, %s "
             "down, checkpoint after %lu of %lu steps",
             (unsigned long)seed, job.workers, job.admission, job.rule, job.period, job.steps_on_way,
             job.fragments, job.mix_percent, job.momentum ? "nesterov" : "sgd", job.message, job.answer,
             (unsigned long)job.checkpoint_at, (unsigned long)job.end);
}

static void start_psd(void)
{
    static char text[11][48];
    static const char *settings[30]; /* also for the restart */
    const char *given[] = {"method=custom",
                           "averaging=none",
                           RIG_CUT,
                           RIG_SAME_ADDRESS,
                           "learning_rate=0.03",
                           "warmup_steps=0",
                           "checkpoint.every_s=0",
                           text[9],
                           job.momentum ? "optimizer=nesterov" : "optimizer=sgd"};
    const bool sends_x = strcmp(job.rule, "elastic") == 0, nesterov = strstr(job.rule, "nesterov") != NULL;
    size_t n = 0;
    memset(settings, 0, sizeof settings);
    for (size_t i = 0; i < ROWS(given); i++)
        settings[n++] = given[i];
    snprintf(text[0], sizeof *text, "rule=%s", job.rule);
    snprintf(text[1], sizeof *text, "codec.message=%s", job.message);
    snprintf(text[2], sizeof *text, "codec.answer=%s", job.answer);
    snprintf(text[3], sizeof *text, "codec.error_feedback=%s", job.feedback ? "true" : "false");
    snprintf(text[4], sizeof *text, "period=%u", job.period);
    snprintf(text[5], sizeof *text, "overlap=%u", job.steps_on_way);
    for (int i = 0; i < 6; i++)
        settings[n++] = text[i];
    snprintf(text[6], sizeof *text, "fragments=%u", job.fragments);
    snprintf(text[7], sizeof *text, "mix=0.%02u", job.mix_percent);
    snprintf(text[8], sizeof *text, "workers=%u", job.workers);
    settings[n++] = sends_x ? "alpha=0.3" : text[6];
    if (!sends_x)
        settings[n++] = text[7];
    if (nesterov) {
        settings[n++] = "outer_learning_rate=0.7";
        settings[n++] = "outer_momentum=0.5";
    }
    if (strcmp(job.rule, "delayed-nesterov") == 0)
        settings[n++] = "delay=3";
    if (job.momentum)
        settings[n++] = "momentum=0.5";
    if (job.counted)
        settings[n++] = text[8];
    snprintf(text[9], sizeof *text, "admission=%s", job.admission);
    snprintf(text[10], sizeof *text, "quorum=%u", job.workers);
    if (strcmp(job.admission, "quorum") == 0)
        settings[n++] = text[10];
    rig_start(&psd, settings);
}

/* Ranks are the same in both runs. */
static void join(struct worker *w, int rank, bool resumed)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.rank = rank;
    opt.retry_ms = RIG_RETRY_MS;
    opt.heartbeat_ms = RIG_HEARTBEAT_MS;
    w->rank = rank;
    w->resumed = resumed;
    w->rc = PSC_OK;
    snprintf(w->path, sizeof w->path, "%s/worker-%d.state", psd.dir, rank);
    for (int i = 0; i < N; i++)
        w->x[i] = 0.01f * (float)(i % 50);
    int rc = psc_open(&opt, &w->c);
    rc = rc == PSC_OK ? psc_begin(w->c, rig_model, RIG_TENSORS, w->x) : rc;
    if (rc == PSC_OK && resumed)
        rc = psc_load(w->c, w->path, w->x, NULL, 0, NULL);
    ck_assert_msg(rc == PSC_OK, "%s: rank %d: %s", job.text, rank, psc_error(w->c));
}

static uint64_t digest(const float *x)
{
    uint64_t h = 0;
    for (int i = 0; i < N; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

/* The gradient depends on x, so that a difference does not vanish. The caller's own statistics change, too.
 */
static void compute(struct worker *w, uint64_t t)
{
    uint64_t at = t * 7 + (uint64_t)w->rank * 5;
    for (int i = 0; i < N; i++)
        w->g[i] = 0.125f * (float)((int)((at + (uint64_t)i * 3) % 11) - 5) + 0.25f * w->x[i];
    for (size_t k = 0; k < RIG_TENSORS; k++)
        for (uint64_t i = 0; rig_model[k].role == PSC_BUFFER && i < rig_model[k].shape[0]; i++)
            w->x[rig_model[k].offset + i] += 0.25f * (float)(t % 3);
}

/* The worker's first failure. */
static bool note(struct worker *w, int rc)
{
    if (rc == PSC_OK || w->rc != PSC_OK)
        return w->rc == PSC_OK;
    w->rc = rc;
    snprintf(w->error, sizeof w->error, "step %lu: %s: %s", (unsigned long)psc_clock(w->c),
             psc_result_name(rc), psc_error(w->c));
    return false;
}

/* x is as in the first run, which has noted it. */
static void compare(struct worker *w, uint64_t t)
{
    uint64_t found = digest(w->x);
    if (!w->resumed)
        digests[w->rank][t] = found;
    else if (digests[w->rank][t] != found && w->differs_at == UINT64_MAX)
        w->differs_at = t;
}

static bool make_step(struct worker *w)
{
    uint64_t t = psc_clock(w->c);
    compute(w, t);
    if (!note(w, psc_step(w->c, w->x, w->g, 1)))
        return false;
    compare(w, t);
    return true;
}

static void save(struct worker *w)
{
    w->saved = psc_clock(w->c);
    note(w, psc_save(w->c, w->path, w->x, NULL, 0));
}

static void save_if_asked(struct worker *w)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(w->c, &info);
    if (info.save_version > 0 && w->saved == UINT64_MAX)
        save(w);
}

/* psd answers the request before the first worker goes on, and no round is complete without that one. */
static void *run_thread(void *arg)
{
    struct worker *w = arg;
    while (psc_clock(w->c) < job.end && make_step(w)) {
        if (w->resumed)
            continue;
        if (w->rank == 0 && psc_clock(w->c) == job.checkpoint_at)
            free(daemon_ask(&psd, "POST", "/checkpoint"));
        save_if_asked(w);
    }
    note(w, psc_wait(w->c, PSC_ALL));
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[MOST_WORKERS];
    for (uint32_t i = 0; i < job.workers; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_thread, &workers[i]), 0);
    for (uint32_t i = 0; i < job.workers; i++)
        pthread_join(threads[i], NULL);
}

/* Every worker has heard of it: one that hears of it later may begin its next exchange in another turn. */
static void make_checkpoint(void)
{
    struct psc_info info = {.size = sizeof info};
    double end_s = unit_now_s() + UNIT_HANG_S;
    ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    for (uint32_t i = 0; i < job.workers; i++)
        for (info.save_version = 0; info.save_version == 0; unit_nap_ms(1)) {
            ck_assert_msg(unit_now_s() < end_s, "%s: rank %u was not asked to save", job.text, i);
            assert_ok(workers[i].c, psc_wait(workers[i].c, PSC_ALL));
            psc_info(workers[i].c, &info);
        }
}

static void run_in_turns(void)
{
    for (uint64_t t = psc_clock(workers[0].c); t < job.end; t++) {
        for (uint32_t i = 0; i < job.workers; i++)
            if (!make_step(&workers[i]) || !note(&workers[i], psc_wait(workers[i].c, PSC_ALL)))
                return;
        if (workers[0].resumed)
            continue;
        if (t + 1 == job.checkpoint_at)
            make_checkpoint();
        for (uint32_t i = 0; t + 1 == job.save_at && i < job.workers; i++)
            save(&workers[i]);
    }
}

/* Runs the job to its end; *center is psd's. */
static void run(bool resumed, float *center)
{
    for (uint32_t i = 0; i < job.workers; i++)
        join(&workers[i], (int)i, resumed);
    if (job.rounds)
        run_threads();
    else
        run_in_turns();
    for (uint32_t i = 0; i < job.workers; i++) {
        const struct worker *w = &workers[i];
        ck_assert_msg(w->rc == PSC_OK, "%s: rank %u, %s", job.text, i, w->error);
        ck_assert_msg(w->saved <= job.end, "%s: rank %u was not asked to save", job.text, i);
        ck_assert_msg(w->differs_at == UINT64_MAX,
                      "%s: rank %u, saved after %lu steps, differs from step %lu on", job.text, i,
                      (unsigned long)w->saved, (unsigned long)w->differs_at);
    }
    assert_ok(workers[0].c, psc_pull(workers[0].c, NULL, center));
    for (uint32_t i = 0; i < job.workers; i++) {
        psc_close(workers[i].c);
        workers[i].c = NULL;
    }
}

START_TEST(a_resumed_job_has_the_bits_of_one_that_was_not_stopped)
{
    draw(first_seed + (uint64_t)_i);
    for (int i = 0; i < MOST_WORKERS; i++)
        workers[i].saved = workers[i].differs_at = UINT64_MAX;
    start_psd();
    run(false, centers[0]);
    ck_assert_msg(daemon_will_log(&psd, "checkpoint.written", UNIT_HANG_S), "%s: no checkpoint", job.text);
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    run(true, centers[1]);
    ck_assert_msg(memcmp(centers[0], centers[1], sizeof *centers) == 0, "%s: the center differs", job.text);
}
END_TEST

static uint64_t number_of(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : fallback;
}

int main(void)
{
    Suite *suite = suite_create("client-overlap_resume");
    TCase *tc = tcase_create("overlap_resume");
    int n = (int)number_of("PSD_TEST_CASES", CASES);
    first_seed = number_of("PSD_TEST_CASES", 0) > 0 ? number_of("PSD_TEST_SEED", FIRST_SEED) : FIRST_SEED;
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, a_resumed_job_has_the_bits_of_one_that_was_not_stopped, 0, n);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
