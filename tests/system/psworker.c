#include "tests/system/psworker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/clock.h"

enum { MAX_ARGS = 32 };

pid_t psworker_start(const struct daemon *d, const char *name, const char *const *more)
{
    const char *args[MAX_ARGS] = {PSWORKER, "--server", d->endpoint, "--data", "digits", "--json"};
    char path[200];
    int n = 6;
    while (*more != NULL)
        args[n++] = *more++;
    snprintf(path, sizeof path, "%s/%s", d->dir, name);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    strcat(path, ".err");
    dup2(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(PSWORKER, (char *const *)(uintptr_t)args);
    _exit(127);
}

int psworker_wait(pid_t pid, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    int status;
    while (waitpid(pid, &status, WNOHANG) != pid) {
        if (test_now_s() > deadline)
            return -1;
        test_nap_s(0.02);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
