/* A member that computes is not silent; one whose process stands still is, and all are told within timeout_ms
 * which. Who computes for longer than step_ms while others wait is taken for hung, and all are told which.
 * Time is driven, as in test_clique_faults.c. */
#include <linux/filter.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "client/cliques/ring/ring.h"
#include "proto/clock.h"
#include "tests/client/cliques/clique_crowd.h"
#include "tests/support/pause.h"

enum { TIMEOUT_MS = 1200 };

/* How long each rank computes, in timeouts, before its call; 0: it is there at once. */
struct task {
    int timeouts[RIG_MAX_MEMBERS];
    size_t n;
};

static void compute_for_long(struct rig_member *m)
{
    const struct task *t = m->arg;
    float *x = calloc(t->n + 1, sizeof *x);
    rig_ok(m, m->rc);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < t->n; i++)
            x[i] = 1;
        ps_sleep_us(UINT64_C(1000) * TIMEOUT_MS * (uint64_t)t->timeouts[m->index]);
        rig_ok(m, psc_allreduce(m->q, x, t->n, NULL));
        for (size_t i = 0; i < t->n; i++)
            assert_quick(x[i] == (float)m->rig->members);
        rig_ok(m, psc_broadcast(m->q, x, t->n * sizeof *x, 1));
        rig_ok(m, psc_reduce(m->q, x, t->n, 0, NULL));
    }
    free(x);
}

static const struct task tasks[] = {
    {{0, 0, 3}, 0},         {{0, 0, 3}, 1000},    {{0, 0, 3}, 4000000}, /* it clogs the sockets */
    {{2, 0, 4, 0}, 100000}, {{2, 4, 1, 3}, 1000},
};

/* Somebody leads the meeting: who comes later need not look for that again after a while. */
static void await_note(const struct rig *r)
{
    double begin_s = unit_now_s();
    char path[200];
    snprintf(path, sizeof path, "%.150s.0", r->place + strlen("file:"));
    while (access(path, F_OK) < 0) {
        ck_assert_msg(unit_now_s() < begin_s + UNIT_HANG_S, "nobody leads the meeting");
        unit_nap_ms(1);
    }
}

static void run_with_timeout(const struct rig_kind *kind, int members, void (*body)(struct rig_member *m),
                             const void *arg)
{
    struct rig r;
    rig_init(&r, kind, members, body, (void *)(uintptr_t)arg);
    for (int i = 0; i < members; i++) {
        r.member[i].opt.timeout_ms = TIMEOUT_MS;
        crowd_start(&r, i);
    }
    crowd_drive();
    rig_finish(&r);
}

START_TEST(a_member_that_computes_for_long_breaks_nothing)
{
    for (size_t k = 0; k < ROWS(rig_kinds); k++)
        run_with_timeout(&rig_kinds[k], 4, compute_for_long, &tasks[_i]);
}
END_TEST

/* Each bears silence for as long as its own timeout_ms says, and is heard as often as the others need. */
START_TEST(members_may_bear_silences_of_different_lengths)
{
    struct rig r;
    rig_init(&r, &rig_kinds[1], 4, compute_for_long, (void *)(uintptr_t)&tasks[4]);
    for (int i = 0; i < 4; i++) {
        r.member[i].opt.timeout_ms = i % 2 == 0 ? TIMEOUT_MS : 100 * TIMEOUT_MS;
        crowd_start(&r, i);
    }
    crowd_drive();
    rig_finish(&r);
}
END_TEST

static sem_t released; /* the stopped one waits until the others have ended */

struct silence {
    int members, stopped;
    int timeouts[RIG_MAX_MEMBERS]; /* as of a task */
    size_t n;
};

static void stand_still(void)
{
    crowd_stand_still();
    crowd.aside++;
    sem_wait(&released);
    crowd.aside--;
}

static void fall_silent(struct rig_member *m)
{
    const struct silence *s = m->arg;
    char text[80];
    const char *const says[] = {text};
    float *x = calloc(s->n + 1, sizeof *x);
    snprintf(text, sizeof text, "rank %d has been silent for 1200 ms", s->stopped);
    rig_ok(m, m->rc);
    if (m->index == s->stopped) {
        stand_still();
    } else {
        double begin = ps_now_s(), least_s = 1e-3 * TIMEOUT_MS * (s->timeouts[m->index] + 1 - 1e-3);
        if (s->timeouts[m->index] > 0)
            least_s -= 1e-3 * TIMEOUT_MS; /* it hears when it comes */
        ps_sleep_us(UINT64_C(1000) * TIMEOUT_MS * (uint64_t)s->timeouts[m->index]);
        int rc = psc_allreduce(m->q, x, s->n, NULL);
        ck_assert_double_ge(ps_now_s() - begin, least_s);
        /* What telling takes. Into a clogged socket the system moves the last bytes in its own time, in one
         * move or a few; silence begins behind them, where their sender alone waits for the silent member, as
         * in a tree. */
        double last_s = s->n > 100000 ? 3e-3 * TIMEOUT_MS : 0, took_s = ps_now_s() - begin;
        ck_assert_msg(took_s < least_s + last_s + 1, "%s: rank %d of %d: %g s: %s", m->rig->kind->name,
                      m->index, s->members, took_s, psc_clique_error(m->q));
        crowd_expect_failure(m, rc, says, 1);
    }
    free(x);
}

static const struct silence silences[] = {
    {4, 2, {0}, 0},
    {4, 2, {0}, 1000},
    {4, 2, {0}, 4000000}, /* it clogs the sockets */
    {2, 1, {0}, 1000},
    {4, 2, {3}, 1000},
    {6, 4, {3, 0, 0, 3}, 1000}, /* ranks 1 and 2 have neighbours that compute, or wait for those */
    {6, 4, {3, 0, 0, 3}, 4000000},
};

START_TEST(a_silent_member_is_named_by_all)
{
    const struct silence *s = &silences[_i];
    sem_init(&released, 0, 0);
    for (size_t k = 0; k < ROWS(rig_kinds); k++) {
        struct rig r;
        rig_init(&r, &rig_kinds[k], s->members, fall_silent, (void *)(uintptr_t)s);
        for (int i = 0; i < s->members; i++) {
            r.member[i].opt.timeout_ms = TIMEOUT_MS;
            crowd_start(&r, i);
        }
        crowd_drive();
        sem_post(&released);
        pthread_join(r.member[s->stopped].thread, NULL);
        crowd = (struct crowd){0};
        rig_finish(&r);
    }
}
END_TEST

/* A member whose process runs and which does not come: the others wait for step_ms, and no longer. */
enum { STEP_MS = 4 * TIMEOUT_MS, HANG_MS = 12 * TIMEOUT_MS };

static void hang(struct rig_member *m)
{
    const struct silence *s = m->arg;
    bool hangs = m->index == s->stopped;
    char text[120];
    const char *const says[] = {text, "although its process runs: it computes or hangs (step_ms: 4800)"};
    float *x = calloc(s->n + 1, sizeof *x);
    snprintf(text, sizeof text, "rank %d has made no call of the clique for ", s->stopped);
    rig_ok(m, m->rc);
    rig_ok(m, psc_barrier(m->q));
    ps_sleep_us(UINT64_C(1000) * (hangs ? HANG_MS : (uint64_t)s->timeouts[m->index] * TIMEOUT_MS));
    double begin = ps_now_s();
    int rc = psc_allreduce(m->q, x, s->n, NULL);
    if (s->timeouts[m->index] == 0 && !hangs)
        ck_assert_double_ge(ps_now_s() - begin, 1e-3 * STEP_MS - 1e-3);
    ck_assert_double_lt(ps_now_s() - begin, 1e-3 * (STEP_MS + 4 * TIMEOUT_MS));
    crowd_expect_failure(m, rc, says, ROWS(says));
    free(x);
}

START_TEST(a_hung_member_is_named_by_all)
{
    const struct silence *s = &silences[_i];
    for (size_t k = 0; k < ROWS(rig_kinds); k++) {
        struct rig r;
        rig_init(&r, &rig_kinds[k], s->members, hang, (void *)(uintptr_t)s);
        for (int i = 0; i < s->members; i++) {
            r.member[i].opt.timeout_ms = TIMEOUT_MS;
            r.member[i].opt.step_ms = STEP_MS;
            crowd_start(&r, i);
        }
        crowd_drive();
        rig_finish(&r);
    }
}
END_TEST

/* Nobody is blamed for the time in which nobody waited. */
static void compute_together(struct rig_member *m)
{
    float x[1000] = {0};
    rig_ok(m, m->rc);
    for (int round = 0; round < 2; round++) {
        ps_sleep_us(UINT64_C(1000) * (HANG_MS + (m->index == 1 ? STEP_MS - TIMEOUT_MS : 0)));
        rig_ok(m, psc_allreduce(m->q, x, ROWS(x), NULL));
    }
}

START_TEST(members_that_compute_together_take_their_time)
{
    struct rig r;
    rig_init(&r, &rig_kinds[_i], 4, compute_together, NULL);
    for (int i = 0; i < 4; i++) {
        r.member[i].opt.timeout_ms = TIMEOUT_MS;
        r.member[i].opt.step_ms = STEP_MS;
        crowd_start(&r, i);
    }
    crowd_drive();
    rig_finish(&r);
}
END_TEST

/* A member that is a process: no time passes for it, since only the test's clock is driven. */
static _Atomic int *calls; /* of each member */

static void call_on(struct rig_member *m)
{
    static const char *const says[] = {"rank 1 has been silent for 1200 ms"};
    float x[1000] = {0};
    int rc = m->rc;
    for (; rc == PSC_OK; calls[m->index]++)
        rc = psc_allreduce(m->q, x, ROWS(x), NULL);
    if (m->index != 1)
        crowd_expect_failure(m, rc, says, 1);
}

static void await_calls(int n)
{
    double begin_s = unit_now_s();
    for (int i = 0; i < 3; i++)
        while (calls[i] < n) {
            ck_assert_msg(unit_now_s() < begin_s + UNIT_HANG_S, "rank %d makes no calls", i);
            unit_nap_ms(1);
        }
}

START_TEST(a_stopped_process_is_named_by_all)
{
    struct rig r;
    int status;
    calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rig_init(&r, &rig_kinds[_i], 3, call_on, NULL);
    for (int i = 0; i < 3; i++)
        r.member[i].opt.timeout_ms = TIMEOUT_MS;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rig_thread(&r.member[1]);
        _exit(0);
    }
    await_note(&r);
    crowd_start(&r, 0);
    crowd_start(&r, 2);
    await_calls(5);
    pause_child(pid);
    crowd_drive();
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    rig_finish(&r);
    munmap((void *)calls, 4096);
}
END_TEST

/* From now on no packet arrives over the links, as where a firewall has forgotten them; beats do. */
static void lose_links(void)
{
    struct sock_filter none = {.code = BPF_RET | BPF_K, .k = 0};
    const struct sock_fprog program = {.len = 1, .filter = &none};
    struct psc_ring *ring = crowd_own_ring();
    int fds[] = {ring->link[0].next, ring->link[0].prev};
    for (size_t i = 0; i < ROWS(fds); i++)
        ck_assert_int_eq(setsockopt(fds[i], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
}

/* Of a shorter vector all might have arrived before the links are lost. */
static void call_in_vain(struct rig_member *m)
{
    float x[10000] = {0};
    rig_ok(m, m->rc);
    lose_links();
    ck_assert_int_eq(psc_allreduce(m->q, x, ROWS(x), NULL), PSC_ECLIQUE);
    assert_says(psc_clique_error(m->q), "is gone: Connection timed out");
    sem_post(&released);
}

/* No time passes until then but the system's, which ends the connection. */
START_TEST(a_link_that_ends_without_a_word_is_noticed)
{
    struct rig r;
    sem_init(&released, 0, 0);
    rig_init(&r, &rig_kinds[0], 2, call_in_vain, NULL);
    for (int i = 0; i < 2; i++) {
        r.member[i].opt.timeout_ms = TIMEOUT_MS;
        crowd_start(&r, i);
        if (i == 0)
            await_note(&r);
    }
    for (int i = 0; i < 2; i++)
        sem_wait(&released);
    crowd_drive();
    rig_finish(&r);
}
END_TEST

/* No memory for what is on its way round: that member's call fails before anything is sent. */
static _Thread_local bool no_memory;

void *__wrap_malloc(size_t bytes);
void *__real_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return no_memory ? NULL : __real_malloc(bytes);
}

static void run_short(struct rig_member *m)
{
    static const char *const says[] = {"rank 1: no memory for "};
    float *x = calloc(100000, sizeof *x);
    double begin = ps_now_s();
    no_memory = m->index == 1 && m->rc == PSC_OK;
    int rc = m->rc == PSC_OK ? psc_allreduce(m->q, x, 100000, "int8") : m->rc; /* others may be ahead */
    no_memory = false;
    if (m->index == 1)
        ck_assert_int_eq(rc, PSC_ENOMEM);
    else
        crowd_expect_failure(m, rc, says, 1);
    ck_assert_double_lt(ps_now_s() - begin, 1e-3 * TIMEOUT_MS); /* nobody waits for its silence */
    free(x);
}

START_TEST(a_member_without_memory_is_named_by_all)
{
    for (size_t k = 0; k < ROWS(rig_kinds); k++)
        run_with_timeout(&rig_kinds[k], 4, run_short, NULL);
}
END_TEST

int main(void)
{
    const struct {
        const TTest *test;
        int rows;
    } tests[] = {{a_member_that_computes_for_long_breaks_nothing, ROWS(tasks)},
                 {members_may_bear_silences_of_different_lengths, 1},
                 {a_silent_member_is_named_by_all, ROWS(silences)},
                 {a_hung_member_is_named_by_all, ROWS(silences)},
                 {members_that_compute_together_take_their_time, ROWS(rig_kinds)},
                 {a_stopped_process_is_named_by_all, ROWS(rig_kinds)},
                 {a_link_that_ends_without_a_word_is_noticed, 1},
                 {a_member_without_memory_is_named_by_all, 1}};
    Suite *suite = suite_create("clique-silence");
    for (size_t i = 0; i < ROWS(tests); i++) {
        TCase *tcase = tcase_create(tests[i].test->name);
        tcase_set_timeout(tcase, 280);
        tcase_add_loop_test(tcase, tests[i].test, 0, tests[i].rows);
        suite_add_tcase(suite, tcase);
    }
    return unit_run(suite);
}
