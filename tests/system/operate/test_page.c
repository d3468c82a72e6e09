/* The live page in a real browser, over real jobs: what it draws, that hostile names stay text, that it fits
 * a phone, that it outlives psd and says how the job has ended. Skipped where there is no chromium.
 * PSD_TEST_PICTURES=DIR keeps pictures of it there. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclient.h"
#include "tests/support/pause.h"
#include "tests/support/system/browser.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/proxy.h"
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

/* The texts of the tile of that title: its value, and what is below it. */
#define TILE(title, part)                                                                                    \
    "[...document.querySelectorAll('.tile')].find(t => t.querySelector('.what').textContent === '" title     \
    "').querySelector('." part "').textContent"
#define COLOR(selector) "getComputedStyle(document.querySelector('" selector "')).color"

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
    will(b, TILE("learning rate", "value") " === '0.1' && " TILE("period", "value") " === '2'");
    will(b, "document.getElementById('what').textContent === 'linear on digits'");
    will(b, "/^\\d+ of 2000000 steps, 0 %$/.test(document.getElementById('steps').textContent)");
    will(b, "[...document.querySelectorAll('#workers tbody tr')].slice(0, 2).every("
            "r => /^\\d+ . 1000000$/.test(r.cells[3].textContent))");
}

/* Nothing is wider than the screen, and nothing has to be moved to be seen. */
static void check_fits(struct browser *b, unsigned width, const char *name)
{
    char fits[300];
    browser_resize(b, width, 844);
    snprintf(fits, sizeof fits,
             "innerWidth === %u && [document.documentElement, ...document.querySelectorAll('#crew .scroll, "
             "#workers td:not(.name), .tile > *')].every(e => e.scrollWidth <= e.clientWidth)",
             width);
    will(b, fits);
    picture(b, name);
    json_decref(browser_value(b, "document.getElementById('crew').scrollIntoView()"));
    snprintf(fits, sizeof fits, "%s-workers", name);
    picture(b, fits);
    json_decref(browser_value(b, "scrollTo(0, 0)"));
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
    /* however often, none of its time is lost */
    will(b, "(r => { for (let t = 0; t < 6400; t++) { r.push({t}); if (r.length > 64) r = thin(r); } "
            "return r.every((e, i) => i === 0 || e.t - r[i - 1].t <= 800); })([])");
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
    check_fits(b, 360, "phone");
    will(b, "document.querySelector('#chart-loss svg').clientWidth > 250");
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

/* Grey, and counted by nothing that says how many work or how fast. */
static void check_silent(struct browser *b)
{
    will(b, "/^silent for \\d+ s$/.test(document.querySelector('#workers tr.silent td.state')?.textContent)");
    will(b, TILE("workers", "value") " === '0' && " TILE("workers", "more") " === 'and 1 silent'");
    will(b, COLOR("#workers tr.silent td") " === " COLOR("#about") " && " COLOR(
                "#workers tr.silent td") " !== " COLOR("#workers tr.active td"));
    will(b, TILE("training loss", "value") " === '–'");
    will(b, "[4, 6].every(i => document.querySelector('#workers tr.silent').cells[i].textContent === '–')");
    check_fits(b, 390, "silent-390");
    check_fits(b, 1280, "silent-1280");
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
    pause_child(crew[0]);
    check_silent(&b);
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

/* A worker of a program with names of its own: rank 0 of the job. */
static struct psc *join(const struct daemon *d)
{
    static float x[4];
    const struct psc_tensor model = {.name = "w", .shape = {4}, .n_dims = 1};
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.net = HOSTILE_IMAGE;
    opt.data = HOSTILE_SCRIPT;
    opt.steps = 10;
    int rc = psc_open(&opt, &c);
    ck_assert_msg(rc == PSC_OK && psc_begin(c, &model, 1, x) == PSC_OK, "%s", psc_error(c));
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(psc_step(c, x, x, 1), PSC_OK);
    return c;
}

/* Between two looks of the page psd drains and is gone: it has said how before. */
START_TEST(a_good_end_is_said)
{
    struct daemon d;
    struct browser b;
    char url[120];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    page_url(&d, url, sizeof url);
    struct psc *c = join(&d);
    browser_start(&b, 1280, 900);
    browser_open(&b, url);
    will(&b, "document.getElementById('what')?.textContent === '" HOSTILE_IMAGE " on <script>hacked=1<' + "
             "'/script>' && typeof hacked === 'undefined'");
    will(&b, "document.getElementById('steps').textContent === '4 of 10 steps, 40 %' && "
             "document.getElementById('bar').value === 0.4");
    ck_assert(daemon_reaches(&d, "/status", "wait_for_end", 1, TEST_HANG_S));
    free(daemon_ask(&d, "POST", "/drain"));
    psc_close(c);
    ck_assert_int_eq(daemon_wait_exit(&d, 60), 0);
    will(&b, "/^The job has ended cleanly .drain was requested on the status socket.. Version 2 of the "
             "center is saved: .*center-0+2.safetensors$/.test(document.getElementById('done').textContent)");
    will(&b, "!" HIDDEN("done") " && " HIDDEN("gone") " && " HIDDEN("drain"));
    will(&b, "document.getElementById('state').textContent === 'ended' && " TILE(
                 "workers", "value") " === '0'"
                                     " && " ROWS
                                     " === 1 && document.querySelectorAll('#workers tr.ended').length === 1");
    will(&b, "job.failures >= 2 && !" HIDDEN("done") " && " HIDDEN("gone")); /* nobody answers, as was said */
    check_fits(&b, 1280, "ended-1280");
    check_fits(&b, 390, "ended-390");
    /* the longest that a tile has to show */
    will(&b, "(job.status.parameters.learning_rate_now = 0.001234, showTiles(job.status), true)");
    check_fits(&b, 1280, "long-1280");
    /* and a bad one: psd's own sentence */
    will(&b, "(job.end = {well: false, said: {error: 'a full disk'}}, showEnd(), " HIDDEN(
                 "done") ") && "
                         "!" HIDDEN("gone") " && document.getElementById('gone').textContent === 'psd has "
                                            "ended: a full disk'");
    browser_stop(&b);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {the_job_is_drawn, nothing_yet_says_what_to_start, a_good_end_is_said};
    if (!browser_found()) {
        puts("skipped: there is no chromium (apt-get install chromium)");
        return SKIPPED;
    }
    return suite_run("page", tests, 3, 500);
}
