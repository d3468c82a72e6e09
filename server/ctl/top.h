/* top.h: psctl top. top.c asks psd and lays out a frame; a screen shows it: screen_ncurses.c, or
 * screen_plain.c where ncurses was not found at build time. */
#ifndef CTL_TOP_H
#define CTL_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/error.h"
#include "server/ctl/http_client.h"

struct ctl_top; /* what was seen of a psd; one thread */

enum ctl_style { CTL_PLAIN, CTL_BOLD, CTL_TITLES, CTL_FAINT, CTL_ALARM };

struct ctl_line {
    enum ctl_style style;
    char text[512]; /* UTF-8, no control characters */
};

struct ctl_frame {
    struct ctl_line *lines;
    int n;
};

/* The client stays the caller's. timeout_ms: of each request. -ENOMEM. */
int ctl_top_create(struct ctl_client *client, uint32_t timeout_ms, struct ctl_top **out,
                   struct ps_error *err);
void ctl_top_destroy(struct ctl_top *top);

/* Asks once; what was seen before stays when nobody answers. 0, or -errno with a sentence. */
int ctl_top_look(struct ctl_top *top, struct ps_error *err);
void ctl_top_sort_next(struct ctl_top *top);
/* Moves the table by so many workers. */
void ctl_top_scroll(struct ctl_top *top, int by);
/* What to show in max_lines lines of `width` columns, 0: as many as there are. Where a terminal is narrow,
 * text is wrapped and the table lacks what is needed least. The frame is top's, until the next call. NULL: no
 * memory. */
const struct ctl_frame *ctl_top_frame(struct ctl_top *top, int max_lines, int width);
/* Columns of the terminal; 0: it is none. */
int ctl_top_width(FILE *out);

/* Two looks, because rates need two; then the frame as text. */
int ctl_top_once(struct ctl_top *top, FILE *out, struct ps_error *err);

/* Shows until q, or until a signal ends it; the terminal is as before afterwards. -ENOTTY: stdout is no
 * terminal, or one that nothing is known of. */
int ctl_screen_run(struct ctl_top *top, double interval_s, struct ps_error *err);

#endif
