/* The answers of the status socket. */
#include "server/status/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/log.h"
#include "server/config/endpoint.h"
#include "server/status/json.h"
#include "server/status/page.h"

static const char *const state_names[] = {
    [PSD_STATE_WAITING] = "waiting", [PSD_STATE_OFFERED] = "waiting",   [PSD_STATE_EMPTYING] = "waiting",
    [PSD_STATE_READY] = "ready",     [PSD_STATE_DRAINING] = "draining", [PSD_STATE_STOPPING] = "stopping",
};

static const char *const session_names[] = {
    [PSD_SESSION_VACANT] = "vacant",     [PSD_SESSION_JOINING] = "joining", [PSD_SESSION_PARKED] = "joining",
    [PSD_SESSION_OFFERING] = "offering", [PSD_SESSION_ACTIVE] = "active",
};

static json_t *integer(uint64_t v)
{
    return json_integer((json_int_t)v);
}

void psd_answer_json(struct psd_http_answer *answer, int status, json_t *o)
{
    answer->status = o != NULL ? status : 500;
    answer->content_type = "application/json";
    answer->body = o != NULL ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : NULL;
    answer->len_bytes = answer->body != NULL ? strlen(answer->body) : 0;
    json_decref(o);
}

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL) {
        if (fscanf(f, "%llu %llu", &size, &resident) != 2)
            resident = 0;
        fclose(f);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static json_t *memory_json(const struct psd_status *status, const struct psd_totals *t)
{
    uint64_t total = psd_stats_memory_bytes(t);
    json_t *o = json_object();
    json_object_set_new(o, "center_bytes", integer(t->center_bytes));
    json_object_set_new(o, "snapshot_bytes", integer(t->snapshot_bytes));
    json_object_set_new(o, "state_bytes", integer(t->state_bytes));
    json_object_set_new(o, "average_bytes", integer(t->average_bytes));
    json_object_set_new(o, "window_bytes", integer(t->window_bytes));
    json_object_set_new(o, "replay_bytes", integer(t->replay_bytes));
    json_object_set_new(o, "lent_bytes", integer(t->registered_bytes));
    json_object_set_new(o, "total_bytes", integer(total));
    json_object_set_new(o, "limit_bytes",
                        integer((uint64_t)(status->cfg->limits.memory_gib * (double)(1u << 30))));
    json_object_set_new(o, "rss_bytes", integer(resident_bytes()));
    return o;
}

static json_t *checkpoint_json(const struct psd_status *status)
{
    const struct psd_checkpointer *v = &status->job->checkpointer;
    struct ps_error others = {""};
    bool any = v->last_path[0] != 0;
    if (v->last_error[0] == 0)
        psd_cluster_check_saved(status->cluster, &others);
    json_t *o = json_object();
    json_object_set_new(o, "directory", psd_json_text(v->directory));
    json_object_set_new(o, "set_aside", psd_json_text(v->aside.path));
    json_object_set_new(o, "set_aside_checkpoints", integer(v->aside.n));
    json_object_set_new(o, "set_aside_newest", v->aside.n > 0 ? integer(v->aside.newest) : json_null());
    json_object_set_new(o, "last_path", psd_json_text(v->last_path));
    json_object_set_new(o, "last_unix_s", any ? integer(v->last_unix_s) : json_null());
    json_object_set_new(o, "last_version", any ? integer(v->last_version) : json_null());
    json_object_set_new(o, "last_error", psd_json_text(v->last_error[0] != 0 ? v->last_error : others.text));
    json_object_set_new(o, "failures", integer(v->failures));
    bool is_due = (v->pending & PSD_SAVE_NEWEST) != 0; /* also during a change of the method */
    json_object_set_new(o, "in_progress",
                        json_boolean(v->busy || is_due || !psd_cluster_has_saved(status->cluster)));
    json_object_set_new(
        o, "best",
        isnan(v->best.accuracy)
            ? json_null()
            : json_pack("{s:o, s:f, s:I, s:I, s:I}", "path", psd_json_text(v->best_path), "test_accuracy",
                        v->best.accuracy, "evaluated_version", (json_int_t)v->best.evaluated_version,
                        "version", (json_int_t)v->best.version, "unix_s", (json_int_t)v->best.saved_at_s));
    return o;
}

/* The stop conditions, 0 and NaN as null, and the one that was met. */
static json_t *stop_json(const struct psd_status *status)
{
    json_t *o = json_object();
    json_object_set_new(o, "accuracy", psd_json_number(status->cfg->stop.accuracy));
    json_object_set_new(o, "updates",
                        status->cfg->stop.updates > 0 ? integer(status->cfg->stop.updates) : json_null());
    json_object_set_new(o, "seconds",
                        status->cfg->stop.seconds > 0 ? integer(status->cfg->stop.seconds) : json_null());
    json_object_set_new(o, "nonfinite", json_boolean(status->cfg->stop.nonfinite));
    json_object_set_new(o, "met",
                        status->job->stop_met != NULL ? json_string(status->job->stop_met) : json_null());
    return o;
}

static json_t *nonfinite_json(const struct psd_nonfinite *f)
{
    if (!f->seen)
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "rank", integer(f->rank));
    json_object_set_new(o, "name", json_string(f->name));
    json_object_set_new(o, "incarnation", integer(f->incarnation));
    json_object_set_new(o, "clock", integer(f->clock));
    json_object_set_new(o, "center_version", integer(f->version));
    json_object_set_new(o, "index", f->index != UINT64_MAX ? integer(f->index) : json_null());
    json_object_set_new(o, "tensor", psd_json_text(f->tensor));
    json_object_set_new(o, "t", json_real(f->t_s));
    json_object_set_new(o, "sent", json_boolean(f->sent));
    return o;
}

static json_t *center_json(const struct psd_status *status, const struct psd_totals *t)
{
    json_t *o = json_object();
    json_object_set_new(o, "version", integer(psd_stats_version(status->job)));
    json_object_set_new(o, "updates_applied", integer(psd_stats_applied_sum(status->job)));
    json_object_set_new(o, "updates_rejected", integer(t->rejected_sum));
    json_object_set_new(o, "updates_dropped", integer(status->job->partial_rounds.dropped));
    json_object_set_new(o, "replays", integer(t->replays));
    struct psd_lost lost = psd_loss_told(status->job);
    json_object_set_new(o, "lost_updates", lost.kind != PSD_LOSS_UNKNOWN ? integer(lost.most) : json_null());
    json_object_set_new(o, "lost_updates_least", integer(lost.least));
    json_object_set_new(o, "lost_updates_are", json_string(psd_loss_kind_name(lost.kind)));
    json_object_set_new(o, "resumed_from", psd_json_text(status->job->resumed_from));
    json_object_set_new(o, "resumed_version",
                        status->job->resumed_from[0] != 0 ? integer(status->job->resumed_version)
                                                          : json_null());
    return o;
}

/* null: unknown until the head has sent it. */
static json_t *job_json(const struct psd_status *status)
{
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)status->sessions->job);
    return status->sessions->job != 0 ? json_string(text) : json_null();
}

static json_t *model_json(const struct psd_status *status)
{
    char hash[20];
    if (status->job->center == NULL)
        return json_null();
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)status->job->center->manifest->hash);
    return json_pack("{s:I, s:I, s:s}", "floats", (json_int_t)status->job->center->manifest->n_floats,
                     "tensors", (json_int_t)status->job->center->manifest->n_tensors, "manifest", hash);
}

static json_t *parameters_json(const struct psd_status *status)
{
    char *text = psd_config_json(status->cfg);
    json_t *config = text != NULL ? json_loads(text, 0, NULL) : NULL;
    json_t *o = json_copy(json_object_get(config, "parameters"));
    if (o == NULL)
        o = json_object();
    json_object_set_new(o, "alpha_now", psd_json_number((double)status->lanes->shared.alpha));
    json_object_set_new(o, "learning_rate_now", psd_json_number(psd_training_rate(status)));
    json_decref(config);
    free(text);
    return o;
}

/* The last changes that were refused after they had been accepted, by the number of their answer. */
static json_t *refusal_json(const struct psd_reloader *r)
{
    return r->refusal.last == 0
               ? json_null()
               : json_pack("{s:I, s:I, s:o}", "first", (json_int_t)r->refusal.first, "last",
                           (json_int_t)r->refusal.last, "error", psd_json_text(r->refusal.why.text));
}

/* Results of reloads, the method that the last one requested, and the settings above the file. */
static json_t *reload_json(const struct psd_status *status)
{
    char list[PSD_SETTINGS_BYTES + 400];
    static const char *const phases[] = {[PSD_METHOD_CHANGE_NONE] = "done",
                                         [PSD_METHOD_CHANGE_DUE] = "waiting",
                                         [PSD_METHOD_CHANGE_ASKING] = "asking",
                                         [PSD_METHOD_CHANGE_CLOSING] = "closing",
                                         [PSD_METHOD_CHANGE_EMPTYING] = "changing"};
    const struct psd_reloader *r = &status->job->reload;
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:s}", "applied", (json_int_t)r->n_applied, "unchanged",
                          (json_int_t)r->n_unchanged, "refused", (json_int_t)r->n_refused, "swaps",
                          (json_int_t)status->job->method_change.n_changes, "swap",
                          phases[status->job->method_change.phase]);
    json_object_set_new(o, "last_error", psd_json_text(r->last.text));
    json_object_set_new(o, "refusal", refusal_json(r));
    psd_settings_list(r->layers.settings, list, sizeof list);
    json_object_set_new(o, "set", psd_json_text(list));
    bool in_force = status->job->method_change.phase == PSD_METHOD_CHANGE_NONE;
    int failure = in_force ? psd_journal_failure(status->job, r->recorded) : 0;
    json_object_set_new(o, "set_recorded",
                        json_boolean(in_force && psd_journal_has_saved(status->job, r->recorded)));
    json_object_set_new(o, "record_error", failure < 0 ? json_string(strerror(-failure)) : json_null());
    return o;
}

static json_t *barred_json(const struct psd_auth *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_barred; i++)
        json_array_append_new(list, json_string(a->barred[i]));
    return list;
}

static json_t *log_json(void)
{
    struct ps_log_counts c = ps_log_count();
    return json_pack("{s:I, s:I}", "dropped", (json_int_t)c.dropped, "waiting_bytes", (json_int_t)c.waiting);
}

struct transport_seen {
    uint64_t in, out; /* bytes */
    uint32_t port;
};

/* The transport of a client's data, as seen by the lanes; false: no data yet. */
static bool transport_of(const struct psd_status *status, uint32_t client, struct transport_seen *out)
{
    *out = (struct transport_seen){.in = 0};
    for (uint32_t i = 0; i < status->lanes->n; i++) {
        const struct psd_lane_client *c = &status->lanes->list[i]->clients[client];
        out->in += c->bytes_in;
        out->out += c->bytes_out;
        out->port = c->bytes_in + c->bytes_out > 0 ? c->port : out->port;
    }
    return out->in + out->out > 0;
}

/* How many live clients use each transport for their data. */
static json_t *transports_json(const struct psd_status *status)
{
    json_t *o = json_object();
    struct transport_seen seen;
    for (uint32_t i = 0; i < status->sessions->n_slots; i++) {
        if (status->sessions->slots[i].state == PSD_SESSION_VACANT || !transport_of(status, i, &seen))
            continue;
        const char *name = status->lanes->transports.row[seen.port].transport->name;
        json_object_set_new(o, name, integer((uint64_t)json_integer_value(json_object_get(o, name)) + 1));
    }
    return o;
}

/* Active workers are those that send heartbeats; a silent client is counted as neither active nor an
 * observer. */
static json_t *workers_json(const struct psd_status *status)
{
    uint32_t silent = psd_job_count_silent(status->job, false),
             blind = psd_job_count_silent(status->job, true);
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "active",
                     (json_int_t)(psd_sessions_count(status->sessions, false) - silent), "silent",
                     (json_int_t)silent, "awaited", (json_int_t)psd_membership_awaits(status->job),
                     "observers", (json_int_t)(psd_sessions_count(status->sessions, true) - blind),
                     "silent_observers", (json_int_t)blind);
}

static json_t *status_json(struct psd_status *status)
{
    struct psd_totals t;
    char url[320];
    psd_stats_totals(status->job, &t);
    psd_endpoint_advertised(status->control->url, status->cfg->advertise, url, sizeof url);
    json_t *o = json_pack("{s:s, s:s, s:i, s:s, s:f}", "name", "psd", "version", PSD_VERSION, "pid",
                          (int)getpid(), "state", state_names[status->job->state], "uptime_s",
                          (double)(psd_loop_now_ms(status->loop) - status->job->started_ms) / 1e3);
    json_object_set_new(o, "method",
                        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "name", status->cfg->method, "rule",
                                  status->cfg->rule, "admission", status->cfg->admission, "optimizer",
                                  status->cfg->optimizer, "averaging", status->cfg->averaging, "remark",
                                  psd_config_remark(status->cfg)));
    json_object_set_new(o, "parameters", parameters_json(status));
    json_object_set_new(o, "job", job_json(status));
    json_object_set_new(o, "generation", integer(status->lanes->shared.generation));
    json_object_set_new(o, "reload", reload_json(status));
    json_object_set_new(o, "listen", psd_json_text(url));
    json_object_set_new(o, "http", psd_json_text(psd_http_address(status->http)));
    json_object_set_new(o, "wait_for_end", integer(psd_http_n_held(status->http)));
    json_object_set_new(o, "auth", json_string(psd_auth_name(status->auth)));
    json_object_set_new(o, "encrypted", json_boolean(status->auth->curve));
    json_object_set_new(o, "barred", barred_json(status->auth));
    json_object_set_new(o, "transport", json_string(status->lanes->transports.row[0].transport->name));
    json_object_set_new(o, "roads", transports_json(status));
    json_object_set_new(o, "lanes", integer(status->lanes->n));
    json_object_set_new(o, "chunk_floats",
                        integer(status->job->center != NULL ? status->job->center->shard.chunk_floats
                                                            : status->cfg->chunk_floats));
    json_object_set_new(o, "window_chunks", integer(status->cfg->window_chunks));
    json_object_set_new(o, "model", model_json(status));
    json_object_set_new(o, "center", center_json(status, &t));
    json_object_set_new(o, "center_norm", psd_json_number(psd_stats_center_norm(status->job)));
    json_object_set_new(o, "training", psd_training_json(status));
    json_object_set_new(o, "workers", workers_json(status));
    json_t *evaluation = json_object();
    json_object_set_new(evaluation, "test_accuracy", psd_json_number(status->job->evaluation.accuracy));
    json_object_set_new(evaluation, "test_loss", psd_json_number(status->job->evaluation.loss));
    json_object_set_new(evaluation, "center_version",
                        isfinite(status->job->evaluation.loss) ? integer(status->job->evaluation.version)
                                                               : json_null());
    json_object_set_new(o, "evaluation", evaluation);
    json_object_set_new(o, "servers", psd_cluster_json(status->cluster));
    json_object_set_new(o, "memory", memory_json(status, &t));
    json_object_set_new(o, "checkpoint", checkpoint_json(status));
    json_object_set_new(o, "stop", stop_json(status));
    json_object_set_new(o, "log", log_json());
    json_object_set_new(o, "history_lines_lost", integer(status->job->history.dropped));
    json_object_set_new(o, "drain_reason", psd_json_text(status->job->drain_reason));
    json_object_set_new(o, "nonfinite", nonfinite_json(&status->job->nonfinite));
    return o;
}

static void get_status(void *arg, const char *query, struct psd_http_answer *answer)
{
    (void)query;
    psd_answer_json(answer, 200, status_json(arg));
}

static uint64_t staleness_of(const struct psd_status *status, uint32_t client)
{
    uint64_t staleness = 0;
    for (uint32_t i = 0; status->job->center != NULL && i < status->lanes->n; i++) {
        const struct psd_lane_client *c = &status->lanes->list[i]->clients[client];
        if (psd_lane_serves(status->lanes->list[i], status->job->center, client) && c->staleness > staleness)
            staleness = c->staleness;
    }
    return staleness;
}

static const char *state_of(const struct psd_status *status, const struct psd_session *s)
{
    uint64_t seq;
    if (s->state == PSD_SESSION_VACANT)
        return "ended";
    if (psd_job_is_silent(status->job, s))
        return "silent";
    if (psd_steps_awaited_ms(status->job, s) >
        500ull *
            (status->cfg->limits.step_s > 0 ? status->cfg->limits.step_s : status->cfg->limits.silence_s))
        return "stalled";
    bool waits = s->state == PSD_SESSION_ACTIVE && psd_stats_waiting(status->job, s->client, &seq) > 0;
    return waits ? "waits" : session_names[s->state];
}

/* The transport of its data, and its reason for not using a faster one. */
static void add_transport(json_t *o, const struct psd_status *status, const struct psd_session *s)
{
    struct transport_seen seen;
    bool any = transport_of(status, s->client, &seen);
    json_object_set_new(
        o, "road", any ? json_string(status->lanes->transports.row[seen.port].transport->name) : json_null());
    json_object_set_new(o, "road_why", psd_json_text(s->transport_reason));
    json_object_set_new(o, "received_bytes", integer(seen.in));
    json_object_set_new(o, "sent_bytes", integer(seen.out));
}

static json_t *worker_json(const struct psd_status *status, const struct psd_session *s)
{
    uint64_t now_ms = psd_loop_now_ms(status->loop);
    uint64_t silent_ms = now_ms > s->last_heard_ms ? now_ms - s->last_heard_ms : 0;
    double distance, update;
    psd_stats_norms(status->job, s->client, &distance, &update);
    json_t *o = json_object();
    json_object_set_new(o, "client", integer(s->client));
    json_object_set_new(o, "rank", s->observer ? json_null() : integer(s->client));
    json_object_set_new(o, "kind", json_string(s->observer ? "observer" : "worker"));
    json_object_set_new(o, "name", json_string(s->name));
    json_object_set_new(o, "identity", psd_json_text(s->identity));
    json_object_set_new(o, "members", integer(s->members_left > 1 ? s->members_left : 1));
    json_object_set_new(o, "members_lost", integer(s->members - s->members_left));
    json_object_set_new(o, "net", psd_json_text(s->net));
    json_object_set_new(o, "data", psd_json_text(s->data));
    json_object_set_new(o, "incarnation", integer(s->incarnation));
    json_object_set_new(o, "state", json_string(state_of(status, s)));
    json_object_set_new(o, "address", json_string(s->address));
    json_object_set_new(o, "clock", integer(psd_job_clock_of(status->job, s)));
    json_object_set_new(o, "steps", s->steps > 0 ? integer(s->steps) : json_null());
    json_object_set_new(o, "learning_rate", psd_json_number(psd_training_rate_of(status, s)));
    json_object_set_new(o, "last_seen_s", json_real((double)silent_ms / 1e3));
    json_object_set_new(o, "awaited_s", json_real((double)psd_steps_awaited_ms(status->job, s) / 1e3));
    json_object_set_new(
        o, "exchanges",
        integer(atomic_load_explicit(&status->lanes->shared.exchanges[s->client], memory_order_relaxed)));
    json_object_set_new(o, "dropped", integer(psd_partial_rounds_dropped(status->job, s->client)));
    json_object_set_new(o, "staleness", integer(staleness_of(status, s->client)));
    json_object_set_new(o, "loss", psd_json_number(s->metrics.loss));
    json_object_set_new(o, "accuracy", psd_json_number(s->metrics.accuracy));
    json_object_set_new(o, "samples_per_s", psd_json_number(s->metrics.samples_per_second));
    bool known = s->speed.incarnation == s->incarnation && s->speed.steps_per_second > 0;
    json_object_set_new(o, "steps_per_s", known ? json_real(s->speed.steps_per_second) : json_null());
    json_object_set_new(o, "period",
                        s->observer || s->speed.period == 0 ? json_null() : integer(s->speed.period));
    json_object_set_new(o, "distance", psd_json_number(distance));
    json_object_set_new(o, "update_norm", psd_json_number(update));
    add_transport(o, status, s);
    return o;
}

static json_t *ended_json(const struct psd_status *status, const struct psd_session *s)
{
    json_t *o = worker_json(status, s);
    json_object_set_new(o, "end", json_string(s->end));
    json_object_set_new(o, "ended_s", json_real((double)(psd_loop_now_ms(status->loop) - s->ended_ms) / 1e3));
    return o;
}

/* `workers` are live; `ended` are the last sessions of slots that are vacant since. */
static void get_workers(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd_status *status = arg;
    json_t *live = json_array(), *ended = json_array();
    (void)query;
    for (uint32_t i = 0; i < status->sessions->n_slots; i++) {
        const struct psd_session *s = &status->sessions->slots[i];
        if (s->state != PSD_SESSION_VACANT)
            json_array_append_new(live, worker_json(status, s));
        else if (s->end[0] != 0)
            json_array_append_new(ended, ended_json(status, s));
    }
    psd_answer_json(answer, 200, json_pack("{s:o, s:o}", "workers", live, "ended", ended));
}

static void get_config(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd_status *status = arg;
    (void)query;
    answer->body = psd_config_json(status->cfg);
    answer->status = answer->body != NULL ? 200 : 500;
    answer->content_type = "application/json";
    answer->len_bytes = answer->body != NULL ? strlen(answer->body) : 0;
}

#define LATEST_S 1e12

/* ?since=: unix seconds. False if it is not a number; *t is before every record if there is no query. */
static bool parse_since(const char *query, double *t)
{
    char *end;
    *t = -1;
    if (query == NULL)
        return true;
    if (query[0] == 0 || strlen(query) > 32 || strspn(query, "0123456789.") != strlen(query))
        return false;
    *t = strtod(query, &end);
    return *end == 0 && *t <= LATEST_S;
}

/* Records after ?since=T, oldest first. A client that polls passes the t of its last record. */
static void get_history(void *arg, const char *query, struct psd_http_answer *answer)
{
    const struct psd_history *h = &((const struct psd_status *)arg)->job->history;
    size_t first = h->n;
    double since;

    if (!parse_since(query, &since)) {
        psd_answer_json(answer, 400,
                        json_pack("{s:o}", "error",
                                  json_sprintf("since: allowed are unix seconds from 0 to %.0f, such as "
                                               "1700000000.25, in at most 32 digits",
                                               LATEST_S)));
        return;
    }
    while (first > 0 && h->records[first - 1].t_s > since)
        first--;
    json_t *list = json_array();
    for (size_t i = first; i < h->n; i++)
        json_array_append_new(list, psd_json_record(&h->records[i]));
    psd_answer_json(answer, 200, json_pack("{s:o}", "history", list));
}

static void get_metrics(void *arg, const char *query, struct psd_http_answer *answer)
{
    (void)query;
    answer->body = psd_metrics_text(arg);
    answer->status = answer->body != NULL ? 200 : 500;
    answer->content_type = "text/plain; version=0.0.4";
    answer->len_bytes = answer->body != NULL ? strlen(answer->body) : 0;
}

static void get_healthz(void *arg, const char *query, struct psd_http_answer *answer)
{
    (void)arg;
    (void)query;
    psd_answer_json(answer, 200, json_pack("{s:s}", "health", "ok"));
}

static void get_readyz(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd_status *status = arg;
    bool takes_workers = status->job->state < PSD_STATE_DRAINING;
    (void)query;
    psd_answer_json(
        answer, takes_workers ? 200 : 503,
        json_pack("{s:b, s:s}", "ready", takes_workers, "state", state_names[status->job->state]));
}

const struct psd_http_route psd_routes[] = {
    {"GET", "/status", get_status, NULL},
    {"GET", "/workers", get_workers, NULL},
    {"GET", "/config", get_config, NULL},
    {"GET", "/metrics", get_metrics, NULL},
    {"GET", "/history", get_history, "since"},
    {"GET", "/healthz", get_healthz, NULL},
    {"GET", "/readyz", get_readyz, NULL},
    {"GET", "/end", psd_get_end, NULL},
    {"GET", "/", psd_page_index, NULL},
    {"GET", "/page.css", psd_page_style, NULL},
    {"GET", "/page.js", psd_page_script, NULL},
    {"GET", "/chart.js", psd_page_chart, NULL},
    {"GET", "/icon.svg", psd_page_icon, NULL},
    {"POST", "/checkpoint", psd_post_checkpoint, NULL},
    {"POST", "/drain", psd_post_drain, "wait"},
    {"POST", "/evict", psd_post_evict, "rank"},
    {"POST", "/allow", psd_post_allow, "name"},
    {"POST", "/reload", psd_post_reload, NULL},
    {"POST", "/set", psd_post_set, "lines"},
    {"POST", "/unset", psd_post_unset, "keys"},
    {.method = NULL},
};
