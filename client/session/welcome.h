/* welcome.h: the server's Welcome: where its lanes listen, and the method of the job. */
#ifndef PSC_SESSION_WELCOME_H
#define PSC_SESSION_WELCOME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/codecs/codec.h"
#include "proto/error.h"
#include "proto/model/method.h"
#include "proto/model/shard.h"
#include "proto/security/curve.h"
#include "proto/transports/transport.h"
#include "proto/wire/frame.h"
#include "ps.pb-c.h"

/* A transport on which every lane listens. */
enum { PSC_MAX_TRANSPORT_OFFERS = 4 };
struct psc_transport_offer {
    const struct ps_transport *transport;
    uint32_t window_chunks;
    char urls[PS_MAX_LANES][320];
};

struct psc_welcome {
    char server_key[PS_CURVE_KEY_CHARS + 1]; /* of the lanes and the control socket; "": not encrypted */
    uint32_t client, incarnation, generation;
    struct psc_transport_offer
        transport_offers[PSC_MAX_TRANSPORT_OFFERS]; /* the best first, the listener's last */
    uint32_t n_transport_offers;
    struct ps_pass pass; /* links show it when they attach */
    uint32_t n_lanes, chunk_floats;
    uint32_t n_parts; /* of the vector, one for each server; at least 1 */
    char method[32], rule[32], optimizer[32], averaging[32], admission[32];
    enum ps_clique_mode clique_mode;
    char clique_codec[16];
    char clique_algorithm[8]; /* "": as the members have agreed */
    bool clique_shrinks;      /* clique.on_loss is shrink */
    uint64_t bucket_floats;
    uint32_t publish;   /* in a job of one clique: steps between two copies of the center to the server */
    double unsent_rate; /* of a message of steps that was not sent, above 0 */
    struct ps_codec message, answer; /* of exchanges */
    bool error_feedback;
    uint32_t shares_since;    /* generation with which the workers' parts in the center began; 0: not known */
    uint64_t clock;           /* the worker's t before its first step, unless it loads a state */
    bool takes_known;         /* lanes take PS_FRAME_KNOWN */
    uint32_t tracks;          /* exchanges of fragments that may be under way at a time */
    uint64_t run;             /* of the server, another one after each start; 0: not known */
    uint64_t resumed_version; /* of the center when that run began */
    struct ps_hyper hyper;    /* alpha as of this Welcome */
};

/* The names of the library's codecs, for Hello; returns how many. */
enum { PSC_MAX_CODECS = 32 };
size_t psc_codec_names(char *names[PSC_MAX_CODECS]);

/* Validates the message and copies it into *r. A psc result, with a sentence. */
int psc_welcome_take(struct psc_welcome *r, const Ps__Welcome *w, struct ps_error *err);

#endif
