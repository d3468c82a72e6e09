/* Sums along the tree: each is the sum that the tree's shape says, bit for bit, whoever starts first, over
 * any number of links, and to every root. What chooses between tree and ring. */
#include <math.h>
#include <string.h>

#include "client/cliques/clique.h"
#include "client/cliques/ring/tree.h"
#include "tests/client/cliques/clique_fixture.h"

enum { N = 9000 };

static void make(int rank, float *x)
{
    struct dice dice = {(uint64_t)rank * 77 + 5};
    for (size_t i = 0; i < N; i++)
        x[i] = dice_float(&dice) * (float)(1 << (i % 11));
}

/* What a member of the tree passes on: its own values, then those of its neighbours below, in the order of
 * their ranks, the parent's last. `from`: where the sum goes; -1: this is the root. */
static void sum_at(int rank, int from, int members, float *out)
{
    float *below = malloc(N * sizeof *below);
    make(rank, out);
    for (int bit = 1; rank + bit < members && (rank & bit) == 0; bit <<= 1)
        if (rank + bit != from) {
            sum_at(rank + bit, rank, members, below);
            for (size_t i = 0; i < N; i++)
                out[i] += below[i];
        }
    int parent = rank & (rank - 1);
    if (rank > 0 && parent != from) {
        sum_at(parent, rank, members, below);
        for (size_t i = 0; i < N; i++)
            out[i] += below[i];
    }
    free(below);
}

/* Starts the members one after the other, `first` before the others; each is at the rendezvous before the
 * next. */
static void run_from(const struct rig_kind *kind, int members, int first, void (*body)(struct rig_member *m))
{
    struct rig r;
    rig_init(&r, kind, members, body, NULL);
    for (int i = 0; i < members; i++)
        rig_start(&r, (first + i * (members - 1)) % members);
    rig_join(&r, members);
    rig_finish(&r);
}

static void sum_twice(struct rig_member *m)
{
    float *x = malloc(N * sizeof *x), *want = malloc(N * sizeof *want);
    rig_ok(m, m->rc);
    sum_at(0, -1, m->rig->members, want);
    for (int k = 0; k < 2; k++) {
        make(m->index, x);
        rig_ok(m, psc_allreduce(m->q, x, N, NULL));
        ck_assert_msg(memcmp(x, want, N * sizeof *x) == 0, "%d members, rank %d: not the tree's sum",
                      m->rig->members, m->index);
    }
    free(x);
    free(want);
}

START_TEST(a_sum_is_the_trees_whoever_comes_first)
{
    const struct rig_kind kinds[] = {{"one link", "unix:", 1, 8192, "tree"},
                                     {"three links", "unix:", 3, 4096, "tree"}};
    for (size_t k = 0; k < ROWS(kinds); k++)
        for (int first = 0; first < _i; first++)
            run_from(&kinds[k], _i, first, sum_twice);
}
END_TEST

static void reduce_to_each(struct rig_member *m)
{
    float *x = malloc(N * sizeof *x), *want = malloc(N * sizeof *want);
    rig_ok(m, m->rc);
    for (int root = 0; root < m->rig->members; root++) {
        make(m->index, x);
        rig_ok(m, psc_reduce(m->q, x, N, root, NULL));
        if (m->index != root)
            continue;
        sum_at(root, -1, m->rig->members, want);
        ck_assert_msg(memcmp(x, want, N * sizeof *x) == 0, "%d members, root %d: not the tree's sum",
                      m->rig->members, root);
    }
    free(x);
    free(want);
}

START_TEST(a_reduce_is_the_trees_to_every_root)
{
    static const struct rig_kind kind = {"tree", "unix:", 2, 4096, "tree"};
    rig_run(&kind, _i, reduce_to_each, NULL);
}
END_TEST

/* The algorithm changes between calls, as a clique's does when its psd says which. */
static void change_the_algorithm(struct rig_member *m)
{
    static const char *const names[] = {"tree", "auto", "ring", "tree", "tree"};
    float *x = malloc(N * sizeof *x);
    rig_ok(m, m->rc);
    for (size_t k = 0; k < ROWS(names); k++) {
        rig_ok(m, psc_clique_use(m->q, names[k]));
        for (size_t i = 0; i < N; i++)
            x[i] = (float)(m->index + (int)i);
        rig_ok(m, psc_allreduce(m->q, x, N, "fp16"));
        ck_assert_float_eq(x[3], (float)(m->rig->members * 3 + m->rig->members * (m->rig->members - 1) / 2));
    }
    ck_assert_int_eq(psc_clique_use(m->q, "star"), PSC_EINVAL);
    assert_says(psc_clique_error(m->q), "'star'; allowed are ring, tree and auto");
    free(x);
}

START_TEST(the_algorithm_may_change_between_calls)
{
    static const struct rig_kind kind = {"ring", "unix:", 1, 65536, NULL};
    rig_run(&kind, 5, change_the_algorithm, NULL);
}
END_TEST

/* Where the two formulas of algorithms.c meet. */
START_TEST(auto_takes_the_shorter_way)
{
    const double alpha = 5e-5, beta = 8e-9; /* 1 Gb/s */
    ck_assert_uint_eq(psc_tree_bytes(2, alpha, beta), 0);
    ck_assert_uint_eq(psc_tree_bytes(3, alpha, beta), 0);
    for (uint32_t p = 4; p <= 1024; p *= 2) {
        double n = (double)psc_tree_bytes(p, alpha, beta), hops = log2(p);
        ck_assert_double_gt(n, 1000);
        for (double part = 0.5; part <= 2; part *= 4) {
            double ring = 2 * (p - 1) * alpha + 2.0 * (p - 1) / p * part * n * beta;
            double tree = 2 * hops * (alpha + part * n * beta);
            ck_assert_msg((tree < ring) == (part < 1), "%u members, %.0f bytes: tree %g s, ring %g s", p,
                          part * n, tree, ring);
        }
    }
    ck_assert_uint_eq(psc_tree_bytes(8, 0, beta), 0);      /* nothing to be saved */
    ck_assert_uint_gt(psc_tree_bytes(8, alpha, -1e-9), 0); /* a measure that is none */
    ck_assert_uint_eq(psc_tree_bytes(8, NAN, beta), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clique-tree");
    TCase *tcase = tcase_create("tree");
    tcase_add_loop_test(tcase, a_sum_is_the_trees_whoever_comes_first, 2, RIG_MAX_MEMBERS + 1);
    tcase_add_loop_test(tcase, a_reduce_is_the_trees_to_every_root, 2, RIG_MAX_MEMBERS + 1);
    tcase_add_test(tcase, the_algorithm_may_change_between_calls);
    tcase_add_test(tcase, auto_takes_the_shorter_way);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
