/* signals.h: the process's signals, for a loop that is closed and opened again when psd restarts in place. A
 * signal that comes while there is no loop is read by the next one. */
#ifndef PSD_LOOP_SIGNALS_H
#define PSD_LOOP_SIGNALS_H

#include <stddef.h>
#include <uv.h>

struct psd_signal_row {
    int number;
    void (*came)(void *arg, int number);
};

/* Loop's thread. */
struct psd_signals {
    const struct psd_signal_row *rows;
    size_t n;
    void *arg;
    uv_poll_t poll;
};

/* From now on, until the process ends, the n signals wait for a loop, also those that the process was started
 * with as blocked. May be called again. -errno. */
int psd_signals_keep(const int *numbers, size_t n);

/* Calls a row's function for each of its signals that has come or will come, until psd_signals_stop. rows:
 * [n], of signals that are kept; they outlive the loop. -errno. */
int psd_signals_start(struct psd_signals *s, uv_loop_t *loop, const struct psd_signal_row *rows, size_t n,
                      void *arg);

/* From now on signals wait for the next loop. Closes the handle; s may be zeroed, or stopped already. */
void psd_signals_stop(struct psd_signals *s);

#endif
