#include "tests/proto/transports/transport_fixture.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "proto/clock.h"

/* As ck_assert_msg, but writes nothing when all is well: children that are killed share Check's file. */
#define must(condition, ...)                                                                                 \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            ck_abort_msg(__VA_ARGS__);                                                                       \
    } while (0)

struct ps_registered rig_registered = {.max_bytes = UINT64_MAX};
const struct ps_transport_limits rig_limits = {.max_body_bytes = CHUNK_BYTES,
                                               .window_chunks = WINDOW,
                                               .clients = RIG_CLIENTS,
                                               .registered = &rig_registered};

bool rig_attaches(const struct ps_transport *t)
{
    return t->port_admit != NULL;
}

void rig_any_url(const struct ps_transport *t, char *url, size_t size)
{
    static atomic_int made;
    if (strcmp(t->name, "ipc") == 0 || strcmp(t->name, "shm") == 0)
        snprintf(url, size, "%s:///tmp/psd-test-road-%d.%d", t->name, (int)getpid(),
                 atomic_fetch_add(&made, 1));
    else if (strcmp(t->name, "rdma") == 0 && getenv("PSD_RDMA_IP") != NULL)
        snprintf(url, size, "rdma://%s:0", getenv("PSD_RDMA_IP"));
    else
        snprintf(url, size, "%s://127.0.0.1:0", t->name);
}

/* 0, or -ENODEV with the reason on stderr. */
static int try_row(const struct ps_transport *t)
{
    struct ps_error err = {""};
    struct ps_hub *hub;
    struct ps_port *port = NULL;
    char url[64];
    rig_any_url(t, url, sizeof url);
    int rc = t->hub_create(1, &hub);
    if (rc == 0) {
        rc = t->port_open(hub, url, &rig_limits, &port, &err);
        t->port_close(port);
        t->hub_destroy(hub);
    }
    if (rc == -ENODEV)
        fprintf(stderr, "row %s is skipped: %s\n", t->name, err.text);
    return rc == -ENODEV ? rc : 0;
}

/* In a process of its own: who has used an RDMA device can no longer fork others that do. */
static bool row_runs(const struct ps_transport *t)
{
    int status = 0;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(try_row(t) == 0 ? 0 : 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

const struct ps_transport *rig_row(int i)
{
    size_t n;
    const struct ps_transport *const *rows = ps_transport_rows(&n);
    const char *only = getenv("PSD_TEST_ROW"); /* where the others were run elsewhere */
    ck_assert_uint_le(n, RIG_ROWS);
    if ((size_t)i < n && only != NULL && strcmp(only, rows[i]->name) != 0)
        return NULL;
    return (size_t)i < n && row_runs(rows[i]) ? rows[i] : NULL;
}

struct ps_pass rig_pass(uint32_t client, uint32_t incarnation)
{
    struct ps_pass p = {.client = client, .incarnation = incarnation, .identity = 1000 + client};
    for (size_t i = 0; i < sizeof p.token; i++)
        p.token[i] = (unsigned char)(client * 31 + incarnation * 7 + i);
    return p;
}

void rig_answer(struct rig_server *s, struct ps_message *m, int rc)
{
    if (rc == -EBADMSG) {
        atomic_fetch_add(&s->malformed, 1);
        assert_quick(s->t->message_body(m, 3) == 0);
        assert_quick(m->head_bytes == PS_FRAME_BYTES);
        assert_quick(m->body_bytes == 3);
        memcpy(m->body, "bad", 3);
    } else {
        atomic_fetch_add(&s->served, 1);
        for (size_t i = 0; i < m->body_bytes; i++)
            m->body[i]++;
    }
    rc = s->t->port_reply(s->port, m);
    atomic_fetch_add(&s->again, rc == -EAGAIN);
    atomic_fetch_add(&s->unreachable, rc == -EHOSTUNREACH);
}

static void do_task(struct rig_server *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->task != NULL)
        s->task(s, s->task_arg);
    s->task = NULL;
    ps_cond_wake(&s->done);
    pthread_mutex_unlock(&s->lock);
}

void rig_port_serve(struct rig_server *s)
{
    struct pollfd fds[] = {{.fd = s->wake, .events = POLLIN},
                           {.fd = s->t->port_fd(s->port), .events = POLLIN}};
    struct ps_message m;
    int rc;
    while (!atomic_load(&s->stop)) {
        bool asleep = atomic_load(&s->asleep);
        while (!asleep && ((rc = s->t->port_recv(s->port, &m)) == 0 || rc == -EBADMSG))
            s->serve(s, &m, rc);
        if (!asleep && s->t->port_rest != NULL && s->t->port_rest(s->port))
            continue;
        poll(fds, asleep ? 1 : 2, -1);
        if (fds[0].revents != 0) {
            eventfd_t count;
            eventfd_read(s->wake, &count);
            do_task(s);
        }
    }
}

static void *serve(void *arg)
{
    rig_port_serve(arg);
    return NULL;
}

void rig_port_open(struct rig_server *s, const struct ps_transport *t, const char *url)
{
    struct ps_error err = {""};
    char any[64];
    *s = (struct rig_server){.t = t, .serve = rig_answer, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->done, NULL);
    rig_any_url(t, any, sizeof any);
    assert_quick(t->hub_create(1, &s->hub) == 0);
    /* An address may take a moment to be free again. */
    for (double end = unit_now_s() + PATIENCE_MS / 1e3;
         t->port_open(s->hub, url != NULL ? url : any, &rig_limits, &s->port, &err) < 0 &&
         unit_now_s() < end;)
        unit_nap_ms(20);
    must(s->port != NULL, "%s", err.text);
    snprintf(s->url, sizeof s->url, "%s", t->port_url(s->port));
    for (uint32_t i = 0; rig_attaches(t) && i < RIG_CLIENTS; i++) {
        struct ps_pass pass = rig_pass(i, 1);
        assert_quick(t->port_admit(s->port, &pass) == 0);
    }
}

void rig_port_close(struct rig_server *s)
{
    s->t->port_close(s->port);
    s->t->hub_destroy(s->hub);
    pthread_cond_destroy(&s->done);
    pthread_mutex_destroy(&s->lock);
    close(s->wake);
}

void rig_server_open(struct rig_server *s, const struct ps_transport *t, const char *url, rig_serve_fn fn,
                     void *arg)
{
    rig_port_open(s, t, url);
    s->serve = fn != NULL ? fn : rig_answer;
    s->arg = arg;
    assert_quick(pthread_create(&s->thread, NULL, serve, s) == 0);
}

void rig_server_close(struct rig_server *s)
{
    atomic_store(&s->stop, true);
    eventfd_write(s->wake, 1);
    pthread_join(s->thread, NULL);
    rig_port_close(s);
}

void rig_server_sleeps(struct rig_server *s, bool asleep)
{
    atomic_store(&s->asleep, asleep);
    rig_server_do(s, NULL, NULL);
}

static void nothing(struct rig_server *s, void *arg)
{
    (void)s, (void)arg;
}

void rig_server_do(struct rig_server *s, void (*task)(struct rig_server *s, void *arg), void *arg)
{
    pthread_mutex_lock(&s->lock);
    s->task = task != NULL ? task : nothing;
    s->task_arg = arg;
    eventfd_write(s->wake, 1);
    while (s->task != NULL)
        pthread_cond_wait(&s->done, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Like a client, with growing pauses of random length: on a slow machine a port of which many ask again at
 * once answers each of them too late. */
int rig_link_open(struct ps_hub *hub, const struct ps_transport *t, const char *url,
                  const struct ps_transport_limits *limits, struct ps_link **out, struct ps_error *err)
{
    struct dice dice = {(uintptr_t)hub};
    double end = unit_now_s() + OPEN_PATIENCE_MS / 1e3, begin;
    uint64_t pause_s = PS_ATTACH_MS / 1000;
    for (;;) {
        begin = unit_now_s();
        int rc = t->link_open(hub, url, limits, out, err);
        /* The port may have hung up on who did not speak for so long. */
        bool late =
            rc == -ETIMEDOUT || (rc == -EHOSTUNREACH && unit_now_s() - begin >= PS_ATTACH_MS * 0.9e-3);
        if (!late || unit_now_s() > end)
            return rc;
        ps_sleep_us(pause_s * 1000 * dice_below(&dice, 1000));
        pause_s = pause_s < MOST_PAUSE_S ? 2 * pause_s : pause_s;
    }
}

int rig_client_try(struct rig_client *c, const struct ps_transport *t, const char *url,
                   const struct ps_transport_limits *limits, const struct ps_pass *pass, struct ps_error *err)
{
    *c = (struct rig_client){.t = t};
    assert_quick(t->hub_create(1, &c->hub) == 0);
    if (pass != NULL && rig_attaches(t))
        t->hub_pass(c->hub, pass);
    return rig_link_open(c->hub, t, url, limits, &c->link, err);
}

void rig_client_open(struct rig_client *c, const struct ps_transport *t, const char *url, uint32_t number)
{
    struct ps_error err = {""};
    struct ps_pass pass = rig_pass(number, 1);
    must(rig_client_try(c, t, url, &rig_limits, &pass, &err) == 0, "%s", err.text);
}

void rig_client_close(struct rig_client *c)
{
    c->t->link_close(c->link);
    c->t->hub_destroy(c->hub);
}

void rig_head(unsigned char *head, uint64_t number)
{
    memset(head, 0xaa, PS_FRAME_BYTES);
    memcpy(head + 8, &number, sizeof number);
}

uint64_t rig_number(const struct ps_message *m)
{
    uint64_t number;
    assert_quick(m->head_bytes == PS_FRAME_BYTES);
    memcpy(&number, m->head + 8, sizeof number);
    return number;
}

int rig_recv(struct rig_client *c, struct ps_message *m, int patience_ms)
{
    double deadline = unit_now_s() + patience_ms / 1e3;
    int rc;
    while ((rc = c->t->link_recv(c->link, m)) == -EAGAIN) {
        int left = (int)((deadline - unit_now_s()) * 1e3);
        if (left <= 0)
            return -ETIMEDOUT;
        c->t->links_wait(&c->link, 1, -1, left);
    }
    return rc;
}

void rig_send(struct rig_client *c, uint64_t number, const void *body, size_t len)
{
    unsigned char head[PS_FRAME_BYTES];
    rig_head(head, number);
    int rc = c->t->link_send(c->link, head, body, len);
    must(rc == 0, "link_send: %s", strerror(-rc));
}

bool rig_trip_is_right(struct rig_client *c, uint64_t number, size_t len)
{
    unsigned char *body = malloc(len + 1);
    struct ps_message m;
    assert_quick(body != NULL);
    for (size_t i = 0; i < len; i++)
        body[i] = (unsigned char)(i * 7 + number);
    rig_send(c, number, body, len);
    int rc = rig_recv(c, &m, PATIENCE_MS);
    if (rc < 0) {
        fprintf(stderr, "message %llu: %s\n", (unsigned long long)number, strerror(-rc));
        free(body);
        return false;
    }
    bool right = rig_number(&m) == number && m.body_bytes == len;
    for (size_t i = 0; right && i < len; i++)
        right = m.body[i] == (unsigned char)(i * 7 + number + 1);
    c->t->message_drop(&m);
    free(body);
    return right;
}
