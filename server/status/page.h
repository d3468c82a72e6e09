/* page.h: the live page. Handlers (http.h) for the files of server/status/page, which embed-page.sh converts
 * to C. */
#ifndef PSD_STATUS_PAGE_H
#define PSD_STATUS_PAGE_H

#include "server/status/http.h"

void psd_page_index(void *arg, const char *query,
                    struct psd_http_answer *answer); /* server/status/page/index.html */
void psd_page_style(void *arg, const char *query,
                    struct psd_http_answer *answer); /* server/status/page/page.css */
void psd_page_script(void *arg, const char *query,
                     struct psd_http_answer *answer); /* server/status/page/page.js */
void psd_page_chart(void *arg, const char *query,
                    struct psd_http_answer *answer); /* server/status/page/chart.js */
void psd_page_icon(void *arg, const char *query,
                   struct psd_http_answer *answer); /* server/status/page/icon.svg */

#endif
