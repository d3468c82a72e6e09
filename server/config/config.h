/* config.h: psd's configuration, one row per key.
 *
 * The file is YAML, read by libyaml's document API against the key table in keys.c (name, type,
 * range, default, help, whether it applies on reload or restart). configs/psd.yaml documents every key. */
#ifndef PSD_CONFIG_CONFIG_H
#define PSD_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/method.h"

/* Also bounds of a checkpoint's lane map, which a resumed job adopts. */
#define PSD_MAX_LANES        64
#define PSD_MAX_CHUNK_FLOATS 1048576

#define PSD_CONFIG_MAX_KEYS 128 /* rows of the key table */

/* The loss that a plateau schedule watches: the evaluators', or the workers' own. */
enum psd_watch { PSD_WATCH_TEST, PSD_WATCH_TRAIN };

struct psd_config {
    char method[32]; /* name of the preset, or "custom" if rule, admission, optimizer or averaging are given
                        individually */
    char rule[32], admission[32], optimizer[32], averaging[32]; /* "preset" until psd_config_check */
    struct ps_hyper hyper;
    struct {
        char milestones[256], factors[128]; /* as given; psd_config_check reads them into hyper.schedule */
        enum psd_watch watch;               /* of plateau, as are the next members */
        uint32_t patience;
        double threshold;
        uint32_t every_s;
    } schedule;
    struct {
        enum ps_clique_mode mode;
        char codec[16];    /* of ps_codec_rows */
        char algorithm[8]; /* "ring", "tree", "auto" */
        char on_loss[8];   /* "end", "shrink" */
        uint32_t publish;
        uint64_t bucket_floats; /* 0: auto */
    } clique;
    struct {
        char message[16], answer[16]; /* as ps_codec_of reads them */
        bool error_feedback;
    } codec;
    /* tcp://HOST:PORT, with port 0 for any free one; or ipc://PATH, relative to state_dir */
    char listen[256];
    char advertise[256]; /* host that workers connect to; "": the bound one */
    char transport[8];   /* auto, or the name of a transport */
    bool insecure;       /* allow listening beyond loopback without authentication */
    struct {
        char key[256], allow[256]; /* paths, or "none" */
        bool munge;
        char munge_users[256]; /* "alice, 1001", or "none" */
    } auth;
    struct {
        uint32_t count, index; /* this psd holds part `index` of `count` */
        char head[256];        /* address of server 0: URL or @FILE; "none" at server 0 itself */
        uint32_t wait_s;
    } servers;
    uint32_t lanes; /* of each server; 0: auto */
    uint32_t chunk_floats;
    uint32_t window_chunks;
    char state_dir[256];
    char endpoint_file[256]; /* "" : none */
    char tensorboard[256];   /* folder of event files; "" : none */
    struct {
        char socket[256]; /* path; relative to the state directory */
        char http[256];   /* "none" or tcp://127.0.0.1:PORT */
    } status;
    struct {
        uint32_t every_s; /* 0: only on request and on drain */
        uint32_t keep;
        bool keep_best;
    } checkpoint;
    struct {
        double accuracy;  /* NaN: not set; the next two use 0 for that */
        uint64_t updates; /* center version */
        uint64_t seconds;
        bool nonfinite;
    } stop;
    struct {
        uint32_t clients;
        uint64_t floats;
        double memory_gib;
        uint32_t silence_s;
        uint32_t step_s;  /* 0: off */
        uint32_t drain_s; /* how long a drain waits for workers to finish */
    } limits;
    char log_level[16];
    bool given[PSD_CONFIG_MAX_KEYS]; /* row k of the key table was given a value other than `preset` */
};

/* Fills *cfg with the defaults. */
void psd_config_defaults(struct psd_config *cfg);

/* Reads the YAML file over *cfg. An error names file, line, key, what was found and what is allowed; *cfg is
 * then unspecified. Unknown keys, duplicate keys and ill-typed values are errors. */
int psd_config_read(struct psd_config *cfg, const char *path, struct ps_error *err);

/* The same for a reload, where a file without keys is refused: an editor may leave one for a moment. */
int psd_config_read_again(struct psd_config *cfg, const char *path, struct ps_error *err);

/* psd_config_read for a text in memory; errors name it as `place`. */
int psd_config_read_text(struct psd_config *cfg, const char *place, const char *text, size_t len,
                         struct ps_error *err);

/* Applies one "key=value" or "group.key=value" of --set; "period" suffices for "parameters.period". The value
 * is YAML, so "schedule={kind: step}" works too. Errors start with "--set: ". */
int psd_config_set(struct psd_config *cfg, const char *assignment, struct ps_error *err);

/* The source of a configuration, kept so that it can be read again. */
struct psd_config_source {
    const char *path;   /* the file; NULL: defaults alone */
    char **assignments; /* [n], as psd_config_set takes them, in order; owned by the creator of the source */
    size_t n;
};

/* Puts "FILE:LINE: " before a sentence that begins with a key or a group which the file alone gives. The
 * checks between keys come after reading, and do not know the lines. Reads the file again. */
void psd_config_name_line(const struct psd_config_source *source, struct ps_error *err);
/* "FILE:LINE: sentence". The beginning of a long path is left out, rather than the end of the sentence, which
 * says what is allowed. Returns -EINVAL. */
int psd_config_fail_at(struct ps_error *err, const char *path, size_t line, const char *sentence);

/* Reads the defaults, then the file, then the assignments; _again for a reload. */
int psd_config_gather(const struct psd_config_source *source, struct psd_config *cfg, struct ps_error *err);
int psd_config_gather_again(const struct psd_config_source *source, struct psd_config *cfg,
                            struct ps_error *err);
/* Checks a gathered configuration: psd_config_check and the constraints of cliques. */
int psd_config_settle(struct psd_config *cfg, struct ps_error *err, struct ps_error *warning);

/* diff.c. What a reload would change, between two checked configurations. -EINVAL, naming the key, if one
 * that applies at a restart differs. *method: one of the method's own keys differs (method, its four parts,
 * workers, parameters, codec). *others: any other key differs. */
int psd_config_change(const struct psd_config *now, const struct psd_config *next, bool *method, bool *others,
                      struct ps_error *err);

/* A hash of all keys of the method, and of the drops of its schedule. */
uint64_t psd_config_method_hash(const struct psd_config *cfg);

/* Resolves the method preset: fills in its parameters, rule, admission, optimizer and averaging. If the user
 * gave one of the four and it differs from the preset, the method becomes "custom" and keeps those of the
 * preset's parameters that it uses.
 *
 * Then checks the constraints between keys: the parts exist and fit together, the method uses every given
 * key, a rule with a moving rate has exactly one of alpha, rho and beta, a rule with a fixed number of
 * workers has that number, and a non-loopback listen has authentication or insecure. Writes to *warning (may
 * be NULL; "" if there is none) if alpha is above its stability bound, or if workers of a rule with shares
 * may begin at different centers. Call last; a second call changes nothing. */
int psd_config_check(struct psd_config *cfg, struct ps_error *err, struct ps_error *warning);

/* What a reader of results should know about the method, or "". */
const char *psd_config_remark(const struct psd_config *cfg);

/* The whole configuration as a JSON object, with the file's keys; "none" for a number is null. The caller
 * frees it. NULL: no memory. */
char *psd_config_json(const struct psd_config *cfg);

/* Whether this is server 0; whether it leads other servers. */
static inline bool psd_is_head(const struct psd_config *cfg)
{
    return cfg->servers.index == 0;
}

static inline bool psd_has_cluster(const struct psd_config *cfg)
{
    return cfg->servers.count > 1 && psd_is_head(cfg);
}

#endif
