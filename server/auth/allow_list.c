#include "server/auth/allow_list.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum { LINE_MAX_BYTES = 1024, FILE_MAX_BYTES = 16 << 20 };

static const char *const roles[] = {
    [PSD_ROLE_ANY] = "any", [PSD_ROLE_WORKER] = "worker", [PSD_ROLE_OBSERVER] = "observer"};
enum { N_ROLES = sizeof roles / sizeof *roles };

/* Parses one rank of a list and advances *text. */
static bool take_rank(const char **text, uint32_t *rank)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return false;
    unsigned long v = strtoul(*text, &end, 10);
    *text = end;
    *rank = (uint32_t)v;
    return v < PSD_ALLOW_RANKS;
}

static bool take_ranks(const char *text, struct psd_grant *g)
{
    uint32_t first, last;
    g->some_ranks = true;
    do {
        if (!take_rank(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !take_rank(&text, &last) || last < first))
            return false;
        for (; first <= last; first++)
            g->ranks[first / 64] |= UINT64_C(1) << (first % 64);
    } while (*text++ == ',');
    return text[-1] == 0;
}

static bool take_role(const char *text, struct psd_grant *g)
{
    for (int i = 0; i < N_ROLES; i++)
        if (strcmp(text, roles[i]) == 0) {
            g->role = (enum psd_role)i;
            return true;
        }
    return false;
}

struct line {
    const char *place;
    unsigned at;
};

static int take_word(const struct line *l, const char *word, struct psd_grant *g, struct ps_error *err)
{
    if (strncmp(word, "ranks=", 6) == 0)
        return !g->some_ranks && take_ranks(word + 6, g)
                   ? 0
                   : ps_fail(err, -EINVAL,
                             "%s:%u: found '%.60s'; allowed is once ranks= with ranks from 0 to %d, as in "
                             "ranks=0-3,7",
                             l->place, l->at, word, PSD_ALLOW_RANKS - 1);
    if (strncmp(word, "role=", 5) == 0)
        return g->role == PSD_ROLE_ANY && take_role(word + 5, g)
                   ? 0
                   : ps_fail(err, -EINVAL,
                             "%s:%u: found '%.60s'; allowed is once role=worker, role=observer or role=any",
                             l->place, l->at, word);
    return ps_fail(
        err, -EINVAL,
        "%s:%u: found '%.60s' after the name; allowed are role=worker|observer|any and ranks=0-3,7", l->place,
        l->at, word);
}

/* Parses KEY NAME [role=…] [ranks=…]; modifies the text. */
static int take_grant(const struct line *l, char *text, const struct ps_curve_pair *own, struct psd_grant *g,
                      struct ps_error *err)
{
    char *rest, *key = strtok_r(text, " \t\r", &rest), *name = strtok_r(NULL, " \t\r", &rest), *word;
    int rc = 0;
    *g = (struct psd_grant){.role = PSD_ROLE_ANY};
    if (!ps_curve_is_key(key))
        return ps_fail(
            err, -EINVAL,
            "%s:%u: found '%.60s'; allowed is a line KEY NAME with a public key of 40 characters of "
            "Z85, as psctl keygen prints it",
            l->place, l->at, key);
    zmq_z85_decode(g->key, key);
    if (name == NULL || !ps_curve_is_name(name))
        return ps_fail(
            err, -EINVAL,
            "%s:%u: found %s%.80s%s after the key; allowed is a name of 1 to %d letters, digits and "
            "._@:-",
            l->place, l->at, name != NULL ? "'" : "", name != NULL ? name : "nothing",
            name != NULL ? "'" : "", PS_CURVE_NAME_MAX);
    if (strcmp(name, "psd") == 0)
        return ps_fail(err, -EINVAL, "%s:%u: the name psd is reserved; allowed is another one", l->place,
                       l->at);
    if (own != NULL && strcmp(own->public_key, key) == 0)
        return ps_fail(
            err, -EINVAL,
            "%s:%u: %s has psd's own key (auth.key); allowed is another key pair: psctl keygen FILE",
            l->place, l->at, name);
    snprintf(g->name, sizeof g->name, "%s", name);
    while (rc == 0 && (word = strtok_r(NULL, " \t\r", &rest)) != NULL)
        rc = take_word(l, word, g, err);
    if (rc == 0 && g->role == PSD_ROLE_OBSERVER && g->some_ranks)
        rc = ps_fail(err, -EINVAL, "%s:%u: %s has ranks= and role=observer; observers have no rank", l->place,
                     l->at, name);
    return rc;
}

static int by_key(const void *a, const void *b)
{
    return memcmp(((const struct psd_grant *)a)->key, ((const struct psd_grant *)b)->key, PS_CURVE_KEY_BYTES);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct psd_grant *const *)a)->name, (*(const struct psd_grant *const *)b)->name);
}

static int check_twice(const char *place, const struct psd_allow *list, struct ps_error *err)
{
    int rc = 0;
    const struct psd_grant **names = calloc(list->n + 1, sizeof *names);
    if (names == NULL)
        return ps_fail(err, -ENOMEM, "%s: no memory for %zu lines", place, list->n);
    for (size_t i = 0; i < list->n; i++)
        names[i] = &list->grants[i];
    qsort(names, list->n, sizeof *names, by_name);
    for (size_t i = 1; i < list->n && rc == 0; i++) {
        if (memcmp(list->grants[i].key, list->grants[i - 1].key, PS_CURVE_KEY_BYTES) == 0)
            rc = ps_fail(err, -EINVAL, "%s: %s and %s have the same key; allowed is one line for each key",
                         place, list->grants[i - 1].name, list->grants[i].name);
        else if (strcmp(names[i]->name, names[i - 1]->name) == 0)
            rc = ps_fail(err, -EINVAL, "%s: the name %s is there twice; allowed is one key for each name",
                         place, names[i]->name);
    }
    free(names);
    return rc;
}

/* A # begins a comment at the start of a word. Keys may contain #, but never as their first character: no
 * four bytes encode to that. */
static void cut_comment(char *line)
{
    for (char *at = line; (at = strchr(at, '#')) != NULL; at++)
        if (at == line || at[-1] == ' ' || at[-1] == '\t') {
            *at = 0;
            return;
        }
}

static int take_lines(const char *place, const char *text, size_t len, const struct ps_curve_pair *own,
                      struct psd_allow *list, struct ps_error *err)
{
    char copy[LINE_MAX_BYTES];
    struct line l = {place, 1};
    int rc = 0;

    for (const char *end = text + len; text < end && rc == 0; l.at++) {
        const char *eol = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((eol != NULL ? eol : end) - text);
        if (n >= sizeof copy)
            return ps_fail(err, -EINVAL, "%s:%u: found a line of %zu bytes; allowed are at most %zu", place,
                           l.at, n, sizeof copy - 1);
        memcpy(copy, text, n);
        copy[n] = 0;
        text += n + (eol != NULL);
        cut_comment(copy);
        if (copy[strspn(copy, " \t\r")] == 0)
            continue;
        if (list->n == PSD_ALLOW_MAX)
            return ps_fail(err, -E2BIG, "%s:%u: found more than %d keys", place, l.at, PSD_ALLOW_MAX);
        rc = take_grant(&l, copy, own, &list->grants[list->n], err);
        list->n += rc == 0;
    }
    return rc;
}

int psd_allow_parse(const char *place, const char *text, size_t len, const struct ps_curve_pair *own,
                    struct psd_allow *list, struct ps_error *err)
{
    size_t lines = 1;
    int rc;
    if (memchr(text, 0, len) != NULL)
        return ps_fail(err, -EINVAL, "%s: found a zero byte; allowed is text", place);
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    if (lines > PSD_ALLOW_MAX)
        lines = PSD_ALLOW_MAX;
    struct psd_allow made = {.grants = calloc(lines, sizeof *made.grants),
                             .by_id = calloc(lines, sizeof *made.by_id)};
    if (made.grants == NULL || made.by_id == NULL)
        rc = ps_fail(err, -ENOMEM, "%s: no memory for %zu lines", place, lines);
    else
        rc = take_lines(place, text, len, own, &made, err);
    if (rc == 0) {
        qsort(made.grants, made.n, sizeof *made.grants, by_key);
        rc = check_twice(place, &made, err);
    }
    if (rc < 0) {
        psd_allow_finish(&made);
        return rc;
    }
    *list = made;
    return 0;
}

/* Of a list that is being written a part would take the rights of all others. */
static bool is_unchanged(FILE *f, const struct stat *before)
{
    struct stat now;
    return fstat(fileno(f), &now) == 0 && now.st_size == before->st_size &&
           now.st_mtim.tv_sec == before->st_mtim.tv_sec && now.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

/* Reads the text, which the caller frees; NULL with *rc and a sentence. */
static char *read_all(FILE *f, const char *path, size_t *len, int *rc, struct ps_error *err)
{
    struct stat st;
    char *text = NULL;
    if (fstat(fileno(f), &st) != 0)
        *rc = ps_fail(err, -errno, "allow-list '%s': %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
        *rc = ps_fail(err, -EINVAL, "allow-list '%s': not a regular file of at most %d bytes", path,
                      FILE_MAX_BYTES);
    else if ((st.st_mode & 022) != 0)
        *rc = ps_fail(
            err, -EACCES,
            "allow-list '%s' has mode %04o: others can write to it; allowed are modes such as 0644 or 0600",
            path, (unsigned)st.st_mode & 07777);
    else if ((text = malloc((size_t)st.st_size + 1)) == NULL)
        *rc = ps_fail(err, -ENOMEM, "allow-list '%s': no memory", path);
    else
        *len = fread(text, 1, (size_t)st.st_size, f);
    if (text == NULL)
        return NULL;
    if (!ferror(f) && *len == (size_t)st.st_size && is_unchanged(f, &st))
        return text;
    *rc = ps_fail(err, -EIO, "allow-list '%s': %s", path,
                  ferror(f) ? "cannot read it" : "it was changed while it was read; try again");
    free(text);
    return NULL;
}

int psd_allow_read(const char *path, const struct ps_curve_pair *own, struct psd_allow *list,
                   struct ps_error *err)
{
    size_t len = 0;
    int rc;
    /* O_NONBLOCK: opening a FIFO by mistake must not stop the loop. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (f == NULL) {
        rc = ps_fail(err, -errno, "allow-list '%s': %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    char *text = read_all(f, path, &len, &rc, err);
    if (text != NULL)
        rc = psd_allow_parse(path, text, len, own, list, err);
    free(text);
    fclose(f);
    return rc;
}

void psd_allow_finish(struct psd_allow *list)
{
    free(list->grants);
    free(list->by_id);
    *list = (struct psd_allow){.n = 0};
}

static int by_id(const void *a, const void *b, void *grants_arg)
{
    const struct psd_grant *grants = grants_arg;
    uint64_t x = grants[*(const uint32_t *)a].id, y = grants[*(const uint32_t *)b].id;
    return x < y ? -1 : x > y;
}

void psd_allow_number(struct psd_allow *list, const struct psd_allow *before, uint64_t *last)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct psd_grant *was = before != NULL ? psd_allow_find_key(before, list->grants[i].key) : NULL;
        bool same = was != NULL && strcmp(was->name, list->grants[i].name) == 0;
        list->grants[i].id = same ? was->id : ++*last;
        list->by_id[i] = (uint32_t)i;
    }
    if (list->n > 0)
        qsort_r(list->by_id, list->n, sizeof *list->by_id, by_id, list->grants);
}

const struct psd_grant *psd_allow_find_key(const struct psd_allow *list, const void *key)
{
    struct psd_grant wanted = {.name = ""};
    memcpy(wanted.key, key, sizeof wanted.key);
    return list->n > 0 ? bsearch(&wanted, list->grants, list->n, sizeof *list->grants, by_key) : NULL;
}

const struct psd_grant *psd_allow_find_id(const struct psd_allow *list, uint64_t id)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct psd_grant *g = &list->grants[list->by_id[mid]];
        if (g->id == id)
            return g;
        if (g->id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const struct psd_grant *psd_allow_find_name(const struct psd_allow *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->grants[i].name, name) == 0)
            return &list->grants[i];
    return NULL;
}

void psd_grant_ranks(const struct psd_grant *g, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "%s", g->some_ranks ? "" : "any");
    for (uint32_t r = 0; g->some_ranks && r < PSD_ALLOW_RANKS && used < size; r++) {
        uint32_t last = r;
        if (!psd_grant_has_rank(g, r))
            continue;
        while (last + 1 < PSD_ALLOW_RANKS && psd_grant_has_rank(g, last + 1))
            last++;
        const char *comma = used > 0 ? ", " : "";
        used += (size_t)(last > r ? snprintf(text + used, size - used, "%s%u-%u", comma, r, last)
                                  : snprintf(text + used, size - used, "%s%u", comma, r));
        r = last;
    }
}
