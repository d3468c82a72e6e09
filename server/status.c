/* What the status socket answers. */
#include "server/psd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/endpoint.h"
#include "server/json.h"

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

static void answer_json(struct psd_http_answer *answer, int status, json_t *o)
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

static json_t *memory_json(const struct psd *d, const struct psd_totals *t)
{
    uint64_t total = t->center_bytes + t->snapshot_bytes + t->state_bytes + t->window_bytes + t->replay_bytes;
    json_t *o = json_object();
    json_object_set_new(o, "center_bytes", integer(t->center_bytes));
    json_object_set_new(o, "snapshot_bytes", integer(t->snapshot_bytes));
    json_object_set_new(o, "state_bytes", integer(t->state_bytes));
    json_object_set_new(o, "window_bytes", integer(t->window_bytes));
    json_object_set_new(o, "replay_bytes", integer(t->replay_bytes));
    json_object_set_new(o, "total_bytes", integer(total));
    json_object_set_new(o, "limit_bytes", integer((uint64_t)(d->cfg.limits.memory_gib * (double)(1u << 30))));
    json_object_set_new(o, "rss_bytes", integer(resident_bytes()));
    return o;
}

static json_t *checkpoint_json(const struct psd *d)
{
    const struct psd_saver *v = &d->saver;
    bool any = v->last_path[0] != 0;
    json_t *o = json_object();
    json_object_set_new(o, "directory", json_string(v->directory));
    json_object_set_new(o, "last_path", psd_json_text(v->last_path));
    json_object_set_new(o, "last_unix_s", any ? integer(v->last_unix_s) : json_null());
    json_object_set_new(o, "last_version", any ? integer(v->last_version) : json_null());
    json_object_set_new(o, "last_error", psd_json_text(v->last_error));
    json_object_set_new(o, "failures", integer(v->failures));
    json_object_set_new(o, "in_progress", json_boolean(v->busy));
    return o;
}

static json_t *center_json(const struct psd *d, const struct psd_totals *t)
{
    json_t *o = json_object();
    json_object_set_new(o, "version", integer(psd_version(d)));
    json_object_set_new(o, "updates_applied", integer(psd_version(d) - d->resumed_version));
    json_object_set_new(o, "updates_rejected", integer(t->rejected_sum));
    json_object_set_new(o, "replays", integer(t->replays));
    json_object_set_new(o, "lost_updates", integer(d->lost_updates));
    json_object_set_new(o, "resumed_from", psd_json_text(d->resumed_from));
    json_object_set_new(o, "resumed_version",
                        d->resumed_from[0] != 0 ? integer(d->resumed_version) : json_null());
    return o;
}

static json_t *model_json(const struct psd *d)
{
    char hash[20];
    if (d->center == NULL)
        return json_null();
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)d->center->manifest->hash);
    return json_pack("{s:I, s:I, s:s}", "floats", (json_int_t)d->center->manifest->n_floats, "tensors",
                     (json_int_t)d->center->manifest->n_tensors, "manifest", hash);
}

static json_t *parameters_json(const struct psd *d)
{
    char *text = psd_config_json(&d->cfg);
    json_t *config = text != NULL ? json_loads(text, 0, NULL) : NULL;
    json_t *o = json_copy(json_object_get(config, "parameters"));
    if (o == NULL)
        o = json_object();
    json_object_set_new(o, "alpha_now", psd_json_number((double)d->shared.alpha));
    json_decref(config);
    free(text);
    return o;
}

static json_t *status_json(struct psd *d)
{
    struct psd_totals t;
    char url[320];
    psd_stats_totals(d, &t);
    psd_endpoint_advertised(d->control.url, d->cfg.advertise, url, sizeof url);
    json_t *o = json_pack("{s:s, s:s, s:i, s:s, s:f}", "name", "psd", "version", PSD_VERSION, "pid",
                          (int)getpid(), "state", state_names[d->state], "uptime_s",
                          (double)(uv_now(&d->loop) - d->started_ms) / 1e3);
    json_object_set_new(o, "method",
                        json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", d->cfg.method, "rule", d->cfg.rule,
                                  "admission", d->cfg.admission, "optimizer", d->cfg.optimizer, "averaging",
                                  d->cfg.averaging));
    json_object_set_new(o, "parameters", parameters_json(d));
    json_object_set_new(o, "generation", integer(d->shared.generation));
    json_object_set_new(o, "listen", json_string(url));
    json_object_set_new(o, "transport", json_string(d->transport->name));
    json_object_set_new(o, "lanes", integer(d->n_lanes));
    json_object_set_new(o, "chunk_floats",
                        integer(d->center != NULL ? d->center->shard.chunk_floats : d->cfg.chunk_floats));
    json_object_set_new(o, "window_chunks", integer(d->cfg.window_chunks));
    json_object_set_new(o, "model", model_json(d));
    json_object_set_new(o, "center", center_json(d, &t));
    json_object_set_new(o, "workers",
                        json_pack("{s:I, s:I}", "active", (json_int_t)psd_sessions_count(&d->sessions, false),
                                  "observers", (json_int_t)psd_sessions_count(&d->sessions, true)));
    json_t *evaluation = json_object();
    json_object_set_new(evaluation, "test_accuracy", psd_json_number(d->evaluation.accuracy));
    json_object_set_new(evaluation, "test_loss", psd_json_number(d->evaluation.loss));
    json_object_set_new(evaluation, "center_version",
                        isfinite(d->evaluation.loss) ? integer(d->evaluation.version) : json_null());
    json_object_set_new(o, "evaluation", evaluation);
    json_object_set_new(o, "memory", memory_json(d, &t));
    json_object_set_new(o, "checkpoint", checkpoint_json(d));
    return o;
}

static void get_status(void *arg, const char *query, struct psd_http_answer *answer)
{
    (void)query;
    answer_json(answer, 200, status_json(arg));
}

/* An exchange of a client is complete when every lane has it. */
static void client_counters(const struct psd *d, uint32_t client, uint64_t *exchanges, uint64_t *clock,
                            uint64_t *staleness)
{
    *exchanges = UINT64_MAX;
    *clock = *staleness = 0;
    for (uint32_t i = 0; d->center != NULL && i < d->n_lanes; i++) {
        struct psd_lane_client *c = &d->lanes[i]->clients[client];
        if (ps_shard_slice(&d->center->shard, i).count == 0)
            continue;
        if (c->exchanges < *exchanges)
            *exchanges = c->exchanges;
        if (c->clock > *clock)
            *clock = c->clock;
        if (c->staleness > *staleness)
            *staleness = c->staleness;
    }
    if (*exchanges == UINT64_MAX)
        *exchanges = 0;
}

static json_t *worker_json(const struct psd *d, const struct psd_session *s)
{
    uint64_t exchanges, clock, staleness, now_ms = uv_now(&d->loop);
    uint64_t silent_ms = now_ms > s->last_heard_ms ? now_ms - s->last_heard_ms : 0;
    client_counters(d, s->client, &exchanges, &clock, &staleness);
    json_t *o = json_object();
    json_object_set_new(o, "client", integer(s->client));
    json_object_set_new(o, "rank", s->observer ? json_null() : integer(s->client));
    json_object_set_new(o, "kind", json_string(s->observer ? "observer" : "worker"));
    json_object_set_new(o, "name", json_string(s->name));
    json_object_set_new(o, "incarnation", integer(s->incarnation));
    json_object_set_new(
        o, "state",
        json_string(silent_ms > 500ull * d->cfg.limits.silence_s ? "silent" : session_names[s->state]));
    json_object_set_new(o, "address", json_string(s->address));
    json_object_set_new(o, "clock", integer(clock > s->clock ? clock : s->clock));
    json_object_set_new(o, "last_seen_s", json_real((double)silent_ms / 1e3));
    json_object_set_new(o, "exchanges", integer(exchanges));
    json_object_set_new(o, "staleness", integer(staleness));
    json_object_set_new(o, "loss", psd_json_number(s->metrics.loss));
    json_object_set_new(o, "accuracy", psd_json_number(s->metrics.accuracy));
    json_object_set_new(o, "samples_per_s", psd_json_number(s->metrics.samples_per_second));
    return o;
}

static void get_workers(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd *d = arg;
    json_t *list = json_array();
    (void)query;
    for (uint32_t i = 0; i < d->sessions.n_slots; i++)
        if (d->sessions.slots[i].state != PSD_SESSION_VACANT)
            json_array_append_new(list, worker_json(d, &d->sessions.slots[i]));
    answer_json(answer, 200, json_pack("{s:o}", "workers", list));
}

static void get_config(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd *d = arg;
    (void)query;
    answer->body = psd_config_json(&d->cfg);
    answer->status = answer->body != NULL ? 200 : 500;
    answer->content_type = "application/json";
    answer->len_bytes = answer->body != NULL ? strlen(answer->body) : 0;
}

static void get_history(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd *d = arg;
    json_t *list = json_array();
    (void)query;
    for (size_t i = 0; i < d->history.n; i++)
        json_array_append_new(list, psd_json_record(&d->history.records[i]));
    answer_json(answer, 200, json_pack("{s:o}", "history", list));
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
    answer_json(answer, 200, json_pack("{s:s}", "health", "ok"));
}

static void get_readyz(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd *d = arg;
    bool takes_workers = d->state < PSD_STATE_DRAINING;
    (void)query;
    answer_json(answer, takes_workers ? 200 : 503,
                json_pack("{s:b, s:s}", "ready", takes_workers, "state", state_names[d->state]));
}

static void post_checkpoint(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd *d = arg;
    struct ps_error err;
    (void)query;
    if (psd_saver_start(d, &err) < 0)
        answer_json(answer, 409, json_pack("{s:s}", "error", err.text));
    else
        answer_json(answer, 202,
                    json_pack("{s:s, s:I}", "checkpoint", "started", "version", (json_int_t)psd_version(d)));
}

static void post_drain(void *arg, const char *query, struct psd_http_answer *answer)
{
    (void)query;
    psd_job_drain(arg, "drain was asked for on the status socket");
    answer_json(answer, 202, json_pack("{s:s}", "drain", "started"));
}

const struct psd_http_route psd_routes[] = {
    {"GET", "/status", get_status},   {"GET", "/workers", get_workers},
    {"GET", "/config", get_config},   {"GET", "/metrics", get_metrics},
    {"GET", "/history", get_history}, {"GET", "/healthz", get_healthz},
    {"GET", "/readyz", get_readyz},   {"POST", "/checkpoint", post_checkpoint},
    {"POST", "/drain", post_drain},   {.method = NULL},
};
