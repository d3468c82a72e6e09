/* Who may come: real psd with an allow-list, listening as if other machines could reach it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/system/raw_client.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/security/auth_fixture.h"

enum { STEPS = 60 };

START_TEST(workers_with_keys_train)
{
    struct house h;
    struct stepper s[2];
    struct stat st;
    house_open(&h, house_everybody);
    ck_assert_int_eq(stat(h.key[0], &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    for (int i = 0; i < 2; i++)
        house_step_as(&h, &s[i], i, i, HOUSE_ENDLESS);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(stepper_reaches(&s[i], STEPS, TEST_HANG_S), "%s", s[i].page->error);
    ck_assert(house_text_is(&h, "/status", "auth", "curve"));
    ck_assert(house_text_is(&h, "/workers", "workers.0.identity", "w0"));
    ck_assert(house_text_is(&h, "/workers", "workers.1.identity", "w1"));
    for (int i = 0; i < 2; i++)
        stepper_kill(&s[i]);
    house_raze(&h);
}
END_TEST

/* The library says why within moments; psd's log, who it was. */
START_TEST(strangers_are_turned_away)
{
    static const char *const list[HOUSE_PEERS] = {"", NULL, ""};
    struct house h;
    struct stepper s;
    struct ps_error err;
    char url[128], says[100];
    house_open(&h, list);
    house_step_as(&h, &s, -1, 0, STEPS);
    house_assert_ends(&s, PSC_EAUTH, "give a key (psworker --key, else key_file)");
    house_step_as(&h, &s, 1, 0, STEPS);
    house_assert_ends(&s, PSC_EAUTH, "is not in its allow-list");
    assert_says(s.page->error, h.peer[1].public_key);
    snprintf(says, sizeof says, "127.0.0.1: key %s is not in the allow-list", h.peer[1].public_key);
    house_assert_logged(&h, says);

    /* By the URL alone nothing tells the client before it has tried. */
    ck_assert(daemon_text(&h.d, "/status", "listen", url, sizeof url));
    struct stepper_task plain = {
        .server = url, .rank = -1, .floats = HOUSE_FLOATS, .steps = STEPS, .samples = 1};
    stepper_start(&s, &plain);
    house_assert_ends(&s, PSC_EAUTH, "give a key (psworker --key, else key_file)");
    house_assert_logged(&h, "it has no key"); /* its address may be gone with it */
    plain.key_file = h.key[0];
    stepper_start(&s, &plain);
    house_assert_ends(&s, PSC_EAUTH, "the public key of the server");
    plain.server_key = h.peer[2].public_key; /* some other's */
    stepper_start(&s, &plain);
    house_assert_ends(&s, PSC_EAUTH, "does not have the secret key of the public key");
    plain.server_key = h.psd.public_key;
    stepper_start(&s, &plain);
    house_assert_ends(&s, PSC_OK, NULL);

    /* Or in the key file. */
    ck_assert_int_eq(unlink(h.key[0]), 0);
    strcpy(h.peer[0].server_key, h.psd.public_key);
    ck_assert_int_eq(ps_curve_write(h.key[0], &h.peer[0], &err), 0);
    plain.server_key = NULL;
    stepper_start(&s, &plain);
    house_assert_ends(&s, PSC_OK, NULL);

    ck_assert_int_eq(chmod(h.key[0], 0640), 0);
    house_step_as(&h, &s, 0, 0, STEPS);
    house_assert_ends(&s, PSC_EAUTH, "mode 0640: others can read or write it");
    assert_says(s.page->error, h.key[0]);
    house_close(&h);
}
END_TEST

/* A client with a key says nothing in plain. */
START_TEST(a_plain_psd_is_no_substitute)
{
    static const char *const plain[] = {HOUSE_JOB, NULL};
    struct house h;
    struct daemon d;
    struct stepper s;
    char url[128];
    house_prepare(&h, house_everybody);
    ck_assert_int_eq(daemon_prepare(&d, NULL, plain), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert(house_text_is(&(struct house){.d = d}, "/status", "auth", "none"));
    ck_assert(daemon_text(&d, "/status", "listen", url, sizeof url));
    struct stepper_task task = {.server = d.endpoint,
                                .rank = 0,
                                .floats = HOUSE_FLOATS,
                                .steps = STEPS,
                                .samples = 1,
                                .key_file = h.key[0]};
    stepper_start(&s, &task);
    house_assert_ends(&s, PSC_EAUTH, "the public key of the server");
    task.server_key = h.psd.public_key;
    task.server = url;
    stepper_start(&s, &task);
    house_assert_ends(&s, PSC_EAUTH, "not a psd with an auth.key");
    daemon_remove(&d);
    daemon_remove(&h.d);
}
END_TEST

/* Who knows a lane's address, and has no key for it, reaches nothing. */
START_TEST(strangers_reach_no_lane)
{
    static float x[4096], answer[4096], whole[HOUSE_FLOATS], center[HOUSE_FLOATS];
    struct house h;
    struct hand owner, thief;
    bool offer;
    Ps__Hello hello = PS__HELLO__INIT;
    static const char *const list[HOUSE_PEERS] = {"", NULL, NULL};
    house_open(&h, list);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)"owner";
    hand_open_as(&owner, h.d.endpoint, h.key[0]);
    ck_assert_int_eq(hand_hello(&owner, &hello), 0);
    ck_assert_int_eq(hand_begin(&owner, HOUSE_FLOATS, &offer), 0);
    for (size_t i = 0; i < ROWS(x); i++)
        x[i] = 7;
    for (int keyed = 0; keyed < 2; keyed++) {
        thief = owner;
        hand_open_as(&thief, h.d.endpoint, keyed ? h.key[1] : NULL);
        thief.n_lanes = owner.n_lanes;
        thief.client = owner.client;
        thief.incarnation = owner.incarnation;
        thief.chunk_floats = owner.chunk_floats;
        thief.shard = owner.shard;
        memcpy(thief.urls, owner.urls, sizeof thief.urls);
        struct ps_frame f = hand_frame(&thief, PS_FRAME_OFFER, 1, 0);
        hand_send(&thief, 1, &f, x, f.count * sizeof *x);
        house_assert_logged(&h, keyed ? h.peer[1].public_key : "it has no key");
        ck_assert_int_eq(hand_answer(&thief, 1, &f, answer, 0.05), -1); /* nor will it: it was turned away */
        hand_close(&thief);
    }
    ck_assert_int_eq(hand_pass(&owner, PS_FRAME_OFFER, whole, NULL), 0);
    ck_assert_int_eq(hand_pass(&owner, PS_FRAME_PULL, NULL, center), 0);
    for (size_t i = 0; i < HOUSE_FLOATS; i++)
        assert_quick(center[i] == 0);
    hand_close(&owner);
    house_raze(&h);
}
END_TEST

static int run_program(const char *command)
{
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* As a user types it. */
/* Its connection has broken, and another key's connection takes its name at psd's socket. */
START_TEST(a_session_is_of_who_began_it)
{
    struct house h;
    struct hand first, other;
    Ps__Hello hello = PS__HELLO__INIT;
    Ps__Heartbeat beat = PS__HEARTBEAT__INIT;
    double end_s = test_now_s() + TEST_HANG_S;
    int code;
    house_open(&h, house_everybody);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    hello.name = (char *)"first";
    hand_open_called(&first, h.d.endpoint, h.key[0], "chosen");
    ck_assert_int_eq(hand_hello(&first, &hello), 0);
    beat.client = first.client;
    beat.incarnation = first.incarnation;
    hand_close(&first);
    do { /* libzmq ignores a peer whose name is still another's */
        hand_open_called(&other, h.d.endpoint, h.key[1], "chosen");
        hand_tell(&other, PS__TO_SERVER__WHAT_HEARTBEAT, &beat);
        code = hand_hear_error(&other, 1);
        hand_close(&other);
    } while (code < 0 && test_now_s() < end_s);
    ck_assert_int_eq(code, PS__CODE__AUTH);
    assert_says(other.sentence, "belongs to another identity than w1");
    house_raze(&h);
}
END_TEST

START_TEST(the_programs_speak_of_keys)
{
    struct house h;
    char command[900], line[200] = "", expected[200];
    struct ps_curve_pair made;
    struct ps_error err;
    struct stat st;
    house_prepare(&h, house_everybody);
    snprintf(command, sizeof command, "%s keygen %s/new.key --name node-7 > %s/line", PSCTL, h.d.dir,
             h.d.dir);
    ck_assert_int_eq(run_program(command), 0);
    snprintf(command, sizeof command, "%s keygen %s/new.key --name other 2>/dev/null", PSCTL, h.d.dir);
    ck_assert_int_eq(run_program(command), 1); /* never twice */
    snprintf(command, sizeof command, "%s/new.key", h.d.dir);
    ck_assert_int_eq(stat(command, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_msg(ps_curve_read(command, &made, &err) == 0, "%s", err.text);
    snprintf(expected, sizeof expected, "%s node-7\n", made.public_key);
    snprintf(command, sizeof command, "%s/line", h.d.dir);
    FILE *f = fopen(command, "r");
    ck_assert(f != NULL && fgets(line, sizeof line, f) != NULL);
    fclose(f);
    ck_assert_str_eq(line, expected);
    f = fopen(h.allow, "a");
    fputs(line, f);
    fclose(f);

    ck_assert_int_eq(daemon_start(&h.d, NULL), 0);
    snprintf(command, sizeof command,
             "%s --server %s --key %s/new.key --net linear --batch 10 --steps 5 >/dev/null 2>&1", PSWORKER,
             h.d.endpoint, h.d.dir);
    ck_assert_int_eq(run_program(command), 0);
    snprintf(command, sizeof command, "%s --server %s --net linear --batch 10 --steps 5 >/dev/null 2>&1",
             PSWORKER, h.d.endpoint);
    ck_assert_int_eq(run_program(command), 9);
    snprintf(command, sizeof command, "%s --socket %s status | grep -q '^auth        curve, encrypted$'",
             PSCTL, h.d.socket);
    ck_assert_int_eq(run_program(command), 0);
    snprintf(command, sizeof command, "%s --socket %s allow nobody 2>&1 | grep -q 'is not barred'", PSCTL,
             h.d.socket);
    ck_assert_int_eq(run_program(command), 0);
    house_close(&h);
}
END_TEST

/* psd writes it so that nobody else may, whatever its umask is. */
START_TEST(an_endpoint_file_that_others_write_gives_no_key)
{
    struct house h;
    struct stepper s;
    struct stat st;
    house_prepare(&h, house_everybody);
    umask(0);
    ck_assert_int_eq(daemon_start(&h.d, NULL), 0);
    ck_assert_int_eq(stat(h.d.endpoint + 1, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0644);
    ck_assert_int_eq(chmod(h.d.endpoint + 1, 0664), 0);
    house_step_as(&h, &s, 0, 0, 3);
    house_assert_ends(&s, PSC_EAUTH, "has mode 0664: others can write to it");
    ck_assert_int_eq(chmod(h.d.endpoint + 1, 0644), 0);
    house_step_as(&h, &s, 0, 0, 3);
    house_assert_ends(&s, PSC_OK, NULL);
    house_close(&h);
}
END_TEST

/* "none", or a file of the directory. */
static void path_of(char *path, const char *name, const char *dir)
{
    bool none = strcmp(name, "none") == 0;
    snprintf(path, HOUSE_PATH_BYTES, "%s%s%s", none ? "" : dir, none ? "" : "/", name);
}

/* Refused by name before anything listens. */
START_TEST(a_bad_start_is_no_start)
{
    static const struct {
        const char *key, *allow; /* settings */
        mode_t mode;             /* of psd's key file */
        const char *says;
    } rows[] = {
        {"none", "none", 0600, "listen: tcp://0.0.0.0:0 can be reached from other machines"},
        {"center.key", "none", 0600, "auth.allow: found none beside auth.key"},
        {"none", "allow", 0600, "auth.key: found none beside auth.allow"},
        {"center.key", "allow", 0644, "center.key' has mode 0644: others can read or write it"},
        {"center.key", "allow", 0620, "center.key' has mode 0620: others can read or write it"},
        {"absent.key", "allow", 0600, "absent.key': No such file"},
        {"center.key", "absent", 0600, "absent': No such file"},
        {"allow", "allow", 0600, "allow' has mode 0644"},
        {"center.key", "center.key", 0600, "center.key:2: found 'name:'"},
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct house h;
        char key[HOUSE_PATH_BYTES], allow[HOUSE_PATH_BYTES];
        house_prepare(&h, house_everybody);
        ck_assert_int_eq(chmod(h.allow, 0644), 0);
        path_of(key, rows[i].key, h.d.dir);
        path_of(allow, rows[i].allow, h.d.dir);
        snprintf(h.set[0], sizeof h.set[0], "auth.key=%s", key);
        snprintf(h.set[1], sizeof h.set[1], "auth.allow=%s", allow);
        ck_assert_int_eq(chmod(h.psd_key, rows[i].mode), 0);
        int code = daemon_run(&h.d, NULL, TEST_HANG_S);
        if (code != 2 || daemon_logged(&h.d, rows[i].says) != 1) {
            daemon_show_log(&h.d);
            ck_abort_msg("row %zu: exit %d; the log does not say '%s'", i, code, rows[i].says);
        }
        daemon_remove(&h.d);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        workers_with_keys_train,      strangers_are_turned_away,
        a_plain_psd_is_no_substitute, strangers_reach_no_lane,
        a_session_is_of_who_began_it, the_programs_speak_of_keys,
        a_bad_start_is_no_start,      an_endpoint_file_that_others_write_gives_no_key,
    };
    return suite_run("auth", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
