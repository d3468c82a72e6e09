/* csv.h: psd's answers for programs that read tables: RFC 4180. */
#ifndef CTL_CSV_H
#define CTL_CSV_H

#include <jansson.h>
#include <stdio.h>

/* The history's records, one a line under a line of the columns' names, which are the keys of /history and in
 * an order that stays: a later column is appended. What is not known is empty. Lines end in CR LF. */
void ctl_csv_history(FILE *out, const json_t *answer);

#endif
