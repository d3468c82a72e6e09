#include "server/job/sd_notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/clock.h"
#include "server/lane/lane.h"

static void say(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@')
        to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}

/* Microseconds; 0: no watchdog is configured, or it is for another process. */
static uint64_t watchdog_us(void)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (us == NULL || (pid != NULL && strtoull(pid, NULL, 10) != (unsigned long long)getpid()))
        return 0;
    return strtoull(us, NULL, 10);
}

int psd_notify_init(struct psd_notify *n, uint32_t n_lanes, uint64_t now_ms)
{
    *n = (struct psd_notify){.every_ms = watchdog_us() / 2000, .said_ms = now_ms};
    n->beats = calloc(n_lanes, sizeof *n->beats);
    return n->beats != NULL ? 0 : -ENOMEM;
}

void psd_notify_finish(struct psd_notify *n)
{
    free(n->beats);
    n->beats = NULL;
}

void psd_notify_ready(struct psd_notify *n)
{
    n->ready = true;
    n->reloading = false;
    say("READY=1");
}

void psd_notify_reloading(struct psd_notify *n)
{
    char state[80];
    if (!n->ready)
        return;
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, ps_now_us());
    n->reloading = true;
    say(state);
}

void psd_notify_stopping(void)
{
    say("STOPPING=1");
}

static void say_watchdog(uint64_t interval_us)
{
    char state[80];
    snprintf(state, sizeof state, "WATCHDOG=1\nWATCHDOG_USEC=%" PRIu64, interval_us);
    say(state);
}

void psd_notify_restarting(void)
{
    enum { LONGER = 10 };
    if (watchdog_us() != 0)
        say_watchdog(LONGER * watchdog_us());
}

static uint64_t beats_of(const struct psd_lane *lane)
{
    return atomic_load_explicit(&lane->stats.beats, memory_order_relaxed);
}

void psd_notify_watch(struct psd_notify *n, struct psd_lane *const *lanes, uint32_t n_lanes, uint64_t now_ms)
{
    if (n->every_ms == 0 || now_ms - n->said_ms < n->every_ms)
        return;
    if (!n->asked) {
        for (uint32_t i = 0; i < n_lanes; i++) {
            n->beats[i] = beats_of(lanes[i]);
            psd_queue_wake(lanes[i]->in);
        }
        n->asked = true;
        return;
    }
    for (uint32_t i = 0; i < n_lanes; i++)
        if (beats_of(lanes[i]) == n->beats[i])
            return;
    n->asked = false;
    n->said_ms = now_ms;
    if (n->is_set)
        say("WATCHDOG=1");
    else
        say_watchdog(watchdog_us());
    n->is_set = true;
}
