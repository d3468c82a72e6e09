/* errors.h: results of calls, and how public structs of another version are read. */
#ifndef PSC_SESSION_ERRORS_H
#define PSC_SESSION_ERRORS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* Copies the members that both sides know of a public struct that carries its size. Bytes that only a newer
 * program knows must be 0, as its init function left them: else PSC_EINVAL with a sentence that begins with
 * `what`, and nothing is copied. */
int psc_take_struct(void *to, size_t known, const void *given, size_t given_size, const char *what,
                    struct ps_error *err);
/* The psc result of a server's error code. */
int psc_result_of_code(uint32_t code);

#endif
