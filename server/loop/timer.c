/* A program that drives time defines all of these functions itself; the linker takes this file as a whole or
 * not at all. */
#include "server/loop/timer.h"

uint64_t psd_loop_now_ms(const uv_loop_t *loop)
{
    return uv_now(loop);
}

static void on_timer(uv_timer_t *handle)
{
    struct psd_timer *timer = handle->data;
    timer->fired(timer);
}

void psd_timer_init(uv_loop_t *loop, struct psd_timer *timer, void *data)
{
    timer->data = data;
    uv_timer_init(loop, &timer->handle);
    timer->handle.data = timer;
}

void psd_timer_start(struct psd_timer *timer, psd_timer_fn *fired, uint64_t after_ms, uint64_t repeat_ms)
{
    timer->fired = fired;
    uv_timer_start(&timer->handle, on_timer, after_ms, repeat_ms);
}

void psd_timer_stop(struct psd_timer *timer)
{
    uv_timer_stop(&timer->handle);
}

bool psd_timer_is_active(const struct psd_timer *timer)
{
    return uv_is_active((const uv_handle_t *)&timer->handle);
}

void psd_timer_close(struct psd_timer *timer, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&timer->handle, closed);
}
