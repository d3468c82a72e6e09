/* Manifests: what is refused, by which sentence, and when two are equal. */
#include "proto/model/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/unit.h"

#define MAX_FLOATS 1000000

static struct ps_tensor tensor(const char *name, uint64_t offset, uint64_t rows, uint64_t columns)
{
    return (struct ps_tensor){(char *)(uintptr_t)name, offset, {rows, columns}, 2, PS_ROLE_PARAM};
}

static struct ps_manifest *good(const struct ps_tensor *tensors, size_t n)
{
    struct ps_manifest *m = NULL;
    struct ps_error err = {""};
    ck_assert_msg(ps_manifest_create(tensors, n, MAX_FLOATS, &m, &err) == 0, "%s", err.text);
    return m;
}

START_TEST(manifest_is_a_copy)
{
    char name[] = "fc1.weight";
    struct ps_tensor tensors[] = {tensor(name, 0, 3, 5), tensor("fc1.bias", 15, 1, 3)};
    struct ps_manifest *m = good(tensors, 2);
    memset(name, 'x', strlen(name));
    tensors[1].offset = 99;
    ck_assert_str_eq(m->tensors[0].name, "fc1.weight");
    ck_assert_uint_eq(m->tensors[1].offset, 15);
    ck_assert_uint_eq(m->n_tensors, 2);
    ck_assert_uint_eq(m->n_floats, 18);
    ps_manifest_destroy(m);
    ps_manifest_destroy(NULL);
}
END_TEST

#define LONG_128                                                                                             \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"                                       \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* The second of two tensors is bad; the first ends at float 10. */
static const struct {
    struct ps_tensor t;
    const char *says[3];
} bad_tensors[] = {
    {{NULL, 10, {1}, 1, 0}, {"tensor 1", "1 to 127 bytes"}},
    {{"", 10, {1}, 1, 0}, {"tensor 1", "1 to 127 bytes"}},
    {{LONG_128, 10, {1}, 1, 0}, {"tensor 1", "1 to 127 bytes"}},
    {{"a\nb", 10, {1}, 1, 0}, {"tensor 1", "control characters"}},
    {{"a\x7f", 10, {1}, 1, 0}, {"tensor 1", "control characters"}},
    {{"a\x1b[0m", 10, {1}, 1, 0}, {"tensor 1", "control characters"}},
    {{"a\xc2\x9bm", 10, {1}, 1, 0}, {"tensor 1", "control characters"}},
    {{"first", 10, {1}, 1, 0}, {"'first'", "unique"}},
    {{"b", 10, {1}, 0, 0}, {"tensor 1 'b'", "0 dimensions, and a size of 1", "1 to 8"}},
    {{"b", 10, {1, 1, 1, 1, 1, 1, 1, 1}, 9, 0}, {"tensor 1 'b'", "9 dimensions", "0, a scalar, to 8"}},
    {{"b", 10, {1}, UINT32_MAX, 0}, {"tensor 1 'b'", "0, a scalar, to 8"}},
    {{"b", 10, {1}, 1, 3}, {"tensor 1 'b'", "role 3", "0 (param), 1 (buffer), 2 (frozen)"}},
    {{"b", 10, {1}, 1, 0, 2}, {"tensor 1 'b'", "decay 2", "0 (decays) and 1 (does not)"}},
    {{"b", 11, {1}, 1, 0}, {"tensor 1 'b'", "offset 11", "at 10"}},
    {{"b", 9, {1}, 1, 0}, {"tensor 1 'b'", "offset 9", "at 10"}},
    {{"b", 0, {1}, 1, 0}, {"tensor 1 'b'", "offset 0", "at 10"}},
    {{"b", 10, {3, 0}, 2, 0}, {"tensor 1 'b'", "dimension 1 is 0", "at least 1"}},
    {{"b", 10, {0, 3}, 2, 0}, {"tensor 1 'b'", "dimension 0 is 0", "at least 1"}},
    {{"b", 10, {UINT64_C(1) << 32, UINT64_C(1) << 32}, 2, 0}, {"tensor 1 'b'", "1000000"}},
    {{"b", 10, {1000, 1000, UINT64_MAX}, 3, 0}, {"tensor 1 'b'", "dimension 2", "1000000"}},
    {{"b", 10, {MAX_FLOATS + 1}, 1, 0}, {"tensor 1 'b'", "1000001", "at most 1000000"}},
    {{"b", 10, {MAX_FLOATS - 9}, 1, 0}, {"tensor 1 'b'", "float 1000001", "limits.floats"}},
};

START_TEST(bad_tensor_is_named)
{
    struct ps_tensor tensors[] = {tensor("first", 0, 2, 5), bad_tensors[_i].t};
    struct ps_manifest *m = (struct ps_manifest *)(uintptr_t)1;
    struct ps_error err = {""};
    ck_assert_int_eq(ps_manifest_create(tensors, 2, MAX_FLOATS, &m, &err), -EINVAL);
    ck_assert_ptr_eq(m, (struct ps_manifest *)(uintptr_t)1);
    for (size_t k = 0; k < 3 && bad_tensors[_i].says[k] != NULL; k++)
        assert_says(err.text, bad_tensors[_i].says[k]);
}
END_TEST

START_TEST(a_scalar_is_a_tensor)
{
    struct ps_tensor tensors[] = {{"scale", 0, {0}, 0, 0}, tensor("first", 1, 2, 5)};
    struct ps_manifest *m = good(tensors, 2);
    ck_assert_uint_eq(m->n_floats, 11);
    struct ps_range range = ps_tensor_range(&m->tensors[0]);
    ck_assert_uint_eq(range.begin, 0);
    ck_assert_uint_eq(range.count, 1);
    ps_manifest_destroy(m);
}
END_TEST

START_TEST(largest_that_is_allowed_is_taken)
{
    struct ps_tensor tensors[] = {tensor("first", 0, 2, 5),
                                  {LONG_128 "", 10, {MAX_FLOATS - 10}, 1, PS_ROLE_BUFFER}};
    char name[PS_MAX_NAME_BYTES + 1] = {0};
    memset(name, 'n', PS_MAX_NAME_BYTES);
    tensors[1].name = name;
    struct ps_manifest *m = good(tensors, 2);
    ck_assert_uint_eq(m->n_floats, MAX_FLOATS);
    ps_manifest_destroy(m);
}
END_TEST

START_TEST(offsets_do_not_wrap_around)
{
    struct ps_tensor tensors[] = {{"a", 0, {UINT64_MAX}, 1, 0}, {"b", UINT64_MAX, {2}, 1, 0}};
    struct ps_manifest *m;
    struct ps_error err;
    ck_assert_int_eq(ps_manifest_create(tensors, 2, UINT64_MAX, &m, &err), -EINVAL);
    assert_says(err.text, "tensor 1 'b'");
}
END_TEST

START_TEST(number_of_tensors_is_bounded)
{
    size_t n = PS_MAX_TENSORS + 1;
    struct ps_tensor *tensors = calloc(n, sizeof *tensors);
    char(*names)[8] = calloc(n, sizeof *names);
    struct ps_manifest *m;
    struct ps_error err;

    ck_assert(tensors != NULL && names != NULL);
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "t%zu", i);
        tensors[i] = tensor(names[i], i, 1, 1);
    }
    ck_assert_int_eq(ps_manifest_create(tensors, 0, MAX_FLOATS, &m, &err), -EINVAL);
    assert_says(err.text, "0 tensors; allowed are 1 to 65536");
    ck_assert_int_eq(ps_manifest_create(tensors, n, MAX_FLOATS, &m, &err), -EINVAL);
    assert_says(err.text, "65537 tensors");
    m = good(tensors, n - 1);
    ck_assert_uint_eq(m->n_floats, PS_MAX_TENSORS);
    ps_manifest_destroy(m);
    free(names);
    free(tensors);
}
END_TEST

/* The second tensor, and what it becomes. */
static const struct {
    struct ps_tensor other;
    const char *says;
} differences[] = {
    {{"fc1.weight", 6, {500, 800}, 2, 0}, NULL},
    {{"fc1.weight", 6, {500, 800, 777}, 2, 0}, NULL}, /* beyond n_dims: nobody's */
    {{"fc1.weight", 6, {500, 784}, 2, 0},
     "tensor 1: 'fc1.weight' [500,784] here, 'fc1.weight' [500,800] in the job"},
    {{"fc1.weight", 6, {800, 500}, 2, 0}, "tensor 1: 'fc1.weight' [800,500] here"},
    {{"fc1.weight", 6, {500, 800, 1}, 3, 0}, "tensor 1: 'fc1.weight' [500,800,1] here"},
    {{"fc1.weighs", 6, {500, 800}, 2, 0}, "tensor 1: 'fc1.weighs' [500,800] here"},
    {{"fc1.weight", 6, {500, 800}, 2, PS_ROLE_BUFFER}, "tensor 1: 'fc1.weight' [500,800] buffer here"},
    {{"fc1.weight", 6, {500, 800}, 2, PS_ROLE_FROZEN}, "tensor 1: 'fc1.weight' [500,800] frozen here"},
};

START_TEST(difference_is_named_and_hashed)
{
    struct ps_tensor job[] = {tensor("conv1", 0, 2, 3), tensor("fc1.weight", 6, 500, 800)};
    struct ps_tensor mine[] = {job[0], differences[_i].other};
    struct ps_manifest *a = good(job, 2), *b = good(mine, 2);
    struct ps_error err = {""};
    int rc = ps_manifest_compare(b, a, &err);
    if (differences[_i].says == NULL) {
        ck_assert_int_eq(rc, 0);
        ck_assert_uint_eq(a->hash, b->hash);
    } else {
        ck_assert_int_eq(rc, -EINVAL);
        assert_says(err.text, differences[_i].says);
        ck_assert_uint_ne(a->hash, b->hash);
    }
    ps_manifest_destroy(a);
    ps_manifest_destroy(b);
}
END_TEST

START_TEST(missing_tensor_is_told)
{
    struct ps_tensor tensors[] = {tensor("a", 0, 2, 3), tensor("b", 6, 2, 3)};
    struct ps_manifest *two = good(tensors, 2), *one = good(tensors, 1);
    struct ps_error err;
    ck_assert_int_eq(ps_manifest_compare(one, two, &err), -EINVAL);
    ck_assert_str_eq(err.text, "1 tensors here, 2 in the job");
    ck_assert_int_eq(ps_manifest_compare(two, one, &err), -EINVAL);
    ck_assert_str_eq(err.text, "2 tensors here, 1 in the job");
    ck_assert_uint_ne(one->hash, two->hash);
    ps_manifest_destroy(one);
    ps_manifest_destroy(two);
}
END_TEST

/* Names and shapes as long as they come: the sentence is cut, not overrun. */
START_TEST(longest_difference_fits_its_sentence)
{
    char name[PS_MAX_NAME_BYTES + 1] = {0};
    memset(name, 'n', PS_MAX_NAME_BYTES);
    struct ps_tensor a = {name, 0, {1, 1, 1, 1, 1, 1, 1, UINT64_MAX}, 8, PS_ROLE_BUFFER}, b = a;
    struct ps_manifest *mine, *job;
    struct ps_error err;
    b.shape[7]--;
    b.shape[0] = 1;
    ck_assert_int_eq(ps_manifest_create(&a, 1, UINT64_MAX, &mine, &err), 0);
    ck_assert_int_eq(ps_manifest_create(&b, 1, UINT64_MAX, &job, &err), 0);
    ck_assert_int_eq(ps_manifest_compare(mine, job, &err), -EINVAL);
    assert_says(err.text, "18446744073709551615] buffer here");
    assert_says(err.text, "18446744073709551614] buffer in the job");
    ps_manifest_destroy(mine);
    ps_manifest_destroy(job);
}
END_TEST

static const struct ps_tensor mixed[] = {
    {"a", 0, {10}, 1, PS_ROLE_PARAM, PS_DECAY},      {"b", 10, {3, 5}, 2, PS_ROLE_PARAM, PS_DECAY},
    {"c", 25, {5}, 1, PS_ROLE_PARAM, PS_NO_DECAY},   {"d", 30, {70}, 1, PS_ROLE_BUFFER, PS_NO_DECAY},
    {"e", 100, {900}, 1, PS_ROLE_FROZEN, PS_DECAY},  {"f", 1000, {4000}, 1, PS_ROLE_FROZEN, PS_NO_DECAY},
    {"g", 5000, {1000}, 1, PS_ROLE_PARAM, PS_DECAY},
};

START_TEST(segments_are_the_longest_runs)
{
    static const struct ps_segment want[] = {{{0, 25}, PS_ROLE_PARAM, PS_DECAY},
                                             {{25, 5}, PS_ROLE_PARAM, PS_NO_DECAY},
                                             {{30, 70}, PS_ROLE_BUFFER, PS_NO_DECAY},
                                             {{100, 4900}, PS_ROLE_FROZEN, PS_DECAY},
                                             {{5000, 1000}, PS_ROLE_PARAM, PS_DECAY}};
    struct ps_manifest *m;
    ck_assert_int_eq(ps_manifest_create(mixed, ROWS(mixed), 6000, &m, NULL), 0);
    ck_assert_uint_eq(m->n_segments, ROWS(want));
    for (size_t i = 0; i < ROWS(want); i++) {
        ck_assert_uint_eq(m->segments[i].range.begin, want[i].range.begin);
        ck_assert_uint_eq(m->segments[i].range.count, want[i].range.count);
        ck_assert_uint_eq(m->segments[i].role, want[i].role);
        ck_assert(m->segments[i].decay == want[i].decay || want[i].role == PS_ROLE_FROZEN);
        for (uint64_t at = want[i].range.begin; at < want[i].range.begin + want[i].range.count; at++)
            assert_quick(ps_manifest_segment(m, at) == &m->segments[i]);
    }
    ps_manifest_destroy(m);
}
END_TEST

static void assert_trimmed(const struct ps_manifest *m, struct ps_range r, struct ps_range want)
{
    struct ps_range found = ps_manifest_trim(m, r);
    ck_assert_uint_eq(found.begin, want.begin);
    ck_assert_uint_eq(found.count, want.count);
}

START_TEST(what_is_frozen_whole_does_not_move)
{
    const struct ps_shard one = {6000, 1, 1024}, two = {6000, 2, 1024};
    struct ps_manifest *m;
    ck_assert_int_eq(ps_manifest_create(mixed, ROWS(mixed), 6000, &m, NULL), 0);
    ck_assert(ps_manifest_is_frozen(m, (struct ps_range){100, 4900}));
    ck_assert(ps_manifest_is_frozen(m, (struct ps_range){999, 2}));
    ck_assert(!ps_manifest_is_frozen(m, (struct ps_range){99, 2}));
    ck_assert(!ps_manifest_is_frozen(m, (struct ps_range){4999, 2}));
    ck_assert(!ps_manifest_is_frozen(m, (struct ps_range){0, 6000}));
    assert_trimmed(m, (struct ps_range){0, 6000}, (struct ps_range){0, 6000});
    assert_trimmed(m, (struct ps_range){100, 5000}, (struct ps_range){5000, 100});
    assert_trimmed(m, (struct ps_range){99, 4901}, (struct ps_range){99, 1});
    assert_trimmed(m, (struct ps_range){100, 4900}, (struct ps_range){100, 0});
    assert_trimmed(m, (struct ps_range){1000, 0}, (struct ps_range){1000, 0});
    assert_trimmed(m, (struct ps_range){4999, 2}, (struct ps_range){5000, 1});
    ck_assert_uint_eq(ps_shard_n_chunks(&one, 0),
                      6); /* of 1008 floats: all but the last four hold something else */
    ck_assert_uint_eq(ps_manifest_moving(m, &one, 0, ps_shard_whole(&one)), 3);
    ck_assert_uint_eq(ps_manifest_moving(m, &two, 0, ps_shard_whole(&two)), 1);
    ck_assert_uint_eq(ps_manifest_moving(m, &two, 1, (struct ps_range){3000, 2000}), 0);
    ck_assert_int_eq(ps_manifest_find(m, "e"), 4);
    ck_assert_int_eq(ps_manifest_find(m, "h"), -1);
    ck_assert_uint_eq(ps_tensor_range(&m->tensors[1]).count, 15);
    ps_manifest_destroy(m);
}
END_TEST

START_TEST(model_that_is_all_frozen_is_refused)
{
    struct ps_manifest *m;
    struct ps_error err;
    struct ps_tensor t = {"a", 0, {10}, 1, PS_ROLE_FROZEN};
    ck_assert_int_eq(ps_manifest_create(&t, 1, 6000, &m, &err), -EINVAL);
    assert_says(err.text, "nothing is left to train");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-manifest");
    TCase *tc = tcase_create("manifest");
    tcase_add_test(tc, manifest_is_a_copy);
    tcase_add_loop_test(tc, bad_tensor_is_named, 0, ROWS(bad_tensors));
    tcase_add_test(tc, a_scalar_is_a_tensor);
    tcase_add_test(tc, largest_that_is_allowed_is_taken);
    tcase_add_test(tc, offsets_do_not_wrap_around);
    tcase_add_test(tc, number_of_tensors_is_bounded);
    tcase_add_loop_test(tc, difference_is_named_and_hashed, 0, ROWS(differences));
    tcase_add_test(tc, missing_tensor_is_told);
    tcase_add_test(tc, longest_difference_fits_its_sentence);
    tcase_add_test(tc, segments_are_the_longest_runs);
    tcase_add_test(tc, what_is_frozen_whole_does_not_move);
    tcase_add_test(tc, model_that_is_all_frozen_is_refused);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
