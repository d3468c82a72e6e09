/* images:DIR and images:FILE.tar: photographs of any size, JPEG or PNG, in a folder for each class. */
#include "nets/data/images/images.h"

#include "nets/data/images/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/philox.h"
#include "proto/log.h"

void cnn_images_close(struct cnn_images *set)
{
    cnn_cache_close(set->cache);
    cnn_list_finish(&set->list);
    if (set->root >= 0)
        close(set->root);
    for (uint32_t i = 0; i < set->n_shards; i++)
        close(set->shards[i]);
    free(set->shards);
    free(set->tar);
    pthread_mutex_destroy(&set->lock);
    free(set->damaged[CNN_TRAIN]);
    free(set->damaged[CNN_TEST]);
    free(set->what);
    free(set);
}

/* Shards keep the order of their members, so that the set is read sequentially. */
static int open_list(struct cnn_images *set, struct ps_error *err)
{
    int rc = cnn_images_add_shards(set, err);
    if (rc != 0 || set->n_shards > 0)
        return rc == 0 ? cnn_list_seal(&set->list, false, set->what, err) : rc;
    set->root = open(set->what, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (set->root < 0)
        return ps_fail(err, -errno, "%.200s: cannot be opened: %s; allowed: a folder of images", set->what,
                       strerror(errno));
    rc = cnn_list_folder(&set->list, set->what, err);
    return rc == 0 ? cnn_list_seal(&set->list, true, set->what, err) : rc;
}

static int open_set(struct cnn_images *set, const struct cnn_data_options *opt, struct ps_error *err)
{
    int rc = cnn_looks_read(opt->view, &set->looks, err);
    if (rc == 0)
        rc = open_list(set, err);
    if (rc != 0)
        return rc;
    set->max_damaged = opt->max_damaged;
    for (int split = 0; split < 2; split++) {
        set->damaged[split] = calloc(set->list.of[split].n + 1, 1);
        if (set->damaged[split] == NULL)
            return ps_fail(err, -ENOMEM, "no memory for %u images", set->list.of[split].n);
    }
    if (opt->cache != NULL) {
        uint32_t side = cnn_looks_side(&set->looks, opt->width, opt->height);
        rc = cnn_cache_open(set, opt, side, &set->cache, err);
        if (rc != 0)
            return rc;
    }
    ps_log(PS_LOG_INFO, "data.images", "%s: %u training and %u test images of %u classes%s", set->what,
           set->list.of[CNN_TRAIN].n, set->list.of[CNN_TEST].n, set->list.n_classes,
           set->list.n_others > 0 ? "; other files are ignored" : "");
    return 0;
}

int cnn_images_open(const char *what, const struct cnn_data_options *opt, struct cnn_images **out,
                    struct ps_error *err)
{
    struct cnn_images *set = calloc(1, sizeof *set);
    if (set == NULL || (set->what = strdup(what)) == NULL) {
        free(set);
        return ps_fail(err, -ENOMEM, "no memory for a set of images");
    }
    set->root = -1;
    pthread_mutex_init(&set->lock, NULL);
    int rc = open_set(set, opt, err);
    if (rc != 0)
        cnn_images_close(set);
    else
        *out = set;
    return rc;
}

static int images_open(const char *arg, const struct cnn_data_options *opt, struct cnn_data_info *info,
                       void **self, struct ps_error *err)
{
    struct cnn_images *set = NULL;
    if (arg == NULL || *arg == '\0')
        return ps_fail(err, -EINVAL,
                       "data set images: no folder given; allowed: images:DIR or images:FILE.tar");
    int rc = cnn_images_open(arg, opt, &set, err);
    if (rc != 0)
        return rc;
    *info = (struct cnn_data_info){.name = "images",
                                   .channels = 3,
                                   .classes = set->list.n_classes,
                                   .n_train = set->list.of[CNN_TRAIN].n,
                                   .n_test = set->list.of[CNN_TEST].n,
                                   .is_sequential = set->n_shards > 0};
    *self = set;
    return 0;
}

static void images_close(void *self)
{
    cnn_images_close(self);
}

static int images_check(const void *self, uint32_t height, uint32_t width, struct ps_error *err)
{
    const struct cnn_images *set = self;
    uint32_t longer = height > width ? height : width;
    if (set->looks.side != 0 && set->looks.side < longer)
        return ps_fail(err, -EINVAL, "view: side=%u, and images of %ux%u; allowed: side=%u to 4096",
                       set->looks.side, height, width, longer);
    if (set->cache != NULL && cnn_looks_side(&set->looks, width, height) != set->cache->side)
        return ps_fail(err, -EINVAL, "the cache has images of side=%u, and views of %ux%u want side=%u",
                       set->cache->side, height, width, cnn_looks_side(&set->looks, width, height));
    return 0;
}

struct cnn_images_scratch *cnn_images_scratch_create(void)
{
    return calloc(1, sizeof(struct cnn_images_scratch));
}

void cnn_images_scratch_destroy(struct cnn_images_scratch *s)
{
    if (s == NULL)
        return;
    cnn_decoder_finish(&s->decoder);
    cnn_resampler_finish(&s->resampler);
    free(s->file);
    free(s->scaled);
    free(s);
}

static void *images_scratch(const void *self)
{
    (void)self;
    return cnn_images_scratch_create();
}

static void images_drop_scratch(void *scratch)
{
    cnn_images_scratch_destroy(scratch);
}

/* An image that cannot be read is logged once and left out; the limit counts all of them. */
static int leave_out(const struct cnn_images *of, const struct cnn_image_id *id, const char *why,
                     struct ps_error *err)
{
    struct cnn_images *set = (struct cnn_images *)of; /* its lock protects the mutable members */
    const char *path = cnn_list_name(&set->list, set->list.of[id->split].rows[id->index].path);
    pthread_mutex_lock(&set->lock);
    bool is_new = !set->damaged[id->split][id->index];
    set->damaged[id->split][id->index] = 1;
    uint32_t n = set->n_damaged += is_new;
    pthread_mutex_unlock(&set->lock);
    if (n > set->max_damaged)
        return ps_fail(err, -EBADMSG, "%.60s: more than %u images cannot be read; the last is %.120s: %.180s",
                       set->what, set->max_damaged, path, why);
    if (is_new)
        ps_log(PS_LOG_WARN, "data.damaged", "%s/%s: %s: left out (%u of at most %u)", set->what, path, why, n,
               set->max_damaged);
    return CNN_IMAGE_LEFT_OUT;
}

struct cnn_window cnn_images_window(const struct cnn_images *set, const struct cnn_image_id *id,
                                    const struct cnn_view *view, uint32_t width, uint32_t height,
                                    struct cnn_draws *draws)
{
    const struct cnn_looks *l = &set->looks;
    struct cnn_view_call call = {.image_width = width,
                                 .image_height = height,
                                 .width = view->width,
                                 .height = view->height,
                                 .side = cnn_looks_side(l, view->width, view->height),
                                 .flips = l->flips};
    return (id->split == CNN_TRAIN ? l->kind : &cnn_view_centre)->place(&call, draws);
}

/* Reads the file into s->file, and gets the format and the size of the image. */
static int read_size(const struct cnn_images *set, const struct cnn_entry *e, struct cnn_images_scratch *s,
                     size_t *len, const struct cnn_picture_format **format, uint32_t *width, uint32_t *height,
                     struct ps_error *why)
{
    int rc = cnn_images_read(set, e, s, len, why);
    if (rc != 0)
        return rc;
    *format = cnn_picture_find(s->file, *len, why);
    if (*format == NULL)
        return -EBADMSG;
    return cnn_picture_size(*format, &s->decoder, s->file, *len, width, height, why);
}

int cnn_images_scaled(const struct cnn_images *set, const struct cnn_entry *e, struct cnn_images_scratch *s,
                      uint32_t side, struct cnn_picture *out, struct ps_error *err)
{
    const struct cnn_picture_format *format;
    uint32_t width, height, view_width, view_height;
    size_t len;
    int rc = read_size(set, e, s, &len, &format, &width, &height, err);
    if (rc != 0)
        return rc;
    bool is_small = width <= side || height <= side;
    struct cnn_window window = cnn_view_whole(width, height, side, &view_width, &view_height);
    rc = format->decode(&s->decoder, s->file, len, is_small ? 1 : cnn_window_scale(&window, width, height),
                        NULL, err);
    *out = cnn_decoder_picture(&s->decoder);
    if (rc != 0 || is_small)
        return rc;
    size_t bytes = 3 * (size_t)view_width * view_height;
    if (bytes > s->n_scaled) {
        free(s->scaled);
        s->scaled = malloc(bytes);
        s->n_scaled = s->scaled != NULL ? bytes : 0;
        if (s->scaled == NULL)
            return ps_fail(err, -ENOMEM, "no memory for a picture of %zu bytes", bytes);
    }
    rc = cnn_resample(&s->resampler, out, &window, view_width, view_height, s->scaled, err);
    *out = (struct cnn_picture){s->scaled, view_width, view_height};
    return rc;
}

/* Gets the picture for the view, from the cache or by decoding, and the window in it. */
static int find_picture(const struct cnn_images *set, struct cnn_images_scratch *s,
                        const struct cnn_image_id *id, const struct cnn_view *view, struct cnn_draws *draws,
                        struct cnn_window *window, struct cnn_picture *picture, struct ps_error *why)
{
    const struct cnn_picture_format *format;
    uint32_t width, height;
    size_t len;
    if (set->cache != NULL && cnn_cache_picture(set->cache, id->split, id->index, picture)) {
        *window = cnn_images_window(set, id, view, picture->width, picture->height, draws);
        return 0;
    }
    int rc = read_size(set, &set->list.of[id->split].rows[id->index], s, &len, &format, &width, &height, why);
    if (rc != 0)
        return rc;
    *window = cnn_images_window(set, id, view, width, height, draws);
    uint32_t scale = cnn_window_scale(window, width, height);
    struct cnn_part part = cnn_window_part(window, (width + scale - 1) / scale, (height + scale - 1) / scale,
                                           view->width, view->height);
    rc = format->decode(&s->decoder, s->file, len, scale, &part, why);
    *picture = cnn_decoder_picture(&s->decoder);
    return rc;
}

static int make_view(const struct cnn_images *set, struct cnn_images_scratch *s,
                     const struct cnn_image_id *id, const struct cnn_view *view, uint8_t *pixels,
                     struct ps_error *why)
{
    struct cnn_draws draws = {.id = id};
    struct cnn_window window;
    struct cnn_picture picture;
    int rc = find_picture(set, s, id, view, &draws, &window, &picture, why);
    if (rc == 0)
        rc = cnn_resample(&s->resampler, &picture, &window, view->width, view->height, pixels, why);
    if (rc == 0 && id->split == CNN_TRAIN && set->looks.jitter > 0)
        cnn_view_jitter(pixels, (size_t)view->width * view->height, set->looks.jitter, &draws);
    return rc;
}

static int images_make(const void *self, void *scratch, const struct cnn_image_id *id,
                       const struct cnn_view *view, uint8_t *pixels, uint16_t *label, struct ps_error *err)
{
    const struct cnn_images *set = self;
    struct ps_error why = {""};
    int rc = make_view(set, scratch, id, view, pixels, &why);
    *label = set->list.of[id->split].rows[id->index].label;
    if (rc == 0)
        return 0;
    return rc == -ENOMEM ? ps_fail(err, rc, "%s", why.text) : leave_out(set, id, why.text, err);
}

static void images_expect(const void *self, enum cnn_split split, uint32_t index)
{
    const struct cnn_images *set = self;
    if (set->n_shards > 0 && set->cache == NULL)
        cnn_images_expect(set, &set->list.of[split].rows[index]);
}

const struct cnn_data_type cnn_data_images = {
    .name = "images",
    .usage = "images:DIR|FILE.tar",
    .mean = {0.485f, 0.456f, 0.406f}, /* red, green, blue of ImageNet's training images */
    .deviation = {0.229f, 0.224f, 0.225f},
    .has_views = true,
    .open = images_open,
    .close = images_close,
    .check = images_check,
    .scratch = images_scratch,
    .drop_scratch = images_drop_scratch,
    .make = images_make,
    .expect = images_expect,
};
