/* psc.h: the library's inside.
 *
 * Two threads know a handle. The caller's thread moves data (exchange.c) and owns everything not named below.
 * The service thread (service.c) owns the control socket: it says hello, beats the heart, reconnects. What
 * they share is struct psc_shared, under its lock; the service thread raises wake_fd when something changed
 * that a waiting transfer must see. */
#ifndef PSC_H
#define PSC_H

#include <pthread.h>
#include <stdbool.h>

#include "client/psclient.h"
#include "proto/error.h"
#include "proto/frame.h"
#include "proto/manifest.h"
#include "proto/method.h"
#include "proto/shard.h"
#include "proto/transport.h"
#include "proto/vec.h"
#include "ps.pb-c.h"

enum psc_state {
    PSC_STATE_CONNECTING, /* no Welcome yet, or none since the server was lost */
    PSC_STATE_JOINED,
    PSC_STATE_ENDED, /* for good: see result */
};

/* What Welcome said. */
struct psc_road {
    uint32_t client, incarnation, generation;
    char transport[16];
    char urls[PS_MAX_LANES][320];
    uint32_t n_lanes, chunk_floats, window_chunks;
    char method[32], rule[32], optimizer[32];
    struct ps_hyper hyper; /* alpha as of Welcome */
};

struct psc_shared {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    enum psc_state state;
    int result; /* of PSC_STATE_ENDED */
    struct ps_error why;
    struct ps_error trouble; /* the last failure to look for the server, "" when it was looked for */
    uint64_t epoch;          /* Welcomes so far: links of an older one are dead */
    struct psc_road road;
    uint32_t workers;
    uint64_t center_version; /* the newest seen */
    uint64_t clock;          /* t, for heartbeats */
    bool draining;
    bool begun, offer;                  /* Begun has come; it asked for our x */
    bool parked;                        /* the server has said that Begin waits */
    const struct ps_manifest *manifest; /* to send Begin with; the caller's, unchanged until close */
    bool send_begin, send_leave, stop;
    bool has_report;
    struct psc_metrics report;
    uint64_t reconnects;
};

struct psc_links {
    struct ps_hub *hub;
    const struct ps_transport *transport;
    struct ps_link *link[PS_MAX_LANES]; /* NULL: the lane is empty */
    uint64_t epoch;                     /* they belong to */
};

/* A lane's part of the transfer under way. */
struct psc_lane_progress {
    uint64_t *answered;  /* bitmap over the lane's chunks */
    uint32_t first, end; /* the chunks that the transfer's scope meets */
    uint32_t next, n_left, in_flight;
};

/* What an optimizer works on; n floats each. */
struct psc_point {
    float *at;      /* the caller's array: where the next gradient is wanted */
    float *x, *v;   /* the library's own; NULL unless the optimizer has_state. Without state, at is x */
    const float *g; /* taken at `at` */
    size_t n;
};

struct psc_optimizer {
    const char *name; /* as in ps_optimizers */
    bool has_state;
    /* The worker's own step, at rate eta, with momentum delta. */
    void (*step)(const struct ps_vec *vec, const struct psc_point *p, float eta, float delta);
};
extern const struct psc_optimizer psc_optimizer_none, psc_optimizer_sgd, psc_optimizer_nesterov;
const struct psc_optimizer *psc_optimizer_find(const char *name);

struct psc {
    struct psc_options opt; /* strings owned */
    struct ps_error error;
    struct psc_shared shared;
    bool shared_ready; /* lock and condition exist */
    uint64_t token;    /* tells this handle's Hellos from others' */
    int wake_fd;       /* service to caller */
    int command_fd;    /* caller to service */
    pthread_t service;
    bool service_runs;

    struct ps_manifest *manifest;
    const struct ps_vec *vec;
    const struct ps_rule_info *rule;
    const struct psc_optimizer *optimizer;
    float *x, *v;         /* of an optimizer with state: own point and velocity, [n_floats] */
    bool fresh;           /* x and v start anew from the caller's array at the next step */
    struct psc_road road; /* the caller's copy, as of links.epoch */
    struct ps_shard shard;
    struct ps_range scope; /* of the transfer under way */
    struct psc_links links;
    struct psc_lane_progress progress[PS_MAX_LANES];
    float *scratch; /* one chunk: for answers that lie where floats may not */
    uint64_t seq, clock, exchanges, retries, bytes_sent, bytes_received;
    uint64_t center_version;
    uint64_t transfer_version; /* the newest that an answer to the transfer under way told */
    float rate;                /* as the server last applied it */
    double exchange_s, update_s;
};

/* One pass over all chunks that the scope meets. */
struct psc_transfer {
    uint8_t kind;                   /* enum ps_frame_kind */
    const struct ps_tensor *tensor; /* the scope; NULL: the whole vector */
    const float *send;              /* [floats of the scope], or NULL */
    uint32_t samples;
    uint64_t clock;
    /* Takes the answer to one piece, r counted from the scope's begin; NULL: it has no payload. */
    void (*landed)(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);
    float *target; /* [floats of the scope] */
};

/* exchange.c: runs the transfer to its end. A psc result; on failure c->error has the sentence. */
int psc_transfer_run(struct psc *c, const struct psc_transfer *t);
void psc_links_close(struct psc *c);

/* step.c: psc_transfer's `landed` that takes the answer as it is. */
void psc_adopt(struct psc *c, struct ps_range r, const float *answer, float rate, float *target);

/* road.c: the server's URL, from the option or the endpoint file. -errno with a sentence. */
int psc_road_find(const struct psc *c, char *url, size_t size, struct ps_error *err);
/* What Welcome said, checked; a psc result. */
int psc_road_take(struct psc_road *r, const Ps__Welcome *w, struct ps_error *err);

/* service.c */
int psc_service_start(struct psc *c);
void psc_service_stop(struct psc *c);
/* Lets the service thread look at what shared asks of it. */
void psc_service_poke(struct psc *c);

/* connect.c: results of server codes. */
int psc_result_of_code(uint32_t code);
int psc_fail(struct psc *c, int result, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

double psc_now_s(void);

#endif
