/* error.h: errors as a sentence for people. */
#ifndef PS_ERROR_H
#define PS_ERROR_H

/* Filled by the function that detects the error: names the thing, the place, what was found, and what is
 * allowed. */
struct ps_error {
    char text[512];
};

/* Writes the sentence and returns `code`, so that `return ps_fail(err, -EINVAL, "…")` reads well. err may be
 * NULL. */
int ps_fail(struct ps_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
