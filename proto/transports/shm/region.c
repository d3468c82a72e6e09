#include "proto/transports/shm/region.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

_Static_assert(sizeof(struct ps_shm_entry) == 128, "two cache lines");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "atomics must be lock-free across processes");

static uint64_t ring_entries(const struct ps_shm_shape *shape)
{
    uint64_t n = 1;
    while (n < shape->n_slots)
        n *= 2;
    return n;
}

static uint64_t claims_at(const struct ps_shm_shape *shape)
{
    return sizeof(struct ps_shm_control) + 2 * ring_entries(shape) * sizeof(struct ps_shm_entry);
}

static uint64_t slots_at(const struct ps_shm_shape *shape)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = claims_at(shape) + shape->n_slots * sizeof(struct ps_shm_claim);
    return (bytes + page - 1) / page * page;
}

static uint64_t region_bytes(const struct ps_shm_shape *shape)
{
    return slots_at(shape) + shape->n_slots * shape->slot_bytes;
}

int ps_shm_region_map(const struct ps_shm_shape *shape, int fd, struct ps_shm_region *out)
{
    uint64_t bytes = region_bytes(shape), n = ring_entries(shape);
    if (!ps_shm_file_is_safe(fd, bytes))
        return -EINVAL;
    unsigned char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    madvise(base, bytes, MADV_DONTFORK);
    struct ps_shm_entry *entries = (struct ps_shm_entry *)(void *)(base + sizeof(struct ps_shm_control));
    *out = (struct ps_shm_region){.shape = *shape,
                                  .control = (struct ps_shm_control *)(void *)base,
                                  .requests = {entries, n - 1, 0},
                                  .answers = {entries + n, n - 1, 0},
                                  .claims = (struct ps_shm_claim *)(void *)(base + claims_at(shape)),
                                  .slots = base + slots_at(shape),
                                  .bytes = bytes};
    return 0;
}

int ps_shm_region_make(const struct ps_shm_shape *shape, struct ps_shm_region *out, int *fd)
{
    int rc, file = memfd_create("psd-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return -errno;
    if (ftruncate(file, (off_t)region_bytes(shape)) < 0 ||
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        rc = -errno;
    else
        rc = ps_shm_region_map(shape, file, out);
    if (rc < 0)
        close(file);
    else
        *fd = file;
    return rc;
}

void ps_shm_region_unmap(struct ps_shm_region *r)
{
    if (r->control != NULL)
        munmap(r->control, r->bytes);
    *r = (struct ps_shm_region){.bytes = 0};
}

/* Ordinary pages only: huge pages may be exhausted when they are first touched. */
bool ps_shm_file_is_safe(int fd, uint64_t bytes)
{
    struct stat st;
    struct statfs fs;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 && (uint64_t)st.st_size >= bytes &&
           fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

void ps_shm_ring_put(struct ps_shm_ring *r, const struct ps_shm_note *n)
{
    struct ps_shm_entry *e = &r->entries[r->next & r->mask];
    uint64_t head[PS_FRAME_BYTES / 8];
    memcpy(head, n->head, sizeof head);
    for (size_t i = 0; i < PS_FRAME_BYTES / 8; i++)
        atomic_store_explicit(&e->head[i], head[i], memory_order_relaxed);
    atomic_store_explicit(&e->place, (uint64_t)n->buffer << 32 | n->slot, memory_order_relaxed);
    atomic_store_explicit(&e->offset, n->offset, memory_order_relaxed);
    atomic_store_explicit(&e->bytes, n->bytes, memory_order_relaxed);
    atomic_store_explicit(&e->copies, n->copies, memory_order_relaxed);
    atomic_store(&e->seq, ++r->next);
}

bool ps_shm_ring_take(struct ps_shm_ring *r, struct ps_shm_note *n)
{
    struct ps_shm_entry *e = &r->entries[r->next & r->mask];
    uint64_t head[PS_FRAME_BYTES / 8];
    if (!ps_shm_ring_has(r))
        return false;
    r->next++;
    for (size_t i = 0; i < PS_FRAME_BYTES / 8; i++)
        head[i] = atomic_load_explicit(&e->head[i], memory_order_relaxed);
    memcpy(n->head, head, sizeof head);
    uint64_t place = atomic_load_explicit(&e->place, memory_order_relaxed);
    n->slot = (uint32_t)place;
    n->buffer = (uint32_t)(place >> 32);
    n->offset = atomic_load_explicit(&e->offset, memory_order_relaxed);
    n->bytes = atomic_load_explicit(&e->bytes, memory_order_relaxed);
    n->copies = atomic_load_explicit(&e->copies, memory_order_relaxed) != 0;
    return true;
}

uint32_t ps_shm_cpu(void)
{
    int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (uint32_t)cpu;
}
