#include "tests/nets/data/image_files.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>
#include <zlib.h>

static char folder[64];

struct file_bytes jpeg_of(enum jpeg_kind kind, const uint8_t *rgb, uint32_t width, uint32_t height)
{
    static const int samplings[] = {TJSAMP_444, TJSAMP_420, TJSAMP_422,  TJSAMP_440,
                                    TJSAMP_411, TJSAMP_444, TJSAMP_GRAY, TJSAMP_444};
    tjhandle handle = tjInitCompress();
    unsigned char *out = NULL, *cmyk = NULL;
    unsigned long len = 0;
    const unsigned char *from = rgb;
    if (kind == JPEG_CMYK) { /* inverted, as Adobe has it */
        from = cmyk = malloc((size_t)width * height * 4);
        for (size_t i = 0; i < (size_t)width * height; i++) {
            memcpy(cmyk + 4 * i, rgb + 3 * i, 3);
            cmyk[4 * i + 3] = 255;
        }
    }
    ck_assert_int_eq(tjCompress2(handle, from, (int)width, 0, (int)height,
                                 kind == JPEG_CMYK ? TJPF_CMYK : TJPF_RGB, &out, &len, samplings[kind], 95,
                                 kind == JPEG_PROGRESSIVE ? TJFLAG_PROGRESSIVE : 0),
                     0);
    struct file_bytes f = {malloc(len), len};
    memcpy(f.bytes, out, len);
    tjFree(out);
    free(cmyk);
    tjDestroy(handle);
    return f;
}

static uint32_t png_format(enum png_kind kind)
{
    return kind == PNG_16_BIT    ? PNG_FORMAT_LINEAR_RGB
           : kind == PNG_ALPHA   ? PNG_FORMAT_RGBA
           : kind == PNG_GREY    ? PNG_FORMAT_GRAY
           : kind == PNG_PALETTE ? PNG_FORMAT_RGB_COLORMAP
                                 : PNG_FORMAT_RGB;
}

/* What libpng takes of that kind. Every colour of a palette is that of some pixel. */
static void *png_pixels(enum png_kind kind, const uint8_t *rgb, size_t n, uint8_t colours[256][3])
{
    uint8_t *bytes = calloc(n, 6);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = rgb + 3 * i;
        if (kind == PNG_16_BIT)
            for (size_t c = 0; c < 3; c++)
                ((uint16_t *)(void *)bytes)[3 * i + c] = (uint16_t)(p[c] * 257);
        else if (kind == PNG_ALPHA)
            memcpy(bytes + 4 * i, (uint8_t[]){p[0], p[1], p[2], 255}, 4);
        else if (kind == PNG_GREY)
            bytes[i] = p[0];
        else if (kind == PNG_PALETTE) {
            bytes[i] = (uint8_t)(i % 256);
            memcpy(colours[i % 256], p, 3);
        } else
            memcpy(bytes + 3 * i, p, 3);
    }
    return bytes;
}

struct file_bytes png_of(enum png_kind kind, const uint8_t *rgb, uint32_t width, uint32_t height)
{
    uint8_t colours[256][3] = {{0}};
    png_image image = {.version = PNG_IMAGE_VERSION, .width = width, .height = height};
    image.format = png_format(kind);
    image.colormap_entries = kind == PNG_PALETTE ? 256 : 0;
    void *pixels = png_pixels(kind, rgb, (size_t)width * height, colours);
    struct file_bytes f = {NULL, PNG_IMAGE_PNG_SIZE_MAX(image)};
    f.bytes = malloc(f.len);
    ck_assert_msg(png_image_write_to_memory(&image, f.bytes, &f.len, 0, pixels, 0, colours), "%s",
                  image.message);
    free(pixels);
    return f;
}

static uint8_t *flat(uint32_t width, uint32_t height, const uint8_t colour[3])
{
    uint8_t *rgb = malloc((size_t)width * height * 3);
    for (size_t i = 0; i < (size_t)width * height; i++)
        memcpy(rgb + 3 * i, colour, 3);
    return rgb;
}

struct file_bytes flat_jpeg(uint32_t width, uint32_t height, const uint8_t colour[3])
{
    uint8_t *rgb = flat(width, height, colour);
    struct file_bytes f = jpeg_of(JPEG_PLAIN, rgb, width, height);
    free(rgb);
    return f;
}

struct file_bytes flat_png(uint32_t width, uint32_t height, const uint8_t colour[3])
{
    uint8_t *rgb = flat(width, height, colour);
    struct file_bytes f = png_of(PNG_PLAIN, rgb, width, height);
    free(rgb);
    return f;
}

void jpeg_claims(struct file_bytes f, uint16_t width, uint16_t height)
{
    for (size_t i = 0; i + 9 < f.len; i++)
        if (f.bytes[i] == 0xff && (f.bytes[i + 1] == 0xc0 || f.bytes[i + 1] == 0xc2)) { /* start of frame */
            f.bytes[i + 5] = (uint8_t)(height >> 8);
            f.bytes[i + 6] = (uint8_t)height;
            f.bytes[i + 7] = (uint8_t)(width >> 8);
            f.bytes[i + 8] = (uint8_t)width;
            return;
        }
    ck_abort_msg("a JPEG file without a frame");
}

static void put_32(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (24 - 8 * i));
}

void png_claims(struct file_bytes f, uint32_t width, uint32_t height)
{
    put_32(f.bytes + 16, width);
    put_32(f.bytes + 20, height);
    put_32(f.bytes + 29, (uint32_t)crc32(0, f.bytes + 12, 17));
}

const char *image_folder(void)
{
    if (*folder == '\0') {
        strcpy(folder, "/tmp/psd-test-images-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(folder));
    }
    return folder;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void image_folder_remove(void)
{
    if (*folder != '\0')
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *folder = '\0';
}

void write_file(const char *path, const void *bytes, size_t len)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", image_folder(), path);
    for (char *slash = full + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        ck_assert(mkdir(full, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *out = fopen(full, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, len, out), len);
    ck_assert_int_eq(fclose(out), 0);
}

void write_image(const char *path, struct file_bytes f)
{
    write_file(path, f.bytes, f.len);
    free(f.bytes);
}
