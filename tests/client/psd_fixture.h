/* psd_fixture.h: a real psd and a model that has it all: every role, tensors that cross chunks and lanes, one
 * that does not decay. */
#ifndef TEST_CLIENT_PSD_FIXTURE_H
#define TEST_CLIENT_PSD_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>

#include "client/psclient.h"
#include "tests/client/results.h"
#include "tests/support/system/daemon.h"
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

/* Random values, the same for the same seed. */
static inline void rig_roll(float *v, size_t n, uint64_t seed)
{
    struct dice dice = {seed};
    for (size_t i = 0; i < n; i++)
        v[i] = dice_float(&dice);
}

static inline void rig_start(struct daemon *d, const char *const *settings)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

/* When the library takes an unanswered chunk for lost, and four heartbeats of silence for a lost connection.
 * It then sends again, and the answer is the center of then. psd may stand still for seconds on a busy
 * machine: where nothing is lost, nothing is to be sent again. */
enum { RIG_RETRY_MS = 60000, RIG_HEARTBEAT_MS = 10000 };
static uint32_t rig_retry_ms = RIG_RETRY_MS, rig_heartbeat_ms = RIG_HEARTBEAT_MS;

/* For a test that loses messages, and whose result is the same however often one is sent. */
static inline void rig_lose_messages(void)
{
    rig_retry_ms = 200;
    rig_heartbeat_ms = 100;
}

static inline struct psc *rig_open(const struct daemon *d, void (*log)(void *, const char *), void *log_arg)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.retry_ms = rig_retry_ms;
    opt.heartbeat_ms = rig_heartbeat_ms;
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

/* A session that ends soon after psd falls silent; `says` (32 bytes) is what its error then names. On a slow
 * machine psd may be that silent before the session stands: the next one is twice as patient. */
static inline struct psc *rig_join_hasty(const struct daemon *d, const struct psc_tensor *model, size_t n,
                                         float *x, char *says)
{
    double deadline = unit_now_s() + UNIT_HANG_S;
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.timeout_ms = 150;
    opt.retry_ms = 50;
    opt.heartbeat_ms = 50;
    for (;; opt.timeout_ms *= 2) {
        snprintf(says, 32, "timeout_ms: %u", opt.timeout_ms);
        int rc = psc_open(&opt, &c);
        if (rc == PSC_OK)
            rc = psc_begin(c, model, n, x);
        if (rc == PSC_OK)
            return c;
        ck_assert_msg(rc == PSC_EGONE && unit_now_s() < deadline, "%s: %s", psc_result_name(rc),
                      psc_error(c));
        psc_close(c);
    }
}

/* For a psd that is started again: the same address as before, which tcp does not promise. */
#define RIG_SAME_ADDRESS "listen=ipc://control"

/* psd was started again, at the same address. It answers a report that it does not know the session; else the
 * next heartbeat would find that out. Returns when the session goes on: a transfer that began before would be
 * sent again. */
static inline void rig_meet_again(struct psc *c)
{
    struct psc_metrics metrics = {.size = sizeof metrics};
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    uint64_t before = info.reconnects;
    for (double end = unit_now_s() + UNIT_HANG_S; info.reconnects == before; psc_info(c, &info)) {
        ck_assert_msg(unit_now_s() < end, "the session does not go on: %s", psc_error(c));
        assert_ok(c, psc_report(c, &metrics));
        unit_nap_ms(5);
    }
}

static inline uint64_t rig_sent(const struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    return info.bytes_sent;
}

#endif
