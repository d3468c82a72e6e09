/* json.h: small helpers for the JSON that psd writes. */
#ifndef PSD_CONFIG_JSON_H
#define PSD_CONFIG_JSON_H

#include <jansson.h>
#include <math.h>

/* null for an unknown value. */
static inline json_t *psd_json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* null for an empty text. A text that is not UTF-8, such as a sentence that quotes one, is written as by
 * ps_text_copy. NULL: no memory. */
json_t *psd_json_text(const char *s);

/* The digits in which a real number reads back as itself: 15, so that 0.1 stays 0.1, or up to 17. */
int psd_json_digits(double v);

#endif
