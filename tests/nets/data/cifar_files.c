#include "tests/nets/data/cifar_files.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const cifar_names[CIFAR_N_FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

uint8_t cifar_pixel(uint32_t file, uint32_t image, uint32_t channel, uint32_t y, uint32_t x)
{
    const uint32_t of_channel[] = {5 + 7 * y, 5 + 7 * x, 100 + file * CIFAR_PER_FILE + image};
    return (uint8_t)of_channel[channel];
}

uint8_t cifar_label(uint32_t file, uint32_t image)
{
    return (uint8_t)((file * CIFAR_PER_FILE + image) % 10);
}

void cifar_fill(uint32_t file, uint8_t *bytes)
{
    for (uint32_t i = 0; i < CIFAR_PER_FILE; i++) {
        *bytes++ = cifar_label(file, i);
        for (uint32_t k = 0; k < 3072; k++)
            *bytes++ = cifar_pixel(file, i, k / 1024, k % 1024 / 32, k % 32);
    }
}

void cifar_write(const char *dir, uint32_t file, const uint8_t *bytes, size_t len)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, cifar_names[file]);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

void cifar_make_dir(char dir[64])
{
    static uint8_t bytes[CIFAR_FILE_BYTES];
    strcpy(dir, "/tmp/psd-test-cifar-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (uint32_t f = 0; f < CIFAR_N_FILES; f++) {
        cifar_fill(f, bytes);
        cifar_write(dir, f, bytes, sizeof bytes);
    }
}

void cifar_remove_dir(const char *dir)
{
    char path[160];
    for (int f = 0; f < CIFAR_N_FILES; f++) {
        snprintf(path, sizeof path, "%s/%s", dir, cifar_names[f]);
        unlink(path);
        rmdir(path);
    }
    rmdir(dir);
}
