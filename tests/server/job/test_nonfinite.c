/* The first value that is not finite, what psd answers with where a number is not known, and a history that
 * cannot be written, or is long. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/model/manifest.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/unit.h"

/* Three tensors of 4, 6 and 1 values: nothing else of a psd is looked at. */
static struct job_fixture *make_psd(void)
{
    struct ps_tensor tensors[] = {
        {.name = (char *)(uintptr_t) "a", .offset = 0, .shape = {2, 2}, .n_dims = 2},
        {.name = (char *)(uintptr_t) "b", .offset = 4, .shape = {6}, .n_dims = 1},
        {.name = (char *)(uintptr_t) "c", .offset = 10, .shape = {1}, .n_dims = 1}};
    struct job_fixture *d = calloc(1, sizeof *d);
    job_fixture_wire(d);
    struct ps_error err;
    d->job.center = calloc(1, sizeof *d->job.center);
    ck_assert_msg(ps_manifest_create(tensors, 3, 100, &d->job.center->manifest, &err) == 0, "%s", err.text);
    atomic_store(&d->lanes.shared.version, 77);
    return d;
}

static void free_psd(struct job_fixture *d)
{
    ps_manifest_destroy(d->job.center->manifest);
    free(d->job.center);
    free(d);
}

static const struct {
    uint64_t index;
    const char *tensor;
} places[] = {{0, "a"}, {3, "a"}, {4, "b"}, {9, "b"}, {10, "c"}, {11, ""}, {UINT64_MAX, ""}};

START_TEST(the_tensor_is_found)
{
    struct job_fixture *d = make_psd();
    const struct psd_session s = {.client = 3, .incarnation = 9, .name = "somebody"};
    psd_job_note_nonfinite(&d->job, &s, 12, places[_i].index, _i % 2 == 0);
    ck_assert(d->job.nonfinite.seen);
    ck_assert_str_eq(d->job.nonfinite.tensor, places[_i].tensor);
    ck_assert_uint_eq(d->job.nonfinite.index, places[_i].index);
    ck_assert_str_eq(d->job.nonfinite.name, "somebody");
    ck_assert_uint_eq(d->job.nonfinite.rank, 3);
    ck_assert_uint_eq(d->job.nonfinite.incarnation, 9);
    ck_assert_uint_eq(d->job.nonfinite.clock, 12);
    ck_assert_uint_eq(d->job.nonfinite.version, 77);
    ck_assert_int_eq(d->job.nonfinite.sent, _i % 2 == 0);
    ck_assert_double_gt(d->job.nonfinite.t_s, 1e9);
    free_psd(d);
}
END_TEST

START_TEST(only_the_first_is_remembered)
{
    struct job_fixture *d = make_psd();
    const struct psd_session first = {.client = 1, .name = "first"}, second = {.client = 2, .name = "second"};
    psd_job_note_nonfinite(&d->job, &first, 1, 0, true);
    psd_job_note_nonfinite(&d->job, &second, 2, 4, false);
    ck_assert_str_eq(d->job.nonfinite.name, "first");
    ck_assert_str_eq(d->job.nonfinite.tensor, "a");
    ck_assert(d->job.nonfinite.sent);
    free_psd(d);
}
END_TEST

/* A share, and of a center that this psd has had. */
START_TEST(evaluations_that_decide)
{
    struct job_fixture *d = make_psd();
    const struct {
        double accuracy;
        uint64_t version;
        bool counts;
    } rows[] = {{0, 77, true},    {1, 0, true},    {0.5, 78, false},     {1.01, 1, false},
                {-0.1, 1, false}, {NAN, 1, false}, {INFINITY, 1, false}, {0.5, UINT64_MAX, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_int_eq(psd_evaluation_counts(&d->job, &(struct psd_evaluation){.accuracy = rows[i].accuracy,
                                                                                 .version = rows[i].version}),
                         rows[i].counts);
    free_psd(d);
}
END_TEST

static void write_lines(struct job_fixture *d, const char *path, int n)
{
    d->job.history.fd = open(path, O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < n; i++) {
        psd_history_add(&d->job);
        uv_run(&d->loop, UV_RUN_DEFAULT);
    }
    close(d->job.history.fd);
}

/* A disk may be full for days: two lines of the log are enough for that. */
START_TEST(a_full_disk_is_named_once)
{
    static struct job_fixture d;
    enum { LINES_BYTES = 1 << 18 }; /* as psd_history_open has it */
    char text[4096] = "";
    int log = memfd_create("log", 0), was = dup(2);
    unsigned lines = 0;
    job_fixture_wire(&d);
    ck_assert_int_eq(uv_loop_init(&d.loop), 0);
    d.job.history = (struct psd_history){.records = calloc(10, sizeof *d.job.history.records),
                                         .max = 10,
                                         .lines = malloc(LINES_BYTES),
                                         .written = malloc(LINES_BYTES)};
    dup2(log, 2);
    write_lines(&d, "/dev/full", 4);
    write_lines(&d, "/dev/null", 2);
    dup2(was, 2);
    for (ssize_t i = 0, len = pread(log, text, sizeof text - 1, 0); i < len; i++)
        lines += text[i] == '\n';
    ck_assert_msg(lines == 2 && strstr(text, "it lacks 4 lines") != NULL, "%s", text);
    d.job.history.fd = -1;
    psd_history_close(&d.job);
    ck_assert_int_eq(uv_loop_close(&d.loop), 0);
    close(log);
    close(was);
}
END_TEST

/* A machine that was lost left a line in part, longer than a block of what looks for its begin. */
START_TEST(a_line_in_part_is_cut_at_the_next_start)
{
    static struct job_fixture d;
    char path[300], line[512];
    struct ps_error err;
    int n = 0;
    job_fixture_wire(&d);
    ck_assert_int_eq(uv_loop_init(&d.loop), 0);
    strcpy(d.cfg.state_dir, "/tmp/psd-test-history-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(d.cfg.state_dir));
    snprintf(path, sizeof path, "%s/history.jsonl", d.cfg.state_dir);
    FILE *f = fopen(path, "we");
    fprintf(f, "{\"t\":1}\n{\"t\":2}\n{\"t\":3,\"event\":\"%*s", 9000, "");
    ck_assert_int_eq(fclose(f), 0);

    for (int run = 0; run < 2; run++) { /* the second finds whole lines */
        ck_assert_msg(psd_history_open(&d.job, &err) == 0, "%s", err.text);
        psd_history_add(&d.job);
        uv_run(&d.loop, UV_RUN_DEFAULT);
        psd_history_close(&d.job);
        memset(&d.job.history, 0, sizeof d.job.history);
    }
    f = fopen(path, "re");
    for (; fgets(line, sizeof line, f) != NULL; n++) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL && line[strlen(line) - 1] == '\n', "%s", line);
        json_decref(record);
    }
    fclose(f);
    ck_assert_int_eq(n, 4);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(d.cfg.state_dir), 0);
    ck_assert_int_eq(uv_loop_close(&d.loop), 0);
}
END_TEST

static struct job_fixture *begin_history(size_t max)
{
    enum { LINES_BYTES = 1 << 18 }; /* as psd_history_open has it */
    struct job_fixture *d = calloc(1, sizeof *d);
    job_fixture_wire(d);
    ck_assert_int_eq(uv_loop_init(&d->loop), 0);
    d->job.history = (struct psd_history){.records = calloc(max, sizeof *d->job.history.records),
                                          .max = max,
                                          .fd = open("/dev/null", O_WRONLY | O_CLOEXEC),
                                          .lines = malloc(LINES_BYTES),
                                          .written = malloc(LINES_BYTES)};
    return d;
}

static void end_history(struct job_fixture *d)
{
    uv_run(&d->loop, UV_RUN_DEFAULT);
    psd_history_close(&d->job);
    ck_assert_int_eq(uv_loop_close(&d->loop), 0);
    free(d);
}

/* A job of a month has 300 times as many records as fit into the memory: its whole time is there, not its
 * last hours alone, and what is rare. */
START_TEST(a_long_history_is_kept_of_all_its_time)
{
    enum { MOST = 64, N = 300 * MOST };
    struct job_fixture *d = begin_history(MOST);
    const struct psd_history *h = &d->job.history;
    unsigned methods = 0;
    for (int i = 0; i < N; i++) {
        d->job.started_ms = psd_loop_now_ms(&d->loop);
        d->job.started_unix_ms += 1000;
        if (i % (N / 4) == N / 8)
            psd_history_tell(&d->job, PSD_EVENT_METHOD, "%d", i);
        else
            psd_history_add(&d->job);
        if (i % 100 == 0)
            uv_run(&d->loop, UV_RUN_DEFAULT);
        ck_assert_uint_le(h->n, h->max);
    }
    ck_assert_double_eq(h->records[0].t_s, 1);
    ck_assert_double_eq(h->records[h->n - 1].t_s, N);
    for (size_t i = 0; i < h->n; i++) {
        methods += h->records[i].kind == PSD_EVENT_METHOD;
        if (i > 0)
            ck_assert_double_le(h->records[i].t_s - h->records[i - 1].t_s, 8.0 * N / MOST);
    }
    ck_assert_uint_eq(methods, 4);
    ck_assert_uint_eq(h->dropped, 0);
    end_history(d);
}
END_TEST

static unsigned lines_of(int log)
{
    static char text[1 << 18];
    unsigned n = 0;
    ssize_t len = pread(log, text, sizeof text, 0);
    for (ssize_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n;
}

static struct job_fixture *begin_changes(void)
{
    struct job_fixture *d = begin_history(8192);
    struct ps_error err, warning;
    psd_config_defaults(&d->job.reload.layers.base);
    d->cfg = d->job.reload.layers.base;
    ck_assert_msg(psd_config_settle(&d->cfg, &err, &warning) == 0, "%s", err.text);
    d->cfg.lanes = 2;
    return d;
}

/* A worker may set something at each of its steps for a month. */
START_TEST(changes_all_the_time_are_not_told_of_each_time)
{
    static const char *const changes[] = {"checkpoint.keep=4", "checkpoint.keep=5", "checkpoint.keep=5",
                                          "checkpoint.keep=0", "checkpoint.every_s=x"};
    enum { SECONDS = 100, A_SECOND = 20, MOST = 100 + SECONDS / 10 + 1 }; /* as psd_changes_tell has it */
    struct job_fixture *d = begin_changes();
    struct psd_reloader *r = &d->job.reload;
    int log = memfd_create("log", 0), was = dup(2);
    struct ps_error err;
    dup2(log, 2);
    for (int i = 0; i < SECONDS * A_SECOND; i++) {
        d->loop.time += 1000 / A_SECOND;
        psd_set(&d->job, changes[(size_t)i % ROWS(changes)], &err);
    }
    size_t n_told = d->job.history.n;
    d->loop.time += 10000;
    ck_assert_int_ge(psd_set(&d->job, changes[0], &err), 0);
    dup2(was, 2);
    ck_assert_uint_eq(r->n_applied + r->n_unchanged + r->n_refused, SECONDS * A_SECOND + 1);
    ck_assert_uint_gt(r->n_refused, 0);
    ck_assert_uint_le(n_told, MOST);
    ck_assert_uint_eq(d->job.history.n, n_told + 1);
    ck_assert_uint_le(lines_of(log), 3 * MOST);
    close(log);
    close(was);
    end_history(d);
}
END_TEST

/* Whoever has asked for a change is answered with its result, although another one is refused meanwhile. */
START_TEST(a_change_in_progress_has_its_own_result)
{
    static const struct {
        enum psd_method_change_phase phase;
        const char *lines;
        int rc;
    } rows[] = {{PSD_METHOD_CHANGE_DUE, "checkpoint.every_s=x", -EINVAL},
                {PSD_METHOD_CHANGE_CLOSING, "checkpoint.keep=5", -EBUSY},
                {PSD_METHOD_CHANGE_NONE, "checkpoint.every_s=x", -EINVAL}};
    struct job_fixture *d = begin_changes();
    struct ps_error err;
    int log = memfd_create("log", 0), was = dup(2);
    d->job.method_change.phase = rows[_i].phase;
    d->job.method_change.layers = d->job.reload.layers;
    dup2(log, 2);
    int rc = psd_set(&d->job, rows[_i].lines, &err);
    dup2(was, 2);
    ck_assert_int_eq(rc, rows[_i].rc);
    ck_assert_int_eq(d->job.reload.last.text[0] != 0, rows[_i].phase == PSD_METHOD_CHANGE_NONE);
    ck_assert_uint_eq(lines_of(log), rc == -EINVAL); /* who finds psd busy asks again */
    close(log);
    close(was);
    end_history(d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-watch");
    TCase *tc = tcase_create("watch");
    tcase_add_loop_test(tc, the_tensor_is_found, 0, (int)(sizeof places / sizeof *places));
    tcase_add_test(tc, only_the_first_is_remembered);
    tcase_add_test(tc, evaluations_that_decide);
    tcase_add_test(tc, a_full_disk_is_named_once);
    tcase_add_test(tc, a_line_in_part_is_cut_at_the_next_start);
    tcase_add_test(tc, a_long_history_is_kept_of_all_its_time);
    tcase_add_test(tc, changes_all_the_time_are_not_told_of_each_time);
    tcase_add_loop_test(tc, a_change_in_progress_has_its_own_result, 0, 3);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
