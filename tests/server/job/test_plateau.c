/* When a loss stagnates, against a count by hand. */
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/job/plateau.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/unit.h"

/* Zhang et al. look for a loss that does not fall: here three in a row that are less than 1 % better. */
START_TEST(a_loss_that_gets_no_better_is_a_plateau)
{
    struct psd_plateau p = {.best = NAN};
    const struct {
        double loss;
        bool drops;
    } seen[] = {{2, false},    {1.5, false},  {1.5, false},   {1.4999, false}, {1.2, false},
                {1.3, false},  {1.19, false}, {1.21, true},   {1.2, false},    {1.2, false},
                {1.189, true}, {1.18, false}, {1.188, false}, {1.187, false},  {9, true}};
    for (size_t i = 0; i < ROWS(seen); i++)
        ck_assert_msg(psd_plateau_observe(&p, seen[i].loss, 3, 0.01) == seen[i].drops, "observation %zu", i);
    ck_assert_double_eq(p.best, 1.18);
}
END_TEST

START_TEST(a_threshold_of_nothing_wants_less_than_the_best)
{
    struct psd_plateau p = {.best = NAN};
    ck_assert(!psd_plateau_observe(&p, 0.5, 1, 0));
    ck_assert(!psd_plateau_observe(&p, nextafter(0.5, 0), 1, 0));
    ck_assert(psd_plateau_observe(&p, nextafter(0.5, 0), 1, 0));
    ck_assert(!psd_plateau_observe(&p, -1, 1, 0)); /* a loss of somebody's own */
    ck_assert(!psd_plateau_observe(&p, -2, 1, 0.5));
    ck_assert(psd_plateau_observe(&p, -2.5, 1, 0.5));
}
END_TEST

/* Two losses of a run that diverges, and a sum that no double holds. */
START_TEST(losses_whose_sum_is_infinite_are_no_best_for_ever)
{
    static struct job_fixture d;
    job_fixture_wire(&d);
    d.cfg.hyper.schedule.kind = PS_SCHEDULE_PLATEAU;
    d.cfg.schedule.watch = PSD_WATCH_TRAIN;
    d.cfg.schedule.patience = 2;
    d.cfg.schedule.threshold = 0.01;
    d.job.state = PSD_STATE_READY;
    d.job.plateau.best = NAN;
    const double seen[] = {1.5e308, 2, 2, 1.5e308, 1};
    for (size_t i = 0; i < ROWS(seen); i++) {
        psd_plateau_reported(&d.job, seen[i]);
        psd_plateau_reported(&d.job, seen[i]);
        psd_plateau_tick(&d.job);
    }
    ck_assert_double_eq(d.job.plateau.best, 1);
    ck_assert_uint_eq(d.job.plateau.since, 0);
}
END_TEST

static unsigned lines_of(int log)
{
    char text[4096];
    unsigned n = 0;
    ssize_t len = pread(log, text, sizeof text, 0);
    for (ssize_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n;
}

/* The next center's vectors do not fit into the memory. */
START_TEST(a_drop_that_is_refused_is_tried_again_once_a_minute)
{
    static struct job_fixture d;
    static struct psd_center center = {.own = {0, 1000}};
    int log = memfd_create("log", 0), was = dup(2);
    job_fixture_wire(&d);
    psd_config_defaults(&d.cfg);
    snprintf(d.cfg.rule, sizeof d.cfg.rule, "sgd");
    snprintf(d.cfg.averaging, sizeof d.cfg.averaging, "none");
    d.cfg.hyper.schedule.kind = PS_SCHEDULE_PLATEAU;
    d.cfg.hyper.schedule.n_factors = 1;
    d.cfg.limits.memory_gib = 0;
    d.job.state = PSD_STATE_READY;
    d.job.center = &center;
    d.job.plateau.drops = 1;
    dup2(log, 2);
    for (d.loop.time = 1000; d.loop.time < 180000; d.loop.time += PSD_TICK_MS)
        psd_plateau_tick(&d.job);
    dup2(was, 2);
    ck_assert_uint_eq(lines_of(log), 3);
    ck_assert_uint_eq(d.cfg.hyper.schedule.drops, 0);
    close(log);
    close(was);
}
END_TEST

/* Workers take a learning rate with a generation of the method. They know of the drop since the checkpoint.
 */
START_TEST(a_drop_that_a_resume_undoes_is_a_new_generation)
{
    enum { DROPS_TOLD = 1, GENERATION = 5 };
    static struct job_fixture d;
    job_fixture_wire(&d);
    psd_config_defaults(&d.cfg);
    d.cfg.hyper.schedule.kind = PS_SCHEDULE_PLATEAU;
    d.cfg.hyper.schedule.n_factors = 2;
    d.cfg.hyper.schedule.drops = DROPS_TOLD;
    d.job.journal.has_before = true;
    d.job.journal.before.job = d.job.resumed.job = 7;
    d.job.journal.before.generation = GENERATION;
    d.job.journal.before.method = psd_config_method_hash(&d.cfg);

    d.cfg.hyper.schedule.drops = 0; /* as configured */
    d.job.resumed.generation = GENERATION - 1;
    d.job.resumed.plateau = (struct psd_saved_plateau){.known = true, .drops = (uint32_t)_i, .best = 1};
    psd_plateau_resume(&d.job);
    ck_assert_uint_eq(d.cfg.hyper.schedule.drops, _i);
    ck_assert_uint_eq(psd_journal_generation(&d.job), GENERATION + (_i != DROPS_TOLD));
}
END_TEST

/* A training loss is below the best test loss, or above it for ever. The rate that has dropped stays. */
START_TEST(another_loss_has_a_best_of_its_own)
{
    static struct job_fixture d;
    job_fixture_wire(&d);
    psd_config_defaults(&d.cfg);
    d.job.state = PSD_STATE_READY;
    d.cfg.hyper.schedule.kind = PS_SCHEDULE_PLATEAU;
    d.cfg.hyper.schedule.n_factors = 2;
    d.cfg.hyper.schedule.drops = 1;
    d.cfg.schedule.watch = PSD_WATCH_TRAIN;
    d.job.resumed.plateau = (struct psd_saved_plateau){.known = true, .drops = 1, .since = 2, .best = 0.5};
    psd_plateau_resume(&d.job);
    psd_plateau_tick(&d.job);
    ck_assert_double_eq(d.job.plateau.best, 0.5);
    ck_assert_uint_eq(d.job.plateau.since, 2);
    d.cfg.schedule.watch = PSD_WATCH_TEST;
    psd_plateau_tick(&d.job);
    ck_assert_double_nan(d.job.plateau.best);
    ck_assert_uint_eq(d.job.plateau.since, 0);
    ck_assert_uint_eq(d.job.plateau.drops, 1);

    /* So it is where psd is resumed with another loss than its checkpoint's. */
    d.job.plateau.best = 0.25;
    d.job.resumed.plateau = psd_plateau_to_save(&d.job);
    psd_plateau_resume(&d.job);
    ck_assert_double_eq(d.job.plateau.best, 0.25);
    d.cfg.schedule.watch = PSD_WATCH_TRAIN;
    psd_plateau_resume(&d.job);
    ck_assert_double_nan(d.job.plateau.best);
    ck_assert_uint_eq(d.job.plateau.drops, 1);

    /* A checkpoint before the first observation has the drop, too. */
    d.job.resumed.plateau = psd_plateau_to_save(&d.job);
    d.job.plateau = (struct psd_plateau){.best = NAN};
    psd_plateau_resume(&d.job);
    ck_assert_uint_eq(d.job.plateau.drops, 1);
    ck_assert(!psd_plateau_observe(&d.job.plateau, 1e300, 1, 0));
    ck_assert_double_eq(d.job.plateau.best, 1e300);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plateau");
    TCase *t = tcase_create("plateau");
    tcase_add_test(t, a_loss_that_gets_no_better_is_a_plateau);
    tcase_add_test(t, a_threshold_of_nothing_wants_less_than_the_best);
    tcase_add_test(t, losses_whose_sum_is_infinite_are_no_best_for_ever);
    tcase_add_test(t, a_drop_that_is_refused_is_tried_again_once_a_minute);
    tcase_add_loop_test(t, a_drop_that_a_resume_undoes_is_a_new_generation, 0, 3);
    tcase_add_test(t, another_loss_has_a_best_of_its_own);
    suite_add_tcase(s, t);
    return unit_run(s);
}
