/* psbench.c: the table of subcommands. With --json each prints one JSON object per line; the last line is the
 * summary. */
#include <stdio.h>
#include <string.h>

#include "proto/malloc_settings.h"
#include "tests/bench/allreduce/allreduce.h"
#include "tests/bench/center/center.h"
#include "tests/bench/clients/clients.h"
#include "tests/bench/data/data.h"
#include "tests/bench/codec/codec.h"
#include "tests/bench/exchange/exchange.h"
#include "tests/bench/link/link.h"
#include "tests/bench/net/net.h"
#include "tests/bench/plan/plan.h"
#include "tests/bench/rule/rule.h"
#include "tests/bench/slow/slow.h"
#include "tests/bench/step/step.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; returns the exit code */
    const char *help;
};

static const struct command commands[] = {
    {"exchange", bench_exchange, bench_exchange_help},
    {"clients", bench_clients, bench_clients_help},
    {"center", bench_center, bench_center_help},
    {"codec", bench_codec, bench_codec_help},
    {"net", bench_net, bench_net_help},
    {"data", bench_data, bench_data_help},
    {"rule", bench_rule, bench_rule_help},
    {"allreduce", bench_allreduce, bench_allreduce_help},
    {"step", bench_step, bench_step_help},
    {"link", bench_link, bench_link_help},
    {"waits", bench_waits, bench_waits_help},
    {"plan", bench_plan, bench_plan_help},
};
static const size_t n_commands = sizeof commands / sizeof commands[0];

static void usage(FILE *out)
{
    fprintf(out, "usage: psbench COMMAND [option]...\n");
    for (size_t i = 0; i < n_commands; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
}

int main(int argc, char **argv)
{
    ps_memory_keep_buffers();
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        usage(stdout);
        return 0;
    }
    for (size_t i = 0; i < n_commands && argc > 1; i++)
        if (strcmp(commands[i].name, argv[1]) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (argc > 1)
        fprintf(stderr, "psbench: '%s' is not a command; there are:\n", argv[1]);
    usage(stderr);
    return 2;
}
