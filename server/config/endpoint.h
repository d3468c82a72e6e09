/* endpoint.h: the address that psd listens on, and the address that workers are given. */
#ifndef PSD_CONFIG_ENDPOINT_H
#define PSD_CONFIG_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/error.h"
#include "server/config/config.h"

/* The URL to bind from cfg->listen: tcp://HOST:PORT unchanged; ipc://PATH with an absolute path, because
 * workers have other working directories. A relative path is relative to the state directory. -EINVAL or
 * -ENAMETOOLONG with a sentence. */
int psd_endpoint_listen(const struct psd_config *cfg, char *url, size_t size, struct ps_error *err);

/* ipc: creates the directory of the sockets with mode 0700 if it is missing, but not its parents, and refuses
 * one that others may enter unless cfg->insecure. tcp: does nothing. */
int psd_endpoint_directory(const struct psd_config *cfg, const char *url, struct ps_error *err);

/* The bound URL with its host replaced by `advertise`, or, if that is "" and psd is bound to every interface,
 * by this host's name. */
void psd_endpoint_advertised(const char *bound, const char *advertise, char *url, size_t size);

/* Reads the first line of an endpoint file. -errno or -EINVAL with a sentence. */
int psd_endpoint_read(const char *path, char *url, size_t size, struct ps_error *err);

/* Whether servers.head names the endpoint_file, by this path or another: then the head writes it, and this
 * server only reads it. */
bool psd_endpoint_is_of_head(const struct psd_config *cfg);

/* Writes the URL as a line to `path`, followed by "curve: KEY" unless the key is "". Uses a temporary file
 * and a rename, so that a reader never sees a partial file. */
int psd_endpoint_write(const char *path, const char *url, const char *curve_key, struct ps_error *err);

#endif
