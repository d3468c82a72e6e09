/* Fits y = 3 u - 2 through psd: cc line.c $(pkg-config --cflags --libs psclient) && ./a.out @endpoint */
#include <psclient.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct psc_tensor model[] = {{.name = "slope", .n_dims = 1, .shape = {1}, .offset = 0},
                                 {.name = "offset", .n_dims = 1, .shape = {1}, .offset = 1}};
    float x[2] = {0, 0}, g[2];
    struct psc_options opt;
    struct psc *c;
    int rc;

    psc_options_init(&opt, sizeof opt);
    opt.server = argc > 1 ? argv[1] : "@endpoint";
    if ((rc = psc_open(&opt, &c)) != PSC_OK || (rc = psc_begin(c, model, 2, x)) != PSC_OK)
        goto out;
    srand((unsigned)psc_rank(c));
    for (int t = 0; t < 2000 && rc == PSC_OK; t++) {
        g[0] = g[1] = 0;
        for (int i = 0; i < 16; i++) { /* the gradient of the mean of (x[0] u + x[1] - y)^2 / 2 */
            float u = (float)rand() / (float)RAND_MAX, error = x[0] * u + x[1] - (3 * u - 2);
            g[0] += error * u / 16;
            g[1] += error / 16;
        }
        rc = psc_step(c, x, g, 16);
    }
    if (rc == PSC_OK)
        rc = psc_pull(c, NULL, x);
    printf("the center is y = %.3f u %+.3f\n", (double)x[0], (double)x[1]);
out:
    if (rc != PSC_OK)
        fprintf(stderr, "%s: %s\n", psc_result_name(rc), psc_error(c));
    psc_close(c);
    return rc < 0;
}
