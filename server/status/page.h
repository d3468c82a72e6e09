/* page.h: the live page. Handlers (http.h) for the files of server/page, which embed-page.sh makes C. */
#ifndef PSD_PAGE_H
#define PSD_PAGE_H

#include "server/http.h"

void psd_page_index(void *arg, const char *query, struct psd_http_answer *answer);  /* index.html */
void psd_page_style(void *arg, const char *query, struct psd_http_answer *answer);  /* page.css */
void psd_page_script(void *arg, const char *query, struct psd_http_answer *answer); /* page.js */
void psd_page_chart(void *arg, const char *query, struct psd_http_answer *answer);  /* chart.js */
void psd_page_icon(void *arg, const char *query, struct psd_http_answer *answer);   /* icon.svg */

#endif
