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

static inline json_t *psd_json_text(const char *s)
{
    return s[0] != 0 ? json_string(s) : json_null();
}

#endif
