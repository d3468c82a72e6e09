/* Included before every file by scripts/lint: the analyzer sees one file at a time, and must know that these
 * return the code that they are given. */
#include "proto/error.h"

void lint_use(const char *fmt, ...);

#define ps_fail(err, code, ...) ((void)(err), lint_use(__VA_ARGS__), (code))
