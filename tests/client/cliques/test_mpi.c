/* Cliques over MPI: mpi_member under mpirun, with as many processes as the case says; once psworker. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique_mpi.h"
#include "tests/support/system/daemon.h"
#include "tests/support/unit.h"

/* Within this time mpirun ends by itself, or else it hangs. Less than unit.h gives to a test. */
enum { HANG_S = 200 };

struct run {
    int code;  /* of mpirun; -1: by a signal */
    bool hung; /* it was ended */
    char said[16384];
};

/* What a machine for tests needs to let many processes meet: as root, more than there are cores, yielding. */
static void set_environment(void)
{
    static const char *const names[] = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                        "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        setenv(names[i], "1", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
    setenv("OMPI_MCA_orte_abort_print_stack", "0", 1);
}

static void mpirun_program(struct run *r, int processes, const char *program, const char *arguments)
{
    char command[2000];
    size_t used = 0, got;
    set_environment();
    snprintf(command, sizeof command, "timeout -k 30 %d '%s' -n %d --oversubscribe '%s' %s 2>&1", HANG_S,
             MPIRUN, processes, program, arguments);
    double begin = unit_now_s();
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    while (used < sizeof r->said - 1 && (got = fread(r->said + used, 1, sizeof r->said - 1 - used, f)) > 0)
        used += got;
    r->said[used] = 0;
    int status = pclose(f);
    r->hung = unit_now_s() - begin >= HANG_S;
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void mpirun(struct run *r, int processes, const char *arguments)
{
    mpirun_program(r, processes, MPI_MEMBER, arguments);
}

static unsigned count(const struct run *r, const char *text)
{
    unsigned n = 0;
    for (const char *p = r->said; (p = strstr(p, text)) != NULL; p += strlen(text))
        n++;
    return n;
}

#define ASSERT_SAYS(r, text, times)                                                                          \
    ck_assert_msg(count(r, text) == (times), "'%s' is there %u times, not %u, in:\n%s", text,                \
                  count(r, text), (unsigned)(times), (r)->said)

START_TEST(sums_are_right_and_the_same_at_every_rank)
{
    struct run r;
    mpirun(&r, _i, "sums");
    ASSERT_SAYS(&r, ": good\n", (unsigned)_i);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

START_TEST(long_vectors_go_in_pieces)
{
    struct run r;
    mpirun(&r, 2, "pieces");
    ASSERT_SAYS(&r, ": good\n", 2);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

static const struct {
    const char *how, *says;
} differences[] = {
    {"count",
     "collective 1: members disagree: rank 0 calls allreduce of 10 floats, rank 1 allreduce of 9 floats"},
    {"kind", "collective 1: members disagree: rank 0 calls allreduce of 10 floats, rank 1 barrier"},
    {"codec",
     "collective 1: members disagree: rank 0 calls allreduce of 10 floats in int8, rank 1 allreduce of "
     "10 floats in fp16"},
    {"root",
     "collective 1: members disagree: rank 0 calls broadcast of 40 bytes, root 0, rank 1 broadcast of 40 "
     "bytes, root 1"},
};

START_TEST(members_that_disagree_are_all_told)
{
    char arguments[40];
    struct run r;
    snprintf(arguments, sizeof arguments, "disagree %s", differences[_i].how);
    mpirun(&r, 3, arguments);
    ASSERT_SAYS(&r, differences[_i].says, 3);
    ASSERT_SAYS(&r, "WRONG", 0);
    ck_assert_int_eq(r.code, 0); /* and MPI ends in good order */
}
END_TEST

/* The others do not wait for its messages until the watchdog ends their processes. */
START_TEST(one_without_memory_is_named)
{
    struct run r;
    mpirun(&r, 3, "memory");
    ASSERT_SAYS(&r, "rank 1 allreduce of 10 floats in int8, for which it has no memory", 2);
    ASSERT_SAYS(&r, "no memory for ", 1);
    ASSERT_SAYS(&r, "WRONG", 0);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

START_TEST(one_that_closes_early_is_named)
{
    struct run r;
    mpirun(&r, 3, "disagree closed");
    ASSERT_SAYS(&r, "collective 1: rank 1 has closed the clique", 2);
    ASSERT_SAYS(&r, "WRONG", 0);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

START_TEST(codecs_give_the_bits_of_a_ring)
{
    char arguments[100];
    struct run r;
    snprintf(arguments, sizeof arguments, "coded file:/tmp/psd-test-mpi-%d-%d", (int)getpid(), _i);
    mpirun(&r, _i, arguments);
    ASSERT_SAYS(&r, ": good\n", (unsigned)_i);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

START_TEST(collectives_of_every_type_give_their_results)
{
    struct run r;
    mpirun(&r, _i, "collectives");
    ASSERT_SAYS(&r, ": good\n", (unsigned)_i);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

static const struct {
    const char *how, *says;
} odd_calls[] = {
    {"differ type", "members disagree: rank 0 calls allreduce of 10 float64s, rank 1 allreduce of 10 int64s"},
    {"differ operation",
     "members disagree: rank 0 calls allreduce of 10 float64s, rank 1 allreduce (min) of 10 float64s"},
};

START_TEST(calls_that_differ_change_nothing)
{
    struct run r;
    mpirun(&r, 3, odd_calls[_i].how);
    ASSERT_SAYS(&r, odd_calls[_i].says, 3);
    ASSERT_SAYS(&r, "WRONG", 0);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

START_TEST(a_call_has_a_deadline_of_its_own)
{
    struct run r;
    mpirun(&r, 3, "deadline");
    ck_assert_msg(strstr(r.said, "callback of mine: rank ") != NULL, "%s", r.said);
    ck_assert_msg(strstr(r.said, "allreduce of 1 floats") != NULL, "%s", r.said);
    ASSERT_SAYS(&r, "NEVER", 0);
    ck_assert_int_eq(r.code, 5);
}
END_TEST

START_TEST(a_codec_for_moves_is_refused)
{
    struct run r;
    mpirun(&r, 2, "codec");
    ASSERT_SAYS(&r, "psc_allreduce: codec 'topk' needs error feedback, which sums do not have", 2);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

/* As a user meets it: the job's codec, whose sums go over MPI. */
START_TEST(a_job_may_have_a_codec)
{
    static const char *const settings[] = {"method=mpi-sgd", "clique.codec=int8", NULL};
    char arguments[300];
    struct daemon d;
    struct run r;
    ck_assert_int_eq(daemon_prepare(&d, PSD, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    snprintf(arguments, sizeof arguments,
             "--server %s --net linear --data digits --steps 20 --threads 1 --clique mpi --members 2",
             d.endpoint);
    mpirun_program(&r, 2, PSWORKER, arguments);
    ck_assert_msg(r.code == 0, "%s", r.said);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), 20);
    daemon_remove(&d);
}
END_TEST

START_TEST(mpi_for_one_thread_is_refused)
{
    struct run r;
    mpirun(&r, 2, "level");
    ck_assert_msg(count(&r, "MPI_THREAD_FUNNELED; a clique needs MPI_THREAD_SERIALIZED") == 2, "%s", r.said);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

/* The machine was slow: a member was late for a sum that all of them make. */
static bool was_late(const struct run *r)
{
    return count(r, "collective 1, allreduce") + count(r, "collective 2, allreduce") > 0;
}

/* A member stops for good: the others end and say where they stood; nothing hangs. */
START_TEST(a_silent_member_ends_the_others)
{
    struct run r;
    double end = unit_now_s() + UNIT_HANG_S;
    do
        mpirun(&r, 3, "silent");
    while (was_late(&r) && unit_now_s() < end);
    ck_assert_msg(
        count(&r, "libpsclique-mpi: rank 0 of 3 on ") + count(&r, "libpsclique-mpi: rank 2 of 3 on ") >= 1,
        "%s", r.said); /* whoever is first takes the other with it, by mpirun's hand */
    ck_assert_msg(strstr(r.said,
                         "collective 3, allreduce of 1000 floats, before it begins: a member has been "
                         "silent for ") != NULL &&
                      strstr(r.said, "(timeout_ms: 2000); the process ends") != NULL,
                  "%s", r.said);
    ASSERT_SAYS(&r, "NEVER", 0);
    ck_assert_int_eq(r.code, PSC_MPI_EXIT_SILENT);
    ck_assert(!r.hung);
}
END_TEST

/* The same in the middle of whatever it is doing. */
START_TEST(a_member_stopped_at_any_moment_ends_the_others)
{
    struct run r;
    mpirun(&r, 3, "stopped");
    ck_assert_msg(strstr(r.said, ", allreduce of 4194304 floats, ") != NULL &&
                      strstr(r.said, ": a member has been silent for ") != NULL,
                  "%s", r.said);
    ck_assert_int_eq(r.code, PSC_MPI_EXIT_SILENT);
    ck_assert(!r.hung);
}
END_TEST

START_TEST(the_callback_replaces_line_and_end)
{
    struct run r;
    mpirun(&r, 3, "callback");
    ck_assert_msg(strstr(r.said, "callback of mine: rank ") != NULL, "%s", r.said);
    ASSERT_SAYS(&r, "libpsclique-mpi", 0);
    ck_assert_int_eq(r.code, 5);
}
END_TEST

/* mpirun ends the rest, or the watchdog does. */
START_TEST(a_killed_member_ends_the_job)
{
    struct run r;
    mpirun(&r, 3, "killed");
    ASSERT_SAYS(&r, "NEVER", 0);
    ck_assert_int_ne(r.code, 0);
    ck_assert(!r.hung);
}
END_TEST

START_TEST(a_program_without_mpi_gets_its_cliques)
{
    struct run r;
    mpirun(&r, 4, "world 2");
    ASSERT_SAYS(&r, "rank 0: 0 clique 0 of 2, rank 0 of 2, sum 3\n", 1);
    ASSERT_SAYS(&r, "rank 1: 0 clique 0 of 2, rank 1 of 2, sum 3\n", 1);
    ASSERT_SAYS(&r, "rank 2: 0 clique 1 of 2, rank 0 of 2, sum 7\n", 1);
    ASSERT_SAYS(&r, "rank 3: 0 clique 1 of 2, rank 1 of 2, sum 7\n", 1);
    ck_assert_int_eq(r.code, 0);
    mpirun(&r, 2, "world 1"); /* nothing to sum, and a handle as any other */
    ASSERT_SAYS(&r, "rank 0 of 1, sum ", 2);
    ck_assert_int_eq(r.code, 0);
}
END_TEST

START_TEST(cliques_that_do_not_come_out_even_are_refused)
{
    struct run r;
    mpirun(&r, 3, "world 2");
    ASSERT_SAYS(&r, "mpirun started 3 processes: they cannot be divided into cliques of 2 members", 3);
    ck_assert_int_eq(r.code, 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-mpi");
    TCase *tc = tcase_create("mpi");
    tcase_add_loop_test(tc, sums_are_right_and_the_same_at_every_rank, 1, 5);
    tcase_add_test(tc, long_vectors_go_in_pieces);
    tcase_add_loop_test(tc, members_that_disagree_are_all_told, 0, ROWS(differences));
    tcase_add_test(tc, one_without_memory_is_named);
    tcase_add_test(tc, one_that_closes_early_is_named);
    tcase_add_loop_test(tc, codecs_give_the_bits_of_a_ring, 1, 5);
    tcase_add_loop_test(tc, collectives_of_every_type_give_their_results, 2, 4);
    tcase_add_loop_test(tc, calls_that_differ_change_nothing, 0, ROWS(odd_calls));
    tcase_add_test(tc, a_call_has_a_deadline_of_its_own);
    tcase_add_test(tc, a_codec_for_moves_is_refused);
    tcase_add_test(tc, a_job_may_have_a_codec);
    tcase_add_test(tc, mpi_for_one_thread_is_refused);
    tcase_add_test(tc, a_silent_member_ends_the_others);
    tcase_add_test(tc, a_member_stopped_at_any_moment_ends_the_others);
    tcase_add_test(tc, the_callback_replaces_line_and_end);
    tcase_add_test(tc, a_killed_member_ends_the_job);
    tcase_add_test(tc, a_program_without_mpi_gets_its_cliques);
    tcase_add_test(tc, cliques_that_do_not_come_out_even_are_refused);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
