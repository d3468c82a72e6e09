/* reload.h: reads the configuration again, and changes settings while the job runs. See reload.c. Loop's
 * thread. */
#ifndef PSD_JOB_RELOAD_H
#define PSD_JOB_RELOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "server/config/config.h"
#include "server/config/settings.h"

struct psd_job;

/* The layers that a configuration is built from. */
struct psd_config_layers {
    struct psd_config base;            /* from the file and the options, before psd_config_settle */
    char settings[PSD_SETTINGS_BYTES]; /* on top: settings made while the job runs */
};

/* The state of reloads and settings. */
struct psd_reloader {
    struct psd_config_source source;
    struct psd_config_layers layers; /* of the configuration in force */
    uint64_t recorded;               /* the journal's change after which DIR/job has the settings */
    uint64_t n_applied, n_unchanged, n_refused;
    struct ps_error last; /* of the last reload; "": it succeeded */
    /* Changes that were accepted so far, which is the newest one's number. Those up to `concluded` are in
     * force, or were refused later. `refusal`: the last ones refused so, by number; last 0: none. */
    uint64_t n_requests, concluded;
    struct {
        uint64_t first, last;
        struct ps_error why;
    } refusal;
    /* psd_changes_tell: changes that were told of, less one in ten seconds up to told_ms; those left out
     * since then; and whether the last one is. */
    uint64_t n_told, told_ms, n_untold;
    bool untold;
};

/* A change is requested. Decides whether the log and the history tell of it, unless `untold`: of a hundred,
 * and beyond that of one in ten seconds. A worker that sets the learning rate at each step would fill the
 * disk. Logs how many were left out. */
void psd_changes_tell(struct psd_job *job);

/* Reads the configuration again and applies it, the method by a method change. 1: it is being applied; 0:
 * nothing differs; -EINVAL and others: it was refused and nothing changes. */
int psd_reload(struct psd_job *job, struct ps_error *err);
/* The same for the present configuration with these lines of KEY=VALUE on top, or without the settings of
 * these keys; does not read the file. Settings are kept for a resume. -EBUSY: a method change is in
 * progress. */
int psd_set(struct psd_job *job, const char *lines, struct ps_error *err);
int psd_unset(struct psd_job *job, const char *keys, struct ps_error *err);
/* A change has ended, or was dropped: answers the worker that requested it by SetMethod. refused: "": it is
 * in force. */
void psd_set_conclude(struct psd_job *job, const char *refused);
/* The present settings, including those of a pending method change. */
const char *psd_settings_now(const struct psd_job *job);
/* When psd resumes a job: applies the recorded settings to job->cfg. -EINVAL: they do not fit the
 * configuration. */
int psd_settings_resume(struct psd_job *job, bool from_checkpoint, struct ps_error *err);

/* Builds the configuration of the layers and compares it with the one in force: whether the method differs,
 * or other keys. -EINVAL with a sentence: it is not valid, or may not change. */
int psd_layers_build(struct psd_job *job, const struct psd_config_layers *layers, struct psd_config *next,
                     bool *method, bool *others, struct ps_error *err);
/* Makes these the layers of the configuration in force, and applies all keys that do not belong to the
 * method. */
void psd_layers_apply(struct psd_job *job, const struct psd_config_layers *layers,
                      const struct psd_config *next);

#endif
