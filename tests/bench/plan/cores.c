/* cores.c: psbench plan --partitions: measures what one core and all cores of this machine do, and predicts.
 */
#include "tests/bench/plan/cores.h"

#include <math.h>

#include "nets/machine.h"
#include "tests/bench/net/net.h"

/* Gradients of a partition's share of the batch, and of four times as many images. */
static uint32_t small_batch(const struct cores_options *o)
{
    uint32_t most = 1;
    for (size_t i = 0; i < o->n_partitions; i++)
        most = o->partitions[i] > most ? o->partitions[i] : most;
    return o->batch / most;
}

static int measure(const struct cores_options *o, uint32_t batch, uint32_t threads, double *compute_s,
                   double *bytes_s)
{
    struct bench_net_times times = {0};
    if (bench_net_measure(o->net, o->backend, batch, threads, o->seconds, &times) != 0)
        return -1;
    *compute_s = times.forward_s + times.backward_s;
    *bytes_s = 20 * o->n_floats / times.update_s; /* x and v read and written, g read */
    return 0;
}

/* What is not given. */
static int fill(const struct cores_options *o, struct cores_costs *c)
{
    uint32_t small = small_batch(o), here = cnn_machine_cores(), threads = here < o->cores ? here : o->cores;
    double one, four, all, core_bytes_s, bytes_s;

    if (!isnan(c->fixed_s) && !isnan(c->serial) && !isnan(c->core_bytes_s) && !isnan(c->bytes_s))
        return 0;
    if (threads < 2 && (isnan(c->serial) || isnan(c->bytes_s))) {
        fputs("psbench plan: this machine has one core: give --serial and --memory-gb-s\n", stderr);
        return -1;
    }
    if (measure(o, small, 1, &one, &core_bytes_s) < 0 || measure(o, 4 * small, 1, &four, &core_bytes_s) < 0 ||
        measure(o, 4 * small, threads, &all, &bytes_s) < 0)
        return -1;
    if (isnan(c->fixed_s)) {
        c->image_s = fmax(four - one, 0) / (3 * small);
        c->fixed_s = fmax(one - small * c->image_s, 0);
    }
    if (isnan(c->serial))
        c->serial = fmin(fmax((threads * all / four - 1) / (threads - 1), 0), 1);
    if (isnan(c->core_bytes_s))
        c->core_bytes_s = core_bytes_s;
    if (isnan(c->bytes_s))
        c->bytes_s = bytes_s / threads * o->cores;
    return 0;
}

static void print_costs(const struct cores_options *o, const struct cores_costs *c)
{
    if (o->json)
        return;
    printf("%s, %.0f values, batch %u on %u cores. Predicted, not measured there, from one thread's %.3f ms "
           "and %.4f ms "
           "an image,\n  %.1f %% of it serial, and %.1f GB/s of memory a core, %.1f GB/s of all\n",
           o->net, o->n_floats, o->batch, o->cores, c->fixed_s * 1e3, c->image_s * 1e3, c->serial * 100,
           c->core_bytes_s * 1e-9, c->bytes_s * 1e-9);
    printf("  %10s %8s %12s %10s %10s %10s %10s %8s\n", "partitions", "threads", "compute ms", "sum ms",
           "update ms", "step ms", "images/s", "speed");
}

static void print_step(const struct cores_options *o, const struct cores_step *s, double first_s)
{
    double images_s = o->batch / s->step_s, speed = first_s / s->step_s;
    if (o->json)
        printf(
            "{\"bench\":\"plan-cores\",\"partitions\":%u,\"threads\":%u,\"compute_ms\":%.4f,\"sum_ms\":%.4f,"
            "\"update_ms\":%.4f,\"step_ms\":%.4f,\"images_s\":%.2f,\"speed\":%.4f}\n",
            s->partitions, s->threads, s->compute_s * 1e3, s->sum_s * 1e3, s->update_s * 1e3, s->step_s * 1e3,
            images_s, speed);
    else
        printf("  %10u %8u %12.3f %10.3f %10.3f %10.3f %10.1f %8.2f\n", s->partitions, s->threads,
               s->compute_s * 1e3, s->sum_s * 1e3, s->update_s * 1e3, s->step_s * 1e3, images_s, speed);
}

int bench_cores(int argc, char **argv)
{
    struct cores_options o;
    struct cores_step first, s;
    int rc = cores_parse(argc, argv, &o);
    if (rc != 0)
        return rc > 0 ? 0 : 2;
    struct cores_costs costs = o.costs;
    if (fill(&o, &costs) < 0)
        return 1;
    print_costs(&o, &costs);
    cores_predict(&costs, o.n_floats, o.cores, o.batch, o.partitions[0], &first);
    for (size_t i = 0; i < o.n_partitions; i++) {
        cores_predict(&costs, o.n_floats, o.cores, o.batch, o.partitions[i], &s);
        print_step(&o, &s, first.step_s);
    }
    return 0;
}
