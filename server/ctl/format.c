#include "server/ctl/format.h"

#include <string.h>

void ctl_copy_printable(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; *from != 0 && n < size - 1; from++) {
        unsigned char c = (unsigned char)*from, next = (unsigned char)from[1];
        bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; /* control characters beyond ASCII */
        to[n++] = c < 0x20 || c == 0x7f || c1 ? '?' : *from;
        from += c1;
    }
    to[n] = 0;
}

int ctl_width(const char *text)
{
    int n = 0;
    for (; *text != 0; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

size_t ctl_bytes_of_width(const char *text, int width)
{
    const char *at = text;
    while (*at != 0 && (((unsigned char)*at & 0xc0) == 0x80 || width-- > 0))
        at++;
    return (size_t)(at - text);
}

struct ctl_text ctl_text_of(const json_t *value)
{
    struct ctl_text t = {"-"};
    if (json_is_string(value))
        ctl_copy_printable(t.s, sizeof t.s, json_string_value(value));
    else if (json_is_integer(value))
        snprintf(t.s, sizeof t.s, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(t.s, sizeof t.s, "%.6g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(t.s, sizeof t.s, "%s", json_is_true(value) ? "yes" : "no");
    return t;
}

struct ctl_text ctl_get(const json_t *object, const char *key)
{
    return ctl_text_of(json_object_get(object, key));
}

/* For example "1.6 MiB". */
struct ctl_text ctl_get_bytes(const json_t *object, const char *key)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    const json_t *value = json_object_get(object, key);
    double bytes = json_number_value(value);
    struct ctl_text t = {"-"};
    size_t unit = 0;

    if (!json_is_number(value))
        return t;
    for (; bytes >= 1024 && unit < sizeof units / sizeof *units - 1; unit++)
        bytes /= 1024;
    snprintf(t.s, sizeof t.s, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return t;
}

/* For example "12.3 s", "5 min 03 s", "2 h 07 min", "3 d 04 h". */
struct ctl_text ctl_duration(double seconds)
{
    struct ctl_text t;
    long long s = (long long)seconds;
    if (seconds < 60)
        snprintf(t.s, sizeof t.s, "%.1f s", seconds);
    else if (s < 3600)
        snprintf(t.s, sizeof t.s, "%lld min %02lld s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(t.s, sizeof t.s, "%lld h %02lld min", s / 3600, s / 60 % 60);
    else
        snprintf(t.s, sizeof t.s, "%lld d %02lld h", s / 86400, s / 3600 % 24);
    return t;
}

bool ctl_is_known(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value != NULL && !json_is_null(value);
}

int ctl_column_width(const struct ctl_column *column, const json_t *list)
{
    int width = ctl_width(column->title);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int w = ctl_width(ctl_get(json_array_get(list, i), column->key).s);
        width = w > width ? w : width;
    }
    return width;
}

struct ctl_text ctl_workers(const json_t *status)
{
    const json_t *w = json_object_get(status, "workers");
    char awaited[64] = "", silent[64] = "";
    struct ctl_text t;
    if (json_integer_value(json_object_get(w, "awaited")) > 0)
        snprintf(awaited, sizeof awaited, " of %.20s that the first round waits for",
                 ctl_get(w, "awaited").s);
    if (json_integer_value(json_object_get(w, "silent")) > 0)
        snprintf(silent, sizeof silent, ", %.20s silent", ctl_get(w, "silent").s);
    snprintf(t.s, sizeof t.s, "%.20s active%s%s, %.20s observers", ctl_get(w, "active").s, awaited, silent,
             ctl_get(w, "observers").s);
    return t;
}

void ctl_print_table(FILE *out, const struct ctl_column *columns, size_t n_columns, const json_t *list)
{
    size_t n = json_array_size(list);
    int width[CTL_MAX_COLUMNS];

    for (size_t c = 0; c < n_columns; c++)
        width[c] = ctl_column_width(&columns[c], list);
    for (size_t row = 0; row <= n; row++) { /* row 0 has the titles */
        for (size_t c = 0; c < n_columns; c++) {
            struct ctl_text t;
            if (row == 0)
                ctl_copy_printable(t.s, sizeof t.s, columns[c].title);
            else
                t = ctl_get(json_array_get(list, row - 1), columns[c].key);
            bool last = c == n_columns - 1;
            int field = width[c] + (int)strlen(t.s) - ctl_width(t.s); /* printf counts bytes */
            fprintf(out, "%s%*s", c > 0 ? "  " : "",
                    last && columns[c].left ? 0
                    : columns[c].left       ? -field
                                            : field,
                    t.s);
        }
        fprintf(out, "\n");
    }
}
