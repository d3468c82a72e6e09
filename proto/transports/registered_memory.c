#include "proto/transports/registered_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A sealed file of whole pages; -1: the system does not allow it. */
static int sealed_file(size_t mapped)
{
    int fd = memfd_create("psd-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)mapped) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    close(fd);
    return -1;
}

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

int ps_buffer_alloc(size_t bytes, struct ps_buffer *out, struct ps_error *err)
{
    size_t mapped = whole_pages(bytes > 0 ? bytes : 1);
    int fd = sealed_file(mapped);
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *base = mapped >= bytes ? mmap(NULL, mapped, PROT_READ | PROT_WRITE, flags, fd, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return ps_fail(err, -ENOMEM, "no memory for a buffer of %zu bytes", bytes);
    }
    madvise(base, mapped, MADV_DONTFORK);
    *out = (struct ps_buffer){fd >= 0 ? PS_BUFFER_SHARED : PS_BUFFER_HOST, base, bytes, fd};
    return 0;
}

int ps_buffer_renew(struct ps_buffer *b, struct ps_error *err)
{
    size_t mapped = whole_pages(b->bytes);
    int fd = sealed_file(mapped);
    void *copy = fd >= 0 ? mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (copy == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return ps_fail(err, -ENOMEM, "no memory for another buffer of %zu bytes", b->bytes);
    }
    madvise(copy, mapped, MADV_DONTFORK);
    memcpy(copy, b->base, b->bytes);
    /* Atomic: the new mapping replaces the old one. */
    if (mremap(copy, mapped, mapped, MREMAP_MAYMOVE | MREMAP_FIXED, b->base) == MAP_FAILED) {
        munmap(copy, mapped);
        close(fd);
        return ps_fail(err, -ENOMEM, "cannot map a buffer of %zu bytes again: %s", b->bytes, strerror(errno));
    }
    close(b->fd);
    b->fd = fd;
    return 0;
}

void ps_buffer_free(struct ps_buffer *b)
{
    if (b->base != NULL)
        munmap(b->base, whole_pages(b->bytes > 0 ? b->bytes : 1));
    if (b->base != NULL && b->fd >= 0)
        close(b->fd);
    *b = (struct ps_buffer){.fd = -1};
}
