#include "server/ctl/top.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"
#include "server/ctl/format.h"

#define ONCE_PAUSE_MS 500 /* between the two looks of --once */

struct look {
    json_t *status, *workers; /* the array; both NULL: none */
    double at_s;              /* CLOCK_MONOTONIC */
};

struct sorting {
    const char *name, *key;
    bool descending;
};

static const struct sorting sortings[] = {
    {"rank", "client", false},           {"updates/s", "updates_per_s", true},
    {"staleness", "staleness", true},    {"loss", "loss", true},
    {"images/s", "samples_per_s", true}, {"distance", "distance", true},
    {"last seen", "last_seen_s", true},
};
#define N_SORTINGS (sizeof sortings / sizeof *sortings)

static const struct ctl_column columns[] = {
    {"rank", "rank", false},         {"name", "name", true},
    {"state", "state", true},        {"t", "clock", false},
    {"updates/s", "rate", false},    {"stale", "staleness", false},
    {"loss", "loss_text", false},    {"images/s", "speed", false},
    {"distance", "distance", false}, {"|update|", "update_norm", false},
    {"seen", "seen", false},
};

struct ctl_top {
    struct ctl_client *client;
    uint32_t timeout_ms;
    struct look now, before;
    double gone_since_s; /* 0: psd answered at the last look */
    char trouble[400];
    size_t sorting;
    int first; /* worker shown first */
    struct ctl_frame frame;
    int room;
};

static void look_finish(struct look *l)
{
    json_decref(l->status);
    json_decref(l->workers);
    *l = (struct look){NULL, NULL, 0};
}

int ctl_top_create(struct ctl_client *client, uint32_t timeout_ms, struct ctl_top **out, struct ps_error *err)
{
    struct ctl_top *top = calloc(1, sizeof *top);
    if (top == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the view");
    top->client = client;
    top->timeout_ms = timeout_ms;
    top->gone_since_s = ps_now_s();
    strcpy(top->trouble, "not asked yet");
    *out = top;
    return 0;
}

void ctl_top_destroy(struct ctl_top *top)
{
    if (top == NULL)
        return;
    look_finish(&top->now);
    look_finish(&top->before);
    free(top->frame.lines);
    free(top);
}

static int ask(struct ctl_top *top, const char *path, json_t **answer, struct ps_error *err)
{
    struct ctl_reply reply;
    int rc = ctl_client_ask(top->client, "GET", path, top->timeout_ms, &reply, err);
    if (rc < 0)
        return rc;
    *answer = reply.status == 200 ? json_loadb(reply.body, reply.len_bytes, 0, NULL) : NULL;
    free(reply.body);
    return *answer != NULL ? 0 : ps_fail(err, -EPROTO, "psd answered %d to %s, no JSON", reply.status, path);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The worker of the same session in the look before, or NULL. */
static const json_t *find_session(const json_t *workers, const json_t *like)
{
    const json_t *w;
    size_t i;
    json_array_foreach(workers, i, w)
    {
        if (number(w, "client") == number(like, "client") &&
            number(w, "incarnation") == number(like, "incarnation"))
            return w;
    }
    return NULL;
}

static void set_text(json_t *worker, const char *key, const char *format, double value)
{
    char text[40];
    snprintf(text, sizeof text, format, value);
    json_object_set_new(worker, key, isfinite(value) ? json_string(text) : json_null());
}

/* What the table shows and psd does not say itself. */
static void add_derived(const struct look *before, struct look *now)
{
    json_t *w;
    size_t i;
    json_array_foreach(now->workers, i, w)
    {
        const json_t *was = before->workers != NULL ? find_session(before->workers, w) : NULL;
        double rate = was != NULL
                          ? (number(w, "exchanges") - number(was, "exchanges")) / (now->at_s - before->at_s)
                          : NAN;
        if (isfinite(rate))
            json_object_set_new(w, "updates_per_s", json_real(rate));
        set_text(w, "rate", "%.1f", rate);
        set_text(w, "speed", "%.0f", number(w, "samples_per_s"));
        set_text(w, "loss_text", "%.4f", number(w, "loss"));
        set_text(w, "seen", "%.1f s", number(w, "last_seen_s"));
        if (json_is_null(json_object_get(w, "rank")))
            json_object_set_new(w, "rank", json_string("obs"));
    }
}

int ctl_top_look(struct ctl_top *top, struct ps_error *err)
{
    struct look l = {.at_s = ps_now_s()};
    json_t *answer = NULL;
    int rc = ask(top, "/status", &l.status, err);
    if (rc == 0 && (rc = ask(top, "/workers", &answer, err)) == 0)
        l.workers = json_incref(json_object_get(answer, "workers"));
    json_decref(answer);
    if (rc < 0) {
        if (top->gone_since_s == 0)
            top->gone_since_s = ps_now_s();
        ctl_copy_printable(top->trouble, sizeof top->trouble, err->text);
        look_finish(&l);
        return rc;
    }
    look_finish(&top->before);
    /* Another psd than before: nothing to compare with. */
    if (top->now.status != NULL && number(top->now.status, "pid") == number(l.status, "pid"))
        top->before = top->now;
    else
        look_finish(&top->now);
    add_derived(&top->before, &l);
    top->now = l;
    top->gone_since_s = 0;
    return 0;
}

void ctl_top_sort_next(struct ctl_top *top)
{
    top->sorting = (top->sorting + 1) % N_SORTINGS;
    top->first = 0;
}

void ctl_top_scroll(struct ctl_top *top, int by)
{
    int n = (int)json_array_size(top->now.workers);
    top->first = top->first + by < 0 ? 0 : top->first + by >= n ? (n > 0 ? n - 1 : 0) : top->first + by;
}

/* What is not known comes last, equals in the order of their ranks. */
static int by_sorting(const void *a, const void *b, void *arg)
{
    const struct sorting *s = arg;
    const json_t *v = *(json_t *const *)a, *w = *(json_t *const *)b;
    double x = number(v, s->key), y = number(w, s->key);
    if (isnan(x) != isnan(y))
        return isnan(x) ? 1 : -1;
    if (isnan(x) || x == y)
        return number(v, "client") < number(w, "client") ? -1 : 1;
    return (x < y) == s->descending ? 1 : -1;
}

/* A new array, from the first one shown on. */
static json_t *sorted_workers(const struct ctl_top *top)
{
    size_t n = json_array_size(top->now.workers);
    json_t **all = calloc(n + 1, sizeof *all), *out = json_array();
    for (size_t i = 0; all != NULL && i < n; i++)
        all[i] = json_array_get(top->now.workers, i);
    if (all != NULL)
        qsort_r(all, n, sizeof *all, by_sorting, (void *)(uintptr_t)&sortings[top->sorting]);
    for (size_t i = (size_t)top->first; all != NULL && i < n; i++)
        json_array_append(out, all[i]);
    free(all);
    return out;
}

static void print_job(const struct ctl_top *top, FILE *out)
{
    const json_t *s = top->now.status;
    const json_t *center = json_object_get(s, "center"), *e = json_object_get(s, "evaluation");
    const json_t *c = json_object_get(s, "checkpoint");
    double rate =
        (number(center, "version") - number(json_object_get(top->before.status, "center"), "version")) /
        (top->now.at_s - top->before.at_s);
    double stale = 0, n = 0;
    const json_t *w;
    size_t i;

    json_array_foreach(top->now.workers, i, w)
    {
        if (strcmp(ctl_get(w, "kind").s, "worker") == 0) {
            stale += number(w, "staleness");
            n++;
        }
    }
    fprintf(out, "method      %s   version %s   ", ctl_get(json_object_get(s, "method"), "name").s,
            ctl_get(center, "version").s);
    fprintf(out, isfinite(rate) ? "%.1f updates/s" : "- updates/s", rate);
    fprintf(out, n > 0 && isfinite(stale) ? "   staleness %.1f\n" : "   staleness -\n", stale / n);
    fprintf(out, "center      accuracy %s   loss %s   at version %s   norm %s\n",
            ctl_get(e, "test_accuracy").s, ctl_get(e, "test_loss").s, ctl_get(e, "center_version").s,
            ctl_get(s, "center_norm").s);
    if (ctl_is_known(c, "last_path")) {
        double age = 1e-6 * (double)ps_wall_us() - number(c, "last_unix_s");
        fprintf(out, "checkpoint  version %s, %s ago%s\n", ctl_get(c, "last_version").s,
                ctl_duration(age > 0 ? age : 0).s,
                ctl_is_known(c, "last_error") ? "; the next one FAILED" : "");
    } else {
        fprintf(out, "checkpoint  none yet\n");
    }
}

static void print_frame(const struct ctl_top *top, FILE *out)
{
    const json_t *s = top->now.status;
    if (s == NULL) {
        fprintf(out, "psctl top: waiting for psd, for %s\n", ctl_duration(ps_now_s() - top->gone_since_s).s);
        fprintf(out, "%s\n", top->trouble);
        return;
    }
    fprintf(out, "psd %s   %s   up %s   pid %s   %s\n", ctl_get(s, "version").s,
            top->gone_since_s == 0 ? ctl_get(s, "state").s : "GONE", ctl_duration(number(s, "uptime_s")).s,
            ctl_get(s, "pid").s, ctl_get(s, "listen").s);
    print_job(top, out);
    if (top->gone_since_s != 0)
        fprintf(out, "no answer for %s: %s; looking again\n", ctl_duration(ps_now_s() - top->gone_since_s).s,
                top->trouble);
    else
        fprintf(out, "workers     %s active, %s observers   sorted by %s\n",
                ctl_get(json_object_get(s, "workers"), "active").s,
                ctl_get(json_object_get(s, "workers"), "observers").s, sortings[top->sorting].name);
    json_t *list = sorted_workers(top);
    fprintf(out, "\n");
    ctl_print_table(out, columns, sizeof columns / sizeof *columns, list);
    json_decref(list);
}

static bool is_in_trouble(int line, const char *text)
{
    return strstr(text, "FAILED") != NULL ||
           (line > 6 && (strstr(text, " silent ") != NULL || strstr(text, " stalled ") != NULL));
}

static enum ctl_style style_of(const struct ctl_top *top, int line, const char *text)
{
    if (line == 0)
        return top->gone_since_s == 0 ? CTL_BOLD : CTL_ALARM;
    if (top->now.status == NULL || (top->gone_since_s != 0 && line == 4))
        return CTL_ALARM;
    if (line == 6)
        return CTL_TITLES;
    if (top->gone_since_s != 0)
        return CTL_FAINT;
    return is_in_trouble(line, text) ? CTL_ALARM : CTL_PLAIN;
}

static int add_line(struct ctl_top *top, enum ctl_style style, const char *text, size_t len)
{
    struct ctl_frame *f = &top->frame;
    if (f->n == top->room) {
        int room = top->room * 2 + 32;
        struct ctl_line *more = realloc(f->lines, (size_t)room * sizeof *more);
        if (more == NULL)
            return -ENOMEM;
        f->lines = more;
        top->room = room;
    }
    f->lines[f->n].style = style;
    snprintf(f->lines[f->n++].text, sizeof f->lines->text, "%.*s", (int)len, text);
    return 0;
}

const struct ctl_frame *ctl_top_frame(struct ctl_top *top, int max_lines)
{
    char *text = NULL;
    size_t size = 0;
    int rc = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    print_frame(top, out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    top->frame.n = 0;
    for (const char *at = text; rc == 0 && *at != 0;) {
        size_t len = strcspn(at, "\n");
        rc = add_line(top, style_of(top, top->frame.n, at), at, len);
        at += len + (at[len] == '\n');
    }
    free(text);
    if (max_lines > 0 && top->frame.n > max_lines) {
        struct ctl_line *last = &top->frame.lines[max_lines - 1];
        snprintf(last->text, sizeof last->text, "… %d more (arrows scroll)", top->frame.n - max_lines + 1);
        last->style = CTL_FAINT;
        top->frame.n = max_lines;
    }
    return rc == 0 ? &top->frame : NULL;
}

int ctl_top_once(struct ctl_top *top, FILE *out, struct ps_error *err)
{
    int rc = ctl_top_look(top, err);
    if (rc < 0)
        return rc;
    ps_sleep_us(ONCE_PAUSE_MS * 1000);
    if ((rc = ctl_top_look(top, err)) < 0)
        return rc;
    const struct ctl_frame *f = ctl_top_frame(top, 0);
    if (f == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the view");
    for (int i = 0; i < f->n; i++)
        fprintf(out, "%s\n", f->lines[i].text);
    return 0;
}
