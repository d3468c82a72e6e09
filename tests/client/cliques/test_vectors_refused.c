/* Vectors and devices that are refused, and structs of a later version. */
#include <stdint.h>

#include "client/psclique_vectors.h"
#include "tests/support/unit.h"

static struct psc_clique *open_alone(void)
{
    struct psc_ring_options opt;
    struct psc_clique *q;
    psc_ring_options_init(&opt, sizeof opt);
    ck_assert_int_eq(psc_ring_open(&opt, &q), PSC_OK);
    return q;
}

static void refuse(const struct psc_vectors_options *opt, struct psc_clique *q, int rc, const char *says)
{
    struct psc_vectors *v;
    ck_assert_int_eq(psc_vectors_open(q, opt, &v), rc);
    assert_says(psc_vectors_error(v), says);
    psc_vectors_close(v);
}

START_TEST(wrong_vectors_are_refused)
{
    static float x[3][100];
    struct psc_vector vectors[3] = {{.data = x[0]}, {.data = x[1]}, {.data = x[2]}}, good = vectors[1];
    struct psc_vectors_options opt, none = {.size = 0};
    struct psc_clique *q = open_alone();
    psc_vectors_options_init(&opt, sizeof opt);
    opt.vectors = vectors;
    opt.n_vectors = 3;
    opt.n_floats = 100;
    refuse(&opt, NULL, PSC_EINVAL, "no clique");
    refuse(NULL, q, PSC_EINVAL, "psc_vectors_options_init");
    refuse(&none, q, PSC_EINVAL, "psc_vectors_options_init");
    vectors[1].memory = "cuda";
    refuse(&opt, q, PSC_EUNSUPPORTED,
           "vector 1: memory is cuda, which cannot be summed yet; allowed is host");
    vectors[1].memory = "tape";
    refuse(&opt, q, PSC_EINVAL, "vector 1: memory is 'tape'; allowed is host");
    vectors[1] = good;
    vectors[1].device = 1;
    refuse(&opt, q, PSC_EINVAL, "vector 1: found a stream, a device or flags");
    vectors[1] = good;
    vectors[1].data = NULL;
    refuse(&opt, q, PSC_EINVAL, "vector 1: no array for 100 floats");
    vectors[1].data = x[0] + 99;
    refuse(&opt, q, PSC_EINVAL, "vectors 0 and 1 overlap");
    vectors[1] = good;
    opt.n_vectors = 0;
    refuse(&opt, q, PSC_EINVAL, "found 0; allowed are 1 to 64");
    opt.n_vectors = 65;
    refuse(&opt, q, PSC_EINVAL, "found 65; allowed are 1 to 64");
    opt.n_vectors = 3;
    opt.n_floats = SIZE_MAX / 2;
    refuse(&opt, q, PSC_EINVAL, "more than an array can hold");
    opt.n_floats = 100;
    opt.vector_size = 4;
    refuse(&opt, q, PSC_EINVAL, "vector_size is 4");
    psc_clique_close(q);
}
END_TEST

START_TEST(wrong_ranges_and_codecs_are_refused)
{
    static float x[100];
    struct psc_vector one = {.data = x};
    struct psc_vectors_options opt;
    struct psc_vectors *v;
    struct psc_clique *q = open_alone();
    psc_vectors_options_init(&opt, sizeof opt);
    opt.vectors = &one;
    opt.n_vectors = 1;
    opt.n_floats = 100;
    ck_assert_int_eq(psc_vectors_open(q, &opt, &v), PSC_OK);
    ck_assert_int_eq(psc_vectors_allreduce(v, 101, 0, NULL), PSC_EINVAL);
    ck_assert_int_eq(psc_vectors_allreduce(v, 1, 100, NULL), PSC_EINVAL);
    assert_says(psc_vectors_error(v), "floats 1 to 101; allowed are 0 to 100");
    ck_assert_int_eq(psc_vectors_allreduce(v, 0, 100, "zip"), PSC_EINVAL);
    assert_says(psc_vectors_error(v), "codec 'zip' is not known");
    ck_assert_int_eq(psc_vectors_allreduce(v, 0, 100, "raw"), PSC_OK);
    psc_vectors_close(v);
    psc_vectors_close(NULL);
    psc_clique_close(q);
}
END_TEST

/* A program that was built with a later version of the header, whose structs are longer. */
START_TEST(vectors_of_a_later_version_are_read)
{
    static float x[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
    struct later {
        struct psc_vector now;
        uint64_t more;
    } vectors[2] = {{.now = {.data = x[0]}}, {.now = {.data = x[1]}}};
    struct psc_vectors_options opt;
    struct psc_vectors *v;
    struct psc_clique *q = open_alone();
    psc_vectors_options_init(&opt, sizeof opt);
    opt.vectors = &vectors[0].now;
    opt.vector_size = sizeof *vectors;
    opt.n_vectors = 2;
    opt.n_floats = 4;
    ck_assert_int_eq(psc_vectors_open(q, &opt, &v), PSC_OK);
    ck_assert_int_eq(psc_vectors_allreduce(v, 0, 4, NULL), PSC_OK);
    for (int i = 0; i < 4; i++)
        ck_assert(x[0][i] == (float)(11 * (i + 1)) && x[1][i] == x[0][i]);
    psc_vectors_close(v);
    vectors[1].more = 1;
    refuse(&opt, q, PSC_EINVAL, "vector 1");
    psc_clique_close(q);
}
END_TEST

START_TEST(wrong_devices_are_refused)
{
    struct psc_devices_options opt;
    struct psc_clique *q = open_alone(), *out[PSC_MAX_VECTORS];
    psc_devices_options_init(&opt, sizeof opt);
    ck_assert_int_eq(psc_devices_open(q, &opt, out), PSC_EINVAL); /* no number of devices */
    opt.devices = 2;
    ck_assert_int_eq(psc_devices_open(NULL, &opt, out), PSC_EINVAL);
    ck_assert_int_eq(psc_devices_open(q, NULL, out), PSC_EINVAL);
    opt.memory = "cuda";
    ck_assert_int_eq(psc_devices_open(q, &opt, out), PSC_EUNSUPPORTED);
    opt.memory = "host";
    opt.step_ms = 99;
    ck_assert_int_eq(psc_devices_open(q, &opt, out), PSC_EINVAL);
    opt.step_ms = 100;
    opt.devices = PSC_MAX_VECTORS + 1;
    ck_assert_int_eq(psc_devices_open(q, &opt, out), PSC_EINVAL);
    psc_clique_close(q);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("vectors-refused");
    TCase *tcase = tcase_create("refused");
    tcase_add_test(tcase, wrong_vectors_are_refused);
    tcase_add_test(tcase, wrong_ranges_and_codecs_are_refused);
    tcase_add_test(tcase, vectors_of_a_later_version_are_read);
    tcase_add_test(tcase, wrong_devices_are_refused);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
