#include "client/cliques/ring/beat.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/psclient.h"
#include "proto/clock.h"
#include "proto/thread.h"

enum { BEATS = 4 }; /* beats in the shorter timeout_ms of the two */

void psc_beat_init(struct psc_beat *b)
{
    memset(b, 0, sizeof *b);
    b->wake_fd = b->news_fd = -1;
    b->n_peers = PSC_BEAT_DIRECTIONS;
    for (int i = 0; i < PSC_BEAT_PEERS; i++)
        b->peer[i].fd = -1;
    pthread_mutex_init(&b->lock, NULL);
}

/* Keeps the first sentence. False: there was one. */
static bool keep_news(struct psc_beat *b, const struct ps_error *news, uint32_t suspect)
{
    pthread_mutex_lock(&b->lock);
    bool first = !b->has_news;
    if (first) {
        b->news = *news;
        b->suspect = suspect;
    }
    b->has_news = true;
    pthread_mutex_unlock(&b->lock);
    return first;
}

void psc_beat_send_error(struct psc_beat *b, const struct ps_error *news, uint32_t suspect)
{
    if (b->runs && keep_news(b, news, suspect))
        eventfd_write(b->wake_fd, 1);
}

void psc_beat_take_news(struct psc_beat *b, struct ps_error *out, uint32_t *suspect)
{
    pthread_mutex_lock(&b->lock);
    *out = b->news;
    *suspect = b->suspect;
    pthread_mutex_unlock(&b->lock);
}

double psc_beat_heard_s(const struct psc_beat *b, uint32_t peer)
{
    return 1e-9 * (double)atomic_load_explicit(&b->peer[peer].heard_ns, memory_order_relaxed);
}

uint64_t psc_beat_away_ms(const struct psc_beat *b, uint32_t peer)
{
    return atomic_load_explicit(&b->peer[peer].away_ms, memory_order_relaxed);
}

uint64_t psc_beat_waits_in(const struct psc_beat *b, uint32_t peer)
{
    return atomic_load_explicit(&b->peer[peer].waits_in, memory_order_relaxed);
}

void psc_beat_be_here(struct psc_beat *b, uint64_t in)
{
    atomic_store_explicit(&b->here_ns, ps_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&b->waits_in, in, memory_order_release);
}

static uint64_t own_away_ms(const struct psc_beat *b, uint64_t now)
{
    bool waits = atomic_load_explicit(&b->waits_in, memory_order_acquire) != 0;
    uint64_t here = atomic_load_explicit(&b->here_ns, memory_order_relaxed);
    return waits || here > now ? 0 : (now - here) / 1000000;
}

bool psc_beat_has_unread(const struct psc_beat *b, uint32_t peer)
{
    char byte;
    return b->runs && recv(b->peer[peer].fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
}

/* Fills the next message, once the one before has been sent. */
static void load(struct psc_beat *b, struct psc_beat_peer *p)
{
    uint64_t now = ps_now_ns();
    if (b->has_news && !p->told) {
        struct ps_error news;
        uint32_t suspect;
        psc_beat_take_news(b, &news, &suspect);
        psc_head_pack(
            &(struct psc_head){
                .type = PSC_HEAD_NEWS, .rank = (int32_t)b->rank, .n = suspect, .bytes = PSC_NEWS_BYTES},
            p->out);
        memset(p->out + PSC_HEAD_BYTES, 0, PSC_NEWS_BYTES);
        memcpy(p->out + PSC_HEAD_BYTES, news.text, strnlen(news.text, PSC_NEWS_BYTES - 1));
        p->len = PSC_HEAD_BYTES + PSC_NEWS_BYTES;
        p->told = true;
    } else if (!b->has_news && now >= p->due_ns) {
        uint32_t ms = p->timeout_ms < b->timeout_ms ? p->timeout_ms : b->timeout_ms;
        uint64_t in = atomic_load_explicit(&b->waits_in, memory_order_relaxed);
        psc_head_pack(&(struct psc_head){.type = PSC_HEAD_ALIVE,
                                         .rank = (int32_t)b->rank,
                                         .seq = own_away_ms(b, now),
                                         .n = b->timeout_ms,
                                         .hop = (uint32_t)(in & 0xff),
                                         .index = (uint32_t)(in >> 8)},
                      p->out);
        p->len = PSC_HEAD_BYTES;
        p->due_ns = now + (uint64_t)ms * 1000000 / BEATS;
    }
}

/* Sends as much as the socket takes. It does not wait for a peer that is stopped: the rest of a beat is sent
 * when the peer reads again, and beats that were due meanwhile are left out. */
static void speak(struct psc_beat *b, struct psc_beat_peer *p)
{
    while (!p->ended) {
        if (p->sent == p->len) {
            p->sent = p->len = 0;
            load(b, p);
        }
        if (p->len == 0)
            return;
        ssize_t k = send(p->fd, p->out + p->sent, p->len - p->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EAGAIN)
            return;
        if (k < 0 && errno != EINTR)
            p->ended = true;
        p->sent += k > 0 ? (size_t)k : 0;
    }
}

static void break_clique(struct psc_beat *b, const struct ps_error *news, uint32_t suspect)
{
    if (!keep_news(b, news, suspect))
        return;
    b->brought_news = true;
    eventfd_write(b->news_fd, 1);
}

/* A complete message has arrived. -EPROTO: it is not valid here. */
static int receive_beat(struct psc_beat *b, struct psc_beat_peer *p, struct ps_error *why)
{
    struct psc_head h;
    int rc = psc_head_parse(&h, p->in, why);
    if (rc < 0)
        return rc;
    if (h.rank != (int32_t)p->rank || (h.type != PSC_HEAD_ALIVE && h.type != PSC_HEAD_NEWS))
        return ps_fail(why, -EPROTO, "a message that is not its own beat");
    if (p->got < PSC_HEAD_BYTES + h.bytes)
        return 0;
    if (h.type == PSC_HEAD_NEWS) {
        struct ps_error news;
        psc_news_clean(p->in + PSC_HEAD_BYTES, &news);
        break_clique(b, &news, (uint32_t)h.n);
    } else {
        p->timeout_ms = (uint32_t)h.n;
        atomic_store_explicit(&p->away_ms, h.seq, memory_order_relaxed);
        atomic_store_explicit(&p->waits_in, (uint64_t)h.index << 8 | (h.hop & 0xff), memory_order_relaxed);
        if (p->due_ns > ps_now_ns() + h.n * 1000000 / BEATS) /* it tolerates less silence than assumed */
            p->due_ns = ps_now_ns();
    }
    p->got = 0;
    return 0;
}

static void hear(struct psc_beat *b, struct psc_beat_peer *p)
{
    struct ps_error why, news;
    while (!p->ended) {
        size_t whole = p->got < PSC_HEAD_BYTES ? PSC_HEAD_BYTES : sizeof p->in;
        ssize_t k = recv(p->fd, p->in + p->got, whole - p->got, MSG_DONTWAIT);
        if (k < 0 && errno == EAGAIN)
            return;
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) { /* the links report the error */
            p->ended = true;
            return;
        }
        p->got += (size_t)k;
        atomic_store_explicit(&p->heard_ns, ps_now_ns(), memory_order_relaxed);
        if (p->got >= PSC_HEAD_BYTES && receive_beat(b, p, &why) < 0) {
            ps_fail(&news, 0, "clique %s: rank %u sent %.300s (noticed by rank %u)", b->name, p->rank,
                    why.text, b->rank);
            break_clique(b, &news, 0);
            p->ended = true;
        }
    }
}

/* Waits until the next beat is due, or a socket is ready. */
static void rest(struct psc_beat *b)
{
    uint64_t now = ps_now_ns(), due_ns = UINT64_MAX;
    struct pollfd fds[1 + PSC_BEAT_PEERS] = {{.fd = b->wake_fd, .events = POLLIN}};
    eventfd_t count;
    for (uint32_t i = 0; i < b->n_peers; i++) {
        const struct psc_beat_peer *p = &b->peer[i];
        bool stuck = p->sent < p->len;
        fds[1 + i].fd = p->ended ? -1 : p->fd;
        fds[1 + i].events = (short)(POLLIN | (stuck ? POLLOUT : 0));
        if (!p->ended && !stuck && !b->has_news && p->due_ns < due_ns)
            due_ns = p->due_ns;
    }
    uint64_t ms = due_ns == UINT64_MAX ? 1u << 30 : due_ns <= now ? 0 : (due_ns - now + 999999) / 1000000;
    if (ps_poll(fds, 1 + b->n_peers, (int)ms) > 0 && fds[0].revents != 0)
        eventfd_read(b->wake_fd, &count);
}

static void *beat(void *arg)
{
    struct psc_beat *b = arg;
    bool last;
    do {
        last = b->stop; /* an error reported before is still sent */
        for (uint32_t i = 0; i < b->n_peers; i++)
            hear(b, &b->peer[i]);
        for (uint32_t i = 0; i < b->n_peers; i++)
            speak(b, &b->peer[i]);
        if (!last)
            rest(b);
    } while (!last);
    return NULL;
}

int psc_beat_start(struct psc_beat *b, struct ps_error *err)
{
    uint64_t now = ps_now_ns();
    for (uint32_t i = 0; i < b->n_peers; i++) {
        b->peer[i].timeout_ms = b->timeout_ms;
        b->peer[i].heard_ns = now;
    }
    psc_beat_be_here(b, 0);
    b->stop = false;
    if (b->wake_fd < 0)
        b->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (b->wake_fd < 0)
        return ps_fail(err, PSC_ESYSTEM, "no descriptors for the heartbeat of a ring: %s", strerror(errno));
    int rc = ps_thread_create(&b->thread, beat, b);
    if (rc != 0)
        return ps_fail(err, PSC_ESYSTEM, "cannot start the heartbeat thread of a ring: %s", strerror(rc));
    b->runs = true;
    return PSC_OK;
}

void psc_beat_stop(struct psc_beat *b)
{
    if (!b->runs)
        return;
    b->stop = true;
    eventfd_write(b->wake_fd, 1);
    pthread_join(b->thread, NULL);
    b->runs = false;
}

void psc_beat_finish(struct psc_beat *b)
{
    if (b->wake_fd >= 0)
        close(b->wake_fd);
    pthread_mutex_destroy(&b->lock);
}
