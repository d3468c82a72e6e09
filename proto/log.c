#include "proto/log.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/clock.h"

/* Set once at start, before any thread exists, but for the level: the one exception to "no mutable globals",
 * as stderr itself is. */
static struct {
    const char *program;
    _Atomic(enum ps_log_level) lowest;
    bool json;
} setup = {"psd", PS_LOG_INFO, false};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void ps_log_setup(const char *program, enum ps_log_level lowest)
{
    setup.program = program;
    setup.json = !isatty(STDERR_FILENO);
    ps_log_set_lowest(lowest);
}

void ps_log_set_lowest(enum ps_log_level lowest)
{
    atomic_store_explicit(&setup.lowest, lowest, memory_order_relaxed);
}

int ps_log_level_parse(const char *name)
{
    for (int i = 0; i < (int)(sizeof level_names / sizeof *level_names); i++)
        if (strcmp(name, level_names[i]) == 0)
            return i;
    return -EINVAL;
}

/* What is not UTF-8 (a file's name, say) still gets its line. */
static void make_ascii(char *sentence)
{
    json_t *text = json_string(sentence);
    for (char *p = sentence; text == NULL && *p != 0; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    json_decref(text);
}

static void write_json(uint64_t now_us, enum ps_log_level level, const char *event, char *sentence)
{
    make_ascii(sentence);
    json_t *line = json_pack("{s:f, s:s, s:s, s:s, s:s}", "ts", 1e-6 * (double)now_us, "level",
                             level_names[level], "prog", setup.program, "event", event, "msg", sentence);
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    if (text != NULL)
        fprintf(stderr, "%s\n", text);
    free(text);
    json_decref(line);
}

static void write_text(uint64_t now_us, enum ps_log_level level, const char *event, char *sentence)
{
    const time_t now_s = (time_t)(now_us / 1000000);
    struct tm tm;
    char clock[16];
    localtime_r(&now_s, &tm);
    strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    fprintf(stderr, "%s.%03u %s %-5s %s: %s\n", clock, (unsigned)(now_us / 1000 % 1000), setup.program,
            level_names[level], event, sentence);
}

void ps_log(enum ps_log_level level, const char *event, const char *fmt, ...)
{
    char sentence[1024];
    va_list ap;

    if (level < atomic_load_explicit(&setup.lowest, memory_order_relaxed))
        return;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    (setup.json ? write_json : write_text)(ps_wall_us(), level, event, sentence);
}

enum { LINES_A_SECOND = 10 };

bool ps_log_allows(struct ps_log_limit *limit, const char *event, const char *where)
{
    uint64_t second = ps_now_ns() / PS_NS_PER_S;
    if (second != limit->second) {
        if (limit->lines > LINES_A_SECOND)
            ps_log(PS_LOG_WARN, event, "%s: %" PRIu64 " more refusals were not logged", where,
                   limit->lines - LINES_A_SECOND);
        limit->second = second;
        limit->lines = 0;
    }
    return ++limit->lines <= LINES_A_SECOND;
}
