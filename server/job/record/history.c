/* The history of the job: in memory for /history, and as history.jsonl in the state directory. The loop
 * never waits for that file: a thread of libuv's pool writes the lines since the last write, at most
 * LINES_BYTES. */
#include "server/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/file.h"
#include "proto/log.h"
#include "server/config/json.h"
#include "server/job/job.h"

enum { MAX_RECORDS = 8192, EVERY_MS = 1000, LINES_BYTES = 1 << 18 };

int psd_history_open(struct psd_job *job, struct ps_error *err)
{
    char path[400];
    snprintf(path, sizeof path, "%s/history.jsonl", job->cfg->state_dir);
    int rc = ps_file_cut_torn_line(path, "");
    if (rc < 0)
        return ps_fail(err, rc, "%s: %s", path, strerror(-rc));
    job->history.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (job->history.fd < 0)
        return ps_fail(err, -errno, "%s: %s", path, strerror(errno));
    job->history.records = calloc(MAX_RECORDS, sizeof *job->history.records);
    job->history.max = MAX_RECORDS;
    job->history.last_ms = psd_loop_now_ms(job->loop);
    job->history.lines = malloc(LINES_BYTES);
    job->history.written = malloc(LINES_BYTES);
    return job->history.records != NULL && job->history.lines != NULL && job->history.written != NULL
               ? 0
               : ps_fail(err, -ENOMEM, "no memory for the history");
}

void psd_history_close(struct psd_job *job)
{
    if (job->history.fd >= 0)
        close(job->history.fd);
    for (size_t i = 0; i < job->history.n; i++)
        free(job->history.records[i].event);
    free(job->history.records);
    free(job->history.lines);
    free(job->history.written);
}

bool psd_history_is_writing(const struct psd_job *job)
{
    return job->history.writing;
}

static const char *const kinds[] = {[PSD_EVENT_END] = "end",         [PSD_EVENT_JOIN] = "join",
                                    [PSD_EVENT_MEMBERS] = "members", [PSD_EVENT_CHECKPOINT] = "checkpoint",
                                    [PSD_EVENT_METHOD] = "method",   [PSD_EVENT_DRAIN] = "drain"};

json_t *psd_json_record(const struct psd_record *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "t", json_real(r->t_s));
    json_object_set_new(o, "center_version", json_integer((json_int_t)r->version));
    json_object_set_new(o, "workers", json_integer(r->workers));
    json_object_set_new(o, "updates_per_s", psd_json_number(r->updates_per_s));
    json_object_set_new(o, "staleness", psd_json_number(r->staleness));
    json_object_set_new(o, "loss", psd_json_number(r->loss));
    json_object_set_new(o, "test_loss", psd_json_number(r->test_loss));
    json_object_set_new(o, "test_accuracy", psd_json_number(r->test_accuracy));
    json_object_set_new(o, "center_norm", psd_json_number(r->center_norm));
    json_object_set_new(o, "distance", psd_json_number(r->distance));
    if (r->event != NULL) {
        json_object_set_new(o, "event", psd_json_text(r->event));
        json_object_set_new(o, "event_kind", json_string(kinds[r->kind]));
    }
    return o;
}

/* Makes room when memory is full, so that even a job of a month fits: of each part of its time the first
 * record stays. Parts are equally long, and twice as long whenever they would be too many. The evaluation of
 * a removed record, which is rare, moves to the record before it if that has none, and its event if that has
 * none of the same importance. */
static void thin(struct psd_history *h)
{
    double begin = h->records[0].t_s, span = h->records[h->n - 1].t_s - begin, part_s = 1.0 / 1024, last = 0;
    size_t kept = 0;
    while (span / part_s > (double)h->n / 2)
        part_s *= 2;
    for (size_t i = 0; i < h->n; i++) {
        struct psd_record *r = &h->records[i];
        double part = floor((r->t_s - begin) / part_s);
        if (kept == 0 || part > last) {
            last = part;
            h->records[kept++] = *r;
            continue;
        }
        struct psd_record *before = &h->records[kept - 1];
        if (isnan(before->test_accuracy)) {
            before->test_accuracy = r->test_accuracy;
            before->test_loss = r->test_loss;
        }
        if (before->kind < r->kind) {
            free(before->event);
            before->event = r->event;
            before->kind = r->kind;
        } else {
            free(r->event);
        }
    }
    h->n = kept;
}

static double mean_loss(const struct psd_job *job)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++) {
        const struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_ACTIVE && isfinite(s->metrics.loss) && !psd_job_is_silent(job, s)) {
            sum += s->metrics.loss;
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

static uint64_t count_lines(const char *text, size_t n)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

/* A failed write may have left part of a line: truncates the file to complete lines. */
static void cut_torn_line(struct psd_history *h, size_t at)
{
    struct stat st;
    size_t torn = 0;
    while (torn < at && h->written[at - torn - 1] != '\n')
        torn++;
    if (torn > 0 && fstat(h->fd, &st) == 0 && ftruncate(h->fd, st.st_size - (off_t)torn) < 0)
        h->rc = -errno;
}

/* Pool thread. */
static void write_lines(uv_work_t *work)
{
    struct psd_history *h = &((struct psd_job *)work->data)->history;
    size_t at;
    h->rc = ps_file_append(h->fd, h->written, h->n_written, &at);
    h->n_lost = 0;
    if (h->rc == 0)
        return;
    h->n_lost = count_lines(h->written + at, h->n_written - at);
    cut_torn_line(h, at);
}

static void start_write(struct psd_job *job);

/* A disk that is full may be so for days, and a line is written every second. */
static void log_result(struct psd_history *h)
{
    if (h->rc < 0 && !h->fails)
        ps_log(PS_LOG_WARN, "history.write", "history.jsonl: %s: lines are lost", strerror(-h->rc));
    else if (h->rc == 0 && h->fails)
        ps_log(PS_LOG_INFO, "history.written",
               "history.jsonl can be written again: it lacks %" PRIu64 " lines", h->dropped);
    h->fails = h->rc < 0;
}

static void written(uv_work_t *work, int status)
{
    struct psd_job *job = work->data;
    struct psd_history *h = &job->history;
    (void)status;
    h->writing = false;
    h->dropped += h->n_lost;
    log_result(h);
    if (h->n_bytes > 0)
        start_write(job);
}

static void start_write(struct psd_job *job)
{
    struct psd_history *h = &job->history;
    char *lines = h->lines;
    h->work.data = job;
    h->lines = h->written;
    h->written = lines;
    h->n_written = h->n_bytes;
    h->n_bytes = 0;
    h->writing = uv_queue_work(job->loop, &h->work, write_lines, written) == 0;
}

static void append(struct psd_job *job, const struct psd_record *r)
{
    struct psd_history *h = &job->history;
    json_t *o = psd_json_record(r);
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    size_t len = text != NULL ? strlen(text) : 0;
    json_decref(o);
    if (len > 0 && len < LINES_BYTES - h->n_bytes) {
        memcpy(h->lines + h->n_bytes, text, len);
        h->lines[h->n_bytes + len] = '\n';
        h->n_bytes += len + 1;
        if (!h->writing)
            start_write(job);
    } else if (h->dropped++ == 0) {
        ps_log(PS_LOG_WARN, "history.write",
               "history.jsonl: the disk does not respond and the buffer is full: lines are lost");
    }
    free(text);
}

/* The largest ‖x − x̃‖ of the live workers. */
static double largest_distance(const struct psd_job *job)
{
    double largest = NAN, distance, update;
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++) {
        const struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_ACTIVE && !psd_job_is_silent(job, s) &&
            psd_stats_norms(job, i, &distance, &update))
            largest = fmax(largest, distance); /* ignores a NaN */
    }
    return largest;
}

/* The mean over the updates since the last record. */
static double recent_staleness(struct psd_job *job)
{
    struct psd_history *h = &job->history;
    struct psd_totals t;
    uint64_t count = 0;
    psd_stats_totals(job, &t);
    for (int k = 0; k < PSD_STALENESS_BUCKETS; k++)
        count += t.staleness[k];
    uint64_t n = count - h->last_stale_count;
    double mean = n > 0 ? (double)(t.staleness_sum - h->last_stale_sum) / (double)n : NAN;
    h->last_stale_count = count;
    h->last_stale_sum = t.staleness_sum;
    return mean;
}

/* Unix seconds in whole milliseconds, so that the number survives JSON. Based on the monotonic clock: records
 * stay in order and intervals are correct even if the system's time changes. No two records have the same
 * time, so a reader that asks for later ones misses none. */
static double next_t_s(struct psd_job *job)
{
    struct psd_history *h = &job->history;
    uint64_t ms = job->started_unix_ms + psd_loop_now_ms(job->loop) - job->started_ms;
    h->last_t_ms = ms > h->last_t_ms ? ms : h->last_t_ms + 1;
    return (double)h->last_t_ms / 1e3;
}

/* Takes ownership of the event. */
static void add(struct psd_job *job, enum psd_event kind, char *event)
{
    struct psd_history *h = &job->history;
    uint64_t now_ms = psd_loop_now_ms(job->loop), version = psd_stats_version(job);
    bool fresh = job->evaluation.fresh, long_enough = now_ms - h->last_ms >= EVERY_MS / 2;
    uint64_t more = version > h->last_version ? version - h->last_version : 0; /* a lost part goes back */
    struct psd_record r = {
        .t_s = next_t_s(job),
        .version = version,
        .workers = psd_sessions_count(job->sessions, false) - psd_job_count_silent(job, false),
        .updates_per_s = long_enough ? (double)more * 1e3 / (double)(now_ms - h->last_ms) : NAN,
        .staleness = recent_staleness(job),
        .loss = mean_loss(job),
        .test_loss = fresh ? job->evaluation.loss : NAN,
        .test_accuracy = fresh ? job->evaluation.accuracy : NAN,
        .center_norm = psd_stats_center_norm(job),
        .distance = largest_distance(job),
        .kind = kind,
        .event = event,
    };
    job->evaluation.fresh = false;
    if (long_enough) {
        h->last_ms = now_ms;
        h->last_version = version;
    }
    if (h->n == h->max)
        thin(h);
    h->records[h->n++] = r;
    append(job, &r);
    psd_tensorboard_add(job, &r);
}

void psd_history_add(struct psd_job *job)
{
    add(job, PSD_EVENT_NONE, NULL);
}

void psd_history_tell(struct psd_job *job, enum psd_event kind, const char *fmt, ...)
{
    char *event = NULL;
    va_list ap;
    if (job->history.max == 0)
        return; /* it is not open */
    va_start(ap, fmt);
    int n = vasprintf(&event, fmt, ap);
    va_end(ap);
    if (n >= 0)
        add(job, kind, event);
}

void psd_history_tick(struct psd_job *job)
{
    const struct psd_history *h = &job->history;
    psd_tensorboard_look(job);
    if (psd_loop_now_ms(job->loop) - h->last_ms >= EVERY_MS &&
        (psd_stats_version(job) != h->last_version || job->evaluation.fresh))
        psd_history_add(job);
}

void psd_history_tell_remark(struct psd_job *job)
{
    const char *remark = psd_config_remark(job->cfg);
    if (remark[0] != 0)
        psd_history_tell(job, PSD_EVENT_METHOD, "method %s; %s", job->cfg->method, remark);
}

void psd_history_tell_method(struct psd_job *job, const struct psd_config *now, const char *was,
                             uint32_t generation)
{
    const char *remark = psd_config_remark(now);
    psd_history_tell(job, PSD_EVENT_METHOD, "method %s after %s, generation %u%s%s", now->method, was,
                     generation, remark[0] != 0 ? "; " : "", remark);
}
