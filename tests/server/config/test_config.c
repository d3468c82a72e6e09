/* Configuration: good files, and many bad ones, each with the parts its sentence must have. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/codecs/codec.h"
#include "server/admissions/admissions.h"
#include "server/config/keys.h"
#include "tests/support/unit.h"

static const char file_name[] = "test-config.yaml";
static char directory[] = "/tmp/psd-test-config-XXXXXX";

static void enter_directory(void)
{
    strcpy(directory, "/tmp/psd-test-config-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(chdir(directory), 0);
}

static void leave_directory(void)
{
    unlink(file_name);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(rmdir(directory), 0);
}

static void write_bytes(const char *text, size_t len)
{
    FILE *f = fopen(file_name, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

static int read_text(struct psd_config *cfg, const char *text, struct ps_error *err)
{
    write_bytes(text, strlen(text));
    psd_config_defaults(cfg);
    err->text[0] = 0;
    return psd_config_read(cfg, file_name, err);
}

static void assert_error_says(const struct ps_error *err, const char *part)
{
    ck_assert_msg(part == NULL || strstr(err->text, part) != NULL, "'%s' is not in the sentence '%s'", part,
                  err->text);
}

static const struct {
    const char *text;
    int line;
    const char *says[4];
} bad_files[] = {
    {"method: async-sgd\nlerning_rate: 1\n", 2, {"unknown key 'lerning_rate'", "method, rule, admission"}},
    {"parameters:\n  perod: 1\n",
     2,
     {"parameters: ", "'perod'", "did you mean parameters.period?", "momentum"}},
    {"\n\nalpha: 0.1\n", 3, {"'alpha'", "did you mean parameters.alpha?"}},
    {"parameters.period: 2\n",
     1,
     {"parameters.period: found dots in a key; allowed in a file is period in the mapping parameters"}},
    {"parameters: {schedule.kind: step}\n",
     1,
     {"allowed in a file is kind in the mapping parameters.schedule"}},
    {"parameters:\n  period:2\n", 2, {"found a single value; allowed is a mapping of keys (KEY: VALUE)"}},
    {"parameters: {period:2}\n",
     1,
     {"'period:2'; a space must follow the colon", "pipeline_warmup_epochs, schedule"}},
    {"checkpoint:\n  # after\n\tevery_s: 5\n", 3, {"found a tab before the key; allowed are spaces"}},
    {"learnin_rate: 2\n", 1, {"'learnin_rate'; did you mean parameters.learning_rate?"}},
    {"foo: 2\n", 1, {"'foo'; allowed here: method"}},
    {"parameters: {lr: 0.1}\n", 1, {"'lr'", "did you mean parameters.learning_rate?"}},
    {"lr: 0.1\n", 1, {"'lr'", "did you mean parameters.learning_rate?"}},
    {"lanes: 2\nchunk_floats: 2048\nlanes: 3\n", 3, {"lanes: ", "twice", "line 1"}},
    {"limits: {clients: 4, clients: 4}\n", 1, {"limits.clients: ", "twice"}},
    {"lanes: 0\n", 1, {"lanes: found 0; ", "a whole number from 1 to 64 or auto"}},
    {"lanes: 65\n", 1, {"lanes: found 65; "}},
    {"lanes: many\n", 1, {"lanes: found many; "}},
    {"lanes: -1\n", 1, {"lanes: found -1; "}},
    {"lanes: 2.0\n", 1, {"lanes: found 2.0; "}},
    {"lanes: 0x2\n", 1, {"lanes: found 0x2; "}},
    {"lanes: 4294967298\n", 1, {"lanes: found 4294967298; "}},
    {"lanes: 99999999999999999999999\n", 1, {"lanes: found 9999"}},
    {"lanes: '2'\n", 1, {"lanes: found \"2\"; "}},
    {"lanes: [2]\n", 1, {"lanes: found a list; "}},
    {"lanes: {a: 2}\n", 1, {"lanes: found a mapping; "}},
    {"lanes:\n", 1, {"lanes: found nothing; "}},
    {"chunk_floats: 1023\n", 1, {"chunk_floats: found 1023; ", "1024 to 1048576"}},
    {"chunk_floats: 1048577\n", 1, {"chunk_floats: "}},
    {"insecure: yes\n", 1, {"insecure: found yes; allowed is true or false"}},
    {"insecure: \"true\"\n", 1, {"insecure: found \"true\"; "}},
    {"parameters: 3\n", 1, {"parameters: found a single value; allowed is a mapping"}},
    {"parameters: [a]\n", 1, {"parameters: found a list; "}},
    {"parameters:\n  learning_rate: 0\n", 2, {"parameters.learning_rate: found 0; ", "above 0 up to 1000"}},
    {"parameters: {learning_rate: 1e-60}\n", 1, {"parameters.learning_rate: found 1e-60; ", "above 0"}},
    {"parameters:\n  learning_rate: nan\n", 2, {"parameters.learning_rate: found nan; "}},
    {"parameters:\n  learning_rate: .inf\n", 2, {"parameters.learning_rate: found .inf; "}},
    {"parameters:\n  learning_rate: 1e999\n", 2, {"parameters.learning_rate: found 1e999; "}},
    {"parameters:\n  learning_rate: 0x1p3\n", 2, {"parameters.learning_rate: found 0x1p3; "}},
    {"parameters:\n  learning_rate: 0.1 0.2\n", 2, {"parameters.learning_rate: found 0.1 0.2; "}},
    {"parameters:\n  learning_rate: none\n", 2, {"parameters.learning_rate: found none; "}},
    {"parameters:\n  learning_rate: -0.1\n",
     2,
     {"parameters.learning_rate: found -0.1; ", "above 0 up to 1000"}},
    {"parameters:\n  period: 0\n", 2, {"parameters.period: found 0; ", "1 to 1000000"}},
    {"parameters:\n  period: -4\n", 2, {"parameters.period: found -4; ", "1 to 1000000"}},
    {"parameters:\n  momentum: 1\n", 2, {"parameters.momentum: found 1; ", "from 0, below 1"}},
    {"parameters:\n  momentum: -0.1\n", 2, {"parameters.momentum: found -0.1; "}},
    {"parameters:\n  beta2: 1\n", 2, {"parameters.beta2: found 1; ", "from 0, below 1"}},
    {"parameters:\n  beta2: 0.99999999\n", 2, {"parameters.beta2: found 0.99999999; ", "from 0, below 1"}},
    {"parameters:\n  epsilon: 0\n", 2, {"parameters.epsilon: found 0; ", "from 1e-30 to 1"}},
    {"parameters:\n  averaging_rate: 0\n", 2, {"parameters.averaging_rate: found 0; ", "above 0 up to 1"}},
    {"parameters:\n  outer_learning_rate: 0\n", 2, {"outer_learning_rate: found 0; ", "above 0 up to 1000"}},
    {"parameters:\n  outer_momentum: 1\n", 2, {"outer_momentum: found 1; ", "from 0, below 1"}},
    {"parameters:\n  delay: 0\n", 2, {"parameters.delay: found 0; ", "from 1 to 1000000"}},
    {"parameters:\n  delay: 1000001\n", 2, {"parameters.delay: found 1000001; "}},
    {"parameters:\n  compensation: -1\n", 2, {"compensation: found -1; ", "from 0 to 1000"}},
    {"parameters:\n  weight: age\n", 2, {"parameters.weight: found age; ", "const, inverse, power"}},
    {"parameters:\n  weight_power: -1\n", 2, {"weight_power: found -1; ", "from 0 to 10"}},
    {"clique:\n  on_loss: wait\n", 2, {"clique.on_loss: found wait; ", "end, shrink"}},
    {"clique:\n  algorithm: star\n", 2, {"clique.algorithm: found star; ", "ring, tree, auto"}},
    {"parameters:\n  serial: 1\n", 2, {"parameters.serial: found 1; allowed is true or false"}},
    {"parameters:\n  slack: -1\n",
     2,
     {"parameters.slack: found -1; allowed is a whole number from 0 to 1000000"}},
    {"workers: 0\n", 1, {"workers: found 0; ", "a whole number from 1 to 1024 or any"}},
    {"workers: 1025\n", 1, {"workers: found 1025; "}},
    {"parameters:\n  weight_decay: 1.5\n", 2, {"weight_decay: found 1.5; allowed is a number from 0 to 1"}},
    {"parameters:\n  overlap: 0\n",
     2,
     {"parameters.overlap: found 0; allowed is a whole number from 1 to 1000000, true, false or auto"}},
    {"parameters:\n  overlap: -1\n", 2, {"parameters.overlap: found -1; "}},
    {"parameters:\n  overlap: 1.5\n", 2, {"parameters.overlap: found 1.5; "}},
    {"parameters:\n  overlap: always\n", 2, {"parameters.overlap: found always; ", "true, false or auto"}},
    {"parameters:\n  overlap: 4294967295\n", 2, {"parameters.overlap: found 4294967295; "}},
    {"checkpoint: {keep_best: 1}\n", 1, {"checkpoint.keep_best: found 1; allowed is true or false"}},
    {"stop: {accuracy: 1.01}\n", 1, {"stop.accuracy: found 1.01; allowed is a number from 0 to 1 or none"}},
    {"stop: {accuracy: 99%}\n", 1, {"stop.accuracy: found 99%; "}},
    {"stop: {updates: 0}\n", 1, {"stop.updates: found 0; ", "from 1 to ", " or none"}},
    {"parameters: {pipeline_warmup_epochs: -1}\n",
     1,
     {"parameters.pipeline_warmup_epochs: found -1; ", "from 0 to 1000000"}},
    {"parameters: {pipeline_warmup_epochs: 2 epochs}\n",
     1,
     {"parameters.pipeline_warmup_epochs: found 2 epochs; "}},
    {"stop: {updates: -1}\n", 1, {"stop.updates: found -1; "}},
    {"stop: {seconds: 1.5}\n", 1, {"stop.seconds: found 1.5; "}},
    {"stop: {nonfinite: none}\n", 1, {"stop.nonfinite: found none; allowed is true or false"}},
    {"stop: {epochs: 3}\n", 1, {"unknown key 'epochs'", "accuracy, updates, seconds, nonfinite"}},
    {"parameters:\n  schedule:\n    kind: triangle\n",
     3,
     {"parameters.schedule.kind: found triangle; ", "inv-sqrt"}},
    {"parameters:\n  schedule:\n    step_steps: 0\n", 3, {"parameters.schedule.step_steps: found 0; "}},
    {"parameters:\n  schedule: step\n", 2, {"parameters.schedule: found a single value; "}},
    {"parameters:\n  schedule: {gama: 1}\n", 2, {"'gama'", "parameters.schedule.gamma"}},
    {"parameters: {schedule: {milestones: [1, 2]}}\n",
     1,
     {"parameters.schedule.milestones: found a list; allowed is steps separated by commas, in quotes, such "
      "as "
      "\"30000, 60000\", none or preset"}},
    {"parameters: {schedule: {factors: [0.1]}}\n", 1, {"schedule.factors: found a list; ", "\"0.2, 0.5\""}},
    {"limits:\n  clients: 1025\n", 2, {"limits.clients: found 1025; "}},
    {"limits:\n  floats: 18446744073709551616\n", 2, {"limits.floats: "}},
    {"log_level: loud\n", 1, {"log_level: found loud; allowed is debug, info, warn, error"}},
    {"codec: {message: gzip}\n",
     1,
     {"codec.message: found gzip; allowed is raw, fp16, bf16, trunc16, int8, int4, topk:F"}},
    {"codec: {message: topk}\n", 1, {"codec.message: found topk; allowed is", "topk:F with 0 < F <= 1"}},
    {"codec: {message: topk:0}\n", 1, {"codec.message: found topk:0; allowed is"}},
    {"codec:\n  message: topk:1.01\n", 2, {"codec.message: found topk:1.01; allowed is"}},
    {"codec: {message: int4:0.5}\n", 1, {"codec.message: found int4:0.5; allowed is"}},
    {"codec: {answer: topk:2}\n", 1, {"codec.answer: found topk:2; allowed is raw"}},
    {"clique: {codec: topk:0.1}\n", 1, {"clique.codec: found topk:0.1; allowed is raw"}},
    {"codec:\n  answer: 8\n", 2, {"codec.answer: found 8; allowed is raw, fp16, bf16, trunc16, int8"}},
    {"codec: {error_feedback: 1}\n", 1, {"codec.error_feedback: found 1; allowed is true or false"}},
    {"codec: int8\n", 1, {"codec: found a single value; allowed is a mapping"}},
    {"state_dir: \"a\\0b\"\n", 1, {"state_dir: found a text with a zero byte"}},
    {"state_dir: \"a\\nb\"\n", 1, {"state_dir: ", "without control characters"}},
    {"\"lanes\\0\": 2\n", 1, {"unknown key 'lanes'"}},
    {"method: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", 1, {"method: ", "at most 31 bytes"}},
    {"a: &x 1\nb: *x\n", 1, {"an anchor (&)"}},
    {"lanes: *x\n", 1, {"an alias (*)"}},
    {"<<: *base\n", 1, {"an alias (*)"}},
    {"lanes: !!int 2\n", 1, {"a tag (!)"}},
    {"limits: !custom {clients: 2}\n", 1, {"a tag (!)"}},
    {"lanes: 2\n---\nlanes: 3\n", 2, {"a second document"}},
    {"a: [[[[[[[[[1]]]]]]]]]\n", 1, {"nested too deeply", "8 levels"}},
    {"- lanes\n", 1, {"allowed is a mapping of keys"}},
    {"hello\n", 1, {"allowed is a mapping of keys"}},
    {"method:eamsgd\n", 1, {"lines KEY: VALUE, with a space after the colon"}},
    {"[a]: 2\n", 1, {"a list or mapping as a key"}},
    {"lanes: 2\n  chunk_floats: 2048\n", 2, {"not YAML: "}},
    {"lanes: \"2\n", 2, {"not YAML: "}},
    {"lanes: {\n", 2, {"not YAML: "}},
    {"\tlanes: 2\n", 1, {"found a tab before the key; allowed are spaces"}},
};

START_TEST(bad_file_is_named)
{
    struct psd_config cfg;
    struct ps_error err;
    char place[64];

    ck_assert_int_eq(read_text(&cfg, bad_files[_i].text, &err), -EINVAL);
    snprintf(place, sizeof place, "%s:%d: ", file_name, bad_files[_i].line);
    ck_assert_msg(strncmp(err.text, place, strlen(place)) == 0, "'%s' does not start with '%s'", err.text,
                  place);
    for (size_t i = 0; i < 4; i++)
        assert_error_says(&err, bad_files[_i].says[i]);
}
END_TEST

/* The path of a file deep in the tree loses its beginning, and the sentence nothing of what is allowed. */
START_TEST(a_long_path_leaves_room_for_what_is_allowed)
{
    char path[700] = "", named[80];
    const struct psd_config_source source = {.path = path};
    struct psd_config cfg;
    struct ps_error err, warning;
    while (strlen(path) < 600)
        strcat(path, "./");
    strcat(path, file_name);
    snprintf(named, sizeof named, "./%s:1: ", file_name);
    const char *text = "method: no-such-method\n";
    write_bytes(text, strlen(text));
    ck_assert_int_eq(psd_config_gather(&source, &cfg, &err), 0);
    ck_assert_int_eq(psd_config_settle(&cfg, &err, &warning), -EINVAL);
    psd_config_name_line(&source, &err);
    assert_error_says(&err, named);
    assert_error_says(&err, "averaging given one by one)");
    text = "codec: {message: zip}\n";
    write_bytes(text, strlen(text));
    ck_assert_int_eq(psd_config_gather(&source, &cfg, &err), -EINVAL);
    assert_error_says(&err, named);
    assert_error_says(&err, "in at most six decimals");
}
END_TEST

START_TEST(bad_bytes_are_refused)
{
    struct psd_config cfg;
    struct ps_error err;
    write_bytes("lanes: \xff\xfe\n", 10);
    psd_config_defaults(&cfg);
    ck_assert_int_eq(psd_config_read(&cfg, file_name, &err), -EINVAL);
    assert_error_says(&err, "UTF-8");
    assert_error_says(&err, file_name);
}
END_TEST

START_TEST(file_that_is_no_file_is_refused)
{
    struct psd_config cfg;
    struct ps_error err;

    psd_config_defaults(&cfg);
    ck_assert_int_eq(psd_config_read(&cfg, "none.yaml", &err), -ENOENT);
    assert_error_says(&err, "none.yaml: cannot read");
    ck_assert_int_eq(psd_config_read(&cfg, directory, &err), -EINVAL);
    assert_error_says(&err, "not a regular file");
    ck_assert_int_eq(mkfifo(file_name, 0600), 0);
    ck_assert_int_eq(psd_config_read(&cfg, file_name, &err), -EINVAL);
    assert_error_says(&err, "not a regular file");
}
END_TEST

/* What an editor leaves for a moment would set every key of a running job to its default. */
START_TEST(a_reload_needs_a_key)
{
    static const char *const rows[] = {"",
                                       "# method: eamsgd\n",
                                       "---\n",
                                       "{}\n",
                                       "\xef\xbb\xbf# method: eamsgd\n",
                                       "parameters:\n",
                                       "codec: {}",
                                       "checkpoint:\n  # every_s: 60\n"};
    const struct psd_config_source source = {.path = file_name};
    struct psd_config cfg;
    struct ps_error err;
    for (size_t i = 0; i < ROWS(rows); i++) {
        write_bytes(rows[i], strlen(rows[i]));
        ck_assert_int_eq(psd_config_gather(&source, &cfg, &err), 0);
        ck_assert_msg(psd_config_gather_again(&source, &cfg, &err) == -EINVAL, "%s", rows[i]);
        assert_error_says(&err, "found no keys; allowed on a reload is");
    }
    write_bytes("codec: {message: int8}\n", 23);
    ck_assert_msg(psd_config_gather_again(&source, &cfg, &err) == 0, "%s", err.text);
    ck_assert_str_eq(cfg.codec.message, "int8");
    ck_assert_int_eq(unlink(file_name), 0);
    ck_assert_int_eq(psd_config_gather_again(&source, &cfg, &err), -ENOENT);
    ck_assert_int_eq(mkfifo(file_name, 0600), 0);
    ck_assert_int_eq(psd_config_gather_again(&source, &cfg, &err), -EINVAL);
    assert_error_says(&err, "not a regular file");
}
END_TEST

START_TEST(large_file_is_refused)
{
    struct psd_config cfg;
    struct ps_error err;
    size_t len = 1024 * 1024 + 1;
    char *text = malloc(len);

    ck_assert_ptr_nonnull(text);
    memset(text, '\n', len);
    text[0] = '#';
    write_bytes(text, len);
    psd_config_defaults(&cfg);
    ck_assert_int_eq(psd_config_read(&cfg, file_name, &err), -EFBIG);
    assert_error_says(&err, "1048576");
    write_bytes(text, len - 1);
    ck_assert_int_eq(psd_config_read(&cfg, file_name, &err), 0);
    free(text);
}
END_TEST

START_TEST(good_file_is_read)
{
    struct psd_config cfg;
    struct ps_error err;

    ck_assert_msg(read_text(&cfg,
                            "# a comment\n"
                            "method: async-easgd\n"
                            "parameters: {learning_rate: 1.5e-1, beta: 0.9, period: 10, rho: null,\n"
                            "             schedule: {kind: inv-sqrt, gamma: 1e-4, warmup_steps: 5}}\n"
                            "listen: tcp://127.0.0.1:0\n"
                            "insecure: true\n"
                            "lanes: 3\n"
                            "status: {socket: \"my psd.sock\"}\n"
                            "limits:\n"
                            "  floats: 1099511627776\n"
                            "  memory_gib: 0.5\n"
                            "checkpoint:\n",
                            &err) == 0,
                  "%s", err.text);
    ck_assert_str_eq(cfg.method, "async-easgd");
    ck_assert_double_eq(cfg.hyper.learning_rate, 0.15);
    ck_assert_double_eq(cfg.hyper.beta, 0.9);
    ck_assert_double_nan(cfg.hyper.alpha);
    ck_assert_double_nan(cfg.hyper.rho);
    ck_assert_uint_eq(cfg.hyper.period, 10);
    ck_assert_int_eq(cfg.hyper.schedule.kind, PS_SCHEDULE_INV_SQRT);
    ck_assert_double_eq(cfg.hyper.schedule.gamma, 1e-4);
    ck_assert_uint_eq(cfg.hyper.schedule.warmup_steps, 5);
    ck_assert(cfg.insecure);
    ck_assert_uint_eq(cfg.lanes, 3);
    ck_assert_uint_eq(cfg.chunk_floats, 131072);
    ck_assert_str_eq(cfg.status.socket, "my psd.sock");
    ck_assert_str_eq(cfg.status.http, "none");
    ck_assert_uint_eq(cfg.limits.floats, 1099511627776);
    ck_assert_double_eq(cfg.limits.memory_gib, 0.5);
    ck_assert_uint_eq(cfg.checkpoint.keep, 3);
}
END_TEST

START_TEST(empty_file_is_the_defaults)
{
    struct psd_config cfg, defaults;
    struct ps_error err;
    psd_config_defaults(&defaults);
    ck_assert_int_eq(read_text(&cfg, "", &err), 0);
    ck_assert_mem_eq(&cfg, &defaults, sizeof cfg);
    ck_assert_int_eq(read_text(&cfg, "# nothing\n", &err), 0);
    ck_assert_mem_eq(&cfg, &defaults, sizeof cfg);
}
END_TEST

/* The manual: gives each key its default, and says of each when it applies. */
START_TEST(codecs_are_those_that_there_are)
{
    size_t n;
    const struct ps_codec *const *rows = ps_codec_value_rows(&n);
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        if (strcmp(k->name, "clique.codec") != 0)
            continue;
        for (size_t i = 0; i < n; i++)
            ck_assert_str_eq(k->choices[i], rows[i]->name);
        ck_assert_ptr_null(k->choices[n]);
    }
}
END_TEST

/* As a word of its own. */
static bool has_word(const char *text, const char *word)
{
    static const char inside[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t len = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += len)
        if ((at == text || strchr(inside, at[-1]) == NULL) &&
            (at[len] == 0 || strchr(inside, at[len]) == NULL))
            return true;
    return false;
}

#define assert_names(text, table)                                                                            \
    for (size_t i = 0; (table)[i].name != NULL; i++)                                                         \
    ck_assert_msg(has_word(text, (table)[i].name), "configs/psd.yaml does not name %s of " #table,           \
                  (table)[i].name)

START_TEST(manual_names_every_method_and_part)
{
    static char text[1 << 16];
    FILE *f = fopen(PSD_CONFIGS "/psd.yaml", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_lt(fread(text, 1, sizeof text - 1, f), sizeof text - 1);
    fclose(f);
    assert_names(text, ps_methods);
    assert_names(text, ps_rules);
    assert_names(text, ps_admissions);
    assert_names(text, ps_optimizers);
    assert_names(text, ps_averagings);
}
END_TEST

START_TEST(manual_gives_every_key_its_default)
{
    struct psd_config cfg, defaults;
    struct ps_error err, warning;
    char line[256], want[80];

    psd_config_defaults(&defaults);
    memset(&cfg, 0xa5, sizeof cfg); /* so that a key the file leaves out shows */
    ck_assert_msg(psd_config_read(&cfg, PSD_CONFIGS "/psd.yaml", &err) == 0, "%s", err.text);
    FILE *f = fopen(PSD_CONFIGS "/psd.yaml", "r");
    ck_assert_ptr_nonnull(f);
    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        const char *applies = k->applies == PSD_CONFIG_RELOAD ? "# [reload]" : "# [restart]";
        bool found = false;
        snprintf(want, sizeof want, "%s:", psd_config_key_leaf(k));
        rewind(f);
        while (!found && fgets(line, sizeof line, f) != NULL) {
            const char *key = line + strspn(line, " ");
            found = strncmp(key, want, strlen(want)) == 0 && strstr(line, applies) != NULL;
        }
        ck_assert_msg(found, "configs/psd.yaml has no line '%s … %s'", want, applies);
    }
    fclose(f);
    char *mine = psd_config_json(&cfg), *theirs = psd_config_json(&defaults);
    ck_assert_ptr_nonnull(mine);
    ck_assert_str_eq(mine, theirs);
    free(mine);
    free(theirs);
    ck_assert_msg(psd_config_check(&cfg, &err, &warning) == 0, "%s", err.text);
    ck_assert_str_eq(warning.text, "");
}
END_TEST

/* What a configuration may name, the lanes have, and the other way round. */
START_TEST(admissions_are_those_of_both_ends)
{
    size_t n = 0, known = 0;
    while (psd_admissions[n] != NULL)
        ck_assert_msg(ps_admission_find(psd_admissions[n++]->name) != NULL,
                      "ps_admissions lacks admission '%s'", psd_admissions[n - 1]->name);
    for (; ps_admissions[known].name != NULL; known++)
        ck_assert_msg(psd_admission_find(ps_admissions[known].name) != NULL, "psd has no admission '%s'",
                      ps_admissions[known].name);
    ck_assert_uint_eq(n, known);
}
END_TEST

START_TEST(set_changes_one_key)
{
    struct psd_config cfg;
    struct ps_error err;

    psd_config_defaults(&cfg);
    ck_assert_int_eq(psd_config_set(&cfg, "parameters.period=7", &err), 0);
    ck_assert_uint_eq(cfg.hyper.period, 7);
    ck_assert_int_eq(psd_config_set(&cfg, "period=8", &err), 0);
    ck_assert_uint_eq(cfg.hyper.period, 8);
    ck_assert_int_eq(psd_config_set(&cfg, "schedule={kind: step, gamma: 0.5}", &err), 0);
    ck_assert_int_eq(cfg.hyper.schedule.kind, PS_SCHEDULE_STEP);
    ck_assert_double_eq(cfg.hyper.schedule.gamma, 0.5);
    ck_assert_int_eq(psd_config_set(&cfg, "lanes=2", &err), 0);
    ck_assert_int_eq(psd_config_set(&cfg, "lanes=auto", &err), 0);
    ck_assert_uint_eq(cfg.lanes, 0);
    ck_assert_int_eq(psd_config_set(&cfg, "state_dir=a=b", &err), 0);
    ck_assert_str_eq(cfg.state_dir, "a=b");
    ck_assert_int_eq(psd_config_set(&cfg, "advertise=", &err), 0);
    ck_assert_str_eq(cfg.advertise, "");
    ck_assert_int_eq(psd_config_set(&cfg, "state_dir='#1'", &err), 0);
    ck_assert_str_eq(cfg.state_dir, "#1");
}
END_TEST

static const struct {
    const char *assignment;
    const char *says[3];
} bad_sets[] = {
    {"period", {"--set: ", "'period'", "KEY=VALUE"}},
    {"=3", {"--set: ", "KEY=VALUE"}},
    {"period=", {"parameters.period: ", "no value"}},
    {"period= ", {"--set: parameters.period: found nothing after '='", "in quotes"}},
    {"advertise=#1", {"--set: advertise: found nothing after '='", "begins with # in quotes"}},
    {"schedule= # none", {"--set: parameters.schedule: found nothing"}},
    {"schedule=---", {"--set: parameters.schedule: found nothing"}},
    {"period=0", {"--set: parameters.period: found 0; "}},
    {"parameters.perod=0",
     {"--set: parameters: ", "'perod'; did you mean parameters.period?", "pipeline_warmup_epochs, schedule"}},
    {"perio=2", {"--set: ", "'perio'; did you mean parameters.period?", "allowed here: method"}},
    {"nothing.at.all=2", {"'nothing.at.all'"}},
    {"every_s=300",
     {"--set: found every_s, which several keys end in; allowed are parameters.schedule.every_s, "
      "checkpoint.every_s"}},
    {"codec=int8", {"--set: codec: found a single value"}},
    {"answer=", {"--set: codec.answer: found \"\"; allowed is raw, "}},
    {"schedule={kind: fast}", {"parameters.schedule.kind: found fast; "}},
    {"schedule={kind: [}", {"--set: parameters.schedule: found {kind: [}, which is not YAML: "}},
    {"servers.head=@endpoint",
     {"--set: servers.head: found @endpoint, which is not YAML: ",
      "in quotes: servers.head='\"@endpoint\"'"}},
    {"lanes=*x", {"--set: lanes: found an alias"}},
    {"parameters={period: 1, period: 1}", {"parameters.period", "twice"}},
};

START_TEST(bad_set_is_named)
{
    struct psd_config cfg;
    struct ps_error err;
    psd_config_defaults(&cfg);
    ck_assert_int_lt(psd_config_set(&cfg, bad_sets[_i].assignment, &err), 0);
    for (size_t i = 0; i < 3; i++)
        assert_error_says(&err, bad_sets[_i].says[i]);
}
END_TEST

/* What the checks between keys refuse is named by its line, unless an option gives it. */
static const struct {
    const char *text, *set, *starts;
} bad_together[] = {
    {"lanes: 2\nmethod: easgd\n", "period=3", "test-config.yaml:2: method: 'easgd' is not known"},
    {"method: eamsgd\nparameters:\n  alpha: 0.1\n  beta: 0.9\n", NULL,
     "test-config.yaml:2: parameters: rule elastic"},
    {"method: eamsgd\nparameters:\n  alpha: 0.1\n", "beta=0.9", "parameters: rule elastic"},
    {"parameters:\n  schedule:\n    gamma: 1\n", NULL, "test-config.yaml:3: parameters.schedule.gamma: "},
    {"parameters:\n  schedule:\n    gamma: 1\n", "schedule={kind: cosine}", "parameters.schedule.gamma: "},
    {"method: async-sgd\n", "parameters.momentum=0.5", "parameters.momentum: "},
    {"listen: 5555\n", NULL, "test-config.yaml:1: listen: '5555' is not an address"},
    {"listen: 5555\n", "listen=foo", "listen: 'foo' is not an address"},
    {"transport: ipc\n", NULL,
     "test-config.yaml:1: transport: found ipc, and listen is tcp://127.0.0.1:0; allowed are auto, shm, "
     "rdma, "
     "and the listener's: tcp"},
    {"servers: {count: 2, index: 1, head: node1}\n", NULL,
     "test-config.yaml:1: servers.head: found node1; allowed is the URL of server 0 (tcp://HOST:PORT"},
    {"servers: {count: 2, index: 1, head: \"@\"}\n", NULL,
     "test-config.yaml:1: servers.head: found @; allowed"},
    {"servers: {count: 2, index: 1, head: \"tcp://node1\"}\n", NULL,
     "test-config.yaml:1: servers.head: found tcp://node1; allowed"},
};

START_TEST(bad_key_among_others_has_its_line)
{
    char set[64];
    snprintf(set, sizeof set, "%s", bad_together[_i].set != NULL ? bad_together[_i].set : "");
    char *assignments[] = {set};
    const struct psd_config_source source = {file_name, assignments, set[0] != 0};
    struct psd_config cfg;
    struct ps_error err;
    write_bytes(bad_together[_i].text, strlen(bad_together[_i].text));
    int rc = psd_config_gather(&source, &cfg, &err);
    ck_assert_int_eq(rc < 0 ? rc : psd_config_settle(&cfg, &err, NULL), -EINVAL);
    psd_config_name_line(&source, &err);
    ck_assert_msg(strncmp(err.text, bad_together[_i].starts, strlen(bad_together[_i].starts)) == 0, "%s",
                  err.text);
}
END_TEST

/* psctl config prints them, and a reload of what it prints changes nothing. */
START_TEST(json_has_the_same_numbers)
{
    static const char *const rows[] = {"0.1", "0.3333333333333333", "0.30000000000000004"};
    struct psd_config cfg;
    struct ps_error err;
    char text[80];
    for (size_t i = 0; i < ROWS(rows); i++) {
        snprintf(text, sizeof text, "limits: {memory_gib: %s}\n", rows[i]);
        ck_assert_int_eq(read_text(&cfg, text, &err), 0);
        char *json = psd_config_json(&cfg);
        snprintf(text, sizeof text, "\"memory_gib\": %s,", rows[i]);
        ck_assert_msg(strstr(json, text) != NULL, "no %s in %s", text, json);
        free(json);
    }
}
END_TEST

START_TEST(json_has_every_key)
{
    struct psd_config cfg;
    struct ps_error err;

    ck_assert_int_eq(read_text(&cfg, "parameters: {alpha: 0.25}\n", &err), 0);
    char *text = psd_config_json(&cfg);
    json_t *root = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(root);
    json_t *parameters = json_object_get(root, "parameters");
    ck_assert_double_eq(json_real_value(json_object_get(parameters, "alpha")), 0.25);
    ck_assert(json_is_null(json_object_get(parameters, "beta")));
    ck_assert_str_eq(json_string_value(json_object_get(root, "lanes")), "auto");
    ck_assert(json_is_true(json_object_get(json_object_get(root, "checkpoint"), "keep_best")));
    json_t *stop = json_object_get(root, "stop");
    ck_assert(json_is_null(json_object_get(stop, "accuracy")) &&
              json_is_null(json_object_get(stop, "updates")));
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(parameters, "schedule"), "kind")),
                     "constant");
    json_decref(root);
    free(text);
}
END_TEST

START_TEST(stop_is_read)
{
    struct psd_config cfg;
    struct ps_error err;
    ck_assert_int_eq(read_text(&cfg, "", &err), 0);
    ck_assert(isnan(cfg.stop.accuracy) && !cfg.stop.nonfinite);
    ck_assert(cfg.stop.updates == 0 && cfg.stop.seconds == 0);
    ck_assert_int_eq(
        read_text(&cfg, "stop: {accuracy: 0.99, updates: 5000, seconds: 60, nonfinite: true}\n", &err), 0);
    ck_assert_double_eq(cfg.stop.accuracy, 0.99);
    ck_assert(cfg.stop.updates == 5000 && cfg.stop.seconds == 60 && cfg.stop.nonfinite);
    ck_assert_int_eq(psd_config_set(&cfg, "stop.updates=none", &err), 0);
    ck_assert_int_eq(psd_config_set(&cfg, "stop.seconds=null", &err), 0);
    ck_assert(cfg.stop.updates == 0 && cfg.stop.seconds == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-config");
    TCase *tc = tcase_create("config");
    tcase_add_checked_fixture(tc, enter_directory, leave_directory);
    tcase_add_loop_test(tc, bad_file_is_named, 0, ROWS(bad_files));
    tcase_add_test(tc, a_long_path_leaves_room_for_what_is_allowed);
    tcase_add_test(tc, bad_bytes_are_refused);
    tcase_add_test(tc, file_that_is_no_file_is_refused);
    tcase_add_test(tc, a_reload_needs_a_key);
    tcase_add_test(tc, large_file_is_refused);
    tcase_add_test(tc, good_file_is_read);
    tcase_add_test(tc, empty_file_is_the_defaults);
    tcase_add_test(tc, codecs_are_those_that_there_are);
    tcase_add_test(tc, manual_names_every_method_and_part);
    tcase_add_test(tc, manual_gives_every_key_its_default);
    tcase_add_test(tc, admissions_are_those_of_both_ends);
    tcase_add_test(tc, set_changes_one_key);
    tcase_add_loop_test(tc, bad_set_is_named, 0, ROWS(bad_sets));
    tcase_add_loop_test(tc, bad_key_among_others_has_its_line, 0, ROWS(bad_together));
    tcase_add_test(tc, json_has_every_key);
    tcase_add_test(tc, json_has_the_same_numbers);
    tcase_add_test(tc, stop_is_read);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
