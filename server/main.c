/* psd's command line: reads the options and calls psd_run. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/log.h"
#include "proto/standard_files.h"
#include "server/psd.h"

static const char usage[] =
    "usage: psd [--config FILE] [options]\n"
    "\n"
    "  --config FILE         configuration; configs/psd.yaml documents every key\n"
    "  --method NAME         same as --set method=NAME\n"
    "  --set KEY=VALUE       override one key, such as parameters.period=4; may be repeated\n"
    "  --listen URL          tcp://HOST:PORT, loopback unless the configuration says insecure: true;\n"
    "                        or ipc://PATH, for workers on this machine\n"
    "  --port N              port of a tcp listen URL; 0: any free port\n"
    "  --endpoint-file FILE  write the URL there once psd is ready\n"
    "  --status unix:PATH    status socket\n"
    "  --state-dir DIR       checkpoints, history, lock\n"
    "  --tensorboard DIR     write the job over time to DIR/psd, as TensorBoard reads it\n"
    "  --shard I/N           serve part I of a center that N psd processes hold; 0 is the head\n"
    "  --head URL|@FILE      address of the head, for the other servers\n"
    "  --resume              resume from the newest readable checkpoint\n"
    "  --unset               the same, without the settings made while the job ran (psctl set, psctl "
    "method)\n"
    "  --fresh               begin a new job in a state directory that holds one: its checkpoints are set "
    "aside\n"
    "  --check-config        check the configuration and exit\n"
    "  --version, --help\n"
    "\n"
    "exit: 0 success, 1 system error, 2 usage or configuration, 3 state directory taken or used,\n"
    "      4 cannot bind, 5 bad checkpoint, 6 other servers missing,\n"
    "      7 the last checkpoint was not written\n";

enum {
    OPT_CONFIG = 256,
    OPT_METHOD,
    OPT_SET,
    OPT_LISTEN,
    OPT_PORT,
    OPT_ENDPOINT,
    OPT_STATUS,
    OPT_STATE,
    OPT_TENSORBOARD,
    OPT_SHARD,
    OPT_HEAD,
    OPT_RESUME,
    OPT_FRESH,
    OPT_UNSET,
    OPT_CHECK,
    OPT_VERSION,
    OPT_HELP
};

static const struct option options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"method", required_argument, NULL, OPT_METHOD},
    {"set", required_argument, NULL, OPT_SET},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"port", required_argument, NULL, OPT_PORT},
    {"endpoint-file", required_argument, NULL, OPT_ENDPOINT},
    {"status", required_argument, NULL, OPT_STATUS},
    {"state-dir", required_argument, NULL, OPT_STATE},
    {"tensorboard", required_argument, NULL, OPT_TENSORBOARD},
    {"shard", required_argument, NULL, OPT_SHARD},
    {"head", required_argument, NULL, OPT_HEAD},
    {"resume", no_argument, NULL, OPT_RESUME},
    {"fresh", no_argument, NULL, OPT_FRESH},
    {"unset", no_argument, NULL, OPT_UNSET},
    {"check-config", no_argument, NULL, OPT_CHECK},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

struct arguments {
    struct psd_start start;
    const char *port; /* NULL: --port is not given */
    bool check_only;
};

static int fail(const char *sentence)
{
    fprintf(stderr, "psd: %s\n", sentence);
    return PSD_EXIT_CONFIG;
}

/* Options override the configuration file, whatever their order. The assignments outlive psd_run, which reads
 * both again on a reload. */
static int set_key(struct arguments *a, const char *key, const char *value)
{
    struct psd_config_source *s = &a->start.source;
    char *assignment = NULL;
    if (asprintf(&assignment, "%s%s%s", key, key[0] != 0 ? "=" : "", value) < 0)
        return fail("no memory for the options");
    s->assignments[s->n++] = assignment;
    return 0;
}

/* Quotes the value, so that YAML reads it as a string: a path may hold ": " or " #". */
static int set_quoted(struct arguments *a, const char *key, const char *value)
{
    char *quoted = calloc(2, strlen(value) + 2), *to = quoted;
    if (quoted == NULL)
        return fail("no memory for the options");
    *to++ = '\'';
    for (const char *from = value; *from != 0; *to++ = *from++)
        if (*from == '\'')
            *to++ = '\'';
    *to = '\'';
    int rc = set_key(a, key, quoted);
    free(quoted);
    return rc;
}

/* Changes the port of the listen URL that the file and all other options give. */
static int set_port(struct arguments *a, const char *text)
{
    char *end, url[300];
    struct psd_config cfg;
    struct ps_error err;
    long port = strtol(text, &end, 10);
    if (psd_config_gather(&a->start.source, &cfg, &err) < 0)
        return fail(err.text);
    const char *listen = cfg.listen, *colon = strrchr(listen, ':');
    if (text[0] == 0 || *end != 0 || port < 0 || port > 65535 || colon == NULL) {
        fprintf(stderr, "psd: --port '%s': a port is a number from 0 to 65535\n", text);
        return PSD_EXIT_CONFIG;
    }
    if (strncmp(listen, "tcp://", 6) != 0) {
        fprintf(stderr, "psd: --port %ld: %s has no port; allowed with tcp://HOST:PORT\n", port, listen);
        return PSD_EXIT_CONFIG;
    }
    snprintf(url, sizeof url, "%.*s:%ld", (int)(colon - listen), listen, port);
    return set_quoted(a, "listen", url);
}

static int set_status(struct arguments *a, const char *text)
{
    if (strncmp(text, "unix:", 5) != 0) {
        fprintf(stderr, "psd: --status '%s': allowed is unix:PATH\n", text);
        return PSD_EXIT_CONFIG;
    }
    return set_quoted(a, "status.socket", text + 5);
}

static int set_shard(struct arguments *a, const char *text)
{
    char index[12], rest[2];
    unsigned i, n;
    if (sscanf(text, "%u/%u%1s", &i, &n, rest) != 2 || strspn(text, "0123456789/") != strlen(text) ||
        i >= n) {
        fprintf(stderr, "psd: --shard '%s': allowed is I/N, such as 0/2 and 1/2\n", text);
        return PSD_EXIT_CONFIG;
    }
    snprintf(index, sizeof index, "%u", i);
    int rc = set_key(a, "servers.count", strchr(text, '/') + 1);
    return rc == 0 ? set_key(a, "servers.index", index) : rc;
}

static void find_config(int argc, char **argv, struct arguments *a)
{
    int opt;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (opt == OPT_CONFIG)
            a->start.source.path = optarg;
    optind = 1;
    opterr = 1;
}

static int read_options(int argc, char **argv, struct arguments *a)
{
    int opt, rc = 0;
    while (rc == 0 && (opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case OPT_CONFIG:
            break; /* handled before the other options */
        case OPT_METHOD:
            rc = set_quoted(a, "method", optarg);
            break;
        case OPT_SET:
            rc = set_key(a, "", optarg);
            break;
        case OPT_LISTEN:
            rc = set_quoted(a, "listen", optarg);
            break;
        case OPT_PORT:
            a->port = optarg; /* applied after the other options */
            break;
        case OPT_ENDPOINT:
            rc = set_quoted(a, "endpoint_file", optarg);
            break;
        case OPT_STATUS:
            rc = set_status(a, optarg);
            break;
        case OPT_STATE:
            rc = set_quoted(a, "state_dir", optarg);
            break;
        case OPT_TENSORBOARD:
            rc = set_quoted(a, "tensorboard", optarg);
            break;
        case OPT_SHARD:
            rc = set_shard(a, optarg);
            break;
        case OPT_HEAD:
            rc = set_quoted(a, "servers.head", optarg);
            break;
        case OPT_RESUME:
            a->start.resume = true;
            break;
        case OPT_FRESH:
            a->start.fresh = true;
            break;
        case OPT_UNSET:
            a->start.unset = a->start.resume = true;
            break;
        case OPT_CHECK:
            a->check_only = true;
            break;
        case OPT_VERSION:
            printf("psd %s\n", PSD_VERSION);
            exit(0);
        case OPT_HELP:
            fputs(usage, stdout);
            exit(0);
        default: /* getopt has named the option */
            fputs("psd: see psd --help\n", stderr);
            return PSD_EXIT_CONFIG;
        }
    }
    if (rc == 0 && a->start.resume && a->start.fresh)
        return fail("--resume and --fresh: allowed is one of them");
    if (rc == 0 && optind < argc) {
        fprintf(stderr, "psd: '%s' is not an option; psd takes only options\n", argv[optind]);
        return PSD_EXIT_CONFIG;
    }
    return rc == 0 && a->port != NULL ? set_port(a, a->port) : rc;
}

/* Each connection takes a descriptor on each port, and libzmq spins while it cannot accept one. Raise the
 * limit to the maximum that the system allows this process. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int start(int argc, char **argv, struct arguments *a)
{
    struct psd_config cfg;
    struct ps_error err, warning;
    int code;

    find_config(argc, argv, a);
    if ((code = read_options(argc, argv, a)) != 0)
        return code;
    if (psd_config_gather(&a->start.source, &cfg, &err) < 0)
        return fail(err.text);
    a->start.layers.base = cfg;
    if (psd_config_settle(&cfg, &err, &warning) < 0) {
        psd_config_name_line(&a->start.source, &err);
        return fail(err.text);
    }
    ps_log_setup("psd", (enum ps_log_level)ps_log_level_parse(cfg.log_level));
    if (warning.text[0] != 0)
        ps_log(PS_LOG_WARN, "config.warning", "%s", warning.text);
    if (a->check_only) {
        puts("the configuration is valid");
        return 0;
    }
    raise_descriptor_limit();
    return psd_run(&cfg, &a->start);
}

int main(int argc, char **argv)
{
    struct arguments a = {0};
    struct psd_config_source *s = &a.start.source;
    ps_standard_files_open();
    signal(SIGPIPE, SIG_IGN); /* the job must survive the reader of its log */
    signal(SIGXFSZ, SIG_IGN); /* and a write past `ulimit -f`, which then fails like one to a full disk */
    s->assignments = calloc(2 * (size_t)argc, sizeof *s->assignments);
    int code = s->assignments != NULL ? start(argc, argv, &a) : fail("no memory for the options");
    for (size_t i = 0; i < s->n; i++)
        free(s->assignments[i]);
    free(s->assignments);
    return code;
}
