/* curve.h: keys of ZeroMQ's CURVE, key files, and sockets that use them.
 *
 * A key file is text, readable only by its owner:
 *
 *   # psd key pair: keep it secret
 *   name: NAME
 *   public: Z85   40 characters each
 *   secret: Z85
 *   server: Z85   optional: psd's public key, for clients that have only psd's URL */
#ifndef PS_SECURITY_CURVE_H
#define PS_SECURITY_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define PS_CURVE_KEY_CHARS 40 /* of a key in Z85 */
#define PS_CURVE_KEY_BYTES 32
#define PS_CURVE_NAME_MAX  63

/* The domain that psd's sockets report to ZAP (rfc.zeromq.org/spec/27), and the property with which its
 * answers number identities: see server/auth/zap.h. At most 15 bytes, so that reading it allocates
 * nothing. */
#define PS_CURVE_DOMAIN      "psd"
#define PS_CURVE_ID_PROPERTY "Psd-Id"

struct ps_curve_pair {
    char name[PS_CURVE_NAME_MAX + 1];
    char public_key[PS_CURVE_KEY_CHARS + 1], secret_key[PS_CURVE_KEY_CHARS + 1]; /* "": no pair */
    char server_key[PS_CURVE_KEY_CHARS + 1];                                     /* "": not in the file */
};

/* Whether the text is a key: 40 characters of Z85 that encode 32 bytes. */
bool ps_curve_is_key(const char *text);
/* Whether it is a valid name of an identity: 1 to 63 of letters, digits and ._@:- */
bool ps_curve_is_name(const char *text);

/* Generates a pair. -ENOTSUP: this libzmq has no CURVE; -EINVAL: the name. */
int ps_curve_generate(const char *name, struct ps_curve_pair *out, struct ps_error *err);

/* Reads a key file. -EACCES if it belongs to another user, or others may read or write it; -EINVAL names
 * file, line, what was found and what is allowed; other -errno. A secret that does not belong to the public
 * key is an error too. */
int ps_curve_read(const char *path, struct ps_curve_pair *out, struct ps_error *err);
/* The same for a text in memory, which errors name as `place`. */
int ps_curve_parse(const char *place, const char *text, size_t len, struct ps_curve_pair *out,
                   struct ps_error *err);
/* Writes a new key file of mode 0600, atomically. -EEXIST: the file exists and is unchanged. */
int ps_curve_write(const char *path, const struct ps_curve_pair *pair, struct ps_error *err);

/* Call before zmq_bind: admits only peers that know this pair's public key and that ZAP accepts. Without a
 * ZAP handler libzmq admits every peer: their messages then lack PS_CURVE_ID_PROPERTY. 0 or -1 with errno. */
int ps_curve_serve(void *zmq_socket, const struct ps_curve_pair *pair);
/* Call before zmq_connect: authenticates with `pair`, and requires that the server has the secret of
 * server_key. 0 or -1 with errno. */
int ps_curve_connect(void *zmq_socket, const struct ps_curve_pair *pair, const char *server_key);

#endif
