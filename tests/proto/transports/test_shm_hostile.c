/* The transport shm and peers that mean harm: what they do stays theirs. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/log.h"
#include "proto/transports/shm/shm.h"
#include "tests/proto/transports/transport_fixture.h"

/* A link made by hand. */
struct rogue {
    double began_s; /* connected */
    int socket, files[3];
    struct ps_shm_reply reply;
    struct ps_shm_region region;
};

static int rogue_connect(const char *url)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(at.sun_path, ps_shm_path(url));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void send_files(int fd, const void *bytes, size_t len, const int *files, size_t n)
{
    union {
        struct cmsghdr first;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control = {.room = {0}};
    struct iovec part = {(void *)(uintptr_t)bytes, len};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (n > 0) {
        m.msg_control = control.room;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        control.first = (struct cmsghdr){CMSG_LEN(n * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.first), files, n * sizeof(int));
    }
    sendmsg(fd, &m, MSG_NOSIGNAL);
}

static struct ps_shm_hello hello_of(uint32_t client)
{
    struct ps_pass pass = rig_pass(client, 1);
    struct ps_shm_hello h = {.client = client, .incarnation = 1, .window = WINDOW};
    memcpy(h.token, pass.token, sizeof h.token);
    return h;
}

/* The status of the reply; -1: the port hung up. */
static int hear_reply(struct rogue *r)
{
    unsigned char bytes[PS_SHM_REPLY_BYTES];
    union {
        struct cmsghdr first;
        char room[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct ps_error err;
    r->files[0] = r->files[1] = r->files[2] = -1;
    if (recvmsg(r->socket, &m, MSG_WAITALL) != sizeof bytes || ps_shm_reply_parse(&r->reply, bytes, &err) < 0)
        return -1;
    if (CMSG_FIRSTHDR(&m) != NULL)
        memcpy(r->files, CMSG_DATA(&control.first), sizeof r->files);
    return (int)r->reply.status;
}

static void rogue_close(struct rogue *r)
{
    ps_shm_region_unmap(&r->region);
    for (int i = 0; i < 3; i++)
        ps_shm_close(&r->files[i]);
    ps_shm_close(&r->socket);
}

static void rogue_open(struct rogue *r, const char *url)
{
    *r = (struct rogue){.began_s = unit_now_s(), .files = {-1, -1, -1}};
    r->socket = rogue_connect(url);
}

/* Whether the port may have hung up because this process stood still before it had said its hello. */
static bool rogue_was_slow(const struct rogue *r)
{
    return unit_now_s() - r->began_s >= PS_ATTACH_MS * 0.9e-3;
}

/* hear_reply's result. */
static int rogue_attach(struct rogue *r, const char *url, const struct ps_shm_hello *h, const int *files,
                        size_t n)
{
    unsigned char bytes[PS_SHM_HELLO_BYTES];
    ps_shm_hello_pack(h, bytes);
    for (double end = unit_now_s() + PATIENCE_MS / 1e3;;) {
        rogue_open(r, url);
        send_files(r->socket, bytes, sizeof bytes, files, n);
        int status = hear_reply(r);
        if (status >= 0 || !rogue_was_slow(r) || unit_now_s() >= end)
            return status;
        rogue_close(r);
    }
}

static void open_both(struct rig_server *s, struct rig_client *honest)
{
    rig_server_open(s, ps_transport_find("shm"), NULL, NULL, NULL);
    rig_client_open(honest, s->t, s->url, 0);
}

static void close_both(struct rig_server *s, struct rig_client *honest)
{
    rig_trip(honest, 1, CHUNK_BYTES);
    rig_client_close(honest);
    rig_server_close(s);
}

START_TEST(garbage_on_the_socket_ends_that_connection_only)
{
    struct dice dice = {4};
    struct rig_server s;
    struct rig_client honest;
    open_both(&s, &honest);
    for (int i = 0; i < 300; i++) {
        unsigned char bytes[3 * PS_SHM_HELLO_BYTES];
        size_t len = 1 + dice_below(&dice, sizeof bytes);
        struct ps_shm_hello h = hello_of(1);
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (unsigned char)dice_bits(&dice);
        if (i % 2 == 0) { /* a good one with a few wrong bytes, or cut */
            ps_shm_hello_pack(&h, bytes);
            bytes[dice_below(&dice, PS_SHM_HELLO_BYTES)] ^= (unsigned char)(1 << dice_below(&dice, 8));
        }
        int fd = rogue_connect(s.url);
        send(fd, bytes, len, MSG_NOSIGNAL);
        if (i % 10 == 0)
            rig_trip(&honest, (uint64_t)i, 500);
        close(fd);
    }
    close_both(&s, &honest);
}
END_TEST

/* A byte at a time; the port looks at each before the next comes. false: it hung up. */
static bool is_heard_in_pieces(struct rogue *r, struct rig_client *honest, const unsigned char *bytes)
{
    for (size_t i = 0; i < PS_SHM_HELLO_BYTES; i++) {
        if (send(r->socket, bytes + i, 1, MSG_NOSIGNAL) != 1)
            return false;
        rig_trip(honest, i, 100);
    }
    return hear_reply(r) == 0;
}

/* What was written to the file that stands for stderr: how many lines are of the event. */
static unsigned count_lines(FILE *f, const char *event)
{
    char line[1024];
    unsigned n = 0;
    rewind(f);
    while (fgets(line, sizeof line, f) != NULL)
        n += strstr(line, event) != NULL;
    return n;
}

/* Ten lines a second and one of what was left out, however often a link comes back. */
START_TEST(links_that_come_again_and_again_do_not_fill_the_log)
{
    struct rig_server s;
    struct rig_client honest;
    struct ps_shm_hello h = hello_of(1);
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    ck_assert_ptr_nonnull(log);
    open_both(&s, &honest);
    h.token[0] ^= 1;
    ps_log_set_lowest(PS_LOG_INFO);
    ck_assert_int_eq(dup2(fileno(log), STDERR_FILENO), STDERR_FILENO);
    double begin_s = unit_now_s();
    for (int i = 0; i < 300; i++) {
        struct rogue r;
        ck_assert_int_eq(rogue_attach(&r, s.url, &h, NULL, 0), EACCES);
        rogue_close(&r);
    }
    dup2(before, STDERR_FILENO);
    close(before);
    ps_log_set_lowest(PS_LOG_ERROR);
    unsigned n = count_lines(log, "shm.refused"), most = 11 * (2 + (unsigned)(unit_now_s() - begin_s));
    ck_assert_msg(n >= 1 && n <= most, "%u lines; at most %u", n, most);
    fclose(log);
    close_both(&s, &honest);
}
END_TEST

START_TEST(hello_in_pieces_is_heard_and_silence_has_an_end)
{
    enum { SILENT = 3 * PS_SHM_HALVES };
    struct rig_server s;
    struct rig_client honest, late;
    struct rogue r;
    struct ps_shm_hello h = hello_of(1);
    unsigned char bytes[PS_SHM_HELLO_BYTES];
    double end = unit_now_s() + PATIENCE_MS / 1e3;
    char byte;
    int silent[SILENT];

    open_both(&s, &honest);
    ps_shm_hello_pack(&h, bytes);
    rogue_open(&r, s.url);
    while (!is_heard_in_pieces(&r, &honest, bytes)) {
        ck_assert(rogue_was_slow(&r) && unit_now_s() < end);
        rogue_close(&r);
        rogue_open(&r, s.url);
    }
    rogue_close(&r);

    for (int i = 0; i < SILENT; i++) {
        silent[i] = rogue_connect(s.url);
        send(silent[i], bytes, (size_t)i, MSG_NOSIGNAL);
    }
    rig_client_open(&late, s.t, s.url, 2); /* gets through at once */
    rig_trip(&late, 1, 100);
    for (int i = 0; i < SILENT; i++) {
        ssize_t n;
        end = unit_now_s() + PATIENCE_MS / 1e3;
        while ((n = recv(silent[i], &byte, 1, MSG_DONTWAIT)) < 0 && errno == EAGAIN) {
            ck_assert(unit_now_s() < end);
            unit_nap_ms(1);
            rig_trip(&late, 2, 100); /* the port looks at its clock when messages come */
        }
        ck_assert_int_le((int)n, 0);
        close(silent[i]);
    }
    rig_client_close(&late);
    close_both(&s, &honest);
}
END_TEST

/* A file for each way of being wrong. */
static int odd_file(int kind, size_t bytes)
{
    char path[] = "/tmp/psd-test-odd-XXXXXX";
    int fds[2], fd = -1;
    switch (kind) {
    case 0: /* may shrink under psd's hands */
        fd = memfd_create("odd", MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
        return fd;
    case 1: /* too small */
        fd = memfd_create("odd", MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes - 1), 0);
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        return fd;
    case 2: /* not to be written */
        fd = memfd_create("odd", MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
        return fd;
    case 3: /* of a file system */
        fd = mkstemp(path);
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
        unlink(path);
        return fd;
    case 4:
        return open("/dev/zero", O_RDWR);
    default:
        ck_assert_int_eq(pipe(fds), 0);
        close(fds[1]);
        return fds[0];
    }
}

START_TEST(only_buffers_that_cannot_shrink_are_mapped)
{
    enum { KINDS = 6, BYTES = 10000 };
    struct rig_server s;
    struct rig_client honest;
    struct rogue r;
    struct ps_shm_hello h = hello_of(1);
    open_both(&s, &honest);
    h.n_buffers = 2;
    h.buffer_bytes[0] = h.buffer_bytes[1] = BYTES;
    for (int kind = 0; kind < KINDS; kind++) {
        struct ps_error err;
        struct ps_buffer good;
        ck_assert_int_eq(ps_buffer_alloc(BYTES, &good, &err), 0);
        int files[] = {good.fd, odd_file(kind, BYTES), good.fd, good.fd, good.fd};
        ck_assert_int_gt(rogue_attach(&r, s.url, &h, files, 2), 0);
        rogue_close(&r);
        close(files[1]);
        files[1] = good.fd;
        ck_assert_int_gt(rogue_attach(&r, s.url, &h, files, 1), 0); /* one is missing */
        rogue_close(&r);
        ck_assert_int_gt(rogue_attach(&r, s.url, &h, files, 3), 0); /* one too many */
        rogue_close(&r);
        ck_assert_int_eq(rogue_attach(&r, s.url, &h, files, 5), -1); /* more than there ever are */
        rogue_close(&r);
        ck_assert_int_eq(rogue_attach(&r, s.url, &h, files, 2), 0);
        rogue_close(&r);
        ps_buffer_free(&good);
    }
    close_both(&s, &honest);
}
END_TEST

static void await_registered(uint64_t bytes)
{
    double end = unit_now_s() + UNIT_HANG_S;
    while (atomic_load(&rig_registered.bytes) != bytes && unit_now_s() < end)
        unit_nap_ms(1);
    ck_assert_uint_eq(atomic_load(&rig_registered.bytes), bytes);
}

/* Also sizes whose sum is none. */
START_TEST(nobody_lends_more_than_is_left)
{
    enum { BYTES = 10000 };
    struct rig_server s;
    struct rig_client honest;
    struct rogue first, second;
    struct ps_shm_hello h = hello_of(1), other = hello_of(2);
    struct ps_buffer b;
    struct ps_error err;
    ck_assert_int_eq(ps_buffer_alloc(BYTES, &b, &err), 0);
    int files[] = {b.fd, b.fd, b.fd};
    open_both(&s, &honest);
    atomic_store(&rig_registered.max_bytes, 3 * BYTES);
    h.n_buffers = 2;
    h.buffer_bytes[0] = h.buffer_bytes[1] = BYTES;
    ck_assert_int_eq(rogue_attach(&first, s.url, &h, files, 2), 0);
    await_registered(2 * BYTES);
    other.n_buffers = 2;
    other.buffer_bytes[0] = other.buffer_bytes[1] = BYTES;
    ck_assert_int_eq(rogue_attach(&second, s.url, &other, files, 2), ENOSPC);
    rogue_close(&second);
    other.n_buffers = 3;
    other.buffer_bytes[0] = other.buffer_bytes[1] = other.buffer_bytes[2] = INT64_MAX;
    ck_assert_int_eq(rogue_attach(&second, s.url, &other, files, 3), ENOSPC);
    rogue_close(&second);
    rogue_close(&first);
    await_registered(0);
    other.n_buffers = 2;
    other.buffer_bytes[0] = other.buffer_bytes[1] = BYTES;
    other.buffer_bytes[2] = 0;
    ck_assert_int_eq(rogue_attach(&second, s.url, &other, files, 2), 0);
    rogue_close(&second);
    await_registered(0);
    ps_buffer_free(&b);
    close_both(&s, &honest);
}
END_TEST

static int rogue_attach_with(struct rogue *r, const char *url, const struct ps_buffer *b)
{
    struct ps_shm_hello h = hello_of(1);
    h.n_buffers = 1;
    h.buffer_bytes[0] = b->bytes;
    int rc = rogue_attach(r, url, &h, &b->fd, 1);
    struct ps_shm_shape shape = {r->reply.n_slots, r->reply.slot_bytes};
    return rc == 0 ? ps_shm_region_map(&shape, r->files[0], &r->region) : rc;
}

static void rogue_send(struct rogue *r, const struct ps_shm_note *n)
{
    uint64_t one = 1;
    ps_shm_ring_put(&r->region.requests, n);
    ck_assert_int_eq(write(r->files[1], &one, sizeof one), sizeof one);
}

/* Whether the port hangs up; it may first answer. */
static bool is_detached(const struct rogue *r)
{
    char byte;
    return recv(r->socket, &byte, 1, 0) == 0;
}

START_TEST(only_what_is_in_a_buffer_and_fits_a_slot_is_copied)
{
    enum { BYTES = 3 * CHUNK_BYTES };
    struct rig_server s;
    struct rig_client honest;
    struct rogue r;
    struct ps_buffer b;
    struct ps_error err;
    ck_assert_int_eq(ps_buffer_alloc(BYTES, &b, &err), 0);
    open_both(&s, &honest);
    ck_assert_int_eq(rogue_attach_with(&r, s.url, &b), 0);
    const uint64_t slot_bytes = r.reply.slot_bytes;
    rogue_close(&r);
    const struct ps_shm_note wrong[] = {
        {.bytes = slot_bytes + 1},
        {.bytes = BYTES},
        {.bytes = 1, .offset = BYTES},
        {.bytes = 100, .offset = BYTES - 99},
        {.bytes = 100, .offset = UINT64_MAX - 50},
        {.bytes = UINT64_MAX, .offset = 1},
        {.bytes = 100, .buffer = 1},
        {.bytes = 100, .buffer = PS_SHM_STAGED},
        {.bytes = 100, .slot = PS_SHM_MAX_WINDOW},
    };
    for (size_t i = 0; i < ROWS(wrong); i++) {
        struct ps_shm_note n = wrong[i];
        n.copies = true;
        ck_assert_int_eq(rogue_attach_with(&r, s.url, &b), 0);
        if (n.slot < r.reply.n_slots)
            ps_shm_offer(&r.region, n.slot);
        int served = atomic_load(&s.served);
        rogue_send(&r, &n);
        ck_assert(is_detached(&r));
        ck_assert_int_eq(atomic_load(&s.served), served);
        rogue_close(&r);
    }
    ps_buffer_free(&b);
    close_both(&s, &honest);
}
END_TEST

/* It is as if the body had been taken back. */
START_TEST(what_was_not_offered_is_not_served)
{
    struct rig_server s;
    struct rig_client honest;
    struct rogue r;
    struct ps_buffer b;
    struct ps_error err;
    struct ps_shm_note n = {.bytes = 100, .copies = true}, answer;
    ck_assert_int_eq(ps_buffer_alloc(CHUNK_BYTES, &b, &err), 0);
    open_both(&s, &honest);
    ck_assert_int_eq(rogue_attach_with(&r, s.url, &b), 0);
    for (int i = 0; i < 2; i++) {
        rogue_send(&r, &n);
        while (!ps_shm_ring_take(&r.region.answers, &answer))
            unit_nap_ms(1);
        ck_assert_uint_eq(answer.slot, 0);
        ck_assert_uint_eq(answer.bytes, i == 0 ? PS_SHM_DROPPED : 100);
        ck_assert_int_eq(atomic_load(&s.served), i);
        ps_shm_offer(&r.region, 0);
    }
    rogue_close(&r);
    ps_buffer_free(&b);
    close_both(&s, &honest);
}
END_TEST

/* One request as it must not be; or of any bytes at all, anywhere in the region. */
static void scribble(struct rogue *r, struct dice *dice, struct ps_shm_ring *ring)
{
    struct ps_shm_note n = {
        .slot = (uint32_t)dice_below(dice, 4), .buffer = PS_SHM_STAGED, .bytes = dice_below(dice, 200)};
    uint64_t *words = (uint64_t *)(void *)r->region.control;
    switch (dice_below(dice, 8)) {
    case 0:
        n.slot = (uint32_t)dice_bits(dice);
        break;
    case 1:
        n.bytes = dice_bits(dice);
        break;
    case 2:
        n.buffer = (uint32_t)dice_below(dice, 3);
        n.offset = dice_bits(dice);
        break;
    case 3:
        n.buffer = 0;
        n.offset = dice_below(dice, 10000);
        n.bytes = dice_below(dice, 10000);
        n.copies = dice_below(dice, 2) == 0;
        if (n.slot < r->reply.n_slots && dice_below(dice, 2) == 0)
            ps_shm_offer(&r->region, n.slot);
        break;
    case 4:
        for (int i = 0; i < 1000; i++)
            __atomic_store_n(&words[dice_below(dice, 512)], dice_bits(dice), __ATOMIC_RELAXED);
        break;
    default: /* as it should be; the slot may still be the port's */
        break;
    }
    ps_shm_ring_put(ring, &n);
    uint64_t one = 1;
    if (write(r->files[1], &one, sizeof one) < 0)
        return;
}

struct scribbler {
    const char *url;
    pthread_t thread;
    atomic_bool stop;
    atomic_int attached, detached;
};

static void *scribble_on(void *arg)
{
    struct scribbler *w = arg;
    struct dice dice = {99};
    struct ps_error err;
    struct ps_buffer b;
    assert_quick(ps_buffer_alloc(10000, &b, &err) == 0);
    while (!atomic_load(&w->stop)) {
        struct rogue r;
        char byte;
        assert_quick(rogue_attach_with(&r, w->url, &b) == 0);
        atomic_fetch_add(&w->attached, 1);
        struct ps_shm_ring ring = r.region.requests;
        for (int i = 0; i < 1000 && recv(r.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0; i++) {
            scribble(&r, &dice, &ring);
            sched_yield();
        }
        atomic_fetch_add(&w->detached, recv(r.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0);
        rogue_close(&r);
    }
    ps_buffer_free(&b);
    return NULL;
}

START_TEST(who_scribbles_over_its_region_harms_itself_only)
{
    struct rig_server s;
    struct rig_client honest;
    struct scribbler w = {.url = s.url};
    uint64_t i = 0;
    open_both(&s, &honest);
    ck_assert_int_eq(pthread_create(&w.thread, NULL, scribble_on, &w), 0);
    for (; i < 3000 || atomic_load(&w.detached) < 200; i++)
        rig_trip(&honest, i, (size_t)(i % 3000));
    atomic_store(&w.stop, true);
    pthread_join(w.thread, NULL);
    close_both(&s, &honest);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-shm-hostile");
    TCase *tc = tcase_create("hostile");
    ps_log_setup("test", PS_LOG_ERROR); /* else a line for each refusal */
    tcase_add_test(tc, garbage_on_the_socket_ends_that_connection_only);
    tcase_add_test(tc, links_that_come_again_and_again_do_not_fill_the_log);
    tcase_add_test(tc, hello_in_pieces_is_heard_and_silence_has_an_end);
    tcase_add_test(tc, only_buffers_that_cannot_shrink_are_mapped);
    tcase_add_test(tc, nobody_lends_more_than_is_left);
    tcase_add_test(tc, only_what_is_in_a_buffer_and_fits_a_slot_is_copied);
    tcase_add_test(tc, what_was_not_offered_is_not_served);
    tcase_add_test(tc, who_scribbles_over_its_region_harms_itself_only);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
