/* MPI's own collectives. A vector goes in pieces, between which the watchdog sees progress. */
#include "client/cliques/mpi/pieces.h"

#include <string.h>

#include "client/cliques/mpi/mpi.h"

/* Values in a piece. Far below INT_MAX, and large enough for full speed. */
#define PIECE ((size_t)1 << 24)

#define FOLD(type, operation)                                                                                \
    static void fold_##type##_##operation(void *in, void *inout, int *n, MPI_Datatype *t)                    \
    {                                                                                                        \
        (void)t;                                                                                             \
        psc_values_of(type)->fold[operation](inout, in, (size_t)*n);                                         \
    }

FOLD(PSC_FLOAT16, PSC_SUM)
FOLD(PSC_FLOAT16, PSC_MIN)
FOLD(PSC_FLOAT16, PSC_MAX)
FOLD(PSC_BFLOAT16, PSC_SUM)
FOLD(PSC_BFLOAT16, PSC_MIN)
FOLD(PSC_BFLOAT16, PSC_MAX)
FOLD(PSC_FLOAT32, PSC_MIN)
FOLD(PSC_FLOAT32, PSC_MAX)
FOLD(PSC_FLOAT64, PSC_MIN)
FOLD(PSC_FLOAT64, PSC_MAX)

static const struct {
    uint8_t type, operation;
    MPI_User_function *fold;
} own_folds[] = {
    {PSC_FLOAT16, PSC_SUM, fold_PSC_FLOAT16_PSC_SUM},   {PSC_FLOAT16, PSC_MEAN, fold_PSC_FLOAT16_PSC_SUM},
    {PSC_FLOAT16, PSC_MIN, fold_PSC_FLOAT16_PSC_MIN},   {PSC_FLOAT16, PSC_MAX, fold_PSC_FLOAT16_PSC_MAX},
    {PSC_BFLOAT16, PSC_SUM, fold_PSC_BFLOAT16_PSC_SUM}, {PSC_BFLOAT16, PSC_MEAN, fold_PSC_BFLOAT16_PSC_SUM},
    {PSC_BFLOAT16, PSC_MIN, fold_PSC_BFLOAT16_PSC_MIN}, {PSC_BFLOAT16, PSC_MAX, fold_PSC_BFLOAT16_PSC_MAX},
    {PSC_FLOAT32, PSC_MIN, fold_PSC_FLOAT32_PSC_MIN},   {PSC_FLOAT32, PSC_MAX, fold_PSC_FLOAT32_PSC_MAX},
    {PSC_FLOAT64, PSC_MIN, fold_PSC_FLOAT64_PSC_MIN},   {PSC_FLOAT64, PSC_MAX, fold_PSC_FLOAT64_PSC_MAX}};

enum { N_OWN_FOLDS = sizeof own_folds / sizeof *own_folds };

void psc_mpi_kinds_init(struct psc_mpi_kinds *k)
{
    for (int t = 0; t < PSC_N_TYPES; t++)
        for (int o = 0; o < PSC_N_OPERATIONS; o++)
            k->op[t][o] = MPI_OP_NULL;
    for (int i = 0; i < N_OWN_FOLDS; i++)
        MPI_Op_create(own_folds[i].fold, 1, &k->op[own_folds[i].type][own_folds[i].operation]);
}

void psc_mpi_kinds_finish(struct psc_mpi_kinds *k)
{
    for (int i = 0; i < N_OWN_FOLDS; i++) {
        MPI_Op *op = &k->op[own_folds[i].type][own_folds[i].operation];
        if (*op != MPI_OP_NULL)
            MPI_Op_free(op);
    }
}

static MPI_Datatype type_of(uint8_t type)
{
    const MPI_Datatype types[PSC_N_TYPES] = {
        [PSC_FLOAT32] = MPI_FLOAT, [PSC_FLOAT64] = MPI_DOUBLE,   [PSC_INT32] = MPI_INT32_T,
        [PSC_INT64] = MPI_INT64_T, [PSC_FLOAT16] = MPI_UINT16_T, [PSC_BFLOAT16] = MPI_UINT16_T,
        [PSC_BYTES] = MPI_BYTE};
    return types[type];
}

static MPI_Op op_of(const struct psc_mpi_pieces *p)
{
    const MPI_Op ops[PSC_N_OPERATIONS] = {
        [PSC_SUM] = MPI_SUM, [PSC_MEAN] = MPI_SUM, [PSC_MIN] = MPI_MIN, [PSC_MAX] = MPI_MAX};
    MPI_Op own = p->kinds->op[p->op->type][p->op->operation];
    return own != MPI_OP_NULL ? own : ops[p->op->operation];
}

static int reduce(const struct psc_mpi_pieces *p, void *x, int n, int root)
{
    bool receives = p->rank == root;
    return MPI_Reduce(receives ? MPI_IN_PLACE : x, receives ? x : NULL, n, type_of(p->op->type), op_of(p),
                      root, p->comm);
}

/* n values of member `part`, whose part of the vector is at x. */
static int run_piece(const struct psc_mpi_pieces *p, void *x, int n, int part)
{
    MPI_Datatype type = type_of(p->op->type);
    switch (p->op->kind) {
    case PSC_ALLREDUCE:
        return MPI_Allreduce(MPI_IN_PLACE, x, n, type, op_of(p), p->comm);
    case PSC_REDUCE:
        return reduce(p, x, n, p->op->root);
    case PSC_BROADCAST:
        return MPI_Bcast(x, n, type, p->op->root, p->comm);
    case PSC_REDUCE_SCATTER:
        return reduce(p, x, n, part);
    default:
        return MPI_Bcast(x, n, type, part, p->comm);
    }
}

/* All parts by one call of MPI. In place MPI leaves the result of a reduce-scatter where the first part was.
 */
static int run_whole(const struct psc_mpi_pieces *p)
{
    const struct psc_collective *op = p->op;
    size_t bytes = op->n * psc_values_of(op->type)->bytes;
    MPI_Datatype type = type_of(op->type);
    if (op->kind == PSC_ALLGATHER)
        return MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, op->data, (int)op->n, type, p->comm);
    int rc = MPI_Reduce_scatter_block(MPI_IN_PLACE, op->data, (int)op->n, type, op_of(p), p->comm);
    if (rc == MPI_SUCCESS)
        memmove((char *)op->data + bytes * (size_t)p->rank, op->data, bytes);
    return rc;
}

int psc_mpi_run_pieces(const struct psc_mpi_pieces *p, struct ps_error *err)
{
    const struct psc_collective *op = p->op;
    size_t bytes = psc_values_of(op->type)->bytes;
    size_t parts = psc_call_has_parts(op->kind) ? (size_t)p->members : 1;
    size_t each = op->kind == PSC_BARRIER ? 0 : (op->n + PIECE - 1) / PIECE;
    int rc = MPI_SUCCESS;
    if (parts > 1 && op->n > 0 && op->n * parts <= PIECE) {
        p->lives(p->arg, 0, 1);
        rc = run_whole(p);
        return rc == MPI_SUCCESS ? PSC_OK : psc_mpi_fail(err, psc_call_name(op->kind), rc);
    }
    for (size_t k = 0; k < parts * each && rc == MPI_SUCCESS; k++) {
        size_t part = k / each, at = k % each * PIECE, n = op->n - at < PIECE ? op->n - at : PIECE;
        p->lives(p->arg, k, parts * each);
        rc = run_piece(p, (char *)op->data + (part * op->n + at) * bytes, (int)n, (int)part);
    }
    return rc == MPI_SUCCESS ? PSC_OK : psc_mpi_fail(err, psc_call_name(op->kind), rc);
}
