/* calls SERVER TRANSPORT: pushes and pulls tensors by name, one of them longer than many chunks, and prints a
 * hash of the center that came of it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/psclient.h"

enum { SMALL = 5, LARGE = 200000, LAST = 1000, ALL = SMALL + LARGE + LAST, TURNS = 4 };

static float x[ALL], g[LARGE], y[LARGE];

static int turn(struct psc *c, unsigned n)
{
    uint64_t ticket;
    int rc;
    for (int i = 0; i < LARGE; i++)
        g[i] = (float)((i * 31 + (int)n * 17) % 257 - 128) * 0x1p-8f;
    if ((rc = psc_pushpull(c, "large", g, y, 1)) != PSC_OK || (rc = psc_push(c, "small", y, 1)) != PSC_OK ||
        (rc = psc_pushpull_start(c, "last", g, y, 1, &ticket)) != PSC_OK ||
        (rc = psc_wait(c, ticket)) != PSC_OK || (rc = psc_pull(c, "small", y)) != PSC_OK)
        return rc;
    for (int i = 0; i < LAST; i++)
        y[i] = (float)i * y[i % SMALL];
    return n == TURNS / 2 ? psc_init(c, "last", y) : psc_pull(c, NULL, x);
}

int main(int argc, char **argv)
{
    static const struct psc_tensor store[] = {
        {.name = "small", .n_dims = 1, .shape = {SMALL}, .offset = 0},
        {.name = "large", .n_dims = 2, .shape = {LARGE / 100, 100}, .offset = SMALL},
        {.name = "last", .n_dims = 1, .shape = {LAST}, .offset = SMALL + LARGE}};
    struct psc_options opt;
    struct psc *c;
    if (argc != 3)
        return 2;
    psc_options_init(&opt, sizeof opt);
    opt.server = argv[1];
    opt.transport = argv[2];
    int rc = psc_open(&opt, &c);
    if (rc == PSC_OK)
        rc = psc_begin(c, store, 3, x);
    for (unsigned n = 0; n < TURNS && rc == PSC_OK; n++)
        rc = turn(c, n);
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < sizeof x; i++)
        hash = (hash ^ ((const unsigned char *)x)[i]) * UINT64_C(0x100000001b3);
    if (rc == PSC_OK)
        printf("%016llx %g\n", (unsigned long long)hash, (double)x[ALL - 1]);
    else
        fprintf(stderr, "%s: %s\n", psc_result_name(rc), psc_error(c));
    psc_close(c);
    return rc != PSC_OK;
}
