/* servers.h: several real psds that are the servers of one job. */
#ifndef TEST_SERVERS_H
#define TEST_SERVERS_H

#include "tests/support/system/daemon.h"

enum { SERVERS_MOST = 8, SERVERS_SETTINGS = 24 };

struct servers {
    struct daemon d[SERVERS_MOST]; /* the head first */
    const char *settings[SERVERS_MOST][SERVERS_SETTINGS];
    char own[SERVERS_MOST][3][160];
    int n;
};

/* Prepares n psds with their own directories, the settings (NULL-terminated, borrowed) and their server
 * index. The others find the head by its endpoint file. n = 1: an ordinary psd. 0 or -1. */
int servers_prepare(struct servers *s, int n, const char *psd, const char *const *settings);
/* 0, or -1 with the tail of a log on stderr. */
int servers_start(struct servers *s);
/* Sends SIGTERM to the head, which ends the job on all servers. Whether all ended successfully in time. */
bool servers_end(struct servers *s, double seconds);
void servers_kill(struct servers *s);
void servers_remove(struct servers *s);

#endif
