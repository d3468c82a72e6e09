/* slow.h: psbench plan --slow: the share of time in which a worker behind a slow link does not wait for its
 * exchanges, for each period, codec, number of fragments and overlap; and the choice among them. The model is
 * pure arithmetic; units are seconds, bytes and floats.
 *
 * An exchange of m = n/F floats is cut into k = m/c chunks of c = min(chunk, m). A chunk takes u seconds up
 * and w down on the slower of the worker's link and its part of psd's, and D there and back. A fragment lies
 * in l = min(lanes/F, k) lanes, at least one. They share the link, each with a window of chunks in flight, so
 * that one chunk follows another after
 *
 *   b = max(u, w, (D + l (u + w))/(l window))
 *
 * and the exchange takes T = D + l (u + w) + (k - l) b + R and keeps the link busy for B = k b. R is TCP's
 * slow start, each way, where the connection was idle for more than 0.2 s before: in round r a lane sends 2^r
 * times 14480 bytes, until these are all that the link takes in D, or the exchange has.
 *
 * Unless the window is given, it is twice the smallest with which b is what the link takes, (D/l + u +
 * w)/max(u, w).
 *
 * With a step of s seconds, period H and overlap of N steps, a period of F exchanges takes
 *
 *   max(H s + F max(0, T - N s)/e, F T/e, F B + r)
 *
 * of which H s is not waiting. e exchanges are under way at a time, N F/H and at most F and PS_MAX_TRACKS; at
 * least one, and then it is max(H s + F max(0, T - N s), F T). In rounds a cycle begins when the one before
 * has ended: r = T - B, else 0. With overlap 0 it is H s + F T.
 *
 * The CPU time of a value, where it is counted: x in the worker's own thread, which makes no step meanwhile,
 * a in its other threads, y in psd for one worker. Of p workers, W share a machine of C cores, on which a
 * step keeps q cores busy; psd has S cores of its own, or those of the workers' machine. Then b is also at
 * least z, the CPU time of a chunk, and T at least D + k z:
 *
 *   z = c max(a max(1, W/C), p y/min(l, S));  on one machine c max(a, p y/min(l, C), (W a + p y)/C)
 *
 * a period is longer by x n max(1, W/C), and takes at least the CPU time that a machine needs for it:
 *
 *   max(W ((x + a) n + q H s)/C, p y n/S);    on one machine (W ((x + a) n + q H s) + p y n)/C */
#ifndef TEST_BENCH_PLAN_SLOW_H
#define TEST_BENCH_PLAN_SLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/codecs/codec.h"

enum { SLOW_MAX_LIST = 16, SLOW_YAML = 340, SLOW_WINDOW = 2, SLOW_MAX_WINDOW = 64 /* psd's */ };

struct slow_link {
    double up_s, down_s;  /* a byte from the worker to psd, and back */
    double delay_s;       /* there and back */
    double server_byte_s; /* of psd's own link, one way; 0: it is no limit */
};

/* CPU seconds of an exchange, for each of its values. */
struct slow_cost {
    double own_s;    /* in the worker's own thread */
    double others_s; /* in its other threads */
    double server_s; /* in psd, for one worker */
};

/* Where the CPU time is spent. cores 0: it is not counted. */
struct slow_machines {
    double cores, per_machine; /* of a machine with workers; workers on it */
    double step_cores;         /* that a worker's step keeps busy; 0: those of a GPU, or of another machine */
    double server_cores;       /* of psd's machine; 0: as many as it has lanes */
    bool together;             /* psd is on the workers' machine */
};

struct slow_job {
    double n_floats, chunk_floats, step_s;
    uint32_t workers, lanes, window; /* window 0: what the link needs */
    const char *method;
    bool in_rounds; /* the first round waits for `workers` */
    struct slow_machines machines;
};

struct slow_candidate {
    uint32_t period, fragments, overlap; /* overlap: in steps, 0: none */
    uint32_t window;                     /* chunks in flight to each lane */
    const struct ps_codec *codec;        /* of messages and answers */
    struct slow_cost cost;               /* with it */
    double exchange_s, busy_s;           /* T and B of one exchange */
    double bytes;                        /* both ways, of one worker in a period */
    double share;                        /* of time not waiting */
};

struct slow_options {
    struct slow_link link;
    struct slow_job job;
    uint32_t periods[SLOW_MAX_LIST], fragments[SLOW_MAX_LIST];
    struct ps_codec codecs[SLOW_MAX_LIST];
    struct slow_cost costs[SLOW_MAX_LIST]; /* of each codec */
    bool costs_given;                      /* else they are to be measured */
    size_t n_periods, n_fragments, n_codecs;
    double target; /* share of time not waiting */
    bool json;
};

/* Fills *out except for period, fragments, overlap, codec and cost, which the caller chooses. */
void slow_predict(const struct slow_link *link, const struct slow_job *job, struct slow_candidate *out);
/* The smallest overlap by which nothing of the exchange is exposed. At most the period, and as many fragments
 * as may be under way; where the link is too slow the steps until the next fragment leaves, period/fragments:
 * a longer one makes up for a delay, not for that. */
uint32_t slow_hiding_overlap(const struct slow_job *job, const struct slow_candidate *c);
/* All candidates with overlap 0, 1 and the one that hides, in the order of preference: shorter periods first,
 * then codecs in the order given, then fewer fragments, then shorter overlap. Fragments above the chunks or
 * the period are left out. all: room for 3 of each combination. */
size_t slow_candidates(const struct slow_options *o, struct slow_candidate *all);
/* The first that reaches the target; else the one with the highest share. NULL: there is none. */
const struct slow_candidate *slow_choose(const struct slow_candidate *all, size_t n, double target);
/* The value of parameters.overlap. */
const char *slow_overlap_text(uint32_t overlap, char text[16]);
/* The lines of the configuration: `workers` is there where rounds wait for them, or where psd keeps what each
 * of them has; `window_chunks` where it is not psd's default. */
void slow_yaml(const struct slow_job *job, const struct slow_candidate *c, char text[SLOW_YAML]);

/* slow_args.c */
bool slow_is_asked(int argc, char **argv);
/* 0; 1: help was printed; -1: wrong, with a message on stderr. */
int slow_parse(int argc, char **argv, struct slow_options *o);
void slow_usage(FILE *out);

/* slow_cost.c: measures the cost of an exchange of n floats in the codec, by a short run on this machine.
 * -errno, with a message on stderr. */
int slow_measure_cost(const struct ps_codec *codec, double n_floats, double chunk_floats,
                      struct slow_cost *out);

int bench_slow(int argc, char **argv);

#endif
