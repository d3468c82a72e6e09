#include "tests/support/event_reader.h"

#include <check.h>
#include <endian.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tensorboard/encode.h"

static uint32_t get_u32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return le32toh(value);
}

/* The record at `bytes`; its length in *len. */
static PsBoard__Event *read_record(const uint8_t *bytes, size_t left, size_t *len)
{
    ck_assert_uint_ge(left, PS_RECORD_HEAD_BYTES + PS_RECORD_TAIL_BYTES);
    *len = ps_record_bytes(bytes);
    ck_assert_uint_le(*len, left);
    size_t n = *len - PS_RECORD_HEAD_BYTES - PS_RECORD_TAIL_BYTES;
    ck_assert_uint_eq(get_u32(bytes + 8), ps_crc32c_masked(bytes, 8));
    ck_assert_uint_eq(get_u32(bytes + *len - 4), ps_crc32c_masked(bytes + PS_RECORD_HEAD_BYTES, n));
    PsBoard__Event *event = ps_board__event__unpack(NULL, n, bytes + PS_RECORD_HEAD_BYTES);
    ck_assert_ptr_nonnull(event);
    return event;
}

static uint8_t *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*n + 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

size_t event_each(const char *folder, event_see_fn *see, void *arg)
{
    char pattern[400];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/events.out.tfevents.*", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    size_t n_files = found.gl_pathc, n, len;
    for (size_t i = 0; i < n_files; i++) {
        uint8_t *bytes = read_file(found.gl_pathv[i], &n);
        for (size_t at = 0; at < n; at += len) {
            PsBoard__Event *event = read_record(bytes + at, n - at, &len);
            see(arg, event);
            ps_board__event__free_unpacked(event, NULL);
        }
        free(bytes);
    }
    globfree(&found);
    return n_files;
}

struct search {
    const char *tag;
    struct event_values found;
};

static void look(void *arg, const PsBoard__Event *event)
{
    struct search *s = arg;
    size_t n = event->what_case == PS_BOARD__EVENT__WHAT_SUMMARY ? event->summary->n_value : 0;
    for (size_t i = 0; i < n; i++) {
        const PsBoard__Value *v = event->summary->value[i];
        if (strcmp(v->tag, s->tag) != 0)
            continue;
        s->found.first_step = s->found.n++ == 0 ? event->step : s->found.first_step;
        s->found.last_step = event->step;
        s->found.last =
            v->value_case == PS_BOARD__VALUE__VALUE_HISTO ? v->histo->num : (double)v->simple_value;
        s->found.sum += s->found.last;
    }
}

struct event_values event_values(const char *folder, const char *tag)
{
    struct search s = {.tag = tag};
    event_each(folder, look, &s);
    return s.found;
}
