/* theory: a real psd, driven through libpsclient, against what the papers prove.
 *
 *     theory [--json] [CHECK]...        every check, or the named ones
 *
 * Prints a line for each comparison; exits with 1 when one fails. Seeds are fixed: what passes once passes
 * always. */
#include "tests/theory/theory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct table *table);
} checks[] = {
    {"sync", theory_sync}, {"asymptotic", theory_asymptotic}, {"stability", theory_stability},
    {"admm", theory_admm}, {"twins", theory_twins},           {"average", theory_average},
};

enum { N_CHECKS = sizeof checks / sizeof *checks };

static int refuse(const char *what)
{
    fprintf(stderr, "theory: \"%s\": no such check or option; allowed: --json", what);
    for (size_t i = 0; i < N_CHECKS; i++)
        fprintf(stderr, ", %s", checks[i].name);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct table table = {.json = false};
    bool chosen[N_CHECKS] = {false}, any = false;
    for (int a = 1; a < argc; a++) {
        bool known = strcmp(argv[a], "--json") == 0;
        table.json = table.json || known;
        for (size_t i = 0; i < N_CHECKS; i++)
            if (strcmp(argv[a], checks[i].name) == 0)
                known = chosen[i] = any = true;
        if (!known)
            return refuse(argv[a]);
    }
    for (size_t i = 0; i < N_CHECKS; i++)
        if (chosen[i] || !any)
            checks[i].run(&table);
    fprintf(stderr, "theory: %u of %u checks hold\n", table.rows - table.failed, table.rows);
    return table.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
