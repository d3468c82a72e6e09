/* json.h: the answers of the status server. */
#ifndef PSD_STATUS_JSON_H
#define PSD_STATUS_JSON_H

#include <jansson.h>

#include "server/config/json.h"
#include "server/status/status.h"

/* status.c: consumes o; NULL: there was no memory for it. */
void psd_answer_json(struct psd_http_answer *answer, int status, json_t *o);

/* training.c: models, data sets and progress, as reported by the workers. */
json_t *psd_training_json(const struct psd_status *status);
/* The learning rate of the worker's next step, NaN for an observer; and of the next step of the worker with
 * the most steps, also if it has left. */
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
