/* Workers of different backends in one job: the center goes where it goes with one backend, but for rounding.
 * The workers train one after the other, so that a job is the same at every run. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <sys/stat.h>

#include "nets/data/cifar_format.h"
#include "server/checkpoint/checkpoint.h"
#include "tests/support/system/daemon.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/psworker.h"

enum { STEPS = 4, IMAGES = 20 };

static const char *const settings[] = {"method=async-easgd",
                                       "learning_rate=0.01",
                                       "alpha=0.5",
                                       "period=1",
                                       "parameters.schedule.warmup_steps=0",
                                       NULL};

/* Six small files in CIFAR-10's format. */
static void make_cifar(const char *dir)
{
    static const char *const files[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    static unsigned char image[CNN_CIFAR_RECORD];
    struct dice dice = {9};
    char path[300];
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < ROWS(files); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        FILE *f = fopen(path, "wb");
        ck_assert_ptr_nonnull(f);
        for (int k = 0; k < IMAGES; k++) {
            for (size_t b = 1; b < sizeof image; b++)
                image[b] = (unsigned char)dice_bits(&dice);
            image[0] = (unsigned char)(k % CNN_CIFAR_CLASSES);
            ck_assert_uint_eq(fwrite(image, sizeof image, 1, f), 1);
        }
        fclose(f);
    }
}

static void train(const struct daemon *d, const char *net, const char *data, const char *backend, int steps)
{
    char count[16];
    snprintf(count, sizeof count, "%d", steps);
    pid_t pid =
        psworker_start(d, backend,
                       (const char *const[]){"--net", net, "--data", data, "--backend", backend, "--batch",
                                             "2", "--steps", count, "--seed", "3", "--rank", "0", NULL});
    ck_assert_int_eq(psworker_wait(pid, 5 * TEST_HANG_S), 0);
    ck_assert(daemon_workers_become(d, 0));
}

/* The center after both have trained. */
static void run_job(const char *net, bool cifar, const char *first, const char *second, int second_steps,
                    struct psd_snapshot *out)
{
    char data[200] = "digits", checkpoints[200], path[400];
    struct ps_error err = {""};
    struct daemon d;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    if (cifar) {
        snprintf(data, sizeof data, "cifar10:%s/cifar", d.dir);
        make_cifar(strchr(data, ':') + 1);
    }
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    train(&d, net, data, first, STEPS);
    train(&d, net, data, second, second_steps);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", d.state_dir);
    ck_assert_msg(psd_checkpoint_read_newest(checkpoints, 1u << 28, out, path, sizeof path, NULL, &err) == 0,
                  "%s", err.text);
    daemon_remove(&d);
}

static double distance(const struct psd_snapshot *a, const struct psd_snapshot *b)
{
    double sum = 0;
    ck_assert_uint_eq(a->manifest->n_floats, b->manifest->n_floats);
    for (uint64_t i = 0; i < a->manifest->n_floats; i++)
        sum += ((double)a->center[i] - (double)b->center[i]) * ((double)a->center[i] - (double)b->center[i]);
    return sqrt(sum);
}

/* What the second worker's one step more moves is the measure: rounding is far below it. */
static void compare(const char *net, bool cifar)
{
    struct psd_snapshot same, mixed, more;
    run_job(net, cifar, "onednn", "onednn", STEPS, &same);
    run_job(net, cifar, "onednn", "ref", STEPS, &mixed);
    run_job(net, cifar, "onednn", "onednn", STEPS + 1, &more);
    double rounding = distance(&same, &mixed), step = distance(&same, &more);
    fprintf(stderr, "%s: backends differ by %.3g, a step moves %.3g\n", net, rounding, step);
    ck_assert(step > 0 && rounding > 0); /* they are two */
    ck_assert_double_lt(rounding, 1e-3 * step);
    psd_snapshot_finish(&same);
    psd_snapshot_finish(&mixed);
    psd_snapshot_finish(&more);
}

START_TEST(two_backends_train_lenet_as_one)
{
    compare("lenet", false);
}
END_TEST

START_TEST(two_backends_train_cifar7_as_one)
{
    compare("cifar7", true);
}
END_TEST

/* With batch normalisation, whose statistics are buffers. */
START_TEST(two_backends_train_resnet8_as_one)
{
    compare("resnet8", true);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {two_backends_train_lenet_as_one, two_backends_train_cifar7_as_one,
                                  two_backends_train_resnet8_as_one};
    return suite_run("system-backends", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
