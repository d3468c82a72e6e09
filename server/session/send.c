/* What psd says to clients on the control socket. */
#include <errno.h>
#include <string.h>
#include <zmq.h>

#include "proto/log.h"
#include "proto/wire/control.h"
#include "server/psd.h"

int psd_control_send_now(struct psd *d, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m)
{
    if (zmq_send(d->control.socket, peer, peer_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
        return -zmq_errno(); /* gone, or does not read: silence will end its session */
    return ps_control_send(d->control.socket, &m->base);
}

int psd_control_send_bytes(struct psd *d, const unsigned char *peer, size_t peer_bytes, const void *bytes,
                           size_t len)
{
    if (zmq_send(d->control.socket, peer, peer_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(d->control.socket, bytes, len, ZMQ_DONTWAIT) < 0)
        return -zmq_errno();
    return 0;
}

int psd_control_send_to(struct psd *d, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m)
{
    return psd_has_cluster(d) && d->hooks.holds_back(d, peer, peer_bytes, m)
               ? 0
               : psd_control_send_now(d, peer, peer_bytes, m);
}

static void send_session(struct psd *d, const struct psd_session *s, const Ps__ToClient *m)
{
    if (s->peer_bytes > 0)
        psd_control_send_to(d, s->peer, s->peer_bytes, m);
}

void psd_control_begun(struct psd *d, struct psd_session *s, bool offer)
{
    Ps__Begun begun = PS__BEGUN__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    begun.offer = offer;
    begun.center_version = psd_version(d);
    m.what_case = PS__TO_CLIENT__WHAT_BEGUN;
    m.begun = &begun;
    send_session(d, s, &m);
}

void psd_control_parked(struct psd *d, struct psd_session *s, const char *reason)
{
    Ps__Parked parked = PS__PARKED__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    parked.reason = (char *)(uintptr_t)reason;
    m.what_case = PS__TO_CLIENT__WHAT_PARKED;
    m.parked = &parked;
    send_session(d, s, &m);
}

static void send_error(struct psd *d, const unsigned char *peer, size_t peer_bytes, uint64_t job,
                       uint32_t code, bool fatal, const char *sentence)
{
    Ps__Error error = PS__ERROR__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    error.code = (Ps__Code)code;
    error.fatal = fatal;
    error.job = job;
    error.sentence = (char *)(uintptr_t)sentence;
    m.what_case = PS__TO_CLIENT__WHAT_ERROR;
    m.error = &error;
    psd_control_send_to(d, peer, peer_bytes, &m);
}

void psd_control_error(struct psd *d, const struct psd_session *s, uint32_t code, bool fatal,
                       const char *sentence)
{
    d->rejected_control[code]++;
    send_error(d, s->peer, s->peer_bytes, d->job, code, fatal, sentence);
}

void psd_control_refuse_of(struct psd *d, const struct psd_peer *peer, uint64_t job, uint32_t code,
                           const char *sentence)
{
    d->rejected_control[code]++;
    if (ps_log_allows(&d->control.log_limit, "control.refused", "control socket"))
        ps_log(PS_LOG_WARN, "control.refused", "%s: %s (%s)", peer->address, sentence,
               protobuf_c_enum_descriptor_get_value(&ps__code__descriptor, (int)code)->name);
    send_error(d, peer->id, peer->id_bytes, job, code, true, sentence);
}

void psd_control_refuse(struct psd *d, const struct psd_peer *peer, uint32_t code, const char *sentence)
{
    psd_control_refuse_of(d, peer, d->job, code, sentence);
}

void psd_control_drain(struct psd *d, const char *reason)
{
    Ps__Drain drain = PS__DRAIN__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    drain.reason = (char *)(uintptr_t)reason;
    m.what_case = PS__TO_CLIENT__WHAT_DRAIN;
    m.drain = &drain;
    for (uint32_t i = 0; i < d->sessions.n_slots; i++)
        if (d->sessions.slots[i].state != PSD_SESSION_VACANT)
            send_session(d, &d->sessions.slots[i], &m);
}

void psd_control_reported(struct psd *d, struct psd_session *s, uint64_t offer, bool wanted)
{
    Ps__Reported reported = PS__REPORTED__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    s->offer.answered = true;
    s->offer.wanted = wanted;
    reported.offer = offer;
    reported.wanted = wanted;
    m.what_case = PS__TO_CLIENT__WHAT_REPORTED;
    m.reported = &reported;
    send_session(d, s, &m);
}

void psd_control_save(struct psd *d, uint64_t version)
{
    Ps__Save save = PS__SAVE__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    save.center_version = version;
    m.what_case = PS__TO_CLIENT__WHAT_SAVE;
    m.save = &save;
    for (uint32_t i = 0; i < d->sessions.n_slots; i++)
        if (d->sessions.slots[i].state == PSD_SESSION_ACTIVE && !d->sessions.slots[i].observer)
            send_session(d, &d->sessions.slots[i], &m);
}
