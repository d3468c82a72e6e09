/* Included before every file by scripts/lint: the analyzer sees one file at a time, and must know that these
 * return the code that they are given. */
#include "nets/net.h"
#include "proto/error.h"

#define ps_fail(err, code, ...)  ((void)(err), (code))
#define cnn_fail(err, code, ...) ((void)(err), (code))
