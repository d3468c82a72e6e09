/* GET /metrics: Prometheus' text format, its naming rules. */
#include "server/psd.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
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
         "Versions passed since the client last saw the center, per lane.");
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

static void workers(FILE *f, const struct psd *d)
{
    static const struct {
        const char *name;
        enum psd_session_state state;
    } states[] = {{"joining", PSD_SESSION_JOINING},
                  {"parked", PSD_SESSION_PARKED},
                  {"offering", PSD_SESSION_OFFERING},
                  {"active", PSD_SESSION_ACTIVE}};
    head(f, "psd_workers", "gauge", "Sessions, observers included, by state.");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        fprintf(f, "psd_workers{state=\"%s\"} %u\n", states[i].name,
                psd_sessions_count_in(&d->sessions, states[i].state));
}

static void one(FILE *f, const char *name, const char *type, const char *help, const char *labels,
                uint64_t value)
{
    head(f, name, type, help);
    fprintf(f, "%s%s %" PRIu64 "\n", name, labels, value);
}

char *psd_metrics_text(struct psd *d)
{
    char *text = NULL, labels[96];
    size_t size;
    struct psd_totals t;
    FILE *f = open_memstream(&text, &size);
    if (f == NULL)
        return NULL;
    psd_stats_totals(d, &t);
    head(f, "psd_build_info", "gauge", "Version and vector kernels of this psd.");
    fprintf(f, "psd_build_info{version=\"%s\",kernels=\"%s\"} 1\n", PSD_VERSION, ps_vec_best()->name);
    snprintf(labels, sizeof labels, "{rule=\"%s\"}", d->cfg.rule);
    one(f, "psd_updates_applied_total", "counter", "Exchanges applied by every lane.", labels,
        psd_version(d) - d->resumed_version);
    one(f, "psd_center_version", "gauge", "Exchanges the center has taken in.", "", psd_version(d));
    one(f, "psd_lost_updates", "gauge", "Updates after the checkpoint that this psd was resumed from.", "",
        d->lost_updates);
    rejected(f, &t);
    one(f, "psd_chunks_applied_total", "counter", "Chunks applied.", "", t.chunks);
    one(f, "psd_replays_total", "counter", "Retried chunks that had landed before.", "", t.replays);
    staleness(f, &t);
    snprintf(labels, sizeof labels, "{transport=\"%s\"}", d->transport->name);
    one(f, "psd_received_bytes_total", "counter", "Payload received.", labels, t.bytes_in);
    one(f, "psd_sent_bytes_total", "counter", "Payload sent.", labels, t.bytes_out);
    workers(f, d);
    one(f, "psd_checkpoint_failures_total", "counter", "Checkpoints that could not be written.", "",
        d->saver.failures);
    one(f, "psd_last_checkpoint_timestamp_seconds", "gauge",
        "When the last checkpoint was taken; 0: none yet.", "", d->saver.last_unix_s);
    if (d->evaluation.loss == d->evaluation.loss) {
        head(f, "psd_test_accuracy", "gauge", "Accuracy of the center an observer reported last.");
        fprintf(f, "psd_test_accuracy %.6f\n", d->evaluation.accuracy);
        head(f, "psd_test_loss", "gauge", "Loss of the center an observer reported last.");
        fprintf(f, "psd_test_loss %.6f\n", d->evaluation.loss);
    }
    fclose(f);
    return text;
}
