/* search.c: which of several ways to compute a product is the fastest on this device.
 *
 * Each is run and timed once, and the result is appended to a file: a line of device, version of cuDNN,
 * problem, way and microseconds. Later nets, also of other processes, take it from there. PSD_CUDA_ALGORITHMS
 * names the file; "estimated": nothing is run, and cuDNN's estimate is taken. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/cuda/cuda.h"

/* Timed runs of a way, after one that is not; the fastest counts. */
#define RUNS 3
/* Bytes of the file that are read. */
#define MOST_BYTES ((size_t)16 << 20)

/* $XDG_CACHE_HOME/psd/cuda-algorithms, or ~/.cache/psd/cuda-algorithms; creates the folders. "": no such
 * place. */
static void find_file(char to[CNN_CUDA_PATH])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool has_cache = cache != NULL && cache[0] == '/';
    const size_t most = CNN_CUDA_PATH - sizeof "/psd/cuda-algorithms";
    int n = 0;

    if (has_cache)
        n = snprintf(to, most, "%s", cache);
    else if (home != NULL && home[0] == '/')
        n = snprintf(to, most, "%s/.cache", home);
    if (n <= 0 || (size_t)n >= most) {
        to[0] = 0;
        return;
    }
    mkdir(to, 0700);
    snprintf(to + n, CNN_CUDA_PATH - (size_t)n, "/psd");
    mkdir(to, 0700);
    snprintf(to + n, CNN_CUDA_PATH - (size_t)n, "/psd/cuda-algorithms");
}

/* The file's text; NULL if there is none. */
static char *read_file(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    char *text = NULL;

    if (file < 0)
        return NULL;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && (size_t)about.st_size <= MOST_BYTES)
        text = malloc((size_t)about.st_size + 1);
    if (text != NULL) {
        ssize_t n = read(file, text, (size_t)about.st_size);
        text[n > 0 ? n : 0] = 0;
    }
    close(file);
    return text;
}

void cnn_cuda_search_begin(struct cnn_cuda *d)
{
    const char *asked = getenv("PSD_CUDA_ALGORITHMS");
    struct cudaDeviceProp about;
    int device = 0;
    struct cnn_cuda_searched *s = &d->searched;

    s->is_off = asked != NULL && strcmp(asked, "estimated") == 0;
    if (s->is_off)
        return;
    if (asked != NULL)
        snprintf(s->path, sizeof s->path, "%s", asked);
    else
        find_file(s->path);
    if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&about, device) != cudaSuccess)
        about.name[0] = 0;
    snprintf(s->device, sizeof s->device, "%.200s\t%zu", about.name, cudnnGetVersion());
    s->text = s->path[0] != 0 ? read_file(s->path) : NULL;
}

void cnn_cuda_search_end(struct cnn_cuda *d)
{
    free(d->searched.text);
    d->searched.text = NULL;
}

/* The way of that name; n: there is none. */
static size_t way_named(const struct cnn_cuda_candidates *of, const char *name, size_t length)
{
    char each[CNN_CUDA_WAY_NAME];

    for (size_t i = 0; i < of->n; i++) {
        of->name(of->arg, i, each, sizeof each);
        if (strlen(each) == length && memcmp(each, name, length) == 0)
            return i;
    }
    return of->n;
}

/* The way that the file names for a problem; n: none of them. The last line counts. A damaged line is not
 * found. */
static size_t look_up(const struct cnn_cuda_searched *s, const char *problem,
                      const struct cnn_cuda_candidates *of)
{
    char key[512];
    size_t length = (size_t)snprintf(key, sizeof key, "%s\t%s\t", s->device, problem), found = of->n;

    for (const char *line = s->text; line != NULL && *line != 0;) {
        const char *end = strchr(line, '\n'), *name = line + length;
        if (end == NULL)
            break;
        if ((size_t)(end - line) > length && memcmp(line, key, length) == 0) {
            const char *tab = memchr(name, '\t', (size_t)(end - name));
            if (tab != NULL)
                found = way_named(of, name, (size_t)(tab - name));
        }
        line = end + 1;
    }
    return found;
}

/* Milliseconds of a run; INFINITY if it fails. */
static double time_run(struct cnn_cuda *d, const struct cnn_cuda_candidates *of, size_t way,
                       const cudaEvent_t at[2])
{
    float ms = 0;

    if (cudaEventRecord(at[0], d->compute) == cudaSuccess && of->run(of->arg, way) == 0 &&
        cudaEventRecord(at[1], d->compute) == cudaSuccess && cudaEventSynchronize(at[1]) == cudaSuccess &&
        cudaEventElapsedTime(&ms, at[0], at[1]) == cudaSuccess)
        return (double)ms;
    cudaStreamSynchronize(d->compute);
    cudaGetLastError(); /* clears the error, which the next launch would report */
    return INFINITY;
}

static double time_way(struct cnn_cuda *d, const struct cnn_cuda_candidates *of, size_t way,
                       const cudaEvent_t at[2])
{
    double fastest = INFINITY;

    if (isinf(time_run(d, of, way, at)))
        return INFINITY;
    for (int i = 0; i < RUNS; i++)
        fastest = fmin(fastest, time_run(d, of, way, at));
    return fastest;
}

/* In one write, so that lines of several processes do not mix. A file that cannot be written costs the next
 * net a search. */
static void append(const struct cnn_cuda_searched *s, const char *problem,
                   const struct cnn_cuda_candidates *of, size_t way, double ms)
{
    char line[1024], name[CNN_CUDA_WAY_NAME];
    int file = s->path[0] != 0 ? open(s->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;

    if (file < 0)
        return;
    of->name(of->arg, way, name, sizeof name);
    int n = snprintf(line, sizeof line, "%s\t%s\t%s\t%.1f\n", s->device, problem, name, ms * 1e3);
    ssize_t written = write(file, line, (size_t)n);
    (void)written;
    close(file);
}

size_t cnn_cuda_search(struct cnn_cuda *d, const char *problem, const struct cnn_cuda_candidates *of)
{
    cudaEvent_t at[2] = {NULL, NULL};
    double fastest = INFINITY;
    size_t best = 0;

    if (d->searched.is_off || of->n < 2)
        return 0;
    size_t known = look_up(&d->searched, problem, of);
    if (known < of->n)
        return known;
    if (cudaEventCreate(&at[0]) == cudaSuccess && cudaEventCreate(&at[1]) == cudaSuccess)
        for (size_t i = 0; i < of->n; i++) {
            double ms = time_way(d, of, i, at);
            best = ms < fastest ? i : best;
            fastest = fmin(fastest, ms);
        }
    for (int i = 0; i < 2; i++)
        if (at[i] != NULL)
            cudaEventDestroy(at[i]);
    if (!isinf(fastest))
        append(&d->searched, problem, of, best, fastest);
    return best;
}
