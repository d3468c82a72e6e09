/* Tar files, and the image sets made of their members: what a member is said to be lies in the file, and
 * every image has a class. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nets/data/images/links.h"
#include "nets/data/images/list.h"
#include "nets/data/images/tar.h"
#include "tests/fuzz/fuzz.h"

static void check_list(struct cnn_list *list, uint32_t n)
{
    struct ps_error err = {""};
    if (cnn_list_seal(list, n % 2 == 0, "SET", &err) < 0) {
        promise(*err.text != '\0');
        return;
    }
    promise(list->n_classes >= 2 && list->of[0].n >= 1 &&
            list->of[0].n + list->of[1].n + list->n_others == n);
    for (int split = 0; split < 2; split++)
        for (uint32_t i = 0; i < list->of[split].n; i++)
            promise(list->of[split].rows[i].label < list->n_classes);
    for (uint32_t c = 1; c < list->n_classes; c++)
        promise(strcmp(list->class_names + list->classes[c - 1], list->class_names + list->classes[c]) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int fd = -1;
    struct ps_error err = {""};
    struct cnn_tar tar;
    struct cnn_tar_member m;
    struct cnn_list list = {0};
    struct cnn_links links = {0};
    uint32_t n = 0, n_lost = 0;
    int rc;

    if (fd < 0)
        fd = memfd_create("tar", MFD_CLOEXEC);
    promise(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, len, 0) == (ssize_t)len);
    promise(cnn_tar_open(&tar, fd, &err) == 0);
    uint64_t before = 0;
    while ((rc = cnn_tar_next(&tar, &m, &err)) == 1) {
        promise(m.at >= before + CNN_TAR_BLOCK && m.at <= len && m.bytes <= len - m.at);
        promise(strlen(m.name) <= CNN_TAR_MAX_NAME);
        promise(m.link == NULL || (m.bytes == 0 && strlen(m.link) <= CNN_TAR_MAX_NAME));
        before = m.at + m.bytes;
        if (m.link != NULL)
            promise(cnn_links_add(&links, "", &m, &err) == 0);
        else if (cnn_list_add(&list, m.name, m.at, (uint32_t)m.bytes, 0, &err) < 0)
            break;
        n++;
    }
    promise(rc >= 0 || strncmp(err.text, "byte ", 5) == 0);
    if (cnn_links_resolve(&links, &list, (uint32_t[2]){0}, 0, &n_lost, &err) == 0)
        check_list(&list, n - n_lost);
    cnn_links_finish(&links);
    cnn_list_finish(&list);
    return 0;
}
