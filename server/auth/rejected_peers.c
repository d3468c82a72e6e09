#include "server/auth/rejected_peers.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <xxhash.h>
#include <zmq.h>

#include "proto/clock.h"
#include "proto/log.h"
#include "proto/security/socket_monitor.h"

enum { AGAIN_S = 60, BATCH = 256 };

struct psd_rejected_peers_watch {
    struct psd_rejected_peers *peers;
    void *watch; /* NULL: none */
    uv_poll_t poll;
    /* why the handshake of the connection that is about to be closed failed; NULL: it did not */
    const char *failed;
};

void psd_rejected_peers_note(struct psd_rejected_peers *g, const char *address, const char *why)
{
    uint64_t now_s = ps_now_ns() / PS_NS_PER_S;
    uint64_t who = XXH64(address, strlen(address), XXH64(why, strlen(why), 0));
    size_t at = who % PSD_REJECTED_PEERS_SEEN;
    ++*g->counter;
    if (g->seen[at].who == who && now_s < g->seen[at].until_s)
        return;
    g->seen[at].who = who;
    g->seen[at].until_s = now_s + AGAIN_S;
    if (ps_log_allows(&g->log_limit, "auth.refused", "handshakes"))
        ps_log(PS_LOG_WARN, "auth.refused", "%s: %s (logged once a minute)", address, why);
}

/* The descriptor may have been closed meanwhile. */
static void remember(struct psd_rejected_peers *g, int fd)
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    char *text = g->addresses[fd % PSD_REJECTED_PEERS_FDS];
    if (getpeername(fd, (struct sockaddr *)&from, &size) != 0 ||
        getnameinfo((struct sockaddr *)&from, size, text, sizeof *g->addresses, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(text, sizeof *g->addresses, "unknown address");
}

/* A failed handshake is reported just before the end of its connection. ZAP has already reported what it
 * refused. A peer without a key may notice the failure before psd does and disconnect; that looks like a
 * broken connection. */
static void take_event(struct psd_rejected_peers_watch *w, const struct ps_watch_event *e)
{
    struct psd_rejected_peers *g = w->peers;
    switch (e->kind) {
    case PS_WATCH_OPEN:
        remember(g, (int)e->value);
        break;
    case PS_WATCH_MISMATCH:
        w->failed = "it has no key, and psd has auth.key";
        break;
    case PS_WATCH_BROKEN:
        w->failed = "its handshake failed: it has no key, or another public key for psd";
        break;
    case PS_WATCH_CLOSED:
        if (w->failed != NULL)
            psd_rejected_peers_note(g, g->addresses[e->value % PSD_REJECTED_PEERS_FDS], w->failed);
        w->failed = NULL;
        break;
    default:
        break;
    }
}

static void look(struct psd_rejected_peers_watch *w)
{
    struct ps_watch_event e;
    for (int i = 0; i < BATCH && ps_watch_take(w->watch, &e) == 0; i++)
        take_event(w, &e);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    look(poll->data);
}

/* ZeroMQ's descriptors only signal changes: look before each wait. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct psd_rejected_peers *g = prepare->data;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->watches[i].watch != NULL)
            look(&g->watches[i]);
}

static void watch_one(struct psd_rejected_peers *g, uv_loop_t *loop, struct psd_rejected_peers_watch *w,
                      void *watch)
{
    int fd;
    size_t size = sizeof fd;
    *w = (struct psd_rejected_peers_watch){.peers = g};
    if (watch == NULL || zmq_getsockopt(watch, ZMQ_FD, &fd, &size) != 0)
        return;
    w->watch = watch;
    w->poll.data = w;
    uv_poll_init(loop, &w->poll, fd);
    uv_poll_start(&w->poll, UV_READABLE, on_readable);
}

int psd_rejected_peers_open(struct psd_rejected_peers *g, uv_loop_t *loop, void *const *watches, uint32_t n)
{
    g->watches = calloc(n, sizeof *g->watches);
    g->addresses = calloc(PSD_REJECTED_PEERS_FDS, sizeof *g->addresses);
    if (g->watches == NULL || g->addresses == NULL)
        return -ENOMEM;
    for (; g->n < n; g->n++)
        watch_one(g, loop, &g->watches[g->n], watches[g->n]);
    g->prepare.data = g;
    uv_prepare_init(loop, &g->prepare);
    uv_prepare_start(&g->prepare, on_prepare);
    return 0;
}

void psd_rejected_peers_close(struct psd_rejected_peers *g)
{
    if (g->prepare.data != NULL)
        uv_close((uv_handle_t *)&g->prepare, NULL);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->watches[i].watch != NULL)
            uv_close((uv_handle_t *)&g->watches[i].poll, NULL);
}

void psd_rejected_peers_finish(struct psd_rejected_peers *g)
{
    free(g->watches);
    free(g->addresses);
}
