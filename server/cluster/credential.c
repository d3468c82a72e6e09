/* A server's Enlist if the head asks for a MUNGE credential. munged may be slow, so a thread of the pool
 * talks to it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "proto/security/munge.h"
#include "proto/wire/control.h"
#include "server/cluster/internal.h"

/* The pool's thread reads the members above `rc` and writes the others. */
struct proof {
    uv_work_t work;
    struct psd_cluster *cluster;
    size_t payload_bytes, enlist_bytes; /* the payload is the nonce, the Enlist and the public key */
    unsigned char *payload;
    int rc;
    char *credential;
    struct ps_error why;
};

static void encode(uv_work_t *work)
{
    struct proof *p = work->data;
    p->rc = ps_munge_encode(p->payload, p->payload_bytes, &p->credential, &p->why);
}

static void send_proven(struct psd_cluster *cluster, const struct proof *p)
{
    Ps__ToServer m = PS__TO_SERVER__INIT;
    Ps__Enlist *enlist = ps__enlist__unpack(NULL, p->enlist_bytes, p->payload + PS_MUNGE_NONCE_BYTES);
    if (enlist == NULL)
        return; /* it will be sent again */
    ProtobufCBinaryData none = enlist->credential;
    enlist->credential.data = (uint8_t *)p->credential;
    enlist->credential.len = strlen(p->credential);
    m.what_case = PS__TO_SERVER__WHAT_ENLIST;
    m.enlist = enlist;
    ps_control_send(cluster->follower.socket, &m.base);
    enlist->credential = none;
    ps__enlist__free_unpacked(enlist, NULL);
}

static void free_proof(struct proof *p)
{
    free(p->payload);
    free(p->credential);
    free(p);
}

static void encoded(uv_work_t *work, int status)
{
    struct proof *p = work->data;
    struct psd_follower *f = &p->cluster->follower;
    f->proving = false;
    f->said_ms = psd_loop_now_ms(p->cluster->loop);
    if (status == 0 && f->socket != NULL && p->rc == 0)
        send_proven(p->cluster, p);
    else if (status == 0 && p->rc < 0 && ps_log_allows(&f->log_limit, "server.munge", "servers"))
        ps_log(PS_LOG_WARN, "server.munge", "the head asks for a munge credential: %s", p->why.text);
    free_proof(p);
}

int psd_follower_prove(struct psd_cluster *cluster, const Ps__Enlist *m, const ProtobufCBinaryData *nonce)
{
    const char *key = psd_auth_public_key(cluster->auth);
    struct proof *p = calloc(1, sizeof *p);
    if (p == NULL || nonce->len != PS_MUNGE_NONCE_BYTES) {
        free(p);
        return p == NULL ? -ENOMEM : -EINVAL;
    }
    p->cluster = cluster;
    p->work.data = p;
    p->enlist_bytes = ps__enlist__get_packed_size(m);
    p->payload_bytes = PS_MUNGE_NONCE_BYTES + p->enlist_bytes + strlen(key);
    if ((p->payload = malloc(p->payload_bytes)) == NULL) {
        free_proof(p);
        return -ENOMEM;
    }
    memcpy(p->payload, nonce->data, PS_MUNGE_NONCE_BYTES);
    ps__enlist__pack(m, p->payload + PS_MUNGE_NONCE_BYTES);
    memcpy(p->payload + PS_MUNGE_NONCE_BYTES + p->enlist_bytes, key, strlen(key));
    if (uv_queue_work(cluster->loop, &p->work, encode, encoded) != 0) {
        free_proof(p);
        return -ENOMEM;
    }
    cluster->follower.proving = true;
    return 0;
}
