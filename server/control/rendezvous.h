/* rendezvous.h: lets the members of a clique find each other through psd. Members get no session and do not
 * affect the job: for each name psd stores who has asked, and sends all members the list when their number is
 * complete.
 *
 * Bounded whatever peers send: PSD_MEETINGS_MAX names, PSD_MEETING_PLACES_MAX members over all of them, one
 * member for each connection. A member that has sent nothing for PSD_MEETING_SILENCE_MS is dropped, and so is
 * a name without members. */
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

struct psd_rendezvous_member {
    uint64_t token, nonce;
    int64_t wanted; /* the rank it asks for, or -1 */
    uint32_t rank;  /* when all have arrived */
    char address[PSD_MEETING_ADDRESS_MAX + 1];
    unsigned char peer[256];
    size_t peer_bytes;
    char host[64]; /* the peer's address as seen by psd */
    uint64_t heard_ms, came_ms, wait_ms;
};

struct psd_rendezvous_clique {
    char name[PSD_MEETING_NAME_MAX + 1];
    uint32_t members, links, segment_bytes;
    struct psd_rendezvous_member *places; /* [n], in order of arrival */
    uint32_t n, room;
    bool complete;     /* kept for a while, for members that ask again */
    char refused[256]; /* the last member that did not fit; "": none */
};

/* How psd answers. */
struct psd_rendezvous_hooks {
    void (*met)(void *arg, const struct psd_peer *peer, const Ps__Met *met);
    void (*refuse)(void *arg, const struct psd_peer *peer, uint32_t code, const char *sentence);
    void *arg;
};

/* Starts zeroed except for `voice`. The loop's thread. */
struct psd_rendezvous {
    struct psd_rendezvous_hooks voice;
    struct psd_rendezvous_clique list[PSD_MEETINGS_MAX]; /* [n] */
    uint32_t n, n_places;
    struct ps_log_limit log_limit;
};

/* Handles a Meet: answers it, or several members, or lets it wait. Its bytes are untrusted. */
void psd_rendezvous_take(struct psd_rendezvous *t, const struct psd_peer *peer, const Ps__Meet *m,
                         uint64_t now_ms);
/* Call several times a second: handles members whose time is up, or that are silent. */
void psd_rendezvous_tick(struct psd_rendezvous *t, uint64_t now_ms);
void psd_rendezvous_finish(struct psd_rendezvous *t);

#endif
