/* print.h: psd's JSON as text for people. What is missing or null shows as "-"; what is not printable, as
 * "?", because names come from peers and go to a terminal. */
#ifndef CTL_PRINT_H
#define CTL_PRINT_H

#include <jansson.h>
#include <stdio.h>

/* Copies what fits into size bytes, '?' for control characters. */
void ctl_copy_printable(char *to, size_t size, const char *from);

void ctl_print_status(FILE *out, const json_t *status);
void ctl_print_workers(FILE *out, const json_t *workers);

#endif
