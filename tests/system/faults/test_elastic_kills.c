/* Elastic averaging moves as much into the center as it takes from x (Zhang et al. 2015, eq. 5 and 6), so the
 * center is the sum of what the workers gave, over all exchanges that landed. psd is killed at random
 * moments; then in each chunk the center lacks a run of each worker's last exchanges before the kill, and
 * nothing else: no exchange landed in part or twice, or with another answer than the worker has, unless it
 * was answered again. psd says at least how many it lost.
 *
 *     PSD_TEST_SCENARIO=SEED test_system_elastic_kills    that scenario
 *     PSD_TEST_KILLS=N test_system_elastic_kills          so many kills, from PSD_TEST_SEED
 *     test_system_elastic_kills                           those of CI, the same at every run */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/clock.h"
#include "tests/support/system/servers.h"
#include "tests/support/unit.h"
#include "tests/system/ledger_workers.h"

enum {
    MOST = 3,
    FLOATS = 4 * MOST,
    EXCHANGES = 2000,
    KILLS_EACH = 5,
    CI_KILLS = 40,
    CI_SEED = 17,
    MOST_SCENARIOS = 2048
};
enum {
    PLACES = LEDGER_PLACES,
    FREELY = EXCHANGES,
    RETRY_MS = 1000000 /* what a restart loses is sent again at once */
};
#define TOLERANCE 2e-3 /* of sums of float32 of some 1000 terms; a gift is some 0.1 */
#define PAUSE_S                                                                                              \
    1e-3            /* and more for who has made many exchanges: nobody's notes run out on a slow machine    \
                     */
#define STALE_S 0.2 /* before those who wait for a round get company */

/* What a worker notes. Place p has some floats of each worker, in chunk p, which its steps alone move; all
 * exchange all. */
struct page {
    _Atomic bool end, ended;
    _Atomic uint32_t until, begun, answered;
    int rc;
    char error[600];
    float gift[EXCHANGES][PLACES][FLOATS]; /* from x to the center, of answered exchanges */
};

struct method {
    const char *name, *settings[3];
    bool merges; /* its version counts rounds */
};
static const struct method methods[] = {
    {"async-easgd", {"admission=fcfs"}, false},
    {"async-easgd", {"admission=round-robin", "workers=2"}, false},
    {"sync-easgd", {"admission=sync", "workers=2"}, true},
    {"async-easgd", {"admission=ssp", "workers=2", "parameters.slack=2"}, false},
};

struct scenario {
    uint64_t seed;
    struct dice dice;
    struct servers t;
    const struct method *m;
    struct page *page[MOST];
    pid_t pid[MOST];
    int n;
    uint32_t kept[MOST]
                 [PLACES]; /* so many exchanges are in the newest checkpoint, but for those lost before */
    bool lost[MOST][EXCHANGES][PLACES], told[MOST][EXCHANGES];
    double differs[PLACES][FLOATS]; /* what replayed answers have made of it */
    double replays[SERVERS_MOST];   /* before the kill */
    float center[LEDGER_FLOATS];
};

static uint64_t *seeds; /* shared */

static uint32_t index_of(int place, int which)
{
    return (uint32_t)(place * LEDGER_CHUNK + 64 * which + 5);
}

/* Of either sign, so that x stays small. */
static float move_of(int which, uint32_t k, int place)
{
    struct dice dice = {((uint64_t)which << 40) + ((uint64_t)k << 8) + (uint64_t)place};
    return (float)((double)dice_below(&dice, 4001) - 2000) * 1e-3f;
}

static int exchange(struct page *page, struct psc *c, int worker, uint32_t k, float *x, float *g)
{
    float before[PLACES][FLOATS];
    for (int p = 0; p < PLACES; p++) {
        for (int q = 0; q < FLOATS; q++) {
            g[index_of(p, q)] = q % MOST == worker ? -move_of(q, k, p) : 0;
            before[p][q] = x[index_of(p, q)] - g[index_of(p, q)];
        }
    }
    page->begun = k + 1;
    int rc = psc_step(c, x, g, 1);
    for (int p = 0; p < PLACES; p++)
        for (int q = 0; q < FLOATS; q++)
            page->gift[k][p][q] = before[p][q] - x[index_of(p, q)];
    if (rc == PSC_OK)
        page->answered = k + 1;
    return rc;
}

static void work(struct page *page, const char *server, int worker)
{
    float *x = calloc(LEDGER_FLOATS, sizeof *x), *g = calloc(LEDGER_FLOATS, sizeof *g);
    struct psc *c = NULL;
    char name[40];
    ledger_name((uint32_t)worker, name, sizeof name);
    page->rc = ledger_join(server, PSC_WORKER, name, RETRY_MS, &c, x);
    for (uint32_t k = 0; page->rc == PSC_OK && k < EXCHANGES; k++) {
        while (k >= page->until && !page->end)
            test_nap_s(1e-3);
        if (page->end)
            break;
        page->rc = exchange(page, c, worker, k, x, g);
        test_nap_s(PAUSE_S * (double)(1 << 12 * k / EXCHANGES));
    }
    snprintf(page->error, sizeof page->error, "%s", psc_error(c));
    psc_close(c);
    free(x);
    free(g);
    page->ended = true;
}

static void fails(struct scenario *s, const char *what)
{
    fprintf(stderr, "elastic kills: seed %" PRIu64 ": %s, %d workers: %s; log: %s\n", s->seed, s->m->name,
            s->n, what, s->t.d[0].log);
    ck_abort_msg("seed %" PRIu64 ": %s", s->seed, what);
}

static void start_worker(struct scenario *s, int i)
{
    s->page[i] = mmap(NULL, sizeof *s->page[i], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(s->page[i] != MAP_FAILED);
    s->pid[i] = ledger_fork();
    if (s->pid[i] != 0)
        return;
    work(s->page[i], s->t.d[0].endpoint, i);
    _exit(0);
}

static void check_workers(struct scenario *s)
{
    char what[700];
    for (int i = 0; i < s->n; i++)
        if (s->page[i]->ended) {
            snprintf(what, sizeof what, "worker %d has ended: %s (%s)", i, psc_result_name(s->page[i]->rc),
                     s->page[i]->error);
            fails(s, what);
        }
}

static void run_freely(struct scenario *s)
{
    for (int i = 0; i < s->n; i++)
        s->page[i]->until = FREELY;
}

static void go_on(struct scenario *s, int i, uint32_t more)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    uint32_t want = s->page[i]->answered + more;
    while (s->page[i]->answered < want) {
        check_workers(s);
        if (test_now_s() > deadline)
            fails(s, "a worker stands still");
        test_nap_s(1e-3);
    }
}

static bool rests(const struct page *page)
{
    return page->answered == page->begun && page->begun >= page->until;
}

/* Each makes some more exchanges, and none is under way. Under rounds somebody may wait for who rests. */
static void come_to_rest(struct scenario *s, uint32_t more)
{
    double now = test_now_s(), deadline = now + test_slow_s(2 * TEST_HANG_S), stale = now + STALE_S;
    for (int i = 0; i < s->n; i++)
        s->page[i]->until = s->page[i]->begun + more;
    while (true) {
        int resting = 0;
        for (int i = 0; i < s->n; i++)
            resting += rests(s->page[i]);
        if (resting == s->n)
            return;
        now = test_now_s();
        for (int i = 0; i < s->n && now > stale; i++)
            s->page[i]->until += rests(s->page[i]);
        stale = now > stale ? now + STALE_S : stale;
        check_workers(s);
        if (now > deadline)
            fails(s, "the workers stand still");
        test_nap_s(2e-3);
    }
}

static void save(struct scenario *s)
{
    uint32_t answered[MOST];
    for (int i = 0; i < s->n; i++)
        answered[i] = s->page[i]->answered;
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    unsigned before[SERVERS_MOST];
    for (int i = 0; i < s->t.n; i++)
        before[i] = daemon_logged(&s->t.d[i], "checkpoint.written");
    free(daemon_ask(&s->t.d[0], "POST", "/checkpoint"));
    for (int i = 0; i < s->t.n; i++)
        while (daemon_logged(&s->t.d[i], "checkpoint.written") == before[i]) {
            if (test_now_s() > deadline)
                fails(s, "no checkpoint is written");
            check_workers(s);
            test_nap_s(2e-3);
        }
    for (int i = 0; i < s->n; i++)
        for (int place = 0; place < PLACES; place++)
            s->kept[i][place] = answered[i];
}

/* A worker's gifts at one place, from one of its exchanges on to the next. */
struct run {
    uint32_t from, end;
    double gift[FLOATS];
};

/* The runs that a kill may have taken at a place: those that end with the last exchange that was answered
 * whole, or with the one that was under way, of which this chunk was; or with the next, which may have begun
 * before the other servers went back. */
static size_t runs_of(const struct scenario *s, int worker, int place, uint32_t begun, struct run *runs)
{
    size_t n = 0;
    for (uint32_t end = begun - 1; end <= begun + 1 && end <= s->page[worker]->answered; end++) {
        struct run run = {.from = end, .end = end};
        runs[n++] = run;
        while (run.from > s->kept[worker][place]) {
            run.from--;
            for (int q = 0; q < FLOATS && !s->lost[worker][run.from][place]; q++)
                run.gift[q] += s->page[worker]->gift[run.from][place][q];
            runs[n++] = run;
        }
    }
    return n;
}

/* Of each worker one run is sought; the last worker's are sorted. */
struct search {
    int n;
    struct run *runs[MOST];
    size_t n_runs[MOST];
    const struct run *found[MOST];
};

static int by_first_float(const void *a, const void *b)
{
    const struct run *p = a, *q = b;
    return (p->gift[0] > q->gift[0]) - (p->gift[0] < q->gift[0]);
}

static bool is_all(const struct run *run, const double *left)
{
    for (int q = 0; q < FLOATS; q++)
        if (!(fabs(left[q] - run->gift[q]) <= TOLERANCE))
            return false;
    return true;
}

static bool find_last(struct search *s, const double *left)
{
    struct run *runs = s->runs[s->n - 1];
    size_t from = 0, end = s->n_runs[s->n - 1];
    while (from < end) {
        size_t middle = (from + end) / 2;
        if (runs[middle].gift[0] < left[0] - TOLERANCE)
            from = middle + 1;
        else
            end = middle;
    }
    for (; from < s->n_runs[s->n - 1] && runs[from].gift[0] <= left[0] + TOLERANCE; from++)
        if (is_all(s->found[s->n - 1] = &runs[from], left))
            return true;
    return false;
}

/* Runs of workers i and later whose gifts make up what is left. */
static bool find_runs(struct search *s, int i, const double *left)
{
    double rest[FLOATS];
    if (i == s->n - 1)
        return find_last(s, left);
    for (size_t r = 0; r < s->n_runs[i]; r++) {
        s->found[i] = &s->runs[i][r];
        for (int q = 0; q < FLOATS; q++)
            rest[q] = left[q] - s->found[i]->gift[q];
        if (find_runs(s, i + 1, rest))
            return true;
    }
    return false;
}

static void pull(struct scenario *s)
{
    char error[600];
    if (!ledger_pull(s->t.d[0].endpoint, s->center, error, sizeof error))
        fails(s, error);
}

/* What the center lacks of all gifts that were not lost before. */
static void lack_at(const struct scenario *s, int place, double *lack)
{
    for (int q = 0; q < FLOATS; q++) {
        lack[q] = s->differs[place][q] - (double)s->center[index_of(place, q)];
        for (int i = 0; i < s->n; i++)
            for (uint32_t k = 0; k < s->page[i]->answered; k++)
                lack[q] += s->lost[i][k][place] ? 0 : (double)s->page[i]->gift[k][place][q];
    }
}

/* All rest. Notes what the kill took, and returns how many updates that is, as psd counts them, where it is
 * the most. One that psd's death cut in two was told as lost then, though the rest of it was sent to the next
 * psd: it is not told again when that is gone, too. */
static uint64_t look(struct scenario *s, const uint32_t *begun, bool all)
{
    static struct run runs[MOST][3 * EXCHANGES + 4];
    char what[200];
    uint64_t most = 0;
    pull(s);
    for (int place = 0; place < PLACES; place++) {
        struct search search = {.n = s->n};
        double lack[FLOATS];
        uint64_t sum = 0;
        lack_at(s, place, lack);
        for (int i = 0; i < s->n; i++) {
            search.runs[i] = runs[i];
            search.n_runs[i] = runs_of(s, i, place, begun[i], runs[i]);
        }
        qsort(runs[s->n - 1], search.n_runs[s->n - 1], sizeof **runs, by_first_float);
        if (!find_runs(&search, 0, lack)) {
            snprintf(what, sizeof what, "at place %d the center lacks %g, %g, %g ...: no run of exchanges",
                     place, lack[0], lack[1], lack[2]);
            fails(s, what);
        }
        for (int i = 0; i < s->n; i++) {
            uint64_t its = 0;
            for (uint32_t k = search.found[i]->from; k < search.found[i]->end; k++) {
                its += !s->told[i][k];
                s->lost[i][k][place] = true;
            }
            if (all || search.found[i]->from < search.found[i]->end)
                s->kept[i][place] = search.found[i]->end;
            sum = s->m->merges ? (its > sum ? its : sum) : sum + its;
        }
        most = sum > most ? sum : most;
    }
    for (int i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < begun[i]; k++)
            for (int place = 0; place < PLACES; place++)
                s->told[i][k] = s->told[i][k] || s->lost[i][k][place];
    return most;
}

/* The checkpoint had an exchange whose answer the worker had not: it was answered with the center as it was
 * then, so that x gave something else. What that and the kill took cannot be told apart. */
static void begin_anew(struct scenario *s, const uint32_t *begun, bool all)
{
    double lack[FLOATS];
    pull(s);
    for (int place = 0; place < PLACES; place++) {
        lack_at(s, place, lack);
        for (int q = 0; q < FLOATS; q++)
            s->differs[place][q] -= lack[q];
        for (int i = 0; i < s->n && all; i++)
            s->kept[i][place] = begun[i] - 1;
    }
    for (int i = 0; i < s->n; i++)
        s->told[i][begun[i] - 1] = true; /* maybe */
}

static void check_told(struct scenario *s, uint64_t newly)
{
    double told, deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    char kind[32], what[200];
    do {
        told = daemon_number(&s->t.d[0], "/status", "center.lost_updates");
        daemon_text(&s->t.d[0], "/status", "center.lost_updates_are", kind, sizeof kind);
    } while (strcmp(kind, "unknown") == 0 && test_now_s() < deadline);
    snprintf(what, sizeof what, "%" PRIu64 " updates are lost; psd says: %s %g", newly, kind, told);
    if (!(told >= (double)newly))
        fails(s, what);
}

/* A few exchanges on; most often one is under way. */
static void moment(struct scenario *s)
{
    int i = (int)dice_below(&s->dice, (uint64_t)s->n);
    uint32_t at = s->page[i]->begun + 1 + (uint32_t)dice_below(&s->dice, 12);
    double end = test_now_s() + 1;
    while (s->page[i]->begun < at && test_now_s() < end)
        test_nap_s(1e-4);
    test_nap_s(1e-6 * (double)dice_below(&s->dice, 3000));
}

static void kill_servers(struct scenario *s, unsigned which, uint32_t *begun)
{
    for (int i = 0; i < s->t.n; i++)
        if (which >> i & 1)
            ck_assert_int_ge(daemon_stop(&s->t.d[i], SIGKILL, TEST_HANG_S), 0);
    for (int i = 0; i < s->n; i++)
        begun[i] = s->page[i]->begun;
}

static void resume_servers(struct scenario *s, unsigned which)
{
    for (int i = 0; i < s->t.n; i++)
        if ((which >> i & 1) && daemon_start(&s->t.d[i], "--resume") < 0)
            fails(s, "psd does not start");
}

static bool was_replayed(struct scenario *s)
{
    bool any = false;
    for (int i = 0; i < s->t.n; i++)
        any = daemon_number(&s->t.d[i], "/status", "center.replays") > s->replays[i] || any;
    return any;
}

static void event(struct scenario *s)
{
    uint32_t begun[MOST];
    unsigned every = (1u << s->t.n) - 1, which = 1 + (unsigned)dice_below(&s->dice, every);
    bool twice = dice_below(&s->dice, 4) == 0, saving = dice_below(&s->dice, 3) == 0;
    run_freely(s);
    if (dice_below(&s->dice, 2) == 0)
        save(s);
    moment(s);
    if (saving) {
        free(daemon_ask(&s->t.d[0], "POST", "/checkpoint"));
        test_nap_s(1e-6 * (double)dice_below(&s->dice, 10000));
    }
    for (int i = 0; i < s->t.n; i++)
        s->replays[i] = which >> i & 1 ? 0 : daemon_number(&s->t.d[i], "/status", "center.replays");
    kill_servers(s, which, begun);
    resume_servers(s, which);
    if (twice) {
        test_nap_s(1e-6 * (double)dice_below(&s->dice, 100000));
        kill_servers(s, which, begun);
        resume_servers(s, which);
    }
    come_to_rest(s, 2);
    if (twice || was_replayed(s)) {
        begin_anew(s, begun, which == every);
        return;
    }
    uint64_t newly = look(s, begun, which == every);
    if (which == every)
        check_told(s, newly);
}

static void start(struct scenario *s)
{
    static const char *settings[16];
    static char method[40];
    const char *const all[] = {method,
                               "parameters.alpha=0.25",
                               "parameters.learning_rate=1",
                               "parameters.period=1",
                               "parameters.schedule.warmup_steps=0",
                               "chunk_floats=4096",
                               "lanes=2",
                               "checkpoint.every_s=0",
                               "limits.silence_s=600",
                               "servers.wait_s=3600",
                               dice_below(&s->dice, 2) == 0 ? "transport=tcp" : "transport=shm"};
    snprintf(method, sizeof method, "method=%s", s->m->name);
    memcpy(settings, all, sizeof all);
    memcpy(settings + ROWS(all), s->m->settings, sizeof s->m->settings);
    ck_assert_int_eq(servers_prepare(&s->t, 1 + (int)dice_below(&s->dice, 2), NULL, settings), 0);
    if (servers_start(&s->t) < 0)
        fails(s, "psd does not start");
    for (int i = 0; i < s->n; i++)
        start_worker(s, i);
    run_freely(s); /* a round's checkpoint is written with the next round */
    for (int i = 0; i < s->n; i++)
        go_on(s, i, 2);
    save(s);
}

static void end(struct scenario *s)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    for (int i = 0; i < s->n; i++)
        s->page[i]->end = true;
    for (int i = 0; i < s->n; i++) {
        while (!s->page[i]->ended && test_now_s() < deadline)
            test_nap_s(2e-3);
        ck_assert_msg(s->page[i]->ended && s->page[i]->rc == PSC_OK, "worker %d: %s", i, s->page[i]->error);
        munmap(s->page[i], sizeof *s->page[i]);
    }
    servers_remove(&s->t);
}

START_TEST(the_center_is_what_was_given_and_not_lost)
{
    static struct scenario s;
    s = (struct scenario){.seed = seeds[_i], .dice.state = seeds[_i]};
    s.m = &methods[s.seed % ROWS(methods)];
    s.n = 2 + (int)dice_below(&s.dice, MOST - 1);
    start(&s);
    for (int i = 0; i < KILLS_EACH; i++)
        event(&s);
    end(&s);
}
END_TEST

int main(void)
{
    const char *one = getenv("PSD_TEST_SCENARIO"), *kills = getenv("PSD_TEST_KILLS"),
               *seed = getenv("PSD_TEST_SEED");
    struct dice dice = {kills != NULL && seed != NULL ? strtoull(seed, NULL, 10) : CI_SEED};
    uint64_t n = one != NULL ? 1 : ((kills != NULL ? strtoull(kills, NULL, 10) : CI_KILLS) + 4) / KILLS_EACH;
    n = n > MOST_SCENARIOS ? MOST_SCENARIOS : n;
    seeds = calloc(n, sizeof *seeds);
    for (uint64_t i = 0; i < n; i++)
        seeds[i] = one != NULL ? strtoull(one, NULL, 10)
                               : dice_below(&dice, UINT64_C(1) << 40) * ROWS(methods) + i % ROWS(methods);
    Suite *suite = suite_create("elastic-kills");
    TCase *tcase = tcase_create("kills");
    tcase_set_timeout(tcase, test_slow_s(10 * TEST_HANG_S));
    tcase_add_loop_test(tcase, the_center_is_what_was_given_and_not_lost, 0, (int)n);
    suite_add_tcase(suite, tcase);
    int result = unit_run(suite);
    free(seeds);
    return result;
}
