#include "tests/system/operate/output_format.h"

#include <check.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *pages_json(const char *what, const char *text)
{
    json_error_t err;
    ck_assert_msg(text != NULL, "%s: no answer", what);
    json_t *o = json_loads(text, 0, &err);
    ck_assert_msg(json_is_object(o), "%s: %s in: %s", what, err.text, text);
    return o;
}

unsigned pages_json_lines(const char *path, void (*check)(const json_t *line))
{
    char *line = NULL;
    size_t room = 0;
    unsigned n = 0;
    FILE *f = fopen(path, "re");
    ck_assert_msg(f != NULL, "%s cannot be opened", path);
    while (getline(&line, &room, f) >= 0) {
        json_t *o = pages_json(path, line);
        if (check != NULL)
            check(o);
        json_decref(o);
        n++;
    }
    free(line);
    fclose(f);
    return n;
}

/* What the lines so far have said. */
struct family {
    char name[100], type[20];
    bool helped;
    double last_bucket, infinite_bucket;
};

static bool matches(const regex_t *re, const char *line, regmatch_t *at, size_t n)
{
    return regexec(re, line, n, at, 0) == 0;
}

static void copy(char *to, size_t size, const char *line, regmatch_t at)
{
    snprintf(to, size, "%.*s", (int)(at.rm_eo - at.rm_so), line + at.rm_so);
}

static void check_sample(struct family *f, const char *line, const char *name, const char *labels,
                         double value)
{
    size_t len = strlen(f->name);
    ck_assert_msg(strncmp(name, f->name, len) == 0, "a sample without its TYPE: %s", line);
    if (strcmp(f->type, "histogram") != 0) {
        ck_assert_msg(name[len] == 0, "not of the family %s: %s", f->name, line);
        ck_assert_msg(strcmp(f->type, "counter") != 0 || value >= 0, "a negative counter: %s", line);
        return;
    }
    if (strcmp(name + len, "_bucket") == 0) {
        ck_assert_msg(strstr(labels, "le=\"") != NULL, "a bucket without le: %s", line);
        ck_assert_msg(value >= f->last_bucket, "buckets are cumulative: %s", line);
        f->last_bucket = value;
        if (strstr(labels, "le=\"+Inf\"") != NULL)
            f->infinite_bucket = value;
    } else if (strcmp(name + len, "_count") == 0) {
        ck_assert_msg(value == f->infinite_bucket, "the count is not the last bucket: %s", line);
    } else {
        ck_assert_msg(strcmp(name + len, "_sum") == 0, "no part of a histogram: %s", line);
    }
}

static void check_line(struct family *f, const regex_t *re, const char *line)
{
    regmatch_t at[6];
    char name[100], labels[400], number[40], *end;
    if (matches(&re[0], line, at, 2)) {
        *f = (struct family){.helped = true};
        copy(f->name, sizeof f->name, line, at[1]);
    } else if (matches(&re[1], line, at, 3)) {
        copy(name, sizeof name, line, at[1]);
        ck_assert_msg(f->helped && strcmp(name, f->name) == 0, "TYPE without its HELP: %s", line);
        copy(f->type, sizeof f->type, line, at[2]);
    } else {
        ck_assert_msg(matches(&re[2], line, at, 6), "neither HELP, TYPE nor sample: %s", line);
        copy(name, sizeof name, line, at[1]);
        copy(labels, sizeof labels, line, at[2]);
        copy(number, sizeof number, line, at[5]);
        double value = strtod(number, &end);
        ck_assert_msg(*end == 0 && end != number, "no number: %s", line);
        ck_assert_msg(f->type[0] != 0, "a sample before its TYPE: %s", line);
        check_sample(f, line, name, labels, value);
    }
}

#define NAME  "([a-zA-Z_:][a-zA-Z0-9_:]*)"
#define LABEL "[a-zA-Z_][a-zA-Z0-9_]*=\"[^\"\\\n]*\""

void pages_metrics(const char *text)
{
    static const char *const patterns[] = {"^# HELP " NAME " .+$",
                                           "^# TYPE " NAME " (counter|gauge|histogram)$",
                                           "^" NAME "(\\{(" LABEL "(," LABEL ")*)\\})? ([^ ]+)$"};
    regex_t re[3];
    struct family family = {.helped = false};
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(regcomp(&re[i], patterns[i], REG_EXTENDED), 0);
    char *all = strdup(text), *rest = all, *line;
    while ((line = strsep(&rest, "\n")) != NULL && rest != NULL)
        check_line(&family, re, line);
    free(all);
    for (int i = 0; i < 3; i++)
        regfree(&re[i]);
}

int pages_has_sample(const char *text, const char *begin)
{
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, begin, strlen(begin)) == 0)
            return 1;
    }
    return 0;
}
