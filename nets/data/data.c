/* The table of data sets. */
#include "nets/data/dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

static const struct cnn_data_type *const types[] = {&cnn_data_digits,    &cnn_data_mnist,
                                                    &cnn_data_cifar10,   &cnn_data_cifar100,
                                                    &cnn_data_synthetic, &cnn_data_images};
enum { N_TYPES = sizeof types / sizeof *types };
enum { DEFAULT_SIDE = 224 }; /* default size of views of sets whose images differ in size */

static const struct cnn_data_type *find(const char *spec, size_t len)
{
    for (int i = 0; i < N_TYPES; i++)
        if (strlen(types[i]->name) == len && memcmp(types[i]->name, spec, len) == 0)
            return types[i];
    return NULL;
}

static int fail_unknown(const char *spec, struct ps_error *err)
{
    char allowed[256] = "";
    for (int i = 0; i < N_TYPES; i++)
        ps_text_join(allowed, sizeof allowed, ", ", types[i]->usage);
    return ps_fail(err, -EINVAL, "data set \"%.80s\" is not known; allowed: %s", spec, allowed);
}

int cnn_data_open(const char *spec, struct cnn_data **out, struct ps_error *err)
{
    return cnn_data_open_with(spec, NULL, out, err);
}

int cnn_data_open_with(const char *spec, const struct cnn_data_options *opt, struct cnn_data **out,
                       struct ps_error *err)
{
    const struct cnn_data_options defaults = {.max_damaged = CNN_MAX_DAMAGED};
    const char *colon = strchr(spec, ':');
    const struct cnn_data_type *type = find(spec, colon != NULL ? (size_t)(colon - spec) : strlen(spec));
    if (type == NULL)
        return fail_unknown(spec, err);
    opt = opt != NULL ? opt : &defaults;
    if (opt->view != NULL && !type->has_views)
        return ps_fail(err, -EINVAL, "data set %s does not support --view; allowed: with --data images",
                       type->name);

    if (opt->cache != NULL && !type->has_views)
        return ps_fail(err, -EINVAL, "data set %s does not support --cache; allowed: with --data images",
                       type->name);

    struct cnn_data *data = calloc(1, sizeof *data);
    if (data == NULL)
        return ps_fail(err, -ENOMEM, "no memory for data set %.80s", spec);
    data->type = type;
    int rc = type->open(colon != NULL ? colon + 1 : NULL, opt, &data->info, &data->self, err);
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

void cnn_data_get_info(const struct cnn_data *data, struct cnn_data_info *info)
{
    *info = data->info;
    info->held_bytes = data->type->is_held ? (info->n_train + info->n_test) *
                                                 ((uint64_t)info->channels * info->height * info->width + 1)
                                           : 0;
}

/* The i-th size that the set supports; false past the last. */
static bool view_at(const struct cnn_data *data, uint32_t i, struct cnn_view *out)
{
    if (data->type->views == NULL)
        *out = (struct cnn_view){.height = data->info.height, .width = data->info.width};
    else if (i < data->type->n_views)
        *out = data->type->views[i];
    return i < (data->type->views == NULL ? 1 : data->type->n_views);
}

static void list_views(const struct cnn_data *data, char *text, size_t room)
{
    struct cnn_view view;
    size_t used = 0;
    if (data->type->make != NULL) {
        snprintf(text, room, "any number of");
        return;
    }
    for (uint32_t i = 0; view_at(data, i, &view) && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%ux%u", i > 0 ? " or " : "", view.height,
                                 view.width);
}

int cnn_data_view(const struct cnn_data *data, uint32_t height, uint32_t width, struct cnn_view *out,
                  struct ps_error *err)
{
    struct cnn_view view;
    char sizes[80] = "";
    if (data->type->make != NULL) { /* any size that options.view allows */
        *out = (struct cnn_view){.height = height > 0 ? height : DEFAULT_SIDE,
                                 .width = width > 0 ? width : DEFAULT_SIDE};
        return data->type->check(data->self, out->height, out->width, err);
    }
    for (uint32_t i = 0; view_at(data, i, &view); i++)
        if ((height == 0 && width == 0) || (view.height == height && view.width == width)) {
            *out = view;
            return 0;
        }
    list_views(data, sizes, sizeof sizes);
    return ps_fail(err, -EINVAL, "images of %s at %ux%u; allowed: %s", data->info.name, height, width, sizes);
}

int cnn_data_fits(const struct cnn_data *data, const struct cnn_model *model, struct ps_error *err)
{
    const struct cnn_data_info *info = &data->info;
    struct cnn_view view;
    char sizes[80] = "";
    if (info->channels == model->channels && info->classes <= model->classes) {
        if (data->type->make != NULL)
            return cnn_data_view(data, model->height, model->width, &view, err);
        if (cnn_data_view(data, model->height, model->width, &view, NULL) == 0)
            return 0;
    }
    list_views(data, sizes, sizeof sizes);
    return ps_fail(
        err, -EINVAL,
        "images of %s have %u channels, %s pixels and %u classes; allowed for net %s: %u channels, "
        "%ux%u pixels and at most %u classes",
        info->name, info->channels, sizes, info->classes, model->name, model->channels, model->height,
        model->width, model->classes);
}
