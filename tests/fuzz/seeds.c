/* Makes the seeds that are bytes rather than text, with the packers themselves, so that they stay valid when
 * a format changes: DIR/frame, DIR/codec, DIR/control, DIR/checkpoint, DIR/idx, DIR/state,
 * DIR/cifar, DIR/safetensors, DIR/lane, DIR/rounds, DIR/ring, DIR/shm, and those of image_seeds.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "client/cliques/clique.h"
#include "client/cliques/wire.h"
#include "client/save_format.h"
#include "nets/data/cifar_format.h"
#include "proto/codecs/codec.h"
#include "proto/model/shard.h"
#include "proto/transports/shm/wire.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"
#include "server/checkpoint/checkpoint.h"
#include "tests/fuzz/lane_record.h"
#include "tests/fuzz/seeds.h"

static void fail(const char *what)
{
    fprintf(stderr, "seeds: %s: %s\n", what, strerror(errno));
    exit(1);
}

void write_seed(const char *target, const char *name, const void *bytes, size_t len)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", target, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, len, f) != len || fclose(f) != 0)
        fail(path);
}

static void make_frames(void)
{
    static const uint8_t kinds[] = {PS_FRAME_EXCHANGE, PS_FRAME_PULL,   PS_FRAME_PUSH,
                                    PS_FRAME_OFFER,    PS_FRAME_ANSWER, PS_FRAME_ERROR};
    const struct ps_shard shard = {5000, 2, 1024};
    unsigned char bytes[PS_FRAME_BYTES + sizeof shard];
    char name[16];
    memcpy(bytes + PS_FRAME_BYTES, &shard, sizeof shard);
    for (size_t i = 0; i < sizeof kinds; i++) {
        struct ps_frame f = {.kind = kinds[i],
                             .client = 1,
                             .incarnation = 7,
                             .seq = i,
                             .begin = 1024,
                             .count = 1024,
                             .samples = 64,
                             .rate = 0.5f,
                             .clock = 3,
                             .center_version = 9};
        if (f.kind == PS_FRAME_ANSWER || f.kind == PS_FRAME_ERROR)
            f.samples = 0;
        ps_frame_pack(&f, bytes);
        snprintf(name, sizeof name, "kind-%u", kinds[i]);
        write_seed("frame", name, bytes, sizeof bytes);
    }
}

/* topk's lists of 60 in 600, as it writes them, and with what a liar writes in them. */
static void make_lists(void)
{
    enum { N = 600, KEPT = 60, HEAD = 2 + sizeof(float), PLACES = HEAD + 3 };
    static const struct {
        const char *name;
        size_t at, n;
        unsigned char byte;
    } lies[] = {{"list", HEAD, 0, 0},
                {"list-repeated", PLACES, 2, 9},
                {"list-count", HEAD, 1, 200},
                {"list-beyond", PLACES + KEPT - 1, 1, 255},
                {"list-empty", HEAD, 3, 0},
                {"list-nan", 2, sizeof(float), 0xff},
                {"list-descending", PLACES, 1, 254}};
    float x[N];
    unsigned char honest[2 + sizeof x] = {6, 2 * 16}, bytes[sizeof honest]; /* row 6, a tenth */
    struct ps_codec c;
    for (size_t i = 0; i < N; i++)
        x[i] = (float)(i * 7919 % N) - N / 2;
    ps_codec_of("topk:0.1", &c);
    c.encode(&c, honest + 2, x, N);
    for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
        memcpy(bytes, honest, sizeof bytes);
        memset(bytes + lies[k].at, lies[k].byte, lies[k].n);
        write_seed("codec", lies[k].name, bytes, 2 + c.payload_bytes(&c, N));
    }
}

/* Each codec's payload of a block and a half; and one of bytes that no encoder writes. */
static void make_codecs(void)
{
    enum { N = 1500 };
    size_t n_rows;
    const struct ps_codec *const *rows = ps_codec_rows(&n_rows);
    float x[N];
    unsigned char bytes[2 + sizeof x];
    char name[32];
    for (size_t i = 0; i < N; i++)
        x[i] = (float)i / N - 0.5f;
    for (size_t k = 0; k < n_rows; k++) {
        size_t len = 2 + rows[k]->payload_bytes(rows[k], N);
        bytes[0] = (uint8_t)k;
        bytes[1] = (uint8_t)(k * 3);
        rows[k]->encode(rows[k], bytes + 2, x, N);
        snprintf(name, sizeof name, "row-%zu", k);
        write_seed("codec", name, bytes, len);
        memset(bytes + 2, k % 2 ? 0xff : 0x80, len - 2);
        snprintf(name, sizeof name, "odd-%zu", k);
        write_seed("codec", name, bytes, len);
    }
    make_lists();
}

/* The target's first byte is the direction. */
static void write_control(const char *name, uint8_t direction, const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(len + 1);
    bytes[0] = direction;
    protobuf_c_message_pack(m, bytes + 1);
    write_seed("control", name, bytes, len + 1);
    free(bytes);
}

static void make_to_server(void)
{
    uint64_t shape[] = {3, 5}, flat[] = {4};
    char weight[] = "fc.weight", bias[] = "fc.bias", worker[] = "worker-1", raw[] = "raw", int8[] = "int8";
    char *codecs[] = {raw, int8};
    Ps__Tensor a = PS__TENSOR__INIT, b = PS__TENSOR__INIT, *tensors[] = {&a, &b};
    Ps__Hello hello = PS__HELLO__INIT;
    Ps__Begin begin = PS__BEGIN__INIT;
    Ps__Heartbeat heartbeat = PS__HEARTBEAT__INIT;
    Ps__Report report = PS__REPORT__INIT;
    Ps__Leave leave = PS__LEAVE__INIT;
    Ps__Meet meet = PS__MEET__INIT;
    char clique[] = "0", address[] = "tcp://127.0.0.1:4001";
    Ps__ToServer m = PS__TO_SERVER__INIT;

    a.name = weight, a.n_shape = 2, a.shape = shape;
    b.name = bias, b.offset = 15, b.n_shape = 1, b.shape = flat;
    hello.protocol = PS_PROTOCOL_VERSION, hello.name = worker, hello.rank = 2, hello.token = 12345;
    hello.n_codecs = 2, hello.codecs = codecs;
    begin.client = 2, begin.incarnation = 7, begin.n_tensors = 2, begin.tensors = tensors;
    heartbeat.client = 2, heartbeat.incarnation = 7, heartbeat.clock = 99;
    report.client = 2, report.loss = 0.5, report.test_accuracy = 0.9;
    leave.client = 2, leave.incarnation = 7;
    m.what_case = PS__TO_SERVER__WHAT_HELLO, m.hello = &hello;
    write_control("hello", 0, &m.base);
    m.what_case = PS__TO_SERVER__WHAT_BEGIN, m.begin = &begin;
    write_control("begin", 0, &m.base);
    m.what_case = PS__TO_SERVER__WHAT_HEARTBEAT, m.heartbeat = &heartbeat;
    write_control("heartbeat", 0, &m.base);
    m.what_case = PS__TO_SERVER__WHAT_REPORT, m.report = &report;
    write_control("report", 0, &m.base);
    m.what_case = PS__TO_SERVER__WHAT_LEAVE, m.leave = &leave;
    write_control("leave", 0, &m.base);
    meet.protocol = PS_PROTOCOL_VERSION, meet.clique = clique, meet.members = 3, meet.rank = 1;
    meet.address = address, meet.nonce = UINT64_MAX, meet.token = 12345, meet.wait_ms = 60000;
    meet.links = 1, meet.segment_bytes = 65536;
    m.what_case = PS__TO_SERVER__WHAT_MEET, m.meet = &meet;
    write_control("meet", 0, &m.base);
    meet.any_rank = true, meet.members = 5;
    write_control("meet-any", 0, &m.base);
    meet.leave = true;
    write_control("meet-leave", 0, &m.base);
}

static void make_to_client(void)
{
    char name[] = "eamsgd", rule[] = "elastic", optimizer[] = "nesterov", transport[] = "tcp",
         lane[] = "tcp://127.0.0.1:4000", *lanes[] = {lane, lane}, sentence[] = "the rank is taken";
    Ps__Schedule schedule = PS__SCHEDULE__INIT;
    Ps__Method method = PS__METHOD__INIT;
    Ps__Welcome welcome = PS__WELCOME__INIT;
    Ps__Error error = PS__ERROR__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;

    method.name = name, method.rule = rule, method.optimizer = optimizer, method.period = 10;
    method.schedule = &schedule, method.learning_rate = 0.1, method.momentum = 0.9;
    welcome.client = 1, welcome.incarnation = 7, welcome.method = &method, welcome.transport = transport;
    welcome.n_lanes = 2, welcome.lanes = lanes, welcome.chunk_floats = 1024, welcome.window_chunks = 4;
    error.code = PS__CODE__RANK_TAKEN, error.sentence = sentence, error.fatal = true;
    m.what_case = PS__TO_CLIENT__WHAT_WELCOME, m.welcome = &welcome;
    write_control("welcome", 1, &m.base);
    m.what_case = PS__TO_CLIENT__WHAT_ERROR, m.error = &error;
    write_control("error", 1, &m.base);
    Ps__Member first = PS__MEMBER__INIT, second = PS__MEMBER__INIT, *members[] = {&first, &second};
    Ps__Met met = PS__MET__INIT;
    first.address = lane, first.nonce = 7, second.address = lane;
    met.rank = 1, met.n_members = 2, met.members = members;
    m.what_case = PS__TO_CLIENT__WHAT_MET, m.met = &met;
    write_control("met", 1, &m.base);
}

static void make_checkpoint(uint64_t version, uint32_t n_state, uint32_t n_replay)
{
    char weight[] = "conv.weight", mean[] = "bn.\"mean\"", path[128];
    struct ps_tensor tensors[] = {{weight, 0, {2, 1, 2, 2}, 4, PS_ROLE_PARAM},
                                  {mean, 8, {2}, 1, PS_ROLE_BUFFER}};
    float x[10] = {1, -2, 0.5f}, *state[2] = {x, x};
    uint64_t clocks[] = {3, 4}, landed[] = {5};
    struct psd_replay_entry replay[] = {{4, 9, 0, 77, landed, 1}, {5, 9, 1, UINT64_MAX, NULL, 0}};
    struct psd_snapshot s = {.center = x,
                             .state = state,
                             .n_state = n_state,
                             .method = "eamsgd",
                             .rule = "elastic",
                             .incarnation = 9,
                             .version = version,
                             .saved_at_s = 1700000000,
                             .map = {2, 1024, 1},
                             .part = PSD_WHOLE,
                             .range = {0, 10},
                             .lane_clocks = clocks,
                             .lane_moves = clocks,
                             .replay = replay,
                             .n_replay = n_replay};
    struct ps_error err = {""};
    if (ps_manifest_create(tensors, 2, 10, &s.manifest, &err) < 0 ||
        psd_checkpoint_write("checkpoint", &s, 100, NULL, path, sizeof path, &err) < 0)
        fail(err.text);
    ps_manifest_destroy(s.manifest);
}

static void make_idx(void)
{
    /* The target's first byte is the choice of labels (even) or images. */
    static const uint8_t labels[] = {0, 0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9},
                         images[] = {1, 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0,  4,  0, 0,
                                     0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    uint8_t packed[256] = {0};
    write_seed("idx", "labels", labels, sizeof labels);
    write_seed("idx", "images", images, sizeof images);
    gzFile f = gzopen("idx/packed", "wb");
    if (f == NULL || gzwrite(f, labels + 1, sizeof labels - 1) <= 0 || gzclose(f) != Z_OK)
        fail("idx/packed");
    FILE *in = fopen("idx/packed", "rb");
    size_t n = in != NULL ? fread(packed + 1, 1, sizeof packed - 1, in) : 0;
    if (n == 0)
        fail("idx/packed");
    fclose(in);
    write_seed("idx", "packed", packed, n + 1);
}

/* The target's first byte is the choice of ten classes (even) or a hundred. */
static void make_cifar(void)
{
    static uint8_t records[1 + 2 * (CNN_CIFAR_RECORD + 1)];
    records[1] = 3;
    records[1 + CNN_CIFAR_RECORD] = CNN_CIFAR_CLASSES - 1;
    write_seed("cifar", "one", records, 1 + CNN_CIFAR_RECORD);
    write_seed("cifar", "two", records, 1 + 2 * CNN_CIFAR_RECORD);
    memset(records, 0, sizeof records);
    records[0] = 1;
    records[2] = records[3 + CNN_CIFAR_RECORD] = 99;
    write_seed("cifar", "fine", records, 1 + 2 * (CNN_CIFAR_RECORD + 1));
}

static void make_safetensors(void)
{
    static const char header[] = "{\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[16,22]},"
                                 "\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
    uint8_t file[8 + sizeof header - 1 + 22] = {sizeof header - 1};
    memcpy(file + 8, header, sizeof header - 1);
    write_seed("safetensors", "two", file, sizeof file);
    write_seed("safetensors", "cut", file, sizeof file - 4);
}

/* A request of every kind, and one exchange once more, for both chunks of lane 0 by each client. */
static void make_lane(void)
{
    static const uint8_t kinds[] = {PS_FRAME_OFFER, PS_FRAME_PULL, PS_FRAME_EXCHANGE, PS_FRAME_EXCHANGE,
                                    PS_FRAME_PUSH,  PS_FRAME_SET,  PS_FRAME_ADD};
    static struct {
        uint8_t choice;
        struct fuzz_record records[2 * sizeof kinds];
    } __attribute__((packed)) seed;
    const struct ps_shard shard = {3000, 2, 1024};
    char name[16];

    for (uint8_t choice = 0; choice < 24; choice++) { /* from 12 on, of the model's first tensor alone */
        for (uint32_t i = 0; i < 2 * sizeof kinds; i++) {
            struct ps_range r = ps_shard_chunk(&shard, 0, i % ps_shard_n_chunks(&shard, 0));
            struct ps_frame f = {.kind = kinds[i / 2],
                                 .client = choice % 12 / 4,
                                 .incarnation = FUZZ_INCARNATION,
                                 .seq = i < 8 ? 1 + i / 4
                                              : i / 2 - 1, /* the second exchange is the first again */
                                 .begin = r.begin,
                                 .count = (uint32_t)r.count,
                                 .samples = 8};
            if (choice >= 12) {
                f.flags = PS_FLAG_TENSOR;
                f.count =
                    r.begin + r.count > FUZZ_FIRST_TENSOR ? FUZZ_FIRST_TENSOR - (uint32_t)r.begin : f.count;
            }
            struct fuzz_record record = {.value = 1, .odd = -2.5f};
            ps_frame_pack(&f, record.head);
            memcpy(&seed.records[i], &record, sizeof record);
        }
        seed.choice = choice % 12;
        snprintf(name, sizeof name, "job-%u", choice);
        write_seed("lane", name, &seed, sizeof seed);
    }
}

/* Three exchanges of both chunks that move by two clients, with what the loop does between. */
static void make_rounds(void)
{
    enum { JOBS = 10, ROUNDS = 3, CLIENTS = 2, CHUNKS = 2, N = ROUNDS * CLIENTS * CHUNKS };
    static const uint16_t acts[] = {0, FUZZ_MEMBERS_AFTER, FUZZ_SNAPSHOT_AFTER, FUZZ_END_AFTER};
    static struct {
        uint8_t choice;
        struct fuzz_record records[N];
    } __attribute__((packed)) seed;
    const struct ps_shard shard = {3000, 1, 1024};
    char name[24];

    for (uint32_t k = 0; k < JOBS * sizeof acts / sizeof *acts; k++) {
        for (uint32_t i = 0; i < N; i++) {
            struct ps_range r = ps_shard_chunk(&shard, 0, i / CLIENTS % CHUNKS);
            struct ps_frame f = {.kind = PS_FRAME_EXCHANGE,
                                 .client = i % CLIENTS,
                                 .incarnation = FUZZ_INCARNATION,
                                 .seq = 1 + i / (CLIENTS * CHUNKS),
                                 .begin = r.begin,
                                 .count = (uint32_t)r.count,
                                 .samples = 8};
            struct fuzz_record record = {.value = 1, .odd = -2.5f};
            record.shape = i % 5 == 2 ? acts[k / JOBS] : 0;
            record.length = 7 << 2 | 1; /* clients 0 to 2, or client 1 */
            ps_frame_pack(&f, record.head);
            memcpy(&seed.records[i], &record, sizeof record);
        }
        seed.choice = (uint8_t)(k % JOBS);
        snprintf(name, sizeof name, "job-%u-%u", k % JOBS, k / JOBS);
        write_seed("rounds", name, &seed, sizeof seed);
    }
}

/* Of a plain optimizer, of one with momentum, with an exchange made ahead, and with its message. The target
 * seals what it is given. */
static const struct {
    uint32_t flags, older; /* older: another format version that has the same parts; 0: none */
    size_t vectors;
    bool many; /* exchanges are under way */
} states[] = {
    {.flags = 0, .vectors = 1},
    {.flags = PSC_STATE_X | PSC_STATE_V, .vectors = 3},
    {.flags = PSC_STATE_LANDED | PSC_STATE_AHEAD, .vectors = 2},
    {.flags = PSC_STATE_X | PSC_STATE_V | PSC_STATE_LANDED, .vectors = 3},
    {.flags = PSC_STATE_START | PSC_STATE_AHEAD | PSC_STATE_LANDED, .vectors = 3},
    {.flags = PSC_STATE_LAMBDA, .vectors = 2},
    {.flags = PSC_STATE_Z, .vectors = 2},
    {.flags = PSC_STATE_AHEAD | PSC_STATE_LANDED | PSC_STATE_MESSAGE, .older = 6, .vectors = 3},
    {.flags = PSC_STATE_START | PSC_STATE_AHEAD | PSC_STATE_ERROR | PSC_STATE_LANDED | PSC_STATE_MESSAGE |
              PSC_STATE_SENT_ERROR,
     .older = 6,
     .vectors = 6},
    {.flags = PSC_STATE_KNOWN, .vectors = 2},
    {.flags = PSC_STATE_AHEAD | PSC_STATE_LANDED | PSC_STATE_MESSAGE | PSC_STATE_KNOWN | PSC_STATE_SENT_KNOWN,
     .older = 8,
     .vectors = 5},
    {.flags = PSC_STATE_START | PSC_STATE_AHEAD | PSC_STATE_ERROR | PSC_STATE_LANDED | PSC_STATE_MESSAGE |
              PSC_STATE_SENT_ERROR,
     .older = 7,
     .vectors = 6,
     .many = true},
};

static void write_state(const char *name, size_t i, uint32_t version)
{
    enum { FLOATS = 3, EXTRA = 5, FRAGMENTS = 4, CHUNKS = 2 };
    uint8_t bytes[PSC_STATE_HEAD_BYTES + 6 * FLOATS * sizeof(float) + FRAGMENTS * PSC_STATE_EXCHANGE_BYTES +
                  CHUNKS + EXTRA + sizeof(uint64_t)] = {0};
    const bool many = states[i].many;
    const uint32_t chunks = (states[i].flags & PSC_STATE_KNOWN) != 0 ? CHUNKS : 0;
    const bool one = !many && (chunks == 0 || (states[i].flags & PSC_STATE_MESSAGE) != 0);
    const struct psc_state_head h = {.version = version,
                                     .flags = states[i].flags,
                                     .manifest_hash = 77,
                                     .n_floats = FLOATS,
                                     .clock = 10,
                                     .extra_bytes = EXTRA,
                                     .rate = many ? 0 : 0.5f,
                                     .method = "eamsgd",
                                     .rule = "elastic",
                                     .optimizer = "nesterov",
                                     .fragments = many ? FRAGMENTS : 1,
                                     .first = one ? 9 : 0,
                                     .answer_version = one ? 4 : 0,
                                     .samples = one ? 16 : 0,
                                     .n_under_way = many ? FRAGMENTS - 1 : 0,
                                     .chunks = chunks,
                                     .run = one ? 33 : 0};
    size_t at = psc_state_pack(&h, bytes) + states[i].vectors * FLOATS * sizeof(float);
    for (uint32_t k = 0; k < h.n_under_way; k++, at += psc_state_exchange_bytes(&h))
        psc_state_pack_exchange(&h,
                                &(struct psc_state_exchange){.first = 7 + k,
                                                             .answer_version = 4 + k,
                                                             .samples = 16,
                                                             .fragment = k,
                                                             .rate = 0.5f,
                                                             .run = 33},
                                bytes + at);
    write_seed("state", name, bytes, at + chunks + EXTRA + sizeof(uint64_t));
}

static void make_state(void)
{
    char name[24];
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        snprintf(name, sizeof name, "state-%zu", i);
        write_state(name, i, 0);
        snprintf(name, sizeof name, "state-%zu-%u", i, states[i].older);
        if (states[i].older != 0)
            write_state(name, i, states[i].older);
    }
}

/* The first byte says which. */
static void make_ring(void)
{
    static const struct {
        const char *name;
        uint8_t kind;
    } of_members[] = {{"link", PSC_HELLO_LINK},           {"beat", PSC_HELLO_BEAT},
                      {"tree-link", PSC_HELLO_TREE_LINK}, {"tree-beat", PSC_HELLO_TREE_BEAT},
                      {"summon", PSC_HELLO_SUMMON},       {"shrink", PSC_HELLO_SHRINK},
                      {"left-out", PSC_HELLO_LEFT_OUT}};
    unsigned char bytes[1 + PSC_REPLY_BYTES] = {0};
    struct psc_hello hello = {.kind = PSC_HELLO_JOIN,
                              .rank = -1,
                              .nonce = 99,
                              .members = 4,
                              .links = 2,
                              .link = 1,
                              .segment_bytes = 65536,
                              .name = "0",
                              .address = "tcp://127.0.0.1:4000"};
    const struct psc_reply reply = {
        .kind = PSC_REPLY_WELCOME, .rank = 3, .job = 12345, .next = "unix:0a1b2", .text = "all have come"};
    const struct psc_roster roster = {.members = 3, .source = 1, .behind = 2, .step = 8, .ids = {0, 2, 3}};
    struct psc_head head = {
        .type = PSC_HEAD_SEGMENT, .kind = PSC_ALLREDUCE, .seq = 7, .n = 1000, .bytes = 4000};
    psc_hello_pack(&hello, bytes + 1);
    write_seed("ring", "join", bytes, 1 + PSC_HELLO_BYTES);
    hello.rank = 2;
    hello.shrinks = 1;
    hello.step = 1000;
    hello.wait_ms = 60000;
    hello.n_lost = 1;
    hello.lost[0] = 3;
    for (size_t i = 0; i < sizeof of_members / sizeof *of_members; i++) {
        hello.kind = of_members[i].kind;
        psc_hello_pack(&hello, bytes + 1);
        write_seed("ring", of_members[i].name, bytes, 1 + PSC_HELLO_BYTES);
    }
    bytes[0] = 1;
    psc_reply_pack(&reply, bytes + 1);
    write_seed("ring", "welcome", bytes, 1 + PSC_REPLY_BYTES);
    bytes[0] = 2;
    psc_head_pack(&head, bytes + 1);
    write_seed("ring", "segment", bytes, 1 + PSC_HEAD_BYTES);
    head = (struct psc_head){.type = PSC_HEAD_ALIVE, .rank = 3, .n = 60000};
    psc_head_pack(&head, bytes + 1);
    write_seed("ring", "alive", bytes, 1 + PSC_HEAD_BYTES);
    head = (struct psc_head){.type = PSC_HEAD_NEWS, .rank = 1, .seq = 8, .bytes = PSC_NEWS_BYTES};
    psc_head_pack(&head, bytes + 1);
    write_seed("ring", "news", bytes, 1 + PSC_HEAD_BYTES);
    bytes[0] = 3;
    memset(bytes + 1, 'x', PSC_NEWS_BYTES);
    bytes[9] = 7;
    write_seed("ring", "sentence", bytes, 1 + PSC_NEWS_BYTES);
    bytes[0] = 4;
    psc_roster_pack(&roster, 8, bytes + 1);
    write_seed("ring", "roster", bytes, 1 + PSC_ROSTER_BYTES(8));
}

static void make_shm(void)
{
    unsigned char bytes[129] = {0};
    struct ps_shm_hello hello = {.client = 3, .incarnation = 7, .token = "0123456789abcde", .window = 4};
    const struct ps_shm_reply reply = {.n_slots = 6, .slot_bytes = 524288};
    ps_shm_hello_pack(&hello, bytes + 1);
    write_seed("shm", "hello", bytes, 1 + PS_SHM_HELLO_BYTES);
    hello.n_buffers = 2;
    hello.buffer_bytes[0] = 4096;
    hello.buffer_bytes[1] = UINT64_C(5) << 30;
    ps_shm_hello_pack(&hello, bytes + 1);
    write_seed("shm", "hello-lends", bytes, 1 + PS_SHM_HELLO_BYTES);
    bytes[0] = 1;
    ps_shm_reply_pack(&reply, bytes + 1);
    write_seed("shm", "reply", bytes, 1 + PS_SHM_REPLY_BYTES);
    bytes[0] = 2; /* as the target's try_request has them: 4 slots, 1 buffer, slot 2 */
    const uint32_t small[] = {3, 0, 1, 2, PS_SHM_STAGED, 0};
    const uint64_t large[] = {65536, 0, 0, 0, 0, 4096};
    memcpy(bytes + 1, small, sizeof small);
    memcpy(bytes + 1 + sizeof small, large, sizeof large);
    memset(bytes + 1 + sizeof small + sizeof large, 0, 16);
    write_seed("shm", "request", bytes, sizeof bytes);
    memset(bytes + 1 + 16, 0, 4); /* in the buffer */
    write_seed("shm", "request-in-place", bytes, sizeof bytes);
    bytes[1 + sizeof small + sizeof large + 16] = 1; /* to be copied */
    write_seed("shm", "request-copies", bytes, sizeof bytes);
}

int main(int argc, char **argv)
{
    static const char *const targets[] = {"frame", "codec", "control", "checkpoint", "idx",
                                          "cifar", "lane",  "rounds",  "state",      "ring",
                                          "shm",   "tar",   "picture", "cache",      "safetensors"};
    if (argc != 2 || (mkdir(argv[1], 0777) < 0 && errno != EEXIST) || chdir(argv[1]) < 0)
        fail(argc == 2 ? argv[1] : "usage: seeds DIR");
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (mkdir(targets[i], 0777) < 0 && errno != EEXIST)
            fail(targets[i]);
    make_frames();
    make_codecs();
    make_to_server();
    make_to_client();
    make_checkpoint(1, 0, 0);
    make_checkpoint(2, 2, 2);
    make_idx();
    make_cifar();
    make_safetensors();
    make_lane();
    make_rounds();
    make_state();
    make_ring();
    make_shm();
    make_image_seeds();
    return 0;
}
