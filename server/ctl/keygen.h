/* keygen.h: psctl keygen: makes a key pair, without a psd. */
#ifndef CTL_KEYGEN_H
#define CTL_KEYGEN_H

#include <stdio.h>

#include "proto/error.h"

/* Writes a new key file and prints its line of an allow-list. name NULL: this user at this host. -errno with
 * a sentence; nothing is overwritten. */
int ctl_keygen(const char *path, const char *name, FILE *out, struct ps_error *err);

#endif
