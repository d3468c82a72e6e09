/* The data header: its bytes, and what is refused of others' bytes. */
#include "proto/wire/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/unit.h"

static const struct ps_frame request = {.kind = PS_FRAME_EXCHANGE,
                                        .codec = 0x21,
                                        .code = 0x5655,
                                        .flags = 0x5857,
                                        .client = 0x04030201,
                                        .incarnation = 0x08070605,
                                        .generation = 0x34333231,
                                        .seq = UINT64_C(0x100f0e0d0c0b0a09),
                                        .begin = UINT64_C(0x1817161514131211),
                                        .count = 0x1c1b1a19,
                                        .samples = 0x5c5b5a59,
                                        .clock = UINT64_C(0x4847464544434241),
                                        .center_version = UINT64_C(0x504f4e4d4c4b4a49)};

/* What other programs, and other versions of this one, rely on. */
static const unsigned char golden[PS_FRAME_BYTES] = {
    'P',  'S',  'D',  '1',  0x01, 0x00, 0x01, 0x21, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
    0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
    0x19, 0x1a, 0x1b, 0x1c, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
    0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f, 0x50, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c};

static void check_same(const struct ps_frame *a, const struct ps_frame *b)
{
    ck_assert_uint_eq(a->kind, b->kind);
    ck_assert_uint_eq(a->codec, b->codec);
    ck_assert_uint_eq(a->code, b->code);
    ck_assert_uint_eq(a->flags, b->flags);
    ck_assert_uint_eq(a->client, b->client);
    ck_assert_uint_eq(a->incarnation, b->incarnation);
    ck_assert_uint_eq(a->generation, b->generation);
    ck_assert_uint_eq(a->seq, b->seq);
    ck_assert_uint_eq(a->begin, b->begin);
    ck_assert_uint_eq(a->count, b->count);
    ck_assert_uint_eq(a->samples, b->samples);
    ck_assert_mem_eq(&a->rate, &b->rate, sizeof a->rate);
    ck_assert_uint_eq(a->clock, b->clock);
    ck_assert_uint_eq(a->center_version, b->center_version);
}

START_TEST(golden_bytes)
{
    unsigned char head[PS_FRAME_BYTES];
    struct ps_frame back;
    ps_frame_pack(&request, head);
    ck_assert_mem_eq(head, golden, sizeof head);
    ck_assert_int_eq(ps_frame_parse(&back, golden, sizeof golden, NULL), 0);
    check_same(&request, &back);
}
END_TEST

static const uint8_t all_kinds[] = {PS_FRAME_EXCHANGE, PS_FRAME_PULL,   PS_FRAME_SET,  PS_FRAME_PUSH,
                                    PS_FRAME_OFFER,    PS_FRAME_ANSWER, PS_FRAME_ERROR};

/* At every alignment of the header: a transport may receive it anywhere. */
START_TEST(every_field_comes_back)
{
    struct dice dice = {5};
    for (size_t k = 0; k < ROWS(all_kinds); k++)
        for (size_t at = 0; at < 64; at++) {
            unsigned char space[PS_FRAME_BYTES + 64];
            uint8_t kind = all_kinds[k];
            bool answers = kind == PS_FRAME_ANSWER || kind == PS_FRAME_ERROR;
            struct ps_frame back, f = {.kind = kind,
                                       .codec = (uint8_t)dice_bits(&dice),
                                       .code = (uint16_t)dice_bits(&dice),
                                       .flags = (uint16_t)dice_bits(&dice),
                                       .client = (uint32_t)dice_bits(&dice),
                                       .incarnation = (uint32_t)dice_bits(&dice),
                                       .generation = (uint32_t)dice_bits(&dice),
                                       .seq = dice_bits(&dice),
                                       .begin = dice_bits(&dice),
                                       .count = (uint32_t)dice_bits(&dice) | 1,
                                       .samples = answers ? 0 : (uint32_t)dice_bits(&dice),
                                       .rate = answers ? dice_float(&dice) : 0,
                                       .clock = dice_bits(&dice),
                                       .center_version = dice_bits(&dice)};
            ps_frame_pack(&f, space + at);
            ck_assert_int_eq(ps_frame_parse(&back, space + at, PS_FRAME_BYTES, NULL), 0);
            check_same(&f, &back);
        }
}
END_TEST

/* One byte of the golden header changed. */
static const struct {
    size_t at;
    unsigned char value;
    int rc;
    const char *found, *allowed;
} bad_bytes[] = {
    {0, 'Q', -EPROTO, "31445351", "31445350"},          {3, '2', -EPROTO, "32445350", "31445350"},
    {4, 2, -EPROTONOSUPPORT, "version 2", "speaks 1"},  {5, 1, -EPROTONOSUPPORT, "version 257", "speaks 1"},
    {6, 0, -EPROTO, "kind 0", "1 to 8 and 16, 17"},     {6, 9, -EPROTO, "kind 9", "1 to 8 and 16, 17"},
    {6, 15, -EPROTO, "kind 15", "1 to 8 and 16, 17"},   {6, 18, -EPROTO, "kind 18", "1 to 8 and 16, 17"},
    {6, 255, -EPROTO, "kind 255", "1 to 8 and 16, 17"},
};

START_TEST(bad_field_is_refused_with_a_sentence)
{
    unsigned char head[PS_FRAME_BYTES];
    struct ps_error err = {""};
    struct ps_frame f = {.seq = 77};
    memcpy(head, golden, sizeof head);
    head[bad_bytes[_i].at] = bad_bytes[_i].value;
    ck_assert_int_eq(ps_frame_parse(&f, head, sizeof head, &err), bad_bytes[_i].rc);
    assert_says(err.text, bad_bytes[_i].found);
    assert_says(err.text, bad_bytes[_i].allowed);
    ck_assert_uint_eq(f.seq, 77); /* written only on success */
    ck_assert_int_eq(ps_frame_parse(&f, head, sizeof head, NULL), bad_bytes[_i].rc);
}
END_TEST

START_TEST(empty_chunk_is_refused_but_in_errors)
{
    for (size_t k = 0; k < ROWS(all_kinds); k++) {
        unsigned char head[PS_FRAME_BYTES];
        struct ps_frame back, f = request;
        struct ps_error err;
        f.kind = all_kinds[k];
        f.count = 0;
        ps_frame_pack(&f, head);
        int rc = ps_frame_parse(&back, head, sizeof head, &err);
        ck_assert_int_eq(rc, f.kind == PS_FRAME_ERROR ? 0 : -EPROTO);
        if (rc < 0)
            assert_says(err.text, "0 floats");
    }
}
END_TEST

/* Heads in memory of exactly their length, for the address sanitizer. */
START_TEST(every_other_length_is_refused)
{
    for (size_t len = 0; len <= 3 * PS_FRAME_BYTES; len++) {
        unsigned char *head = malloc(len + 1);
        struct ps_error err = {""};
        struct ps_frame f;
        char found[32];
        ck_assert_ptr_nonnull(head);
        head = realloc(head, len > 0 ? len : 1);
        memset(head, 0, len);
        memcpy(head, golden, len < sizeof golden ? len : sizeof golden);
        if (len != PS_FRAME_BYTES) {
            snprintf(found, sizeof found, "found %zu", len);
            ck_assert_int_eq(ps_frame_parse(&f, head, len, &err), -EPROTO);
            assert_says(err.text, found);
        }
        free(head);
    }
}
END_TEST

START_TEST(random_bytes_are_parsed_or_refused)
{
    struct dice dice = {6};
    uint64_t taken = 0;
    for (int i = 0; i < 200000; i++) {
        unsigned char head[2 * PS_FRAME_BYTES], again[PS_FRAME_BYTES];
        struct ps_frame f;
        size_t len = i % 8 == 0 ? dice_below(&dice, sizeof head) : PS_FRAME_BYTES;
        for (size_t k = 0; k < sizeof head; k += 8)
            memcpy(head + k, &(uint64_t){dice_bits(&dice)}, 8);
        if (i % 2 == 0) /* get past the magic */
            memcpy(head, golden, 6);
        if (i % 4 == 0)
            head[6] = (unsigned char)(1 + dice_below(&dice, 4));
        if (ps_frame_parse(&f, head, len, NULL) < 0)
            continue;
        taken++;
        ps_frame_pack(&f, again); /* nothing of a header is lost or made up */
        ck_assert_mem_eq(again, head, PS_FRAME_BYTES);
    }
    ck_assert_uint_gt(taken, 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-frame");
    TCase *tc = tcase_create("frame");
    tcase_add_test(tc, golden_bytes);
    tcase_add_test(tc, every_field_comes_back);
    tcase_add_loop_test(tc, bad_field_is_refused_with_a_sentence, 0, ROWS(bad_bytes));
    tcase_add_test(tc, empty_chunk_is_refused_but_in_errors);
    tcase_add_test(tc, every_other_length_is_refused);
    tcase_add_test(tc, random_bytes_are_parsed_or_refused);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
