/* The job over time: in memory for /history, and as history.jsonl in the state directory. */
#include "server/psd.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/log.h"
#include "server/json.h"

enum { MAX_RECORDS = 8192, EVERY_MS = 1000 };

int psd_history_open(struct psd *d, struct ps_error *err)
{
    char path[400];
    snprintf(path, sizeof path, "%s/history.jsonl", d->cfg.state_dir);
    d->history.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (d->history.fd < 0)
        return ps_fail(err, -errno, "%s: %s", path, strerror(errno));
    d->history.records = calloc(MAX_RECORDS, sizeof *d->history.records);
    d->history.max = MAX_RECORDS;
    return d->history.records != NULL ? 0 : ps_fail(err, -ENOMEM, "no memory for the history");
}

void psd_history_close(struct psd *d)
{
    if (d->history.fd >= 0)
        close(d->history.fd);
    free(d->history.records);
}

json_t *psd_json_record(const struct psd_record *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "t", json_real(r->t_s));
    json_object_set_new(o, "center_version", json_integer((json_int_t)r->version));
    json_object_set_new(o, "workers", json_integer(r->workers));
    json_object_set_new(o, "updates_per_s", psd_json_number(r->updates_per_s));
    json_object_set_new(o, "loss", psd_json_number(r->loss));
    json_object_set_new(o, "test_loss", psd_json_number(r->test_loss));
    json_object_set_new(o, "test_accuracy", psd_json_number(r->test_accuracy));
    return o;
}

/* A job of a month still fits: when memory is full, every second record goes. */
static void thin(struct psd_history *h)
{
    size_t kept = 0;
    for (size_t i = 0; i < h->n; i++)
        if (i % 2 == 0)
            h->records[kept++] = h->records[i];
    h->n = kept;
}

static double mean_loss(const struct psd *d)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->sessions.n_workers_max; i++) {
        const struct psd_session *s = &d->sessions.slots[i];
        if (s->state == PSD_SESSION_ACTIVE && isfinite(s->metrics.loss)) {
            sum += s->metrics.loss;
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

static void append(struct psd *d, const struct psd_record *r)
{
    json_t *o = psd_json_record(r);
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text != NULL) {
        size_t len = strlen(text);
        text[len] = '\n'; /* the terminator's place: written, not read as a string any more */
        if (write(d->history.fd, text, len + 1) != (ssize_t)len + 1)
            ps_log(PS_LOG_WARN, "history.write", "history.jsonl: %s", strerror(errno));
    }
    free(text);
    json_decref(o);
}

void psd_history_tick(struct psd *d)
{
    struct psd_history *h = &d->history;
    uint64_t now_ms = uv_now(&d->loop), version = psd_version(d);
    struct timespec now;
    if (now_ms - h->last_ms < EVERY_MS || (version == h->last_version && !d->evaluation.fresh))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    struct psd_record r = {
        .t_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
        .version = version,
        .workers = psd_sessions_count(&d->sessions, false),
        .updates_per_s = (double)(version - h->last_version) * 1e3 / (double)(now_ms - h->last_ms),
        .loss = mean_loss(d),
        .test_loss = d->evaluation.fresh ? d->evaluation.loss : NAN,
        .test_accuracy = d->evaluation.fresh ? d->evaluation.accuracy : NAN,
    };
    d->evaluation.fresh = false;
    h->last_ms = now_ms;
    h->last_version = version;
    if (h->n == h->max)
        thin(h);
    h->records[h->n++] = r;
    append(d, &r);
}
