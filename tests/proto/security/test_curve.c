/* Key files, and who can read them; sockets that use them; what a watch tells. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/security/curve.h"
#include "proto/security/socket_monitor.h"
#include "tests/support/unit.h"

#define PUB "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
#define SEC "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"

static char directory[] = "/tmp/psd-curve-XXXXXX";

static void enter(void)
{
    ck_assert(mkdtemp(directory) != NULL);
    ck_assert_int_eq(chdir(directory), 0);
}

static void leave(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
}

/* The pair of rfc.zeromq.org/spec/32's example, which libzmq documents. */
static const struct {
    const char *text, *says; /* NULL: it is fine */
} files[] = {
    {"public: " PUB "\nsecret: " SEC "\n", NULL},
    {"# comment\n\n  name:w0\t\r\npublic:\t" PUB " \nsecret: " SEC, NULL},
    {"name: a.b_c@d:e-9\npublic: " PUB "\nsecret: " SEC "\nserver: " PUB "\n", NULL},
    {"", "key: no line 'public: KEY'"},
    {"public: " PUB "\n", "key: no line 'secret: KEY'"},
    {"secret: " SEC "\n", "key: no line 'public: KEY'"},
    {"public: " PUB "\nsecret: " PUB "\n", "key: secret: it does not belong to the public key"},
    {"public: " PUB "\npublic: " PUB "\nsecret: " SEC "\n", "key:2: public: found twice"},
    {"public: " PUB "\nsecret: short\n", "key:2: secret: found an invalid value of 5 characters"},
    {"public: " PUB "\nsecret: " SEC "x\n", "key:2: secret: found an invalid value of 41 characters"},
    {"public: " PUB "\nsecret:\n", "key:2: secret: found an invalid value of 0 characters"},
    {"public: " PUB "\nsecret: ~:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs\n",
     "key:2: secret: found an invalid value of 40 characters"},
    {"public: ######################################## \n",
     "key:1: public: found an invalid value of 40 characters"},
    {"name: a b\n", "key:1: name: found an invalid value of 3 characters"},
    {"name:\n", "key:1: name: found an invalid value of 0"},
    {"\n\nprivate: " SEC "\n", "key:3: found another line than name:, public:"},
    {PUB "\n", "key:1: found another line than"},
};

START_TEST(key_files_are_read_or_refused)
{
    struct ps_curve_pair pair = {.name = "untouched"};
    struct ps_error err = {""};
    int rc = ps_curve_parse("key", files[_i].text, strlen(files[_i].text), &pair, &err);
    if (files[_i].says == NULL) {
        ck_assert_msg(rc == 0, "%s", err.text);
        ck_assert_str_eq(pair.public_key, PUB);
        ck_assert_str_eq(pair.secret_key, SEC);
        return;
    }
    ck_assert_int_eq(rc, -EINVAL);
    assert_says(err.text, files[_i].says);
    ck_assert_ptr_null(strstr(err.text, "IlAW")); /* no error quotes a secret */
    ck_assert_str_eq(pair.name, "untouched");
}
END_TEST

START_TEST(odd_texts_are_refused)
{
    struct ps_curve_pair pair;
    struct ps_error err;
    static char large[5000];
    ck_assert_int_eq(ps_curve_parse("key", "a\0b", 3, &pair, &err), -EINVAL);
    assert_says(err.text, "a zero byte");
    memset(large, '#', sizeof large);
    ck_assert_int_eq(ps_curve_parse("key", large, sizeof large, &pair, &err), -EINVAL);
    assert_says(err.text, "a larger file");
    ck_assert_int_eq(ps_curve_parse("key", large, 300, &pair, &err), -EINVAL);
    assert_says(err.text, "key:1: found a line of 300 bytes");
}
END_TEST

START_TEST(what_is_written_is_read)
{
    struct ps_curve_pair made, again, found;
    struct ps_error err;
    struct stat st;
    enter();
    umask(0);
    ck_assert_int_eq(ps_curve_generate("node-1", &made, &err), 0);
    ck_assert_int_eq(ps_curve_generate("node-1", &again, &err), 0);
    ck_assert_str_ne(made.secret_key, again.secret_key);
    strcpy(made.server_key, again.public_key);
    ck_assert_msg(ps_curve_write("key", &made, &err) == 0, "%s", err.text);
    ck_assert_int_eq(stat("key", &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(ps_curve_read("key", &found, &err), 0);
    ck_assert_int_eq(memcmp(&made, &found, sizeof made), 0);
    ck_assert_int_eq(ps_curve_write("key", &again, &err), -EEXIST);
    assert_says(err.text, "'key': it exists");
    ck_assert_int_eq(ps_curve_read("key", &found, &err), 0);
    ck_assert_str_eq(found.secret_key, made.secret_key);
    ck_assert_int_eq(system("test \"$(ls -A)\" = key"), 0); /* nothing else is left */
    ck_assert_int_eq(ps_curve_write("no/where", &again, &err), -ENOENT);
    ck_assert_int_eq(ps_curve_generate("a b", &again, &err), -EINVAL);
    leave();
}
END_TEST

START_TEST(others_may_not_read_it)
{
    struct ps_curve_pair pair;
    struct ps_error err;
    enter();
    ck_assert_int_eq(ps_curve_generate("node", &pair, &err), 0);
    ck_assert_int_eq(ps_curve_write("key", &pair, &err), 0);
    for (mode_t bit = 1; bit < 0100; bit <<= 1) {
        ck_assert_int_eq(chmod("key", 0600 | bit), 0);
        ck_assert_int_eq(ps_curve_read("key", &pair, &err), -EACCES);
        assert_says(err.text, "key file 'key' has mode 06");
        assert_says(err.text, "chmod 600");
    }
    ck_assert_int_eq(chmod("key", 0400), 0);
    ck_assert_int_eq(ps_curve_read("key", &pair, &err), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown("key", 12345, 0), 0);
        ck_assert_int_eq(ps_curve_read("key", &pair, &err), -EACCES);
        assert_says(err.text, "belongs to uid 12345");
    }
    ck_assert_int_eq(ps_curve_read("none", &pair, &err), -ENOENT);
    ck_assert_int_eq(mkdir("dir", 0700), 0);
    ck_assert_int_eq(ps_curve_read("dir", &pair, &err), -EINVAL);
    assert_says(err.text, "not a regular file");
    ck_assert_int_eq(mkfifo("fifo", 0600), 0); /* and does not wait for a writer */
    ck_assert_int_eq(ps_curve_read("fifo", &pair, &err), -EINVAL);
    leave();
}
END_TEST

/* Until an event of the kind; false after a long while. */
static bool tells(void *watch, enum ps_watch_kind kind)
{
    struct ps_watch_event e;
    double deadline = unit_now_s() + 60;
    while (unit_now_s() < deadline) {
        while (ps_watch_take(watch, &e) == 0)
            if (e.kind == kind)
                return true;
        unit_nap_ms(5);
    }
    return false;
}

/* Between two sockets of one process: what each end's watch says of the other. */
START_TEST(watches_tell_of_handshakes)
{
    struct ps_curve_pair server, client;
    struct ps_error err;
    static const struct {
        bool server, client, right_key;
        enum ps_watch_kind says;
    } rows[] = {{false, false, true, PS_WATCH_SHAKEN}, /* plain */
                {true, true, true, PS_WATCH_SHAKEN},   /* no ZAP handler in these contexts */
                {true, true, false, PS_WATCH_BROKEN},
                {true, false, true, PS_WATCH_MISMATCH},
                {false, true, true, PS_WATCH_MISMATCH}};
    char url[64];
    size_t size = sizeof url;
    int zero = 0;
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER),
         *dealer = zmq_socket(context, ZMQ_DEALER), *watch;
    ck_assert_int_eq(ps_curve_generate("server", &server, &err), 0);
    ck_assert_int_eq(ps_curve_generate("client", &client, &err), 0);
    if (rows[_i].server)
        ck_assert_int_eq(ps_curve_serve(router, &server), 0);
    if (rows[_i].client)
        ck_assert_int_eq(
            ps_curve_connect(dealer, &client, rows[_i].right_key ? server.public_key : client.public_key), 0);
    ck_assert_int_eq(ps_watch_open(context, dealer, &watch), 0);
    ck_assert_int_eq(zmq_bind(router, "tcp://127.0.0.1:*"), 0);
    ck_assert_int_eq(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, url, &size), 0);
    ck_assert_int_eq(zmq_connect(dealer, url), 0);
    ck_assert(tells(watch, rows[_i].says));
    ps_watch_close(dealer, watch);
    zmq_setsockopt(dealer, ZMQ_LINGER, &zero, sizeof zero);
    zmq_close(dealer);
    zmq_close(router);
    zmq_ctx_term(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("curve");
    TCase *c = tcase_create("curve");
    tcase_add_loop_test(c, key_files_are_read_or_refused, 0, ROWS(files));
    tcase_add_test(c, odd_texts_are_refused);
    tcase_add_test(c, what_is_written_is_read);
    tcase_add_test(c, others_may_not_read_it);
    tcase_add_loop_test(c, watches_tell_of_handshakes, 0, 5);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
