/* Notes between two threads. */
#include "server/lane/queue.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/support/unit.h"

enum { N = 300000, NOTES = 8192 };

static struct psd_queue *ring_create(void)
{
    struct psd_queue *r = aligned_alloc(64, sizeof *r);
    ck_assert_ptr_nonnull(r);
    ck_assert_int_eq(psd_queue_init(r, NOTES - 100), 0);
    return r;
}

static void ring_destroy(struct psd_queue *r)
{
    psd_queue_finish(r);
    psd_queue_finish(r); /* twice is fine: setup unwinds so */
    free(r);
}

static bool is_awake(const struct psd_queue *r)
{
    struct pollfd fd = {.fd = r->wake_fd, .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

START_TEST(note_arrives_whole)
{
    struct psd_queue *r = ring_create();
    int thing;
    const struct psd_lane_message sent = {PSD_COMMAND_ADMIT, 3, 4, UINT64_MAX, 6, 9, {1, 2}, true, &thing};
    struct psd_lane_message got;
    ck_assert(!psd_queue_take(r, &got));
    psd_queue_push(r, &sent);
    ck_assert(psd_queue_take(r, &got));
    ck_assert(got.kind == sent.kind && got.client == 3 && got.incarnation == 4 && got.a == sent.a &&
              got.identity == 9 && got.pass[1] == 2 && got.attaches && got.b == 6 && got.p == &thing);
    ck_assert(!psd_queue_take(r, &got));
    ring_destroy(r);
}
END_TEST

START_TEST(wake_fd_tells_of_pushes)
{
    struct psd_queue *r = ring_create();
    struct psd_lane_message msg = {.kind = PSD_COMMAND_STOP};
    ck_assert(!is_awake(r));
    psd_queue_calm(r); /* does not wait */
    psd_queue_push(r, &msg);
    psd_queue_push(r, &msg);
    ck_assert(is_awake(r));
    psd_queue_calm(r);
    ck_assert(!is_awake(r));
    ck_assert(psd_queue_take(r, &msg) && psd_queue_take(r, &msg)); /* calm loses no notes */
    ring_destroy(r);
}
END_TEST

START_TEST(ring_holds_what_it_promises_and_wraps)
{
    struct psd_queue *r = ring_create();
    struct psd_lane_message msg = {.kind = PSD_COMMAND_END};
    uint64_t pushed = 0, taken = 0;
    ck_assert_uint_eq(psd_queue_room(r), NOTES);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < NOTES; i++) {
            msg.a = pushed++;
            psd_queue_push(r, &msg);
        }
        while (psd_queue_take(r, &msg))
            ck_assert_uint_eq(msg.a, taken++);
        ck_assert_uint_eq(taken, pushed);
    }
    ring_destroy(r);
}
END_TEST

/* The counters are 32 bits wide and run over. */
START_TEST(counters_run_over)
{
    struct psd_queue *r = ring_create();
    struct psd_lane_message msg = {.kind = PSD_COMMAND_END};
    atomic_store(&r->pushed, UINT32_MAX - 5);
    atomic_store(&r->taken, UINT32_MAX - 5);
    for (uint64_t i = 0; i < NOTES; i++) {
        msg.a = i;
        psd_queue_push(r, &msg);
    }
    for (uint64_t i = 0; i < NOTES; i++) {
        ck_assert(psd_queue_take(r, &msg));
        ck_assert_uint_eq(msg.a, i);
    }
    ck_assert(!psd_queue_take(r, &msg));
    ring_destroy(r);
}
END_TEST

struct pusher {
    struct psd_queue *ring, *back; /* back: the taker tells how far it is, so that the ring is never full */
    uint64_t *values;
};

static void *push_many(void *arg)
{
    struct pusher *p = arg;
    struct psd_lane_message msg;
    uint64_t heard = 0;
    for (uint64_t i = 0; i < N; i++) {
        while (i - heard >= NOTES) {
            struct pollfd fd = {.fd = p->back->wake_fd, .events = POLLIN};
            poll(&fd, 1, 100);
            psd_queue_calm(p->back);
            while (psd_queue_take(p->back, &msg))
                heard = msg.a;
        }
        p->values[i % NOTES] = i * 3; /* what a note points at is there when the note is */
        psd_queue_push(p->ring, &(struct psd_lane_message){
                                    .kind = PSD_COMMAND_SLICE, .a = i, .p = &p->values[i % NOTES]});
    }
    return NULL;
}

START_TEST(two_threads_keep_the_order_and_wake_each_other)
{
    struct pusher p = {ring_create(), ring_create(), calloc(NOTES, sizeof(uint64_t))};
    pthread_t thread;
    struct psd_lane_message msg;
    uint64_t want = 0;
    double deadline = unit_now_s() + 120;
    ck_assert_int_eq(pthread_create(&thread, NULL, push_many, &p), 0);
    while (want < N) { /* the taker's loop as lanes have it: calm, take all, wait */
        struct pollfd fd = {.fd = p.ring->wake_fd, .events = POLLIN};
        ck_assert(unit_now_s() < deadline);
        ck_assert_msg(poll(&fd, 1, 60000) == 1, "a wake-up got lost at note %lu", (unsigned long)want);
        psd_queue_calm(p.ring);
        while (psd_queue_take(p.ring, &msg)) {
            ck_assert_uint_eq(msg.a, want);
            ck_assert_uint_eq(*(uint64_t *)msg.p, want * 3);
            want++;
            if (want % 1000 == 0)
                psd_queue_push(p.back, &(struct psd_lane_message){.kind = PSD_LANE_SNAPPED, .a = want});
        }
    }
    pthread_join(thread, NULL);
    ring_destroy(p.ring);
    ring_destroy(p.back);
    free(p.values);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-ring");
    TCase *tc = tcase_create("ring");
    tcase_add_test(tc, note_arrives_whole);
    tcase_add_test(tc, wake_fd_tells_of_pushes);
    tcase_add_test(tc, ring_holds_what_it_promises_and_wraps);
    tcase_add_test(tc, counters_run_over);
    tcase_add_test(tc, two_threads_keep_the_order_and_wake_each_other);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
