/* The allow-list, and key files: what parses, written anew, parses into the same. The first byte chooses. */
#include <string.h>
#include <zmq.h>

#include "server/auth/allow_list.h"
#include "tests/fuzz/fuzz.h"

static const char *const roles[] = {"any", "worker", "observer"};

/* A list with the same meaning. The caller frees it. */
static char *write_list(const struct psd_allow *list)
{
    char *text = NULL, key[PS_CURVE_KEY_CHARS + 1];
    size_t len;
    FILE *f = open_memstream(&text, &len);
    for (size_t i = 0; i < list->n; i++) {
        const struct psd_grant *g = &list->grants[i];
        promise(g->role < sizeof roles / sizeof *roles);
        zmq_z85_encode(key, g->key, sizeof g->key);
        fprintf(f, "%s %s role=%s # again\n", key, g->name, roles[g->role]);
    }
    fclose(f);
    return text;
}

static void try_list(const char *text, size_t len)
{
    struct psd_allow list, again;
    struct ps_error err = {""};
    uint64_t last = 1;
    if (psd_allow_parse("list", text, len, NULL, &list, &err) < 0) {
        promise(strncmp(err.text, "list", 4) == 0);
        return;
    }
    char *written = write_list(&list);
    promise(psd_allow_parse("list", written, strlen(written), NULL, &again, &err) == 0);
    promise(again.n == list.n);
    psd_allow_number(&list, NULL, &last);
    psd_allow_number(&again, &list, &last);
    for (size_t i = 0; i < list.n; i++) {
        const struct psd_grant *g = &list.grants[i];
        promise(ps_curve_is_name(g->name) && strcmp(g->name, "psd") != 0);
        promise(memcmp(g->key, again.grants[i].key, sizeof g->key) == 0 && g->id == again.grants[i].id);
        promise(psd_allow_find_id(&list, g->id) == g && psd_allow_find_key(&list, g->key) == g);
        promise(psd_allow_find_name(&list, g->name) == g);
        promise(g->role != PSD_ROLE_OBSERVER || !g->some_ranks);
        promise(!psd_grant_has_rank(g, PSD_ALLOW_RANKS) || !g->some_ranks);
    }
    free(written);
    psd_allow_finish(&list);
    psd_allow_finish(&again);
}

static void try_key(const char *text, size_t len)
{
    struct ps_curve_pair pair;
    struct ps_error err = {""};
    if (ps_curve_parse("key", text, len, &pair, &err) < 0) {
        promise(strncmp(err.text, "key:", 4) == 0);
        return;
    }
    promise(ps_curve_is_key(pair.public_key) && ps_curve_is_key(pair.secret_key));
    promise(pair.name[0] == 0 || ps_curve_is_name(pair.name));
    promise(pair.server_key[0] == 0 || ps_curve_is_key(pair.server_key));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < 1)
        return 0;
    if (bytes[0] == 'k')
        try_key((const char *)bytes + 1, len - 1);
    else
        try_list((const char *)bytes + 1, len - 1);
    return 0;
}
