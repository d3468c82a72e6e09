#include "server/cluster/outbox.h"

#include <errno.h>
#include <stdlib.h>

static ProtobufCMessage *copy(const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(len + 1);
    ProtobufCMessage *made = NULL;
    if (bytes != NULL) {
        protobuf_c_message_pack(m, bytes);
        made = protobuf_c_message_unpack(m->descriptor, NULL, len, bytes);
    }
    free(bytes);
    return made;
}

int psd_outbox_put(struct psd_outbox *o, const ProtobufCMessage *m, uint64_t now_ms)
{
    if (o->sent - o->taken >= PSD_OUTBOX_MOST)
        return -ENOBUFS;
    struct psd_outbox_item *item = calloc(1, sizeof *item);
    if (item == NULL || (item->message = copy(m)) == NULL) {
        free(item);
        return -ENOMEM;
    }
    item->number = ++o->sent;
    if (o->first == NULL)
        o->first = item;
    else
        o->last->next = item;
    if (o->first == item)
        o->moved_ms = now_ms;
    o->last = item;
    return 0;
}

static void drop_first(struct psd_outbox *o)
{
    struct psd_outbox_item *item = o->first;
    o->first = item->next;
    protobuf_c_message_free_unpacked(item->message, NULL);
    free(item);
}

void psd_outbox_taken(struct psd_outbox *o, uint64_t number, uint64_t now_ms)
{
    if (number <= o->taken || number > o->sent)
        return;
    o->taken = number;
    o->moved_ms = now_ms;
    while (o->first != NULL && o->first->number <= number)
        drop_first(o);
}

bool psd_outbox_is_due(struct psd_outbox *o, uint64_t heard_ms, uint64_t now_ms)
{
    if (o->first == NULL || now_ms < o->moved_ms + PSD_OUTBOX_RESEND_MS || heard_ms <= o->moved_ms)
        return false;
    o->moved_ms = now_ms;
    return true;
}

void psd_outbox_empty(struct psd_outbox *o)
{
    while (o->first != NULL)
        drop_first(o);
    *o = (struct psd_outbox){.first = NULL};
}
