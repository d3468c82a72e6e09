/* codes.h: what the kernels of codecs.cuh are told. Private to client/memory/cuda. */
#ifndef PSC_MEMORY_CUDA_CODES_H
#define PSC_MEMORY_CUDA_CODES_H

#include <stdint.h>

/* Pieces of one launch: a kernel's parameters have 4 KiB. */
enum { PSC_CODE_PIECES = 64 };
/* Values that a block of threads takes at a time: a block of int8, and whole blocks of int4. */
enum { PSC_CODE_TILE = 1024, PSC_CODE_THREADS = 256 };

/* A part of the vector whose values have one role. */
struct psc_code_segment {
    uint64_t begin;   /* its first value */
    uint64_t buffers; /* values of the vector before it that are buffers */
    uint32_t is_frozen, is_buffer;
};

/* A piece of a message, and its payload. */
struct psc_code_piece {
    uint64_t begin;      /* its first value in the vector */
    uint64_t from;       /* ... and in the message */
    uint64_t to;         /* its first byte in the room */
    uint32_t count;      /* its values */
    uint32_t kept;       /* of topk: those that travel */
    uint32_t tail;       /* the bytes before its buffers, in a codec for moves */
    uint32_t first_tile; /* of the launch */
};

struct psc_code {
    const float *message;
    float *error; /* of the whole vector; NULL: no error feedback */
    const struct psc_code_segment *segments;
    unsigned char *room;
    unsigned long long *first; /* encoding: the least index of a value that is not finite; NULL: not wanted */
    uint32_t n_segments;
    uint32_t form; /* the codec's id; 0: the floats themselves */
    uint32_t has_tail;
    uint32_t n, n_tiles;
    struct psc_code_piece at[PSC_CODE_PIECES];
};

#endif
