/* The images of a folder. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "nets/data/images/list.h"
#include "proto/clock.h"
#include "proto/log.h"

enum { MAX_DEPTH = 4 };

struct walk {
    struct cnn_list *list; /* NULL: the walk ends at the first image */
    char path[PATH_MAX];   /* path of the current folder or file */
    size_t root;           /* length of the part before the names */
    struct ps_error *err;
};

static int walk_folder(struct walk *w, int depth);

/* Handles w->path: walks a folder, adds a file. 1: an image ends the walk; w->path is its path. */
static int visit(struct walk *w, int depth, uint32_t *n_seen)
{
    struct stat st;
    if (stat(w->path, &st) != 0) {
        if (errno == ENOENT || errno == ELOOP) /* a dangling link, or just removed: ignored */
            return 0;
        return ps_fail(w->err, -errno, "%.200s: cannot be read: %s", w->path, strerror(errno));
    }
    if (S_ISDIR(st.st_mode)) {
        (*n_seen)++;
        return depth < MAX_DEPTH ? walk_folder(w, depth + 1) : 0;
    }
    if (!S_ISREG(st.st_mode))
        return 0;
    if (w->list == NULL)
        return cnn_list_is_image(w->path);
    uint32_t before = w->list->n_others;
    uint64_t changed = (uint64_t)st.st_mtim.tv_sec * PS_NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
    uint32_t bytes = st.st_size < UINT32_MAX ? (uint32_t)st.st_size : UINT32_MAX;
    int rc = cnn_list_add(w->list, w->path + w->root, changed, bytes, 0, w->err);
    *n_seen += w->list->n_others == before;
    return rc;
}

/* Gets the next name in the folder w->path; NULL at the end. */
static int next_name(struct walk *w, DIR *dir, const char **name)
{
    errno = 0;
    const struct dirent *e = readdir(dir);
    if (e == NULL && errno != 0)
        return ps_fail(w->err, -errno, "%.200s: cannot be read: %s", w->path, strerror(errno));
    *name = e != NULL ? e->d_name : NULL;
    return 0;
}

static int walk_folder(struct walk *w, int depth)
{
    const char *name = NULL;
    size_t len = strlen(w->path);
    uint32_t n_seen = 0;
    int rc = 0;
    DIR *dir = opendir(w->path);
    if (dir == NULL)
        return ps_fail(w->err, -errno, "%.200s: cannot be opened: %s", w->path, strerror(errno));
    while (rc == 0 && (rc = next_name(w, dir, &name)) == 0 && name != NULL) {
        if (name[0] == '.') /* ".", ".." and hidden files */
            continue;
        int room = (int)(sizeof w->path - len);
        if (snprintf(w->path + len, (size_t)room, "/%s", name) >= room)
            rc = ps_fail(w->err, -ENAMETOOLONG, "the path of %.100s is longer than %d bytes", name,
                         PATH_MAX - 1);
        else
            rc = visit(w, depth, &n_seen);
        if (rc == 0)
            w->path[len] = '\0';
    }
    closedir(dir);
    if (rc == 0 && n_seen == 0 && depth > 0 && w->list != NULL)
        ps_log(PS_LOG_WARN, "data.empty_folder", "%s: no images in it: it is not a class", w->path);
    return rc;
}

static int walk_root(struct walk *w, const char *root)
{
    size_t len = strlen(root);
    while (len > 1 && root[len - 1] == '/')
        len--;
    if (len >= sizeof w->path)
        return ps_fail(w->err, -ENAMETOOLONG, "the path of the images is longer than %d bytes", PATH_MAX - 1);
    memcpy(w->path, root, len);
    w->root = len + 1;
    return walk_folder(w, 0);
}

int cnn_list_folder(struct cnn_list *list, const char *root, struct ps_error *err)
{
    struct walk w = {.list = list, .err = err};
    return walk_root(&w, root);
}

int cnn_list_find_image(const char *root, char path[PATH_MAX], struct ps_error *err)
{
    struct walk w = {.err = err};
    int rc = walk_root(&w, root);
    if (rc == 1)
        memcpy(path, w.path, sizeof w.path);
    return rc;
}
