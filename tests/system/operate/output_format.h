/* output_format.h: whether what psd and psctl print can be read by a machine. */
#ifndef TEST_SYSTEM_OUTPUT_FORMAT_H
#define TEST_SYSTEM_OUTPUT_FORMAT_H

#include <jansson.h>

/* The text as JSON, to be released; fails the test when it is none. */
json_t *pages_json(const char *what, const char *text);
/* Every line of the file is a JSON object; the check is called with each (may be NULL). Returns how many. */
unsigned pages_json_lines(const char *path, void (*check)(const json_t *line));
/* Prometheus' text format, line by line: HELP and TYPE before samples, names, labels, numbers, histograms. */
void pages_metrics(const char *text);
/* Whether the metrics have a sample that begins so. */
int pages_has_sample(const char *text, const char *begin);

#endif
