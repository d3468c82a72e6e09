/* psworker on photographs: trains, goes on where it was, is evaluated, and says what it cannot read. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "nets/worker/run.h"
#include "tests/nets/data/image_files.h"
#include "tests/nets/data/suite.h"
#include "tests/nets/worker/fake_server.h"

static void setup(void)
{
    memset(&fake_seen, 0, sizeof fake_seen);
    fake_plan = (struct fake_plan){.rate = 0.01f};
}

/* The command line with what every one has in common. */
static int run_with(const char *how, const char *rest)
{
    static char line[1024];
    struct cnn_worker_args args;
    struct ps_error err = {""};
    char *argv[64] = {"psworker"}, *words = line;
    int argc = 1;
    snprintf(line, sizeof line, "%s --net resnet8:classes=2 --batch 4 --data images:%s %s", how,
             image_folder(), rest);
    for (char *word; (word = strsep(&words, " ")) != NULL;)
        argv[argc++] = word;
    argv[argc] = NULL;
    ck_assert_msg(cnn_worker_args_parse(argc, argv, &args, &err) == 0, "%s", err.text);
    return cnn_worker_run(&args);
}

static int run_worker(const char *rest)
{
    return run_with("--server tcp://127.0.0.1:1", rest);
}

static int run_alone(const char *rest)
{
    return run_with("--method sgd", rest);
}

static void write_set(void)
{
    char path[64];
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "train/%c/%u.jpg", 'a' + (int)(i % 2), i);
        write_image(path, flat_jpeg(40 + i, 50, (uint8_t[]){(uint8_t)(20 * i), 100, 50}));
    }
    write_image("val/a/1.png", flat_png(40, 40, (uint8_t[]){1, 2, 3}));
}

START_TEST(training_goes_on_with_the_same_pixels)
{
    char rest[256];
    write_set();
    ck_assert_int_eq(run_worker("--steps 8 --view resized-crop:jitter=0.4"), CNN_EXIT_OK);
    float straight = fake_seen.x_sum;
    setup();
    snprintf(rest, sizeof rest, "--view resized-crop:jitter=0.4 --data-threads 3 --steps 3 --state %s/state",
             image_folder());
    ck_assert_int_eq(run_worker(rest), CNN_EXIT_OK);
    setup();
    snprintf(rest, sizeof rest, "--view resized-crop:jitter=0.4 --steps 8 --state %s/state", image_folder());
    ck_assert_int_eq(run_worker(rest), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.steps, 5);
    ck_assert_mem_eq(&fake_seen.x_sum, &straight, sizeof straight);
}
END_TEST

START_TEST(the_test_set_is_run)
{
    write_set();
    ck_assert_int_eq(run_worker("--evaluate --once"), CNN_EXIT_OK);
    ck_assert_uint_eq(fake_seen.reports, 1);
}
END_TEST

/* The lines of what can be read have its places in the set, in whichever batch they are. */
START_TEST(predictions_keep_their_index_where_an_image_cannot_be_read)
{
    char path[128], text[256];
    unsigned index, label;
    write_set();
    for (unsigned i = 0; i < 9; i++) {
        snprintf(path, sizeof path, "val/%c/%u.png", i < 3 ? 'a' : 'b', i);
        if (i == 0 || i == 7)
            write_file(path, "text", 4);
        else
            write_image(path, flat_png(40, 40, (uint8_t[]){4, 5, 6}));
    }
    snprintf(path, sizeof path, "%s/lines", image_folder());
    ck_assert_ptr_nonnull(freopen(path, "w", stdout));
    ck_assert_int_eq(run_worker("--predict"), CNN_EXIT_OK);
    FILE *f = fopen(path, "r");
    ck_assert(f != NULL && fgets(text, sizeof text, f) != NULL);
    for (unsigned i = 1; i < 9; i++) {
        if (i == 7)
            continue;
        ck_assert(fscanf(f, "%u,%u,%*s", &index, &label) == 2);
        ck_assert(index == i && label == (i >= 3));
    }
    ck_assert_int_ne(fscanf(f, "%u", &index), 1);
    fclose(f);
}
END_TEST

/* Every tenth image of a class would be one. */
START_TEST(without_test_images_nothing_is_evaluated)
{
    write_image("a/0.png", flat_png(40, 40, (uint8_t[]){4, 5, 6}));
    write_image("b/0.png", flat_png(40, 40, (uint8_t[]){1, 2, 3}));
    ck_assert_int_eq(run_worker("--steps 1"), CNN_EXIT_OK);
    ck_assert_int_eq(run_worker("--predict"), CNN_EXIT_DATA);
    setup();
    ck_assert_int_eq(run_worker("--evaluate --once"), CNN_EXIT_DATA);
    ck_assert_uint_eq(fake_seen.reports, 0);
}
END_TEST

START_TEST(test_images_that_cannot_be_read_are_no_result)
{
    write_set();
    write_file("val/a/1.png", "text", 4);
    ck_assert_int_eq(run_worker("--evaluate --once"), CNN_EXIT_DATA);
    ck_assert_int_eq(run_worker("--predict"), CNN_EXIT_DATA);
    ck_assert_uint_eq(fake_seen.reports, 0);
}
END_TEST

START_TEST(more_damage_than_allowed_is_status_5)
{
    write_set();
    write_file("train/a/11.jpg", "text", 4);
    ck_assert_int_eq(run_worker("--steps 8"), CNN_EXIT_OK);
    setup();
    ck_assert_int_eq(run_worker("--steps 8 --max-damaged 0"), CNN_EXIT_DATA);
    setup();
    image_folder_remove();
    ck_assert_int_eq(run_worker("--steps 8"), CNN_EXIT_DATA); /* and no images at all */
    ck_assert_uint_eq(fake_seen.steps, 0);
}
END_TEST

/* Without psd nothing was saved before: the steps made so far are kept. */
START_TEST(a_failure_of_the_data_keeps_the_steps_before)
{
    char path[128], rest[256];
    write_set();
    write_file("train/a/11.jpg", "text", 4);
    snprintf(path, sizeof path, "%s/state", image_folder());
    snprintf(rest, sizeof rest, "--steps 8 --max-damaged 0 --prefetch 0 --batch 1 --state %s", path);
    ck_assert_int_eq(run_alone(rest), CNN_EXIT_DATA);
    ck_assert_uint_gt(fake_seen.steps, 0); /* with this seed */
    ck_assert_uint_eq(fake_seen.saves, 1);
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

/* Another process has the cache's lock, and never ends. */
START_TEST(a_signal_ends_the_wait_for_a_cache)
{
    static const char *const parts[] = {"", " --partitions 2"};
    char cache[128], lock[160], rest[256];
    sigset_t term;
    write_set();
    snprintf(cache, sizeof cache, "%s.cache", image_folder());
    snprintf(lock, sizeof lock, "%s.lock", cache);
    int fd = open(lock, O_RDWR | O_CREAT, 0666);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    for (size_t i = 0; i < ROWS(parts); i++) {
        kill(getpid(), SIGTERM); /* waits until the worker's thread takes it */
        snprintf(rest, sizeof rest, "--cache %s%s", cache, parts[i]);
        ck_assert_int_eq(run_worker(rest), CNN_EXIT_OK);
        ck_assert_uint_eq(fake_seen.steps, 0);
    }
    ck_assert(access(cache, F_OK) != 0);
    close(fd);
    unlink(lock);
}
END_TEST

START_TEST(a_view_must_fit)
{
    write_set();
    ck_assert_int_eq(run_worker("--steps 8 --view crop:side=31"), CNN_EXIT_USAGE);
    ck_assert_int_eq(run_worker("--steps 8 --view round"), CNN_EXIT_USAGE);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("worker_images");
    tcase_add_checked_fixture(tc, setup, image_folder_remove);
    tcase_add_test(tc, training_goes_on_with_the_same_pixels);
    tcase_add_test(tc, the_test_set_is_run);
    tcase_add_test(tc, predictions_keep_their_index_where_an_image_cannot_be_read);
    tcase_add_test(tc, without_test_images_nothing_is_evaluated);
    tcase_add_test(tc, test_images_that_cannot_be_read_are_no_result);
    tcase_add_test(tc, more_damage_than_allowed_is_status_5);
    tcase_add_test(tc, a_failure_of_the_data_keeps_the_steps_before);
    tcase_add_test(tc, a_signal_ends_the_wait_for_a_cache);
    tcase_add_test(tc, a_view_must_fit);
    return run_case(tc, "worker_images");
}
