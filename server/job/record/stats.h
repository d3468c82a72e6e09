/* stats.h: sums over lanes, and over rules. Loop's thread. */
#ifndef PSD_JOB_RECORD_STATS_H
#define PSD_JOB_RECORD_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/lane/lane.h"

struct psd_job;

struct psd_totals {
    uint64_t chunks, replays, pulled, set;
    uint64_t bytes_in[PSD_MAX_TRANSPORTS], bytes_out[PSD_MAX_TRANSPORTS];
    uint64_t rejected[PSD_N_CODES], rejected_sum;
    uint64_t staleness[PSD_STALENESS_BUCKETS], staleness_sum;
    uint64_t center_bytes, snapshot_bytes, state_bytes, average_bytes, window_bytes, replay_bytes;
    uint64_t registered_bytes; /* clients' own memory that lanes access in place */
};
void psd_stats_totals(const struct psd_job *job, struct psd_totals *t);
/* The center's version: with several servers the newest of their parts'. An exchange of a fragment or of some
 * tensors counts only at the servers that have them, and a part that was lost went back to its checkpoint. */
uint64_t psd_stats_version(const struct psd_job *job);
/* Exchanges applied in this run of psd: in all; while the rule of this row of ps_rules was in force. */
uint64_t psd_stats_applied_sum(const struct psd_job *job);
uint64_t psd_stats_applied(const struct psd_job *job, size_t rule);
/* Call right before another method is in force, when the lanes have released the center. */
void psd_stats_rule_ends(struct psd_job *job);
/* The total that counts against limits.memory_gib. */
uint64_t psd_stats_memory_bytes(const struct psd_totals *t);
/* Tells the lanes how much of limits.memory_gib clients may register. */
void psd_stats_limit_registered(struct psd_job *job);
/* Bytes of a client's window in psd: received and not yet answered. */
uint64_t psd_stats_window_bytes(const struct psd_job *job);
/* For a client's last exchange: *distance is ‖x − x̃‖, *update is ‖update‖; NaN if the rule's message does
 * not determine it or there was no exchange. Returns whether either is known. Loop's thread. */
bool psd_stats_norms(const struct psd_job *job, uint32_t client, double *distance, double *update);
/* Chunks of the client's exchange *seq that lanes hold until other members' chunks arrive. */
uint32_t psd_stats_waiting(const struct psd_job *job, uint32_t client, uint64_t *seq);
double psd_stats_center_norm(const struct psd_job *job); /* ‖x̃‖; NaN: unknown */

#endif
