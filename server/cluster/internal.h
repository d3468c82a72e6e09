/* internal.h: functions that the files of cluster/ share. */
#ifndef PSD_CLUSTER_INTERNAL_H
#define PSD_CLUSTER_INTERNAL_H

#include "server/cluster/cluster.h"

/* head.c */
uint32_t psd_cluster_index(const struct psd_cluster *cluster, const struct psd_server *s);
uint64_t psd_cluster_lanes(const struct psd_cluster *cluster, const struct psd_server *s); /* bits */
void psd_cluster_send(struct psd_cluster *cluster, const struct psd_server *s, const Ps__ToClient *m);
void psd_cluster_refuse(struct psd_cluster *cluster, const struct psd_server *s, uint32_t code,
                        const char *why);
/* lane: of the server's own; UINT32_MAX: all of them. Nothing is sent to a server without a slot. */
void psd_cluster_order_lanes(struct psd_cluster *cluster, struct psd_server *s,
                             const struct psd_lane_message *msg, uint32_t lane);
/* The server is lost: nothing waits any more for what it has not taken. */
void psd_cluster_lose(struct psd_cluster *cluster, struct psd_server *s, const char *why);

/* Sends it numbered, and again until it is taken; not to a server without a slot. */
void psd_cluster_order(struct psd_cluster *cluster, struct psd_server *s, Ps__Orders *o);

/* register.c: whether it has a checkpoint of the version. */
bool psd_cluster_server_has_saved(const struct psd_server *s, uint64_t version);

/* change.c, at the head: whether all servers have tried the change; an exchange of a server whose lanes
 * close. */
void psd_cluster_check_change(struct psd_cluster *cluster);
void psd_cluster_take_exchange(struct psd_cluster *cluster, struct psd_server *s, const Ps__Note *n);
/* At another server: tries, drops or applies a change of all servers' settings; applies the head's settings
 * that it has missed. psd_follower_report_exchanges tells the head which exchanges have begun here, when the
 * last lane, `lane`, has closed. */
void psd_follower_take_change(struct psd_cluster *cluster, const Ps__Change *m);
void psd_follower_take_settings(struct psd_cluster *cluster, const Ps__Place *m);
void psd_follower_report_exchanges(struct psd_cluster *cluster, const struct psd_lane *lane);

/* follower.c. nonce: from a head that asks for a credential; NULL: none. */
void psd_follower_enlist(struct psd_cluster *cluster, const ProtobufCBinaryData *nonce);
void psd_follower_restart(struct psd_cluster *cluster, bool resume, uint64_t version);
/* Reports an event to the head, now or when the connection is back. */
void psd_follower_report(struct psd_cluster *cluster, const struct psd_lane *lane,
                         const struct psd_lane_message *msg);

/* credential.c, at another server: sends the Enlist with a MUNGE credential over it and the head's nonce,
 * when munged has created it. -ENOMEM; -EINVAL: the nonce is invalid. */
int psd_follower_prove(struct psd_cluster *cluster, const Ps__Enlist *m, const ProtobufCBinaryData *nonce);

#endif
