/* What the two ends of an rdma connection tell each other, and rdma URLs: without any RDMA device.
 * test_rdma_transport.c has the transport itself. */
#include "proto/transports/rdma/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include "proto/transports/transport.h"
#include "proto/wire/frame.h"
#include "tests/support/unit.h"

static const struct ps_rdma_request request = {
    .client = 7,
    .incarnation = 3,
    .token = "0123456789abcde",
    .answers = {.n = 6, .rkey = 0x12345678, .slot_bytes = 8192, .address = 0x7fff12345000},
};

START_TEST(request_comes_back_as_it_was)
{
    unsigned char data[PS_RDMA_REQUEST_BYTES];
    struct ps_rdma_request r = {0};
    ps_rdma_request_pack(&request, data);
    ck_assert_uint_eq(data[0], 'P');
    ck_assert_int_eq(ps_rdma_request_parse(&r, data, sizeof data, NULL), 0);
    ck_assert_uint_eq(r.client, 7);
    ck_assert_uint_eq(r.incarnation, 3);
    ck_assert_mem_eq(r.token, request.token, PS_PASS_TOKEN_BYTES);
    ck_assert_uint_eq(r.answers.n, 6);
    ck_assert_uint_eq(r.answers.rkey, 0x12345678);
    ck_assert_uint_eq(r.answers.slot_bytes, 8192);
    ck_assert_uint_eq(r.answers.address, 0x7fff12345000);
}
END_TEST

/* A length, or a byte and what it becomes. */
static const struct {
    size_t len;
    int at, value;
    const char *says;
} bad_requests[] = {
    {0, 0, 'P', "not psd"},
    {PS_RDMA_REQUEST_BYTES - 1, 0, 'P', "not psd"},
    {PS_RDMA_REQUEST_BYTES, 0, 'Q', "not psd"},
    {PS_RDMA_REQUEST_BYTES, 4, 9, "version 9"},
    {PS_RDMA_REQUEST_BYTES, 32, 0, "0 slots"},
    {PS_RDMA_REQUEST_BYTES, 34, 1, "65542 slots"},
    {PS_RDMA_REQUEST_BYTES, 45, 1, "slots of"},
    {PS_RDMA_REQUEST_BYTES, 41, 0, "slots of 0 bytes"},
};

START_TEST(bad_requests_are_named)
{
    unsigned char data[PS_RDMA_REQUEST_BYTES];
    struct ps_rdma_request r;
    struct ps_error err;
    ps_rdma_request_pack(&request, data);
    data[bad_requests[_i].at] = (unsigned char)bad_requests[_i].value;
    ck_assert_int_eq(ps_rdma_request_parse(&r, data, bad_requests[_i].len, &err), -EPROTO);
    assert_says(err.text, bad_requests[_i].says);
}
END_TEST

START_TEST(slots_do_not_wrap_around)
{
    unsigned char data[PS_RDMA_ACCEPT_BYTES];
    struct ps_rdma_slots s = request.answers;
    s.address = UINT64_MAX - 8192 * 6 + 1;
    ps_rdma_accept_pack(&s, data);
    ck_assert_int_eq(ps_rdma_accept_parse(&s, data, sizeof data, NULL), -EPROTO);
    s.address--;
    ps_rdma_accept_pack(&s, data);
    ck_assert_int_eq(ps_rdma_accept_parse(&s, data, sizeof data, NULL), 0);
    ck_assert_uint_eq(s.n, 6);
    ck_assert_uint_eq(s.rkey, 0x12345678);
    ck_assert_uint_eq(s.slot_bytes, 8192);
    ck_assert_int_eq(ps_rdma_accept_parse(&s, data, sizeof data - 1, NULL), -EPROTO);
}
END_TEST

START_TEST(rejects_carry_a_reason)
{
    unsigned char data[PS_RDMA_REJECT_BYTES];
    struct ps_error err;
    char longest[500];
    ck_assert_uint_eq(ps_rdma_reject_pack(-EACCES, "not you", data), sizeof data);
    ck_assert_int_eq(ps_rdma_reject_parse(data, sizeof data, &err), -EACCES);
    ck_assert_str_eq(err.text, "not you");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    ps_rdma_reject_pack(-EPROTO, longest, data);
    ck_assert_int_eq(ps_rdma_reject_parse(data, sizeof data, &err), -EPROTO);
    ck_assert_uint_eq(strlen(err.text), sizeof data - 9);
    memset(data + 8, 'x', sizeof data - 8); /* no end */
    ck_assert_int_eq(ps_rdma_reject_parse(data, sizeof data, &err), -EPROTO);
    assert_says(err.text, "not psd");
    ck_assert_int_eq(ps_rdma_reject_parse(data, 3, &err), -EPROTO);
}
END_TEST

START_TEST(tokens_are_told_apart_in_every_bit)
{
    unsigned char a[PS_PASS_TOKEN_BYTES] = {1, 2, 3}, b[PS_PASS_TOKEN_BYTES];
    for (int bit = 0; bit < PS_PASS_TOKEN_BYTES * 8; bit++) {
        memcpy(b, a, sizeof b);
        ck_assert(ps_rdma_token_is(a, b));
        b[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert(!ps_rdma_token_is(a, b));
    }
}
END_TEST

static const struct {
    const char *url, *text; /* NULL: an error */
    bool passive;
} urls[] = {
    {"rdma://10.0.0.1:5555", "10.0.0.1:5555", false},
    {"rdma://[::1]:0", "[::1]:0", false},
    {"rdma://*:7", "0.0.0.0:7", true},
    {"rdma://[::]:65535", "[::]:65535", true},
    {"rdma://*:7", NULL, false},
    {"tcp://10.0.0.1:5555", NULL, false},
    {"rdma://10.0.0.1", NULL, false},
    {"rdma://:5", NULL, false},
    {"rdma://10.0.0.1:", NULL, false},
    {"rdma://10.0.0.1:5x", NULL, false},
    {"rdma://10.0.0.1:123456", NULL, false},
    {"rdma://no-such-host.invalid:1", NULL, false},
    {"rdma:", NULL, false},
};

START_TEST(urls_are_taken_apart)
{
    struct sockaddr_storage at;
    socklen_t len;
    struct ps_error err = {""};
    char text[200];
    int rc = ps_rdma_resolve(urls[_i].url, urls[_i].passive, &at, &len, &err);
    ck_assert_int_eq(rc, urls[_i].text != NULL ? 0 : -EINVAL);
    if (rc < 0) {
        assert_says(err.text, urls[_i].url);
        return;
    }
    ps_rdma_address_text((struct sockaddr *)&at, text, sizeof text);
    ck_assert_str_eq(text, urls[_i].text);
}
END_TEST

START_TEST(lanes_listen_beside_the_control_road)
{
    char url[64];
    ps_rdma_lane_url("tcp://[::1]:5555", 3, url, sizeof url);
    ck_assert_str_eq(url, "rdma://[::1]:0");
    ps_rdma_lane_url("tcp://0.0.0.0:1", 0, url, sizeof url);
    ck_assert_str_eq(url, "rdma://0.0.0.0:0");
}
END_TEST

/* No RDMA device has a documentation address (RFC 5737), whatever this machine has; built without
 * the libraries, the transport says what to install. */
START_TEST(without_a_device_it_says_so)
{
    struct ps_transport_limits limits = {.max_body_bytes = 4096, .window_chunks = 4, .clients = 1};
    const struct ps_transport *t = ps_transport_find("rdma");
    struct ps_hub *hub;
    struct ps_port *port = NULL;
    struct ps_link *link = NULL;
    struct ps_error err = {""};
    const char *url = "rdma://192.0.2.1:5555";
    ck_assert_int_eq(t->hub_create(1, &hub), 0);
    ck_assert_int_eq(t->port_open(hub, url, &limits, &port, &err), -ENODEV);
    assert_says(err.text, url);
    assert_says(err.text, "RDMA"); /* no device, or built without */
    ck_assert_int_lt(t->link_open(hub, url, &limits, &link, &err), 0);
    assert_says(err.text, url);
    ck_assert(port == NULL && link == NULL);
    t->hub_destroy(hub);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-rdma");
    TCase *tc = tcase_create("rdma");
    tcase_add_test(tc, request_comes_back_as_it_was);
    tcase_add_loop_test(tc, bad_requests_are_named, 0, ROWS(bad_requests));
    tcase_add_test(tc, slots_do_not_wrap_around);
    tcase_add_test(tc, rejects_carry_a_reason);
    tcase_add_test(tc, tokens_are_told_apart_in_every_bit);
    tcase_add_loop_test(tc, urls_are_taken_apart, 0, ROWS(urls));
    tcase_add_test(tc, lanes_listen_beside_the_control_road);
    tcase_add_test(tc, without_a_device_it_says_so);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
