/* Control messages of both directions: the first byte chooses. What unpacks packs into bytes that unpack into
 * the same bytes again; a Begin's tensors make a manifest or a sentence, as control.c makes them; a Meet is
 * answered or waits within its bounds; a Welcome is judged by the client. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client/session/welcome.h"
#include "proto/model/manifest.h"
#include "proto/wire/control.h"
#include "server/control/rendezvous.h"
#include "tests/fuzz/fuzz.h"

static void check_manifest(const Ps__Begin *b)
{
    struct ps_tensor *tensors = calloc(b->n_tensors + 1, sizeof *tensors);
    struct ps_manifest *m, *again;
    struct ps_error err = {""};
    size_t n = 0;

    for (; n < b->n_tensors && b->tensors[n]->n_shape <= PS_MAX_DIMS; n++) {
        const Ps__Tensor *t = b->tensors[n];
        tensors[n] = (struct ps_tensor){t->name, t->offset, {0}, (uint32_t)t->n_shape, t->role};
        for (size_t k = 0; k < t->n_shape; k++)
            tensors[n].shape[k] = t->shape[k];
    }
    if (ps_manifest_create(tensors, n, UINT64_C(1) << 32, &m, &err) < 0) {
        promise(err.text[0] != 0);
    } else {
        promise(m->n_floats <= UINT64_C(1) << 32 && m->n_tensors == n);
        promise(ps_manifest_create(m->tensors, n, m->n_floats, &again, &err) == 0);
        promise(again->hash == m->hash && ps_manifest_compare(m, again, &err) == 0);
        ps_manifest_destroy(again);
        ps_manifest_destroy(m);
    }
    free(tensors);
}

static bool has_unknown(const ProtobufCMessage *m);

/* m's field, a message or several; of a oneof, the case that is there. */
static bool field_has_unknown(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const char *base = (const char *)m;
    const ProtobufCMessage *one, *const *list;
    uint32_t which;
    size_t n;

    if (f->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        memcpy(&one, base + f->offset, sizeof one);
        memcpy(&which, base + f->quantifier_offset, sizeof which);
        return ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) == 0 || which == f->id) && one != NULL &&
               has_unknown(one);
    }
    memcpy(&list, base + f->offset, sizeof list);
    memcpy(&n, base + f->quantifier_offset, sizeof n);
    for (size_t i = 0; i < n; i++)
        if (has_unknown(list[i]))
            return true;
    return false;
}

/* Fields of a later version. protobuf-c takes even those of number 0 (in an overlong tag), which cannot be
 * packed so that it takes them again; nothing of ours looks at them. */
static bool has_unknown(const ProtobufCMessage *m)
{
    bool found = m->n_unknown_fields > 0;
    for (unsigned i = 0; i < m->descriptor->n_fields && !found; i++)
        found = field_has_unknown(m, &m->descriptor->fields[i]);
    return found;
}

static uint8_t *pack(const ProtobufCMessage *m, size_t *len)
{
    uint8_t *bytes;
    *len = protobuf_c_message_get_packed_size(m);
    bytes = malloc(*len + 1);
    promise(protobuf_c_message_pack(m, bytes) == *len);
    return bytes;
}

/* Packed, unpacked and packed again: the same bytes. */
static void check_packing(const ProtobufCMessage *m)
{
    ProtobufCMessage *back;
    uint8_t *once, *twice;
    size_t n, n2;
    if (has_unknown(m))
        return;
    once = pack(m, &n);
    promise((back = protobuf_c_message_unpack(m->descriptor, NULL, n, once)) != NULL);
    twice = pack(back, &n2);
    promise(n == n2 && memcmp(once, twice, n) == 0);
    protobuf_c_message_free_unpacked(back, NULL);
    free(once);
    free(twice);
}

static void count_met(void *arg, const struct psd_peer *peer, const Ps__Met *met)
{
    (void)peer;
    promise(met->n_members >= 1 && met->n_members <= PSD_MEETING_MEMBERS_MAX && met->rank < met->n_members);
    for (size_t i = 0; i < met->n_members; i++)
        promise(met->members[i]->address[0] != 0);
    ++*(unsigned *)arg;
}

static void count_refusal(void *arg, const struct psd_peer *peer, uint32_t code, const char *sentence)
{
    (void)peer;
    promise(code != PS__CODE__OK && sentence[0] != 0);
    ++*(unsigned *)arg;
}

/* Five members that say the same but for token and address: nobody is left over at the end. */
static void check_meeting(Ps__Meet *m)
{
    unsigned answers = 0;
    struct psd_rendezvous *t = calloc(1, sizeof *t);
    char address[32], *given = m->address;
    t->voice = (struct psd_rendezvous_hooks){count_met, count_refusal, &answers};
    for (uint32_t i = 0; i < 5; i++) {
        struct psd_peer peer = {.id = (const unsigned char *)&i, .id_bytes = sizeof i, .address = "fuzz"};
        psd_rendezvous_take(t, &peer, m, i);
        promise(t->n <= 1 && t->n_places <= i + 1);
        snprintf(address, sizeof address, "tcp://h:%u", i);
        m->address = address;
        m->token++;
        m->any_rank = true;
    }
    m->address = given;
    psd_rendezvous_tick(t, UINT64_C(1) << 40);
    promise(t->n == 0 && t->n_places == 0);
    psd_rendezvous_finish(t);
    free(t);
}

static void check_to_server(const uint8_t *bytes, size_t len)
{
    Ps__ToServer *m = ps_control_unpack_to_server(bytes, len);
    if (m == NULL)
        return;
    check_packing(&m->base);
    if (m->what_case == PS__TO_SERVER__WHAT_BEGIN)
        check_manifest(m->begin);
    if (m->what_case == PS__TO_SERVER__WHAT_MEET)
        check_meeting(m->meet);
    ps_control_free_to_server(m);
}

static void check_to_client(const uint8_t *bytes, size_t len)
{
    Ps__ToClient *m = ps_control_unpack_to_client(bytes, len);
    struct ps_error err = {""};
    struct psc_welcome welcome;
    if (m == NULL)
        return;
    check_packing(&m->base);
    if (m->what_case == PS__TO_CLIENT__WHAT_WELCOME && psc_welcome_take(&welcome, m->welcome, &err) == 0)
        promise(welcome.n_lanes >= 1 && welcome.n_lanes <= PS_MAX_LANES &&
                welcome.transport_offers[welcome.n_transport_offers - 1].window_chunks >= 1 &&
                welcome.hyper.period >= 1 && welcome.hyper.schedule.step_steps >= 1);
    ps_control_free_to_client(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len == 0)
        return 0;
    if (bytes[0] % 2 == 0)
        check_to_server(bytes + 1, len - 1);
    else
        check_to_client(bytes + 1, len - 1);
    return 0;
}
