/* passes.h: a table of passes over vectors, which one launch makes. Private to client/memory/cuda. */
#ifndef PSC_MEMORY_CUDA_PASSES_H
#define PSC_MEMORY_CUDA_PASSES_H

#include <stdint.h>

/* Passes of one launch: a kernel's parameters have 4 KiB. */
enum { PSC_PASSES = 40 };
/* Values of a pass that a block of threads takes at a time. */
enum { PSC_PASS_TILE = 4096 };

/* The functions of struct psc_kernels. */
enum psc_pass_kind {
    PSC_PASS_AXPY,
    PSC_PASS_SCALE,
    PSC_PASS_COPY,
    PSC_PASS_SUBTRACT,
    PSC_PASS_DECAY,
    PSC_PASS_ELASTIC,
    PSC_PASS_APPROACH,
    PSC_PASS_REBASE,
    PSC_PASS_REBASE_MIXED,
    PSC_PASS_HEAVY_BALL,
    PSC_PASS_NESTEROV,
    PSC_PASS_LOOK,
    PSC_PASS_ADMM_MESSAGE,
    PSC_PASS_ADMM_LAND,
    PSC_PASS_ADMM_RESTART
};

/* One pass: to[i] and maybe also[i] from the others. */
struct psc_pass {
    uint64_t n;
    uint64_t at;         /* where it is watched: the index of to[0] */
    float *to, *also;    /* [n] */
    const float *in[3];  /* [n] */
    float a, b, c;       /* as the kind has them */
    uint32_t first_tile; /* of the launch */
    uint16_t kind;       /* enum psc_pass_kind */
    uint16_t is_watched; /* values of `to` that are not finite are noted */
};

struct psc_passes {
    uint32_t n, n_tiles;
    unsigned long long *first; /* the least index of a value that is not finite */
    struct psc_pass at[PSC_PASSES];
};

#endif
