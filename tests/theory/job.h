/* job.h: a real psd and p clients, as threads of this program, that take the same number of steps.
 *
 * Now and then all stop, so that the center after exactly so many steps can be looked at. Whatever fails ends
 * the program: nothing that is measured after a failure means anything. */
#ifndef THEORY_JOB_H
#define THEORY_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SETTINGS_MAX = 28, SETTING_BYTES = 96 };

/* "key=value" strings for psd. */
struct settings {
    char text[SETTINGS_MAX][SETTING_BYTES];
    const char *list[SETTINGS_MAX + 1]; /* NULL at the end */
    int n;
};

/* For the method, with what every job here has: a constant rate, no checkpoints, no warmup. */
void settings_init(struct settings *s, const char *method);
void settings_add(struct settings *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct job {
    const struct settings *settings;
    unsigned p;
    size_t n;              /* floats */
    const uint64_t *stops; /* steps after which all stop, ascending; the last ends the job */
    size_t n_stops;
    bool averages; /* look is given z */
    void *arg;     /* of the functions; the first three are called in the workers' threads */
    void (*offer)(void *arg, float *x, size_t n);
    void (*start)(void *arg, unsigned rank, float *x, size_t n); /* x is the center; NULL: stay there */
    /* g at x for the step t, from 0. */
    void (*gradient)(void *arg, unsigned rank, uint64_t t, const float *x, float *g, size_t n);
    /* While all are stopped after t steps. x: the workers' arrays; average: z, or NULL. */
    void (*look)(void *arg, uint64_t t, const float *center, const float *average, float *const *x, size_t n);
};

void job_run(const struct job *job);

#endif
