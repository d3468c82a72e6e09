/* timer.h: the loop's clock and timers. All decisions of the loop that depend on time use these functions;
 * nothing else calls libuv's timers. A program that defines these functions itself drives the loop's time
 * (tests/support/driven_clock.h). */
#ifndef PSD_LOOP_TIMER_H
#define PSD_LOOP_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Monotonic time of the loop's current iteration. Call on the loop's thread, as all of these. */
uint64_t psd_loop_now_ms(const uv_loop_t *loop);

struct psd_timer;
typedef void psd_timer_fn(struct psd_timer *timer);

/* A handle of the loop: closed by psd_timer_close, or by a uv_walk over all handles. */
struct psd_timer {
    void *data; /* the owner's */
    psd_timer_fn *fired;
    uv_timer_t handle;
};

void psd_timer_init(uv_loop_t *loop, struct psd_timer *timer, void *data);
/* A timer that is active is started again. repeat_ms 0: it fires once. */
void psd_timer_start(struct psd_timer *timer, psd_timer_fn *fired, uint64_t after_ms, uint64_t repeat_ms);
/* Does nothing if it is not active. */
void psd_timer_stop(struct psd_timer *timer);
bool psd_timer_is_active(const struct psd_timer *timer);
/* closed: NULL, or called by the loop with the handle, whose data is the psd_timer. */
void psd_timer_close(struct psd_timer *timer, uv_close_cb closed);

#endif
