/* Threads of devices that do not come, leave or disagree, in a time that the test drives. */
#include <stdbool.h>

#include "tests/client/cliques/vectors_fixture.h"
#include "tests/support/driven_clock.h"

enum { DEVICES = 3, N = 5000 };

static struct psc_clique *outer;
static struct device_thread devices[DEVICES];
static float vectors[DEVICES][N];

static void sum(struct device_thread *d)
{
    d->rc = psc_allreduce(d->q, vectors[d->index], N - (size_t)(d->arg != NULL), NULL);
}

static void open_all(uint32_t step_ms)
{
    struct psc_ring_options opt;
    psc_ring_options_init(&opt, sizeof opt);
    ck_assert_int_eq(psc_ring_open(&opt, &outer), PSC_OK);
    devices_open(outer, DEVICES, step_ms, devices, sum, NULL);
}

static void close_all(void)
{
    for (int i = 0; i < DEVICES; i++) {
        psc_clique_close(devices[i].q);
        devices[i].q = NULL;
    }
    psc_clique_close(outer);
}

static void expect_loss(int i, const char *says)
{
    pthread_join(devices[i].thread, NULL);
    ck_assert_int_eq(devices[i].rc, PSC_ECLIQUE);
    assert_says(psc_clique_error(devices[i].q), says);
}

START_TEST(a_device_that_does_not_come_is_named)
{
    open_all(5000);
    device_start(&devices[0]);
    device_start(&devices[2]);
    test_clock_await_waiters(2);
    test_clock_advance_ms(4900);
    ck_assert(!devices[0].ended && !devices[2].ended);
    test_clock_advance_ms(200);
    expect_loss(0, "the devices of member 0: rank 1 did not join the call within 5 s");
    expect_loss(2, "the devices of member 0: rank 1 did not join the call within 5 s");
    close_all();
}
END_TEST

/* Device 0 too, which alone calls the clique below. */
START_TEST(a_device_that_leaves_is_named)
{
    int stays = _i == 0 ? 1 : 0;
    open_all(60000);
    device_start(&devices[stays]);
    test_clock_await_waiters(1);
    psc_clique_close(devices[_i].q);
    devices[_i].q = NULL;
    expect_loss(stays, _i == 0   ? "the devices of member 0: rank 0 has left the clique"
                       : _i == 1 ? "the devices of member 0: rank 1 has left the clique"
                                 : "the devices of member 0: rank 2 has left the clique");
    close_all();
}
END_TEST

START_TEST(devices_that_disagree_are_told_how)
{
    open_all(60000);
    devices[1].arg = &devices;
    for (int i = 0; i < DEVICES; i++)
        device_start(&devices[i]);
    for (int i = 0; i < DEVICES; i++)
        expect_loss(
            i, "rank 0 calls reduce of 5000 floats with root 0, rank 1 reduce of 4999 floats with root 0");
    close_all();
}
END_TEST

/* Device 0 waits for another member, in the clique's own thread. Its close ends that call, and the other
 * devices'. */
START_TEST(a_close_abandons_a_call_to_the_other_members)
{
    struct psc_clique *both[2];
    struct psc_threads_options opt;
    psc_threads_options_init(&opt, sizeof opt);
    opt.members = 2;
    ck_assert_int_eq(psc_threads_open(&opt, both), PSC_OK);
    devices_open(both[0], DEVICES, 60000, devices, sum, NULL);
    ck_assert_int_eq(psc_allreduce_start(devices[0].q, vectors[0], N, NULL, NULL), PSC_OK);
    device_start(&devices[1]);
    device_start(&devices[2]);
    test_clock_await_waiters(3); /* one of them waits for member 1 */
    psc_clique_close(devices[0].q);
    devices[0].q = NULL;
    expect_loss(1, "rank 0 has left the clique");
    expect_loss(2, "rank 0 has left the clique");
    ck_assert_int_eq(psc_barrier(both[1]), PSC_ECLIQUE);
    assert_says(psc_clique_error(both[1]), "rank 0 has left the clique");
    outer = both[0];
    close_all();
    psc_clique_close(both[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("devices");
    TCase *tcase = tcase_create("devices");
    tcase_add_test(tcase, a_device_that_does_not_come_is_named);
    tcase_add_loop_test(tcase, a_device_that_leaves_is_named, 0, DEVICES);
    tcase_add_test(tcase, devices_that_disagree_are_told_how);
    tcase_add_test(tcase, a_close_abandons_a_call_to_the_other_members);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
