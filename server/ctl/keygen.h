/* keygen.h: psctl keygen: creates a key pair, without a psd. */
#ifndef CTL_KEYGEN_H
#define CTL_KEYGEN_H

#include <stdio.h>

#include "proto/error.h"

/* Writes a new key file and prints its line for an allow-list. name NULL: this user at this host. -errno with
 * a sentence; never overwrites a file. */
int ctl_keygen(const char *path, const char *name, FILE *out, struct ps_error *err);

#endif
