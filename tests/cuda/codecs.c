/* codecs.c: the kernels of client/memory/cuda beside the host's: payloads of every codec, byte for byte, what
 * encoding loses, decoded floats, and passes over vectors, of which several are made in one launch. The
 * values have what is hard: equal magnitudes, zeros of both signs, subnormal and very large ones. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "client/memory/memory.h"
#include "proto/codecs/piece.h"
#include "tests/support/unit.h"

enum { N = 9001, MOST_PIECES = 80, PLACE = 16384 };

static const char *const codecs[] = {"fp16",      "bf16",     "trunc16",       "int8",  "int4",
                                     "topk:0.01", "topk:0.3", "topk:0.000001", "topk:1"};

static const struct psc_memory_kind *kind;
static struct psc_device *device;
static struct psc_queue *queue;
static struct ps_manifest *manifest;
static float message[N], error[N], lost[N], back[N];
static float *device_message, *device_error;
static unsigned char expected[MOST_PIECES * PLACE], room[MOST_PIECES * PLACE], *device_room;

/* Small buffers and frozen parts between parameters; one buffer is longer than a piece. */
static struct ps_manifest *make_manifest(bool only_parameters)
{
    static const struct {
        uint64_t count;
        uint32_t role;
    } parts[] = {{700, PS_ROLE_PARAM},  {3, PS_ROLE_BUFFER}, {1, PS_ROLE_PARAM},    {60, PS_ROLE_FROZEN},
                 {900, PS_ROLE_PARAM},  {1, PS_ROLE_BUFFER}, {1025, PS_ROLE_PARAM}, {1500, PS_ROLE_BUFFER},
                 {2000, PS_ROLE_PARAM}, {5, PS_ROLE_FROZEN}, {2806, PS_ROLE_PARAM}};
    struct ps_tensor tensors[ROWS(parts)];
    struct ps_manifest *m;
    struct ps_error err;
    char names[ROWS(parts)][8];
    uint64_t at = 0;
    for (size_t i = 0; i < ROWS(parts); i++) {
        snprintf(names[i], sizeof names[i], "t%zu", i);
        tensors[i] = (struct ps_tensor){.name = names[i],
                                        .offset = at,
                                        .shape = {parts[i].count},
                                        .n_dims = 1,
                                        .role = only_parameters ? PS_ROLE_PARAM : parts[i].role};
        at += parts[i].count;
    }
    ck_assert_uint_eq(at, N);
    ck_assert_msg(ps_manifest_create(tensors, ROWS(parts), N, &m, &err) == 0, "%s", err.text);
    return m;
}

/* Vectors of the host that the device may copy to and from. */
static const struct {
    void *at;
    size_t bytes;
} pinned[] = {{message, sizeof message}, {error, sizeof error}, {back, sizeof back}, {room, sizeof room}};

static void *on_device(size_t bytes)
{
    struct ps_error err;
    void *p = NULL;
    ck_assert_msg(kind->alloc(device, bytes, &p, &err) == 0, "%s", err.text);
    return p;
}

static void finish(void)
{
    struct ps_error err;
    ck_assert_msg(kind->finish(queue, &err) == 0, "%s", err.text);
}

static void open_device(void)
{
    struct psc_device_options opt = {.timeout_ms = 60000};
    struct ps_error err;
    ck_assert_msg(psc_memory_find("cuda", &kind, &err) == 0, "%s", err.text);
    ck_assert_msg(kind->open(&opt, &device, &err) == 0, "%s", err.text);
    queue = kind->queue(device, PSC_COMPUTE);
    for (size_t i = 0; i < ROWS(pinned); i++)
        ck_assert_msg(kind->pin(device, pinned[i].at, pinned[i].bytes, &err) == 0, "%s", err.text);
    device_message = on_device(sizeof message);
    device_error = on_device(sizeof error);
    device_room = on_device(sizeof room);
}

static void learn(bool only_parameters)
{
    struct ps_error err;
    manifest = make_manifest(only_parameters);
    ck_assert_msg(kind->learn(device, manifest, &err) == 0, "%s", err.text);
}

static void close_device(void)
{
    for (size_t i = 0; i < ROWS(pinned); i++)
        kind->unpin(device, pinned[i].at);
    kind->close(device);
    ps_manifest_destroy(manifest);
    manifest = NULL;
}

/* Kind 0: ordinary; 1: equal magnitudes; 2: zeros, subnormals and tiny ones; 3: very large ones. */
static float roll(struct dice *d, int values)
{
    static const float special[][4] = {{0.5f, -0.5f, 0.25f, -0.75f},
                                       {0.0f, -0.0f, 1e-40f, -0x1p-101f},
                                       {FLT_MAX, -FLT_MAX, 65519.0f, -3.4e38f}};
    if (values == 0 || dice_below(d, 4) == 0)
        return dice_float(d);
    return special[values - 1][dice_below(d, 4)];
}

static void roll_all(struct dice *d, int values)
{
    for (size_t i = 0; i < N; i++) {
        message[i] = roll(d, values);
        error[i] = roll(d, values) / 256;
        if (values == 3) /* m + e overflows now and then */
            error[i] = message[i] / 2;
    }
    if (values == 2) /* whole blocks of nothing */
        memset(message + 2048, 0, 2048 * sizeof *message);
}

/* Pieces of many lengths, that begin and end anywhere; more than one launch has. */
static size_t cut(struct psc_coded *pieces)
{
    static const uint64_t lengths[] = {1024, 1, 1025, 65, 64, 63, 129, 2048, 2, 255, 256, 1023, 510};
    size_t n = 0;
    for (uint64_t at = 0; at < N && n < MOST_PIECES; n++) {
        uint64_t count = n < ROWS(lengths) ? lengths[n] : 40;
        pieces[n] =
            (struct psc_coded){.range = {at, at + count <= N ? count : N - at}, .from = at, .to = n * PLACE};
        at += count;
    }
    return n;
}

/* m + e as it is encoded, on the host. */
static void make(float *to, struct ps_range r, bool feeds_back)
{
    for (uint64_t i = r.begin; i < r.begin + r.count; i++) {
        const float sum = feeds_back ? message[i] + error[i] : message[i];
        to[i - r.begin] = ps_manifest_tensor(manifest, i)->role == PS_ROLE_FROZEN ? 0
                          : isfinite(sum)                                         ? sum
                                                                                  : message[i];
    }
}

/* The host's payloads, and what is lost. */
static void encode_on_host(const struct ps_codec *c, const struct psc_coded *pieces, size_t n,
                           bool feeds_back)
{
    static float made[N], sent[N];
    for (size_t k = 0; k < n; k++) {
        struct ps_range r = pieces[k].range;
        make(made, r, feeds_back);
        ps_piece_encode(c, manifest, r, expected + pieces[k].to, made);
        ps_piece_decode(c, manifest, r, sent, expected + pieces[k].to);
        make(made, r, feeds_back);
        for (uint64_t i = 0; i < r.count; i++)
            lost[r.begin + i] = made[i] - sent[i];
    }
}

static void compare_payloads(const char *name, const struct ps_codec *c, const struct psc_coded *pieces,
                             size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const unsigned char *mine = room + pieces[k].to, *host = expected + pieces[k].to;
        size_t bytes = ps_piece_bytes(c, manifest, pieces[k].range);
        for (size_t i = 0; i < bytes; i++)
            if (mine[i] != host[i])
                ck_abort_msg("%s: piece %zu of %llu values: byte %zu of %zu is %02x, the host's %02x", name,
                             k, (unsigned long long)pieces[k].range.count, i, bytes, mine[i], host[i]);
    }
}

static void compare_floats(const char *name, const char *what, const float *mine, const float *host, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&mine[i], &host[i], sizeof *mine) != 0)
            ck_abort_msg("%s: %s[%zu] is %a on the device, %a on the host", name, what, i, (double)mine[i],
                         (double)host[i]);
}

static void check_codec(const char *name, bool feeds_back)
{
    struct psc_coded pieces[MOST_PIECES];
    struct ps_codec c;
    ck_assert_ptr_null(ps_codec_of(name, &c));
    ck_assert(kind->codes(&c));
    size_t n = cut(pieces);
    for (size_t k = 0; k < n; k++)
        pieces[k].as_floats = !ps_piece_is_coded(&c, manifest, pieces[k].range);
    struct psc_coding coding = {.codec = &c,
                                .message = device_message,
                                .error = feeds_back ? device_error : NULL,
                                .room = device_room};
    kind->up(queue, device_message, message, sizeof message);
    kind->up(queue, device_error, error, sizeof error);
    kind->encode(queue, &coding, pieces, n);
    kind->down(queue, room, device_room, sizeof room);
    if (feeds_back)
        kind->feed_back(queue, &coding, pieces, n);
    kind->down(queue, back, device_error, sizeof back);
    finish();
    encode_on_host(&c, pieces, n, feeds_back);
    compare_payloads(name, &c, pieces, n);
    if (feeds_back)
        compare_floats(name, "error", back, lost, N);
}

START_TEST(payloads_are_those_of_the_host)
{
    struct dice dice = {(uint64_t)_i};
    for (int only = 0; only < 2; only++) {
        learn(only);
        for (int values = 0; values < 4; values++) {
            roll_all(&dice, values);
            check_codec(codecs[_i], false);
            check_codec(codecs[_i], true);
        }
        ps_manifest_destroy(manifest);
    }
    manifest = NULL;
}
END_TEST

/* Any payload of the right length. */
START_TEST(decoded_floats_are_those_of_the_host)
{
    static const size_t lengths[] = {1, 2, 1023, 1024, 1025, 2049, 3000};
    size_t n_rows;
    const struct ps_codec *const *rows = ps_codec_value_rows(&n_rows);
    struct dice dice = {7};
    for (size_t r = 1; r < n_rows; r++)
        for (size_t k = 0; k < ROWS(lengths); k++) {
            size_t n = lengths[k], bytes = rows[r]->payload_bytes(rows[r], n);
            roll_all(&dice, (int)(k % 4));
            rows[r]->encode(rows[r], room, message, n);
            for (size_t i = 0; k % 2 == 0 && rows[r]->error.block == 1 && i < bytes; i++)
                room[i] = (unsigned char)dice_bits(&dice);
            kind->up(queue, device_room, room, bytes);
            kind->decode(queue, rows[r], device_message, device_room, n);
            kind->down(queue, back, device_message, n * sizeof *back);
            finish();
            rows[r]->decode(rows[r], lost, room, n);
            compare_floats(rows[r]->name, "decoded", back, lost, n);
        }
}
END_TEST

/* What is known of a center takes moves, and buffers as they are. */
START_TEST(moves_are_taken_as_by_the_host)
{
    static const char *const for_moves[] = {"int4", "topk:0.02", "topk:0.3", "topk:1"};
    static float made[N];
    struct dice dice = {13};
    learn(false);
    for (size_t r = 0; r < ROWS(for_moves); r++) {
        struct psc_coded pieces[MOST_PIECES];
        struct ps_codec c;
        ck_assert_ptr_null(ps_codec_of(for_moves[r], &c));
        struct psc_coding coding = {.codec = &c, .error = device_error, .room = device_room};
        size_t n = cut(pieces);
        roll_all(&dice, (int)(r % 3));
        memcpy(lost, error, sizeof lost);
        kind->up(queue, device_error, error, sizeof error);
        for (size_t k = 0; k < n; k++) {
            struct ps_range at = pieces[k].range;
            pieces[k].as_floats = !ps_piece_is_coded(&c, manifest, at);
            make(made, at, false);
            ps_piece_encode(&c, manifest, at, room + pieces[k].to, made);
            ps_piece_decode(&c, manifest, at, made, room + pieces[k].to);
            ps_piece_take(&c, manifest, at, lost + at.begin, made);
        }
        kind->up(queue, device_room, room, sizeof room);
        for (size_t k = 0; k < n; k++)
            kind->take(queue, &coding, &pieces[k]);
        kind->down(queue, back, device_error, sizeof back);
        finish();
        compare_floats(for_moves[r], "known", back, lost, N);
    }
}
END_TEST

/* Of several pieces the first in the vector; a frozen value is not looked at. */
START_TEST(encoding_notes_the_first_value_that_is_not_finite)
{
    struct dice dice = {11};
    learn(false);
    for (size_t k = 0; k < ROWS(codecs); k++)
        for (int bad = 0; bad < 2; bad++) {
            struct psc_coded pieces[MOST_PIECES];
            struct ps_codec c;
            struct ps_error err;
            uint64_t found = 0;
            ck_assert_ptr_null(ps_codec_of(codecs[k], &c));
            roll_all(&dice, 0);
            message[720] = NAN; /* frozen */
            if (bad)
                message[4000] = INFINITY, message[701] = NAN, message[9000] = NAN; /* 701: a buffer */
            kind->up(queue, device_message, message, sizeof message);
            struct psc_coding coding = {
                .codec = &c, .message = device_message, .room = device_room, .searches = true};
            size_t n = cut(pieces);
            for (size_t i = 0; i < n; i++)
                pieces[i].as_floats = !ps_piece_is_coded(&c, manifest, pieces[i].range);
            kind->search_begin(queue);
            kind->encode(queue, &coding, pieces, n);
            ck_assert_msg(kind->search_end(queue, &found, &err) == 0, "%s", err.text);
            ck_assert_msg(found == (bad ? 701 : UINT64_MAX), "%s: found %llu", codecs[k],
                          (unsigned long long)found);
        }
}
END_TEST

/* ---- passes */

enum { VECTORS = 5 };
static float host_vectors[VECTORS][N], *device_vectors[VECTORS];

typedef void (*pass)(const struct psc_work *w, float *const v[VECTORS], size_t n);

#define PASS(name, ...)                                                                                      \
    static void name(const struct psc_work *w, float *const v[VECTORS], size_t n)                            \
    {                                                                                                        \
        psc_##name(w, __VA_ARGS__, n);                                                                       \
    }
PASS(axpy, v[0], v[1], -0.3f)
PASS(scale, v[0], 1.7f)
PASS(copy, v[0], v[1])
PASS(zero, v[0])
PASS(subtract, v[0], v[1], v[2])
PASS(decay, v[0], v[1], v[2], 0.01f)
PASS(elastic, v[0], v[1], 0.25f)
PASS(approach, v[0], v[1], v[2], 0.3f)
PASS(rebase, v[0], v[1], v[2])
PASS(rebase_mixed, v[0], v[1], v[2], 0.3f)
PASS(heavy_ball, v[0], v[1], v[2], 0.1f, 0.9f)
PASS(nesterov, v[0], v[1], v[2], v[3], 0.1f, 0.9f)
PASS(look, v[0], v[1], v[2], 0.9f)
PASS(admm_message, v[0], v[1], v[2], v[3], 0.1f, 0.2f, 0.8f)
PASS(admm_land, v[0], v[1], v[2], v[3], 0.1f, 0.2f, 0.8f)
PASS(admm_restart, v[0], v[1], v[2])
#undef PASS

static const pass passes[] = {axpy,    scale,        copy,      zero,         subtract,   decay,
                              elastic, approach,     rebase,    rebase_mixed, heavy_ball, nesterov,
                              look,    admm_message, admm_land, admm_restart};

static void up_vectors(struct dice *d)
{
    for (int k = 0; k < VECTORS; k++) {
        for (size_t i = 0; i < N; i++)
            host_vectors[k][i] = dice_float(d);
        memcpy(message, host_vectors[k], sizeof message);
        kind->up(queue, device_vectors[k], message, sizeof message);
        finish(); /* `message` is used again */
    }
}

static void run_pass(const struct psc_work *w, pass p, float *const all[VECTORS], size_t at, size_t n)
{
    float *v[VECTORS];
    for (int k = 0; k < VECTORS; k++)
        v[k] = all[k] + at;
    p(w, v, n);
}

/* Parts of the vectors, each with a pass of its own: more than one launch has. */
static void run_some(const struct psc_work *w, float *const all[VECTORS], size_t first)
{
    size_t n = 0, i = first;
    psc_passes_begin(w);
    for (size_t at = 0; at < N; at += n, i++) {
        n = i % 7 == 0 ? 5000 : 1 + i * 31 % 90;
        n = n < N - at ? n : N - at;
        psc_passes_begin(w);
        run_pass(w, passes[i % ROWS(passes)], all, at, n);
        psc_passes_end(w);
    }
    psc_passes_end(w);
}

START_TEST(passes_are_those_of_the_host)
{
    struct psc_memory_of host = {.kind = &psc_memory_host}, gpu = {.kind = kind, .device = device};
    struct psc_work on_host = psc_work_of(&host, PSC_COMPUTE), on_gpu = psc_work_of(&gpu, PSC_COMPUTE);
    float *mine[VECTORS];
    struct dice dice = {3};
    char name[32];
    for (int k = 0; k < VECTORS; k++) {
        mine[k] = host_vectors[k];
        device_vectors[k] = on_device(sizeof message);
    }
    for (size_t first = 0; first < ROWS(passes); first++) {
        up_vectors(&dice);
        run_some(&on_host, mine, first);
        run_some(&on_gpu, device_vectors, first);
        run_pass(&on_host, passes[first], mine, 0, N);
        run_pass(&on_gpu, passes[first], device_vectors, 0, N);
        for (int k = 0; k < VECTORS; k++) {
            kind->down(queue, back, device_vectors[k], sizeof back);
            finish();
            snprintf(name, sizeof name, "from pass %zu on", first);
            compare_floats(name, "a vector", back, host_vectors[k], N);
        }
    }
}
END_TEST

/* Only what is written within the watched part counts. */
START_TEST(passes_note_what_they_write_that_is_not_finite)
{
    struct psc_memory_of gpu = {.kind = kind, .device = device};
    struct psc_work w = psc_work_of(&gpu, PSC_COMPUTE);
    struct ps_error err;
    struct dice dice = {5};
    for (int k = 0; k < VECTORS; k++)
        device_vectors[k] = on_device(sizeof message);
    for (int bad = 0; bad < 2; bad++) {
        uint64_t found = 0;
        up_vectors(&dice);
        memcpy(message, host_vectors[1], sizeof message);
        message[99] = NAN; /* before the part */
        message[8500] = INFINITY;
        if (bad)
            message[8000] = message[7000] = -INFINITY;
        kind->up(queue, device_vectors[1], message, sizeof message);
        kind->watch(queue, device_vectors[0] + 100, 8000, 1100);
        psc_passes_begin(&w);
        psc_copy(&w, device_vectors[0], device_vectors[1], 100);
        psc_subtract(&w, device_vectors[0] + 100, device_vectors[1] + 100, device_vectors[2], 6000);
        psc_copy(&w, device_vectors[0] + 6100, device_vectors[1] + 6100, 2000);
        psc_copy(&w, device_vectors[0] + 8100, device_vectors[1] + 8100, 900);
        psc_copy(&w, device_vectors[3], device_vectors[1], N);
        psc_passes_end(&w);
        ck_assert_msg(kind->search_end(queue, &found, &err) == 0, "%s", err.text);
        ck_assert_msg(found == (bad ? 8000 : UINT64_MAX), "found %llu", (unsigned long long)found);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda-codecs");
    TCase *rows = tcase_create("codecs"), *vectors = tcase_create("passes");
    tcase_add_checked_fixture(rows, open_device, close_device);
    tcase_add_checked_fixture(vectors, open_device, close_device);
    tcase_add_loop_test(rows, payloads_are_those_of_the_host, 0, (int)ROWS(codecs));
    tcase_add_test(rows, decoded_floats_are_those_of_the_host);
    tcase_add_test(rows, moves_are_taken_as_by_the_host);
    tcase_add_test(rows, encoding_notes_the_first_value_that_is_not_finite);
    tcase_add_test(vectors, passes_are_those_of_the_host);
    tcase_add_test(vectors, passes_note_what_they_write_that_is_not_finite);
    suite_add_tcase(s, rows);
    suite_add_tcase(s, vectors);
    return unit_run(s);
}
