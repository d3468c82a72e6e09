/* send.h: what psd says to clients on the control socket. Loop's thread. */
#ifndef PSD_SESSION_SEND_H
#define PSD_SESSION_SEND_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "ps.pb-c.h"
#include "server/session/session.h"

struct psd;

void psd_control_begun(struct psd *d, struct psd_session *s, bool offer);
void psd_control_parked(struct psd *d, struct psd_session *s, const char *reason);
void psd_control_error(struct psd *d, const struct psd_session *s, uint32_t code, bool fatal,
                       const char *sentence);
void psd_control_drain(struct psd *d, const char *reason);
/* Whether the vector that s has offered is wanted. */
void psd_control_reported(struct psd *d, struct psd_session *s, uint64_t offer, bool wanted);
/* Asks every worker to save its part beside the center's checkpoint of this version. */
void psd_control_save(struct psd *d, uint64_t version);
void psd_control_refuse(struct psd *d, const struct psd_peer *peer, uint32_t code, const char *sentence);
/* To a client of that job. */
void psd_control_refuse_of(struct psd *d, const struct psd_peer *peer, uint64_t job, uint32_t code,
                           const char *sentence);
/* To a client: after what lanes were told before, wherever they are. */
int psd_control_send_to(struct psd *d, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m);
/* At once. */
int psd_control_send_now(struct psd *d, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m);
int psd_control_send_bytes(struct psd *d, const unsigned char *peer, size_t peer_bytes, const void *bytes,
                           size_t len);

#endif
