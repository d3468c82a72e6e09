/* rendezvous.h: how the members of a ring find each other. One scheme a row, one file a scheme. */
#ifndef PSC_CLIQUES_RENDEZVOUS_RENDEZVOUS_H
#define PSC_CLIQUES_RENDEZVOUS_RENDEZVOUS_H

#include "client/cliques/wire.h"
#include "client/session/control_socket.h"

struct psc_meeting {
    /* Input: */
    const char *place; /* the rendezvous after its scheme and ':' */
    const char *name;  /* of the clique, under PSC_NAME_BYTES long */
    uint32_t members, links, segment_bytes;
    uint8_t algorithm;
    uint8_t shrinks; /* on_loss is shrink */
    uint32_t timeout_ms;
    double deadline_s; /* by ps_now_s */
    int32_t rank;      /* wanted; -1: the lowest that is free */
    int listen_fd;     /* its listening socket and the address of that; owned by meet until it returns */
    const struct psc_proof *proof; /* to a psd; NULL: none */
    int stop_fd;                   /* becomes readable when the wait must end */
    char address[PSC_ADDRESS_BYTES];
    /* Output, written on success only: */
    int32_t own_rank;
    uint64_t job;                 /* random: only the members know it */
    char next[PSC_ADDRESS_BYTES]; /* of rank (own_rank + 1) % members */
};

struct psc_rendezvous {
    const char *scheme; /* "file" */
    /* Returns when all members have joined, or at the deadline. 0: all members agree on members, links,
     * segment_bytes and algorithm (at psd the neighbours compare that when they connect), and have different
     * ranks. -EPROTO: they disagree; every member gets a sentence that names both sides. -ETIMEDOUT names the
     * ranks that are missing. -EACCES: psd refuses this key. Other -errno. */
    int (*meet)(struct psc_meeting *m, struct ps_error *err);
};

/* The row for "SCHEME:PLACE"; *place points after the colon. NULL with a sentence that lists the schemes. */
const struct psc_rendezvous *psc_rendezvous_find(const char *text, const char **place, struct ps_error *err);

extern const struct psc_rendezvous psc_rendezvous_file, psc_rendezvous_psd;

#endif
