/* Who is silent is given up, also by a psd that is never in time; who could not be heard is not. What those
 * who wait for a center may hold. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/log.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/driven_clock.h"
#include "tests/support/unit.h"

enum { SILENCE_S = 30 };

/* A job with rank 0 in it, which was heard just now. */
static struct job_fixture *begin(void)
{
    struct job_fixture *d = calloc(1, sizeof *d);
    job_fixture_wire(d);
    ck_assert_int_eq(uv_loop_init(&d->loop), 0);
    ck_assert(psd_sessions_init(&d->sessions, 2) == 0 && psd_membership_init(&d->job) == 0);
    ck_assert_int_eq(psd_shared_init(&d->lanes.shared, d->sessions.n_slots, 1), 0);
    strcpy(d->cfg.rule, "sgd");
    strcpy(d->cfg.admission, "fcfs");
    d->cfg.limits.silence_s = SILENCE_S;
    d->job.checked_ms = psd_loop_now_ms(&d->loop);
    d->sessions.slots[0].state = PSD_SESSION_ACTIVE;
    d->sessions.slots[0].incarnation = 1;
    d->sessions.slots[0].last_heard_ms = d->job.checked_ms;
    ps_log_setup("test", PS_LOG_ERROR);
    return d;
}

static void end(struct job_fixture *d)
{
    psd_timer_close(&d->job.partial_rounds.timer, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    psd_membership_finish(&d->job);
    psd_sessions_finish(&d->sessions);
    psd_shared_finish(&d->lanes.shared);
    ck_assert_int_eq(uv_loop_close(&d->loop), 0);
    free(d);
}

static bool is_in(const struct job_fixture *d)
{
    return d->sessions.slots[0].state == PSD_SESSION_ACTIVE;
}

static void look_after(struct job_fixture *d, uint64_t ms)
{
    test_clock_advance_ms(ms);
    psd_job_check_silence(&d->job);
}

START_TEST(silence_ends_a_session)
{
    struct job_fixture *d = begin();
    for (uint64_t ms = 0; ms < SILENCE_S * 1000; ms += PSD_TICK_MS)
        look_after(d, PSD_TICK_MS);
    ck_assert(is_in(d));
    look_after(d, PSD_TICK_MS);
    ck_assert(!is_in(d));
    end(d);
}
END_TEST

/* It listened in none of that time but for a moment. */
START_TEST(what_psd_slept_counts_for_nobody)
{
    struct job_fixture *d = begin();
    look_after(d, 3600 * 1000);
    look_after(d, 3600 * 1000);
    ck_assert(is_in(d));
    end(d);
}
END_TEST

/* Every turn takes three quarters of a second: in each of them it listens. */
START_TEST(a_psd_that_is_always_late_gives_up_who_is_silent)
{
    struct job_fixture *d = begin();
    uint64_t turns = 0;
    while (is_in(d) && turns++ < 10000)
        look_after(d, 750);
    ck_assert(!is_in(d));
    ck_assert_uint_gt(turns * PSD_TICK_MS, SILENCE_S * 1000 - PSD_TICK_MS);
    end(d);
}
END_TEST

/* For as long as the machine is overloaded: of pauses that matter it says each. */
START_TEST(a_psd_that_is_always_late_says_so_once_a_minute)
{
    static struct job_fixture d;
    char text[4096];
    unsigned n = 0;
    int log = memfd_create("log", 0), was = dup(2);
    job_fixture_wire(&d);
    d.job.checked_ms = psd_loop_now_ms(&d.loop);
    dup2(log, 2);
    for (uint64_t ms = 0; ms < 180000; ms += 750)
        look_after(&d, 750);
    look_after(&d, 5000);
    dup2(was, 2);
    ssize_t len = pread(log, text, sizeof text, 0);
    for (ssize_t i = 0; i < len; i++)
        n += text[i] == '\n';
    ck_assert_uint_eq(n, 4);
    close(log);
    close(was);
}
END_TEST

/* It may exchange as soon as the lanes have its offer, and leave before the loop hears that they do. */
START_TEST(who_has_made_steps_was_in_the_job)
{
    static const enum psd_session_state states[] = {PSD_SESSION_ACTIVE, PSD_SESSION_OFFERING};
    struct job_fixture *d = begin();
    struct psd_session *s = &d->sessions.slots[0];
    ck_assert_uint_eq(psd_job_first_clock(&d->job), 0);
    s->state = states[_i];
    s->clock = 10; /* as its last message says */
    psd_job_end(&d->job, s, PS__CODE__OK, "left");
    ck_assert_uint_eq(psd_job_first_clock(&d->job), 10);
    end(d);
}
END_TEST

static bool is_silent_after(struct job_fixture *d, uint64_t ms)
{
    look_after(d, ms);
    return psd_job_is_silent(&d->job, &d->sessions.slots[0]);
}

/* Who is silent is in the job, and counted by nothing that is shown; heard again, it counts again. */
START_TEST(who_is_silent_is_not_counted)
{
    struct job_fixture *d = begin();
    ck_assert(!is_silent_after(d, 400));
    for (int i = 0; i < 23; i++)
        ck_assert(!is_silent_after(d, PSD_TICK_MS));
    ck_assert(is_silent_after(d, 5001 - 400 - 23 * PSD_TICK_MS) && is_in(d));
    ck_assert_uint_eq(psd_job_count_silent(&d->job, false), 1);
    ck_assert_uint_eq(psd_job_count_silent(&d->job, true), 0);
    d->sessions.slots[0].last_heard_ms = psd_loop_now_ms(&d->loop);
    ck_assert_uint_eq(psd_job_count_silent(&d->job, false), 0);
    end(d);
}
END_TEST

/* Five heartbeats of a program that beats slowly; half of a silence_s that is short. */
START_TEST(silence_is_measured_in_heartbeats)
{
    static const struct {
        uint32_t heartbeat_ms, silence_s, silent_ms;
    } rows[] = {{0, 30, 5000}, {10, 30, 5000}, {2000, 30, 10000}, {60000, 30, 15000}, {1000, 4, 2000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job_fixture *d = begin();
        struct psd_session *s = &d->sessions.slots[0];
        d->cfg.limits.silence_s = rows[i].silence_s;
        s->heartbeat_ms = rows[i].heartbeat_ms;
        s->last_heard_ms = psd_loop_now_ms(&d->loop) - rows[i].silent_ms;
        ck_assert(!psd_job_is_silent(&d->job, s));
        s->last_heard_ms--;
        ck_assert(psd_job_is_silent(&d->job, s));
        end(d);
    }
}
END_TEST

/* What was slept is no credit. */
START_TEST(who_is_heard_after_a_sleep_is_silent_from_then_on)
{
    struct job_fixture *d = begin();
    test_clock_advance_ms(3600 * 1000);
    d->sessions.slots[0].last_heard_ms = psd_loop_now_ms(&d->loop);
    psd_job_check_silence(&d->job);
    for (uint64_t ms = 0; ms <= SILENCE_S * 1000; ms += PSD_TICK_MS)
        look_after(d, PSD_TICK_MS);
    ck_assert(!is_in(d));
    end(d);
}
END_TEST

/* Rank 0 is heard, and has an exchange open that a change of the method waits for. */
static bool waits_on(struct job_fixture *d, uint64_t ms)
{
    test_clock_advance_ms(ms);
    d->sessions.slots[0].last_heard_ms = psd_loop_now_ms(&d->loop);
    psd_job_check_silence(&d->job);
    psd_method_change_check(&d->job);
    return is_in(d);
}

START_TEST(what_psd_slept_is_no_time_for_an_open_exchange)
{
    struct job_fixture *d = begin();
    uint64_t ms = 0;
    atomic_store(&d->lanes.shared.begun[0], psd_exchange_name(1, 1));
    d->job.method_change.phase = PSD_METHOD_CHANGE_CLOSING;
    d->job.method_change.lanes_left = 1;
    d->job.method_change.deadline_ms = psd_loop_now_ms(&d->loop) + SILENCE_S * 1000;
    ck_assert(waits_on(d, 3600 * 1000));
    while (waits_on(d, PSD_TICK_MS))
        ms += PSD_TICK_MS;
    ck_assert_uint_ge(ms, SILENCE_S * 1000 - PSD_TICK_MS);
    ck_assert_uint_le(ms, SILENCE_S * 1000);
    end(d);
}
END_TEST

static bool is_second_in(const struct job_fixture *d)
{
    return d->sessions.slots[1].state == PSD_SESSION_ACTIVE;
}

/* Rank 1, whose exchange is open as well, was last heard as the change began, or some time later; its session
 * then ends with the others' time. Rank 0 may have waited for its exchange. */
static void assert_the_silent_one_ends_first(uint64_t heard_ms)
{
    struct job_fixture *d = begin();
    struct psd_session *silent = &d->sessions.slots[1];
    uint64_t ms = 0;
    *silent = d->sessions.slots[0];
    silent->client = 1;
    silent->last_heard_ms += heard_ms;
    atomic_store(&d->lanes.shared.begun[0], psd_exchange_name(1, 1));
    atomic_store(&d->lanes.shared.begun[psd_track_at(&d->lanes.shared, 1, 0)], psd_exchange_name(1, 1));
    d->job.method_change.phase = PSD_METHOD_CHANGE_CLOSING;
    d->job.method_change.lanes_left = 1;
    d->job.method_change.deadline_ms = psd_loop_now_ms(&d->loop) + SILENCE_S * 1000;
    while (is_second_in(d)) {
        ck_assert(waits_on(d, PSD_TICK_MS));
        ms += PSD_TICK_MS;
    }
    ck_assert_uint_ge(ms, SILENCE_S * 1000);
    ck_assert_uint_le(ms, SILENCE_S * 1000 + PSD_TICK_MS);
    for (ms = 0; waits_on(d, PSD_TICK_MS); ms += PSD_TICK_MS)
        ;
    ck_assert_uint_ge(ms, SILENCE_S * 1000);
    ck_assert_uint_le(ms, SILENCE_S * 1000 + PSD_TICK_MS);
    end(d);
}

START_TEST(who_waits_for_a_silent_one_outlives_it)
{
    assert_the_silent_one_ends_first(0);
    assert_the_silent_one_ends_first(SILENCE_S * 1000 / 2);
}
END_TEST

START_TEST(what_psd_slept_is_no_time_to_come_back)
{
    struct job_fixture *d = begin();
    struct psd_session *late = &d->sessions.slots[1];
    uint64_t ms = 0;
    late->awaited = 1;
    late->reserved_until_ms = psd_loop_now_ms(&d->loop) + SILENCE_S * 1000;
    look_after(d, 3600 * 1000);
    for (; psd_sessions_await_worker(&d->sessions, psd_loop_now_ms(&d->loop)); ms += PSD_TICK_MS)
        look_after(d, PSD_TICK_MS);
    ck_assert_uint_ge(ms, SILENCE_S * 1000 - PSD_TICK_MS);
    ck_assert_uint_le(ms, SILENCE_S * 1000);
    look_after(d, 3600 * 1000); /* it is over */
    ck_assert(!psd_sessions_await_worker(&d->sessions, psd_loop_now_ms(&d->loop)));
    end(d);
}
END_TEST

/* A peer may send a manifest of 16 MiB and wait, as a thousand others may. */
START_TEST(manifests_of_who_waits_count_as_memory)
{
    enum { FITS = 3 };
    struct ps_tensor tensor = {"x", 0, {5}, 1, PS_ROLE_PARAM};
    struct job_fixture *d = begin();
    d->sessions.slots[0].state = PSD_SESSION_VACANT;
    d->job.state = PSD_STATE_OFFERED;
    for (uint32_t i = 0; i <= FITS; i++) {
        struct psd_session *s = &d->sessions.slots[i];
        struct ps_manifest *m;
        ck_assert_int_eq(ps_manifest_create(&tensor, 1, 5, &m, NULL), 0);
        d->cfg.limits.memory_gib = (FITS + 0.5) * (double)ps_manifest_most_bytes(m) / (1u << 30);
        s->state = PSD_SESSION_JOINING;
        psd_job_begin(&d->job, s, m);
        ck_assert_int_eq(s->state, i < FITS ? PSD_SESSION_PARKED : PSD_SESSION_VACANT);
    }
    psd_job_unpark(&d->job); /* they wait on */
    for (uint32_t i = 0; i < FITS; i++)
        ck_assert_int_eq(d->sessions.slots[i].state, PSD_SESSION_PARKED);
    end(d);
}
END_TEST

/* It may be lost: whoever takes its place goes on where it was. */
START_TEST(who_joins_beside_a_silent_worker_is_late)
{
    struct job_fixture *d = begin();
    d->sessions.slots[0].clock = 50;
    ck_assert_uint_eq(psd_job_first_clock(&d->job), 0);
    for (uint64_t ms = 0; ms <= SILENCE_S * 1000 / 2; ms += PSD_TICK_MS)
        look_after(d, PSD_TICK_MS);
    ck_assert(is_in(d));
    ck_assert_uint_eq(psd_job_first_clock(&d->job), 50);
    end(d);
}
END_TEST

/* A program that joins and leaves in a loop fills no disk; a job whose workers all come at once, and again,
 * is told of in full. */
START_TEST(who_comes_and_goes_all_the_time_is_not_told_of_each_time)
{
    static char text[1 << 16];
    enum { SECONDS = 20, A_SECOND = 100 };
    int log = memfd_create("log", 0), was = dup(2);
    struct job_fixture *d = begin();
    struct psd_session *s = &d->sessions.slots[0];
    unsigned n = 0, most = 2 * d->sessions.n_slots + 2 * SECONDS;
    ps_log_set_lowest(PS_LOG_INFO);
    dup2(log, 2);
    for (int i = 0; i < SECONDS * A_SECOND; i++) {
        s->told = psd_sessions_may_tell(&d->sessions, psd_loop_now_ms(&d->loop));
        ck_assert(s->told || (unsigned)i >= 2 * d->sessions.n_slots);
        s->state = PSD_SESSION_JOINING;
        psd_job_end(&d->job, s, PS__CODE__OK, "left");
        test_clock_advance_ms(1000 / A_SECOND);
    }
    while (ps_log_count().waiting > 0)
        unit_nap_ms(1);
    dup2(was, 2);
    ssize_t len = pread(log, text, sizeof text, 0);
    for (ssize_t i = 0; i < len; i++)
        n += text[i] == '\n';
    ck_assert_msg(n >= most - 2 && n <= most + 2, "%u lines; expected %u", n, most);
    close(log);
    close(was);
    end(d);
}
END_TEST

/* What a worker says of itself sends no other one past the end of its schedule. */
START_TEST(a_clock_that_no_worker_can_have_does_not_count)
{
    struct job_fixture *d = begin();
    struct psd_session *lies = &d->sessions.slots[1];
    d->sessions.slots[0].clock = 50;
    d->job.has_left = true;
    lies->clock = UINT64_MAX;
    ck_assert_uint_eq(psd_job_first_clock(&d->job), 50);
    lies->clock = PS_MAX_STEPS + 1;
    ck_assert_uint_eq(psd_job_first_clock(&d->job), 50);
    lies->clock = PS_MAX_STEPS;
    ck_assert_uint_eq(psd_job_first_clock(&d->job), PS_MAX_STEPS);
    end(d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("silence");
    TCase *tcase = tcase_create("silence");
    tcase_add_test(tcase, silence_ends_a_session);
    tcase_add_test(tcase, what_psd_slept_counts_for_nobody);
    tcase_add_test(tcase, a_psd_that_is_always_late_gives_up_who_is_silent);
    tcase_add_test(tcase, a_psd_that_is_always_late_says_so_once_a_minute);
    tcase_add_test(tcase, who_is_silent_is_not_counted);
    tcase_add_test(tcase, silence_is_measured_in_heartbeats);
    tcase_add_test(tcase, who_is_heard_after_a_sleep_is_silent_from_then_on);
    tcase_add_test(tcase, what_psd_slept_is_no_time_for_an_open_exchange);
    tcase_add_test(tcase, who_waits_for_a_silent_one_outlives_it);
    tcase_add_test(tcase, what_psd_slept_is_no_time_to_come_back);
    tcase_add_test(tcase, who_comes_and_goes_all_the_time_is_not_told_of_each_time);
    tcase_add_test(tcase, manifests_of_who_waits_count_as_memory);
    tcase_add_test(tcase, who_joins_beside_a_silent_worker_is_late);
    tcase_add_loop_test(tcase, who_has_made_steps_was_in_the_job, 0, 2);
    tcase_add_test(tcase, a_clock_that_no_worker_can_have_does_not_count);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
