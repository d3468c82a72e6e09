/* endpoint.h: the address that psd listens on, and the one that workers are told. */
#ifndef PSD_CONFIG_ENDPOINT_H
#define PSD_CONFIG_ENDPOINT_H

#include <stddef.h>

#include "proto/error.h"
#include "server/config/config.h"

/* cfg->listen as it is bound: tcp://HOST:PORT as it stands; ipc://PATH with an absolute path, a relative one
 * being relative to the state directory, because workers have other working directories. -EINVAL or
 * -ENAMETOOLONG with a sentence. */
int psd_endpoint_listen(const struct psd_config *cfg, char *url, size_t size, struct ps_error *err);

/* ipc: makes the directory of the sockets with mode 0700 if it is missing (not its parents), and refuses one
 * that others may enter unless cfg->insecure. tcp: nothing. */
int psd_endpoint_directory(const struct psd_config *cfg, const char *url, struct ps_error *err);

/* The bound URL with its host replaced by `advertise` unless that is "", or by this host's name when psd is
 * bound to every interface. */
void psd_endpoint_advertised(const char *bound, const char *advertise, char *url, size_t size);

/* The first line of an endpoint file. -errno, -EINVAL with a sentence. */
int psd_endpoint_read(const char *path, char *url, size_t size, struct ps_error *err);

/* Writes the URL as a line to `path`, and behind it "curve: KEY" unless the key is "", by way of a temporary
 * file and a rename: a reader sees all of it or nothing. */
int psd_endpoint_write(const char *path, const char *url, const char *curve_key, struct ps_error *err);

#endif
