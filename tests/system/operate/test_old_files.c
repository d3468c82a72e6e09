/* A checkpoint and a worker's state that the build of commit d43681d wrote are resumed: after 21 more steps
 * the worker and the center are where that build took them. tests/system/old has the files, made by the job
 * below, and METHOD.txt: x and the center at the end, a line for each float. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/psclient.h"
#include "tests/support/clock.h"
#include "tests/support/system/daemon.h"
#include "tests/support/unit.h"

enum { WEIGHTS = 40, MEANS = 8, TABLE = 4, N = WEIGHTS + MEANS + TABLE, STEPS = 21 };

static const struct psc_tensor model[] = {{"weights", 0, {8, 5}, 2, PSC_PARAM, PSC_DECAY},
                                          {"norm.mean", WEIGHTS, {MEANS}, 1, PSC_BUFFER, PSC_NO_DECAY},
                                          {"table", WEIGHTS + MEANS, {TABLE}, 1, PSC_FROZEN, PSC_NO_DECAY}};

/* Between them: an own x with momentum, a server with momentum, a server that averages. */
static const struct row {
    const char *method;
    unsigned version; /* of the checkpoint */
} rows[] = {{"eamsgd", 6}, {"diloco", 5}, {"mvadownpour", 5}};

static struct daemon psd;

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static void copy_file(const char *name, const char *to)
{
    char from[600], bytes[4096];
    snprintf(from, sizeof from, OLD_FILES "/%s", name);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert_msg(in != NULL && out != NULL, "%s or %s cannot be opened", from, to);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    ck_assert(n > 0 && n < sizeof bytes);
    ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

static void make_state_dir(const struct row *r)
{
    char name[80], path[300];
    snprintf(path, sizeof path, "%s/checkpoints", psd.state_dir);
    ck_assert_int_eq(mkdir(psd.state_dir, 0700), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(name, sizeof name, "%s.safetensors", r->method);
    snprintf(path, sizeof path, "%s/checkpoints/center-%012u.safetensors", psd.state_dir, r->version);
    copy_file(name, path);
}

/* g of |x - target|^2 / 4; the statistics grow by the worker's own doing. */
static void compute(float *x, float *g)
{
    for (int i = 0; i < N; i++) {
        g[i] = 0.5f * (x[i] - 0.125f * (float)(i % 5));
        if (i >= WEIGHTS && i < WEIGHTS + MEANS)
            x[i] += 0.0625f;
    }
}

static void check_end(const struct row *r, const float *x, const float *center)
{
    char path[600];
    float want_x, want_center;
    snprintf(path, sizeof path, OLD_FILES "/%s.txt", r->method);
    FILE *f = fopen(path, "r");
    ck_assert(f != NULL);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(fscanf(f, "%f %f", &want_x, &want_center), 2);
        ck_assert_msg(fabsf(x[i] - want_x) <= 1e-6f && fabsf(center[i] - want_center) <= 1e-6f,
                      "%s: float %d: x %a, center %a; commit d43681d had %a, %a", r->method, i, (double)x[i],
                      (double)center[i], (double)want_x, (double)want_center);
    }
    fclose(f);
}

START_TEST(files_of_an_older_build_are_resumed)
{
    const struct row *r = &rows[_i];
    char method[40], name[80], state[200], extra[16];
    const char *const settings[] = {method,
                                    "parameters.period=4",
                                    "parameters.learning_rate=0.25",
                                    "parameters.schedule.warmup_steps=0",
                                    "checkpoint.every_s=0",
                                    NULL};
    static float x[N], g[N], center[N];
    struct psc_options opt;
    struct psc *c;
    size_t extra_bytes;

    snprintf(method, sizeof method, "method=%s", r->method);
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    make_state_dir(r);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    ck_assert_uint_eq((unsigned)daemon_number(&psd, "/status", "center.version"), r->version);
    snprintf(name, sizeof name, "%s.state", r->method);
    snprintf(state, sizeof state, "%s/worker.state", psd.dir);
    copy_file(name, state);

    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    ck_assert_msg(psc_begin(c, model, 3, x) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_load(c, state, x, extra, sizeof extra, &extra_bytes) == PSC_OK, "%s", psc_error(c));
    ck_assert_uint_eq(extra_bytes, 12);
    ck_assert_str_eq(extra, "position 21");
    ck_assert_uint_eq(psc_clock(c), STEPS);
    for (int t = 0; t < STEPS; t++) {
        compute(x, g);
        ck_assert_msg(psc_step(c, x, g, 4) == PSC_OK, "%s", psc_error(c));
    }
    ck_assert_msg(psc_pull(c, NULL, center) == PSC_OK, "%s", psc_error(c));
    check_end(r, x, center);
    psc_close(c);
    ck_assert_int_eq(daemon_stop(&psd, SIGTERM, TEST_HANG_S), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("old_files");
    TCase *c = tcase_create("resumed");
    tcase_set_timeout(c, test_slow_s(TEST_HANG_S));
    tcase_add_checked_fixture(c, NULL, stop_psd);
    tcase_add_loop_test(c, files_of_an_older_build_are_resumed, 0, sizeof rows / sizeof *rows);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
