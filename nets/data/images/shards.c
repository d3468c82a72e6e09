/* The images of a tar file, or of all tar files in a folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/data/images/images.h"
#include "nets/data/images/links.h"
#include "nets/data/images/tar.h"
#include "proto/log.h"

/* Members of a shard in a folder with the name of a split belong to that split. */
static const char *const folders[] = {"", "train/", "val/", "test/", "validation/"};
enum { N_FOLDERS = sizeof folders / sizeof *folders };

static int add_members(struct cnn_images *set, const char *prefix, uint16_t shard, struct ps_error *err)
{
    struct cnn_tar tar;
    struct cnn_tar_member member;
    struct cnn_links links = {0};
    const uint32_t first[2] = {set->list.of[CNN_TRAIN].n, set->list.of[CNN_TEST].n};
    char path[CNN_TAR_MAX_NAME + 16];
    int rc = cnn_tar_open(&tar, set->shards[shard], err);
    while (rc == 0 && (rc = cnn_tar_next(&tar, &member, err)) == 1) {
        while (strncmp(member.name, "./", 2) == 0)
            member.name += 2;
        if (member.link != NULL) {
            rc = cnn_links_add(&links, prefix, &member, err);
            continue;
        }
        snprintf(path, sizeof path, "%s%s", prefix, member.name);
        rc = cnn_list_add(&set->list, path, member.at,
                          member.bytes < UINT32_MAX ? (uint32_t)member.bytes : UINT32_MAX, shard, err);
    }
    if (rc == 0)
        rc = cnn_links_resolve(&links, &set->list, first, shard, &set->n_lost_links, err);
    cnn_links_finish(&links);
    return rc;
}

static bool has_images(const struct cnn_images *set)
{
    return set->list.of[CNN_TRAIN].n + set->list.of[CNN_TEST].n > 0;
}

static int add_shard(struct cnn_images *set, const char *path, const char *prefix, struct ps_error *err)
{
    struct ps_error why = {""};
    if (set->n_shards == CNN_MAX_SHARDS)
        return ps_fail(err, -EINVAL, "%.200s: more tar files follow; allowed: at most %d", path,
                       CNN_MAX_SHARDS);
    int *shards = realloc(set->shards, (set->n_shards + 1) * sizeof *shards);
    if (shards == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %u tar files", set->n_shards + 1);
    set->shards = shards;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return ps_fail(err, -errno, "%.200s: cannot be opened: %s", path, strerror(errno));
    shards[set->n_shards++] = fd;
    int rc = add_members(set, prefix, (uint16_t)(set->n_shards - 1), &why);
    if (rc < 0)
        return ps_fail(err, rc, "%.200s: %.250s", path, why.text);
    if (set->tar == NULL && has_images(set) && (set->tar = strdup(path)) == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the path of a tar file");
    return 0;
}

static int is_tar(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return e->d_name[0] != '.' && dot != NULL && strcmp(dot, ".tar") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_folder(struct cnn_images *set, const char *prefix, struct ps_error *err)
{
    char folder[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
    struct dirent **names = NULL;
    int rc = 0;
    if (snprintf(folder, sizeof folder, "%s/%s", set->what, prefix) >= (int)sizeof folder)
        return ps_fail(err, -ENAMETOOLONG, "the path of the images is longer than %d bytes", PATH_MAX - 1);
    int n = scandir(folder, &names, is_tar, by_name);
    if (n < 0 && errno != ENOENT && errno != ENOTDIR)
        return ps_fail(err, -errno, "%.200s: cannot be read: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s%s", folder, names[i]->d_name);
        if (rc == 0)
            rc = add_shard(set, path, prefix, err);
        free(names[i]);
    }
    free(names);
    return rc;
}

/* Tar files of other things, such as labels, leave a folder of images as it is. */
static void drop_shards(struct cnn_images *set)
{
    while (set->n_shards > 0)
        close(set->shards[--set->n_shards]);
    cnn_list_finish(&set->list);
    set->list = (struct cnn_list){0};
}

/* Only one of the two would be read: perhaps the training images without the test images. */
static int refuse_files(const struct cnn_images *set, struct ps_error *err)
{
    char path[PATH_MAX];
    int rc = cnn_list_find_image(set->what, path, err);
    return rc == 1 ? ps_fail(err, -EBADMSG,
                             "both tar files and image files: %.200s and %.200s; allowed: one of the two",
                             set->tar, path)
                   : rc;
}

static int add_folders(struct cnn_images *set, struct ps_error *err)
{
    int rc = 0;
    for (int i = 0; i < N_FOLDERS && rc == 0; i++)
        rc = add_folder(set, folders[i], err);
    if (rc == 0 && set->tar != NULL)
        return refuse_files(set, err);
    if (rc == 0)
        drop_shards(set);
    return rc;
}

int cnn_images_add_shards(struct cnn_images *set, struct ps_error *err)
{
    struct stat st;
    int rc;
    if (stat(set->what, &st) != 0)
        return ps_fail(err, -errno, "%.200s: cannot be opened: %s; allowed: a folder of images or a tar file",
                       set->what, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        rc = add_shard(set, set->what, "", err);
    else
        rc = add_folders(set, err);
    if (rc == 0 && set->n_lost_links > 0)
        ps_log(PS_LOG_WARN, "data.links",
               "%s: %u links are left out: each leads to a folder, or to no image of its tar file", set->what,
               set->n_lost_links);
    return rc;
}
