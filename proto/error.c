#include "proto/error.h"

#include <stdarg.h>
#include <stdio.h>

int ps_fail(struct ps_error *err, int code, const char *fmt, ...)
{
    if (err != NULL) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return code;
}
