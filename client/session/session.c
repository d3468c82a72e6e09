/* Requests of other threads to the session, and whether a call may continue. */
#include "client/session/session.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/clock.h"

int psc_check_process(const struct psc_session *s, const char *call, struct ps_error *err)
{
    return getpid() == s->owner
               ? PSC_OK
               : ps_fail(err, PSC_EINVAL,
                         "%s: the handle belongs to process %d; a forked child opens its own", call,
                         (int)s->owner);
}

int psc_check_use(const struct psc_session *s, const char *call, struct ps_error *err)
{
    int rc = psc_check_process(s, call, err);
    if (rc == PSC_OK && s->interrupted)
        rc = ps_fail(err, PSC_EINTERRUPTED, "%s: an earlier call was interrupted; allowed is only psc_close",
                     call);
    return rc;
}

/* Between two calls of options.go_on: short enough for a signal handler to be served soon, and so long that
 * an exchange makes one call at most. */
#define ASK_S 0.1

double psc_ask_again_s(const struct psc_session *s)
{
    return s->opt->go_on != NULL ? ASK_S : 1;
}

void psc_give_up(struct psc_session *s, int result)
{
    pthread_mutex_lock(&s->shared.lock);
    if (s->shared.give_up == PSC_OK)
        s->shared.give_up = result;
    pthread_mutex_unlock(&s->shared.lock);
    eventfd_write(s->wake_fd, 1);
}

void psc_ask_to_go_on(struct psc_session *s)
{
    if (s->opt->go_on == NULL || s->interrupted)
        return;
    double now = ps_now_s();
    if (now - s->asked_s < ASK_S / 2)
        return;
    s->asked_s = now;
    int answer = s->opt->go_on(s->opt->go_on_arg);
    bool held = atomic_load_explicit(&s->held, memory_order_relaxed);
    if (answer != 0 && (answer != PSC_GO_ON_UNLESS_HELD || !held))
        return;
    s->interrupted = true;
    psc_give_up(s, PSC_EINTERRUPTED);
}

void psc_session_say(struct psc_session *s, const char *sentence)
{
    if (s->opt->log != NULL)
        s->opt->log(s->opt->log_arg, sentence);
}

void psc_session_poke(struct psc_session *s)
{
    eventfd_write(s->command_fd, 1);
}
