/* choice.h: what `auto` measures when a clique starts, and what it concludes. No sockets, no clock: member 0
 * asks for the next pair of measures, makes it with the others (algorithms.c), and notes the times.
 *
 * A pair times sums of one size, first over the ring and then over the tree or the other way round, so that
 * other work on the machine affects both. Such work only makes a call longer. So there are several rounds
 * over all sizes, of which the shortest time counts. The first pair of a size only warms up memory and
 * connections. */
#ifndef PSC_CLIQUES_RING_CHOICE_H
#define PSC_CLIQUES_RING_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PSC_N_PROBES = 6, PSC_PROBE_CALLS = 4, PSC_PROBE_ROUNDS = 5 };
extern const size_t psc_probe_bytes[PSC_N_PROBES]; /* ascending, each 4 times the one before */

/* A pair of measures. */
struct psc_probe {
    uint32_t index;      /* of psc_probe_bytes */
    uint32_t calls;      /* one after the other, as callers make them: 1 to PSC_PROBE_CALLS */
    uint32_t tree_first; /* 1, or 0: the ring. They take turns */
};

/* All 0 at first. */
struct psc_choice {
    uint32_t at, round;           /* of the next pair: size, and round over all sizes */
    uint32_t pairs[PSC_N_PROBES]; /* made */
    /* The shortest call, after the warm-up if there was more. */
    double ring_s[PSC_N_PROBES], tree_s[PSC_N_PROBES];
    double spent_s;
};

/* The next pair. False: enough is measured. Sizes at which the tree would be far slower are left out. */
bool psc_choice_next(struct psc_choice *c, struct psc_probe *out);
/* Its result: seconds of a call. */
void psc_choice_note(struct psc_choice *c, const struct psc_probe *p, double ring_s, double tree_s);
/* The bytes from which on the ring is faster than the tree. It is the limit with the least loss over all
 * measured sizes, so that one wrong measure does not decide; between two sizes it is on a straight line
 * between logarithms. part: the part of the ring's time of a sum that the call takes. If the tree is faster
 * at the last size, too, the line is continued, for a while; beyond: the answer if it does not reach the
 * limit. */
uint64_t psc_choice_limit(const struct psc_choice *c, double part, uint64_t beyond);
/* The longest measured sums over the ring: their bytes and seconds. */
void psc_choice_longest(const struct psc_choice *c, double *bytes, double *seconds);

#endif
