/* psworker, whole, over a server that a test plans: how it ends, and what it has done until then. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/machine.h"
#include "nets/worker/run.h"
#include "proto/clock.h"
#include "tests/nets/data/cifar_files.h"
#include "tests/nets/data/suite.h"
#include "tests/nets/worker/fake_server.h"
#include "tests/support/event_reader.h"

static void setup(void)
{
    memset(&fake_seen, 0, sizeof fake_seen);
    fake_plan = (struct fake_plan){.rate = 0.01f};
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
    ck_assert_msg(parse(line, &args, &err) == 0, "%s", err.text);
    int rc = cnn_worker_run(&args);
    ck_assert_uint_eq(fake_seen.closes, 1);
    return rc;
}

/* Its images are drawn ten times as fast as digits, and its test set is small. */
#define LINEAR   "--server tcp://127.0.0.1:1 --net linear --data synthetic:1x28x28:10"
#define EVALUATE LINEAR " --evaluate"
#define TRAIN    LINEAR " --batch 32 --steps 40"

START_TEST(training_takes_the_steps_asked_for)
{
    double begin = ps_now_s();
    ck_assert_int_eq(run_worker(TRAIN " --rank 3"), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 40);
    ck_assert_int_eq(fake_seen.kind, PSC_WORKER);
    ck_assert_int_eq(fake_seen.rank, 3);
    ck_assert_uint_eq(fake_seen.n_tensors, 2);
    ck_assert_uint_ge(fake_seen.reports, 1); /* the last one, and one in two seconds */
    ck_assert_double_le((double)fake_seen.reports, 1 + (ps_now_s() - begin) / 2);
}
END_TEST

/* A bound from below: no machine is so busy that it could fail. */
START_TEST(a_gradient_takes_as_long_as_it_is_told_to)
{
    double begin = ps_now_s();
    ck_assert_int_eq(run_worker(LINEAR " --batch 32 --steps 5 --step-ms 30"), CNN_EXIT_OK);
    ck_assert_double_ge(ps_now_s() - begin, 5 * 0.03);
    ck_assert_uint_eq(fake_seen.steps, 5);
}
END_TEST

START_TEST(an_epoch_is_the_training_set)
{
    ck_assert_int_eq(run_worker(LINEAR " --batch 4096 --epochs 1"), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 15); /* 60,000 / 4096, up */
}
END_TEST

/* Of all workers together, as scripts/quickstart and scripts/compare count: 60,000 images. Who comes
 * later shortens what is left; who has left has done its share. */
static const struct {
    uint32_t workers, joined;
    uint64_t join_at, steps;
} together[] = {
    {1, 0, 0, 15}, {4, 0, 0, 4}, {16, 0, 0, 1}, {1, 3, 7, 9}, {3, 1, 2, 5},
};

START_TEST(an_epoch_is_a_pass_of_all_workers_together)
{
    fake_plan.workers = together[_i].workers;
    fake_plan.joined = together[_i].joined;
    fake_plan.join_at = together[_i].join_at;
    ck_assert_int_eq(run_worker(LINEAR " --batch 4096 --epochs 1"), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, together[_i].steps);
    ck_assert_uint_eq(fake_seen.steps_wanted, together[_i].steps);
}
END_TEST

#define EPOCH LINEAR " --batch 4096 --epochs 1 --state %s"

static const int lacks[] = {0, 2, 3}; /* fields that states of earlier versions lack */

/* What all had passed is in the state: the others may have been fewer since. A state of an earlier version
 * lacks it. */
START_TEST(a_saved_state_goes_on_in_its_epoch)
{
    char path[64], line[256];
    struct stat file;
    snprintf(path, sizeof path, "/tmp/psd-test-epoch-%ld", (long)getpid());
    snprintf(line, sizeof line, EPOCH, path);
    fake_plan.workers = 3; /* five steps */
    fake_plan.step = PSC_DRAINED;
    fake_plan.step_from = 3;
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 3);
    ck_assert_int_eq(stat(path, &file), 0);
    setup();
    ck_assert_int_eq(truncate(path, file.st_size - 8 * lacks[_i]), 0);
    fake_plan.workers = _i == 2 ? 3 : 1; /* 60,000 less 3 x 12,288 */
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, _i == 2 ? 2 : 6);
    unlink(path);
    snprintf(line, sizeof line, "%s.before", path);
    unlink(line);
}
END_TEST

/* Both files are beside the one that it leads to, and the link stays. */
START_TEST(a_state_is_saved_where_a_link_leads)
{
    char dir[] = "/tmp/psd-test-link-XXXXXX", link[64], file[64], line[256];
    struct stat st;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/there", dir);
    ck_assert_int_eq(mkdir(file, 0700), 0);
    snprintf(link, sizeof link, "%s/here", dir);
    ck_assert_int_eq(symlink("there/state", link), 0);
    snprintf(line, sizeof line, TRAIN " --state %s", link);
    for (int i = 0; i < 2; i++) {
        setup();
        fake_plan.step = PSC_DRAINED;
        fake_plan.step_from = 3;
        ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
        ck_assert_int_eq(lstat(link, &st), 0);
        ck_assert(S_ISLNK(st.st_mode));
    }
    snprintf(line, sizeof line, "%s/state.before", file);
    ck_assert_int_eq(unlink(line), 0);
    snprintf(line, sizeof line, "%s/state", file);
    ck_assert_int_eq(unlink(line), 0);
    ck_assert_int_eq(unlink(link), 0);
    ck_assert_int_eq(rmdir(file), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(a_drain_ends_training_well)
{
    fake_plan.step = PSC_DRAINED;
    fake_plan.step_from = 7;
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 7);
}
END_TEST

START_TEST(a_drain_before_the_first_step)
{
    fake_plan.begin = PSC_DRAINED;
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 0);
}
END_TEST

/* psd lets nobody in any more: libpsclient loads no state, which stays as it is for the next run. */
START_TEST(a_drain_before_a_state_is_resumed)
{
    char path[] = "/tmp/psd-test-drain-XXXXXX", line[256], text[8] = "";
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, "state", 5), 5);
    snprintf(line, sizeof line, TRAIN " --state %s", path);
    fake_plan.begin = PSC_DRAINED;
    fake_plan.load = PSC_EINVAL;
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.loads + fake_seen.saves + fake_seen.steps, 0);
    ck_assert_int_eq(pread(fd, text, sizeof text - 1, 0), 5);
    ck_assert_str_eq(text, "state");
    close(fd);
    unlink(path);
}
END_TEST

START_TEST(a_signal_ends_training_well)
{
    fake_plan.raise_at = 3;
    ck_assert_int_eq(run_worker(LINEAR " --batch 32 --epochs 100000"), CNN_EXIT_OK);
    ck_assert_uint_ge(fake_seen.steps, 3);
}
END_TEST

/* However deep the folder of the endpoint file lies. */
START_TEST(a_clique_meets_at_the_whole_address_of_its_server)
{
    char line[900], folder[701] = "";
    memset(folder, 'f', sizeof folder - 1);
    snprintf(line, sizeof line, "--server @/%s/endpoint --net linear --clique ring --members 2", folder);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_INTERNAL); /* the fake has no cliques */
    snprintf(line, sizeof line, "psd:@/%s/endpoint", folder);
    ck_assert_str_eq(fake_seen.rendezvous, line);
}
END_TEST

static const struct {
    int open, begin, step;
    int exit;
} failures[] = {
    {.open = PSC_EGONE, .exit = CNN_EXIT_SERVER},     {.open = PSC_EINVAL, .exit = CNN_EXIT_USAGE},
    {.open = PSC_ERANK, .exit = CNN_EXIT_USAGE},      {.open = PSC_EUNSUPPORTED, .exit = CNN_EXIT_SERVER},
    {.begin = PSC_EMANIFEST, .exit = CNN_EXIT_USAGE}, {.begin = PSC_EGONE, .exit = CNN_EXIT_SERVER},
    {.step = PSC_EGONE, .exit = CNN_EXIT_SERVER},     {.step = PSC_EEVICTED, .exit = CNN_EXIT_SERVER},
    {.step = PSC_EREFUSED, .exit = CNN_EXIT_SERVER},  {.step = PSC_ENOMEM, .exit = CNN_EXIT_INTERNAL},
    {.step = PSC_ESYSTEM, .exit = CNN_EXIT_INTERNAL},
};

START_TEST(failures_have_their_exit_status)
{
    fake_plan.open = failures[_i].open;
    fake_plan.begin = failures[_i].begin;
    fake_plan.step = failures[_i].step;
    fake_plan.step_from = failures[_i].step != 0 ? 5 : 0;
    ck_assert_int_eq(run_worker(TRAIN), failures[_i].exit);
    ck_assert_uint_eq(fake_seen.steps, failures[_i].step != 0 ? 5 : 0);
}
END_TEST

START_TEST(ten_refused_vectors_in_a_row_are_a_divergence)
{
    fake_plan.step = PSC_EVALUE;
    fake_plan.step_from = 4;
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_DIVERGED);
    ck_assert_uint_eq(fake_seen.steps, 13);
    ck_assert_uint_eq(fake_seen.pulls, 9);
}
END_TEST

/* Every step leaves NaN, the next loss is NaN, the center is taken, the step after that is good: never ten in
 * a row. */
START_TEST(a_loss_that_is_not_finite_takes_the_center)
{
    fake_plan.rate = NAN;
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 40);
    ck_assert_uint_eq(fake_seen.pulls, 39);
}
END_TEST

/* Where the gradient leaves in parts, the same steps. */
START_TEST(a_gradient_in_parts_is_the_same)
{
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_OK);
    float whole = fake_seen.x_sum;
    setup();
    fake_plan.early = 1;
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 40);
    ck_assert_mem_eq(&fake_seen.x_sum, &whole, sizeof whole);
}
END_TEST

/* A run that is ended and taken up again computes what one run would have: same data, same bits. */
START_TEST(training_goes_on_from_its_state)
{
    char dir[] = "/tmp/psd-test-worker-XXXXXX", path[64], line[256];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/state", dir);
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_OK);
    float straight = fake_seen.x_sum;

    setup();
    fake_plan.ask_at = 7;
    snprintf(line, sizeof line, LINEAR " --batch 32 --steps 15 --state %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.loads, 0); /* there is none yet */
    ck_assert_uint_eq(fake_seen.saves, 2); /* once asked for, once at the end */
    ck_assert_uint_eq(fake_seen.waits, 1);

    setup();
    snprintf(line, sizeof line, TRAIN " --state %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.loads, 1);
    ck_assert_uint_eq(fake_seen.steps, 25);
    ck_assert_mem_eq(&fake_seen.x_sum, &straight, sizeof straight);

    setup();
    snprintf(line, sizeof line, TRAIN " --seed 2 --state %s", path); /* another order of the images */
    ck_assert_int_eq(run_worker(line), CNN_EXIT_USAGE);
    setup();
    snprintf(line, sizeof line, TRAIN " --accumulate 2 --state %s", path); /* another step */
    ck_assert_int_eq(run_worker(line), CNN_EXIT_USAGE);
    setup();
    fake_plan.load = PSC_EDAMAGED;
    snprintf(line, sizeof line, TRAIN " --state %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_DATA);
    ck_assert_uint_eq(fake_seen.saves, 0);
    unlink(path);
    rmdir(dir);
}
END_TEST

static const struct {
    const char *line; /* without its steps and state */
    uint32_t early;
} cut_off[] = {
    {LINEAR " --batch 32", 0},
    {LINEAR " --batch 8 --accumulate 4", 0},
    {"--server tcp://127.0.0.1:1 --net resnet8:size=16 --data synthetic:3x16x16:10 --batch 2", 0},
    {"--server tcp://127.0.0.1:1 --net resnet8:size=16 --data synthetic:3x16x16:10 --batch 2", 1},
};

/* psd ends within a step, and has nothing of it: a run that resumes makes it, with the same batch. */
START_TEST(a_step_that_psd_has_not_taken_is_made_by_the_next_run)
{
    char dir[] = "/tmp/psd-test-worker-XXXXXX", line[256], path[64];
    fake_plan.early = cut_off[_i].early;
    snprintf(line, sizeof line, "%s --steps 6", cut_off[_i].line);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    float straight = fake_seen.x_sum;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/state", dir);
    snprintf(line, sizeof line, "%s --steps 6 --state %s", cut_off[_i].line, path);
    setup();
    fake_plan.early = cut_off[_i].early;
    fake_plan.step = PSC_DRAINED;
    fake_plan.step_from = 3;
    fake_plan.error = "the session has ended";
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 3);

    setup();
    fake_plan.early = cut_off[_i].early;
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.loads, 1);
    ck_assert_uint_eq(fake_seen.steps, 4); /* two of six were taken */
    ck_assert_mem_eq(&fake_seen.x_sum, &straight, sizeof straight);
    snprintf(line, sizeof line, "%s.before", path);
    unlink(line);
    unlink(path);
    rmdir(dir);
}
END_TEST

START_TEST(a_pull_that_fails_while_starting_over)
{
    fake_plan.rate = NAN;
    fake_plan.pull = PSC_EGONE;
    fake_plan.pull_from = 2;
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_SERVER);
}
END_TEST

START_TEST(data_and_net_must_fit_and_exist)
{
    ck_assert_int_eq(run_worker(TRAIN " --data mnist:/nonexistent"), CNN_EXIT_DATA);
    fake_seen.closes = 0;
    ck_assert_int_eq(run_worker(TRAIN " --data imagenet"), CNN_EXIT_USAGE);
    fake_seen.closes = 0;
    ck_assert_int_eq(run_worker(TRAIN " --backend abacus"), CNN_EXIT_USAGE);
}
END_TEST

START_TEST(a_state_that_could_not_be_saved_is_refused_before)
{
    ck_assert_int_eq(run_worker(TRAIN " --state no/such/folder/w0.state"), CNN_EXIT_USAGE);
    ck_assert_uint_eq(fake_seen.steps, 0);
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --state /tmp"), CNN_EXIT_USAGE);
    ck_assert_uint_eq(fake_seen.steps, 0);
}
END_TEST

/* The server is told of nothing: no step is taken. */
static const char *const unfit[] = {
    "--net resnet18:classes=5,size=64 --data synthetic:3x64x64:10", /* labels beyond it */
    "--net resnet18:classes=10,size=64 --data synthetic:3x32x32:10",
    "--net resnet18:classes=10,size=64 --data synthetic:1x64x64:10",
    "--net resnet50:classes=10,size=1024 --data synthetic:3x1024x1024:10 --batch 4096",
};

START_TEST(what_cannot_be_trained_is_refused_before)
{
    char line[256];
    snprintf(line, sizeof line, "--server tcp://127.0.0.1:1 --steps 3 %s", unfit[_i]);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_USAGE);
    ck_assert_uint_eq(fake_seen.steps, 0);
}
END_TEST

/* The net's size decides: cifar7 takes crops of 28 x 28, alexnet-cifar the padded 32 x 32, linear neither. */
START_TEST(cifar10_trains_and_is_evaluated)
{
    char dir[64], line[256];
    cifar_make_dir(dir);
    snprintf(line, sizeof line,
             "--server tcp://127.0.0.1:1 --net cifar7 --batch 8 --epochs 2 --data cifar10:%s", dir);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 5); /* 2 x 20 images / 8 */
    fake_seen.closes = 0;
    snprintf(line, sizeof line,
             "--server tcp://127.0.0.1:1 --net cifar7 --evaluate --once --batch 3 --data cifar10:%s", dir);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    fake_seen.closes = 0;
    snprintf(line, sizeof line, TRAIN " --data cifar10:%s", dir);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_USAGE); /* one channel */
    cifar_remove_dir(dir);
}
END_TEST

/* The same gradients, hence the same vector, however the batches were made. */
START_TEST(prefetch_changes_no_bit)
{
    static const char *const ways[] = {"0", "1", "7 --data-threads 3"};
    float first = 0;
    for (int i = 0; i < 3; i++) {
        char line[256];
        fake_seen.closes = 0;
        snprintf(line, sizeof line, TRAIN " --prefetch %s", ways[i]);
        ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
        if (i == 0)
            first = fake_seen.x_sum;
        ck_assert(first != 0);
        ck_assert_mem_eq(&fake_seen.x_sum, &first, sizeof first);
    }
}
END_TEST

/* A safetensors file for linear, whose tensor `name` has one more row than `rows`. */
static void write_first_point(const char *path, const char *name, int rows)
{
    char header[200];
    static const float values[11 * 784] = {0.625f};
    int n = snprintf(header, sizeof header,
                     "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%d,784],\"data_offsets\":[0,%d]}}", name, rows,
                     rows * 784 * 4);
    uint64_t len = (uint64_t)n;
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fwrite(&len, sizeof len, 1, f);
    fwrite(header, 1, len, f);
    fwrite(values, sizeof *values, (size_t)rows * 784, f);
    ck_assert_int_eq(fclose(f), 0);
}

/* Both of its tensors, of one value. */
static void write_all_of_linear(const char *path, float value)
{
    static const char header[] =
        "{\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[10,784],\"data_offsets\":[0,31360]},"
        "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[10],\"data_offsets\":[31360,31400]}}";
    float values[7850];
    uint64_t len = sizeof header - 1;
    for (size_t i = 0; i < ROWS(values); i++)
        values[i] = value;
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fwrite(&len, sizeof len, 1, f);
    fwrite(header, 1, len, f);
    fwrite(values, sizeof *values, 7850, f);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(the_first_point_comes_from_a_file)
{
    char path[] = "/tmp/psd-test-init-XXXXXX", line[256];
    close(mkstemp(path));
    snprintf(line, sizeof line, TRAIN " --init %s", path);
    write_first_point(path, "fc1.weight", 10);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_float_eq(fake_seen.x_first, 0.625f);
    ck_assert_uint_eq(fake_seen.steps, 40);
    unlink(path);
}
END_TEST

/* Of no such file does a server hear. */
START_TEST(a_first_point_that_does_not_fit_is_refused_before)
{
    char path[] = "/tmp/psd-test-init-XXXXXX", line[256];
    close(mkstemp(path));
    snprintf(line, sizeof line, TRAIN " --init %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_DATA); /* empty */
    write_first_point(path, "fc1.weight", 11);
    setup();
    ck_assert_int_eq(run_worker(line), CNN_EXIT_USAGE);
    write_first_point(path, "conv1.weight", 10);
    setup();
    ck_assert_int_eq(run_worker(line), CNN_EXIT_USAGE);
    write_first_point(path, "fc1.weight", 10);
    ck_assert_int_eq(truncate(path, 31000), 0);
    setup();
    ck_assert_int_eq(run_worker(line), CNN_EXIT_DATA);
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --init /tmp"), CNN_EXIT_USAGE);
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --init /no/such/file"), CNN_EXIT_DATA);
    ck_assert_uint_eq(fake_seen.n_tensors, 0);
    unlink(path);
}
END_TEST

START_TEST(gradients_are_cut_down_and_added_up)
{
    ck_assert_int_eq(run_worker(TRAIN), CNN_EXIT_OK);
    ck_assert_double_gt(fake_seen.g_norm, 0.5);
    ck_assert_uint_eq(fake_seen.n_samples, 32);
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --clip-norm 0.25"), CNN_EXIT_OK);
    ck_assert_double_eq_tol(fake_seen.g_norm, 0.25, 1e-6);
    /* The same images in fewer steps: an epoch has as many. */
    setup();
    ck_assert_int_eq(run_worker(LINEAR " --batch 1024 --accumulate 4 --epochs 1"), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 15);
    ck_assert_uint_eq(fake_seen.n_samples, 4096);
    float added = fake_seen.x_sum;
    setup();
    ck_assert_int_eq(run_worker(LINEAR " --batch 4096 --epochs 1"), CNN_EXIT_OK);
    ck_assert_float_eq_tol(fake_seen.x_sum, added, 1e-3f); /* 7850 floats, each within 1e-7 */
}
END_TEST

START_TEST(rates_are_the_manifests)
{
    ck_assert_int_eq(run_worker(TRAIN " --rates *.bias=2.5"), CNN_EXIT_OK);
    ck_assert_double_eq(fake_seen.rates, 3.5);
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --rates *=4 --freeze fc1.bias"), CNN_EXIT_OK);
    ck_assert_double_eq(fake_seen.rates, 4); /* what is frozen has none */
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --rates conv1.*=2"), CNN_EXIT_USAGE);
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --rates fc1.bias=0"), CNN_EXIT_USAGE);
    ck_assert_uint_eq(fake_seen.n_tensors, 0);
}
END_TEST

START_TEST(frozen_tensors_are_the_manifests)
{
    ck_assert_int_eq(run_worker(TRAIN " --freeze *.bias"), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.n_frozen, 1);
    setup();
    ck_assert_int_eq(run_worker(EVALUATE " --once --freeze fc1.bias"),
                     CNN_EXIT_OK); /* the manifest is the job's */
    ck_assert_uint_eq(fake_seen.n_frozen, 1);
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --freeze conv1.*"), CNN_EXIT_USAGE);
    setup();
    ck_assert_int_eq(run_worker(TRAIN " --freeze *"), CNN_EXIT_USAGE); /* nothing is left */
    ck_assert_uint_eq(fake_seen.n_tensors, 0);
}
END_TEST

/* The worker writes standard output or error to a file. */
static int run_with(int fd, const char *path, const char *line)
{
    int kept = dup(fd);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fflush(stdout);
    dup2(fileno(f), fd);
    int rc = run_worker(line);
    fflush(stdout);
    dup2(kept, fd);
    close(kept);
    fclose(f);
    return rc;
}

static int run_into(const char *path, const char *line)
{
    return run_with(STDOUT_FILENO, path, line);
}

START_TEST(more_threads_than_cores_are_a_warning)
{
    char path[] = "/tmp/psd-test-threads-XXXXXX", line[256], text[4000];
    uint32_t cores = cnn_machine_cores();
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    for (uint32_t n = cores; n <= cores + 1 && n <= CNN_MOST_CORES; n++) {
        fake_seen.closes = 0;
        snprintf(line, sizeof line, LINEAR " --batch 32 --steps 1 --threads %u", n);
        ck_assert_int_eq(run_with(STDERR_FILENO, path, line), CNN_EXIT_OK);
        FILE *f = fopen(path, "r");
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        snprintf(line, sizeof line, "--threads %u: this process may use %u cores", n, cores);
        ck_assert_msg((strstr(text, line) != NULL) == (n > cores), "with %u threads: %s", n, text);
    }
    unlink(path);
}
END_TEST

/* Two workers with one --state. */
START_TEST(a_state_that_another_process_replaces_is_a_warning)
{
    char dir[] = "/tmp/psd-test-worker-XXXXXX", path[64], before[80], log[64], line[256], text[4000];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/state", dir);
    snprintf(before, sizeof before, "%s.before", path);
    snprintf(log, sizeof log, "%s/log", dir);
    snprintf(line, sizeof line, LINEAR " --batch 32 --steps 9 --state %s", path);
    fake_plan.ask_at = 5;
    fake_plan.taken = _i > 0 ? path : NULL;
    ck_assert_int_eq(run_with(STDERR_FILENO, log, line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.saves, 2);
    FILE *f = fopen(log, "r");
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    ck_assert_msg((strstr(text, "state.shared") != NULL) == (_i > 0), "%s", text);
    unlink(path);
    unlink(before);
    unlink(log);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

#define PREDICT "--predict --server tcp://127.0.0.1:1 --net linear --batch 300"

/* A line an image; the accuracy is that of an evaluation, and the results are those of the lines. */
START_TEST(predictions_are_lines_that_sum_to_one)
{
    char path[] = "/tmp/psd-test-predict-XXXXXX", confusion[80], line[256], text[600];
    unsigned n = 0, correct = 0, index, label, predicted, counts[10][10] = {{0}};
    ck_assert_int_eq(run_worker("--server tcp://127.0.0.1:1 --net linear --evaluate --once"), CNN_EXIT_OK);
    double accuracy = fake_seen.test_accuracy;
    setup();
    close(mkstemp(path));
    snprintf(confusion, sizeof confusion, "%s.confusion", path);
    snprintf(line, sizeof line, PREDICT " --confusion %s", confusion);
    ck_assert_int_eq(run_into(path, line), CNN_EXIT_OK);
    ck_assert_int_eq(fake_seen.kind, PSC_OBSERVER);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    ck_assert_str_eq(text, "index,label,predicted,p0,p1,p2,p3,p4,p5,p6,p7,p8,p9\n");
    while (fgets(text, sizeof text, f) != NULL) {
        int at = 0;
        double sum = 0;
        char *rest;
        ck_assert_int_eq(sscanf(text, "%u,%u,%u%n", &index, &label, &predicted, &at), 3);
        for (rest = text + at; *rest == ',';)
            sum += strtod(rest + 1, &rest);
        ck_assert_str_eq(rest, "\n");
        ck_assert_double_eq_tol(sum, 1, 1e-6);
        ck_assert_uint_eq(index, n++);
        ck_assert(label < 10 && predicted < 10);
        correct += label == predicted;
        counts[label][predicted]++;
    }
    fclose(f);
    ck_assert_uint_eq(n, 10000);
    ck_assert_double_eq_tol(correct / 1e4, accuracy, 1e-9);

    char *rest = NULL;
    size_t size = 0;
    f = fopen(confusion, "r");
    ck_assert(f != NULL && getdelim(&rest, &size, '\\', f) > 0); /* the matrix comes after this */
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    for (unsigned i = 0; i < 10; i++) {
        unsigned k, count;
        ck_assert(fscanf(f, "%u", &k) == 1 && k == i);
        for (k = 0; k < 10; k++)
            ck_assert(fscanf(f, "%u", &count) == 1 && count == counts[i][k]);
    }
    fclose(f);
    free(rest);
    unlink(path);
    unlink(confusion);
}
END_TEST

/* Without a server: the file has all of the net, or what it lacks is named. */
START_TEST(predicting_with_a_first_point)
{
    char path[] = "/tmp/psd-test-init-XXXXXX", line[256];
    close(mkstemp(path));
    write_first_point(path, "fc1.weight", 10);
    snprintf(line, sizeof line, "--predict --net linear --init %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_USAGE); /* the bias */
    write_all_of_linear(path, 0.5f);
    setup();
    ck_assert_int_eq(run_into("/dev/null", line), CNN_EXIT_OK);
    ck_assert_int_eq(fake_seen.kind, 0);
    setup();
    ck_assert_int_eq(run_into("/dev/full", line), CNN_EXIT_INTERNAL);
    unlink(path);
}
END_TEST

/* In float32 the outputs overflow, and their softmax is not a number. JSON has no such value. */
START_TEST(what_is_not_a_number_is_null_in_json)
{
    char path[] = "/tmp/psd-test-init-XXXXXX", out[80], line[256], text[600];
    close(mkstemp(path));
    snprintf(out, sizeof out, "%s.out", path);
    write_all_of_linear(path, 3e38f);
    snprintf(line, sizeof line, "--predict --net linear --init %s --json", path);
    ck_assert_int_eq(run_into(out, line), CNN_EXIT_OK);
    FILE *f = fopen(out, "r");
    while (fgets(text, sizeof text, f) != NULL)
        ck_assert_msg(strstr(text, "nan") == NULL && strstr(text, "]}\n") != NULL, "%s", text);
    fclose(f);
    unlink(path);
    unlink(out);
}
END_TEST

/* Its images count, as correct for no label. */
START_TEST(a_center_of_nan_predicts_no_class)
{
    char path[] = "/tmp/psd-test-predict-XXXXXX", matrix[80], line[256], text[600];
    unsigned images = 0, correct = 1;
    fake_plan.diverged = true;
    close(mkstemp(path));
    snprintf(matrix, sizeof matrix, "%s.matrix", path);
    snprintf(line, sizeof line, PREDICT " --json --confusion %s", matrix);
    ck_assert_int_eq(run_into(path, line), CNN_EXIT_OK);
    FILE *f = fopen(path, "r");
    while (fgets(text, sizeof text, f) != NULL)
        ck_assert_msg(strstr(text, "\"predicted\":null,") != NULL, "%s", text);
    fclose(f);
    f = fopen(matrix, "r");
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    const char *zero = strstr(text, "\"images\":");
    ck_assert_ptr_nonnull(zero);
    ck_assert_int_eq(sscanf(zero, "\"images\":%u,\"correct\":%u", &images, &correct), 2);
    ck_assert_msg(images > 0 && correct == 0, "%s", text);
    fclose(f);
    unlink(path);
    unlink(matrix);
}
END_TEST

/* As /dev/stdout, which is a link too: written to, not replaced by a file. */
START_TEST(a_matrix_goes_to_a_device)
{
    char path[] = "/tmp/psd-test-predict-XXXXXX", line[256], to[32] = "";
    close(mkstemp(path));
    unlink(path);
    ck_assert_int_eq(symlink("/dev/null", path), 0);
    snprintf(line, sizeof line, PREDICT " --confusion %s", path);
    ck_assert_int_eq(run_into("/dev/null", line), CNN_EXIT_OK);
    ck_assert_int_eq(readlink(path, to, sizeof to - 1), (ssize_t)strlen("/dev/null"));
    ck_assert_str_eq(to, "/dev/null");
    unlink(path);
}
END_TEST

/* The link stays where it is, whatever it leads to: a file, or what standard output is redirected to. */
START_TEST(a_matrix_goes_where_a_link_leads)
{
    char dir[] = "/tmp/psd-test-matrix-XXXXXX", file[64], link[64], line[256], text[2000];
    struct stat st;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/file", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    ck_assert_int_eq(symlink(_i == 0 ? "file" : "/proc/self/fd/1", link), 0);
    snprintf(line, sizeof line, PREDICT " --json --confusion %s", link);
    ck_assert_int_eq(run_into(_i == 0 ? "/dev/null" : file, line), CNN_EXIT_OK);
    ck_assert_int_eq(lstat(link, &st), 0);
    ck_assert(S_ISLNK(st.st_mode));
    FILE *f = fopen(file, "r");
    bool found = false;
    while (fgets(text, sizeof text, f) != NULL)
        found = found || strstr(text, "{\"vector\":\"center\"") == text;
    fclose(f);
    ck_assert(found);
    unlink(link);
    unlink(file);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

/* Whoever reads the lines must not take them for all. */
START_TEST(a_signal_ends_predicting)
{
    char path[] = "/tmp/psd-test-predict-XXXXXX", text[200];
    unsigned lines = 0;
    close(mkstemp(path));
    fake_plan.raise_at_pull = 1;
    ck_assert_int_eq(run_into(path, "--predict --server tcp://127.0.0.1:1 --net linear --batch 1"),
                     CNN_EXIT_INTERNAL);
    FILE *f = fopen(path, "r");
    while (fgets(text, sizeof text, f) != NULL)
        lines++;
    fclose(f);
    ck_assert_uint_lt(lines, 10001);
    unlink(path);
}
END_TEST

START_TEST(nothing_is_predicted_when_the_center_is_gone)
{
    fake_plan.pull = PSC_EGONE;
    fake_plan.pull_from = 1;
    ck_assert_int_eq(run_into("/dev/null", PREDICT), CNN_EXIT_SERVER);
    setup();
    fake_plan.begin = PSC_DRAINED;
    ck_assert_int_eq(run_into("/dev/null", PREDICT), CNN_EXIT_SERVER);
    setup();
    ck_assert_int_eq(run_into("/dev/null", PREDICT " --confusion /dev/full"), CNN_EXIT_INTERNAL);
}
END_TEST

/* Before anything is read or computed. */
START_TEST(a_folder_that_is_not_there_is_refused_at_the_start)
{
    ck_assert_int_eq(run_into("/dev/null", PREDICT " --confusion /no/such/folder/file"), CNN_EXIT_USAGE);
    setup();
    ck_assert_int_eq(run_into("/dev/null", EVALUATE " --confusion /no/such/folder/file"), CNN_EXIT_USAGE);
    setup();
    ck_assert_int_eq(run_into("/dev/null", PREDICT " --confusion /tmp"), CNN_EXIT_USAGE);
}
END_TEST

/* Each evaluation replaces the file. */
START_TEST(evaluating_leaves_the_results_of_each_class)
{
    char path[] = "/tmp/psd-test-confusion-XXXXXX", line[256], text[4000];
    close(mkstemp(path));
    snprintf(line, sizeof line, EVALUATE " --once --json --confusion %s", path);
    for (int i = 0; i < 2; i++) {
        setup();
        ck_assert_int_eq(run_into("/dev/null", line), CNN_EXIT_OK);
    }
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    ck_assert(strncmp(text, "{\"vector\":\"center\",\"center_version\":", 36) == 0);
    ck_assert_ptr_nonnull(strstr(text, "\"confusion\":[["));
    ck_assert_ptr_null(fgets(text, sizeof text, f));
    fclose(f);
    unlink(path);
}
END_TEST

static int count_lines(const char *path, double *accuracy)
{
    char line[256];
    int n = 0;
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f) != NULL) {
        double t, loss;
        unsigned long long version;
        ck_assert_int_eq(sscanf(line,
                                "{\"t\":%lf,\"center_version\":%llu,\"test_loss\":%lf,\"test_accuracy\":%lf}",
                                &t, &version, &loss, accuracy),
                         4);
        n++;
    }
    fclose(f);
    return n;
}

START_TEST(evaluating_once)
{
    static const char torn[] = "{\"t\":4.2,\"cent"; /* of a machine that was lost */
    char path[] = "/tmp/psd-test-history-XXXXXX", line[256];
    double accuracy = NAN;
    int fd = mkstemp(path);
    ck_assert_int_eq((int)write(fd, torn, sizeof torn - 1), (int)sizeof torn - 1);
    close(fd);
    snprintf(line, sizeof line, EVALUATE " --once --batch 300 --history %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_int_eq(fake_seen.kind, PSC_OBSERVER);
    ck_assert_uint_eq(fake_seen.pulls, 1);
    ck_assert_int_eq(count_lines(path, &accuracy), 1);
    ck_assert_double_eq_tol(accuracy, fake_seen.test_accuracy, 1e-8);
    ck_assert(accuracy > 0 && accuracy < 0.4); /* nothing was learned */
    unlink(path);
}
END_TEST

/* Where the job averages, that is what is evaluated, unless the center is asked for. */
START_TEST(evaluating_the_average)
{
    char path[] = "/tmp/psd-test-history-XXXXXX", line[256], found[256];
    close(mkstemp(path));
    fake_plan.averaging = "mean";
    snprintf(line, sizeof line, EVALUATE " --once --history %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.averages, 1);
    fake_seen.closes = 0;
    snprintf(line, sizeof line, EVALUATE " --once --center --history %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.averages, 1);
    ck_assert_uint_eq(fake_seen.pulls, 1);
    FILE *f = fopen(path, "r");
    ck_assert(fgets(found, sizeof found, f) != NULL && strstr(found, "\"vector\":\"average\"}") != NULL);
    ck_assert(fgets(found, sizeof found, f) != NULL && strstr(found, "\"vector\":\"center\"}") != NULL);
    fclose(f);
    unlink(path);
}
END_TEST

/* The same images each time; of those, what training would say of the first batch. */
START_TEST(the_training_loss_stands_beside_the_test_loss)
{
    char path[] = "/tmp/psd-test-history-XXXXXX", line[256], text[400];
    double loss[2], accuracy;
    close(mkstemp(path));
    for (int i = 0; i < 2; i++) {
        setup();
        snprintf(line, sizeof line, EVALUATE " --once --batch %d --train-sample 500 --history %s",
                 i == 0 ? 64 : 200, path);
        ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    }
    FILE *f = fopen(path, "r");
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
        const char *at = strstr(text, ",\"train_loss\":");
        ck_assert_ptr_nonnull(at);
        ck_assert_int_eq(
            sscanf(at, ",\"train_loss\":%lf,\"train_accuracy\":%lf,\"vector\"", &loss[i], &accuracy), 2);
        ck_assert(loss[i] > 2 && loss[i] < 5 && accuracy > 0 && accuracy < 0.4); /* nothing was learned */
    }
    fclose(f);
    ck_assert_double_eq_tol(loss[0], loss[1], 1e-6); /* sums of floats in another order */
    ck_assert_double_eq_tol(fake_seen.loss, loss[1], 1e-6);
    unlink(path);
    setup();
    ck_assert_int_eq(run_worker(EVALUATE " --once --train-sample 60001"), CNN_EXIT_USAGE);
}
END_TEST

START_TEST(evaluating_ends_with_a_drain_after_a_last_look)
{
    char path[] = "/tmp/psd-test-history-XXXXXX", line[256];
    double accuracy;
    close(mkstemp(path));
    fake_plan.pull = PSC_DRAINED;
    fake_plan.pull_from = 3;
    fake_plan.moves = true;
    snprintf(line, sizeof line, EVALUATE " --every 0.1 --history %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.pulls, 4); /* the third tells of the drain, the fourth sees the last center */
    ck_assert_uint_eq(fake_seen.reports, 3);
    ck_assert_int_eq(count_lines(path, &accuracy), 3);
    unlink(path);
}
END_TEST

/* What was under way gets no result; what is evaluated after a signal is the last center. */
START_TEST(a_signal_ends_evaluating)
{
    static const struct {
        const char *options;
        uint64_t at, pulls, reports;
        bool moves;
    } rows[] = {{"--every 0.1 --train-sample 500", 2, 3, 2, true},
                {"--every 0.1", 2, 3, 1, false}, /* the last center was evaluated before */
                {"--once", 1, 1, 0, true}};      /* nothing is left to be evaluated once */
    char path[] = "/tmp/psd-test-history-XXXXXX", matrix[] = "/tmp/psd-test-confusion-XXXXXX";
    char line[256], text[256];
    close(mkstemp(path));
    close(mkstemp(matrix));
    snprintf(line, sizeof line, EVALUATE " %s --json --confusion %s --history %s", rows[_i].options, matrix,
             path);
    fake_plan.raise_at_pull = rows[_i].at;
    fake_plan.moves = rows[_i].moves;
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.pulls, rows[_i].pulls);
    ck_assert_uint_eq(fake_seen.reports, rows[_i].reports);
    FILE *f = fopen(path, "r");
    for (uint64_t i = 0; i < rows[_i].reports; i++)
        ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    ck_assert_ptr_null(fgets(text, sizeof text, f));
    fclose(f);
    unlink(path);
    unlink(matrix);
}
END_TEST

/* Its state is saved before the last evaluation, which may take long. */
START_TEST(a_signal_ends_an_evaluation_of_training_alone)
{
    char path[] = "/tmp/psd-test-history-XXXXXX", state[] = "/tmp/psd-test-alone-XXXXXX", line[256];
    double accuracy;
    close(mkstemp(path));
    close(mkstemp(state));
    unlink(state);
    snprintf(line, sizeof line,
             "--method sgd --net linear --data synthetic:1x28x28:10 --batch 32 --steps 1000000000 --every "
             "0.1 --state %s --history %s",
             state, path);
    fake_plan.raise_at_pull = 1;
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.points, 2);
    ck_assert_uint_eq(fake_seen.saves_before, 1);
    ck_assert_int_eq(count_lines(path, &accuracy), 1);
    unlink(path);
    unlink(state);
}
END_TEST

/* The last pull got no answer: what x holds must not go down in history as the center. */
START_TEST(evaluating_ends_when_a_drained_server_is_gone)
{
    char path[] = "/tmp/psd-test-history-XXXXXX", line[256];
    double accuracy;
    close(mkstemp(path));
    fake_plan.pull = PSC_DRAINED;
    fake_plan.pull_from = 2;
    fake_plan.error = "the server has gone";
    snprintf(line, sizeof line, EVALUATE " --every 0.1 --history %s", path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.pulls, 2);
    ck_assert_int_eq(count_lines(path, &accuracy), 1);
    unlink(path);
}
END_TEST

/* A worker's events are by its own steps, an evaluator's by the center's version. */
START_TEST(training_and_evaluating_leave_event_files)
{
    char dir[] = "/tmp/psd-test-events-XXXXXX", line[256], run[100];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(line, sizeof line, TRAIN " --steps 7 --tensorboard %s", dir);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    snprintf(run, sizeof run, "%s/worker-0", dir);
    struct event_values loss = event_values(run, "loss"), rate = event_values(run, "learning_rate");
    ck_assert_uint_ge(loss.n, 1);
    ck_assert_int_eq(loss.last_step, 7);
    ck_assert(loss.last > 0 && loss.last < 10);
    ck_assert_uint_eq(rate.n, loss.n);
    ck_assert_uint_eq(event_values(run, "test_loss").n, 0);

    setup();
    snprintf(line, sizeof line, EVALUATE " --once --tensorboard %s", dir);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    snprintf(run, sizeof run, "%s/evaluator", dir);
    struct event_values accuracy = event_values(run, "test_accuracy");
    ck_assert_uint_eq(accuracy.n, 1);
    ck_assert_double_eq_tol(accuracy.last, fake_seen.test_accuracy, 1e-7);
    ck_assert_uint_eq(event_values(run, "train_loss").n, 0); /* nobody asked for it */

    setup();
    ck_assert_int_eq(run_worker(TRAIN " --tensorboard /dev/null/x"), CNN_EXIT_USAGE);
    ck_assert_uint_eq(fake_seen.steps, 0);
    snprintf(line, sizeof line, "rm -r %s", dir);
    ck_assert_int_eq(system(line), 0);
}
END_TEST

#define ALONE "--net linear --batch 32 --steps 40 --every 3600"

/* What is said of the method reaches the library, and the worker evaluates itself, at the end at least. */
START_TEST(training_alone)
{
    char path[] = "/tmp/psd-test-history-XXXXXX", line[256];
    double accuracy = NAN;
    close(mkstemp(path));
    snprintf(line, sizeof line,
             "--method msgd --momentum 0.7 --learning-rate 0.2 --weight-decay 0.5 --schedule step:0.3:900 "
             "--warmup 7 --history %s " ALONE,
             path);
    ck_assert_int_eq(run_worker(line), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 40);
    ck_assert_int_eq(count_lines(path, &accuracy), 1);
    ck_assert_uint_eq(fake_seen.points, 1); /* x, not what Nesterov looks at */
    ck_assert_uint_eq(fake_seen.averages, 0);
    ck_assert_str_eq(fake_seen.local.method, "msgd");
    ck_assert_str_eq(fake_seen.local.schedule, "step");
    ck_assert_double_eq(fake_seen.local.momentum, 0.7);
    ck_assert_double_eq(fake_seen.local.learning_rate, 0.2);
    ck_assert_double_eq(fake_seen.local.weight_decay, 0.5);
    ck_assert_double_eq(fake_seen.local.gamma, 0.3);
    ck_assert_uint_eq(fake_seen.local.step_steps, 900);
    ck_assert_uint_eq(fake_seen.local.warmup_steps, 7);
    unlink(path);
}
END_TEST

START_TEST(schedules_reach_the_library)
{
    ck_assert_int_eq(run_worker("--method sgd --schedule cosine:500:0.1 " ALONE), CNN_EXIT_OK);
    ck_assert_str_eq(fake_seen.local.schedule, "cosine");
    ck_assert_uint_eq(fake_seen.local.total_steps, 500);
    ck_assert_double_eq(fake_seen.local.floor, 0.1);
    setup();
    ck_assert_int_eq(run_worker("--method sgd --schedule multi-step:0.2:30:60 " ALONE), CNN_EXIT_OK);
    ck_assert_str_eq(fake_seen.local.schedule, "multi-step");
    ck_assert_double_eq(fake_seen.local.gamma, 0.2);
    ck_assert_uint_eq(fake_seen.local.n_milestones, 2);
    ck_assert(fake_seen.local.milestones[0] == 30 && fake_seen.local.milestones[1] == 60);
}
END_TEST

START_TEST(training_alone_evaluates_the_average)
{
    fake_plan.averaging = "mean";
    ck_assert_int_eq(run_worker("--method asgd " ALONE), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.averages, 1);
    ck_assert_uint_eq(fake_seen.points, 0);
}
END_TEST

/* There is no center to take. */
START_TEST(divergence_ends_training_alone)
{
    fake_plan.rate = NAN;
    ck_assert_int_eq(run_worker("--method sgd " ALONE), CNN_EXIT_DIVERGED);
    ck_assert_uint_eq(fake_seen.steps, 1);
    ck_assert_uint_eq(fake_seen.pulls, 0);
}
END_TEST

START_TEST(evaluating_without_a_server)
{
    fake_plan.pull = PSC_EGONE;
    fake_plan.pull_from = 1;
    ck_assert_int_eq(run_worker(EVALUATE), CNN_EXIT_SERVER);
}
END_TEST

static const struct {
    const char *line, *found, *allowed;
} bad_lines[] = {
    {"--net lenet", "--server: not given", "tcp://"},
    {"--server", "--server: no value", "allowed"},
    {"--server tcp://h:1 --frobnicate", "--frobnicate", "allowed"},
    {"--server tcp://h:1 extra", "\"extra\"", "allowed"},
    {"--server tcp://h:1 --net vgg", "--net: \"vgg\"", "allowed: lenet"},
    {"--server tcp://h:1 --evaluate --init f", "--init: given with --evaluate", "for training"},
    {"--server tcp://h:1 --init-skip fc2.*", "--init-skip: given without --init", "with it"},
    {"--predict", "--predict: given without --server and --init", "one of them"},
    {"--predict --server tcp://h:1 --init f", "--predict: given with --server and --init", "one of them"},
    {"--predict --server tcp://h:1 --evaluate", "--evaluate and --predict: both given", "one of them"},
    {"--predict --init f --center", "--center: given without --server", "with it"},
    {"--predict --server tcp://h:1 --steps 3", "--steps and --predict: both given", "one of them"},
    {"--predict --server tcp://h:1 --tensorboard d", "--tensorboard and --predict: both given",
     "one of them"},
    {"--server tcp://h:1 --confusion f", "--confusion: given for training", "--evaluate or --predict"},
    {"--server tcp://h:1 --batch 65536 --accumulate 65536", "--accumulate: 65536 batches", "2^31 - 1 images"},
    {"--server tcp://h:1 --label-smoothing 1", "--label-smoothing: 1", "0 to below 1"},
    {"--server tcp://h:1 --evaluate --label-smoothing 0.1", "--label-smoothing: given with --evaluate",
     "for training"},
    {"--server tcp://h:1 --train-sample 9", "--train-sample: given without --evaluate", "with it"},
    {"--server tcp://h:1 --clip-norm 0", "--clip-norm: 0", "above 0"},
    {"--server tcp://h:1 --accumulate 0", "--accumulate: \"0\"", "1 to 65536"},
    {"--server tcp://h:1 --evaluate --accumulate 2", "--accumulate: given with --evaluate", "for training"},
    {"--server tcp://h:1 --predict --clip-norm 2", "--clip-norm: given with --predict", "for training"},
    {"--server tcp://h:1 --batch 0", "--batch: \"0\"", "1 to 65536"},
    {"--server tcp://h:1 --batch 12x", "--batch: \"12x\"", "1 to 65536"},
    {"--server tcp://h:1 --batch -1", "--batch: \"-1\"", "1 to 65536"},
    {"--server tcp://h:1 --rank 1024", "--rank: \"1024\"", "0 to 1023"},
    {"--server tcp://h:1 --seed 18446744073709551616", "--seed", "18446744073709551615"},
    {"--server tcp://h:1 --steps 1 --epochs 1", "both given", "one of them"},
    {"--server tcp://h:1 --once", "--once: given for training", "with --evaluate"},
    {"--server tcp://h:1 --center", "--center: given for training", "with --evaluate"},
    {"--server tcp://h:1 --history h", "--history", "with --evaluate"},
    {"--server tcp://h:1 --evaluate --steps 3", "--steps", "for training"},
    {"--server tcp://h:1 --evaluate --every 0", "--every: \"0\"", "0.1 to 86400"},
    {"--server tcp://h:1 --evaluate --every nan", "--every: \"nan\"", "0.1 to 86400"},
    {"--server tcp://h:1 --prefetch 257", "--prefetch: \"257\"", "0 to 256"},
    {"--server tcp://h:1 --step-ms -1", "--step-ms: \"-1\"", "0 to 3600000"},
    {"--server tcp://h:1 --step-ms 2.5", "--step-ms: \"2.5\"", "0 to 3600000"},
    {"--server tcp://h:1 --evaluate --step-ms 3", "--step-ms", "for training"},
    {"--server tcp://h:1 --data-threads 0", "--data-threads: \"0\"", "1 to 64"},
    {"--describe vgg", "--describe: \"vgg\"", "allowed: lenet"},
    {"--server tcp://h:1 --evaluate --once --every 2", "both given", "one of them"},
    {"--server tcp://h:1 --method sgd", "--server and --method: both given", "one of them"},
    {"--method sgd --evaluate", "--evaluate and --method", "one of them"},
    {"--method sgd --rank 0", "--rank and --method", "one of them"},
    {"--method sgd --center", "--center and --method", "one of them"},
    {"--server tcp://h:1 -net lenet", "-n: no such option", "each with two dashes"},
    {"--server tcp://h:1 --json=1", "--json: it takes no value", "allowed: --json"},
    {"--server tcp://h:1 --members 2", "--members: given without --clique", "allowed: with it"},
    {"--server tcp://h:1 --clique tree --members 2", "--clique: \"tree\"", "allowed: ring, mpi, nccl"},
    {"--server tcp://h:1 --clique ring", "--members: not given", "1 to 1024"},
    {"--server tcp://h:1 --clique ring --members 2 --member 2", "--member: \"2\"", "0 to 1"},
    {"--server tcp://h:1 --clique mpi --members 2 --links 2", "--links: given with --clique mpi",
     "allowed: with ring"},
    {"--method d-sync --clique ring --members 2 --rendezvous file:r --algorithm star",
     "--algorithm: \"star\"", "allowed: ring, tree, auto"},
    {"--server tcp://h:1 --clique ring --members 2 --algorithm tree", "--algorithm", "--method"},
    {"--method d-sync --clique ring --members 2 --rendezvous file:r --on-loss wait", "--on-loss: \"wait\"",
     "allowed: end, shrink"},
    {"--method d-sync --clique mpi --members 2 --on-loss shrink", "--on-loss: given with --clique mpi",
     "allowed: with ring"},
    {"--method d-sync --clique ring --members 2 --rendezvous file:r --devices 2 --on-loss shrink",
     "--on-loss: shrink with --devices", "allowed: end"},
    {"--method d-sync --on-loss shrink", "--on-loss: given without --clique", "allowed: with it"},
    {"--server tcp://h:1 --clique ring --members 2 --on-loss shrink", "--on-loss", "--method"},
    {"--server tcp://h:1 --evaluate --clique ring --members 2", "--clique: given with --evaluate",
     "allowed: for training"},
    {"--method d-sync --clique ring --members 2", "--rendezvous: not given", "allowed: file:PATH"},
    {"--method sgd --codec int8", "--codec: given for sgd", "with d-sync, pipe-sgd"},
    {"--method d-sync --pipeline 3", "--pipeline: given for d-sync", "with pipe-sgd"},
    {"--method pipe-sgd --pipeline 17", "--pipeline: \"17\"", "1 to 16"},
    {"--method sgd --bucket-floats 5", "--bucket-floats: given for sgd", "d-sync, pipe-sgd"},
    {"--server tcp://h:1 --bucket-floats 5", "--bucket-floats: given without --method", "psd's config"},
    {"--method d-sync --pipeline-warmup 5", "--pipeline-warmup: given for d-sync", "with pipe-sgd"},
    {"--method downpour", "psd --method downpour, and psworker --server", "allowed: sgd, msgd, asgd, mvasgd"},
    {"--method downhill", "--method: \"downhill\"; allowed", "allowed: sgd, msgd, asgd, mvasgd"},
    {"--server tcp://h:1 --warmup 5", "--warmup: given without --method", "allowed: with it"},
    {"--server tcp://h:1 --learning-rate 1", "--learning-rate: given without", "allowed: with it"},
    {"--method sgd --learning-rate 0", "--learning-rate: 0", "above 0"},
    {"--method sgd --learning-rate inf", "--learning-rate: \"inf\"", "a number"},
    {"--method sgd --momentum 0.5", "--momentum: given for sgd", "with msgd"},
    {"--method msgd --momentum 1", "--momentum: 1", "0 to below 1"},
    {"--method asgd --averaging-rate 0.5", "--averaging-rate: given for asgd", "with mvasgd"},
    {"--method sgd --weight-decay 2", "--weight-decay: 2", "0 to 1"},
    {"--method sgd --schedule cosine", "--schedule: \"cosine\"", "inv-sqrt:GAMMA"},
    {"--method sgd --schedule cosine:0", "--schedule", "cosine:STEPS[:FLOOR]"},
    {"--method sgd --schedule cosine:9:2", "--schedule", "cosine:STEPS[:FLOOR]"},
    {"--method sgd --schedule multi-step:0.2", "--schedule", "multi-step:FACTOR:STEP"},
    {"--method sgd --schedule multi-step:0.2:9:9", "--schedule", "rising"},
    {"--method sgd --schedule plateau", "--schedule", "plateau needs a server"},
    {"--method sgd --schedule step:0.3", "--schedule", "step:FACTOR:STEPS"},
    {"--method sgd --schedule step:0.3:0", "--schedule", "step:FACTOR:STEPS"},
    {"--method sgd --schedule step:0.3:9:9", "--schedule", "step:FACTOR:STEPS"},
    {"--method sgd --schedule constant:1", "--schedule", "constant"},
};

START_TEST(bad_arguments_are_named)
{
    struct cnn_worker_args args;
    struct ps_error err = {""};
    ck_assert_int_lt(parse(bad_lines[_i].line, &args, &err), 0);
    ck_assert_msg(strstr(err.text, bad_lines[_i].found) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, bad_lines[_i].allowed) != NULL, "%s", err.text);
}
END_TEST

START_TEST(good_arguments)
{
    struct cnn_worker_args a;
    struct ps_error err = {""};
    ck_assert_msg(parse("--server=@run/endpoint --seed 18446744073709551615 --threads 0", &a, &err) == 0,
                  "%s", err.text);
    ck_assert_str_eq(a.server, "@run/endpoint");
    ck_assert_str_eq(a.net, "lenet");
    ck_assert_str_eq(a.data, "digits");
    ck_assert_uint_eq(a.batch, 64);
    ck_assert_uint_eq(a.epochs, 1);
    ck_assert_uint_eq(a.threads, 0);
    ck_assert_uint_eq(a.seed, UINT64_MAX);
    ck_assert_int_eq(a.rank, -1);
    ck_assert_uint_eq(a.prefetch, 4);
    ck_assert_uint_eq(a.data_threads, 1);
    ck_assert_uint_eq(a.step_ms, 0);
    ck_assert_int_eq(parse("--describe lenet --json", &a, &err), 0); /* needs no server */
    ck_assert_str_eq(a.describe, "lenet");
    ck_assert_int_eq(parse("--method mvasgd --every 2 --history h", &a, &err), 0); /* neither does this */
    ck_assert_str_eq(a.method, "mvasgd");
    ck_assert_int_eq(parse("--server=@run/endpoint --evaluate", &a, &err), 0);
    ck_assert_uint_eq(a.batch, 64);
    ck_assert_int_eq(parse("--help --nonsense", &a, &err), 0);
    ck_assert(a.help);
}
END_TEST

/* What has loaders, a signal's thread and the net at work side by side; the thread sanitizer runs these
 * alone. */
static TCase *threads(void)
{
    TCase *tc = tcase_create("threads");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, training_takes_the_steps_asked_for);
    tcase_add_test(tc, a_signal_ends_training_well);
    tcase_add_test(tc, evaluating_once);
    tcase_add_test(tc, evaluating_ends_with_a_drain_after_a_last_look);
    tcase_add_loop_test(tc, a_signal_ends_evaluating, 0, 3);
    tcase_add_test(tc, a_signal_ends_an_evaluation_of_training_alone);
    tcase_add_test(tc, training_goes_on_from_its_state);
    tcase_add_loop_test(tc, a_step_that_psd_has_not_taken_is_made_by_the_next_run, 0, (int)ROWS(cut_off));
    return tc;
}

int main(void)
{
    TCase *tc = tcase_create("worker");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, a_gradient_takes_as_long_as_it_is_told_to);
    tcase_add_test(tc, an_epoch_is_the_training_set);
    tcase_add_loop_test(tc, an_epoch_is_a_pass_of_all_workers_together, 0, (int)ROWS(together));
    tcase_add_loop_test(tc, a_saved_state_goes_on_in_its_epoch, 0, (int)ROWS(lacks));
    tcase_add_test(tc, a_state_is_saved_where_a_link_leads);
    tcase_add_test(tc, a_drain_ends_training_well);
    tcase_add_test(tc, a_drain_before_the_first_step);
    tcase_add_test(tc, a_drain_before_a_state_is_resumed);
    tcase_add_test(tc, a_clique_meets_at_the_whole_address_of_its_server);
    tcase_add_loop_test(tc, failures_have_their_exit_status, 0, sizeof failures / sizeof *failures);
    tcase_add_test(tc, ten_refused_vectors_in_a_row_are_a_divergence);
    tcase_add_test(tc, a_loss_that_is_not_finite_takes_the_center);
    tcase_add_test(tc, a_gradient_in_parts_is_the_same);
    tcase_add_test(tc, a_pull_that_fails_while_starting_over);
    tcase_add_test(tc, data_and_net_must_fit_and_exist);
    tcase_add_test(tc, a_state_that_could_not_be_saved_is_refused_before);
    tcase_add_loop_test(tc, what_cannot_be_trained_is_refused_before, 0, (int)ROWS(unfit));
    tcase_add_test(tc, cifar10_trains_and_is_evaluated);
    tcase_add_test(tc, prefetch_changes_no_bit);
    tcase_add_test(tc, more_threads_than_cores_are_a_warning);
    tcase_add_loop_test(tc, a_state_that_another_process_replaces_is_a_warning, 0, 2);
    tcase_add_test(tc, gradients_are_cut_down_and_added_up);
    tcase_add_test(tc, rates_are_the_manifests);
    tcase_add_test(tc, frozen_tensors_are_the_manifests);
    tcase_add_test(tc, predictions_are_lines_that_sum_to_one);
    tcase_add_test(tc, predicting_with_a_first_point);
    tcase_add_test(tc, what_is_not_a_number_is_null_in_json);
    tcase_add_test(tc, a_center_of_nan_predicts_no_class);
    tcase_add_test(tc, a_matrix_goes_to_a_device);
    tcase_add_loop_test(tc, a_matrix_goes_where_a_link_leads, 0, 2);
    tcase_add_test(tc, a_signal_ends_predicting);
    tcase_add_test(tc, nothing_is_predicted_when_the_center_is_gone);
    tcase_add_test(tc, a_folder_that_is_not_there_is_refused_at_the_start);
    tcase_add_test(tc, evaluating_leaves_the_results_of_each_class);
    tcase_add_test(tc, the_first_point_comes_from_a_file);
    tcase_add_test(tc, a_first_point_that_does_not_fit_is_refused_before);
    tcase_add_test(tc, the_training_loss_stands_beside_the_test_loss);
    tcase_add_test(tc, evaluating_the_average);
    tcase_add_test(tc, evaluating_ends_when_a_drained_server_is_gone);
    tcase_add_test(tc, evaluating_without_a_server);
    tcase_add_test(tc, training_and_evaluating_leave_event_files);
    tcase_add_test(tc, training_alone);
    tcase_add_test(tc, schedules_reach_the_library);
    tcase_add_test(tc, training_alone_evaluates_the_average);
    tcase_add_test(tc, divergence_ends_training_alone);
    tcase_add_loop_test(tc, bad_arguments_are_named, 0, sizeof bad_lines / sizeof *bad_lines);
    tcase_add_test(tc, good_arguments);
    Suite *suite = suite_create("worker");
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, threads());
    return unit_run(suite);
}
