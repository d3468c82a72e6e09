/* servers.h: several real psds that are the servers of one job. */
#ifndef TEST_SERVERS_H
#define TEST_SERVERS_H

#include "tests/support/daemon.h"

enum { SERVERS_MOST = 8, SERVERS_SETTINGS = 24 };

struct servers {
    struct daemon d[SERVERS_MOST]; /* the head first */
    const char *settings[SERVERS_MOST][SERVERS_SETTINGS];
    char own[SERVERS_MOST][3][160];
    int n;
};

/* Each with directories of its own, the settings (NULL-terminated; they must stay), and its place; the others
 * find the head by its endpoint file. 0 or -1. n = 1: one psd like any other. */
int servers_prepare(struct servers *s, int n, const char *psd, const char *const *settings);
/* 0 or -1 with the tail of a log on stderr. */
int servers_start(struct servers *s);
/* SIGTERM to the head, which ends the job at all of them; whether all ended well within the time. */
bool servers_end(struct servers *s, double seconds);
void servers_kill(struct servers *s);
void servers_remove(struct servers *s);

#endif
