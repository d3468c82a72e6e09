/* rendezvous.h: where the members of a ring find each other through psd. Nobody who meets gets a session or
 * touches the job: psd remembers, for each name, who has come, and tells all of all when they are as many as
 * they said.
 *
 * Bounded whatever peers do: PSD_MEETINGS_MAX names, PSD_MEETING_PLACES_MAX members over all of them, one
 * member a connection; who has not spoken for PSD_MEETING_SILENCE_MS is forgotten, and so is a name without
 * members. */
#ifndef PSD_CONTROL_RENDEZVOUS_H
#define PSD_CONTROL_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/log.h"
#include "ps.pb-c.h"
#include "server/session/session.h"

#define PSD_MEETINGS_MAX        64
#define PSD_MEETING_PLACES_MAX  2048
#define PSD_MEETING_MEMBERS_MAX 1024
#define PSD_MEETING_ADDRESS_MAX 127 /* bytes */
#define PSD_MEETING_NAME_MAX    63
#define PSD_MEETING_SILENCE_MS  5000
#define PSD_MEETING_WAIT_MAX_MS 3600000u

struct psd_grant;

struct psd_rendezvous_member {
    uint64_t token, nonce;
    int64_t wanted; /* rank, or -1 */
    uint32_t rank;  /* once all have come */
    char address[PSD_MEETING_ADDRESS_MAX + 1];
    unsigned char peer[256];
    size_t peer_bytes;
    char host[64]; /* psd's own word for the peer */
    uint64_t heard_ms, came_ms, wait_ms;
};

struct psd_rendezvous_clique {
    char name[PSD_MEETING_NAME_MAX + 1];
    uint32_t members, links, segment_bytes;
    struct psd_rendezvous_member *places; /* [n], as they came */
    uint32_t n, room;
    bool complete;     /* kept a while for those who ask again */
    char refused[256]; /* who did not fit in, last; "": nobody */
};

/* How psd answers. */
struct psd_rendezvous_hooks {
    void (*met)(void *arg, const struct psd_peer *peer, const Ps__Met *met);
    void (*refuse)(void *arg, const struct psd_peer *peer, uint32_t code, const char *sentence);
    void *arg;
};

/* Starts zeroed but for `voice`. The loop's thread. */
struct psd_rendezvous {
    struct psd_rendezvous_hooks voice;
    struct psd_rendezvous_clique list[PSD_MEETINGS_MAX]; /* [n] */
    uint32_t n, n_places;
    struct ps_log_limit log_limit;
};

/* A Meet came: answers it, or others too, or lets it wait. Its bytes are anybody's. */
void psd_rendezvous_take(struct psd_rendezvous *t, const struct psd_peer *peer, const Ps__Meet *m,
                         uint64_t now_ms);
/* Several times a second: whose time is up, and who is silent. */
void psd_rendezvous_tick(struct psd_rendezvous *t, uint64_t now_ms);
void psd_rendezvous_finish(struct psd_rendezvous *t);

#endif
