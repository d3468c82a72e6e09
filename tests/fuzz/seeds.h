/* seeds.h: what the files that make seeds share. */
#ifndef FUZZ_SEEDS_H
#define FUZZ_SEEDS_H

#include <stddef.h>

/* In folder DIR/target, the current directory being DIR. Ends the program when it cannot. */
void write_seed(const char *target, const char *name, const void *bytes, size_t len);

/* DIR/tar, DIR/picture and DIR/cache. */
void make_image_seeds(void);

#endif
