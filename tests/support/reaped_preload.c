/* For LD_PRELOAD into bash: a signal that comes when the kernel has taken a child away, and bash has not been
 * told which. While the working directory has a file `TERM` or `USR1`, a waitpid that blocks makes a file
 * `waits` there. When it has a child, it removes the first file and raises the signal before it returns. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t shell; /* not its subshells */

__attribute__((constructor)) static void set_up(void)
{
    shell = getpid();
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    __typeof__(&waitpid) real = (__typeof__(&waitpid))(uintptr_t)dlsym(RTLD_NEXT, "waitpid");
    const char *file = access("TERM", F_OK) == 0 ? "TERM" : "USR1";
    if (options & WNOHANG || getpid() != shell || access(file, F_OK) < 0)
        return real(pid, status, options);
    close(open("waits", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    pid_t ended = real(pid, status, options);
    if (ended > 0 && unlink(file) == 0)
        raise(*file == 'T' ? SIGTERM : SIGUSR1);
    return ended;
}
