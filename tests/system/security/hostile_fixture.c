#include "tests/system/security/hostile_fixture.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "tests/support/clock.h"
#include "tests/support/system/proxy.h"

static const char *const settings[] = {"listen=tcp://127.0.0.1:0", /* where besiegers connect */
                                       "method=async-sgd",
                                       "parameters.learning_rate=1",
                                       "parameters.schedule.warmup_steps=0",
                                       "chunk_floats=16384",
                                       "lanes=2",
                                       "checkpoint.every_s=0",
                                       "limits.silence_s=600",
                                       NULL};

void siege_prepare(struct siege *s, const char *const *more)
{
    size_t n = 0;
    for (const char *const *p = settings; *p != NULL; p++)
        s->settings[n++] = *p;
    for (; more != NULL && *more != NULL; more++)
        s->settings[n++] = *more;
    ck_assert_uint_lt(n, sizeof s->settings / sizeof *s->settings);
    s->settings[n] = NULL;
    s->heartbeat_ms = SIEGE_CALM_MS;
    ck_assert_int_eq(daemon_prepare(&s->d, NULL, s->settings), 0);
}

void siege_start(struct siege *s)
{
    siege_prepare(s, NULL);
    siege_begin(s);
}

void siege_begin(struct siege *s)
{
    ck_assert_int_eq(daemon_start(&s->d, NULL), 0);
    struct crew_task task = {.server = s->d.endpoint,
                             .rank = 0,
                             .floats = SIEGE_FLOATS,
                             .heartbeat_ms = s->heartbeat_ms,
                             .salt = SIEGE_SALT,
                             .pause_s = 0.001};
    crew_start(&s->honest, &task);
    ck_assert_msg(crew_reaches(&s->honest, 10, TEST_HANG_S), "%s", s->honest.page->error);
    s->rss_bytes = daemon_resident_bytes(s->d.pid);
}

void siege_holds(const struct siege *s)
{
    ck_assert_int_eq(kill(s->d.pid, 0), 0);
    ck_assert_double_eq(daemon_number(&s->d, "/status", "pid"), s->d.pid);
    ck_assert_msg(crew_reaches(&s->honest, s->honest.page->exchanges + 10, TEST_HANG_S),
                  "the honest worker: %s (%s)", psc_result_name(s->honest.page->rc), s->honest.page->error);
}

static void pull(const struct siege *s, float *x)
{
    struct hand h;
    siege_join(s, &h);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_PULL, NULL, x), 0);
    hand_close(&h);
}

void siege_end(struct siege *s)
{
    float *x = calloc(SIEGE_FLOATS, sizeof *x);
    siege_holds(s);
    ck_assert(crew_stop(&s->honest, TEST_HANG_S));
    ck_assert_msg(s->honest.page->rc == PSC_OK, "%s", s->honest.page->error);
    ck_assert_uint_eq(s->honest.page->info.reconnects, 0);
    pull(s, x);
    for (uint64_t i = 0; i < SIEGE_FLOATS; i++) {
        double want = -crew_sum(SIEGE_SALT, s->honest.page->exchanges, i);
        ck_assert_msg((double)x[i] == want, "value %lu is %g; the honest worker's sum is %g",
                      (unsigned long)i, (double)x[i], want);
    }
    free(x);
    daemon_remove(&s->d);
}

void siege_join(const struct siege *s, struct hand *h)
{
    ck_assert_msg(hand_join(h, s->d.endpoint, SIEGE_FLOATS) == 0, "%s", h->sentence);
}

void siege_ports(const struct siege *s, uint16_t ports[1 + SIEGE_LANES])
{
    struct hand h;
    char url[200];
    siege_join(s, &h);
    ck_assert_uint_eq(h.n_lanes, SIEGE_LANES);
    ck_assert(daemon_text(&s->d, "/status", "listen", url, sizeof url));
    ports[0] = proxy_port(url);
    for (uint32_t i = 0; i < SIEGE_LANES; i++)
        ports[1 + i] = proxy_port(h.urls[i]);
    ck_assert(hand_left(&h));
    hand_close(&h);
}

void *siege_socket(void *context, const char *url)
{
    int zero = 0, wait_ms = (int)(test_slow_s(TEST_HANG_S) * 1e3);
    void *socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
    ck_assert_int_eq(zmq_connect(socket, url), 0);
    return socket;
}

/* splitmix64 */
uint64_t siege_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
