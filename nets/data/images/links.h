/* links.h: the links of one tar file. Private to data/images. A link with the name of an image has the place
 * and the bytes of its target, as in a folder. */
#ifndef CNN_IMAGES_LINKS_H
#define CNN_IMAGES_LINKS_H

#include "nets/data/images/list.h"
#include "nets/data/images/tar.h"

struct cnn_link {
    char *path;   /* below the root of the set, as in the list; owned */
    char *target; /* likewise, with room for one more byte; "": outside of the archive */
};

struct cnn_links {
    struct cnn_link *rows;
    size_t n, room;
};

/* member: a link of a tar file; path, its path below the root, is `prefix` and its name. -ENOMEM. */
int cnn_links_add(struct cnn_links *links, const char *prefix, const struct cnn_tar_member *member,
                  struct ps_error *err);

/* Adds to the list the links to images that were added from row first[split] on: the images of this tar file,
 * all of them of `shard`. *n_lost is increased by those whose targets are no such images, and by links to
 * folders with such images. Errors as of cnn_list_add. */
int cnn_links_resolve(struct cnn_links *links, struct cnn_list *list, const uint32_t first[2], uint16_t shard,
                      uint32_t *n_lost, struct ps_error *err);

void cnn_links_finish(struct cnn_links *links);

#endif
