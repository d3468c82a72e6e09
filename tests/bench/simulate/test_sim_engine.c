/* Tests of the simulator's engine: order of events, stations, random numbers. */
#include <stdlib.h>

#include "tests/bench/simulate/engine.h"
#include "tests/support/unit.h"

struct diary {
    struct sim_engine engine;
    char text[16];
    size_t n;
};

struct entry {
    struct diary *diary;
    char letter;
};

static void write_down(void *owner)
{
    struct entry *e = owner;
    e->diary->text[e->diary->n++] = e->letter;
}

START_TEST(events_run_by_time_and_then_as_they_were_made)
{
    struct diary d = {0};
    struct entry e[] = {{&d, 'a'}, {&d, 'b'}, {&d, 'c'}, {&d, 'd'}, {&d, 'e'}};
    double at[] = {3, 1, 2, 1, 3};
    for (int i = 0; i < 5; i++)
        sim_at(&d.engine, at[i], write_down, &e[i]);
    while (sim_next(&d.engine))
        continue;
    ck_assert_str_eq(d.text, "bdcae");
    ck_assert_double_eq(d.engine.now_s, 3);
    ck_assert_uint_eq(d.engine.n_run, 5);
    sim_engine_finish(&d.engine);
}
END_TEST

/* Enough events that the heap has many levels: they run in time order. */
struct ascent {
    struct sim_engine engine;
    double last_s;
};

static void note_order(void *owner)
{
    struct ascent *a = owner;
    ck_assert_double_ge(a->engine.now_s, a->last_s);
    a->last_s = a->engine.now_s;
}

START_TEST(ten_thousand_events_come_out_sorted)
{
    struct ascent a = {0};
    struct sim_dice d = {7};
    for (int i = 0; i < 10000; i++)
        sim_at(&a.engine, sim_dice_uniform(&d), note_order, &a);
    while (sim_next(&a.engine))
        continue;
    ck_assert_uint_eq(a.engine.n_run, 10000);
    sim_engine_finish(&a.engine);
}
END_TEST

/* Two servers, tasks of 3, 1, 1, 1 seconds: the last begins after the first two tasks of one second. With one
 * core for both servers the tasks run in sequence. */
START_TEST(stations_serve_in_order_of_arrival)
{
    for (int shared = 0; shared < 2; shared++) {
        struct diary d = {0};
        struct entry e[] = {{&d, 'a'}, {&d, 'b'}, {&d, 'c'}, {&d, 'd'}};
        double seconds[] = {3, 1, 1, 0.5};
        struct sim_station st, cores;
        struct sim_task tasks[4];
        sim_station_init(&cores, &d.engine, 1, NULL);
        sim_station_init(&st, &d.engine, 2, shared ? &cores : NULL);
        for (int i = 0; i < 4; i++)
            sim_station_enter(&st, &tasks[i], seconds[i], write_down, &e[i]);
        while (sim_next(&d.engine))
            continue;
        ck_assert_str_eq(d.text, shared ? "abcd" : "bcda");
        ck_assert_double_eq(d.engine.now_s, shared ? 5.5 : 3);
        ck_assert_double_eq(st.busy_s, 5.5);
        ck_assert_double_eq(cores.busy_s, shared ? 5.5 : 0);
        ck_assert_uint_eq(st.n_done, 4);
        sim_engine_finish(&d.engine);
    }
}
END_TEST

/* 100,000 draws: the mean's deviation is 0.003, the variance's 0.0045; six of them. */
START_TEST(normal_draws_are_normal_and_repeat)
{
    struct sim_dice a = {3}, b = {3};
    double sum = 0, squares = 0;
    for (int i = 0; i < 100000; i++) {
        double x = sim_dice_normal(&a);
        ck_assert_double_eq(x, sim_dice_normal(&b));
        sum += x;
        squares += x * x;
    }
    ck_assert_double_eq_tol(sum / 1e5, 0, 0.02);
    ck_assert_double_eq_tol(squares / 1e5, 1, 0.03);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("psbench plan --simulate: engine");
    TCase *tcase = tcase_create("engine");
    tcase_add_test(tcase, events_run_by_time_and_then_as_they_were_made);
    tcase_add_test(tcase, ten_thousand_events_come_out_sorted);
    tcase_add_test(tcase, stations_serve_in_order_of_arrival);
    tcase_add_test(tcase, normal_draws_are_normal_and_repeat);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
