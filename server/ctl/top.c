#include "server/ctl/top.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "proto/clock.h"
#include "proto/text.h"
#include "server/ctl/format.h"

#define END_MS        100 /* to read the answer about the end, which psd has sent when it is gone */
#define ONCE_PAUSE_MS 500 /* between the two looks of --once */

struct screen_state {
    json_t *status, *workers; /* status, and the array of workers; both NULL: none */
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

/* Columns. need: if there is no room for all, those with 0 are shown, and those with 1, 2 and so on that
 * fit. */
static const struct {
    struct ctl_column column;
    int need;
} columns[] = {
    {{"rank", "rank", false}, 0},         {{"name", "shown_name", true}, 0},
    {{"state", "state", true}, 0},        {{"t", "steps_text", false}, 0},
    {{"updates/s", "rate", false}, 1},    {{"stale", "staleness", false}, 5},
    {{"loss", "loss_text", false}, 2},    {{"images/s", "speed", false}, 3},
    {{"distance", "distance", false}, 6}, {{"|update|", "update_norm", false}, 7},
    {{"seen", "seen", false}, 4},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns, MOST_NEED = 7, LEAST_NAME = 12, GAP = 2 };

/* A frame being laid out: text wrapped to a width. */
struct sheet {
    struct ctl_top *top;
    int width; /* of the terminal; 0: unlimited */
    int rc;    /* -ENOMEM: lines are missing */
};

struct ctl_top {
    struct ctl_client *client;
    uint32_t timeout_ms;
    struct screen_state now, before;
    struct ctl_question *end; /* asks psd for its end, which it answers then; NULL: not asked */
    bool ended_well;
    char how[900];       /* how it ended; "": it has not, or the answer is missing */
    double gone_since_s; /* 0: psd answered at the last look */
    char trouble[400];
    size_t sorting;
    int first; /* worker shown first */
    struct ctl_frame frame;
    int room;
};

static void look_finish(struct screen_state *l)
{
    json_decref(l->status);
    json_decref(l->workers);
    *l = (struct screen_state){NULL, NULL, 0};
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
    ctl_question_destroy(top->end);
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

/* The worker of the same session in the previous look, or NULL. */
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

static bool is_silent(const json_t *worker)
{
    return strcmp(ctl_get(worker, "state").s, "silent") == 0;
}

/* Adds values that the table shows and psd does not report. */
static void add_derived(const struct screen_state *before, struct screen_state *now)
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
        set_text(w, "rate", "%.1f", is_silent(w) ? NAN : rate);
        set_text(w, "speed", "%.0f", is_silent(w) ? NAN : number(w, "samples_per_s"));
        set_text(w, "loss_text", "%.4f", number(w, "loss"));
        set_text(w, "seen", "%.1f s", number(w, "last_seen_s"));
        json_object_set_new(w, "steps_text",
                            ctl_is_known(w, "steps")
                                ? json_sprintf("%.40s/%.40s", ctl_get(w, "clock").s, ctl_get(w, "steps").s)
                                : json_string(ctl_get(w, "clock").s));
        if (json_is_null(json_object_get(w, "rank")))
            json_object_set_new(w, "rank", json_string("obs"));
    }
}

/* No worker is in a job that has ended. */
static void end_workers(json_t *workers)
{
    json_t *w;
    size_t i;
    json_array_foreach(workers, i, w)
    {
        json_object_set_new(w, "state", json_string("ended"));
    }
}

/* {"drain": "done", ...}, or {"error": sentence}. */
static void take_end(struct ctl_top *top, const struct ctl_reply *reply)
{
    json_t *said = json_loadb(reply->body, reply->len_bytes, 0, NULL);
    top->ended_well = reply->status == 200;
    if (top->ended_well)
        snprintf(top->how, sizeof top->how,
                 "the job has ended cleanly (%.300s); its center: version %.20s, %.500s",
                 ctl_get(said, "reason").s, ctl_get(said, "version").s, ctl_get(said, "checkpoint").s);
    else if (reply->status == 500)
        snprintf(top->how, sizeof top->how, "psd has ended: %.800s", ctl_get(said, "error").s);
    json_decref(said);
    if (top->how[0] != 0)
        end_workers(top->now.workers);
}

/* While psd answers, asks it to report its end; when it no longer answers, reads that report. */
static void follow_end(struct ctl_top *top, bool gone)
{
    const struct ctl_reply *reply;
    if (!gone) {
        top->how[0] = 0;
        top->ended_well = false;
        if (top->end == NULL && ctl_question_create(top->client, "/end", &top->end) < 0)
            top->end = NULL;
    }
    int rc = top->end != NULL ? ctl_question_look(top->end, gone ? END_MS : 0, &reply) : 0;
    if (rc > 0 && gone)
        take_end(top, reply);
    bool unknown = rc > 0 && !gone && reply->status == 404; /* a psd of an older version */
    if (rc != 0 && !unknown) {
        ctl_question_destroy(top->end);
        top->end = NULL;
    }
}

/* After a restart of psd, which in a container has the same pid, there is nothing to compare with. */
static bool is_same_run(const json_t *before, const json_t *now)
{
    return number(before, "pid") == number(now, "pid") &&
           !(number(now, "uptime_s") < number(before, "uptime_s"));
}

int ctl_top_look(struct ctl_top *top, struct ps_error *err)
{
    struct screen_state l = {.at_s = ps_now_s()};
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
        follow_end(top, true);
        return rc;
    }
    look_finish(&top->before);
    if (top->now.status != NULL && is_same_run(top->now.status, l.status))
        top->before = top->now;
    else
        look_finish(&top->now);
    add_derived(&top->before, &l);
    top->now = l;
    ctl_top_scroll(top, 0); /* there may be fewer workers now */
    top->gone_since_s = 0;
    follow_end(top, false);
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

/* Unknown values come last; equal ones are in the order of their ranks. */
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

/* A new array, from the first worker shown. */
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

static void add_line(struct sheet *sheet, enum ctl_style style, const char *text)
{
    struct ctl_top *top = sheet->top;
    struct ctl_frame *f = &top->frame;
    if (f->n == top->room) {
        int room = top->room * 2 + 32;
        struct ctl_line *more = realloc(f->lines, (size_t)room * sizeof *more);
        if (more == NULL) {
            sheet->rc = -ENOMEM;
            return;
        }
        f->lines = more;
        top->room = room;
    }
    size_t len = sheet->width > 0 ? ctl_bytes_of_width(text, sheet->width) : strlen(text);
    f->lines[f->n].style = style;
    snprintf(f->lines[f->n++].text, sizeof f->lines->text, "%.*s", (int)len, text);
}

#define LABEL "            " /* the width of a label */

/* The words of one subject, filled into lines. */
struct words {
    struct sheet *sheet;
    enum ctl_style style;
    const char *between;
    size_t indent; /* of its second and later lines */
    char line[sizeof((struct ctl_line *)NULL)->text];
    bool any; /* the line has a word */
};

static struct words words_begin(struct sheet *sheet, enum ctl_style style, const char *label)
{
    struct words w = {sheet, style, "   ", strlen(label) > 0 ? sizeof LABEL - 1 : 0, "", false};
    snprintf(w.line, sizeof w.line, "%-*s", (int)w.indent, label);
    return w;
}

static void words_add(struct words *w, const char *word)
{
    const char *between = w->any ? w->between : "";
    int wide = ctl_width(w->line) + ctl_width(between) + ctl_width(word);
    if (w->any && w->sheet->width > 0 && wide > w->sheet->width) {
        add_line(w->sheet, w->style, w->line);
        snprintf(w->line, sizeof w->line, "%*s", (int)w->indent, "");
        between = "";
    }
    size_t used = strlen(w->line);
    snprintf(w->line + used, sizeof w->line - used, "%s%s", between, word);
    w->any = true;
}

static void words_addf(struct words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void words_addf(struct words *w, const char *format, ...)
{
    char word[sizeof w->line];
    va_list ap;
    va_start(ap, format);
    vsnprintf(word, sizeof word, format, ap);
    va_end(ap);
    words_add(w, word);
}

static void words_end(struct words *w)
{
    if (w->any)
        add_line(w->sheet, w->style, w->line);
}

static void add_sentence(struct sheet *sheet, enum ctl_style style, const char *sentence)
{
    struct words w = words_begin(sheet, style, "");
    char word[sizeof w.line];
    w.between = " ";
    for (const char *at = sentence; *at != 0; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)len, at);
        words_add(&w, word);
        at += len;
    }
    words_end(&w);
}

/* Of the workers that are not silent; NaN: there are none. */
static double mean_staleness(const json_t *workers)
{
    double sum = 0, n = 0;
    const json_t *w;
    size_t i;
    json_array_foreach(workers, i, w)
    {
        if (strcmp(ctl_get(w, "kind").s, "worker") == 0 && !is_silent(w)) {
            sum += number(w, "staleness");
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

static void show_method(struct sheet *sheet, enum ctl_style style)
{
    const struct ctl_top *top = sheet->top;
    const json_t *s = top->now.status, *center = json_object_get(s, "center");
    double rate =
        (number(center, "version") - number(json_object_get(top->before.status, "center"), "version")) /
        (top->now.at_s - top->before.at_s);
    double stale = mean_staleness(top->now.workers);
    struct words w = words_begin(sheet, style, "method");
    words_add(&w, ctl_get(json_object_get(s, "method"), "name").s);
    words_addf(&w, "version %s", ctl_get(center, "version").s);
    words_addf(&w, isfinite(rate) ? "%.1f updates/s" : "- updates/s", rate);
    words_addf(&w, isfinite(stale) ? "staleness %.1f" : "staleness -", stale);
    words_end(&w);
}

/* For example "lenet, mlp". */
static void join(char *text, size_t size, const json_t *names)
{
    const json_t *name;
    size_t i;
    text[0] = 0;
    json_array_foreach(names, i, name)
    {
        ps_text_join(text, size, ", ", ctl_text_of(name).s);
    }
}

/* With dynamic periods each worker has its own. */
static void add_period(struct words *out, const struct screen_state *l)
{
    double least = INFINITY, most = -INFINITY;
    const json_t *w;
    size_t i;
    json_array_foreach(l->workers, i, w)
    {
        double period = is_silent(w) ? NAN : number(w, "period");
        least = fmin(least, period);
        most = fmax(most, period);
    }
    const json_t *p = json_object_get(l->status, "parameters");
    if (least < most)
        words_addf(out, "period %.0f to %.0f", least, most);
    else if (ctl_is_known(p, "period"))
        words_addf(out, "period %s", ctl_get(p, "period").s);
}

static void show_training(struct sheet *sheet, enum ctl_style style)
{
    const struct screen_state *l = &sheet->top->now;
    const json_t *t = json_object_get(l->status, "training"), *p = json_object_get(l->status, "parameters");
    struct words w = words_begin(sheet, style, "training");
    char nets[200], data[200];
    join(nets, sizeof nets, json_object_get(t, "nets"));
    join(data, sizeof data, json_object_get(t, "data"));
    if (nets[0] != 0 || data[0] != 0)
        words_addf(&w, "%s%s%s", nets, nets[0] != 0 && data[0] != 0 ? " on " : "", data);
    if (number(t, "steps_wanted") > 0)
        words_addf(&w, "%s of %s steps, %.0f %%", ctl_get(t, "steps_done").s, ctl_get(t, "steps_wanted").s,
                   floor(100 * number(t, "steps_done") / number(t, "steps_wanted")));
    if (ctl_is_known(p, "learning_rate_now"))
        words_addf(&w, "learning rate %s", ctl_get(p, "learning_rate_now").s);
    add_period(&w, l);
    words_end(&w);
}

static void show_center(struct sheet *sheet, enum ctl_style style)
{
    const json_t *s = sheet->top->now.status, *e = json_object_get(s, "evaluation");
    struct words w = words_begin(sheet, style, "center");
    words_addf(&w, "accuracy %s", ctl_get(e, "test_accuracy").s);
    words_addf(&w, "loss %s", ctl_get(e, "test_loss").s);
    words_addf(&w, "at version %s", ctl_get(e, "center_version").s);
    words_addf(&w, "norm %s", ctl_get(s, "center_norm").s);
    words_end(&w);
}

static void show_checkpoint(struct sheet *sheet, enum ctl_style style)
{
    const json_t *c = json_object_get(sheet->top->now.status, "checkpoint");
    bool failed = ctl_is_known(c, "last_error");
    struct words w = words_begin(sheet, failed && style == CTL_PLAIN ? CTL_ALARM : style, "checkpoint");
    if (ctl_is_known(c, "last_path")) {
        double age = 1e-6 * (double)ps_wall_us() - number(c, "last_unix_s");
        words_addf(&w, "version %s, %s ago%s", ctl_get(c, "last_version").s,
                   ctl_duration(age > 0 ? age : 0).s, failed ? "; the next one FAILED" : "");
    } else {
        words_add(&w, failed ? "none yet; the first one FAILED" : "none yet");
    }
    words_end(&w);
}

static void show_workers_line(struct sheet *sheet)
{
    const struct ctl_top *top = sheet->top;
    struct words w = words_begin(sheet, CTL_PLAIN, "workers");
    words_add(&w, ctl_workers(top->now.status).s);
    words_addf(&w, "sorted by %s", sortings[top->sorting].name);
    words_end(&w);
}

static enum ctl_style style_of(const struct ctl_top *top, const json_t *worker)
{
    if (top->gone_since_s != 0 || is_silent(worker))
        return CTL_FAINT;
    return strcmp(ctl_get(worker, "state").s, "stalled") == 0 ? CTL_ALARM : CTL_PLAIN;
}

/* Shortens names to that width; a shortened one ends with "…". */
static void shorten_names(json_t *list, int width)
{
    json_t *w;
    size_t i;
    json_array_foreach(list, i, w)
    {
        struct ctl_text name = ctl_get(w, "name");
        bool fits = ctl_width(name.s) <= width;
        size_t len = ctl_bytes_of_width(name.s, fits ? width : width - 1);
        json_object_set_new(w, "shown_name", json_sprintf("%.*s%s", (int)len, name.s, fits ? "" : "…"));
    }
}

/* Selects the columns that fit beside a name of at most LEAST_NAME, into out; returns how many. The names get
 * the remaining width. */
static size_t choose_columns(json_t *list, int width, struct ctl_column *out)
{
    int wide[N_COLUMNS], name = 0, least, used = 0;
    bool chosen[N_COLUMNS] = {false};
    size_t n = 0;
    shorten_names(list, INT_MAX);
    for (int c = 0; c < N_COLUMNS; c++) {
        wide[c] = ctl_column_width(&columns[c].column, list) + (c > 0 ? GAP : 0);
        name = strcmp(columns[c].column.key, "shown_name") == 0 ? wide[c] - GAP : name;
    }
    least = name < LEAST_NAME ? name : LEAST_NAME;
    used = least - name;
    for (int need = 0; need <= MOST_NEED; need++)
        for (int c = 0; c < N_COLUMNS; c++)
            if (columns[c].need == need && (need == 0 || width == 0 || used + wide[c] <= width)) {
                chosen[c] = true;
                used += wide[c];
            }
    for (int c = 0; c < N_COLUMNS; c++)
        if (chosen[c])
            out[n++] = columns[c].column;
    if (width > 0 && least + width - used < name)
        shorten_names(list, used < width ? least + width - used : least);
    return n;
}

static void show_table(struct sheet *sheet)
{
    struct ctl_column chosen[N_COLUMNS];
    char *text = NULL;
    size_t size = 0, row = 0;
    json_t *list = sorted_workers(sheet->top);
    size_t n = choose_columns(list, sheet->width, chosen);
    FILE *out = open_memstream(&text, &size);
    if (out != NULL)
        ctl_print_table(out, chosen, n, list);
    if (out == NULL || fclose(out) != 0)
        sheet->rc = -ENOMEM;
    for (char *at = text, *end; sheet->rc == 0 && (end = strchr(at, '\n')) != NULL; at = end + 1, row++) {
        *end = 0;
        add_line(sheet, row == 0 ? CTL_TITLES : style_of(sheet->top, json_array_get(list, row - 1)), at);
    }
    free(text);
    json_decref(list);
}

static void show_trouble(struct sheet *sheet, const char *format)
{
    const struct ctl_top *top = sheet->top;
    char sentence[600];
    snprintf(sentence, sizeof sentence, format, ctl_duration(ps_now_s() - top->gone_since_s).s, top->trouble);
    add_sentence(sheet, CTL_ALARM, sentence);
}

static void show_frame(struct sheet *sheet)
{
    const struct ctl_top *top = sheet->top;
    const json_t *s = top->now.status;
    bool gone = top->gone_since_s != 0;
    enum ctl_style style = gone ? CTL_FAINT : CTL_PLAIN;
    if (s == NULL) {
        show_trouble(sheet, "psctl top: waiting for psd, for %s: %s");
        return;
    }
    struct words w = words_begin(sheet, gone && !top->ended_well ? CTL_ALARM : CTL_BOLD, "");
    words_addf(&w, "psd %s", ctl_get(s, "version").s);
    words_add(&w, top->ended_well ? "ended" : gone ? "GONE" : ctl_get(s, "state").s);
    words_addf(&w, "up %s", ctl_duration(number(s, "uptime_s")).s);
    words_addf(&w, "pid %s", ctl_get(s, "pid").s);
    words_add(&w, ctl_get(s, "listen").s);
    words_end(&w);
    show_method(sheet, style);
    show_training(sheet, style);
    show_center(sheet, style);
    show_checkpoint(sheet, style);
    if (gone && top->how[0] != 0)
        add_sentence(sheet, top->ended_well ? CTL_BOLD : CTL_ALARM, top->how);
    else if (gone)
        show_trouble(sheet, "no answer for %s: %s; looking again");
    else
        show_workers_line(sheet);
    add_line(sheet, CTL_PLAIN, "");
    show_table(sheet);
}

const struct ctl_frame *ctl_top_frame(struct ctl_top *top, int max_lines, int width)
{
    struct sheet sheet = {top, width, 0};
    top->frame.n = 0;
    show_frame(&sheet);
    if (max_lines > 0 && top->frame.n > max_lines) {
        struct ctl_line *last = &top->frame.lines[max_lines - 1];
        snprintf(last->text, sizeof last->text, "… %d more (arrows scroll)", top->frame.n - max_lines + 1);
        last->style = CTL_FAINT;
        top->frame.n = max_lines;
    }
    return sheet.rc == 0 ? &top->frame : NULL;
}

int ctl_top_width(FILE *out)
{
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int ctl_top_once(struct ctl_top *top, FILE *out, struct ps_error *err)
{
    int rc = ctl_top_look(top, err);
    if (rc < 0)
        return rc;
    ps_sleep_us(ONCE_PAUSE_MS * 1000);
    if ((rc = ctl_top_look(top, err)) < 0)
        return rc;
    const struct ctl_frame *f = ctl_top_frame(top, 0, ctl_top_width(out));
    if (f == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the view");
    for (int i = 0; i < f->n; i++)
        fprintf(out, "%s\n", f->lines[i].text);
    return 0;
}
