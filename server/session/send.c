#include "server/session/send.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "proto/log.h"
#include "proto/wire/control.h"

int psd_send_now(struct psd_sender *out, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m)
{
    /* A peer that is gone or does not read: its session will end for silence. */
    return ps_control_send_to(out->socket, peer, peer_bytes, &m->base);
}

int psd_send_bytes(struct psd_sender *out, const unsigned char *peer, size_t peer_bytes, const void *bytes,
                   size_t len)
{
    if (zmq_send(out->socket, peer, peer_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(out->socket, bytes, len, ZMQ_DONTWAIT) < 0)
        return -zmq_errno();
    return 0;
}

int psd_send_to(struct psd_sender *out, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m)
{
    return out->holds_back != NULL && out->holds_back(out->psd, peer, peer_bytes, m)
               ? 0
               : psd_send_now(out, peer, peer_bytes, m);
}

static void send_session(struct psd_sender *out, const struct psd_session *s, const Ps__ToClient *m)
{
    if (s->peer_bytes > 0)
        psd_send_to(out, s->peer, s->peer_bytes, m);
}

void psd_send_begun(struct psd_sender *out, struct psd_session *s, uint64_t version)
{
    Ps__Begun begun = PS__BEGUN__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    begun.offer = s->state == PSD_SESSION_OFFERING;
    begun.center_version = version;
    begun.barrier = s->barrier;
    m.what_case = PS__TO_CLIENT__WHAT_BEGUN;
    m.begun = &begun;
    send_session(out, s, &m);
}

void psd_send_parked(struct psd_sender *out, struct psd_session *s, const char *reason)
{
    Ps__Parked parked = PS__PARKED__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    parked.reason = (char *)(uintptr_t)reason;
    m.what_case = PS__TO_CLIENT__WHAT_PARKED;
    m.parked = &parked;
    send_session(out, s, &m);
}

static void send_error(struct psd_sender *out, const unsigned char *peer, size_t peer_bytes, uint64_t job,
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
    psd_send_to(out, peer, peer_bytes, &m);
}

void psd_send_error(struct psd_sender *out, const struct psd_session *s, uint32_t code, bool fatal,
                    const char *sentence)
{
    out->rejected[code]++;
    send_error(out, s->peer, s->peer_bytes, out->sessions->job, code, fatal, sentence);
}

void psd_send_refusal_of(struct psd_sender *out, const struct psd_peer *peer, uint64_t job, uint32_t code,
                         const char *sentence)
{
    out->rejected[code]++;
    if (ps_log_allows(&out->log_limit, "control.refused", "control socket"))
        ps_log(PS_LOG_WARN, "control.refused", "%s: %s (%s)", peer->address, sentence,
               protobuf_c_enum_descriptor_get_value(&ps__code__descriptor, (int)code)->name);
    send_error(out, peer->id, peer->id_bytes, job, code, true, sentence);
}

void psd_send_refusal(struct psd_sender *out, const struct psd_peer *peer, uint32_t code,
                      const char *sentence)
{
    psd_send_refusal_of(out, peer, out->sessions->job, code, sentence);
}

void psd_send_drain(struct psd_sender *out, const char *reason)
{
    Ps__Drain drain = PS__DRAIN__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    drain.reason = (char *)(uintptr_t)reason;
    m.what_case = PS__TO_CLIENT__WHAT_DRAIN;
    m.drain = &drain;
    for (uint32_t i = 0; i < out->sessions->n_slots; i++)
        if (out->sessions->slots[i].state != PSD_SESSION_VACANT)
            send_session(out, &out->sessions->slots[i], &m);
}

void psd_send_reported(struct psd_sender *out, struct psd_session *s, uint64_t offer, bool wanted)
{
    Ps__Reported reported = PS__REPORTED__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    s->offer.answered = true;
    s->offer.wanted = wanted;
    reported.offer = offer;
    reported.wanted = wanted;
    m.what_case = PS__TO_CLIENT__WHAT_REPORTED;
    m.reported = &reported;
    send_session(out, s, &m);
}

void psd_send_done(struct psd_sender *out, struct psd_session *s, const char *refused)
{
    Ps__Done done = PS__DONE__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    s->request.done = true;
    s->request.waits = false;
    if (refused != s->request.refused)
        snprintf(s->request.refused, sizeof s->request.refused, "%s", refused);
    done.number = s->request.number;
    done.refused = s->request.refused;
    done.barrier = s->barrier;
    m.what_case = PS__TO_CLIENT__WHAT_DONE;
    m.done = &done;
    send_session(out, s, &m);
}

void psd_send_save(struct psd_sender *out, uint64_t version)
{
    Ps__Save save = PS__SAVE__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    save.center_version = version;
    m.what_case = PS__TO_CLIENT__WHAT_SAVE;
    m.save = &save;
    for (uint32_t i = 0; i < out->sessions->n_slots; i++)
        if (out->sessions->slots[i].state == PSD_SESSION_ACTIVE && !out->sessions->slots[i].observer)
            send_session(out, &out->sessions->slots[i], &m);
}
