#include "nets/data/images/links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A link may name a link. Further steps are treated as a loop, as systems do. */
enum { MAX_STEPS = 8 };

void cnn_links_finish(struct cnn_links *links)
{
    for (size_t i = 0; i < links->n; i++) {
        free(links->rows[i].path);
        free(links->rows[i].target);
    }
    free(links->rows);
}

/* Appends the names of `from` to the path `to`, which has room for them, without "." and "..". False: `from`
 * leads out of the archive. */
static bool append(char *to, const char *from)
{
    size_t len = strlen(to);
    for (size_t at = 0, n; from[at] != '\0'; at += n + (from[at + n] == '/')) {
        n = strcspn(from + at, "/");
        if (n == 0 || (n == 1 && from[at] == '.'))
            continue;
        if (n == 2 && memcmp(from + at, "..", 2) == 0) {
            if (len == 0)
                return false;
            while (len > 0 && to[len - 1] != '/')
                len--;
            len -= len > 0;
            to[len] = '\0';
            continue;
        }
        if (len > 0)
            to[len++] = '/';
        memcpy(to + len, from + at, n);
        len += n;
        to[len] = '\0';
    }
    return true;
}

/* The path of the target, as the list has it. Of a hard link and of an absolute path it is a member's name.
 */
static bool find_target(char *to, const struct cnn_tar_member *m)
{
    const char *slash = strrchr(m->name, '/'), *link = m->link;
    if (m->is_symbolic && *link != '/') {
        memcpy(to, m->name, slash != NULL ? (size_t)(slash - m->name) : 0);
        to[slash != NULL ? slash - m->name : 0] = '\0';
        return append(to, link);
    }
    while (strncmp(link, "./", 2) == 0)
        link += 2;
    strcpy(to, link);
    return true;
}

static struct cnn_link make_link(const char *prefix, const struct cnn_tar_member *m)
{
    size_t n = strlen(prefix), room = n + strlen(m->name) + strlen(m->link) + 2;
    struct cnn_link link = {malloc(room), malloc(room)};
    if (link.path == NULL || link.target == NULL)
        return link;
    snprintf(link.path, room, "%s%s", prefix, m->name);
    strcpy(link.target, prefix);
    if (!find_target(link.target + n, m))
        *link.target = '\0';
    return link;
}

int cnn_links_add(struct cnn_links *links, const char *prefix, const struct cnn_tar_member *member,
                  struct ps_error *err)
{
    if (links->n == links->room) {
        size_t room = 2 * links->room + 64;
        struct cnn_link *rows = realloc(links->rows, room * sizeof *rows);
        if (rows == NULL)
            return ps_fail(err, -ENOMEM, "no memory for %zu links", room);
        links->rows = rows;
        links->room = room;
    }
    struct cnn_link link = make_link(prefix, member);
    links->rows[links->n++] = link;
    return link.path != NULL && link.target != NULL ? 0 : ps_fail(err, -ENOMEM, "no memory for a link");
}

/* The images of the tar file by their names. */
struct index {
    struct cnn_entry *rows;
    size_t n;
};

static int by_name(const void *a, const void *b, void *names)
{
    return strcmp((char *)names + ((const struct cnn_entry *)a)->path,
                  (char *)names + ((const struct cnn_entry *)b)->path);
}

static int make_index(const struct cnn_list *list, const uint32_t first[2], struct index *out,
                      struct ps_error *err)
{
    size_t n = 0;
    for (int split = 0; split < 2; split++)
        n += list->of[split].n - first[split];
    struct cnn_entry *rows = malloc((n + 1) * sizeof *rows);
    if (rows == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the names of %zu images", n);
    *out = (struct index){rows, 0};
    for (int split = 0; split < 2; split++)
        for (uint32_t i = first[split]; i < list->of[split].n; i++)
            rows[out->n++] = list->of[split].rows[i];
    qsort_r(rows, n, sizeof *rows, by_name, list->names);
    return 0;
}

/* The first image whose name does not precede `name`; NULL: there is none. */
static const struct cnn_entry *find(const struct index *index, const struct cnn_list *list, const char *name)
{
    size_t from = 0, to = index->n;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (strcmp(cnn_list_name(list, index->rows[middle].path), name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from < index->n ? &index->rows[from] : NULL;
}

/* Adds the links to images of the index, and keeps the others. */
static int resolve_step(struct cnn_links *links, const struct index *index, struct cnn_list *list,
                        uint16_t shard, struct ps_error *err)
{
    size_t kept = 0;
    int rc = 0;
    for (size_t i = 0; i < links->n; i++) {
        struct cnn_link link = links->rows[i];
        const struct cnn_entry *e = cnn_list_is_image(link.path) ? find(index, list, link.target) : NULL;
        if (rc != 0 || e == NULL || strcmp(cnn_list_name(list, e->path), link.target) != 0) {
            links->rows[kept++] = link;
            continue;
        }
        rc = cnn_list_add(list, link.path, e->at, e->bytes, shard, err);
        free(link.path);
        free(link.target);
    }
    links->n = kept;
    return rc;
}

/* Links that a folder of the same files would have had: to images, and to folders of images. */
static uint32_t count_lost(const struct cnn_links *links, const struct index *index, struct cnn_list *list)
{
    uint32_t n = 0;
    for (size_t i = 0; i < links->n; i++) {
        const struct cnn_link *link = &links->rows[i];
        bool is_lost = cnn_list_is_image(link->path);
        if (!is_lost && *link->target != '\0') {
            size_t len = strlen(link->target);
            strcpy(link->target + len, "/"); /* there is room */
            const struct cnn_entry *e = find(index, list, link->target);
            is_lost = e != NULL && strncmp(cnn_list_name(list, e->path), link->target, len + 1) == 0;
        }
        is_lost = is_lost && !cnn_list_is_hidden(link->path);
        n += is_lost;
        list->n_others += !is_lost;
    }
    return n;
}

int cnn_links_resolve(struct cnn_links *links, struct cnn_list *list, const uint32_t first[2], uint16_t shard,
                      uint32_t *n_lost, struct ps_error *err)
{
    struct index index = {0};
    size_t before;
    int rc, steps = 0;
    if (links->n == 0)
        return 0;
    do {
        free(index.rows);
        index = (struct index){0};
        before = links->n;
        rc = make_index(list, first, &index, err);
        if (rc == 0)
            rc = resolve_step(links, &index, list, shard, err);
    } while (rc == 0 && links->n < before && ++steps < MAX_STEPS);
    if (rc == 0)
        *n_lost += count_lost(links, &index, list);
    free(index.rows);
    return rc;
}
