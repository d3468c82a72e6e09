/* The library's face: options, arguments, what opening to nowhere says, the header and the symbols. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/internal.h"
#include "client/psclient.h"
#include "client/psclique.h"
#include "client/psclique_mpi.h"
#include "tests/support/unit.h"

static struct psc_options quick(const char *server)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = server;
    opt.timeout_ms = 100; /* the least */
    return opt;
}

/* Opens, expects the failure, and leaves the sentence in `sentence`. */
static void fail_open(const struct psc_options *opt, int want, char *sentence, size_t size)
{
    struct psc *c = NULL;
    int rc = psc_open(opt, &c);
    ck_assert_ptr_nonnull(c);
    snprintf(sentence, size, "%s", psc_error(c));
    ck_assert_msg(rc == want, "%s: %s", psc_result_name(rc), sentence);
    psc_close(c);
}

START_TEST(defaults_are_as_the_header_says)
{
    struct psc_options opt;
    memset(&opt, 0xff, sizeof opt);
    psc_options_init(&opt, sizeof opt);
    ck_assert_uint_eq(opt.size, sizeof opt);
    ck_assert_ptr_null(opt.server);
    ck_assert_int_eq(opt.kind, PSC_WORKER);
    ck_assert_int_eq(opt.rank, -1);
    ck_assert_ptr_null(opt.name);
    ck_assert_uint_eq(opt.timeout_ms, 60000);
    ck_assert_uint_eq(opt.retry_ms, 2000);
    ck_assert_uint_eq(opt.heartbeat_ms, 1000);
    ck_assert(opt.log == NULL && opt.log_arg == NULL);
}
END_TEST

/* Memory of that size, which the compiler need not know: an older program's struct. */
static void *short_struct(volatile size_t size)
{
    return malloc(size);
}

/* A program built with a header that ended before `timeout_ms`, and one of the future. */
START_TEST(struct_of_another_size_is_understood)
{
    enum { OLD = offsetof(struct psc_options, timeout_ms) };
    unsigned char future[sizeof(struct psc_options) + 64];
    struct psc_options *opt = short_struct(OLD), *old = opt;
    struct psc *c;
    char sentence[600];

    psc_options_init(opt, OLD);
    ck_assert_uint_eq(opt->size, OLD);
    opt->server = "";
    ck_assert_int_eq(psc_open(opt, &c),
                     PSC_EINVAL); /* nothing beyond its end is read: the address sanitizer */
    assert_says(psc_error(c), "server is missing");
    psc_close(c);
    free(old);

    opt = (struct psc_options *)(void *)future;
    memset(future, 0xff, sizeof future);
    psc_options_init(opt, sizeof future);
    for (size_t i = sizeof *opt; i < sizeof future; i++)
        ck_assert_uint_eq(future[i], 0);
    opt->server = "tcp://127.0.0.1:1";
    opt->timeout_ms = 100;
    fail_open(opt, PSC_EGONE, sentence, sizeof sentence);
}
END_TEST

START_TEST(options_without_a_size_are_refused)
{
    const size_t sizes[] = {0, 1, sizeof(size_t), offsetof(struct psc_options, kind) - 1, 4097, SIZE_MAX};
    char sentence[600];
    for (size_t i = 0; i < ROWS(sizes); i++) {
        struct psc_options opt = quick("tcp://127.0.0.1:1");
        opt.size = sizes[i];
        fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence);
        assert_says(sentence, "psc_options_init first");
    }
    fail_open(NULL, PSC_EINVAL, sentence, sizeof sentence);
    for (size_t i = 0; i < 2; i++) {
        const struct psc_mpi_options opt = {.size = i == 0 ? 0 : SIZE_MAX, .timeout_ms = 1};
        struct psc_mpi_world *w;
        ck_assert_int_eq(psc_mpi_world_open(&opt, 1, &w), PSC_EINVAL);
        assert_says(psc_mpi_world_error(w), "psc_mpi_options_init first");
        psc_mpi_world_close(w);
    }
}
END_TEST

#define FORTY "1234567890123456789012345678901234567890"
static const struct {
    const char *server;
    int32_t kind, rank;
    uint32_t timeout_ms, retry_ms, heartbeat_ms;
    const char *says;
} bad_options[] = {
    {NULL, 0, -1, 100, 10, 10, "server is missing; allowed are tcp://HOST:PORT, ipc://PATH and @FILE"},
    {"", 0, -1, 100, 10, 10, "server is missing"},
    {"tcp://h:1", 2, -1, 100, 10, 10, "kind 2; allowed are PSC_WORKER and PSC_OBSERVER"},
    {"tcp://h:1", -1, -1, 100, 10, 10, "kind -1"},
    {"tcp://h:1", 0, -2, 100, 10, 10, "rank -2; allowed are 0 to 1023"},
    {"tcp://h:1", 0, 1024, 100, 10, 10, "rank 1024"},
    {"tcp://h:1", 0, -1, 99, 10, 10, "timeout_ms 99"},
    {"tcp://h:1", 0, -1, 100, 9, 10, "retry_ms 9"},
    {"tcp://h:1", 0, -1, 100, 10, 9, "heartbeat_ms 9"},
    {"endpoint", 0, -1, 2000, 10, 10,
     "'endpoint': Invalid argument; allowed are tcp://HOST:PORT, ipc://PATH and @FILE"},
    {"tcp://", 0, -1, 2000, 10, 10, "tcp://HOST:PORT"},
    {"tcp://127.0.0.1", 0, -1, 2000, 10, 10, "tcp://HOST:PORT"},
    {"tcp://127.0.0.1:port", 0, -1, 2000, 10, 10, "tcp://HOST:PORT"},
    {"pigeon://127.0.0.1:1", 0, -1, 2000, 10, 10, "tcp://HOST:PORT"},
    {"ipc:///" FORTY FORTY FORTY, 0, -1, 2000, 10, 10,
     "File name too long; allowed are tcp://HOST:PORT, ipc://PATH and @FILE"},
};

START_TEST(bad_option_is_named)
{
    struct psc_options opt = quick(bad_options[_i].server);
    char sentence[600];
    opt.kind = bad_options[_i].kind;
    opt.rank = bad_options[_i].rank;
    opt.timeout_ms = bad_options[_i].timeout_ms;
    opt.retry_ms = bad_options[_i].retry_ms;
    opt.heartbeat_ms = bad_options[_i].heartbeat_ms;
    fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence);
    assert_says(sentence, bad_options[_i].says);
}
END_TEST

START_TEST(long_server_is_refused)
{
    char server[600], sentence[600];
    memset(server, 'x', sizeof server - 1);
    server[sizeof server - 1] = 0;
    struct psc_options opt = quick(server);
    fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence);
    server[500] = 0;
    fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence); /* fits, and is no URL */
}
END_TEST

/* timeout_ms is what decides: not before, and it is named. */
START_TEST(nowhere_times_out)
{
    struct psc_options opt = quick("tcp://127.0.0.1:1");
    char sentence[600];
    opt.timeout_ms = 300;
    double begin = unit_now_s();
    fail_open(&opt, PSC_EGONE, sentence, sizeof sentence);
    ck_assert_double_ge(unit_now_s() - begin, 0.3);
    assert_says(sentence, "no answer from tcp://127.0.0.1:1");
    assert_says(sentence, "timeout_ms: 300");
}
END_TEST

/* So that a worker that computes for longer than timeout_ms hears of its server meanwhile. */
START_TEST(heartbeats_fit_into_the_timeout)
{
    static const uint32_t rows[][3] = {{100, 1000, 33}, {300, 1000, 100}, {300, 20, 20}};
    struct psc_options opt = quick("tcp://127.0.0.1:1");
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct psc *c;
        opt.timeout_ms = rows[i][0];
        opt.heartbeat_ms = rows[i][1];
        ck_assert_int_eq(psc_open(&opt, &c), PSC_EGONE);
        ck_assert_uint_eq(c->opt.heartbeat_ms, rows[i][2]);
        psc_close(c);
    }
}
END_TEST

enum { MOST_DESCRIPTORS = 40 };

static pid_t open_with(rlim_t n_descriptors)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    struct rlimit limit = {n_descriptors, n_descriptors};
    struct psc_options opt = quick("tcp://127.0.0.1:1");
    struct psc *c = NULL;
    int rc = setrlimit(RLIMIT_NOFILE, &limit);
    if (rc == 0)
        rc = psc_open(&opt, &c);
    psc_close(c);
    _exit(rc == PSC_EGONE || rc == PSC_ESYSTEM || rc == PSC_ENOMEM ? 0 : 1);
}

/* libzmq ends a process whose threads find none. */
START_TEST(a_shortage_of_descriptors_is_an_error)
{
    pid_t pids[MOST_DESCRIPTORS];
    int status;
    for (int n = 3; n < MOST_DESCRIPTORS; n++)
        pids[n] = open_with((rlim_t)n);
    for (int n = 3; n < MOST_DESCRIPTORS; n++) {
        ck_assert_int_eq(waitpid(pids[n], &status, 0), pids[n]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "with %d descriptors: status %d", n,
                      status);
    }
}
END_TEST

START_TEST(endpoint_file_that_is_no_use_is_named)
{
    char path[] = "/tmp/psd-test-endpoint-XXXXXX", server[64], sentence[600];
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    snprintf(server, sizeof server, "@%s", path);
    struct psc_options opt = quick(server);
    fail_open(&opt, PSC_EGONE, sentence, sizeof sentence); /* empty: psd may be about to write it */
    assert_says(sentence, path);
    assert_says(sentence, "holds no URL");
    ck_assert_int_eq((int)write(fd, "\n", 1), 1);
    fail_open(&opt, PSC_EGONE, sentence, sizeof sentence);
    assert_says(sentence, "holds no URL");
    ck_assert_int_eq((int)pwrite(fd, "pigeon://x\n", 11, 0), 11);
    fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence);
    assert_says(sentence, "'pigeon://x'");
    close(fd);
    unlink(path);
    fail_open(&opt, PSC_EGONE, sentence, sizeof sentence);
    assert_says(sentence, path);
    assert_says(sentence, "No such file");
}
END_TEST

/* Every call on a handle whose open failed: a typed error with a sentence, never a crash. */
START_TEST(handle_that_never_opened_refuses_everything)
{
    const struct psc_tensor t = {"w", 0, {4}, 1, PSC_PARAM};
    struct psc_options bad = quick(""), nowhere = quick("tcp://127.0.0.1:1");
    struct psc_metrics m = {.size = sizeof m};
    struct psc_info info = {.size = sizeof info};
    float x[4] = {0}, g[4] = {0};
    for (int i = 0; i < 2; i++) {
        struct psc *c;
        ck_assert_int_lt(psc_open(i == 0 ? &bad : &nowhere, &c), 0);
        ck_assert_int_lt(psc_begin(c, &t, 1, x), 0);
        ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EINVAL);
        assert_says(psc_error(c), "psc_step: call psc_begin first");
        ck_assert_int_eq(psc_exchange(c, g, x, 1), PSC_EINVAL);
        assert_says(psc_error(c), "psc_exchange: call psc_begin first");
        ck_assert_int_eq(psc_pull(c, NULL, x), PSC_EINVAL);
        assert_says(psc_error(c), "psc_pull: needs a call of psc_begin");
        ck_assert_int_eq(psc_init(c, NULL, x), PSC_EINVAL);
        assert_says(psc_error(c), "psc_init: call psc_begin first");
        psc_report(c, &m);
        ck_assert_int_eq(psc_rank(c), -1);
        ck_assert_int_eq(psc_size(c), 0);
        ck_assert_uint_eq(psc_clock(c), 0);
        ck_assert_int_eq(psc_info(c, &info), PSC_OK);
        ck_assert_uint_eq(info.n_floats, 0);
        psc_close(c);
    }
    psc_close(NULL);
    ck_assert_str_eq(psc_error(NULL), "no memory for a handle");
}
END_TEST

START_TEST(info_and_metrics_carry_their_size)
{
    struct psc_options opt = quick("");
    struct psc *c;
    unsigned char *small = short_struct(24), large[sizeof(struct psc_info) + 32];
    struct psc_info *info = (struct psc_info *)(void *)small;
    psc_open(&opt, &c);
    ck_assert_int_eq(psc_info(c, NULL), PSC_EINVAL);
    assert_says(psc_error(c), "psc_info");
    memset(small, 0x77, 24);
    info->size = 0;
    ck_assert_int_eq(psc_info(c, info), PSC_EINVAL);
    info->size = 16; /* an older program's: nothing beyond is written */
    ck_assert_int_eq(psc_info(c, info), PSC_OK);
    ck_assert_uint_eq(info->size, 16);
    for (int i = 16; i < 24; i++)
        ck_assert_uint_eq(small[i], 0x77);
    free(small);
    info = (struct psc_info *)(void *)large;
    info->size = sizeof large;
    ck_assert_int_eq(psc_info(c, info), PSC_OK);
    ck_assert_uint_eq(info->size, sizeof large);
    ck_assert_int_eq(psc_report(c, NULL), PSC_EINVAL);
    assert_says(psc_error(c), "psc_report");
    psc_close(c);
}
END_TEST

static void take_note(void *arg, const char *sentence)
{
    char *notes = arg;
    size_t used = strlen(notes);
    snprintf(notes + used, 1000 - used, "%s\n", sentence);
}

/* Long before the wait ends, who waits is told for what, and how long. */
START_TEST(waiting_for_nobody_is_told)
{
    static const struct {
        const char *server, *told, *end;
    } rows[] = {
        {"tcp://127.0.0.1:1", "no answer from tcp://127.0.0.1:1 yet; waiting for at most 4 s",
         "no answer from"},
        {"@no-such-file", "yet: endpoint file 'no-such-file': No such file or directory; waiting",
         "No such file"},
        {"tcp://no-such-host.invalid:1", "the host 'no-such-host.invalid' does not resolve",
         "does not resolve"},
    };
    char notes[1000] = "", sentence[600];
    struct psc_options opt = quick(rows[_i].server);
    opt.timeout_ms = 4000;
    opt.log = take_note;
    opt.log_arg = notes;
    fail_open(&opt, PSC_EGONE, sentence, sizeof sentence);
    assert_says(notes, rows[_i].told);
    assert_says(sentence, rows[_i].end);
    ck_assert_ptr_null(strstr(strchr(notes, '\n') + 1, "waiting for at most")); /* once */
}
END_TEST

START_TEST(keys_are_checked)
{
    static const char key[] = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
    struct psc_options opt = quick("tcp://127.0.0.1:1");
    struct psc_local local;
    char sentence[600];
    opt.server_key = key;
    fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence);
    assert_says(sentence, "server_key is given without key_file");
    opt.key_file = "/no/such/key";
    fail_open(&opt, PSC_EAUTH, sentence, sizeof sentence);
    assert_says(sentence, "key file '/no/such/key': No such file");
    opt.server_key = "short";
    fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence);
    assert_says(sentence, "server_key is not a public key: found 5 characters");
    psc_options_init(&opt, sizeof opt);
    psc_local_init(&local, sizeof local, "sgd");
    opt.local = &local;
    opt.key_file = "/no/such/key";
    fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence);
    assert_says(sentence, "local is allowed only for a worker");
}
END_TEST

START_TEST(results_have_names)
{
    static const char *const names[] = {"PSC_OK",       "PSC_EINVAL",       "PSC_ENOMEM",      "PSC_EGONE",
                                        "PSC_EEVICTED", "PSC_EVALUE",       "PSC_EMANIFEST",   "PSC_ERANK",
                                        "PSC_EREFUSED", "PSC_EUNSUPPORTED", "PSC_ESYSTEM",     "PSC_EDAMAGED",
                                        "PSC_ECLIQUE",  "PSC_EAUTH",        "PSC_EINTERRUPTED"};
    for (int i = 0; i < (int)ROWS(names); i++)
        ck_assert_str_eq(psc_result_name(-i), names[i]);
    ck_assert_str_eq(psc_result_name(PSC_DRAINED), "PSC_DRAINED");
    ck_assert_ptr_nonnull(psc_result_name(99));
}
END_TEST

START_TEST(library_exports_its_functions_and_nothing_else)
{
    static const char *const functions[] = {"psc_options_init",
                                            "psc_options_init_sized",
                                            "psc_open",
                                            "psc_alloc",
                                            "psc_keep",
                                            "psc_memory_free",
                                            "psc_read",
                                            "psc_write",
                                            "psc_begin",
                                            "psc_step",
                                            "psc_step_begin",
                                            "psc_ready",
                                            "psc_step_end",
                                            "psc_exchange",
                                            "psc_pull",
                                            "psc_init",
                                            "psc_push",
                                            "psc_pushpull",
                                            "psc_report",
                                            "psc_rank",
                                            "psc_size",
                                            "psc_clock",
                                            "psc_info",
                                            "psc_error",
                                            "psc_result_name",
                                            "psc_close",
                                            "psc_exchange_start",
                                            "psc_init_start",
                                            "psc_pull_start",
                                            "psc_push_start",
                                            "psc_pushpull_start",
                                            "psc_wait",
                                            "psc_init_keys",
                                            "psc_pull_keys",
                                            "psc_push_keys",
                                            "psc_pushpull_keys",
                                            "psc_init_keys_start",
                                            "psc_pull_keys_start",
                                            "psc_push_keys_start",
                                            "psc_pushpull_keys_start",
                                            "psc_test",
                                            "psc_ended_fd",
                                            "psc_workers_barrier",
                                            "psc_set_method",
                                            "psc_save",
                                            "psc_load",
                                            "psc_pull_average",
                                            "psc_pull_average_start",
                                            "psc_stop",
                                            "psc_point",
                                            "psc_local_init",
                                            "psc_saved_version",
                                            "psc_ring_options_init",
                                            "psc_ring_open",
                                            "psc_clique_rank",
                                            "psc_clique_size",
                                            "psc_clique_kind",
                                            "psc_clique_error",
                                            "psc_clique_wait",
                                            "psc_clique_close",
                                            "psc_threads_options_init",
                                            "psc_threads_open",
                                            "psc_allreduce",
                                            "psc_allreduce_start",
                                            "psc_reduce",
                                            "psc_reduce_start",
                                            "psc_broadcast",
                                            "psc_broadcast_start",
                                            "psc_barrier",
                                            "psc_barrier_start",
                                            "psc_clique_test",
                                            "psc_clique_wait_for",
                                            "psc_clique_shrink",
                                            "psc_collective_options_init",
                                            "psc_collective_run",
                                            "psc_collective_start",
                                            "psc_devices_open",
                                            "psc_devices_options_init",
                                            "psc_vectors_allreduce",
                                            "psc_vectors_close",
                                            "psc_vectors_error",
                                            "psc_vectors_open",
                                            "psc_nccl_open",
                                            "psc_vectors_options_init",
                                            "psc_mpi_options_init",
                                            "psc_mpi_world_open",
                                            "psc_mpi_world_clique",
                                            "psc_mpi_world_place",
                                            "psc_mpi_world_error",
                                            "psc_mpi_world_close",
                                            "psc_clique_create",
                                            "psc_clique_failed"};
    char line[400], name[300], type;
    size_t found = 0;
    void *library = dlopen(PSC_TEST_LIBRARY, RTLD_NOW);
    ck_assert_msg(library != NULL, "%s", dlerror());
    for (size_t i = 0; i < ROWS(functions); i++)
        ck_assert_msg(dlsym(library, functions[i]) != NULL, "%s is missing", functions[i]);
    dlclose(library);

    FILE *nm = popen("nm -D --defined-only " PSC_TEST_LIBRARY " 2>/dev/null", "r");
    ck_assert_ptr_nonnull(nm);
    while (fgets(line, sizeof line, nm) != NULL)
        if (sscanf(line, "%*s %c %299s", &type, name) == 2 && type != 'A') {
            ck_assert_msg(strncmp(name, "psc_", 4) == 0, "%s is exported", name);
            found++;
        }
    pclose(nm);
    if (found > 0) /* there is an nm */
        ck_assert_uint_eq(found, ROWS(functions));
}
END_TEST

static void check_header(const char *header, const char *compiler, const char *flags)
{
    char command[PATH_MAX + 300];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", compiler);
    if (system(command) != 0)
        return;
    snprintf(command, sizeof command, "%s %s -Wall -Wextra -Werror -pedantic -fsyntax-only %s", compiler,
             flags, header);
    ck_assert_msg(system(command) == 0, "%s", command);
}

START_TEST(header_compiles_alone)
{
    static const char *const headers[] = {PSC_TEST_HEADER, PSC_TEST_CLIQUE_HEADER};
    for (size_t i = 0; i < ROWS(headers); i++) {
        check_header(headers[i], "cc", "-x c -std=c99");
        check_header(headers[i], "cc", "-x c -std=c11");
        check_header(headers[i], "c++", "-x c++ -std=c++11");
        check_header(headers[i], "c++", "-x c++ -std=c++17");
    }
}
END_TEST

/* A newer program's option that this library has never heard of is refused, unless it is left alone. */
START_TEST(what_a_newer_program_asks_for_is_refused)
{
    _Alignas(8) unsigned char future[sizeof(struct psc_options) + 16];
    struct psc_options *opt = (struct psc_options *)(void *)future;
    char sentence[400];
    psc_options_init(opt, sizeof future);
    opt->server = "tcp://127.0.0.1:1";
    opt->timeout_ms = 100;
    future[sizeof *opt + 9] = 1;
    fail_open(opt, PSC_EINVAL, sentence, sizeof sentence);
    assert_says(sentence, "options: byte ");
    assert_says(sentence, "is not 0; this version of the library");

    _Alignas(8) unsigned char later[sizeof(struct psc_local) + 16];
    struct psc_local *local = (struct psc_local *)(void *)later;
    struct psc_options own;
    psc_local_init(local, sizeof later, "sgd");
    later[sizeof *local] = 1;
    psc_options_init(&own, sizeof own);
    own.local = local;
    fail_open(&own, PSC_EINVAL, sentence, sizeof sentence);
    assert_says(sentence, "local: byte ");

    _Alignas(8) unsigned char ring[sizeof(struct psc_ring_options) + 16];
    struct psc_ring_options *r = (struct psc_ring_options *)(void *)ring;
    struct psc_clique *q;
    psc_ring_options_init(r, sizeof ring);
    ring[sizeof ring - 1] = 1;
    ck_assert_int_eq(psc_ring_open(r, &q), PSC_EINVAL);
    assert_says(psc_clique_error(q), "ring: byte ");
    psc_clique_close(q);
}
END_TEST

/* psc_tensor as a later version may have it: the handle knows how far apart they lie. */
struct later_tensor {
    struct psc_tensor known;
    uint64_t wish;
};

static int begin_later(uint64_t wish, char *sentence, size_t size)
{
    const struct later_tensor model[] = {{{"a", 0, {3}, 1, PSC_PARAM, PSC_DECAY}, 0},
                                         {{"b", 3, {2}, 1, PSC_PARAM, PSC_DECAY}, wish}};
    struct psc_local local;
    struct psc_options opt;
    struct psc *c;
    float x[5] = {0};
    psc_local_init(&local, sizeof local, "sgd");
    (psc_options_init_sized)(&opt, sizeof opt, sizeof *model);
    opt.local = &local;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    int rc = psc_begin(c, &model[0].known, 2, x);
    snprintf(sentence, size, "%s", psc_error(c));
    psc_close(c);
    return rc;
}

START_TEST(tensors_may_grow)
{
    char sentence[400];
    ck_assert_msg(begin_later(0, sentence, sizeof sentence) == PSC_OK, "%s", sentence);
    ck_assert_int_eq(begin_later(1, sentence, sizeof sentence), PSC_EINVAL);
    assert_says(sentence, "tensor 1: byte ");
    struct psc_options opt;
    (psc_options_init)(&opt, sizeof opt); /* of a program that knows no other */
    ck_assert_uint_eq(opt.tensor_size, 0);
    psc_options_init(&opt, sizeof opt);
    ck_assert_uint_eq(opt.tensor_size, sizeof(struct psc_tensor));
    opt.server = "tcp://127.0.0.1:1";
    opt.tensor_size = 8;
    fail_open(&opt, PSC_EINVAL, sentence, sizeof sentence);
    assert_says(sentence, "options: tensor_size 8");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-open");
    TCase *tc = tcase_create("open");
    tcase_add_test(tc, defaults_are_as_the_header_says);
    tcase_add_test(tc, struct_of_another_size_is_understood);
    tcase_add_test(tc, options_without_a_size_are_refused);
    tcase_add_loop_test(tc, bad_option_is_named, 0, ROWS(bad_options));
    tcase_add_test(tc, long_server_is_refused);
    tcase_add_test(tc, nowhere_times_out);
    tcase_add_test(tc, heartbeats_fit_into_the_timeout);
    tcase_add_test(tc, a_shortage_of_descriptors_is_an_error);
    tcase_add_test(tc, endpoint_file_that_is_no_use_is_named);
    tcase_add_test(tc, handle_that_never_opened_refuses_everything);
    tcase_add_test(tc, info_and_metrics_carry_their_size);
    tcase_add_loop_test(tc, waiting_for_nobody_is_told, 0, 3);
    tcase_add_test(tc, keys_are_checked);
    tcase_add_test(tc, results_have_names);
    tcase_add_test(tc, library_exports_its_functions_and_nothing_else);
    tcase_add_test(tc, header_compiles_alone);
    tcase_add_test(tc, what_a_newer_program_asks_for_is_refused);
    tcase_add_test(tc, tensors_may_grow);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
