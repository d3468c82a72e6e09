/* model_spec.c: reads "resnet18:classes=10,size=128". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nets/plan.h"
#include "proto/text.h"

#define MAX_SIZE 4096

/* Reads a whole number from lowest to highest that ends with the value or at `until`. Returns where it ends,
 * NULL if there is none. */
static const char *read_number(const char *text, uint32_t lowest, uint32_t highest, char until, uint32_t *out)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || v < lowest || v > highest ||
        (*end != '\0' && *end != ',' && *end != until))
        return NULL;
    *out = (uint32_t)v;
    return end;
}

/* Returns where the value ends. */
static const char *read_size(const char *text, struct cnn_model *out)
{
    const char *end = read_number(text, 1, MAX_SIZE, 'x', &out->height);

    if (end != NULL && *end == 'x')
        return read_number(end + 1, 1, MAX_SIZE, '\0', &out->width);
    out->width = out->height;
    return end;
}

/* Reads one KEY=VALUE of `spec` and returns where it ends; NULL with a sentence on error. */
static const char *read_key(const char *spec, const char *text, struct cnn_model *out, struct ps_error *err)
{
    size_t length = strcspn(text, "=,");
    const char *value = text + length + (text[length] == '='), *end;

    if (length == 7 && memcmp(text, "classes", 7) == 0) {
        end = read_number(value, 2, CNN_MAX_CLASSES, '\0', &out->classes);
        if (end == NULL)
            ps_fail(err, -EINVAL, "\"%.100s\": classes \"%.20s\"; allowed: 2 to %d", spec, value,
                    CNN_MAX_CLASSES);
        return end;
    }
    if (length == 4 && memcmp(text, "size", 4) == 0) {
        end = read_size(value, out);
        if (end == NULL)
            ps_fail(err, -EINVAL, "\"%.100s\": size \"%.20s\"; allowed: SIDE or HEIGHTxWIDTH, 1 to %d", spec,
                    value, MAX_SIZE);
        return end;
    }
    ps_fail(err, -EINVAL, "\"%.100s\": parameter \"%.*s\"; allowed: classes=N and size=SIDE or HEIGHTxWIDTH",
            spec, length > 40 ? 40 : (int)length, text);
    return NULL;
}

static int fail_unknown(const char *spec, size_t length, struct ps_error *err)
{
    char nets[400] = "";

    for (size_t i = 0; cnn_models[i]->name != NULL; i++)
        ps_text_join(nets, sizeof nets, ", ", cnn_models[i]->name);
    return ps_fail(err, -EINVAL, "\"%.*s\" is not a net; allowed: %s", length > 60 ? 60 : (int)length, spec,
                   nets);
}

int cnn_model_read(const char *spec, struct cnn_model *out, struct ps_error *err)
{
    size_t length = strcspn(spec, ":");
    struct cnn_model model = {0};
    struct cnn_plan *plan;

    for (size_t i = 0; cnn_models[i]->name != NULL; i++)
        if (strlen(cnn_models[i]->name) == length && memcmp(cnn_models[i]->name, spec, length) == 0)
            model = *cnn_models[i];
    if (model.name == NULL)
        return fail_unknown(spec, length, err);
    for (const char *at = spec + length; *at != '\0';)
        if ((at = read_key(spec, at + 1, &model, err)) == NULL)
            return -EINVAL;

    int rc = cnn_plan_create(&model, &plan, err);
    if (rc < 0)
        return rc;
    cnn_plan_destroy(plan);
    *out = model;
    return 0;
}
