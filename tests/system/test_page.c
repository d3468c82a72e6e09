/* The live page in a real browser, over real jobs: what it draws, that hostile names stay text, that it
 * outlives psd. Skipped where there is no chromium. PSD_TEST_PICTURES=DIR keeps pictures of it there. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/browser.h"
#include "tests/support/daemon.h"
#include "tests/support/proxy.h"
#include "tests/support/suite.h"
#include "tests/system/psworker.h"

#define SKIPPED        77 /* as Meson has it */
#define HOSTILE_IMAGE  "<img src=x onerror=hacked=1>"
#define HOSTILE_SCRIPT "<script>hacked=1</script>"
#define POINTS(key)    "Number(document.querySelector('[data-key=" key "]')?.dataset.points ?? 0)"
#define HIDDEN(id)     "document.getElementById('" id "').hidden"
#define ROWS           "document.querySelectorAll('#workers tbody tr').length"
#define EMPTY(id, text)                                                                                      \
    "document.querySelector('#chart-" id " .empty:not([hidden])')?.textContent === '" text "'"

static const char *const settings[] = {"method=async-easgd",
                                       "parameters.period=2",
                                       "parameters.alpha=0.2",
                                       "parameters.learning_rate=0.1",
                                       "checkpoint.every_s=1",
                                       "limits.silence_s=40", /* half of it to be seen silent, not yet gone */
                                       "status.http=tcp://127.0.0.1:0",
                                       NULL};

static void page_url(const struct daemon *d, char *url, size_t size)
{
    char http[100];
    ck_assert(daemon_text(d, "/status", "http", http, sizeof http));
    snprintf(url, size, "http%s/", http + strlen("tcp"));
}

static void picture(struct browser *b, const char *name)
{
    const char *dir = getenv("PSD_TEST_PICTURES");
    char path[400];
    if (dir == NULL)
        return;
    snprintf(path, sizeof path, "%s/%s.png", dir, name);
    browser_picture(b, path);
}

static void will(struct browser *b, const char *expression)
{
    ck_assert_msg(browser_will(b, expression, 90), "never true: %s; %u complaints: %s", expression,
                  b->complaints, b->complaint);
}

static void check_job(struct browser *b)
{
    will(b, POINTS("test_accuracy") " >= 2 && " POINTS("test_loss") " >= 2 && " POINTS("loss") " >= 3");
    will(b, POINTS("updates_per_s") " >= 3 && " POINTS("staleness") " >= 3");
    will(b, "document.querySelectorAll('#charts .curve').length >= 5");
    will(b, ROWS " === 3 && document.getElementById('state').textContent === 'ready'");
    will(b, "[...document.querySelectorAll('#workers tr.active')].length === 3");
    will(b, "/^0\\.\\d{4}$/.test(document.querySelector('.tile .value').textContent)");
    /* t, updates/s, loss, images/s, staleness and norms of the workers are numbers */
    will(b, "[...document.querySelectorAll('#workers tbody tr')].slice(0, 2).every("
            "r => [3, 4, 5, 6, 7, 8, 9].every(i => r.cells[i].textContent !== '–'))");
    will(b, POINTS("center_norm") " >= 2 && " POINTS("distance") " >= 2");
}

static void check_names_are_text(struct browser *b)
{
    will(b, "[...document.querySelectorAll('#workers td.name')].some(c => c.textContent === '" HOSTILE_IMAGE
            "')");
    will(b, "[...document.querySelectorAll('#workers td.name')].some(c => c.textContent === "
            "'<script>hacked=1<' + "
            "'/script>')");
    will(b, "document.querySelectorAll('#workers img, #workers script').length === 0 && "
            "typeof hacked === 'undefined'");
}

/* The whole history travels once; after that only what is new. */
static void check_history_travels_once(struct browser *b)
{
    const char *count =
        "performance.getEntriesByType('resource').filter(e => /history$/.test(e.name)).length";
    will(b,
         "performance.getEntriesByType('resource').filter(e => /history.since=/.test(e.name)).length >= 2");
    ck_assert_double_eq(browser_number(b, count), 1);
    /* thinned, it keeps its ends, its order and what is rare */
    will(b,
         "(t => t.length === 3 && t[0].t === 1 && t[1].t === 3 && t[2].t === 4 && t[0].test_accuracy === 0.5 "
         "&& "
         "t[1].event === 'end')(thin([{t: 1}, {t: 2, test_accuracy: 0.5}, {t: 3, event: 'end'}, {t: 4}]))");
    /* every record is drawn once */
    will(b, "job.records.every((r, i) => i === 0 || r.t > job.records[i - 1].t)");
}

static void check_looks(struct browser *b)
{
    const char *ground = "getComputedStyle(document.body).backgroundColor";
    json_t *light = browser_value(b, ground);
    browser_set_dark(b, true);
    json_t *dark = browser_value(b, ground);
    ck_assert_str_ne(json_string_value(light), json_string_value(dark));
    json_decref(light);
    json_decref(dark);
    picture(b, "dark");
    browser_resize(b, 360,
                   740); /* a phone: nothing is wider than it but the table, which scrolls by itself */
    will(b, "document.documentElement.scrollWidth <= 360 && document.querySelector('#chart-loss "
            "svg').clientWidth > 250");
    picture(b, "phone");
    browser_set_dark(b, false);
    browser_resize(b, 1280, 900);
    will(b, "innerWidth === 1280");
}

static void check_crosshair(struct browser *b)
{
    double x = browser_number(
        b, "(r => r.left + r.width / 2)(document.querySelector('#chart-loss svg').getBoundingClientRect())");
    double y = browser_number(
        b, "(r => r.top + r.height / 2)(document.querySelector('#chart-loss svg').getBoundingClientRect())");
    json_decref(browser_call(b, "Input.dispatchMouseEvent",
                             json_pack("{s:s, s:f, s:f}", "type", "mouseMoved", "x", x, "y", y)));
    will(b, "/version \\d+/.test(document.querySelector('#chart-loss .tip:not([hidden])')?.textContent) && "
            "/training: [0-9.]+/.test(document.querySelector('#chart-loss .tip').textContent)");
    will(b, "document.querySelectorAll('.cross').length >= 4"); /* in every chart that has points */
    picture(b, "light");
    will(b,
         "(document.querySelector('#chart-loss button').click(), "
         "document.querySelector('#chart-loss button').getAttribute('aria-pressed') === 'false') && " POINTS(
             "loss") " >= 3");
}

/* Bound and not listening: who connects is refused, nobody is given the port, and psd may bind it again. */
static int keep_port(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* psd dies and comes back: the page says so, keeps what it has, and goes on. */
static void check_gone(struct browser *b, struct daemon *d, const char *url)
{
    char http[120];
    const char *again[] = {settings[0], settings[1], settings[2], settings[3],
                           settings[4], settings[5], http,        NULL};
    snprintf(http, sizeof http, "status.http=tcp%.*s", (int)strlen(url) - 5, url + strlen("http"));
    daemon_stop(d, SIGKILL, 60);
    int port = keep_port(proxy_port(strchr(http, '=') + 1));
    will(b, "!" HIDDEN("gone") " && document.getElementById('state').textContent === 'no answer'");
    will(b, "/psd does not answer since/.test(document.getElementById('gone').textContent)");
    will(b, POINTS("test_accuracy") " >= 2 && " ROWS " === 3");
    picture(b, "gone");
    double points = browser_number(b, "job.records.length");
    d->settings = again;
    ck_assert_int_eq(daemon_start(d, "--resume"), 0);
    d->settings = settings;
    close(port);
    will(b, HIDDEN("gone") " && document.getElementById('state').textContent === 'ready'");
    ck_assert_double_ge(browser_number(b, "job.records.length"), points);
}

START_TEST(the_job_is_drawn)
{
    struct daemon d;
    struct browser b;
    char url[120];
    const char *const train[] = {"--net", "linear", "--steps", "1000000", "--name", HOSTILE_IMAGE, NULL};
    const char *const other[] = {"--net", "linear", "--steps", "1000000", "--name", "worker-1", NULL};
    const char *const watch[] = {"--net", "linear", "--evaluate",   "--every",
                                 "1",     "--name", HOSTILE_SCRIPT, NULL};
    pid_t crew[3];

    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    crew[0] = psworker_start(&d, "w0", train);
    crew[1] = psworker_start(&d, "w1", other);
    crew[2] = psworker_start(&d, "watch", watch);
    page_url(&d, url, sizeof url);
    browser_start(&b, 1280, 900);
    browser_open(&b, url);
    check_job(&b);
    check_names_are_text(&b);
    check_history_travels_once(&b);
    check_looks(&b);
    check_crosshair(&b);

    kill(crew[1], SIGTERM);
    ck_assert_int_eq(psworker_wait(crew[1], 60), 0);
    will(&b, "/^ended: /.test(document.querySelector('#workers tr.ended td.state')?.textContent)");
    kill(crew[0], SIGSTOP);
    will(&b,
         "/^silent for \\d+ s$/.test(document.querySelector('#workers tr.silent td.state')?.textContent)");
    kill(crew[0], SIGCONT);
    ck_assert_msg(b.complaints == 0, "%s", b.complaint);

    check_gone(&b, &d, url);
    /* What is no file of psd's own does not run. */
    will(&b, "(s => (s.textContent = 'window.ran = 1', document.body.append(s), typeof ran === 'undefined'))"
             "(document.createElement('script'))");
    for (int i = 0; i < 3; i += 2) {
        kill(crew[i], SIGKILL);
        waitpid(crew[i], NULL, 0);
    }
    browser_stop(&b);
    daemon_remove(&d);
}
END_TEST

START_TEST(nothing_yet_says_what_to_start)
{
    struct daemon d;
    struct browser b;
    char url[120];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    page_url(&d, url, sizeof url);
    browser_start(&b, 1000, 900);
    browser_open(&b, url);
    will(&b, "document.getElementById('state')?.textContent === 'waiting'");
    will(&b, EMPTY("accuracy", "no evaluation yet: start psworker --evaluate"));
    will(&b, EMPTY("rate", "no update yet: start psworker"));
    will(&b, "!" HIDDEN("nobody") " && document.querySelector('#crew .scroll').hidden");
    /* a chart of what the job does not tell is not there */
    will(&b, "['chart-norm', 'chart-distance'].every(id => document.getElementById(id).hidden)");
    picture(&b, "empty");
    ck_assert_msg(b.complaints == 0, "%s", b.complaint);
    browser_stop(&b);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {the_job_is_drawn, nothing_yet_says_what_to_start};
    if (!browser_found()) {
        puts("skipped: there is no chromium (apt-get install chromium)");
        return SKIPPED;
    }
    return suite_run("page", tests, 2, 500);
}
