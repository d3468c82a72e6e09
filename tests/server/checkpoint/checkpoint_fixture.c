#include "tests/server/checkpoint/checkpoint_fixture.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[64];

void enter_directory(void)
{
    strcpy(directory, "/tmp/psd-test-checkpoint-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(chdir(directory), 0);
}

void leave_directory(void)
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

int count_files(void)
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

void make_snapshot(struct psd_snapshot *s, uint64_t version, uint32_t n_state)
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
    s->clock = n_state > 0 ? 4321 : 0;
    s->saved_at_s = 1700000000;
    s->map = (struct psd_map){2, 1024, 1};
    s->part = PSD_WHOLE;
    s->range = (struct ps_range){0, 45};
    s->lane_clocks = calloc(2, sizeof *s->lane_clocks);
    s->lane_moves = calloc(2, sizeof *s->lane_moves);
    s->lane_moves[1] = version + 2;
    s->lane_clocks[0] = version;
    s->lane_clocks[1] = version + 1;
    if (n_state > 0) { /* of a job with fragments */
        s->fragments = 3;
        s->fragment_moves = calloc(6, sizeof *s->fragment_moves);
        s->fragment_moves[5] = version + 3;
    }
    s->n_replay = 2;
    s->replay = calloc(2, sizeof *s->replay);
    add_replay(&s->replay[0], 4, 0, 77, 1);
    add_replay(&s->replay[1], 5, 1, UINT64_MAX, 0);
    s->replay[0].fragment = s->fragments; /* the last */
}

void write_snapshot(uint64_t version, uint64_t saved_at_s, uint32_t keep)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    make_snapshot(&s, version, 1);
    s.saved_at_s = saved_at_s;
    ck_assert_msg(psd_checkpoint_write(".", &s, keep, NULL, path, sizeof path, &err) == 0, "%s", err.text);
    psd_snapshot_finish(&s);
}

unsigned char *load(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    unsigned char *bytes = malloc(1 << 16);
    *len = fread(bytes, 1, 1 << 16, f);
    ck_assert_uint_lt(*len, 1 << 16);
    fclose(f);
    return bytes;
}

void store(const char *path, const void *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

void assert_error_says(const struct ps_error *err, const char *part)
{
    ck_assert_msg(part == NULL || strstr(err->text, part) != NULL, "'%s' is not in the sentence '%s'", part,
                  err->text);
}
