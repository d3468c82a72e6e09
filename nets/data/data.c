/* The table of data sets. */
#include "nets/data/set.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cnn_data_type *const types[] = {&cnn_data_digits, &cnn_data_mnist};
enum { N_TYPES = sizeof types / sizeof *types };

static const struct cnn_data_type *find(const char *spec, size_t len)
{
    for (int i = 0; i < N_TYPES; i++)
        if (strlen(types[i]->name) == len && memcmp(types[i]->name, spec, len) == 0)
            return types[i];
    return NULL;
}

static int fail_unknown(const char *spec, struct cnn_error *err)
{
    char allowed[128] = "";
    size_t used = 0;
    for (int i = 0; i < N_TYPES && used < sizeof allowed; i++)
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", i > 0 ? ", " : "",
                                 types[i]->usage);
    return cnn_fail(err, -EINVAL, "data set \"%.80s\" is not known; allowed: %s", spec, allowed);
}

int cnn_data_open(const char *spec, struct cnn_data **out, struct cnn_error *err)
{
    const char *colon = strchr(spec, ':');
    const struct cnn_data_type *type = find(spec, colon != NULL ? (size_t)(colon - spec) : strlen(spec));
    if (type == NULL)
        return fail_unknown(spec, err);

    struct cnn_data *data = calloc(1, sizeof *data);
    if (data == NULL)
        return cnn_fail(err, -ENOMEM, "no memory for data set %.80s", spec);
    data->type = type;
    int rc = type->open(colon != NULL ? colon + 1 : NULL, &data->info, &data->self, err);
    if (rc != 0) {
        free(data);
        return rc;
    }
    *out = data;
    return 0;
}

void cnn_data_close(struct cnn_data *data)
{
    if (data == NULL)
        return;
    data->type->close(data->self);
    free(data);
}

void cnn_data_info(const struct cnn_data *data, struct cnn_data_info *info)
{
    *info = data->info;
}
