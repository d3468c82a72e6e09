/* standard_files.c: see the header. */
#include "proto/standard_files.h"

#include <fcntl.h>
#include <unistd.h>

void ps_standard_files_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", O_RDWR); /* the lowest number that is free: this one */
}
