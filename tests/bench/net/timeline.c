/* timeline.c: what a program's GPU did, and how busy it was. A library that CUDA loads into the program:
 *
 *     CUDA_INJECTION64_PATH=libpsbench-timeline.so PSBENCH_TIMELINE=FILE PSBENCH_TIMELINE_MS=300 psbench net
 * ...
 *
 * At the program's end it writes one line of JSON to FILE, of the last milliseconds before the last kernel's
 * end: the share of that time in which some kernel or copy ran ("busy"), kernels alone ("kernels"), and the
 * time and the number of each kernel, copies to, from and within the device, and fills, the longest first.
 * With PSBENCH_TIMELINE_PIECES=FILE it writes there a line for each of them: its start and end in
 * microseconds, its stream and its name. CUPTI traces kernels of graphs one by one. A traced launch takes the
 * host longer: where it waits for each step, "busy" is less than without a trace. */
#include <cupti.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES (8u << 20)
#define NAME_BYTES   160

struct piece {
    uint64_t start, end; /* ns */
    const char *name;    /* CUPTI's, or a literal; kept until the program's end */
    uint32_t stream;
    bool is_kernel;
};

static struct {
    pthread_mutex_t lock; /* CUPTI hands over buffers in threads of its own */
    struct piece *pieces;
    size_t n, most, lost;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(uint64_t start, uint64_t end, const char *name, uint32_t stream, bool is_kernel)
{
    if (seen.n == seen.most) {
        size_t most = seen.most > 0 ? 2 * seen.most : 65536;
        struct piece *more = realloc(seen.pieces, most * sizeof *more);
        if (more == NULL) {
            seen.lost++;
            return;
        }
        seen.pieces = more;
        seen.most = most;
    }
    seen.pieces[seen.n++] = (struct piece){start, end, name, stream, is_kernel};
}

static const char *copy_name(uint8_t kind)
{
    return kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy to the device"
           : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                     : "copy within the device";
}

static void keep_record(const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *k = (const void *)record;
        keep(k->start, k->end, k->name, k->streamId, true);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *m = (const void *)record;
        keep(m->start, m->end, copy_name(m->copyKind), m->streamId, false);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *m = (const void *)record;
        keep(m->start, m->end, "fill", m->streamId, false);
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer != NULL ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t lost = 0;

    (void)bytes;
    pthread_mutex_lock(&seen.lock);
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        keep_record(record);
    if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS)
        seen.lost += lost;
    pthread_mutex_unlock(&seen.lock);
    free(buffer);
}

static int by_start(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Nanoseconds of [from, to) in which a piece ran: of kernels, or of all. Pieces are sorted. */
static uint64_t covered(uint64_t from, uint64_t to, bool kernels_only)
{
    uint64_t at = from, sum = 0;

    for (size_t i = 0; i < seen.n; i++) {
        const struct piece *p = &seen.pieces[i];
        uint64_t start = p->start > at ? p->start : at, end = p->end < to ? p->end : to;
        if ((kernels_only && !p->is_kernel) || end <= start)
            continue;
        sum += end - start;
        at = end;
    }
    return sum;
}

struct total {
    const char *name;
    uint64_t ns, n;
};

static int by_time(const void *a, const void *b)
{
    const struct total *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

/* Kernels' names have no characters that JSON escapes. */
static void write_totals(FILE *f, uint64_t from)
{
    static struct total totals[4096];
    size_t n = 0;

    for (size_t i = 0; i < seen.n; i++) {
        const struct piece *p = &seen.pieces[i];
        size_t k = 0;
        if (p->start < from)
            continue;
        while (k < n && strcmp(totals[k].name, p->name) != 0)
            k++;
        if (k == sizeof totals / sizeof totals[0])
            continue;
        n += k == n;
        totals[k].name = p->name;
        totals[k].ns += p->end - p->start;
        totals[k].n++;
    }
    qsort(totals, n, sizeof totals[0], by_time);
    for (size_t k = 0; k < n; k++)
        fprintf(f, "%s{\"name\":\"%.*s\",\"us\":%.1f,\"n\":%llu}", k > 0 ? "," : "", NAME_BYTES,
                totals[k].name, (double)totals[k].ns * 1e-3, (unsigned long long)totals[k].n);
}

static void write_pieces(uint64_t from)
{
    const char *path = getenv("PSBENCH_TIMELINE_PIECES");
    FILE *f = path != NULL ? fopen(path, "we") : NULL;

    for (size_t i = 0; f != NULL && i < seen.n; i++) {
        const struct piece *p = &seen.pieces[i];
        if (p->start >= from)
            fprintf(f, "%.3f %.3f %u %.*s\n", (double)(p->start - from) * 1e-3,
                    (double)(p->end - from) * 1e-3, p->stream, NAME_BYTES, p->name);
    }
    if (f != NULL)
        fclose(f);
}

static void finish(void)
{
    const char *path = getenv("PSBENCH_TIMELINE"), *ms = getenv("PSBENCH_TIMELINE_MS");
    uint64_t to = 0, span = (uint64_t)(ms != NULL ? atof(ms) * 1e6 : 300e6);

    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    FILE *f = path != NULL ? fopen(path, "we") : NULL;
    if (f == NULL || seen.n == 0) {
        fprintf(stderr, "timeline: nothing was traced, or PSBENCH_TIMELINE names no file\n");
        return;
    }
    for (size_t i = 0; i < seen.n; i++)
        if (seen.pieces[i].is_kernel && seen.pieces[i].end > to)
            to = seen.pieces[i].end;
    uint64_t from = to > span ? to - span : 0;
    qsort(seen.pieces, seen.n, sizeof *seen.pieces, by_start);
    fprintf(f, "{\"ms\":%.1f,\"busy\":%.4f,\"kernels\":%.4f,\"lost\":%zu,\"of\":[", (double)span * 1e-6,
            (double)covered(from, to, false) / (double)span, (double)covered(from, to, true) / (double)span,
            seen.lost);
    write_totals(f, from);
    fprintf(f, "]}\n");
    fclose(f);
    write_pieces(from);
}

/* CUDA calls it before the program's first call. */
int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    if (cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS ||
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS ||
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) != CUPTI_SUCCESS ||
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET) != CUPTI_SUCCESS) {
        fprintf(stderr, "timeline: CUPTI does not trace here\n");
        return 0;
    }
    return atexit(finish) == 0;
}
