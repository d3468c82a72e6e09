/* json.h: small helpers for the JSON that psd writes. */
#ifndef PSD_STATUS_JSON_H
#define PSD_STATUS_JSON_H

#include <jansson.h>
#include <math.h>

#include "server/psd.h"

/* null for what is not known. */
static inline json_t *psd_json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static inline json_t *psd_json_text(const char *s)
{
    return s[0] != 0 ? json_string(s) : json_null();
}

/* status.c: takes o; NULL: there was no memory for it. */
void psd_answer_json(struct psd_http_answer *answer, int status, json_t *o);

/* actions.c */
void psd_post_checkpoint(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_reload(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_drain(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_evict(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_allow(void *arg, const char *query, struct psd_http_answer *answer);

/* server/cluster/status.c: the servers of the job, this one first where it is not the head. */
json_t *psd_team_json(const struct psd *d);

/* server/job/history.c */
json_t *psd_json_record(const struct psd_record *r);

#endif
