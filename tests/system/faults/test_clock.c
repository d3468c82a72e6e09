/* The wall clock jumps by hours: nothing but the time that is shown depends on it. */
#include <signal.h>
#include <string.h>

#include "tests/support/system/libc_faults.h"
#include "tests/support/suite.h"
#include "tests/system/security/hostile_fixture.h"

enum { HOUR_S = 3600 };

static const int64_t jumps_s[] = {5 * HOUR_S, -9 * HOUR_S, 400 * 24 * HOUR_S, -3, 0};

START_TEST(a_jumping_wall_clock_ends_no_session)
{
    struct siege s;
    siege_prepare(&s, NULL);
    struct shim_page *page = shim_set(PSD_SHIM, s.d.dir);
    ck_assert_ptr_nonnull(page);
    siege_begin(&s);
    shim_unset();
    for (size_t i = 0; i < sizeof jumps_s / sizeof *jumps_s; i++) {
        atomic_store(&page->wall_offset_s, jumps_s[i]);
        siege_holds(&s);
        ck_assert(daemon_checkpoint(&s.d, TEST_HANG_S));
        /* a tick of psd's loop at least */
        ck_assert(daemon_reaches(&s.d, "/status", "uptime_s",
                                 daemon_number(&s.d, "/status", "uptime_s") + 0.25, TEST_HANG_S));
    }
    ck_assert_uint_eq(daemon_logged(&s.d, "session.ended"), 0);
    siege_end(&s);
}
END_TEST

/* A checkpoint that was taken later is newer, whatever the wall clock said: it is what psd resumes from, and
 * it is not what makes room for others. */
START_TEST(the_last_checkpoint_is_the_newest_whatever_the_clock_says)
{
    static const char *const keep_two[] = {"checkpoint.keep=2", NULL};
    struct siege s;
    char last[400], from[400];
    siege_prepare(&s, keep_two);
    s.heartbeat_ms = SIEGE_BRISK_MS;
    struct shim_page *page = shim_set(PSD_SHIM, s.d.dir);
    ck_assert_ptr_nonnull(page);
    siege_begin(&s);
    for (size_t i = 0; i < sizeof jumps_s / sizeof *jumps_s; i++) {
        atomic_store(&page->wall_offset_s, jumps_s[i]);
        siege_holds(&s);
        ck_assert(daemon_checkpoint(&s.d, TEST_HANG_S));
        ck_assert(daemon_text(&s.d, "/status", "checkpoint.last_path", last, sizeof last));
        daemon_stop(&s.d, SIGKILL, TEST_HANG_S);
        ck_assert_int_eq(daemon_start(&s.d, "--resume"), 0);
        ck_assert(daemon_text(&s.d, "/status", "center.resumed_from", from, sizeof from));
        ck_assert_str_eq(from, last);
        ck_assert_uint_eq(daemon_logged(&s.d, "session.ended"), 0);
    }
    shim_unset();
    siege_holds(&s);
    ck_assert(crew_stop(&s.honest, TEST_HANG_S));
    ck_assert_msg(s.honest.page->rc == PSC_OK, "%s", s.honest.page->error);
    daemon_remove(&s.d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_jumping_wall_clock_ends_no_session,
                                  the_last_checkpoint_is_the_newest_whatever_the_clock_says};
    return suite_run("clock", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
