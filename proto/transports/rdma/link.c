/* A client's end: sends messages, waits for answers, and opens and closes the link. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/clock.h"
#include "proto/transports/rdma/link.h"

enum {
    LOOK_EVERY = 256, /* empty calls before the connection itself is checked */
    REST_US = 20,     /* polls before it sleeps */
    MAX_LINKS = 64,
};

/* The answer to a slot's message has arrived, or the notice that there is none. */
static int arrive(struct ps_link *link, const struct ps_rdma_arrival *a)
{
    uint32_t slot = a->imm & ~PS_RDMA_DROPPED;
    if (slot >= link->end.remote.n || link->state[slot] != PS_RDMA_ASKED)
        return -EPROTO;
    if ((a->imm & PS_RDMA_DROPPED) != 0) {
        link->state[slot] = PS_RDMA_IDLE;
        link->idle[link->n_idle++] = slot;
        return 0;
    }
    if (a->bytes < PS_FRAME_BYTES || a->bytes > link->end.local.slot_bytes)
        return -EPROTO;
    link->state[slot] = PS_RDMA_ANSWERED;
    link->arrived[(link->first + link->n_arrived++) % link->end.local.n] = *a;
    return 0;
}

/* Takes completions; false: there were none. */
static bool take_completions(struct ps_link *link)
{
    struct ps_rdma_arrival arrival[PS_RDMA_BATCH];
    int n, got;
    if (link->failed)
        return false;
    got = ps_rdma_end_poll(&link->end, arrival, &n, NULL);
    link->failed = got < 0;
    for (int i = 0; i < n; i++)
        link->failed = arrive(link, &arrival[i]) < 0 || link->failed;
    return got > 0;
}

/* Whether the connection manager reports the end. Completions that came before are taken first. */
static void look_at_connection(struct ps_link *link)
{
    struct rdma_cm_event *event;
    bool over = false;
    link->look = false;
    link->empty_calls = 0;
    while (rdma_get_cm_event(link->channel, &event) == 0) {
        over = over || event->event != RDMA_CM_EVENT_ADDR_CHANGE;
        rdma_ack_cm_event(event);
    }
    while (over && take_completions(link))
        ;
    link->failed = link->failed || over;
}

/* A body in a registered buffer is read there; others are copied after the header. */
int ps_rdma_link_send(struct ps_link *link, const void *head, const void *body, size_t body_bytes)
{
    struct ibv_sge part[2];
    uint32_t lkey;
    if (body == NULL)
        body_bytes = 0;
    if (body_bytes > link->end.remote.slot_bytes - PS_FRAME_BYTES)
        return -EMSGSIZE;
    if (link->n_idle == 0 || link->end.sending == link->end.depth)
        take_completions(link);
    if (link->failed)
        return -ECONNRESET;
    if (link->n_idle == 0 || link->end.sending == link->end.depth)
        return -EAGAIN;
    uint32_t slot = link->idle[--link->n_idle];
    unsigned char *at = link->out + slot * link->end.local.slot_bytes;
    bool registered = body_bytes > 0 && ps_rdma_registered_covers(&link->registered, body, body_bytes, &lkey);
    memcpy(at, head, PS_FRAME_BYTES);
    part[0] = (struct ibv_sge){(uintptr_t)at, PS_FRAME_BYTES, link->out_mr->lkey};
    if (registered) {
        part[1] = (struct ibv_sge){(uintptr_t)body, (uint32_t)body_bytes, lkey};
    } else if (body_bytes > 0) {
        memcpy(at + PS_FRAME_BYTES, body, body_bytes);
        part[0].length += (uint32_t)body_bytes;
    }
    link->state[slot] = PS_RDMA_ASKED;
    link->failed = ps_rdma_end_write(&link->end, slot, part, registered ? 2 : 1) < 0;
    return link->failed ? -ECONNRESET : 0;
}

int ps_rdma_link_recv(struct ps_link *link, struct ps_message *m)
{
    if (link->n_arrived == 0 && !take_completions(link) && !link->failed &&
        (link->look || ++link->empty_calls >= LOOK_EVERY))
        look_at_connection(link);
    if (link->n_arrived == 0)
        return link->failed ? -ECONNRESET : -EAGAIN;
    const struct ps_rdma_arrival *a = &link->arrived[link->first];
    link->first = (link->first + 1) % link->end.local.n;
    link->n_arrived--;
    link->held++;
    ps_rdma_message_fill(m, &link->end, a->imm, a->bytes);
    ((struct ps_rdma_kept *)m->storage)->link = link;
    return 0;
}

void ps_rdma_link_drop(struct ps_link *link, uint32_t slot)
{
    link->held--;
    if (!link->closed) {
        link->state[slot] = PS_RDMA_IDLE;
        link->idle[link->n_idle++] = slot;
    } else if (link->held == 0) {
        ps_rdma_link_free(link);
    }
}

static bool has_something(struct ps_link *link)
{
    take_completions(link);
    return link->n_arrived > 0 || link->failed;
}

static bool any_has_something(struct ps_link *const *links, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (links[i] != NULL && has_something(links[i]))
            return true;
    return false;
}

static void take_events(struct ps_link *link)
{
    struct ibv_cq *cq;
    void *owner;
    while (ibv_get_cq_event(link->completions, &cq, &owner) == 0)
        ps_rdma_end_event(&link->end);
}

/* Polls for a moment, then arms every link's queue and looks once more. True: one may be readable. */
static bool ready_before_sleep(struct ps_link *const *links, size_t n)
{
    uint64_t end = ps_now_us() + REST_US;
    do {
        if (any_has_something(links, n))
            return true;
    } while (ps_now_us() < end);
    for (size_t i = 0; i < n; i++)
        if (links[i] != NULL && !links[i]->failed)
            links[i]->failed = ps_rdma_end_arm(&links[i]->end) < 0;
    return any_has_something(links, n);
}

int ps_rdma_links_wait(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms)
{
    struct pollfd fds[2 * MAX_LINKS + 1];
    struct ps_link *of[2 * MAX_LINKS + 1];
    nfds_t n_fds = 0;

    if (ready_before_sleep(links, n))
        return 0;
    for (size_t i = 0; i < n && n_fds < 2 * MAX_LINKS; i++)
        if (links[i] != NULL) {
            of[n_fds] = of[n_fds + 1] = links[i];
            fds[n_fds++] = (struct pollfd){.fd = links[i]->completions->fd, .events = POLLIN};
            fds[n_fds++] = (struct pollfd){.fd = links[i]->channel->fd, .events = POLLIN};
        }
    nfds_t n_link = n_fds;
    if (extra_fd >= 0)
        fds[n_fds++] = (struct pollfd){.fd = extra_fd, .events = POLLIN};
    int rc = ps_poll(fds, n_fds, timeout_ms);
    if (rc <= 0)
        return rc < 0 ? -errno : -ETIMEDOUT;
    for (nfds_t i = 0; i < n_link; i++) {
        if (fds[i].revents == 0)
            continue;
        take_events(of[i]);
        of[i]->look = of[i]->look || i % 2 == 1;
    }
    return 0;
}

/* Timeout for the other end: 4.096 us * 2^17 = 0.54 s, eight times. Devices may take up to four times as
 * long. */
enum { ACK_TIMEOUT = 17, RETRIES = 7, RNR_RETRIES = 3 };
/* The connection manager repeats a lost connection request only after 4 s. */
enum { TRIES = 2 };
/* rdma/ib_cm.h, which programs cannot include. */
enum { REFUSED_BY_PSD = 28 };

struct note {
    enum rdma_cm_event_type kind;
    int status;
    size_t len;
    unsigned char data[256];
};

/* Waits for the next event. */
static int next_event(struct ps_link *link, uint64_t until_us, struct note *note)
{
    struct pollfd fd = {.fd = link->channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    *note = (struct note){.len = 0};
    while (rdma_get_cm_event(link->channel, &event) != 0) {
        if (errno != EAGAIN)
            return -errno;
        uint64_t now = ps_now_us();
        if (now >= until_us)
            return -ETIMEDOUT;
        ps_poll(&fd, 1, (int)((until_us - now + 999) / 1000));
    }
    note->kind = event->event;
    note->status = event->status;
    note->len = event->param.conn.private_data == NULL ? 0 : event->param.conn.private_data_len;
    note->len = note->len < sizeof note->data ? note->len : sizeof note->data;
    bool connects =
        event->event >= RDMA_CM_EVENT_CONNECT_REQUEST && event->event <= RDMA_CM_EVENT_ESTABLISHED;
    note->len = connects ? note->len : 0;
    if (note->len > 0)
        memcpy(note->data, event->param.conn.private_data, note->len);
    rdma_ack_cm_event(event);
    return 0;
}

static int await(struct ps_link *link, const char *url, enum rdma_cm_event_type wanted, uint64_t until_us,
                 struct note *note, struct ps_error *err)
{
    struct ps_error why;
    int rc = next_event(link, until_us, note);
    if (rc == -ETIMEDOUT)
        return ps_fail(err, rc, "%.200s did not answer within %d ms", url, PS_ATTACH_MS);
    if (rc < 0)
        return ps_fail(err, rc, "cannot connect to %.200s: %s", url, strerror(-rc));
    if (note->kind == wanted)
        return 0;
    if (note->kind == RDMA_CM_EVENT_REJECTED && note->status == REFUSED_BY_PSD) {
        rc = ps_rdma_reject_parse(note->data, note->len, &why);
        return ps_fail(err, rc, "%.200s refused: %s", url, why.text);
    }
    if (note->kind == RDMA_CM_EVENT_REJECTED)
        return ps_fail(err, -EHOSTUNREACH, "no process listens at %.200s", url);
    return ps_fail(err, -EHOSTUNREACH, "cannot reach %.200s by RDMA: %s%s%s", url, rdma_event_str(note->kind),
                   note->status < 0 ? ": " : "", note->status < 0 ? strerror(-note->status) : "");
}

static int find_route(struct ps_link *link, const char *url, struct sockaddr *at, uint64_t until_us,
                      struct ps_error *err)
{
    struct note note;
    uint8_t timeout = ACK_TIMEOUT;
    int rc;
    if ((link->channel = rdma_create_event_channel()) == NULL)
        return ps_fail(err, -ENODEV, "cannot reach %.200s: this machine has no RDMA device", url);
    if (ps_rdma_unblock(link->channel->fd) < 0 ||
        rdma_create_id(link->channel, &link->id, link, RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(link->id, NULL, at, PS_ATTACH_MS) != 0)
        return ps_fail(err, errno == ENODEV ? -ENODEV : -EHOSTUNREACH, "cannot reach %.200s by RDMA: %s", url,
                       strerror(errno));
    if ((rc = await(link, url, RDMA_CM_EVENT_ADDR_RESOLVED, until_us, &note, err)) < 0)
        return rc;
    rdma_set_option(link->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
    if (rdma_resolve_route(link->id, PS_ATTACH_MS) != 0)
        return ps_fail(err, -EHOSTUNREACH, "cannot reach %.200s by RDMA: %s", url, strerror(errno));
    if ((rc = await(link, url, RDMA_CM_EVENT_ROUTE_RESOLVED, until_us, &note, err)) < 0)
        return rc;
    return ps_rdma_device_serves(link->id->verbs)
               ? 0
               : ps_fail(err, -EHOSTUNREACH,
                         "cannot reach %.200s: the device does not support writes with immediate data", url);
}

static int make_slots(struct ps_link *link, const struct ps_transport_limits *limits, struct ps_error *err)
{
    uint32_t n = limits->window_chunks;
    uint64_t slot_bytes = ps_rdma_slot_bytes(limits->max_body_bytes);
    if (slot_bytes == 0 || n > PS_RDMA_MAX_SLOTS)
        return ps_fail(err, -EMSGSIZE, "%u messages of %zu bytes do not fit the rdma transport", n,
                       limits->max_body_bytes);
    if ((link->domain = ps_rdma_domain_join(link->hub, link->id->verbs, &link->registered, err)) == NULL)
        return -ENOMEM;
    if ((link->completions = ibv_create_comp_channel(link->id->verbs)) == NULL ||
        ps_rdma_unblock(link->completions->fd) < 0)
        return ps_fail(err, -errno, "cannot wait for completions: %s", strerror(errno));
    link->state = calloc(n, sizeof *link->state);
    link->idle = calloc(n, sizeof *link->idle);
    link->arrived = calloc(n, sizeof *link->arrived);
    link->out_bytes = n * slot_bytes;
    link->out = mmap(NULL, link->out_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (link->out == MAP_FAILED)
        link->out = NULL;
    if (link->state == NULL || link->idle == NULL || link->arrived == NULL || link->out == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %u slots of %llu bytes", n,
                       (unsigned long long)slot_bytes);
    if ((link->out_mr = ibv_reg_mr(link->domain->pd, link->out, link->out_bytes, 0)) == NULL)
        return ps_fail(err, -errno, "cannot register %zu bytes: %s (see ulimit -l)", link->out_bytes,
                       strerror(errno));
    return ps_rdma_end_init(&link->end, link->id, link->domain->pd, link->completions, link, n, slot_bytes,
                            err);
}

static int attach(struct ps_link *link, const char *url, uint64_t until_us, struct ps_error *err)
{
    const struct ps_pass *pass = &link->hub->pass;
    struct ps_rdma_request request = {
        .client = pass->client, .incarnation = pass->incarnation, .answers = link->end.local};
    unsigned char data[PS_RDMA_REQUEST_BYTES];
    struct rdma_conn_param param = {
        .private_data = data,
        .private_data_len = sizeof data,
        .retry_count = RETRIES,
        .rnr_retry_count = RNR_RETRIES,
    };
    struct ps_error why;
    struct note note;

    memcpy(request.token, pass->token, sizeof request.token);
    ps_rdma_request_pack(&request, data);
    int rc = rdma_connect(link->id, &param) != 0 ? -errno : 0;
    explicit_bzero(data, sizeof data);
    explicit_bzero(&request, sizeof request);
    if (rc < 0)
        return ps_fail(err, -EHOSTUNREACH, "cannot connect to %.200s: %s", url, strerror(-rc));
    if ((rc = await(link, url, RDMA_CM_EVENT_ESTABLISHED, until_us, &note, err)) < 0)
        return rc;
    if ((rc = ps_rdma_accept_parse(&link->end.remote, note.data, note.len, &why)) < 0)
        return ps_fail(err, rc, "cannot attach to %.200s: %s", url, why.text);
    if (link->end.remote.n > link->end.local.n || link->end.remote.slot_bytes > link->end.local.slot_bytes)
        return ps_fail(err, -EPROTO, "cannot attach to %.200s: it has more or larger slots than requested",
                       url);
    link->n_idle = link->end.remote.n;
    for (uint32_t i = 0; i < link->n_idle; i++)
        link->idle[i] = i;
    return 0;
}

static int open_once(struct ps_hub *hub, const char *url, struct sockaddr *at,
                     const struct ps_transport_limits *limits, uint64_t until_us, struct ps_link **out,
                     struct ps_error *err)
{
    struct ps_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a link to %.200s", url);
    link->hub = hub;
    int rc = find_route(link, url, at, until_us, err);
    uint64_t begin = ps_now_us();
    if (rc == 0)
        rc = make_slots(link, limits, err);
    if (rc == 0) /* registering gigabytes takes time that does not count as waiting */
        rc = attach(link, url, until_us + (ps_now_us() - begin), err);
    if (rc < 0) {
        ps_rdma_link_close(link);
        return rc;
    }
    *out = link;
    return 0;
}

int ps_rdma_link_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                      struct ps_link **out, struct ps_error *err)
{
    struct sockaddr_storage at;
    socklen_t len;
    int rc = ps_rdma_resolve(url, false, &at, &len, err);
    if (rc < 0)
        return rc;
    rc = -ETIMEDOUT;
    for (int i = 0; i < TRIES && rc == -ETIMEDOUT; i++)
        rc = open_once(hub, url, (struct sockaddr *)&at, limits,
                       ps_now_us() + PS_ATTACH_MS * UINT64_C(1000) / TRIES, out, err);
    return rc;
}

void ps_rdma_link_free(struct ps_link *link)
{
    ps_rdma_end_unmap(&link->end);
    free(link->state);
    free(link->idle);
    free(link->arrived);
    free(link);
}

/* After the queue pair is destroyed the device no longer accesses our memory. */
void ps_rdma_link_close(struct ps_link *link)
{
    if (link == NULL)
        return;
    if (link->id != NULL && link->id->qp != NULL)
        rdma_disconnect(link->id);
    ps_rdma_end_finish(&link->end);
    if (link->out_mr != NULL)
        ibv_dereg_mr(link->out_mr);
    if (link->out != NULL)
        munmap(link->out, link->out_bytes);
    if (link->completions != NULL)
        ibv_destroy_comp_channel(link->completions);
    if (link->domain != NULL)
        ps_rdma_domain_leave(link->hub, link->domain);
    if (link->id != NULL)
        rdma_destroy_id(link->id);
    if (link->channel != NULL)
        rdma_destroy_event_channel(link->channel);
    link->closed = true;
    if (link->held == 0)
        ps_rdma_link_free(link);
}
