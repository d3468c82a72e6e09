/* What the workers train and their progress, as they report it: names are shown as received, and no decision
 * depends on them. */
#include <math.h>
#include <string.h>

#include "server/status/json.h"

enum { MOST_NAMES = 8 };

double psd_training_rate_of(const struct psd_status *status, const struct psd_session *s)
{
    const struct ps_hyper *h = &status->cfg->hyper;
    return s->observer ? NAN
                       : ps_schedule_rate(&h->schedule, h->learning_rate, psd_job_clock_of(status->job, s));
}

static bool has_been(const struct psd_session *s)
{
    return s->state != PSD_SESSION_VACANT || s->end[0] != 0;
}

double psd_training_rate(const struct psd_status *status)
{
    const struct ps_hyper *h = &status->cfg->hyper;
    return ps_schedule_rate(&h->schedule, h->learning_rate, psd_job_clock(status->job));
}

/* Adds each name once. If there are too many, the last is "…". */
static void add_name(json_t *list, const char *name)
{
    const json_t *known;
    size_t i;
    if (name[0] == 0 || json_array_size(list) > MOST_NAMES)
        return;
    json_array_foreach(list, i, known) if (strcmp(json_string_value(known), name) == 0) return;
    json_array_append_new(list, json_string(json_array_size(list) < MOST_NAMES ? name : "…"));
}

/* Progress of the workers that report their planned steps: the present ones, and for each vacant slot the
 * last one, since a worker that has finished and left still counts. null: none reports it. */
json_t *psd_training_json(const struct psd_status *status)
{
    json_t *nets = json_array(), *data = json_array();
    uint64_t done = 0, wanted = 0;
    for (uint32_t i = 0; i < status->sessions->n_workers_max; i++) {
        const struct psd_session *s = &status->sessions->slots[i];
        if (!has_been(s))
            continue;
        add_name(nets, s->net);
        add_name(data, s->data);
        uint64_t clock = psd_job_clock_of(status->job, s);
        done += clock < s->steps ? clock : s->steps;
        wanted += s->steps;
    }
    json_t *o = json_pack("{s:o, s:o}", "nets", nets, "data", data);
    json_object_set_new(o, "steps_done", wanted > 0 ? json_integer((json_int_t)done) : json_null());
    json_object_set_new(o, "steps_wanted", wanted > 0 ? json_integer((json_int_t)wanted) : json_null());
    return o;
}
