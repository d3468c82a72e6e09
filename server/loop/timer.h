/* timer.h: the loop's clock and its timers. Whatever the loop decides by time asks here: nothing else calls
 * libuv's. A program that brings these functions itself drives the loop's time
 * (tests/support/driven_clock.h). */
#ifndef PSD_LOOP_TIMER_H
#define PSD_LOOP_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Monotonic, of the loop's current turn. On the loop's thread, as all of these. */
uint64_t psd_loop_now_ms(const uv_loop_t *loop);

struct psd_timer;
typedef void psd_timer_fn(struct psd_timer *timer);

/* A handle of the loop: closed by psd_timer_close, or as whatever uv_walk finds. */
struct psd_timer {
    void *data; /* the owner's */
    psd_timer_fn *fired;
    uv_timer_t handle;
};

void psd_timer_init(uv_loop_t *loop, struct psd_timer *timer, void *data);
/* Also one that is active: what it was to do is forgotten. repeat_ms 0: it fires once. */
void psd_timer_start(struct psd_timer *timer, psd_timer_fn *fired, uint64_t after_ms, uint64_t repeat_ms);
/* Also one that is not active. */
void psd_timer_stop(struct psd_timer *timer);
bool psd_timer_is_active(const struct psd_timer *timer);
/* closed: NULL, or called by the loop with the handle, whose data is the psd_timer. */
void psd_timer_close(struct psd_timer *timer, uv_close_cb closed);

#endif
