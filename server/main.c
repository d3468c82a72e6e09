/* psd: options, then psd_run. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/log.h"
#include "server/psd.h"

static const char usage[] =
    "usage: psd [--config FILE] [options]\n"
    "\n"
    "  --config FILE         configuration; configs/psd.yaml documents every key\n"
    "  --method NAME         same as --set method=NAME\n"
    "  --set KEY=VALUE       override one key, such as parameters.period=4; may be repeated\n"
    "  --listen URL          tcp://HOST:PORT, loopback unless the configuration says insecure: true;\n"
    "                        or ipc://PATH, for workers on this machine\n"
    "  --port N              port of a tcp listen URL; 0: any free one\n"
    "  --endpoint-file FILE  write the URL there once psd is ready\n"
    "  --status unix:PATH    status socket\n"
    "  --state-dir DIR       checkpoints, history, lock\n"
    "  --resume              go on from the newest readable checkpoint\n"
    "  --check-config        check the configuration and exit\n"
    "  --version, --help\n"
    "\n"
    "exit: 0 ended well, 1 the system failed, 2 usage or configuration, 3 state directory taken,\n"
    "      4 cannot bind, 5 bad checkpoint\n";

enum {
    OPT_CONFIG = 256,
    OPT_METHOD,
    OPT_SET,
    OPT_LISTEN,
    OPT_PORT,
    OPT_ENDPOINT,
    OPT_STATUS,
    OPT_STATE,
    OPT_RESUME,
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
    {"resume", no_argument, NULL, OPT_RESUME},
    {"check-config", no_argument, NULL, OPT_CHECK},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

struct arguments {
    struct psd_config cfg;
    struct psd_start start;
    bool check_only;
};

static int fail(const char *sentence)
{
    fprintf(stderr, "psd: %s\n", sentence);
    return PSD_EXIT_CONFIG;
}

/* Options override the file whatever their order, so the file is read first. */
static int read_config(int argc, char **argv, struct arguments *a)
{
    struct ps_error err;
    int opt;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (opt == OPT_CONFIG && psd_config_read(&a->cfg, optarg, &err) < 0)
            return fail(err.text);
    optind = 1;
    opterr = 1;
    return 0;
}

static int set_key(struct psd_config *cfg, const char *key, const char *value)
{
    char assignment[600];
    struct ps_error err;
    int n = snprintf(assignment, sizeof assignment, "%s%s%s", key, key[0] != 0 ? "=" : "", value);
    if (n < 0 || (size_t)n >= sizeof assignment)
        return fail("an option's value is too long");
    return psd_config_set(cfg, assignment, &err) < 0 ? fail(err.text) : 0;
}

static int set_port(struct psd_config *cfg, const char *text)
{
    char *end, url[300];
    long port = strtol(text, &end, 10);
    const char *colon = strrchr(cfg->listen, ':');
    if (text[0] == 0 || *end != 0 || port < 0 || port > 65535 || colon == NULL) {
        fprintf(stderr, "psd: --port '%s': a port is a number from 0 to 65535\n", text);
        return PSD_EXIT_CONFIG;
    }
    if (strncmp(cfg->listen, "tcp://", 6) != 0) {
        fprintf(stderr, "psd: --port %ld: %s has no port; allowed with tcp://HOST:PORT\n", port, cfg->listen);
        return PSD_EXIT_CONFIG;
    }
    snprintf(url, sizeof url, "%.*s:%ld", (int)(colon - cfg->listen), cfg->listen, port);
    return set_key(cfg, "listen", url);
}

static int set_status(struct psd_config *cfg, const char *text)
{
    if (strncmp(text, "unix:", 5) != 0) {
        fprintf(stderr, "psd: --status '%s': allowed is unix:PATH\n", text);
        return PSD_EXIT_CONFIG;
    }
    return set_key(cfg, "status.socket", text + 5);
}

static int read_options(int argc, char **argv, struct arguments *a)
{
    int opt, rc = 0;
    while (rc == 0 && (opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case OPT_CONFIG:
            break;
        case OPT_METHOD:
            rc = set_key(&a->cfg, "method", optarg);
            break;
        case OPT_SET:
            rc = set_key(&a->cfg, "", optarg);
            break;
        case OPT_LISTEN:
            rc = set_key(&a->cfg, "listen", optarg);
            break;
        case OPT_PORT:
            rc = set_port(&a->cfg, optarg);
            break;
        case OPT_ENDPOINT:
            rc = set_key(&a->cfg, "endpoint_file", optarg);
            break;
        case OPT_STATUS:
            rc = set_status(&a->cfg, optarg);
            break;
        case OPT_STATE:
            rc = set_key(&a->cfg, "state_dir", optarg);
            break;
        case OPT_RESUME:
            a->start.resume = true;
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
        default:
            fputs(usage, stderr);
            return PSD_EXIT_CONFIG;
        }
    }
    if (rc == 0 && optind < argc) {
        fprintf(stderr, "psd: '%s' is no option; psd takes options only\n", argv[optind]);
        return PSD_EXIT_CONFIG;
    }
    return rc;
}

/* A connection takes a descriptor on each port, and libzmq spins while it cannot accept one: as many as the
 * system lets this process have. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    struct arguments a = {0};
    struct ps_error err, warning;
    int code;

    psd_config_defaults(&a.cfg);
    if ((code = read_config(argc, argv, &a)) != 0 || (code = read_options(argc, argv, &a)) != 0)
        return code;
    if (psd_config_check(&a.cfg, &err, &warning) < 0)
        return fail(err.text);
    ps_log_setup("psd", (enum ps_log_level)ps_log_level_parse(a.cfg.log_level));
    if (warning.text[0] != 0)
        ps_log(PS_LOG_WARN, "config.warning", "%s", warning.text);
    if (a.check_only) {
        puts("the configuration is valid");
        return 0;
    }
    raise_descriptor_limit();
    return psd_run(&a.cfg, &a.start);
}
