/* Checkpoints of parts, and what merges them; notes as they travel between servers; what servers must agree
 * on. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/checkpoint/join_shards.h"
#include "server/psd.h"
#include "tests/server/checkpoint/checkpoint_fixture.h"
#include "tests/support/unit.h"

enum { FLOATS = 900, PARTS = 3, LANES = 6 };
static char folder[64];

static void enter(void)
{
    strcpy(folder, "/tmp/psd-parts-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static void leave(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert(chdir("/") == 0 && system(command) == 0);
}

static struct ps_manifest *model(void)
{
    char a[] = "a", b[] = "b", c[] = "c";
    const struct ps_tensor tensors[] = {{a, 0, {20, 20}, 2, PS_ROLE_PARAM, 0},
                                        {b, 400, {210}, 1, PS_ROLE_PARAM, PS_NO_DECAY},
                                        {c, 610, {290}, 1, PS_ROLE_BUFFER, 0}};
    struct ps_manifest *m;
    struct ps_error err;
    ck_assert_msg(ps_manifest_create(tensors, 3, FLOATS, &m, &err) == 0, "%s", err.text);
    return m;
}

static float value(uint64_t i, uint32_t vector)
{
    return (float)i + 1000 * (float)vector;
}

/* What server `part` writes: values of its range, the others' NaN, which must never be read. */
static void make_part(struct psd_snapshot *s, uint32_t part, uint64_t version)
{
    *s = (struct psd_snapshot){.manifest = model(),
                               .part = part,
                               .n_state = 1,
                               .has_average = true,
                               .method = "async-msgd",
                               .rule = "momentum",
                               .incarnation = 5,
                               .version = version,
                               .saved_at_s = 1700000000 + version,
                               .map = {LANES, 1024, PARTS}};
    struct ps_shard cut = {FLOATS, LANES, 1024, 0, {0}};
    ck_assert_int_eq(ps_manifest_cut(s->manifest, PARTS, &cut, NULL), 0);
    s->range = ps_shard_part(&cut, part);
    s->state = calloc(2, sizeof *s->state);
    float **to[] = {&s->center, &s->state[0], &s->average};
    for (uint32_t v = 0; v < 3; v++) {
        *to[v] = malloc(FLOATS * sizeof(float));
        for (uint64_t i = 0; i < FLOATS; i++)
            (*to[v])[i] =
                i >= s->range.begin && i < s->range.begin + s->range.count ? value(i, v) : (float)NAN;
    }
    s->lane_clocks = calloc(LANES, sizeof *s->lane_clocks);
    s->lane_moves = calloc(LANES, sizeof *s->lane_moves);
    for (uint32_t k = 2 * part; k < 2 * part + 2; k++)
        s->lane_clocks[k] = s->lane_moves[k] = 100 + k;
    s->replay = calloc(1, sizeof *s->replay);
    s->replay[0] = (struct psd_replay_entry){3, 5, 2 * part, 77, calloc(1, sizeof(uint64_t)), 1, 0};
    s->replay[0].landed[0] = 1;
    s->n_replay = 1;
}

static void write_part(const char *dir, uint32_t part, uint64_t version, char *path, size_t size)
{
    struct psd_snapshot s;
    struct ps_error err;
    char checkpoints[64];
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", dir);
    mkdir(dir, 0700);
    mkdir(checkpoints, 0700);
    make_part(&s, part, version);
    ck_assert_msg(psd_checkpoint_write(checkpoints, &s, 10, NULL, path, size, &err) == 0, "%s", err.text);
    psd_snapshot_finish(&s);
}

START_TEST(a_part_reads_as_it_was_written)
{
    struct psd_snapshot s, back;
    struct ps_error err;
    char path[256];
    write_part("p", (uint32_t)_i, 40, path, sizeof path);
    ck_assert_msg(psd_checkpoint_read(path, FLOATS, &back, &err) == 0, "%s", err.text);
    make_part(&s, (uint32_t)_i, 40);
    ck_assert(back.part == s.part && back.map.parts == PARTS && back.map.lanes == LANES);
    ck_assert(back.range.begin == s.range.begin && back.range.count == s.range.count);
    ck_assert_uint_eq(back.manifest->hash, s.manifest->hash); /* of the whole model, roles and decay too */
    for (uint64_t i = s.range.begin; i < s.range.begin + s.range.count; i++)
        ck_assert(back.center[i] == value(i, 0) && back.state[0][i] == value(i, 1) &&
                  back.average[i] == value(i, 2));
    ck_assert_mem_eq(back.lane_clocks, s.lane_clocks, LANES * sizeof *s.lane_clocks);
    psd_snapshot_finish(&s);
    psd_snapshot_finish(&back);
    ck_assert_int_eq(psd_checkpoint_read(path, FLOATS - 1, &back, &err),
                     -EBADMSG); /* limits.floats is the model's */
}
END_TEST

/* The second tensor is called as the piece of the first one is. */
START_TEST(a_part_with_two_entries_of_one_name_is_not_written)
{
    struct psd_snapshot s;
    struct ps_error err = {""};
    char path[256];
    make_part(&s, 1, 40);
    free(s.manifest->tensors[1].name);
    s.manifest->tensors[1].name = strdup("a[288:400]");
    ck_assert_int_eq(psd_checkpoint_write(".", &s, 10, NULL, path, sizeof path, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "'a[288:400]' is a tensor, and") != NULL, "%s", err.text);
    psd_snapshot_finish(&s);
}
END_TEST

/* Replaces `from` by `to`, of the same length, in the header, and seals it again. */
static const struct {
    const char *from, *to, *says;
} damages[] = {
    {"\"psd.part\":\"1\"", "\"psd.part\":\"3\"", "psd.part is '3'; allowed is 0 to 2"},
    {"\"psd.part\":\"1\"", "\"psd.part\":\"2\"", "part 2 of 3 needs"},
    {"\"psd.parts\":\"3\"", "\"psd.parts\":\"2\"", "needs values"},
    {"\"psd.parts\":\"3\"", "\"psd.parts\":\"1\"", "psd.parts is '1'; allowed is 2 to 32"},
    {"[\\\"b\\\",[210]]", "[\\\"b\\\",[21x]]", "psd.model is not JSON"},
    {"[\\\"b\\\",[210]]", "[\\\"b\\\",[990]]", "ends above the limit (limits.floats: 900)"},
    {"[\\\"a\\\",[20,20]]", "[\\\"z\\\",[20,20]]", "tensor 'z'; found is 'a[288:400]'"},
    {"\"psd.model\"", "\"psd.modal\"", "psd.model is missing"},
};

START_TEST(a_part_that_is_not_what_it_says_is_damaged)
{
    struct psd_snapshot s;
    struct ps_error err;
    char path[256];
    size_t len, n = strlen(damages[_i].from);
    uint64_t header;
    write_part("p", 1, 40, path, sizeof path);
    unsigned char *bytes = load(path, &len);
    memcpy(&header, bytes, sizeof header);
    char *text = (char *)bytes + sizeof header, *at = memmem(text, header, damages[_i].from, n);
    ck_assert_msg(at != NULL, "%s is not there", damages[_i].from);
    memcpy(at, damages[_i].to, n);
    ck_assert_int_eq(psd_checkpoint_seal(text, header), 0);
    store(path, bytes, len);
    free(bytes);
    ck_assert_int_eq(psd_checkpoint_read(path, FLOATS, &s, &err), -EBADMSG);
    assert_error_says(&err, damages[_i].says);
}
END_TEST

START_TEST(parts_become_the_whole)
{
    char *dirs[] = {"p2", "p0", "p1"}, path[256];
    struct psd_merged merged;
    struct psd_snapshot s;
    struct ps_error err;
    for (uint32_t i = 0; i < PARTS; i++) {
        char dir[] = {'p', (char)('0' + i), 0};
        write_part(dir, i, 40, path, sizeof path);
        if (i != 1) /* a newer one that not all have */
            write_part(dir, i, 50 + i, path, sizeof path);
    }
    ck_assert_msg(psd_join_shards("out", dirs, PARTS, &merged, &err) == 0, "%s", err.text);
    ck_assert(merged.version == 40 && merged.low == 40 && merged.high == 40);
    ck_assert_int_eq(psd_checkpoint_read(merged.path, FLOATS, &s, &err), 0);
    ck_assert(s.part == PSD_WHOLE && s.map.parts == PARTS && s.range.count == FLOATS && s.n_replay == PARTS);
    for (uint64_t i = 0; i < FLOATS; i++)
        ck_assert(s.center[i] == value(i, 0) && s.state[0][i] == value(i, 1) && s.average[i] == value(i, 2));
    for (uint32_t k = 0; k < LANES; k++)
        ck_assert(s.lane_clocks[k] == 100 + k && s.lane_moves[k] == 100 + k);
    psd_snapshot_finish(&s);
    ck_assert_int_eq(psd_join_shards("out", dirs, PARTS, &merged, &err), -EEXIST);
    ck_assert_int_eq(psd_join_shards("new", dirs, 2, &merged, &err), -EINVAL);
    assert_error_says(&err, "one is needed for each part");
    dirs[2] = dirs[1];
    ck_assert_int_eq(psd_join_shards("new", dirs, PARTS, &merged, &err), -EINVAL);
    assert_error_says(&err, "part 0 of 3 is also in p0");
    dirs[2] = "nowhere";
    ck_assert_int_eq(psd_join_shards("new", dirs, PARTS, &merged, &err), -ENOENT);
    ck_assert_int_ne(access("new", F_OK), 0); /* nothing was made */
}
END_TEST

START_TEST(members_that_cannot_be_are_not_taken)
{
    uint32_t ranks[8], good[] = {1, 3, 7}, back[] = {3, 1}, far[] = {1, 8};
    uint64_t seqs[8], some[] = {5, 6, 7};
    struct psd_members m = {.ranks = ranks, .seqs = seqs};
    Ps__NoteMembers n = PS__NOTE_MEMBERS__INIT;
    ck_assert(!psd_lane_message_members(NULL, 8, &m));
    n.from = 9;
    n.ranks = good;
    n.seqs = some;
    n.n_ranks = n.n_seqs = 3;
    ck_assert(psd_lane_message_members(&n, 8, &m));
    ck_assert(m.from == 9 && m.n == 3 && ranks[2] == 7 && seqs[2] == 7);
    n.n_seqs = 2;
    ck_assert(!psd_lane_message_members(&n, 8, &m));
    n.n_seqs = 0;
    ck_assert(psd_lane_message_members(&n, 8, &m));
    ck_assert(!psd_lane_message_members(&n, 2, &m)); /* more than there are slots */
    n.n_ranks = 2;
    n.ranks = back;
    ck_assert(!psd_lane_message_members(&n, 8, &m));
    n.ranks = far;
    ck_assert(!psd_lane_message_members(&n, 8, &m));
}
END_TEST

static const struct {
    const char *head, *other, *says;
} configurations[] = {
    {"{\"method\":\"a\",\"limits\":{\"floats\":3}}", "{\"method\":\"a\",\"limits\":{\"floats\":3}}", ""},
    {"{\"listen\":\"x\",\"state_dir\":\"1\"}", "{\"listen\":\"y\"}", ""}, /* each server's own */
    {"{\"method\":\"a\"}", "{\"method\":\"b\"}", "method: found \"b\"; the head has \"a\""},
    {"{\"limits\":{\"floats\":3}}", "{\"limits\":{\"floats\":4}}", "limits.floats: found 4; the head has 3"},
    {"{\"limits\":{\"floats\":3}}", "{}", "limits.floats: found nothing; the head has 3"},
    {"{\"method\":\"a\"}", "[]", "its configuration is not a JSON object"},
    {"{\"method\":\"a\"}", "{", "its configuration is not a JSON object"},
};

START_TEST(servers_that_differ_are_told_where)
{
    char sentence[400] = "x";
    psd_cluster_compare(configurations[_i].head, configurations[_i].other, sentence, sizeof sentence);
    if (configurations[_i].says[0] == 0)
        ck_assert_str_eq(sentence, "");
    ck_assert_msg(strstr(sentence, configurations[_i].says) != NULL, "'%s'", sentence);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-parts");
    TCase *files = tcase_create("files"), *c = tcase_create("words");
    tcase_add_checked_fixture(files, enter, leave);
    tcase_add_loop_test(files, a_part_reads_as_it_was_written, 0, PARTS);
    tcase_add_test(files, a_part_with_two_entries_of_one_name_is_not_written);
    tcase_add_loop_test(files, a_part_that_is_not_what_it_says_is_damaged, 0, ROWS(damages));
    tcase_add_test(files, parts_become_the_whole);
    tcase_add_test(c, members_that_cannot_be_are_not_taken);
    tcase_add_loop_test(c, servers_that_differ_are_told_where, 0, ROWS(configurations));
    suite_add_tcase(suite, files);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
