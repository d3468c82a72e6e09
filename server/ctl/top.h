/* top.h: psctl top. top.c polls psd and lays out a frame; a screen shows it: screen_ncurses.c, or
 * screen_plain.c if ncurses was not found at build time. */
#ifndef CTL_TOP_H
#define CTL_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/error.h"
#include "server/ctl/http_client.h"

struct ctl_top; /* the state of a psd over several looks; one thread */

enum ctl_style { CTL_PLAIN, CTL_BOLD, CTL_TITLES, CTL_FAINT, CTL_ALARM };

struct ctl_line {
    enum ctl_style style;
    char text[512]; /* UTF-8, no control characters */
};

struct ctl_frame {
    struct ctl_line *lines;
    int n;
};

/* The caller keeps the client. timeout_ms: for each request. -ENOMEM. */
int ctl_top_create(struct ctl_client *client, uint32_t timeout_ms, struct ctl_top **out,
                   struct ps_error *err);
void ctl_top_destroy(struct ctl_top *top);

/* Polls once; keeps the previous state if psd does not answer. 0, or -errno with a sentence. */
int ctl_top_look(struct ctl_top *top, struct ps_error *err);
void ctl_top_sort_next(struct ctl_top *top);
/* Scrolls the table by this many workers. */
void ctl_top_scroll(struct ctl_top *top, int by);
/* The frame for max_lines lines of `width` columns; 0: unlimited. On a narrow terminal text is wrapped and
 * the least important columns are left out. Owned by top, valid until the next call. NULL: no memory. */
const struct ctl_frame *ctl_top_frame(struct ctl_top *top, int max_lines, int width);
/* Columns of the terminal; 0: not a terminal. */
int ctl_top_width(FILE *out);

/* Prints one frame as text after two looks, which rates need. */
int ctl_top_once(struct ctl_top *top, FILE *out, struct ps_error *err);

/* Shows frames until q is pressed or a signal arrives, and restores the terminal. -ENOTTY: stdout is not a
 * terminal, or an unknown one. */
int ctl_screen_run(struct ctl_top *top, double interval_s, struct ps_error *err);

#endif
