/* browser.h: a real headless browser (Debian's chromium), told what to do over its debugging pipe.
 *
 * Belongs to one thread. A failure of the browser itself fails the test. Times in seconds are stretched by
 * test_slow_s. */
#ifndef TEST_BROWSER_H
#define TEST_BROWSER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct browser {
    pid_t pid;
    int to, from;     /* messages: JSON, each ended by a zero byte */
    char profile[64]; /* a directory of its own */
    char session[80]; /* of the one page */
    int id;           /* of the last message */
    char *text;       /* received, not taken yet */
    size_t n_text, room;
    unsigned complaints;  /* errors on the console, exceptions, refused loads */
    char complaint[1000]; /* the last one */
};

/* False where there is no chromium. */
bool browser_found(void);
void browser_start(struct browser *b, unsigned width, unsigned height);
void browser_open(struct browser *b, const char *url);
/* One call of the DevTools protocol; takes params (may be NULL). The result, to be released. */
json_t *browser_call(struct browser *b, const char *method, json_t *params);
/* The value of a JavaScript expression, to be released. */
json_t *browser_value(struct browser *b, const char *expression);
double browser_number(struct browser *b, const char *expression);
/* Waits until the expression is true; false after `seconds`. */
bool browser_will(struct browser *b, const char *expression, double seconds);
void browser_resize(struct browser *b, unsigned width, unsigned height);
void browser_set_dark(struct browser *b, bool dark);
/* Writes the page as a PNG. */
void browser_picture(struct browser *b, const char *path);
void browser_stop(struct browser *b);

#endif
