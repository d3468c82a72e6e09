/* psctl: the operator's tool. Sends one request to the status socket and prints the answer as text or as
 * received; checkpoint, drain, reload, set, method and unset then wait until the request is complete. top
 * polls repeatedly.
 *
 * Exit status: 0 done, 1 psd answered with an error or did not finish in time, 2 usage, 6 psd cannot be
 * reached. */
#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/security/curve.h"
#include "proto/standard_files.h"
#include "proto/text.h"
#include "server/checkpoint/join_shards.h"
#include "server/config/settings.h"
#include "server/ctl/csv.h"
#include "server/ctl/format.h"
#include "server/ctl/http_client.h"
#include "server/ctl/keygen.h"
#include "server/ctl/print.h"
#include "server/ctl/top.h"

enum { EXIT_DONE = 0, EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_UNREACHABLE = 6 };

#define POLL_MS           100
#define LONGEST_TIMEOUT_S 86400

struct call {
    const struct command *command;
    struct ctl_client *client;
    const char *socket_path;
    const char *argument; /* of a command that takes one */
    char **more;          /* [n_more]: further words of a command that takes more */
    size_t n_more;
    const char *name; /* of keygen */
    bool json, csv, once;
    double interval_s;
    uint32_t timeout_s; /* for the whole command */
    double started_s;
};

struct command {
    const char *name, *method, *path;
    const char *argument; /* the command's argument, for --help; NULL: none */
    const char *query;    /* its name in the request; NULL: it is not sent */
    int (*check)(const struct command *command, const char *argument); /* returns 0, or the exit status */
    bool is_local;                                                     /* it needs no psd */
    bool takes_more;   /* at least one further word after its argument */
    bool takes_lines;  /* any number of words like its argument, sent as lines */
    const char *first; /* prefix of the first line; NULL: none */
    bool is_text;      /* the answer is text for people, without JSON */
    void (*print)(FILE *out,
                  const json_t *answer); /* prints the answer for people; NULL: wait prints everything */
    void (*print_csv)(FILE *out, const json_t *answer);   /* as a table for programs; NULL: there is none */
    int (*wait)(struct call *call, const json_t *answer); /* waits until it is done and returns the exit
                                                             status; NULL: it is done at once */
    /* Called without an answer: returns the exit status; NULL: psd cannot be reached. */
    int (*unanswered)(const struct call *call, int rc, const struct ps_error *err);
    int (*run)(struct call *call); /* runs the whole command, instead of one request */
    uint32_t timeout_s;            /* the default of --timeout */
    const char *help;
};

static int complain(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int complain(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "psctl: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    return status;
}

/* The remaining time of the call; 0: none. */
static uint32_t left_ms(const struct call *call)
{
    double left = 1e3 * (call->timeout_s - (ps_now_s() - call->started_s));
    return left >= 1 ? (uint32_t)left : 0;
}

static void pause_between_polls(void)
{
    ps_sleep_us(POLL_MS * 1000);
}

/* Prints psd's own sentence from {"error": …}, which may quote a peer. */
static int complain_answer(const struct call *call, const struct ctl_reply *reply, const json_t *answer)
{
    const char *sentence = json_string_value(json_object_get(answer, "error"));
    char text[1024];
    ctl_copy_printable(text, sizeof text, sentence != NULL ? sentence : "(no sentence)");
    return complain(EXIT_REFUSED, "psd answered %d to %s: %s", reply->status, call->command->name, text);
}

/* Polls /status once; the caller releases it. Returns an exit code; prints errors. */
static int ask_status(struct call *call, json_t **status)
{
    struct ctl_reply reply;
    struct ps_error err;
    if (ctl_client_ask(call->client, "GET", "/status", left_ms(call) + 1, &reply, &err) < 0)
        return complain(EXIT_UNREACHABLE, "%s", err.text);
    *status = json_loadb(reply.body, reply.len_bytes, 0, NULL);
    free(reply.body);
    return *status != NULL ? EXIT_DONE : complain(EXIT_REFUSED, "psd's /status is not JSON");
}

/* Done when a checkpoint at least as new as the one that was started exists and none is being written. */
static int wait_checkpoint(struct call *call, const json_t *answer)
{
    json_int_t wanted = json_integer_value(json_object_get(answer, "version"));
    json_t *status = NULL;

    while (left_ms(call) > 0) {
        int rc = ask_status(call, &status);
        if (rc != EXIT_DONE)
            return rc;
        const json_t *c = json_object_get(status, "checkpoint");
        const char *path = json_string_value(json_object_get(c, "last_path"));
        const char *failure = json_string_value(json_object_get(c, "last_error"));
        bool busy = json_is_true(json_object_get(c, "in_progress")), found = false;
        if (!busy && failure != NULL)
            rc = complain(EXIT_REFUSED, "the checkpoint failed: %s", failure);
        else if (!busy && path != NULL && json_integer_value(json_object_get(c, "last_version")) >= wanted)
            found = true;
        if (found && !call->json)
            printf("%s\n", path);
        json_decref(status);
        if (found || rc != 0)
            return rc;
        pause_between_polls();
    }
    return complain(EXIT_REFUSED, "the checkpoint was not written within %u s (--timeout)", call->timeout_s);
}

/* Whether this is the psd that drains; another one may have taken over the socket. */
static bool still_drains(const struct ctl_reply *reply)
{
    json_t *status = json_loadb(reply->body, reply->len_bytes, 0, NULL);
    const char *state = json_string_value(json_object_get(status, "state"));
    bool drains = state != NULL && (strcmp(state, "draining") == 0 || strcmp(state, "stopping") == 0);
    json_decref(status);
    return drains;
}

/* psd has answered with the result. Done when it no longer listens at the socket. */
static int wait_drain(struct call *call, const json_t *answer)
{
    struct ctl_reply reply;
    (void)answer;

    while (left_ms(call) > 0) {
        bool drains = true;
        int rc = ctl_client_ask(call->client, "GET", "/status", left_ms(call) + 1, &reply, NULL);
        if (rc == 0) {
            drains = still_drains(&reply);
            free(reply.body);
        }
        if (rc == -ECONNREFUSED || !drains) {
            if (!call->json)
                printf("drained\n");
            return EXIT_DONE;
        }
        pause_between_polls();
    }
    return complain(EXIT_REFUSED, "psd is still draining after %u s (--timeout)", call->timeout_s);
}

/* Whether psd says so; not if it says nothing for a second. */
static bool is_draining(const struct call *call)
{
    struct ctl_reply reply;
    if (ctl_client_ask(call->client, "GET", "/status", 1000, &reply, NULL) != 0)
        return false;
    bool drains = still_drains(&reply);
    free(reply.body);
    return drains;
}

static int drain_unanswered(const struct call *call, int rc, const struct ps_error *err)
{
    if (rc == -ETIMEDOUT && is_draining(call))
        return complain(EXIT_REFUSED, "psd is still draining after %u s (--timeout)", call->timeout_s);
    if (rc == -ETIMEDOUT)
        return complain(EXIT_UNREACHABLE,
                        "psd has not answered within %u s (--timeout): it may not know that it is to drain",
                        call->timeout_s);
    if (rc == -ECONNREFUSED)
        return complain(EXIT_UNREACHABLE, "%s", err->text);
    return complain(EXIT_REFUSED, "psd has ended without a result; its log shows whether the center was "
                                  "saved, and its state directory has the checkpoints");
}

/* Prints the result and the settings that override the file. */
static void print_change(const struct call *call, const json_t *answer, const char *how)
{
    static const char *const done[][2] = {
        {"reload", "reloaded"}, {"set", "set"}, {"method", "set"}, {"unset", "unset"}};
    const char *method = json_string_value(json_object_get(answer, "method"));
    const char *set = json_string_value(json_object_get(answer, "set_above_file"));
    const char *word = "done";
    char text[4096];
    for (size_t i = 0; i < sizeof done / sizeof *done; i++)
        if (strcmp(done[i][0], call->command->name) == 0)
            word = done[i][1];
    printf("%s: method %s, generation %lld\n", how != NULL && strcmp(how, "unchanged") == 0 ? how : word,
           method != NULL ? method : "?",
           (long long)json_integer_value(json_object_get(answer, "generation")));
    if (set == NULL || set[0] == 0)
        return;
    ctl_copy_printable(text, sizeof text, set);
    printf("settings above the file: %s\n", text);
}

/* Why psd refused the request that it had accepted; NULL: it has not, or another client's alone. */
static const char *refusal_of(const json_t *reload, json_int_t request)
{
    const json_t *refusal = json_object_get(reload, "refusal");
    return request >= json_integer_value(json_object_get(refusal, "first")) &&
                   request <= json_integer_value(json_object_get(refusal, "last"))
               ? json_string_value(json_object_get(refusal, "error"))
               : NULL;
}

/* Done when the requested method is in force, and psd's state directory has the settings. Those that it
 * cannot take would be lost in a resume. A reload needs no record: the file has what it reads. */
static int wait_reload(struct call *call, const json_t *answer)
{
    const char *how = json_string_value(
        json_object_get(answer, strcmp(call->command->name, "method") == 0 ? "set" : call->command->name));
    json_int_t generation = json_integer_value(json_object_get(answer, "generation"));
    bool is_set = strcmp(call->command->name, "reload") != 0;
    json_t *status = NULL;

    while (left_ms(call) > 0) {
        int rc = ask_status(call, &status);
        if (rc != EXIT_DONE)
            return rc;
        const json_t *reload = json_object_get(status, "reload");
        const char *failure = refusal_of(reload, json_integer_value(json_object_get(answer, "request")));
        bool in_force = json_integer_value(json_object_get(status, "generation")) >= generation;
        const char *unsaved = json_string_value(json_object_get(reload, "record_error"));
        bool done = in_force && (unsaved != NULL || !json_is_false(json_object_get(reload, "set_recorded")));
        if (failure != NULL)
            rc = complain(EXIT_REFUSED, "%s: %s",
                          is_set ? "nothing has changed" : "the method has not changed", failure);
        else if (unsaved != NULL && is_set && in_force)
            rc = complain(EXIT_REFUSED, "in force, but not saved in the state directory: %s", unsaved);
        json_decref(status);
        if (done && rc == 0 && !call->json)
            print_change(call, answer, how);
        if (done || rc != 0)
            return rc;
        pause_between_polls();
    }
    return complain(EXIT_REFUSED,
                    "the method has not changed within %u s (--timeout); it will when open exchanges have "
                    "completed, or their workers were evicted",
                    call->timeout_s);
}

static int run_top(struct call *call)
{
    struct ps_error err;
    struct ctl_top *top;
    int rc = ctl_top_create(call->client, call->timeout_s * 1000, &top, &err);
    if (rc == 0) {
        rc = call->once ? ctl_top_once(top, stdout, &err) : ctl_screen_run(top, call->interval_s, &err);
        ctl_top_destroy(top);
    }
    if (rc == 0)
        return EXIT_DONE;
    return complain(rc == -ENOTTY   ? EXIT_USAGE
                    : rc == -ENOMEM ? EXIT_REFUSED
                                    : EXIT_UNREACHABLE,
                    "%s", err.text);
}

static int run_keygen(struct call *call)
{
    struct ps_error err;
    return ctl_keygen(call->argument, call->name, stdout, &err) < 0 ? complain(EXIT_REFUSED, "%s", err.text)
                                                                    : EXIT_DONE;
}

static int run_merge(struct call *call)
{
    struct psd_merged merged;
    struct ps_error err;
    if (psd_join_shards(call->argument, call->more, call->n_more, &merged, &err) < 0)
        return complain(EXIT_REFUSED, "%s", err.text);
    printf("%s\n", merged.path);
    if (merged.low != merged.high)
        fprintf(stderr,
                "psctl: no version is common to all parts; their versions are %" PRIu64 " to %" PRIu64 "\n",
                merged.low, merged.high);
    return EXIT_DONE;
}

static int check_rank(const struct command *command, const char *argument)
{
    size_t digits = strspn(argument, "0123456789");
    return digits == 0 || digits > 6 || argument[digits] != 0
               ? complain(EXIT_USAGE, "%s: found '%.40s'; allowed is a rank such as 0", command->name,
                          argument)
               : 0;
}

static int check_name(const struct command *command, const char *argument)
{
    return ps_curve_is_name(argument)
               ? 0
               : complain(EXIT_USAGE, "%s: found '%.80s'; allowed is a name in the allow-list", command->name,
                          argument);
}

static int check_assignment(const struct command *command, const char *argument)
{
    return strchr(argument, '=') != NULL && argument[0] != '='
               ? 0
               : complain(EXIT_USAGE,
                          "%s: found '%.80s'; allowed is KEY=VALUE, such as learning_rate=0.01; psd.yaml(5) "
                          "lists the keys",
                          command->name, argument);
}

static int check_word(const struct command *command, const char *argument)
{
    return argument[0] != 0 && strpbrk(argument, "= \n") == NULL
               ? 0
               : complain(EXIT_USAGE, "%s: found '%.80s'; allowed is %s", command->name, argument,
                          command->first != NULL
                              ? "the name of a method first, such as eamsgd"
                              : "the name of a key that is set, such as learning_rate, or all");
}

static int check_path(const struct command *command, const char *argument)
{
    return argument[0] != 0 ? 0 : complain(EXIT_USAGE, "%s: found an empty path", command->name);
}

static const struct command commands[] = {
    {"status", "GET", "/status", .print = ctl_print_status, .timeout_s = 10,
     .help = "state of psd and its job"},
    {"workers", "GET", "/workers", .print = ctl_print_workers, .timeout_s = 10,
     .help = "the clients of the job, one a line"},
    {"config", "GET", "/config", .print = ctl_print_config, .timeout_s = 10,
     .help = "the configuration in force, as YAML for psd"},
    {"metrics", "GET", "/metrics", .is_text = true, .timeout_s = 10,
     .help = "counters in Prometheus' format"},
    {"history", "GET", "/history", .print = ctl_print_history, .print_csv = ctl_csv_history, .timeout_s = 10,
     .help = "the job over time: version, updates/s, loss, accuracy"},
    {"checkpoint", "POST", "/checkpoint", .wait = wait_checkpoint, .timeout_s = 60,
     .help = "writes a checkpoint now; waits for it and prints its path"},
    {"drain", "POST", "/drain?wait=end", .wait = wait_drain, .unanswered = drain_unanswered, .timeout_s = 60,
     .help = "ends the job cleanly; waits until the center is saved and psd has stopped"},
    {"reload", "POST", "/reload", .wait = wait_reload, .timeout_s = 60,
     .help = "reads the configuration again; waits until its method is in force"},
    {"set", "POST", "/set", .argument = "KEY=VALUE...", .query = "lines", .check = check_assignment,
     .takes_lines = true, .wait = wait_reload, .timeout_s = 60,
     .help = "changes keys of the running job; they override its file and are kept for a resume"},
    {"method", "POST", "/set", .argument = "NAME [KEY=VALUE...]", .query = "lines", .check = check_word,
     .takes_lines = true, .first = "method=", .wait = wait_reload, .timeout_s = 60,
     .help = "changes the method: the same as set method=NAME KEY=VALUE..."},
    {"unset", "POST", "/unset", .argument = "KEY...", .query = "keys", .check = check_word,
     .takes_lines = true, .wait = wait_reload, .timeout_s = 60,
     .help = "removes settings, or all: the file applies again"},
    {"evict", "POST", "/evict", .argument = "RANK", .query = "rank", .check = check_rank,
     .print = ctl_print_evicted, .timeout_s = 10,
     .help = "ends that worker's session; a new one may join, unless psd has auth.key: see allow"},
    {"allow", "POST", "/allow", .argument = "NAME", .query = "name", .check = check_name,
     .print = ctl_print_allowed, .timeout_s = 10, .help = "lets an evicted identity join again"},
    {"keygen", .argument = "FILE", .check = check_path, .is_local = true, .run = run_keygen, .timeout_s = 10,
     .help = "creates a key pair and prints its line for the allow-list; needs no psd"},
    {"merge", .argument = "OUT DIR...", .check = check_path, .is_local = true, .takes_more = true,
     .run = run_merge, .timeout_s = 10,
     .help = "joins several servers' parts into one checkpoint; needs no psd"},
    {"top", .run = run_top, .timeout_s = 2, .help = "live view: q quits, s sorts the workers"},
    {.name = NULL},
};

static const struct command *find_command(const char *name)
{
    for (const struct command *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static void complain_command(const char *found)
{
    char allowed[200] = "";
    for (const struct command *c = commands; c->name != NULL; c++)
        ps_text_join(allowed, sizeof allowed, ", ", c->name);
    if (found == NULL)
        complain(EXIT_USAGE, "no command; allowed are %s", allowed);
    else
        complain(EXIT_USAGE, "'%.40s' is not a command; allowed are %s", found, allowed);
}

static void print_help(void)
{
    printf("usage: psctl [--socket PATH] COMMAND [option]...\n       psctl keygen FILE [--name NAME]\n\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        char name[40];
        snprintf(name, sizeof name, "%s %s", c->name, c->argument != NULL ? c->argument : "");
        bool is_long = strlen(name) > 16;
        printf("  %-16s%s%*s %s\n", name, is_long ? "\n" : "", is_long ? 18 : 0, "", c->help);
    }
    printf("\n  --socket PATH  psd's status socket (default: ./psd-state/psd.sock if it exists, else "
           "PSD_SOCKET)\n"
           "  --json         print psd's answer as received\n"
           "  --csv          history: print all of it as CSV (RFC 4180)\n"
           "  --timeout S    give up after S seconds, 1 to %d (10; checkpoint, drain, reload, set,\n"
           "                 method and unset: 60; top: 2, of each look)\n"
           "  --once         top: print one frame as text and end\n"
           "  --interval S   top: seconds between two looks, 0.1 to 3600 (1)\n"
           "  --name NAME    keygen: name of the key's owner (this user at this host)\n"
           "  --help, --version\n\n"
           "Exit status: 0 done, 1 psd answered with an error or did not finish in time, 2 usage,\n"
           "6 psd cannot be reached.\n",
           LONGEST_TIMEOUT_S);
}

static int parse_timeout(const char *text, uint32_t *out)
{
    size_t n = strlen(text);
    unsigned long value = strtoul(text, NULL, 10);
    if (n < 1 || n > 6 || strspn(text, "0123456789") != n || value < 1 || value > LONGEST_TIMEOUT_S)
        return complain(EXIT_USAGE,
                        "--timeout: found '%.40s'; allowed is a whole number of seconds from 1 to %d", text,
                        LONGEST_TIMEOUT_S);
    *out = (uint32_t)value;
    return 0;
}

static int parse_interval(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (text[0] == 0 || *end != 0 || !(value >= 0.1 && value <= 3600))
        return complain(EXIT_USAGE, "--interval: found '%.40s'; allowed are 0.1 to 3600 seconds", text);
    *out = value;
    return 0;
}

/* The words after the options: the command and its arguments. */
static int parse_command(int n, char **words, struct call *call)
{
    const struct command *c = n > 0 ? find_command(words[0]) : NULL;
    if (c == NULL) {
        complain_command(n == 0 ? NULL : words[0]);
        return EXIT_USAGE;
    }
    call->command = c;
    int takes = c->argument != NULL;
    if (n > 1 + takes && !c->takes_more && !c->takes_lines)
        return complain(EXIT_USAGE, "'%.40s' after %s; allowed is one command", words[1 + takes], c->name);
    if (n < 1 + takes + c->takes_more)
        return complain(EXIT_USAGE, "%s needs %s%s", c->name, c->argument,
                        c->is_local || c->takes_lines ? "" : ", as psctl workers lists it");
    if (takes) {
        int status = c->check(c, words[1]);
        call->argument = words[1];
        call->more = words + 2;
        call->n_more = (size_t)n - 2;
        for (size_t i = 0; c->takes_lines && status == 0 && i < call->n_more; i++)
            status = (c->first != NULL ? check_assignment : c->check)(c, call->more[i]);
        if (status != 0)
            return status;
    }
    if (call->name != NULL && !c->is_local)
        return complain(EXIT_USAGE, "--name is for keygen");
    if (call->json && (c->is_text || c->run != NULL))
        return complain(EXIT_USAGE, "%s has no --json; %s", c->name,
                        c->is_text ? "its output is already for programs"
                                   : "allowed with status and workers");
    if (call->csv && c->print_csv == NULL)
        return complain(EXIT_USAGE, "%s has no --csv; allowed with history", c->name);
    if (call->csv && call->json)
        return complain(EXIT_USAGE, "--json and --csv: allowed is one of them");
    if (call->once && c->run != run_top)
        return complain(EXIT_USAGE, "--once is for top; %s always ends by itself", c->name);
    return 0;
}

/* The socket of a psd that was started in this directory with its default state directory; otherwise that of
 * the environment. */
static const char usual_socket[] = "psd-state/psd.sock";

static const char *find_socket(void)
{
    return access(usual_socket, F_OK) == 0 ? usual_socket : getenv("PSD_SOCKET");
}

/* Fills *call; returns -1, or the exit status if there is nothing more to do. */
static int parse_arguments(int argc, char **argv, struct call *call)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'}, {"json", no_argument, NULL, 'j'},
        {"csv", no_argument, NULL, 'c'},          {"timeout", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},         {"version", no_argument, NULL, 'v'},
        {"once", no_argument, NULL, 'o'},         {"interval", required_argument, NULL, 'i'},
        {"name", required_argument, NULL, 'n'},   {NULL, 0, NULL, 0},
    };
    int option, status;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            call->socket_path = optarg;
            break;
        case 'j':
            call->json = true;
            break;
        case 'c':
            call->csv = true;
            break;
        case 't':
            if (parse_timeout(optarg, &call->timeout_s) != 0)
                return EXIT_USAGE;
            break;
        case 'o':
            call->once = true;
            break;
        case 'i':
            if (parse_interval(optarg, &call->interval_s) != 0)
                return EXIT_USAGE;
            break;
        case 'n':
            call->name = optarg;
            break;
        case 'h':
            print_help();
            return EXIT_DONE;
        case 'v':
            printf("psctl %s\n", PSD_VERSION);
            return EXIT_DONE;
        default: /* getopt_long has printed an error */
            return complain(EXIT_USAGE, "see psctl --help");
        }
    }
    if ((status = parse_command(argc - optind, argv + optind, call)) != 0)
        return status;
    if (call->command->is_local)
        return -1;
    if (call->socket_path == NULL)
        call->socket_path = find_socket();
    if (call->socket_path == NULL)
        return complain(EXIT_USAGE,
                        "--socket is missing, %s does not exist, and PSD_SOCKET is not set: one of them must "
                        "name psd's status socket",
                        usual_socket);
    if (call->socket_path[0] == 0)
        return complain(EXIT_USAGE, "--socket: found an empty path");
    if (call->timeout_s == 0)
        call->timeout_s = call->command->timeout_s;
    return -1;
}

enum { LONGEST_PATH = 3 * PSD_SETTINGS_BYTES + 128 };

/* Appends the text to the path, which has room, encoded as in a URL. */
static void append_encoded(char *path, const char *text)
{
    size_t used = strlen(path);
    for (; *text != 0 && used + 4 < LONGEST_PATH; text++) {
        bool plain =
            strchr("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-", *text) != NULL;
        used +=
            (size_t)snprintf(path + used, LONGEST_PATH - used, plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
}

/* The request's path. False: it is too long. */
static bool make_path(const struct call *call, char path[LONGEST_PATH])
{
    const struct command *c = call->command;
    size_t bytes = 0;
    snprintf(path, LONGEST_PATH, "%s", c->path);
    if (call->argument == NULL)
        return true;
    bytes = strlen(call->argument);
    for (size_t i = 0; c->takes_lines && i < call->n_more; i++)
        bytes += 1 + strlen(call->more[i]);
    if (bytes >= PSD_SETTINGS_BYTES)
        return false;
    snprintf(path, LONGEST_PATH, "%s?%s=", c->path, c->query);
    append_encoded(path, c->first != NULL ? c->first : "");
    append_encoded(path, call->argument);
    for (size_t i = 0; c->takes_lines && i < call->n_more; i++) {
        append_encoded(path, "\n");
        append_encoded(path, call->more[i]);
    }
    return true;
}

static int run_call(struct call *call)
{
    const struct command *command = call->command;
    struct ctl_reply reply;
    struct ps_error err;
    char path[LONGEST_PATH];
    int status = EXIT_DONE;

    if (command->run != NULL)
        return command->run(call);
    call->started_s = ps_now_s();
    if (!make_path(call, path))
        return complain(EXIT_USAGE, "%s: the arguments are too long; allowed are %d bytes in total",
                        command->name, PSD_SETTINGS_BYTES - 1);
    int rc = ctl_client_ask(call->client, command->method, path, left_ms(call), &reply, &err);
    if (rc < 0)
        return command->unanswered != NULL ? command->unanswered(call, rc, &err)
                                           : complain(EXIT_UNREACHABLE, "%s", err.text);
    json_t *answer = json_loadb(reply.body, reply.len_bytes, 0, NULL);
    if (call->json || (command->is_text && reply.status < 400)) {
        fwrite(reply.body, 1, reply.len_bytes, stdout);
        if (reply.len_bytes > 0 && reply.body[reply.len_bytes - 1] != '\n')
            putchar('\n');
        fflush(stdout);
    }
    if (reply.status >= 400)
        status = complain_answer(call, &reply, answer);
    else if (!command->is_text && !json_is_object(answer))
        status = complain(EXIT_REFUSED, "psd's answer to %s is not a JSON object", command->name);
    else if (command->print != NULL && !call->json)
        (call->csv ? command->print_csv : command->print)(stdout, answer);
    if (status == EXIT_DONE && command->wait != NULL)
        status = command->wait(call, answer);
    json_decref(answer);
    free(reply.body);
    return status;
}

static int end(int status)
{
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    return written || status != EXIT_DONE ? status : complain(EXIT_REFUSED, "the answer cannot be written");
}

int main(int argc, char **argv)
{
    struct call call = {.command = commands, .interval_s = 1};
    struct ps_error err;

    ps_standard_files_open();
    int status = parse_arguments(argc, argv, &call);
    signal(SIGPIPE, SIG_IGN); /* the request is carried out even if the output is not read */
    if (status >= 0)
        return status;
    if (call.command->is_local)
        return end(call.command->run(&call));
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (ctl_client_create(call.socket_path, &call.client, &err) < 0) {
        status = complain(EXIT_REFUSED, "%s", err.text);
    } else {
        status = run_call(&call);
        ctl_client_destroy(call.client);
    }
    curl_global_cleanup();
    return end(status);
}
