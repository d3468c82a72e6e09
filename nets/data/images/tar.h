/* tar.h: the members of a tar file, one after the other: ustar, pax and GNU's long names. Private to
 * data/images. Nothing is unpacked: a member's bytes are read from where they lie. */
#ifndef CNN_IMAGES_TAR_H
#define CNN_IMAGES_TAR_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

enum { CNN_TAR_BLOCK = 512, CNN_TAR_MAX_NAME = 4095 };

struct cnn_tar {
    int fd;
    uint64_t size, at;       /* of the file; of the next header */
    bool has_name, has_size; /* that an extension header gave for the member after it */
    uint64_t next_size;
    char name[CNN_TAR_MAX_NAME + 1]; /* of the last member */
};

/* A regular file of the archive. */
struct cnn_tar_member {
    const char *name; /* until the next call */
    uint64_t at, bytes;
};

/* fd: of a regular file, borrowed. Negative errno with a sentence. */
int cnn_tar_open(struct cnn_tar *t, int fd, struct ps_error *err);

/* The next regular file: 1, 0 at the end, -EBADMSG with a sentence that names the byte of the header. */
int cnn_tar_next(struct cnn_tar *t, struct cnn_tar_member *out, struct ps_error *err);

#endif
