/* What `auto` concludes from times of ring and tree: those of clusters and crowded machines, made up by
 * formulas, with and without other work on the machine. */
#include <math.h>

#include "client/cliques/ring/choice.h"
#include "tests/support/unit.h"

/* Seconds of a sum: latency and seconds a byte of each, and bytes from which on another rate holds. */
struct machine {
    const char *name;
    double ring_s, ring_byte_s, tree_s, tree_byte_s, bend_bytes, tree_beyond_s;
};

static const struct machine machines[] = {
    {"8 ranks behind 1 Gb/s", 7e-4, 1.4e-8, 3e-4, 4.8e-8, 1e12, 0},
    {"64 ranks behind 10 Gb/s", 5e-3, 1.6e-9, 4.8e-4, 9.6e-9, 1e12, 0},
    {"2 ranks on 2 cores", 6e-5, 3.5e-10, 5e-5, 7e-10, 1e12, 0},
    {"8 ranks on 2 cores: the tree is nearly as good at every size", 4e-4, 2.1e-9, 1.2e-4, 2.2e-9, 3e5, 3e-9},
    {"the tree is always the slower one", 1e-4, 1e-9, 2e-4, 2e-9, 1e12, 0},
    {"the tree is always the faster one", 2e-2, 2e-9, 1e-4, 2e-9, 1e12, 0},
};
enum { N_MACHINES = (int)ROWS(machines) };

static double ring_s(const struct machine *m, double bytes)
{
    return m->ring_s + m->ring_byte_s * bytes;
}

static double tree_s(const struct machine *m, double bytes)
{
    return m->tree_s + m->tree_byte_s * bytes + m->tree_beyond_s * fmax(0, bytes - m->bend_bytes);
}

/* A time as it is measured where other processes run: a few per cent longer, or many times in one call of
 * `rare`. 0: as it is. */
static double as_measured(double s, struct dice *dice, uint64_t rare)
{
    if (rare == 0)
        return s;
    double little = 1 + 0.1 * (double)dice_below(dice, 1000) / 1000;
    return s * little * (dice_below(dice, rare) == 0 ? 2 + (double)dice_below(dice, 8) : 1);
}

static int measure(struct psc_choice *c, const struct machine *m, struct dice *dice, uint64_t rare)
{
    struct psc_probe p;
    int pairs = 0;
    *c = (struct psc_choice){.at = 0};
    while (psc_choice_next(c, &p)) {
        ck_assert_uint_lt(p.index, PSC_N_PROBES);
        ck_assert(p.calls >= 1 && p.calls <= PSC_PROBE_CALLS && p.tree_first <= 1);
        double bytes = (double)psc_probe_bytes[p.index];
        psc_choice_note(c, &p, as_measured(ring_s(m, bytes), dice, rare),
                        as_measured(tree_s(m, bytes), dice, rare));
        ck_assert_int_lt(++pairs, 1000);
    }
    return pairs;
}

/* The most that the chosen algorithm takes of the faster one's time, over sizes from 256 bytes to `times` the
 * longest one that is timed. part: as of psc_choice_limit, whose ring takes so much of its time. */
static double worst_of(const struct machine *m, uint64_t limit, double part, double times, double *at)
{
    double worst = 1;
    for (double bytes = 256; bytes <= times * (double)psc_probe_bytes[PSC_N_PROBES - 1]; bytes *= 1.07) {
        double ring = part * ring_s(m, bytes), tree = tree_s(m, bytes);
        double took = (bytes < (double)limit ? tree : ring) / fmin(ring, tree);
        *at = took > worst ? bytes : *at;
        worst = fmax(worst, took);
    }
    return worst;
}

/* "auto within 10 % of the best of ours everywhere". */
START_TEST(the_choice_is_right_at_every_size)
{
    const struct machine *m = &machines[_i];
    struct psc_choice c;
    double at = 0;
    measure(&c, m, NULL, 0);
    for (double part = 0.5; part <= 1; part *= 2) {
        uint64_t limit = psc_choice_limit(&c, part, 0);
        double worst = worst_of(m, limit, part, 4, &at);
        ck_assert_msg(worst <= 1.1, "%s, part %g: limit %llu takes %.2f of the best time at %.0f bytes",
                      m->name, part, (unsigned long long)limit, worst, at);
    }
}
END_TEST

/* A call in six takes 2 to 9 times as long, and every one up to a tenth more: in this many runs none loses
 * more than 80 % anywhere, and hardly one loses 20 %. */
START_TEST(other_work_on_the_machine_seldom_changes_the_choice)
{
    enum { RUNS = 300 };
    const struct machine *m = &machines[_i];
    struct psc_choice c;
    double at = 0, most = 0;
    int missed = 0;
    for (uint64_t seed = 0; seed < RUNS; seed++) {
        measure(&c, m, &(struct dice){seed * 977 + 1}, 6);
        double worst = worst_of(m, psc_choice_limit(&c, 1, 0), 1, 1, &at);
        missed += worst > 1.2;
        most = fmax(most, worst);
    }
    ck_assert_msg(missed <= RUNS / 50, "%s: missed by more than 20 %% in %d of %d runs", m->name, missed,
                  RUNS);
    ck_assert_msg(most <= 1.8, "%s: takes up to %.2f of the best time", m->name, most);
}
END_TEST

static uint64_t limit_of(const double ratio[PSC_N_PROBES], double part, uint64_t beyond)
{
    struct psc_choice c = {.at = 0};
    struct psc_probe p;
    while (psc_choice_next(&c, &p))
        psc_choice_note(&c, &p, 1e-3, 1e-3 * ratio[p.index]);
    return psc_choice_limit(&c, part, beyond);
}

START_TEST(the_limit_lies_where_the_ratio_passes_one)
{
    for (int k = 0; k < PSC_N_PROBES; k++) {
        double ratio[PSC_N_PROBES];
        for (int i = 0; i < PSC_N_PROBES; i++)
            ratio[i] = i < k ? 0.7 : 1.4;
        uint64_t limit = limit_of(ratio, 1, 0);
        ck_assert_uint_le(limit, psc_probe_bytes[k]);
        ck_assert(k == 0 ? limit == 0 : limit > psc_probe_bytes[k - 1]);
    }
    double wrong[PSC_N_PROBES] = {0.5, 1.2, 0.5, 0.5, 1.5, 3}; /* one size alone does not decide */
    uint64_t limit = limit_of(wrong, 1, 0);
    ck_assert(limit > psc_probe_bytes[3] && limit < psc_probe_bytes[4]);
    double fast[PSC_N_PROBES] = {0.3, 0.3, 0.3, 0.3, 0.3, 0.3};
    ck_assert_uint_eq(limit_of(fast, 1, 0), psc_probe_bytes[PSC_N_PROBES - 1] + 1);
    ck_assert_uint_eq(limit_of(fast, 1, UINT64_C(1) << 30), UINT64_C(1) << 30);
    ck_assert_uint_eq(limit_of(fast, 0.25, UINT64_C(1) << 30), 0); /* the ring takes a quarter of its time */
}
END_TEST

/* A start is not slowed by sums that tell nothing: none is timed far beyond the limit, slow ones are timed a
 * few times only, and the rounds end once their time is used up. */
START_TEST(measuring_ends_early)
{
    const struct machine slow = {"", 0.1, 1e-8, 0.02, 1e-6, 1e12, 0};
    struct psc_choice c;
    int pairs = measure(&c, &slow, NULL, 0);
    ck_assert_uint_gt(psc_choice_limit(&c, 1, 0), psc_probe_bytes[3]);
    ck_assert_int_le(pairs, 4 * 6 + 2 * 3 + 4);
    for (int i = 6; i < PSC_N_PROBES; i++)
        ck_assert_uint_eq(c.pairs[i], 0);
    const struct machine fast = {"", 2e-5, 1e-10, 3e-5, 3e-10, 1e12, 0};
    measure(&c, &fast, NULL, 0);
    ck_assert_double_lt(c.spent_s, 0.2);
    for (int i = 0; i < PSC_N_PROBES; i++)
        ck_assert_uint_le(c.pairs[i], 2 + PSC_PROBE_ROUNDS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clique-choice");
    TCase *tcase = tcase_create("choice");
    tcase_add_loop_test(tcase, the_choice_is_right_at_every_size, 0, N_MACHINES);
    tcase_add_loop_test(tcase, other_work_on_the_machine_seldom_changes_the_choice, 0, N_MACHINES);
    tcase_add_test(tcase, the_limit_lies_where_the_ratio_passes_one);
    tcase_add_test(tcase, measuring_ends_early);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
