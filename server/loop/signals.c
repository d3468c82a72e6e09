#include "server/loop/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* A pipe of numbers of signals, a byte each. It stays open, as a signal may come at any time. */
static int ends[2] = {-1, -1};

static void note(int number)
{
    int before = errno;
    unsigned char byte = (unsigned char)number;
    if (write(ends[1], &byte, 1) < 0) {
        /* Full: there are more signals to be read than anybody sends on purpose. */
    }
    errno = before;
}

int psd_signals_keep(const int *numbers, size_t n)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigset_t kept;
    if (ends[0] < 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    sigfillset(&action.sa_mask);
    sigemptyset(&kept);
    for (size_t i = 0; i < n; i++) {
        if (sigaction(numbers[i], &action, NULL) < 0)
            return -errno;
        sigaddset(&kept, numbers[i]);
    }
    return -pthread_sigmask(SIG_UNBLOCK, &kept, NULL);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    const struct psd_signals *s = poll->data;
    unsigned char byte;
    (void)status;
    (void)events;
    while (read(ends[0], &byte, 1) == 1)
        for (size_t i = 0; i < s->n; i++)
            if (s->rows[i].number == byte)
                s->rows[i].came(s->arg, byte);
}

int psd_signals_start(struct psd_signals *s, uv_loop_t *loop, const struct psd_signal_row *rows, size_t n,
                      void *arg)
{
    int rc;
    *s = (struct psd_signals){.rows = rows, .n = n, .arg = arg};
    if ((rc = uv_poll_init(loop, &s->poll, ends[0])) < 0)
        return rc;
    s->poll.data = s;
    return uv_poll_start(&s->poll, UV_READABLE, on_readable);
}

void psd_signals_stop(struct psd_signals *s)
{
    if (s->poll.data != NULL)
        uv_close((uv_handle_t *)&s->poll, NULL);
    s->poll.data = NULL;
}
