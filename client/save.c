/* psc_save and psc_load: files. The bytes are save_format.c's. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "client/internal.h"
#include "client/save_exchanges.h"
#include "client/save_format.h"
#include "client/worker/worker.h"
#include "proto/bytes.h"
#include "proto/file.h"

/* A file being written, under another name. */
struct writer {
    int fd;
    XXH3_state_t *hash;
    char path[PATH_MAX + 8];
};

static int write_all(struct writer *w, const void *bytes, size_t len_bytes)
{
    XXH3_64bits_update(w->hash, bytes, len_bytes);
    return ps_file_append(w->fd, bytes, len_bytes, NULL);
}

static int write_checksum(struct writer *w)
{
    unsigned char bytes[8];
    uint64_t hash = XXH3_64bits_digest(w->hash);
    ps_put64(bytes, hash);
    return write_all(w, bytes, sizeof bytes);
}

/* Only after fsync of the directory does the rename survive a crash. */
static int sync_directory(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(directory, sizeof directory, "%.*s",
             slash == NULL   ? 1
             : slash == path ? 1
                             : (int)(slash - path),
             slash == NULL ? "." : path);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = fsync(fd) < 0 && errno != EINVAL ? -errno : 0; /* EINVAL: the file system does not support it */
    close(fd);
    return rc;
}

/* The caller's vector and those that the library keeps; then means; then what was sent, and what was known;
 * the tables are beside them. */
enum {
    N_VECTORS = 1 + PSC_N_SAVED,
    AT_MESSAGE = N_VECTORS + PSC_STATE_MAX_MEANS,
    AT_SENT_ERROR,
    AT_KNOWN,
    AT_SENT_KNOWN,
    N_ALL,
};
_Static_assert((int)PSC_N_SAVED == (int)PSC_STATE_VECTORS, "the file has a flag for each vector");

/* The parts of the state, in the order of the file. */
struct contents {
    unsigned char head[PSC_STATE_HEAD_BYTES];
    size_t head_bytes;
    const float *vectors[N_ALL]; /* NULL: not there */
    size_t vector_bytes;
    const void *under_way; /* NULL: no table */
    size_t under_way_bytes;
    const void *chunks; /* NULL: nothing is known */
    size_t n_chunks;
    const void *extra;
    size_t extra_bytes;
};

static int write_contents(struct writer *w, const struct contents *s)
{
    int rc = write_all(w, s->head, s->head_bytes);
    for (size_t i = 0; i < N_ALL && rc == 0; i++)
        if (s->vectors[i] != NULL)
            rc = write_all(w, s->vectors[i], s->vector_bytes);
    if (rc == 0 && s->under_way_bytes > 0)
        rc = write_all(w, s->under_way, s->under_way_bytes);
    if (rc == 0 && s->n_chunks > 0)
        rc = write_all(w, s->chunks, s->n_chunks);
    if (rc == 0 && s->extra_bytes > 0)
        rc = write_all(w, s->extra, s->extra_bytes);
    return rc == 0 ? write_checksum(w) : rc;
}

static bool has_name(int fd, const char *path)
{
    struct stat mine, named;
    return fstat(fd, &mine) == 0 && lstat(path, &named) == 0 && mine.st_dev == named.st_dev &&
           mine.st_ino == named.st_ino;
}

/* Opens an empty file that nobody else writes: who saves to the same path has it locked until it is renamed,
 * and then it has another name. -EBUSY: it is locked. Some file systems have no locks, and some give a file
 * another inode each time. */
static int open_alone(const char *path)
{
    enum { TRIES = 10 };
    for (int i = 1;; i++) {
        int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644), rc = 0;
        if (fd < 0)
            return -errno;
        bool locked = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
        bool renamed = !locked && i < TRIES && !has_name(fd, path);
        if (locked)
            rc = -EBUSY;
        else if (!renamed && ftruncate(fd, 0) < 0)
            rc = -errno;
        if (rc == 0 && !renamed)
            return fd;
        close(fd);
        if (rc < 0)
            return rc;
    }
}

/* Written under another name and renamed, so that a complete file exists at any time. 0 or -errno. */
static int write_file(const char *path, const struct contents *s)
{
    struct writer w = {.hash = XXH3_createState()};
    int rc = 0;
    if (w.hash == NULL)
        return -ENOMEM;
    XXH3_64bits_reset(w.hash);
    snprintf(w.path, sizeof w.path, "%s.tmp", path);
    w.fd = open_alone(w.path);
    if (w.fd < 0) {
        rc = w.fd;
        goto out;
    }
    rc = write_contents(&w, s);
    if (rc == 0 && fsync(w.fd) < 0)
        rc = -errno;
    if (rc == 0 && rename(w.path, path) < 0)
        rc = -errno;
    if (rc == 0)
        rc = sync_directory(path);
    else
        unlink(w.path);
    close(w.fd); /* and unlocks it. The data are safe since fsync */
out:
    XXH3_freeState(w.hash);
    return rc;
}

static int check_finite(struct psc *c, const char *call, const char *path, const float *const *vectors,
                        size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (vectors[i] != NULL && c->vec->first_nonfinite(vectors[i], c->shard.n_floats) < c->shard.n_floats)
            return ps_fail(&c->error, PSC_EVALUE, "%s: '%.300s': a vector holds values that are not finite",
                           call, path);
    return PSC_OK;
}

static int check_call(struct psc *c, const char *call, const char *path, const float *x, const void *extra,
                      size_t extra_bytes)
{
    int rc = psc_check_vectors(c, call, x, x);
    if (rc != PSC_OK)
        return rc;
    if (path == NULL || path[0] == 0 || strlen(path) >= PATH_MAX)
        return ps_fail(&c->error, PSC_EINVAL,
                       "%s: the path is missing, empty or too long; allowed are 1 to %d bytes", call,
                       PATH_MAX - 1);
    if (extra == NULL && extra_bytes > 0)
        return ps_fail(&c->error, PSC_EINVAL, "%s: %zu extra bytes, but extra is NULL", call, extra_bytes);
    c->error.text[0] = 0;
    return PSC_OK;
}

/* Whether the next step reads the vector. */
static bool is_in_force(const struct psc *c, int k, bool landed)
{
    if (c->worker.vectors[k] == NULL || (psc_vectors_of(c) & PSC_VECTOR_BIT(k)) == 0)
        return false;
    if (k == PSC_VECTOR_X || k == PSC_VECTOR_V)
        return !c->worker.restart;
    return k != PSC_VECTOR_PREFETCHED || landed;
}

/* What answers that are moves have told, and what they had told before messages that are on their way. */
static void describe_known(const struct psc *c, struct psc_state_head *h)
{
    const struct psc_wire *w = &c->transfer_state.wire;
    if (w->known == NULL)
        return;
    h->flags |= PSC_STATE_KNOWN;
    h->flags |= (h->flags & PSC_STATE_MESSAGE) != 0 && w->sent_known != NULL ? PSC_STATE_SENT_KNOWN : 0;
    h->chunks = psc_known_chunks(c);
}

/* With a psd. Only the leader knows the version of psd's copy of the center, which the members move by their
 * steps. */
static bool is_one_clique(const struct psc *c)
{
    return c->rule->collective && c->group.q != NULL && !c->local;
}

static struct psc_state_head head_of(struct psc *c, size_t extra_bytes)
{
    bool landed = psc_exchanges_wait(c);
    if (c->async.runs &&
        (c->worker.vectors[PSC_VECTOR_ERROR] != NULL || c->transfer_state.wire.known != NULL))
        psc_async_await(c, c->async.issued);
    struct psc_state_head h = {.manifest_hash = c->manifest->hash,
                               .n_floats = c->shard.n_floats,
                               .clock = c->worker.clock,
                               .extra_bytes = extra_bytes,
                               .since = c->worker.pacing.since,
                               .period = c->worker.pacing.period,
                               .fragment = c->worker.pacing.fragment,
                               .fragments = psc_pacing_fragments(c),
                               .rate = landed ? c->worker.prefetch->outcome.rate : 0};
    h.flags = landed ? PSC_STATE_LANDED : 0;
    for (int k = 0; k < PSC_N_SAVED; k++)
        h.flags |= is_in_force(c, k, landed) ? PSC_VECTOR_BIT(k) : 0;
    if (landed)
        psc_exchanges_describe(c, &h);
    describe_known(c, &h);
    if (landed && c->rule->begin != NULL) {
        h.flags |= PSC_STATE_AHEAD;
        h.means = (uint32_t)psc_sums(&c->group) - 1;
    }
    pthread_mutex_lock(&c->session.shared.lock);
    h.exchanges = c->session.shared.counts.exchanges;
    h.center_version =
        is_one_clique(c) ? c->worker.clock : psc_exchanges_center(c, c->session.shared.counts.center_version);
    snprintf(h.method, sizeof h.method, "%s", c->method_name);
    pthread_mutex_unlock(&c->session.shared.lock);
    snprintf(h.rule, sizeof h.rule, "%s", c->rule_name);
    snprintf(h.optimizer, sizeof h.optimizer, "%s", c->optimizer->name);
    return h;
}

/* The means of a pipeline that wait to be applied, the oldest as the prefetched answer. */
static void name_means(const struct psc *c, struct contents *s)
{
    const struct psc_group *p = &c->group;
    for (uint64_t k = 0; k < psc_sums(p); k++)
        s->vectors[k == 0 ? 1 + PSC_VECTOR_PREFETCHED : N_VECTORS - 1 + k] =
            p->sums[(p->sums_dropped + k) % PSC_MAX_SUMS].vector;
}

/* Copies a device's vectors to the host, and names the copies. *room: to be freed by the caller. */
static int bring_to_host(struct psc *c, struct contents *s, float **room)
{
    size_t n = 0, n_floats = c->shard.n_floats;
    if (c->memory.device == NULL)
        return PSC_OK;
    for (size_t i = 0; i < N_ALL; i++)
        n += s->vectors[i] != NULL;
    if ((*room = malloc(n * s->vector_bytes)) == NULL)
        return ps_fail(&c->error, PSC_ENOMEM, "psc_save: no memory for %zu vectors of the device", n);
    int rc = PSC_OK;
    float *at = *room;
    for (size_t i = 0; i < N_ALL && rc == PSC_OK; i++) {
        if (s->vectors[i] == NULL)
            continue;
        rc = psc_vector_read(c, at, s->vectors[i], n_floats);
        s->vectors[i] = at;
        at += n_floats;
    }
    return rc;
}

static int save(struct psc *c, const char *path, const struct contents *s)
{
    int rc = check_finite(c, "psc_save", path, s->vectors, N_ALL);
    if (rc != PSC_OK)
        return rc;
    char target[PATH_MAX];
    if ((rc = ps_file_resolve(path, target, sizeof target)) == 0)
        rc = write_file(target, s);
    if (rc == -ENOMEM)
        return ps_fail(&c->error, PSC_ENOMEM, "psc_save: no memory");
    return rc == 0 ? PSC_OK
                   : ps_fail(&c->error, PSC_ESYSTEM, "psc_save: '%.300s': %s", path,
                             rc == -EBUSY ? "another process is saving to it" : strerror(-rc));
}

int psc_save(struct psc *c, const char *path, const float *x, const void *extra, size_t extra_bytes)
{
    float *room = NULL;
    int rc = check_call(c, "psc_save", path, x, extra, extra_bytes);
    if (rc == PSC_OK && psc_change_has_failed(c))
        rc = ps_fail(&c->error, PSC_EUNSUPPORTED,
                     "psc_save: the job's method has changed to '%s', which this worker cannot follow, as "
                     "psc_step says: it has no state of that method to save",
                     c->method_name);
    if (rc != PSC_OK || (rc = psc_exchanges_gather(c)) != PSC_OK)
        return rc;
    unsigned char *table = NULL, *chunks = NULL;
    struct psc_state_head head = head_of(c, extra_bytes);
    if (!psc_exchanges_table(c, &head, &table) || (head.chunks > 0 && !psc_known_describe(c, &chunks))) {
        free(table);
        return ps_fail(&c->error, PSC_ENOMEM, "psc_save: no memory");
    }
    struct contents s = {.vectors = {x},
                         .vector_bytes = c->shard.n_floats * sizeof *x,
                         .under_way = table,
                         .under_way_bytes = head.n_under_way * psc_state_exchange_bytes(&head),
                         .chunks = chunks,
                         .n_chunks = head.chunks,
                         .extra = extra,
                         .extra_bytes = extra_bytes};
    for (int k = 0; k < PSC_N_SAVED; k++)
        s.vectors[1 + k] = (head.flags & PSC_VECTOR_BIT(k)) != 0 ? c->worker.vectors[k] : NULL;
    s.vectors[AT_MESSAGE] =
        (head.flags & PSC_STATE_MESSAGE) != 0 ? c->worker.vectors[PSC_VECTOR_MESSAGE] : NULL;
    s.vectors[AT_SENT_ERROR] =
        (head.flags & PSC_STATE_SENT_ERROR) != 0 ? c->worker.vectors[PSC_VECTOR_SENT_ERROR] : NULL;
    s.vectors[AT_KNOWN] = (head.flags & PSC_STATE_KNOWN) != 0 ? c->transfer_state.wire.known : NULL;
    s.vectors[AT_SENT_KNOWN] =
        (head.flags & PSC_STATE_SENT_KNOWN) != 0 ? c->transfer_state.wire.sent_known : NULL;
    if (c->rule->begin != NULL)
        name_means(c, &s);
    s.head_bytes = psc_state_pack(&head, s.head);
    rc = bring_to_host(c, &s, &room);
    if (rc == PSC_OK)
        rc = save(c, path, &s);
    free(table);
    free(chunks);
    free(room);
    return rc;
}

/* Checks that the file has the vectors that the method keeps and no others. Exceptions: x and v, which a
 * worker has from its first step on, and a prefetched answer. */
static int check_vectors(struct psc *c, const char *path, uint32_t flags)
{
    const unsigned kept = psc_vectors_of(c) | PSC_STATE_AHEAD | PSC_STATE_ERROR,
                   always = PSC_STATE_START | PSC_STATE_LAMBDA | PSC_STATE_Z;
    const unsigned own = psc_optimizer_vectors_of(c);
    uint32_t found = flags & (PSC_STATE_LANDED - 1);
    bool answer_in_x = (flags & PSC_STATE_LANDED) != 0 && (flags & PSC_STATE_AHEAD) == 0;
    if ((answer_in_x && !c->rule->lands_in_x) || (found & ~kept) != 0 || (kept & always & ~found) != 0 ||
        ((found & own) != 0 && (own & ~found) != 0))
        return ps_fail(&c->error, PSC_EDAMAGED,
                       "psc_load: '%.300s' does not have the vectors that optimizer %s and rule %s keep",
                       path, c->optimizer->name, c->rule_name);
    return PSC_OK;
}

/* Checks that the state fits this handle. */
static int check_fit(struct psc *c, const char *path, const struct psc_state_head *h, size_t room_bytes)
{
    if (h->manifest_hash != c->manifest->hash || h->n_floats != c->shard.n_floats)
        return ps_fail(&c->error, PSC_EMANIFEST,
                       "psc_load: '%.300s' was saved for another model: %" PRIu64
                       " floats, manifest %016" PRIx64 "; this one has %" PRIu64 ", %016" PRIx64,
                       path, h->n_floats, h->manifest_hash, c->shard.n_floats, c->manifest->hash);
    if (strcmp(h->optimizer, c->optimizer->name) != 0 || strcmp(h->rule, c->rule_name) != 0)
        return ps_fail(
            &c->error, PSC_EINVAL,
            "psc_load: '%.300s' was saved under optimizer %s and rule %s; the job has %s and %s: without "
            "the file the worker begins at the center",
            path, h->optimizer, h->rule, c->optimizer->name, c->rule_name);
    if ((h->flags & PSC_STATE_LANDED) != 0 && psc_state_fragments(h) != psc_pacing_fragments(c))
        return ps_fail(
            &c->error, PSC_EINVAL,
            "psc_load: '%.300s' was saved within an exchange of %u fragments per period; the job has %u",
            path, psc_state_fragments(h), psc_pacing_fragments(c));
    if (h->extra_bytes > room_bytes)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_load: '%.300s' has %" PRIu64 " extra bytes; there is room for %zu", path,
                       h->extra_bytes, room_bytes);
    return check_vectors(c, path, h->flags);
}

static int fail_read(struct psc *c, const char *call, const char *path, int err)
{
    return ps_fail(&c->error, err == -ENODATA ? PSC_EDAMAGED : PSC_ESYSTEM, "%s: '%.300s': %s", call, path,
                   err == -ENODATA ? "it became shorter while it was read" : strerror(-err));
}

/* Opens the file and reads its head. *fd: to be closed by the caller; -1 on failure. */
static int open_file(struct psc *c, const char *call, const char *path, int *fd, size_t *file_bytes,
                     unsigned char head[PSC_STATE_HEAD_BYTES], struct psc_state_head *h)
{
    struct ps_error why;
    struct stat st;
    size_t n;
    int rc = PSC_OK, err;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, &st) < 0) {
        rc = ps_fail(&c->error, PSC_ESYSTEM, "%s: '%.300s': %s", call, path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = ps_fail(&c->error, PSC_EINVAL, "%s: '%.300s' is not a regular file", call, path);
        goto out;
    }
    *file_bytes = (size_t)st.st_size;
    n = *file_bytes < PSC_STATE_HEAD_BYTES ? *file_bytes : PSC_STATE_HEAD_BYTES;
    if ((err = ps_file_read(*fd, 0, head, n, NULL)) < 0)
        rc = fail_read(c, call, path, err);
    else if (psc_state_parse(h, head, n, *file_bytes, &why) < 0)
        rc = ps_fail(&c->error, PSC_EDAMAGED, "%s: '%.300s': %.180s", call, path, why.text);
out:
    if (rc != PSC_OK && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

/* Reads and checks the whole file. *bytes: to be freed by the caller. */
static int read_file(struct psc *c, const char *path, size_t room_bytes, unsigned char **bytes,
                     struct psc_state_head *h, struct psc_state_parts *parts)
{
    unsigned char head[PSC_STATE_HEAD_BYTES];
    struct ps_error why;
    size_t file_bytes;
    int fd, err, rc = open_file(c, "psc_load", path, &fd, &file_bytes, head, h);
    if (rc != PSC_OK || (rc = check_fit(c, path, h, room_bytes)) != PSC_OK)
        goto out;
    if ((*bytes = malloc(file_bytes)) == NULL) {
        rc = ps_fail(&c->error, PSC_ENOMEM, "psc_load: no memory for the %zu bytes of '%.300s'", file_bytes,
                     path);
        goto out;
    }
    size_t begun = file_bytes < sizeof head ? file_bytes : sizeof head;
    memcpy(*bytes, head, begun);
    if ((err = ps_file_read(fd, begun, *bytes + begun, file_bytes - begun, NULL)) < 0)
        rc = fail_read(c, "psc_load", path, err);
    else if (psc_state_decode(h, parts, *bytes, file_bytes, &why) < 0)
        rc = ps_fail(&c->error, PSC_EDAMAGED, "psc_load: '%.300s': %.180s", path, why.text);
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

int psc_saved_version(struct psc *c, const char *path, uint64_t *center_version)
{
    unsigned char head[PSC_STATE_HEAD_BYTES];
    struct psc_state_head h = {.flags = 0};
    size_t file_bytes;
    int fd, rc;
    if ((rc = psc_check_process(&c->session, "psc_saved_version", &c->error)) != PSC_OK)
        return rc;
    if (path == NULL || center_version == NULL)
        return ps_fail(&c->error, PSC_EINVAL, "psc_saved_version: path or center_version is NULL");
    if ((rc = open_file(c, "psc_saved_version", path, &fd, &file_bytes, head, &h)) != PSC_OK)
        return rc;
    close(fd);
    c->error.text[0] = 0;
    *center_version = h.center_version;
    return PSC_OK;
}

/* Vector k, if the file and the worker have it: else error feedback is off now. */
static int restore_vector(struct psc *c, enum psc_vector k, const void *from)
{
    float *to = c->worker.vectors[k];
    if (from == NULL || to == NULL)
        return PSC_OK;
    return psc_vector_write(c, to, from, c->shard.n_floats);
}

static int restore_vectors(struct psc *c, const struct psc_state_parts *p, float *x)
{
    assert(p->at != NULL); /* a worker that decodes has it */
    int rc = psc_vector_write(c, x, (const void *)p->at, c->shard.n_floats);
    for (int k = 0; k < PSC_N_SAVED && rc == PSC_OK; k++)
        rc = restore_vector(c, (enum psc_vector)k, p->vectors[k]);
    if (rc == PSC_OK)
        rc = restore_vector(c, PSC_VECTOR_MESSAGE, p->message);
    return rc == PSC_OK ? restore_vector(c, PSC_VECTOR_SENT_ERROR, p->sent_error) : rc;
}

static void restore_state(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p,
                          float *x)
{
    c->worker.caller_x = x;
    c->worker.restart = p->vectors[PSC_VECTOR_V] == NULL;
    c->worker.clock = h->clock;
    psc_exchanges_restore(c, h, p);
    pthread_mutex_lock(&c->session.shared.lock);
    c->session.shared.clock = c->worker.clock;
    pthread_mutex_unlock(&c->session.shared.lock);
}

static bool has_means(const struct psc *c, const struct psc_state_head *h)
{
    return c->rule->begin != NULL && (h->flags & PSC_STATE_AHEAD) != 0;
}

/* For the means of a pipeline. */
static int make_pipeline(struct psc *c, const struct psc_state_head *h)
{
    bool has = has_means(c, h);
    if (h->means > 0 && !has)
        return ps_fail(&c->error, PSC_EDAMAGED,
                       "psc_load: the file has means of a pipeline; rule %s has none", c->rule_name);
    return has ? psc_pipeline_prepare(c, h->means + 1) : PSC_OK;
}

/* vectors: of the file. */
static int restore_means(struct psc *c, const struct psc_state_head *h, const float *const *vectors)
{
    bool has = has_means(c, h);
    int rc = PSC_OK;
    for (uint32_t k = 0; has && rc == PSC_OK && k <= h->means; k++)
        rc = psc_pipeline_restore(c, vectors[k == 0 ? 1 + PSC_VECTOR_PREFETCHED : N_VECTORS - 1 + k]);
    return rc;
}

static int make_vector(struct psc *c, enum psc_vector k, bool wanted)
{
    if (!wanted || c->worker.vectors[k] != NULL || psc_vector_make(c, k))
        return PSC_OK;
    return ps_fail(&c->error, PSC_ENOMEM, "psc_load: no memory for a vector of %" PRIu64 " floats",
                   c->shard.n_floats);
}

/* For an exchange that was under way, also where the job has no overlap any more. */
static int make_room(struct psc *c, const struct psc_state_head *h, const struct psc_state_parts *p)
{
    bool ahead = c->rule->begin == NULL && p->vectors[PSC_VECTOR_PREFETCHED] != NULL;
    if (p->message != NULL && c->rule->again == NULL)
        return ps_fail(&c->error, PSC_EDAMAGED,
                       "psc_load: the file has the message of an exchange; rule %s keeps none", h->rule);
    if (!psc_prefetch_make(c, psc_pacing_fragments(c)))
        return ps_fail(&c->error, PSC_ENOMEM, "psc_load: no memory for the exchanges that were under way");
    int rc = make_vector(c, PSC_VECTOR_PREFETCHED, ahead);
    if (rc == PSC_OK)
        rc = make_vector(c, PSC_VECTOR_MESSAGE, p->message != NULL);
    return rc == PSC_OK && p->message != NULL ? psc_async_start(c) : rc;
}

int psc_load(struct psc *c, const char *path, float *x, void *extra, size_t room_bytes, size_t *extra_bytes)
{
    struct psc_state_head h = {.flags = 0};
    struct psc_state_parts p = {.at = NULL};
    const float *vectors[N_ALL] = {NULL};
    unsigned char *bytes = NULL;
    int rc = check_call(c, "psc_load", path, x, extra, room_bytes);
    if (rc != PSC_OK)
        return rc;
    if (c->worker.stepped)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_load: psc_step was called already; allowed is a call before the first psc_step");
    if (c->worker.loaded)
        return ps_fail(&c->error, PSC_EINVAL,
                       "psc_load: a state was loaded already; allowed is one for each handle");
    if ((rc = read_file(c, path, room_bytes, &bytes, &h, &p)) != PSC_OK)
        goto out;
    /* malloc's alignment and the length of the head leave every vector aligned for floats. */
    vectors[0] = (const void *)p.at;
    for (int k = 0; k < PSC_N_SAVED; k++)
        vectors[1 + k] = (const void *)p.vectors[k];
    for (uint32_t k = 0; k < h.means; k++)
        vectors[N_VECTORS + k] = (const void *)(p.means + k * c->shard.n_floats * sizeof *x);
    vectors[AT_MESSAGE] = (const void *)p.message;
    vectors[AT_SENT_ERROR] = (const void *)p.sent_error;
    vectors[AT_KNOWN] = (const void *)p.known;
    vectors[AT_SENT_KNOWN] = (const void *)p.sent_known;
    if ((rc = check_finite(c, "psc_load", path, vectors, N_ALL)) != PSC_OK ||
        (rc = make_pipeline(c, &h)) != PSC_OK || (rc = make_room(c, &h, &p)) != PSC_OK ||
        (rc = restore_vectors(c, &p, x)) != PSC_OK || (rc = restore_means(c, &h, vectors)) != PSC_OK)
        goto out;
    restore_state(c, &h, &p, x);
    c->worker.loaded = true;
    if (h.extra_bytes > 0)
        memcpy(extra, p.extra, h.extra_bytes);
    if (extra_bytes != NULL)
        *extra_bytes = h.extra_bytes;
out:
    free(bytes);
    return psc_work_end(c, rc);
}
