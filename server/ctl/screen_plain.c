/* psctl top without ncurses: prints a frame of text after each look, until a signal ends psctl. */
#include <errno.h>

#include "proto/clock.h"
#include "server/ctl/top.h"

int ctl_screen_run(struct ctl_top *top, double interval_s, struct ps_error *err)
{
    for (;;) {
        ctl_top_look(top, err);
        const struct ctl_frame *f = ctl_top_frame(top, 0, ctl_top_width(stdout));
        for (int i = 0; f != NULL && i < f->n; i++)
            printf("%s\n", f->lines[i].text);
        printf("\n");
        if (fflush(stdout) != 0)
            return ps_fail(err, -EPIPE, "cannot write the view");
        ps_sleep_us((uint64_t)(interval_s * 1e6));
    }
}
