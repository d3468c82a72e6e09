/* A configuration file, and lines of it as --set gives them: leading lines that start with '!' are
 * assignments. What is accepted prints as JSON, and checking it again changes nothing. */
#include <jansson.h>
#include <string.h>

#include "server/config/config.h"
#include "tests/fuzz/fuzz.h"

/* Applies the leading lines "!KEY=VALUE"; returns where the file starts, or -1. */
static long assign(struct psd_config *cfg, const uint8_t *bytes, size_t len)
{
    struct ps_error err = {""};
    size_t at = 0;
    while (at < len && bytes[at] == '!') {
        const uint8_t *end = memchr(bytes + at, '\n', len - at);
        size_t n = end != NULL ? (size_t)(end - bytes) - at : len - at;
        char *line = strndup((const char *)bytes + at + 1, n - 1);
        int rc = psd_config_set(cfg, line, &err);
        promise(rc == 0 || (rc < 0 && strncmp(err.text, "--set: ", 7) == 0));
        free(line);
        if (rc < 0)
            return -1;
        at += end != NULL ? n + 1 : n;
    }
    return (long)at;
}

static char *print(const struct psd_config *cfg)
{
    json_error_t why;
    char *text = psd_config_json(cfg);
    promise(text != NULL);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    promise(json_is_object(json));
    json_decref(json);
    return text;
}

static void check_bounds(const struct psd_config *cfg)
{
    promise(cfg->lanes <= PSD_MAX_LANES);
    promise(cfg->chunk_floats >= 1024 && cfg->chunk_floats <= PSD_MAX_CHUNK_FLOATS);
    promise(cfg->window_chunks >= 1 && cfg->limits.clients >= 1 && cfg->limits.memory_gib > 0);
    promise(cfg->hyper.learning_rate > 0 && cfg->hyper.period >= 1);
    promise(cfg->hyper.schedule.step_steps >= 1 && cfg->state_dir[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct ps_error err = {""}, warning = {""};
    struct psd_config cfg, again;

    psd_config_defaults(&cfg);
    long at = assign(&cfg, bytes, len);
    if (at < 0)
        return 0;
    if (psd_config_read_text(&cfg, "FILE", (const char *)bytes + at, len - (size_t)at, &err) < 0) {
        promise(strncmp(err.text, "FILE:", 5) == 0);
        return 0;
    }
    if (psd_config_check(&cfg, &err, &warning) < 0) {
        promise(err.text[0] != 0);
        return 0;
    }
    check_bounds(&cfg);
    char *text = print(&cfg);
    again = cfg;
    promise(psd_config_check(&again, &err, &warning) == 0 && memcmp(&again, &cfg, sizeof cfg) == 0);
    free(text);
    return 0;
}
