#include "client/session/control_messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/security/munge.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"

int psc_control_send(void *socket, int what, void *message)
{
    Ps__ToServer m = PS__TO_SERVER__INIT;
    m.what_case = (Ps__ToServer__WhatCase)what;
    m.hello = message; /* a union of pointers */
    return ps_control_send(socket, &m.base);
}

/* The credential covers the nonce, the Hello as built so far, and the key that identifies the connection. */
static int prove_user(const struct psc_session *session, Ps__Hello *hello, const ProtobufCBinaryData *nonce,
                      struct ps_error *err)
{
    unsigned char payload[PS_MUNGE_MAX_BYTES];
    const char *key = session->proof.own.public_key;
    size_t len = ps__hello__get_packed_size(hello), key_len = strnlen(key, PS_CURVE_KEY_CHARS);
    char *credential;
    if (nonce->len != PS_MUNGE_NONCE_BYTES || nonce->len + len + key_len > sizeof payload)
        return ps_fail(err, PSC_EAUTH,
                       "the server asks for a munge credential over %zu bytes of nonce; expected %d",
                       nonce->len, PS_MUNGE_NONCE_BYTES);
    memcpy(payload, nonce->data, nonce->len);
    ps__hello__pack(hello, payload + nonce->len);
    memcpy(payload + nonce->len + len, key, key_len);
    int rc = ps_munge_encode(payload, nonce->len + len + key_len, &credential, err);
    if (rc < 0)
        return rc == -EAGAIN ? PSC_EGONE : PSC_EAUTH;
    hello->credential.data = (uint8_t *)credential;
    hello->credential.len = strlen(credential);
    return PSC_OK;
}

int psc_hello_send(struct psc_session *session, void *socket, const ProtobufCBinaryData *nonce,
                   struct ps_error *err)
{
    struct psc_shared *s = &session->shared;
    Ps__Hello hello = PS__HELLO__INIT;
    char *codecs[PSC_MAX_CODECS];
    uint64_t versions[PS_MAX_PARTS];
    int rc = PSC_OK;

    hello.n_codecs = psc_codec_names(codecs);
    hello.codecs = codecs;
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)(uintptr_t)session->opt->name;
    hello.net = (char *)(uintptr_t)session->opt->net;
    hello.data = (char *)(uintptr_t)session->opt->data;
    hello.steps = session->opt->steps;
    hello.heartbeat_ms = session->opt->heartbeat_ms;
    hello.observer = session->opt->kind == PSC_OBSERVER;
    hello.any_rank = session->opt->rank < 0;
    hello.rank = session->opt->rank < 0 ? 0 : (uint32_t)session->opt->rank;
    hello.token = session->token;
    hello.members = session->members;
    hello.lands_later = true;
    pthread_mutex_lock(&s->lock);
    if (s->begun) { /* a session that had not begun starts from nothing */
        hello.incarnation = s->welcome.incarnation;
        hello.client = s->welcome.client;
        hello.manifest_hash = s->manifest->hash;
        hello.center_version = s->center_version;
        hello.job = s->job;
        hello.versions = versions;
        hello.n_versions = s->welcome.n_parts > 1 ? s->welcome.n_parts : 0;
        memcpy(versions, s->versions, sizeof versions);
        hello.under_way = atomic_load(&s->under_way);
        hello.barrier = s->barrier;
    }
    pthread_mutex_unlock(&s->lock);
    if (nonce != NULL)
        rc = prove_user(session, &hello, nonce, err);
    if (rc == PSC_OK)
        psc_control_send(socket, PS__TO_SERVER__WHAT_HELLO, &hello);
    free(hello.credential.data);
    return rc;
}

int psc_begin_send(void *socket, const struct ps_manifest *manifest, uint32_t client, uint32_t incarnation,
                   struct ps_error *err)
{
    Ps__Begin begin = PS__BEGIN__INIT;
    Ps__Tensor *tensors = calloc(manifest->n_tensors, sizeof *tensors);
    Ps__Tensor **list = calloc(manifest->n_tensors, sizeof(Ps__Tensor *));
    int rc = ps_fail(err, PSC_ENOMEM, "no memory to send the manifest");
    if (tensors != NULL && list != NULL) {
        for (size_t i = 0; i < manifest->n_tensors; i++) {
            const struct ps_tensor *t = &manifest->tensors[i];
            ps__tensor__init(&tensors[i]);
            tensors[i].name = t->name;
            tensors[i].offset = t->offset;
            tensors[i].n_shape = t->n_dims;
            tensors[i].shape = (uint64_t *)(uintptr_t)t->shape;
            tensors[i].role = t->role;
            tensors[i].decay = t->decay;
            tensors[i].rate_ppm = t->rate_ppm;
            list[i] = &tensors[i];
        }
        begin.client = client;
        begin.incarnation = incarnation;
        begin.n_tensors = manifest->n_tensors;
        begin.tensors = list;
        rc = psc_control_send(socket, PS__TO_SERVER__WHAT_BEGIN, &begin) == -EMSGSIZE
                 ? ps_fail(err, PSC_EMANIFEST, "the manifest is too large for a control message")
                 : PSC_OK;
    }
    free(tensors);
    free(list);
    return rc;
}
