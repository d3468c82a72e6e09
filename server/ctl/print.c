#include "server/ctl/print.h"

#include <string.h>
#include <time.h>

#include "proto/clock.h"
#include "server/config/json.h"
#include "server/ctl/format.h"

/* Nulls, and parameters that the method does not use. */
static bool is_idle(const json_t *value)
{
    const char *word = json_string_value(value);
    return json_is_null(value) || (word != NULL && strcmp(word, "preset") == 0);
}

/* For example "learning_rate 0.1, period 4, schedule.kind constant". */
static void print_members(FILE *out, const json_t *object, const char *outer, const char **comma)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_object(value) && outer[0] == 0) {
            print_members(out, value, key, comma);
        } else if (!is_idle(value)) {
            struct ctl_text name;
            ctl_copy_printable(name.s, sizeof name.s, key);
            fprintf(out, "%s%s%s%s %s", *comma, outer, outer[0] != 0 ? "." : "", name.s,
                    ctl_text_of(value).s);
            *comma = ", ";
        }
    }
}

static void print_method(FILE *out, const json_t *status)
{
    const json_t *m = json_object_get(status, "method");
    const char *comma = "";
    fprintf(out, "method      %s: rule %s, admission %s, optimizer %s, averaging %s; generation %s\n",
            ctl_get(m, "name").s, ctl_get(m, "rule").s, ctl_get(m, "admission").s, ctl_get(m, "optimizer").s,
            ctl_get(m, "averaging").s, ctl_get(status, "generation").s);
    const char *remark = json_string_value(json_object_get(m, "remark"));
    if (remark != NULL && remark[0] != 0)
        fprintf(out, "            %s\n", ctl_get(m, "remark").s);
    fprintf(out, "parameters  ");
    print_members(out, json_object_get(status, "parameters"), "", &comma);
    fprintf(out, "\n");
}

/* "12", "at most 12", or "an unknown number (at least 5)". */
static struct ctl_text lost_of(const json_t *center)
{
    struct ctl_text text = ctl_get(center, "lost_updates"), number = text;
    const char *kind = json_string_value(json_object_get(center, "lost_updates_are"));
    if (kind != NULL && strcmp(kind, "unknown") == 0)
        snprintf(text.s, sizeof text.s, "an unknown number (at least %.40s)",
                 ctl_get(center, "lost_updates_least").s);
    else if (kind != NULL && strcmp(kind, "at most") == 0)
        snprintf(text.s, sizeof text.s, "at most %.40s", number.s);
    return text;
}

static void print_center(FILE *out, const json_t *status)
{
    const json_t *model = json_object_get(status, "model"), *c = json_object_get(status, "center");
    if (ctl_is_known(model, "floats"))
        fprintf(out, "model       %s values in %s tensors, manifest %s\n", ctl_get(model, "floats").s,
                ctl_get(model, "tensors").s, ctl_get(model, "manifest").s);
    else
        fprintf(out, "model       none yet: the first worker provides it\n");
    fprintf(out, "center      version %s; updates %s applied, %s rejected, %s lost; %s replays\n",
            ctl_get(c, "version").s, ctl_get(c, "updates_applied").s, ctl_get(c, "updates_rejected").s,
            lost_of(c).s, ctl_get(c, "replays").s);
    if (ctl_is_known(c, "resumed_from"))
        fprintf(out, "            resumed from %s\n", ctl_get(c, "resumed_from").s);
}

static void print_auth(FILE *out, const json_t *status)
{
    const json_t *barred = json_object_get(status, "barred"), *name;
    size_t i;
    if (!ctl_is_known(status, "auth"))
        return;
    fprintf(out, "auth        %s, %s", ctl_get(status, "auth").s,
            json_is_true(json_object_get(status, "encrypted")) ? "encrypted" : "not encrypted");
    json_array_foreach(barred, i, name)
    {
        fprintf(out, "%s %s", i == 0 ? "; barred:" : ",", ctl_text_of(name).s);
    }
    fprintf(out, "\n");
}

/* "lenet, mlp on digits; 1200 of 4000 steps", if workers report it. */
static void print_training(FILE *out, const json_t *status)
{
    static const char *const lists[] = {"nets", "data"};
    const json_t *t = json_object_get(status, "training"), *name;
    const char *before = "training    ";
    size_t i;
    for (int k = 0; k < 2; k++) {
        json_array_foreach(json_object_get(t, lists[k]), i, name)
        {
            fprintf(out, "%s%s", before, ctl_text_of(name).s);
            before = ", ";
        }
        before = strcmp(before, ", ") == 0 ? " on " : before;
    }
    if (ctl_is_known(t, "steps_wanted"))
        fprintf(out, "%s%s of %s steps", before[0] == 't' ? before : "; ", ctl_get(t, "steps_done").s,
                ctl_get(t, "steps_wanted").s);
    if (before[0] != 't' || ctl_is_known(t, "steps_wanted"))
        fprintf(out, "\n");
}

static void print_workers_line(FILE *out, const json_t *status)
{
    const json_t *e = json_object_get(status, "evaluation");
    fprintf(out, "workers     %s\n", ctl_workers(status).s);
    if (ctl_is_known(e, "test_accuracy") || ctl_is_known(e, "test_loss"))
        fprintf(out, "evaluation  accuracy %s, loss %s at version %s\n", ctl_get(e, "test_accuracy").s,
                ctl_get(e, "test_loss").s, ctl_get(e, "center_version").s);
    else
        fprintf(out, "evaluation  none yet\n");
}

static void print_memory(FILE *out, const json_t *status)
{
    const json_t *m = json_object_get(status, "memory");
    fprintf(
        out,
        "memory      %s of %s: center %s, snapshot %s, state %s, average %s, windows %s, replay %s, lent %s; "
        "resident %s\n",
        ctl_get_bytes(m, "total_bytes").s, ctl_get_bytes(m, "limit_bytes").s,
        ctl_get_bytes(m, "center_bytes").s, ctl_get_bytes(m, "snapshot_bytes").s,
        ctl_get_bytes(m, "state_bytes").s, ctl_get_bytes(m, "average_bytes").s,
        ctl_get_bytes(m, "window_bytes").s, ctl_get_bytes(m, "replay_bytes").s,
        ctl_get_bytes(m, "lent_bytes").s, ctl_get_bytes(m, "rss_bytes").s);
}

static void print_checkpoint(FILE *out, const json_t *status)
{
    const json_t *c = json_object_get(status, "checkpoint");
    bool busy = json_is_true(json_object_get(c, "in_progress"));

    if (ctl_is_known(c, "last_path")) {
        double age = 1e-6 * (double)ps_wall_us() - json_number_value(json_object_get(c, "last_unix_s"));
        fprintf(out, "checkpoint  %s, version %s, %s ago%s\n", ctl_get(c, "last_path").s,
                ctl_get(c, "last_version").s, ctl_duration(age > 0 ? age : 0).s,
                busy ? "; another is being written" : "");
    } else {
        fprintf(out, "checkpoint  none yet, in %s%s\n", ctl_get(c, "directory").s,
                busy ? "; the first is being written" : "");
    }
    if (ctl_is_known(c, "set_aside"))
        fprintf(out, "            %s of an earlier job, the newest of version %s, are in %s\n",
                ctl_get(c, "set_aside_checkpoints").s, ctl_get(c, "set_aside_newest").s,
                ctl_get(c, "set_aside").s);
    if (ctl_is_known(c, "last_error"))
        fprintf(out, "            failed: %s\n", ctl_get(c, "last_error").s);
    const json_t *best = json_object_get(c, "best");
    if (ctl_is_known(best, "path"))
        fprintf(out, "best        %s, version %s; accuracy %s at version %s\n", ctl_get(best, "path").s,
                ctl_get(best, "version").s, ctl_get(best, "test_accuracy").s,
                ctl_get(best, "evaluated_version").s);
}

/* Conditions that a user should know of, if there are any. */
static void print_notable(FILE *out, const json_t *status)
{
    const json_t *f = json_object_get(status, "nonfinite");
    if (ctl_is_known(f, "rank"))
        fprintf(
            out,
            "not finite  first at rank %s (%s), its step %s, version %s, value %s of tensor %s; sent: %s\n",
            ctl_get(f, "rank").s, ctl_get(f, "name").s, ctl_get(f, "clock").s, ctl_get(f, "center_version").s,
            ctl_get(f, "index").s, ctl_get(f, "tensor").s, ctl_get(f, "sent").s);
    const char *http = json_string_value(json_object_get(status, "http"));
    if (http != NULL && strncmp(http, "tcp://", 6) == 0)
        fprintf(out, "page        http%s/\n", ctl_get(status, "http").s + 3);
    if (ctl_is_known(status, "drain_reason"))
        fprintf(out, "draining    %s\n", ctl_get(status, "drain_reason").s);
}

/* Only with several servers. */
static void print_servers(FILE *out, const json_t *status)
{
    const json_t *servers = json_object_get(status, "servers"), *list = json_object_get(servers, "list"),
                 *server;
    size_t i;
    if (json_integer_value(json_object_get(servers, "count")) < 2)
        return;
    fprintf(out, "servers     %s; this is %s\n", ctl_get(servers, "count").s, ctl_get(servers, "index").s);
    json_array_foreach(list, i, server)
    {
        fprintf(out, "            %s %s (%s): version %s, checkpoint %s, lost %s times\n",
                ctl_get(server, "index").s, ctl_get(server, "state").s, ctl_get(server, "name").s,
                ctl_get(server, "version").s, ctl_get(server, "checkpoint").s, ctl_get(server, "lost").s);
    }
}

/* The transports of the clients' data, except the listener's. */
static void print_transports(FILE *out, const json_t *status)
{
    json_t *roads = json_object_get(status, "roads"), *n;
    const char *name, *before = "data        ";
    json_object_foreach(roads, name, n)
    {
        fprintf(out, "%sover %s of %" JSON_INTEGER_FORMAT " clients", before, name, json_integer_value(n));
        before = ", ";
    }
    if (json_object_size(roads) > 0)
        fprintf(out, "\n");
}

void ctl_print_status(FILE *out, const json_t *status)
{
    double uptime = json_number_value(json_object_get(status, "uptime_s"));
    fprintf(out, "%s %s  pid %s  %s  up %s\n", ctl_get(status, "name").s, ctl_get(status, "version").s,
            ctl_get(status, "pid").s, ctl_get(status, "state").s, ctl_duration(uptime).s);
    print_method(out, status);
    fprintf(out, "listen      %s; transport %s, %s lanes, chunks of %s values, %s of them a window\n",
            ctl_get(status, "listen").s, ctl_get(status, "transport").s, ctl_get(status, "lanes").s,
            ctl_get(status, "chunk_floats").s, ctl_get(status, "window_chunks").s);
    print_transports(out, status);
    print_auth(out, status);
    print_servers(out, status);
    print_center(out, status);
    print_training(out, status);
    print_workers_line(out, status);
    print_memory(out, status);
    print_checkpoint(out, status);
    print_notable(out, status);
}

static const struct ctl_column worker_columns[] = {
    {"client", "client", false},
    {"rank", "rank", false},
    {"members", "members", false},
    {"kind", "kind", true},
    {"name", "name", true},
    {"identity", "identity", true}, /* if peers are authenticated */
    {"state", "state", true},
    {"clock", "clock", false},
    {"of", "steps", false},
    {"seen_s", "last_seen_s", false},
    {"exchanges", "exchanges", false},
    {"stale", "staleness", false},
    {"road", "road", true},
    {"loss", "loss", false},
    {"accuracy", "accuracy", false},
    {"samples/s", "samples_per_s", false},
    {"steps/s", "steps_per_s", false},
    {"period", "period", false},
    {"net", "net", true},
    {"data", "data", true},
    {"inc", "incarnation", false},
    {"address", "address", true},
};

static const struct ctl_column history_columns[] = {
    {"time", "time", true},
    {"version", "center_version", false},
    {"workers", "workers", false},
    {"updates/s", "updates_per_s", false},
    {"loss", "loss", false},
    {"test_loss", "test_loss", false},
    {"test_accuracy", "test_accuracy", false},
};
#define N(columns) (sizeof columns / sizeof *columns)

/* Clients that do not use the best transport that psd offers. */
static void print_fallbacks(FILE *out, const json_t *list)
{
    const json_t *w;
    size_t i;
    json_array_foreach(list, i, w) if (ctl_is_known(w, "road_why"))
        fprintf(out, "client %s (%s) uses %s; %s\n", ctl_get(w, "client").s, ctl_get(w, "name").s,
                ctl_get(w, "road").s, ctl_get(w, "road_why").s);
}

/* Workers that others wait for. */
static void print_stalled(FILE *out, const json_t *list)
{
    const json_t *w;
    size_t i;
    json_array_foreach(list, i, w) if (strcmp(ctl_get(w, "state").s, "stalled") == 0) fprintf(
        out, "client %s (%s) has taken no step for %s while others wait for it\n", ctl_get(w, "client").s,
        ctl_get(w, "name").s, ctl_duration(json_number_value(json_object_get(w, "awaited_s"))).s);
}

void ctl_print_workers(FILE *out, const json_t *answer)
{
    const json_t *list = json_object_get(answer, "workers");
    struct ctl_column columns[N(worker_columns)];
    bool proved = ctl_is_known(json_array_get(list, 0), "identity");
    size_t n = 0;
    for (size_t i = 0; i < N(worker_columns); i++)
        if (proved || strcmp(worker_columns[i].key, "identity") != 0)
            columns[n++] = worker_columns[i];
    if (json_array_size(list) == 0)
        fprintf(out, "no workers\n");
    else
        ctl_print_table(out, columns, n, list);
    print_stalled(out, list);
    print_fallbacks(out, list);
}

void ctl_print_history(FILE *out, const json_t *answer)
{
    json_t *list = json_object_get(answer, "history"), *record;
    size_t i;

    json_array_foreach(list, i, record)
    {
        time_t t = (time_t)json_number_value(json_object_get(record, "t"));
        struct tm local;
        char text[32] = "-";
        if (localtime_r(&t, &local) != NULL)
            strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
        json_object_set_new(record, "time", json_string(text));
    }
    if (json_array_size(list) == 0)
        fprintf(out, "no history yet: the center has not moved\n");
    else
        ctl_print_table(out, history_columns, N(history_columns), list);
    json_array_foreach(list, i, record) if (ctl_is_known(record, "event"))
        fprintf(out, "%s  version %s: %s\n", ctl_get(record, "time").s, ctl_get(record, "center_version").s,
                ctl_get(record, "event").s);
}

void ctl_print_evicted(FILE *out, const json_t *answer)
{
    fprintf(out, "evicted %s (%s, incarnation %s)\n", ctl_get(answer, "evicted").s, ctl_get(answer, "name").s,
            ctl_get(answer, "incarnation").s);
    if (ctl_is_known(answer, "barred"))
        fprintf(out, "%s is barred until psctl allow %s\n", ctl_get(answer, "barred").s,
                ctl_get(answer, "barred").s);
}

void ctl_print_allowed(FILE *out, const json_t *answer)
{
    fprintf(out, "%s may join again\n", ctl_get(answer, "allowed").s);
}

/* Whether YAML reads the character as it stands between quotes: no control character, end of a line or
 * byte-order mark. */
static bool is_plain(unsigned c)
{
    return c >= 0x20 && (c < 0x7f || c >= 0xa0) && c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffe &&
           c != 0xffff;
}

/* JSON's escapes would do but for characters beyond U+FFFF, for which it has two. text: UTF-8, as jansson
 * has. */
static void print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    while (*text != 0) {
        size_t n = ctl_bytes_of_width(text, 1);
        unsigned c = (unsigned char)*text & (n == 1 ? 0x7fu : 0x7fu >> n);
        for (size_t i = 1; i < n; i++)
            c = c << 6 | ((unsigned char)text[i] & 0x3f);
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", (int)c);
        else if (is_plain(c))
            fwrite(text, 1, n, out);
        else
            fprintf(out, "\\u%04x", c);
        text += n;
    }
    fputc('"', out);
}

/* Quotes a text if YAML would not read it back unchanged. */
static void print_scalar(FILE *out, const json_t *value)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:";
    const char *s = json_string_value(value);
    if (s != NULL && s[0] != 0 && strchr("-:", s[0]) == NULL && strspn(s, plain) == strlen(s) &&
        s[strlen(s) - 1] != ':')
        fputs(s, out);
    else if (s != NULL)
        print_quoted(out, s);
    else if (json_is_null(value))
        fputs("none", out);
    else
        json_dumpf(value, out,
                   JSON_ENCODE_ANY | JSON_REAL_PRECISION(psd_json_digits(json_real_value(value))));
}

static void print_yaml(FILE *out, const json_t *object, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        fprintf(out, "%*s%s:", indent, "", key);
        if (json_is_object(value)) {
            fputc('\n', out);
            print_yaml(out, value, indent + 2);
        } else {
            fputc(' ', out);
            print_scalar(out, value);
            fputc('\n', out);
        }
    }
}

void ctl_print_config(FILE *out, const json_t *config)
{
    print_yaml(out, config, 0);
}
