/* psd, its workers and its servers are killed at random moments, under every admission that may wait, with
 * one server and with two, over tcp and over shared memory. The workers send whole vectors, keys or steps;
 * the method's period, fragments, overlap and codecs are drawn, too, and what changes between kills. A
 * scenario is drawn from one seed, which also names its row of the three; it is a fixed number of kills, each
 * with what came before it and what follows:
 *
 *     PSD_TEST_SCENARIO=SEED test_system_kills    that scenario
 *     PSD_TEST_KILLS=N test_system_kills          so many kills, from PSD_TEST_SEED
 *     test_system_kills                           those of CI, the same at every run
 *
 * The center tells which exchange landed (ledger_workers.h), and each worker's record which was answered. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/clock.h"
#include "tests/system/faults/kill_job.h"
#include "tests/system/faults/timelapse.h"

enum { KILLS_EACH = 4, CI_KILLS = 48, CI_SEED = 29, MOST_SCENARIOS = 4096 };

static struct kill_row *rows; /* shared */

static uint64_t draw(struct kill_job *j, uint64_t n)
{
    return dice_below(&j->dice, n);
}

static void nap_drawn(struct kill_job *j, uint64_t most_us)
{
    test_nap_s(1e-6 * (double)draw(j, most_us + 1));
}

static uint32_t drawn_worker(struct kill_job *j)
{
    uint32_t k = (uint32_t)draw(j, kill_job_living(j)), i = 0;
    for (; i < j->n; i++)
        if (kill_job_has(j, i) && k-- == 0)
            break;
    return i;
}

/* A few exchanges on, or soon where everybody waits for one who died; most often one is under way. */
static void moment(struct kill_job *j)
{
    uint32_t i = drawn_worker(j), at = j->w[i].page->begun + 1 + (uint32_t)draw(j, 12);
    double end = test_now_s() + 0.2;
    while (j->w[i].page->begun < at && test_now_s() < end)
        test_nap_s(1e-4);
    nap_drawn(j, 3000);
}

static void note_who_died(struct kill_job *j)
{
    for (uint32_t i = 0; i < j->n; i++)
        j->may_be_unknown = j->may_be_unknown || j->dead[i];
}

static unsigned drawn_servers(struct kill_job *j)
{
    return j->n_servers == 1 ? 1 : 1 + (unsigned)draw(j, 3); /* the head, the other, both */
}

/* psd is killed once more while it starts, or just when it has. */
static void kill_while_starting(struct kill_job *j, unsigned which)
{
    if (draw(j, 2) == 0) {
        for (int i = 0; i < j->n_servers; i++)
            if (which >> i & 1) {
                if (daemon_run(&j->t.d[i], "--resume", 1e-3 * (double)draw(j, 60)) >= 0)
                    kill_job_fails(j, "server %d has ended as it started", i);
            }
    } else {
        unsigned revived = daemon_logged(&j->t.d[0], "session.revived");
        kill_job_resume_servers(j, which);
        nap_drawn(j, 100000);
        j->untold = daemon_logged(&j->t.d[0], "session.revived") > revived;
    }
    kill_job_kill_servers(j, which);
}

enum kind {
    PSD,
    PSD_TWICE,
    PSD_SAVING,
    PSD_AND_WORKER,
    PSD_THEN_WORKER,
    PSD_DRAINING,
    WORKER,
    NEWCOMER,
    KINDS
};
static const char *const kind_names[] = {
    "psd",          "psd twice", "psd saving", "psd and worker", "psd then worker",
    "psd draining", "worker",    "newcomer"};

/* Kills what the kind says, and what was killed starts again. */
static void strike(struct kill_job *j, enum kind kind)
{
    unsigned which = kind == PSD_DRAINING ? (1u << j->n_servers) - 1 : drawn_servers(j);
    j->untold = false;
    j->newly = (which & 1) || j->a->together ? 0 : j->newly;
    j->may_be_unknown = j->n_servers > 1 && !j->a->together && which != 3;
    moment(j);
    if (kind == PSD_SAVING) {
        free(daemon_ask(&j->t.d[0], "POST", "/checkpoint"));
        nap_drawn(j, 10000);
    }
    if (kind == PSD_DRAINING) {
        j->drained = j->may_be_unknown = true;
        kill(j->t.d[draw(j, (uint64_t)j->n_servers)].pid, SIGTERM);
        nap_drawn(j, 30000);
        if (draw(j, 4) == 0)
            kill_job_kill_worker(j, drawn_worker(j));
    }
    if (kind == PSD_AND_WORKER)
        kill_job_kill_worker(j, drawn_worker(j));
    note_who_died(j);
    kill_job_kill_servers(j, which);
    if (kind == PSD_TWICE)
        kill_while_starting(j, which);
    if (kind == PSD_THEN_WORKER)
        kill_job_kill_worker(j, drawn_worker(j));
    note_who_died(j);
    uint64_t newcomer = draw(j, 3); /* it asks first, or when others are about to come back */
    if (newcomer == 0)
        kill_job_start_worker(j);
    kill_job_resume_servers(j, which);
    if (newcomer == 1)
        kill_job_start_worker(j);
}

/* Changes the method, or back: maybe once more before the first change is through. */
static void change_method(struct kill_job *j)
{
    char path[200];
    for (uint64_t n = 1 + draw(j, 3) / 2; n > 0; n--) {
        snprintf(path, sizeof path, "/set?lines=%s", j->changes[!j->is_changed]);
        char *answer = daemon_ask(&j->t.d[0], "POST", path);
        kill_job_say(j, "%s: %s", path, answer != NULL ? answer : "no answer");
        if (answer != NULL && strstr(answer, "started") != NULL) {
            j->is_changed = !j->is_changed;
            j->uncounted += j->a->merges ? 1 : kill_job_living(j);
        }
        free(answer);
        nap_drawn(j, 5000);
    }
}

/* In the middle of an exchange, or a newcomer as it joins. */
static void strike_worker(struct kill_job *j, enum kind kind)
{
    if (kind == WORKER) {
        moment(j);
        kill_job_kill_worker(j, drawn_worker(j));
    } else {
        kill_job_start_worker(j);
        nap_drawn(j, 20000);
        kill_job_kill_worker(j, j->n - 1);
    }
    if (draw(j, 3) > 0)
        kill_job_start_worker(j);
    kill_job_fill_up(j);
}

static void event(struct kill_job *j)
{
    enum kind kind = (enum kind)draw(j, KINDS);
    if (j->n > LEDGER_WORKERS - 8) /* few numbers are left for newcomers */
        kind = PSD;
    bool of_worker = kind == WORKER || kind == NEWCOMER;
    snprintf(j->row->what + strlen(j->row->what), sizeof j->row->what - strlen(j->row->what), "%s%s",
             j->row->what[0] != 0 ? ", " : "", kind_names[kind]);
    if (draw(j, 2) == 0) {
        kill_job_bury(j);
        kill_job_go_on(j, 1);
        kill_job_save(j);
    }
    kill_job_say(j, "next: %s", kind_names[kind]);
    if (draw(j, 2) == 0)
        change_method(j);
    if (of_worker)
        strike_worker(j, kind);
    else
        strike(j, kind);
    if (draw(j, 4) == 0)
        change_method(j);
    if (of_worker && draw(j, 3) == 0)
        return; /* the next comes while others wait for the dead */
    if (j->a->waits || draw(j, 2) == 0)
        kill_job_bury(j);
    kill_job_go_on(j, 2);
    if (of_worker)
        kill_job_check_nothing_lost(j);
    else
        kill_job_check_told(j);
    j->drained = false;
}

static void set(struct kill_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void set(struct kill_job *j, const char *fmt, ...)
{
    va_list ap;
    if (j->n_settings == ROWS(j->settings))
        ck_abort_msg("too many settings");
    va_start(ap, fmt);
    vsnprintf(j->settings[j->n_settings++], sizeof j->settings[0], fmt, ap);
    va_end(ap);
}

/* Keeps the change of the method, and the change back, with one chance in as many as there were so far. */
static void offer_change(struct kill_job *j, uint32_t *n, const char *there, const char *back, ...)
    __attribute__((format(printf, 4, 5)));
static void offer_change(struct kill_job *j, uint32_t *n, const char *there, const char *back, ...)
{
    va_list ap;
    if (draw(j, ++*n) != 0)
        return;
    va_start(ap, back);
    snprintf(j->changes[1], sizeof j->changes[1], "%s", there);
    vsnprintf(j->changes[0], sizeof j->changes[0], back, ap);
    va_end(ap);
}

/* Of the admission where two have the same in kill_admissions; with two servers not between ssp and
 * round-robin, since servers under rounds cannot resume from checkpoints of ssp. Lines as in a URL. */
static void offer_changes(struct kill_job *j, uint32_t *n)
{
    static const struct {
        const char *admission, *there, *back;
    } pairs[] = {
        {"backup", "admission=quorum%0Aparameters.quorum=1%0Aparameters.backup=preset",
         "admission=backup%0Aparameters.backup=1%0Aparameters.quorum=preset"},
        {"quorum", "admission=backup%0Aparameters.backup=1%0Aparameters.quorum=preset",
         "admission=quorum%0Aparameters.quorum=1%0Aparameters.backup=preset"},
        {"ssp", "admission=round-robin%0Aparameters.slack=preset", "admission=ssp%0Aparameters.slack=2"},
        {"round-robin", "admission=ssp%0Aparameters.slack=2",
         "admission=round-robin%0Aparameters.slack=preset"}};
    offer_change(j, n, "averaging=mean", "averaging=none");
    for (size_t i = 0; i < (j->n_servers == 1 ? ROWS(pairs) : 2); i++)
        if (strcmp(pairs[i].admission, j->a->name) == 0)
            offer_change(j, n, pairs[i].there, "%s", pairs[i].back);
}

/* A worker's way to exchange, its period, its codecs. */
static void draw_course(struct kill_job *j)
{
    static const char *const messages[] = {"raw", "bf16", "int4", "topk:0.05"};
    static const char *const answers[] = {"raw", "int4", "topk:0.5"};
    static const char *const ways[LEDGER_WAYS] = {"exchange", "step", "keys"};
    struct ledger_course *course = &j->course;
    const struct kill_admission *a = j->a;
    uint32_t first = j->n_settings, period = 1, overlap = 0, fragments, n = 0;
    offer_changes(j, &n);
    course->way = (enum ledger_way)draw(j, LEDGER_WAYS);
    if (course->way == LEDGER_BY_KEYS && !a->keys)
        course->way = LEDGER_BY_STEP;
    course->gradients = a->gradients && draw(j, 3) == 0;
    if (course->gradients) {
        overlap = course->way == LEDGER_BY_STEP && draw(j, 2) == 0;
        set(j, "parameters.overlap=%s", overlap > 0 ? "true" : "false");
        course->behind = 2 * overlap;
    } else if (course->way == LEDGER_BY_STEP && draw(j, 2) == 0) {
        period = 1 + (uint32_t)draw(j, 4);
        overlap = (uint32_t)draw(j, period + 1);
        fragments = a->fragments > 1 ? 1 + (uint32_t)draw(j, period) : 1;
        set(j, "parameters.fragments=%u", fragments);
        if (fragments > 1)
            offer_change(j, &n, "parameters.fragments=1", "parameters.fragments=%u", fragments);
        if (overlap > 0) {
            set(j, "parameters.overlap=%u", overlap);
            offer_change(j, &n, "parameters.overlap=false", "parameters.overlap=%u", overlap);
        }
        course->behind = period + overlap;
        course->drops = a->drops;
    }
    if (!course->gradients)
        set(j, "parameters.period=%u", period);
    const char *message = messages[draw(j, ROWS(messages))], *answer = answers[draw(j, ROWS(answers))];
    if (draw(j, 2) == 0) {
        answer = a->drops ? "raw" : answer;
        course->lossy = strcmp(answer, "raw") != 0;
        j->tolerance = a->drops ? 0.25f : 1e-3f; /* the last may have come too late */
        set(j, "codec.error_feedback=true");
        set(j, "codec.message=%s", message);
        set(j, "codec.answer=%s", answer);
        offer_change(j, &n, "codec.message=raw%0Acodec.answer=raw", "codec.message=%s%%0Acodec.answer=%s",
                     message, answer);
    }
    snprintf(j->row->how, sizeof j->row->how, "%s%s", ways[course->way],
             course->gradients ? " of gradients" : "");
    for (uint32_t i = first; i < j->n_settings; i++)
        snprintf(j->row->how + strlen(j->row->how), sizeof j->row->how - strlen(j->row->how), " %s",
                 j->settings[i]);
    snprintf(j->row->how + strlen(j->row->how), sizeof j->row->how - strlen(j->row->how), ", %s",
             j->changes[1]);
    if (course->lossy || (strcmp(a->name, "fcfs") != 0 && draw(j, 2) == 0))
        set(j, "workers=%d", j->n_first);
}

static void start_psd(struct kill_job *j)
{
    static const char *settings[ROWS(j->settings) + 1];
    _Static_assert(LEDGER_CHUNK == 4096, "as the setting says");
    set(j, "method=%s", j->course.gradients ? "async-sgd" : "downpour");
    set(j, "parameters.learning_rate=1");
    set(j, "parameters.schedule.warmup_steps=0");
    set(j, "chunk_floats=4096");
    set(j, "lanes=2");
    set(j, "checkpoint.every_s=0");
    set(j, "servers.wait_s=86400"); /* psd's time, which passes in leaps */
    set(j, "%s", TIMELAPSE_SILENCE);
    set(j, "transport=%s", j->transport);
    set(j, "%s", j->a->setting);
    if (j->a->more != NULL)
        set(j, "%s", j->a->more);
    for (uint32_t i = 0; i < j->n_settings; i++)
        settings[i] = j->settings[i];
    if (servers_prepare(&j->t, j->n_servers, NULL, settings) < 0)
        ck_abort_msg("no directories");
    for (int i = 0; i < j->n_servers; i++)
        snprintf(j->row->dir[i], sizeof j->row->dir[i], "%s", j->t.d[i].dir);
    j->page = timelapse_prepare(&j->t.d[0]);
    if (servers_start(&j->t) < 0)
        kill_job_fails(j, "psd does not start");
}

/* Maybe with a kill before there is any checkpoint. */
static void begin(struct kill_job *j)
{
    for (int i = 0; i < j->n_first; i++)
        kill_job_start_worker(j);
    if (draw(j, 4) == 0) {
        snprintf(j->row->what, sizeof j->row->what, "psd at the beginning");
        j->anew = j->may_be_unknown = true;
        if (draw(j, 2) == 0)
            moment(j);
        else
            nap_drawn(j, 50000);
        kill_job_kill_servers(j, (1u << j->n_servers) - 1);
        kill_job_resume_servers(j, (1u << j->n_servers) - 1);
    }
    kill_job_go_on(j, 2);
    if (j->anew)
        kill_job_check_told(j);
    j->anew = false;
    kill_job_save(j);
}

static void finish(struct kill_job *j)
{
    kill_job_bury(j);
    kill_job_go_on(j, 2);
    for (uint32_t i = 0; i < j->n; i++)
        if (kill_job_has(j, i))
            ledger_stop(&j->w[i]);
    for (uint32_t i = 0; i < j->n; i++)
        if (kill_job_has(j, i) && !ledger_rests(&j->w[i], KILL_DEADLINE_S))
            kill_job_fails(j, "worker %u does not come to rest: %s (%s)", i,
                           psc_result_name(j->w[i].page->rc), j->w[i].page->error);
    for (uint32_t i = 0; i < j->n; i++)
        if (kill_job_has(j, i))
            ledger_end(&j->w[i]);
    for (uint32_t i = 0; i < j->n; i++) {
        struct ledger_page *page = j->w[i].page;
        if (kill_job_has(j, i) && (!ledger_finish(&j->w[i], KILL_DEADLINE_S) || page->rc != PSC_OK))
            kill_job_fails(j, "worker %u does not end well: %s (%s)", i, psc_result_name(page->rc),
                           page->error);
        j->row->answered += page->answered;
        j->row->longest_s = fmax(j->row->longest_s, page->longest_s);
    }
    kill_job_check_nothing_lost(j);
    kill_job_check_dropped(j);
    kill_job_check_ends(j);
    if (!servers_end(&j->t, KILL_DEADLINE_S))
        kill_job_fails(j, "psd does not end well");
}

static void run_row(struct kill_row *row)
{
    static struct kill_job j;
    double began_s = test_now_s();
    j.row = row;
    j.dice.state = row->seed;
    j.a = kill_admission_of(row->seed);
    j.n_servers = kill_servers_of(row->seed);
    j.transport = kill_transport_of(row->seed);
    j.n_first = 2 + (int)draw(&j, 2);
    row->begun = true;
    draw_course(&j);
    start_psd(&j);
    begin(&j);
    while (row->kills < KILLS_EACH)
        event(&j);
    finish(&j);
    row->took_s = test_now_s() - began_s;
    row->passed = true;
    kill_row_print(row);
    shim_unset();
    servers_remove(&j.t);
}

START_TEST(kills_at_random_moments_lose_nothing_untold)
{
    run_row(&rows[_i]);
}
END_TEST

/* Every admission with each number of servers and each transport, in turn. */
static uint64_t seed_of(struct dice *dice, unsigned i)
{
    unsigned combination = i % (2 * KILL_ADMISSIONS), shm = (i / (2 * KILL_ADMISSIONS) + i) % 2;
    return dice_below(dice, UINT64_C(1) << 40) * KILL_COMBINATIONS + shm * 2 * KILL_ADMISSIONS + combination;
}

static unsigned draw_rows(void)
{
    const char *one = getenv("PSD_TEST_SCENARIO"), *kills = getenv("PSD_TEST_KILLS"),
               *seed = getenv("PSD_TEST_SEED");
    struct dice dice = {kills != NULL && seed != NULL ? strtoull(seed, NULL, 10) : CI_SEED};
    uint64_t n = kills != NULL ? strtoull(kills, NULL, 10) : CI_KILLS;
    unsigned n_rows = one != NULL ? 1 : (unsigned)((n + KILLS_EACH - 1) / KILLS_EACH);
    if (n_rows > MOST_SCENARIOS)
        n_rows = MOST_SCENARIOS;
    for (unsigned i = 0; i < n_rows; i++)
        rows[i].seed = one != NULL ? strtoull(one, NULL, 10) : seed_of(&dice, i);
    return n_rows;
}

static void print_table(unsigned n_rows)
{
    fprintf(stderr, "\n%-12s %7s %9s %9s %6s %9s %7s %7s %9s %6s\n", "admission", "servers", "transport",
            "scenarios", "kills", "exchanges", "lost", "told", "longest s", "failed");
    for (unsigned c = 0; c < KILL_COMBINATIONS; c++) {
        struct kill_row sum = {.seed = 0};
        unsigned n = 0, failed = 0;
        for (unsigned i = 0; i < n_rows; i++) {
            if (rows[i].seed % KILL_COMBINATIONS != c)
                continue;
            n++;
            failed += !rows[i].passed;
            sum.kills += rows[i].kills;
            sum.answered += rows[i].answered;
            sum.lost += rows[i].lost;
            sum.told += rows[i].told;
            sum.longest_s = fmax(sum.longest_s, rows[i].longest_s);
        }
        if (n > 0)
            fprintf(stderr, "%-12s %7d %9s %9u %6u %9" PRIu64 " %7" PRIu64 " %7" PRIu64 " %9.1f %6u\n",
                    kill_admission_of(c)->name, kill_servers_of(c), kill_transport_of(c), n, sum.kills,
                    sum.answered, sum.lost, sum.told, sum.longest_s, failed);
    }
    for (unsigned i = 0; i < n_rows; i++)
        if (rows[i].begun && !rows[i].passed) {
            kill_row_print(&rows[i]);
            fprintf(stderr, "    logs: %s %s; again: PSD_TEST_SCENARIO=%" PRIu64 " test_system_kills\n",
                    rows[i].dir[0], rows[i].dir[1], rows[i].seed);
        }
}

int main(void)
{
    rows =
        mmap(NULL, MOST_SCENARIOS * sizeof *rows, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rows == MAP_FAILED)
        return 1;
    unsigned n = draw_rows();
    Suite *suite = suite_create("kills");
    TCase *tcase = tcase_create("kills");
    tcase_set_timeout(tcase, test_slow_s(10 * TEST_HANG_S));
    tcase_add_loop_test(tcase, kills_at_random_moments_lose_nothing_untold, 0, (int)n);
    suite_add_tcase(suite, tcase);
    int result = unit_run(suite);
    print_table(n);
    return result;
}
