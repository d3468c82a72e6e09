/* vectors_fixture.h: values for the vectors of members, and a thread for each device of a member. */
#ifndef TEST_CLIENT_CLIQUES_VECTORS_FIXTURE_H
#define TEST_CLIENT_CLIQUES_VECTORS_FIXTURE_H

#include "client/psclique_vectors.h"
#include "tests/client/cliques/clique_fixture.h"

/* Of vector `place`, counted over all members. The sum of several is rounded. */
static inline float *vector_make(int place, size_t n)
{
    struct dice dice = {(uint64_t)place + 1};
    float *x = malloc(n * sizeof *x + 4);
    for (size_t i = 0; i < n; i++)
        x[i] = dice_float(&dice);
    return x;
}

/* A thread for a device, which has q. */
struct device_thread {
    struct psc_clique *q;
    int index, rc;
    void *arg;
    void (*body)(struct device_thread *d);
    pthread_t thread;
    _Atomic bool ended;
};

static inline void *device_run(void *arg)
{
    struct device_thread *d = arg;
    d->body(d);
    d->ended = true;
    return NULL;
}

static inline void device_start(struct device_thread *d)
{
    d->ended = false;
    ck_assert_int_eq(pthread_create(&d->thread, NULL, device_run, d), 0);
}

static inline void devices_open(struct psc_clique *outer, int n, uint32_t step_ms,
                                struct device_thread *devices, void (*body)(struct device_thread *d),
                                void *arg)
{
    struct psc_clique *q[PSC_MAX_VECTORS];
    struct psc_devices_options opt;
    psc_devices_options_init(&opt, sizeof opt);
    opt.devices = (uint32_t)n;
    opt.step_ms = step_ms;
    ck_assert_int_eq(psc_devices_open(outer, &opt, q), PSC_OK);
    for (int i = 0; i < n; i++)
        devices[i] = (struct device_thread){.q = q[i], .index = i, .arg = arg, .body = body};
}

/* Opens n devices on `outer`, runs `body` for each in a thread of its own, and closes them. */
static inline void devices_run(struct psc_clique *outer, int n, void (*body)(struct device_thread *d),
                               void *arg)
{
    struct device_thread devices[PSC_MAX_VECTORS];
    devices_open(outer, n, 3600000, devices, body, arg);
    for (int i = 0; i < n; i++)
        device_start(&devices[i]);
    for (int i = 0; i < n; i++)
        pthread_join(devices[i].thread, NULL);
    for (int i = 0; i < n; i++)
        psc_clique_close(devices[i].q);
}

#define device_ok(d, call)                                                                                   \
    do {                                                                                                     \
        int device_rc = (call);                                                                              \
        if (device_rc != PSC_OK)                                                                             \
            ck_abort_msg("device %d: %s: %s: %s", (d)->index, #call, psc_result_name(device_rc),             \
                         psc_clique_error((d)->q));                                                          \
    } while (0)

#endif
