/* format.h: values of psd's JSON as text for people. A missing or null value is shown as "-". Characters that
 * are not printable are shown as "?", because names come from peers and go to a terminal. */
#ifndef PSD_CTL_FORMAT_H
#define PSD_CTL_FORMAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* A value as text, returned by value so that several can be used in one printf. psd's sentences and paths
 * fit. */
struct ctl_text {
    char s[1024];
};

/* Copies as much as fits into size bytes, with '?' for control characters. */
void ctl_copy_printable(char *to, size_t size, const char *from);

struct ctl_text ctl_text_of(const json_t *value);
struct ctl_text ctl_get(const json_t *object, const char *key);
struct ctl_text ctl_get_bytes(const json_t *object, const char *key); /* "1.6 MiB" */
struct ctl_text ctl_duration(double seconds);                         /* "5 min 03 s" */
struct ctl_text ctl_workers(const json_t *status);                    /* "2 active, 0 observers" */
bool ctl_is_known(const json_t *object, const char *key);             /* present and not null */

/* Number of UTF-8 characters, each assumed to take one column of a terminal; bytes of the first `width` of
 * them. */
int ctl_width(const char *text);
size_t ctl_bytes_of_width(const char *text, int width);

#define CTL_MAX_COLUMNS 24

struct ctl_column {
    const char *title, *key;
    bool left; /* aligned */
};

/* The width of the column's title and of its values in the list's objects. */
int ctl_column_width(const struct ctl_column *column, const json_t *list);
/* The list's objects, one a line, below a line of titles; each column is as wide as its widest value. */
void ctl_print_table(FILE *out, const struct ctl_column *columns, size_t n_columns, const json_t *list);

#endif
