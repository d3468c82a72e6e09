/* One member of those that test_shrink starts and kills: `shrink_member RENDEZVOUS MEMBERS RANK ALGORITHM`.
 * Makes steps of two sums each until its stdin ends, and goes on without members that are lost. Says on
 * stdout "open", after each loss "left MEMBERS STEP HASH", and "ended MEMBERS STEP HASH"; HASH is of its
 * vector. */
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/psclique.h"

enum { N = 20000, PATIENCE_MS = 60000 };

struct state {
    uint64_t step;
    double x[N];
};

static struct state state, received;
static double g[N + 1], sum[N + 1]; /* the last one: how many want to stop */
static float h[N];

static void say(const char *what, int members)
{
    const unsigned char *bytes = (const unsigned char *)state.x;
    uint64_t hash = 1469598103934665603u;
    char line[120];
    for (size_t i = 0; i < sizeof state.x; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    int n = snprintf(line, sizeof line, "%s %d %llu %016llx\n", what, members, (unsigned long long)state.step,
                     (unsigned long long)hash);
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(3);
}

static void fail(struct psc_clique *q, const char *call, int rc)
{
    fprintf(stderr, "%s: %s: %s\n", call, psc_result_name(rc), psc_clique_error(q));
    exit(4);
}

static bool is_to_stop(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) > 0; /* nothing is ever written to it */
}

/* One step, of which nothing is applied unless both sums are complete. */
static int step(struct psc_clique *q, int id, bool *stops)
{
    struct psc_collective_options o;
    psc_collective_options_init(&o, sizeof o);
    o.type = PSC_FLOAT64;
    o.n = N + 1;
    o.in = g;
    o.out = sum;
    o.compare = state.step % 2 == 0;
    for (size_t i = 0; i < N; i++) {
        g[i] = 1.0 / (double)(1 + (i * 31 + state.step * 17 + (uint64_t)id * 101) % 1009);
        h[i] = (float)g[i];
    }
    g[N] = is_to_stop();
    int rc = psc_collective_run(q, &o);
    if (rc == PSC_OK)
        rc = psc_allreduce(q, h, N, NULL);
    if (rc != PSC_OK)
        return rc;
    for (size_t i = 0; i < N; i++)
        state.x[i] += sum[i] + (double)h[i] * 0.3;
    state.step++;
    *stops = sum[N] > 0;
    return PSC_OK;
}

/* Forms the clique anew, as often as it takes, and takes the state of a member that is ahead. */
static void go_on(struct psc_clique *q)
{
    struct psc_shrunk left;
    int rc;
    do {
        rc = psc_clique_shrink(q, state.step, PATIENCE_MS, &left);
        if (rc != PSC_OK)
            fail(q, "psc_clique_shrink", rc);
        if (left.behind == 0)
            continue;
        received = state;
        rc = psc_broadcast(q, &received, sizeof received, (int)left.source);
        if (rc == PSC_OK)
            state = received;
    } while (rc == PSC_ECLIQUE);
    if (rc != PSC_OK || state.step != left.step)
        fail(q, "psc_broadcast", rc);
    say("left", psc_clique_size(q));
}

int main(int argc, char **argv)
{
    struct psc_ring_options opt;
    struct psc_clique *q;
    bool stops = false;
    if (argc != 5)
        return 2;
    psc_ring_options_init(&opt, sizeof opt);
    opt.rendezvous = argv[1];
    opt.members = (uint32_t)strtoul(argv[2], NULL, 10);
    opt.rank = (int32_t)strtol(argv[3], NULL, 10);
    opt.algorithm = argv[4];
    opt.on_loss = "shrink";
    opt.listen = opt.rank % 2 == 0 ? "tcp://127.0.0.1" : "unix:";
    int rc = psc_ring_open(&opt, &q);
    if (rc != PSC_OK)
        fail(q, "psc_ring_open", rc);
    say("open", psc_clique_size(q));
    while (!stops) {
        rc = step(q, opt.rank, &stops);
        if (rc == PSC_ECLIQUE)
            go_on(q);
        else if (rc != PSC_OK)
            fail(q, "step", rc);
    }
    say("ended", psc_clique_size(q));
    psc_clique_close(q);
    return 0;
}
