/* json.h: the answers of the status server. */
#ifndef PSD_STATUS_JSON_H
#define PSD_STATUS_JSON_H

#include <jansson.h>

#include "server/config/json.h"
#include "server/psd.h"

/* status.c: takes o; NULL: there was no memory for it. */
void psd_answer_json(struct psd_http_answer *answer, int status, json_t *o);

/* actions.c */
void psd_post_checkpoint(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_reload(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_drain(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_evict(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_set(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_unset(void *arg, const char *query, struct psd_http_answer *answer);
void psd_post_allow(void *arg, const char *query, struct psd_http_answer *answer);

#endif
