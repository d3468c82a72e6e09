/* psc_save and psc_load with a real psd: saving, loading and going on is going on; what does not fit or is
 * damaged is named and changes nothing. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/client/psd_fixture.h"

enum { N = RIG_N, STEPS = 12, SAVE_AT = 5 };

static struct daemon psd;
static float start[N], g[N], x[N], straight[STEPS][N];
static char path[160], temporary[170];
static uint64_t first_clock; /* of the last that joined: above 0 where another has left */

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static void gradient(uint64_t t)
{
    struct dice dice = {1000 * t};
    for (int i = 0; i < N; i++)
        g[i] = 0.5f * x[i] + dice_float(&dice);
}

static struct psc *join(void)
{
    memcpy(x, start, sizeof x);
    struct psc *c = rig_join(&psd, rig_model, RIG_TENSORS, x);
    first_clock = psc_clock(c);
    return c;
}

static void start_psd(const char *const *settings)
{
    rig_start(&psd, settings);
    snprintf(path, sizeof path, "%s/worker.state", psd.dir);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
}

#define SETTINGS                                                                                             \
    "schedule={kind: step, gamma: 0.5, step_steps: 4, warmup_steps: 3}", "learning_rate=0.0625", RIG_CUT, NULL

static const char *const easgd[] = {"method=async-easgd", "alpha=0.3", "period=2", SETTINGS};
static const char *const easgd_ahead[] = {"method=async-easgd", "alpha=0.3", "period=1", "overlap=true",
                                          SETTINGS};
static const char *const eamsgd[] = {"method=eamsgd", "alpha=0.3", "period=3", SETTINGS};
static const char *const eamsgd_ahead[] = {"method=eamsgd", "alpha=0.3",         "period=1",
                                           "overlap=true",  "weight_decay=0.01", SETTINGS};
static const char *const sgd[] = {"method=async-sgd", SETTINGS};
static const char *const sgd_ahead[] = {"method=async-sgd", "overlap=true", SETTINGS};
#define CUSTOM "method=custom", "admission=fcfs", "averaging=none"
static const char *const measgd[] = {
    CUSTOM, "rule=elastic", "optimizer=heavy-ball", "alpha=0.3", "momentum=0.5", "period=2", SETTINGS};
static const char *const measgd_ahead[] = {CUSTOM,         "rule=elastic", "optimizer=heavy-ball",
                                           "alpha=0.3",    "momentum=0.5", "period=1",
                                           "overlap=true", SETTINGS};
static const char *const add[] = {CUSTOM, "rule=add", "optimizer=sgd", "period=3", SETTINGS};
static const char *const add_ahead[] = {CUSTOM,         "rule=add", "optimizer=sgd", "period=5",
                                        "overlap=true", SETTINGS}; /* lands after the file was written */
static const char *const add_nesterov[] = {
    CUSTOM, "rule=add", "optimizer=nesterov", "momentum=0.5", "period=5", "overlap=true", SETTINGS};
static const char *const admm[] = {CUSTOM, "rule=admm", "optimizer=none", "rho=2", "workers=1", SETTINGS};
/* What encoding took from the last message is in the file, too. */
#define CODED "codec={message: int8, answer: fp16, error_feedback: true}"
static const char *const easgd_coded[] = {"method=async-easgd", "alpha=0.3", "period=2", CODED, SETTINGS};
static const char *const eamsgd_coded[] = {"method=eamsgd", "alpha=0.3", "period=1",
                                           "overlap=true",  CODED,       SETTINGS};
static const char *const sgd_coded[] = {"method=async-sgd", "overlap=true", CODED, SETTINGS};
static const char *const add_coded[] = {CUSTOM,         "rule=add",    "optimizer=sgd",
                                        "period=4",     "fragments=2", "mix=0.25",
                                        "overlap=true", CODED,         SETTINGS};
static const char *const *const methods[] = {
    easgd, easgd_ahead, eamsgd,       eamsgd_ahead, sgd,         sgd_ahead,    measgd,    measgd_ahead,
    add,   add_ahead,   add_nesterov, admm,         easgd_coded, eamsgd_coded, sgd_coded, add_coded};

static void steps(struct psc *c, uint64_t until, bool compare)
{
    for (uint64_t t; (t = psc_clock(c)) < until;) {
        gradient(t);
        assert_ok(c, psc_step(c, x, g, 1));
        if (!compare)
            memcpy(straight[t], x, sizeof x);
        for (int i = 0; i < N && compare; i++)
            if (memcmp(&straight[t][i], &x[i], sizeof *x) != 0)
                ck_abort_msg("t = %d, [%d]: %.9g after loading, %.9g without", (int)t, i, (double)x[i],
                             (double)straight[t][i]);
    }
}

/* The worker dies after saving; another takes its place with the center as it was. */
START_TEST(going_on_from_a_file_is_going_on)
{
    static const char position[] = "epoch 3, image 17";
    char found[64] = "";
    size_t found_bytes = 0;
    struct stat st;
    rig_roll(start, N, 70);
    start_psd(methods[_i]);
    struct psc *c = join();
    steps(c, STEPS, false);
    psc_close(c);
    daemon_remove(&psd);

    start_psd(methods[_i]);
    c = join();
    steps(c, SAVE_AT, true);
    assert_ok(c, psc_save(c, path, start, NULL, 0)); /* to be replaced */
    assert_ok(c, psc_save(c, path, x, position, sizeof position));
    ck_assert_int_ne(access(temporary, F_OK), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_ge(st.st_size, (off_t)sizeof x);
    psc_close(c);
    if (methods[_i] == admm) { /* in this life of psd nobody may begin anew in the worker's place */
        ck_assert(daemon_workers_become(&psd, 0)); /* it has heard that the worker left */
        ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
        daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
        ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    }

    c = join();
    assert_ok(c, psc_load(c, path, x, found, sizeof found, &found_bytes));
    ck_assert_uint_eq(found_bytes, sizeof position);
    ck_assert_str_eq(found, position);
    ck_assert_uint_eq(psc_clock(c), SAVE_AT);
    ck_assert_mem_eq(x, straight[SAVE_AT - 1], sizeof x);
    steps(c, STEPS, true);
    psc_close(c);
}
END_TEST

static void check_unchanged(struct psc *c, const char *extra)
{
    ck_assert_mem_eq(x, start, sizeof x);
    ck_assert_str_eq(extra, "mine");
    ck_assert_uint_eq(psc_clock(c), first_clock);
}

static unsigned char *read_whole(size_t *size)
{
    struct stat st;
    FILE *f = fopen(path, "re");
    ck_assert(f != NULL && stat(path, &st) == 0);
    *size = (size_t)st.st_size;
    unsigned char *bytes = malloc(*size + 1);
    ck_assert_uint_eq(fread(bytes, 1, *size, f), *size);
    bytes[*size] = 0;
    fclose(f);
    return bytes;
}

static void write_whole(const unsigned char *bytes, size_t size)
{
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

/* One byte anywhere, a few missing, or one too many: each is found, and nothing was taken from it. */
START_TEST(damage_is_found_and_changes_nothing)
{
    char extra[16] = "mine";
    struct dice dice = {71};
    size_t size;
    rig_roll(start, N, 70);
    start_psd(eamsgd);
    struct psc *c = join();
    steps(c, 2, false);
    assert_ok(c, psc_save(c, path, x, "abc", 4));
    psc_close(c);
    unsigned char *bytes = read_whole(&size);
    c = join();
    memcpy(start, x, sizeof x);
    for (size_t i = 0; i < 260; i++) {
        size_t at = i < 200 ? i : dice_below(&dice, size), length = size;
        unsigned char was = bytes[at];
        if (i % 3 == 2)
            length = i == 2 ? size + 1 : at;
        else
            bytes[at] ^= (unsigned char)(1 + dice_below(&dice, 255));
        write_whole(bytes, length);
        bytes[at] = was;
        int rc = psc_load(c, path, x, extra, sizeof extra, NULL);
        ck_assert_msg(rc == PSC_EDAMAGED || rc == PSC_EMANIFEST || rc == PSC_EINVAL, "byte %zu: %s: %s", at,
                      psc_result_name(rc), psc_error(c));
        assert_says(psc_error(c), path);
        check_unchanged(c, extra);
    }
    write_whole(bytes, size); /* and the handle is none the worse */
    assert_ok(c, psc_load(c, path, x, extra, sizeof extra, NULL));
    ck_assert_uint_eq(psc_clock(c), 2);
    free(bytes);
    psc_close(c);
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
    struct psc_tensor other[RIG_TENSORS];
    char extra[16] = "mine";
    rig_roll(start, N, 70);
    start_psd(easgd);
    struct psc *c = join();
    steps(c, 3, false);
    assert_ok(c, psc_save(c, path, x, "longer than there is room", 26));
    assert_fails(c, psc_load(c, path, x, NULL, 0, NULL), PSC_EINVAL, "before the first psc_step");
    psc_close(c);

    c = join();
    memcpy(start, x, sizeof x);
    assert_fails(c, psc_load(c, path, x, extra, sizeof extra, NULL), PSC_EINVAL, "26 extra bytes");
    assert_fails(c, psc_load(c, "/nowhere/at/all", x, NULL, 0, NULL), PSC_ESYSTEM, "'/nowhere/at/all': No");
    assert_fails(c, psc_load(c, psd.dir, x, NULL, 0, NULL), PSC_EINVAL, "not a regular file");
    assert_fails(c, psc_load(c, "", x, NULL, 0, NULL), PSC_EINVAL, "allowed are 1 to");
    assert_fails(c, psc_load(c, NULL, x, NULL, 0, NULL), PSC_EINVAL, "allowed are 1 to");
    assert_fails(c, psc_load(c, path, NULL, NULL, 0, NULL), PSC_EINVAL, "psc_load: a vector is missing");
    assert_fails(c, psc_load(c, path, x, NULL, 3, NULL), PSC_EINVAL, "extra is NULL");
    assert_fails(c, psc_save(c, "/nowhere/at/all", x, NULL, 0), PSC_ESYSTEM, "'/nowhere/at/all': No");
    assert_fails(c, psc_save(c, path, NULL, NULL, 0), PSC_EINVAL, "psc_save: a vector is missing");
    check_unchanged(c, extra);
    psc_close(c);
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);

    char kept[200]; /* the same file, another job */
    snprintf(kept, sizeof kept, "%s", path);
    struct daemon first = psd;
    rig_start(&psd, eamsgd);
    memcpy(other, rig_model, sizeof other);
    other[2].name = "bn.shift";
    c = rig_join(&psd, other, RIG_TENSORS, x);
    assert_fails(c, psc_load(c, kept, x, NULL, 0, NULL), PSC_EMANIFEST, "was saved for another model");
    psc_close(c);
    daemon_remove(&psd);
    rig_start(&psd, eamsgd);
    c = rig_join(&psd, rig_model, RIG_TENSORS, x);
    assert_fails(c, psc_load(c, kept, x, NULL, 0, NULL), PSC_EINVAL,
                 "under optimizer sgd and rule elastic; the job has nesterov and elastic");
    psc_close(c);
    daemon_remove(&first);
}
END_TEST

/* A diverged worker's state never takes the place of a good one. */
START_TEST(values_that_are_not_finite_are_not_saved)
{
    rig_roll(start, N, 70);
    start_psd(easgd);
    struct psc *c = join();
    steps(c, 1, false);
    assert_ok(c, psc_save(c, path, x, "good", 5));
    x[77] = NAN;
    assert_fails(c, psc_save(c, path, x, "bad", 4), PSC_EVALUE, "not finite");
    psc_close(c);
    char extra[8];
    c = join();
    assert_ok(c, psc_load(c, path, x, extra, sizeof extra, NULL));
    ck_assert_str_eq(extra, "good");
    psc_close(c);
}
END_TEST

/* A worker that was given up, and one that has taken its place, may both be saving. What a killed one has
 * left is no obstacle. */
START_TEST(two_that_save_at_a_time_do_not_mix)
{
    rig_roll(start, N, 70);
    start_psd(easgd);
    struct psc *c = join();
    steps(c, 1, false);
    assert_ok(c, psc_save(c, path, x, "good", 5));
    int other = open(temporary, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ck_assert_int_eq(write(other, start, sizeof start), sizeof start);
    ck_assert_int_eq(flock(other, LOCK_EX), 0);
    assert_fails(c, psc_save(c, path, x, "bad", 4), PSC_ESYSTEM, "another process is saving to it");
    close(other);
    steps(c, 2, false);
    assert_ok(c, psc_save(c, path, x, "next", 5));
    ck_assert_int_ne(access(temporary, F_OK), 0);
    psc_close(c);
    char extra[8];
    c = join();
    assert_ok(c, psc_load(c, path, x, extra, sizeof extra, NULL));
    ck_assert_str_eq(extra, "next");
    psc_close(c);
}
END_TEST

/* Such as one to a folder that the worker's next node has, too. */
START_TEST(a_link_stays_and_leads_to_the_state)
{
    char link[200];
    struct stat st;
    rig_roll(start, N, 70);
    start_psd(easgd);
    struct psc *c = join();
    snprintf(link, sizeof link, "%s.link", path);
    ck_assert_int_eq(symlink(strrchr(path, '/') + 1, link), 0);
    unlink(path);
    assert_ok(c, psc_save(c, link, x, NULL, 0));
    ck_assert_int_eq(lstat(link, &st), 0);
    ck_assert(S_ISLNK(st.st_mode));
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    unlink(link);
    psc_close(c);
}
END_TEST

/* psd asks every worker when it has written a checkpoint, and says of which version. */
START_TEST(psd_asks_to_save)
{
    struct psc_info info = {.size = sizeof info};
    rig_roll(start, N, 70);
    start_psd(sgd);
    struct psc *c = join();
    steps(c, 3, false);
    psc_info(c, &info);
    ck_assert_uint_eq(info.save_version, 0);
    ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    for (double end = unit_now_s() + UNIT_HANG_S; info.save_version == 0 && unit_now_s() < end;) {
        unit_nap_ms(5);
        psc_info(c, &info);
    }
    ck_assert_uint_eq(info.save_version, 3);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-save");
    TCase *tc = tcase_create("save");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, going_on_from_a_file_is_going_on, 0, ROWS(methods));
    tcase_add_test(tc, damage_is_found_and_changes_nothing);
    tcase_add_test(tc, what_does_not_fit_is_refused);
    tcase_add_test(tc, values_that_are_not_finite_are_not_saved);
    tcase_add_test(tc, two_that_save_at_a_time_do_not_mix);
    tcase_add_test(tc, a_link_stays_and_leads_to_the_state);
    tcase_add_test(tc, psd_asks_to_save);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
