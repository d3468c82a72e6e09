/* check_method.h: checks a configuration's method: its four parts, and which keys they use. Private to
 * server/config/. */
#ifndef PSD_CONFIG_CHECK_METHOD_H
#define PSD_CONFIG_CHECK_METHOD_H

#include "server/config/keys.h"

/* Whether the configuration's rule, admission, optimizer, averaging and schedule use the key. Also true for
 * keys that belong to no method, and for every key while a part is unresolved. */
bool psd_config_key_used(const struct psd_config_key *key, const struct psd_config *cfg);

/* Fills in rule, admission, optimizer, averaging and the preset's parameters, and checks their constraints as
 * psd_config_check documents. -EINVAL with a sentence. */
int psd_config_method_check(struct psd_config *cfg, struct ps_error *err);

/* A preset that a request asks for must not be overridden by parts that are given elsewhere: -EINVAL with a
 * sentence. asked: what the request gives, else "" and "preset"; all: with it, not settled. */
int psd_config_method_by_name(const struct psd_config *asked, const struct psd_config *all,
                              struct ps_error *err);

/* check_clique.c. Checks a method against the mode of cliques, and what a reload may not change when the
 * workers are one clique. -EINVAL with a sentence. */
int psd_config_clique_check(const struct psd_config *cfg, const struct ps_rule_info *rule,
                            struct ps_error *err);
int psd_config_clique_change(const struct psd_config *now, const struct psd_config *next,
                             struct ps_error *err);

/* check_codec.c. What the rule, the merge and error feedback require of the codecs. -EINVAL with a sentence.
 */
/* Whether answers are in a codec for moves: psd then keeps what each of `workers` has. */
bool psd_config_answers_moves(const struct psd_config *cfg);
int psd_config_codec_check(const struct psd_config *cfg, const struct ps_rule_info *rule,
                           struct ps_error *err);

/* With clique.mode vectors the members' sum is the round, and psd only receives copies, in order of arrival:
 * sets admission fcfs. Call after the checks. */
void psd_config_clique_settle(struct psd_config *cfg);
/* The admission as it was before, for output that can be read again. */
const char *psd_config_clique_admission(const struct psd_config *cfg);

/* Writes a warning if the moving rate is above the stability bound, or if workers of a rule with shares may
 * begin at different centers; else leaves *warning alone. */
void psd_config_method_warn(const struct psd_config *cfg, struct ps_error *warning);

#endif
