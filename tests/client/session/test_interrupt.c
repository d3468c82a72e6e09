/* Waits that the caller does not want to go on with: options.go_on. */
#include <math.h>
#include <signal.h>

#include "tests/client/psd_fixture.h"
#include "tests/support/pause.h"

enum { N = 3000, PATIENCE = 3, ENDLESS = 1000000 };

static const struct psc_tensor model = {"model", 0, {N}, 1, PSC_PARAM};
static struct daemon psd;
static float x[2][N], g[N], answer[N];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

/* Says no at the third question. */
struct patience {
    int left, asked_after;
};

static int go_on(void *arg)
{
    struct patience *p = arg;
    if (p->left == 0)
        p->asked_after++;
    else
        p->left--;
    return p->left > 0;
}

static struct psc_options options_with(struct patience *p, const char *server)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = server;
    opt.timeout_ms = 1000 * (uint32_t)UNIT_HANG_S;
    opt.retry_ms = RIG_RETRY_MS;
    opt.heartbeat_ms = RIG_HEARTBEAT_MS;
    opt.go_on = p != NULL ? go_on : NULL;
    opt.go_on_arg = p;
    *p = (struct patience){.left = PATIENCE};
    return opt;
}

static void assert_interrupted(struct psc *c, int rc, const struct patience *p)
{
    ck_assert_msg(rc == PSC_EINTERRUPTED, "%s: %s", psc_result_name(rc), psc_error(c));
    assert_says(psc_error(c), "interrupted");
    ck_assert_int_eq(p->left, 0);
    ck_assert_int_eq(p->asked_after, 0);
}

/* Every call but psc_close says so, at once and without asking. */
static void assert_of_no_use(struct psc *c, struct patience *p)
{
    ck_assert_int_eq(psc_step(c, x[0], g, 1), PSC_EINTERRUPTED);
    assert_says(psc_error(c), "allowed is only psc_close");
    ck_assert_int_eq(psc_pull(c, NULL, answer), PSC_EINTERRUPTED);
    ck_assert_int_eq(psc_wait(c, PSC_ALL), PSC_EINTERRUPTED);
    ck_assert_int_eq(p->asked_after, 0);
    psc_close(c);
}

START_TEST(nobody_is_there)
{
    struct patience p;
    struct psc_options opt = options_with(&p, "ipc:///tmp/psd-test-interrupt-nobody");
    struct psc *c;
    int rc = psc_open(&opt, &c);
    assert_interrupted(c, rc, &p);
    psc_close(c);
}
END_TEST

/* An observer waits for a worker to bring the model. */
START_TEST(the_job_has_not_begun)
{
    struct patience p;
    struct psc *c;
    rig_start(&psd, (const char *[]){"method=sync-sgd", NULL});
    struct psc_options opt = options_with(&p, psd.endpoint);
    opt.kind = PSC_OBSERVER;
    p.left = ENDLESS;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    p.left = PATIENCE;
    int rc = psc_begin(c, &model, 1, x[0]);
    assert_interrupted(c, rc, &p);
    assert_of_no_use(c, &p);
}
END_TEST

/* Two workers, of which the second does not step: the first one's exchange waits at the server. */
static void two_workers(const char *overlap, struct patience *p, struct psc **a, struct psc **b)
{
    rig_start(&psd, (const char *[]){"method=sync-easgd", "period=1", overlap, NULL});
    struct psc_options opt = options_with(p, psd.endpoint);
    *b = rig_join(&psd, &model, 1, x[1]);
    p->left = ENDLESS;
    ck_assert_int_eq(psc_open(&opt, a), PSC_OK);
    assert_ok(*a, psc_begin(*a, &model, 1, x[0]));
    p->left = PATIENCE;
}

static void the_other_goes_on(struct psc *b)
{
    assert_ok(b, psc_step(b, x[1], g, 1));
    psc_close(b);
}

START_TEST(a_round_waits_for_others)
{
    struct patience p;
    struct psc *a, *b;
    two_workers("overlap=false", &p, &a, &b);
    assert_interrupted(a, psc_step(a, x[0], g, 1), &p);
    ck_assert_uint_eq(psc_clock(a), 0);
    assert_of_no_use(a, &p);
    the_other_goes_on(b);
}
END_TEST

/* In the async thread: what is queued behind it ends, too. */
START_TEST(a_started_exchange_is_waited_for)
{
    struct patience p;
    struct psc *a, *b;
    uint64_t ticket;
    two_workers("overlap=false", &p, &a, &b);
    assert_ok(a, psc_exchange_start(a, x[0], answer, 1, &ticket));
    assert_ok(a, psc_pull_start(a, NULL, g, NULL));
    assert_interrupted(a, psc_wait(a, ticket), &p);
    assert_of_no_use(a, &p);
    the_other_goes_on(b);
}
END_TEST

/* Answers as long as it is asked, and after `left` questions with 0. */
static int go_on_unless_held(void *arg)
{
    struct patience *p = arg;
    p->asked_after++;
    return p->left-- > 0 ? PSC_GO_ON_UNLESS_HELD : 0;
}

static struct psc *join_unless_held(struct patience *p)
{
    struct psc_options opt = options_with(p, psd.endpoint);
    struct psc *c;
    opt.go_on = go_on_unless_held;
    opt.heartbeat_ms = 100;
    p->left = ENDLESS;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    assert_ok(c, psc_begin(c, &model, 1, x[0]));
    return c;
}

/* Nobody but this worker is there, and two are wanted: its message waits at the server. */
START_TEST(a_message_that_is_held_may_be_left)
{
    struct patience p;
    bool overlap = _i;
    rig_start(&psd, (const char *[]){"method=sync-easgd", "period=1", "workers=2",
                                     overlap ? "overlap=true" : "overlap=false", NULL});
    struct psc *c = join_unless_held(&p);
    int rc = psc_step(c, x[0], g, 1);
    if (rc == PSC_OK && overlap)
        rc = psc_step(c, x[0], g, 1);
    ck_assert_msg(rc == PSC_EINTERRUPTED, "%s: %s", psc_result_name(rc), psc_error(c));
    psc_close(c);
}
END_TEST

/* The server does not answer: what was sent may be on its way. */
START_TEST(a_message_that_is_not_held_is_waited_for)
{
    struct patience p;
    rig_start(&psd, (const char *[]){"method=async-easgd", "period=1", NULL});
    struct psc *c = join_unless_held(&p);
    pause_child(psd.pid);
    p = (struct patience){.left = PATIENCE};
    ck_assert_int_eq(psc_step(c, x[0], g, 1), PSC_EINTERRUPTED);
    kill(psd.pid, SIGCONT);
    ck_assert_int_eq(p.asked_after, PATIENCE + 1);
    psc_close(c);
}
END_TEST

START_TEST(an_overlapped_exchange_is_waited_for)
{
    struct patience p;
    struct psc *a, *b;
    two_workers("overlap=true", &p, &a, &b);
    p.left = ENDLESS;
    assert_ok(b, psc_exchange_start(b, x[1], answer, 1, NULL)); /* the first round */
    assert_ok(a, psc_step(a, x[0], g, 1));
    assert_ok(b, psc_wait(b, PSC_ALL));
    p.left = PATIENCE;
    assert_interrupted(a, psc_step(a, x[0], g, 1), &p);
    assert_of_no_use(a, &p);
    psc_close(b);
}
END_TEST

/* An evaluator asks whether psd wants its vector, and psd does not answer. */
START_TEST(an_offered_vector_is_waited_for)
{
    struct patience p;
    struct psc *a, *b;
    two_workers("overlap=false", &p, &a, &b);
    p.left = ENDLESS;
    struct psc_options opt = options_with(&p, psd.endpoint);
    opt.kind = PSC_OBSERVER;
    struct psc *observer;
    p.left = ENDLESS;
    ck_assert_int_eq(psc_open(&opt, &observer), PSC_OK);
    assert_ok(observer, psc_begin(observer, &model, 1, answer));
    const struct psc_metrics m = {.size = sizeof m,
                                  .loss = NAN,
                                  .accuracy = NAN,
                                  .samples_per_second = NAN,
                                  .test_loss = 1,
                                  .test_accuracy = 0.5,
                                  .vector = answer};
    pause_child(psd.pid);
    p.left = PATIENCE;
    assert_interrupted(observer, psc_report(observer, &m), &p);
    kill(psd.pid, SIGCONT);
    ck_assert_int_eq(psc_report(observer, &m), PSC_EINTERRUPTED);
    psc_close(observer);
    psc_close(a);
    psc_close(b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-interrupt");
    TCase *tc = tcase_create("interrupt");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_test(tc, nobody_is_there);
    tcase_add_test(tc, the_job_has_not_begun);
    tcase_add_test(tc, a_round_waits_for_others);
    tcase_add_test(tc, a_started_exchange_is_waited_for);
    tcase_add_loop_test(tc, a_message_that_is_held_may_be_left, 0, 2);
    tcase_add_test(tc, a_message_that_is_not_held_is_waited_for);
    tcase_add_test(tc, an_overlapped_exchange_is_waited_for);
    tcase_add_test(tc, an_offered_vector_is_waited_for);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
