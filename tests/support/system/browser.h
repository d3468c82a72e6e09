/* browser.h: a headless browser (Debian's chromium), controlled through its debugging pipe.
 *
 * For one thread. A failure of the browser fails the test. Times in seconds are scaled by test_slow_s. */
#ifndef TEST_BROWSER_H
#define TEST_BROWSER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct browser {
    pid_t pid;
    int to, from;     /* JSON messages, each terminated by a zero byte */
    char profile[64]; /* its own directory */
    char session[80]; /* of the page */
    int id;           /* of the last message */
    char *text;       /* received, not yet processed */
    size_t n_text, room;
    unsigned complaints;  /* errors on the console, exceptions, refused loads */
    char complaint[1000]; /* the last of them */
};

/* False if chromium is not installed. */
bool browser_found(void);
void browser_start(struct browser *b, unsigned width, unsigned height);
void browser_open(struct browser *b, const char *url);
/* One call of the DevTools protocol. Takes ownership of params, which may be NULL. The caller releases the
 * result. */
json_t *browser_call(struct browser *b, const char *method, json_t *params);
/* The value of a JavaScript expression. The caller releases it. */
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
