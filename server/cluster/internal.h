/* internal.h: what the files of cluster/ share. */
#ifndef PSD_CLUSTER_INTERNAL_H
#define PSD_CLUSTER_INTERNAL_H

#include "server/cluster/cluster.h"

/* head.c */
uint32_t psd_cluster_index(const struct psd_cluster *cluster, const struct psd_server *s);
uint64_t psd_cluster_lanes(const struct psd_cluster *cluster, const struct psd_server *s); /* bits */
void psd_cluster_send(struct psd_cluster *cluster, const struct psd_server *s, const Ps__ToClient *m);
void psd_cluster_refuse(struct psd_cluster *cluster, const struct psd_server *s, uint32_t code,
                        const char *why);
/* lane: of the server's own; UINT32_MAX: all of them. One that is not here is told nothing. */
void psd_cluster_order_lanes(struct psd_cluster *cluster, struct psd_server *s,
                             const struct psd_lane_message *msg, uint32_t lane);
/* It is no longer here: nothing waits for what it has not taken. */
void psd_cluster_lose(struct psd_cluster *cluster, struct psd_server *s, const char *why);

/* Numbered, kept and said again until it is taken; not to one that is not here. */
void psd_cluster_order(struct psd_cluster *cluster, struct psd_server *s, Ps__Orders *o);

/* change.c, at the head: whether all have tried what is to change; an exchange of a server whose lanes close.
 */
void psd_cluster_weigh_change(struct psd_cluster *cluster);
void psd_cluster_take_exchange(struct psd_cluster *cluster, struct psd_server *s, const Ps__Note *n);
/* At another server: tries, drops or makes what is set at all; takes what is set at the head, which this one
 * has missed. And tells the head what has begun here, now that all lanes have closed: lane said it last. */
void psd_follower_take_change(struct psd_cluster *cluster, const Ps__Change *m);
void psd_follower_take_settings(struct psd_cluster *cluster, const Ps__Place *m);
void psd_follower_report_exchanges(struct psd_cluster *cluster, const struct psd_lane *lane);

/* follower.c. nonce: of the head that asks for a credential; NULL: it has not asked. */
void psd_follower_enlist(struct psd_cluster *cluster, const ProtobufCBinaryData *nonce);
void psd_follower_restart(struct psd_cluster *cluster, bool resume, uint64_t version);
/* The head hears of it, now or when the transport is there again. */
void psd_follower_report(struct psd_cluster *cluster, const struct psd_lane *lane,
                         const struct psd_lane_message *msg);

/* credential.c, at another server: says the Enlist with a MUNGE credential over it and the head's nonce, when
 * munged has made one. -ENOMEM; -EINVAL: that is no nonce. */
int psd_follower_prove(struct psd_cluster *cluster, const Ps__Enlist *m, const ProtobufCBinaryData *nonce);

#endif
