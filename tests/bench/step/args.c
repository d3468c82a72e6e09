#include "tests/bench/step/args.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/options.h"

static const char usage_text[] =
    "usage: psbench step [--net lenet] [--method d-sync|pipe-sgd|... | --server ENDPOINT] [--members 2]\n"
    "                    [--member K --rendezvous file:PATH --listen tcp://HOST] [--step-ms MS] [--whole]\n"
    "                    [--codec raw] [--links 1] [--segment 0] [--bucket-floats N] [--batch 32]\n"
    "                    [--threads 1] [--steps 20] [--messages packed|layers] [--both-only] [--json]\n"
    "  --server E        workers of that psd, under its method; members are one clique\n"
    "  --member K        this process is member K alone; the others are started likewise, on other hosts\n"
    "  --step-ms MS      no real computing: forward and backward are sleeps of MS together, divided over "
    "the\n"
    "                    layers by their multiply-adds\n"
    "  --whole           psc_step when all of the gradient is there, not its parts as they become ready\n"
    "  --messages M      no step of the library: after the whole gradient one sum of it (packed), or one for "
    "each\n"
    "                    layer (layers), and then SGD, as in You et al.'s figure 10\n"
    "  --both-only       computing and communication are not measured by themselves\n";

/* 0; 1: there is no such option; 2: a bad value. */
static int take_value(struct step_options *o, const char *option, const char *text)
{
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"--net", &o->net},          {"--method", &o->method},         {"--codec", &o->codec},
                 {"--server", &o->server},    {"--rendezvous", &o->rendezvous}, {"--listen", &o->listen},
                 {"--messages", &o->messages}};
    const struct {
        const char *name;
        double min, max;
        uint64_t *to;
    } numbers[] = {{"--members", 1, STEP_MAX_MEMBERS, &o->members},
                   {"--links", 1, 16, &o->links},
                   {"--segment", 0, 4 << 20, &o->segment},
                   {"--bucket-floats", 1, 1e12, &o->bucket_floats},
                   {"--steps", 1, STEP_MAX_STEPS, &o->steps},
                   {"--batch", 1, 65536, &o->batch},
                   {"--threads", 1, 1024, &o->threads}};
    double v;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].name, option) == 0) {
            *texts[i].to = text;
            return 0;
        }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, option) == 0) {
            if (!bench_number("step", option, text, numbers[i].min, numbers[i].max, &v))
                return 2;
            *numbers[i].to = (uint64_t)v;
            return 0;
        }
    if (strcmp(option, "--step-ms") == 0)
        return bench_number("step", option, text, 0.001, 1e6, &o->step_ms) ? 0 : 2;
    if (strcmp(option, "--member") != 0)
        return 1;
    if (!bench_number("step", option, text, 0, STEP_MAX_MEMBERS - 1, &v))
        return 2;
    o->member = (int64_t)v;
    return 0;
}

static int refuse(const char *why)
{
    fprintf(stderr, "psbench step: %s\n", why);
    return 2;
}

static int check(struct step_options *o)
{
    struct ps_error err = {""};
    if (cnn_model_read(o->net, &o->model, &err) != 0) {
        fprintf(stderr, "psbench step: --net: %s\n", err.text);
        return 2;
    }
    if ((o->method != NULL) == (o->server != NULL))
        return refuse("allowed is one of --method and --server");
    if (o->messages != NULL && strcmp(o->messages, "packed") != 0 && strcmp(o->messages, "layers") != 0)
        return refuse("--messages: allowed are packed and layers");
    if (o->messages != NULL && (o->members < 2 || o->method == NULL || strcmp(o->method, "d-sync") != 0))
        return refuse("--messages: given without --method d-sync and at least 2 --members");
    if (o->member >= (int64_t)o->members)
        return refuse("--member: allowed are 0 to --members less 1");
    if (o->member >= 0 && o->members > 1 && o->rendezvous == NULL)
        return refuse("--member: given without --rendezvous, where the members find each other");
    return 0;
}

static bool *flag_of(struct step_options *o, const char *option)
{
    const struct {
        const char *name;
        bool *to;
    } flags[] = {{"--json", &o->json}, {"--whole", &o->whole}, {"--both-only", &o->both_only}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(flags[i].name, option) == 0)
            return flags[i].to;
    return NULL;
}

int step_parse(int argc, char **argv, struct step_options *o)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage_text, stdout);
            return -1;
        }
        bool *flag = flag_of(o, argv[i]);
        if (flag != NULL) {
            *flag = true;
            continue;
        }
        int rc = i + 1 < argc ? take_value(o, argv[i], argv[i + 1]) : 1;
        if (rc == 1)
            fprintf(stderr, "psbench step: '%s': no such option, or no value\n%s", argv[i], usage_text);
        if (rc != 0)
            return 2;
        i++;
    }
    return check(o);
}
