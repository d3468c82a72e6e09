/* The explicit calls of a list of keys: one call of each, in the manifest's order. Everything that the caller
 * can do wrong is checked before the first of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "client/internal.h"
#include "client/worker/worker.h"

struct key {
    uint32_t tensor;
    size_t at; /* in the caller's list */
};

/* A call of a list: of each key, what `call` says, with its own arrays. */
struct list {
    struct psc_call call;
    const char *const *names;
    size_t n;
    const float *const *send; /* NULL: nothing is sent */
    float *const *answer;     /* NULL: nothing is received */
    struct key *keys;         /* [n], in the manifest's order */
};

static int by_tensor(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static int find_keys(struct psc *c, struct list *l)
{
    const char *call = l->call.call;
    for (size_t i = 0; i < l->n; i++) {
        int64_t index = l->names[i] != NULL ? ps_manifest_find(c->manifest, l->names[i]) : -1;
        if (index < 0)
            return ps_fail(&c->error, PSC_EINVAL,
                           "%s: keys[%zu]: no tensor of the manifest is named '%.127s'", call, i,
                           l->names[i] != NULL ? l->names[i] : "");
        if ((l->send != NULL && l->send[i] == NULL) || (l->answer != NULL && l->answer[i] == NULL))
            return ps_fail(&c->error, PSC_EINVAL, "%s: keys[%zu], '%s': its vector is missing", call, i,
                           l->names[i]);
        l->keys[i] = (struct key){(uint32_t)index, i};
    }
    qsort(l->keys, l->n, sizeof *l->keys, by_tensor);
    for (size_t i = 1; i < l->n; i++)
        if (l->keys[i].tensor == l->keys[i - 1].tensor)
            return ps_fail(&c->error, PSC_EINVAL, "%s: keys[%zu] and keys[%zu] are both '%s'", call,
                           l->keys[i - 1].at, l->keys[i].at, l->names[l->keys[i].at]);
    return PSC_OK;
}

/* In a round of keys the list is the next keys of it. */
static int check_round(struct psc *c, const struct list *l)
{
    uint32_t next = c->worker.next_key;
    int rc = PSC_OK;
    for (size_t i = 0; rc == PSC_OK && i < l->n; i++) {
        const struct ps_tensor *t = &c->manifest->tensors[l->keys[i].tensor];
        rc = psc_key_round_check(c, l->call.call, t, l->call.started);
        if (i == 0 && rc == PSC_OK)
            next = c->worker.next_key; /* it may have been set back */
        psc_key_round_sent(c, t);
    }
    c->worker.next_key = next;
    return rc;
}

static struct psc_call call_of(const struct list *l, size_t i)
{
    struct psc_call one = l->call;
    size_t at = l->keys[i].at;
    one.tensor = l->names[at];
    one.send = l->send != NULL ? l->send[at] : NULL;
    one.answer = l->answer != NULL ? l->answer[at] : NULL;
    one.behind = i > 0;
    one.more = i + 1 < l->n;
    return one;
}

/* What psc_call_make finds wrong with any key. */
static int check_each(struct psc *c, const struct list *l)
{
    uint32_t next = c->worker.next_key;
    struct psc_transfer t;
    int rc = PSC_OK;
    for (size_t i = 0; rc == PSC_OK && i < l->n; i++) {
        struct psc_call one = call_of(l, i);
        if (c->local && one.sums) {
            rc = psc_local_check(c, &one);
            continue;
        }
        rc = psc_call_make(c, &one, &t);
        if (rc == PSC_OK && one.send != NULL && !psc_call_is_led(c))
            rc = psc_transfer_check(c, &t, &c->error);
        if (psc_call_is_message(&l->call))
            psc_key_round_sent(c, &c->manifest->tensors[l->keys[i].tensor]);
    }
    c->worker.next_key = next;
    return rc;
}

/* What one key's array takes of memory. */
struct place {
    uintptr_t begin, end;
    bool is_answer;
    size_t at; /* in the caller's list */
};

static int by_begin(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Of places in order: whether an answer's and a message's overlap. */
static int check_places(struct psc *c, const struct list *l, const struct place *places, size_t n)
{
    const struct place *last[2] = {NULL, NULL}; /* the message and the answer that end last */
    for (size_t i = 0; i < n; i++) {
        const struct place *p = &places[i], *other = last[!p->is_answer], **same = &last[p->is_answer];
        if (other != NULL && other->end > p->begin)
            return ps_fail(&c->error, PSC_EINVAL,
                           "%s: message and answer overlap, of keys '%.100s' and '%.100s'", l->call.call,
                           l->names[other->at], l->names[p->at]);
        *same = *same == NULL || p->end > (*same)->end ? p : *same;
    }
    return PSC_OK;
}

/* An answer that is written into a later key's message would be sent as that. */
static int check_overlaps(struct psc *c, const struct list *l)
{
    size_t n = 0;
    if (l->answer == NULL || l->send == NULL)
        return PSC_OK;
    struct place *places = calloc(2 * l->n, sizeof *places);
    if (places == NULL)
        return ps_fail(&c->error, PSC_ENOMEM, "%s: no memory for %zu keys", l->call.call, l->n);
    for (size_t i = 0; i < l->n; i++) {
        size_t at = l->keys[i].at;
        size_t bytes = psc_tensor_scope(c, &c->manifest->tensors[l->keys[i].tensor]).count * sizeof(float);
        uintptr_t answer = (uintptr_t)l->answer[at];
        places[n++] = (struct place){answer, answer + bytes, true, at};
        places[n++] = (struct place){(uintptr_t)l->send[at], (uintptr_t)l->send[at] + bytes, false, at};
    }
    qsort(places, n, sizeof *places, by_begin);
    int rc = check_places(c, l, places, n);
    free(places);
    return rc;
}

/* Members make the same list: its digest names it. */
static int agree(struct psc *c, const struct list *l, int rc)
{
    char what[200];
    uint64_t hash = 0;
    if (!c->begun || c->group.size == 1 || (!psc_call_is_led(c) && !c->local))
        return rc;
    for (size_t i = 0; rc == PSC_OK && i < l->n; i++)
        hash = XXH3_64bits_withSeed(&l->keys[i].tensor, sizeof l->keys[i].tensor, hash);
    snprintf(what, sizeof what, "%s of %zu keys, digest %016" PRIx64, l->call.call, l->n, hash);
    return psc_group_agree_on_call(c, what, rc, NULL);
}

static int prepare(struct psc *c, struct list *l)
{
    int rc = psc_check_use(&c->session, l->call.call, &c->error);
    if (rc != PSC_OK || (rc = psc_check_no_open_step(c, l->call.call)) != PSC_OK)
        return rc;
    if (!c->begun)
        return ps_fail(&c->error, PSC_EINVAL, "%s: call psc_begin first", l->call.call);
    if (l->n == 0 || l->names == NULL || (l->send == NULL && l->answer == NULL) ||
        l->n > c->manifest->n_tensors)
        rc = ps_fail(&c->error, PSC_EINVAL,
                     "%s: %zu keys; allowed are 1 to %zu, each once, with a vector for each", l->call.call,
                     l->n, c->manifest->n_tensors);
    if (rc == PSC_OK && (l->keys = calloc(l->n, sizeof *l->keys)) == NULL)
        rc = ps_fail(&c->error, PSC_ENOMEM, "%s: no memory for %zu keys", l->call.call, l->n);
    if (rc == PSC_OK)
        rc = find_keys(c, l);
    if (rc == PSC_OK && psc_call_is_message(&l->call))
        rc = check_round(c, l);
    if (rc == PSC_OK)
        rc = check_each(c, l);
    if (rc == PSC_OK)
        rc = check_overlaps(c, l);
    return agree(c, l, rc);
}

static int now(struct psc *c, struct list *l)
{
    int rc = prepare(c, l), drained = PSC_OK;
    for (size_t i = 0; rc == PSC_OK && i < l->n; i++) {
        struct psc_call one = call_of(l, i);
        rc = psc_call_now(c, &one);
        if (rc == PSC_DRAINED && c->error.text[0] == 0) { /* others of a round wait for the rest */
            drained = rc;
            rc = PSC_OK;
        }
    }
    free(l->keys);
    return rc == PSC_OK ? drained : rc;
}

/* The ticket of the last key is the list's. */
static int start(struct psc *c, struct list *l, uint64_t *ticket)
{
    uint64_t last = 0;
    l->call.started = true;
    int rc = prepare(c, l);
    for (size_t i = 0; rc == PSC_OK && i < l->n; i++) {
        struct psc_call one = call_of(l, i);
        rc = psc_call_start(c, &one, &last);
    }
    free(l->keys);
    if (rc == PSC_OK && ticket != NULL)
        *ticket = last;
    return rc;
}

#define LIST(name, frame, given, received, samples)                                                          \
    {                                                                                                        \
        .call = {.call = (name),                                                                             \
                 .kind = (frame),                                                                            \
                 .n_samples = (samples),                                                                     \
                 .sums = (frame) == PS_FRAME_EXCHANGE},                                                      \
        .names = keys, .n = n_keys, .send = (given), .answer = (received)                                    \
    }

int psc_init_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *x)
{
    struct list l = LIST("psc_init_keys", PS_FRAME_SET, x, NULL, 0);
    return now(c, &l);
}

int psc_pull_keys(struct psc *c, const char *const *keys, size_t n_keys, float *const *x)
{
    struct list l = LIST("psc_pull_keys", PS_FRAME_PULL, NULL, x, 0);
    return now(c, &l);
}

int psc_push_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                  size_t n_samples)
{
    struct list l = LIST("psc_push_keys", PS_FRAME_PUSH, messages, NULL, n_samples);
    return now(c, &l);
}

/* Both lists are needed. */
static int check_both(struct psc *c, const char *call, const void *a, const void *b)
{
    return a != NULL && b != NULL ? PSC_OK
                                  : ps_fail(&c->error, PSC_EINVAL, "%s: a list of vectors is missing", call);
}

int psc_pushpull_keys(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                      float *const *answers, size_t n_samples)
{
    struct list l = LIST("psc_pushpull_keys", PS_FRAME_EXCHANGE, messages, answers, n_samples);
    int rc = check_both(c, l.call.call, messages, answers);
    return rc == PSC_OK ? now(c, &l) : rc;
}

int psc_init_keys_start(struct psc *c, const char *const *keys, size_t n_keys, const float *const *x,
                        uint64_t *ticket)
{
    struct list l = LIST("psc_init_keys_start", PS_FRAME_SET, x, NULL, 0);
    return start(c, &l, ticket);
}

int psc_pull_keys_start(struct psc *c, const char *const *keys, size_t n_keys, float *const *x,
                        uint64_t *ticket)
{
    struct list l = LIST("psc_pull_keys_start", PS_FRAME_PULL, NULL, x, 0);
    return start(c, &l, ticket);
}

int psc_push_keys_start(struct psc *c, const char *const *keys, size_t n_keys, const float *const *messages,
                        size_t n_samples, uint64_t *ticket)
{
    struct list l = LIST("psc_push_keys_start", PS_FRAME_PUSH, messages, NULL, n_samples);
    return start(c, &l, ticket);
}

int psc_pushpull_keys_start(struct psc *c, const char *const *keys, size_t n_keys,
                            const float *const *messages, float *const *answers, size_t n_samples,
                            uint64_t *ticket)
{
    struct list l = LIST("psc_pushpull_keys_start", PS_FRAME_EXCHANGE, messages, answers, n_samples);
    int rc = check_both(c, l.call.call, messages, answers);
    return rc == PSC_OK ? start(c, &l, ticket) : rc;
}
