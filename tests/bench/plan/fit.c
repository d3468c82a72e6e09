/* fit.c: alpha, beta and S from measured allreduces. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/plan/model.h"
#include "tests/bench/samples.h"

enum { N_UNKNOWN = 3 }; /* alpha, beta, S */
enum { TURNS = 20 };    /* of reweighting; far more than needed */

/* The coefficient of each unknown in the time of the sample. */
static void row_of(const struct plan_sample *s, bool half_duplex, double *row)
{
    double p = s->members;
    row[0] = 2 * (p - 1);
    row[1] = (half_duplex ? 2 : 1) * 2 * (p - 1) / p * s->n_bytes;
    row[2] = 1;
}

static double sums_s(const struct plan_sample *s, double gamma_s)
{
    return (s->members - 1.0) / s->members * s->n_bytes / sizeof(float) * gamma_s;
}

/* Solves m x = m[3] for the unknowns in `use` by elimination; the others become 0. False if the system is
 * singular. */
static bool solve(double m[N_UNKNOWN][N_UNKNOWN + 1], const bool *use, double *x)
{
    double a[N_UNKNOWN][N_UNKNOWN + 1];
    memcpy(a, m, sizeof a);
    for (int k = 0; k < N_UNKNOWN; k++) {
        if (!use[k])
            continue;
        if (!(fabs(a[k][k]) > 1e-9 * m[k][k]))
            return false;
        for (int i = 0; i < N_UNKNOWN; i++) {
            double factor = a[i][k] / a[k][k];
            for (int j = 0; j <= N_UNKNOWN && i != k && use[i]; j++)
                a[i][j] -= factor * a[k][j];
        }
    }
    for (int k = 0; k < N_UNKNOWN; k++)
        x[k] = use[k] ? a[k][N_UNKNOWN] / a[k][k] : 0;
    return true;
}

static double time_of(const struct plan_sample *s, double gamma_s, bool half_duplex, const double *x)
{
    double row[N_UNKNOWN];
    row_of(s, half_duplex, row);
    return row[0] * x[0] + row[1] * x[1] + row[2] * x[2] + sums_s(s, gamma_s);
}

/* Normal equations. Each row is divided by the square root of its time and of the previous prediction (x;
 * NULL: none), so that errors by a factor of two in either direction weigh the same. */
static void gather(const struct plan_sample *s, size_t n, double gamma_s, bool half_duplex, const double *x,
                   double m[N_UNKNOWN][N_UNKNOWN + 1])
{
    memset(m, 0, N_UNKNOWN * sizeof *m);
    for (size_t i = 0; i < n; i++) {
        double row[N_UNKNOWN + 1], found = x != NULL ? time_of(&s[i], gamma_s, half_duplex, x) : 0;
        double scale = s[i].seconds * (found > 0 ? found : s[i].seconds);
        row_of(&s[i], half_duplex, row);
        row[N_UNKNOWN] = fmax(s[i].seconds - sums_s(&s[i], gamma_s), 0);
        for (int j = 0; j < N_UNKNOWN; j++)
            for (int k = 0; k <= N_UNKNOWN; k++)
                m[j][k] += row[j] * row[k] / scale;
    }
}

/* Constrains the unknowns to be at least 0: sets the most negative to 0 and solves again for the rest. */
static bool least_squares(double m[N_UNKNOWN][N_UNKNOWN + 1], bool *use, double *x)
{
    for (int tries = 0; tries < N_UNKNOWN; tries++) {
        int worst = -1;
        if (!solve(m, use, x))
            return false;
        for (int k = 0; k < N_UNKNOWN; k++)
            if (use[k] && x[k] < 0 && (worst < 0 || x[k] * m[k][k] < x[worst] * m[worst][worst]))
                worst = k;
        if (worst < 0)
            return true;
        use[worst] = false;
    }
    return true;
}

static int remaining(const struct plan_sample *s, size_t n, double gamma_s, bool half_duplex, const double *x,
                     double *out)
{
    double *errors = malloc(n * sizeof *errors);
    if (errors == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        errors[i] = fabs(time_of(&s[i], gamma_s, half_duplex, x) - s[i].seconds) / s[i].seconds;
    *out = bench_median(errors, n);
    free(errors);
    return 0;
}

int plan_fit(const struct plan_sample *samples, size_t n, double gamma_s, bool half_duplex,
             struct plan_link *link, double *error)
{
    double m[N_UNKNOWN][N_UNKNOWN + 1], x[N_UNKNOWN];
    bool sizes = false, members = false;
    int rc;

    for (size_t i = 0; i < n; i++) {
        if (!(samples[i].seconds > 0) || !isfinite(samples[i].seconds) || samples[i].members < 2 ||
            !(samples[i].n_bytes >= 0))
            return -EINVAL;
        sizes = sizes || samples[i].n_bytes != samples[0].n_bytes;
        members = members || samples[i].members != samples[0].members;
    }
    if (!sizes)
        return -EINVAL;
    for (int turn = 0; turn < TURNS; turn++) {
        gather(samples, n, gamma_s, half_duplex, turn > 0 ? x : NULL, m);
        if (!least_squares(m, (bool[N_UNKNOWN]){true, true, members}, x) &&
            !least_squares(m, (bool[N_UNKNOWN]){true, true, false}, x))
            return -EINVAL;
    }
    if ((rc = remaining(samples, n, gamma_s, half_duplex, x, error)) < 0)
        return rc;
    link->alpha_s = x[0];
    link->beta_s = x[1];
    link->sync_s = x[2];
    return 0;
}
