/* tar_bytes.h: archives that tests write, member by member. */
#ifndef TEST_DATA_TAR_BYTES_H
#define TEST_DATA_TAR_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct tar_bytes {
    uint8_t *bytes; /* freed by the caller */
    size_t len;
};

/* A header alone; name: at most 100 bytes of it are taken. */
void tar_header(struct tar_bytes *t, char kind, const char *prefix, const char *name, uint64_t bytes);
/* kind: '1', a hard link, or '2', a symbolic one; target: at most 100 bytes of it are taken. */
void tar_link(struct tar_bytes *t, char kind, const char *name, const char *target);
/* Bytes and the padding to the next block. */
void tar_body(struct tar_bytes *t, const void *bytes, size_t len);
void tar_file(struct tar_bytes *t, const char *name, const void *bytes, size_t len);
void tar_end(struct tar_bytes *t); /* two blocks of zeros */
/* The checksum of the header at `at` made to fit. */
void tar_sum(struct tar_bytes *t, size_t at);

#endif
