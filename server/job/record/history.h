/* history.h: the history of the job, in memory for /history and as history.jsonl in the state directory.
 * Loop's thread. */
#ifndef PSD_JOB_RECORD_HISTORY_H
#define PSD_JOB_RECORD_HISTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include <stddef.h>
#include <uv.h>

#include "proto/error.h"

struct psd_config;
struct psd_job;

/* Events of the history, in ascending importance: more important ones are kept longer when memory is full. */
enum psd_event {
    PSD_EVENT_NONE,
    PSD_EVENT_END,
    PSD_EVENT_JOIN,
    PSD_EVENT_MEMBERS, /* a clique has lost some */
    PSD_EVENT_CHECKPOINT,
    PSD_EVENT_METHOD,
    PSD_EVENT_DRAIN
};

/* One line of history.jsonl. */
struct psd_record {
    double t_s; /* unix */
    uint64_t version;
    uint32_t workers;
    double updates_per_s, staleness, loss, test_loss, test_accuracy; /* NaN: unknown */
    double center_norm, distance; /* ‖x̃‖, and the largest ‖x − x̃‖ */
    enum psd_event kind;
    char *event; /* the sentence, owned by the history; NULL: none */
};

struct psd_history {
    struct psd_record *records;
    size_t n, max;
    int fd;                /* of history.jsonl; written by a thread of libuv's pool */
    char *lines, *written; /* [n_bytes], the loop's; [n_written], the pool thread's during a write */
    size_t n_bytes, n_written;
    uv_work_t work;
    bool writing;
    int rc;           /* of the last write: -errno */
    bool fails;       /* the log has said so, and not yet that it can be written again */
    uint64_t n_lost;  /* lines that it has not written */
    uint64_t dropped; /* lines missing from the file, in this run of psd */
    uint64_t last_version, last_ms;
    uint64_t last_t_ms; /* unix, of the newest record */
    uint64_t last_stale_sum, last_stale_count;
};

json_t *psd_json_record(const struct psd_record *r);
int psd_history_open(struct psd_job *job, struct ps_error *err);
/* What a reader of results should know of the method that psd starts with; nothing where there is nothing. */
void psd_history_tell_remark(struct psd_job *job);
/* Tells of a change of method, and what a reader of results should know of the new one. */
void psd_history_tell_method(struct psd_job *job, const struct psd_config *now, const char *was,
                             uint32_t generation);
void psd_history_close(struct psd_job *job);
void psd_history_tick(struct psd_job *job);
/* Whether lines wait for the disk; then do not close, except after a failed write. */
bool psd_history_is_writing(const struct psd_job *job);
/* Adds a record at once. */
void psd_history_add(struct psd_job *job);
/* The same, with an event. */
void psd_history_tell(struct psd_job *job, enum psd_event kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
