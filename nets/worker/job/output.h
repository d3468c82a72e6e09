/* output.h: files that options name and psworker writes. */
#ifndef CNN_WORKER_JOB_OUTPUT_H
#define CNN_WORKER_JOB_OUTPUT_H

#include <stdbool.h>

/* Whether the path leads to what this process has as its standard output, such as /dev/stdout. */
bool cnn_output_is_stdout(const char *path);
/* Whether it is written to, and not replaced by another file: the standard output, a pipe, or a device. */
bool cnn_output_is_in_place(const char *path);

/* Checks at the start that the file, which is written later, can be put into its folder; of a symbolic link,
 * into that of the file it leads to. path: NULL: none. Returns an enum cnn_exit, after logging the cause as
 * `event` of --option. */
int cnn_output_check(const char *option, const char *event, const char *path);

#endif
