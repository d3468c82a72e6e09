/* GET /metrics: Prometheus' text format and naming rules. */
#include "server/status/status.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A counter stays where it is when the method changes: each rule has its own. */
static void applied(FILE *f, const struct psd_status *status)
{
    head(f, "psd_updates_applied_total", "counter",
         "Exchanges applied by every lane, by the rule that was in force.");
    for (size_t k = 0; k < PS_N_RULES; k++) {
        uint64_t n = psd_stats_applied(status->job, k);
        if (n > 0 || strcmp(ps_rules[k].name, status->cfg->rule) == 0)
            fprintf(f, "psd_updates_applied_total{rule=\"%s\"} %" PRIu64 "\n", ps_rules[k].name, n);
    }
}

static void rejected(FILE *f, const struct psd_totals *t)
{
    head(f, "psd_updates_rejected_total", "counter", "Data frames and control messages refused, by reason.");
    for (unsigned i = 1; i < ps__code__descriptor.n_values; i++) {
        const ProtobufCEnumValue *v = &ps__code__descriptor.values[i];
        fprintf(f, "psd_updates_rejected_total{reason=\"%s\"} %" PRIu64 "\n", v->name, t->rejected[v->value]);
    }
}

static void staleness(FILE *f, const struct psd_totals *t)
{
    uint64_t sum = 0;
    head(f, "psd_update_staleness", "histogram",
         "Others' updates since the client last saw the center, per lane.");
    for (int k = 0; k < PSD_STALENESS_BUCKETS; k++) {
        sum += t->staleness[k];
        if (k + 1 < PSD_STALENESS_BUCKETS)
            fprintf(f, "psd_update_staleness_bucket{le=\"%" PRIu64 "\"} %" PRIu64 "\n",
                    (UINT64_C(1) << k) - 1, sum);
        else
            fprintf(f, "psd_update_staleness_bucket{le=\"+Inf\"} %" PRIu64 "\n", sum);
    }
    fprintf(f, "psd_update_staleness_sum %" PRIu64 "\npsd_update_staleness_count %" PRIu64 "\n",
            t->staleness_sum, sum);
}

enum { N_STATES = PSD_SESSION_ACTIVE + 1 };

static void workers(FILE *f, const struct psd_status *status)
{
    static const struct {
        const char *name;
        enum psd_session_state state;
    } states[] = {{"joining", PSD_SESSION_JOINING},
                  {"parked", PSD_SESSION_PARKED},
                  {"offering", PSD_SESSION_OFFERING},
                  {"active", PSD_SESSION_ACTIVE}};
    static const struct {
        const char *name, *help;
    } kinds[] = {{"psd_workers", "Workers' sessions by state."},
                 {"psd_observers", "Observers' sessions, such as an evaluator's, by state."}};
    for (int kind = 0; kind < 2; kind++) {
        uint32_t n[N_STATES] = {0}, silent = 0;
        for (uint32_t i = 0; i < status->sessions->n_slots; i++) {
            const struct psd_session *s = &status->sessions->slots[i];
            if (s->observer != (kind == 1) || s->state == PSD_SESSION_VACANT)
                continue;
            if (psd_job_is_silent(status->job, s))
                silent++;
            else
                n[s->state]++;
        }
        head(f, kinds[kind].name, "gauge", kinds[kind].help);
        for (size_t i = 0; i < sizeof states / sizeof *states; i++)
            fprintf(f, "%s{state=\"%s\"} %u\n", kinds[kind].name, states[i].name, n[states[i].state]);
        fprintf(f, "%s{state=\"silent\"} %u\n", kinds[kind].name, silent);
    }
}

static void gauge(FILE *f, const char *name, const char *help, double value)
{
    if (!isfinite(value))
        return;
    head(f, name, "gauge", help);
    fprintf(f, "%s %.9g\n", name, value);
}

/* One gauge for each live worker; no sample if it is unknown. */
static void norms(FILE *f, const struct psd_status *status)
{
    static const char *const names[] = {"psd_worker_distance", "psd_worker_update_norm"};
    static const char *const helps[] = {"Distance of a worker's vector from the center at its last exchange.",
                                        "Norm of the update of a worker's last exchange."};
    double norm[2];
    for (int k = 0; k < 2; k++) {
        head(f, names[k], "gauge", helps[k]);
        for (uint32_t i = 0; i < status->sessions->n_workers_max; i++) {
            if (status->sessions->slots[i].state != PSD_SESSION_ACTIVE)
                continue;
            psd_stats_norms(status->job, i, &norm[0], &norm[1]);
            if (isfinite(norm[k]))
                fprintf(f, "%s{rank=\"%u\"} %.9g\n", names[k], i, norm[k]);
        }
    }
}

static void one(FILE *f, const char *name, const char *type, const char *help, uint64_t value)
{
    head(f, name, type, help);
    fprintf(f, "%s %" PRIu64 "\n", name, value);
}

static void by_transport(FILE *f, const struct psd_status *status, const char *name, const char *help,
                         const uint64_t *bytes)
{
    head(f, name, "counter", help);
    for (uint32_t k = 0; k < status->lanes->transports.n; k++)
        fprintf(f, "%s{transport=\"%s\"} %" PRIu64 "\n", name,
                status->lanes->transports.row[k].transport->name, bytes[k]);
}

static void swaps(FILE *f, const struct psd_status *status)
{
    const struct psd_reloader *r = &status->job->reload;
    one(f, "psd_generation", "gauge", "Number of changes of the method.",
        atomic_load_explicit(&status->lanes->shared.generation, memory_order_relaxed));
    one(f, "psd_swaps_total", "counter", "Changes of the method in this run of psd.",
        status->job->method_change.n_changes);
    head(f, "psd_reloads_total", "counter", "Reloads of the configuration, by result.");
    fprintf(f,
            "psd_reloads_total{result=\"applied\"} %" PRIu64
            "\npsd_reloads_total{result=\"unchanged\"} %" PRIu64
            "\npsd_reloads_total{result=\"refused\"} %" PRIu64 "\n",
            r->n_applied, r->n_unchanged, r->n_refused);
}

static void stops(FILE *f, const struct psd_status *status)
{
    head(
        f, "psd_lane_longest_stop_seconds", "gauge",
        "Longest time between two looks of a lane at its messages, due to checkpoint copies, touching memory "
        "or creating tables: since the last checkpoint began, or since psd started before the first one.");
    for (uint32_t i = 0; i < status->lanes->n_own; i++) {
        const struct psd_lane_stats *s = &status->lanes->list[i]->stats;
        fprintf(f, "psd_lane_longest_stop_seconds{lane=\"%u\"} %.9g\n", status->lanes->list[i]->index,
                1e-9 * (double)atomic_load_explicit(&s->longest_stop_ns, memory_order_relaxed));
    }
}

char *psd_metrics_text(struct psd_status *status)
{
    char *text = NULL;
    size_t size;
    struct psd_totals t;
    FILE *f = open_memstream(&text, &size);
    if (f == NULL)
        return NULL;
    psd_stats_totals(status->job, &t);
    head(f, "psd_build_info", "gauge", "Version and vector kernels of this psd.");
    fprintf(f, "psd_build_info{version=\"%s\",kernels=\"%s\"} 1\n", PSD_VERSION, ps_vec_best()->name);
    applied(f, status);
    one(f, "psd_center_version", "gauge", "Exchanges applied to the center.", psd_stats_version(status->job));
    struct psd_lost lost = psd_loss_told(status->job);
    gauge(f, "psd_lost_updates",
          "Updates lost when this psd was resumed from a checkpoint, upper bound; absent: unknown.",
          lost.kind != PSD_LOSS_UNKNOWN ? (double)lost.most : NAN);
    one(f, "psd_lost_updates_least", "gauge",
        "Updates lost when this psd was resumed from a checkpoint, lower bound.", lost.least);
    psd_cluster_metrics(f, status->cluster);
    swaps(f, status);
    rejected(f, &t);
    one(f, "psd_updates_dropped_total", "counter",
        "Exchanges that were too late for their round (admissions backup and quorum).",
        status->job->partial_rounds.dropped);
    one(f, "psd_chunks_applied_total", "counter", "Chunks applied.", t.chunks);
    one(f, "psd_replays_total", "counter", "Retried chunks that had landed before.", t.replays);
    staleness(f, &t);
    by_transport(f, status, "psd_received_bytes_total", "Payload received.", t.bytes_in);
    by_transport(f, status, "psd_sent_bytes_total", "Payload sent.", t.bytes_out);
    workers(f, status);
    one(f, "psd_checkpoint_failures_total", "counter", "Checkpoints that could not be written.",
        status->job->checkpointer.failures);
    one(f, "psd_last_checkpoint_timestamp_seconds", "gauge",
        "When the last checkpoint was taken; 0: none yet.", status->job->checkpointer.last_unix_s);
    stops(f, status);
    one(f, "psd_log_lines_dropped_total", "counter",
        "Log lines that were not read in time, or could not be written.", ps_log_count().dropped);
    gauge(f, "psd_test_accuracy", "Accuracy of the center in the last report of an observer.",
          status->job->evaluation.accuracy);
    gauge(f, "psd_test_loss", "Loss of the center in the last report of an observer.",
          status->job->evaluation.loss);
    gauge(f, "psd_best_test_accuracy", "Accuracy of the best center, which is saved.",
          status->job->checkpointer.best.accuracy);
    gauge(f, "psd_center_norm", "Euclidean norm of the center.", psd_stats_center_norm(status->job));
    norms(f, status);
    one(f, "psd_nonfinite_seen", "gauge", "1: a worker had a value that is not finite; /status names it.",
        status->job->nonfinite.seen);
    fclose(f);
    return text;
}
