/* settings.h: the settings made while the job runs (psctl set, psctl method): lines KEY=VALUE with full key
 * names, each ending in a newline. They override the file and psd's options, as options override the file.
 * There is at most one line for each key, the last one given. A group's mapping becomes a line for each key
 * that it names. */
#ifndef PSD_CONFIG_SETTINGS_H
#define PSD_CONFIG_SETTINGS_H

#include "server/config/config.h"

/* Largest text, with its terminator: it is part of DIR/job (server/checkpoint/job_file.h). */
#define PSD_SETTINGS_BYTES 2048

/* next: `now` with the lines of `more`, which may name keys as --set does; they replace earlier lines of
 * the same keys. -EINVAL with a sentence: a line does not assign a value to a key; -E2BIG: the text is too
 * long. */
int psd_settings_add(const char *now, const char *more, char next[PSD_SETTINGS_BYTES], struct ps_error *err);

/* -EINVAL with a sentence: a line is not of a key of the method; -E2BIG: as above. */
int psd_settings_check_method(const char *lines, struct ps_error *err);

/* next: `now` without the keys named by the lines of `keys`; "all" removes every one. -EINVAL with a
 * sentence: one of them was not set. */
int psd_settings_remove(const char *now, const char *keys, char next[PSD_SETTINGS_BYTES],
                        struct ps_error *err);

/* Applies the settings to *cfg, which is unspecified after an error; errors start with "set: ". */
int psd_settings_apply(const char *settings, struct psd_config *cfg, struct ps_error *err);

/* Writes any such lines as "a=1, b=2". */
void psd_settings_list(const char *settings, char *text, size_t size);

#endif
