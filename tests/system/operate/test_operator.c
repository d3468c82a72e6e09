/* What an operator does to a running job: evicts a worker, reads the configuration back, watches it in psctl
 * top on a terminal of its own. */
#include <jansson.h>
#include <pty.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"

enum { FLOATS = 20003, ROWS = 24, COLUMNS = 120, WAIT_S = 60, TAIL = 200 };

static const char *const settings[] = {"method=async-sgd", "parameters.learning_rate=1",
                                       "parameters.schedule.warmup_steps=0", "checkpoint.every_s=0", NULL};

static void start(struct daemon *d)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void join(const struct daemon *d, struct crew_worker *w, int rank)
{
    struct crew_task task = {
        .server = d->endpoint, .rank = rank, .floats = FLOATS, .heartbeat_ms = 200, .pause_s = 0.005};
    crew_start(w, &task);
    ck_assert_msg(crew_joined(w, WAIT_S), "%s", w->page->error);
    ck_assert(crew_reaches(w, 3, WAIT_S));
}

/* psctl's exit status; what it wrote to either stream is in text. */
static int psctl(const struct daemon *d, const char *arguments, char *text, size_t size)
{
    char line[700];
    snprintf(line, sizeof line, "%s --socket %s --timeout 60 %s 2>&1", PSCTL, d->socket, arguments);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(text, 1, size - 1, pipe);
    text[n] = 0;
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(an_evicted_worker_is_told_why_and_may_come_back)
{
    struct daemon d;
    struct crew_worker stays, goes, again;
    char text[4096];
    start(&d);
    join(&d, &stays, 0);
    join(&d, &goes, 1);
    ck_assert_int_eq(psctl(&d, "evict 7", text, sizeof text), 1);
    ck_assert_msg(strstr(text, "there is no rank 7 in the job") != NULL, "%s", text);
    ck_assert_int_eq(psctl(&d, "evict 1", text, sizeof text), 0);
    ck_assert_msg(strncmp(text, "evicted 1 (", 11) == 0, "%s", text);
    ck_assert(crew_ended(&goes, WAIT_S));
    ck_assert_int_eq(goes.page->rc, PSC_EEVICTED);
    ck_assert_msg(strstr(goes.page->error, "an operator evicted this worker (psctl evict 1)") != NULL, "%s",
                  goes.page->error);
    crew_stop(&goes, WAIT_S);
    ck_assert_double_eq(daemon_workers(&d), 1);
    ck_assert_int_eq(psctl(&d, "evict 1", text, sizeof text), 1);

    join(&d, &again, 1); /* as a new session */
    ck_assert(crew_reaches(&stays, stays.page->exchanges + 5, WAIT_S));
    ck_assert(crew_stop(&again, WAIT_S));
    ck_assert_int_eq(again.page->rc, PSC_OK);
    ck_assert(crew_stop(&stays, WAIT_S));
    ck_assert_int_eq(stays.page->rc, PSC_OK);
    daemon_remove(&d);
}
END_TEST

/* The least version that psd promises when it is asked to save. */
static double ask_to_save(const struct daemon *d)
{
    char *body = daemon_ask(d, "POST", "/checkpoint");
    ck_assert_ptr_nonnull(body);
    const char *version = strstr(body, "\"version\":");
    ck_assert_msg(version != NULL, "%s", body);
    double promised = strtod(version + strlen("\"version\":"), NULL);
    free(body);
    return promised;
}

/* However quickly the center goes on between the request and its answer: psctl waits for that version. */
START_TEST(a_checkpoint_is_as_new_as_promised)
{
    struct daemon d;
    struct crew_worker w[2];
    start(&d);
    for (int i = 0; i < 2; i++) {
        struct crew_task task = {.server = d.endpoint, .rank = i, .floats = 64, .heartbeat_ms = 200};
        crew_start(&w[i], &task);
    }
    for (int i = 0; i < 2; i++)
        ck_assert(crew_joined(&w[i], WAIT_S) && crew_reaches(&w[i], 3, WAIT_S));
    for (int i = 0; i < 100; i++) {
        double promised = ask_to_save(&d);
        ck_assert_msg(daemon_reaches(&d, "/status", "checkpoint.last_version", promised, WAIT_S),
                      "version %.0f was promised, and %.0f is saved", promised,
                      daemon_number(&d, "/status", "checkpoint.last_version"));
    }
    for (int i = 0; i < 2; i++)
        ck_assert(crew_stop(&w[i], WAIT_S));
    daemon_remove(&d);
}
END_TEST

/* A line of history.jsonl that has both. */
static bool has_line(const struct daemon *d, const char *one, const char *other)
{
    char path[200], line[2000];
    bool found = false;
    snprintf(path, sizeof path, "%s/history.jsonl", d->state_dir);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strstr(line, one) != NULL && strstr(line, other) != NULL;
    fclose(f);
    return found;
}

static const struct {
    const char *kind, *event;
} traces[] = {
    {"join", "joined as rank 0"},
    {"join", "joined as rank 1"},
    {"method", "method async-msgd after async-sgd, generation 1"},
    {"checkpoint", "checkpoint of version "},
    {"end", "(rank 1): left"},
};

/* Who came and went, what was saved, and which method was in force from when on. */
START_TEST(what_happens_to_a_job_is_in_its_history)
{
    struct daemon d;
    struct crew_worker stays, goes;
    static char text[1 << 16];
    static const char *const nothing[] = {NULL};
    ck_assert_int_eq(daemon_prepare(&d, NULL, nothing), 0);
    ck_assert(daemon_write_config(&d, "method: async-sgd\n"));
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    join(&d, &stays, 0);
    join(&d, &goes, 1);
    ck_assert(daemon_write_config(&d, "method: async-msgd\n"));
    ck_assert_msg(psctl(&d, "reload", text, sizeof text) == 0, "psctl reload: %s", text);
    ck_assert_int_eq(psctl(&d, "checkpoint", text, sizeof text), 0);
    ck_assert(crew_stop(&goes, WAIT_S));
    ck_assert(daemon_workers_become(&d, 1));
    ck_assert_int_eq(psctl(&d, "history", text, sizeof text), 0);
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        ck_assert_msg(strstr(text, traces[i].event) != NULL, "psctl history lacks '%s':\n%s", traces[i].event,
                      text);
    ck_assert(crew_stop(&stays, WAIT_S));
    ck_assert_int_eq(psctl(&d, "drain", text, sizeof text), 0);
    daemon_wait_exit(&d, WAIT_S);
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        char kind[60];
        snprintf(kind, sizeof kind, "\"event_kind\":\"%s\"", traces[i].kind);
        ck_assert_msg(has_line(&d, kind, traces[i].event), "history.jsonl lacks %s, %s", kind,
                      traces[i].event);
    }
    ck_assert(has_line(&d, "\"event_kind\":\"drain\"", "drain was requested"));
    daemon_remove(&d);
}
END_TEST

START_TEST(bad_evictions_are_refused_by_psd)
{
    static const char *const paths[] = {"/evict",        "/evict?rank=",           "/evict?arg=-1",
                                        "/evict?arg=1x", "/evict?arg=99999999999", "/evict?rank=%0a"};
    struct daemon d;
    start(&d);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char *body = daemon_ask(&d, "POST", paths[i]);
        ck_assert_ptr_nonnull(body);
        ck_assert_msg(strstr(body, "evict needs the rank of a worker") != NULL, "%s: %s", paths[i], body);
        free(body);
    }
    daemon_remove(&d);
}
END_TEST

/* A sentence may quote what is not UTF-8, or cut it inside a character. */
START_TEST(what_is_not_utf_8_is_refused_in_a_sentence)
{
#define O10 "%c3%b6%c3%b6%c3%b6%c3%b6%c3%b6%c3%b6%c3%b6%c3%b6%c3%b6%c3%b6"
    static const char *const paths[] = {"/evict?rank=%ff", "/set?lines=%ff", "/set?lines=x%c3=1",
                                        "/unset?keys=%ff", "/unset?keys=x" O10 O10 O10 O10 O10};
#undef O10
    struct daemon d;
    start(&d);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char *body = daemon_ask(&d, "POST", paths[i]);
        ck_assert_ptr_nonnull(body);
        json_t *answer = json_loads(body, 0, NULL);
        const char *error = json_string_value(json_object_get(answer, "error"));
        ck_assert_msg(error != NULL && strchr(error, '?') != NULL, "%s: '%s'", paths[i], body);
        json_decref(answer);
        free(body);
    }
    daemon_remove(&d);
}
END_TEST

static void limit_files(const struct daemon *d, rlim_t bytes)
{
    const struct rlimit limit = {bytes, RLIM_INFINITY};
    ck_assert_int_eq(prlimit(d->pid, RLIMIT_FSIZE, &limit, NULL), 0);
}

/* psd's state directory takes no byte more for a while. */
START_TEST(settings_that_are_not_saved_are_no_success)
{
    struct daemon d;
    char text[8192];
    start(&d);
    limit_files(&d, 0);
    ck_assert_msg(psctl(&d, "set learning_rate=0.5", text, sizeof text) == 1, "psctl set: %s", text);
    ck_assert_str_eq(text, "psctl: in force, but not saved in the state directory: File too large\n");
    ck_assert(daemon_number(&d, "/config", "parameters.learning_rate") == 0.5);
    limit_files(&d, RLIM_INFINITY);
    ck_assert_msg(psctl(&d, "set learning_rate=0.25", text, sizeof text) == 0, "psctl set: %s", text);
    daemon_remove(&d);
}
END_TEST

static const struct {
    const char *options, *says;
} ports[] = {
    {"--listen tcp://0.0.0.0:5 --port 7", "psd: listen: tcp://0.0.0.0:7 can be reached"},
    {"--port 7 --listen tcp://0.0.0.0:5", "psd: listen: tcp://0.0.0.0:7 can be reached"},
    {"--port 7 --set listen=tcp://0.0.0.0:5", "psd: listen: tcp://0.0.0.0:7 can be reached"},
    {"--listen ipc://x --port 7", "psd: --port 7: ipc://x has no port"},
    {"--port 7 --listen ipc://x", "psd: --port 7: ipc://x has no port"},
    {"--port x --listen tcp://0.0.0.0:5", "psd: --port 'x': a port is a number"},
};

/* psd names the URL that results. */
START_TEST(a_port_is_of_the_listen_url_in_either_order)
{
    struct daemon d;
    char command[800], line[300] = "";
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        snprintf(command, sizeof command, "cd %s && %s %s --check-config 2>&1", d.dir, d.program,
                 ports[i].options);
        FILE *pipe = popen(command, "r");
        ck_assert_ptr_nonnull(pipe);
        ck_assert_ptr_nonnull(fgets(line, sizeof line, pipe));
        int status = pclose(pipe);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 2, "%s: %s", ports[i].options, line);
        ck_assert_msg(strstr(line, ports[i].says) != NULL, "%s: %s", ports[i].options, line);
    }
    daemon_remove(&d);
}
END_TEST

/* Not YAML: a path may hold what YAML takes for a mapping, a list or a comment. */
START_TEST(options_are_taken_as_they_are)
{
    static const char *const options[] = {"--state-dir 'run: 3'", "--endpoint-file '[end]'",
                                          "--status 'unix:a: b.sock'", "--listen 'ipc://a: b'"};
    struct daemon d;
    char command[800], line[300] = "";
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        snprintf(command, sizeof command, "cd %s && %s %s --check-config 2>&1", d.dir, d.program, options[i]);
        FILE *pipe = popen(command, "r");
        ck_assert_ptr_nonnull(pipe);
        ck_assert_ptr_nonnull(fgets(line, sizeof line, pipe));
        ck_assert_msg(pclose(pipe) == 0, "%s: %s", options[i], line);
    }
    daemon_remove(&d);
}
END_TEST

/* psctl config, as a file, is the same configuration. */
START_TEST(config_is_read_back)
{
    struct daemon d;
    char before[8192], after[8192], command[700], path[100], named[200];
    const char *const odd[] = {"method=async-sgd", "memory_gib=0.3333333333333333", named, NULL};
    ck_assert_int_eq(daemon_prepare(&d, NULL, odd), 0);
    /* Letters of each length in UTF-8, and what YAML takes in quotes only if it is escaped. */
    snprintf(named, sizeof named, "tensorboard=\"%s/q\\\"\\\\é∑🙂 \\x85\\x9b\\u2028\\ufeff\\uffff\"",
             d.dir);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(psctl(&d, "config", before, sizeof before), 0);
    assert_says(before, "/q\\\"\\\\é∑🙂 \\u0085\\u009b\\u2028\\ufeff\\uffff\"\n");
    assert_says(before, "memory_gib: 0.3333333333333333\n");
    assert_says(before, "learning_rate: 0.05\n");
    snprintf(path, sizeof path, "%s/config.yaml", d.dir);
    FILE *f = fopen(path, "we");
    fputs(before, f);
    fclose(f);
    snprintf(command, sizeof command, "%s --config %s --check-config >/dev/null", d.program, path);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_ge(daemon_stop(&d, SIGTERM, WAIT_S), 0);

    const char *program = d.program;
    d.pid = fork();
    if (d.pid == 0) {
        execl(program, program, "--config", path, NULL);
        _exit(127);
    }
    ck_assert(daemon_reaches(&d, "/status", "pid", d.pid, WAIT_S));
    ck_assert_int_eq(psctl(&d, "config", after, sizeof after), 0);
    ck_assert_str_eq(before, after);
    daemon_remove(&d);
}
END_TEST

/* psctl top on a pseudo terminal. */
struct terminal {
    int fd;
    pid_t pid;
    char seen[65536]; /* what it wrote since the last look, without zero bytes */
    size_t n;
    struct termios before;
};

static void terminal_open(struct terminal *t, const struct daemon *d)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
    int other;
    t->n = 0;
    ck_assert_int_eq(openpty(&t->fd, &other, NULL, NULL, &size), 0);
    ck_assert_int_eq(tcgetattr(t->fd, &t->before), 0);
    if ((t->pid = fork()) == 0) {
        close(t->fd);
        login_tty(other);
        signal(SIGHUP, SIG_DFL); /* ignored where tests run under nohup */
        setenv("TERM", "xterm", 1);
        setenv("LANG", "C.UTF-8", 1);
        execl(PSCTL, PSCTL, "--socket", d->socket, "--interval", "0.2", "top", NULL);
        _exit(127);
    }
    close(other);
}

static void terminal_read(struct terminal *t)
{
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    while (poll(&p, 1, 20) > 0) {
        if (t->n > sizeof t->seen / 2) { /* the end stays: a word may be on its way */
            memmove(t->seen, t->seen + t->n - TAIL, TAIL);
            t->n = TAIL;
        }
        ssize_t n = read(t->fd, t->seen + t->n, sizeof t->seen - 1 - t->n);
        if (n <= 0)
            break;
        t->n += (size_t)n;
    }
    t->seen[t->n] = 0;
}

/* ncurses writes what changed: words that were not on the screen before come whole. */
static bool terminal_shows(struct terminal *t, const char *text)
{
    for (double end = test_now_s() + test_slow_s(WAIT_S); test_now_s() < end;) {
        terminal_read(t);
        if (strstr(t->seen, text) != NULL)
            return true;
    }
    return false;
}

static void terminal_type(struct terminal *t, const char *keys)
{
    t->n = 0;
    ck_assert_int_eq(write(t->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/* Waits for the end; the terminal must be as it was, and have left the alternate screen. */
static int terminal_close(struct terminal *t)
{
    struct termios after;
    int status = 0;
    ck_assert(terminal_shows(t, "\033[?1049l"));
    for (double end = test_now_s() + test_slow_s(WAIT_S); waitpid(t->pid, &status, WNOHANG) == 0;) {
        ck_assert_msg(test_now_s() < end, "psctl top does not end");
        terminal_read(t);
    }
    ck_assert_int_eq(tcgetattr(t->fd, &after), 0);
    ck_assert_uint_eq(after.c_lflag, t->before.c_lflag);
    ck_assert_uint_eq(after.c_iflag, t->before.c_iflag);
    ck_assert_uint_eq(after.c_oflag, t->before.c_oflag);
    close(t->fd);
    return status;
}

START_TEST(top_follows_the_job)
{
    static struct terminal t;
    struct daemon d;
    struct crew_worker crew[2];
    start(&d);
    join(&d, &crew[0], 0);
    join(&d, &crew[1], 1);
    terminal_open(&t, &d);
    ck_assert_msg(terminal_shows(&t, "2 active, 0 observers"), "%s", t.seen);
    ck_assert(terminal_shows(&t, "updates/s"));
    ck_assert(terminal_shows(&t, "sorted by rank"));
    terminal_type(&t, "s");
    ck_assert_msg(terminal_shows(&t, "updates/s"), "%s", t.seen);
    t.n = 0;
    ck_assert_int_eq(ioctl(t.fd, TIOCSWINSZ, &(struct winsize){.ws_row = 9, .ws_col = 70}), 0);
    ck_assert_msg(terminal_shows(&t, "q quit"), "%s", t.seen); /* drawn anew */
    ck_assert_int_eq(ioctl(t.fd, TIOCSWINSZ, &(struct winsize){.ws_row = ROWS, .ws_col = COLUMNS}), 0);

    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_msg(terminal_shows(&t, "GONE"), "%s", t.seen);
    ck_assert(terminal_shows(&t, "looking again"));
    t.n = 0;
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_msg(terminal_shows(&t, "sorted by"), "%s", t.seen);
    terminal_type(&t, "q");
    int status = terminal_close(&t);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < 2; i++)
        crew_kill(&crew[i]);
    daemon_remove(&d);
}
END_TEST

START_TEST(top_says_how_the_job_has_ended)
{
    static struct terminal t;
    struct daemon d;
    start(&d);
    terminal_open(&t, &d);
    ck_assert(daemon_reaches(&d, "/status", "wait_for_end", 1, WAIT_S));
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    ck_assert_msg(terminal_shows(&t, "the job has ended cleanly (SIGTERM)"), "%s", t.seen);
    ck_assert_ptr_null(strstr(t.seen, "GONE"));
    terminal_type(&t, "q");
    int status = terminal_close(&t);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    daemon_remove(&d);
}
END_TEST

START_TEST(top_gives_the_terminal_back_to_a_signal)
{
    static struct terminal t;
    struct daemon d;
    start(&d);
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        terminal_open(&t, &d);
        ck_assert_msg(terminal_shows(&t, "q quit"), "%s", t.seen);
        kill(t.pid, signals[i]);
        int status = terminal_close(&t);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
    }
    daemon_remove(&d);
}
END_TEST

START_TEST(top_needs_a_terminal)
{
    struct daemon d;
    char text[4096];
    start(&d);
    ck_assert_int_eq(psctl(&d, "top </dev/null", text, sizeof text), 2);
    ck_assert_msg(strstr(text, "top --once prints one frame") != NULL, "%s", text);
    ck_assert_int_eq(psctl(&d, "top --once </dev/null", text, sizeof text), 0);
    ck_assert_msg(strstr(text, "workers     0 active, 0 observers   sorted by rank") != NULL, "%s", text);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        an_evicted_worker_is_told_why_and_may_come_back,
        bad_evictions_are_refused_by_psd,
        what_happens_to_a_job_is_in_its_history,
        a_checkpoint_is_as_new_as_promised,
        what_is_not_utf_8_is_refused_in_a_sentence,
        settings_that_are_not_saved_are_no_success,
        a_port_is_of_the_listen_url_in_either_order,
        options_are_taken_as_they_are,
        config_is_read_back,
#ifdef PSCTL_HAS_SCREEN
        top_follows_the_job,
        top_says_how_the_job_has_ended,
        top_gives_the_terminal_back_to_a_signal,
        top_needs_a_terminal,
#endif
    };
    return suite_run("operator", tests, sizeof tests / sizeof *tests, 500);
}
