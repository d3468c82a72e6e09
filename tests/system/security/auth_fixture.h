/* auth_fixture.h: a psd that asks who comes, listening as if other machines could reach it; w0, w1, w2 have
 * keys, and the allow-list says what of each. For system tests. */
#ifndef TEST_SYSTEM_AUTH_FIXTURE_H
#define TEST_SYSTEM_AUTH_FIXTURE_H

#include "proto/security/curve.h"
#include "tests/system/step_workers.h"

enum { HOUSE_FLOATS = 30011, HOUSE_PEERS = 3, HOUSE_PATH_BYTES = 160 };
#define HOUSE_ENDLESS UINT64_MAX
#define HOUSE_JOB                                                                                            \
    "method=async-easgd", "parameters.alpha=0.2", "parameters.period=1", "checkpoint.every_s=0",             \
        "chunk_floats=4096", "lanes=2"

struct house {
    struct daemon d;
    char allow[HOUSE_PATH_BYTES], psd_key[HOUSE_PATH_BYTES], key[HOUSE_PEERS][HOUSE_PATH_BYTES];
    struct ps_curve_pair psd, peer[HOUSE_PEERS];
    char set[2][HOUSE_PATH_BYTES + 32]; /* auth.key, auth.allow */
    const char *settings[16];
    size_t n_settings;
};

/* Ranks 0 and 1 for w0 and w1, anything for w2. */
extern const char *const house_everybody[HOUSE_PEERS];

/* rights[i]: what stands behind w<i> in the list; NULL: it is not in it. */
void house_write_list(const struct house *h, const char *const rights[HOUSE_PEERS]);
/* Keys, list and settings, without a psd; and with one. */
void house_prepare(struct house *h, const char *const rights[HOUSE_PEERS]);
void house_open(struct house *h, const char *const rights[HOUSE_PEERS]);
/* It ends in good order, and the sanitizers have nothing to say. */
void house_close(struct house *h);
/* Kills it first: workers are still there. */
void house_raze(struct house *h);

/* A stepper with the key of that peer; -1: without one. */
void house_step_as(struct house *h, struct stepper *s, int peer, int32_t rank, uint64_t steps);
void house_assert_joined(const struct stepper *s);
/* Ends with this result and a sentence that says so. */
void house_assert_ends(struct stepper *s, int rc, const char *says);
void house_assert_logged(const struct house *h, const char *text);
bool house_text_is(const struct house *h, const char *page, const char *at, const char *wanted);

#endif
