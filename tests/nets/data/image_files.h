/* image_files.h: small JPEG and PNG files that tests write. */
#ifndef TEST_DATA_IMAGE_FILES_H
#define TEST_DATA_IMAGE_FILES_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of a file, to be written or spoilt first. */
struct file_bytes {
    uint8_t *bytes;
    size_t len;
};

/* JPEG_PLAIN has its colours at full resolution, JPEG_HALF at half of it, as cameras have; JPEG_WIDE at half
 * of the columns, JPEG_TALL at half of the rows, JPEG_QUARTER at a quarter of the columns. */
enum jpeg_kind {
    JPEG_PLAIN,
    JPEG_HALF,
    JPEG_WIDE,
    JPEG_TALL,
    JPEG_QUARTER,
    JPEG_PROGRESSIVE,
    JPEG_GREY,
    JPEG_CMYK,
    N_JPEG_KINDS
};
enum png_kind { PNG_PLAIN, PNG_16_BIT, PNG_ALPHA, PNG_PALETTE, PNG_GREY };

/* rgb: [height][width][3]. PNG_PALETTE has room for 256 colours. The caller frees the bytes. */
struct file_bytes jpeg_of(enum jpeg_kind kind, const uint8_t *rgb, uint32_t width, uint32_t height);
struct file_bytes png_of(enum png_kind kind, const uint8_t *rgb, uint32_t width, uint32_t height);

/* Of one colour. */
struct file_bytes flat_jpeg(uint32_t width, uint32_t height, const uint8_t colour[3]);
struct file_bytes flat_png(uint32_t width, uint32_t height, const uint8_t colour[3]);

/* Other sizes in a file's header, its checksum made to fit. */
void jpeg_claims(struct file_bytes f, uint16_t width, uint16_t height);
void png_claims(struct file_bytes f, uint32_t width, uint32_t height);

/* A folder that ends with the test case's process; path below it, folders made as needed. */
const char *image_folder(void);
void image_folder_remove(void);
void write_file(const char *path, const void *bytes, size_t len);
void write_image(const char *path, struct file_bytes f); /* and frees the bytes */

#endif
