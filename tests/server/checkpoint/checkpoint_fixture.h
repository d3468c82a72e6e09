/* checkpoint_fixture.h: what both suites of checkpoints start from. */
#ifndef TEST_SERVER_CHECKPOINT_CHECKPOINT_FIXTURE_H
#define TEST_SERVER_CHECKPOINT_CHECKPOINT_FIXTURE_H

#include "server/checkpoint/header.h"

/* A fresh current directory for each test. */
void enter_directory(void);
void leave_directory(void);
int count_files(void);

/* Three tensors of 45 values (one of them a buffer), n_state state vectors, two replay entries. */
void make_snapshot(struct psd_snapshot *s, uint64_t version, uint32_t n_state);

/* Makes one with a state vector and writes it into the current directory. */
void write_snapshot(uint64_t version, uint64_t saved_at_s, uint32_t keep);

unsigned char *load(const char *path, size_t *len);
void store(const char *path, const void *bytes, size_t len);
void assert_error_says(const struct ps_error *err, const char *part);

#endif
