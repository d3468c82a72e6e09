/* json.h: the answers of the status server. */
#ifndef PSD_STATUS_JSON_H
#define PSD_STATUS_JSON_H

#include <jansson.h>

#include "server/config/json.h"
#include "server/status/status.h"

/* status.c: takes o; NULL: there was no memory for it. */
void psd_answer_json(struct psd_http_answer *answer, int status, json_t *o);

/* training.c: what the workers say that they train, and how far they are. */
json_t *psd_training_json(const struct psd_status *status);
/* Steps that the client has taken in its session, by what lanes and its heartbeats tell. */
uint64_t psd_training_clock(const struct psd_status *status, const struct psd_session *s);
/* The learning rate at a worker's next step, NaN: an observer's; and at that of the worker that is, or was,
 * farthest. */
double psd_training_rate_of(const struct psd_status *status, const struct psd_session *s);
double psd_training_rate(const struct psd_status *status);

/* actions.c */
void psd_get_end(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_checkpoint(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_reload(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_drain(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_evict(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_set(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_unset(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_allow(void *arg, const char *query, struct psd_http_answer *answer);

#endif
