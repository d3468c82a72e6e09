#include "tests/support/shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct shim_page *shim_set(const char *library, const char *dir)
{
    char path[200];
    snprintf(path, sizeof path, "%s/shim", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shim_page)) < 0)
        return NULL;
    struct shim_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return NULL;
    setenv(SHIM_PAGE, path, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1); /* of a psd that is built so: it comes second */
    setenv("LD_PRELOAD", library, 1);
    return page;
}

void shim_unset(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("ASAN_OPTIONS");
    unsetenv(SHIM_PAGE);
}
