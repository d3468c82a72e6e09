/* The first value of the job that was not finite: a diverging run is recognised by who had it, when and
 * where. None is ever stored; this only remembers. */
#include "proto/clock.h"
#include "server/psd.h"

#include <inttypes.h>
#include <stdio.h>

#include "proto/log.h"

/* The tensor that the value lies in; "" when it is not known. */
static const char *tensor_of(const struct psd *d, uint64_t index)
{
    const struct ps_manifest *m = d->center != NULL ? d->center->manifest : NULL;
    return m != NULL && index < m->n_floats ? ps_manifest_tensor(m, index)->name : "";
}

void psd_job_note_nonfinite(struct psd *d, const struct psd_session *s, uint64_t clock, uint64_t index,
                            bool sent)
{
    struct psd_nonfinite *f = &d->nonfinite;
    char place[64 + PS_MAX_NAME_BYTES] = "";

    if (f->seen)
        return;
    *f = (struct psd_nonfinite){.seen = true,
                                .rank = s->client,
                                .incarnation = s->incarnation,
                                .clock = clock,
                                .version = psd_version(d),
                                .index = index,
                                .t_s = 1e-6 * (double)ps_wall_us(),
                                .sent = sent};
    snprintf(f->name, sizeof f->name, "%s", s->name);
    snprintf(f->tensor, sizeof f->tensor, "%s", tensor_of(d, index));
    if (f->tensor[0] != 0)
        snprintf(place, sizeof place, ", value %" PRIu64 " (tensor '%s')", index, f->tensor);
    ps_log(PS_LOG_WARN, "job.nonfinite",
           "the first value that is not finite: rank %u (%s, incarnation %u) at its t = %" PRIu64
           ", version %" PRIu64 "%s; %s",
           f->rank, f->name, f->incarnation, f->clock, f->version, place,
           sent ? "it was sent, and refused" : "its library did not send it");
}
