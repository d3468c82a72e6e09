/* loader.c: loads libpsclique-mpi when a program asks for it, so that this library does not depend on MPI. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/mpi/plugin.h"
#include "client/session/errors.h"

struct psc_mpi_world {
    struct psc_mpi_options opt;
    const struct psc_mpi_calls *calls;
    struct psc_mpi_place place;
    struct psc_clique *clique; /* NULL: it could not be opened */
    bool started;
    struct ps_error error;
};

void psc_mpi_options_init(struct psc_mpi_options *opt, size_t size)
{
    const struct psc_mpi_options defaults = {.size = size, .timeout_ms = 60000};
    memset(opt, 0, size);
    memcpy(opt, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

/* Searches the folder of this library first, then the loader's path. RTLD_GLOBAL: OpenMPI loads plugins that
 * look for its symbols. The library is never unloaded, because MPI cannot be started again. */
static void *load(void)
{
    char path[1024];
    Dl_info self;
    void *library = NULL;
    const char *slash = dladdr((void *)(uintptr_t)psc_mpi_world_open, &self) != 0 && self.dli_fname != NULL
                            ? strrchr(self.dli_fname, '/')
                            : NULL;

    if (slash != NULL && (size_t)snprintf(path, sizeof path, "%.*s/" PSC_MPI_LIBRARY,
                                          (int)(slash - self.dli_fname), self.dli_fname) < sizeof path)
        library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    return library != NULL ? library : dlopen(PSC_MPI_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
}

static int find_calls(struct psc_mpi_world *w)
{
    void *library = load();
    if (library == NULL)
        return ps_fail(&w->error, PSC_EUNSUPPORTED,
                       "a clique over MPI needs " PSC_MPI_LIBRARY
                       ", which is built if MPI is installed: %.300s",
                       dlerror());
    if ((w->calls = dlsym(library, PSC_MPI_CALLS)) == NULL)
        return ps_fail(&w->error, PSC_EUNSUPPORTED,
                       PSC_MPI_LIBRARY " has another version than this libpsclient: it lacks " PSC_MPI_CALLS);
    return PSC_OK;
}

/* given NULL: the defaults. */
static int take_options(struct psc_mpi_world *w, const struct psc_mpi_options *given)
{
    psc_mpi_options_init(&w->opt, sizeof w->opt);
    if (given != NULL && (given->size < offsetof(struct psc_mpi_options, timeout_ms) || given->size > 4096))
        return ps_fail(&w->error, PSC_EINVAL, "mpi: call psc_mpi_options_init first");
    int rc = given != NULL ? psc_take_struct(&w->opt, sizeof w->opt, given, given->size, "mpi", &w->error)
                           : PSC_OK;
    w->opt.size = sizeof w->opt;
    return rc;
}

int psc_mpi_world_open(const struct psc_mpi_options *opt, uint32_t members, struct psc_mpi_world **out)
{
    struct psc_mpi_world *w = calloc(1, sizeof *w);
    int rc;

    *out = w;
    if (w == NULL)
        return PSC_ENOMEM;
    w->place.rank = -1;
    rc = take_options(w, opt);
    if (rc == PSC_OK && (rc = find_calls(w)) == PSC_OK)
        rc = w->calls->open(&w->opt, members, &w->clique, &w->place, &w->started, &w->error);
    return rc;
}

struct psc_clique *psc_mpi_world_clique(const struct psc_mpi_world *w)
{
    return w->clique;
}

void psc_mpi_world_place(const struct psc_mpi_world *w, struct psc_mpi_place *place)
{
    *place = w->place;
}

const char *psc_mpi_world_error(const struct psc_mpi_world *w)
{
    return w != NULL ? w->error.text : "no memory";
}

void psc_mpi_world_close(struct psc_mpi_world *w)
{
    if (w == NULL)
        return;
    /* An open that failed here failed at all processes, so all may end MPI together. */
    bool whole = w->clique == NULL || psc_clique_wait(w->clique, 0) == PSC_OK;
    psc_clique_close(w->clique);
    if (w->started && whole)
        w->calls->end(&w->opt);
    free(w);
}
