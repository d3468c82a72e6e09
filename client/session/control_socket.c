#include "client/session/control_socket.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zmq.h>

#include "client/psclient.h"
#include "proto/security/socket_monitor.h"
#include "proto/transports/zmq/bind.h"
#include "proto/wire/control.h"

/* Handshakes are retried after 100 ms. One may fail only because the server was just stopped. */
enum { MAX_BROKEN = 20 };

static const char key_line[] = "curve: ";

static void cut_line(char *text)
{
    text[strcspn(text, "\r\n")] = 0;
}

bool psc_place_is(const struct psc_server_address *a, const struct psc_server_address *b)
{
    return strcmp(a->url, b->url) == 0 && strcmp(a->server_key, b->server_key) == 0;
}

int psc_place_find(const char *server, struct psc_server_address *place, struct ps_error *err)
{
    char line[128];
    struct stat st = {.st_mode = 07777};
    *place = (struct psc_server_address){.url = ""};
    if (server[0] != '@') {
        snprintf(place->url, sizeof place->url, "%s", server);
        return 0;
    }
    FILE *f = fopen(server + 1, "re");
    if (f == NULL)
        return ps_fail(err, -errno, "endpoint file '%s': %s", server + 1, strerror(errno));
    if (fgets(place->url, sizeof place->url, f) == NULL)
        place->url[0] = 0;
    bool more = fgets(line, sizeof line, f) != NULL;
    if (fstat(fileno(f), &st) != 0 || (st.st_mode & 022) != 0)
        place->open_mode = (unsigned)st.st_mode & 07777;
    fclose(f);
    cut_line(place->url);
    if (place->url[0] == 0)
        return ps_fail(err, -EINVAL, "endpoint file '%s' holds no URL", server + 1);
    if (!more)
        return 0;
    cut_line(line);
    if (strncmp(line, key_line, sizeof key_line - 1) != 0 || !ps_curve_is_key(line + sizeof key_line - 1))
        return ps_fail(err, -EINVAL,
                       "endpoint file '%s': line 2 is not 'curve: ' and a public key of 40 characters",
                       server + 1);
    memcpy(place->server_key, line + sizeof key_line - 1, sizeof place->server_key);
    return 0;
}

int psc_place_resolve(const struct psc_server_address *place, uint64_t until_ns, struct ps_error *err)
{
    char numeric[sizeof place->url];
    return ps_resolve_url(place->url, until_ns, numeric, sizeof numeric, err);
}

int psc_proof_read(const char *key_file, const char *server_key, struct psc_proof *proof,
                   struct ps_error *err)
{
    *proof = (struct psc_proof){.server_key = ""};
    if (server_key != NULL && !ps_curve_is_key(server_key))
        return ps_fail(
            err, PSC_EINVAL,
            "options: server_key is not a public key: found %zu characters; allowed are 40 of Z85, as in "
            "psd's endpoint file",
            strlen(server_key));
    if (server_key != NULL && key_file == NULL)
        return ps_fail(err, PSC_EINVAL, "options: server_key is given without key_file; allowed are both");
    if (key_file == NULL)
        return PSC_OK;
    if (ps_curve_read(key_file, &proof->own, err) < 0)
        return PSC_EAUTH;
    if (server_key != NULL)
        memcpy(proof->server_key, server_key, sizeof proof->server_key);
    return PSC_OK;
}

/* Finds the key that the server must have. A client with a key never connects in plain, and a client without
 * one is not accepted where keys are required. */
static int choose_key(const struct psc_server_address *place, const struct psc_proof *proof, char *key,
                      struct ps_error *err)
{
    const char *const known[] = {proof->server_key, place->server_key, proof->own.server_key};
    bool by_place = proof->own.public_key[0] != 0 && proof->server_key[0] == 0 && place->server_key[0] != 0;
    key[0] = 0;
    if (by_place && place->open_mode != 0)
        return ps_fail(err, PSC_EAUTH,
                       "the endpoint file with %.200s has mode %04o: others can write to it, so its public "
                       "key is not trusted; allowed is a mode such as 0644, or give server_key",
                       place->url, place->open_mode);
    if (proof->own.public_key[0] == 0)
        return place->server_key[0] == 0
                   ? PSC_OK
                   : ps_fail(err, PSC_EAUTH,
                             "the server at %.200s requires authentication: give a key (psworker --key, else "
                             "key_file), a pair in its allow-list (psctl keygen)",
                             place->url);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i][0] != 0) {
            memcpy(key, known[i], PS_CURVE_KEY_CHARS + 1);
            return PSC_OK;
        }
    return ps_fail(
        err, PSC_EAUTH,
        "the public key of the server at %.200s is unknown: its endpoint file has it (line 'curve:') if "
        "psd has auth.key; else give server_key, or a line 'server:' in the key file",
        place->url);
}

static int connect_there(struct psc_control_socket *line, const struct psc_proof *proof, struct ps_error *err)
{
    int64_t max_bytes = PS_CONTROL_MAX_BYTES + 64; /* CURVE adds 33 */
    int zero = 0, rc;
    const char *url = line->place.url;
    zmq_setsockopt(line->socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes);
    zmq_setsockopt(line->socket, ZMQ_LINGER, &zero, sizeof zero);
    if (line->key[0] != 0 && ps_curve_connect(line->socket, &proof->own, line->key) != 0)
        return ps_fail(err, PSC_EUNSUPPORTED, "this libzmq has no CURVE: %s", zmq_strerror(zmq_errno()));
    if (ps_connect(line->socket, url) == 0)
        return PSC_OK;
    rc = zmq_errno();
    ps_fail(err, 0, "cannot connect to '%.300s': %s; allowed are tcp://HOST:PORT, ipc://PATH and @FILE", url,
            zmq_strerror(rc));
    return rc == EINVAL || rc == EPROTONOSUPPORT || rc == ENAMETOOLONG ? PSC_EINVAL : PSC_EGONE;
}

int psc_control_socket_open(struct psc_control_socket *line, void *context,
                            const struct psc_server_address *place, const struct psc_proof *proof,
                            struct ps_error *err)
{
    psc_control_socket_close(line, 0);
    line->place = *place;
    line->n_shaken = 0;
    int rc = choose_key(place, proof, line->key, err);
    if (rc != PSC_OK)
        return rc;
    if ((line->socket = zmq_socket(context, ZMQ_DEALER)) == NULL)
        return ps_fail(err, PSC_EGONE, "no descriptor for a socket to the server: %s",
                       zmq_strerror(zmq_errno()));
    if (ps_watch_open(context, line->socket, &line->watch) < 0)
        line->watch = NULL; /* without it a refusal looks like silence */
    if ((rc = connect_there(line, proof, err)) != PSC_OK)
        psc_control_socket_close(line, 0);
    return rc;
}

void psc_control_socket_close(struct psc_control_socket *line, int linger_ms)
{
    if (line->socket == NULL)
        return;
    ps_watch_close(line->socket, line->watch);
    zmq_setsockopt(line->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_close(line->socket);
    line->socket = line->watch = NULL;
}

static int classify(struct psc_control_socket *line, const struct psc_proof *proof,
                    const struct ps_watch_event *e, struct ps_error *err)
{
    const char *url = line->place.url;
    bool keyed = line->key[0] != 0;
    switch (e->kind) {
    case PS_WATCH_SHAKEN:
        line->n_broken = 0;
        line->n_shaken++;
        return PSC_OK;
    case PS_WATCH_REFUSED:
        return ps_fail(err, PSC_EAUTH,
                       "the server at %.200s refuses this key: %s, public %s, is not in its allow-list", url,
                       proof->own.name[0] != 0 ? proof->own.name : "no name", proof->own.public_key);
    case PS_WATCH_MISMATCH:
        return keyed
                   ? ps_fail(err, PSC_EAUTH,
                             "the server at %.200s has no CURVE: it is not a psd with an auth.key, and this "
                             "client sends it nothing unencrypted",
                             url)
                   : ps_fail(err, PSC_EAUTH,
                             "the server at %.200s requires authentication: give a key (psworker --key, else "
                             "key_file), a "
                             "pair in its allow-list (psctl keygen)",
                             url);
    case PS_WATCH_BROKEN:
        if (!keyed)
            return ps_fail(err, PSC_EGONE,
                           "the server at %.200s closed the connection: it may require a key (psworker "
                           "--key, else key_file)",
                           url);
        return ps_fail(
            err, ++line->n_broken >= MAX_BROKEN ? PSC_EAUTH : PSC_EGONE,
            "the handshake with %.200s failed: the server does not have the secret key of the public key "
            "%s, or is not a psd with an auth.key",
            url, line->key);
    default:
        return PSC_OK;
    }
}

int psc_control_socket_poll(struct psc_control_socket *line, const struct psc_proof *proof,
                            struct ps_error *err)
{
    struct ps_watch_event e;
    int rc = PSC_OK;
    while (line->watch != NULL && rc != PSC_EAUTH && ps_watch_take(line->watch, &e) == 0) {
        int found = classify(line, proof, &e, err);
        if (found != PSC_OK || e.kind == PS_WATCH_SHAKEN)
            rc = found;
    }
    return rc;
}
