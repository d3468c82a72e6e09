/* errors.h: what a call returns and what the caller is told. */
#ifndef PSC_SESSION_ERRORS_H
#define PSC_SESSION_ERRORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct psc;

/* Leaves the sentence in the handle and returns `result`. */
int psc_fail(struct psc *c, int result, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A child of fork has a copy of the handle, and none of its threads: PSC_EINVAL, which says so. */
int psc_check_process(struct psc *c, const char *call);
/* And one that was interrupted is only good for psc_close: PSC_EINTERRUPTED. */
int psc_check_use(struct psc *c, const char *call);
/* For the caller's thread, without locks, as often as it likes while it waits: asks options.go_on, now and
 * then, whether to. If not, the transfer under way ends with PSC_EINTERRUPTED, as does every later call. */
void psc_ask_to_go_on(struct psc *c);
/* How long to wait at most before psc_ask_to_go_on is called again. */
double psc_ask_again_s(const struct psc *c);
/* Lets the transfer under way, and those behind it, end with `result`, unless they are told to already. */
void psc_give_up(struct psc *c, int result);
/* Copies what both sides know of a public struct that carries its size. What only a newer program knows is to
 * be 0, as its init left it: else PSC_EINVAL with a sentence that begins with `what`, and nothing is copied.
 */
int psc_take_struct(void *to, size_t known, const void *given, size_t given_size, const char *what,
                    struct ps_error *err);
/* The result of a server's code. */
int psc_result_of_code(uint32_t code);
/* Tells the caller's log. Not with the lock held. */
void psc_say(struct psc *c, const char *sentence);
/* Lets the control thread look at what shared asks of it. */
void psc_service_poke(struct psc *c);
bool psc_is_local(const struct psc *c);

#endif
