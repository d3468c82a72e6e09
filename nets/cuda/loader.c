/* loader.c: the row of the backend cuda. Loads its module on first use, because loading takes tenths of a
 * second and about 200 MB of memory. The module is found by the program's run path. */
#include "nets/cuda/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct cnn_cuda_module *module; /* NULL: not loaded */
static struct ps_error why;

static void load(void)
{
    void *library = dlopen(CNN_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        ps_fail(&why, 0,
                "backend 'cuda' needs " CNN_CUDA_LIBRARY
                ", which is built if CUDA and cuDNN are installed: %.300s",
                dlerror());
        return;
    }
    const struct cnn_cuda_module *found = dlsym(library, CNN_CUDA_SYMBOL);
    if (found == NULL || strcmp(found->version, PSD_VERSION) != 0 ||
        found->backend_bytes != sizeof found->backend)
        ps_fail(&why, 0,
                "backend 'cuda': " CNN_CUDA_LIBRARY
                " is of another build than this program, which is " PSD_VERSION);
    else
        module = found;
}

static int probe(enum cnn_precision precision, struct ps_error *err)
{
    pthread_once(&once, load);
    if (module == NULL)
        return ps_fail(err, -ENOTSUP, "%s", why.text);
    return module->backend.probe(precision, err);
}

/* net.c calls probe before any of these. */
static int use_device(uint32_t device, struct ps_error *err)
{
    return module->backend.use_device(device, err);
}

static int memory_limit(uint64_t *out, struct ps_error *err)
{
    return module->backend.memory_limit(out, err);
}

static size_t value_bytes(enum cnn_precision precision)
{
    return module->backend.value_bytes(precision);
}

static int needs(const struct cnn_setup *setup, struct cnn_needs *out, size_t *own_bytes,
                 struct ps_error *err)
{
    return module->backend.needs(setup, out, own_bytes, err);
}

static int create(const struct cnn_setup *setup, const struct cnn_memory *memory, void **state,
                  struct ps_error *err)
{
    return module->backend.create(setup, memory, state, err);
}

static void destroy(void *state)
{
    module->backend.destroy(state);
}

static size_t own_bytes(const void *state)
{
    return module->backend.own_bytes(state);
}

static int score(void *state, const float *x, const struct cnn_batch *batch,
                 const struct cnn_predictions *out, struct cnn_score *score, struct ps_error *err)
{
    return module->backend.score(state, x, batch, out, score, err);
}

static int begin(void *state, const struct cnn_gradient_call *call, struct ps_error *err)
{
    return module->backend.begin(state, call, err);
}

static int end(void *state, struct cnn_score *out, struct ps_error *err)
{
    return module->backend.end(state, out, err);
}

static bool cuts(const void *state, uint32_t stored_height, uint32_t stored_width)
{
    return module->backend.cuts(state, stored_height, stored_width);
}

static void *stream(const void *state)
{
    return module->backend.stream(state);
}

static void *alloc_batch(size_t bytes)
{
    return module->backend.alloc(bytes);
}

static void free_batch(void *p)
{
    module->backend.free(p);
}

static int announce(void *state, const struct cnn_batch *batch, struct ps_error *err)
{
    return module->backend.announce(state, batch, err);
}

static void update_buffers(void *state, float *x)
{
    module->backend.update_buffers(state, x);
}

const struct cnn_backend cnn_backend_cuda = {
    .name = "cuda",
    .precisions = 1 << CNN_FLOAT32 | 1 << CNN_TF32 | 1 << CNN_BF16,
    .has_any_order = true,
    .probe = probe,
    .use_device = use_device,
    .memory_limit = memory_limit,
    .value_bytes = value_bytes,
    .needs = needs,
    .create = create,
    .destroy = destroy,
    .own_bytes = own_bytes,
    .score = score,
    .begin = begin,
    .end = end,
    .cuts = cuts,
    .stream = stream,
    .alloc = alloc_batch,
    .free = free_batch,
    .announce = announce,
    .update_buffers = update_buffers,
};
