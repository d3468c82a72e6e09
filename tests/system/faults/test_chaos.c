/* Workers and psd are killed, stopped and let go on, and connections are cut, at moments that a seed chooses:
 * PSD_TEST_SEED, printed. What the center holds afterwards is told by whole numbers, to the last bit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/system/libc_faults.h"
#include "tests/support/system/proxy.h"
#include "tests/support/suite.h"
#include "tests/system/security/hostile_fixture.h"

enum { WORKERS = 3, EVENTS = 16, PSD_DEATHS = 5, MOST_DEAD = 8 };

/* Silence passes by psd's clock, and only when the test lets it. */
static const char *const behind_proxy[] = {"limits.silence_s=60", "advertise=127.0.0.2",
                                           "checkpoint.every_s=1", NULL};

static uint64_t seed(void)
{
    const char *text = getenv("PSD_TEST_SEED");
    uint64_t value = text != NULL ? strtoull(text, NULL, 10) : 1;
    fprintf(stderr, "seed: PSD_TEST_SEED=%lu\n", (unsigned long)value);
    return value;
}

static double draw_s(uint64_t *state, double most_s)
{
    return most_s * (double)(siege_random(state) >> 11) * 0x1p-53;
}

/* A worker of whose last exchange some chunks may have landed, and some not. */
struct dead {
    uint32_t salt;
    uint64_t exchanges; /* whole ones */
};

struct field {
    struct daemon d;
    struct proxy proxy;
    struct crew_worker crew[WORKERS];
    uint32_t salts[WORKERS], next_salt;
    struct dead dead[MOST_DEAD];
    int n_dead;
};

static void start_worker(struct field *f, int rank)
{
    f->salts[rank] = f->next_salt++;
    struct crew_task task = {.server = f->d.endpoint,
                             .rank = -1, /* that of one who died is free only when silence has told */
                             .floats = SIEGE_FLOATS,
                             .heartbeat_ms = SIEGE_BRISK_MS,
                             .retry_ms = 50,
                             .pause_s = 0.002,
                             .salt = f->salts[rank]};
    crew_start(&f->crew[rank], &task);
}

static void kill_worker(struct field *f, int rank)
{
    struct crew_worker *w = &f->crew[rank];
    crew_kill(w);
    f->dead[f->n_dead++] = (struct dead){f->salts[rank], w->page->exchanges};
    start_worker(f, rank); /* an heir */
}

static void stop_for(pid_t pid, double seconds)
{
    kill(pid, SIGSTOP);
    test_nap_s(seconds);
    kill(pid, SIGCONT);
}

static void event(struct field *f, uint64_t *state)
{
    int rank = (int)(siege_random(state) % WORKERS);
    switch (siege_random(state) % 4) {
    case 0:
        if (f->n_dead < MOST_DEAD && f->crew[rank].page->joined)
            kill_worker(f, rank);
        break;
    case 1:
        stop_for(f->crew[rank].pid, draw_s(state, 0.5));
        break;
    case 2:
        stop_for(f->d.pid, draw_s(state, 0.5));
        break;
    default:
        proxy_cut(&f->proxy);
    }
}

/* The sum of what surely landed at value i. */
static double sure_sum(const struct field *f, uint64_t i)
{
    double sum = 0;
    for (int w = 0; w < WORKERS; w++)
        sum += crew_sum(f->salts[w], f->crew[w].page->exchanges, i);
    for (int k = 0; k < f->n_dead; k++)
        sum += crew_sum(f->dead[k].salt, f->dead[k].exchanges, i);
    return sum;
}

/* Whether a chunk is what it must be when of the dead ones' last exchanges those of the subset landed in it.
 */
static bool chunk_is(const struct field *f, const float *x, struct ps_range r, unsigned subset)
{
    for (uint64_t i = r.begin; i < r.begin + r.count; i++) {
        double sum = sure_sum(f, i);
        for (int k = 0; k < f->n_dead; k++)
            if (subset >> k & 1)
                sum += (double)crew_value(f->dead[k].salt, f->dead[k].exchanges, i);
        if ((double)x[i] != -sum)
            return false;
    }
    return true;
}

static void assert_center(const struct field *f)
{
    struct hand h;
    float *x = calloc(SIEGE_FLOATS, sizeof *x);
    ck_assert_msg(hand_join(&h, f->d.endpoint, SIEGE_FLOATS) == 0, "%s", h.sentence);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_PULL, NULL, x), 0);
    for (uint32_t lane = 0; lane < h.n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&h.shard, lane); k++) {
            struct ps_range r = ps_shard_chunk(&h.shard, lane, k);
            unsigned subset = 0;
            while (subset < 1u << f->n_dead && !chunk_is(f, x, r, subset))
                subset++;
            ck_assert_msg(subset < 1u << f->n_dead, "chunk %u of lane %u: value %lu is %g; landed are %g", k,
                          lane, (unsigned long)r.begin, (double)x[r.begin], -sure_sum(f, r.begin));
        }
    hand_close(&h);
    free(x);
}

static void assert_all_go_on(const struct field *f)
{
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(crew_reaches(&f->crew[i], f->crew[i].page->exchanges + 10, TEST_HANG_S),
                      "worker %d ended or stands still: %s (%s)", i, psc_result_name(f->crew[i].page->rc),
                      f->crew[i].page->error);
}

/* Their sessions end by silence; those of the living do not. */
static void give_up_the_dead(const struct field *f, struct shim_page *page)
{
    int ranks[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        ranks[i] = f->crew[i].page->rank;
    ck_assert(shim_pass_until(page, &f->d, "silent for", (unsigned)f->n_dead, ranks, WORKERS));
    ck_assert_double_eq(daemon_workers(&f->d), WORKERS);
}

START_TEST(what_landed_stays_whatever_dies_stops_or_is_cut)
{
    static struct siege s;
    static struct field f;
    uint16_t ports[1 + SIEGE_LANES];
    char url[200];
    uint64_t state = seed();
    siege_prepare(&s, behind_proxy);
    f.d = s.d;
    struct shim_page *page = shim_set(PSD_SHIM, f.d.dir);
    ck_assert_ptr_nonnull(page);
    ck_assert_int_eq(daemon_start(&f.d, NULL), 0);
    shim_unset();
    for (int rank = 0; rank < WORKERS; rank++)
        start_worker(&f, rank);
    ck_assert(daemon_text(&f.d, "/status", "listen", url, sizeof url));
    ck_assert(hand_survey(url, ports, 1 + SIEGE_LANES));
    ck_assert_int_eq(proxy_start(&f.proxy, ports, 1 + SIEGE_LANES), 0);
    for (int rank = 0; rank < WORKERS; rank++)
        ck_assert_msg(crew_reaches(&f.crew[rank], 3, TEST_HANG_S), "rank %d: %s", rank,
                      f.crew[rank].page->error);
    for (int i = 0; i < EVENTS; i++) {
        test_nap_s(draw_s(&state, 0.3));
        event(&f, &state);
    }
    assert_all_go_on(&f);
    give_up_the_dead(&f, page);
    assert_all_go_on(&f);
    for (int rank = 0; rank < WORKERS; rank++) {
        ck_assert(crew_stop(&f.crew[rank], TEST_HANG_S));
        ck_assert_msg(f.crew[rank].page->rc == PSC_OK, "rank %d: %s", rank, f.crew[rank].page->error);
    }
    fprintf(stderr, "%d workers died, %.0f chunks were replayed\n", f.n_dead,
            daemon_number(&f.d, "/status", "center.replays"));
    assert_center(&f);
    proxy_stop(&f.proxy);
    daemon_remove(&f.d);
}
END_TEST

/* In each chunk `missing` = everything that was sent - what is there = `lost` whole exchanges of the one
 * worker, one after the other: lost * (1 + salt % 4 + i % 5) + the odd ones among them. */
static uint64_t lost_in_chunk(const struct crew_worker *w, const float *x, struct ps_range r)
{
    double first = 0, lost = -1;
    for (uint64_t i = r.begin; i < r.begin + r.count; i++) {
        double missing = crew_sum(SIEGE_SALT, w->page->exchanges, i) + (double)x[i];
        if (i % 5 == 0)
            first = missing;
        else if (i % 5 == 1 && i > r.begin) { /* i % 5 tells lost from the rest */
            ck_assert_msg(lost < 0 || missing - first == lost, "value %lu", (unsigned long)i);
            lost = missing - first;
        } else if (lost >= 0)
            ck_assert_msg(missing == first + (double)(i % 5) * lost, "value %lu is %g", (unsigned long)i,
                          (double)x[i]);
    }
    double odd = first - lost * (1 + SIEGE_SALT % 4);
    ck_assert_msg(lost >= 0 && odd >= (lost - PSD_DEATHS) / 2 && odd <= (lost + PSD_DEATHS) / 2,
                  "%g exchanges are lost, %g odd ones", lost, odd);
    return (uint64_t)lost;
}

/* psd is killed with -9 and resumes: what it had landed after its checkpoint is lost, and said; nothing lands
 * twice, and nothing else is lost. */
START_TEST(a_psd_killed_at_any_moment_loses_what_it_says_and_nothing_else)
{
    static struct siege s;
    struct hand h;
    uint64_t state = seed(), said = 0, most = 0;
    float *x = calloc(SIEGE_FLOATS, sizeof *x);
    siege_prepare(&s, NULL);
    s.heartbeat_ms = SIEGE_BRISK_MS;
    siege_begin(&s);
    for (int i = 0; i < PSD_DEATHS; i++) {
        ck_assert(daemon_checkpoint(&s.d, TEST_HANG_S));
        test_nap_s(draw_s(&state, 0.5));
        daemon_stop(&s.d, SIGKILL, TEST_HANG_S);
        ck_assert_int_eq(daemon_start(&s.d, "--resume"), 0);
        siege_holds(&s);
        said += (uint64_t)daemon_number(&s.d, "/status", "center.lost_updates");
    }
    ck_assert(crew_stop(&s.honest, TEST_HANG_S));
    ck_assert_msg(s.honest.page->rc == PSC_OK, "%s", s.honest.page->error);
    siege_join(&s, &h);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_PULL, NULL, x), 0);
    for (uint32_t lane = 0; lane < h.n_lanes; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&h.shard, lane); k++) {
            uint64_t lost = lost_in_chunk(&s.honest, x, ps_shard_chunk(&h.shard, lane, k));
            most = lost > most ? lost : most;
        }
    fprintf(stderr, "lost: %lu exchanges at most in a chunk; psd says %lu\n", (unsigned long)most,
            (unsigned long)said);
    /* An exchange at the edge of each death may have landed in some chunks only. */
    ck_assert_uint_le(most, said + PSD_DEATHS);
    hand_close(&h);
    free(x);
    daemon_remove(&s.d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        what_landed_stays_whatever_dies_stops_or_is_cut,
        a_psd_killed_at_any_moment_loses_what_it_says_and_nothing_else,
    };
    return suite_run("chaos", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
