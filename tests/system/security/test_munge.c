/* MUNGE on the control socket, with a munged of the test's own. Skipped with a message where there is none.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/security/munge.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/system/servers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/security/auth_fixture.h"

static const char *munged_program(void)
{
    static const char *const places[] = {"/usr/sbin/munged", "/usr/local/sbin/munged"};
    for (size_t i = 0; i < ROWS(places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

/* A munged that knows this test's key; its socket is in PSD_MUNGE_SOCKET. */
struct site {
    char dir[64];
    pid_t pid;
};

static void run_munged(const struct site *s)
{
    static const char *const names[] = {"--key-file=%s/key", "--socket=%s/socket", "--pid-file=%s/pid",
                                        "--seed-file=%s/seed", "--log-file=%s/log"};
    char text[ROWS(names)][128];
    char *args[ROWS(names) + 4] = {(char *)"munged", (char *)"--foreground", (char *)"--num-threads=2"};
    for (size_t i = 0; i < ROWS(names); i++) {
        const char *at = strchr(names[i], '%');
        snprintf(text[i], sizeof text[i], "%.*s%s%s", (int)(at - names[i]), names[i], s->dir, at + 2);
        args[3 + i] = text[i];
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO);
    execv(munged_program(), args);
    _exit(127);
}

static void start_munged(struct site *s)
{
    struct ps_error err;
    char *credential = NULL;
    s->pid = fork();
    if (s->pid == 0)
        run_munged(s);
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while (ps_munge_encode("x", 1, &credential, &err) < 0 && test_now_s() < deadline)
        test_nap_s(0.05);
    ck_assert_msg(credential != NULL, "munged does not answer: %s", err.text);
    free(credential);
}

static void stop_munged(struct site *s)
{
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
}

static void open_site(struct site *s)
{
    char path[128], key[128];
    *s = (struct site){.dir = "/tmp/psd-munge-XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(s->dir));
    ck_assert_int_eq(chmod(s->dir, 0755), 0);
    snprintf(path, sizeof path, "%s/key", s->dir);
    int fd = open(path, O_WRONLY | O_CREAT, 0600), from = open("/dev/urandom", O_RDONLY);
    ck_assert_int_eq((int)read(from, key, sizeof key), (int)sizeof key);
    ck_assert_int_eq((int)write(fd, key, sizeof key), (int)sizeof key);
    close(fd);
    close(from);
    snprintf(path, sizeof path, "%s/socket", s->dir);
    setenv("PSD_MUNGE_SOCKET", path, 1);
    start_munged(s);
}

static void close_site(struct site *s)
{
    char command[128];
    stop_munged(s);
    snprintf(command, sizeof command, "rm -rf %s", s->dir);
    ck_assert_int_eq(system(command), 0);
}

/* The house with MUNGE beside its keys, or instead of them. */
static void open_house(struct house *h, bool keys, const char *users)
{
    house_prepare(h, house_everybody);
    if (!keys)
        h->n_settings -= 2;
    h->settings[h->n_settings++] = "auth.munge=true";
    if (users != NULL)
        h->settings[h->n_settings++] = users;
    h->settings[h->n_settings] = NULL;
    ck_assert_int_eq(daemon_start(&h->d, NULL), 0);
}

START_TEST(a_user_is_known_by_munge)
{
    struct site site;
    struct house h;
    struct stepper s;
    open_site(&site);
    open_house(&h, false, NULL);
    house_assert_logged(&h, "nothing is encrypted");
    ck_assert(house_text_is(&h, "/status", "auth", "munge"));
    house_step_as(&h, &s, -1, 0, HOUSE_ENDLESS);
    ck_assert_msg(stepper_reaches(&s, 30, TEST_HANG_S), "%s", s.page->error);
    if (geteuid() == 0)
        ck_assert(house_text_is(&h, "/workers", "workers.0.identity", "root"));
    free(daemon_ask(&h.d, "POST", "/evict?rank=0"));
    house_assert_ends(&s, PSC_EEVICTED, "is barred");
    house_step_as(&h, &s, -1, 0, HOUSE_ENDLESS);
    house_assert_ends(&s, PSC_EAUTH, "barred until psctl allow");
    house_close(&h);
    close_site(&site);
}
END_TEST

START_TEST(keys_and_munge_are_both_asked_for)
{
    struct site site;
    struct house h;
    struct stepper s;
    open_site(&site);
    open_house(&h, true, NULL);
    ck_assert(house_text_is(&h, "/status", "auth", "curve+munge"));
    house_step_as(&h, &s, 0, 0, HOUSE_ENDLESS);
    ck_assert_msg(stepper_reaches(&s, 30, TEST_HANG_S), "%s", s.page->error);
    ck_assert(house_text_is(&h, "/workers", "workers.0.identity", "w0"));
    stepper_kill(&s);
    house_step_as(&h, &s, -1, 1, 5);
    house_assert_ends(&s, PSC_EAUTH, "give a key (psworker --key, else key_file)");
    setenv("PSD_MUNGE_SOCKET", "/nowhere", 1); /* of the worker */
    house_step_as(&h, &s, 1, 1, 5);
    house_assert_ends(&s, PSC_EAUTH, "munge: ");
    house_raze(&h);
    close_site(&site);
}
END_TEST

/* Takes calls in munged's place and hangs up: five for each credential, so the sixth is of one asked for
 * later. */
static void hang_up(const struct stepper *s)
{
    enum { CALLS = 6 };
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", getenv("PSD_MUNGE_SOCKET"));
    unlink(at.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(chmod(at.sun_path, 0777), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    struct pollfd calls = {.fd = fd, .events = POLLIN};
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    for (int i = 0; i < CALLS && !s->page->ended && test_now_s() < deadline;) {
        if (poll(&calls, 1, 50) <= 0)
            continue;
        close(accept(fd, NULL, NULL));
        i++;
    }
    close(fd);
    unlink(at.sun_path);
}

START_TEST(a_worker_outlives_its_munged)
{
    struct site site;
    struct house h;
    struct stepper s;
    open_site(&site);
    open_house(&h, false, NULL);
    house_step_as(&h, &s, -1, 0, HOUSE_ENDLESS);
    ck_assert_msg(stepper_reaches(&s, 10, TEST_HANG_S), "%s", s.page->error);
    ck_assert(daemon_checkpoint(&h.d, TEST_HANG_S));
    ck_assert_int_eq(daemon_stop(&h.d, SIGKILL, TEST_HANG_S), SIGKILL);
    stop_munged(&site);
    ck_assert_int_eq(daemon_start(&h.d, "--resume"), 0);
    hang_up(&s);
    ck_assert_msg(!s.page->ended, "%s", s.page->error);
    start_munged(&site);
    ck_assert_msg(stepper_reaches(&s, s.page->steps + 20, TEST_HANG_S), "%s", s.page->error);
    stepper_kill(&s);
    house_raze(&h);
    close_site(&site);
}
END_TEST

/* What psd makes of credentials that are not for this Hello. */
START_TEST(a_credential_is_for_one_hello)
{
    struct site site;
    struct house h;
    struct hand hand;
    struct ps_error err;
    Ps__Hello hello = PS__HELLO__INIT;
    unsigned char payload[1024];
    char *credential = NULL;
    open_site(&site);
    open_house(&h, false, NULL);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.token = 5;
    hello.name = (char *)"hand";
    size_t len = ps__hello__get_packed_size(&hello);
    ps__hello__pack(&hello, payload + PS_MUNGE_NONCE_BYTES);
    for (int i = 0; i < 5; i++) { /* right; another nonce, another Hello, used before, none at all */
        hand_open(&hand, h.d.endpoint);
        Ps__Hello said = hello;
        hand_tell(&hand, PS__TO_SERVER__WHAT_HELLO, &said);
        Ps__ToClient *m = hand_hear(&hand, TEST_HANG_S);
        ck_assert(m != NULL && m->what_case == PS__TO_CLIENT__WHAT_CHALLENGE);
        ck_assert_uint_eq(m->challenge->nonce.len, PS_MUNGE_NONCE_BYTES);
        if (i != 3)
            memcpy(payload, m->challenge->nonce.data, PS_MUNGE_NONCE_BYTES);
        ps_control_free_to_client(m);
        if (i == 1)
            payload[0] ^= 1;
        if (i != 3) {
            free(credential);
            ck_assert_msg(ps_munge_encode(payload, PS_MUNGE_NONCE_BYTES + len, &credential, &err) == 0, "%s",
                          err.text);
        }
        said.token += i == 2;
        said.credential.data = (uint8_t *)(i == 4 ? (char *)"MUNGE:nonsense:" : credential);
        said.credential.len = strlen((char *)said.credential.data);
        int code = hand_hello(&hand, &said);
        ck_assert_msg(code == (i == 0 ? 0 : PS__CODE__AUTH), "row %d: code %d: %s", i, code, hand.sentence);
        if (i == 1 || i == 2)
            assert_says(hand.sentence, "not over this nonce and this Hello");
        else if (i > 0)
            assert_says(hand.sentence, "munge: ");
        if (i == 0)
            hand_leave(&hand);
        hand_close(&hand);
    }
    free(credential);
    house_assert_logged(&h, "not over this nonce");
    house_close(&h);
    close_site(&site);
}
END_TEST

enum { CROWD = 300 };

/* A job starts: all say Hello before anybody proves who it is, and then all do at once. */
struct crowd {
    void *context, *sockets[CROWD];
    Ps__Hello hellos[CROWD];
    char *credentials[CROWD];
};

static void crowd_say(struct crowd *w, int i)
{
    Ps__ToServer m = PS__TO_SERVER__INIT;
    m.what_case = PS__TO_SERVER__WHAT_HELLO;
    m.hello = &w->hellos[i];
    ck_assert_int_eq(ps_control_send(w->sockets[i], &m.base), 0);
}

/* To be freed by ps_control_free_to_client. */
static Ps__ToClient *crowd_hear(struct crowd *w, int i)
{
    zmq_pollitem_t item = {.socket = w->sockets[i], .events = ZMQ_POLLIN};
    zmq_msg_t msg;
    ck_assert_msg(zmq_poll(&item, 1, (long)(test_slow_s(TEST_HANG_S) * 1000)) == 1, "peer %d hears nothing",
                  i);
    zmq_msg_init(&msg);
    zmq_msg_recv(&msg, w->sockets[i], 0);
    Ps__ToClient *m = ps_control_unpack_to_client(zmq_msg_data(&msg), zmq_msg_size(&msg));
    zmq_msg_close(&msg);
    ck_assert_ptr_nonnull(m);
    return m;
}

/* The credential over the nonce that psd asks for. */
static void crowd_prove(struct crowd *w, int i)
{
    unsigned char payload[1024];
    struct ps_error err;
    Ps__ToClient *m = crowd_hear(w, i);
    ck_assert_int_eq(m->what_case, PS__TO_CLIENT__WHAT_CHALLENGE);
    memcpy(payload, m->challenge->nonce.data, PS_MUNGE_NONCE_BYTES);
    ps_control_free_to_client(m);
    size_t len = ps__hello__pack(&w->hellos[i], payload + PS_MUNGE_NONCE_BYTES);
    ck_assert_msg(ps_munge_encode(payload, PS_MUNGE_NONCE_BYTES + len, &w->credentials[i], &err) == 0, "%s",
                  err.text);
    w->hellos[i].credential.data = (uint8_t *)w->credentials[i];
    w->hellos[i].credential.len = strlen(w->credentials[i]);
}

static void crowd_open(struct crowd *w, const struct daemon *d)
{
    char url[100];
    int zero = 0;
    ck_assert(daemon_text(d, "/status", "listen", url, sizeof url));
    w->context = zmq_ctx_new();
    for (int i = 0; i < CROWD; i++) {
        ps__hello__init(&w->hellos[i]);
        w->hellos[i].protocol = PS_PROTOCOL_VERSION;
        w->hellos[i].any_rank = true;
        w->hellos[i].token = 100 + (uint64_t)i;
        w->hellos[i].name = (char *)"crowd";
        w->sockets[i] = zmq_socket(w->context, ZMQ_DEALER);
        zmq_setsockopt(w->sockets[i], ZMQ_LINGER, &zero, sizeof zero);
        ck_assert_int_eq(zmq_connect(w->sockets[i], url), 0);
    }
}

static void crowd_close(struct crowd *w)
{
    for (int i = 0; i < CROWD; i++) {
        free(w->credentials[i]);
        zmq_close(w->sockets[i]);
    }
    zmq_ctx_term(w->context);
}

START_TEST(a_whole_job_may_come_at_once)
{
    static struct crowd crowd;
    struct site site;
    struct house h;
    open_site(&site);
    open_house(&h, false, NULL);
    crowd_open(&crowd, &h.d);
    for (int i = 0; i < CROWD; i++)
        crowd_say(&crowd, i);
    for (int i = 0; i < CROWD; i++)
        crowd_prove(&crowd, i);
    for (int i = 0; i < CROWD; i++)
        crowd_say(&crowd, i);
    for (int i = 0; i < CROWD; i++) {
        Ps__ToClient *m = crowd_hear(&crowd, i);
        ck_assert_msg(m->what_case == PS__TO_CLIENT__WHAT_WELCOME, "peer %d gets message %d", i,
                      (int)m->what_case);
        ps_control_free_to_client(m);
    }
    crowd_close(&crowd);
    house_raze(&h);
    close_site(&site);
}
END_TEST

/* A server that munged does not vouch for gets no place. What munged vouches for is longer than a Hello: it
 * has the configuration and the addresses of all lanes. */
START_TEST(servers_prove_their_user)
{
    static const char *const settings[] = {"method=async-sgd", "auth.munge=true", "lanes=32", NULL};
    struct site site;
    struct servers t;
    char socket[128];
    int k = 0;
    open_site(&site);
    snprintf(socket, sizeof socket, "%s", getenv("PSD_MUNGE_SOCKET"));
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&t.d[0], NULL), 0);
    while (t.settings[1][k] != NULL)
        k++;
    t.settings[1][k] = "servers.wait_s=2";
    t.settings[1][k + 1] = "advertise=node-1234567890.of-a-cluster-with-a-long-name.somewhere.example.org";
    t.settings[1][k + 2] = NULL;
    setenv("PSD_MUNGE_SOCKET", "/nowhere", 1);
    ck_assert_int_eq(daemon_run(&t.d[1], NULL, TEST_HANG_S), 6);
    ck_assert_uint_gt(daemon_logged(&t.d[1], "asks for a munge credential"), 0);
    ck_assert_uint_eq(daemon_logged(&t.d[0], "server.enlisted"), 0);
    setenv("PSD_MUNGE_SOCKET", socket, 1);
    t.settings[1][k] = "servers.wait_s=600";
    ck_assert_int_eq(daemon_start(&t.d[1], NULL), 0);
    ck_assert(daemon_will_log(&t.d[0], "server.complete", TEST_HANG_S));
    ck_assert(servers_end(&t, TEST_HANG_S));
    servers_remove(&t);
    close_site(&site);
}
END_TEST

START_TEST(users_are_users)
{
    struct house h;
    house_prepare(&h, house_everybody);
    h.settings[h.n_settings++] = "auth.munge=true";
    h.settings[h.n_settings++] = "auth.munge_users=root, no-such-user";
    ck_assert_int_eq(daemon_run(&h.d, NULL, TEST_HANG_S), 2);
    ck_assert_uint_eq(daemon_logged(&h.d, "auth.munge_users: found 'no-such-user'"), 1);
    daemon_remove(&h.d);
}
END_TEST

int main(void)
{
    struct ps_error err;
    const TTest *const tests[] = {a_user_is_known_by_munge,      keys_and_munge_are_both_asked_for,
                                  a_credential_is_for_one_hello, a_whole_job_may_come_at_once,
                                  servers_prove_their_user,      users_are_users,
                                  a_worker_outlives_its_munged};
    if (!ps_munge_built(&err) || munged_program() == NULL) {
        printf("skipped: %s\n", munged_program() == NULL ? "there is no munged" : err.text);
        return 77;
    }
    return suite_run("munge", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
