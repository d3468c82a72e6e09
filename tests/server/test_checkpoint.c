/* Checkpoints: what is written is read; nothing else is. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "server/checkpoint_file.h"
#include "server/statedir.h"

static char directory[64];
static char skipped_text[2048]; /* what read_newest reported, one sentence a line */

static void note_skipped(const char *sentence)
{
    strncat(skipped_text, sentence, sizeof skipped_text - strlen(skipped_text) - 2);
    strcat(skipped_text, "\n");
}

static void enter_directory(void)
{
    strcpy(directory, "/tmp/psd-test-checkpoint-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(chdir(directory), 0);
    skipped_text[0] = 0;
}

static void leave_directory(void)
{
    DIR *dir = opendir(".");
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        if (unlink(e->d_name) < 0)
            rmdir(e->d_name);
    closedir(dir);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(rmdir(directory), 0);
}

static int count_files(void)
{
    int n = 0;
    DIR *dir = opendir(".");
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static float *make_vector(uint64_t n, float first)
{
    float *x = malloc(n * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (uint64_t i = 0; i < n; i++)
        x[i] = first + (float)i * 0.25f;
    return x;
}

static void add_replay(struct psd_replay_entry *e, uint32_t client, uint32_t lane, uint64_t seq,
                       uint32_t n_words)
{
    *e = (struct psd_replay_entry){
        .client = client, .incarnation = 9, .lane = lane, .seq = seq, .n_words = n_words};
    e->landed = n_words > 0 ? malloc(n_words * sizeof *e->landed) : NULL;
    for (uint32_t w = 0; w < n_words; w++)
        e->landed[w] = 0xfedcba9876543210u + w;
}

/* Three tensors (one of them a buffer), n_state state vectors, two replay entries. */
static void make_snapshot(struct psd_snapshot *s, uint64_t version, uint32_t n_state)
{
    char weight[] = "conv1.weight",
         bias[] = "conv1.\"b\xc3\xad"
                  "as\"",
         mean[] = "bn.mean";
    struct ps_tensor tensors[] = {
        {.name = weight, .offset = 0, .shape = {4, 1, 3, 3}, .n_dims = 4},
        {.name = bias, .offset = 36, .shape = {4}, .n_dims = 1},
        {.name = mean, .offset = 40, .shape = {5}, .n_dims = 1, .role = PS_ROLE_BUFFER},
    };
    struct ps_error err;

    memset(s, 0, sizeof *s);
    ck_assert_msg(ps_manifest_create(tensors, 3, 1000, &s->manifest, &err) == 0, "%s", err.text);
    s->center = make_vector(45, (float)version);
    s->n_state = n_state;
    s->state = calloc(n_state + 1, sizeof *s->state);
    for (uint32_t k = 0; k < n_state; k++)
        s->state[k] = make_vector(45, -1.0f - (float)k);
    strcpy(s->method, "async-easgd");
    strcpy(s->rule, "elastic");
    s->generation = 3;
    s->incarnation = 17;
    s->version = version;
    s->saved_at_s = 1700000000;
    s->lanes = 2;
    s->chunk_floats = 1024;
    s->lane_clocks = calloc(2, sizeof *s->lane_clocks);
    s->lane_clocks[0] = version;
    s->lane_clocks[1] = version + 1;
    s->n_replay = 2;
    s->replay = calloc(2, sizeof *s->replay);
    add_replay(&s->replay[0], 4, 0, 77, 1);
    add_replay(&s->replay[1], 5, 1, UINT64_MAX, 0);
}

static void assert_same(const struct psd_snapshot *a, const struct psd_snapshot *b)
{
    struct ps_error err;
    ck_assert_msg(ps_manifest_compare(a->manifest, b->manifest, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(a->manifest->hash, b->manifest->hash);
    ck_assert_mem_eq(a->center, b->center, a->manifest->n_floats * sizeof(float));
    ck_assert_uint_eq(a->n_state, b->n_state);
    for (uint32_t k = 0; k < a->n_state; k++)
        ck_assert_mem_eq(a->state[k], b->state[k], a->manifest->n_floats * sizeof(float));
    ck_assert_str_eq(a->method, b->method);
    ck_assert_str_eq(a->rule, b->rule);
    ck_assert_uint_eq(a->generation, b->generation);
    ck_assert_uint_eq(a->incarnation, b->incarnation);
    ck_assert_uint_eq(a->version, b->version);
    ck_assert_uint_eq(a->saved_at_s, b->saved_at_s);
    ck_assert_uint_eq(a->lanes, b->lanes);
    ck_assert_uint_eq(a->chunk_floats, b->chunk_floats);
    ck_assert_mem_eq(a->lane_clocks, b->lane_clocks, a->lanes * sizeof *a->lane_clocks);
    ck_assert_uint_eq(a->n_replay, b->n_replay);
    for (size_t i = 0; i < a->n_replay; i++) {
        const struct psd_replay_entry *x = &a->replay[i], *y = &b->replay[i];
        ck_assert_uint_eq(x->client, y->client);
        ck_assert_uint_eq(x->incarnation, y->incarnation);
        ck_assert_uint_eq(x->lane, y->lane);
        ck_assert_uint_eq(x->seq, y->seq);
        ck_assert_uint_eq(x->n_words, y->n_words);
        if (x->n_words > 0)
            ck_assert_mem_eq(x->landed, y->landed, x->n_words * sizeof *x->landed);
    }
}

static void write_snapshot(uint64_t version, uint64_t saved_at_s, uint32_t keep)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    make_snapshot(&s, version, 1);
    s.saved_at_s = saved_at_s;
    ck_assert_msg(psd_checkpoint_write(".", &s, keep, path, sizeof path, &err) == 0, "%s", err.text);
    psd_snapshot_finish(&s);
}

static unsigned char *load(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    unsigned char *bytes = malloc(1 << 16);
    *len = fread(bytes, 1, 1 << 16, f);
    ck_assert_uint_lt(*len, 1 << 16);
    fclose(f);
    return bytes;
}

static void store(const char *path, const void *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

static void assert_says(const struct ps_error *err, const char *part)
{
    ck_assert_msg(part == NULL || strstr(err->text, part) != NULL, "'%s' is not in the sentence '%s'", part,
                  err->text);
}

START_TEST(what_is_written_is_read)
{
    struct psd_snapshot s, back;
    struct ps_error err;
    struct stat st;
    char path[256];

    make_snapshot(&s, 123, (uint32_t)_i);
    ck_assert_msg(psd_checkpoint_write(".", &s, 3, path, sizeof path, &err) == 0, "%s", err.text);
    ck_assert_str_eq(path, "./center-000000000123.safetensors");
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(count_files(), 1);
    ck_assert_msg(psd_checkpoint_read(path, 45, &back, &err) == 0, "%s", err.text);
    assert_same(&s, &back);
    psd_snapshot_finish(&back);

    ck_assert_int_eq(psd_checkpoint_read(path, 44, &back, &err), -EFBIG);
    assert_says(&err, "45 values; the limit (limits.floats) is 44");
    assert_says(&err, path);
    psd_snapshot_finish(&s);
    psd_snapshot_finish(&s); /* a zeroed one is fine */
}
END_TEST

/* The header is JSON at a multiple of 8, as other readers of safetensors want it. */
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

static bool reads(const void *bytes, size_t len)
{
    struct psd_snapshot s;
    struct ps_error err = {""};
    store("damaged.safetensors", bytes, len);
    int rc = psd_checkpoint_read("damaged.safetensors", 1000, &s, &err);
    if (rc == 0)
        psd_snapshot_finish(&s);
    else
        ck_assert_msg(rc == -EBADMSG && strncmp(err.text, "damaged.safetensors: ", 21) == 0, "%d %s", rc,
                      err.text);
    return rc == 0;
}

START_TEST(every_flipped_byte_is_found)
{
    static const unsigned char flips[] = {0x01, 0x20, 0x80, 0xff};
    size_t len;
    write_snapshot(1, 1, 1);
    unsigned char *bytes = load("center-000000000001.safetensors", &len);
    ck_assert(reads(bytes, len));
    for (size_t i = 0; i < len; i++) {
        bytes[i] ^= flips[_i];
        ck_assert_msg(!reads(bytes, len), "byte %zu flipped by %02x went unseen", i, flips[_i]);
        bytes[i] ^= flips[_i];
    }
    free(bytes);
}
END_TEST

START_TEST(every_truncation_is_found)
{
    size_t len;
    write_snapshot(1, 1, 1);
    unsigned char *bytes = load("center-000000000001.safetensors", &len);
    for (size_t i = 0; i < len; i++)
        ck_assert_msg(!reads(bytes, i), "the first %zu bytes were taken for a checkpoint", i);
    unsigned char *longer = calloc(1, len + 1);
    memcpy(longer, bytes, len);
    ck_assert(!reads(longer, len + 1));
    free(longer);
    free(bytes);
}
END_TEST

/* Headers with a right seal that say something wrong: `from` is replaced by `to` in a good file. */
static const struct {
    const char *from, *to, *says;
} lies[] = {
    {"\"dtype\":\"F32\"", "\"dtype\":\"F64\"", "its dtype is F64; allowed is F32"},
    {"\"dtype\":\"F32\"", "\"dtyp\":1", "its dtype is missing"},
    {"[4,1,3,3]", "[]", "0 dimensions; allowed are 1 to 8"},
    {"[4,1,3,3]", "[1,1,1,1,1,1,1,4,9]", "9 dimensions"},
    {"[4,1,3,3]", "[4,0,3,3]", "dimension 1"},
    {"[4,1,3,3]", "[4,-1,3,3]", "dimension 1"},
    {"[4,1,3,3]", "[4,1,3,3.5]", "dimension 3"},
    {"[4,1,3,3]", "[4294967296,4294967296]", "dimension 0"},
    {"[4,1,3,3]", "[9223372036854775807]", "dimension 0"},
    {"[4,1,3,3]", "[4,1,3,2]", "its shape needs 96 bytes"},
    {"[0,144]", "[0,140]", "data_offsets 0 to 140"},
    {"[0,144]", "[0,144,1]", "no two positions"},
    {"[0,144]", "[-4,140]", "no two positions"},
    {"[0,144]", "[144,0]", "data_offsets 144 to 0"},
    {"[0,144]", "[0,99999]", "no two positions"},
    {"[144,160]", "[140,156]", "it must start where the one before it ends, at 144"},
    {"[144,160]", "[148,164]", "it must start where the one before it ends, at 144"},
    {"\"psd.state.0\"", "\"psd.state.1\"", "stands where psd.state.0"},
    {"\"psd.state.0\"", "\"psd.state.x\"", "stands where psd.state.0"},
    {"\"shape\":[45]", "\"shape\":[9,5]", "as long as the center, [45]"},
    {"\"bn.mean\":{\"dtype", "\"conv1.weight\":{\"dtype", "not JSON"},
    {"\"psd.lanes\":\"2\"", "\"psd.lanes\":\"0\"", "psd.lanes is '0'; allowed is 1 to 1024"},
    {"\"psd.lanes\":\"2\"", "\"psd.lanes\":\"1025\"", "psd.lanes is '1025'"},
    {"\"psd.lanes\":\"2\"", "\"psd.lanes\":\"3\"", "psd.clocks has 2 values; psd.lanes is 3"},
    {"\"psd.lanes\":\"2\"", "\"psd.lanes\":2", "psd.lanes is no string"},
    {"\"psd.lanes\":\"2\"", "\"psd.lane\":\"2\"", "psd.lanes is missing"},
    {"\"psd.format\":\"1\"", "\"psd.format\":\"2\"", "psd.format is '2'; allowed is 1 to 1"},
    {"\"psd.version\":\"1\"", "\"psd.version\":\"-1\"", "psd.version is '-1'"},
    {"\"psd.version\":\"1\"", "\"psd.version\":\"99999999999999999999\"", "psd.version is '9999"},
    {"\"psd.chunk_floats\":\"1024\"", "\"psd.chunk_floats\":\"0\"", "psd.chunk_floats is '0'"},
    {"\"psd.rule\":\"elastic\"", "\"psd.rule\":\"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\"",
     "psd.rule has 41 bytes"},
    {"\"[1,2]\"", "\"[1,-2]\"", "psd.clocks: value 1"},
    {"\"[1,2]\"", "\"[1,2\"", "psd.clocks is not JSON"},
    {"[4,9,0,", "[4,9,2,", "psd.replay: entry 0"},
    {"[4,9,0,", "[4294967296,9,0,", "psd.replay: entry 0"},
    {"[4,9,0,", "[4,9,0,0,", "psd.replay: entry 0"},
    {"fedcba9876543210", "fedcba987654321", "bitmap of 15 digits; allowed are multiples of 16 up to 16"},
    {"fedcba9876543210", "fedcba9876543210fedcba9876543210", "bitmap of 32 digits"},
    {"fedcba9876543210", "fedcba987654321G", "not hexadecimal"},
    {"{\\\"bn.mean\\\":1}", "{\\\"bn.mean\\\":3}", "psd.roles has no role"},
    {"{\\\"bn.mean\\\":1}", "{\\\"bn.meen\\\":1}", "psd.roles names 1 tensors; 0 of them exist"},
    {"\"psd.checksum\":\"", "\"psd.checksum\":\"0", "psd.checksum is '0"},
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
    assert_says(&err, "lie.safetensors: ");
    assert_says(&err, lies[_i].says);
}
END_TEST

START_TEST(length_is_not_believed)
{
    static const uint64_t lengths[] = {0, 1, 100000001, UINT64_MAX, UINT64_MAX - 7, INT64_MAX};
    unsigned char bytes[64] = "";
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(bytes, &lengths[i], 8);
        ck_assert(!reads(bytes, sizeof bytes));
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
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, path, sizeof path, &err), 0);
    s.version = 2;
    s.state[0][44] = INFINITY;
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, path, sizeof path, &err), -EINVAL);
    assert_says(&err, "value 44 of the rule's state is not finite");
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
    assert_says(&err, "value 7 of the center is not finite");
}
END_TEST

START_TEST(newest_are_kept)
{
    static const char junk[] = "not a checkpoint";
    store(".center.tmp-99999", junk, sizeof junk);
    store("center-000000000009.safetensors", junk, sizeof junk);
    store("center-other.safetensors", junk, sizeof junk);
    for (uint64_t v = 1; v <= 5; v++)
        write_snapshot(v, 1000 + v, 2);
    ck_assert_int_eq(access("center-000000000005.safetensors", F_OK), 0);
    ck_assert_int_eq(access("center-000000000004.safetensors", F_OK), 0);
    ck_assert_int_ne(access("center-000000000003.safetensors", F_OK), 0);
    ck_assert_int_ne(access(".center.tmp-99999", F_OK), 0); /* left by a writer that died */
    ck_assert_int_eq(count_files(), 4);                     /* what is not ours, or damaged, stays */
    write_snapshot(5, 1006, 0);
    ck_assert_int_eq(access("center-000000000005.safetensors", F_OK), 0);
    ck_assert_int_eq(count_files(), 3);
}
END_TEST

/* A run that started anew beside the files of a longer one: its files are the newest all the same. */
START_TEST(newest_is_by_time)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    write_snapshot(10000, 1000, 3);
    write_snapshot(20, 2000, 3);
    write_snapshot(30, 2000, 3);
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, note_skipped, &err), 0);
    ck_assert_uint_eq(s.version, 30);
    ck_assert_str_eq(path, "./center-000000000030.safetensors");
    psd_snapshot_finish(&s);
    write_snapshot(40, 3000, 2);
    ck_assert_int_ne(access("center-000000010000.safetensors", F_OK), 0);
}
END_TEST

START_TEST(damaged_newest_falls_back)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    size_t len;

    for (uint64_t v = 1; v <= 3; v++)
        write_snapshot(v, 1000 + v, 3);
    unsigned char *bytes = load("center-000000000003.safetensors", &len);
    bytes[len - 3] ^= 4; /* in the data */
    store("center-000000000003.safetensors", bytes, len);
    store("center-000000000002.safetensors", bytes, 100); /* in the header; newest by the file's time */
    free(bytes);
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, note_skipped, &err), 0);
    ck_assert_uint_eq(s.version, 1);
    psd_snapshot_finish(&s);
    ck_assert_ptr_nonnull(strstr(skipped_text, "center-000000000003.safetensors: the data"));
    ck_assert_ptr_nonnull(strstr(skipped_text, "center-000000000002.safetensors: byte 0 says a header of"));

    ck_assert_int_eq(psd_checkpoint_read_newest(".", 44, &s, path, sizeof path, NULL, &err), -EFBIG);
    ck_assert_int_eq(truncate("center-000000000001.safetensors", 0), 0);
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, NULL, &err), -EBADMSG);
    assert_says(&err, "none of 3 checkpoints is readable");
}
END_TEST

START_TEST(empty_directory_has_none)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    ck_assert_int_eq(psd_checkpoint_read_newest(".", 1000, &s, path, sizeof path, NULL, &err), -ENOENT);
    assert_says(&err, "no checkpoint");
    ck_assert_int_eq(psd_checkpoint_read_newest("missing", 1000, &s, path, sizeof path, NULL, &err), -ENOENT);
    assert_says(&err, "missing: cannot read the checkpoint directory");
    ck_assert_int_eq(psd_checkpoint_read("missing", 1000, &s, &err), -ENOENT);
    ck_assert_int_eq(psd_checkpoint_read(".", 1000, &s, &err), -EBADMSG);
    assert_says(&err, "not a regular file");
}
END_TEST

START_TEST(failed_write_leaves_the_old_file)
{
    struct psd_snapshot s, back;
    struct ps_error err;
    char path[256];

    make_snapshot(&s, 1, 1);
    ck_assert_int_eq(psd_checkpoint_write("missing", &s, 1, path, sizeof path, &err), -ENOENT);
    assert_says(&err, "missing: ");
    write_snapshot(1, 1, 1);
    s.version = 2;
    ck_assert_int_eq(mkdir("center-000000000002.safetensors", 0700), 0); /* rename cannot replace it */
    ck_assert_int_lt(psd_checkpoint_write(".", &s, 1, path, sizeof path, &err), 0);
    assert_says(&err, "center-000000000002.safetensors: cannot write the checkpoint: ");
    ck_assert_int_eq(rmdir("center-000000000002.safetensors"), 0);
    ck_assert_int_eq(count_files(), 1);

    if (geteuid() != 0) { /* permissions do not bind root */
        ck_assert_int_eq(chmod(".", 0500), 0);
        ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, path, sizeof path, &err), -EACCES);
        ck_assert_int_eq(chmod(".", 0700), 0);
    }
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 1, path, 20, &err), -ENAMETOOLONG);
    ck_assert_int_eq(psd_checkpoint_read("center-000000000001.safetensors", 1000, &back, &err), 0);
    psd_snapshot_finish(&back);
    psd_snapshot_finish(&s);
}
END_TEST

/* A write that stops in the middle: the file-size limit stands in for a full disk. */
START_TEST(short_write_leaves_nothing)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    write_snapshot(1, 1, 1);
    make_snapshot(&s, 2, 1);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        int rc = psd_checkpoint_write(".", &s, 1, path, sizeof path, &err);
        _exit(rc == -EFBIG && strstr(err.text, "cannot write the checkpoint") != NULL ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(count_files(), 1);
    ck_assert_int_eq(access("center-000000000001.safetensors", F_OK), 0);
    psd_snapshot_finish(&s);
}
END_TEST

START_TEST(reserved_names_are_refused)
{
    static const char *const names[] = {"__metadata__", "psd.state.0", "\xff\xfe"};
    static const char *const says[] = {"'__metadata__'", "'psd.state.0'", "not UTF-8"};
    struct ps_error err;
    char name[32];
    struct ps_tensor tensor = {.name = name, .shape = {1}, .n_dims = 1};
    struct ps_manifest *m;

    strcpy(name, names[_i]);
    ck_assert_int_eq(ps_manifest_create(&tensor, 1, 10, &m, &err), 0);
    ck_assert_int_eq(psd_checkpoint_check_manifest(m, &err), -EINVAL);
    assert_says(&err, says[_i]);
    ps_manifest_destroy(m);
}
END_TEST

START_TEST(state_directory_has_one_owner)
{
    struct ps_error err;
    struct stat st;
    char want[64];
    int first, second;

    ck_assert_msg(psd_state_lock("state", &first, &err) == 0, "%s", err.text);
    ck_assert_int_eq(stat("state", &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);
    ck_assert_int_eq(psd_state_lock("state", &second, &err), -EBUSY);
    snprintf(want, sizeof want, "in use by the psd with pid %ld", (long)getpid());
    assert_says(&err, want);
    psd_state_unlock(first);
    ck_assert_int_eq(psd_state_lock("state", &second, &err), 0);
    psd_state_unlock(second);

    pid_t child = fork(); /* one that dies without a word */
    if (child == 0)
        _exit(psd_state_lock("state", &first, &err) == 0 ? 0 : 1);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(psd_state_lock("state", &first, &err), 0);
    psd_state_unlock(first);
    unlink("state/lock");

    ck_assert_int_eq(psd_state_lock("a/b", &first, &err), -ENOENT);
    assert_says(&err, "a/b: cannot make the state directory");
    store("file", "x", 1);
    ck_assert_int_eq(psd_state_lock("file", &first, &err), -ENOTDIR);
    assert_says(&err, "file: cannot use it");
}
END_TEST

#define ROWS(table) ((int)(sizeof(table) / sizeof *(table)))

int main(void)
{
    Suite *suite = suite_create("server-checkpoint");
    TCase *tc = tcase_create("checkpoint");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, enter_directory, leave_directory);
    tcase_add_loop_test(tc, what_is_written_is_read, 0, 3);
    tcase_add_test(tc, file_is_safetensors);
    tcase_add_loop_test(tc, every_flipped_byte_is_found, 0, 4);
    tcase_add_test(tc, every_truncation_is_found);
    tcase_add_loop_test(tc, sealed_lie_is_refused, 0, ROWS(lies));
    tcase_add_test(tc, length_is_not_believed);
    tcase_add_test(tc, nonfinite_is_neither_written_nor_read);
    tcase_add_test(tc, newest_are_kept);
    tcase_add_test(tc, newest_is_by_time);
    tcase_add_test(tc, damaged_newest_falls_back);
    tcase_add_test(tc, empty_directory_has_none);
    tcase_add_test(tc, failed_write_leaves_the_old_file);
    tcase_add_test(tc, short_write_leaves_nothing);
    tcase_add_loop_test(tc, reserved_names_are_refused, 0, 3);
    tcase_add_test(tc, state_directory_has_one_owner);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
