#include "tests/system/security/auth_fixture.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/clock.h"
#include "tests/support/unit.h"

const char *const house_everybody[HOUSE_PEERS] = {"ranks=0", "ranks=1", ""};

static void make_key(const struct daemon *d, const char *name, char *path, struct ps_curve_pair *pair)
{
    struct ps_error err;
    snprintf(path, HOUSE_PATH_BYTES, "%s/%s.key", d->dir, name);
    ck_assert_int_eq(ps_curve_generate(name, pair, &err), 0);
    ck_assert_msg(ps_curve_write(path, pair, &err) == 0, "%s", err.text);
}

void house_write_list(const struct house *h, const char *const rights[HOUSE_PEERS])
{
    FILE *f = fopen(h->allow, "w");
    fprintf(f, "# of the test\n\n");
    for (int i = 0; i < HOUSE_PEERS; i++)
        if (rights[i] != NULL)
            fprintf(f, "%s w%d %s # peer %d\n", h->peer[i].public_key, i, rights[i], i);
    ck_assert_int_eq(fclose(f), 0);
}

void house_prepare(struct house *h, const char *const rights[HOUSE_PEERS])
{
    static const char *const job[] = {HOUSE_JOB, "limits.silence_s=600", /* hands have no heartbeat */
                                      "listen=tcp://0.0.0.0:0", "advertise=127.0.0.1"};
    size_t n = 0;
    memset(h, 0, sizeof *h);
    ck_assert_int_eq(daemon_prepare(&h->d, NULL, h->settings), 0);
    make_key(&h->d, "center", h->psd_key, &h->psd);
    for (int i = 0; i < HOUSE_PEERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        make_key(&h->d, name, h->key[i], &h->peer[i]);
    }
    snprintf(h->allow, sizeof h->allow, "%s/allow", h->d.dir);
    house_write_list(h, rights);
    snprintf(h->set[0], sizeof h->set[0], "auth.key=%s", h->psd_key);
    snprintf(h->set[1], sizeof h->set[1], "auth.allow=%s", h->allow);
    for (; n < ROWS(job); n++)
        h->settings[n] = job[n];
    h->settings[n++] = h->set[0];
    h->settings[n++] = h->set[1];
    h->n_settings = n;
}

void house_open(struct house *h, const char *const rights[HOUSE_PEERS])
{
    house_prepare(h, rights);
    ck_assert_int_eq(daemon_start(&h->d, NULL), 0);
}

void house_close(struct house *h)
{
    ck_assert_int_eq(daemon_stop(&h->d, SIGTERM, TEST_HANG_S), 0);
    daemon_remove(&h->d);
}

void house_raze(struct house *h)
{
    ck_assert_int_eq(daemon_stop(&h->d, SIGKILL, TEST_HANG_S), SIGKILL);
    daemon_remove(&h->d);
}

void house_step_as(struct house *h, struct stepper *s, int peer, int32_t rank, uint64_t steps)
{
    struct stepper_task task = {.server = h->d.endpoint,
                                .rank = rank,
                                .floats = HOUSE_FLOATS,
                                .steps = steps,
                                .samples = 1,
                                .nap_us = 2000,
                                .key_file = peer >= 0 ? h->key[peer] : NULL};
    stepper_start(s, &task);
}

void house_assert_joined(const struct stepper *s)
{
    ck_assert_msg(stepper_joined(s, TEST_HANG_S), "%s", s->page->error);
}

void house_assert_ends(struct stepper *s, int rc, const char *says)
{
    ck_assert_msg(stepper_finish(s, TEST_HANG_S), "it did not end");
    ck_assert_msg(s->page->rc == rc, "%s: %s", psc_result_name(s->page->rc), s->page->error);
    if (says != NULL)
        assert_says(s->page->error, says);
}

void house_assert_logged(const struct house *h, const char *text)
{
    if (!daemon_will_log(&h->d, text, TEST_HANG_S)) {
        daemon_show_log(&h->d);
        ck_abort_msg("the log does not say '%s'", text);
    }
}

bool house_text_is(const struct house *h, const char *page, const char *at, const char *wanted)
{
    char found[100] = "";
    return daemon_text(&h->d, page, at, found, sizeof found) && strcmp(found, wanted) == 0;
}
