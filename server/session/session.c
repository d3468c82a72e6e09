#include "server/session/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "proto/log.h"
#include "server/lane/lane.h"

int psd_sessions_init(struct psd_sessions *s, uint32_t clients)
{
    s->n_workers_max = clients;
    s->n_slots = clients + PSD_OBSERVERS;
    s->barrier = PSD_NO_BARRIER;
    s->slots = calloc(s->n_slots, sizeof *s->slots);
    if (s->slots == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        s->slots[i].client = i;
        s->slots[i].observer = i >= clients;
    }
    return 0;
}

void psd_sessions_finish(struct psd_sessions *s)
{
    for (uint32_t i = 0; s->slots != NULL && i < s->n_slots; i++)
        ps_manifest_destroy(s->slots[i].parked);
    free(s->slots);
    s->slots = NULL;
}

bool psd_sessions_may_tell(struct psd_sessions *s, uint64_t now_ms)
{
    enum { A_SECOND = 2, EVERY_MS = 60000 };
    uint64_t less = (now_ms - s->told_ms) * A_SECOND / 1000;
    s->told_ms += less * 1000 / A_SECOND;
    s->n_told = s->n_told > less ? s->n_told - less : 0;
    if (s->n_untold > 0 && now_ms - s->untold_ms >= EVERY_MS) {
        ps_log(PS_LOG_WARN, "session.untold",
               "%" PRIu64 " more sessions have begun in the last %" PRIu64
               " s, and are not in the log and the history",
               s->n_untold, (now_ms - s->untold_ms) / 1000);
        s->n_untold = 0;
    }
    if (s->n_told < (uint64_t)2 * s->n_slots) {
        s->n_told++;
        return true;
    }
    if (s->n_untold++ == 0)
        s->untold_ms = now_ms;
    return false;
}

struct psd_session *psd_sessions_find(struct psd_sessions *s, uint32_t client, uint32_t incarnation)
{
    if (client >= s->n_slots)
        return NULL;
    struct psd_session *found = &s->slots[client];
    return found->state != PSD_SESSION_VACANT && found->incarnation == incarnation ? found : NULL;
}

struct psd_session *psd_sessions_find_token(struct psd_sessions *s, uint64_t token)
{
    for (uint32_t i = 0; token != 0 && i < s->n_slots; i++)
        if (s->slots[i].state != PSD_SESSION_VACANT && s->slots[i].token == token)
            return &s->slots[i];
    return NULL;
}

struct psd_session *psd_sessions_vacant(struct psd_sessions *s, bool observer, const uint64_t *ranks,
                                        uint64_t now_ms)
{
    for (uint32_t i = 0; i < s->n_slots; i++)
        if (s->slots[i].observer == observer && s->slots[i].state == PSD_SESSION_VACANT &&
            now_ms >= s->slots[i].reserved_until_ms &&
            (ranks == NULL || (ranks[i / 64] >> (i % 64) & 1) != 0))
            return &s->slots[i];
    return NULL;
}

bool psd_sessions_await_worker(const struct psd_sessions *s, uint64_t now_ms)
{
    for (uint32_t i = 0; i < s->n_workers_max; i++)
        if (s->slots[i].state == PSD_SESSION_VACANT && s->slots[i].awaited != 0 &&
            now_ms < s->slots[i].reserved_until_ms)
            return true;
    return false;
}

uint32_t psd_sessions_count(const struct psd_sessions *s, bool observer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_slots; i++)
        n += s->slots[i].observer == observer && s->slots[i].state != PSD_SESSION_VACANT;
    return n;
}

uint32_t psd_sessions_count_in(const struct psd_sessions *s, bool observer, enum psd_session_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_slots; i++)
        n += s->slots[i].observer == observer && s->slots[i].state == state;
    return n;
}

uint32_t psd_sessions_members(const struct psd_sessions *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_workers_max; i++)
        if (s->slots[i].state != PSD_SESSION_VACANT)
            n += s->slots[i].members;
    return n;
}

enum { SILENT_BEATS = 5, SILENT_MS = 5000 };

bool psd_session_is_silent(const struct psd_session *s, uint64_t now_ms, uint32_t silence_s)
{
    uint64_t beats_ms = (uint64_t)SILENT_BEATS * s->heartbeat_ms, half_ms = 500ull * silence_s;
    uint64_t after_ms = beats_ms > SILENT_MS ? beats_ms : SILENT_MS;
    return now_ms > s->last_heard_ms + (half_ms < after_ms ? half_ms : after_ms);
}

uint32_t psd_sessions_count_silent(const struct psd_sessions *s, bool observer, uint64_t now_ms,
                                   uint32_t silence_s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_slots; i++)
        n += s->slots[i].observer == observer && s->slots[i].state != PSD_SESSION_VACANT &&
             psd_session_is_silent(&s->slots[i], now_ms, silence_s);
    return n;
}
