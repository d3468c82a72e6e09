/* Every function of the header, called out of order and with arguments that are not allowed: a typed result
 * and a sentence that names the call, and the handle goes on. */
#include "tests/client/psd_fixture.h"

enum { N = RIG_N };

static struct daemon psd;
static float x[N], y[N];
static uint64_t ticket;

static void start_psd(void)
{
    static const char *const settings[] = {"method=async-sgd", "learning_rate=1", RIG_CUT, NULL};
    rig_start(&psd, settings);
}

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static int begin(struct psc *c)
{
    return psc_begin(c, rig_model, RIG_TENSORS, NULL);
}

static int step_once(struct psc *c)
{
    return psc_step(c, x, y, 1);
}

static int step_nowhere(struct psc *c)
{
    return psc_step(c, NULL, y, 1);
}

static int exchange(struct psc *c)
{
    return psc_exchange(c, x, y, 1);
}

static int exchange_overlapping(struct psc *c)
{
    return psc_exchange(c, x, x + 1, 1);
}

static int init(struct psc *c)
{
    return psc_init(c, "conv.weight", x);
}

static int init_unknown(struct psc *c)
{
    return psc_init(c, "conv.bias", x);
}

static int pull(struct psc *c)
{
    return psc_pull(c, NULL, x);
}

static int pull_average(struct psc *c)
{
    return psc_pull_average(c, NULL, x); /* the job's averaging is none */
}

static int pull_nowhere(struct psc *c)
{
    return psc_pull(c, "conv.weight", NULL);
}

static int pull_unknown(struct psc *c)
{
    return psc_pull(c, "", x);
}

static int push(struct psc *c)
{
    return psc_push(c, "conv.weight", x, 1);
}

static int push_frozen(struct psc *c)
{
    return psc_push(c, "embedding", x, 1);
}

static int pushpull(struct psc *c)
{
    return psc_pushpull(c, "conv.weight", x, y, 1);
}

static int pushpull_nowhere(struct psc *c)
{
    return psc_pushpull(c, "conv.weight", x, NULL, 1);
}

static int pushpull_overlapping(struct psc *c)
{
    return psc_pushpull(c, "conv.weight", x, x + 2499, 1);
}

static int exchange_start(struct psc *c)
{
    return psc_exchange_start(c, x, y, 1, &ticket);
}

static int init_start(struct psc *c)
{
    return psc_init_start(c, NULL, x, NULL);
}

static int pull_start(struct psc *c)
{
    return psc_pull_start(c, NULL, x, &ticket);
}

static int pull_average_start(struct psc *c)
{
    return psc_pull_average_start(c, "conv.weight", x, &ticket);
}

static int pull_start_nowhere(struct psc *c)
{
    return psc_pull_start(c, NULL, NULL, &ticket);
}

static int push_start(struct psc *c)
{
    return psc_push_start(c, NULL, x, 1, &ticket);
}

static int push_start_unknown(struct psc *c)
{
    return psc_push_start(c, "fc", x, 1, &ticket);
}

static int pushpull_start(struct psc *c)
{
    return psc_pushpull_start(c, NULL, x, y, 1, &ticket);
}

static int pushpull_start_frozen(struct psc *c)
{
    return psc_pushpull_start(c, "embedding", x, y, 1, &ticket);
}

static int wait_all(struct psc *c)
{
    return psc_wait(c, PSC_ALL);
}

static int wait_unknown(struct psc *c)
{
    return psc_wait(c, UINT64_MAX);
}

static int save(struct psc *c)
{
    return psc_save(c, "/nowhere/state", x, NULL, 0);
}

static int load(struct psc *c)
{
    return psc_load(c, "/nowhere/state", x, NULL, 0, NULL);
}

static int report_nothing(struct psc *c)
{
    return psc_report(c, NULL);
}

static int report_without_size(struct psc *c)
{
    return psc_report(c, &(struct psc_metrics){.size = 0});
}

static int report_of_no_size(struct psc *c)
{
    static union {
        struct psc_metrics metrics;
        unsigned char bytes[2 * 4096];
    } larger;
    larger.metrics.size = sizeof larger;
    return psc_report(c, &larger.metrics);
}

static int info_without_size(struct psc *c)
{
    struct psc_info info = {.size = 0};
    return psc_info(c, &info);
}

#define ANY   (1u << BEFORE | 1u << OBSERVER | 1u << WORKER) /* wrong in every state */
#define EARLY (1u << BEFORE)                                 /* before psc_begin */
#define OWN   (1u << BEFORE | 1u << OBSERVER)                /* not before psc_begin, nor an observer's */
enum { BEFORE, OBSERVER, WORKER };

static const struct {
    int (*call)(struct psc *c);
    unsigned wrong;   /* in these states it is PSC_EINVAL */
    const char *name; /* in the sentence */
} rows[] = {
    {begin, ANY, "psc_begin: "},
    {step_once, OWN, "psc_step: "},
    {step_nowhere, ANY, "psc_step: "},
    {exchange, OWN, "psc_exchange: "},
    {exchange_overlapping, ANY, "psc_exchange: "},
    {init, OWN, "psc_init: "},
    {init_unknown, ANY, "psc_init: "},
    {pull, EARLY, "psc_pull: "},
    {pull_average, ANY, "psc_pull_average: "},
    {pull_nowhere, ANY, "psc_pull: "},
    {pull_unknown, ANY, "psc_pull: "},
    {push, OWN, "psc_push: "},
    {push_frozen, ANY, "psc_push: "},
    {pushpull, OWN, "psc_pushpull: "},
    {pushpull_nowhere, ANY, "psc_pushpull: "},
    {pushpull_overlapping, ANY, "psc_pushpull: "},
    {exchange_start, OWN, "psc_exchange_start: "},
    {init_start, OWN, "psc_init_start: "},
    {pull_start, EARLY, "psc_pull_start: "},
    {pull_average_start, ANY, "psc_pull_average_start: "},
    {pull_start_nowhere, ANY, "psc_pull_start: "},
    {push_start, OWN, "psc_push_start: "},
    {push_start_unknown, ANY, "psc_push_start: "},
    {pushpull_start, OWN, "psc_pushpull_start: "},
    {pushpull_start_frozen, ANY, "psc_pushpull_start: "},
    {wait_all, EARLY, "psc_wait: "},
    {wait_unknown, ANY, "psc_wait: "},
    {save, OWN, "psc_save: "},
    {load, OWN, "psc_load: "},
    {report_nothing, ANY, "psc_report: "},
    {report_without_size, ANY, "psc_report: "},
    {report_of_no_size, ANY, "psc_report: "},
    {info_without_size, ANY, "psc_info: "},
};

static void call_all(struct psc *c, int state)
{
    for (size_t i = 0; i < ROWS(rows); i++) {
        bool wrong = rows[i].wrong >> state & 1;
        int rc = rows[i].call(c);
        if (wrong) {
            ck_assert_msg(rc == PSC_EINVAL, "%s in state %d: %s: %s", rows[i].name, state,
                          psc_result_name(rc), psc_error(c));
            assert_says(psc_error(c), rows[i].name);
        } else if (rows[i].call == save || rows[i].call == load) {
            ck_assert(rc == PSC_ESYSTEM || rc == PSC_EINVAL);
            assert_says(psc_error(c), rows[i].name);
        } else {
            ck_assert_msg(rc == PSC_OK && psc_error(c)[0] == 0, "%s in state %d: %s: %s", rows[i].name, state,
                          psc_result_name(rc), psc_error(c));
        }
        if (state != BEFORE) /* arrays are the caller's again */
            assert_ok(c, psc_wait(c, PSC_ALL));
    }
}

START_TEST(every_call_says_what_is_wrong_with_it)
{
    struct psc_options opt;
    struct psc *worker = rig_open(&psd, NULL, NULL), *observer;
    call_all(worker, BEFORE);
    assert_ok(worker, psc_begin(worker, rig_model, RIG_TENSORS, x));
    call_all(worker, WORKER);
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.kind = PSC_OBSERVER;
    assert_ok(observer, psc_open(&opt, &observer));
    assert_ok(observer, psc_begin(observer, rig_model, RIG_TENSORS, x));
    call_all(observer, OBSERVER);
    psc_close(observer);
    memset(y, 0, sizeof y);
    assert_ok(worker, psc_step(worker, x, y, 1)); /* and nothing of that hurt */
    psc_close(worker);
}
END_TEST

/* A handle whose session failed refuses all of it, without a crash. */
START_TEST(handle_without_a_session_refuses_every_call)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = "tcp://127.0.0.1:1";
    opt.timeout_ms = 100;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_EGONE);
    for (size_t i = 0; i < ROWS(rows); i++) {
        ck_assert_int_eq(rows[i].call(c), PSC_EINVAL);
        assert_says(psc_error(c), rows[i].name);
    }
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-calls");
    TCase *tc = tcase_create("calls");
    tcase_add_checked_fixture(tc, start_psd, stop_psd);
    tcase_add_test(tc, every_call_says_what_is_wrong_with_it);
    tcase_add_test(tc, handle_without_a_session_refuses_every_call);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
