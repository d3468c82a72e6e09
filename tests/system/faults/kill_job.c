#include "tests/system/faults/kill_job.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/clock.h"
#include "tests/system/faults/timelapse.h"

#define POLL_S     0.002
#define PATIENCE_S 0.5 /* before time passes for those who may have died */

const struct kill_admission kill_admissions[KILL_ADMISSIONS] = {
    {"fcfs", "admission=fcfs", NULL, .keys = true, .gradients = true, .fragments = 4},
    {"round-robin", "admission=round-robin", NULL, .waits = true, .together = true, .keys = true,
     .gradients = true},
    {"ssp", "admission=ssp", "parameters.slack=2", .waits = true, .together = true, .keys = true,
     .gradients = true},
    {"sync", "admission=sync", NULL, .merges = true, .waits = true, .together = true, .keys = true,
     .fragments = 4},
    {"backup", "admission=backup", "parameters.backup=1", .merges = true, .drops = true, .together = true},
    {"quorum", "admission=quorum", "parameters.quorum=1", .merges = true, .drops = true, .together = true},
};

void kill_job_say(struct kill_job *j, const char *fmt, ...)
{
    char path[120];
    va_list ap;
    snprintf(path, sizeof path, "%s/events", j->t.d[0].dir);
    FILE *file = fopen(path, "ae");
    if (file == NULL)
        return;
    fprintf(file, "%.3f ", test_now_s());
    va_start(ap, fmt);
    vfprintf(file, fmt, ap);
    va_end(ap);
    fputc('\n', file);
    fclose(file);
}

void kill_row_print(const struct kill_row *r)
{
    int n = kill_servers_of(r->seed);
    const char *failed = r->why[0] != 0 ? r->why : "FAILED";
    char passed[40];
    snprintf(passed, sizeof passed, "passed in %.1f s", r->took_s);
    fprintf(stderr, "kills: seed %" PRIu64 ": %s, %d server%s, %s, %s: %u kills (%s): %s\n", r->seed,
            kill_admission_of(r->seed)->name, n, n > 1 ? "s" : "", kill_transport_of(r->seed), r->how,
            r->kills, r->what, r->passed ? passed : failed);
}

static void say_state(struct kill_job *j)
{
    static const char *const paths[] = {"/status", "/workers", "/metrics"};
    for (int i = 0; i < j->n_servers; i++)
        for (size_t k = 0; k < ROWS(paths) && j->t.d[i].pid > 0; k++) {
            char *body = daemon_ask(&j->t.d[i], "GET", paths[k]);
            kill_job_say(j, "server %d, %s: %s", i, paths[k], body != NULL ? body : "no answer");
            free(body);
        }
}

void kill_job_fails(struct kill_job *j, const char *fmt, ...)
{
    va_list ap;
    int n = snprintf(j->row->why, sizeof j->row->why, "FAILED: ");
    va_start(ap, fmt);
    vsnprintf(j->row->why + n, sizeof j->row->why - (size_t)n, fmt, ap);
    va_end(ap);
    kill_job_say(j, "%s", j->row->why);
    say_state(j);
    kill_row_print(j->row);
    ck_abort_msg("%s", j->row->why);
}

bool kill_job_has(const struct kill_job *j, uint32_t i)
{
    return j->w[i].pid != 0;
}

uint32_t kill_job_living(const struct kill_job *j)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n; i++)
        n += kill_job_has(j, i);
    return n;
}

void kill_job_start_worker(struct kill_job *j)
{
    if (j->n == LEDGER_WORKERS)
        kill_job_fails(j, "there are no numbers left for newcomers");
    ledger_start(&j->w[j->n], j->n, j->t.d[0].endpoint, &j->course);
    kill_job_say(j, "worker %u begins, pid %d", j->n, (int)j->w[j->n].pid);
    j->n++;
}

void kill_job_kill_worker(struct kill_job *j, uint32_t i)
{
    ledger_kill(&j->w[i]);
    j->dead[i] = true;
    j->row->kills++;
    kill_job_say(j, "worker %u is killed: %u exchanges begun, %u answered", i, j->w[i].page->begun,
                 j->w[i].page->answered);
}

/* Seconds that psd has not heard of the worker, or NAN when it is not in the job. */
static double silent_s(const struct kill_job *j, uint32_t i)
{
    char *body = daemon_ask(&j->t.d[0], "GET", "/workers"), name[40];
    json_t *root = body != NULL ? json_loads(body, 0, NULL) : NULL, *w;
    double seconds = NAN;
    size_t k;
    ledger_name(j->w[i].number, name, sizeof name);
    json_array_foreach(json_object_get(root, "workers"), k, w)
    {
        const char *its = json_string_value(json_object_get(w, "name")),
                   *state = json_string_value(json_object_get(w, "state"));
        if (its != NULL && state != NULL && strcmp(its, name) == 0 && strcmp(state, "ended") != 0)
            seconds = json_number_value(json_object_get(w, "last_seen_s"));
    }
    json_decref(root);
    free(body);
    return seconds;
}

/* A worker ends by itself when the job does, or when psd came back with nothing. */
static void check_worker(struct kill_job *j, uint32_t i)
{
    const struct ledger_page *page = j->w[i].page;
    if (!kill_job_has(j, i) || !page->ended)
        return;
    if (!(j->drained && page->rc == PSC_DRAINED) && !(j->anew && page->rc == PSC_EEVICTED))
        kill_job_fails(j, "worker %u has ended: %s (%s)", i, psc_result_name(page->rc), page->error);
    kill_job_say(j, "worker %u has ended: %s (%s)", i, psc_result_name(page->rc), page->error);
    ledger_finish(&j->w[i], TEST_HANG_S);
}

/* Nobody has ended who should not have. */
static void check_all(struct kill_job *j)
{
    for (uint32_t i = 0; i < j->n; i++)
        check_worker(j, i);
    for (int i = 0; i < j->n_servers; i++)
        if (j->t.d[i].pid > 0 && waitpid(j->t.d[i].pid, NULL, WNOHANG) != 0) {
            j->t.d[i].pid = 0;
            kill_job_fails(j, "server %d has ended by itself", i);
        }
}

void kill_job_fill_up(struct kill_job *j)
{
    check_all(j);
    while (kill_job_living(j) < (uint32_t)j->n_first)
        kill_job_start_worker(j);
}

/* psd's clock goes on a little, if it has just heard everybody who lives and has joined. Its servers answer
 * first, which turns their loops: they say what is due to each other. */
static void pass_some_time(struct kill_job *j)
{
    for (int i = 0; i < j->n_servers; i++)
        if (!(daemon_number(&j->t.d[i], "/status", "uptime_s") >= 0))
            return;
    for (uint32_t i = 0; i < j->n; i++)
        if (kill_job_has(j, i) && j->w[i].page->joined && !(silent_s(j, i) < SHIM_AWAKE_S))
            return;
    atomic_fetch_add(&j->page->ahead_ms, 350);
}

void kill_job_bury(struct kill_job *j)
{
    double deadline = test_now_s() + test_slow_s(KILL_DEADLINE_S);
    for (uint32_t i = 0; i < j->n; i++) {
        while (j->dead[i] && !isnan(silent_s(j, i))) {
            if (test_now_s() > deadline)
                kill_job_fails(j, "worker %u is dead and not given up", i);
            check_all(j);
            pass_some_time(j);
            test_nap_s(POLL_S);
        }
        j->dead[i] = false;
    }
}

/* Everybody who lives goes on. A psd that was resumed waits for those who were in the job until they have had
 * their time, which passes when nobody goes on otherwise. */
void kill_job_go_on(struct kill_job *j, uint32_t exchanges)
{
    double begin = test_now_s(), deadline = begin + test_slow_s(KILL_DEADLINE_S);
    uint32_t want[LEDGER_WORKERS];
    for (uint32_t i = 0; i < LEDGER_WORKERS; i++) /* of those who come meanwhile, too */
        want[i] = (i < j->n ? j->w[i].page->answered : 0) + j->course.behind + exchanges;
    for (uint32_t i = 0; i < j->n; i++)
        while (kill_job_has(j, i) && j->w[i].page->answered < want[i]) {
            if (test_now_s() > deadline)
                kill_job_fails(j, "worker %u stands still: %u exchanges begun, %u answered", i,
                               j->w[i].page->begun, j->w[i].page->answered);
            kill_job_fill_up(j);
            if (test_now_s() > begin + PATIENCE_S)
                pass_some_time(j);
            test_nap_s(POLL_S);
        }
}

/* Places where what its worker has seen there is missing now. */
static uint16_t missing(const struct kill_job *j, uint32_t i, uint32_t k)
{
    unsigned is_gone = 0;
    for (uint32_t place = 0; place < LEDGER_PLACES; place++)
        is_gone |= (ledger_digit(j->center, i, k, place) == 0) << place;
    return (uint16_t)(is_gone & j->w[i].page->landed[k]);
}

static void check_digits(struct kill_job *j, uint32_t i, const uint32_t *answered)
{
    uint32_t begun = j->w[i].page->begun;
    for (uint32_t k = 0; k < LEDGER_EXCHANGES; k++)
        for (uint32_t place = 0; place < LEDGER_PLACES; place++) {
            unsigned times = ledger_digit(j->center, i, k, place);
            if (times > (k < begun))
                kill_job_fails(j, "exchange %u of worker %u (%u begun) has landed %u times at place %u", k, i,
                               begun, times, place);
        }
    for (uint32_t k = 0; k < answered[i] && !j->a->drops; k++)
        if (j->w[i].page->landed[k] != (uint16_t)-1 && !j->w[i].page->refused[k])
            kill_job_fails(j, "the answer to exchange %u of worker %u has it at places %04x only", k, i,
                           j->w[i].page->landed[k]);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Pulls the center. How many updates that their workers have seen in it are newly gone, as psd counts them,
 * where the most are. One that psd's death cut in two was told as lost then, though the rest of it was sent
 * to the next psd: it is not told again when that is gone, too. *any (may be NULL): something is newly gone.
 */
static uint64_t look(struct kill_job *j, bool *any)
{
    uint64_t sum[LEDGER_PLACES] = {0}, most = 0;
    uint32_t answered[LEDGER_WORKERS];
    char error[600];
    for (uint32_t i = 0; i < j->n; i++)
        answered[i] = j->w[i].page->answered;
    if (!ledger_pull(j->t.d[0].endpoint, j->center, error, sizeof error))
        kill_job_fails(j, "the center cannot be pulled: %s", error);
    for (uint32_t i = 0; i < j->n; i++) {
        uint64_t its[LEDGER_PLACES] = {0};
        check_digits(j, i, answered);
        for (uint32_t k = 0; k < answered[i]; k++) {
            uint16_t now = missing(j, i, k), new = (uint16_t)(now & ~j->gone[i][k]);
            bool first = j->gone[i][k] == 0 && new != 0;
            for (uint32_t place = 0; place < LEDGER_PLACES && first; place++)
                its[place] += new >> place & 1;
            j->gone[i][k] |= now;
            j->row->lost += first;
            if (first)
                kill_job_say(j, "exchange %u of worker %u is gone at places %04x", k, i, new);
            if (any != NULL)
                *any = *any || new != 0;
        }
        for (uint32_t place = 0; place < LEDGER_PLACES; place++)
            sum[place] = j->a->merges ? larger(sum[place], its[place]) : sum[place] + its[place];
    }
    for (uint32_t place = 0; place < LEDGER_PLACES; place++)
        most = larger(most, sum[place]);
    return most;
}

/* How often the servers went back together since this was last asked. */
static unsigned went_back(struct kill_job *j)
{
    unsigned before = j->backs;
    j->backs = daemon_logged(&j->t.d[0], "server.back");
    return j->backs - before;
}

void kill_job_check_nothing_lost(struct kill_job *j)
{
    unsigned backs = went_back(j); /* they may have lost each other as time passed */
    bool any = false;
    uint64_t newly = look(j, &any);
    if (any && backs == 0)
        kill_job_fails(j, "%" PRIu64 " updates are gone, and no psd was killed", newly);
}

void kill_job_check_told(struct kill_job *j)
{
    const struct daemon *head = &j->t.d[0];
    double deadline = test_now_s() + test_slow_s(KILL_DEADLINE_S), told, least;
    char kind[32];
    j->untold = went_back(j) > 1 || j->untold; /* the first time was told by a life before */
    j->newly += look(j, NULL);
    do {
        told = daemon_number(head, "/status", "center.lost_updates");
        least = daemon_number(head, "/status", "center.lost_updates_least");
        daemon_text(head, "/status", "center.lost_updates_are", kind, sizeof kind);
        check_all(j);
    } while (strcmp(kind, "unknown") == 0 && !j->may_be_unknown && test_now_s() < deadline);
    kill_job_say(j, "lost are %" PRIu64 "; psd says: %s %.0f, at least %.0f%s", j->newly, kind, told, least,
                 j->untold ? "; not all was told" : "");
    if (strcmp(kind, "unknown") == 0 && !j->may_be_unknown)
        kill_job_fails(j, "all are back, and what was lost stays unknown");
    double moves = (told + (double)j->uncounted) * (j->course.behind > 0 ? j->course.behind : 1);
    if (strcmp(kind, "unknown") != 0 && !j->untold && !(moves >= (double)j->newly))
        kill_job_fails(j, "%" PRIu64 " updates are lost; psd says: %s %.0f", j->newly, kind, told);
    for (uint32_t i = 0; i < j->n; i++)
        j->from[i] = j->w[i].page->answered;
    j->row->told += strcmp(kind, "unknown") != 0 ? (uint64_t)told : 0;
}

void kill_job_check_dropped(struct kill_job *j)
{
    uint64_t late = 0;
    if (j->course.behind > 0) /* a worker does not know which of its steps came too late */
        return;
    for (uint32_t i = 0; i < j->n; i++)
        for (uint32_t k = j->from[i]; k < j->w[i].page->answered; k++)
            late += j->w[i].page->landed[k] != (uint16_t)-1 && !j->w[i].page->refused[k];
    double dropped = daemon_number(&j->t.d[0], "/status", "center.updates_dropped");
    kill_job_say(j, "%" PRIu64 " came too late; psd counts %.0f", late, dropped);
    if (!(dropped >= (double)late))
        kill_job_fails(j,
                       "%" PRIu64 " exchanges were answered and are not in the center whole; psd counts %.0f",
                       late, dropped);
}

void kill_job_check_ends(struct kill_job *j)
{
    char error[600];
    if (!ledger_pull(j->t.d[0].endpoint, j->center, error, sizeof error))
        kill_job_fails(j, "the center cannot be pulled at the end: %s", error);
    for (uint32_t i = 0; i < j->n; i++) {
        const struct ledger_page *page = j->w[i].page;
        for (uint32_t v = 0; v < LEDGER_FLOATS && page->ended && page->rc == PSC_OK; v++)
            if (!(fabsf(page->x[v] - j->center[v]) <= j->tolerance))
                kill_job_fails(j, "x[%u] is %g at worker %u, and %g in the center", v, page->x[v], i,
                               j->center[v]);
    }
}

void kill_job_save(struct kill_job *j)
{
    double deadline = test_now_s() + test_slow_s(KILL_DEADLINE_S);
    unsigned before[SERVERS_MOST];
    for (int i = 0; i < j->n_servers; i++)
        before[i] = daemon_logged(&j->t.d[i], "checkpoint.written");
    free(daemon_ask(&j->t.d[0], "POST", "/checkpoint"));
    for (int i = 0; i < j->n_servers; i++)
        while (daemon_logged(&j->t.d[i], "checkpoint.written") == before[i]) {
            if (test_now_s() > deadline)
                kill_job_fails(j, "server %d writes no checkpoint", i);
            check_all(j);
            test_nap_s(POLL_S);
        }
    kill_job_say(j, "saved");
}

void kill_job_kill_servers(struct kill_job *j, unsigned which)
{
    for (int i = 0; i < j->n_servers; i++)
        if (which >> i & 1) {
            if (daemon_stop(&j->t.d[i], SIGKILL, TEST_HANG_S) < 0)
                kill_job_fails(j, "server %d was gone before it was killed", i);
            j->row->kills++;
            kill_job_say(j, "server %d is killed", i);
        }
}

void kill_job_resume_servers(struct kill_job *j, unsigned which)
{
    for (int i = 0; i < j->n_servers; i++)
        if ((which >> i & 1) && daemon_start(&j->t.d[i], "--resume") < 0)
            kill_job_fails(j, "server %d does not start", i);
    kill_job_say(j, "resumed");
}
