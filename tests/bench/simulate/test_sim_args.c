/* Invalid command lines and methods of the simulator are refused with a message that names what is
 * allowed. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/simulate/simulate.h"
#include "tests/support/unit.h"

static const struct {
    const char *text, *says;
    uint32_t workers;
} bad_methods[] = {
    {"async-sdg", "'async-sdg' is not a method of psd", 4},
    {"sgd", "without psd", 4},
    {"async-sgd:slack=3", "slack", 4},
    {"ssp-sgd:slack=many", "slack", 4},
    {"ssp-sgd:slakc=3", "slakc", 4},
    {"ssp-sgd:,", "empty", 4},
    {"mpi-sgd:members=3", "4 workers cannot form cliques of 3", 4},
    {"mpi-sgd:members=8", "4 workers cannot form cliques of 8", 4},
    {"mpi-sgd:members=0", "members is '0'", 4},
    {"diloco:fragments=2", "fragments", 4},
    {"diloco:dynamic_period=true", "dynamic_period", 4},
};

START_TEST(a_bad_method_is_named)
{
    struct sim_method m;
    struct sim_codecs codecs;
    struct ps_error err = {""};
    ck_assert_int_eq(sim_method_read(bad_methods[_i].text, bad_methods[_i].workers, &m, &codecs, &err),
                     -EINVAL);
    ck_assert_msg(strstr(err.text, bad_methods[_i].says) != NULL, "said '%s'", err.text);
}
END_TEST

static const struct {
    const char *args[8];
    const char *says;
} bad[] = {
    {{"--net", "lenin"}, "--net is 'lenin'; allowed are"},
    {{"--floats", "100"}, "--floats needs --compute-ms"},
    {{"--floats", "100", "--net", "lenet"}, "give one"},
    {{"--workers", "2,,4"}, "--workers is ''"},
    {{"--workers", "2,0"}, "--workers is '0'; allowed are 1 to 65536"},
    {{"--workers", "1.5"}, "a whole number is needed"},
    {{"--workers", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"}, "more than 16"},
    {{"--compute-ms", "0"}, "--compute-ms is '0'; allowed are 1e-06 to"},
    {{"--alpha-us", "3"}, "a link is --alpha-us and --gb-s"},
    {{"--gb-s", "0"}, "--gb-s is '0'"},
    {{"--server-gb-s", "1"}, "are of a link"},
    {{"--link", "1gb"}, "--link is '1gb'; allowed is a rate such as 1gbit"},
    {{"--slow-share", "0.5"}, "--slow-share needs --slow-factor"},
    {{"--slow-share", "2"}, "--slow-share is '2'; allowed are 0 to 1"},
    {{"--jitter", "-1"}, "--jitter is '-1'"},
    {{"--jitter", "nan"}, "--jitter is 'nan'"},
    {{"--exchanges", "3"}, "--exchanges is '3'; allowed are 4"},
    {{"--lane", "3"}, "--lane is '3'; allowed are microseconds a chunk and GB/s"},
    {{"--lane", "3,0"}, "--lane is '3,0'"},
    {{"--check", "--alpha-us", "1", "--gb-s", "1"}, "--check is of this machine"},
    {{"--check", "--jitter", "1"}, "--check is of this machine"},
    {{"--half-duplex", "yes"}, "'yes' is not an option"},
    {{"--wrong"}, "usage: psbench plan --simulate"},
};

START_TEST(a_bad_command_line_is_named)
{
    char *argv[12] = {(char[]){"plan"}}, said[8192];
    struct sim_options o;
    int argc = 1;
    FILE *f = freopen("/dev/null", "w", stdout), *err = tmpfile();

    ck_assert(f != NULL && err != NULL);
    for (; argc < 9 && bad[_i].args[argc - 1] != NULL; argc++)
        argv[argc] = strdup(bad[_i].args[argc - 1]);
    fflush(stderr);
    FILE *saved = stderr;
    stderr = err;
    int rc = sim_parse(argc, argv, &o);
    stderr = saved;
    rewind(err);
    said[fread(said, 1, sizeof said - 1, err)] = 0;
    fclose(err);
    while (argc > 1)
        free(argv[--argc]);
    ck_assert_int_eq(rc, -1);
    ck_assert_msg(strstr(said, bad[_i].says) != NULL, "said '%s'; expected '%s'", said, bad[_i].says);
}
END_TEST

START_TEST(a_good_command_line_is_taken)
{
    char *argv[] = {(char[]){"plan"},
                    (char[]){"--simulate"},
                    (char[]){"--floats"},
                    (char[]){"1e6"},
                    (char[]){"--link"},
                    (char[]){"100Mbit"},
                    (char[]){"--alpha-us"},
                    (char[]){"50"},
                    (char[]){"--compute-ms"},
                    (char[]){"2.5"},
                    (char[]){"--workers"},
                    (char[]){"2,4096"},
                    (char[]){"--method"},
                    (char[]){"ssp-sgd:slack=7"},
                    (char[]){"--lane"},
                    (char[]){"10,2.5"},
                    (char[]){"--cores"},
                    (char[]){"0"},
                    NULL};
    struct sim_options o;
    ck_assert(sim_is_asked(18, argv));
    ck_assert_int_eq(sim_parse(18, argv, &o), 0);
    ck_assert_double_eq(o.floats, 1e6);
    ck_assert_double_eq_tol(o.beta_s, 8e-8, 1e-18);
    ck_assert_double_eq_tol(o.alpha_s, 5e-5, 1e-18);
    ck_assert_uint_eq(o.workers[1], 4096);
    ck_assert_uint_eq(o.n_methods, 1);
    ck_assert_str_eq(o.methods[0], "ssp-sgd:slack=7");
    ck_assert_double_eq_tol(o.costs[SIM_LANE].chunk_s, 1e-5, 1e-18);
    ck_assert_double_eq_tol(o.costs[SIM_LANE].byte_s, 4e-10, 1e-18);
    ck_assert(isnan(o.costs[SIM_RING].chunk_s) && !o.check && o.cores == 0);
    char *few[] = {(char[]){"plan"}, (char[]){"--floats"}, (char[]){"8"}, NULL};
    ck_assert(!sim_is_asked(3, few));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("psbench plan --simulate: command line");
    TCase *tcase = tcase_create("command line");
    tcase_add_loop_test(tcase, a_bad_method_is_named, 0, sizeof bad_methods / sizeof *bad_methods);
    tcase_add_loop_test(tcase, a_bad_command_line_is_named, 0, sizeof bad / sizeof *bad);
    tcase_add_test(tcase, a_good_command_line_is_taken);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
