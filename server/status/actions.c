/* The status socket's actions. With several servers most of them are only possible at the head. */
#include "server/status/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/status/json.h"

/* False: this is not the head; answers with its address. */
static bool is_heads(const struct psd_status *status, struct psd_http_answer *answer)
{
    if (psd_is_head(status->cfg))
        return true;
    psd_answer_json(answer, 409,
                    json_pack("{s:o}", "error",
                              json_sprintf("this is server %u of %u: ask server 0, the head at %s",
                                           status->cfg->servers.index, status->cfg->servers.count,
                                           status->cluster->follower.head_url)));
    return false;
}

void psd_post_checkpoint(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd_status *status = arg;
    struct ps_error err;
    (void)query;
    if (!is_heads(status, answer))
        return;
    const uint64_t version = psd_version(status->lanes); /* read before the start: the lanes continue, and
                                                            clients must not wait for a newer one */
    if (psd_checkpointer_start(status->job, &err) < 0)
        psd_answer_json(answer, 409, json_pack("{s:o}", "error", psd_json_text(err.text)));
    else
        psd_answer_json(answer, 202,
                        json_pack("{s:s, s:I}", "checkpoint", "started", "version", (json_int_t)version));
}

/* Answers with the result of a change of the configuration. */
static void answer_change(const struct psd_status *status, const char *what, int rc,
                          const struct ps_error *err, struct psd_http_answer *answer)
{
    char list[PSD_SETTINGS_BYTES + 400];
    bool changes = status->job->method_change.phase != PSD_METHOD_CHANGE_NONE;
    if (rc < 0) {
        psd_answer_json(answer, 409, json_pack("{s:o}", "error", psd_json_text(err->text)));
        return;
    }
    psd_settings_list(psd_settings_now(status->job), list, sizeof list);
    psd_answer_json(answer, 202,
                    json_pack("{s:s, s:I, s:s, s:I, s:o}", what, rc > 0 ? "started" : "unchanged", "request",
                              (json_int_t)status->job->reload.n_requests, "method",
                              changes ? status->job->method_change.next.method : status->cfg->method,
                              "generation",
                              (json_int_t)status->lanes->shared.generation +
                                  (changes && status->job->method_change.method),
                              "set_above_file", psd_json_text(list)));
}

void psd_post_reload(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct ps_error err;
    int rc = psd_reload(((struct psd_status *)arg)->job, &err);
    (void)query;
    answer_change(arg, "reload", rc, &err, answer);
}

/* Body: lines of KEY=VALUE. */
void psd_post_set(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct ps_error err = {0};
    if (!is_heads(arg, answer))
        return;
    int rc = query == NULL
                 ? ps_fail(&err, -EINVAL,
                           "POST /set: found nothing; allowed is POST /set?lines=KEY=VALUE, lines of it, "
                           "with URL-encoded values")
                 : psd_set(((struct psd_status *)arg)->job, query, &err);
    answer_change(arg, "set", rc, &err, answer);
}

/* Body: lines of keys, or "all". */
void psd_post_unset(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct ps_error err = {0};
    if (!is_heads(arg, answer))
        return;
    int rc = query == NULL
                 ? ps_fail(&err, -EINVAL,
                           "POST /unset: found nothing; allowed is POST /unset?keys=KEY, lines of it, or "
                           "?keys=all")
                 : psd_unset(((struct psd_status *)arg)->job, query, &err);
    answer_change(arg, "unset", rc, &err, answer);
}

/* ?wait=end: answered when psd stops, with the result; see psd_tell_end. */
void psd_post_drain(void *arg, const char *query, struct psd_http_answer *answer)
{
    if (!is_heads(arg, answer))
        return;
    if (query != NULL && strcmp(query, "end") != 0) {
        psd_answer_json(answer, 400,
                        json_pack("{s:s}", "error", "wait: allowed is end, as in POST /drain?wait=end"));
        return;
    }
    psd_job_drain(((struct psd_status *)arg)->job, "drain was requested on the status socket");
    answer->held = query != NULL;
    if (!answer->held)
        psd_answer_json(answer, 202, json_pack("{s:s}", "drain", "started"));
}

/* Answered when psd stops, with the result, which a page cannot learn by polling. */
void psd_get_end(void *arg, const char *query, struct psd_http_answer *answer)
{
    (void)arg;
    (void)query;
    answer->held = true;
}

/* Why the job did not end well, or "". */
static const char *trouble_of(const struct psd_status *status)
{
    return status->job->end.text[0] != 0 ? status->job->end.text
           : status->cluster->again.due  ? "psd restarts with the other servers; the job has not ended"
           : status->job->exit_code != 0 ? "psd stops before the job has ended; see its log"
                                         : "";
}

void psd_tell_end(struct psd_status *status)
{
    const struct psd_checkpointer *v = &status->job->checkpointer;
    const char *trouble = trouble_of(status);
    bool well = trouble[0] == 0;
    json_t *o =
        well ? json_pack("{s:s, s:I, s:o, s:o}", "drain", "done", "version",
                         (json_int_t)psd_version(status->lanes), "checkpoint", psd_json_text(v->last_path),
                         "reason", psd_json_text(status->job->drain_reason))
             : json_pack("{s:o}", "error", psd_json_text(trouble));
    char *body = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    psd_http_release(status->http,
                     well                         ? 200
                     : status->cluster->again.due ? 503
                                                  : 500,
                     body != NULL ? body : "{}");
    free(body);
    json_decref(o);
}

/* rank: a worker's rank, or the client number of an observer (/workers has both). */
void psd_post_evict(void *arg, const char *query, struct psd_http_answer *answer)
{
    struct psd_status *status = arg;
    uint32_t client = 0;
    char found[64], why[160];
    if (!is_heads(status, answer))
        return;
    snprintf(found, sizeof found, "%s", query != NULL ? query : "");
    size_t n = strlen(found);
    if (n < 1 || n > 6 || strspn(found, "0123456789") != n) {
        snprintf(why, sizeof why, "evict needs the rank of a worker, as in POST /evict?rank=0; found '%s'",
                 n > 0 && n <= 6 ? found
                 : n > 0         ? "something else"
                                 : "nothing");
        psd_answer_json(answer, 400, json_pack("{s:o}", "error", psd_json_text(why)));
        return;
    }
    client = (uint32_t)strtoul(found, NULL, 10);
    struct psd_session *s = client < status->sessions->n_slots ? &status->sessions->slots[client] : NULL;
    if (s == NULL || s->state == PSD_SESSION_VACANT) {
        psd_answer_json(
            answer, 404,
            json_pack("{s:o}", "error",
                      json_sprintf("there is no rank %u in the job; /workers lists the members", client)));
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
    psd_auth_bar(status->auth, s);
    psd_send_error(status->sender, s, PS__CODE__EVICTED, true, why);
    psd_job_end(status->job, s, PS__CODE__EVICTED, "evicted by an operator");
    psd_answer_json(answer, 200, o);
}

void psd_post_allow(void *arg, const char *query, struct psd_http_answer *answer)
{
    const char *name = query != NULL && ps_curve_is_name(query) ? query : "";
    if (!is_heads(arg, answer))
        return;
    if (psd_auth_allow(((struct psd_status *)arg)->auth, name))
        psd_answer_json(answer, 200, json_pack("{s:s}", "allowed", name));
    else
        psd_answer_json(
            answer, name[0] != 0 ? 404 : 400,
            json_pack(
                "{s:o}", "error",
                json_sprintf("'%s' is not barred; /status lists the barred names, for POST /allow?name=NAME",
                             name)));
}
