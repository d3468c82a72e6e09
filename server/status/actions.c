/* What the status socket does when it is asked to. Where there are several servers, most of it is the head's.
 */
#include "server/psd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/status/json.h"

/* False: this is not the head, and says where that is. */
static bool is_heads(const struct psd *d, struct psd_http_answer *answer)
{
    if (psd_is_head(&d->cfg))
        return true;
    psd_answer_json(
        answer, 409,
        json_pack("{s:o}", "error",
                  json_sprintf("this is server %u of %u: ask server 0, the head at %s", d->cfg.servers.index,
                               d->cfg.servers.count, d->follower.head_url)));
    return false;
}

void psd_post_checkpoint(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd *d = arg;
    struct ps_error err;
    (void)query;
    if (!is_heads(d, answer))
        return;
    const uint64_t version =
        psd_version(&d->lanes); /* before the start: lanes go on, and nobody may wait for what is newer */
    if (psd_checkpointer_start(&d->job, &err) < 0)
        psd_answer_json(answer, 409, json_pack("{s:s}", "error", err.text));
    else
        psd_answer_json(answer, 202,
                        json_pack("{s:s, s:I}", "checkpoint", "started", "version", (json_int_t)version));
}

/* How a change of the configuration went. */
static void answer_change(const struct psd *d, const char *what, int rc, const struct ps_error *err,
                          struct psd_http_answer *answer)
{
    char list[PSD_SETTINGS_BYTES + 400];
    bool changes = d->job.method_change.phase != PSD_METHOD_CHANGE_NONE;
    if (rc < 0) {
        psd_answer_json(answer, 409, json_pack("{s:o}", "error", psd_json_text(err->text)));
        return;
    }
    psd_settings_list(psd_settings_now(&d->job), list, sizeof list);
    psd_answer_json(
        answer, 202,
        json_pack("{s:s, s:s, s:I, s:o}", what, rc > 0 ? "started" : "unchanged", "method",
                  changes ? d->job.method_change.next.method : d->cfg.method, "generation",
                  (json_int_t)d->lanes.shared.generation + (changes && d->job.method_change.method),
                  "set_above_file", psd_json_text(list)));
}

void psd_post_reload(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct ps_error err;
    int rc = psd_reload(&((struct psd *)arg)->job, &err);
    (void)query;
    answer_change(arg, "reload", rc, &err, answer);
}

/* Lines of KEY=VALUE. */
void psd_post_set(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct ps_error err;
    if (!is_heads(arg, answer))
        return;
    int rc = psd_set(&((struct psd *)arg)->job, query != NULL ? query : "", &err);
    answer_change(arg, "set", rc, &err, answer);
}

/* Lines of keys, or "all". */
void psd_post_unset(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct ps_error err;
    if (!is_heads(arg, answer))
        return;
    int rc = psd_unset(&((struct psd *)arg)->job, query != NULL ? query : "", &err);
    answer_change(arg, "unset", rc, &err, answer);
}

/* ?wait=end: answered when psd ends, with how; see psd_tell_end. */
void psd_post_drain(void *arg, const char *query, struct psd_http_answer *answer)
{
    if (!is_heads(arg, answer))
        return;
    if (query != NULL && strcmp(query, "end") != 0) {
        psd_answer_json(answer, 400,
                        json_pack("{s:s}", "error", "wait: allowed is end, as in POST /drain?wait=end"));
        return;
    }
    psd_job_drain(&((struct psd *)arg)->job, "drain was asked for on the status socket");
    answer->held = query != NULL;
    if (!answer->held)
        psd_answer_json(answer, 202, json_pack("{s:s}", "drain", "started"));
}

/* Answered when psd ends, with how: what a page cannot see by asking again and again. */
void psd_get_end(void *arg, const char *query, struct psd_http_answer *answer)
{
    (void)arg;
    (void)query;
    answer->held = true;
}

/* Why this is no good end of the job, or "". */
static const char *trouble_of(const struct psd *d)
{
    return d->job.end.text[0] != 0 ? d->job.end.text
           : d->again.due          ? "psd begins again with the other servers: the job has not ended"
           : d->job.exit_code != 0 ? "psd ends before the job does: its log says why"
                                   : "";
}

void psd_tell_end(struct psd *d)
{
    const struct psd_checkpointer *v = &d->job.checkpointer;
    const char *trouble = trouble_of(d);
    bool well = trouble[0] == 0;
    json_t *o = well ? json_pack("{s:s, s:I, s:o, s:o}", "drain", "done", "version",
                                 (json_int_t)psd_version(&d->lanes), "checkpoint",
                                 psd_json_text(v->last_path), "reason", psd_json_text(d->job.drain_reason))
                     : json_pack("{s:s}", "error", trouble);
    char *body = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    psd_http_release(d->http, well ? 200 : d->again.due ? 503 : 500, body != NULL ? body : "{}");
    free(body);
    json_decref(o);
}

/* arg: a worker's rank, or the client number of an observer (/workers has both). */
void psd_post_evict(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd *d = arg;
    uint32_t client = 0;
    char found[64], why[160];
    if (!is_heads(d, answer))
        return;
    snprintf(found, sizeof found, "%s", query != NULL ? query : "");
    size_t n = strlen(found);
    if (n < 1 || n > 6 || strspn(found, "0123456789") != n) {
        psd_answer_json(
            answer, 400,
            json_pack("{s:o}", "error",
                      json_sprintf("evict needs the rank of a worker, as in POST /evict?rank=0; found '%s'",
                                   n > 0 && n <= 6 ? found
                                   : n > 0         ? "something else"
                                                   : "nothing")));
        return;
    }
    client = (uint32_t)strtoul(found, NULL, 10);
    struct psd_session *s = client < d->sessions.n_slots ? &d->sessions.slots[client] : NULL;
    if (s == NULL || s->state == PSD_SESSION_VACANT) {
        psd_answer_json(
            answer, 404,
            json_pack("{s:o}", "error",
                      json_sprintf("there is no rank %u in the job; /workers lists who is", client)));
        return;
    }
    if (s->identity[0] != 0)
        snprintf(why, sizeof why, "an operator evicted this worker (psctl evict %u); %s is barred", client,
                 s->identity);
    else
        snprintf(why, sizeof why, "an operator evicted this worker (psctl evict %u); a new session may join",
                 client);
    json_t *o = json_pack("{s:I, s:s, s:I, s:o}", "evicted", (json_int_t)client, "name", s->name,
                          "incarnation", (json_int_t)s->incarnation, "barred", psd_json_text(s->identity));
    psd_auth_bar(&d->auth, s);
    psd_send_error(&d->sender, s, PS__CODE__EVICTED, true, why);
    psd_job_end(&d->job, s, PS__CODE__EVICTED, "evicted by an operator");
    psd_answer_json(answer, 200, o);
}

void psd_post_allow(void *arg, const char *query, struct psd_http_answer *answer)
{
    const char *name = query != NULL && ps_curve_is_name(query) ? query : "";
    if (!is_heads(arg, answer))
        return;
    if (psd_auth_allow(&((struct psd *)arg)->auth, name))
        psd_answer_json(answer, 200, json_pack("{s:s}", "allowed", name));
    else
        psd_answer_json(
            answer, name[0] != 0 ? 404 : 400,
            json_pack(
                "{s:o}", "error",
                json_sprintf("'%s' is not barred; /status lists who is, for POST /allow?name=NAME", name)));
}
