/* daemon.h: a real psd for benchmarks and system tests. */
#ifndef TEST_DAEMON_H
#define TEST_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon {
    char dir[64];       /* a temporary directory: state directory and log inside */
    char endpoint[100]; /* "@FILE" for psc_options.server */
    char state_dir[100];
    char socket[110]; /* the status socket */
    char log[100];
    char program[512];
    const char *const *settings; /* "key=value", NULL-terminated; may be NULL */
    pid_t pid;
};

/* Makes the directory and finds the program: `psd`, else beside or near this program, else on PATH. */
int daemon_prepare(struct daemon *d, const char *psd, const char *const *settings);
/* Starts psd and waits until its endpoint file is there. extra: one more option such as "--resume", or NULL.
 * 0 or -1 with the tail of the log on stderr. */
int daemon_start(struct daemon *d, const char *extra);
/* Sends the signal and waits, at most `seconds`; the exit status as waitpid gives it, or -1. */
int daemon_stop(struct daemon *d, int signal_number, double seconds);
/* Kills what still runs and removes the directory. */
void daemon_remove(struct daemon *d);

/* User and system CPU seconds of the process, and its resident bytes. */
double daemon_cpu_s(pid_t pid);
uint64_t daemon_resident_bytes(pid_t pid);

/* The body of GET or POST `path` at the status socket (malloc'ed), or NULL. */
char *daemon_ask(const struct daemon *d, const char *method, const char *path);
/* A number or string out of the JSON body at a dotted path such as "center.version"; NAN or false when
 * missing. */
double daemon_number(const struct daemon *d, const char *page, const char *dotted);
/* Whether the log has the text. */
bool daemon_logged(const struct daemon *d, const char *text);

#endif
