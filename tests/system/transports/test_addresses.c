/* Where psd listens: at an IPv6 address or a host name all of a job works, as it does at an IPv4 address. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/servers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"

enum { FLOATS = 50021, SERVERS = 2, WORKERS = 2, EXCHANGES = 5 };

static const struct {
    const char *listen, *host; /* host: by which clients and the follower look for the head */
} addresses[] = {
    {"listen=tcp://[::1]:0", "[::1]"},
    {"listen=tcp://localhost:0", "localhost"},
};

static void assert_psctl_shows(const struct daemon *d, const char *part)
{
    char line[700], text[4096];
    snprintf(line, sizeof line, "%s --socket %s --timeout 60 status 2>&1", PSCTL, d->socket);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = 0;
    ck_assert_int_eq(pclose(pipe), 0);
    assert_says(text, part);
}

/* The other server looks for the head by its URL. */
static void start(struct servers *t, const char *listen_at, const char *host, char *url, size_t size)
{
    char port[16], shown[220];
    const char *const settings[] = {"method=async-sgd",
                                    "parameters.learning_rate=1",
                                    "parameters.schedule.warmup_steps=0",
                                    "lanes=2",
                                    listen_at,
                                    NULL};
    ck_assert_int_eq(servers_prepare(t, SERVERS, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&t->d[0], NULL), 0);
    ck_assert(daemon_text(&t->d[0], "/status", "listen", url, size));
    snprintf(shown, sizeof shown, "listen      %s; ", url);
    assert_psctl_shows(&t->d[0], shown);
    snprintf(port, sizeof port, "%s", strrchr(url, ':'));
    snprintf(url, size, "tcp://%s%s", host, port);
    snprintf(t->own[1][2], sizeof t->own[1][2], "servers.head='%.140s'", url);
    ck_assert_int_eq(daemon_start(&t->d[1], NULL), 0);
}

/* One of them looks for psd by its endpoint file, the other by the URL. */
static void exchange(const struct daemon *head, const char *url)
{
    struct crew_worker crew[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        struct crew_task task = {.server = i == 0 ? head->endpoint : url, .rank = i, .floats = FLOATS};
        crew_start(&crew[i], &task);
        ck_assert_msg(crew_joined(&crew[i], TEST_HANG_S), "worker %d: %s", i, crew[i].page->error);
    }
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(crew_reaches(&crew[i], EXCHANGES, TEST_HANG_S), "worker %d: %s", i,
                      crew[i].page->error);
    for (int i = 0; i < WORKERS; i++) {
        ck_assert(crew_stop(&crew[i], TEST_HANG_S));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "%s", crew[i].page->error);
    }
}

START_TEST(a_job_works_at_any_kind_of_address)
{
    struct servers t;
    char url[200];
    if (addresses[_i].host[0] == '[' && !unit_has_ipv6("a job at an IPv6 address"))
        return;
    start(&t, addresses[_i].listen, addresses[_i].host, url, sizeof url);
    exchange(&t.d[0], url);
    ck_assert(servers_end(&t, TEST_HANG_S));
    servers_remove(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("addresses");
    TCase *tcase = tcase_create("addresses");
    tcase_set_timeout(tcase, test_slow_s(10 * TEST_HANG_S));
    tcase_add_loop_test(tcase, a_job_works_at_any_kind_of_address, 0, ROWS(addresses));
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
