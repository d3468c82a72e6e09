/* Tests of the simulator: cases computed by hand, and invariants of every run. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/simulate/model.h"
#include "tests/support/unit.h"

/* Expected values below are sums of a few hundred numbers: exact except for rounding. */
#define CLOSE 1e-9

/* One lane, one chunk, and links with a cost; 4 MB at 1 GB/s take 4 ms. */
static const struct plan_codec raw = {"raw", 4, 0, 0, 0};
static struct sim_machine machine1(void)
{
    struct sim_machine m = {.servers = 1, .window = 2, .chunk_floats = 1 << 20};
    m.link = (struct plan_link){.alpha_s = 1e-4, .beta_s = 1e-9, .server_beta_s = 1e-9, .lanes = 1};
    m.ring_alpha_s = 1e-4;
    m.message = m.answer = m.clique = raw;
    return m;
}

static struct sim_load load1(uint32_t workers)
{
    return (struct sim_load){.n_floats = 1e6,
                             .compute_s = 0.020,
                             .batch = 64,
                             .workers = workers,
                             .exchanges = 40,
                             .pieces = 64,
                             .seed = 1,
                             .slow_factor = 1};
}

static struct sim_result simulate(const char *text, const struct sim_machine *machine,
                                  const struct sim_load *load)
{
    struct sim_result r;
    struct sim_method m;
    struct sim_codecs codecs;
    struct ps_error err = {""};
    ck_assert_msg(sim_method_read(text, load->workers, &m, &codecs, &err) == 0, "%s", err.text);
    ck_assert_msg(sim_run(&m, machine, load, &r, &err) == 0, "%s", err.text);
    return r;
}

/* Computing, twice each of: caller 1 ns a byte, threads of the connection 0.5 and 0.25, link and server's
 * link 1 ns, latency 0.1 ms; and the lane's 10 us and 0.5 ns a byte. */
START_TEST(one_worker_alone_takes_the_sum_of_its_way)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(1);
    m.caller.byte_s = 1e-9, m.client_io.byte_s = 0.5e-9, m.server_io.byte_s = 0.25e-9;
    m.lane = (struct sim_cost){1e-5, 0.5e-9};
    double way = 4e6 * (1 + 0.5 + 0.25 + 1 + 1) * 1e-9 + 1e-4;
    struct sim_result r = simulate("async-sgd", &m, &l);
    ck_assert_double_eq_tol(r.iteration_s, 0.020 + 2 * way + 1e-5 + 2e-3, CLOSE);
    ck_assert_double_eq_tol(r.samples_s, 64 / r.iteration_s, 1e-6);
    ck_assert_double_eq_tol(r.waited, 1 - 0.020 / r.iteration_s, CLOSE);
    ck_assert_double_eq_tol(r.lanes_busy, 2.01e-3 / r.iteration_s, CLOSE);
    ck_assert_double_eq(r.staleness_mean, 0);
    m.link.half_duplex = true; /* one exchange never uses both directions at once */
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, r.iteration_s, CLOSE);
    m.message.bytes_per_float = m.answer.bytes_per_float = 2;
    m.message.encode_s = 1e-9, m.answer.decode_s = 2e-9; /* no cost at the lane; the caller processes all
                                                            values */
    way = 4e6 * 1e-9 + 2e6 * (0.5 + 0.25 + 1 + 1) * 1e-9 + 1e-4;
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 0.020 + 2 * way + 1e-5 + 2e-3 + 3e-3,
                            CLOSE);
}
END_TEST

/* By itself 4 ms, directly after an exchange 1 ms, with a clique's mean 2 ms. */
START_TEST(the_workers_own_step_depends_on_what_came_before)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(1);
    m.link.alpha_s = m.link.beta_s = m.link.server_beta_s = 0;
    l.update_s = 4e-3, l.update_warm_s = 1e-3, l.update_clique_s = 2e-3;
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 0.020, CLOSE);
    ck_assert_double_eq_tol(simulate("async-easgd:period=1", &m, &l).iteration_s, 0.021, CLOSE);
    ck_assert_double_eq_tol(simulate("async-easgd:period=4", &m, &l).iteration_s, 0.020 + 13e-3 / 4, CLOSE);
    ck_assert_double_eq_tol(simulate("downpour:period=4", &m, &l).iteration_s, 0.024, CLOSE);
    ck_assert_double_eq_tol(simulate("d-sync", &m, &l).iteration_s, 0.022, CLOSE);
}
END_TEST

/* Four chunks of a quarter each in sequence over the slowest stage, at most 2 in flight. Only links cost: 1
 * ms per chunk and direction, on the client's and the server's link, without latency. With a window of 2 one
 * chunk of work remains between arrivals and departures; a large window is a pipeline of 4 stages: 4 + 3
 * ms. */
START_TEST(chunks_follow_each_other_through_the_window)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(1);
    m.link.alpha_s = 0;
    m.chunk_floats = 250000;
    m.window = 1;
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 0.020 + 4 * 4e-3, CLOSE);
    m.window = 2;
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 0.020 + 2 * 4e-3 + 1e-3, CLOSE);
    m.window = 64;
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 0.020 + 7e-3, CLOSE);
    l.pieces = 1; /* as one piece */
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 0.020 + 16e-3, CLOSE);
    l.pieces = 64, m.link.lanes = 2; /* two lanes share the same links */
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 0.020 + 7e-3, CLOSE);
}
END_TEST

/* Only merging costs, 1 ns per byte: a round of p takes p times 4 ms after the slowest worker's computing. */
START_TEST(a_round_takes_the_slowest_and_all_merges)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(8);
    m.link.alpha_s = m.link.beta_s = m.link.server_beta_s = 0;
    m.merge.byte_s = 1e-9;
    ck_assert_double_eq_tol(simulate("sync-sgd", &m, &l).iteration_s, 0.020 + 8 * 4e-3, CLOSE);
    l.slow_share = 0.125;
    l.slow_factor = 3;
    struct sim_result r = simulate("sync-sgd", &m, &l);
    ck_assert_double_eq_tol(r.iteration_s, 0.060 + 8 * 4e-3, CLOSE);
    ck_assert_double_eq(r.staleness_p99, 0);
    ck_assert_double_eq_tol(r.waited, (7 * 0.040 / 8 + 8 * 4e-3) / r.iteration_s, CLOSE);
    ck_assert_double_eq_tol(simulate("diloco:period=5", &m, &l).iteration_s, (5 * 0.060 + 8 * 4e-3) / 5,
                            CLOSE);
}
END_TEST

/* A lane that needs 4 ms per exchange: with p workers and 20 ms of computing it is the bound from p = 6 on.
 * Below that workers arrive in turn and never wait. */
START_TEST(a_saturated_lane_is_the_bound)
{
    struct sim_machine m = machine1();
    m.link.alpha_s = m.link.beta_s = m.link.server_beta_s = 0;
    m.lane.byte_s = 1e-9;
    for (uint32_t p = 1; p <= 32; p *= 2) {
        struct sim_load l = load1(p);
        struct sim_result r = simulate("async-sgd", &m, &l);
        ck_assert_double_eq_tol(r.iteration_s, fmax(0.024, p * 0.004), 1e-6);
        ck_assert_double_eq_tol(r.lanes_busy, p * 0.004 / r.iteration_s, 0.01);
    }
    struct sim_load l = load1(8);
    l.jitter = 0.5; /* workers wait at random, and the lane is idle at times */
    struct sim_result r = simulate("async-sgd", &m, &l);
    ck_assert_double_gt(r.iteration_s, 0.032);
    ck_assert_double_lt(r.lanes_busy, 1);
}
END_TEST

/* The server's link carries all messages: p times 4 ms; two servers have one link each. */
START_TEST(the_servers_link_is_shared_and_servers_are_not)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(16);
    m.link.alpha_s = m.link.beta_s = 0;
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 16 * 4e-3, 1e-6);
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).nic_busy, 1, 0.01);
    m.servers = 4;
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 0.020 + 2e-3, 1e-3);
    m.link.half_duplex = true;
    m.servers = 1;
    ck_assert_double_eq_tol(simulate("async-sgd", &m, &l).iteration_s, 16 * 8e-3, 1e-6);
}
END_TEST

/* Equal workers take turns, so each exchange is stale by the p - 1 others. */
START_TEST(first_come_is_p_minus_1_stale)
{
    struct sim_machine m = machine1();
    static const char *const methods[] = {"async-sgd", "hogwild-sgd", "async-easgd",
                                          "original-easgd:serial=false", "ssp-sgd"};
    m.link.lanes = 2;
    m.lane.byte_s = 1e-10;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        for (uint32_t p = 2; p <= 16; p *= 2) {
            struct sim_load l = load1(p);
            struct sim_result r = simulate(methods[i], &m, &l);
            ck_assert_double_eq_tol(r.staleness_mean, p - 1, 0.1);
        }
}
END_TEST

/* One of 8 is five times slower. */
START_TEST(stale_clocks_hold_their_bound)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(8);
    static const uint32_t slacks[] = {0, 1, 3, 1000};
    struct sim_result r[4];
    m.link.alpha_s = m.link.beta_s = m.link.server_beta_s = 0;
    l.slow_share = 0.125;
    l.slow_factor = 5;
    l.exchanges = 200;
    for (int i = 0; i < 4; i++) {
        char text[40];
        snprintf(text, sizeof text, "ssp-sgd:slack=%u", slacks[i]);
        r[i] = simulate(text, &m, &l);
        ck_assert_uint_le(r[i].most_apart, slacks[i]);
        if (i < 3) { /* in the long run all run at the pace of the slowest */
            ck_assert_uint_eq(r[i].most_apart, slacks[i]);
            ck_assert_double_eq_tol(r[i].iteration_s, 0.100, 0.002);
        }
    }
    struct sim_result free_ones = simulate("async-sgd", &m, &l);
    ck_assert_double_eq(r[3].iteration_s, free_ones.iteration_s);
    ck_assert_double_eq_tol(free_ones.iteration_s, 8 / (7 / 0.020 + 1 / 0.100), 1e-4);
}
END_TEST

/* All take turns equally often, at the pace of the slowest; with serial only one computes at a time. */
START_TEST(round_robin_goes_by_rank)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(4);
    m.link.alpha_s = m.link.beta_s = m.link.server_beta_s = 0;
    m.lane.byte_s = 0.25e-9;
    ck_assert_double_eq_tol(simulate("original-easgd:serial=false", &m, &l).iteration_s, 0.021, 1e-6);
    double alone = simulate("original-easgd", &m, &l).iteration_s;
    ck_assert_double_eq_tol(alone, 4 * 0.021, 1e-3);
    /* With overlap all but the last of 8 chunks goes beside the gradient. */
    m.chunk_floats = 125000;
    double beside = simulate("original-easgd:overlap=true", &m, &l).iteration_s;
    ck_assert_double_eq_tol(beside, 4 * (0.020 + 0.001 / 8), 1e-4);
    m.chunk_floats = 1 << 20;
    l.slow_share = 0.25;
    l.slow_factor = 4;
    ck_assert_double_eq_tol(simulate("original-easgd:serial=false", &m, &l).iteration_s, 0.081, 2e-3);
    ck_assert_double_lt(simulate("async-easgd:period=1", &m, &l).iteration_s, 0.03);
}
END_TEST

/* The messages of the slow worker are late: a round does not wait for them, and they do not count as
 * samples. */
START_TEST(a_round_of_the_first_waits_for_no_straggler)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(8);
    m.link.alpha_s = m.link.beta_s = m.link.server_beta_s = 0;
    m.merge.byte_s = 1e-10;
    l.slow_share = 0.125;
    l.slow_factor = 3.5;
    struct sim_result r = simulate("backup-sgd:backup=1", &m, &l);
    double each = r.exchanges_s * (1 - r.dropped) / 7;
    ck_assert_double_eq_tol(1 / each, 0.020 + 7 * 4e-4, 1e-3);
    ck_assert_double_gt(r.dropped, 0.02);
    ck_assert_double_lt(r.dropped, 0.06);
    ck_assert_uint_gt(r.pieces_dropped, 0);
    struct sim_result q = simulate("sync-sgd:admission=quorum,quorum=7,grace_ms=0", &m, &l);
    ck_assert_double_eq_tol(q.iteration_s, r.iteration_s, CLOSE);
    q = simulate("sync-sgd:admission=quorum,quorum=4,grace_ms=30", &m, &l);
    ck_assert_double_eq_tol(q.iteration_s, 0.0503, 0.012); /* 20 ms, 30 of grace, merging */
    /* Without a dropped worker they are equal to sync. */
    struct sim_result s = simulate("sync-sgd", &m, &l);
    ck_assert_double_eq(simulate("backup-sgd:backup=0", &m, &l).iteration_s, s.iteration_s);
    ck_assert_double_eq(simulate("sync-sgd:admission=quorum,quorum=8", &m, &l).iteration_s, s.iteration_s);
}
END_TEST

/* An exchange of 16.2 ms is hidden by 20 ms of computing; with 5 ms of computing the rest is waited for. */
START_TEST(overlap_hides_the_shorter)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(1);
    ck_assert_double_eq_tol(simulate("sync-easgd:overlap=true,period=1", &m, &l).iteration_s, 0.020, CLOSE);
    l.compute_s = 0.005;
    struct sim_result r = simulate("sync-easgd:overlap=true,period=1", &m, &l);
    ck_assert_double_eq_tol(r.iteration_s, 0.0162, CLOSE);
    ck_assert_double_eq_tol(r.waited, 0.0112 / 0.0162, CLOSE);
    ck_assert_double_eq_tol(simulate("sync-easgd:overlap=true,period=4", &m, &l).iteration_s,
                            (0.015 + 0.0162) / 4, CLOSE);
    ck_assert_double_eq_tol(simulate("sync-easgd:overlap=2,period=4", &m, &l).iteration_s,
                            (0.010 + 0.0162) / 4, CLOSE);
    ck_assert_double_eq_tol(simulate("sync-easgd:overlap=4,period=4", &m, &l).iteration_s, 0.005, CLOSE);
    ck_assert_double_eq_tol(simulate("sync-easgd:overlap=auto,period=4", &m, &l).iteration_s, 0.005, CLOSE);
    l.compute_s = 0.003;
    r = simulate("sync-easgd:overlap=4,period=4", &m, &l);
    ck_assert_double_eq_tol(r.iteration_s, 0.0162 / 4, CLOSE);
    ck_assert_double_eq_tol(r.waited, 0.0042 / 0.0162, CLOSE);
}
END_TEST

/* 4 members: 6 hops of a quarter, 1 ms and 0.1 ms of latency each. The event-driven ring with enough cores
 * takes as long. On one core the work of the members adds up to 24 ms, while members that finish first
 * compute. */
START_TEST(a_ring_takes_its_closed_form)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(4);
    double sum = 6 * (1e-3 + 1e-4);
    ck_assert_double_eq_tol(simulate("d-sync", &m, &l).iteration_s, 0.020 + sum, CLOSE);
    ck_assert_double_eq_tol(simulate("pipe-sgd", &m, &l).iteration_s, 0.020, CLOSE);
    l.compute_s = 0.005;
    ck_assert_double_eq_tol(simulate("pipe-sgd", &m, &l).iteration_s, sum, CLOSE);
    ck_assert_double_eq(simulate("pipe-sgd", &m, &l).staleness_mean, 1);
    m.cores = 4;
    m.ring.byte_s = 1e-9;
    ck_assert_double_eq_tol(simulate("d-sync", &m, &l).iteration_s, 0.005 + sum, CLOSE);
    ck_assert_double_eq_tol(simulate("pipe-sgd", &m, &l).iteration_s, sum, CLOSE);
    m.cores = 1;
    m.ring_alpha_s = 0;
    ck_assert_double_ge(simulate("d-sync", &m, &l).iteration_s, 0.024);
    ck_assert_double_le(simulate("d-sync", &m, &l).iteration_s, 0.029 + CLOSE);
}
END_TEST

/* Two cliques of two: a sum to the leader (0.1 + 4 ms); an exchange of two clients whose round waits for both
 * over psd's link (0.2 ms, 4 ms per direction on their links, 12 ms on psd's: they arrive 4 ms apart, as they
 * were answered); a broadcast (0.1 + 4 ms). */
START_TEST(a_clique_is_one_client)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(4);
    struct sim_result r = simulate("mpi-sgd:members=2", &m, &l);
    ck_assert_uint_eq(r.clients, 2);
    ck_assert_double_eq_tol(r.iteration_s, 0.020 + 4.1e-3 + 20.2e-3 + 4.1e-3, CLOSE);
    ck_assert_double_eq_tol(r.samples_s, 256 / r.iteration_s, 1e-6);
    l.jitter = 0.3; /* a clique waits for its slowest member */
    double apart = simulate("mpi-asgd:members=1", &m, &l).iteration_s;
    l.workers = 64;
    ck_assert_double_gt(simulate("mpi-asgd:members=64", &m, &l).iteration_s, 1.3 * apart);
}
END_TEST

/* Everything sent arrives, is applied or dropped once, and is answered, except for pieces in flight when the
 * run ends. The run of one worker ends with its last answer. */
START_TEST(nothing_is_lost_or_made)
{
    struct sim_machine m = machine1();
    static const char *const methods[] = {"async-sgd",
                                          "hogwild-sgd",
                                          "sync-sgd",
                                          "backup-sgd",
                                          "original-easgd:serial=false",
                                          "ssp-sgd:slack=1",
                                          "sync-easgd:overlap=true",
                                          "original-easgd",
                                          "original-easgd:overlap=true"};
    m.link.lanes = 2, m.chunk_floats = 60000;
    m.message.bytes_per_float = 1, m.answer.bytes_per_float = 2;
    m.lane.byte_s = m.merge.byte_s = m.caller.byte_s = 1e-10;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        for (uint32_t p = 1; p <= 9; p += 4) {
            struct sim_load l = load1(p);
            l.jitter = 0.3;
            struct sim_result r = simulate(methods[i], &m, &l);
            uint64_t landed = r.pieces_applied + r.pieces_dropped, open = p > 1 ? p * 2 * m.window : 0;
            ck_assert_uint_ge(r.pieces_sent, landed);
            ck_assert_uint_ge(landed, r.pieces_answered);
            ck_assert_uint_le(r.pieces_sent - r.pieces_answered, open);
            ck_assert_uint_ge(r.pieces_answered, r.exchanges * 17);
            ck_assert_double_le(r.bytes_up - r.bytes_in, open * 60000.0);
            ck_assert_double_le(r.bytes_out - r.bytes_down, open * 120000.0);
            ck_assert(p > 1 || (r.bytes_up == r.bytes_in && r.bytes_out == r.bytes_down &&
                                r.bytes_up == l.exchanges * 1e6 && r.bytes_down == l.exchanges * 2e6));
        }
}
END_TEST

START_TEST(equal_seeds_give_equal_runs)
{
    struct sim_machine m = machine1();
    struct sim_load l = load1(16);
    l.jitter = 0.4;
    m.link.server_beta_s = 1e-11;
    struct sim_result a = simulate("async-sgd", &m, &l), b = simulate("async-sgd", &m, &l);
    ck_assert_mem_eq(&a, &b, sizeof a);
    l.seed = 2;
    b = simulate("async-sgd", &m, &l);
    ck_assert_double_ne(a.iteration_s, b.iteration_s);
    ck_assert_double_eq_tol(a.iteration_s, b.iteration_s, 0.1 * a.iteration_s);
}
END_TEST

/* Every row of the table runs or reports why it cannot. */
START_TEST(every_method_runs_or_says_why_not)
{
    for (const struct ps_method *row = ps_methods; row->name != NULL; row++)
        for (uint32_t p = 1; p <= 2048; p *= 8) {
            struct sim_machine machine = machine1();
            struct sim_load l = load1(p);
            struct sim_method m;
            struct sim_codecs codecs;
            struct sim_result r;
            struct ps_error err = {""};
            l.exchanges = 4;
            int rc = sim_method_read(row->name, p, &m, &codecs, &err);
            ck_assert_msg((rc == 0) == (row->rule != NULL), "%s: %s", row->name, err.text);
            if (rc < 0) {
                ck_assert_ptr_nonnull(strstr(err.text, "without psd"));
                continue;
            }
            ck_assert_msg(sim_run(&m, &machine, &l, &r, &err) == 0, "%s: %s", row->name, err.text);
            ck_assert_double_ge(r.iteration_s, l.compute_s - CLOSE);
            ck_assert_double_le(r.samples_s, p * 64 / l.compute_s * (1 + CLOSE));
        }
}
END_TEST

START_TEST(what_does_not_go_together_is_refused)
{
    struct sim_machine machine = machine1();
    struct sim_load l = load1(8);
    struct sim_method m;
    struct sim_codecs codecs;
    struct sim_result r;
    struct ps_error err = {""};
    machine.servers = 2;
    ck_assert_int_eq(sim_method_read("hogwild-sgd", 8, &m, &codecs, &err), 0);
    ck_assert_int_eq(sim_run(&m, &machine, &l, &r, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "hogwild is of one server"));
    machine.servers = 1, machine.cores = 2;
    l.workers = 128;
    ck_assert_int_eq(sim_method_read("d-sync", 128, &m, &codecs, &err), 0);
    ck_assert_int_eq(sim_run(&m, &machine, &l, &r, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "allowed are 64"));
    ck_assert_int_eq(sim_method_read("mpi-sgd:members=2", 128, &m, &codecs, &err), 0);
    ck_assert_int_eq(sim_run(&m, &machine, &l, &r, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "share cores"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("psbench plan --simulate");
    TCase *tcase = tcase_create("model");
    tcase_add_test(tcase, one_worker_alone_takes_the_sum_of_its_way);
    tcase_add_test(tcase, the_workers_own_step_depends_on_what_came_before);
    tcase_add_test(tcase, chunks_follow_each_other_through_the_window);
    tcase_add_test(tcase, a_round_takes_the_slowest_and_all_merges);
    tcase_add_test(tcase, a_saturated_lane_is_the_bound);
    tcase_add_test(tcase, the_servers_link_is_shared_and_servers_are_not);
    tcase_add_test(tcase, first_come_is_p_minus_1_stale);
    tcase_add_test(tcase, stale_clocks_hold_their_bound);
    tcase_add_test(tcase, round_robin_goes_by_rank);
    tcase_add_test(tcase, a_round_of_the_first_waits_for_no_straggler);
    tcase_add_test(tcase, overlap_hides_the_shorter);
    tcase_add_test(tcase, a_ring_takes_its_closed_form);
    tcase_add_test(tcase, a_clique_is_one_client);
    tcase_add_test(tcase, nothing_is_lost_or_made);
    tcase_add_test(tcase, equal_seeds_give_equal_runs);
    tcase_add_test(tcase, every_method_runs_or_says_why_not);
    tcase_add_test(tcase, what_does_not_go_together_is_refused);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
