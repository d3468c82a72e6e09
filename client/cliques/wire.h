/* wire.h: the messages of the members of a ring, packed and parsed only here. Little-endian, fixed sizes.
 *
 * A connection begins with a hello and its reply. A link of a ring then carries segments to the next member,
 * each a head and its payload, and in both directions the error that broke the clique (NEWS), a head and a
 * sentence of PSC_NEWS_BYTES; nothing follows it. One more connection carries beats (ALIVE, a head) in both
 * directions, and NEWS. */
#ifndef PSC_CLIQUES_WIRE_H
#define PSC_CLIQUES_WIRE_H

#include <stdint.h>

#include "proto/error.h"

enum { PSC_WIRE_VERSION = 4 };
enum { PSC_HELLO_BYTES = 320, PSC_REPLY_BYTES = 672, PSC_HEAD_BYTES = 48, PSC_NEWS_BYTES = 512 };
enum { PSC_NAME_BYTES = 64, PSC_ADDRESS_BYTES = 128 }; /* with the terminator */
enum { PSC_MAX_MEMBERS = 1024, PSC_MAX_LINKS = 16 };
enum { PSC_MAX_LOST_TOLD = 4 };
enum { PSC_MIN_TIMEOUT_MS = 100, PSC_MAX_TIMEOUT_MS = 1 << 30 };

enum psc_hello_kind {
    PSC_HELLO_JOIN = 1,
    PSC_HELLO_LINK,
    PSC_HELLO_BEAT,
    PSC_HELLO_TREE_LINK, /* from a child of the tree to its parent */
    PSC_HELLO_TREE_BEAT,
    PSC_HELLO_SHRINK,   /* to the member that leads the remaining members of a clique */
    PSC_HELLO_SUMMON,   /* from that member to one that has not come: it begins anew, as the sender does */
    PSC_HELLO_LEFT_OUT, /* ... to one that may live, without which the others go on */
};

/* The algorithms for the sums of a clique; the rows of client/cliques/ring/algorithms.c. */
enum psc_algorithm_kind { PSC_ALGORITHM_RING, PSC_ALGORITHM_TREE, PSC_ALGORITHM_AUTO, PSC_N_ALGORITHMS };

struct psc_hello {
    uint8_t kind;
    int32_t rank;   /* JOIN: the wanted rank, -1: any */
    uint64_t nonce; /* JOIN: the nonce of the leader's file; else the job's number, which only members know */
    uint32_t members, links, link, segment_bytes;
    char name[PSC_NAME_BYTES];       /* the clique's */
    char address[PSC_ADDRESS_BYTES]; /* where the sender listens */
    uint8_t algorithm;               /* enum psc_algorithm_kind */
    uint8_t shrinks;                 /* on_loss is shrink */
    /* The rank, members and nonce of SHRINK, SUMMON and LEFT_OUT are those of the clique as it began. Of
     * SHRINK: */
    uint64_t step;                            /* as the caller says */
    uint32_t wait_ms;                         /* how long the sender will wait */
    uint32_t n_lost, lost[PSC_MAX_LOST_TOLD]; /* members that are gone, as far as it knows */
};

/* "ring", "tree", "auto"; a static string. */
const char *psc_algorithm_name(uint8_t algorithm);
/* -EINVAL: no algorithm has this name. */
int psc_algorithm_find(const char *name);

void psc_hello_pack(const struct psc_hello *h, unsigned char *bytes);
/* -EPROTO with a sentence. On 0 *out is complete and its texts are terminated. */
int psc_hello_parse(struct psc_hello *h, const unsigned char *bytes, struct ps_error *err);

enum psc_reply_kind {
    PSC_REPLY_WELCOME = 1,
    PSC_REPLY_REFUSED, /* with a sentence */
    PSC_REPLY_AGAIN,   /* the hello is for another leader: look for it again */
    PSC_REPLY_WAIT,    /* immediate answer to JOIN: this is the leader, and another reply will follow */
};

struct psc_reply {
    uint8_t kind;
    int32_t rank; /* of the member that is answered */
    uint64_t job; /* of WELCOME to a JOIN, as is `next`: the address of the next member */
    char next[PSC_ADDRESS_BYTES];
    char text[PSC_NEWS_BYTES];
};

void psc_reply_pack(const struct psc_reply *r, unsigned char *bytes);
int psc_reply_parse(struct psc_reply *r, const unsigned char *bytes, struct ps_error *err);

/* What is left of a clique. It follows the WELCOME to a SHRINK, in PSC_ROSTER_BYTES(members of the clique as
 * it began) bytes. */
struct psc_roster {
    uint32_t members, source, behind; /* as in struct psc_shrunk */
    uint64_t step;
    uint32_t ids[PSC_MAX_MEMBERS]; /* by the new rank, ascending: the ranks in the clique as it began */
};

#define PSC_ROSTER_BYTES(founders) ((size_t)(20 + 4 * (founders)))

void psc_roster_pack(const struct psc_roster *r, uint32_t founders, unsigned char *bytes);
/* -EPROTO: a field is out of range. */
int psc_roster_parse(struct psc_roster *r, uint32_t founders, const unsigned char *bytes,
                     struct ps_error *err);

enum psc_head_type { PSC_HEAD_SEGMENT = 1, PSC_HEAD_ALIVE, PSC_HEAD_NEWS };

/* Every segment names the call that it belongs to, so that members in different calls notice it. */
struct psc_head {
    uint8_t type;
    uint8_t kind;              /* enum psc_collective_kind */
    uint8_t codec;             /* its id; 0 where there is none */
    uint8_t values, operation; /* enum psc_type; enum psc_operation */
    uint8_t compares;          /* 1: the call only compares, before the values move */
    int32_t rank;   /* SEGMENT: root of the call; ALIVE: the sender; NEWS: the member that forwards it */
    uint64_t seq;   /* number of the call; ALIVE: how long the sender has been away from calls, in ms */
    uint64_t n;     /* n of the call; ALIVE: the longest silence that the sender tolerates, in ms; NEWS: 1 +
                       the rank that is silent or hangs, 0: none */
    uint32_t hop;   /* of the segment: which hop round the ring, or whether it goes down the tree; ALIVE: 1 +
                       the algorithm of the call in which the sender waits, 0: it waits in none */
    uint32_t index; /* which piece of the vector; ALIVE: the lower bits of the number of that call */
    uint32_t bytes; /* length of the payload; may be 0 for a segment */
};

void psc_head_pack(const struct psc_head *h, unsigned char *bytes);
/* -EPROTO: not a head of this version, or a field out of range. */
int psc_head_parse(struct psc_head *h, const unsigned char *bytes, struct ps_error *err);

/* Makes a sentence of a peer's PSC_NEWS_BYTES: terminated, and cleaned by ps_text_copy. */
void psc_news_clean(const unsigned char *bytes, struct ps_error *out);

#endif
