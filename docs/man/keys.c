/* keys: writes psd.yaml(5) for scdoc. keys TEMPLATE prints the template; the lines @KEYS@, @METHODS@ and
 * @LOCAL@ become the configuration's key table, the presets and the methods of psworker alone, so that the
 * page cannot differ from what psd reads.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "proto/model/method.h"
#include "server/config/keys.h"

/* What scdoc would take for markup. */
static void put(const char *text)
{
    for (; *text != 0; text++) {
        if (strchr("_*\\<>#[]", *text) != NULL)
            putchar('\\');
        putchar(*text);
    }
}

static void print_default(const struct psd_config_key *k)
{
    printf("default ");
    if (k->value[0] == 0)
        printf("\"\"");
    put(k->value);
    if (k->fallback != NULL) {
        printf(", or ");
        put(k->fallback);
        printf(" where the method says nothing");
    }
}

static void print_key(const struct psd_config_key *k)
{
    char allowed[300];
    if (k->type == PSD_CONFIG_GROUP)
        return;
    if (k->type == PSD_CONFIG_STRING)
        snprintf(allowed, sizeof allowed, "a text");
    else
        psd_config_value_allowed(k, allowed, sizeof allowed);
    printf("*");
    put(k->name);
    printf("*\n\t%c", toupper((unsigned char)k->help[0]));
    put(k->help + 1);
    printf(".++\n");
    put(allowed);
    printf("; ");
    print_default(k);
    printf("; %s\n\n", k->applies == PSD_CONFIG_RELOAD ? "reload" : "restart");
}

static void print_methods(void)
{
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++) {
        if (m->rule == NULL)
            continue;
        printf("- *%s*: rule ", m->name);
        put(m->rule);
        printf(", admission ");
        put(m->admission);
        printf(", optimizer ");
        put(m->optimizer);
        printf(", averaging ");
        put(m->averaging);
        printf(" (");
        put(m->source);
        printf(")\n");
    }
}

/* Those without a server. */
static void print_local(void)
{
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        if (m->rule == NULL)
            printf("- *%s*: optimizer %s, averaging %s (%s)\n", m->name, m->optimizer, m->averaging,
                   m->source);
}

int main(int argc, char **argv)
{
    char line[1000];
    FILE *template = argc == 2 ? fopen(argv[1], "re") : NULL;
    if (template == NULL) {
        fprintf(stderr, "usage: keys TEMPLATE\n");
        return 2;
    }
    while (fgets(line, sizeof line, template) != NULL) {
        if (strcmp(line, "@KEYS@\n") == 0)
            for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++)
                print_key(k);
        else if (strcmp(line, "@METHODS@\n") == 0)
            print_methods();
        else if (strcmp(line, "@LOCAL@\n") == 0)
            print_local();
        else
            fputs(line, stdout);
    }
    fclose(template);
    return fflush(stdout) == 0 ? 0 : 1;
}
