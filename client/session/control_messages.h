/* control_messages.h: the control messages that take some putting together. The service thread's. */
#ifndef PSC_SESSION_CONTROL_MESSAGES_H
#define PSC_SESSION_CONTROL_MESSAGES_H

#include "client/internal.h"

/* Says Hello, with a credential over the nonce where the server has asked for one (NULL: it has not). PSC_OK;
 * PSC_EAUTH with a sentence when none can be had. */
int psc_words_hello(struct psc *c, void *socket, const ProtobufCBinaryData *nonce, struct ps_error *err);
/* Says Begin. PSC_OK, PSC_ENOMEM, PSC_EMANIFEST with a sentence. */
int psc_words_begin(void *socket, const struct ps_manifest *manifest, uint32_t client, uint32_t incarnation,
                    struct ps_error *err);
int psc_words_send(void *socket, int what, void *message);

#endif
