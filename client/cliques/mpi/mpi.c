/* mpi.c: the kind "mpi". The thread that runs a collective makes blocking calls, because OpenMPI makes no
 * progress on a collective that no thread waits in.
 *
 * Before each collective the members compare their calls by one reduction of a few words: the maximum of each
 * word and of its negative, which is minus the minimum. If maximum and minimum are equal, all members make
 * the same call, and have memory for it. The reduction is also a barrier. The watchdog is told of
 * progress after it and after each piece. Floats in a codec are summed by a ring of messages (coded_sum.c),
 * all else is MPI's (pieces.c). */
#include "client/cliques/mpi/mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/mpi/coded_sum.h"
#include "client/cliques/mpi/pieces.h"
#include "client/cliques/mpi/watchdog.h"
#include "proto/clock.h"

enum { CLOSING = PSC_N_COLLECTIVES }; /* in place of a collective: the member has closed the clique */
enum { W_KIND, W_COUNT, W_ROOT, W_CODEC, W_TYPE, W_OPERATION, W_COMPARES, W_NUMBER, W_LACKS, N_WORDS };
enum { NAP_US = 200 };

struct mpi {
    MPI_Comm comm;
    int rank, members;
    struct psc_mpi_options opt;
    struct psc_watchdog *dog;
    uint64_t number; /* number of the current collective, from 1 */
    bool broken;
    struct psc_coded_room room;
    struct psc_mpi_kinds kinds;
    int64_t both[2 * N_WORDS], most[2 * N_WORDS]; /* the values that are compared, and the result */
};

int psc_mpi_fail(struct ps_error *err, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    MPI_Error_string(code, text, &len);
    return ps_fail(err, PSC_ECLIQUE, "%s: %.300s", call, text);
}

static void fill_words(const struct mpi *s, int kind, const struct psc_collective *op, int64_t *words)
{
    words[W_KIND] = kind;
    words[W_COUNT] = (int64_t)op->n;
    words[W_ROOT] = kind == PSC_REDUCE || kind == PSC_BROADCAST ? op->root : 0;
    words[W_CODEC] = op->codec != NULL ? op->codec->id : 0;
    words[W_TYPE] = op->type;
    words[W_OPERATION] = op->operation;
    words[W_COMPARES] = op->compares;
    words[W_NUMBER] = (int64_t)s->number;
    words[W_LACKS] = 0;
}

static void describe(const int64_t *words, char *text, size_t size)
{
    const char *name = words[W_KIND] == CLOSING ? "close" : psc_call_name((uint32_t)words[W_KIND]);
    const char *units = psc_values_of((uint32_t)words[W_TYPE])->units;
    const struct ps_codec *codec = ps_codec_find((uint8_t)words[W_CODEC]);
    char root[24] = "", coded[32] = "", of[24] = "";
    if (words[W_KIND] == PSC_BARRIER || words[W_KIND] == CLOSING) {
        snprintf(text, size, "%s", name);
        return;
    }
    if (words[W_OPERATION] != PSC_SUM)
        snprintf(of, sizeof of, " (%s)", psc_operation_name((uint32_t)words[W_OPERATION]));
    if (words[W_KIND] == PSC_REDUCE || words[W_KIND] == PSC_BROADCAST)
        snprintf(root, sizeof root, ", root %" PRId64, words[W_ROOT]);
    if (words[W_CODEC] != 0)
        snprintf(coded, sizeof coded, " in %s", codec != NULL ? codec->name : "an unknown codec");
    snprintf(text, size, "%s%s of %" PRId64 " %s%s%s%s", name, of, words[W_COUNT], units, coded, root,
             words[W_LACKS] != 0 ? ", for which it has no memory" : "");
}

/* All members know that they disagree: exchanges their calls, for the error. */
static int name_both_sides(const struct mpi *s, const int64_t *words, struct ps_error *err)
{
    int64_t *all = malloc((size_t)s->members * N_WORDS * sizeof *all);
    char first[160], other[160];
    int r = 1, rc;

    if (all == NULL)
        return ps_fail(err, PSC_ENOMEM, "collective %" PRIu64 ": members disagree; no memory for the details",
                       s->number);
    rc = MPI_Allgather((void *)(uintptr_t)words, N_WORDS, MPI_INT64_T, all, N_WORDS, MPI_INT64_T, s->comm);
    if (rc == MPI_SUCCESS) {
        while (r + 1 < s->members && memcmp(all, all + r * N_WORDS, N_WORDS * sizeof *all) == 0)
            r++;
        describe(all, first, sizeof first);
        describe(all + r * N_WORDS, other, sizeof other);
        if (all[W_KIND] == CLOSING || all[r * N_WORDS + W_KIND] == CLOSING)
            rc = ps_fail(err, PSC_ECLIQUE, "collective %" PRIu64 ": rank %d has closed the clique", s->number,
                         all[W_KIND] == CLOSING ? 0 : r);
        else
            rc = ps_fail(err, PSC_ECLIQUE,
                         "collective %" PRIu64 ": members disagree: rank 0 calls %s, rank %d %s", s->number,
                         first, r, other);
    } else {
        rc = psc_mpi_fail(err, "MPI_Allgather", rc);
    }
    free(all);
    return rc;
}

/* Fills the values to compare; `both` and `most` belong to MPI until the request has ended. */
static void spread(struct mpi *s, const int64_t *words)
{
    for (int i = 0; i < N_WORDS; i++) {
        s->both[i] = words[i];
        s->both[N_WORDS + i] = -words[i];
    }
}

static bool all_agree(const struct mpi *s)
{
    for (int i = 0; i < N_WORDS; i++)
        if (s->most[i] != -s->most[N_WORDS + i])
            return false;
    return true;
}

static int compare(struct mpi *s, const int64_t *words, struct ps_error *err)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc, waited;

    spread(s, words);
    rc = MPI_Iallreduce(s->both, s->most, 2 * N_WORDS, MPI_INT64_T, MPI_MAX, s->comm, &request);
    waited = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS || waited != MPI_SUCCESS)
        return psc_mpi_fail(err, "MPI_Iallreduce", rc != MPI_SUCCESS ? rc : waited);
    return all_agree(s) ? PSC_OK : name_both_sides(s, words, err);
}

/* The collective in progress, as the watchdog names it. */
struct progress {
    struct mpi *s;
    const char *what;
};

static void show_life(void *arg, size_t done, size_t all)
{
    const struct progress *k = arg;
    psc_watchdog_wait(k->s->dog, "collective %" PRIu64 ", %s, piece %zu of %zu", k->s->number, k->what,
                      done + 1, all);
}

static int run_coded(struct mpi *s, const struct psc_collective *op, const char *what, struct ps_error *err)
{
    struct progress k = {s, what};
    const struct psc_coded_sum sum = {.comm = s->comm,
                                      .rank = (uint32_t)s->rank,
                                      .members = (uint32_t)s->members,
                                      .op = op,
                                      .room = &s->room,
                                      .lives = show_life,
                                      .arg = &k};
    return psc_coded_sum(&sum, err);
}

static int run_pieces(struct mpi *s, const struct psc_collective *op, const char *what, struct ps_error *err)
{
    struct progress k = {s, what};
    const struct psc_mpi_pieces pieces = {.comm = s->comm,
                                          .rank = s->rank,
                                          .members = s->members,
                                          .kinds = &s->kinds,
                                          .op = op,
                                          .lives = show_life,
                                          .arg = &k};
    return psc_mpi_run_pieces(&pieces, err);
}

/* A member without memory for the call takes part in the comparison, by which the others learn of it. With
 * every member's memory gone all words are the same. */
static int agree(struct mpi *s, const struct psc_collective *op, bool coded, int64_t *words,
                 struct ps_error *err)
{
    struct ps_error ignored;
    int rc = coded ? psc_coded_room_make(&s->room, (uint32_t)s->members, op, err) : PSC_OK;
    words[W_LACKS] = rc != PSC_OK;
    if (op->compared)
        return rc;
    int compared = compare(s, words, rc == PSC_OK ? err : &ignored);
    return rc == PSC_OK ? compared : rc;
}

/* The watchdog's limit for this call: the clique's, or less if the call's own comes before. */
static void set_limit(const struct mpi *s, const struct psc_collective *op)
{
    double left_ms = op->until_s > 0 ? (op->until_s - ps_now_s()) * 1e3 : s->opt.timeout_ms;
    psc_watchdog_limit(s->dog, left_ms >= s->opt.timeout_ms ? s->opt.timeout_ms
                               : left_ms > 1                ? (uint32_t)(left_ms + 0.5)
                                                            : 1);
}

static int run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct mpi *s = state;
    int64_t words[N_WORDS];
    char what[160];
    bool coded = op->codec != NULL && !op->codec->in_place;

    s->number += !op->compared;
    fill_words(s, (int)op->kind, op, words);
    describe(words, what, sizeof what);
    set_limit(s, op);
    psc_watchdog_wait(s->dog, "collective %" PRIu64 ", %s, before it begins", s->number, what);
    int rc = agree(s, op, coded, words, err);
    if (rc == PSC_OK && !op->compares)
        rc = (coded ? run_coded : run_pieces)(s, op, what, err);
    psc_watchdog_rest(s->dog);
    s->broken = rc != PSC_OK;
    return rc;
}

/* A call into MPI cannot be cancelled: it ends by itself, or the watchdog ends the process. */
static void give_up(void *state)
{
    (void)state;
}

/* Tells members that continue that this one does not, and waits for members that close as well, for at most
 * timeout_ms. False: they were silent, and the buffers still belong to MPI. */
/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): it knows MPI_Wait and not MPI_Test */
static bool say_goodbye(struct mpi *s)
{
    struct psc_collective nothing = {.n = 0};
    double until_s = ps_now_s() + s->opt.timeout_ms * 1e-3;
    int64_t words[N_WORDS];
    struct ps_error err;
    MPI_Request request;
    int done = 0;

    s->number++;
    fill_words(s, CLOSING, &nothing, words);
    spread(s, words);
    if (MPI_Iallreduce(s->both, s->most, 2 * N_WORDS, MPI_INT64_T, MPI_MAX, s->comm, &request) != MPI_SUCCESS)
        return false;
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done && ps_now_s() < until_s)
        ps_sleep_us(NAP_US);
    if (!done)
        return false;
    psc_watchdog_wait(s->dog, "collective %" PRIu64 ", close", s->number);
    s->broken = !all_agree(s) && name_both_sides(s, words, &err) != PSC_OK;
    if (!s->broken)
        MPI_Comm_free(&s->comm);
    psc_watchdog_rest(s->dog);
    return true;
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static void destroy(void *state)
{
    struct mpi *s = state;
    bool answered = s->broken || say_goodbye(s);
    psc_watchdog_destroy(s->dog);
    if (answered) {
        psc_coded_room_free(&s->room);
        psc_mpi_kinds_finish(&s->kinds);
        free(s);
    }
}

static size_t stripe(const void *state)
{
    const struct mpi *s = state;
    return psc_coded_stripe((uint32_t)s->members);
}

static const struct psc_clique_ops psc_clique_mpi = {.size = sizeof(struct psc_clique_ops),
                                                     .name = "mpi",
                                                     .any_thread = true,
                                                     .run = run,
                                                     .stripe = stripe,
                                                     .raw_varies = true,
                                                     .give_up = give_up,
                                                     .destroy = destroy};

static int allocate(const struct psc_mpi_options *opt, MPI_Comm comm, struct mpi **out, struct ps_error *err)
{
    struct mpi *s = calloc(1, sizeof *s);
    char who[64], host[MPI_MAX_PROCESSOR_NAME] = "";
    int len, rc;

    if (s == NULL)
        return ps_fail(err, PSC_ENOMEM, "no memory for a clique over MPI");
    s->opt = *opt;
    MPI_Comm_rank(comm, &s->rank);
    MPI_Comm_size(comm, &s->members);
    MPI_Get_processor_name(host, &len);
    snprintf(who, sizeof who, "rank %d of %d on %.30s", s->rank, s->members, host);
    if ((rc = psc_watchdog_create(opt, who, &s->dog)) != PSC_OK) {
        free(s);
        return ps_fail(err, rc, "cannot start the watchdog of a clique over MPI");
    }
    *out = s;
    return PSC_OK;
}

static int check_options(const struct psc_mpi_options *opt, struct psc_mpi_options *out, struct ps_error *err)
{
    int level = MPI_THREAD_SINGLE, initialized = 0, finalized = 0;

    psc_mpi_options_init(out, sizeof *out);
    if (opt != NULL)
        memcpy(out, opt, opt->size < sizeof *out ? opt->size : sizeof *out);
    if (out->timeout_ms < 1)
        return ps_fail(err, PSC_EINVAL, "timeout_ms is 0; allowed are 1 to %u", UINT32_MAX);
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return ps_fail(err, PSC_EINVAL, "MPI %s: a clique over MPI cannot be opened",
                       finalized ? "has ended" : "has not been started");
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "MPI was started with MPI_THREAD_%s; a clique needs MPI_THREAD_SERIALIZED or "
                       "MPI_THREAD_MULTIPLE from MPI_Init_thread",
                       level == MPI_THREAD_SINGLE ? "SINGLE" : "FUNNELED");
    return PSC_OK;
}

int psc_mpi_open_on(const struct psc_mpi_options *opt, MPI_Comm comm, struct psc_clique **out,
                    struct ps_error *err)
{
    struct psc_mpi_options whole;
    struct mpi *s = NULL;
    int rc = check_options(opt, &whole, err);

    if (rc != PSC_OK || (rc = allocate(&whole, comm, &s, err)) != PSC_OK)
        return rc;
    psc_watchdog_wait(s->dog, "MPI_Comm_dup, opening a clique");
    rc = MPI_Comm_dup(comm, &s->comm);
    psc_watchdog_rest(s->dog);
    if (rc != MPI_SUCCESS) {
        psc_watchdog_destroy(s->dog);
        free(s);
        return psc_mpi_fail(err, "MPI_Comm_dup", rc);
    }
    MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
    psc_mpi_kinds_init(&s->kinds);
    return psc_clique_create(&psc_clique_mpi, s, s->rank, s->members, out);
}

int psc_mpi_open(const struct psc_mpi_options *opt, MPI_Comm comm, struct psc_clique **out)
{
    struct ps_error err = {""};
    int rc = psc_mpi_open_on(opt, comm, out, &err);
    if (rc != PSC_OK)
        *out = psc_clique_failed(&err);
    return rc;
}
