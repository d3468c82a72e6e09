/* Seeds of the targets that read images: archives, JPEG and PNG files, caches. */
#include <png.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

#include "nets/data/images/cache.h"
#include "tests/fuzz/seeds.h"
#include "tests/nets/data/tar_bytes.h"

enum { WIDTH = 56, HEIGHT = 44 }; /* several blocks */

static void make_pixels(uint8_t rgb[WIDTH * HEIGHT * 4])
{
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT * 4; i++)
        rgb[i] = (uint8_t)(i * 7 + i / 97 * 13);
}

static void make_tars(void)
{
    static const char *const names[] = {"train/a/1.png", "train/b/1.jpg", "val/a/2.png", "README"};
    char long_name[300], record[512];
    struct tar_bytes t = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tar_file(&t, names[i], "bytes", 5);
    tar_end(&t);
    write_seed("tar", "plain", t.bytes, t.len);
    t.len -= 1024; /* links in place of the end */
    tar_link(&t, '1', "train/a/hard.jpg", names[0]);
    tar_link(&t, '2', "train/b/soft.jpg", "../a/./hard.jpg");
    tar_link(&t, '2', "train/b/lost.jpg", "../../../../c");
    tar_link(&t, '2', "c", "a");
    write_seed("tar", "links", t.bytes, t.len);
    t.len = 0;
    memset(long_name, 'n', sizeof long_name - 1);
    memcpy(long_name, "a/b/", 4);
    memcpy(long_name + sizeof long_name - 5, ".jpg", 5);
    tar_header(&t, 'L', "", "long", sizeof long_name);
    tar_body(&t, long_name, sizeof long_name);
    tar_file(&t, "cut", "bytes", 5);
    int n = snprintf(record, sizeof record, "309 path=%s\n9 size=5\n", long_name);
    tar_header(&t, 'x', "", "pax", (uint64_t)n);
    tar_body(&t, record, (size_t)n);
    tar_file(&t, "cut", "bytes", 5);
    tar_header(&t, '0', "prefix/c", "1.jpg", 0);
    write_seed("tar", "long", t.bytes, t.len);
    free(t.bytes);
}

static void make_jpegs(void)
{
    static const struct {
        const char *name;
        int format, sampling, flags;
    } kinds[] = {{"jpeg", TJPF_RGB, TJSAMP_420, 0},
                 {"grey", TJPF_RGB, TJSAMP_GRAY, 0},
                 {"progressive", TJPF_RGB, TJSAMP_444, TJFLAG_PROGRESSIVE},
                 {"cmyk", TJPF_CMYK, TJSAMP_444, 0}};
    uint8_t pixels[WIDTH * HEIGHT * 4];
    tjhandle handle = tjInitCompress();
    make_pixels(pixels);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        unsigned char *out = NULL;
        unsigned long len = 0;
        if (tjCompress2(handle, pixels, WIDTH, 0, HEIGHT, kinds[i].format, &out, &len, kinds[i].sampling, 50,
                        kinds[i].flags) != 0)
            abort();
        uint8_t *seed = malloc(len + 1);
        if (seed == NULL)
            abort();
        seed[0] = (uint8_t)i;
        memcpy(seed + 1, out, len);
        write_seed("picture", kinds[i].name, seed, len + 1);
        free(seed);
        tjFree(out);
    }
    tjDestroy(handle);
}

static void make_pngs(void)
{
    static const struct {
        const char *name;
        uint32_t format;
    } kinds[] = {{"png", PNG_FORMAT_RGB}, {"alpha", PNG_FORMAT_RGBA}, {"png-grey", PNG_FORMAT_GRAY}};
    uint8_t pixels[WIDTH * HEIGHT * 4], seed[8192] = {0};
    make_pixels(pixels);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        png_image image = {
            .version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT, .format = kinds[i].format};
        png_alloc_size_t len = sizeof seed - 1;
        seed[0] = (uint8_t)(i + 4);
        if (!png_image_write_to_memory(&image, seed + 1, &len, 0, pixels, 0, NULL))
            abort();
        write_seed("picture", kinds[i].name, seed, len + 1);
    }
}

/* As the target asks for them: two training images and a test image, which could not be read. */
static void make_caches(void)
{
    enum { IMAGES = 3, PIXELS = 3 * 8 * 9, AT = CNN_CACHE_HEADER + IMAGES * CNN_CACHE_ROW };
    uint8_t seed[1 + AT + 2 * PIXELS] = {2}, *file = seed + 1;
    const struct cnn_cache_wish wish = {.side = 8, .n_train = 2, .n_test = 1, .key = 7};
    for (int i = 0; i < 2; i++) {
        memset(file + AT + i * PIXELS, 10 + i, PIXELS);
        cnn_cache_pack_row((uint64_t)(AT + i * PIXELS), 8, 9, cnn_cache_sum(file + AT + i * PIXELS, PIXELS),
                           file + CNN_CACHE_HEADER + i * CNN_CACHE_ROW);
    }
    cnn_cache_pack_header(&wish, sizeof seed - 1,
                          cnn_cache_sum(file + CNN_CACHE_HEADER, IMAGES * CNN_CACHE_ROW), file);
    write_seed("cache", "whole", seed, sizeof seed);
    seed[0] |= 4;
    write_seed("cache", "sealed", seed, sizeof seed);
}

void make_image_seeds(void)
{
    make_tars();
    make_jpegs();
    make_pngs();
    make_caches();
}
