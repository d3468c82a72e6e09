/* cifar_files.h: small files of CIFAR-10's format, whose pixels tell where they come from. */
#ifndef TEST_CIFAR_FILES_H
#define TEST_CIFAR_FILES_H

#include <stddef.h>
#include <stdint.h>

enum { CIFAR_N_FILES = 6, CIFAR_PER_FILE = 4, CIFAR_FILE_BYTES = CIFAR_PER_FILE * 3073 };

extern const char *const cifar_names[CIFAR_N_FILES];

/* Red tells the row, green the column, blue the image: none of them is 0, which is the pad's. */
uint8_t cifar_pixel(uint32_t file, uint32_t image, uint32_t channel, uint32_t y, uint32_t x);
uint8_t cifar_label(uint32_t file, uint32_t image);

/* bytes [CIFAR_FILE_BYTES] of file number `file`, the last is the test split. */
void cifar_fill(uint32_t file, uint8_t *bytes);

/* A new folder under /tmp with six good files; removed with all that a test may have put in their places. */
void cifar_make_dir(char dir[64]);
void cifar_remove_dir(const char *dir);
void cifar_write(const char *dir, uint32_t file, const uint8_t *bytes, size_t len);

#endif
