/* pause.h: stops a child process, as when its machine is suspended. */
#ifndef TEST_PAUSE_H
#define TEST_PAUSE_H

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

/* Sends SIGSTOP, and returns when all threads of the process stand still: after kill alone they may go on for
 * a while. SIGCONT continues it. A child that is stopped already may be stopped again. */
static inline void pause_child(pid_t pid)
{
    siginfo_t info;
    int rc;
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    while ((rc = waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT)) != 0 && errno == EINTR)
        ;
    ck_assert_msg(rc == 0, "child %d does not stop: %s", (int)pid, strerror(errno));
}

#endif
