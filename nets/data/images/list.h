/* list.h: the images of a set: where each lies and its class. Private to data/images.
 *
 * What a path says: ".../train/CLASS/..." is a training image, ".../val/CLASS/...", ".../test/CLASS/..." and
 * ".../validation/CLASS/..." are test images. Without such a folder the last one is the class, and every
 * tenth image of each class is a test image; so it is where there is train alone. Classes are numbered by
 * their names in byte order. */
#ifndef CNN_IMAGES_LIST_H
#define CNN_IMAGES_LIST_H

#include <stdbool.h>

#include "nets/data/data.h"

enum { CNN_MAX_SHARDS = 65535, CNN_MAX_IMAGES = 1 << 30 };

struct cnn_entry {
    uint64_t path;  /* of its name in `names` */
    uint64_t at;    /* where it begins in its shard; of a file, when it was changed, in ns */
    uint32_t bytes; /* at most UINT32_MAX */
    uint16_t shard, label;
};

struct cnn_entries {
    struct cnn_entry *rows;
    uint32_t n, room;
};

struct cnn_list {
    struct cnn_entries of[2]; /* by enum cnn_split */
    char *names;              /* all paths, each with its NUL */
    uint64_t n_names, room;
    char *class_names;
    uint64_t *classes; /* [n_classes]: each's name in class_names */
    uint32_t n_classes;
    uint32_t n_others; /* files that are no images by their names */
};

void cnn_list_finish(struct cnn_list *list);

static inline const char *cnn_list_name(const struct cnn_list *list, uint64_t at)
{
    return list->names + at;
}

/* Adds a file by its path below the root, unless its name ends otherwise than .jpg, .jpeg or .png. at, bytes,
 * shard: see struct cnn_entry. -ENOMEM; -EBADMSG for a path without a class. */
int cnn_list_add(struct cnn_list *list, const char *path, uint64_t at, uint32_t bytes, uint16_t shard,
                 struct ps_error *err);

/* When all were added. sorts: in the order of their paths; else in that of their coming. what: the data set,
 * for sentences. -EBADMSG: no images, a class of the test images without training images, a class of two
 * folders; -ENOMEM. */
int cnn_list_seal(struct cnn_list *list, bool sorts, const char *what, struct ps_error *err);

/* Adds the files of a folder and of those in it, to a depth of four; a folder with nothing in it is worth a
 * line of the log. */
int cnn_list_folder(struct cnn_list *list, const char *root, struct ps_error *err);

#endif
