/* What a call returns and what the caller is told, for every part of the library. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/internal.h"
#include "proto/clock.h"

int psc_fail(struct psc *c, int result, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->error.text, sizeof c->error.text, fmt, ap);
    va_end(ap);
    return result;
}

int psc_check_process(struct psc *c, const char *call)
{
    return getpid() == c->owner
               ? PSC_OK
               : psc_fail(c, PSC_EINVAL,
                          "%s: the handle is of process %d, which has forked: a child opens its own", call,
                          (int)c->owner);
}

int psc_check_use(struct psc *c, const char *call)
{
    int rc = psc_check_process(c, call);
    if (rc == PSC_OK && c->interrupted)
        rc = psc_fail(c, PSC_EINTERRUPTED, "%s: an earlier call was interrupted: only psc_close is left",
                      call);
    return rc;
}

/* Between two questions: a signal's handler is not kept waiting, and an exchange asks once at most. */
#define ASK_S 0.1

double psc_ask_again_s(const struct psc *c)
{
    return c->opt.go_on != NULL ? ASK_S : 1;
}

void psc_give_up(struct psc *c, int result)
{
    pthread_mutex_lock(&c->shared.lock);
    if (c->shared.give_up == PSC_OK)
        c->shared.give_up = result;
    pthread_mutex_unlock(&c->shared.lock);
    eventfd_write(c->wake_fd, 1);
}

void psc_ask_to_go_on(struct psc *c)
{
    if (c->opt.go_on == NULL || c->interrupted)
        return;
    double now = ps_now_s();
    if (now - c->asked_s < ASK_S / 2)
        return;
    c->asked_s = now;
    if (c->opt.go_on(c->opt.go_on_arg) != 0)
        return;
    c->interrupted = true;
    psc_give_up(c, PSC_EINTERRUPTED);
}

int psc_take_struct(void *to, size_t known, const void *given, size_t given_size, const char *what,
                    struct ps_error *err)
{
    const unsigned char *bytes = given;
    for (size_t i = known; i < given_size; i++)
        if (bytes[i] != 0)
            return ps_fail(err, PSC_EINVAL,
                           "%s: byte %zu is of a newer version of the library and not 0; this one knows %zu",
                           what, i, known);
    memcpy(to, given, given_size < known ? given_size : known);
    return PSC_OK;
}

int psc_result_of_code(uint32_t code)
{
    static const int results[] = {
        [PS__CODE__VERSION] = PSC_EUNSUPPORTED, [PS__CODE__MALFORMED] = PSC_EREFUSED,
        [PS__CODE__NO_SESSION] = PSC_EEVICTED,  [PS__CODE__STALE] = PSC_EEVICTED,
        [PS__CODE__NOT_BEGUN] = PSC_EREFUSED,   [PS__CODE__RANGE] = PSC_EREFUSED,
        [PS__CODE__VALUE] = PSC_EEVICTED,       [PS__CODE__MANIFEST] = PSC_EMANIFEST,
        [PS__CODE__RANK_TAKEN] = PSC_ERANK,     [PS__CODE__RANK_RANGE] = PSC_ERANK,
        [PS__CODE__FULL] = PSC_EREFUSED,        [PS__CODE__DRAINING] = PSC_DRAINED,
        [PS__CODE__EVICTED] = PSC_EEVICTED,     [PS__CODE__SEQ] = PSC_EREFUSED,
        [PS__CODE__CODEC] = PSC_EUNSUPPORTED,   [PS__CODE__GENERATION] = PSC_EREFUSED,
        [PS__CODE__LIMIT] = PSC_EREFUSED,       [PS__CODE__KIND] = PSC_EREFUSED,
        [PS__CODE__CLIQUE] = PSC_ECLIQUE,       [PS__CODE__AUTH] = PSC_EAUTH,
        [PS__CODE__JOB] = PSC_EEVICTED,
    };
    return code < sizeof results / sizeof *results && results[code] != 0 ? results[code] : PSC_EREFUSED;
}

void psc_say(struct psc *c, const char *sentence)
{
    if (c->opt.log != NULL)
        c->opt.log(c->opt.log_arg, sentence);
}

void psc_service_poke(struct psc *c)
{
    eventfd_write(c->command_fd, 1);
}

bool psc_is_local(const struct psc *c)
{
    return c->local;
}
