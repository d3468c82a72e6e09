#include "nets/data/images/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The folder of the class in a path, [start, end), and the split; is_named: a folder of the path names it. */
struct place {
    size_t start, end;
    enum cnn_split split;
    bool is_named;
};

void cnn_list_finish(struct cnn_list *list)
{
    free(list->of[CNN_TRAIN].rows);
    free(list->of[CNN_TEST].rows);
    free(list->names);
    free(list->classes);
    free(list->class_names);
}

static bool is_split(const char *name, size_t len, enum cnn_split *split)
{
    static const char *const tests[] = {"val", "test", "validation"};
    *split = CNN_TRAIN;
    if (len == 5 && memcmp(name, "train", 5) == 0)
        return true;
    *split = CNN_TEST;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strlen(tests[i]) == len && memcmp(name, tests[i], len) == 0)
            return true;
    return false;
}

/* Finds the first folder, from the left, that has the name of a split and contains a folder. */
static bool read_path(const char *path, struct place *out)
{
    size_t last = 0, last_end = 0;
    for (size_t at = 0; path[at] != '\0';) {
        size_t end = at + strcspn(path + at, "/");
        enum cnn_split split;
        if (path[end] == '\0') /* the file itself */
            break;
        if (is_split(path + at, end - at, &split)) {
            size_t next = end + 1, next_end = next + strcspn(path + next, "/");
            if (path[next_end] == '/') {
                *out = (struct place){next, next_end, split, true};
                return true;
            }
        }
        last = at;
        last_end = end;
        at = end + 1;
    }
    *out = (struct place){last, last_end, CNN_TRAIN, false};
    return last_end > last;
}

bool cnn_list_is_image(const char *path)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot != NULL && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    return false;
}

bool cnn_list_is_hidden(const char *path)
{
    for (size_t at = 0, end; path[at] != '\0'; at = end + (path[end] == '/')) {
        end = at + strcspn(path + at, "/");
        if (path[at] == '.' && end - at > 1 && (path[at + 1] != '.' || end - at > 2))
            return true;
    }
    return false;
}

static bool add_name(struct cnn_list *list, const char *name, size_t len, uint64_t *at)
{
    if (list->n_names + len + 1 > list->room) {
        uint64_t room = 2 * (list->room + len + 1) + 4096;
        char *names = realloc(list->names, room);
        if (names == NULL)
            return false;
        list->names = names;
        list->room = room;
    }
    *at = list->n_names;
    memcpy(list->names + *at, name, len);
    list->names[*at + len] = '\0';
    list->n_names += len + 1;
    return true;
}

static bool add_row(struct cnn_entries *e, const struct cnn_entry *row)
{
    if (e->n == e->room) {
        uint32_t room = 2 * e->room + 256;
        struct cnn_entry *rows = realloc(e->rows, room * sizeof *rows);
        if (rows == NULL)
            return false;
        e->rows = rows;
        e->room = room;
    }
    e->rows[e->n++] = *row;
    return true;
}

int cnn_list_add(struct cnn_list *list, const char *path, uint64_t at, uint32_t bytes, uint16_t shard,
                 struct ps_error *err)
{
    struct place place;
    struct cnn_entry row = {.at = at, .bytes = bytes, .shard = shard};
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    if (!cnn_list_is_image(path) || cnn_list_is_hidden(path)) {
        list->n_others++;
        return 0;
    }
    if (!read_path(path, &place))
        return ps_fail(err, -EBADMSG,
                       "%.200s: an image outside a class folder; allowed: CLASS/NAME, "
                       "train/CLASS/NAME, val/CLASS/NAME or test/CLASS/NAME",
                       path);
    if (list->of[place.split].n == CNN_MAX_IMAGES)
        return ps_fail(err, -EBADMSG, "%.200s: more images follow; allowed: at most %d", path,
                       CNN_MAX_IMAGES);
    if (!add_name(list, path, strlen(path), &row.path) || !add_row(&list->of[place.split], &row))
        return ps_fail(err, -ENOMEM, "no memory for the names of the images");
    if (list->first[place.is_named] == 0)
        list->first[place.is_named] = row.path + 1;
    return 0;
}

/* Otherwise a val/ without folders of classes would be one more class of training images. */
static int refuse_mixed(const struct cnn_list *list, struct ps_error *err)
{
    if (list->first[0] == 0 || list->first[1] == 0)
        return 0;
    return ps_fail(err, -EBADMSG,
                   "%.200s is in train/CLASS/, val/CLASS/ or test/CLASS/, and %.200s is not; "
                   "allowed: all images, or none",
                   cnn_list_name(list, list->first[1] - 1), cnn_list_name(list, list->first[0] - 1));
}

static int by_path(const void *a, const void *b, void *names)
{
    return strcmp((char *)names + ((const struct cnn_entry *)a)->path,
                  (char *)names + ((const struct cnn_entry *)b)->path);
}

/* A class during numbering: a path of one of its images, and the position of the class name in it. */
struct class
{
    const char *path;
    struct place place;
};

static int by_class(const void *a, const void *b)
{
    const struct class *x = a, *y = b;
    size_t n = x->place.end - x->place.start, m = y->place.end - y->place.start;
    int order = memcmp(x->path + x->place.start, y->path + y->place.start, n < m ? n : m);
    return order != 0 ? order : (n > m) - (n < m);
}

static struct class class_of(const struct cnn_list *list, const struct cnn_entry *e)
{
    struct class c = {.path = cnn_list_name(list, e->path)};
    read_path(c.path, &c.place); /* the same path was parsed when it was added */
    return c;
}

static bool is_one_folder(const struct class *a, const struct class *b)
{
    return a->place.end == b->place.end && memcmp(a->path, b->path, a->place.end) == 0;
}

/* Sorts the classes of the training images and removes duplicates. classes: one entry for each image whose
 * predecessor is of another class. */
static int sort_classes(struct class *classes, uint32_t *n, struct ps_error *err)
{
    uint32_t kept = 0;
    qsort(classes, *n, sizeof *classes, by_class);
    for (uint32_t i = 0; i < *n; i++) {
        if (kept == 0 || by_class(&classes[kept - 1], &classes[i]) != 0) {
            classes[kept++] = classes[i];
            continue;
        }
        const struct class *a = &classes[kept - 1], *b = &classes[i];
        if (!is_one_folder(a, b))
            return ps_fail(err, -EBADMSG,
                           "two classes with the same name: %.*s and %.*s; allowed: one folder per class",
                           (int)(a->place.end < 150 ? a->place.end : 150), a->path,
                           (int)(b->place.end < 150 ? b->place.end : 150), b->path);
    }
    *n = kept;
    return 0;
}

static int find_classes(const struct cnn_list *list, struct class **out, uint32_t *n, struct ps_error *err)
{
    const struct cnn_entries *e = &list->of[CNN_TRAIN];
    struct class *classes = malloc((e->n > 0 ? e->n : 1) * sizeof *classes);
    if (classes == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the classes of %u images", e->n);
    *n = 0;
    for (uint32_t i = 0; i < e->n; i++) { /* most images follow another of the same class */
        struct class c = class_of(list, &e->rows[i]);
        if (*n == 0 || !is_one_folder(&classes[*n - 1], &c))
            classes[(*n)++] = c;
    }
    *out = classes;
    return sort_classes(classes, n, err);
}

static int label_images(struct cnn_list *list, enum cnn_split split, const struct class *classes, uint32_t n,
                        struct ps_error *err)
{
    struct cnn_entries *e = &list->of[split];
    for (uint32_t i = 0; i < e->n; i++) {
        struct class wanted = class_of(list, &e->rows[i]);
        const struct class *found = bsearch(&wanted, classes, n, sizeof *classes, by_class);
        if (found == NULL)
            return ps_fail(err, -EBADMSG, "%.200s: a test image of a class that has no training images",
                           wanted.path);
        e->rows[i].label = (uint16_t)(found - classes);
    }
    return 0;
}

/* Classes point into `names`, which moves when it grows. So memory for all class names is reserved first. */
static int keep_names(struct cnn_list *list, const struct class *classes, uint32_t n, struct ps_error *err)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < n; i++)
        bytes += classes[i].place.end - classes[i].place.start + 1;
    char *names = malloc(bytes), *to = names;
    list->classes = calloc(n, sizeof *list->classes);
    if (names == NULL || list->classes == NULL) {
        free(names);
        return ps_fail(err, -ENOMEM, "no memory for the names of %u classes", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t len = classes[i].place.end - classes[i].place.start;
        memcpy(to, classes[i].path + classes[i].place.start, len);
        to[len] = '\0';
        list->classes[i] = (uint64_t)(to - names);
        to += len + 1;
    }
    list->class_names = names;
    list->n_classes = n;
    return 0;
}

/* Every tenth image of each class becomes a test image. */
static int hold_out(struct cnn_list *list, struct ps_error *err)
{
    struct cnn_entries *train = &list->of[CNN_TRAIN];
    uint32_t *seen = calloc(list->n_classes, sizeof *seen), kept = 0;
    if (seen == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %u classes", list->n_classes);
    for (uint32_t i = 0; i < train->n; i++) {
        struct cnn_entry row = train->rows[i];
        if (++seen[row.label] % 10 != 0)
            train->rows[kept++] = row;
        else if (!add_row(&list->of[CNN_TEST], &row)) {
            free(seen);
            return ps_fail(err, -ENOMEM, "no memory for the test images");
        }
    }
    train->n = kept;
    free(seen);
    return 0;
}

int cnn_list_seal(struct cnn_list *list, bool sorts, const char *what, struct ps_error *err)
{
    struct class *classes = NULL;
    uint32_t n = 0;
    for (int split = 0; sorts && split < 2; split++)
        if (list->of[split].n > 0)
            qsort_r(list->of[split].rows, list->of[split].n, sizeof *list->of[split].rows, by_path,
                    list->names);
    if (list->of[CNN_TRAIN].n == 0)
        return ps_fail(err, -EBADMSG,
                       "%.160s: no training images; allowed: JPEG and PNG files in CLASS/ or train/CLASS/",
                       what);
    int rc = refuse_mixed(list, err);
    if (rc == 0)
        rc = find_classes(list, &classes, &n, err);
    if (rc == 0 && (n < 2 || n > CNN_MAX_CLASSES))
        rc = ps_fail(err, -EBADMSG, "%.160s: %u class%s; allowed: 2 to %d", what, n, n == 1 ? "" : "es",
                     CNN_MAX_CLASSES);
    if (rc == 0)
        rc = label_images(list, CNN_TRAIN, classes, n, err);
    if (rc == 0)
        rc = label_images(list, CNN_TEST, classes, n, err);
    if (rc == 0)
        rc = keep_names(list, classes, n, err);
    if (rc == 0 && list->of[CNN_TEST].n == 0)
        rc = hold_out(list, err);
    free(classes);
    return rc;
}
