/* endpoint.h: the address that workers are told. */
#ifndef PSD_ENDPOINT_H
#define PSD_ENDPOINT_H

#include <stddef.h>

#include "proto/error.h"

/* The bound URL with its host replaced by `advertise` unless that is "", or by this host's name when psd is
 * bound to every interface. */
void psd_endpoint_advertised(const char *bound, const char *advertise, char *url, size_t size);

/* Writes the URL and a newline to `path` by way of a temporary file and a rename: a reader sees all of it or
 * nothing. */
int psd_endpoint_write(const char *path, const char *url, struct ps_error *err);

#endif
