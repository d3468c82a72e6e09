/* rig.h: a real psd and a model that has it all: every role, tensors that cross chunks and lanes, one that
 * does not decay. */
#ifndef TEST_CLIENT_RIG_H
#define TEST_CLIENT_RIG_H

#include <stdio.h>
#include <stdlib.h>

#include "client/psclient.h"
#include "tests/client/results.h"
#include "tests/support/daemon.h"
#include "tests/support/unit.h"

/* With 3 lanes and chunks of 1024 floats: slices of about 3333, cut in 4. */
enum { RIG_N = 10000, RIG_TENSORS = 6 };
#define RIG_CUT "lanes=3", "chunk_floats=1024"

static const struct psc_tensor rig_model[RIG_TENSORS] = {
    {"conv.weight", 0, {25, 100}, 2, PSC_PARAM, PSC_DECAY},
    {"bn.mean", 2500, {700}, 1, PSC_BUFFER, PSC_NO_DECAY},
    {"bn.scale", 3200, {700}, 1, PSC_PARAM, PSC_NO_DECAY},
    {"embedding", 3900, {41, 100}, 2, PSC_FROZEN, PSC_DECAY},
    {"fc.weight", 8000, {19, 100}, 2, PSC_PARAM, PSC_DECAY},
    {"fc.running", 9900, {100}, 1, PSC_BUFFER, PSC_NO_DECAY},
};

static inline const struct psc_tensor *rig_tensor_at(size_t i)
{
    const struct psc_tensor *t = rig_model;
    while (t + 1 < rig_model + RIG_TENSORS && t[1].offset <= i)
        t++;
    return t;
}

static inline void rig_start(struct daemon *d, const char *const *settings)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

/* Unanswered chunks are sent again after this time. A busy machine may be late with an answer; where a chunk
 * sent again would be seen (its answer is the center of then), a test sets this to RIG_PATIENT_MS. */
static uint32_t rig_retry_ms = 200;
enum { RIG_PATIENT_MS = 20000 };

static inline struct psc *rig_open(const struct daemon *d, void (*log)(void *, const char *), void *log_arg)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.timeout_ms = 10000;
    opt.retry_ms = rig_retry_ms;
    opt.heartbeat_ms = 100;
    opt.log = log;
    opt.log_arg = log_arg;
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK, "%s", psc_error(c));
    return c;
}

static inline struct psc *rig_join(const struct daemon *d, const struct psc_tensor *model, size_t n, float *x)
{
    struct psc *c = rig_open(d, NULL, NULL);
    ck_assert_msg(psc_begin(c, model, n, x) == PSC_OK, "%s", psc_error(c));
    return c;
}

static inline uint64_t rig_sent(const struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    return info.bytes_sent;
}

#endif
