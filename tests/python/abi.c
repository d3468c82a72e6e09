/* Prints the layout of the public structures and the values of the public constants as one JSON object, for
 * test_abi.py: {"structs": {NAME: {"size": BYTES, "fields": [[NAME, OFFSET, BYTES], ...]}}, "constants": {NAME: VALUE}}. */
#include <stdio.h>

#include "client/psclient.h"
#include "client/psclique.h"

#define BEGIN(type)                                                                                          \
    {                                                                                                        \
        typedef struct type this;                                                                            \
        printf("%s\"%s\": {\"size\": %zu, \"fields\": [", comma, #type, sizeof(this));                       \
        comma = ",\n ";                                                                                      \
        const char *separator = "";
#define FIELD(name)                                                                                          \
    printf("%s[\"%s\", %zu, %zu]", separator, #name, offsetof(this, name), sizeof(((this *)NULL)->name));    \
    separator = ", "
#define END                                                                                                  \
    printf("]}");                                                                                            \
    }
#define CONSTANT(name)                                                                                       \
    printf("%s\"%s\": %d", comma, #name, (int)(name));                                                       \
    comma = ", "

static void print_structs(void)
{
    const char *comma = "";
    BEGIN(psc_tensor)
    FIELD(name), FIELD(offset), FIELD(shape), FIELD(n_dims), FIELD(role), FIELD(decay);
    END
    BEGIN(psc_local)
    FIELD(size), FIELD(method), FIELD(learning_rate), FIELD(momentum), FIELD(averaging_rate);
    FIELD(weight_decay), FIELD(schedule), FIELD(gamma), FIELD(step_steps), FIELD(warmup_steps);
    FIELD(pipeline_warmup), FIELD(codec);
    END
    BEGIN(psc_options)
    FIELD(size), FIELD(server), FIELD(kind), FIELD(rank), FIELD(name), FIELD(timeout_ms), FIELD(retry_ms);
    FIELD(heartbeat_ms), FIELD(log), FIELD(log_arg), FIELD(local), FIELD(clique), FIELD(key_file);
    FIELD(server_key), FIELD(transport), FIELD(tensor_size), FIELD(own_step), FIELD(own_step_arg);
    FIELD(go_on), FIELD(go_on_arg);
    END
    BEGIN(psc_metrics)
    FIELD(size), FIELD(loss), FIELD(accuracy), FIELD(samples_per_second), FIELD(test_loss);
    FIELD(test_accuracy), FIELD(center_version);
    END
    BEGIN(psc_info)
    FIELD(size), FIELD(n_floats), FIELD(center_version), FIELD(exchanges), FIELD(retries), FIELD(reconnects);
    FIELD(bytes_sent), FIELD(bytes_received), FIELD(exchange_seconds), FIELD(update_seconds);
    FIELD(learning_rate), FIELD(alpha), FIELD(period), FIELD(generation), FIELD(method), FIELD(optimizer);
    FIELD(transport), FIELD(save_version), FIELD(averaging);
    END
    BEGIN(psc_ring_options)
    FIELD(size), FIELD(members), FIELD(rank), FIELD(rendezvous), FIELD(name), FIELD(listen), FIELD(links);
    FIELD(segment_bytes), FIELD(timeout_ms), FIELD(key_file), FIELD(server_key);
    END
}

static void print_constants(void)
{
    const char *comma = "";
    CONSTANT(PSC_OK), CONSTANT(PSC_DRAINED), CONSTANT(PSC_EINVAL), CONSTANT(PSC_ENOMEM), CONSTANT(PSC_EGONE);
    CONSTANT(PSC_EEVICTED), CONSTANT(PSC_EVALUE), CONSTANT(PSC_EMANIFEST), CONSTANT(PSC_ERANK);
    CONSTANT(PSC_EREFUSED), CONSTANT(PSC_EUNSUPPORTED), CONSTANT(PSC_ESYSTEM), CONSTANT(PSC_EDAMAGED);
    CONSTANT(PSC_ECLIQUE), CONSTANT(PSC_EAUTH), CONSTANT(PSC_EINTERRUPTED), CONSTANT(PSC_PARAM);
    CONSTANT(PSC_BUFFER), CONSTANT(PSC_FROZEN), CONSTANT(PSC_DECAY), CONSTANT(PSC_NO_DECAY);
    CONSTANT(PSC_WORKER), CONSTANT(PSC_OBSERVER), CONSTANT(PSC_MAX_DIMS), CONSTANT(PSC_MAX_STARTED);
}

int main(void)
{
    printf("{\"structs\": {");
    print_structs();
    printf("},\n\"constants\": {");
    print_constants();
    printf("}}\n");
    return 0;
}
