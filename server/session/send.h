/* send.h: psd's messages to clients on the control socket. Loop's thread. */
#ifndef PSD_SESSION_SEND_H
#define PSD_SESSION_SEND_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "proto/log.h"
#include "ps.pb-c.h"
#include "server/lane/lane.h"
#include "server/session/session.h"

struct psd;

struct psd_sender {
    void *socket; /* the control socket; server/control opens and closes it */
    struct psd_sessions *sessions;
    uint64_t rejected[PSD_N_CODES]; /* Errors that were sent and peers that were rejected, by code */
    struct ps_log_limit log_limit;
    /* Whether the message must wait until other servers' lanes have received the commands before it; it then
     * takes over the message. NULL: there are no other servers. */
    bool (*holds_back)(struct psd *psd, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m);
    struct psd *psd; /* for holds_back */
};

void psd_send_begun(struct psd_sender *out, struct psd_session *s, uint64_t version);
void psd_send_parked(struct psd_sender *out, struct psd_session *s, const char *reason);
void psd_send_error(struct psd_sender *out, const struct psd_session *s, uint32_t code, bool fatal,
                    const char *sentence);
void psd_send_drain(struct psd_sender *out, const char *reason);
/* Tells s whether the vector that it has offered is wanted. */
void psd_send_reported(struct psd_sender *out, struct psd_session *s, uint64_t offer, bool wanted);
/* Asks every worker to save its state for the center's checkpoint of this version. */
/* Answers a Barrier or SetMethod, which is then done. refused: "": it was done. */
void psd_send_done(struct psd_sender *out, struct psd_session *s, const char *refused);
void psd_send_save(struct psd_sender *out, uint64_t version);
void psd_send_refusal(struct psd_sender *out, const struct psd_peer *peer, uint32_t code,
                      const char *sentence);
/* The same, to a client of that job. */
void psd_send_refusal_of(struct psd_sender *out, const struct psd_peer *peer, uint64_t job, uint32_t code,
                         const char *sentence);
/* To a client, after the lanes of all servers have received the earlier commands. */
int psd_send_to(struct psd_sender *out, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m);
/* The same, without waiting for lanes. */
int psd_send_now(struct psd_sender *out, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m);
int psd_send_bytes(struct psd_sender *out, const unsigned char *peer, size_t peer_bytes, const void *bytes,
                   size_t len);

#endif
