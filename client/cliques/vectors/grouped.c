#include "client/cliques/vectors/grouped.h"

#include <string.h>

/* The clique sums a part, and the next one waits for it, while the member's own vectors are summed and
 * copied: so a part's transfer begins as soon as the one before has ended. */
enum { AHEAD = 2 };
/* More parts overlap more of the first sum and of the last copy, but each costs the latency of a collective.
 */
enum { LEAST_PART = 1 << 18, MOST_PARTS = 32 };

size_t psc_grouped_part(size_t n, size_t wanted, size_t stripe)
{
    size_t least = (n + MOST_PARTS - 1) / MOST_PARTS;
    size_t part = wanted != 0 ? wanted : least > LEAST_PART ? least : LEAST_PART;
    size_t stripes = n / stripe + 1; /* more would be one part all the same */
    return part / stripe < stripes ? (part + stripe - 1) / stripe * stripe : stripes * stripe;
}

static size_t length_of(const struct psc_grouped *g, size_t at)
{
    return g->op.n - at < g->part ? g->op.n - at : g->part;
}

static int fail(const struct psc_grouped *g, int rc, struct ps_error *err)
{
    return ps_fail(err, rc, "%s", psc_clique_error(g->q));
}

/* Sums a part in this member and hands it to the clique. */
static int send(const struct psc_grouped *g, size_t at, uint64_t *ticket, struct ps_error *err)
{
    struct psc_task t = {.op = g->op};
    int rc = g->sum(g->arg, at, length_of(g, at), err);
    if (rc != PSC_OK || g->q == NULL)
        return rc;
    t.op.n = length_of(g, at);
    t.op.data = (unsigned char *)g->op.data + at * psc_values_of(g->op.type)->bytes;
    rc = psc_clique_start(g->q, &t, ticket);
    return rc == PSC_OK ? rc : fail(g, rc, err);
}

static int land(const struct psc_grouped *g, size_t at, uint64_t ticket, struct ps_error *err)
{
    int rc = g->q != NULL ? psc_clique_wait(g->q, ticket) : PSC_OK;
    if (rc != PSC_OK)
        return fail(g, rc, err);
    return g->copy != NULL ? g->copy(g->arg, at, length_of(g, at), err) : PSC_OK;
}

int psc_grouped_run(const struct psc_grouped *g, struct ps_error *err)
{
    uint64_t tickets[AHEAD] = {0};
    size_t parts = (g->op.n + g->part - 1) / g->part;
    int rc = PSC_OK;
    for (size_t k = 0; k < parts + AHEAD && rc == PSC_OK; k++) {
        uint64_t *ticket = &tickets[k % AHEAD];
        if (k >= AHEAD && k - AHEAD < parts)
            rc = land(g, (k - AHEAD) * g->part, *ticket, err);
        if (rc == PSC_OK && k < parts)
            rc = send(g, k * g->part, ticket, err);
    }
    if (rc != PSC_OK && g->q != NULL)
        psc_clique_wait(g->q, 0);
    return rc;
}

/* Host memory alone: cuda is a row that is known and cannot be summed yet. */
static const struct {
    const char *name;
    bool is_here;
} kinds[] = {{"host", true}, {"cuda", false}};

int psc_memory_check(const char *memory, const char *what, struct ps_error *err)
{
    if (memory == NULL)
        return PSC_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(memory, kinds[i].name) == 0)
            return kinds[i].is_here ? PSC_OK
                                    : ps_fail(err, PSC_EUNSUPPORTED,
                                              "%s: memory is %s, which cannot be summed yet; allowed is host",
                                              what, kinds[i].name);
    return ps_fail(err, PSC_EINVAL, "%s: memory is '%.32s'; allowed is host", what, memory);
}
