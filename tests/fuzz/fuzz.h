/* fuzz.h: what the fuzz targets share. A target is one file: LLVMFuzzerTestOneInput is given bytes as a peer,
 * a disk or a user may give them, and checks more than that nothing crashes: promise() what the parser says
 * of its results. Built with libFuzzer (-Dfuzz=true), or with replay.c, which runs the seeds once. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define promise(held)                                                                                        \
    do {                                                                                                     \
        if (!(held)) {                                                                                       \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #held);                       \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* 0: the input may stay in the corpus. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#endif
