/* One suite for every row of the codecs' table. */
#include "proto/codec.h"

#include <stdlib.h>

#include "tests/support/unit.h"

enum { MAX_ID = 256, GUARD = 64 };

/* A row is found by what frames carry; ids without a row are passed over. */
static const struct ps_codec *row(int id)
{
    return ps_codec_find((uint8_t)id);
}

START_TEST(row_is_complete_and_itself)
{
    const struct ps_codec *c = row(_i);
    if (c == NULL)
        return;
    ck_assert_uint_eq(c->id, (uint8_t)_i);
    ck_assert(c->name != NULL && c->name[0] != 0);
    ck_assert_ptr_nonnull((void *)(uintptr_t)c->payload_bytes);
    ck_assert_ptr_nonnull((void *)(uintptr_t)c->encode);
    ck_assert_ptr_nonnull((void *)(uintptr_t)c->decode);
    for (int other = 0; other < MAX_ID; other++)
        if (row(other) != NULL && other != _i)
            ck_assert_str_ne(row(other)->name, c->name);
}
END_TEST

START_TEST(payload_grows_with_the_chunk)
{
    const struct ps_codec *c = row(_i);
    if (c == NULL)
        return;
    ck_assert_uint_ge(c->payload_bytes(1), 1);
    for (uint32_t n = 1; n < 5000; n++)
        assert_quick(c->payload_bytes(n) <= c->payload_bytes(n + 1));
    for (uint32_t n = 1; n <= (1u << 20); n *= 2)
        ck_assert_uint_le(c->payload_bytes(n),
                          n * sizeof(float) + GUARD); /* a window is counted in chunks of floats */
    if (c->in_place)
        ck_assert_uint_eq(c->payload_bytes(UINT32_MAX), (size_t)UINT32_MAX * sizeof(float));
}
END_TEST

/* Decoding what was encoded stays in its bounds, and gives what encoding that gives: the loss is paid once.
 */
START_TEST(encoding_again_changes_nothing)
{
    const struct ps_codec *c = row(_i);
    struct dice dice = {7};
    if (c == NULL)
        return;
    for (uint32_t n = 1; n <= 300; n++) {
        size_t len = c->payload_bytes(n);
        float *x = malloc(n * sizeof *x), *back = malloc(n * sizeof *back),
              *again = malloc(n * sizeof *again);
        unsigned char *payload = malloc(len);
        for (uint32_t i = 0; i < n; i++)
            x[i] = dice_float(&dice);
        c->encode(payload, x, n);
        c->decode(back, payload, n);
        c->encode(payload, back, n);
        c->decode(again, payload, n);
        ck_assert_mem_eq(back, again, n * sizeof *x);
        free(x);
        free(back);
        free(again);
        free(payload);
    }
}
END_TEST

START_TEST(raw_is_the_default)
{
    ck_assert_ptr_nonnull(ps_codec_find(0));
    ck_assert_str_eq(ps_codec_find(0)->name, "raw");
    ck_assert(ps_codec_find(0)->in_place);
    ck_assert_ptr_null(ps_codec_find(255));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-codec");
    TCase *tc = tcase_create("rows");
    tcase_add_loop_test(tc, row_is_complete_and_itself, 0, MAX_ID);
    tcase_add_loop_test(tc, payload_grows_with_the_chunk, 0, MAX_ID);
    tcase_add_loop_test(tc, encoding_again_changes_nothing, 0, MAX_ID);
    tcase_add_test(tc, raw_is_the_default);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
