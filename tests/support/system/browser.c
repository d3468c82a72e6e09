#include "tests/support/system/browser.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/clock.h"

enum { ANSWER_S = 60 };

bool browser_found(void)
{
    return system("command -v chromium >/dev/null 2>&1") == 0;
}

/* Chromium reads commands at descriptor 3 and answers at 4. */
static void run_chromium(const struct browser *b, int commands, int answers)
{
    char profile[100];
    snprintf(profile, sizeof profile, "--user-data-dir=%s", b->profile);
    int in = fcntl(commands, F_DUPFD, 10), out = fcntl(answers, F_DUPFD, 10);
    int nowhere = open("/dev/null", O_RDWR);
    dup2(in, 3);
    dup2(out, 4);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);                   /* its children can be killed with it */
    setenv("TMPDIR", b->profile, 1); /* its temporary files are removed with the profile */
    execlp("chromium", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
           "--no-first-run", "--hide-scrollbars", "--disable-background-networking",
           "--remote-debugging-pipe", profile, "about:blank", NULL);
    _exit(127);
}

static void take_event(struct browser *b, const json_t *message)
{
    const char *method = json_string_value(json_object_get(message, "method"));
    const json_t *params = json_object_get(message, "params");
    const char *level = json_string_value(json_object_get(json_object_get(params, "entry"), "level"));
    const char *type = json_string_value(json_object_get(params, "type"));
    bool bad = false;
    if (method == NULL)
        return;
    if (strcmp(method, "Runtime.exceptionThrown") == 0)
        bad = true;
    else if (strcmp(method, "Runtime.consoleAPICalled") == 0)
        bad = type != NULL && (strcmp(type, "error") == 0 || strcmp(type, "assert") == 0);
    else if (strcmp(method, "Log.entryAdded") == 0)
        bad = level != NULL && strcmp(level, "error") == 0;
    if (!bad)
        return;
    char *text = json_dumps(params, JSON_COMPACT);
    b->complaints++;
    snprintf(b->complaint, sizeof b->complaint, "%s", text);
    free(text);
}

/* The next message. The caller releases it. */
static json_t *receive(struct browser *b, double deadline)
{
    char *end;
    while (b->n_text == 0 || (end = memchr(b->text, 0, b->n_text)) == NULL) {
        struct pollfd p = {.fd = b->from, .events = POLLIN};
        int wait_ms = (int)(1e3 * (deadline - test_now_s()));
        ck_assert_msg(wait_ms > 0 && poll(&p, 1, wait_ms) > 0, "chromium does not answer");
        if (b->room - b->n_text < 65536)
            b->text = realloc(b->text, b->room += 1 << 20);
        ssize_t n = read(b->from, b->text + b->n_text, b->room - b->n_text);
        ck_assert_msg(n > 0, "chromium has ended");
        b->n_text += (size_t)n;
    }
    size_t used = (size_t)(end - b->text) + 1;
    json_t *message = json_loads(b->text, 0, NULL);
    memmove(b->text, b->text + used, b->n_text -= used);
    return message;
}

json_t *browser_call(struct browser *b, const char *method, json_t *params)
{
    double deadline = test_now_s() + test_slow_s(ANSWER_S);
    json_t *request = json_pack("{s:i, s:s, s:o}", "id", ++b->id, "method", method, "params",
                                params != NULL ? params : json_object());
    if (b->session[0] != 0)
        json_object_set_new(request, "sessionId", json_string(b->session));
    char *text = json_dumps(request, JSON_COMPACT);
    for (size_t done = 0, len = strlen(text) + 1; done < len;) {
        ssize_t n = write(b->to, text + done, len - done);
        ck_assert_msg(n > 0, "chromium has ended");
        done += (size_t)n;
    }
    free(text);
    json_decref(request);
    for (;;) {
        json_t *message = receive(b, deadline), *id = json_object_get(message, "id");
        if (id == NULL || json_integer_value(id) != b->id) {
            take_event(b, message);
            json_decref(message);
            continue;
        }
        json_t *result = json_incref(json_object_get(message, "result"));
        ck_assert_msg(result != NULL, "%s: %s", method, json_dumps(json_object_get(message, "error"), 0));
        json_decref(message);
        return result;
    }
}

static void do_call(struct browser *b, const char *method, json_t *params)
{
    json_decref(browser_call(b, method, params));
}

void browser_start(struct browser *b, unsigned width, unsigned height)
{
    int commands[2], answers[2];
    *b = (struct browser){.profile = "/tmp/psd-test-browser-XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(b->profile));
    ck_assert_int_eq(pipe2(commands, O_CLOEXEC) | pipe2(answers, O_CLOEXEC), 0);
    if ((b->pid = fork()) == 0)
        run_chromium(b, commands[0], answers[1]);
    close(commands[0]);
    close(answers[1]);
    b->to = commands[1];
    b->from = answers[0];
    json_t *page = browser_call(b, "Target.createTarget", json_pack("{s:s}", "url", "about:blank"));
    json_t *attached =
        browser_call(b, "Target.attachToTarget",
                     json_pack("{s:O, s:b}", "targetId", json_object_get(page, "targetId"), "flatten", 1));
    snprintf(b->session, sizeof b->session, "%s", json_string_value(json_object_get(attached, "sessionId")));
    json_decref(page);
    json_decref(attached);
    do_call(b, "Runtime.enable", NULL);
    do_call(b, "Log.enable", NULL);
    do_call(b, "Page.enable", NULL);
    browser_resize(b, width, height);
}

void browser_open(struct browser *b, const char *url)
{
    do_call(b, "Page.navigate", json_pack("{s:s}", "url", url));
}

json_t *browser_value(struct browser *b, const char *expression)
{
    json_t *result = browser_call(b, "Runtime.evaluate",
                                  json_pack("{s:s, s:b}", "expression", expression, "returnByValue", 1));
    json_t *value = json_incref(json_object_get(json_object_get(result, "result"), "value"));
    json_decref(result);
    return value;
}

double browser_number(struct browser *b, const char *expression)
{
    json_t *value = browser_value(b, expression);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(value);
    return number;
}

bool browser_will(struct browser *b, const char *expression, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    for (;;) {
        json_t *value = browser_value(b, expression);
        bool is = json_is_true(value);
        json_decref(value);
        if (is || test_now_s() > deadline)
            return is;
        test_nap_s(0.05);
    }
}

void browser_resize(struct browser *b, unsigned width, unsigned height)
{
    do_call(b, "Emulation.setDeviceMetricsOverride",
            json_pack("{s:i, s:i, s:i, s:b}", "width", (int)width, "height", (int)height, "deviceScaleFactor",
                      1, "mobile", 0));
}

void browser_set_dark(struct browser *b, bool dark)
{
    do_call(b, "Emulation.setEmulatedMedia",
            json_pack("{s:[{s:s, s:s}]}", "features", "name", "prefers-color-scheme", "value",
                      dark ? "dark" : "light"));
}

static unsigned bits_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(digits, c);
    return at != NULL && c != 0 ? (unsigned)(at - digits) : 0;
}

void browser_picture(struct browser *b, const char *path)
{
    json_t *result = browser_call(b, "Page.captureScreenshot", json_pack("{s:s}", "format", "png"));
    const char *text = json_string_value(json_object_get(result, "data"));
    FILE *f = fopen(path, "wbe");
    ck_assert_ptr_nonnull(f);
    for (; text[0] != 0 && text[1] != 0 && text[2] != 0 && text[3] != 0; text += 4) { /* base64 */
        unsigned v =
            bits_of(text[0]) << 18 | bits_of(text[1]) << 12 | bits_of(text[2]) << 6 | bits_of(text[3]);
        fputc((int)(v >> 16), f);
        if (text[2] != '=')
            fputc((int)(v >> 8 & 255), f);
        if (text[3] != '=')
            fputc((int)(v & 255), f);
    }
    fclose(f);
    json_decref(result);
}

void browser_stop(struct browser *b)
{
    char command[100];
    kill(-b->pid, SIGKILL);
    waitpid(b->pid, NULL, 0);
    close(b->to);
    close(b->from);
    free(b->text);
    snprintf(command, sizeof command, "rm -rf '%s'", b->profile);
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", b->profile);
}
