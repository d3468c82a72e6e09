/* clique.c: cliques of processes with a GPU each, over the stand-in of NCCL, with a real psd. Every method
 * that sums in a clique makes the same steps as over sockets on the host, bit for bit, where sums have the
 * same order: that of a binomial tree over the ranks. CUDA_CLIQUE_SEEDS=FIRST:COUNT: only random orders of
 * the stand-in. */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/model/method.h"
#include "tests/cuda/members.h"

/* Beside all methods with a server, one clique is the only client. CI runs these, and all methods are run by
 * suite `long`. */
static const struct row more[] = {
    {"d-sync", .local = "d-sync", .parts = true},
    {"pipe-sgd", .local = "pipe-sgd", .parts = true},
    {"pipe-sgd of 3", .local = "pipe-sgd", .pipeline = 3},
    {"gradients in parts, momentum at psd", {"method=async-msgd", "weight_decay=0.01"}, .parts = true},
    {"elastic, momentum, overlap",
     {"method=eamsgd", "period=2", "alpha=0.25", "overlap=true"},
     .parts = true},
    {"moves", {"method=downpour", "period=2"}, .parts = true},
    {"Sync EASGD2", {"method=sync-easgd", "clique.mode=vectors", "alpha=0.0625"}},
    {"Sync EASGD3, a copy of the center at each step",
     {"method=sync-easgd", "clique.mode=vectors", "alpha=0.0625", "overlap=true", "clique.publish=1"}},
    {"Sync EASGD with momentum",
     {"method=sync-easgd", "clique.mode=vectors", "optimizer=nesterov", "momentum=0.5", "alpha=0.0625",
      "overlap=true"}},
    {"d-sync with psd", {"method=d-sync", "clique.publish=2"}},
    {"gradients in int8 with feedback",
     {"method=async-msgd", "codec.message=int8", "codec.answer=int8", "codec.error_feedback=true"},
     .parts = true},
};

static const struct row *row_of(size_t i)
{
    static struct row row;
    static char method[64];
    size_t n = 0;
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++) {
        if (m->rule == NULL || strcmp(m->rule, "hold") == 0 || n++ != i)
            continue;
        bool counts = strcmp(m->admission, "fcfs") != 0 && strcmp(m->admission, "hogwild") != 0;
        snprintf(method, sizeof method, "method=%s", m->name);
        row = (struct row){m->name, {method, counts || strcmp(m->rule, "dc-asgd") == 0 ? "workers=1" : NULL}};
        return &row;
    }
    return &more[i - n];
}

static size_t n_methods(void)
{
    size_t n = 0;
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        n += m->rule != NULL && strcmp(m->rule, "hold") != 0;
    return n;
}

/* ---- the same steps */

struct training {
    struct member member; /* but for the rank */
    struct trace *traces;
};

static void train(int rank, void *arg)
{
    struct training *t = arg;
    struct member m = t->member;
    m.rank = rank;
    if (m.meets != NULL)
        member_open_clique(&m);
    member_open(&m);
    member_begin(&m);
    member_train(&m, &t->traces[rank]);
    member_close(&m);
}

static void start_psd(struct daemon *d, const struct row *row, bool on_device)
{
    const char *settings[MOST_SETTINGS + 8] = {"learning_rate=0.0625", "checkpoint.every_s=0", RIG_CUT,
                                               "clique.bucket_floats=3000"};
    size_t n = 4;
    for (size_t i = 0; row->settings[i] != NULL; i++)
        settings[n++] = row->settings[i];
    if (!on_device)
        settings[n++] = "clique.algorithm=tree";
    rig_start(d, settings);
}

/* members 0: one worker without a clique */
static struct trace *run(const struct row *row, int members, bool on_device, bool in_threads)
{
    char meets[] = "/tmp/psd-cuda-clique-XXXXXX", place[80];
    struct daemon d;
    struct training t = {.traces = members_share()};
    if (row->local == NULL)
        start_psd(&d, row, on_device);
    ck_assert(mkdtemp(meets) != NULL);
    snprintf(place, sizeof place, "file:%s/gpus", meets);
    t.member = (struct member){.row = row,
                               .server = row->local == NULL ? d.endpoint : NULL,
                               .meets = members > 0 ? place : NULL,
                               .members = members > 0 ? members : 1,
                               .on_device = on_device};
    if (in_threads)
        members_run_threads(t.member.members, train, &t);
    else
        members_run(t.member.members, -1, train, &t);
    snprintf(place, sizeof place, "rm -rf %s", meets);
    ck_assert_int_eq(system(place), 0);
    if (row->local == NULL)
        daemon_remove(&d);
    return t.traces;
}

static void compare(const struct row *row, int rank, const char *what, const float *host, const float *device)
{
    for (int i = 0; i < N; i++)
        ck_assert_msg(memcmp(&host[i], &device[i], sizeof *host) == 0,
                      "%s, rank %d: %s[%d] is %a on the host, %a on the device", row->name, rank, what, i,
                      (double)host[i], (double)device[i]);
}

static void compare_all(const struct row *row, int members, const struct trace *host,
                        const struct trace *device)
{
    for (int r = 0; r < (members > 0 ? members : 1); r++) {
        compare(row, r, "x", host[r].x, device[r].x);
        compare(row, r, "the member's own x", host[r].own, device[r].own);
        compare(row, r, "the center", host[r].center, device[r].center);
        ck_assert_msg(host[r].x[0] != host[r].x[1] && isfinite(host[r].x[0]), "%s: nothing has moved",
                      row->name);
    }
}

static void check_row(const struct row *row, int members, int on_host)
{
    const struct trace *host = run(row, on_host, false, false);
    compare_all(row, members, host, run(row, members, true, false));
}

START_TEST(steps_are_those_of_the_host)
{
    check_row(&more[_i], MOST_MEMBERS, MOST_MEMBERS);
}
END_TEST

START_TEST(steps_of_every_method_are_those_of_the_host)
{
    check_row(row_of((size_t)_i), MOST_MEMBERS, MOST_MEMBERS);
}
END_TEST

START_TEST(three_members_make_the_steps_of_the_host)
{
    check_row(&more[0], 3, 3);
}
END_TEST

/* A clique of one: a communicator of one, which nothing uses. */
START_TEST(one_member_makes_the_steps_of_a_worker_without_a_clique)
{
    check_row(row_of(n_methods() + 4), 1, 0);
}
END_TEST

/* Each is a member, in a thread with its own psc and clique. */
START_TEST(four_devices_of_a_process_make_the_steps_of_the_host)
{
    const struct row *row = &more[_i];
    const struct trace *host = run(row, MOST_MEMBERS, false, false);
    setenv("STANDIN_DEVICES", "4", 1);
    compare_all(row, MOST_MEMBERS, host, run(row, MOST_MEMBERS, true, true));
}
END_TEST

static unsigned long first_seed;

START_TEST(any_order_gives_the_same_bits)
{
    char order[40];
    unsigned long seed = first_seed + (unsigned long)_i;
    snprintf(order, sizeof order, "random:%lu", seed);
    setenv("STANDIN_ORDER", order, 1);
    check_row(row_of(seed % (n_methods() + ROWS(more))), MOST_MEMBERS, MOST_MEMBERS);
}
END_TEST

/* ---- losses */

enum { TIMEOUT_MS = 4000, VICTIM = 2 };

struct loss {
    struct training training;
    const char *fault; /* of the victim: NAME=VALUE */
    int of;            /* rank that has it; -1: all */
};

static void set_fault(const char *fault)
{
    char name[64];
    const char *value = strchr(fault, '=');
    snprintf(name, sizeof name, "%.*s", (int)(value - fault), fault);
    setenv(name, value + 1, 1);
}

/* Steps until one fails. Afterwards the device is at rest: x can be read, and everything closed. */
static void train_until_lost(int rank, void *arg)
{
    struct loss *l = arg;
    struct trace *out = &l->training.traces[rank];
    struct member m = l->training.member;
    m.rank = rank;
    member_open_clique(&m);
    member_open(&m);
    member_begin(&m);
    if (l->of < 0 || l->of == rank)
        set_fault(l->fault);
    for (int t = 0; t < STEPS && out->rc == PSC_OK; t++)
        out->rc = member_step(&m, t);
    snprintf(out->error, sizeof out->error, "%s", psc_error(m.c));
    int again = member_step(&m, STEPS);
    ck_assert_msg(again == out->rc, "rank %d: %s, and then %s: %s", rank, psc_result_name(out->rc),
                  psc_result_name(again), psc_error(m.c));
    assert_ok(m.c, psc_read(m.c, out->x, m.x, N));
    member_close(&m);
}

static struct trace *lose(const char *fault, int of, int killed, uint32_t timeout_ms)
{
    char meets[] = "/tmp/psd-cuda-clique-XXXXXX", place[80];
    struct loss l = {.fault = fault, .of = of};
    ck_assert(mkdtemp(meets) != NULL);
    snprintf(place, sizeof place, "file:%s/gpus", meets);
    l.training.traces = members_share();
    l.training.member = (struct member){.row = &more[0],
                                        .meets = place,
                                        .members = MOST_MEMBERS,
                                        .on_device = true,
                                        .timeout_ms = timeout_ms};
    members_run(MOST_MEMBERS, killed, train_until_lost, &l);
    snprintf(place, sizeof place, "rm -rf %s", meets);
    ck_assert_int_eq(system(place), 0);
    return l.training.traces;
}

/* In a call that the others have begun: they wait on their devices. The first two are of psc_begin. */
START_TEST(a_killed_member_ends_the_others_calls)
{
    const struct trace *t = lose("STANDIN_KILL_AT_CALL=7", VICTIM, VICTIM, 0);
    for (int r = 0; r < MOST_MEMBERS; r++) {
        if (r == VICTIM)
            continue;
        ck_assert_int_eq(t[r].rc, PSC_ECLIQUE);
        assert_says(t[r].error, "rank 2 is gone");
    }
}
END_TEST

START_TEST(a_call_that_does_not_end_is_aborted)
{
    const struct trace *t = lose("STANDIN_FAULT=nccl-hang", VICTIM, -1, TIMEOUT_MS);
    for (int r = 0; r < MOST_MEMBERS; r++) {
        ck_assert_int_eq(t[r].rc, PSC_ECLIQUE);
        assert_says(t[r].error, "over NCCL has not ended in 4.0 s: it was aborted");
    }
}
END_TEST

START_TEST(a_failure_of_nccl_is_told_to_all_with_its_words)
{
    const struct trace *t = lose("STANDIN_FAULT=nccl-remote", VICTIM, -1, 0);
    for (int r = 0; r < MOST_MEMBERS; r++) {
        ck_assert_int_eq(t[r].rc, r == VICTIM ? PSC_EDEVICE : PSC_ECLIQUE);
        assert_says(t[r].error, "rank 2: ");
        assert_says(t[r].error, "NCCL: remote process exited or there was a network error");
    }
}
END_TEST

/* ---- what is refused */

struct refusal {
    const char *meets, *server;
    struct trace *traces;
    int (*open)(int rank, struct psc_ring_options *opt, struct psc_clique **q);
};

static void open_pair(int rank, struct psc_clique **q, const char *meets)
{
    struct member m = {.meets = meets, .rank = rank, .members = 2, .on_device = true};
    member_open_clique(&m);
    *q = m.q;
}

static void refuse_host_memory(int rank, void *arg)
{
    const struct refusal *f = arg;
    struct psc_options opt;
    struct psc_local local;
    struct psc_clique *q;
    struct psc *c;
    open_pair(rank, &q, f->meets);
    psc_options_init(&opt, sizeof opt);
    psc_local_init(&local, sizeof local, "d-sync");
    opt.local = &local;
    opt.clique = q;
    assert_fails(c, psc_open(&opt, &c), PSC_EUNSUPPORTED,
                 "a clique of 2 members over nccl sums vectors of a GPU only, and memory is 'host'");
    psc_close(c);
    psc_clique_close(q);
}

static void refuse_codec(int rank, void *arg)
{
    const struct refusal *f = arg;
    struct psc_options opt;
    struct psc_local local;
    struct psc_clique *q;
    struct psc *c;
    float *x;
    open_pair(rank, &q, f->meets);
    psc_options_init(&opt, sizeof opt);
    psc_local_init(&local, sizeof local, "d-sync");
    local.codec = "int8";
    opt.local = &local;
    opt.clique = q;
    opt.memory = "cuda";
    assert_ok(c, psc_open(&opt, &c));
    assert_ok(c, psc_alloc(c, N, &x));
    assert_fails(c, psc_begin(c, rig_model, RIG_TENSORS, x), PSC_EUNSUPPORTED,
                 "codec 'int8'; NCCL sends values as they are: allowed over nccl is raw");
    psc_close(c);
    psc_clique_close(q);
}

static int sum_on_device(struct psc_clique *q, float *x, uint64_t n)
{
    struct psc_collective_options o;
    psc_collective_options_init(&o, sizeof o);
    o.memory = PSC_MEMORY_CUDA;
    o.out = x;
    o.n = n;
    return psc_collective_run(q, &o);
}

/* NCCL would hang, or worse: the ring finds out first. */
static void differ(int rank, void *arg)
{
    const struct refusal *f = arg;
    struct psc_clique *q;
    float *x;
    open_pair(rank, &q, f->meets);
    ck_assert_int_eq(cudaMalloc((void **)&x, N * sizeof *x), cudaSuccess);
    ck_assert_int_eq(sum_on_device(q, x, N - (uint64_t)rank), PSC_ECLIQUE);
    assert_says(psc_clique_error(q), "members make different calls");
    psc_clique_close(q);
}

static void open_without_device(int rank, void *arg)
{
    const struct refusal *f = arg;
    struct psc_ring_options opt;
    struct psc_clique *q;
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = 2;
    opt.rank = rank;
    opt.rendezvous = f->meets;
    if (rank == 1)
        setenv("STANDIN_DEVICES", "0", 1);
    ck_assert_int_eq(psc_nccl_open(&opt, &q), rank == 1 ? PSC_EUNSUPPORTED : PSC_ECLIQUE);
    assert_says(psc_clique_error(q), "rank 1: no CUDA device: no CUDA-capable device is detected");
    psc_clique_close(q);
}

static void fail_id(int rank, void *arg)
{
    const struct refusal *f = arg;
    struct psc_ring_options opt;
    struct psc_clique *q;
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = 2;
    opt.rank = rank;
    opt.rendezvous = f->meets;
    setenv("STANDIN_FAULT", "nccl-id", 1);
    ck_assert_int_eq(psc_nccl_open(&opt, &q), PSC_EDEVICE);
    assert_says(psc_clique_error(q), "rank 0: ncclGetUniqueId: NCCL: unhandled system error");
    psc_clique_close(q);
}

static void (*const refusals[])(int rank, void *arg) = {refuse_host_memory, refuse_codec, differ,
                                                        open_without_device, fail_id};

START_TEST(two_members_are_refused)
{
    char meets[] = "/tmp/psd-cuda-clique-XXXXXX", place[80];
    ck_assert(mkdtemp(meets) != NULL);
    snprintf(place, sizeof place, "file:%s/gpus", meets);
    struct refusal f = {.meets = place};
    members_run(2, -1, refusals[_i], &f);
    snprintf(place, sizeof place, "rm -rf %s", meets);
    ck_assert_int_eq(system(place), 0);
}
END_TEST

static struct psc_clique *open_one(void)
{
    struct member m = {.members = 1, .on_device = true};
    member_open_clique(&m);
    return m.q;
}

START_TEST(options_that_do_not_apply_are_refused)
{
    struct psc_ring_options opt;
    struct psc_clique *q;
    psc_ring_options_init(&opt, sizeof opt);
    opt.algorithm = "tree";
    ck_assert_int_eq(psc_nccl_open(&opt, &q), PSC_EINVAL);
    assert_says(psc_clique_error(q), "nccl: algorithm is 'tree'; NCCL has its own; allowed is ring");
    psc_clique_close(q);
    opt.algorithm = "ring";
    opt.on_loss = "shrink";
    ck_assert_int_eq(psc_nccl_open(&opt, &q), PSC_EINVAL);
    assert_says(psc_clique_error(q), "nccl: on_loss is 'shrink'");
    psc_clique_close(q);
    opt.on_loss = "end";
    opt.rank = 3;
    ck_assert_int_eq(psc_nccl_open(&opt, &q), PSC_EINVAL);
    assert_says(psc_clique_error(q), "rank is 3");
    psc_clique_close(q);
}
END_TEST

/* Each is refused before anything begins, and the clique stays usable. */
START_TEST(calls_that_do_not_apply_are_refused)
{
    static float host[16];
    struct psc_clique *q = open_one(), *threads;
    struct psc_threads_options of_threads;
    struct psc_collective_options good, o;
    float *x;
    ck_assert_int_eq(cudaMalloc((void **)&x, sizeof host), cudaSuccess);
    psc_collective_options_init(&good, sizeof good);
    good.memory = PSC_MEMORY_CUDA;
    good.out = x;
    good.n = 16;
    ck_assert_int_eq(psc_collective_run(q, &good), PSC_OK);
    const struct {
        int rc;
        const char *says;
        struct psc_collective_options o;
    } rows[] = {
        {PSC_EINVAL, "the vector is memory of the host; a clique over nccl sums memory of a GPU",
         (o = good, o.out = host, o)},
        {PSC_EUNSUPPORTED, "operation min of a GPU's vector; allowed over nccl is sum",
         (o = good, o.operation = PSC_MIN, o)},
        {PSC_EUNSUPPORTED, "operation mean of a GPU's vector", (o = good, o.operation = PSC_MEAN, o)},
        {PSC_EUNSUPPORTED, "a sum of bfloat16 in a GPU's vector", (o = good, o.type = PSC_BFLOAT16, o)},
        {PSC_EUNSUPPORTED, "codec 'int8'; NCCL sends values as they are", (o = good, o.codec = "int8", o)},
        {PSC_EUNSUPPORTED, "memory is cuda, and `in` is not NULL; allowed is in place",
         (o = good, o.in = x + 8, o.n = 8, o)},
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        ck_assert_int_eq(psc_collective_run(q, &rows[i].o), rows[i].rc);
        assert_says(psc_clique_error(q), rows[i].says);
    }
    ck_assert_int_eq(psc_collective_run(q, &good), PSC_OK);
    psc_clique_close(q);
    psc_threads_options_init(&of_threads, sizeof of_threads);
    of_threads.members = 1;
    ck_assert_int_eq(psc_threads_open(&of_threads, &threads), PSC_OK);
    ck_assert_int_eq(psc_collective_run(threads, &good), PSC_EUNSUPPORTED);
    assert_says(psc_clique_error(threads), "a clique over threads has vectors of the host only");
    psc_clique_close(threads);
}
END_TEST

/* ---- every collective, of every type that it is for */

enum { VALUES = 5000 };

static void collect(int rank, void *arg)
{
    static const struct {
        uint32_t kind, type;
        int32_t root;
    } calls[] = {{PSC_ALLREDUCE, PSC_FLOAT32, 0},    {PSC_ALLREDUCE, PSC_INT64, 0},
                 {PSC_REDUCE, PSC_FLOAT64, 0},       {PSC_REDUCE, PSC_INT32, 3},
                 {PSC_REDUCE_SCATTER, PSC_INT32, 0}, {PSC_REDUCE_SCATTER, PSC_FLOAT32, 0},
                 {PSC_BROADCAST, PSC_BFLOAT16, 2},   {PSC_BROADCAST, PSC_BYTES, 1},
                 {PSC_ALLGATHER, PSC_FLOAT16, 0},    {PSC_ALLGATHER, PSC_FLOAT32, 0}};
    static const size_t bytes[] = {4, 8, 4, 8, 2, 2, 1}; /* by enum psc_type */
    const struct refusal *f = arg;
    static unsigned char host[MOST_MEMBERS * VALUES * 8], got[sizeof host];
    struct member h = {.meets = f->server, .rank = rank, .members = MOST_MEMBERS},
                  d = {.meets = f->meets, .rank = rank, .members = MOST_MEMBERS, .on_device = true};
    struct psc_collective_options o;
    cudaStream_t stream;
    void *pinned, *device;
    member_open_clique(&h);
    member_open_clique(&d);
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaHostAlloc(&pinned, sizeof host, 0), cudaSuccess);
    ck_assert_int_eq(cudaMalloc(&device, sizeof host), cudaSuccess);
    for (size_t i = 0; i < ROWS(calls); i++) {
        bool parts = calls[i].kind == PSC_REDUCE_SCATTER || calls[i].kind == PSC_ALLGATHER;
        size_t part = VALUES * bytes[calls[i].type], at = parts ? part * (size_t)rank : 0;
        struct dice dice = {100 * i + (uint64_t)rank};
        for (size_t k = 0; k < sizeof host; k++)
            host[k] = (unsigned char)(dice_below(&dice, 256) & (k % 2 == 1 ? 0x3f : 0xff)); /* finite */
        memcpy(pinned, host, sizeof host);
        ck_assert_int_eq(cudaMemcpyAsync(device, pinned, sizeof host, cudaMemcpyHostToDevice, stream),
                         cudaSuccess);
        ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
        psc_collective_options_init(&o, sizeof o);
        o.kind = calls[i].kind;
        o.type = calls[i].type;
        o.root = calls[i].root;
        o.n = VALUES;
        o.out = host;
        ck_assert_msg(psc_collective_run(h.q, &o) == PSC_OK, "%s", psc_clique_error(h.q));
        o.out = device;
        o.memory = PSC_MEMORY_CUDA;
        ck_assert_msg(psc_collective_run(d.q, &o) == PSC_OK, "%s", psc_clique_error(d.q));
        ck_assert_int_eq(cudaMemcpyAsync(pinned, device, sizeof host, cudaMemcpyDeviceToHost, stream),
                         cudaSuccess);
        ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
        memcpy(got, pinned, sizeof got);
        size_t n = calls[i].kind == PSC_ALLGATHER ? part * MOST_MEMBERS : part;
        at = calls[i].kind == PSC_ALLGATHER ? 0 : at;
        if (calls[i].kind != PSC_REDUCE || rank == calls[i].root)
            ck_assert_msg(memcmp(host + at, got + at, n) == 0, "call %zu: other values than on the host", i);
    }
    psc_clique_close(d.q);
    psc_clique_close(h.q);
}

START_TEST(collectives_are_those_of_the_host)
{
    char meets[] = "/tmp/psd-cuda-clique-XXXXXX", places[2][80];
    ck_assert(mkdtemp(meets) != NULL);
    snprintf(places[0], sizeof places[0], "file:%s/gpus", meets);
    snprintf(places[1], sizeof places[1], "file:%s/hosts", meets);
    struct refusal f = {.meets = places[0], .server = places[1]};
    members_run(MOST_MEMBERS, -1, collect, &f);
    snprintf(places[0], sizeof places[0], "rm -rf %s", meets);
    ck_assert_int_eq(system(places[0]), 0);
}
END_TEST

static int count_seeds(void)
{
    const char *seeds = getenv("CUDA_CLIQUE_SEEDS");
    int n = 0;
    if (seeds != NULL && sscanf(seeds, "%lu:%d", &first_seed, &n) != 2)
        abort();
    return n;
}

static void add_all(Suite *s)
{
    TCase *steps = tcase_create("steps"), *one = tcase_create("one member"), *losses = tcase_create("losses"),
          *refusals_case = tcase_create("refusals");
    tcase_set_timeout(steps, 300);
    tcase_add_loop_test(steps, steps_are_those_of_the_host, 0, (int)ROWS(more));
    tcase_add_test(steps, three_members_make_the_steps_of_the_host);
    tcase_add_test(one, one_member_makes_the_steps_of_a_worker_without_a_clique);
    tcase_add_test(steps, collectives_are_those_of_the_host);
    tcase_add_loop_test(steps, four_devices_of_a_process_make_the_steps_of_the_host, 0, (int)ROWS(more));
    tcase_add_test(losses, a_killed_member_ends_the_others_calls);
    tcase_add_test(losses, a_call_that_does_not_end_is_aborted);
    tcase_add_test(losses, a_failure_of_nccl_is_told_to_all_with_its_words);
    tcase_add_loop_test(refusals_case, two_members_are_refused, 0, (int)ROWS(refusals));
    tcase_add_test(refusals_case, options_that_do_not_apply_are_refused);
    tcase_add_test(refusals_case, calls_that_do_not_apply_are_refused);
    suite_add_tcase(s, steps);
    suite_add_tcase(s, one);
    suite_add_tcase(s, losses);
    suite_add_tcase(s, refusals_case);
}

/* CUDA_CLIQUE_METHODS: all methods, and nothing else. */
int main(void)
{
    int seeds = count_seeds();
    Suite *s = suite_create("cuda-clique");
    TCase *more_rows = tcase_create("methods");

    tcase_set_timeout(more_rows, 300);
    if (seeds > 0)
        tcase_add_loop_test(more_rows, any_order_gives_the_same_bits, 0, seeds);
    else if (getenv("CUDA_CLIQUE_METHODS") != NULL)
        tcase_add_loop_test(more_rows, steps_of_every_method_are_those_of_the_host, 0,
                            (int)(n_methods() + ROWS(more)));
    else
        add_all(s);
    suite_add_tcase(s, more_rows);
    return unit_run(s);
}
