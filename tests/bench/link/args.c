#include "tests/bench/link/args.h"

#include <stdio.h>
#include <string.h>

#include "tests/bench/options.h"

static const char usage_text[] =
    "usage: psbench link --server ENDPOINT [--net lenet | --floats N] [--offer] [--turns 5] [--timeout-s "
    "120]\n"
    "                    [--transport NAME] [--key FILE] [--server-key KEY] [--json]\n"
    "  --server E     tcp://HOST:PORT or @FILE, of a psd that runs\n"
    "  --net NAME     the net that its job trains (lenet)\n"
    "  --floats N     instead: of a psd without a job, to which --offer gives N floats\n"
    "  --offer        be the first worker: for a psd that was started for the measurement\n"
    "  --turns N      of each measurement; the medians are printed\n"
    "  --timeout-s S  longest wait for one transfer\n";

static int refuse(const char *why)
{
    fprintf(stderr, "psbench link: %s\n", why);
    return 2;
}

/* 0; 1: there is no such option; 2: a bad value. */
static int take_value(struct link_options *o, const char *option, const char *text)
{
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"--server", &o->server},
                 {"--net", &o->net},
                 {"--key", &o->key},
                 {"--server-key", &o->server_key},
                 {"--transport", &o->transport}};
    const struct {
        const char *name;
        uint64_t min, max, *to;
    } numbers[] = {{"--floats", 1024, 1000000000000, &o->floats},
                   {"--turns", 1, LINK_MAX_TURNS, &o->turns},
                   {"--timeout-s", 1, 86400, &o->timeout_s}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].name, option) == 0) {
            *texts[i].to = text;
            return 0;
        }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, option) == 0)
            return bench_digits("link", option, text, numbers[i].min, numbers[i].max, numbers[i].to) ? 0 : 2;
    return 1;
}

static int check(struct link_options *o)
{
    struct ps_error err = {""};
    if (o->server == NULL)
        return refuse("--server is needed: the psd at the other end of the link");
    if (o->net != NULL && o->floats > 0)
        return refuse("--net and --floats both give the model; give one");
    if (o->net == NULL && o->floats == 0)
        o->net = "lenet";
    if (o->net == NULL || cnn_model_read(o->net, &o->model, &err) == 0)
        return 0;
    fprintf(stderr, "psbench link: --net: %s\n", err.text);
    return 2;
}

int link_parse(int argc, char **argv, struct link_options *o)
{
    *o = (struct link_options){.turns = 5, .timeout_s = 120};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage_text, stdout);
            return -1;
        }
        if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "--offer") == 0) {
            *(argv[i][2] == 'j' ? &o->json : &o->offer) = true;
            continue;
        }
        int rc = i + 1 < argc ? take_value(o, argv[i], argv[i + 1]) : 1;
        if (rc == 1)
            fprintf(stderr, "psbench link: '%s': no such option, or no value\n%s", argv[i], usage_text);
        if (rc != 0)
            return 2;
        i++;
    }
    return check(o);
}
