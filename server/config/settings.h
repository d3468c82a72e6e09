/* settings.h: what was set while the job runs (psctl set, psctl method): a text of assignments KEY=VALUE,
 * each a line that ends with a newline, by the keys' full names. They stand above the file and the options of
 * psd, as options stand above the file. Of a key there is one, the last that was given. */
#ifndef PSD_CONFIG_SETTINGS_H
#define PSD_CONFIG_SETTINGS_H

#include "server/config/config.h"

/* What a text may take, with the zero byte behind it: it is part of DIR/job (server/checkpoint/job_file.h).
 */
#define PSD_SETTINGS_BYTES 2048

/* next: `now` and the lines of `more`, which may name keys as --set does; what they replace is gone from it.
 * -EINVAL with a sentence: a line is no assignment of a key's value; -E2BIG: too much is set. */
int psd_settings_add(const char *now, const char *more, char next[PSD_SETTINGS_BYTES], struct ps_error *err);

/* next: `now` without the keys that the lines of `keys` name; "all": without any. -EINVAL with a sentence:
 * one of them was not set. */
int psd_settings_remove(const char *now, const char *keys, char next[PSD_SETTINGS_BYTES],
                        struct ps_error *err);

/* Over *cfg, which is then unspecified after an error; errors start with "set: ". */
int psd_settings_apply(const char *settings, struct psd_config *cfg, struct ps_error *err);

/* "a=1, b=2", of any lines. */
void psd_settings_list(const char *settings, char *text, size_t size);

#endif
