#include "tests/system/ring_members.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "client/save_format.h"
#include "tests/support/system/daemon.h"
#include "tests/support/unit.h"
#include "tests/system/psworker.h"

/* What psworker keeps at the end of its state, and the checksum behind that. */
enum { OWN_BYTES = 10 * 8, CHECKSUM_BYTES = 8 };

static void run(const struct ring *r, int rank, const char *const *options)
{
    const struct ring_member *m = &r->member[rank];
    char ring[120], members[12], number[12];
    const char *const common[] = {
        PSWORKER, "--data",       "digits", "--net",           "linear", "--batch",   "8",     "--seed",
        "3",      "--threads",    "1",      "--clique",        "ring",   "--members", members, "--member",
        number,   "--rendezvous", ring,     "--clique-listen", "unix:",  "--state",   m->state};
    const char *args[ROWS(common) + RING_MOST_OPTIONS + 1];
    size_t n = 0;
    snprintf(ring, sizeof ring, "file:%s/ring", r->dir);
    snprintf(members, sizeof members, "%d", r->n);
    snprintf(number, sizeof number, "%d", rank);
    for (size_t i = 0; i < ROWS(common); i++)
        args[n++] = common[i];
    for (size_t i = 0; i < RING_MOST_OPTIONS && options[i] != NULL; i++)
        args[n++] = options[i];
    args[n] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    dup2(open(m->log, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(PSWORKER, (char *const *)(uintptr_t)args);
    _exit(127);
}

bool ring_says(const struct ring *r, int i, const char *text)
{
    static char all[1 << 16];
    int fd = open(r->member[i].log, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, all, sizeof all - 1) : -1;
    if (fd >= 0)
        close(fd);
    all[n > 0 ? n : 0] = 0;
    return strstr(all, text) != NULL;
}

void ring_await(const struct ring *r, int i, const char *text)
{
    double until = unit_now_s() + UNIT_HANG_S;
    while (!ring_says(r, i, text)) {
        ck_assert_msg(unit_now_s() < until, "%s does not say '%s'", r->member[i].log, text);
        unit_nap_ms(5);
    }
}

void ring_start(struct ring *r, const char *dir, int n, const char *const *options)
{
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    r->n = n;
    for (int i = 0; i < n; i++) {
        struct ring_member *m = &r->member[i];
        snprintf(m->state, sizeof m->state, "%s/state-%d", dir, i);
        snprintf(m->log, sizeof m->log, "%s/log-%d", dir, i);
        unlink(m->log);
        if ((m->pid = fork()) == 0)
            run(r, i, options);
    }
    for (int i = 0; i < n; i++)
        ring_await(r, i, "begins to train");
}

void ring_expect_exit(struct ring *r, int i, int status)
{
    int found = psworker_wait(r->member[i].pid, 2 * UNIT_HANG_S);
    ck_assert_msg(found == status, "member %d ended with %d; expected %d; see %s", i, found, status,
                  r->member[i].log);
}

void ring_read_state(const struct ring *r, int i, struct ring_state *out)
{
    int fd = open(r->member[i].state, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s is missing", r->member[i].state);
    ssize_t n = read(fd, out->file, sizeof out->file);
    close(fd);
    ck_assert_int_gt(n, PSC_STATE_HEAD_BYTES + OWN_BYTES + CHECKSUM_BYTES);
    ck_assert_int_lt(n, (ssize_t)sizeof out->file);
    out->bytes = (size_t)n;
    memcpy(&out->version, out->file + 8, sizeof out->version);
    memcpy(&out->flags, out->file + 12, sizeof out->flags);
    memcpy(&out->n_floats, out->file + 24, sizeof out->n_floats);
    memcpy(&out->clock, out->file + 32, sizeof out->clock);
    memcpy(&out->steps, out->file + n - CHECKSUM_BYTES - OWN_BYTES, sizeof out->steps);
}
