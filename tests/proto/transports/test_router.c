/* A peer that claims the names which libzmq would give to others next. */
#include <zmq.h>

#include "proto/transports/zmq/router.h"
#include "tests/support/unit.h"

enum { CLAIMED = 64 };

/* Of the first ROUTER of a process in which nobody has called srand(). */
#define FIRST 0x6b8b4567u

static void *context, *router;
static char url[128];

static void setup(void)
{
    size_t size = sizeof url;
    int limit_ms = (int)(1000 * UNIT_HANG_S);
    context = zmq_ctx_new();
    ck_assert_ptr_nonnull(router = ps_zmq_router(context));
    ck_assert_int_eq(zmq_setsockopt(router, ZMQ_RCVTIMEO, &limit_ms, sizeof limit_ms), 0);
    ck_assert_int_eq(zmq_bind(router, "tcp://127.0.0.1:*"), 0);
    ck_assert_int_eq(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, url, &size), 0);
}

static void teardown(void)
{
    zmq_close(router);
    zmq_ctx_term(context);
}

static void *peer_with_id(const unsigned char *id, size_t bytes)
{
    int zero = 0;
    void *peer = zmq_socket(context, ZMQ_DEALER);
    ck_assert_ptr_nonnull(peer);
    zmq_setsockopt(peer, ZMQ_LINGER, &zero, sizeof zero);
    if (bytes > 0)
        ck_assert_int_eq(zmq_setsockopt(peer, ZMQ_ROUTING_ID, id, bytes), 0);
    ck_assert_int_eq(zmq_connect(peer, url), 0);
    ck_assert_int_eq(zmq_send(peer, "hello", 5, 0), 5);
    return peer;
}

/* The name of the peer whose message came next. */
static uint32_t hear_name(void)
{
    unsigned char id[256], text[8];
    ck_assert_int_eq(zmq_recv(router, id, sizeof id, 0), 5);
    ck_assert_int_eq(zmq_recv(router, text, sizeof text, 0), 5);
    return (uint32_t)id[1] << 24 | (uint32_t)id[2] << 16 | (uint32_t)id[3] << 8 | id[4];
}

START_TEST(names_that_others_would_get_cannot_be_claimed)
{
    void *peers[CLAIMED + 1];
    for (uint32_t i = 0; i < CLAIMED; i++) {
        const uint32_t n = FIRST + i;
        const unsigned char id[5] = {0, (unsigned char)(n >> 24), (unsigned char)(n >> 16),
                                     (unsigned char)(n >> 8), (unsigned char)n};
        peers[i] = peer_with_id(id, sizeof id);
        ck_assert_uint_eq(hear_name(), n);
    }
    peers[CLAIMED] = peer_with_id(NULL, 0);
    uint32_t given = hear_name();
    ck_assert_msg(given - FIRST >= CLAIMED, "libzmq gave the name %08x", given);
    for (int i = 0; i <= CLAIMED; i++)
        zmq_close(peers[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("router");
    TCase *tc = tcase_create("router");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, names_that_others_would_get_cannot_be_claimed);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
