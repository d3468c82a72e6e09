#include "tests/support/system/servers.h"

#include <signal.h>
#include <stdio.h>

#include "tests/support/clock.h"

static void add_place(struct servers *s, int i, int k)
{
    snprintf(s->own[i][0], sizeof s->own[i][0], "servers.count=%d", s->n);
    snprintf(s->own[i][1], sizeof s->own[i][1], "servers.index=%d", i);
    snprintf(s->own[i][2], sizeof s->own[i][2], "servers.head=%s%s%s", i > 0 ? "'" : "",
             i > 0 ? s->d[0].endpoint : "none", i > 0 ? "'" : "");
    for (int j = 0; j < 3; j++)
        s->settings[i][k++] = s->own[i][j];
    s->settings[i][k] = NULL;
}

int servers_prepare(struct servers *s, int n, const char *psd, const char *const *settings)
{
    *s = (struct servers){.n = n};
    for (int i = 0; i < n; i++) {
        int k = 0;
        for (; settings[k] != NULL && k < SERVERS_SETTINGS - 5; k++)
            s->settings[i][k] = settings[k];
        if (daemon_prepare(&s->d[i], psd, s->settings[i]) < 0)
            return -1;
        add_place(s, i, k);
    }
    return 0;
}

int servers_start(struct servers *s)
{
    for (int i = 0; i < s->n; i++)
        if (daemon_start(&s->d[i], NULL) < 0)
            return -1;
    return 0;
}

bool servers_end(struct servers *s, double seconds)
{
    bool ok = daemon_stop(&s->d[0], SIGTERM, seconds) == 0;
    for (int i = 1; i < s->n; i++)
        ok = daemon_wait_exit(&s->d[i], seconds) == 0 && ok;
    return ok;
}

void servers_kill(struct servers *s)
{
    for (int i = 0; i < s->n; i++)
        daemon_stop(&s->d[i], SIGKILL, TEST_HANG_S);
}

void servers_remove(struct servers *s)
{
    for (int i = 0; i < s->n; i++)
        daemon_remove(&s->d[i]);
}
