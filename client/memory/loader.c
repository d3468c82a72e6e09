/* loader.c: finds a kind of memory, and loads libpsclient-cuda when a program asks for memory of a GPU: that
 * takes tenths of a second and more than 100 MB of memory. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "client/memory/cuda/module.h"
#include "client/psclient.h"

/* Never unloaded: CUDA cannot be started twice. */
void *psc_module_load(const char *name)
{
    static const char *const folders[] = {"", "psd/"};
    char path[1024];
    Dl_info self;
    void *library = NULL;
    const char *slash = dladdr((void *)(uintptr_t)psc_memory_find, &self) != 0 && self.dli_fname != NULL
                            ? strrchr(self.dli_fname, '/')
                            : NULL;

    for (size_t i = 0; slash != NULL && library == NULL && i < sizeof folders / sizeof *folders; i++)
        if ((size_t)snprintf(path, sizeof path, "%.*s/%s%s", (int)(slash - self.dli_fname), self.dli_fname,
                             folders[i], name) < sizeof path)
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library != NULL ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static int find_cuda(const struct psc_memory_kind **out, struct ps_error *err)
{
    void *library = psc_module_load(PSC_CUDA_LIBRARY);
    if (library == NULL)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "options: memory 'cuda' needs " PSC_CUDA_LIBRARY
                       ", which is built if CUDA is installed: %.250s",
                       dlerror());
    const struct psc_cuda_module *found = dlsym(library, PSC_CUDA_SYMBOL);
    if (found == NULL || strcmp(found->version, PSD_VERSION) != 0 || found->kind_bytes != sizeof found->kind)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "options: memory 'cuda': " PSC_CUDA_LIBRARY
                       " is of another build than this libpsclient, which is " PSD_VERSION);
    *out = &found->kind;
    return PSC_OK;
}

int psc_memory_find(const char *name, const struct psc_memory_kind **out, struct ps_error *err)
{
    if (name == NULL || strcmp(name, psc_memory_host.name) == 0) {
        *out = &psc_memory_host;
        return PSC_OK;
    }
    if (strcmp(name, "cuda") == 0)
        return find_cuda(out, err);
    return ps_fail(err, PSC_EINVAL, "options: memory '%.40s'; allowed are host and cuda", name);
}
