/* log.h: logging.
 *
 * A line has a level, an event name and a sentence. On a terminal it is text for people; otherwise it is one
 * JSON object a line: {"ts":…,"level":…,"prog":…,"event":…,"msg":…}. Safe from any thread; never called on
 * the path of an exchange that succeeds.
 *
 * A separate thread writes the lines, so that a thread that logs never waits for a reader or a disk. Its
 * queue is bounded: a line for which there is no room, or that cannot be written, is dropped and counted, and
 * the log reports the number when it can. Before ps_log_setup, and in a child of fork, the logging thread
 * writes itself. */
#ifndef PS_LOG_H
#define PS_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum ps_log_level { PS_LOG_DEBUG, PS_LOG_INFO, PS_LOG_WARN, PS_LOG_ERROR };

/* Sets the program's name and the lowest level that is written, and chooses text or JSON by isatty(2). Call
 * it once, at start. At exit, queued lines are written, for at most a second. */
void ps_log_setup(const char *program, enum ps_log_level lowest);
/* Changes the level; any thread. */
void ps_log_set_lowest(enum ps_log_level lowest);

/* Raises the level for the calling thread alone: for threads that do the same work, of which one logs. */
void ps_log_set_thread_lowest(enum ps_log_level lowest);

/* Whether the calling thread's lines of this level are written. */
bool ps_log_writes(enum ps_log_level level);

/* `event` is a stable lower-case name such as "session.ended", to search logs for. */
void ps_log(enum ps_log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* PS_LOG_DEBUG… for "debug", "info", "warn", "error"; -EINVAL for anything else. */
int ps_log_level_parse(const char *name);

struct ps_log_counts {
    uint64_t dropped; /* lines, so far */
    uint64_t waiting; /* bytes that are not written yet */
};
/* From any thread. */
struct ps_log_counts ps_log_count(void);

/* For use by one thread; zero-initialised. */
struct ps_log_limit {
    uint64_t second, lines;
};

/* Whether another line may be written in this second, which allows ten. If lines were left out in the last
 * busy second, logs how many, as `event`, with the prefix `where`. */
bool ps_log_allows(struct ps_log_limit *limit, const char *event, const char *where);

#endif
