/* list.h: the images of a set, with their location and class. Private to data/images.
 *
 * ".../train/CLASS/..." is a training image; ".../val/CLASS/...", ".../test/CLASS/..." and
 * ".../validation/CLASS/..." are test images. If no path has such a folder, the last folder of each is the
 * class; a set with both kinds of paths is refused. If the set has no test images, every tenth image of each
 * class becomes one. Classes are numbered by name, in byte order. */
#ifndef CNN_IMAGES_LIST_H
#define CNN_IMAGES_LIST_H

#include <limits.h>
#include <stdbool.h>

#include "nets/data/data.h"

enum { CNN_MAX_SHARDS = 65535, CNN_MAX_IMAGES = 1 << 30 };

struct cnn_entry {
    uint64_t path;  /* offset of its path in `names` */
    uint64_t at;    /* offset in its shard; for a file, its modification time in ns */
    uint32_t bytes; /* at most UINT32_MAX */
    uint16_t shard, label;
};

struct cnn_entries {
    struct cnn_entry *rows;
    uint32_t n, room;
};

struct cnn_list {
    struct cnn_entries of[2]; /* by enum cnn_split */
    char *names;              /* all paths, NUL-terminated */
    uint64_t n_names, room;
    char *class_names;
    uint64_t *classes; /* [n_classes]: offsets of the names in class_names */
    uint32_t n_classes;
    uint64_t first[2]; /* paths without and with the folder of a split: 1 + offset of one; 0: none */
    uint32_t n_others; /* hidden files, and those that are not images by their names */
};

void cnn_list_finish(struct cnn_list *list);

static inline const char *cnn_list_name(const struct cnn_list *list, uint64_t at)
{
    return list->names + at;
}

/* Whether a name in the path begins with a dot, other than "." and "..". */
bool cnn_list_is_hidden(const char *path);

/* Adds a file by its path below the root. Ignores hidden files and names that are not of images. at, bytes,
 * shard: see struct cnn_entry. -ENOMEM; -EBADMSG for a path without a class. */
int cnn_list_add(struct cnn_list *list, const char *path, uint64_t at, uint32_t bytes, uint16_t shard,
                 struct ps_error *err);

/* Completes the list after all files were added. sorts: sorts by path; otherwise the order of addition is
 * kept. what: the data set, for messages. -EBADMSG: no images, only some of them in the folder of a
 * split, a test class without training images, or a class with two folders; -ENOMEM. */
int cnn_list_seal(struct cnn_list *list, bool sorts, const char *what, struct ps_error *err);

/* Whether the name ends as those of images do: .jpg, .jpeg or .png. */
bool cnn_list_is_image(const char *path);

/* Adds the files of a folder and of its subfolders, to a depth of four. Logs a folder without images. */
int cnn_list_folder(struct cnn_list *list, const char *root, struct ps_error *err);

/* Looks for an image file in a folder, as cnn_list_folder does. 1 with its path in `path`; 0: there is none;
 * or an error. */
int cnn_list_find_image(const char *root, char path[PATH_MAX], struct ps_error *err);

#endif
