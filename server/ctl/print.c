#include "server/ctl/print.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A value as text; returned by value so that several stand in one printf. */
struct text {
    char s[256];
};

void ctl_copy_printable(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; *from != 0 && n < size - 1; from++) {
        unsigned char c = (unsigned char)*from, next = (unsigned char)from[1];
        bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; /* control characters beyond ASCII */
        to[n++] = c < 0x20 || c == 0x7f || c1 ? '?' : *from;
        from += c1;
    }
    to[n] = 0;
}

static struct text text_of(const json_t *value)
{
    struct text t = {"-"};
    if (json_is_string(value))
        ctl_copy_printable(t.s, sizeof t.s, json_string_value(value));
    else if (json_is_integer(value))
        snprintf(t.s, sizeof t.s, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(t.s, sizeof t.s, "%.6g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(t.s, sizeof t.s, "%s", json_is_true(value) ? "yes" : "no");
    return t;
}

static struct text get(const json_t *object, const char *key)
{
    return text_of(json_object_get(object, key));
}

/* "1.6 MiB" */
static struct text get_bytes(const json_t *object, const char *key)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    const json_t *value = json_object_get(object, key);
    double bytes = json_number_value(value);
    struct text t = {"-"};
    size_t unit = 0;

    if (!json_is_number(value))
        return t;
    for (; bytes >= 1024 && unit < sizeof units / sizeof *units - 1; unit++)
        bytes /= 1024;
    snprintf(t.s, sizeof t.s, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return t;
}

/* "12.3 s", "5 min 03 s", "2 h 07 min", "3 d 04 h" */
static struct text duration(double seconds)
{
    struct text t;
    long long s = (long long)seconds;
    if (seconds < 60)
        snprintf(t.s, sizeof t.s, "%.1f s", seconds);
    else if (s < 3600)
        snprintf(t.s, sizeof t.s, "%lld min %02lld s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(t.s, sizeof t.s, "%lld h %02lld min", s / 3600, s / 60 % 60);
    else
        snprintf(t.s, sizeof t.s, "%lld d %02lld h", s / 86400, s / 3600 % 24);
    return t;
}

static bool is_known(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value != NULL && !json_is_null(value);
}

/* "learning_rate 0.1, period 4, schedule.kind constant": nulls are left out. */
static void print_members(FILE *out, const json_t *object, const char *outer, const char **comma)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_object(value) && outer[0] == 0) {
            print_members(out, value, key, comma);
        } else if (!json_is_null(value)) {
            struct text name;
            ctl_copy_printable(name.s, sizeof name.s, key);
            fprintf(out, "%s%s%s%s %s", *comma, outer, outer[0] != 0 ? "." : "", name.s, text_of(value).s);
            *comma = ", ";
        }
    }
}

static void print_method(FILE *out, const json_t *status)
{
    const json_t *m = json_object_get(status, "method");
    const char *comma = "";
    fprintf(out, "method      %s: rule %s, admission %s, optimizer %s, averaging %s; generation %s\n",
            get(m, "name").s, get(m, "rule").s, get(m, "admission").s, get(m, "optimizer").s,
            get(m, "averaging").s, get(status, "generation").s);
    fprintf(out, "parameters  ");
    print_members(out, json_object_get(status, "parameters"), "", &comma);
    fprintf(out, "\n");
}

static void print_center(FILE *out, const json_t *status)
{
    const json_t *model = json_object_get(status, "model"), *c = json_object_get(status, "center");
    if (is_known(model, "floats"))
        fprintf(out, "model       %s values in %s tensors, manifest %s\n", get(model, "floats").s,
                get(model, "tensors").s, get(model, "manifest").s);
    else
        fprintf(out, "model       none yet: the first worker brings it\n");
    fprintf(out, "center      version %s; updates %s applied, %s rejected, %s lost; %s replays\n",
            get(c, "version").s, get(c, "updates_applied").s, get(c, "updates_rejected").s,
            get(c, "lost_updates").s, get(c, "replays").s);
    if (is_known(c, "resumed_from"))
        fprintf(out, "            resumed from %s\n", get(c, "resumed_from").s);
}

static void print_workers_line(FILE *out, const json_t *status)
{
    const json_t *w = json_object_get(status, "workers"), *e = json_object_get(status, "evaluation");
    fprintf(out, "workers     %s active, %s observers\n", get(w, "active").s, get(w, "observers").s);
    if (is_known(e, "test_accuracy") || is_known(e, "test_loss"))
        fprintf(out, "evaluation  accuracy %s, loss %s at version %s\n", get(e, "test_accuracy").s,
                get(e, "test_loss").s, get(e, "center_version").s);
    else
        fprintf(out, "evaluation  none yet\n");
}

static void print_memory(FILE *out, const json_t *status)
{
    const json_t *m = json_object_get(status, "memory");
    fprintf(out,
            "memory      %s of %s: center %s, snapshot %s, state %s, windows %s, replay %s; resident %s\n",
            get_bytes(m, "total_bytes").s, get_bytes(m, "limit_bytes").s, get_bytes(m, "center_bytes").s,
            get_bytes(m, "snapshot_bytes").s, get_bytes(m, "state_bytes").s, get_bytes(m, "window_bytes").s,
            get_bytes(m, "replay_bytes").s, get_bytes(m, "rss_bytes").s);
}

static void print_checkpoint(FILE *out, const json_t *status)
{
    const json_t *c = json_object_get(status, "checkpoint");
    bool busy = json_is_true(json_object_get(c, "in_progress"));

    if (is_known(c, "last_path")) {
        double age = (double)time(NULL) - json_number_value(json_object_get(c, "last_unix_s"));
        fprintf(out, "checkpoint  %s, version %s, %s ago%s\n", get(c, "last_path").s,
                get(c, "last_version").s, duration(age > 0 ? age : 0).s,
                busy ? "; another is being written" : "");
    } else {
        fprintf(out, "checkpoint  none yet, in %s%s\n", get(c, "directory").s,
                busy ? "; the first is being written" : "");
    }
    if (is_known(c, "last_error"))
        fprintf(out, "            failed: %s\n", get(c, "last_error").s);
}

void ctl_print_status(FILE *out, const json_t *status)
{
    double uptime = json_number_value(json_object_get(status, "uptime_s"));
    fprintf(out, "%s %s  pid %s  %s  up %s\n", get(status, "name").s, get(status, "version").s,
            get(status, "pid").s, get(status, "state").s, duration(uptime).s);
    print_method(out, status);
    fprintf(out, "listen      %s; transport %s, %s lanes, chunks of %s values, %s of them a window\n",
            get(status, "listen").s, get(status, "transport").s, get(status, "lanes").s,
            get(status, "chunk_floats").s, get(status, "window_chunks").s);
    print_center(out, status);
    print_workers_line(out, status);
    print_memory(out, status);
    print_checkpoint(out, status);
}

static const struct {
    const char *title, *key;
    bool left; /* aligned */
} columns[] = {
    {"client", "client", false},      {"rank", "rank", false},
    {"kind", "kind", true},           {"name", "name", true},
    {"state", "state", true},         {"clock", "clock", false},
    {"seen_s", "last_seen_s", false}, {"exchanges", "exchanges", false},
    {"stale", "staleness", false},    {"loss", "loss", false},
    {"accuracy", "accuracy", false},  {"samples/s", "samples_per_s", false},
    {"inc", "incarnation", false},    {"address", "address", true},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)

void ctl_print_workers(FILE *out, const json_t *answer)
{
    const json_t *list = json_object_get(answer, "workers");
    size_t n = json_array_size(list);
    int width[N_COLUMNS];

    if (n == 0) {
        fprintf(out, "no workers\n");
        return;
    }
    for (size_t c = 0; c < N_COLUMNS; c++) {
        width[c] = (int)strlen(columns[c].title);
        for (size_t i = 0; i < n; i++) {
            int w = (int)strlen(get(json_array_get(list, i), columns[c].key).s);
            width[c] = w > width[c] ? w : width[c];
        }
    }
    for (size_t row = 0; row <= n; row++) { /* row 0 has the titles */
        for (size_t c = 0; c < N_COLUMNS; c++) {
            struct text t;
            if (row == 0)
                ctl_copy_printable(t.s, sizeof t.s, columns[c].title);
            else
                t = get(json_array_get(list, row - 1), columns[c].key);
            bool last = c == N_COLUMNS - 1;
            fprintf(out, "%s%*s", c > 0 ? "  " : "", last ? 0 : columns[c].left ? -width[c] : width[c], t.s);
        }
        fprintf(out, "\n");
    }
}
