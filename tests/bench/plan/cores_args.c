/* cores_args.c: the command line of psbench plan --partitions. */
#include <math.h>
#include <string.h>

#include "nets/net.h"
#include "tests/bench/plan/cores.h"
#include "tests/bench/plan/numbers.h"

void cores_usage(FILE *out)
{
    fputs(
        "   or: psbench plan --partitions 1,2,4,8,16 --cores C [--net lenet] [--backend NAME] [--batch 256]\n"
        "                    [--memory-gb-s G] [--core-gb-s G] [--serial S] [--fixed-ms MS --image-ms MS]\n"
        "                    [--seconds 1] [--json]\n"
        "  --cores C          of the machine that is planned for\n"
        "  --memory-gb-s G    that its cores move together to and from memory; by default what the cores\n"
        "                     of this machine do, for as many\n"
        "  measured on this machine unless given:\n"
        "    --core-gb-s G    that one core moves\n"
        "    --serial S       share of forward and backward that more threads do not make shorter\n"
        "    --fixed-ms MS, --image-ms MS  forward and backward on one thread: of any batch, of each image\n",
        out);
}

bool cores_is_asked(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--partitions") == 0)
            return true;
    return false;
}

/* 0; 1: there is no such option; -1: a bad value. */
static int take_number(struct cores_options *o, const char *name, const char *text)
{
    const struct {
        const char *name;
        double least, most, unit;
        double *to;
    } numbers[] = {{"--memory-gb-s", 1e-3, 1e6, 1e9, &o->costs.bytes_s},
                   {"--core-gb-s", 1e-3, 1e6, 1e9, &o->costs.core_bytes_s},
                   {"--serial", 0, 1, 1, &o->costs.serial},
                   {"--fixed-ms", 0, 1e7, 1e-3, &o->costs.fixed_s},
                   {"--image-ms", 0, 1e7, 1e-3, &o->costs.image_s},
                   {"--seconds", 1e-3, 3600, 1, &o->seconds}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(numbers[i].name, name) != 0)
            continue;
        if (!plan_number(name, text, numbers[i].least, numbers[i].most, numbers[i].to))
            return -1;
        *numbers[i].to *= numbers[i].unit;
        return 0;
    }
    return 1;
}

static int take_value(struct cores_options *o, const char *name, const char *text)
{
    if (strcmp(name, "--partitions") == 0)
        return plan_counts(name, text, 4096, CORES_MAX_LIST, o->partitions, &o->n_partitions) ? 0 : -1;
    if (strcmp(name, "--cores") == 0)
        return plan_count(name, text, 4096, &o->cores) ? 0 : -1;
    if (strcmp(name, "--batch") == 0)
        return plan_count(name, text, 65536, &o->batch) ? 0 : -1;
    if (strcmp(name, "--net") == 0 || strcmp(name, "--backend") == 0) {
        *(name[2] == 'n' ? &o->net : &o->backend) = text;
        return 0;
    }
    return take_number(o, name, text);
}

static int finish(struct cores_options *o)
{
    struct cnn_model model;
    struct ps_error err = {""};
    if (cnn_model_read(o->net, &model, &err) != 0) {
        fprintf(stderr, "psbench plan: --net: %s\n", err.text);
        return -1;
    }
    o->n_floats = (double)cnn_model_n_floats(&model);
    if (o->cores == 0) {
        fputs("psbench plan: --partitions needs --cores, those of the machine that is planned for\n", stderr);
        return -1;
    }
    for (size_t i = 0; i < o->n_partitions; i++)
        if (o->partitions[i] > o->cores || o->batch % o->partitions[i] != 0) {
            fprintf(
                stderr,
                "psbench plan: --partitions has %u; allowed are divisors of --batch, %u, up to --cores, %u\n",
                o->partitions[i], o->batch, o->cores);
            return -1;
        }
    if (isnan(o->costs.fixed_s) == isnan(o->costs.image_s))
        return 0;
    fputs("psbench plan: --fixed-ms and --image-ms: both, or none\n", stderr);
    return -1;
}

int cores_parse(int argc, char **argv, struct cores_options *o)
{
    *o = (struct cores_options){
        .net = "lenet", .batch = 256, .seconds = 1, .costs = {NAN, NAN, NAN, NAN, NAN}};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            cores_usage(stdout);
            return 1;
        }
        if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
            continue;
        }
        int rc = i + 1 < argc ? take_value(o, argv[i], argv[i + 1]) : 1;
        if (rc > 0)
            fprintf(stderr, "psbench plan: '%s': no such option with --partitions, or no value\n", argv[i]);
        if (rc != 0)
            return -1;
        i++;
    }
    return finish(o);
}
