/* Clients of the transport shm that are killed at any moment: each message has landed whole or not at all. */
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "proto/log.h"
#include "proto/transports/shm/shm.h"
#include "tests/proto/transports/transport_fixture.h"

/* What the processes share. Value i of message n is (n + 1) (i + 1): whatever was applied
 * whole makes center[i] = (i + 1) S, and a part of a message does not. */
enum { VALUES = CHUNK_BYTES / 8 };
struct tally {
    char url[300];
    atomic_int ready;
    uint64_t center[VALUES];
    atomic_uint_fast64_t sent, answered;
};

static void add(struct rig_server *s, struct ps_message *m, int rc)
{
    struct tally *tally = s->arg;
    const uint64_t *values = (const uint64_t *)(void *)m->body;
    assert_quick(rc == 0 && m->body_bytes == CHUNK_BYTES);
    for (size_t i = 0; i < VALUES; i++)
        tally->center[i] += values[i];
    assert_quick(s->t->message_body(m, 0) == 0);
    s->t->port_reply(s->port, m);
}

static pid_t start_server(struct tally *tally)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rig_server s;
    rig_port_open(&s, ps_transport_find("shm"), NULL);
    s.serve = add;
    s.arg = tally;
    snprintf(tally->url, sizeof tally->url, "%s", s.url);
    atomic_store(&tally->ready, 1);
    rig_port_serve(&s);
    _exit(1);
}

/* Sends as fast as its window lets it: in place, to be copied by the port, and copied by the link. Asserts
 * quietly: to be killed within Check's writing would spoil its file. */
static void client_run(struct tally *tally)
{
    struct ps_error err;
    struct ps_buffer b;
    struct ps_message m;
    struct rig_client c = {.t = ps_transport_find("shm")};
    struct ps_pass pass = rig_pass(1, 1);
    unsigned char head[PS_FRAME_BYTES];
    static uint64_t own[VALUES];
    assert_quick(ps_buffer_alloc((size_t)WINDOW * CHUNK_BYTES, &b, &err) == 0);
    assert_quick(c.t->hub_create(1, &c.hub) == 0);
    c.t->hub_pass(c.hub, &pass);
    assert_quick(c.t->hub_register(c.hub, &b, &err) == 0);
    assert_quick(rig_link_open(c.hub, c.t, tally->url, &rig_limits, &c.link, &err) == 0);
    atomic_fetch_add(&c.hub->n_links, RIG_CLIENTS); /* as if to other ports: this one copies */
    c.hub->n_cores = UINT32_MAX;
    for (uint64_t n = 0;; n++) {
        uint64_t *x = n % 3 == 2 ? own : (uint64_t *)b.base + n % WINDOW * VALUES;
        while (n - atomic_load(&tally->answered) >= WINDOW) {
            assert_quick(rig_recv(&c, &m, PATIENCE_MS) == 0);
            c.t->message_drop(&m);
            atomic_fetch_add(&tally->answered, 1);
        }
        for (uint64_t i = 0; i < VALUES; i++)
            x[i] = (n + 1) * (i + 1);
        rig_head(head, n);
        atomic_store(&tally->sent, n + 1);
        int rc = n % 3 == 0 ? c.t->link_send_in_place(c.link, head, x, CHUNK_BYTES)
                            : c.t->link_send(c.link, head, x, CHUNK_BYTES);
        assert_quick(rc == 0);
    }
}

static unsigned count_files(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static unsigned count_regions(pid_t pid)
{
    char path[64], line[512];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        n += strstr(line, "memfd:") != NULL;
    fclose(f);
    return n;
}

/* Until the port has let go of all that belonged to the dead. It may still accept a connection of who was
 * killed, and close it. */
static void await_counts(pid_t server, unsigned files)
{
    double deadline = unit_now_s() + UNIT_HANG_S;
    unsigned n_files, n_regions;
    while ((n_files = count_files(server)) != files || (n_regions = count_regions(server)) != 0) {
        if (unit_now_s() > deadline)
            ck_abort_msg("%u files instead of %u, %u regions", n_files, files, count_regions(server));
        unit_nap_ms(1);
    }
}

START_TEST(killed_at_any_moment_a_message_landed_whole_or_not_at_all)
{
    struct tally *tally =
        mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct dice dice = {7};
    unsigned worked = 0;
    pid_t server = start_server(tally);
    for (double end = unit_now_s() + PATIENCE_MS / 1e3;
         atomic_load(&tally->ready) == 0 && unit_now_s() < end;)
        unit_nap_ms(1);
    ck_assert_int_eq(tally->ready, 1);
    unsigned files = count_files(server);
    for (int round = 0; round < 100; round++) {
        memset(tally->center, 0, sizeof tally->center);
        atomic_store(&tally->sent, 0);
        atomic_store(&tally->answered, 0);
        pid_t pid = fork();
        if (pid == 0)
            client_run(tally);
        uint64_t least =
            round % 2 == 0 ? 0 : 2 * WINDOW + dice_below(&dice, 100); /* even: while it attaches */
        while (atomic_load(&tally->sent) < least)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        nanosleep(&(struct timespec){.tv_nsec = (long)dice_below(&dice, least == 0 ? 4000000 : 300000)},
                  NULL);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        await_counts(server, files);
        uint64_t sum = tally->center[0], n = 0;
        while (n * (n + 1) / 2 < sum)
            n++;
        ck_assert_uint_eq(sum, n * (n + 1) / 2); /* the first n messages */
        ck_assert_uint_ge(n, atomic_load(&tally->answered));
        ck_assert_uint_le(n, atomic_load(&tally->sent));
        for (uint64_t i = 0; i < VALUES; i++)
            assert_quick(tally->center[i] == (i + 1) * sum);
        worked += n > 0;
    }
    ck_assert_uint_ge(worked, 50);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    unlink(ps_shm_path(tally->url));
    munmap(tally, sizeof *tally);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-shm-killed");
    TCase *tc = tcase_create("killed");
    ps_log_setup("test", PS_LOG_ERROR); /* else a line for each refusal */
    tcase_add_test(tc, killed_at_any_moment_a_message_landed_whole_or_not_at_all);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
