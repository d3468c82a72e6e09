/* How errors spread in a ring: the member that notices one first tells both neighbours, and those in the
 * tree. Errors are forwarded in both directions, because one direction may be blocked. The backward direction
 * of a link carries nothing else and is always free. The beat carries the error past members that compute.
 * Over the links it arrives before the end of the connection, which by itself explains less. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "client/cliques/ring/tree.h"
#include "proto/clock.h"

static const double news_s = 0.3; /* for sending the error; slower neighbours are skipped */

void psc_flow_finish(const struct psc_flow *f, int fd, double deadline_s)
{
    if (!f->loaded || f->done == 0)
        return;
    size_t in_payload = f->done > PSC_HEAD_BYTES ? f->done - PSC_HEAD_BYTES : 0;
    if (f->done < PSC_HEAD_BYTES)
        psc_send_all(fd, f->head + f->done, PSC_HEAD_BYTES - f->done, deadline_s, -1);
    psc_send_all(fd, f->payload + in_payload, f->bytes - in_payload, deadline_s, -1);
}

static void send_error(struct psc_ring *r)
{
    unsigned char news[PSC_HEAD_BYTES + PSC_NEWS_BYTES];
    double deadline = ps_now_s() + news_s;
    psc_beat_send_error(&r->beat, r->err);
    psc_head_pack(
        &(struct psc_head){
            .type = PSC_HEAD_NEWS, .rank = (int32_t)r->rank, .seq = r->seq, .bytes = PSC_NEWS_BYTES},
        news);
    memset(news + PSC_HEAD_BYTES, 0, PSC_NEWS_BYTES);
    memcpy(news + PSC_HEAD_BYTES, r->err->text, strnlen(r->err->text, PSC_NEWS_BYTES - 1));
    for (uint32_t i = 0; i < r->links; i++)
        psc_send_all(r->link[i].prev, news, sizeof news, deadline, -1);
    for (uint32_t i = 0; i < r->links; i++) {
        psc_flow_finish(&r->link[i].out, r->link[i].next, deadline);
        psc_send_all(r->link[i].next, news, sizeof news, deadline, -1);
        shutdown(r->link[i].next, SHUT_WR); /* also if it was incomplete: the connection ends there */
    }
    psc_tree_send_error(r, news, deadline);
}

int psc_ring_fail(struct psc_ring *r, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    ps_fail(r->err, 0, "clique %s: %s (noticed by rank %u in call %" PRIu64 ", %s)", r->name, what, r->rank,
            r->seq, psc_call_name(r->op->kind));
    send_error(r);
    return PSC_ECLIQUE;
}

/* The sentence after a NEWS head, of which `got` bytes have arrived, becomes the error of this call. */
static int take_news(struct psc_ring *r, int fd, const unsigned char *got, size_t n)
{
    unsigned char text[PSC_NEWS_BYTES] = {0};
    if (n > sizeof text)
        n = sizeof text;
    if (n > 0)
        memcpy(text, got, n);
    psc_recv_all(fd, text + n, sizeof text - n, ps_now_s() + news_s, -1); /* or a part of it */
    psc_news_clean(text, r->err);
    send_error(r);
    return PSC_ECLIQUE;
}

int psc_ring_hear_next(struct psc_ring *r, struct psc_ring_link *l)
{
    unsigned char bytes[PSC_HEAD_BYTES];
    struct psc_head h;
    char byte;
    ssize_t k = recv(l->next, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    int rc = k > 0 ? psc_recv_all(l->next, bytes, sizeof bytes, ps_now_s() + news_s, -1)
                   : (k < 0 ? -errno : -ECONNRESET);
    if (rc == 0) {
        if (psc_head_parse(&h, bytes, NULL) < 0 || h.type != PSC_HEAD_NEWS)
            return psc_ring_fail(r, "rank %u sent bytes backwards that are not an error report",
                                 psc_ring_next(r));
        return take_news(r, l->next, NULL, 0);
    }
    if (psc_flow_ended(&l->out)) { /* it may have received everything and left */
        l->next_quiet = true;
        return 0;
    }
    return psc_ring_lost(r, psc_ring_next(r), rc);
}

/* Reads news from the next member, against the direction of segments. */
static bool has_heard(struct psc_ring *r, int *rc)
{
    unsigned char bytes[PSC_HEAD_BYTES];
    struct psc_head h;
    for (uint32_t i = 0; i < r->links; i++) {
        int fd = r->link[i].next;
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK) != sizeof bytes ||
            psc_head_parse(&h, bytes, NULL) < 0 || h.type != PSC_HEAD_NEWS)
            continue;
        psc_recv_all(fd, bytes, sizeof bytes, ps_now_s() + news_s, -1);
        *rc = take_news(r, fd, NULL, 0);
        return true;
    }
    return false;
}

/* Likewise from a neighbour in the tree, between two segments. */
static bool has_heard_in_tree(struct psc_ring *r, int *rc)
{
    unsigned char bytes[PSC_HEAD_BYTES];
    struct psc_head h;
    for (uint32_t i = 0; r->tree != NULL && i < r->links * r->tree->n_peers; i++) {
        int fd = psc_tree_fd_at_head(r->tree, i);
        if (fd < 0 || recv(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK) != sizeof bytes ||
            psc_head_parse(&h, bytes, NULL) < 0 || h.type != PSC_HEAD_NEWS)
            continue;
        psc_recv_all(fd, bytes, sizeof bytes, ps_now_s() + news_s, -1);
        *rc = take_news(r, fd, NULL, 0);
        return true;
    }
    return false;
}

int psc_ring_lost(struct psc_ring *r, uint32_t rank, int error)
{
    int rc;
    if (has_heard(r, &rc) || has_heard_in_tree(r, &rc))
        return rc;
    return psc_ring_fail(r, "rank %u is gone: %s", rank,
                         error == -ECONNRESET || error == -EPIPE ? "its connection has ended"
                                                                 : strerror(-error));
}

static void describe(const struct psc_head *h, char *text, size_t size)
{
    const struct ps_codec *codec = ps_codec_find(h->codec);
    const char *name = psc_call_name(h->kind), *units = psc_values_of(h->values)->units;
    bool sums = h->operation == PSC_SUM || h->operation == PSC_MEAN, reduces = psc_call_reduces(h->kind);
    char of[24] = "", as[40] = "", root[24] = "";
    if (reduces && h->operation != PSC_SUM)
        snprintf(of, sizeof of, " (%s)", psc_operation_name(h->operation));
    if (reduces && sums && h->values == PSC_FLOAT32)
        snprintf(as, sizeof as, " as %.24s", codec != NULL ? codec->name : "an unknown codec");
    if (h->kind == PSC_REDUCE || h->kind == PSC_BROADCAST)
        snprintf(root, sizeof root, " %s rank %d", h->kind == PSC_REDUCE ? "to" : "from", h->rank);
    if (h->kind == PSC_BARRIER)
        snprintf(text, size, "%s%s", name, h->compares ? ", compared" : "");
    else
        snprintf(text, size, "%s%s of %" PRIu64 " %s%s%s%s", name, of, h->n, units, as, root,
                 h->compares ? ", compared" : "");
}

static int disagree(struct psc_ring *r, uint32_t rank, const struct psc_head *theirs,
                    const struct psc_head *ours)
{
    char them[120], us[120];
    describe(theirs, them, sizeof them);
    describe(ours, us, sizeof us);
    if (theirs->seq != ours->seq || strcmp(them, us) != 0)
        return psc_ring_fail(
            r, "members make different calls: rank %u %s (call %" PRIu64 "), rank %u %s (call %" PRIu64 ")",
            rank, them, theirs->seq, r->rank, us, ours->seq);
    return psc_ring_fail(r, "rank %u sent segment %u of hop %u with %u bytes; expected %u of hop %u with %u",
                         rank, theirs->index, theirs->hop, theirs->bytes, ours->index, ours->hop,
                         ours->bytes);
}

int psc_ring_odd_head(struct psc_ring *r, uint32_t rank, int fd, const struct psc_flow *f,
                      const unsigned char arrived[PSC_HEAD_BYTES])
{
    struct ps_error why;
    struct psc_head theirs, ours;
    if (psc_head_parse(&theirs, arrived, &why) < 0)
        return psc_ring_fail(r, "rank %u sent %s", rank, why.text);
    if (theirs.type == PSC_HEAD_NEWS)
        return take_news(r, fd, f->payload, f->done - PSC_HEAD_BYTES);
    if (theirs.type != PSC_HEAD_SEGMENT)
        return psc_ring_fail(r, "rank %u sent a beat over a link", rank);
    psc_head_parse(&ours, f->head, NULL);
    return disagree(r, rank, &theirs, &ours);
}

int psc_ring_take_beat_news(struct psc_ring *r)
{
    psc_beat_take_news(&r->beat, r->err);
    send_error(r);
    return PSC_ECLIQUE;
}
