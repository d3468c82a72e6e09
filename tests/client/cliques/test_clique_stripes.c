/* The bits of a sum depend on the values, on the members and on the algorithm alone. */
#include <string.h>

#include "client/cliques/clique.h"
#include "tests/client/cliques/clique_fixture.h"

/* A vector, and the codec it is summed with: by one call, or by several that begin at stripes. */
struct cut_sum {
    const char *codec;
    size_t calls;
    float *out; /* rank 0's */
};
enum { CUT_N = 500000 };

static float *make(int rank)
{
    struct dice dice = {(uint64_t)rank + 1};
    float *x = malloc(CUT_N * sizeof *x);
    for (size_t i = 0; i < CUT_N; i++)
        x[i] = dice_float(&dice);
    return x;
}

static void sum_by_calls(struct rig_member *m)
{
    const struct cut_sum *s = m->arg;
    float *x = make(m->index);
    rig_ok(m, m->rc);
    size_t stripe = psc_clique_stripe(m->q), each = (CUT_N / stripe / s->calls + 1) * stripe;
    for (size_t at = (CUT_N - 1) / each * each;; at -= each) { /* the last first, as gradients come */
        size_t count = CUT_N - at < each ? CUT_N - at : each;
        rig_ok(m, psc_allreduce_start(m->q, x + at, count, s->codec, NULL));
        if (at == 0)
            break;
    }
    rig_ok(m, psc_clique_wait(m->q, 0));
    if (m->index == 0)
        memcpy(s->out, x, CUT_N * sizeof *x);
    free(x);
}

START_TEST(bits_depend_neither_on_links_nor_on_calls)
{
    static const char *const codecs[] = {"raw", "int8"};
    static const char *const algorithms[] = {"ring", "tree"};
    struct rig_kind kind = {algorithms[_i], "unix:", 1, 16384, algorithms[_i]};
    float *want = malloc(CUT_N * sizeof *want), *found = malloc(CUT_N * sizeof *found);
    for (int p = 2; p <= 4; p++)
        for (size_t i = 0; i < ROWS(codecs); i++) {
            kind.links = 1;
            rig_run(&kind, p, sum_by_calls, &(struct cut_sum){codecs[i], 1, want});
            for (kind.links = 1; kind.links <= 3; kind.links += 2)
                for (size_t calls = 2; calls <= 7; calls += 5) {
                    rig_run(&kind, p, sum_by_calls, &(struct cut_sum){codecs[i], calls, found});
                    ck_assert_msg(memcmp(want, found, CUT_N * sizeof *want) == 0,
                                  "%s, %d members, %s, %u links, %zu calls: other bits", kind.name, p,
                                  codecs[i], kind.links, calls);
                }
        }
    free(want);
    free(found);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clique-stripes");
    TCase *tcase = tcase_create("stripes");
    tcase_add_loop_test(tcase, bits_depend_neither_on_links_nor_on_calls, 0, 2);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
