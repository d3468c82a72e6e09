/* protobuf-c packs the messages, from a schema of the fields that are used (event.proto): the control socket
 * needs that library anyway, and it knows varints, packed doubles and nested lengths. */
#include "proto/tensorboard/encode.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "event.pb-c.h"
#include "proto/bytes.h"

uint32_t ps_crc32c(const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < len; i++) { /* a few kilobytes a second need no table */
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (UINT32_C(0x82f63b78) & (0 - (crc & 1)));
    }
    return ~crc;
}

uint32_t ps_crc32c_masked(const void *bytes, size_t len)
{
    uint32_t crc = ps_crc32c(bytes, len);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

size_t ps_record_bytes(const uint8_t *bytes)
{
    return PS_RECORD_HEAD_BYTES + (size_t)ps_get64(bytes) + PS_RECORD_TAIL_BYTES;
}

static uint8_t *frame(const PsBoard__Event *event, size_t *len_bytes)
{
    size_t n = ps_board__event__get_packed_size(event);
    uint8_t *record = malloc(PS_RECORD_HEAD_BYTES + n + PS_RECORD_TAIL_BYTES);
    if (record == NULL)
        return NULL;
    ps_put64(record, n);
    ps_put32(record + 8, ps_crc32c_masked(record, 8));
    ps_board__event__pack(event, record + PS_RECORD_HEAD_BYTES);
    ps_put32(record + PS_RECORD_HEAD_BYTES + n, ps_crc32c_masked(record + PS_RECORD_HEAD_BYTES, n));
    *len_bytes = PS_RECORD_HEAD_BYTES + n + PS_RECORD_TAIL_BYTES;
    return record;
}

uint8_t *ps_event_version(double wall_s, size_t *len_bytes)
{
    PsBoard__Event event = PS_BOARD__EVENT__INIT;
    event.wall_time = wall_s;
    event.what_case = PS_BOARD__EVENT__WHAT_FILE_VERSION;
    event.file_version = (char *)"brain.Event:2";
    return frame(&event, len_bytes);
}

uint8_t *ps_event_start(double wall_s, int64_t step, size_t *len_bytes)
{
    PsBoard__Event event = PS_BOARD__EVENT__INIT;
    PsBoard__SessionLog log = PS_BOARD__SESSION_LOG__INIT;
    log.status = PS_BOARD__SESSION_LOG__STATUS__START;
    event.wall_time = wall_s;
    event.step = step;
    event.what_case = PS_BOARD__EVENT__WHAT_SESSION_LOG;
    event.session_log = &log;
    return frame(&event, len_bytes);
}

/* What one value needs beside its message. */
struct value {
    PsBoard__Value message;
    PsBoard__Histogram histogram;
    double limits[PS_HISTOGRAM_BUCKETS], counts[PS_HISTOGRAM_BUCKETS];
};

/* Buckets from the first to the last that have values, empty neighbours as one. */
static void fill_histogram(struct value *v, const struct ps_histogram *h)
{
    PsBoard__Histogram *m = &v->histogram;
    size_t n = 0, first = 0, end = h->n_buckets;
    while (h->counts[first] == 0)
        first++;
    while (h->counts[end - 1] == 0)
        end--;
    for (size_t k = first; k < end; k++) {
        n += n == 0 || h->counts[k] > 0 || v->counts[n - 1] > 0;
        v->limits[n - 1] = h->limits[k];
        v->counts[n - 1] = (double)h->counts[k];
    }
    ps_board__histogram__init(m);
    m->min = h->min;
    m->max = h->max;
    m->num = (double)h->n;
    m->sum = h->sum;
    m->sum_squares = h->sum_squares;
    m->n_bucket_limit = m->n_bucket = n;
    m->bucket_limit = v->limits;
    m->bucket = v->counts;
    v->message.value_case = PS_BOARD__VALUE__VALUE_HISTO;
    v->message.histo = m;
}

static bool says_something(const struct ps_event_value *value)
{
    return value->histogram != NULL ? value->histogram->n > 0 : isfinite(value->scalar);
}

static void fill_value(struct value *to, const struct ps_event_value *from)
{
    ps_board__value__init(&to->message);
    to->message.tag = (char *)from->tag;
    if (from->histogram != NULL) {
        fill_histogram(to, from->histogram);
    } else {
        to->message.value_case = PS_BOARD__VALUE__VALUE_SIMPLE_VALUE;
        to->message.simple_value = (float)from->scalar;
    }
}

uint8_t *ps_event_values(double wall_s, int64_t step, const struct ps_event_value *values, size_t n,
                         size_t *len_bytes)
{
    PsBoard__Event event = PS_BOARD__EVENT__INIT;
    PsBoard__Summary summary = PS_BOARD__SUMMARY__INIT;
    struct value *filled = calloc(n + 1, sizeof *filled);
    PsBoard__Value **list = calloc(n + 1, sizeof *list);
    uint8_t *record = NULL;
    if (filled != NULL && list != NULL) {
        for (size_t i = 0; i < n; i++) {
            if (!says_something(&values[i]))
                continue;
            fill_value(&filled[i], &values[i]);
            list[summary.n_value++] = &filled[i].message;
        }
        summary.value = list;
        event.wall_time = wall_s;
        event.step = step;
        event.what_case = PS_BOARD__EVENT__WHAT_SUMMARY;
        event.summary = &summary;
        record = frame(&event, len_bytes);
    }
    free(list);
    free(filled);
    return record;
}
