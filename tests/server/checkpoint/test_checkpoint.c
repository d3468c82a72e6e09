/* Checkpoint files: what is written is read; nothing else is. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/server/checkpoint/checkpoint_fixture.h"
#include "tests/support/unit.h"

static void assert_same(const struct psd_snapshot *a, const struct psd_snapshot *b)
{
    struct ps_error err;
    ck_assert_msg(ps_manifest_compare(a->manifest, b->manifest, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(a->manifest->hash, b->manifest->hash);
    ck_assert_mem_eq(a->center, b->center, a->manifest->n_floats * sizeof(float));
    ck_assert_uint_eq(a->n_state, b->n_state);
    for (uint32_t k = 0; k < a->n_state; k++)
        ck_assert_mem_eq(a->state[k], b->state[k], a->manifest->n_floats * sizeof(float));
    ck_assert_int_eq(a->has_average, b->has_average);
    ck_assert_int_eq(b->average != NULL, b->has_average);
    if (a->has_average)
        ck_assert_mem_eq(a->average, b->average, a->manifest->n_floats * sizeof(float));
    ck_assert_str_eq(a->method, b->method);
    ck_assert_str_eq(a->rule, b->rule);
    ck_assert_str_eq(a->averaging, b->averaging);
    ck_assert_uint_eq(a->delay, b->delay);
    ck_assert_uint_eq(a->plateau.drops, b->plateau.drops);
    ck_assert_double_eq(a->plateau.best, b->plateau.best);
    ck_assert_str_eq(a->plateau.watch, b->plateau.watch);
    ck_assert_uint_eq(a->generation, b->generation);
    ck_assert_uint_eq(a->incarnation, b->incarnation);
    ck_assert_uint_eq(a->version, b->version);
    ck_assert_uint_eq(a->clock, b->clock);
    ck_assert_uint_eq(a->saved_at_s, b->saved_at_s);
    ck_assert_uint_eq(a->map.lanes, b->map.lanes);
    ck_assert_uint_eq(a->map.chunk_floats, b->map.chunk_floats);
    ck_assert_mem_eq(a->lane_clocks, b->lane_clocks, a->map.lanes * sizeof *a->lane_clocks);
    ck_assert_mem_eq(a->lane_moves, b->lane_moves, a->map.lanes * sizeof *a->lane_moves);
    ck_assert_uint_eq(a->fragments, b->fragments);
    if (a->fragments > 0)
        ck_assert_mem_eq(a->fragment_moves, b->fragment_moves,
                         (size_t)a->map.lanes * a->fragments * sizeof *a->fragment_moves);
    ck_assert_uint_eq(a->n_replay, b->n_replay);
    for (size_t i = 0; i < a->n_replay; i++) {
        const struct psd_replay_entry *x = &a->replay[i], *y = &b->replay[i];
        ck_assert_uint_eq(x->client, y->client);
        ck_assert_uint_eq(x->incarnation, y->incarnation);
        ck_assert_uint_eq(x->lane, y->lane);
        ck_assert_uint_eq(x->seq, y->seq);
        ck_assert_uint_eq(x->fragment, y->fragment);
        ck_assert_uint_eq(x->n_words, y->n_words);
        if (x->n_words > 0)
            ck_assert_mem_eq(x->landed, y->landed, x->n_words * sizeof *x->landed);
    }
}

/* A job of 70 GB and 3,000 clients: of each what landed is all, nothing, or up to some chunk. */
START_TEST(the_header_of_a_large_job_fits)
{
    enum { LANES = 8, CLIENTS = 3000 };
    const uint64_t n_floats = UINT64_C(17500000000);
    const uint32_t n_words = (uint32_t)(n_floats / LANES / 131072 / 64 + 1);
    struct ps_tensor t = {(char[]){"w"}, 0, {n_floats}, 1, PS_ROLE_PARAM};
    struct psd_snapshot s, back;
    struct ps_error err;
    uint64_t checksum;
    size_t len;
    char *text;
    make_snapshot(&s, 1, 0);
    ps_manifest_destroy(s.manifest);
    ck_assert_int_eq(ps_manifest_create(&t, 1, n_floats, &s.manifest, &err), 0);
    s.range.count = n_floats;
    s.map = (struct psd_map){LANES, 131072, 1};
    s.lane_clocks = realloc(s.lane_clocks, LANES * sizeof *s.lane_clocks);
    s.lane_moves = realloc(s.lane_moves, LANES * sizeof *s.lane_moves);
    memset(s.lane_clocks, 0, LANES * sizeof *s.lane_clocks);
    memset(s.lane_moves, 0, LANES * sizeof *s.lane_moves);
    free(s.replay[0].landed);
    s.n_replay = (size_t)LANES * CLIENTS;
    s.replay = realloc(s.replay, s.n_replay * sizeof *s.replay);
    for (uint32_t i = 0; i < s.n_replay; i++) {
        s.replay[i] = (struct psd_replay_entry){i / LANES, 9, i % LANES, i, NULL, n_words, 0};
        s.replay[i].landed = calloc(n_words, sizeof(uint64_t));
        uint32_t whole = i % 3 == 0 ? n_words : i % 3 == 1 ? 0 : i % n_words;
        memset(s.replay[i].landed, 0xff, whole * sizeof(uint64_t));
        if (whole < n_words && i % 3 == 2)
            s.replay[i].landed[whole] = (UINT64_C(1) << i % 64) - 1;
    }
    ck_assert_msg(psd_checkpoint_encode(&s, 7, &text, &len, &err) == 0, "%s", err.text);
    ck_assert_msg(psd_checkpoint_decode("large", text, len, n_floats * sizeof(float), n_floats, &back,
                                        &checksum, &err) == 0,
                  "%s", err.text);
    ck_assert_uint_eq(back.n_replay, s.n_replay);
    for (size_t i = 0; i < s.n_replay; i++) {
        ck_assert_uint_eq(back.replay[i].n_words, n_words);
        ck_assert_mem_eq(back.replay[i].landed, s.replay[i].landed, n_words * sizeof(uint64_t));
    }
    psd_snapshot_finish(&back);
    psd_snapshot_finish(&s);
    free(text);
}
END_TEST

static void add_average(struct psd_snapshot *s)
{
    s->has_average = true;
    strcpy(s->averaging, "moving");
    s->average = malloc(s->manifest->n_floats * sizeof(float));
    for (uint64_t i = 0; i < s->manifest->n_floats; i++)
        s->average[i] = 0.5f - (float)i;
}

/* With 0 to 2 vectors of state, and then with an average. */
START_TEST(what_is_written_is_read)
{
    struct psd_snapshot s, back;
    struct ps_error err;
    struct stat st;
    char path[256];

    make_snapshot(&s, 123, (uint32_t)_i % 3);
    s.delay = _i % 3 == 2 ? 16 : 0;
    if (_i % 3 == 1)
        s.plateau = (struct psd_saved_plateau){true, 1, 2, 0.1, "train_loss"};
    if (_i >= 3)
        add_average(&s);
    ck_assert_msg(psd_checkpoint_write(".", &s, 3, NULL, path, sizeof path, &err) == 0, "%s", err.text);
    ck_assert_str_eq(path, "./center-000000000123.safetensors");
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(count_files(), 1);
    ck_assert_msg(psd_checkpoint_read(path, 45, &back, &err) == 0, "%s", err.text);
    assert_same(&s, &back);
    psd_snapshot_finish(&back);

    ck_assert_int_eq(psd_checkpoint_read(path, 44, &back, &err), -EFBIG);
    assert_error_says(&err, "45 values; the limit (limits.floats) is 44");
    assert_error_says(&err, path);
    psd_snapshot_finish(&s);
    psd_snapshot_finish(&s); /* a zeroed one is fine */
}
END_TEST

/* The header is JSON at a multiple of 8, as other readers of safetensors want it. */
START_TEST(a_scalar_is_written_and_read)
{
    char one[] = "scale", rest[] = "rest";
    struct ps_tensor tensors[] = {{.name = one}, {.name = rest, .offset = 1, .shape = {44}, .n_dims = 1}};
    struct psd_snapshot s, back;
    struct ps_error err;
    char path[256];
    make_snapshot(&s, 5, 1);
    ps_manifest_destroy(s.manifest);
    ck_assert_int_eq(ps_manifest_create(tensors, 2, 45, &s.manifest, &err), 0);
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 3, NULL, path, sizeof path, &err), 0);
    ck_assert_msg(psd_checkpoint_read(path, 45, &back, &err) == 0, "%s", err.text);
    assert_same(&s, &back);
    ck_assert_uint_eq(back.manifest->tensors[0].n_dims, 0);
    psd_snapshot_finish(&back);
    psd_snapshot_finish(&s);
}
END_TEST

START_TEST(file_is_safetensors)
{
    size_t len;
    uint64_t header;
    write_snapshot(1, 1, 1);
    unsigned char *bytes = load("center-000000000001.safetensors", &len);
    memcpy(&header, bytes, 8);
    ck_assert_uint_eq(header % 8, 0);
    ck_assert_int_eq(bytes[8], '{');
    ck_assert_uint_eq(len, 8 + header + 2 * 45 * sizeof(float));
    ck_assert_ptr_nonnull(
        memmem(bytes, len, "\"dtype\":\"F32\",\"shape\":[4,1,3,3],\"data_offsets\":[0,144]", 53));
    free(bytes);
}
END_TEST

/* Whether the file as it is now reads; when it does not, the sentence is checked. */
static bool reads(const char *path)
{
    struct psd_snapshot s;
    struct ps_error err = {""};
    int rc = psd_checkpoint_read(path, 1000, &s, &err);
    if (rc == 0)
        psd_snapshot_finish(&s);
    else
        ck_assert_msg(rc == -EBADMSG && strncmp(err.text, path, strlen(path)) == 0, "%d %s", rc, err.text);
    return rc == 0;
}

static int open_written(const char **path, size_t *len)
{
    *path = "center-000000000001.safetensors";
    write_snapshot(1, 1, 1);
    free(load(*path, len));
    int fd = open(*path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert(reads(*path));
    return fd;
}

START_TEST(every_flipped_byte_is_found)
{
    static const unsigned char flips[] = {0x01, 0x20, 0x80, 0xff};
    const char *path;
    size_t len;
    int fd = open_written(&path, &len);
    for (size_t i = 0; i < len; i++) {
        unsigned char good, bad;
        ck_assert_int_eq(pread(fd, &good, 1, (off_t)i), 1);
        bad = good ^ flips[_i];
        ck_assert_int_eq(pwrite(fd, &bad, 1, (off_t)i), 1);
        ck_assert_msg(!reads(path), "byte %zu flipped by %02x went unseen", i, flips[_i]);
        ck_assert_int_eq(pwrite(fd, &good, 1, (off_t)i), 1);
    }
    ck_assert(reads(path));
    close(fd);
}
END_TEST

START_TEST(every_truncation_is_found)
{
    const char *path;
    size_t len;
    int fd = open_written(&path, &len);
    ck_assert_int_eq(ftruncate(fd, (off_t)len + 1), 0);
    ck_assert(!reads(path));
    for (size_t i = len; i-- > 0;) {
        ck_assert_int_eq(ftruncate(fd, (off_t)i), 0);
        ck_assert_msg(!reads(path), "the first %zu bytes were taken for a checkpoint", i);
    }
    close(fd);
}
END_TEST

/* Headers with a right seal that say something wrong: `from` is replaced by `to` in a good file. */
static const struct {
    const char *from, *to, *says;
} lies[] = {
    {"\"dtype\":\"F32\"", "\"dtype\":\"F64\"", "its dtype is F64; allowed is F32"},
    {"\"dtype\":\"F32\"", "\"dtyp\":1", "its dtype is missing"},
    {"[4,1,3,3]", "[]", "its shape needs 4 bytes"},
    {"[4,1,3,3]", "{}", "allowed is a list of 0, a scalar, to 8"},
    {"[4,1,3,3]", "[1,1,1,1,1,1,1,4,9]", "9 dimensions"},
    {"[4,1,3,3]", "[4,0,3,3]", "dimension 1"},
    {"[4,1,3,3]", "[4,-1,3,3]", "dimension 1"},
    {"[4,1,3,3]", "[4,1,3,3.5]", "dimension 3"},
    {"[4,1,3,3]", "[4294967296,4294967296]", "dimension 0"},
    {"[4,1,3,3]", "[9223372036854775807]", "dimension 0"},
    {"[4,1,3,3]", "[4,1,3,2]", "its shape needs 96 bytes"},
    {"[0,144]", "[0,140]", "data_offsets 0 to 140"},
    {"[0,144]", "[0,144,1]", "not two positions"},
    {"[0,144]", "[-4,140]", "not two positions"},
    {"[0,144]", "[144,0]", "data_offsets 144 to 0"},
    {"[0,144]", "[0,99999]", "not two positions"},
    {"[144,160]", "[140,156]", "it must start where the one before it ends, at 144"},
    {"[144,160]", "[148,164]", "it must start where the one before it ends, at 144"},
    {"\"psd.state.0\"", "\"psd.state.1\"", "is in the place of psd.state.0"},
    {"\"psd.state.0\"", "\"psd.state.x\"", "is in the place of psd.state.0"},
    {"\"psd.state.0\":{\"dtype\":\"F32\",\"shape\":[45]",
     "\"psd.average\":{\"dtype\":\"F32\",\"shape\":[9,5]", "the average is as long as the center, [45]"},
    {"\"conv1.weight\"", "\"psd.average\"", "checkpoints reserve the names"},
    {"\"shape\":[45]", "\"shape\":[9,5]", "as long as the center, [45]"},
    {"\"bn.mean\":{\"dtype", "\"conv1.weight\":{\"dtype", "not JSON"},
    {"\"psd.lanes\":\"2\"", "\"psd.lanes\":\"0\"", "psd.lanes is '0'; allowed is 1 to 64"},
    {"\"psd.lanes\":\"2\"", "\"psd.lanes\":\"1025\"", "psd.lanes is '1025'"},
    {"\"psd.lanes\":\"2\"", "\"psd.lanes\":\"3\"", "psd.clocks has 2 values; psd.lanes is 3"},
    {"\"psd.lanes\":\"2\"", "\"psd.lanes\":2", "psd.lanes is not a string"},
    {"\"psd.lanes\":\"2\"", "\"psd.lane\":\"2\"", "psd.lanes is missing"},
    {"\"psd.format\":\"1\"", "\"psd.format\":\"2\"", "psd.format is '2'; allowed is 1 to 1"},
    {"\"psd.version\":\"1\"", "\"psd.version\":\"-1\"", "psd.version is '-1'"},
    {"\"psd.version\":\"1\"", "\"psd.version\":\"99999999999999999999\"", "psd.version is '9999"},
    {"\"psd.chunk_floats\":\"1024\"", "\"psd.chunk_floats\":\"0\"", "psd.chunk_floats is '0'"},
    {"\"psd.chunk_floats\":\"1024\"", "\"psd.chunk_floats\":\"1048577\"", "psd.chunk_floats is '1048577'"},
    {"\"psd.rule\":\"elastic\"", "\"psd.rule\":\"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\"",
     "psd.rule has 41 bytes"},
    {"\"[1,2]\"", "\"[1,-2]\"", "psd.clocks: value 1"},
    {"\"[1,2]\"", "\"[1,2\"", "psd.clocks is not JSON"},
    {"\"[0,0,0,0,0,4]\"", "\"[0,0,0,0,4]\"", "psd.fragment_moves has 5 values"},
    {"\"[0,0,0,0,0,4]\"", "\"[0]\"", "psd.fragment_moves has 1 values"},
    {"\"[0,0,0,0,0,4]\"", "\"[0,0,0,0,0,-4]\"", "psd.fragment_moves: value 5"},
    {"[4,9,0,", "[4,9,2,", "psd.replay: entry 0"},
    {"[4,9,0,", "[4294967296,9,0,", "psd.replay: entry 0"},
    {"[4,9,0,", "[4,9,0,0,", "psd.replay: entry 0"},
    {"fedcba9876543210", "fedcba987654321", "without words of 16 hexadecimal digits"},
    {"fedcba9876543210", "fedcba9876543210fedcba9876543210", "bitmap of more than 1 words"},
    {"fedcba9876543210", "fedcba987654321G", "without words of 16 hexadecimal digits"},
    {"fedcba9876543210", "fedcba9876543210x2,", "bitmap of more than 1 words"},
    {"fedcba9876543210", "fedcba9876543210x18446744073709551615,", "bitmap of more than 1 words"},
    {"fedcba9876543210", "fedcba9876543210x0,", "without words of 16 hexadecimal digits"},
    {"fedcba9876543210", "fedcba9876543210x2", "without words of 16 hexadecimal digits"},
    {"fedcba9876543210", "fedcba9876543210x,", "without words of 16 hexadecimal digits"},
    {"{\\\"bn.mean\\\":1}", "{\\\"bn.mean\\\":3}", "psd.roles has no role"},
    {"{\\\"bn.mean\\\":1}", "{\\\"bn.meen\\\":1}", "psd.roles names 1 tensors; 0 of them exist"},
    {"\"psd.checksum\":\"", "\"psd.checksum\":\"0", "psd.checksum is '0"},
    {"\"psd.rule\"", "\"psd.test_accuracy\":\"0.5\",\"psd.rule\"", "psd.evaluated_version is missing"},
    {"\"psd.rule\"", "\"psd.evaluated_version\":\"1\",\"psd.test_accuracy\":\"1.5\",\"psd.rule\"",
     "psd.test_accuracy is '1.5'; allowed is 0 to 1"},
    {"\"psd.rule\"", "\"psd.evaluated_version\":\"1\",\"psd.test_accuracy\":\"nan\",\"psd.rule\"",
     "psd.test_accuracy is 'nan'"},
    {"\"psd.rule\"", "\"psd.evaluated_version\":\"1\",\"psd.test_accuracy\":0.5,\"psd.rule\"",
     "psd.test_accuracy is not a string"},
    {"\"psd.rule\"", "\"psd.plateau\":\"-1 0 0.5\",\"psd.rule\"",
     "psd.plateau is '-1 0 0.5'; allowed are two counts"},
    {"\"psd.rule\"", "\"psd.averaging\":\"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\",\"psd.rule\"",
     "psd.averaging has 41 bytes"},
    {"\"psd.rule\"", "\"psd.delay\":\"0\",\"psd.rule\"", "psd.delay is '0'; allowed is 1"},
    {"\"psd.rule\"", "\"psd.plateau\":\"1 0 nan\",\"psd.rule\"", "psd.plateau is '1 0 nan'"},
    {"\"psd.rule\"", "\"psd.plateau\":\"1 0 0.5\",\"psd.watch\":\"eeeeeeeeeeeeeeee\",\"psd.rule\"",
     "psd.watch has 16 bytes"},
    {"\"psd.rule\"", "\"psd.plateau\":\"1 0 0.5 \",\"psd.rule\"", "psd.plateau is '1 0 0.5 '"},
    {"\"psd.clock\":\"4321\"", "\"psd.clock\":\"281474976710657\"", "psd.clock is '281474976710657'"},
    {"\"psd.clock\":\"4321\"", "\"psd.clock\":\"-1\"", "psd.clock is '-1'"},
    {"\"psd.rule\"", "\"psd.rates\":\"{\\\"bn.mean\\\":5}\",\"psd.rule\"", "'bn.mean': rate 5e-06; allowed"},
    {"\"psd.rule\"", "\"psd.rates\":\"{\\\"nobody\\\":5}\",\"psd.rule\"",
     "psd.rates names 1 tensors; 0 of them exist"},
    {"\"__metadata__\"", "\"__metadato__\"", "no object '__metadata__'"},
    {"{\"__metadata__\"", "[\"__metadata__\"", "not JSON"},
};

/* Writes the file with one replacement and its header sealed again. */
static void write_lie(const unsigned char *bytes, size_t len, const char *from, const char *to)
{
    uint64_t header;
    memcpy(&header, bytes, 8);
    const char *at = memmem(bytes + 8, header, from, strlen(from));
    ck_assert_msg(at != NULL, "'%s' is not in the header %s", from, bytes + 8);
    size_t before = (size_t)(at - (const char *)bytes), skip = before + strlen(from);
    unsigned char *lie = malloc(len + strlen(to));
    memcpy(lie, bytes, before);
    memcpy(lie + before, to, strlen(to));
    memcpy(lie + before + strlen(to), bytes + skip, len - skip);
    header = header - strlen(from) + strlen(to);
    memcpy(lie, &header, 8);
    ck_assert_int_eq(psd_checkpoint_seal((char *)lie + 8, header), 0);
    store("lie.safetensors", lie, len - strlen(from) + strlen(to));
    free(lie);
}

START_TEST(sealed_lie_is_refused)
{
    struct psd_snapshot s;
    struct ps_error err;
    size_t len;

    write_snapshot(1, 1, 1);
    unsigned char *bytes = load("center-000000000001.safetensors", &len);
    write_lie(bytes, len, lies[_i].from, lies[_i].to);
    free(bytes);
    ck_assert_int_eq(psd_checkpoint_read("lie.safetensors", 1000, &s, &err), -EBADMSG);
    assert_error_says(&err, "lie.safetensors: ");
    assert_error_says(&err, lies[_i].says);
}
END_TEST

START_TEST(length_is_not_believed)
{
    static const uint64_t lengths[] = {0, 1, 100000001, UINT64_MAX, UINT64_MAX - 7, INT64_MAX};
    unsigned char bytes[64] = "";
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(bytes, &lengths[i], 8);
        store("length.safetensors", bytes, sizeof bytes);
        ck_assert(!reads("length.safetensors"));
    }
}
END_TEST

START_TEST(nonfinite_is_neither_written_nor_read)
{
    struct psd_snapshot s, back;
    struct ps_error err;
    char path[256];
    size_t len;

    make_snapshot(&s, 1, 1);
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, NULL, path, sizeof path, &err), 0);
    s.version = 2;
    s.state[0][44] = INFINITY;
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, NULL, path, sizeof path, &err), -EINVAL);
    assert_error_says(&err, "value 44 of the rule's state is not finite");
    s.state[0][44] = 0;
    add_average(&s);
    s.average[3] = NAN;
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, NULL, path, sizeof path, &err), -EINVAL);
    assert_error_says(&err, "value 3 of the average is not finite");
    ck_assert_int_eq(count_files(), 1);
    psd_snapshot_finish(&s);

    /* A file whose checksum is right and that holds a NaN all the same. */
    unsigned char *bytes = load("center-000000000001.safetensors", &len);
    const float nan_value = NAN;
    uint64_t header;
    char old_sum[40], new_sum[40];
    memcpy(&header, bytes, 8);
    snprintf(old_sum, sizeof old_sum, "%016llx", (unsigned long long)XXH3_64bits(bytes + 8 + header, 360));
    memcpy(bytes + 8 + header + 4 * 7, &nan_value, 4);
    snprintf(new_sum, sizeof new_sum, "%016llx", (unsigned long long)XXH3_64bits(bytes + 8 + header, 360));
    write_lie(bytes, len, old_sum, new_sum);
    free(bytes);
    ck_assert_int_eq(psd_checkpoint_read("lie.safetensors", 1000, &back, &err), -EBADMSG);
    assert_error_says(&err, "value 7 of the center is not finite");
}
END_TEST

START_TEST(reserved_names_are_refused)
{
    static const char *const names[] = {"__metadata__", "psd.state.0", "\xff\xfe", "psd.average"};
    static const char *const says[] = {"'__metadata__'", "'psd.state.0'", "not UTF-8", "'psd.average'"};
    struct ps_error err;
    char name[32];
    struct ps_tensor tensor = {.name = name, .shape = {1}, .n_dims = 1};
    struct ps_manifest *m;

    strcpy(name, names[_i]);
    ck_assert_int_eq(ps_manifest_create(&tensor, 1, 10, &m, &err), 0);
    ck_assert_int_eq(psd_checkpoint_check_manifest(m, &err), -EINVAL);
    assert_error_says(&err, says[_i]);
    ps_manifest_destroy(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-checkpoint");
    TCase *tc = tcase_create("checkpoint");
    tcase_add_checked_fixture(tc, enter_directory, leave_directory);
    tcase_add_loop_test(tc, what_is_written_is_read, 0, 6);
    tcase_add_test(tc, the_header_of_a_large_job_fits);
    tcase_add_test(tc, a_scalar_is_written_and_read);
    tcase_add_test(tc, file_is_safetensors);
    tcase_add_loop_test(tc, every_flipped_byte_is_found, 0, 4);
    tcase_add_test(tc, every_truncation_is_found);
    tcase_add_loop_test(tc, sealed_lie_is_refused, 0, ROWS(lies));
    tcase_add_test(tc, length_is_not_believed);
    tcase_add_test(tc, nonfinite_is_neither_written_nor_read);
    tcase_add_loop_test(tc, reserved_names_are_refused, 0, 4);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
