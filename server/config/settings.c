#include "server/config/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/keys.h"

/* Copies the next line of the text without its newline; false at the end. Every line of a text fits. */
static bool next_line(const char **text, char *line, size_t size)
{
    size_t n = strcspn(*text, "\n");
    if (**text == 0)
        return false;
    snprintf(line, size, "%.*s", (int)(n < size ? n : size - 1), *text);
    *text += n + ((*text)[n] == '\n');
    return true;
}

/* Whether the assignment sets the row's key, or a key in its group. */
static bool is_of(const char *line, const struct psd_config_key *row)
{
    size_t n = strlen(row->name);
    return strncmp(line, row->name, n) == 0 &&
           (line[n] == '=' || (row->type == PSD_CONFIG_GROUP && line[n] == '.'));
}

/* Removes the row's assignments; returns whether there were any. */
static bool drop(char settings[PSD_SETTINGS_BYTES], const struct psd_config_key *row)
{
    char was[PSD_SETTINGS_BYTES], line[PSD_SETTINGS_BYTES];
    const char *at = was;
    size_t used = 0;
    bool found = false;
    memcpy(was, settings, sizeof was);
    settings[0] = 0;
    while (next_line(&at, line, sizeof line))
        if (is_of(line, row))
            found = true;
        else
            used += (size_t)snprintf(settings + used, PSD_SETTINGS_BYTES - used, "%s\n", line);
    return found;
}

static int check_text(const char *text, struct ps_error *err)
{
    for (; *text != 0; text++)
        if ((unsigned char)*text < 0x20 && *text != '\n')
            return ps_fail(err, -EINVAL,
                           "set: found a control character; allowed are lines of KEY=VALUE, such as "
                           "learning_rate=0.01");
    return 0;
}

static int check_length(const char *text, struct ps_error *err)
{
    size_t len = strlen(text);
    return len < PSD_SETTINGS_BYTES
               ? 0
               : ps_fail(err, -E2BIG, "set: found %zu bytes; allowed are %d", len, PSD_SETTINGS_BYTES - 1);
}

/* Replaces the assignment of the line's key. */
static int put(char settings[PSD_SETTINGS_BYTES], const char *line, struct ps_error *err)
{
    const struct psd_config_key *row = psd_config_key_find(line, strcspn(line, "="));
    drop(settings, row);
    size_t used = strlen(settings);
    if (used + strlen(line) + 1 >= PSD_SETTINGS_BYTES)
        return ps_fail(err, -E2BIG,
                       "set: no room for %s beside the present settings, %zu bytes of %d; put it into "
                       "the configuration file, and psctl unset",
                       row->name, used, PSD_SETTINGS_BYTES - 1);
    snprintf(settings + used, PSD_SETTINGS_BYTES - used, "%s\n", line);
    return 0;
}

int psd_settings_add(const char *now, const char *more, char next[PSD_SETTINGS_BYTES], struct ps_error *err)
{
    char line[PSD_SETTINGS_BYTES];
    struct psd_config scratch;
    int rc = check_text(more, err);
    if (rc < 0)
        return rc;
    if (more[0] == 0)
        return ps_fail(err, -EINVAL, "set: found nothing; allowed is KEY=VALUE, such as learning_rate=0.01");
    if ((rc = check_length(more, err)) < 0)
        return rc;
    snprintf(next, PSD_SETTINGS_BYTES, "%s", now);
    psd_config_defaults(&scratch);
    while (rc == 0 && next_line(&more, line, sizeof line)) {
        char *keys = NULL;
        rc = psd_config_set_keys("set", &scratch, line, &keys, err);
        for (const char *at = keys; rc == 0 && next_line(&at, line, sizeof line);)
            rc = put(next, line, err);
        free(keys);
    }
    return rc;
}

int psd_settings_check_method(const char *lines, struct ps_error *err)
{
    char line[PSD_SETTINGS_BYTES];
    int rc = check_length(lines, err); /* a worker may send megabytes, line by line */
    while (rc == 0 && next_line(&lines, line, sizeof line)) {
        const struct psd_config_key *row = psd_config_key_short(line, strcspn(line, "="));
        if (row == NULL || !psd_config_is_of_method(row))
            return ps_fail(err, -EINVAL,
                           "%.100s: not a key of the method; allowed are method, rule, admission, optimizer, "
                           "averaging, workers, and those of parameters and codec",
                           line);
    }
    return rc;
}

int psd_settings_remove(const char *now, const char *keys, char next[PSD_SETTINGS_BYTES],
                        struct ps_error *err)
{
    char line[PSD_SETTINGS_BYTES], list[400];
    snprintf(next, PSD_SETTINGS_BYTES, "%s", now);
    psd_settings_list(now, list, sizeof list);
    if (keys[0] == 0)
        return ps_fail(err, -EINVAL, "unset: found no key; allowed are keys that are set, or 'all'");
    while (next_line(&keys, line, sizeof line)) {
        const struct psd_config_key *row = psd_config_key_short(line, strlen(line));
        if (strcmp(line, "all") == 0)
            next[0] = 0;
        else if (row == NULL || !drop(next, row))
            return ps_fail(err, -EINVAL, "unset: %.100s is not set while the job runs; %s%s", line,
                           list[0] != 0 ? "set are: " : "nothing is set", list);
    }
    return 0;
}

int psd_settings_apply(const char *settings, struct psd_config *cfg, struct ps_error *err)
{
    char line[PSD_SETTINGS_BYTES];
    int rc = 0;
    while (rc == 0 && next_line(&settings, line, sizeof line))
        rc = psd_config_set_as("set", cfg, line, err);
    return rc;
}

void psd_settings_list(const char *settings, char *text, size_t size)
{
    size_t n = strlen(settings), used = 0;
    n -= n > 0 && settings[n - 1] == '\n';
    for (size_t i = 0; i < n && used + 3 < size; i++) {
        text[used++] = settings[i] == '\n' ? ',' : settings[i];
        if (settings[i] == '\n')
            text[used++] = ' ';
    }
    text[used] = 0;
}
