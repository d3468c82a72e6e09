/* print.h: prints psd's answers for people. */
#ifndef CTL_PRINT_H
#define CTL_PRINT_H

#include <jansson.h>
#include <stdio.h>

void ctl_print_status(FILE *out, const json_t *status);
void ctl_print_workers(FILE *out, const json_t *workers);
void ctl_print_history(FILE *out, const json_t *history);
void ctl_print_config(FILE *out, const json_t *config); /* as YAML for psd */
void ctl_print_evicted(FILE *out, const json_t *evicted);
void ctl_print_allowed(FILE *out, const json_t *allowed);

#endif
