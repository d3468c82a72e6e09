/* Members find each other by a file, PREFIX.NAME, with the address of the leader. A member becomes the leader
 * if there is no file, or no answer at the address in it. The file appears atomically (it is linked or
 * renamed into its place) and is removed when all members have joined.
 *
 * Files of earlier runs do no harm: an address is valid only if the peer there knows the nonce in the file. A
 * leader whose file was replaced stops leading and joins the member that replaced it, so that of two members
 * that take over at once one remains leader. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cliques/rendezvous/leader.h"
#include "client/cliques/socket.h"
#include "proto/clock.h"
#include "proto/random.h"

static const double nap_s = 0.02; /* pause before the file is read again */
static const double look_s = 0.2; /* between two checks of the file while waiting for a reply */
static const double call_s = 2.0; /* an address that does not accept a connection within this time is stale */

enum { MAX_PATH = 900 };

struct note {
    uint64_t nonce;
    char address[PSC_ADDRESS_BYTES];
};

struct post {
    struct psc_meeting *m;
    char path[MAX_PATH + PSC_NAME_BYTES + 2], temp[MAX_PATH + PSC_NAME_BYTES + 24];
    uint64_t nonce; /* of the notes that this member writes */
};

static const char note_format[] = "psd-ring %016" PRIx64 " %s\n";

/* False: there is no file, or it is not a note. */
static bool read_note(const char *path, struct note *out)
{
    char text[64 + PSC_ADDRESS_BYTES], again[sizeof text];
    struct note n = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    if (len <= 0)
        return false;
    text[len] = 0;
    if (sscanf(text, "psd-ring %16" SCNx64 " %127s", &n.nonce, n.address) != 2)
        return false;
    snprintf(again, sizeof again, note_format, n.nonce, n.address);
    *out = n;
    return strcmp(text, again) == 0;
}

static int write_temp(const struct post *p, struct ps_error *err)
{
    char text[64 + PSC_ADDRESS_BYTES];
    int len = snprintf(text, sizeof text, note_format, p->nonce, p->m->address);
    int fd = open(p->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return ps_fail(err, -errno, "%s: %s", p->temp, strerror(errno));
    int rc = write(fd, text, (size_t)len) == len ? 0 : -EIO;
    if (close(fd) < 0 || rc < 0)
        rc = ps_fail(err, -EIO, "%s: cannot be written: %s", p->temp, strerror(errno));
    return rc;
}

/* Writes this member's note: over the stale one, or only if there is no file. 0 also when another member was
 * first. */
static int post_note(const struct post *p, bool over, struct ps_error *err)
{
    int rc = write_temp(p, err);
    if (rc == 0 && over && rename(p->temp, p->path) < 0)
        rc = ps_fail(err, -errno, "%s: cannot be replaced: %s", p->path, strerror(errno));
    if (rc == 0 && !over && link(p->temp, p->path) < 0 && errno != EEXIST)
        rc = ps_fail(err, -errno, "%s: cannot be made: %s", p->path, strerror(errno));
    unlink(p->temp);
    return rc;
}

static bool is_own(const struct post *p)
{
    struct note n;
    return read_note(p->path, &n) && n.nonce == p->nonce;
}

/* Recreates a file that vanished. A file that another member has replaced belongs to that one. */
static bool still_leads(void *arg)
{
    const struct post *p = arg;
    if (access(p->path, F_OK) < 0 && errno == ENOENT)
        post_note(p, false, NULL);
    return is_own(p);
}

static int lead(struct post *p, struct ps_error *err)
{
    int rc = psc_meeting_lead(p->m, p->nonce, still_leads, p, err);
    if (rc != -ESTALE && is_own(p))
        unlink(p->path);
    return rc;
}

/* Reads the next reply from fd, before `until_s`, and checks meanwhile that the note which led there is still
 * the same. -ESTALE: no leader of this note is there; -EAGAIN: read the file again; -ETIMEDOUT. */
static int await_reply(const struct post *p, int fd, const struct note *at, double until_s,
                       struct psc_reply *out, struct ps_error *err)
{
    unsigned char bytes[PSC_REPLY_BYTES];
    struct note now;
    for (;;) {
        double look = ps_now_s() + look_s;
        struct pollfd polls[] = {{.fd = fd, .events = POLLIN}, {.fd = p->m->stop_fd, .events = POLLIN}};
        if (ps_poll(polls, 2, psc_ms_until(look < until_s ? look : until_s, 1000)) < 0 && errno != EINTR)
            return ps_fail(err, -errno, "poll: %s", strerror(errno));
        if (polls[1].revents != 0)
            return ps_fail(err, -ECANCELED, "the rendezvous was cancelled");
        if (polls[0].revents != 0) {
            int rc = psc_recv_all(fd, bytes, sizeof bytes, ps_now_s() + call_s, p->m->stop_fd);
            return rc == -ECANCELED ? rc : rc < 0 || psc_reply_parse(out, bytes, err) < 0 ? -ESTALE : 0;
        }
        if (read_note(p->path, &now) && now.nonce != at->nonce)
            return -EAGAIN;
        if (ps_now_s() >= until_s)
            return -ETIMEDOUT;
    }
}

/* The leader replies twice: at once, that it is the leader; and when all members have joined or the deadline
 * has passed, its decision. */
static int await_verdict(const struct post *p, int fd, const struct note *at, double call,
                         struct psc_reply *out, struct ps_error *err)
{
    int rc = await_reply(p, fd, at, call, out, err);
    if (rc == 0 && out->kind == PSC_REPLY_WAIT) {
        rc = await_reply(p, fd, at, p->m->deadline_s, out, err);
        return rc != -ETIMEDOUT
                   ? rc
                   : ps_fail(err, rc, "%s: the leader at %s did not complete the rendezvous within %u ms",
                             p->path, at->address, p->m->timeout_ms);
    }
    return rc == -ETIMEDOUT ? -ESTALE : rc;
}

static int take_reply(struct psc_meeting *m, const struct psc_reply *r, struct ps_error *err)
{
    if (r->kind == PSC_REPLY_AGAIN || r->kind == PSC_REPLY_WAIT)
        return -ESTALE;
    if (r->kind == PSC_REPLY_REFUSED)
        return ps_fail(err, -EPROTO, "%s", r->text);
    if (r->rank < 0 || r->rank >= (int32_t)m->members || (m->rank >= 0 && r->rank != m->rank))
        return ps_fail(err, -EPROTO, "the leader of the rendezvous assigned rank %d of %u members", r->rank,
                       m->members);
    m->own_rank = r->rank;
    m->job = r->job;
    memcpy(m->next, r->next, sizeof m->next);
    return 0;
}

static int join(const struct post *p, const struct note *at, struct ps_error *err)
{
    struct psc_meeting *m = p->m;
    unsigned char bytes[PSC_HELLO_BYTES];
    double call = ps_now_s() + call_s;
    struct psc_reply reply = {0};
    struct psc_hello h;
    int fd, rc = psc_connect(at->address, call < m->deadline_s ? call : m->deadline_s, m->stop_fd, &fd, err);

    if (rc < 0)
        return rc == -ECANCELED ? rc : rc == -EAGAIN ? -EAGAIN : -ESTALE;
    psc_hello_fill(&h, PSC_HELLO_JOIN, m);
    h.nonce = at->nonce;
    psc_hello_pack(&h, bytes);
    rc = psc_send_all(fd, bytes, sizeof bytes, call, m->stop_fd);
    rc = rc < 0 && rc != -ECANCELED ? -ESTALE : rc;
    if (rc == 0 && (rc = await_verdict(p, fd, at, call, &reply, err)) == 0)
        rc = take_reply(m, &reply, err);
    close(fd);
    return rc;
}

static int nap(const struct psc_meeting *m)
{
    struct pollfd stop = {.fd = m->stop_fd, .events = POLLIN};
    return ps_poll(&stop, 1, (int)(nap_s * 1e3)) > 0 ? -ECANCELED : 0;
}

/* One attempt to join the leader, or to lead. -EAGAIN and -ESTALE: try again. */
static int try_once(struct post *p, struct ps_error *err)
{
    struct note at, now;
    int rc;
    if (!read_note(p->path, &at)) {
        /* Not a valid note: another program's, or left by a crash. */
        bool broken = access(p->path, F_OK) == 0;
        rc = post_note(p, broken, err);
    } else {
        if (at.nonce != p->nonce && (rc = join(p, &at, err)) != -ESTALE)
            return rc;
        if (!read_note(p->path, &now) || now.nonce != at.nonce)
            return -EAGAIN;
        rc = post_note(p, true, err);
    }
    return rc < 0 ? rc : is_own(p) ? lead(p, err) : -EAGAIN;
}

static int meet(struct psc_meeting *m, struct ps_error *err)
{
    struct post p = {.m = m, .nonce = ps_random_u64()};
    int rc;
    if (strlen(m->place) > MAX_PATH)
        return ps_fail(err, -EINVAL, "rendezvous file:%.60s... is longer than %d bytes", m->place, MAX_PATH);
    snprintf(p.path, sizeof p.path, "%s.%s", m->place, m->name);
    snprintf(p.temp, sizeof p.temp, "%s.%016" PRIx64, p.path, p.nonce);
    for (;;) {
        rc = try_once(&p, err);
        if (rc != -EAGAIN && rc != -ESTALE)
            return rc;
        if (ps_now_s() >= m->deadline_s)
            return ps_fail(err, -ETIMEDOUT, "%s: no leader completed the rendezvous within %u ms", p.path,
                           m->timeout_ms);
        if ((rc = nap(m)) < 0)
            return ps_fail(err, rc, "the rendezvous was cancelled");
    }
}

const struct psc_rendezvous psc_rendezvous_file = {.scheme = "file", .meet = meet};
