/* reload.h: the configuration that is read again, and what is set above it while the job runs. See reload.c.
 * Loop's thread. */
#ifndef PSD_JOB_RELOAD_H
#define PSD_JOB_RELOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "server/config/config.h"
#include "server/config/settings.h"

struct psd_job;

/* Of what a configuration is made. */
struct psd_recipe {
    struct psd_config base;            /* as the file and the options gave it, not settled */
    char settings[PSD_SETTINGS_BYTES]; /* above it: what was set while the job runs */
};

/* The configuration that is read again, and what is set above it. */
struct psd_reloader {
    struct psd_config_source source;
    struct psd_recipe recipe; /* of the configuration in force */
    uint64_t recorded;        /* the change that psd_journal_has when DIR/job has the settings */
    uint64_t n_applied, n_unchanged, n_refused;
    struct ps_error last; /* of the last one; "" : it was fine */
};

/* Reads the configuration again and puts it in force, the method by a swap. 1: it does; 0: nothing has
 * changed; -EINVAL and others: it was refused and nothing changes. */
int psd_reload(struct psd_job *job, struct ps_error *err);
/* The same of the configuration in force with these lines of KEY=VALUE above it, or without what was set for
 * these keys; the file is not read. What is set is kept for a resume. -EBUSY: the method changes just now. */
int psd_set(struct psd_job *job, const char *lines, struct ps_error *err);
int psd_unset(struct psd_job *job, const char *keys, struct ps_error *err);
/* What is set, or will be when the change of the method that is due has been made. */
const char *psd_settings_now(const struct psd_job *job);
/* When psd goes on with a job: what was set while that ran, from its record, into job->cfg. -EINVAL: it does
 * not go with the configuration. */
int psd_settings_resume(struct psd_job *job, bool from_checkpoint, struct ps_error *err);

/* What the recipe makes, against the configuration in force: whether the method changes, or other keys.
 * -EINVAL with a sentence: it is not valid, or may not change. */
int psd_recipe_cook(struct psd_job *job, const struct psd_recipe *recipe, struct psd_config *next,
                    bool *method, bool *others, struct ps_error *err);
/* From now on the configuration in force is of this recipe: all of it but the method's keys. */
void psd_recipe_take(struct psd_job *job, const struct psd_recipe *recipe, const struct psd_config *next);

#endif
