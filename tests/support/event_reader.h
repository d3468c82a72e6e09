/* event_reader.h: TensorBoard event files as a test looks at them: every frame's checks are made. */
#ifndef TEST_SUPPORT_EVENT_READER_H
#define TEST_SUPPORT_EVENT_READER_H

#include <stddef.h>
#include <stdint.h>

#include "event.pb-c.h"

typedef void event_see_fn(void *arg, const PsBoard__Event *event);

/* Shows all events of the files in FOLDER, in the order of the files' names; returns how many files there
 * are. Fails the test where a record is not whole or a check does not fit. */
size_t event_each(const char *folder, event_see_fn *see, void *arg);

/* The values with this tag in FOLDER. */
struct event_values {
    size_t n;
    int64_t first_step, last_step;
    double last; /* scalar, or of a histogram how many values it counts */
    double sum;  /* of all of them */
};
struct event_values event_values(const char *folder, const char *tag);

#endif
