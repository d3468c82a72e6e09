/* Pushes and pulls tensors: cc kvstore.c $(pkg-config --cflags --libs psclient) && ./a.out @endpoint */
#include <psclient.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct psc_tensor store[] = {{.name = "hits", .n_dims = 1, .shape = {3}, .offset = 0},
                                 {.name = "price", .n_dims = 2, .shape = {2, 2}, .offset = 3}};
    float all[7] = {0}, hit[3] = {0, -1, 0}, hits[3], price[4] = {9, 8, 7, 6};
    struct psc_options opt;
    struct psc *c;
    uint64_t ticket;
    int rc;

    psc_options_init(&opt, sizeof opt);
    opt.server = argc > 1 ? argv[1] : "@endpoint";
    if ((rc = psc_open(&opt, &c)) != PSC_OK || (rc = psc_begin(c, store, 2, all)) != PSC_OK)
        goto out;
    /* The job has rule sgd and learning_rate 1: psd subtracts each message from the tensor. */
    if ((rc = psc_pushpull(c, "hits", hit, hits, 1)) != PSC_OK)
        goto out;
    /* Sets "price" while the program continues. `price` must not change before psc_wait. */
    if ((rc = psc_init_start(c, "price", price, &ticket)) != PSC_OK)
        goto out;
    printf("hits: %g %g %g\n", (double)hits[0], (double)hits[1], (double)hits[2]);
    if ((rc = psc_wait(c, ticket)) != PSC_OK || (rc = psc_pull(c, NULL, all)) != PSC_OK)
        goto out;
    printf("price: %g %g %g %g\n", (double)all[3], (double)all[4], (double)all[5], (double)all[6]);
out:
    if (rc != PSC_OK)
        fprintf(stderr, "%s: %s\n", psc_result_name(rc), psc_error(c));
    psc_close(c);
    return rc < 0;
}
