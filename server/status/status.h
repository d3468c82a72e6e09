/* status.h: what the status socket answers. Loop's thread. */
#ifndef PSD_STATUS_STATUS_H
#define PSD_STATUS_STATUS_H

#include "server/status/http.h"

struct psd;

extern const struct psd_http_route psd_routes[];
/* Answers those who wait for psd's end: it ends now, and d->end says whether well. */
void psd_tell_end(struct psd *d);
char *psd_metrics_text(struct psd *d);

#endif
