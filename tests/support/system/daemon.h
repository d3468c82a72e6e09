/* daemon.h: a real psd for benchmarks and system tests. Times in seconds are scaled by test_slow_s. */
#ifndef TEST_DAEMON_H
#define TEST_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon {
    char dir[64];       /* a temporary directory with the state directory and the log */
    char endpoint[100]; /* "@FILE" for psc_options.server */
    char state_dir[100];
    char socket[110]; /* the status socket */
    char log[100];
    char program[512];
    char config[100];            /* the configuration file in dir; used if it exists */
    const char *const *settings; /* "key=value", NULL-terminated; may be NULL */
    pid_t pid;
    int log_fd; /* its stderr; 0: the log file */
};

/* Creates the directory and finds the program: `psd` if not NULL, otherwise near this program, otherwise on
 * PATH. */
int daemon_prepare(struct daemon *d, const char *psd, const char *const *settings);
/* Writes the configuration file, which psd reads at its start and when it reloads. */
bool daemon_write_config(const struct daemon *d, const char *text);
/* Starts psd, and does not wait for it. extra: as for daemon_start. */
void daemon_spawn(struct daemon *d, const char *extra);
/* Starts psd and waits for its endpoint file. extra: one more option such as "--resume", or NULL. 0, or -1
 * with the tail of the log on stderr. */
int daemon_start(struct daemon *d, const char *extra);
/* Waits at most `seconds` for its end. Returns the status of waitpid, or -1. */
int daemon_wait_exit(struct daemon *d, double seconds);
/* Sends the signal and waits as daemon_wait_exit. */
int daemon_stop(struct daemon *d, int signal_number, double seconds);
/* Runs a psd that is expected to exit by itself. Returns its exit code, or -1. */
int daemon_run(struct daemon *d, const char *extra, double seconds);
/* Kills psd if it still runs, and removes the directory. */
void daemon_remove(struct daemon *d);

/* User and system CPU seconds of the process, and its resident bytes. */
double daemon_cpu_s(pid_t pid);
uint64_t daemon_resident_bytes(pid_t pid);

/* The body of GET or POST `path` at the status socket, to be freed, or NULL. */
char *daemon_ask(const struct daemon *d, const char *method, const char *path);
/* The number at a dotted path, such as "center.version", in the JSON body of GET `page`; NAN if there is
 * none. */
double daemon_number(const struct daemon *d, const char *page, const char *dotted);
/* The same for a string; false if there is none. */
bool daemon_text(const struct daemon *d, const char *page, const char *dotted, char *text, size_t size);
/* A number of the live worker of that rank in GET /workers; NAN if there is none. */
double daemon_worker(const struct daemon *d, int rank, const char *key);
/* Waits until the number is at least `least`; false after `seconds`. */
bool daemon_reaches(const struct daemon *d, const char *page, const char *dotted, double least,
                    double seconds);
/* Workers in the job, including silent ones; NAN if psd does not answer. */
double daemon_workers(const struct daemon *d);
/* Waits until n workers are in the job: a worker that has ended may remain in it for a moment, and its rank
 * taken. */
bool daemon_workers_become(const struct daemon *d, unsigned n);
/* The number of log lines that contain the text; the second function waits for the first such line. */
unsigned daemon_logged(const struct daemon *d, const char *text);
bool daemon_will_log(const struct daemon *d, const char *text, double seconds);
/* Requests a checkpoint and waits until it is written. */
bool daemon_checkpoint(const struct daemon *d, double seconds);
/* Copies the log to stderr. */
void daemon_show_log(const struct daemon *d);

#endif
