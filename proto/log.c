#include "proto/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/clock.h"

enum {
    SENTENCE_BYTES = 1024,
    LINE_BYTES = 6 * SENTENCE_BYTES + 256, /* JSON has six bytes for a control character */
    QUEUE_BYTES = 1 << 20,
    WRITE_BYTES = 1 << 16, /* size of a burst; the same number is allowed again each second */
};

/* The one exception to "no mutable globals", as stderr itself is. program and json are set once at start. */
static struct {
    const char *program;
    bool json;
    _Atomic int lowest;
} setup = {.program = "psd", .lowest = PS_LOG_INFO};

static _Thread_local int thread_lowest = PS_LOG_DEBUG;

/* The queue between threads that log and the writer thread. A logging thread holds the mutex while it copies
 * a line, the writer only while it updates the counters: it writes bytes that no other thread touches. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* there are lines, or the queue is empty */
    bool has_writer;        /* the writer runs, or will start with the first line */
    bool runs;
    uint64_t head, tail; /* bytes queued, and bytes written or dropped, so far; modulo QUEUE_BYTES */
    uint64_t dropped;    /* lines */
    char bytes[QUEUE_BYTES];
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

int ps_log_level_parse(const char *name)
{
    for (int i = 0; i < (int)(sizeof level_names / sizeof *level_names); i++)
        if (strcmp(name, level_names[i]) == 0)
            return i;
    return -EINVAL;
}

/* Replaces bytes beyond ASCII, so that a text that is not UTF-8, such as a file name, can be logged. */
static void make_ascii(char *sentence)
{
    json_t *text = json_string(sentence);
    for (char *p = sentence; text == NULL && *p != 0; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    json_decref(text);
}

/* These two return the length of the line with its newline, at most LINE_BYTES. */
static size_t make_json(uint64_t now_us, enum ps_log_level level, const char *event, char *sentence,
                        char *text)
{
    make_ascii(sentence);
    json_t *line = json_pack("{s:f, s:s, s:s, s:s, s:s}", "ts", 1e-6 * (double)now_us, "level",
                             level_names[level], "prog", setup.program, "event", event, "msg", sentence);
    size_t len =
        line != NULL ? json_dumpb(line, text, LINE_BYTES - 1, JSON_COMPACT | JSON_REAL_PRECISION(15)) : 0;
    json_decref(line);
    if (len == 0 || len > LINE_BYTES - 1)
        return 0;
    text[len] = '\n';
    return len + 1;
}

static size_t make_text(uint64_t now_us, enum ps_log_level level, const char *event, char *sentence,
                        char *text)
{
    const time_t now_s = (time_t)(now_us / 1000000);
    struct tm tm;
    char clock[16];
    localtime_r(&now_s, &tm);
    strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    int len = snprintf(text, LINE_BYTES, "%s.%03u %s %-5s %s: %s\n", clock, (unsigned)(now_us / 1000 % 1000),
                       setup.program, level_names[level], event, sentence);
    return len > 0 && len < LINE_BYTES ? (size_t)len : 0;
}

static size_t make_line(enum ps_log_level level, const char *event, char *sentence, char *text)
{
    return (setup.json ? make_json : make_text)(ps_wall_us(), level, event, sentence, text);
}

/* Writes everything; false: stderr cannot be written. SIGPIPE is blocked in the writer thread; a thread that
 * writes directly keeps its own signal mask. */
static bool write_all(const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, bytes, len);
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) { /* another process has made stderr non-blocking */
            ps_poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
        } else if (n == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

static uint64_t count_lines(const char *bytes, size_t len)
{
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += bytes[i] == '\n';
    return n;
}

/* Finds complete, contiguous lines from `tail` on, at most WRITE_BYTES; *len bytes. A line that wraps around
 * the end of the queue is copied to `round`. */
static const char *next_lines(char round[LINE_BYTES], size_t *len)
{
    static_assert(WRITE_BYTES >= LINE_BYTES, "a line that does not wrap around always fits");
    size_t at = queue.tail % QUEUE_BYTES, n = (size_t)(queue.head - queue.tail);
    size_t straight = n < QUEUE_BYTES - at ? n : QUEUE_BYTES - at;
    const char *first = queue.bytes + at;
    const char *end = memrchr(first, '\n', straight < WRITE_BYTES ? straight : WRITE_BYTES);
    if (end != NULL) {
        *len = (size_t)(end + 1 - first);
        return first;
    }
    const char *rest_end = memchr(queue.bytes, '\n', n - straight);
    size_t rest = (size_t)(rest_end + 1 - queue.bytes);
    memcpy(round, first, straight);
    memcpy(round + straight, queue.bytes, rest);
    *len = straight + rest;
    return round;
}

/* Logs how many lines were dropped since the last such report. */
static void report_dropped(uint64_t *reported)
{
    char sentence[128], line[LINE_BYTES];
    uint64_t dropped = queue.dropped;
    if (dropped == *reported)
        return;
    snprintf(sentence, sizeof sentence,
             "%" PRIu64 " lines of this log were dropped so far: they were not read, or could not be written",
             dropped);
    pthread_mutex_unlock(&queue.mutex);
    size_t len = make_line(PS_LOG_WARN, "log.dropped", sentence, line);
    bool ok = write_all(line, len);
    pthread_mutex_lock(&queue.mutex);
    if (ok)
        *reported = dropped;
}

static void *run_writer(void *arg)
{
    char round[LINE_BYTES];
    uint64_t reported = 0;
    size_t len;
    (void)arg;
    pthread_mutex_lock(&queue.mutex);
    for (;;) {
        while (queue.head == queue.tail)
            pthread_cond_wait(&queue.changed, &queue.mutex);
        const char *lines = next_lines(round, &len);
        pthread_mutex_unlock(&queue.mutex);
        bool ok = write_all(lines, len);
        pthread_mutex_lock(&queue.mutex);
        if (!ok)
            queue.dropped += count_lines(lines, len);
        queue.tail += len;
        if (queue.head == queue.tail) {
            report_dropped(&reported);
            ps_cond_wake(&queue.changed);
        }
    }
    return NULL;
}

/* Writes all remaining lines, for at most a second. */
static void flush_at_exit(void)
{
    const uint64_t until_ns = ps_now_ns() + PS_NS_PER_S;
    pthread_mutex_lock(&queue.mutex);
    while (queue.runs && queue.head != queue.tail &&
           ps_cond_wait_until(&queue.changed, &queue.mutex, until_ns) == 0)
        continue;
    pthread_mutex_unlock(&queue.mutex);
}

/* A child of fork has no writer thread. */
static void forget_writer(void)
{
    pthread_mutex_init(&queue.mutex, NULL);
    queue.has_writer = queue.runs = false;
    queue.tail = queue.head;
}

/* With the mutex held. The thread starts with the first line, so that a process that forks before that has
 * one thread. */
static void start_writer(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ps_cond_init(&queue.changed);
    queue.has_writer = queue.runs = pthread_create(&thread, NULL, run_writer, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!queue.runs)
        return; /* without a writer thread, the logging thread writes */
    pthread_detach(thread);
    pthread_atfork(NULL, NULL, forget_writer);
}

void ps_log_setup(const char *program, enum ps_log_level lowest)
{
    setup.program = program;
    setup.json = !isatty(STDERR_FILENO);
    ps_log_set_lowest(lowest);
    if (queue.has_writer)
        return;
    queue.has_writer = true;
    atexit(flush_at_exit);
}

void ps_log_set_lowest(enum ps_log_level lowest)
{
    atomic_store_explicit(&setup.lowest, (int)lowest, memory_order_relaxed);
}

void ps_log_set_thread_lowest(enum ps_log_level lowest)
{
    thread_lowest = (int)lowest;
}

bool ps_log_writes(enum ps_log_level level)
{
    return (int)level >= thread_lowest &&
           (int)level >= atomic_load_explicit(&setup.lowest, memory_order_relaxed);
}

struct ps_log_counts ps_log_count(void)
{
    pthread_mutex_lock(&queue.mutex);
    struct ps_log_counts counts = {.dropped = queue.dropped, .waiting = queue.head - queue.tail};
    pthread_mutex_unlock(&queue.mutex);
    return counts;
}

/* With the mutex held. */
static void enqueue(const char *line, size_t len)
{
    size_t at = queue.head % QUEUE_BYTES, straight = len < QUEUE_BYTES - at ? len : QUEUE_BYTES - at;
    if (len > QUEUE_BYTES - (queue.head - queue.tail)) {
        queue.dropped++;
        return;
    }
    memcpy(queue.bytes + at, line, straight);
    memcpy(queue.bytes, line + straight, len - straight);
    queue.head += len;
    ps_cond_wake(&queue.changed);
}

void ps_log(enum ps_log_level level, const char *event, const char *fmt, ...)
{
    char sentence[SENTENCE_BYTES], line[LINE_BYTES];
    va_list ap;

    if (!ps_log_writes(level))
        return;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    size_t len = make_line(level, event, sentence, line);
    pthread_mutex_lock(&queue.mutex);
    if (queue.has_writer && !queue.runs)
        start_writer();
    bool runs = queue.runs;
    if (runs)
        enqueue(line, len);
    pthread_mutex_unlock(&queue.mutex);
    if (!runs)
        write_all(line, len);
}

enum { LINES_A_SECOND = 10 };

bool ps_log_allows(struct ps_log_limit *limit, const char *event, const char *where)
{
    uint64_t second = ps_now_ns() / PS_NS_PER_S;
    if (second != limit->second) {
        if (limit->lines > LINES_A_SECOND)
            ps_log(PS_LOG_WARN, event, "%s: %" PRIu64 " more lines were not logged", where,
                   limit->lines - LINES_A_SECOND);
        limit->second = second;
        limit->lines = 0;
    }
    return ++limit->lines <= LINES_A_SECOND;
}
