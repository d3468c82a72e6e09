/* Whether two servers of a job were configured alike in what they must agree on. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/cluster.h"

/* What is each server's own. */
static const char *const own_keys[] = {"servers",    "listen",        "advertise", "insecure",
                                       "state_dir",  "endpoint_file", "log_level", "status",
                                       "checkpoint", "stop",          "auth"};

static bool is_own(const char *key)
{
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (strcmp(own_keys[i], key) == 0)
            return true;
    return false;
}

static void say(const char *group, const char *key, const json_t *head, const json_t *other, char *sentence,
                size_t size)
{
    char *a = json_dumps(head, JSON_ENCODE_ANY | JSON_COMPACT),
         *b = json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(sentence, size, "%s%s%s: found %.80s; the head has %.80s, and all servers must have the same",
             group, group[0] != 0 ? "." : "", key, b != NULL ? b : "nothing", a != NULL ? a : "nothing");
    free(a);
    free(b);
}

void psd_team_compare(const char *head_json, const char *other_json, char *sentence, size_t size)
{
    json_t *head = json_loads(head_json, 0, NULL), *other = json_loads(other_json, 0, NULL);
    const char *name, *leaf;
    json_t *value, *inner;
    sentence[0] = 0;
    if (!json_is_object(head) || !json_is_object(other))
        snprintf(sentence, size, "its configuration is no JSON object");
    json_object_foreach(head, name, value)
    {
        json_t *theirs = json_object_get(other, name);
        if (sentence[0] != 0 || is_own(name) || json_equal(value, theirs))
            continue;
        if (!json_is_object(value))
            say("", name, value, theirs, sentence, size);
        json_object_foreach(value, leaf, inner)
        {
            if (sentence[0] == 0 && !json_equal(inner, json_object_get(theirs, leaf)))
                say(name, leaf, inner, json_object_get(theirs, leaf), sentence, size);
        }
    }
    json_decref(head);
    json_decref(other);
}
