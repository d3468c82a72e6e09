/* check_method.h: a configuration's method: its four parts, and which keys they use. Private to
 * server/config/. */
#ifndef PSD_CONFIG_CHECK_METHOD_H
#define PSD_CONFIG_CHECK_METHOD_H

#include "server/config/keys.h"

/* Whether the configuration's rule, admission, optimizer, averaging and schedule use the key. True of every
 * key that belongs to no method, and of all while a part is not resolved. */
bool psd_config_key_used(const struct psd_config_key *key, const struct psd_config *cfg);

/* Fills in rule, admission, optimizer and averaging and the parameters of a preset, and checks what holds
 * between them, as psd_config_check says. -EINVAL with a sentence. */
int psd_config_method_check(struct psd_config *cfg, struct ps_error *err);

/* check_clique.c. What a method and the mode of cliques ask of each other; what a reload may not change
 * where the workers are one clique. -EINVAL with a sentence. */
int psd_config_clique_check(const struct psd_config *cfg, const struct ps_rule_info *rule,
                            struct ps_error *err);
int psd_config_clique_change(const struct psd_config *now, const struct psd_config *next,
                             struct ps_error *err);

/* check_codec.c. What the rule, the merge and error feedback ask of the codecs. -EINVAL with a sentence. */
/* Whether answers are in a codec for moves: psd then keeps what each of `workers` has. */
bool psd_config_answers_moves(const struct psd_config *cfg);
int psd_config_codec_check(const struct psd_config *cfg, const struct ps_rule_info *rule,
                           struct ps_error *err);

/* With clique.mode vectors the members' sum is the round; psd has copies only, which it takes as they come:
 * admission fcfs. After the checks. */
void psd_config_clique_settle(struct psd_config *cfg);

/* The sentence when the moving rate is beyond the bound of stability; else nothing is written. */
void psd_config_method_warn(const struct psd_config *cfg, struct ps_error *warning);

#endif
