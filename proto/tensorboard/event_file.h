/* event_file.h: a TensorBoard event file that grows while a program runs.
 *
 * A thread of its own writes it, so that nobody who adds a value waits for a disk. What waits for it is
 * bounded. A value that finds no room, or that cannot be written (a full disk), is lost: the log says so once
 * until it works again, and how many there were at the end. The file always ends with a whole record. */
#ifndef PS_TENSORBOARD_EVENT_FILE_H
#define PS_TENSORBOARD_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/tensorboard/encode.h"

struct ps_event_file;

/* Makes DIR/RUN, with the folders that lead to it, and a new file in it that no other program writes. What is
 * in the folder stays: TensorBoard shows all files of a folder as one run. -errno with a sentence that begins
 * with "tensorboard: ". */
int ps_event_file_open(const char *dir, const char *run, struct ps_event_file **out, struct ps_error *err);

/* n values at `step`, at wall_s unix seconds. They are copied. Does not block on the file; allocates: not
 * for the path of an exchange. One thread at a time. f NULL: does nothing. */
void ps_event_file_add(struct ps_event_file *f, double wall_s, int64_t step,
                       const struct ps_event_value *values, size_t n);

/* Writes what waits, for ten seconds at most. Returns how many events the file lacks, having logged it.
 * f NULL: 0. */
uint64_t ps_event_file_close(struct ps_event_file *f);

#endif
