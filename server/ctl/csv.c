#include "server/ctl/csv.h"

#include <string.h>

/* psctl(1) has this order, too. */
static const char *const columns[] = {"t",           "center_version", "workers",    "updates_per_s",
                                      "staleness",   "loss",           "test_loss",  "test_accuracy",
                                      "center_norm", "distance",       "event_kind", "event"};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* In quotes where it holds what would end the field, or where it is empty: nothing at all is not known. */
static void print_text(FILE *out, const char *text)
{
    if (text[0] != 0 && strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != 0; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void print_field(FILE *out, const json_t *value)
{
    if (json_is_string(value))
        print_text(out, json_string_value(value));
    else if (value != NULL && !json_is_null(value))
        json_dumpf(value, out, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
}

void ctl_csv_history(FILE *out, const json_t *answer)
{
    const json_t *record;
    size_t i;
    for (int k = 0; k < N_COLUMNS; k++)
        fprintf(out, "%s%s", k > 0 ? "," : "", columns[k]);
    fputs("\r\n", out);
    json_array_foreach(json_object_get(answer, "history"), i, record)
    {
        for (int k = 0; k < N_COLUMNS; k++) {
            if (k > 0)
                fputc(',', out);
            print_field(out, json_object_get(record, columns[k]));
        }
        fputs("\r\n", out);
    }
}
