/* tar.h: iterates over the members of a tar file: ustar, pax and GNU long names. Private to data/images.
 * Nothing is unpacked: members are read in place. */
#ifndef CNN_IMAGES_TAR_H
#define CNN_IMAGES_TAR_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

enum { CNN_TAR_BLOCK = 512, CNN_TAR_MAX_NAME = 4095 };

struct cnn_tar {
    int fd;
    uint64_t size, at;       /* of the file; offset of the next header */
    bool has_name, has_size; /* given by an extension header for the next member */
    uint64_t next_size;
    char name[CNN_TAR_MAX_NAME + 1]; /* of the last member */
    bool has_link;                   /* as has_name */
    char link[CNN_TAR_MAX_NAME + 1]; /* what the last link names */
};

/* A regular file of the archive, or a link. */
struct cnn_tar_member {
    const char *name; /* until the next call */
    uint64_t at, bytes;
    const char *link; /* NULL: a file. Otherwise the target, until the next call; a link has no bytes. A hard
                       * link has the name of another member, a symbolic one a path from its own folder. */
    bool is_symbolic;
};

/* fd: a regular file, borrowed. Negative errno with a sentence. */
int cnn_tar_open(struct cnn_tar *t, int fd, struct ps_error *err);

/* Gets the next regular file or link. 1, 0 at the end, or -EBADMSG with a sentence that names the byte of the
 * header. */
int cnn_tar_next(struct cnn_tar *t, struct cnn_tar_member *out, struct ps_error *err);

#endif
