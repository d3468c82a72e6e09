/* psworker --partitions, whole, over the real library: what each partition has as x after every step is
 * watched on the way to the library's step. */
#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/machine.h"
#include "nets/worker/run.h"
#include "tests/support/system/daemon.h"
#include "tests/support/unit.h"

enum { PARTS = 2, STEPS = 4, MOST_FLOATS = 500000 };

/* Of each partition, in the order of their handles' ranks in the clique. */
struct seen {
    const struct psc *handle;
    uint64_t steps;
    const float *begun_x; /* of the step in progress */
    cpu_set_t cpus;       /* on which the thread that makes the steps may run */
    size_t n_floats;
    float x[MOST_FLOATS]; /* after the last step */
};

static struct seen seen[PARTS];
static int n_seen;
static uint64_t raise_at; /* the step before which the process is asked to stop; 0: never */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct seen *seen_of(const struct psc *c)
{
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < n_seen && seen[i].handle != c)
        i++;
    ck_assert_int_lt(i, PARTS);
    if (i == n_seen)
        seen[n_seen++].handle = c;
    pthread_mutex_unlock(&lock);
    return &seen[i];
}

int __real_psc_step(struct psc *c, float *x, const float *g, size_t n_samples);
int __wrap_psc_step(struct psc *c, float *x, const float *g, size_t n_samples);
int __real_psc_step_begin(struct psc *c, float *x, const float *g, size_t n_samples);
int __wrap_psc_step_begin(struct psc *c, float *x, const float *g, size_t n_samples);
int __real_psc_step_end(struct psc *c);
int __wrap_psc_step_end(struct psc *c);

/* The loss of one partition's gradient number spoils_at, from 1, is not finite; 0: none. */
static unsigned spoils_at;
static _Thread_local unsigned n_gradients;
static atomic_bool spoilt;

int __real_cnn_net_gradient_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                               const struct cnn_ready *ready, struct cnn_score *score);
int __wrap_cnn_net_gradient_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                               const struct cnn_ready *ready, struct cnn_score *score);

int __wrap_cnn_net_gradient_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                               const struct cnn_ready *ready, struct cnn_score *score)
{
    int rc = __real_cnn_net_gradient_of(net, x, batch, g, ready, score);
    if (++n_gradients == spoils_at && !atomic_exchange(&spoilt, true))
        score->loss = NAN;
    return rc;
}

static struct seen *before_step(struct psc *c)
{
    struct seen *s = seen_of(c);
    if (raise_at != 0 && s == &seen[0] && s->steps + 1 == raise_at)
        kill(getpid(), SIGTERM);
    return s;
}

static int after_step(struct psc *c, struct seen *s, const float *x, int rc)
{
    struct psc_info info = {.size = sizeof info};
    if (rc < 0)
        return rc;
    psc_info(c, &info);
    ck_assert_uint_le(info.n_floats, MOST_FLOATS);
    s->steps++;
    ck_assert_int_eq(sched_getaffinity(0, sizeof s->cpus, &s->cpus), 0);
    s->n_floats = info.n_floats;
    memcpy(s->x, x, info.n_floats * sizeof *x);
    return rc;
}

int __wrap_psc_step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    struct seen *s = before_step(c);
    return after_step(c, s, x, __real_psc_step(c, x, g, n_samples));
}

int __wrap_psc_step_begin(struct psc *c, float *x, const float *g, size_t n_samples)
{
    seen_of(c)->begun_x = x;
    return __real_psc_step_begin(c, x, g, n_samples);
}

int __wrap_psc_step_end(struct psc *c)
{
    struct seen *s = before_step(c);
    return after_step(c, s, s->begun_x, __real_psc_step_end(c));
}

static int parse(const char *line, struct cnn_worker_args *args, struct ps_error *err)
{
    static char words[1024];
    char *argv[64] = {"psworker"}, *rest = words;
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        argv[argc++] = word;
    argv[argc] = NULL;
    return cnn_worker_args_parse(argc, argv, args, err);
}

static int run_worker(const char *line)
{
    struct cnn_worker_args args;
    struct ps_error err = {""};
    memset(seen, 0, sizeof seen);
    n_seen = 0;
    ck_assert_msg(parse(line, &args, &err) == 0, "%s", err.text);
    int rc = cnn_worker_run(&args);
    sigset_t blocked; /* by the worker, and else by the next psd */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
    return rc;
}

static void assert_same_x(void)
{
    ck_assert_int_eq(n_seen, PARTS);
    ck_assert_uint_eq(seen[0].steps, seen[1].steps);
    ck_assert_int_eq(CPU_COUNT(&seen[0].cpus), 1); /* each on a core of its own */
    ck_assert_int_eq(CPU_COUNT(&seen[1].cpus), 1);
    ck_assert(!CPU_EQUAL(&seen[0].cpus, &seen[1].cpus));
    ck_assert_int_eq(memcmp(seen[0].x, seen[1].x, seen[0].n_floats * sizeof seen[0].x[0]), 0);
}

/* The largest distance between two vectors, as a part of the largest value. */
static double distance(const float *x, const float *y, size_t n)
{
    double most = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
        largest = fmax(largest, fabs((double)x[i]));
    }
    return most / largest;
}

/* Two partitions of half a batch each make the steps of one worker of the whole batch: the same images with
 * the same crops and the same elements dropped, and gradients that differ in the order of their sums. 4
 * steps of 0.01 times sums of some thousand products leave distances of some 1e-7; 1e-5 is above those
 * of all of them, and a single other image is far above that. Batch normalisation sees half batches: there
 * the distance is large, and the test says so.
 *
 * psd makes the steps here; the members of a clique see the same x after each. */
static const struct {
    const char *net, *data, *backend;
    bool has_batchnorm;
} divided[] = {
    {"lenet", "digits", "ref", false},
    {"lenet", "digits", NULL, false},
    {"linear", "digits", NULL, false},
    {"cifar7", "synthetic:3x28x28:10", NULL, false}, /* dropout */
    {"resnet8", "synthetic:3x32x32:10", NULL, true},
};

/* One run under a psd of its own, which has plain SGD by one client. */
static void run_served(int row, const char *more)
{
    static const char *const settings[] = {"method=sync-sgd", "learning_rate=0.01", NULL};
    struct daemon d = {0};
    char line[512];
    ck_assert_int_eq(daemon_prepare(&d, PSD, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    snprintf(line, sizeof line,
             "--server %s --net %s --data %s --batch 16 --steps %d --threads 1 --seed 3%s%s%s", d.endpoint,
             divided[row].net, divided[row].data, STEPS, divided[row].backend != NULL ? " --backend " : "",
             divided[row].backend != NULL ? divided[row].backend : "", more);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(seen[0].steps, STEPS);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, UNIT_HANG_S), 0);
    daemon_remove(&d);
}

START_TEST(partitions_make_the_steps_of_the_undivided_worker)
{
    static float undivided[MOST_FLOATS];
    run_served(_i, "");
    ck_assert_int_eq(n_seen, 1);
    memcpy(undivided, seen[0].x, sizeof undivided);
    run_served(_i, " --partitions 2");
    assert_same_x();
    double far = distance(undivided, seen[0].x, seen[0].n_floats);
    if (divided[_i].has_batchnorm)
        ck_assert_double_gt(far, 1e-5);
    else
        ck_assert_double_lt(far, 1e-5);
}
END_TEST

#define GRATINGS                                                                                             \
    "--net linear --data synthetic:1x28x28:10" /* drawn faster than digits, with a small test set */
#define LINEAR "--method d-sync " GRATINGS " --batch 32 --every 86400 --threads 1"

/* One partition is the worker, bit for bit. */
START_TEST(a_single_partition_changes_no_bit)
{
    static float undivided[MOST_FLOATS];
    ck_assert_int_eq(run_worker(LINEAR " --steps 10"), CNN_EXIT_OK);
    memcpy(undivided, seen[0].x, sizeof undivided);
    ck_assert_int_eq(run_worker(LINEAR " --steps 10 --partitions 1"), CNN_EXIT_OK);
    ck_assert_uint_eq(seen[0].steps, 10);
    ck_assert_int_eq(memcmp(undivided, seen[0].x, sizeof undivided), 0);
}
END_TEST

/* A signal ends all partitions after the same step, wherever they are. */
START_TEST(a_signal_stops_all_after_the_same_step)
{
    raise_at = 9;
    ck_assert_int_eq(run_worker(LINEAR " --steps 1000000 --partitions 2"), CNN_EXIT_OK);
    ck_assert_uint_ge(seen[0].steps, 9);
    assert_same_x();
}
END_TEST

static void remove_states(const char *path)
{
    static const char *const ends[] = {"", ".1", ".before", ".1.before"};
    char name[128];
    for (size_t i = 0; i < ROWS(ends); i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

/* Runs to that step, from the states and to states at path; "": none. */
static int run_stated(const char *options, unsigned steps, const char *path)
{
    char line[512];
    snprintf(line, sizeof line, "%s " GRATINGS " --batch 32 --threads 1 --partitions 2 --steps %u%s%s",
             options, steps, *path != '\0' ? " --state " : "", path);
    return run_worker(line);
}

static const char *const resumed[] = {"--method d-sync --every 86400",
                                      "--method pipe-sgd --pipeline 3 --pipeline-warmup 2 --every 86400"};

/* Each partition saves its part; with all of them the run goes on as if it had not ended. */
START_TEST(a_saved_state_goes_on_bit_for_bit)
{
    static float straight[MOST_FLOATS];
    char path[64], part[80];
    snprintf(path, sizeof path, "/tmp/psd-test-parts-%ld", (long)getpid());
    ck_assert_int_eq(run_stated(resumed[_i], 14, ""), CNN_EXIT_OK);
    memcpy(straight, seen[0].x, sizeof straight);
    ck_assert_int_eq(run_stated(resumed[_i], 6, path), CNN_EXIT_OK);
    ck_assert_int_eq(run_stated(resumed[_i], 14, path), CNN_EXIT_OK);
    ck_assert_uint_eq(seen[0].steps, 8);
    assert_same_x();
    ck_assert_int_eq(memcmp(straight, seen[0].x, sizeof straight), 0);
    snprintf(part, sizeof part, "%s.1", path);
    ck_assert_int_eq(unlink(part), 0); /* as if it was killed while it saved: the other's is 8 steps ahead */
    ck_assert_int_eq(run_stated(resumed[_i], 20, path), CNN_EXIT_USAGE);
    ck_assert_int_eq(n_seen, 0);
    strcat(part, ".before");
    ck_assert_int_eq(unlink(part), 0); /* one of two is missing */
    ck_assert_int_eq(run_stated(resumed[_i], 20, path), CNN_EXIT_USAGE);
    remove_states(path);
}
END_TEST

static const char *const otherwise[] = {"--batch 32", "--batch 16", "--batch 16 --partitions 1",
                                        "--batch 64 --partitions 4"};

/* Half of what was saved would be left out, or of what goes on be missing, however large the parts are. */
START_TEST(a_state_goes_on_with_as_many_parts)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/tmp/psd-test-parts-%ld", (long)getpid());
    ck_assert_int_eq(run_stated(resumed[0], 6, path), CNN_EXIT_OK);
    snprintf(line, sizeof line, "%s " GRATINGS " --threads 1 --steps 10 --state %s %s", resumed[0], path,
             otherwise[_i]);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_USAGE);
    ck_assert_int_eq(n_seen, 0);
    ck_assert_int_eq(run_stated(resumed[0], 10, path), CNN_EXIT_OK);
    remove_states(path);
}
END_TEST

/* A second one, without values, would hide the first from TensorBoard. */
START_TEST(the_first_partition_alone_has_an_event_file)
{
    char dir[] = "/tmp/psd-test-events-XXXXXX", options[128], line[64];
    glob_t files;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(options, sizeof options, "%s --tensorboard %s", resumed[0], dir);
    ck_assert_int_eq(run_stated(options, 6, ""), CNN_EXIT_OK);
    snprintf(line, sizeof line, "%s/*/*", dir);
    ck_assert_int_eq(glob(line, 0, NULL, &files), 0);
    ck_assert_uint_eq(files.gl_pathc, 1);
    globfree(&files);
    snprintf(line, sizeof line, "rm -r %s", dir);
    ck_assert_int_eq(system(line), 0);
}
END_TEST

/* With psd, states that belong to one version of the center are found among those that were saved before. */
START_TEST(states_of_a_worker_that_was_killed_while_it_saved)
{
    static const char *const settings[] = {"method=sync-sgd", NULL};
    struct daemon d = {0};
    char path[64], part[80], options[128];
    snprintf(path, sizeof path, "/tmp/psd-test-parts-%ld", (long)getpid());
    snprintf(part, sizeof part, "%s%s", path, _i == 0 ? "" : ".1");
    ck_assert_int_eq(daemon_prepare(&d, PSD, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    snprintf(options, sizeof options, "--server %s", d.endpoint);
    ck_assert_int_eq(run_stated(options, 6, path), CNN_EXIT_OK);
    ck_assert_int_eq(run_stated(options, 10, path), CNN_EXIT_OK);
    ck_assert_int_eq(unlink(part), 0);
    ck_assert_int_eq(run_stated(options, 14, path), CNN_EXIT_OK);
    ck_assert_uint_eq(seen[0].steps, 8);
    assert_same_x();
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, UNIT_HANG_S), 0);
    daemon_remove(&d);
    remove_states(path);
}
END_TEST

/* With psd: one client with two members, whatever the method; by `vectors` each partition has its own x. */
static const struct {
    const char *const settings[4];
    bool own_x;
} served[] = {
    {{"method=async-easgd", "period=3", NULL}, false},
    {{"method=sync-sgd", NULL}, false},
    {{"method=sync-easgd", "clique.mode=vectors", "period=2", NULL}, true},
};

START_TEST(partitions_are_one_client_of_psd)
{
    struct daemon d = {0};
    char line[256];
    ck_assert_int_eq(daemon_prepare(&d, PSD, served[_i].settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    snprintf(line, sizeof line, "--server %s " GRATINGS " --batch 32 --steps 12 --threads 1 --partitions 2",
             d.endpoint);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(seen[0].steps, 12);
    if (served[_i].own_x)
        ck_assert_int_ne(memcmp(seen[0].x, seen[1].x, seen[0].n_floats * sizeof seen[0].x[0]), 0);
    else
        assert_same_x();
    ck_assert_uint_eq(seen[1].steps, 12);
    ck_assert_double_gt(daemon_number(&d, "/status", "center.version"), 0);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, UNIT_HANG_S), 0);
    daemon_remove(&d);
}
END_TEST

/* psworker's part of a state: the second of ten numbers, before the checksum. */
static uint64_t draws_in(const char *path)
{
    uint64_t draws = 0;
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, -8 * (1 + 10 - 1), SEEK_END), 0);
    ck_assert_uint_eq(fread(&draws, sizeof draws, 1, f), 1);
    fclose(f);
    return draws;
}

/* The step is refused for all, and all go on with the same batches. */
START_TEST(partitions_draw_alike_after_a_loss_that_is_not_finite)
{
    static const char *const settings[] = {"method=sync-sgd", NULL};
    struct daemon d = {0};
    char path[64], part[80], options[128];
    snprintf(path, sizeof path, "/tmp/psd-test-parts-%ld", (long)getpid());
    snprintf(part, sizeof part, "%s.1", path);
    ck_assert_int_eq(daemon_prepare(&d, PSD, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    snprintf(options, sizeof options, "--server %s --accumulate 3", d.endpoint);
    spoils_at = 4; /* the first of the second step */
    ck_assert_int_eq(run_stated(options, 4, path), CNN_EXIT_OK);
    ck_assert(atomic_load(&spoilt));
    ck_assert_uint_eq(draws_in(path), (4 + 1) * 3);
    ck_assert_uint_eq(draws_in(part), (4 + 1) * 3);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, UNIT_HANG_S), 0);
    daemon_remove(&d);
    remove_states(path);
}
END_TEST

static const struct {
    const char *line, *says;
} refused[] = {
    {"--method sgd --partitions 2", "--method sgd, which is for a single worker"},
    {"--method d-sync --partitions 0", "a number from 1 to 1024, or auto"},
    {"--method d-sync --partitions many", "\"many\"; allowed"},
    {"--server tcp://h:1 --evaluate --partitions 2", "--evaluate and --partitions: both given"},
    {"--predict --init f --partitions 2", "--predict and --partitions: both given"},
    {"--method d-sync --clique ring --members 2 --rendezvous file:x --partitions 2",
     "--clique and --partitions: both given"},
    {"--method d-sync --backend cuda --partitions 2", "--partitions: given with --backend cuda"},
};

START_TEST(what_does_not_go_together_is_refused)
{
    for (size_t i = 0; i < ROWS(refused); i++) {
        struct cnn_worker_args args;
        struct ps_error err = {""};
        ck_assert_int_lt(parse(refused[i].line, &args, &err), 0);
        assert_says(err.text, refused[i].says);
    }
    ck_assert_int_eq(run_worker("--method d-sync --net linear --batch 33 --partitions 2"), CNN_EXIT_USAGE);
    ck_assert_int_eq(run_worker("--method d-sync --net linear --batch 2048 --partitions 1024"),
                     CNN_EXIT_USAGE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("partitions");
    TCase *steps = tcase_create("steps"), *threads = tcase_create("threads");
    tcase_set_timeout(steps, UNIT_HANG_S);
    tcase_set_timeout(threads, UNIT_HANG_S);
    if (cnn_machine_cores() >= PARTS) { /* on one core there is nothing to divide */
        tcase_add_loop_test(steps, partitions_make_the_steps_of_the_undivided_worker, 0, (int)ROWS(divided));
        tcase_add_test(threads, a_signal_stops_all_after_the_same_step);
        tcase_add_loop_test(threads, a_state_goes_on_with_as_many_parts, 0, (int)ROWS(otherwise));
        tcase_add_loop_test(threads, a_saved_state_goes_on_bit_for_bit, 0, (int)ROWS(resumed));
        tcase_add_test(threads, the_first_partition_alone_has_an_event_file);
        tcase_add_loop_test(threads, states_of_a_worker_that_was_killed_while_it_saved, 0, PARTS);
        tcase_add_test(threads, partitions_draw_alike_after_a_loss_that_is_not_finite);
        tcase_add_loop_test(threads, partitions_are_one_client_of_psd, 0, (int)ROWS(served));
    }
    tcase_add_test(threads, a_single_partition_changes_no_bit);
    tcase_add_test(threads, what_does_not_go_together_is_refused);
    suite_add_tcase(suite, steps);
    suite_add_tcase(suite, threads);
    return unit_run(suite);
}
