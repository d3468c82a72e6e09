/* psctl top on a terminal. A signal only sets a flag: the loop ends, the terminal is restored, and then the
 * signal takes its normal effect. */
#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "proto/clock.h"
#include "server/ctl/top.h"

enum { KEY_WAIT_MS = 100 };

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define N_ENDING (sizeof ending / sizeof *ending)

static volatile sig_atomic_t ended_by; /* global, because a signal handler has no argument for it */

static void on_ending(int signal_number)
{
    ended_by = signal_number;
}

static int attributes_of(enum ctl_style style)
{
    switch (style) {
    case CTL_BOLD:
        return A_BOLD;
    case CTL_TITLES:
        return A_REVERSE;
    case CTL_FAINT:
        return A_DIM;
    case CTL_ALARM:
        return has_colors() ? COLOR_PAIR(1) | A_BOLD : A_BOLD;
    default:
        return A_NORMAL;
    }
}

static void draw(struct ctl_top *top)
{
    const struct ctl_frame *f = ctl_top_frame(top, LINES > 1 ? LINES - 1 : 1, COLS);
    erase();
    for (int i = 0; f != NULL && i < f->n; i++) {
        attrset(attributes_of(f->lines[i].style));
        mvaddnstr(i, 0, f->lines[i].text, -1);
        if (f->lines[i].style == CTL_TITLES)
            mvchgat(i, 0, -1, A_REVERSE, 0, NULL);
    }
    attrset(A_DIM);
    if (LINES > 1)
        mvaddnstr(LINES - 1, 0, "q quit  s sort  arrows scroll", COLS);
    attrset(A_NORMAL);
    refresh();
}

/* False: q was pressed. */
static bool take_key(struct ctl_top *top, int key)
{
    if (key == 's' || key == 'S')
        ctl_top_sort_next(top);
    else if (key == KEY_DOWN || key == KEY_UP)
        ctl_top_scroll(top, key == KEY_DOWN ? 1 : -1);
    else if (key == KEY_NPAGE || key == KEY_PPAGE)
        ctl_top_scroll(top, key == KEY_NPAGE ? LINES / 2 : -(LINES / 2));
    return key != 'q' && key != 'Q';
}

static void show(struct ctl_top *top, double interval_s)
{
    struct ps_error err;
    struct pollfd terminal = {.fd = STDIN_FILENO, .events = POLLIN};
    double next_s = 0;
    while (ended_by == 0) {
        if (ps_now_s() >= next_s) {
            ctl_top_look(top, &err);
            next_s = ps_now_s() + interval_s;
            draw(top);
        }
        ps_poll(&terminal, 1, KEY_WAIT_MS);
        if (terminal.revents & (POLLHUP | POLLERR | POLLNVAL))
            return; /* the terminal is gone */
        for (int key; (key = getch()) != ERR;) {
            if (!take_key(top, key))
                return;
            draw(top);
        }
    }
}

static void set_up_screen(void)
{
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    leaveok(stdscr, TRUE);
    curs_set(0);
    set_escdelay(25);
    if (has_colors()) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_RED, -1);
    }
}

/* Call before ncurses starts: it leaves handled signals alone. Ignored signals stay ignored. */
static void catch_signals(struct sigaction before[N_ENDING])
{
    const struct sigaction act = {.sa_handler = on_ending};
    for (size_t i = 0; i < N_ENDING; i++) {
        sigaction(ending[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(ending[i], &act, NULL);
    }
}

static void let_signals_go(const struct sigaction before[N_ENDING])
{
    for (size_t i = 0; i < N_ENDING; i++)
        sigaction(ending[i], &before[i], NULL);
    if (ended_by != 0)
        raise(ended_by);
}

int ctl_screen_run(struct ctl_top *top, double interval_s, struct ps_error *err)
{
    struct sigaction before[N_ENDING];
    SCREEN *screen;

    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return ps_fail(err, -ENOTTY, "top needs a terminal; top --once prints one frame as text");
    setlocale(LC_ALL, "");
    catch_signals(before);
    if ((screen = newterm(NULL, stdout, stdin)) == NULL) {
        let_signals_go(before);
        return ps_fail(err, -ENOTTY, "this terminal (TERM) is unknown; top --once prints one frame as text");
    }
    set_up_screen();
    show(top, interval_s);
    endwin();
    delscreen(screen);
    let_signals_go(before);
    return 0;
}
