/* control_messages.h: builds and sends the control messages that are more than a few fields. For the service
 * thread. */
#ifndef PSC_SESSION_CONTROL_MESSAGES_H
#define PSC_SESSION_CONTROL_MESSAGES_H

#include "client/session/session.h"

/* Sends Hello, with a credential over the nonce where the server has asked for one (nonce NULL: it has not).
 * PSC_OK; with a sentence: PSC_EAUTH if a credential cannot be obtained, PSC_EGONE if munged does not answer.
 */
int psc_hello_send(struct psc_session *session, void *socket, const ProtobufCBinaryData *nonce,
                   struct ps_error *err);
/* Sends Begin. PSC_OK, PSC_ENOMEM, PSC_EMANIFEST with a sentence. */
int psc_begin_send(void *socket, const struct ps_manifest *manifest, uint32_t client, uint32_t incarnation,
                   struct ps_error *err);
int psc_control_send(void *socket, int what, void *message);

#endif
