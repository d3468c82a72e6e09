/* Credentials beside what changes while munged is asked, which here is this file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "server/auth/auth.h"
#include "tests/support/unit.h"

static struct psd_config cfg;
static struct psd_sessions sessions;
static struct psd_sender sender;
static struct psd_auth auth;
static uv_loop_t loop;
static struct ps_curve_pair pair;
static unsigned char proof[PS_MUNGE_MAX_BYTES],
    nonce[PS_MUNGE_NONCE_BYTES]; /* proof: the payload of every credential */
static size_t proof_bytes;
static bool munged_is_down;
static char refused[400], let_in[PS_CURVE_NAME_MAX + 1];

bool ps_munge_built(struct ps_error *err)
{
    (void)err;
    return true;
}

int ps_munge_encode(const void *payload, size_t len, char **credential, struct ps_error *err)
{
    (void)payload, (void)len, (void)credential;
    return ps_fail(err, -ENOTSUP, "this munged only decodes");
}

int ps_munge_decode(const char *credential, void **payload, size_t *len, uid_t *uid, struct ps_error *err)
{
    (void)credential;
    if (munged_is_down)
        return ps_fail(err, -EAGAIN, "munge: Socket communication error");
    *payload = memcpy(malloc(proof_bytes), proof, proof_bytes);
    *len = proof_bytes;
    *uid = geteuid();
    return 0;
}

static bool take(struct psd *psd, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m)
{
    (void)psd, (void)peer, (void)peer_bytes;
    if (m->what_case == PS__TO_CLIENT__WHAT_CHALLENGE)
        memcpy(nonce, m->challenge->nonce.data, sizeof nonce);
    else if (m->what_case == PS__TO_CLIENT__WHAT_ERROR)
        snprintf(refused, sizeof refused, "%s", m->error->sentence);
    return true;
}

static void proved(struct psd *psd, const struct psd_peer *peer, const Ps__Hello *m)
{
    (void)psd, (void)m;
    snprintf(let_in, sizeof let_in, "%s", peer->identity);
}

static void allow(struct psd_allow *list, const char *name, const char *key)
{
    char text[128];
    struct ps_error err;
    int len = snprintf(text, sizeof text, "%s %s\n", key, name);
    *list = (struct psd_allow){.n = 0};
    ck_assert_msg(psd_allow_parse("list", text, (size_t)len, NULL, list, &err) == 0, "%s", err.text);
}

static void open_auth(void)
{
    struct ps_error err;
    psd_config_defaults(&cfg);
    cfg.auth.munge = true;
    ps_log_setup("munge", PS_LOG_ERROR);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    sender.sessions = &sessions;
    sender.holds_back = take;
    auth = (struct psd_auth){.cfg = &cfg,
                             .loop = &loop,
                             .sessions = &sessions,
                             .sender = &sender,
                             .hooks = {.proved = proved},
                             .curve = true};
    ck_assert_int_eq(ps_curve_generate("w0", &pair, &err), 0);
    allow(&auth.list, "w0", pair.public_key);
    auth.last_id = 1; /* of psd's own key */
    psd_allow_number(&auth.list, NULL, &auth.last_id);
    ck_assert_msg(psd_munge_set_up(&auth, &err) == 0, "%s", err.text);
}

static void close_auth(void)
{
    psd_auth_finish(&auth);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* w0's Hello, and the same again with a credential over its nonce. */
static void say_hello_of(uint32_t incarnation)
{
    Ps__Hello hello = PS__HELLO__INIT;
    hello.incarnation = incarnation;
    struct psd_peer peer = {.id = (const unsigned char *)"peer", .id_bytes = 4, .address = "127.0.0.1"};
    peer.grant = psd_allow_find_name(&auth.list, "w0");
    peer.identity = peer.grant->name;
    psd_munge_hello(&auth, &peer, &hello);
    memcpy(proof, nonce, sizeof nonce);
    proof_bytes = sizeof nonce + ps__hello__pack(&hello, proof + sizeof nonce);
    memcpy(proof + proof_bytes, pair.public_key, PS_CURVE_KEY_CHARS);
    proof_bytes += PS_CURVE_KEY_CHARS;
    hello.credential = (ProtobufCBinaryData){4, (uint8_t *)"cred"};
    psd_munge_hello(&auth, &peer, &hello);
    ck_assert_uint_eq(auth.munge.at_work, 1);
}

static void say_hello(void)
{
    say_hello_of(0);
}

START_TEST(a_credential_lets_its_key_in)
{
    open_auth();
    say_hello();
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(refused, "");
    ck_assert_str_eq(let_in, "w0");
    close_auth();
}
END_TEST

/* Otherwise its session would be the user's, whom no reload of the list ends, and whose frames a lane takes
 * from everybody. */
START_TEST(a_key_that_a_reload_removes_meanwhile_stays_out)
{
    struct psd_allow list;
    struct ps_curve_pair other;
    struct ps_error err;
    open_auth();
    say_hello();
    ck_assert_int_eq(ps_curve_generate("w1", &other, &err), 0);
    allow(&list, "w1", other.public_key);
    ck_assert(psd_auth_take(&auth, &list));
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(let_in, "");
    ck_assert_msg(strstr(refused, "its key is no longer allowed") != NULL, "%s", refused);
    close_auth();
}
END_TEST

/* A worker of the job says Hello again until it is answered; a new one is told what is wrong. */
START_TEST(a_munged_that_is_down_ends_no_worker_of_the_job)
{
    open_auth();
    munged_is_down = true;
    say_hello_of(5);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(refused, "");
    say_hello_of(0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(refused, "munge: Socket communication error");
    munged_is_down = false;
    say_hello_of(5);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(let_in, "w0");
    close_auth();
}
END_TEST

/* It would be kept, with as many others as there may be clients, until munged has refused it. */
START_TEST(a_credential_that_is_too_long_is_not_kept)
{
    static uint8_t bytes[1 << 20];
    Ps__Hello hello = PS__HELLO__INIT;
    struct psd_peer peer = {.id = (const unsigned char *)"peer", .id_bytes = 4, .address = "127.0.0.1"};
    open_auth();
    psd_munge_hello(&auth, &peer, &hello);
    memset(bytes, 'x', sizeof bytes);
    hello.credential = (ProtobufCBinaryData){sizeof bytes, bytes};
    psd_munge_hello(&auth, &peer, &hello);
    ck_assert_uint_eq(auth.munge.at_work, 0);
    ck_assert_msg(strstr(refused, "a credential that is too long") != NULL, "%s", refused);
    uv_run(&loop, UV_RUN_DEFAULT);
    close_auth();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-munge");
    TCase *tc = tcase_create("munge");
    tcase_add_test(tc, a_credential_lets_its_key_in);
    tcase_add_test(tc, a_key_that_a_reload_removes_meanwhile_stays_out);
    tcase_add_test(tc, a_credential_that_is_too_long_is_not_kept);
    tcase_add_test(tc, a_munged_that_is_down_ends_no_worker_of_the_job);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
