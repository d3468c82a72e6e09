/* Prints the layout of the public structures and the values of the public constants, for test_abi.py, as one
 * JSON object: {"structs": {NAME: {"size": BYTES, "fields": [[NAME, OFFSET, BYTES], ...]}}, "constants":
 * {NAME: VALUE}}. */
#include <stdio.h>

#include "client/psclient.h"
#include "client/psclique.h"

struct field {
    const char *name;
    size_t offset, bytes;
};

#define FIELD(type, member)                                                                                  \
    {                                                                                                        \
#member, offsetof(struct type, member), sizeof(((struct type *)NULL)->member)                        \
    }

static const struct field psc_tensor_fields[] = {
    FIELD(psc_tensor, name), FIELD(psc_tensor, offset), FIELD(psc_tensor, shape), FIELD(psc_tensor, n_dims),
    FIELD(psc_tensor, role), FIELD(psc_tensor, decay),  FIELD(psc_tensor, rate)};
static const struct field psc_local_fields[] = {
    FIELD(psc_local, size),         FIELD(psc_local, method),          FIELD(psc_local, learning_rate),
    FIELD(psc_local, momentum),     FIELD(psc_local, averaging_rate),  FIELD(psc_local, weight_decay),
    FIELD(psc_local, schedule),     FIELD(psc_local, gamma),           FIELD(psc_local, step_steps),
    FIELD(psc_local, warmup_steps), FIELD(psc_local, pipeline_warmup), FIELD(psc_local, codec),
    FIELD(psc_local, total_steps),  FIELD(psc_local, floor),           FIELD(psc_local, milestones),
    FIELD(psc_local, n_milestones), FIELD(psc_local, bucket_floats),   FIELD(psc_local, pipeline)};
static const struct field psc_options_fields[] = {FIELD(psc_options, size),
                                                  FIELD(psc_options, server),
                                                  FIELD(psc_options, kind),
                                                  FIELD(psc_options, rank),
                                                  FIELD(psc_options, name),
                                                  FIELD(psc_options, timeout_ms),
                                                  FIELD(psc_options, retry_ms),
                                                  FIELD(psc_options, heartbeat_ms),
                                                  FIELD(psc_options, log),
                                                  FIELD(psc_options, log_arg),
                                                  FIELD(psc_options, local),
                                                  FIELD(psc_options, clique),
                                                  FIELD(psc_options, key_file),
                                                  FIELD(psc_options, server_key),
                                                  FIELD(psc_options, transport),
                                                  FIELD(psc_options, tensor_size),
                                                  FIELD(psc_options, threads),
                                                  FIELD(psc_options, own_step),
                                                  FIELD(psc_options, own_step_arg),
                                                  FIELD(psc_options, go_on),
                                                  FIELD(psc_options, go_on_arg),
                                                  FIELD(psc_options, net),
                                                  FIELD(psc_options, data),
                                                  FIELD(psc_options, steps),
                                                  FIELD(psc_options, samples_per_epoch),
                                                  FIELD(psc_options, memory),
                                                  FIELD(psc_options, stream)};
static const struct field psc_metrics_fields[] = {
    FIELD(psc_metrics, size),           FIELD(psc_metrics, loss),
    FIELD(psc_metrics, accuracy),       FIELD(psc_metrics, samples_per_second),
    FIELD(psc_metrics, test_loss),      FIELD(psc_metrics, test_accuracy),
    FIELD(psc_metrics, center_version), FIELD(psc_metrics, vector),
    FIELD(psc_metrics, steps)};
static const struct field psc_info_fields[] = {
    FIELD(psc_info, size),           FIELD(psc_info, n_floats),       FIELD(psc_info, center_version),
    FIELD(psc_info, exchanges),      FIELD(psc_info, retries),        FIELD(psc_info, reconnects),
    FIELD(psc_info, bytes_sent),     FIELD(psc_info, bytes_received), FIELD(psc_info, exchange_seconds),
    FIELD(psc_info, update_seconds), FIELD(psc_info, learning_rate),  FIELD(psc_info, alpha),
    FIELD(psc_info, period),         FIELD(psc_info, generation),     FIELD(psc_info, method),
    FIELD(psc_info, optimizer),      FIELD(psc_info, transport),      FIELD(psc_info, save_version),
    FIELD(psc_info, averaging),      FIELD(psc_info, workers),        FIELD(psc_info, early),
    FIELD(psc_info, bucket_floats)};
static const struct field psc_ring_options_fields[] = {
    FIELD(psc_ring_options, size),       FIELD(psc_ring_options, members),
    FIELD(psc_ring_options, rank),       FIELD(psc_ring_options, rendezvous),
    FIELD(psc_ring_options, name),       FIELD(psc_ring_options, listen),
    FIELD(psc_ring_options, links),      FIELD(psc_ring_options, segment_bytes),
    FIELD(psc_ring_options, timeout_ms), FIELD(psc_ring_options, key_file),
    FIELD(psc_ring_options, server_key), FIELD(psc_ring_options, step_ms),
    FIELD(psc_ring_options, algorithm),  FIELD(psc_ring_options, on_loss)};
static const struct field psc_shrunk_fields[] = {FIELD(psc_shrunk, step), FIELD(psc_shrunk, source),
                                                 FIELD(psc_shrunk, behind), FIELD(psc_shrunk, lost)};

#define STRUCT(type)                                                                                         \
    {                                                                                                        \
#type, sizeof(struct type), type##_fields, sizeof type##_fields / sizeof *type##_fields              \
    }

static const struct {
    const char *name;
    size_t size;
    const struct field *fields;
    size_t n;
} structs[] = {STRUCT(psc_tensor), STRUCT(psc_local),        STRUCT(psc_options), STRUCT(psc_metrics),
               STRUCT(psc_info),   STRUCT(psc_ring_options), STRUCT(psc_shrunk)};

#define CONSTANT(name)                                                                                       \
    {                                                                                                        \
#name, (int)(name)                                                                                   \
    }

static const struct {
    const char *name;
    int value;
} constants[] = {
    CONSTANT(PSC_OK),       CONSTANT(PSC_DRAINED),    CONSTANT(PSC_EINVAL),       CONSTANT(PSC_ENOMEM),
    CONSTANT(PSC_EGONE),    CONSTANT(PSC_EEVICTED),   CONSTANT(PSC_EVALUE),       CONSTANT(PSC_EMANIFEST),
    CONSTANT(PSC_ERANK),    CONSTANT(PSC_EREFUSED),   CONSTANT(PSC_EUNSUPPORTED), CONSTANT(PSC_ESYSTEM),
    CONSTANT(PSC_EDAMAGED), CONSTANT(PSC_ECLIQUE),    CONSTANT(PSC_EAUTH),        CONSTANT(PSC_EINTERRUPTED),
    CONSTANT(PSC_EDEVICE),  CONSTANT(PSC_PARAM),      CONSTANT(PSC_BUFFER),       CONSTANT(PSC_FROZEN),
    CONSTANT(PSC_DECAY),    CONSTANT(PSC_NO_DECAY),   CONSTANT(PSC_WORKER),       CONSTANT(PSC_OBSERVER),
    CONSTANT(PSC_MAX_DIMS), CONSTANT(PSC_MAX_STARTED)};

int main(void)
{
    printf("{\"structs\": {");
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++) {
        printf("%s\"%s\": {\"size\": %zu, \"fields\": [", i > 0 ? ",\n" : "", structs[i].name,
               structs[i].size);
        for (size_t k = 0; k < structs[i].n; k++)
            printf("%s[\"%s\", %zu, %zu]", k > 0 ? ", " : "", structs[i].fields[k].name,
                   structs[i].fields[k].offset, structs[i].fields[k].bytes);
        printf("]}");
    }
    printf("},\n\"constants\": {");
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        printf("%s\"%s\": %d", i > 0 ? ", " : "", constants[i].name, constants[i].value);
    printf("}}\n");
    return 0;
}
