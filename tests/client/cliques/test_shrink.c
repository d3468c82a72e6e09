/* kill -9 of members at any moment, with on_loss: shrink, also while the clique is formed anew. The others go
 * on, with the same step and the same bits, until one is left. PSD_TEST_KILLS: how many kills (scripts/soak);
 * 6 unless set. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique.h"
#include "tests/client/cliques/clique_fixture.h"
#include "tests/support/unit.h"

enum { MEMBERS = 4, KILLS = 6, MOST_NAP_MS = 40, MOST_GAP_US = 4000 };

struct process {
    pid_t pid; /* 0: it has ended */
    int in, out;
    char said[4096];
    size_t len, read;
};

static struct process processes[MEMBERS];

static void start(struct process *p, const char *place, int rank, const char *algorithm)
{
    int in[2], out[2];
    char rank_text[12], members[12];
    ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(members, sizeof members, "%d", MEMBERS);
    *p = (struct process){.in = in[1], .out = out[0]};
    p->pid = fork();
    if (p->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execl(SHRINK_MEMBER, SHRINK_MEMBER, place, members, rank_text, algorithm, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_gt(p->pid, 0);
    close(in[0]);
    close(out[1]);
}

/* The next line; it may take long. */
static void hear(struct process *p, char line[120])
{
    double until = unit_now_s() + UNIT_HANG_S;
    for (;;) {
        char *from = p->said + p->read, *end = memchr(from, '\n', p->len - p->read);
        if (end != NULL) {
            snprintf(line, 120, "%.*s", (int)(end - from), from);
            p->read += (size_t)(end - from) + 1;
            return;
        }
        struct pollfd fd = {.fd = p->out, .events = POLLIN};
        ck_assert_msg(unit_now_s() < until && p->len < sizeof p->said, "a member says nothing more");
        if (poll(&fd, 1, 1000) <= 0)
            continue;
        ssize_t k = read(p->out, p->said + p->len, sizeof p->said - p->len);
        ck_assert_msg(k > 0, "member %d has ended before its line", (int)p->pid);
        p->len += (size_t)k;
    }
}

/* All that live say the same line, which begins so. One that went on in between has said that before. */
static void expect_of_all(const char *begins, int living)
{
    char first[120] = "", line[120];
    for (int i = 0; i < MEMBERS; i++) {
        if (processes[i].pid == 0)
            continue;
        do
            hear(&processes[i], line);
        while (strncmp(line, "left ", 5) == 0 && atoi(line + 5) > living);
        ck_assert_msg(strncmp(line, begins, strlen(begins)) == 0, "expected '%s...', heard '%s'", begins,
                      line);
        ck_assert_msg(first[0] == 0 || strcmp(first, line) == 0, "'%s' and '%s'", first, line);
        strcpy(first, line);
    }
}

static void end(struct process *p, int sig)
{
    int status;
    if (sig != 0)
        kill(p->pid, sig);
    ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
    ck_assert(sig != 0 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(p->in);
    close(p->out);
    p->pid = 0;
}

static void kill_one(struct dice *dice, int living)
{
    int nth = (int)(dice_below(dice, (uint64_t)living)), i = 0;
    for (; processes[i].pid == 0 || nth > 0; i++)
        nth -= processes[i].pid != 0;
    end(&processes[i], SIGKILL);
}

/* One member, or two of which the second is killed while the others form the clique anew. */
static int kill_some(struct dice *dice, int living)
{
    char begins[40];
    int victims = living > 2 ? 1 + (int)dice_below(dice, 2) : 1;
    unit_nap_ms((int)(dice_below(dice, MOST_NAP_MS)));
    for (int k = 0; k < victims; k++) {
        if (k > 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * (long)dice_below(dice, MOST_GAP_US)}, NULL);
        kill_one(dice, living - k);
    }
    snprintf(begins, sizeof begins, "left %d ", living - victims);
    expect_of_all(begins, living - victims);
    return victims;
}

/* One clique, from which members are killed until one is left. */
static void run(struct dice *dice, const char *algorithm, int *kills)
{
    char dir[] = "/tmp/psd-shrink-XXXXXX", place[64];
    int living = MEMBERS;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(place, sizeof place, "file:%s/ring", dir);
    for (int i = 0; i < MEMBERS; i++)
        start(&processes[i], place, i, algorithm);
    expect_of_all("open 4 0 ", living);
    while (living > 1 && *kills > 0) {
        int victims = kill_some(dice, living);
        living -= victims;
        *kills -= victims;
    }
    for (int i = 0; i < MEMBERS; i++)
        if (processes[i].pid != 0)
            close(processes[i].in);
    expect_of_all("ended ", living);
    for (int i = 0; i < MEMBERS; i++)
        if (processes[i].pid != 0) {
            processes[i].in = open("/dev/null", O_RDONLY | O_CLOEXEC);
            end(&processes[i], 0);
        }
    ck_assert_int_eq(rmdir(dir), 0);
}

START_TEST(the_others_go_on_after_each_kill)
{
    static const char *const algorithms[] = {"ring", "tree", "auto"};
    const char *wanted = getenv("PSD_TEST_KILLS"), *seed = getenv("PSD_TEST_SEED");
    int kills = wanted != NULL ? atoi(wanted) : KILLS;
    struct dice dice = {seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)getpid()};
    printf("seed %llu, %d kills\n", (unsigned long long)dice.state, kills);
    for (int k = 0; kills > 0; k++)
        run(&dice, algorithms[(k + 1) % 3], &kills);
}
END_TEST

/* Arguments and handles for which it is not. */
static void ask_too_early(struct rig_member *m)
{
    struct psc_shrunk left;
    bool is_ring = m->rig->kind->listen != NULL;
    rig_ok(m, m->rc);
    ck_assert_int_eq(psc_clique_shrink(m->q, 0, 99, &left), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "timeout_ms is 99");
    ck_assert_int_eq(psc_clique_shrink(m->q, 0, 1000, &left), is_ring ? PSC_EINVAL : PSC_EUNSUPPORTED);
    assert_says(psc_clique_error(m->q), is_ring ? "no call has failed" : "over threads cannot shrink");
    rig_ok(m, psc_barrier(m->q));
    rig_ok(m, psc_barrier(m->q));
    if (m->index == 0)
        return; /* it leaves */
    ck_assert_int_eq(psc_barrier(m->q), PSC_ECLIQUE);
    ck_assert_int_eq(psc_clique_shrink(m->q, 0, 1000, &left), is_ring ? PSC_EINVAL : PSC_EUNSUPPORTED);
    if (is_ring)
        assert_says(psc_clique_error(m->q), "was opened with on_loss end; allowed is shrink");
}

START_TEST(a_clique_that_ends_does_not_shrink)
{
    rig_run(rig_kind_of(0), 2, ask_too_early, NULL);
    rig_run(rig_kind_of(RIG_N_KINDS - 1), 2, ask_too_early, NULL);
}
END_TEST

static void open_in_two_ways(struct rig_member *m)
{
    ck_assert_int_eq(m->rc, PSC_ECLIQUE);
    assert_says(psc_clique_error(m->q), "members disagree");
    assert_says(psc_clique_error(m->q), "on_loss ");
    assert_says(psc_clique_error(m->q), "shrink");
}

START_TEST(members_agree_on_what_a_loss_means)
{
    struct rig r;
    rig_init(&r, rig_kind_of(1), 2, open_in_two_ways, NULL);
    r.member[1].opt.on_loss = "shrink";
    for (int i = 0; i < 2; i++)
        rig_start(&r, i);
    rig_join(&r, 2);
    rig_finish(&r);
}
END_TEST

/* One member leaves after its last call; the others, of which one is a step ahead, find that out. Tickets of
 * before are refused. */
static void leave_or_shrink(struct rig_member *m)
{
    struct psc_shrunk left = {0};
    uint64_t ticket = 0;
    float x = 1;
    int size = m->rig->members;
    rig_ok(m, m->rc);
    int rc = psc_barrier(m->q); /* another one may have found out already */
    if (m->index == 1)
        return;
    if (rc == PSC_OK)
        rc = psc_allreduce_start(m->q, &x, 1, NULL, &ticket);
    rc = rc == PSC_OK ? psc_clique_wait(m->q, ticket) : rc;
    ck_assert_int_eq(rc, PSC_ECLIQUE);
    rig_ok(m, psc_clique_shrink(m->q, m->index == 2 ? 8 : 7, 60000, &left));
    ck_assert_uint_eq(left.step, 8);
    ck_assert_uint_eq(left.source, 1);
    ck_assert_uint_eq(left.behind, (unsigned)size - 2);
    ck_assert_uint_eq(left.lost, 1);
    ck_assert_int_eq(psc_clique_size(m->q), size - 1);
    ck_assert_int_eq(psc_clique_rank(m->q), m->index - (m->index > 1));
    if (ticket > 0) {
        ck_assert_int_eq(psc_clique_wait(m->q, ticket), PSC_EINVAL);
        assert_says(psc_clique_error(m->q), "issued before the clique shrank");
    }
    x = 1;
    rig_ok(m, psc_allreduce(m->q, &x, 1, NULL));
    ck_assert_float_eq(x, (float)(size - 1));
    rig_ok(m, psc_allreduce_start(m->q, &x, 1, NULL, &ticket));
    rig_ok(m, psc_clique_wait(m->q, 0));
    ck_assert_float_eq(x, (float)((size - 1) * (size - 1)));
}

START_TEST(those_that_are_left_know_the_greatest_step)
{
    struct rig r;
    rig_init(&r, rig_kind_of(_i), 4, leave_or_shrink, NULL);
    for (int i = 0; i < 4; i++)
        r.member[i].opt.on_loss = "shrink";
    for (int i = 0; i < 4; i++)
        rig_start(&r, i);
    rig_join(&r, 4);
    rig_finish(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shrink");
    TCase *tcase = tcase_create("shrink");
    tcase_set_timeout(tcase, getenv("PSD_TEST_KILLS") != NULL ? 36000 : UNIT_HANG_S);
    tcase_add_test(tcase, the_others_go_on_after_each_kill);
    tcase_add_test(tcase, a_clique_that_ends_does_not_shrink);
    tcase_add_test(tcase, members_agree_on_what_a_loss_means);
    tcase_add_loop_test(tcase, those_that_are_left_know_the_greatest_step, 0, RIG_N_KINDS - 1);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
