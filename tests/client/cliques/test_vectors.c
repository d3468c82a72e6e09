/* Several vectors of each member: over every kind of clique below, by one thread and by a thread for each
 * device. Sums, their bits, and what runs beside what. */
#include <math.h>
#include <stdio.h>

#include "client/cliques/clique.h"
#include "client/cliques/vectors/grouped.h"
#include "proto/clock.h"
#include "proto/thread.h"
#include "tests/client/cliques/vectors_fixture.h"

enum { N = 20000, MAX_PLACES = 16 };

/* A sum by members with `each` vectors: floats [begin, begin + count), in parts of so many. */
struct work {
    int each;
    size_t begin, count, part_floats;
    const char *codec;
    float *found; /* [N]: vector 0 of member 0, afterwards */
};

static void open_vectors(struct rig_member *m, const struct work *w, float **x, struct psc_vectors **out)
{
    struct psc_vector vectors[PSC_MAX_VECTORS] = {{.data = NULL}};
    struct psc_vectors_options opt;
    psc_vectors_options_init(&opt, sizeof opt);
    opt.vectors = vectors;
    opt.n_vectors = (size_t)w->each;
    opt.n_floats = N;
    opt.part_floats = w->part_floats;
    for (int i = 0; i < w->each; i++)
        vectors[i].data = x[i] = vector_make(m->index * w->each + i, N);
    vectors[w->each - 1].memory = "host";
    rig_ok(m, m->rc);
    int rc = psc_vectors_open(m->q, &opt, out);
    ck_assert_msg(rc == PSC_OK, "%s: %s", psc_result_name(rc), psc_vectors_error(*out));
}

/* Every addition rounds, and partial sums are below 2 for each vector. */
static void check_sum(const float *x, const struct work *w, int places)
{
    for (size_t i = 0; i < N; i += 7) {
        double sum = 0, bound = (double)places * 2 * places * 0x1p-24;
        for (int p = 0; p < places; p++) {
            static float *values[MAX_PLACES];
            if (values[p] == NULL)
                values[p] = vector_make(p, N);
            sum += (double)values[p][i];
        }
        if (i >= w->begin && i < w->begin + w->count)
            ck_assert_msg(fabs((double)x[i] - sum) <= bound, "float %zu of %d vectors is %.9g, the sum %.9g",
                          i, places, (double)x[i], sum);
    }
}

/* All vectors of a member end with the same bits within the range, and are as before outside. */
static void check_vectors(struct rig_member *m, const struct work *w, float *const *x)
{
    for (int i = 0; i < w->each; i++) {
        float *was = vector_make(m->index * w->each + i, N);
        size_t end = w->begin + w->count;
        ck_assert(memcmp(x[i] + w->begin, x[0] + w->begin, w->count * sizeof **x) == 0);
        ck_assert(memcmp(x[i], was, w->begin * sizeof **x) == 0);
        ck_assert(memcmp(x[i] + end, was + end, (N - end) * sizeof **x) == 0);
        free(was);
    }
}

static pthread_mutex_t checking = PTHREAD_MUTEX_INITIALIZER; /* members are threads */

static void sum_vectors(struct rig_member *m)
{
    const struct work *w = m->arg;
    struct psc_vectors *v;
    float *x[PSC_MAX_VECTORS], *first = malloc(N * sizeof *first);
    open_vectors(m, w, x, &v);
    int rc = psc_vectors_allreduce(v, w->begin, w->count, w->codec);
    ck_assert_msg(rc == PSC_OK, "%s: %s", psc_result_name(rc), psc_vectors_error(v));
    check_vectors(m, w, x);
    if (w->codec == NULL) {
        pthread_mutex_lock(&checking);
        check_sum(x[0], w, m->rig->members * w->each);
        pthread_mutex_unlock(&checking);
    }
    memcpy(first, x[0], N * sizeof *first);
    rig_ok(m, psc_broadcast(m->q, first, N * sizeof *first, 0));
    ck_assert(memcmp(first + w->begin, x[0] + w->begin, w->count * sizeof *first) == 0);
    if (m->index == 0 && w->found != NULL)
        memcpy(w->found, x[0], N * sizeof *first);
    psc_vectors_close(v);
    for (int i = 0; i < w->each; i++)
        free(x[i]);
    free(first);
}

START_TEST(vectors_are_summed)
{
    static const struct work works[] = {{1, 0, N, 0, NULL, NULL},      {2, 0, N, 0, NULL, NULL},
                                        {3, 0, N, 8192, NULL, NULL},   {4, 2048, N - 5000, 1, NULL, NULL},
                                        {2, 17, 0, 0, NULL, NULL},     {2, N, 0, 0, NULL, NULL},
                                        {2, 5, 1, 0, NULL, NULL},      {3, 1, N - 1, SIZE_MAX, NULL, NULL},
                                        {2, 0, N, 16384, "int8", NULL}};
    for (int members = 1; members <= 3; members++)
        for (size_t i = 0; i < ROWS(works); i++)
            rig_run(rig_kind_of(_i), members, sum_vectors, (void *)&works[i]);
}
END_TEST

/* A thread for each device: the same sum. */
static void sum_device(struct device_thread *d)
{
    const struct work *w = d->arg;
    float *x = vector_make(psc_clique_rank(d->q), N);
    device_ok(d, psc_allreduce(d->q, x + w->begin, w->count, w->codec));
    if (psc_clique_rank(d->q) == 0)
        memcpy(w->found, x, N * sizeof *x);
    free(x);
}

static void sum_devices(struct rig_member *m)
{
    const struct work *w = m->arg;
    rig_ok(m, m->rc);
    devices_run(m->q, w->each, sum_device, m->arg);
}

/* One vector of each of as many members. */
static void sum_alone(struct rig_member *m)
{
    const struct work *w = m->arg;
    float *x = vector_make(m->index, N);
    rig_ok(m, m->rc);
    rig_ok(m, psc_allreduce(m->q, x + w->begin, w->count, w->codec));
    if (m->index == 0)
        memcpy(w->found, x, N * sizeof *x);
    free(x);
}

static void expect_bits(const float *want, const float *found, const char *what, int members, int each)
{
    ck_assert_msg(memcmp(want, found, N * sizeof *want) == 0, "%d members of %d vectors: %s: other bits",
                  members, each, what);
}

/* Whoever calls, in whatever parts, and in every run. */
START_TEST(bits_depend_on_the_vectors_alone)
{
    static const char *const algorithms[] = {"ring", "tree"};
    const struct rig_kind kind = {algorithms[_i], "unix:", 2, 16384, algorithms[_i]};
    float *want = malloc(N * sizeof *want), *found = malloc(N * sizeof *found);
    for (int members = 1; members <= 3; members++)
        for (int each = 1; each <= 4; each++) {
            struct work w = {each, 0, N, 0, NULL, want};
            rig_run(&kind, members, sum_vectors, &w);
            w.found = found;
            rig_run(&kind, members, sum_vectors, &w);
            expect_bits(want, found, "another run", members, each);
            w.part_floats = 1;
            rig_run(&kind, members, sum_vectors, &w);
            expect_bits(want, found, "in parts", members, each);
            rig_run(&kind, members, sum_devices, &w);
            expect_bits(want, found, "by devices", members, each);
        }
    free(want);
    free(found);
}
END_TEST

/* A tree over members that are trees of 2^k vectors is the tree over all vectors. So is that of threads. */
START_TEST(vectors_of_members_are_members_of_a_tree)
{
    const struct rig_kind tree = {"tree", "unix:", 1, 16384, "tree"}, *threads = rig_kind_of(RIG_N_KINDS - 1);
    float *want = malloc(N * sizeof *want), *found = malloc(N * sizeof *found);
    for (int members = 1; members <= 4; members++)
        for (int each = 2; members * each <= RIG_MAX_MEMBERS; each *= 2) {
            struct work w = {each, 0, N, 8192, NULL, found};
            rig_run(&tree, members, sum_vectors, &w);
            w.found = want;
            rig_run(&tree, members * each, sum_alone, &w);
            expect_bits(want, found, "the tree of as many members", members, each);
            if (members != 1)
                continue;
            rig_run(threads, each, sum_alone, &w);
            expect_bits(want, found, "as many threads", members, each);
        }
    free(want);
    free(found);
}
END_TEST

/* Steps of handles of psc, each with its own gradients: x, [STEP_N], at the first. */
enum { STEP_N = 30000, STEPS = 4 };

struct stepping {
    int each;
    float *found;
};

static void make_steps(struct psc_clique *q, float *found)
{
    struct psc_options opt;
    struct psc_local local;
    struct psc *c;
    const struct psc_tensor tensor = {.name = "w", .n_dims = 1, .shape = {STEP_N}, .role = PSC_PARAM};
    float *x = calloc(STEP_N, sizeof *x), *g = vector_make(psc_clique_rank(q), STEP_N);
    psc_local_init(&local, sizeof local, "d-sync");
    local.learning_rate = 0.1;
    psc_options_init(&opt, sizeof opt);
    opt.local = &local;
    opt.clique = q;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    ck_assert_int_eq(psc_begin(c, &tensor, 1, x), PSC_OK);
    for (int k = 0; k < STEPS; k++) {
        int rc = psc_step(c, x, g, (size_t)3);
        ck_assert_msg(rc == PSC_OK, "%s", psc_error(c));
        for (size_t i = 0; i < STEP_N; i++)
            g[i] += 0.5f * x[i];
    }
    if (psc_clique_rank(q) == 0)
        memcpy(found, x, STEP_N * sizeof *x);
    psc_close(c);
    free(x);
    free(g);
}

static void step_device(struct device_thread *d)
{
    make_steps(d->q, ((struct stepping *)d->arg)->found);
}

static void step_devices(struct rig_member *m)
{
    rig_ok(m, m->rc);
    devices_run(m->q, ((struct stepping *)m->arg)->each, step_device, m->arg);
}

static void step_alone(struct rig_member *m)
{
    rig_ok(m, m->rc);
    make_steps(m->q, ((struct stepping *)m->arg)->found);
}

/* So training on D devices of one member is training on D members with one device each. */
START_TEST(steps_of_devices_are_steps_of_members_of_a_tree)
{
    const struct rig_kind tree = {"tree", "unix:", 1, 16384, "tree"};
    float *want = malloc(STEP_N * sizeof *want), *found = malloc(STEP_N * sizeof *found);
    for (int members = 1; members <= 3; members++) {
        struct stepping by_devices = {2, found}, by_members = {1, want};
        rig_run(&tree, members, step_devices, &by_devices);
        rig_run(&tree, 2 * members, step_alone, &by_members);
        ck_assert_msg(memcmp(want, found, STEP_N * sizeof *want) == 0, "%d members of 2 devices: another x",
                      members);
        ck_assert(found[1] != 0);
    }
    free(want);
    free(found);
}
END_TEST

static void collect(struct device_thread *d, struct psc_collective_options o, void *out)
{
    o.size = sizeof o;
    o.out = out;
    o.compare = 1;
    device_ok(d, psc_collective_run(d->q, &o));
}

/* Other types and operations; sums of ranks, below 100 for each. */
static void call_typed(struct device_thread *d)
{
    enum { EACH = 700 };
    int size = psc_clique_size(d->q), rank = psc_clique_rank(d->q);
    size_t all = (size_t)size * EACH;
    double *doubles = malloc(all * sizeof *doubles);
    int64_t *longs = malloc(all * sizeof *longs);
    unsigned char *bytes = malloc(all);
    for (size_t i = 0; i < all; i++)
        doubles[i] = rank + (double)i;
    collect(d, (struct psc_collective_options){.n = all, .type = PSC_FLOAT64, .operation = PSC_MEAN},
            doubles);
    for (size_t i = 0; i < all; i++) /* exact, as the sum is */
        assert_quick(doubles[i] == (size * (size - 1) / 2 + size * (double)i) / size);
    for (int root = 0; root < size; root++) {
        for (size_t i = 0; i < all; i++)
            longs[i] = (rank == (int)i % size ? 1000 : 0) - (int64_t)i;
        collect(d,
                (struct psc_collective_options){
                    .kind = PSC_REDUCE, .root = root, .n = all, .type = PSC_INT64, .operation = PSC_MAX},
                longs);
        for (size_t i = 0; i < all && rank == root; i++)
            assert_quick(longs[i] == 1000 - (int64_t)i);
    }
    for (size_t i = 0; i < all; i++)
        longs[i] = rank * 1000 + (int64_t)i;
    collect(d, (struct psc_collective_options){.kind = PSC_REDUCE_SCATTER, .n = EACH, .type = PSC_INT64},
            longs);
    for (size_t i = (size_t)rank * EACH; i < ((size_t)rank + 1) * EACH; i++)
        assert_quick(longs[i] == 500 * (int64_t)size * (size - 1) + size * (int64_t)i);
    memset(bytes, 255, all);
    memset(bytes + (size_t)rank * EACH, rank, EACH);
    collect(d, (struct psc_collective_options){.kind = PSC_ALLGATHER, .n = EACH, .type = PSC_BYTES}, bytes);
    for (size_t i = 0; i < all; i++)
        assert_quick(bytes[i] == i / EACH);
    free(doubles);
    free(longs);
    free(bytes);
}

/* All calls of a clique, by devices. */
static void call_all(struct device_thread *d)
{
    int size = psc_clique_size(d->q), rank = psc_clique_rank(d->q);
    enum { FLOATS = 20000 };
    float *x = malloc(FLOATS * sizeof *x);
    uint64_t ticket;
    ck_assert_str_eq(psc_clique_kind(d->q), "devices");
    for (int root = 0; root < size; root++) {
        for (size_t i = 0; i < FLOATS; i++)
            x[i] = (float)((size_t)rank + i % 1000);
        device_ok(d, psc_reduce(d->q, x, FLOATS, root, NULL));
        for (size_t i = 0; i < FLOATS && rank == root; i++)
            assert_quick(x[i] == (float)(size * (size - 1) / 2) + (float)((size_t)size * (i % 1000)));
        for (size_t i = 0; i < FLOATS; i++)
            x[i] = rank == root ? (float)i : -1;
        device_ok(d, psc_broadcast_start(d->q, x, FLOATS * sizeof *x, root, &ticket));
        device_ok(d, psc_clique_wait(d->q, ticket));
        for (size_t i = 0; i < FLOATS; i++)
            assert_quick(x[i] == (float)i);
        device_ok(d, psc_barrier(d->q));
    }
    for (size_t i = 0; i < FLOATS; i++)
        x[i] = 1;
    for (size_t at = 0; at < FLOATS; at += FLOATS / 4)
        device_ok(d, psc_allreduce_start(d->q, x + at, FLOATS / 4, NULL, NULL));
    device_ok(d, psc_clique_wait(d->q, 0));
    for (size_t i = 0; i < FLOATS; i++)
        assert_quick(x[i] == (float)size);
    ck_assert_int_eq(psc_allreduce(d->q, x, FLOATS, "zip"), PSC_EINVAL); /* and it goes on */
    call_typed(d);
    device_ok(d, psc_barrier(d->q));
    free(x);
}

static void call_all_by_devices(struct rig_member *m)
{
    int each = *(int *)m->arg;
    rig_ok(m, m->rc);
    devices_run(m->q, each, call_all, NULL);
    rig_ok(m, psc_barrier(m->q)); /* it is the caller's again */
}

START_TEST(devices_make_every_call)
{
    for (int members = 1; members <= 3; members++)
        for (int each = 1; each <= 3; each++)
            rig_run(rig_kind_of(_i), members, call_all_by_devices, &each);
}
END_TEST

/* The outer clique fails: all devices say why. */
static void meet_a_loss(struct device_thread *d)
{
    float x[4] = {1, 2, 3, 4};
    device_ok(d, psc_barrier(d->q));
    d->rc = psc_allreduce(d->q, x, 4, NULL);
    ck_assert_int_eq(d->rc, PSC_ECLIQUE);
    assert_says(psc_clique_error(d->q), "rank 1 ");
    ck_assert(strstr(psc_clique_error(d->q), "the devices") == NULL);
    ck_assert_int_eq(psc_barrier(d->q), PSC_ECLIQUE);
}

static void one_barrier(struct device_thread *d)
{
    device_ok(d, psc_barrier(d->q));
}

static void lose_a_member(struct rig_member *m)
{
    rig_ok(m, m->rc);
    devices_run(m->q, 2, m->index == 0 ? meet_a_loss : one_barrier, NULL);
}

START_TEST(a_lost_member_is_named_by_all_devices)
{
    rig_run(&rig_kinds[0], 2, lose_a_member, NULL);
}
END_TEST

/* A device that has what it needs leaves while the rest of the call goes on: member 1 comes only then. */
struct leaving {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool left;
};

static void broadcast_ten(struct psc_clique *q)
{
    float x[10] = {0};
    for (int i = 0; i < 10 && psc_clique_rank(q) == 0; i++)
        x[i] = (float)i;
    ck_assert_msg(psc_broadcast(q, x, sizeof x, 0) == PSC_OK, "%s", psc_clique_error(q));
    ck_assert(x[9] == 9);
}

static void leave_early(struct device_thread *d)
{
    struct leaving *w = d->arg;
    bool stays = psc_clique_rank(d->q) != 1;
    uint64_t until_ns = ps_ns_after(UNIT_HANG_S);
    pthread_mutex_lock(&w->lock);
    while (psc_clique_rank(d->q) > 1 && !w->left)
        ck_assert_int_eq(ps_cond_wait_until(&w->changed, &w->lock, until_ns), 0);
    pthread_mutex_unlock(&w->lock);
    broadcast_ten(d->q);
    if (stays)
        return;
    psc_clique_close(d->q);
    d->q = NULL;
    pthread_mutex_lock(&w->lock);
    w->left = true;
    ps_cond_wake(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void leave_by_devices(struct rig_member *m)
{
    rig_ok(m, m->rc);
    devices_run(m->q, 2, leave_early, m->arg);
    rig_ok(m, psc_barrier(m->q));
}

START_TEST(a_device_may_leave_before_the_other_members_have_come)
{
    struct leaving w = {.lock = PTHREAD_MUTEX_INITIALIZER};
    ps_cond_init(&w.changed);
    rig_run(rig_kind_of(_i), 2, leave_by_devices, &w);
    ck_assert(w.left);
}
END_TEST

/* Part 0 of one member is not summed before the other has summed part 1: so the sums of the vectors run while
 * the transfer of the part before is under way. */
struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ahead, timed_out;
    size_t summed, copied; /* of member 0: parts */
    size_t most_ahead;     /* parts that were summed and not copied */
};

enum { PARTS = 8, PART = 16384 };

struct watched {
    struct meeting *at;
    int index;
};

static int watch_sum(void *arg, size_t at, size_t n, struct ps_error *err)
{
    struct watched *w = arg;
    struct meeting *m = w->at;
    uint64_t until_ns = ps_ns_after(UNIT_HANG_S);
    (void)err;
    ck_assert_uint_eq(n, PART);
    pthread_mutex_lock(&m->lock);
    if (w->index == 0) {
        ck_assert_uint_eq(at, m->summed * PART);
        m->summed++;
        m->most_ahead = m->summed - m->copied > m->most_ahead ? m->summed - m->copied : m->most_ahead;
        m->ahead = m->ahead || m->summed == 2;
        ps_cond_wake(&m->changed);
    }
    while (w->index == 1 && !m->ahead && !m->timed_out)
        m->timed_out = ps_cond_wait_until(&m->changed, &m->lock, until_ns) != 0;
    pthread_mutex_unlock(&m->lock);
    return PSC_OK;
}

static int watch_copy(void *arg, size_t at, size_t n, struct ps_error *err)
{
    struct watched *w = arg;
    struct meeting *m = w->at;
    (void)err;
    ck_assert_uint_eq(n, PART);
    pthread_mutex_lock(&m->lock);
    if (w->index == 0) {
        ck_assert_uint_eq(at, m->copied * PART);
        m->copied++;
    }
    pthread_mutex_unlock(&m->lock);
    return PSC_OK;
}

static void run_watched(struct rig_member *m)
{
    struct watched w = {m->arg, m->index};
    struct ps_error err = {""};
    float *x = vector_make(m->index, (size_t)PARTS * PART);
    rig_ok(m, m->rc);
    const struct psc_grouped g = {.q = m->q,
                                  .op = {.kind = PSC_ALLREDUCE,
                                         .data = x,
                                         .n = (size_t)PARTS * PART,
                                         .codec = ps_codec_named_for_values("raw")},
                                  .part = PART,
                                  .sum = watch_sum,
                                  .copy = watch_copy,
                                  .arg = &w};
    rig_ok(m, psc_grouped_run(&g, &err));
    free(x);
}

START_TEST(vectors_are_summed_while_the_part_before_is_sent)
{
    struct meeting at = {.lock = PTHREAD_MUTEX_INITIALIZER};
    ps_cond_init(&at.changed);
    rig_run(rig_kind_of(_i), 2, run_watched, &at);
    ck_assert_msg(!at.timed_out, "part 1 was not summed before part 0 had been sent");
    ck_assert_uint_eq(at.summed, PARTS);
    ck_assert_uint_eq(at.copied, PARTS);
    ck_assert_uint_ge(at.most_ahead, 2);
    ck_assert_uint_lt(at.most_ahead, PARTS); /* results are copied while later parts are sent, too */
}
END_TEST

START_TEST(parts_are_whole_stripes)
{
    ck_assert_uint_eq(psc_grouped_part(1 << 20, 0, 1), 1 << 18);
    ck_assert_uint_eq(psc_grouped_part((size_t)1 << 26, 0, 1), 1 << 21);
    ck_assert_uint_eq(psc_grouped_part(1000, 1, 4096), 4096);
    ck_assert_uint_eq(psc_grouped_part(9000, 4097, 4096), 8192);
    ck_assert_uint_eq(psc_grouped_part(1000, SIZE_MAX, 4096), 4096);
    ck_assert_uint_eq(psc_grouped_part(0, SIZE_MAX, 1), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("vectors");
    TCase *kinds = tcase_create("kinds"), *bits = tcase_create("bits");
    tcase_add_loop_test(kinds, vectors_are_summed, 0, RIG_N_KINDS);
    tcase_add_loop_test(kinds, devices_make_every_call, 0, RIG_N_KINDS);
    tcase_add_loop_test(kinds, vectors_are_summed_while_the_part_before_is_sent, 0, RIG_N_KINDS);
    tcase_add_loop_test(kinds, a_device_may_leave_before_the_other_members_have_come, 0, RIG_N_KINDS);
    tcase_add_test(kinds, a_lost_member_is_named_by_all_devices);
    tcase_add_loop_test(bits, bits_depend_on_the_vectors_alone, 0, 2);
    tcase_add_test(bits, vectors_of_members_are_members_of_a_tree);
    tcase_add_test(bits, steps_of_devices_are_steps_of_members_of_a_tree);
    tcase_add_test(bits, parts_are_whole_stripes);
    suite_add_tcase(suite, kinds);
    suite_add_tcase(suite, bits);
    return unit_run(suite);
}
