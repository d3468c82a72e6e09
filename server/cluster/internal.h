/* internal.h: what the files of cluster/ share. */
#ifndef PSD_CLUSTER_INTERNAL_H
#define PSD_CLUSTER_INTERNAL_H

#include "server/psd.h"

/* head.c */
uint32_t psd_team_index(const struct psd *d, const struct psd_server *s);
uint64_t psd_team_lanes(const struct psd *d, const struct psd_server *s); /* bits */
void psd_team_send(struct psd *d, const struct psd_server *s, const Ps__ToClient *m);
void psd_team_refuse(struct psd *d, const struct psd_server *s, uint32_t code, const char *why);
/* lane: of the server's own; UINT32_MAX: all of them. One that is not here is told nothing. */
void psd_team_order_note(struct psd *d, struct psd_server *s, const struct psd_note *note, uint32_t lane);
/* It is no longer here: nothing waits for what it has not taken. */
void psd_team_lose(struct psd *d, struct psd_server *s, const char *why);

/* credential.c, at another server: says the Enlist with a MUNGE credential over it and the head's nonce, when
 * munged has made one. -ENOMEM; -EINVAL: that is no nonce. */
int psd_follow_prove(struct psd *d, const Ps__Enlist *m, const ProtobufCBinaryData *nonce);

#endif
